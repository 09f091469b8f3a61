"""docs/language_model.md says what the shipped result of the study says, number by number."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from analyses import shipped
from analyses.studies.language.page import pick

ROOT = Path(__file__).parents[2]
MINUS = "\N{MINUS SIGN}"
Row = dict[str, Any]
Rows = list[Row]


@pytest.fixture(scope="module")
def rows() -> Rows:
    document = shipped.shipped_table("language_model")
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


def errors_of(errors: Any, digits: int = 1) -> str:
    """Standard errors in brackets: one number, or the least and the largest where they differ."""
    low, _, high = span(list(errors), digits).partition(" to ")
    return f"(± {low})" if low == high else f"(± {low} to {high})"


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
    yield f"matches explain {min(shares)} to {max(shares)}% of the variation of their scores that position leaves"
    assert all((row["r2_match"] or 0.0) < 0.1 for row in rest)
    yield f"Of the other heads only {sixth['layer']}.{sixth['head']} reaches 10% ({100 * sixth['r2_match']:.0f}%"
    assert {id(row) for row in sorted(heads, key=lambda row: -row["repeat_induction"])[:5]} == {id(row) for row in best}
    yield f"highest classical induction scores on repeated tokens ({span(row['repeat_induction'] for row in best)})"
    assert max(row["control_r2_match"] or 0.0 for row in heads) < 0.001
    assert len(heads) == 270
    yield "less than 0.1% in each of the 270 heads"
    (chance,) = pick(rows, part="random")
    assert chance["matching"] == 0
    yield f"no head matches (at most {100 * chance['largest_r2_match']:.1f}%)"


def laws(rows: Rows) -> Iterator[str]:
    """The law of the attention on chains."""
    found = pick(rows, part="heads", kind="law")
    for lag in (0, 1):
        errors = errors_of(row["beta_stderr"][lag] for row in found)
        yield f"beta_{lag + 1} of {span((row['beta'][lag] for row in found), 1)} {errors}"
    yield f"at most {max(max(row['halves_apart']) for row in found):.1f} standard errors apart"
    errors = errors_of((row["nats_explained_stderr"] for row in found), 2)
    yield f"it explains {span(row['nats_explained'] for row in found)} {errors} of the information"
    assert max(row["mass_gap"] for row in found) < 0.03
    yield "are within 0.03"
    yield f"in single queries they are off by {span(row['query_gap'] for row in found)} (total variation, mean"
    assert max(max(row["behind"]) for row in found) < 0.0062
    yield "within 0.006 nats of each other"
    for name in ("18.6", "18.7"):
        (row,) = [row for row in found if row["name"] == name]
        assert row["laws"][0] == "additive"
        yield pm(row["behind"][0] - row["behind"][1], row["behind_stderr"][0], 4)
    errors = errors_of(row["lag_0_stderr"] for row in found)
    yield f"scores less, by {span((-row['lag_0'] for row in found), 1)} {errors}"


def on_repeats(rows: Rows) -> Iterator[str]:
    """Edits on repeated tokens."""
    found = edits(rows, "repeats")
    ablated, law = found["ablated"], found["law"]
    yield f"rises by {pm(ablated['change'], ablated['stderr'], 1)} nats"
    assert ablated["worst_control"] <= 0.15
    yield "at most 0.1"
    yield f"({law['n']} sequences; laws fitted on"
    yield f"| the law of each head | {recovered(law)} |"
    yield f"| the same weights on shuffled keys (control) | {number(law['control_recovered'], 2)} |"
    yield f"| even attention | {recovered(found['even'])} |"
    yield f"| hard matching | {recovered(found['hard'])} |"
    yield f"| one law for all five heads | {recovered(found['one law for all'])} |"
    yield f"| the law, fitted with a positional term | {recovered(found['fitted with position'])} |"
    grouped = pm(found["grouped"]["recovered"], found["grouped"]["recovered_stderr"], 3)
    yield f"| each head's own mass on matches, spread evenly over them | {grouped} |"
    yield f"| the law that was fitted on chains | {recovered(found['law of chains'])} |"
    yield f"the law that was fitted on chains recovers {recovered(found['law of chains'])} of the loss"
    yield f"the law that was fitted on repeats {recovered(law)}."


def paths(rows: Rows) -> Iterator[str]:
    """From previous-token heads to matching heads."""
    found = {row["name"]: row for row in pick(rows, part="causal", on="path")}
    one, other = found["17.3"], found["18.6"]
    yield f"{', '.join(one['copy_heads'][:-1])} and {one['copy_heads'][-1]}."
    for row, digits in ((one, 3), (other, 2)):
        yield f"from {pm(row['mass'], row['mass_stderr'])} to " + pm(
            row["without_copies"], row["without_copies_stderr"], digits
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
        ends = " | ".join(pm(row["kappa"], row["kappa_stderr"], 1) for row in (first, last))
        yield f"| {name} | {ends} | {'yes' if sure else 'no'} |"
    late = [row["bos_mass"] for row in bands if row["from"] >= 64]
    yield f"{span(late, 1)} from 64 tokens on"
    without = pick(rows, part="sink", kind="without")
    shares = [[row["first_key"] for row in without if row["bos"] is bos] for bos in (False, True)]
    yield f"({span(shares[0])}, against {span(shares[1])} of BOS)"


def predicted(rows: Rows) -> Iterator[str]:
    """What the model predicts on chains."""
    late = {row["predictor"]: row for row in pick(rows, part="prediction", kind="kl")}
    said = {name: pm(row["late_kl"], row["late_stderr"]) for name, row in late.items()}
    yield f"| the model, chains in nouns | {said['model']} |"
    yield f"| the uniform law | {said['uniform']} |"
    yield f"| add-alpha of order 1; of order 2 | {said['add-alpha, order 1']}; {said['add-alpha, order 2']} |"
    yield f"| counts of single symbols (add-alpha of order 0) | {said['add-alpha, order 0']} |"
    (names,) = pick(rows, part="prediction", kind="names")
    yield f"makes {pm(names['share'], names['share_stderr'])} of the variance"


def edited_chains(rows: Rows) -> Iterator[str]:
    """Edits on chains."""
    ablated = edits(rows, "chains")["ablated"]
    yield f"ablating the five costs {pm(ablated['change'], ablated['stderr'])} nats"
    yield f"(as many other heads: {pm(ablated['control_change'], ablated['control_stderr'])}; {ablated['n']} chains)"


def on_text(rows: Rows) -> Iterator[str]:
    """Natural text."""
    gains = {(row["positions"], row["without"]): row for row in pick(rows, part="text", kind="gain")}
    whole, new = gains["repeated", "nothing"], gains["new", "nothing"]
    yield f"is worth {pm(whole['gain'], whole['gain_stderr'])} nats to them ({whole['tokens']} tokens; "
    yield f"{pm(new['gain'], new['gain_stderr'])} to all others)"
    lost = [gains["repeated", name] for name in ("matching heads", "other heads")]
    five, others = (pm(row["carried"], row["carried_stderr"]) for row in lost)
    yield f"Without the five heads {five} of this gain is lost, without as many other heads {others}."
    found = pick(rows, part="text", kind="law")
    second = [row for row in found if row["order"] == 2]
    first_lag, second_lag = (span((row["beta"][lag] for row in second), 1) for lag in (0, 1))
    yield f"beta_1 is {first_lag} and beta_2 is {second_lag}"
    yield f"(it explains {span(row['nats_explained'] for row in second)} of the information at order 2; "
    yield f"masks at most {max(row['control_nats_explained'] for row in second):.3f})"


@pytest.mark.parametrize(
    "told", [scanned, laws, on_repeats, paths, sinks, predicted, edited_chains, on_text], ids=lambda told: told.__name__
)
def test_the_page_has_the_numbers_of_the_shipped_result(told: Callable[[Rows], Iterator[str]], rows: Rows) -> None:
    page = plain(ROOT / "docs" / "language_model.md")
    missing = [sentence for sentence in told(rows) if sentence not in page]
    assert missing == []
