"""What the study of conditions answers: for each claim and cell, in how many runs it holds, and sentences from that."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]

NEAR_OPTIMUM = 0.02  # of the optimum's KL
LEAST_R2 = 0.95
NEAR_BETA, SMALL_RESIDUAL = 0.15, 0.1  # nats
SHARP = 0.8
LEAST_RECOVERED, ERRORS = 0.95, 2
SMALL_READOUT = 0.05
ALIKE = 0.002  # nats between a model and its relabelings
HIERARCHICAL = ("hierarchical", True)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim that a run meets or not.

    name       short, for a figure
    required   what is asked of a run
    met        whether a run meets it; None where its number is not known
    settings   (prior, bos) that it is about; empty for all
    """

    name: str
    required: str
    met: Callable[[Row], bool | None]
    settings: tuple[tuple[str, bool], ...] = ()

    def about(self, row: Row) -> bool:
        return not self.settings or (row["prior"], row["bos"]) in self.settings

    def counts(self, row: Row) -> list[int]:
        """In how many runs of a cell it is met, and of how many."""
        told = [met for run in row["runs"] if (met := self.met(run)) is not None] if self.about(row) else []
        return [sum(told), len(told)]


def _known(*names: str) -> Callable[[Callable[[Row], bool]], Callable[[Row], bool | None]]:
    def only(met: Callable[[Row], bool]) -> Callable[[Row], bool | None]:
        return lambda run: None if any(run[name] is None for name in names) else met(run)

    return only


def _recovers(name: str) -> Callable[[Row], bool | None]:
    return _known(name)(lambda run: bool(run[name] + ERRORS * run[f"{name}_stderr"] >= LEAST_RECOVERED))


CLAIMS = (
    Claim(
        name="KL of the optimum",
        required=f"KL at most {NEAR_OPTIMUM:.0%} above the optimum's",
        met=_known("excess_share")(lambda run: bool(run["excess_share"] <= NEAR_OPTIMUM)),
    ),
    Claim(
        name="scores are the law",
        required=f"the law explains {LEAST_R2} of the variance of the scores",
        met=_known("r2")(lambda run: bool(run["r2"] >= LEAST_R2)),
    ),
    Claim(
        name="W_A is the construction's",
        required=f"aligned blocks within {NEAR_BETA} of the optimum's beta, no entry above {SMALL_RESIDUAL} outside "
        "span{I, J}",
        met=_known("block_gap", "residual")(
            lambda run: bool(run["block_gap"] <= NEAR_BETA and run["residual"] < SMALL_RESIDUAL)
        ),
        settings=(HIERARCHICAL, ("independent", False)),  # with BOS the independent prior's best beta is infinite
    ),
    Claim(
        name="beta_1 > beta_2 in weights",
        required="the lag-1 block of W_A is larger than the lag-2 block",
        met=_known("block_1", "block_2")(lambda run: bool(run["block_1"] > run["block_2"])),
        settings=(HIERARCHICAL,),
    ),
    Claim(
        name="beta_1 > beta_2 in scores",
        required="beta_1 > beta_2 as fitted to the scores",
        met=_known("beta_1", "beta_2")(lambda run: bool(run["beta_1"] > run["beta_2"])),
        settings=(HIERARCHICAL,),
    ),
    Claim(
        name="copy heads are sharp",
        required=f"both copy heads put {SHARP} on their lags at the last query",
        met=_known("copy_1", "copy_2")(lambda run: bool(min(run["copy_1"], run["copy_2"]) >= SHARP)),
    ),
    Claim(
        name="law recovers the loss",
        required=f"the law in place of the attention recovers {LEAST_RECOVERED} of the loss, within {ERRORS} errors",
        met=_recovers("law"),
    ),
    Claim(
        name="law of pairs recovers it",
        required=f"the law of all lag pairs recovers {LEAST_RECOVERED} of the loss, within {ERRORS} errors",
        met=_recovers("pair_law"),
    ),
    Claim(
        name="attention does the smoothing",
        required=f"the readout has less than {SMALL_READOUT:.0%} of the smoothing",
        met=_known("readout_share")(lambda run: bool(run["readout_share"] < SMALL_READOUT)),
    ),
    Claim(
        name="symbols are alike",
        required=f"KL to the relabeled model below {ALIKE} nats",
        met=_known("dependence")(lambda run: bool(run["dependence"] < ALIKE)),
    ),
)


def claim_counts(row: Row) -> dict[str, list[int]]:
    """Of one cell: for each claim that is about it, in how many runs it is met."""
    return {claim.name: claim.counts(row) for claim in CLAIMS}


def answers(rows: list[Row]) -> list[str]:
    """Where each claim holds; then why the logit readout leaves the law, and whether long training does."""
    found = []
    for claim in CLAIMS:
        parts = []
        for cell, readout in dict.fromkeys((row["cell"], row["readout"]) for row in rows):
            mine = [row["claims"][claim.name] for row in rows if (row["cell"], row["readout"]) == (cell, readout)]
            total = sum(count[1] for count in mine)
            if total:
                parts.append(f"{cell} ({readout}) {sum(count[0] for count in mine)}/{total}")
        if parts:
            found.append(f"{claim.name} [{claim.required}]: {', '.join(parts)}")
    return [*found, *readout_answer(rows), *leaving_answer(rows)]


def pick(rows: Iterable[Row], **words: Any) -> list[Row]:
    """The rows with these values."""
    return [row for row in rows if all(row[name] == value for name, value in words.items())]


def readout_answer(rows: list[Row]) -> list[str]:
    """Why the logit readout leaves the law under the hierarchical prior, from cells that differ in one thing."""
    logit = {"readout": "logit", "prior": "hierarchical"}
    cells = (
        ("the readout frozen", {**logit, "cell": "frozen"}),
        ("free, copies frozen", {**logit, "cell": "frozen_copies"}),
        ("all free", {**logit, "cell": "random_start"}),
        (
            "all free, independent prior with BOS",
            {**logit, "cell": "random_start", "prior": "independent", "bos": True},
        ),
        ("all free, probability readout", {**logit, "cell": "random_start", "readout": "probability"}),
        ("standard family", {**logit, "cell": "standard"}),
    )
    parts = []
    for words, chosen in cells:
        for row in pick(rows, **chosen, protocol="annealed"):
            if row["law"]["median"] is not None:
                parts.append(
                    f"{words}: R2 {row['r2']['median']:.2f}, law {row['law']['median']:.2f}, pairs "
                    f"{row['pair_law']['median']:.2f}, direct path {row['direct']['median']:+.2f} nats, weight of the "
                    f"key's own token {row['own_token']['median']:+.2f} (T = {row['length']})"
                )
    if not parts:
        return []
    return [
        "Under the logit readout evidence adds up in the logits: the readout can add what it reads past the match "
        "head, and the match head then discounts the votes of tokens that are counted there. " + "; ".join(parts)
    ]


def leaving_answer(rows: list[Row]) -> list[str]:
    """Whether five times the steps leave the law, by readout."""
    parts = [
        f"{row['readout']}, T = {row['length']}: R2 {row['r2']['least']:.2f} to {row['r2']['most']:.2f}"
        + (f", KL to relabelings {row['dependence']['most']:.1e}" if row["dependence"]["most"] is not None else "")
        for row in pick(rows, cell="leaving")
        if row["r2"]["least"] is not None
    ]
    return ["Trained five times as long without BOS: " + "; ".join(parts)] if parts else []
