"""docs/language_model.md and the README say what the shipped result of the study says, number by number."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from analyses import shipped
from analyses.language.page import pick

ROOT = Path(__file__).parent.parent
MINUS = "\N{MINUS SIGN}"
Row = dict[str, Any]
Rows = list[Row]


@pytest.fixture(scope="module")
def rows() -> Rows:
    document = shipped.shipped_document("language_model")
    assert document is not None
    return [dict(row) for row in document.rows]


def plain(file: Path) -> str:
    """The text with single spaces."""
    return re.sub(r"\s+", " ", file.read_text(encoding="utf-8"))


def number(value: float, digits: int) -> str:
    """Rounded, with a minus sign as the page has it, and without one before zero."""
    text = f"{value:.{digits}f}"
    return text.replace("-", MINUS) if float(text) else text.removeprefix("-")


def pm(value: float, error: float, digits: int = 2) -> str:
    return f"{number(value, digits)} ± {number(error, digits)}"


def span(values: Any, digits: int = 2) -> str:
    """The least and the largest."""
    known = [value for value in values if value is not None]
    return f"{number(min(known), digits)} to {number(max(known), digits)}"


def edits(rows: Rows, on: str) -> dict[str, Row]:
    return {row["edit"]: row for row in pick(rows, part="causal", on=on)}


def recovered(row: Row) -> str:
    return pm(row["recovered"], row["recovered_stderr"])


def scanned(rows: Rows) -> Iterator[str]:
    """Every head, and the laws of the best on chains."""
    heads = sorted(pick(rows, part="heads", kind="head"), key=lambda row: -(row["r2_match"] or 0.0))
    best, sixth, rest = heads[:5], heads[5], heads[6:]
    names = sorted(f"{row['layer']}.{row['head']}" for row in best)
    yield f"Five heads match: {', '.join(names[:4])} and {names[4]}."
    shares = [round(100 * row["r2_match"]) for row in best]
    yield f"matches explain {min(shares)} to {max(shares)}% of what position leaves"
    yield f"No other head but {sixth['layer']}.{sixth['head']} ({100 * sixth['r2_match']:.0f}%"
    assert all((row["r2_match"] or 0.0) < 0.1 for row in rest)
    yield "reaches 10%"
    assert {id(row) for row in sorted(heads, key=lambda row: -row["repeat_induction"])[:5]} == {id(row) for row in best}
    yield f"highest classical induction scores on repeated tokens ({span(row['repeat_induction'] for row in best)})"
    assert max(row["control_r2_match"] or 0.0 for row in heads) < 0.001
    yield "no head of 270 reaches 0.001"
    (chance,) = pick(rows, part="random")
    assert chance["matching"] == 0
    yield f"none matches (at most {chance['largest_r2_match']:.3f})"


def laws(rows: Rows) -> Iterator[str]:
    """The law of the attention on chains."""
    found = pick(rows, part="heads", kind="law")
    for lag in (0, 1):
        largest = max(row["beta_stderr"][lag] for row in found)
        yield f"beta_{lag + 1} of {span((row['beta'][lag] for row in found), 1)} (± {largest:.1f})"
    yield f"at most {max(max(row['halves_apart']) for row in found):.1f} standard errors apart"
    errors = max(row["nats_explained_stderr"] for row in found)
    yield f"It explains {span(row['nats_explained'] for row in found)} (± {errors:.2f}) of the information"
    assert max(row["mass_gap"] for row in found) < 0.03
    yield "are within 0.03"
    yield f"masses of single queries are off by {span(row['query_gap'] for row in found)}"
    assert max(max(row["behind"]) for row in found) < 0.0062
    yield "within 0.006 nats of each other"
    for name in ("18.6", "18.7"):
        (row,) = [row for row in found if row["name"] == name]
        assert row["laws"][0] == "additive"
        yield pm(row["behind"][0] - row["behind"][1], row["behind_stderr"][0], 4)
    largest = max(row["lag_0_stderr"] for row in found)
    least, most = (number(one(row["lag_0"] for row in found), 1) for one in (max, min))
    yield f"gets less: {least} to {most} (± {largest:.1f})"


def on_repeats(rows: Rows) -> Iterator[str]:
    """Edits on repeated tokens."""
    found = edits(rows, "repeats")
    ablated, law = found["ablated"], found["law"]
    yield f"rises by {pm(ablated['change'], ablated['stderr'], 1)} nats"
    assert ablated["worst_control"] <= 0.15
    yield "at most 0.1"
    yield f"recovers {recovered(law)} of that ({law['n']} sequences)"
    yield f"the same weights on shuffled keys {number(law['control_recovered'], 2)}"
    yield f"even attention {recovered(found['even'])}"
    yield f"Hard matching recovers {recovered(found['hard'])}"
    yield f"One law for all five heads recovers {recovered(found['one law for all'])}"
    yield f"fitted with a positional term recovers {recovered(found['fitted with position'])}"
    yield f"each head's own mass on matches, query by query, recovers {recovered(found['grouped'])}"
    yield f"The law fitted on chains recovers {recovered(found['law of chains'])}"


def paths(rows: Rows) -> Iterator[str]:
    """From previous-token heads to matching heads."""
    found = {row["name"]: row for row in pick(rows, part="causal", on="path")}
    one, other = found["17.3"], found["18.6"]
    yield f"({', '.join(one['copy_heads'])})"
    for row in (one, other):
        yield (
            f"from {pm(row['mass'], row['mass_stderr'])} to {pm(row['without_copies'], row['without_copies_stderr'])}"
        )
    yield f"stays at {pm(one['control'], one['control_stderr'])} ({pm(other['control'], other['control_stderr'])})"


def sinks(rows: Rows) -> Iterator[str]:
    """kappa and the mass on BOS."""
    bands = pick(rows, part="sink", kind="band")
    for name in ("17.3", "17.4", "17.5", "18.6", "18.7"):
        first, last = ([row for row in bands if row["name"] == name][place] for place in (0, -1))
        assert (first["from"], first["to"], last["from"], last["to"]) == (8, 15, 224, 319)
        rise = last["kappa"] - first["kappa"]
        sure = rise > 3 * (first["kappa_stderr"] ** 2 + last["kappa_stderr"] ** 2) ** 0.5
        assert sure == (name in ("17.4", "17.5", "18.6")), name
        yield (
            f"{pm(first['kappa'], first['kappa_stderr'], 1)} to {pm(last['kappa'], last['kappa_stderr'], 1)}"
            if not sure
            else f"from {pm(first['kappa'], first['kappa_stderr'], 1)} to {pm(last['kappa'], last['kappa_stderr'], 1)}"
        )
    late = [row["bos_mass"] for row in bands if row["from"] >= 64]
    yield f"{span(late, 1)} from 64 tokens on"
    without = pick(rows, part="sink", kind="without")
    shares = [[row["first_key"] for row in without if row["bos"] is bos] for bos in (False, True)]
    yield f"({span(shares[0])}, against {span(shares[1])})"


def predicted(rows: Rows) -> Iterator[str]:
    """What the model predicts on chains."""
    late = {row["predictor"]: row for row in pick(rows, part="prediction", kind="kl")}
    said = {name: pm(row["late_kl"], row["late_stderr"]) for name, row in late.items()}
    yield f"its KL to the truth is {said['model']} nats"
    yield f"uniform law ({said['uniform']})"
    yield f"add-alpha of order 1 and of order 2 {said['add-alpha, order 1']}"
    assert said["add-alpha, order 1"] == said["add-alpha, order 2"]
    yield f"Counts of single symbols reach {said['add-alpha, order 0']}"
    (names,) = pick(rows, part="prediction", kind="names")
    yield f"makes {pm(names['share'], names['share_stderr'])} of the variance"


def edited_chains(rows: Rows) -> Iterator[str]:
    """Edits on chains."""
    ablated = edits(rows, "chains")["ablated"]
    yield f"the five cost {pm(ablated['change'], ablated['stderr'])} nats"
    yield f"(other heads {pm(ablated['control_change'], ablated['control_stderr'])})"


def on_text(rows: Rows) -> Iterator[str]:
    """Natural text."""
    gains = {(row["positions"], row["without"]): row for row in pick(rows, part="text", kind="gain")}
    whole, new = gains["repeated", "nothing"], gains["new", "nothing"]
    yield f"is {pm(whole['gain'], whole['gain_stderr'])} nats ({whole['tokens']} tokens"
    yield f"{pm(new['gain'], new['gain_stderr'])} at all others"
    for name in ("matching heads", "other heads"):
        row = gains["repeated", name]
        yield f"{pm(row['carried'], row['carried_stderr'])}"
    found = pick(rows, part="text", kind="law")
    second = [row for row in found if row["order"] == 2]
    first_lag, second_lag = (span((row["beta"][lag] for row in second), 1) for lag in (0, 1))
    yield f"beta_1 is {first_lag} and beta_2 is {second_lag}"
    yield f"({span(row['nats_explained'] for row in second)} of its information at order 2"
    yield f"at most {max(row['control_nats_explained'] for row in found):.3f}"


@pytest.mark.parametrize(
    "told", [scanned, laws, on_repeats, paths, sinks, predicted, edited_chains, on_text], ids=lambda told: told.__name__
)
def test_the_page_has_the_numbers_of_the_shipped_result(told: Callable[[Rows], Iterator[str]], rows: Rows) -> None:
    page = plain(ROOT / "docs" / "language_model.md")
    missing = [sentence for sentence in told(rows) if sentence not in page]
    assert missing == []


def test_the_readme_has_them_too(rows: Rows) -> None:
    readme = plain(ROOT / "README.md")
    found, chains = edits(rows, "repeats"), pick(rows, part="heads", kind="law")
    gains = {row["without"]: row for row in pick(rows, part="text", kind="gain") if row["positions"] == "repeated"}
    first_lag, second_lag = (span((row["beta"][lag] for row in chains), 1) for lag in (0, 1))
    for sentence in (
        f"(beta_1 {first_lag}, beta_2 {second_lag} on chains)",
        f"{pm(found['ablated']['change'], found['ablated']['stderr'], 1)} nats",
        f"recovers {recovered(found['law'])} of it",
        f"shuffled keys {number(found['law']['control_recovered'], 2)}",
        f"({pm(gains['matching heads']['carried'], gains['matching heads']['carried_stderr'])} of it; other heads "
        f"{pm(gains['other heads']['carried'], gains['other heads']['carried_stderr'])})",
    ):
        assert sentence in readme
