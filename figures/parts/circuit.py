"""Which rows of `attention` and `construction_attention` the attention figures draw, and what captions say of them.

A trained head need not copy the lag of its number, so everything here goes by the lag that a head attends to.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from figures.parts.rows import Row, matching, nearest, start_in
from models.families.registry import PAPER, find_family

HIERARCHICAL = {"prior": "hierarchical", "bos": True}
DRAWN = (  # what tells which row it is, and the last query
    "checkpoint", "subject", "construction", "order", "vocab", "length", "alpha", "beta", "kappa",
    "tokens", "kinds", "weights", "mass", "copies",
)  # fmt: skip


def by_lag(row: Row) -> list[dict[str, Any]]:
    """The copy heads, shortest lag first."""
    return sorted(row["copies"], key=lambda copy: (copy["lag"], copy["head"]))


def copies_are_distinct(row: Row) -> bool:
    """Whether every head copies a lag of its own."""
    return all(copy["verdict"] == f"copies lag {copy['lag']}" for copy in row["copies"])


def order_of(row: Row) -> int:
    return row["subject"]["order"] if "subject" in row else row["order"]


def vocab_of(row: Row) -> int:
    return row["subject"]["vocab"] if "subject" in row else row["vocab"]


def length_of(row: Row) -> int:
    return len(row["kinds"]) - bos_offset(row)


def bos_offset(row: Row) -> int:
    """1 where BOS stands before the tokens."""
    return int(row["kinds"][0] == "bos")


def kept(row: Row, *fields: str) -> Row:
    """The row with what tells which row it is, its last query, and these fields."""
    return {field: row[field] for field in (*DRAWN, *fields) if field in row}


def of_one_length(rows: Sequence[Row], wanted: int, **words: Any) -> dict[str, Row]:
    """The row of each family, all of the length nearest to the one wanted, so that they saw one sequence."""
    guide = nearest(rows, wanted, **words)
    if guide is None:
        return {}
    length = guide["subject"]["length"]
    found = {family: matching(rows, family=family, length=length, **words) for family in PAPER}
    return {family: group[0] for family, group in found.items() if group}


def of_both_starts(rows: Sequence[Row], wanted: int, **words: Any) -> list[Row]:
    """The rows of `of_one_length`, then for each family that is from hard copies there its first run from a soft start.

    They are of one length, protocol and task, so that they differ in the start and, maybe, in the seed.
    """
    found = of_one_length(rows, wanted, **words)
    hard = {family: row["subject"]["length"] for family, row in found.items() if start_in(row) == "hard"}
    soft = [matching(rows, family=family, length=at, start="soft", **words)[:1] for family, at in hard.items()]
    return [*found.values(), *(row for mine in soft for row in mine)]


def by_start(results: dict[str, list[Row]]) -> tuple[dict[str, Row], dict[str, Row]]:
    """The rows of `of_both_starts` by family: those in the paper's place, and those from a soft start beside them."""
    first: dict[str, Row] = {}
    soft: dict[str, Row] = {}
    for row in results["attention"]:
        family = row["subject"]["family"]
        (soft if family in first else first)[family] = row
    return first, soft


def blocks_by_lag(row: Row) -> NDArray[Any]:
    """W_A^(2) with its blocks in the order x_i, x_{i-1}, ..., whichever head writes them."""
    matrix = np.array(row["match_weight"])
    if not copies_are_distinct(row):
        return matrix
    vocab = vocab_of(row)
    places = [0, *(copy["head"] + 1 for copy in by_lag(row))]
    index = np.concatenate([np.arange(place * vocab, (place + 1) * vocab) for place in places])
    return matrix[np.ix_(index, index)]


def starts_in_words(rows: Iterable[Row]) -> str:
    """How training started, a sentence: a head that was started on its lag need not have found it."""
    starts: dict[str, list[str]] = {}
    for row in rows:
        if "subject" in row and not find_family(row["subject"]["family"]).analytic:
            starts.setdefault(row["subject"]["family"], []).append(row["subject"].get("init") or "not recorded")
    if not starts:
        return ""
    said = "; ".join(f"{family} {' and '.join(mine)}" for family, mine in starts.items())
    return f"Start of training: {said} (copy(c): a bias of c on each copy head's lag)."


def setting(rows: Iterable[Row]) -> str:
    """k, |V|, T; of checkpoints of one seed that seed, of a single construction its beta and kappa."""
    found = list(rows)
    if not found:
        return "no such model is there"
    words = f"k = {order_of(found[0])}, |V| = {vocab_of(found[0])}, T = {length_of(found[0])}"
    seeds = {row["subject"]["seed"] for row in found if "subject" in row}
    if len(seeds) == 1 and None not in seeds:
        words += f", training seed {seeds.pop()}"
    if len(found) == 1 and "beta" in found[0]:
        words += f", beta = {found[0]['beta'][0]:.3g}"
        words += "" if found[0].get("kappa") is None else f", kappa = {found[0]['kappa']:.4g}"
    return words
