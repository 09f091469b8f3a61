"""Every head along training: one scan of each snapshot of a series, and its loss.

SERIES is a folder of snapshots, a run that kept snapshots, or several checkpoints: of this suite, of a
HookedTransformer from elsewhere, or language models, such as the steps of Pythia. `ip.track` says which step each has;
the rows are in order of the steps.

    python -m analyses track models/formation/two_layers_bos/seed_0
    python -m analyses track runs/a --query all
    python -m analyses track pythia/step1000 pythia/step2000 --order 1 --vocab 12
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import interp as ip
from analyses.checkpoint.dynamics import snapshots_of
from analyses.running.options import CheckpointOptions, option
from analyses.running.report import PAGE, render_table
from analyses.running.subject import Subject
from analyses.running.table import Table

LEGEND = {
    "loss": "cross-entropy of the next token at the queries that have one, mean over sequences",
    "copy_mass": "attention on the lag that the head copies, as in `scan`",
    "beta, kappa": "as in `scan`; empty where the attention is no law of matches",
}
SHOWN = ("step", "loss", "head", "role", "copy_lag", "copy_mass", "beta_1", "beta_2", "kappa", "nats_explained")


@dataclass(frozen=True, kw_only=True)
class Options(CheckpointOptions):
    batch: int = option(128, "number of sequences (default: %(default)s)", metavar="N", least=10)
    query: Literal["trained", "last", "all"] = option(
        "trained", "which queries to read: where the loss has a target, the last, all (default: %(default)s)"
    )


def reads(path: Path, options: CheckpointOptions) -> list[Path]:
    """The snapshots of a run."""
    return snapshots_of(path)


def analyse(subject: Subject, options: Options) -> Table:
    """A row for each head of each snapshot; of a checkpoint without snapshots, of itself."""
    models = snapshots_of(subject.path) or [subject.scanned]
    found = ip.track(models, subject.chains.tokens, query=options.query)
    table = found.table().rename(
        columns={"success": "trusted"}
    )  # an early snapshot whose head does not match is no failure
    rows: list[dict[Any, Any]] = table.to_dict("records")
    return Table(rows=rows, provenance=found.provenance)


def survey(rows: Sequence[dict[str, Any]], options: Options) -> Table:
    """All snapshots in order of their steps; the terminal shows the heads that copy or match."""
    ordered = sorted(rows, key=lambda row: row["step"])
    shown = [row | {"head": f"{row['layer']}.{row['head']}"} for row in ordered if row["role"] in ("copy", "match")]
    steps = sorted({row["step"] for row in rows})
    text = render_table(shown, columns=SHOWN, width=PAGE) if shown else f"no head copies or matches at steps {steps}"
    return Table(rows=ordered, text=text)
