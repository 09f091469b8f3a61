"""The answers of the study of conditions: in how many runs of each cell a claim holds, as counts and sentences."""

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
LEAST_ALIGNED = 0.9
SMALL_READOUT = 0.05
ALIKE = 0.002  # nats: a smaller KL to the relabelings, or a smaller rise without a source of smoothing, counts as none
HIERARCHICAL = ("hierarchical", True)
PAPER = "paper"  # the protocol


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A requirement that a run meets or not.

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


def _is_the_constructions(run: Row) -> bool | None:
    """With BOS the independent prior's best beta is infinite, and the loss determines only kappa - |beta|."""
    gap = run["sum_gap"] if run["block_gap"] is None else run["block_gap"]
    if gap is None or run["residual"] is None:
        return None
    return bool(gap <= NEAR_BETA and run["residual"] < SMALL_RESIDUAL)


def _has_the_optimums_beta(run: Row) -> bool | None:
    gap = run["sum_gap"] if run["gap"] is None else run["gap"]
    return None if gap is None else bool(gap <= NEAR_BETA)


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
        required=f"aligned blocks within {NEAR_BETA} of the optimum's beta (where that is infinite: kappa less the sum "
        f"of beta within {NEAR_BETA} of the optimum's), no entry above {SMALL_RESIDUAL} outside span{{I, J}}",
        met=_is_the_constructions,
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
        name="beta of the optimum",
        required=f"beta as fitted to the scores within {NEAR_BETA} of the optimum's (where that is infinite: kappa "
        f"less the sum of beta)",
        met=_has_the_optimums_beta,
    ),
    Claim(
        name="weights say what scores say",
        required=f"aligned blocks within {NEAR_BETA} of the betas that the scores show",
        met=_known("block_1", "block_2", "beta_1", "beta_2")(
            lambda run: max(abs(run["block_1"] - run["beta_1"]), abs(run["block_2"] - run["beta_2"])) <= NEAR_BETA
        ),
    ),
    Claim(
        name="aligned pairs carry the score",
        required=f"pairs of equal lags carry {LEAST_ALIGNED} of the explained score",
        met=_known("aligned_share")(lambda run: bool(run["aligned_share"] >= LEAST_ALIGNED)),
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
        name="match head knows all",
        required=f"with the match head silenced, no better than the uniform law by {ERRORS} errors",
        met=_known("direct", "direct_stderr")(lambda run: bool(run["direct"] <= ERRORS * run["direct_stderr"])),
    ),
    Claim(
        name="partial matches smooth",
        required=f"without partial matches KL rises by {ALIKE} nats",
        met=_known("partial_alone")(lambda run: bool(run["partial_alone"] >= ALIKE)),
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
    """Where each claim holds; then what the logit readout, long training and the paper's protocol change."""
    found = []
    ours = [row for row in rows if row["protocol"] != PAPER]
    for claim in CLAIMS:
        parts = []
        for cell, readout in dict.fromkeys((row["cell"], row["readout"]) for row in ours):
            mine = [row["claims"][claim.name] for row in ours if (row["cell"], row["readout"]) == (cell, readout)]
            total = sum(count[1] for count in mine)
            if total:
                parts.append(f"{cell} ({readout}) {sum(count[0] for count in mine)}/{total}")
        if parts:
            found.append(f"{claim.name} [{claim.required}]: {', '.join(parts)}")
    return [*found, *readout_answer(rows), *leaving_answer(rows), *protocol_answer(rows)]


def pick(rows: Iterable[Row], **words: Any) -> list[Row]:
    """The rows with these values."""
    return [row for row in rows if all(row[name] == value for name, value in words.items())]


def readout_answer(rows: list[Row]) -> list[str]:
    """Why the logit readout leaves the law under the hierarchical prior, from cells that differ in one thing."""
    cells = readout_cells(rows)
    return [" ".join([*readout_cuts(rows), "; ".join(cells)])] if cells else []


def readout_cells(rows: list[Row]) -> list[str]:
    """Cell by cell, how far the scores are the law, and what else the models do; nothing without the two main cells."""
    logit = {"readout": "logit", "prior": "hierarchical"}
    cells = (
        ("copies and readout frozen", {**logit, "cell": "frozen"}),
        ("copies frozen", {**logit, "cell": "frozen_copies"}),
        ("copies frozen, no direct path", {**logit, "cell": "frozen_copies_no_direct"}),
        ("copies frozen, votes alone", {**logit, "cell": "frozen_copies_votes"}),
        ("all free", {**logit, "cell": "random_start"}),
        ("all free, no direct path", {**logit, "cell": "random_start_no_direct"}),
        ("all free, votes alone", {**logit, "cell": "random_start_votes"}),
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
            if row["r2"]["median"] is None:
                continue
            text = f"{words}, T = {row['length']}: R2 {_range(row, 'r2')}, weight of the key's own token "
            text += _range(row, "own_token")
            if row["law"]["median"] is not None:
                text += (
                    f", law {_range(row, 'law')}, pairs {_range(row, 'pair_law')}, direct {_range(row, 'direct')} nats"
                )
            parts.append(text)
    if not any(pick(rows, **logit, cell=cell) for cell in ("frozen_copies", "random_start")):
        return []
    return parts


def readout_cuts(rows: list[Row]) -> list[str]:
    """Whether the scores follow the law again where the readout reads only the votes."""
    found = []
    for base, words in (("frozen_copies", "frozen copies"), ("random_start", "free copies")):
        counts = {
            cut: _law_counts(
                pick(rows, cell=f"{base}{cut}", readout="logit", prior="hierarchical", protocol="annealed")
            )
            for cut in ("", "_no_direct", "_votes")
        }
        if counts["_no_direct"][1] and counts["_votes"][1]:
            free, cut, alone = (f"{met} of {asked}" for met, asked in counts.values())
            found.append(
                f"Logit readout, hierarchical prior, {words}: the scores are the law (R2 >= {LEAST_R2}) in {free} "
                f"runs, without the path past the match head in {cut}, with votes alone in {alone}."
            )
    return found


def _law_counts(rows: list[Row]) -> tuple[int, int]:
    told = [run["r2"] >= LEAST_R2 for row in rows for run in row["runs"] if run["r2"] is not None]
    return sum(told), len(told)


def _range(row: Row, name: str) -> str:
    """Least to largest over the seeds."""
    least, most = (f"{row[name][end]:.2f}" for end in ("least", "most"))
    return least if least == most else f"{least} to {most}"


def leaving_answer(rows: list[Row]) -> list[str]:
    """Whether five times the steps leave the law, by readout."""
    parts = [
        f"{row['readout']}, T = {row['length']}: R2 {row['r2']['least']:.2f} to {row['r2']['most']:.2f}"
        + (f", KL to relabelings {row['dependence']['most']:.1e}" if row["dependence"]["most"] is not None else "")
        for row in pick(rows, cell="leaving")
        if row["r2"]["least"] is not None
    ]
    return ["Trained five times as long without BOS: " + "; ".join(parts)] if parts else []


def protocol_answer(rows: list[Row]) -> list[str]:
    """What the paper's protocol changes: each of its runs beside the annealed run of the same cell and seed."""
    pairs = [pair for row in pick(rows, protocol=PAPER) for pair in _twins(row, rows)]
    if not pairs:
        return []
    asked, moved = 0, []
    for row, paper, annealed in pairs:
        both = {claim.name: (claim.met(annealed), claim.met(paper)) for claim in CLAIMS if claim.about(row)}
        told = {name: met for name, met in both.items() if None not in met}
        asked += len(told)
        moved += [
            f"{name} ({row['cell']}, {row['readout']}, T = {row['length']}: {'gained' if after else 'lost'})"
            for name, (before, after) in told.items()
            if before != after
        ]
    texts = [
        f"{row['cell']} ({row['readout']}, T = {row['length']}, seed {paper['seed']}): "
        + ", ".join(
            f"{words} {_written(paper, names, style)} ({_written(annealed, names, style)})"
            for words, names, style in COMPARED
            if _written(paper, names, style) or _written(annealed, names, style)
        )
        for row, paper, annealed in pairs
    ]
    differing = f"; different: {'; '.join(moved)}" if moved else ""
    return [
        f"The paper's protocol (a constant rate, sampled tokens) beside the annealed one, {len(pairs)} pairs of runs: "
        f"{asked - len(moved)} of {asked} answers are the same{differing}. Paper's (annealed): {'; '.join(texts)}"
    ]


COMPARED = (
    ("KL above the optimum", ("excess_share",), "{:+.1%}"),
    ("R2", ("r2",), "{:.2f}"),
    ("blocks", ("block_1", "block_2"), "{:.2f}"),
    ("betas", ("beta_1", "beta_2"), "{:.2f}"),
    ("copy mass", ("copy_1", "copy_2"), "{:.2f}"),
)


def _twins(row: Row, rows: list[Row]) -> list[tuple[Row, Row, Row]]:
    """The row, each of its runs, and the annealed run that differs in the protocol alone."""
    same = {name: row[name] for name in ("cell", "readout", "prior", "bos", "length", "init")}
    annealed = {run["seed"]: run for other in pick(rows, **same, protocol="annealed") for run in other["runs"]}
    return [(row, run, annealed[run["seed"]]) for run in row["runs"] if run["seed"] in annealed]


def _written(run: Row, names: tuple[str, ...], style: str) -> str:
    values = [run[name] for name in names]
    return "" if None in values else " and ".join(style.format(value) for value in values)
