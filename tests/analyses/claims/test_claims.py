"""Claims are data, and the judge finds in planted tables what was planted there."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import interp as ip
from analyses.checkpoint.attention import readings
from analyses.claims import document, judge, paper, wording
from analyses.claims.judge import find
from analyses.claims.quantities import QUANTITIES
from analyses.claims.readers import Column, Extreme
from analyses.claims.records import Claim, Need, Tables
from analyses.running.questions import load_module, options_of
from analyses.running.subject import Subject
from analyses.running.table import Table
from figures.parts.figure import load_figure
from figures.running import claims_table, cli
from models.running.command_line import read_entries
from models.training.protocols import protocol_of
from tests.planted import trained_like, without_mechanism

NEEDS = [(claim, need) for claim in document.CLAIMS for need in claim.needs]
SUBJECT = {"family": "disentangled", "prior": "hierarchical", "bos": True, "length": 64, "order": 2, "vocab": 5,
           "seed": 0, "protocol": "paper", "init": "copy(40)", "start": "hard"}  # fmt: skip
Row = dict[str, Any]


def kinds(full: float = 0.0, partial: float = 0.0, bos: float = 0.0) -> Row:
    """The columns of both attention tables for one distribution of the mass."""
    mass = {"full": full, "partial": partial, "none": 1 - full - partial - bos, "bos": bos, "early": 0.0}
    return {"mass": mass}


def predictor(row: Row, name: str, kl: float) -> Row:
    plain = {name: word for name, word in row.items() if name != "family"}
    return {**plain, "subject": None, "predictor": name, "kl": kl}


# What reads several columns, or several rows: a row, and the rows beside it, that give it a value.
PLANTED: dict[str, Any] = {
    "paper_protocol": lambda row, to: {"subject": {**row["subject"], "protocol": "paper" if to >= 1 else "other"}},
    "hard_start": lambda row, to: {"subject": {**row["subject"], "start": "hard" if to >= 1 else "soft"}},
    "copy_mass": lambda row, to: {"mass": [to, 1.0], "stderr": [0.0, 0.0], "success": True},
    "copy_mass_last": lambda row, to: {"lag": [2, 1], "last_mass": [0.0, to], "success": True},
    "partial": lambda row, to: kinds(partial=to),
    "full": lambda row, to: kinds(full=to),
    "full_lead": lambda row, to: kinds(full=(1 + to) / 2, partial=(1 - to) / 2),
    "off_full_bos": lambda row, to: kinds(full=0.5 - to, bos=0.5),
    "key_ratio": lambda row, to: {"per_key": {"full": 9 * to, "partial": to, "none": 1.0}},
    "aligned_weights": lambda row, to: {"aligned_share": to},
    "bos_error": lambda row, to: {"alpha": 1.0, "vocab": 5, "kinds": ["full"] * 5, "mass": {"bos": 0.5 + to}},
    "on_full": lambda row, to: {"on_full": [1000 * to, 1000]},
    "theory_error": lambda row, to: {"error": to, "tolerance": 1.0, "holds": to <= 1},
    "doublings": lambda row, to: {"ratio": 2**-to, "stderr": 0.0, "mean": 1.0},
    "pseudo_mean": lambda row, to: {"ratio": 1 - to, "stderr": 0.0, "alpha": 1.0},
    "nearer_mle": lambda row, to: {"kl": to / (1 + to)},
    "nearer_bayes": lambda row, to: {"kl": 1 / (1 + to)},
    "apart": lambda row, to: {"kl": 1.0},
    "below_add_alpha": lambda row, to: {"kl": 2.0 * (1 - to)},
    "excess_kept": lambda row, to: {"excess_share": to, "excess_share_stderr": 0.0},
    "over_trained": lambda row, to: {"kl": 1.0 + to, "over_free": to},
    "partial_cost": lambda row, to: {"change": {"partial": to, "readout": 0.0, "bos": -1.0}},
    "bos_cost": lambda row, to: {"change": {"partial": 0.0, "bos": to}},
    "keys_lead": lambda row, to: {
        "edits": [{"edit": "law", "kl": 1.0, "kl_stderr": 0.0, "control_kl": 1.0 + to, "control_kl_stderr": 0.0}]
    },
}
CURVES = {"maximum likelihood": 0.0, "bayes": 1.0, "add-1": 2.0, "add-alpha, tuned": 0.0, "optimal, BOS": 1.0}


def planted(need: Need, to: float) -> dict[str, list[Row]]:
    """Tables in which the need's rows have this value."""
    words = {name: word[0] if isinstance(word, tuple) else word for name, word in need.rows.items()}
    lengths = need.rows.get("length", 64)
    rows = []
    for length in lengths if isinstance(lengths, tuple) else (lengths,):
        subject = {name: words.get(name, value) for name, value in SUBJECT.items()} | {"length": length}
        row: Row = {**words, "length": length, "order": 2, "vocab": 5}
        row["subject"] = (
            None if need.table in ("theory", "prior_trees", "open_choices") or "predictor" in words else subject
        )
        row.setdefault("prior", subject["prior"])
        rows.append(row)
    rows = [set_value(deepcopy(row), need, to) for row in rows]
    if need.quantity == "seeds":
        rows = [{**row, "subject": {**row["subject"], "seed": seed}} for row in rows for seed in range(round(to))]
    tables = {need.table: rows}
    first = rows[0] | {"prior": words.get("prior", "hierarchical")}
    if need.table == "conditions":
        rows[:] = [{**one_run(row), "runs": [row]} for row in rows]
    if need.table == "kl_curves" or need.quantity == "over_trained":
        curves = [predictor(first, name, kl) for name, kl in CURVES.items()]
        other = {**SUBJECT, **{name: words[name] for name in ("prior", "bos") if name in words}, "family": "standard"}
        against = {"apart": 1.0 + to, "over_trained": 1.0}
        apart = [{**first, "subject": other, "kl": against[need.quantity]}] if need.quantity in against else []
        early = [{**first, "length": 32, "excess_share": 1.0}] if need.quantity == "excess_kept" else []
        tables["kl_curves"] = [*tables.get("kl_curves", []), *curves, *apart, *early]
    return tables


def one_run(row: Row) -> Row:
    """The columns of a cell of the study."""
    return {"readout": "probability", "protocol": "annealed", "freeze": "copies,readout", **row}


def set_value(row: Row, need: Need, to: float) -> Row:
    reader = QUANTITIES[need.quantity].read[need.table]
    if isinstance(reader, Column):
        return put(put(row, reader.path, to), reader.less, 0.0) if reader.less else put(row, reader.path, to)
    if isinstance(reader, Extreme):
        for path in reader.paths:
            put(row, path, to)
        return row
    return row | (PLANTED[need.quantity](row, to) if need.quantity != "seeds" else {}) | by_overlap(row, need, to)


def by_overlap(row: Row, need: Need, to: float) -> Row:
    """`overlap_mass` has the mass by the size of the match."""
    if need.table != "overlap_mass":
        return {}
    mass = PLANTED[need.quantity](row, to)["mass"]
    sizes = {"0": mass["none"], "1": mass["partial"], "2": mass["full"]}
    return {"by_overlap": sizes, "bos": mass["bos"], "early": mass["early"]}


def put(row: Row, path: str, to: float) -> Row:
    """Set what lies at a path, and make the path."""
    place: Any = row
    *steps, last = names = path.split(".")
    for step, following in zip(steps, names[1:], strict=True):
        if isinstance(place, list):
            place += [{} for _ in range(int(step) + 1 - len(place))]
            place = place[int(step)]
        else:
            place = place.setdefault(step, [] if following.isdigit() else {})
    if isinstance(place, list):
        place += [0.0] * (int(last) + 1 - len(place))
        place[int(last)] = to
    else:
        place[last] = to
    return row


@pytest.mark.parametrize(("claim", "need"), NEEDS, ids=[f"{claim.id}-{need.quantity}" for claim, need in NEEDS])
def test_every_need_is_met_and_unmet_as_planted(claim: Claim, need: Need) -> None:
    quantity = QUANTITIES[need.quantity]
    if quantity.bound is None:
        assert word(need, 1.0) == "not judged"
        return
    step = 1.0 if quantity.side == "==" or quantity.bound == 1 or quantity.bound == 3 else 0.1 * (quantity.bound or 0.1)
    right = {">=": step, "<=": -0.5 * step, "==": 0.0}[quantity.side]
    if need.quantity in ("paper_protocol", "hard_start", "seeds"):
        right = 0.0
    assert word(need, quantity.bound + right) == "holds"
    assert word(need, quantity.bound - (right or step)) == "does not hold"


def word(need: Need, to: float) -> str:
    tables = planted(need, to)
    family = need.rows.get("family", "")
    first = family[0] if isinstance(family, tuple) else family
    groups = find(need, tables).groups
    return next((group.word for group in groups if group.family == first), groups[0].word)


def test_the_paper_has_58_statements() -> None:
    numbered = [claim for claim in document.CLAIMS if claim.number is not None]
    assert [claim.number for claim in numbered] == list(range(1, 59))
    assert all(claim.label for claim in document.CLAIMS)
    assert len({claim.id for claim in document.CLAIMS}) == len(document.CLAIMS)


def test_every_quantity_is_used_and_reasoned() -> None:
    assert {need.quantity for _, need in NEEDS} == set(QUANTITIES)
    assert all(quantity.reason for quantity in QUANTITIES.values() if quantity.bound is not None)
    assert all(need.table in QUANTITIES[need.quantity].read for _, need in NEEDS)


def test_no_number_is_cut_in_its_line() -> None:
    for name, quantity in QUANTITIES.items():
        number = quantity.written(0.1234)
        required = f" ({quantity.required}{wording.AFTER_DATA})" if quantity.required else ""
        assert len(f"{number}{required} {quantity.words}") <= 48, name
        assert len(f"{number}, else {number}{required}") <= 48, name
    notes = [claim.note for claim in document.CLAIMS if not claim.needs]
    assert max(map(len, notes)) <= 48


def test_figures_name_claims_that_are_there() -> None:
    ids = {claim.id for claim in document.CLAIMS}
    for name in read_entries(cli.FOLDER, marker="LABEL"):
        assert set(load_figure(name).CLAIMS) <= ids


LEAD = next(claim for claim in paper.CLAIMS if claim.id == "lag_1_leads")


def lead_of(family: str) -> Claim:
    """That claim, asked of one family."""
    return replace(LEAD, needs=tuple(replace(need, rows={**need.rows, "family": family}) for need in LEAD.needs))


def run(raw: float, *, length: int = 64, **words: Any) -> Row:
    return {"subject": {**SUBJECT, "length": length, **words}, "raw_1": raw, "raw_2": 0.0, "fit": True}


def judged(rows: list[Row], *, claim: Claim | None = None, **others: list[Row]) -> Any:
    tables: Tables = {"lag_asymmetry": rows, **others}
    return judge.judge(claim or lead_of("disentangled"), tables)


def test_a_verdict_names_the_start() -> None:
    found = judged([run(1.0), run(-1.0, start="soft")])
    assert (found["verdict"], found["says"], found["start"]) == ("holds", "holds", "hard")
    assert found["runs"] == "hard copies, paper's protocol, T = 64"
    assert found["others"] == "random or soft starts: not"
    other = judged([run(-1.0), run(1.0, start="soft")])
    assert other["says"] == "holds from random or soft starts"
    assert other["found"] == "1.00, else -1.00 (>= 0.1*) lag-1 less lag-2 block (nats)"


def test_the_models_judged_are_named_with_their_starts_and_lengths() -> None:
    rows = [run(1.0), run(1.0, length=32), run(1.0, start="soft")]
    assert document.zoo_lines(rows) == [
        "Judged: disentangled, hierarchical task, BOS: hard copies, T = 32, 64 (2 runs); "
        "random or soft starts, T = 64 (1 run)."
    ]


def test_a_bound_of_the_length_is_found() -> None:
    found = judged([run(-1.0, length=32), run(1.0), run(2.0, length=128)])
    assert (found["verdict"], found["says"]) == ("holds where", "holds where T >= 64")
    assert found["found"].startswith("1.00, else -1.00 (")


def test_within_one_error_nothing_is_told() -> None:
    claim = Claim(id="a", label="a", topic="cause", sentence="a", needs=(Need(table="direct_path", quantity="direct"),))
    for gain, error, word in ((0.012, 0.003, "cannot tell"), (1e-5, 1e-6, "holds")):  # ten errors, and no effect
        rows = [{"subject": SUBJECT, "gain": gain, "gain_stderr": error}]
        assert judge.judge(claim, {"direct_path": rows})["verdict"] == word


CELL = {"prior": "hierarchical", "bos": True, "readout": "probability", "protocol": "annealed", "length": 64}
BLOCKS, NO_BLOCKS = [{"block_1": 2.0, "block_2": 1.0}] * 3, [{"block_1": 1.0, "block_2": 2.0}] * 3


def study(first: list[Row], last: list[Row], *, cell: str = "frozen_copies", freeze: str = "copies") -> list[Row]:
    """Runs of a cell, and of the one that starts at random."""
    return [
        {**CELL, "cell": cell, "freeze": freeze, "runs": first},
        {**CELL, "cell": "random_start", "freeze": "", "runs": last},
    ]


def test_the_condition_is_of_the_study_given() -> None:
    found = judged([run(-1.0)], conditions=study(BLOCKS, NO_BLOCKS))
    assert found["says"] == "holds where the copy heads are frozen"
    (group,) = found["needs"][0]["groups"]
    assert group["evidence"] == "3 of 3 runs with it, 0 of 3 without (study `conditions`)"
    assert judged([run(-1.0)], conditions=study(NO_BLOCKS, BLOCKS))["verdict"] == "does not hold"
    assert judged([run(-1.0)])["verdict"] == "does not hold"


def test_the_conditions_of_the_runs_are_not_their_condition() -> None:
    runs = study(BLOCKS, NO_BLOCKS, cell="hard_start", freeze="")
    assert judged([run(-1.0, start="soft")], conditions=runs)["says"] == "holds where the copy heads start sharp"
    assert judged([run(-1.0)], conditions=runs)["verdict"] == "does not hold"
    lost = judged([run(-1.0, family="standard", start="soft")], claim=lead_of("standard"), conditions=runs)
    assert lost["verdict"] == "does not hold"  # the study has no standard models trained so


def test_a_fixed_readout_is_no_condition() -> None:
    read = QUANTITIES["partial_cost"].read["conditions"]
    runs = {"bos": False, "partial_alone": 3.0, "readout_alone": 0.0}
    assert read({**runs, "freeze": "copies"}, {}) == (3.0, 0.0)
    assert read({**runs, "freeze": "copies,readout"}, {}) is None


def test_what_is_not_there_is_said() -> None:
    long, nine = (next(one for one in paper.CLAIMS if one.id == name) for name in ("sharp_copies_long", "lengths"))
    rows = [{"subject": {**SUBJECT, "length": 32}, "mass": [1.0], "stderr": [0.0], "success": True}]
    found = judge.judge(long, {"copy_heads": rows})
    assert found["verdict"] == "cannot tell"
    assert "cannot tell for disentangled models: no run of T = 128, only of T = 32" in found["says"]
    assert judge.judge(long, {})["says"] == "cannot tell: there is no table copy_heads"
    rows = [{"subject": {**SUBJECT, "seed": seed, "length": 32}} for seed in range(3)]
    assert "disentangled models: no run of T = 64, 128" in judge.judge(nine, {"copy_heads": rows})["says"]
    assert judged([run(1.0)], claim=LEAD)["says"] == (
        "holds for disentangled models; cannot tell for construction models: no run on the hierarchical task with BOS"
    )


@pytest.mark.parametrize(("protocol", "words"), wording.PROTOCOL_WORDS.items())
def test_the_protocol_of_the_runs_is_said(protocol: str, words: str) -> None:
    assert judged([run(1.0, protocol=protocol)])["runs"] == f"hard copies, {words}, T = 64"


def test_runs_of_other_protocols_decide_only_alone() -> None:
    main = [run(1.0, protocol="annealed")]
    for protocol in ("long", "paper_changed"):
        beside = run(-1.0, protocol=protocol)
        assert judged([*main, beside])["verdict"] == "holds"
        assert judged([beside])["verdict"] == "does not hold"
    assert judged([run(1.0), run(-1.0, protocol="annealed")])["verdict"] == "holds"


def test_two_scalars_are_judged_by_the_rule_of_kappa() -> None:
    two = next(claim for claim in paper.CLAIMS if claim.id == "two_scalars")
    subject = {**SUBJECT, "protocol": "annealed"}
    first = {"length": 64, "order": 2, "vocab": 5, "prior": "hierarchical:5"}
    curves = [predictor(first, name, kl) for name, kl in CURVES.items()]
    curves += [{**first, "subject": subject, "predictor": "", "kl": 1.0}]
    made = [
        {**first, "subject": {**subject, "family": "construction", "start": start}, "predictor": "", "kl": kl}
        for start, kl in (("free", 1.1), ("kappa_tied", 4.0), ("kappa_fixed", 1.2))
    ]
    readings = [
        {**first, "subject": None, "question": "kappa", "reading": name, "kl": 1.0, "over_free": over}
        for name, over in (("free", 0.0), ("tied(1)", 3.0), ("fixed(0)", 0.2))
    ]
    absent = judge.judge(two, {"kl_curves": [*curves, made[0]], "open_choices": readings})
    assert "holds for the best betas where kappa is free or fixed(0)" in absent["says"]
    assert "no run with kappa tied" in absent["says"]
    assert absent["found"] == "0.20, else 3.00 (<= 0.5*) KL over trained / add-alpha's gap"
    told = judge.judge(two, {"kl_curves": [*curves, *made], "open_choices": readings})
    assert told["says"] == (
        "holds for trained betas where kappa is free or fixed; holds for the best betas where kappa is free or fixed(0)"
    )


def test_a_changed_protocol_is_not_the_papers() -> None:
    whole = {"protocol": "paper", "steps": 1_000_000, "step": 1_000_000, "learning_rate": 1e-3, "batch": 32}
    assert protocol_of(whole) == "paper"
    for change in ({"steps": 50_000, "step": 50_000}, {"step": 10}, {"learning_rate": 3e-3}, {"batch": 64}):
        assert protocol_of({**whole, **change}) == "paper_changed"
    assert protocol_of({"protocol": "annealed", "steps": 10}) == "annealed"
    assert protocol_of({}) is None


def test_most_runs_decide_and_a_run_without_the_number_does_not_meet_it() -> None:
    two = [run(1.0), run(1.0, seed=1), run(-1.0, seed=2)]
    assert judged(two)["verdict"] == "holds"
    lost = {**run(0.0, seed=3), "raw_1": None, "fit": False}
    assert judged([*two, lost])["verdict"] == "does not hold"


def test_claims_are_printed_in_the_papers_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [run(1.0), run(-1.0, start="soft")]
    (tmp_path / "lag_asymmetry.json").write_text(json.dumps({"analysis": "lag_asymmetry", "rows": rows}))
    assert cli.main(["claims", "--results", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[len(document.CLAIMS) :] == ["", wording.LEGEND]
    assert max(map(len, lines)) <= 100
    assert lines[49] == "50 sec:experiments          cannot tell   hard      no run on the hierarchical task with BOS"
    assert cli.main(["claims", "--results", str(tmp_path), "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["analysis"] == "claims"
    assert [row["number"] for row in content["rows"][:58]] == list(range(1, 59))


BAD = ('{"analysis": "other", "rows": []}', '{"analysis": "lag_asymmetry", "rows": [{"subject": 3}]}')


@pytest.mark.parametrize("text", BAD)
def test_bad_tables_are_one_line(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "lag_asymmetry.json").write_text(text)
    assert cli.main(["claims", "--results", str(tmp_path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_the_table_goes_between_the_marks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "lag_asymmetry.json").write_text(json.dumps({"analysis": "lag_asymmetry", "rows": [run(1.0)]}))
    file = tmp_path / "page.md"
    file.write_text(f"before\n{claims_table.BEGIN}\nthe former one\n{claims_table.END}\nafter\n")
    for _ in range(2):  # the second time changes nothing
        assert cli.main(["claims", "--results", str(tmp_path), "--write", str(file)]) == 0
        text = file.read_text()
        assert text.startswith(f"before\n{claims_table.BEGIN}\n{claims_table.HEAD[0]}")
        assert text.endswith(f"{claims_table.END}\nafter\n")
        assert "the former one" not in text
    file.write_text("no marks")
    assert cli.main(["claims", "--results", str(tmp_path), "--write", str(file)]) == 2
    assert "once each" in capsys.readouterr().err
    assert file.read_text() == "no marks"


def test_the_page_of_claims_has_every_claim_of_the_paper_that_is_judged() -> None:
    text = (Path(__file__).parents[3] / "docs" / "claims.md").read_text()
    table = text[text.index(claims_table.BEGIN) : text.index(claims_table.END)]
    for claim in document.CLAIMS:
        if claim.number and claim.needs and claim.topic != "setting":
            assert claim.sentence.replace("|", "\\|").replace("<", "&lt;") in table, claim.id


# Negative controls: what a claim asks of attention and weights is not met where there is no mechanism.

RECORD = {
    "prior": {"kind": "hierarchical", "order": 2, "vocab": 4, "eta": [5.0, 5.0], "eta0": 1.0},
    "seed": 0, "protocol": "annealed", "init": "copy(40)", "status": "finished",
}  # fmt: skip


def analysed(folder: Path, model: Any, *names: str) -> dict[str, list[Row]]:
    """Tables of one checkpoint."""
    ip.save(model, folder, training=RECORD)
    tables = {}
    for name in names:
        module = load_module(name)
        options = replace(options_of(name)(), batch=96)
        subject = Subject.open(folder, options)
        found = module.analyse(subject, options)
        records = found.rows if isinstance(found, Table) else [found.record()]
        tables[name] = [{"checkpoint": "a", "subject": subject.summary(), **record} for record in records]
    return tables


def verdicts(tables: Tables, *ids: str) -> dict[str, str]:
    """The claims' verdicts on disentangled models, whatever their length."""
    found = {}
    for claim in document.CLAIMS:
        if claim.id in ids:
            rows = [
                {name: word for name, word in need.rows.items() if name != "length"} | {"family": "disentangled"}
                for need in claim.needs
            ]
            needs = tuple(replace(need, rows=mine) for need, mine in zip(claim.needs, rows, strict=True))
            found[claim.id] = judge.judge(replace(claim, needs=needs), tables)["verdict"]
    return found


TABLES = ("identity_blocks", "attention", "copy_heads", "overlap_mass")


def test_random_weights_do_not_pass(tmp_path: Path) -> None:
    good = analysed(tmp_path / "good", trained_like(noise=0.02), *TABLES)
    bad = analysed(tmp_path / "bad", without_mechanism(seed=1), *TABLES)
    claims = ("identity", "blocks", "sharp_copies", "queries_match", "full_and_partial", "hier_induction")
    assert verdicts(good, *claims) == dict.fromkeys(claims, "holds")
    assert verdicts(bad, *claims) == dict.fromkeys(claims, "does not hold")


def spoiled(row: Row) -> Row:
    """The same sequence through attention without structure: every head looks at every key alike."""
    keys = len(row["kinds"])
    flat = (np.tril(np.ones((keys, keys))) / np.arange(1, keys + 1)[:, None]).tolist()
    other = {**deepcopy(row), "copy_pattern": [flat for _ in row["copy_pattern"]], "match_pattern": flat}
    other |= {"weights": flat[-1], "match_weight": np.ones_like(row["match_weight"]).tolist()}
    other["mass"] = {kind: row["kinds"].count(kind) / keys for kind in row["mass"]}
    return {**other, **readings(other, order=2, vocab=4)}


@pytest.mark.parametrize("name", ["key_ratio", "aligned_weights", "on_full", "bos_error"])
def test_a_spoiled_row_turns_what_reads_it_red(name: str, tmp_path: Path) -> None:
    (row,) = analysed(tmp_path / "good", trained_like(noise=0.02), "attention")["attention"]
    claim = Claim(id="a", label="a", topic="matching", sentence="a", needs=(Need(table="attention", quantity=name),))
    if name != "bos_error":  # under this prior no share of BOS is asked for
        assert judge.judge(claim, {"attention": [row]})["verdict"] == "holds"
    assert judge.judge(claim, {"attention": [spoiled(row)]})["verdict"] == "does not hold"
