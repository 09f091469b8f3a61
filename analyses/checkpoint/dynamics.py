"""When does each part of the circuit form during training?

One row per snapshot of a run: beta and kappa from the scores, how sharply the copy heads sit on their lags, attention
mass by overlap, and KL to the truth. `formed` names, for each part, the first step from which it stays close to where
it ends. Betas of early snapshots, whose scores are not yet a law of matches, are left empty (`fit` is then false).

    python -m models train ... --snapshots --out runs/a
    python -m analyses dynamics runs/a
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analyses.running.ask import Ask
from analyses.running.options import CheckpointOptions
from interp.results import Result
from models.running.zoo import work_directory

if TYPE_CHECKING:
    import pandas as pd

    from analyses.running.subject import Subject
    from interp.hooked.checkpoint import CheckpointInfo

LEGEND = {
    "forms": "first step from which a number stays within 10% of its whole change around its last value",
    "kl": "KL(truth || prediction) at the last query in nats, mean over sequences",
    "copy lag r": "the largest mass of a copy head on lag r, mean over queries and sequences",
    "beta, kappa": "fitted to the scores of the last query, as in `beta_kappa`",
}
ASK = Ask(cost=4.5)
SETTLED = 0.1  # a part has formed when it stays this close to its last value, relative to its whole change


@dataclass(frozen=True, kw_only=True)
class Dynamics(Result):
    """A run's history.

    rows      one dict per snapshot: step, kl, kl_stderr, fit, beta (per lag), kappa, r2_match, copy (mass on each lag
              1..k of its best head), mass (by overlap 0..k), bos, early
    formed    part -> the first step from which it stays within 10% of its whole change around its last value
    """

    rows: Sequence[dict[str, Any]]
    formed: dict[str, int | None]
    n: int

    def table(self) -> pd.DataFrame:
        """One row per snapshot, vectors as columns."""
        import pandas as pd

        from analyses.running.table import flat_rows

        return pd.DataFrame(flat_rows(self.rows))

    def __str__(self) -> str:
        last = self.rows[-1]
        lines = [
            f"{len(self.rows)} snapshots up to step {last['step']}, KL {last['kl']:.4f} nats on {self.n} sequences"
        ]
        lines += [f"  {part:12} forms by step {step}" for part, step in self.formed.items()][:6]
        return "\n".join([*lines, *self.remarks()])


def applies(info: CheckpointInfo) -> str | None:
    return None if snapshots_of(info.path) else "the run kept no snapshots (train with --snapshots)"


def snapshots_of(path: Path) -> list[Path]:
    """The snapshots beside a checkpoint, in order of their steps."""
    return sorted((work_directory(path) / "snapshots").glob("step_*"))


def reads(path: Path, options: CheckpointOptions) -> list[Path]:
    """The snapshots."""
    return snapshots_of(path.resolve())


def analyse(subject: Subject, options: CheckpointOptions) -> Dynamics:
    from interp.results import provenance
    from models.running.progress import progress_bar

    snapshots = snapshots_of(subject.path.resolve())
    if not snapshots:
        raise ValueError(f"{subject.path}: the run kept no snapshots; train it with --snapshots")
    rows = [_row(path, subject) for path in progress_bar(iterable=snapshots, desc="snapshots", leave=False)]
    fitted = [row for row in rows if row["fit"]]
    return Dynamics(
        rows=rows,
        formed=_formed(rows),
        n=len(subject.chains.tokens),
        success=bool(fitted),
        message="" if fitted else "in no snapshot are the scores a law of matches",
        provenance=provenance(seed=options.seed, checkpoint=str(subject.path)),
    )


def _row(path: Path, subject: Subject) -> dict[str, Any]:
    from interp.circuit.capture import capture
    from interp.circuit.runner import predict
    from interp.divergence import kl_divergence
    from interp.hooked.checkpoint import load, read_info
    from interp.instruments.beta_kappa import fit_scores
    from interp.instruments.copy_heads import copy_heads
    from interp.instruments.overlap_mass import overlap_mass
    from interp.results import jsonable

    model = load(path)
    tokens = subject.chains.tokens
    cap = capture(model, tokens)
    fit = fit_scores(cap)
    mass = overlap_mass(cap, fit)
    divergence = kl_divergence(subject.chains.next_law, predict(model, tokens))
    row: dict[str, Any] = jsonable(
        {
            "step": (read_info(path).training or {}).get("step", 0),
            "kl": divergence.mean,
            "kl_stderr": divergence.stderr,
            "fit": fit.success,
            "beta": fit.beta,
            "kappa": fit.kappa,
            "r2_match": fit.r2_match,
            "copy": copy_heads(cap).masses.max(axis=0),
            "mass": mass.by_overlap,
            "bos": mass.bos,
            "early": mass.early,
        }
    )
    return row


def _formed(rows: Sequence[dict[str, Any]]) -> dict[str, int | None]:
    """For each part of the circuit, the first step from which its curve stays near its last value."""
    order = len(rows[0]["beta"])
    curves: dict[str, list[float | None]] = {"kl": [row["kl"] for row in rows]}
    for lag in range(order):
        curves[f"copy lag {lag + 1}"] = [row["copy"][lag] for row in rows]
    for lag in range(order):
        curves[f"beta_{lag + 1}"] = [row["beta"][lag] for row in rows]
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
