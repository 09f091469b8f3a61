"""What the attention figures say of the rows of `attention` and `construction_attention`: choice, thresholds, words.

The numbers are the analysis' own. A trained head need not copy the lag of its number, so everything here goes by the
lag that a head attends to.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from figures.rows import Row, matching, nearest
from figures.verdict import Check, Verdict, judged, sentences
from models.families import PAPER, find_family

HIERARCHICAL = {"prior": "hierarchical", "bos": True}

# Thresholds of the verdicts.
SHARP = 0.8  # a "sharp, lag-specific copy" puts at least this much on its lag, averaged over queries
HARD = 0.999  # what an analytic construction calls all
SPREAD = 0.05  # "non-negligible": on a single query, less than this is lost among some sixty keys
ALIGNED = 0.8  # share of the squared match weights in the blocks that the construction uses
ALIKE = 0.1  # total variation between two attentions on one sequence; 0.1 is a tenth of the mass elsewhere
SHARE_ERROR = 0.02  # of a trained BOS share; pseudo-counts within about 10 % of alpha |V| at the shares seen
CLEARLY = 1.5  # ratio of mean weights; the lemma's beta gives 7.7 at T = 64, and attention without structure 1
FOLLOWS = 0.9  # share of queries whose largest weight lies on a full match, where there is one


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
    """The row with only these fields, what tells which row it is, and the readings that verdicts rest on."""
    names = ("checkpoint", "subject", "construction", "order", "vocab", "length", "alpha", "bos", "beta", "kappa")
    last_query = ("tokens", "kinds", "weights", "mass", "law")
    readings = ("copies", "per_key", "on_full", "readout_moves", "raw_beta", "aligned_share", "over_batch")
    return {field: row[field] for field in (*names, *last_query, *readings, *fields) if field in row}


def of_one_length(rows: Sequence[Row], wanted: int, **words: Any) -> dict[str, Row]:
    """The row of each family, all of the length nearest to the one wanted, so that they saw one sequence."""
    guide = nearest(rows, wanted, **words)
    if guide is None:
        return {}
    length = guide["subject"]["length"]
    found = {family: matching(rows, family=family, length=length, **words) for family in PAPER}
    return {family: group[0] for family, group in found.items() if group}


def is_ordered(row: Row) -> bool:
    """Whether a full match weighs clearly more than a partial one, and that than none, as far as they occur."""
    means = row["per_key"]
    values = [means[kind] for kind in ("full", "partial", "none") if kind in means]
    return all(high >= CLEARLY * low for high, low in itertools.pairwise(values))


def ratios_in_words(row: Row) -> str:
    """The mean weight of a key by its match."""
    means = row["per_key"]
    return "mean weight of a key: " + ", ".join(
        f"{kind} {means[kind]:.3g}" for kind in ("full", "partial", "none") if kind in means
    )


def spreads(row: Row) -> bool:
    """Whether both full and partial matches have a share worth the name."""
    return min(row["mass"]["full"], row["mass"]["partial"]) >= SPREAD


def copies_are_sharp(row: Row, least: float = SHARP) -> bool:
    return copies_are_distinct(row) and all(copy["share"] >= least for copy in row["copies"])


def blocks_by_lag(row: Row) -> NDArray[Any]:
    """W_A^(2) with its blocks in the order x_i, x_{i-1}, ..., whichever head writes them."""
    matrix = np.array(row["match_weight"])
    if not copies_are_distinct(row):
        return matrix
    vocab = vocab_of(row)
    places = [0, *(copy["head"] + 1 for copy in by_lag(row))]
    index = np.concatenate([np.arange(place * vocab, (place + 1) * vocab) for place in places])
    return matrix[np.ix_(index, index)]


def is_aligned(row: Row) -> bool:
    return row["aligned_share"] is not None and row["aligned_share"] >= ALIGNED


def blocks_in_words(row: Row) -> str:
    """How much of W_A^(2) lies in the aligned blocks, and their coefficients."""
    if row["raw_beta"] is None:
        return "no block can be named by a lag"
    sizes = ", ".join(f"{size:.2f}" for size in row["raw_beta"])
    return f"aligned blocks {row['aligned_share']:.3f} of what the softmax sees of squared W_A, by lag {sizes}"


def expected_bos_share(row: Row, alpha: float) -> float:
    """alpha |V| / (n + alpha |V|): what add-alpha gives to BOS when the context has occurred n times."""
    pseudo = alpha * vocab_of(row)
    return pseudo / (row["kinds"].count("full") + pseudo)


def attention_distance(one: Row, other: Row) -> float | None:
    """Total variation between the last query's attentions; None if they are not of the same sequence."""
    if one["tokens"] != other["tokens"] or one["kinds"] != other["kinds"]:
        return None
    return float(np.abs(np.array(one["weights"]) - np.array(other["weights"])).sum() / 2)


def follows_matches(row: Row) -> bool:
    hits, total = row["on_full"]
    return hits >= FOLLOWS * total


def verdict_of(
    checks: Mapping[str, bool | Check],
    *,
    measured: Iterable[str],
    missing: Iterable[str] = (),
    why: Iterable[str] = (),
    of: str = "one sequence",
    headline: str = "",
    number: str = "",
) -> Verdict:
    """`judged`, but what could not be looked at is named, and a claim of all models cannot hold without it.

    The numbers begin with what they are of, so that nobody takes those of a single sequence for averages.
    """
    absent = ", ".join(missing)
    reasons = [*why, *([f"not judged, for want of results: {absent}"] if absent else [])]
    numbers = "; ".join(measured)
    verdict = judged(
        checks,
        measured=f"{of}: {numbers}" if numbers else "",
        headline=headline,
        number=number,
        why=sentences(reasons),
    )
    if absent and verdict.word == "holds":
        return replace(verdict, word="cannot tell", says=f"cannot tell: no results for {absent}; the rest holds")
    return verdict


def trained_of(found: Mapping[str, Row]) -> dict[str, Row]:
    """The families whose weights were found by training; all where there is no such family."""
    trained = {family: row for family, row in found.items() if not find_family(family).analytic}
    return trained or dict(found)


def copy_numbers(found: Mapping[str, Row]) -> str:
    """What the copy heads put on their lags, lag 1 first, family by family: means over sequences where known."""
    return ", ".join(f"{family} {mean_shares(row)}" for family, row in trained_of(found).items())


def copy_number(found: Mapping[str, Row]) -> str:
    """The same as the one number of a verdict: which T, and a mean over what."""
    return f"copy mass on lags 1 and 2 (T = {lengths_in(found)}, mean over queries): {copy_numbers(found)}"


def lengths_in(found: Mapping[str, Row]) -> str:
    return ", ".join(str(length) for length in sorted({length_of(row) for row in found.values()}))


def mean_shares(row: Row) -> str:
    return " and ".join(f"{mean_share(copy):.2f}" for copy in by_lag(row))


def last_shares(row: Row) -> str:
    """The same at the last query."""
    return " and ".join(f"{at_last(copy, 'last'):.2f}" for copy in by_lag(row))


def at_last(copy: Mapping[str, Any], what: str) -> float:
    """What a copy head's last query puts on its lag (`last`) or on `bos`: the mean over sequences where known."""
    over = copy.get(f"{what}_over_batch")
    return float(over[0] if over else copy[what])


def needed_at_last(row: Row) -> list[dict[str, Any]]:
    """The copy heads that the last query needs: lag r is matched by its token x_{i-r+1}, so that of lag k is free."""
    return [copy for copy in by_lag(row) if copy["lag"] < order_of(row)]


def mean_share(copy: Mapping[str, Any]) -> float:
    """A copy head's share on its lag: the mean over all sequences, or that of the one shown."""
    over = copy.get("over_batch")
    return float(over[0] if over else copy["share"])


def mass_text(row: Row, kind: str, digits: int = 2) -> str:
    """The last query's mass on a kind of key: mean and standard deviation over sequences where known."""
    over = (row.get("over_batch") or {}).get(kind)
    return f"{over[0]:.{digits}f} ± {over[1]:.{digits}f}" if over else f"{row['mass'][kind]:.{digits}f}"


def of_sequences(found: Iterable[Row]) -> str:
    """What the spreads of `mass_text` are over."""
    return "mean ± sd over sequences" if any(row.get("over_batch") for row in found) else "one sequence"


def masses_in_words(row: Row) -> str:
    """The shares by kind, without those that are nothing; in brackets mean and standard deviation over sequences."""
    names = {"full": "full", "partial": "partial", "none": "none", "bos": "BOS", "early": "early"}
    spread = row.get("over_batch") or {}

    return ", ".join(
        f"{name} {row['mass'][kind]:.3f}{spread_in_words(spread.get(kind))}"
        for kind, name in names.items()
        if row["mass"][kind] >= 5e-4
    )


def spread_in_words(found: Sequence[float] | None) -> str:
    """Mean and standard deviation over all sequences, behind the number of the one that is shown; empty if unknown."""
    return "" if found is None else f" (all sequences {found[0]:.2f} ± {found[1]:.2f})"


def copies_in_words(row: Row) -> str:
    """Which head copies which lag, and how much it puts there."""
    return ", ".join(
        f"head {copy['head']} on lag {copy['lag']} {copy['share']:.2f}{spread_in_words(copy.get('over_batch'))}"
        for copy in by_lag(row)
    )


def last_copies_in_words(row: Row) -> str:
    """What the copy heads of the last query do, where they lean on BOS; empty where none does."""
    return in_words_at_last([copy for copy in by_lag(row) if at_last(copy, "bos") >= SPREAD])


def in_words_at_last(copies: Iterable[Mapping[str, Any]]) -> str:
    """What copy heads put on their lags and on BOS at the last query."""
    return ", ".join(
        f"lag {copy['lag']} {at_last(copy, 'last'):.2f} and BOS {at_last(copy, 'bos'):.2f}" for copy in copies
    )


def starts_in_words(rows: Iterable[Row]) -> str:
    """How training started, a sentence: a head that was started on its lag need not have found it."""
    starts = {row["subject"]["family"]: start_of(row) for row in rows if "subject" in row}
    starts = {family: start for family, start in starts.items() if not find_family(family).analytic}
    if not starts:
        return ""
    return f"Start of training: {'; '.join(f'{family}: {start}' for family, start in starts.items())}."


def start_of(row: Row) -> str:
    """The initialisation of the training record."""
    init = row["subject"].get("init")
    if init is None:
        return "not recorded"
    kind, _, strength = init.rstrip(")").partition("(")
    if kind == "copy":
        return f"{init}, a bias of {strength} on each copy head's lag"
    return f"{init}, no head set on a lag" if kind == "random" else str(init)


def setting(row: Row) -> str:
    """k, |V|, T and, for a checkpoint, its seed."""
    seed = row.get("subject", {}).get("seed")
    words = f"k = {order_of(row)}, |V| = {vocab_of(row)}, T = {length_of(row)}"
    return words if seed is None else f"{words}, training seed {seed}"


def block_note(row: Row) -> str:
    """Why a raw block is not yet a beta: what the last query's copy head brings of its token; empty where it is all."""
    if row["raw_beta"] is None:
        return ""
    sizes, copies = row["raw_beta"], by_lag(row)
    # Lag r compares the query's x_{i-r+1}, which the copy head of lag r - 1 brought, with the key's x_{j-r}.
    brought = [1.0, *(at_last(copy, "last") for copy in copies[:-1])]
    if min(brought) >= SHARP:
        return ""
    scaled = [
        f"{size:.2f} x {at_query:.2f} x {mean_share(copy):.2f} = {size * at_query * mean_share(copy):.2f}"
        for size, at_query, copy in zip(sizes, brought, copies, strict=True)
    ]
    return (
        "a block acts in proportion to what is copied: block x share at the last query x share at the keys is, by lag, "
        f"{'; '.join(scaled)}"
    )


def constructed_weights(row: Row) -> NDArray[Any]:
    """beta_r times the identity in the aligned block of each lag, and zero elsewhere."""
    vocab, order = vocab_of(row), order_of(row)
    expected = np.zeros_like(blocks_by_lag(row))
    for lag in range(1, order + 1):
        expected[(lag - 1) * vocab : lag * vocab, lag * vocab : (lag + 1) * vocab] = row["beta"][lag - 1] * np.eye(
            vocab
        )
    return expected


def is_construction(row: Row) -> bool:
    """Whether W_A^(2) is the construction's."""
    alike = np.allclose(blocks_by_lag(row), constructed_weights(row), rtol=1e-4, atol=1e-6)
    return copies_are_distinct(row) and bool(alike)


def construction_checks(row: Row) -> dict[str, bool | Check]:
    """What every construction must show: its copies and its match weights."""
    error = np.abs(blocks_by_lag(row) - constructed_weights(row)).max()
    return {
        "copy heads put everything on lags 1..k": Check(passed=copies_are_sharp(row, HARD), found=copies_in_words(row)),
        "W_A is beta times the identity in the aligned blocks, zero elsewhere": Check(
            passed=is_construction(row), found=f"largest difference {error:.1g} nats"
        ),
    }
