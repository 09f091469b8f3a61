"""When does each part of the circuit form during training?

One row per snapshot of a run: beta and kappa from the scores, how sharply the copy heads sit on their lags, attention
mass by overlap, and KL to the truth. `formed` names, for each part, the first step from which it stays close to where
it ends. Betas of early snapshots, whose scores are not yet a law of matches, are left empty (`fit` is then false).

    python -m models train ... --snapshots --out runs/a
    python -m analyses dynamics runs/a
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import interp as ip
from analyses.running.ask import Ask
from analyses.running.options import CheckpointOptions
from analyses.running.subject import Subject
from analyses.running.table import Table, flat_rows
from interp.results import jsonable, provenance
from models.running.progress import progress_bar
from models.running.zoo import work_directory

LEGEND = {
    "forms": "first step from which a number stays within 10% of its whole change around its last value",
    "kl": "KL(truth || prediction) at the last query in nats, mean over sequences",
    "copy lag r": "the largest mass of a copy head on lag r, mean over queries and sequences",
    "beta, kappa": "fitted to the scores of the last query, as in `beta_kappa`",
}
ASK = Ask(cost=4.5)
SETTLED = 0.1  # a part has formed when it stays this close to its last value, relative to its whole change


def applies(subject: Subject) -> str | None:
    return None if snapshots_of(subject.path) else "the run kept no snapshots (train with --snapshots)"


def snapshots_of(path: Path) -> list[Path]:
    """The snapshots beside a checkpoint, in order of their steps."""
    return sorted((work_directory(path.resolve()) / "snapshots").glob("step_*"))


def reads(path: Path, options: CheckpointOptions) -> list[Path]:
    """The snapshots."""
    return snapshots_of(path)


def analyse(subject: Subject, options: CheckpointOptions) -> Table:
    """A row with one dict per snapshot in `rows`, and in `formed` the step from which each part stays as it ends."""
    snapshots = progress_bar(iterable=snapshots_of(subject.path), desc="snapshots", leave=False)
    rows = [snapshot_row(path, subject) for path in snapshots]
    formed, fitted = formed_by(rows), any(row["fit"] for row in rows)
    message = "" if fitted else "in no snapshot are the scores a law of matches"
    last, n = rows[-1], len(subject.chains.tokens)
    lines = [f"{len(rows)} snapshots up to step {last['step']}, KL {last['kl']:.4f} nats on {n} sequences"]
    lines += [f"  {part:12} forms by step {step}" for part, step in formed.items()]
    lines += [f"  not to be trusted: {message}"] if message else []
    row = {"rows": rows, "formed": formed, "n": n, "success": fitted, "message": message}
    origin = provenance(seed=options.seed, checkpoint=str(subject.path))
    return Table(rows=[{**row, "provenance": origin}], tidy=flat_rows(rows), text="\n".join(lines))


def snapshot_row(path: Path, subject: Subject) -> dict[str, Any]:
    """What the instruments find in one snapshot; `copy` is the mass on each lag of the head that has most there."""
    model, tokens = ip.load(path), subject.chains.tokens
    cap = ip.capture(model, tokens)
    fit = ip.fit_scores(cap)
    mass = ip.overlap_mass(cap, fit)
    divergence = ip.kl_divergence(subject.chains.next_law, ip.predict(model, tokens))
    row: dict[str, Any] = jsonable(
        {
            "step": (ip.read_info(path).training or {}).get("step", 0),
            "kl": divergence.mean,
            "kl_stderr": divergence.stderr,
            "fit": fit.success,
            "beta": fit.beta,
            "kappa": fit.kappa,
            "r2_match": fit.r2_match,
            "copy": ip.copy_heads(cap).masses.max(axis=0),
            "mass": mass.by_overlap,
            "bos": mass.bos,
            "early": mass.early,
        }
    )
    return row


def formed_by(rows: Sequence[dict[str, Any]]) -> dict[str, int | None]:
    """For each part of the circuit, the first step from which its curve stays near its last value."""
    curves: dict[str, list[float | None]] = {"kl": [row["kl"] for row in rows]}
    for name, label in (("copy", "copy lag {}"), ("beta", "beta_{}")):
        for lag in range(len(rows[0]["beta"])):
            curves[label.format(lag + 1)] = [row[name][lag] for row in rows]
    if any(row["kappa"] is not None for row in rows):
        curves["kappa"] = [row["kappa"] for row in rows]
    steps = [row["step"] for row in rows]
    return {part: settling_step(steps, curve) for part, curve in curves.items()}


def settling_step(steps: Sequence[int], curve: Sequence[float | None]) -> int | None:
    """The first step from which the curve stays within `SETTLED` of its whole range around its last value.

    Missing values count as far away; None if the last value itself is missing.

    >>> settling_step([0, 1, 2, 3], [0.0, 5.0, 9.5, 10.0])
    2
    """
    if curve[-1] is None:
        return None
    known = [value for value in curve if value is not None]
    room = SETTLED * (max(known) - min(known))
    first = steps[-1]
    for step, value in zip(reversed(steps), reversed(curve), strict=True):
        if value is None or abs(value - curve[-1]) > room:
            break
        first = step
    return first
