"""Claims are data, and the judge finds in planted tables what was planted there."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from analyses.claims import document, judge, paper
from analyses.claims.judge import find
from analyses.claims.quantities import QUANTITIES
from analyses.claims.readers import Column, Difference, Is, Least
from analyses.claims.records import Claim, Need, Tables
from analyses.running.command import read_entries
from figures.running import claims_table, cli, drawing

NEEDS = [(claim, need) for claim in document.CLAIMS for need in claim.needs]
SUBJECT = {"family": "disentangled", "prior": "hierarchical", "bos": True, "length": 64, "order": 2, "vocab": 5,
           "seed": 0, "protocol": "paper", "init": "copy(40)", "start": "hard"}  # fmt: skip
Row = dict[str, Any]


def kinds(full: float = 0.0, partial: float = 0.0, bos: float = 0.0) -> Row:
    """The columns of both attention tables for one distribution of the mass."""
    mass = {"full": full, "partial": partial, "none": 1 - full - partial - bos, "bos": bos, "early": 0.0}
    return {"mass": mass}


def predictor(row: Row, name: str, kl: float) -> Row:
    return {**row, "subject": None, "predictor": name, "kl": kl}


# What reads several columns, or several rows: a row, and the rows beside it, that give it a value.
PLANTED: dict[str, Any] = {
    "copy_mass": lambda row, to: {"mass": [to, 1.0], "stderr": [0.0, 0.0], "success": True},
    "copy_mass_last": lambda row, to: {"lag": [2, 1], "last_mass": [0.0, to], "success": True},
    "partial": lambda row, to: kinds(partial=to),
    "full": lambda row, to: kinds(full=to),
    "full_lead": lambda row, to: kinds(full=(1 + to) / 2, partial=(1 - to) / 2),
    "off_full_bos": lambda row, to: kinds(full=0.5 - to, bos=0.5),
    "key_ratio": lambda row, to: {"per_key": {"full": 9 * to, "partial": to, "none": 1.0}},
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
    "over_free": lambda row, to: {"kl": 1.0, "over_free": to},
    "partial_cost": lambda row, to: {"change": {"partial": to, "readout": 0.0, "bos": -1.0}},
    "bos_cost": lambda row, to: {"change": {"partial": 0.0, "bos": to}},
    "keys_lead": lambda row, to: {
        "edits": [{"edit": "law", "kl": 1.0, "kl_stderr": 0.0, "control_kl": 1.0 + to, "control_kl_stderr": 0.0}]
    },
}
CURVES = {"maximum likelihood": 0.0, "bayes": 1.0, "add-1": 2.0, "add-alpha, tuned": 0.0}


def planted(need: Need, to: float) -> dict[str, list[Row]]:
    """Tables in which the need's rows have this value."""
    words = {name: word[0] if isinstance(word, tuple) else word for name, word in need.rows.items()}
    lengths = need.rows.get("length", 64)
    rows = []
    for length in lengths if isinstance(lengths, tuple) else (lengths,):
        subject = {name: words.get(name, value) for name, value in SUBJECT.items()} | {"length": length}
        row: Row = {**words, "length": length, "order": 2, "vocab": 5}
        row["subject"] = None if need.table in ("theory", "prior_trees") or "predictor" in words else subject
        row.setdefault("prior", subject["prior"])
        rows.append(row)
    rows = [set_value(deepcopy(row), need, to) for row in rows]
    if need.quantity == "seeds":
        rows = [{**row, "subject": {**row["subject"], "seed": seed}} for row in rows for seed in range(round(to))]
    tables = {need.table: rows}
    first = rows[0] | {"prior": words.get("prior", "hierarchical")}
    if need.table == "kl_curves" or need.quantity == "over_free":
        curves = [predictor(first, name, kl) for name, kl in CURVES.items()]
        other = {**SUBJECT, **{name: words[name] for name in ("prior", "bos") if name in words}, "family": "standard"}
        apart = [{**first, "subject": other, "kl": 1.0 + to}] if need.quantity == "apart" else []
        early = [{**first, "length": 32, "excess_share": 1.0}] if need.quantity == "excess_kept" else []
        tables["kl_curves"] = [*tables.get("kl_curves", []), *curves, *apart, *early]
    return tables


def set_value(row: Row, need: Need, to: float) -> Row:
    reader = QUANTITIES[need.quantity].read[need.table]
    if isinstance(reader, Column):
        return put(row, reader.path, to)
    if isinstance(reader, Difference):
        return put(put(row, reader.one, to), reader.other, 0.0)
    if isinstance(reader, Least):
        for path in reader.paths:
            put(row, path, to)
        return row
    if isinstance(reader, Is):
        row["subject"][reader.word] = reader.wanted if to >= 1 else "another"
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
        assert state(need, 1.0) == "measured"
        return
    step = 1.0 if quantity.side == "==" or quantity.bound == 1 or quantity.bound == 3 else 0.1 * (quantity.bound or 0.1)
    right = {">=": step, "<=": -0.5 * step, "==": 0.0}[quantity.side]
    if need.quantity in ("paper_protocol", "hard_start", "seeds"):
        right = 0.0
    assert state(need, quantity.bound + right) == "met"
    assert state(need, quantity.bound - (right or step)) == "unmet"


def state(need: Need, to: float) -> str:
    tables = planted(need, to)
    family = (need.rows.get("family") or "disentangled") if "family" in need.rows else ""
    first = family[0] if isinstance(family, tuple) else family
    groups = find(need, tables).groups
    return next((group.state for group in groups if group.family == first), groups[0].state)


def test_the_paper_has_58_statements() -> None:
    numbered = [claim for claim in document.CLAIMS if claim.number is not None]
    assert [claim.number for claim in numbered] == list(range(1, 59))
    assert all(claim.label for claim in document.CLAIMS)
    assert len({claim.id for claim in document.CLAIMS}) == len(document.CLAIMS)


def test_every_quantity_is_used_and_reasoned() -> None:
    assert {need.quantity for _, need in NEEDS} == set(QUANTITIES)
    assert all(quantity.reason for quantity in QUANTITIES.values() if quantity.bound is not None)
    assert all(need.table in QUANTITIES[need.quantity].read for _, need in NEEDS)
    assert max(len(quantity.words) for quantity in QUANTITIES.values()) <= 36


def test_figures_name_claims_and_judge_nothing() -> None:
    ids = {claim.id for claim in document.CLAIMS}
    folder = cli.FOLDER
    for name in read_entries(cli.FOLDER, marker="LABEL"):
        module = drawing.load_module(name)
        assert set(module.CLAIMS) <= ids
        assert not hasattr(module, "verdict")
    code = "".join(file.read_text() for file in folder.rglob("*.py"))
    assert "claims.judge" not in code
    assert "claims.quantities" not in code


LEAD = next(claim for claim in paper.CLAIMS if claim.id == "lag_1_leads")


def run(raw: float, *, length: int = 64, **words: Any) -> Row:
    return {"subject": {**SUBJECT, "length": length, **words}, "raw_1": raw, "raw_2": 0.0, "fit": True}


def judged(rows: list[Row], **others: list[Row]) -> Any:
    tables: Tables = {"lag_asymmetry": rows, **others}
    return judge.judge(LEAD, tables)


def test_a_verdict_names_the_start() -> None:
    found = judged([run(1.0), run(-1.0, start="soft")])
    assert found.word == "holds"
    assert found.says == "holds (from hard copies, by the paper's protocol); from random or soft starts not"
    assert found.start == "hard"
    assert judged([run(-1.0), run(1.0, start="soft")]).says.startswith("holds from random or soft starts")


def test_a_bound_of_the_length_is_found() -> None:
    found = judged([run(-1.0, length=32), run(1.0), run(1.0, length=128)])
    assert (found.word, found.says.split(" (")[0]) == ("holds where", "holds where T >= 64")


def test_within_one_error_nothing_is_told() -> None:
    claim = Claim(id="a", label="a", topic="cause", sentence="a", needs=(Need(table="direct_path", quantity="direct"),))
    rows = [{"subject": SUBJECT, "gain": gain, "gain_stderr": 0.003} for gain in (0.012,)]
    assert judge.judge(claim, {"direct_path": rows}).word == "cannot tell"
    rows[0] |= {"gain": 1e-5, "gain_stderr": 1e-6}  # ten standard errors, and no effect
    assert judge.judge(claim, {"direct_path": rows}).word == "holds"


def test_the_condition_is_of_the_study_given() -> None:
    cell = {"prior": "hierarchical", "bos": True, "readout": "probability", "protocol": "annealed", "length": 64}
    runs = [{"block_1": 2.0, "block_2": 1.0}] * 3
    other = [{"block_1": 1.0, "block_2": 2.0}] * 3
    frozen = {**cell, "cell": "frozen_copies", "freeze": "copies"}
    free = {**cell, "cell": "random_start", "freeze": ""}
    study = [{**frozen, "runs": runs}, {**free, "runs": other}]
    found = judged([run(-1.0)], conditions=study)
    assert found.says.startswith("holds where the copy heads are frozen")
    assert found.findings[0].evidence == "3 of 3 runs with it, 0 of 3 without (study `conditions`)"
    turned = [{**frozen, "runs": other}, {**free, "runs": runs}]
    assert judged([run(-1.0)], conditions=turned).word == "does not hold"
    assert judged([run(-1.0)]).word == "does not hold"


def test_a_length_that_is_not_there_is_said() -> None:
    claim = next(claim for claim in paper.CLAIMS if claim.id == "sharp_copies_long")
    rows = [{"subject": {**SUBJECT, "length": 32}, "mass": [1.0], "stderr": [0.0], "success": True}]
    found = judge.judge(claim, {"copy_heads": rows})
    assert found.word == "cannot tell"
    assert found.says == "cannot tell for the copies: no run of T = 128, only of T = 32"
    assert judge.judge(claim, {}).says.endswith("there is no table copy_heads")


def test_the_papers_protocol_comes_before_others() -> None:
    found = judged([run(1.0), run(-1.0, protocol="annealed"), run(-1.0, protocol="long")])
    assert found.findings[0].groups[0].protocols == ("paper",)
    assert found.word == "holds"


def test_most_runs_decide_and_a_run_without_the_number_does_not_meet_it() -> None:
    two = [run(1.0), run(1.0, seed=1), run(-1.0, seed=2)]
    assert judged(two).word == "holds"
    lost = {**run(0.0, seed=3), "raw_1": None, "fit": False}
    assert judged([*two, lost]).word == "does not hold"


def test_claims_are_printed_in_the_papers_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [run(1.0), run(-1.0, start="soft")]
    (tmp_path / "lag_asymmetry.json").write_text(json.dumps({"analysis": "lag_asymmetry", "rows": rows}))
    assert cli.main(["claims", "--results", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(document.CLAIMS)
    assert max(map(len, lines)) <= 100
    assert (
        lines[49] == "50 sec:experiments          holds         hard      lag-1 less lag-2 block (nats) 1.00 (>= 0.1)"
    )
    assert cli.main(["claims", "--results", str(tmp_path), "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["analysis"] == "claims"
    assert [row["number"] for row in content["rows"][:58]] == list(range(1, 59))


BAD = (
    "{}",
    '{"analysis": "other", "rows": []}',
    '{"analysis": "lag_asymmetry", "rows": [1]}',
    '{"analysis": "lag_asymmetry", "rows": [{"subject": 3}]}',
)


@pytest.mark.parametrize("text", BAD)
def test_bad_tables_are_one_line(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "lag_asymmetry.json").write_text(text)
    with pytest.raises(SystemExit, match="2"):
        cli.main(["claims", "--results", str(tmp_path)])
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
    with pytest.raises(SystemExit, match="2"):
        cli.main(["claims", "--results", str(tmp_path), "--write", str(file)])
    assert "once each" in capsys.readouterr().err
    assert file.read_text() == "no marks"


def test_readme_has_every_claim_of_the_paper_that_is_judged() -> None:
    text = (Path(__file__).parents[2] / "README.md").read_text()
    table = text[text.index(claims_table.BEGIN) : text.index(claims_table.END)]
    for claim in document.CLAIMS:
        if claim.number and claim.needs and claim.topic != "setting":
            assert claim.sentence.replace("|", "\\|").replace("<", "&lt;") in table, claim.id
