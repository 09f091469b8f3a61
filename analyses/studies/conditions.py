"""Which condition does each claim need? Every cell of the study `conditions`, with all instruments.

Each cell trains one more part than the one before: hard copy heads and the construction's readout, both frozen
(`frozen`); the readout free (`frozen_copies`); everything free from sharp copy heads (`hard_start`); from random
weights (`random_start`); theorem:invariance's own start (`zero_start`), also on symmetrised batches. Each has both
readouts. Where models with the logit readout leave the law, what the readout reads beside the votes is removed
(`no_direct`, then `votes`). One row per cell, prior and length, with the median, the least and the largest over its
seeds; the JSON also holds every run. Standard models of the zoo, and its long runs without BOS, are measured in the
same way for comparison.

    python -m analyses conditions
    python -m analyses conditions --lengths 64 --cells frozen random_start
    python -m analyses conditions --runs runs/conditions --out results     the runs of your own sweep
    python -m analyses.shipped conditions      the rows of new runs, added to the table that `make reproduce` reads

excess, excess_share       KL above that of the optimum (`optimal_parameters`) on the same sequences, and as a share
r2, beta_1, beta_2, kappa  fit of the law to the scores; gap: distance of beta from the optimum's at most
sum_gap                    where the optimum's beta is infinite: distance of kappa - |beta| from its, which is finite
position                   share of the variance of the scores that a bias of the key's position adds to the law
aligned_share, own_token   of the score, what aligned pairs explain; the most negative weight of the key's own token
block_1, block_2           identity coefficients of the aligned blocks of W_A; block_gap: distance from the optimum's
elsewhere, residual        largest identity coefficient of another block; largest entry outside span{I, J}; with
                           score_ before it the same, read from the scores
copy_1, copy_2             copy mass on the head's lag, at the last query
law, pair_law              loss recovered by the law, and by that of all lag pairs (from here on, of the edited model)
partial, bos_share, readout_share   parts in the smoothing (Shapley values); _alone: rise of KL, switched off alone
direct                     nats that the model knows without its match head
dependence                 KL between the model and its relabelings
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import interp as ip
from analyses.claims.document import CLAIMS
from analyses.claims.judge import compare
from analyses.claims.quantities import QUANTITIES as JUDGED
from analyses.parts.condition_runs import QUANTITIES, run_row
from analyses.parts.estimators import optimum, soft_at
from analyses.parts.heldout import Sequences, measure
from analyses.running.ask import Ask
from analyses.running.cache import Cache
from analyses.running.options import ROOT, ZooOptions, option, place
from analyses.running.subject import Subject, find_subjects, prior_text
from analyses.running.table import Table
from models.families.registry import find_family

SHIPPED = "CONDITIONS"
SHOWN = (
    "cell", "readout", "prior", "bos", "length", "seeds", "excess_share.median", "r2.median", "block_1.median",
    "block_2.median", "residual.most", "copy_2.median", "law.median", "pair_law.median",
)  # fmt: skip
CELLS = (
    "frozen", "frozen_copies", "hard_start", "random_start", "zero_start", "zero_start_symmetrised", "symmetrised",
    "leaving", "frozen_copies_no_direct", "frozen_copies_votes", "random_start_no_direct", "random_start_votes",
    "standard",
)  # fmt: skip
# What the runs of a row share.
GROUP = ("cell", "readout", "protocol", "init", "prior", "bos", "length", "order", "vocab")
PAPER = "paper"  # the protocol
# What the claims are judged by and the study measures too.
ASKED = {name: quantity for name, quantity in JUDGED.items() if "conditions" in quantity.read}

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Options(ZooOptions):
    batch: int = option(2000, "sequences for the KL (default: %(default)s)", metavar="N", least=1)
    keys: int = option(
        8_192, "keys that the instruments read, in as many sequences as it takes (default: %(default)s)",
        metavar="N", least=1,
    )  # fmt: skip
    edited: int = option(3, "seeds of a cell whose live models are edited (default: %(default)s)", metavar="N", least=0)
    cells: tuple[str, ...] = option(CELLS, "cells (default: all)", metavar="CELL")
    lengths: tuple[int, ...] = option((32, 64, 128, 256), "lengths (default: %(default)s)", metavar="T", least=2)
    draws: int = option(50_000, "sequences that the optimum is found on (default: %(default)s)", metavar="N", least=100)
    runs: Path = place(
        ROOT / "models" / "conditions", "directory of the study's runs (default: models/conditions)", metavar="DIR"
    )


# The draws and the seed of `optimal`, so that each optimum is searched for once.
ASK = Ask(options=Options(draws=40_000, seed=1), cost=8.0)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A prior, with or without BOS, and a length: each setting has an optimum."""

    prior: str
    bos: bool
    order: int
    vocab: int
    length: int

    def __str__(self) -> str:
        return f"{self.prior} {'BOS' if self.bos else 'no BOS'} T={self.length}"


def cell_of(run: Subject, options: Options) -> str | None:
    """The cell that a run belongs to; None for checkpoints of the zoo that are not compared with the study."""
    if not run.path.is_relative_to(options.zoo):
        return Path(run.name).parts[0]
    if run.start not in ("soft", "free", None):  # its own cells have the hard starts
        return None
    model, protocol = run.model_config, run.training.get("protocol")
    family = find_family(model["family"])
    if not family.blocks and protocol != "long":
        return "standard"
    return "leaving" if protocol == "long" and family.blocks and not family.analytic and not model["bos"] else None


def runs_of(options: Options) -> list[tuple[str, Subject]]:
    """The study's finished runs and those of the zoo beside them, with their cells."""
    folders = (options.runs, options.zoo)
    found = [run for place in folders for run in find_subjects(place, unfinished=options.unfinished)]
    return [
        (cell, run)
        for run in found
        if (cell := cell_of(run, options)) in options.cells
        and run.model_config["order"] == 2
        and run.model_config["length"] in options.lengths
    ]


def setting_of(run: Subject) -> Setting:
    shape = {name: run.model_config[name] for name in ("bos", "order", "vocab", "length")}
    return Setting(prior=prior_text(run.training["prior"]), **shape)


def pieces(options: Options) -> list[Setting]:
    """The settings that runs were trained in."""
    return list(dict.fromkeys(setting_of(run) for _, run in runs_of(options)))


def together(options: Options, piece: Setting) -> str:
    """`optimal` needs the same optimum."""
    return f"{piece.prior} T={piece.length}"


def study_piece(options: Options, piece: Setting, cache: Cache, *, known: Container[str] = ()) -> Table:
    """Every cell of one setting, without the runs whose weights are known."""
    groups = groups_of(options, piece)
    if all(weights_of(run) in known for runs in groups.values() for run in runs):
        return Table()
    prior, length = ip.parse_prior(piece.prior, order=piece.order, vocab=piece.vocab), piece.length
    best = optimum(prior, length=length, bos=piece.bos, draws=options.draws, seed=options.seed, cache=cache)
    sequences = Sequences(prior=prior, batch=options.batch, length=length, seed=options.seed + 1)
    ideal = measure(sequences, soft_at(best), cache).values
    what: dict[str, Any] = {"best": best, "ideal": ideal, "sequences": sequences, "keys": options.keys, "cache": cache}
    rows = []
    for words, runs in groups.items():
        measured = [
            run_row(run, edits=number < options.edited, **what) | {"weights": weights_of(run)}
            for number, run in enumerate(runs)
            if weights_of(run) not in known
        ]
        row = {
            **dict(zip(("cell", "readout", "protocol", "init"), words, strict=True)),
            "freeze": runs[0].training.get("freeze") or "",
            **vars(piece),
            "prior": prior.kind,
            "best_beta": [None if flat else value for value, flat in zip(best.beta, best.flat, strict=True)],
            "best_kl": float(ideal.mean()),
        }
        rows += [with_runs(row, measured)] if measured else []
    return Table(rows=rows)


def groups_of(options: Options, piece: Setting) -> dict[tuple[str, str, str, str], list[Subject]]:
    """The runs of one setting by cell, readout, protocol and start, in the order of their seeds."""
    groups: dict[tuple[str, str, str, str], list[Subject]] = {}
    for cell, run in runs_of(options):
        if setting_of(run) == piece:
            record = run.training
            words = (cell, run.model_config["readout"], str(record.get("protocol")), str(record.get("init")))
            groups.setdefault(words, []).append(run)
    return {words: sorted(runs, key=lambda run: run.training.get("seed") or 0) for words, runs in groups.items()}


def weights_of(run: Subject) -> str:
    """The digest of a row's weights."""
    return run.digest[:16]


def with_runs(row: Row, runs: Sequence[Row]) -> Row:
    """The row of a cell with these runs, and their medians, least and largest values."""
    ordered = sorted(runs, key=lambda run: run["seed"] or 0)
    spreads = {name: spread([run[name] for run in ordered]) for name in QUANTITIES}
    return {**row, "seeds": len(ordered), **spreads, "runs": ordered}


def merged(known: Iterable[Row], new: Iterable[Row]) -> list[Row]:
    """Rows of the same cells joined; a new run replaces a known one of the same name."""
    rows: dict[tuple[Any, ...], Row] = {}
    for row in (*known, *new):
        group = tuple(row[name] for name in GROUP)
        runs = {run["run"]: run for run in (*rows.get(group, {"runs": ()})["runs"], *row["runs"])}
        rows[group] = with_runs(row, list(runs.values()))
    return list(rows.values())


def spread(values: Sequence[float | None]) -> dict[str, float | None]:
    """Median, least and largest of the seeds that have a number."""
    known = [value for value in values if value is not None]
    if not known:
        return {"median": None, "least": None, "most": None}
    return {"median": median(known), "least": min(known), "most": max(known)}


def join(options: Options, studies: Sequence[Table]) -> Table:
    """All settings, cell by cell, with what they answer."""
    rows = sorted(
        ({**row, "met": met_counts(row)} for study in studies for row in study.rows),
        key=lambda row: (CELLS.index(row["cell"]), row["readout"] != "probability", row["prior"], not row["bos"]),
    )
    origin = dict(studies[0].provenance) if studies else {}
    digests = {run["run"]: run["weights"] for row in rows for run in row["runs"]}
    notes = answers(rows) if rows else [f"no finished run below {options.runs}: python -m models sweep conditions"]
    return Table(rows=rows, provenance={**origin, "checkpoints": digests}, shown=SHOWN, notes=notes)


def is_met(name: str, row: Row, run: Row) -> bool | None:
    """Whether a run of a cell meets a need; None where no claim asks it of its prior, or its number is not known."""
    needs = [need.rows for claim in CLAIMS for need in claim.needs if need.quantity == name]
    settings = {(rows["prior"], rows["bos"]) for rows in needs if "prior" in rows and "bos" in rows}
    if settings and (row["prior"], row["bos"]) not in settings:  # where no need names a prior, all are asked
        return None
    found = ASKED[name].read["conditions"]({"bos": row["bos"], "freeze": row["freeze"], **run}, {})
    return None if found is None else compare(found, ASKED[name]) == "holds"


def met_counts(row: Row) -> dict[str, list[int]]:
    """Of one cell: for each quantity, in how many runs it is met, and of how many."""
    told = {name: [met for run in row["runs"] if (met := is_met(name, row, run)) is not None] for name in ASKED}
    return {name: [sum(met), len(met)] for name, met in told.items()}


def answers(rows: list[Row]) -> list[str]:
    """Where each need is met, cell by cell."""
    cells: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row["protocol"] != PAPER:
            cells.setdefault((row["cell"], row["readout"]), []).append(row)
    found = []
    for name, quantity in ASKED.items():
        parts = []
        for (cell, readout), mine in cells.items():
            met, asked = (sum(row["met"][name][place] for row in mine) for place in (0, 1))
            parts += [f"{cell} ({readout}) {met}/{asked}"] if asked else []
        if parts:
            found.append(f"{quantity.words} [{quantity.required}]: {', '.join(parts)}")
    return found
