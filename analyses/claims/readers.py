"""How a quantity is read from a row of a table: a column, or one of a few small functions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from analyses.claims.records import Reader, Row, Tables, Value
from analyses.running.subject import place_of_start
from models.training.protocols import CHANGED

FIXED_ALPHAS = ("add-0.1", "add-0.5", "add-1")  # the same alpha at every length
OPTIMUM = "optimal, BOS"  # the best soft matching
TRAINED = ("disentangled", "standard")
TO_COMPARE = ("long", CHANGED)  # protocols of runs that are judged only where there are no others
SIZES = ("length", "order", "vocab")  # what predictors must share to be compared, beside the prior


@dataclass(frozen=True)
class Column:
    """A column by its path ("kl.early.0"), with that of its standard error, less another one.

    >>> Column("kl.x", error="e")({"kl": {"x": 2}, "e": 0.5}, {}), Column("a", less="b")({"a": 3, "b": 1}, {})
    ((2.0, 0.5), (2.0, 0.0))
    """

    path: str
    error: str = ""
    less: str = ""

    def __call__(self, row: Row, tables: Tables) -> Value:
        found, other = at(row, self.path), at(row, self.less) if self.less else 0.0
        return None if found is None or other is None else value(found - other, at(row, self.error))


@dataclass(frozen=True)
class Extreme:
    """The least of the numbers in a list or of several columns, by their sizes; or the largest."""

    paths: tuple[str, ...]
    most: bool = False

    def __call__(self, row: Row, tables: Tables) -> Value:
        found = [at(row, path) for path in self.paths]
        values = [one for part in found for one in (part if isinstance(part, (list, tuple)) else [part])]
        known = [abs(one) for one in values if one is not None and math.isfinite(one)]
        return value((max if self.most else min)(known)) if known else None


def at(row: Any, path: str) -> Any:
    """What lies at a path of keys and places; None where there is nothing."""
    for step in path.split(".") if path else ():
        if isinstance(row, Mapping):
            row = row.get(step)
        elif isinstance(row, (list, tuple)) and step.isdigit() and int(step) < len(row):
            row = row[int(step)]
        else:
            return None
    return row if path else None


def value(found: Any, error: Any = None) -> Value:
    """A number and its standard error; None where there is no number."""
    if found is None or math.isnan(found):
        return None
    return float(found), float(error) if error is not None and math.isfinite(error) else 0.0


def word_of(row: Row, name: str) -> Any:
    """A word of the row's subject, else its column; a prior by its kind. The start of a construction is its rule."""
    subject = row.get("subject") or {}
    if name in ("start", "rule"):
        return str(subject.get("start") or "unknown") if subject else ""
    found = subject.get(name, row.get(name))
    return str(found).split(":")[0] if name == "prior" and found is not None else found


def copy_mass(row: Row, tables: Tables) -> Value:
    """The least mass of a copy head on its lag, mean over queries and sequences; none where a lag has no head."""
    return value(min(row["mass"]), max(row["stderr"])) if row["success"] else None


def copy_mass_last(row: Row, tables: Tables) -> Value:
    """The same at the last query; there the copy of lag k is not read, so that of the other lags."""
    needed = [mass for lag, mass in zip(row["lag"], row["last_mass"], strict=True) if lag < max(row["lag"])]
    return value(min(needed)) if row["success"] and needed else None


def masses(row: Row) -> dict[str, float]:
    """The last query's mass by kind of key: of `overlap_mass` the mean, of the attention tables one sequence's."""
    if "by_overlap" not in row:
        return dict(row["mass"])
    order = max(int(size) for size in row["by_overlap"])
    partial = sum(mass for size, mass in row["by_overlap"].items() if 0 < int(size) < order)
    kinds = {"full": row["by_overlap"][str(order)], "partial": partial, "none": row["by_overlap"]["0"]}
    return {**kinds, "bos": row["bos"] or 0.0, "early": row["early"]}


def mass_on(kind: str) -> Reader:
    """The reader of the mass on one kind of key."""
    return lambda row, tables: value(masses(row)[kind])


def mass_off(row: Row, tables: Tables) -> Value:
    """Mass that is neither on full matches nor on BOS."""
    found = masses(row)
    return value(1.0 - found["full"] - found["bos"])


def full_lead(row: Row, tables: Tables) -> Value:
    """Mass on full matches less the largest mass on another kind of key."""
    found = masses(row)
    return value(found["full"] - max(mass for kind, mass in found.items() if kind != "full"))


def key_ratio(row: Row, tables: Tables) -> Value:
    """The mean weight of a full match over that of a partial one, or of a partial one over none: the lesser ratio."""
    weights = [row["per_key"][kind] for kind in ("full", "partial", "none") if kind in row["per_key"]]
    known = [high / low for high, low in itertools.pairwise(weights) if low]
    return value(min(known)) if known else None


def aligned_weights(row: Row, tables: Tables) -> Value:
    """The aligned blocks' share of W_A; 0 where heads copy no distinct lags, so that no block is aligned."""
    without_lags = row["aligned_share"] is None and row.get("match_weight") is not None
    return value(0.0 if without_lags else row["aligned_share"])


def bos_error(row: Row, tables: Tables) -> Value:
    """BOS' share of the attention less alpha |V| / (n + alpha |V|), of a context seen n times."""
    pseudo = row.get("alpha", 1.0) * word_of(row, "vocab")
    return value(abs(row["mass"]["bos"] - pseudo / (row["kinds"].count("full") + pseudo)))


def on_full(row: Row, tables: Tables) -> Value:
    hits, total = row["on_full"]
    return value(hits / total) if total else None


def theory_error(row: Row, tables: Tables) -> Value:
    """The largest error over the tolerance; above 1 where a control failed."""
    share = row["error"] / row["tolerance"]
    return value(share if row["holds"] else max(2.0, share))


def log_ratio(row: Row, tables: Tables) -> Value:
    """How many doublings the mean pseudo-count is from alpha."""
    return value(abs(math.log2(row["ratio"])), row["stderr"] / row["mean"] / math.log(2))


def off_alpha(row: Row, tables: Tables) -> Value:
    """How far the mean pseudo-count is from alpha, as a share."""
    return value(abs(row["ratio"] - 1.0), row["stderr"] / row["alpha"])


def curves(row: Row, tables: Tables) -> list[Row]:
    """The rows of `kl_curves` of the same prior and length; `open_choices` writes the same prior in other words."""
    exact = row.get("reading") is None
    prior = row["prior"] if exact else word_of(row, "prior")
    return [
        one
        for one in tables.get("kl_curves", ())
        if all(one[name] == row[name] for name in SIZES) and (one["prior"] if exact else word_of(one, "prior")) == prior
    ]


def rivals(row: Row, tables: Tables) -> dict[str, float]:
    """The KL of the predictors without training at the row's prior and length."""
    return {one["predictor"]: one["kl"] for one in curves(row, tables) if one["subject"] is None}


def fixed_alpha(row: Row, tables: Tables) -> float | None:
    """The KL of the best add-alpha among those with the same alpha at every length."""
    return min((kl for name, kl in rivals(row, tables).items() if name in FIXED_ALPHAS), default=None)


def nearer(near: str, far: str) -> Reader:
    """The reader of a curve's distance from one predictor over its distance from another."""

    def read(row: Row, tables: Tables) -> Value:
        known = rivals(row, tables)
        if near not in known or far not in known:
            return None
        return value(_ratio(abs(row["kl"] - known[near]), abs(row["kl"] - known[far])))

    return read


def apart(row: Row, tables: Tables) -> Value:
    """How far a model's KL is from those of other families at most, over its distance from the best fixed add-alpha.

    The others are of the same protocol and length, or analytic. Infinite where add-alpha is as good as the model.
    """
    best = fixed_alpha(row, tables)
    others = [
        other["kl"]
        for other in curves(row, tables)
        if other["subject"] is not None
        and word_of(other, "bos") == word_of(row, "bos")
        and word_of(other, "family") != word_of(row, "family")
        and word_of(other, "protocol") not in TO_COMPARE
        and word_of(other, "start") in (word_of(row, "start"), "free")
    ]
    if best is None or not others:
        return None
    return value(_ratio(max(abs(row["kl"] - kl) for kl in others), best - row["kl"]))


def below_add_alpha(row: Row, tables: Tables) -> Value:
    """The share by which a model's KL is below that of the best fixed add-alpha."""
    best = fixed_alpha(row, tables)
    return None if best is None else value(1.0 - row["kl"] / best)


def excess_kept(row: Row, tables: Tables) -> Value:
    """The excess over Bayes as a share of that at the shortest length."""
    same = [one for one in tables["kl_curves"] if one["subject"] is None and one["predictor"] == row["predictor"]]
    first = min((one for one in same if one["prior"] == row["prior"]), key=lambda one: one["length"])
    if first["length"] == row["length"]:
        return None
    return value(row["excess_share"] / first["excess_share"], row["excess_share_stderr"] / first["excess_share"])


def over_trained(row: Row, tables: Tables) -> Value:
    """By how much a construction's KL is over those of trained models at most, as a share of their gap to add-alpha.

    A row of `open_choices` is the best that a rule of kappa can do: what it costs over a free kappa is added to the KL
    of the best soft matching, which is of the same sequences as the trained models.
    """
    best = fixed_alpha(row, tables)
    kl = row["kl"] if row.get("reading") is None else rivals(row, tables).get(OPTIMUM, math.nan) + row["over_free"]
    runs: dict[str, list[Row]] = {}
    for one in curves(row, tables):
        if word_of(one, "family") in TRAINED and word_of(one, "bos") and word_of(one, "protocol") not in TO_COMPARE:
            runs.setdefault(word_of(one, "family"), []).append(one)
    if best is None or not runs:
        return None
    ratios = []
    for mine in runs.values():
        first = min((word_of(one, "start") for one in mine), key=place_of_start)
        theirs = fmean(one["kl"] for one in mine if word_of(one, "start") == first)
        ratios.append(_ratio(kl - theirs, best - theirs))
    return value(max(ratios))


def has(word: str, wanted: str) -> Reader:
    """The reader of 1 where a word has this value, else 0."""
    return lambda row, tables: (float(word_of(row, word) == wanted), 0.0)


def seeds(row: Row, tables: Tables) -> Value:
    """How many seeds of the row's model there are in the table."""
    words = ("family", "prior", "bos", "length", "protocol", "start")
    models = [[word_of(other, word) for word in words] for other in tables["copy_heads"]]
    return value(models.count([word_of(row, word) for word in words]))


def source_lead(wanted: str) -> Reader:
    """The reader of how much more KL rises with one source of smoothing off than with any other."""

    def read(row: Row, tables: Tables) -> Value:
        change = {name: row["change"][name] for name in ("partial", "bos", "readout") if name in row["change"]}
        mine = change.pop(wanted, None)
        return None if mine is None else value(mine - max(change.values(), default=0.0))

    return read


def partial_lead(run: Row, tables: Tables) -> Value:
    """The same for partial matches in a run of the study, which does not switch BOS off: none where there is BOS.

    None, too, where the readout is frozen: it is the construction's, so that it costs nothing by definition.
    """
    if run["bos"] or "readout" in str(run["freeze"]).split(","):
        return None
    return Column("partial_alone", less="readout_alone")(run, tables)


def keys_lead(row: Row, tables: Tables) -> Value:
    """How much further the law's weights on shuffled keys move the predictions than on their own keys."""
    law = next((one for one in row["edits"] if one["edit"] == "law"), None)
    if law is None:
        return None
    return value(law["control_kl"] - law["kl"], math.hypot(law["control_kl_stderr"], law["kl_stderr"]))


def _ratio(near: float, far: float) -> float:
    """A share of a distance; infinite where there is no such distance."""
    return near / far if far > 0 else math.inf
