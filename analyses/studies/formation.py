"""In which order do copying, matching and the fall of the loss come, and does beta grow after the loss is flat?

Small attention-only transformers, trained here on sequences that repeat (`models/formation`, three seeds each), are
scanned at their snapshots (`ip.track`). All numbers are means over queries from the longest period on, where a copy of
the next token has been seen. Without BOS the first token has the score kappa. One row for each

snapshot   loss, its step, and of two heads, always the same: of the head that matches best at the end (the most nats
           explained) beta, kappa, the share explained, its attention on full matches (`matched`) and on BOS (`sink`);
           of the head below it with the most attention on the token before at the end, that attention (`copied`).
           beta and kappa are None where the attention is no law of matches. `n_match`: heads that match
run        the steps at which `copied`, `matched` and the loss are half way from their first to their last value, on a
           straight line between snapshots, and the first snapshot where beta is known and above half of its last value
           (so `beta_at` is a latest step); `flat_at`, the first snapshot from which the loss stays within 2% of its
           fall of where it ends; beta and kappa there and at the end
order      of the runs of one size, with and without BOS, and of all: means over runs and their standard errors. By how
           many steps the loss is half way after `copied` and `matched` are, and how much beta grows after `flat_at`

Runs in which no head matches at the end have no row `run`. A model of one layer, which cannot match on what a head
below it copied, is the control.

    python -m analyses formation
    python -m analyses formation --histories runs/formation
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import interp as ip
from analyses.running.ask import Ask
from analyses.running.cache import Cache
from analyses.running.options import ROOT, option, place
from analyses.running.options import Options as StudyOptions
from analyses.running.table import Table, gathered

QUERY_STEP = 3
FLAT = 0.02  # of the fall of the loss
LEADS = ("copied_leads", "matched_leads", "beta_leads", "beta_grows", "kappa_end")
Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Options(StudyOptions):
    batch: int = option(128, "sequences (default: %(default)s)", metavar="N", least=10)
    histories: Path = place(
        ROOT / "models" / "formation", "a folder of RUN/seed_N/step_N (default: models/formation)", metavar="DIR"
    )


ASK = Ask(cost=3.0)


def pieces(options: Options) -> list[str]:
    """The runs: folders of snapshots."""
    found = sorted({path.parent for path in options.histories.glob("*/seed_*/step_*")})
    if not found:
        raise ValueError(f"{options.histories} has no runs with snapshots (RUN/seed_N/step_N)")
    return [str(path.relative_to(options.histories)) for path in found]


def snapshots(options: Options, run: str) -> list[Path]:
    """The snapshots of a run, in order of their steps."""
    return sorted((options.histories / run).glob("step_*"))


def weights(options: Options) -> dict[str, str]:
    """Digests of the snapshots."""
    from interp.language.weights import digest

    paths = [path for run in pieces(options) for path in snapshots(options, run)]
    return {str(path.relative_to(options.histories)): digest(path / "model.safetensors") for path in paths}


def study_piece(options: Options, piece: str, cache: Cache) -> Table:
    """The snapshots of one run, and what happens when."""
    paths = snapshots(options, piece)
    info = ip.read_info(paths[-1])
    length, longest = info.model["length"], info.prior.to_dict()["longest"]
    tokens = info.prior.sample(batch=options.batch, length=length, seed=options.seed).tokens
    models = [_with_sink(ip.load(path)) for path in paths]
    found = ip.track(models, tokens, query=range(longest, length - 1, QUERY_STEP))
    layers = info.model["transformer"]["n_layers"]
    which = {"layers": layers, "bos": info.model["bos"], "seed": (info.training or {})["seed"]}
    rows = [{"kind": "snapshot", "run": piece, **which, **row} for row in of_snapshots(found)]
    if rows[-1]["n_match"]:  # otherwise nothing has formed
        rows.append({"kind": "run", "run": piece, **which, **events(rows)})
    return Table(rows=rows)


def _with_sink(circuit: Any) -> Any:
    """The circuit; without BOS its first token has the score kappa."""
    if circuit.has_bos:
        return circuit
    return ip.Circuit(circuit.model, order=circuit.order, vocab=circuit.vocab, bos="first")


def of_snapshots(found: Any) -> list[Row]:
    """The numbers of every snapshot."""
    last = found.scans[-1]
    match = max(last.heads, key=lambda at: float(np.nan_to_num(last.nats_explained[at] * last.nats[at])))
    below = [at for at in last.heads if at[0] < match[0]] or list(last.heads)
    copy = max(below, key=lambda at: float(last.copy_mass[at][0]))
    rows = []
    for place_, (step, scan) in enumerate(zip(found.steps, found.scans, strict=True)):
        row = {
            "step": step,
            "loss": found.loss[place_],
            "loss_stderr": found.loss_stderr[place_],
            "copy_head": list(copy),
            "match_head": list(match),
            "copied": scan.copy_mass[copy][0],
            "copied_stderr": scan.copy_mass_stderr[copy][0],
            "matched": scan.mass[match][scan.order],
            "matched_stderr": scan.mass_stderr[match][scan.order],
            "sink": scan.mass[match][scan.order + 1],
            "beta": found.beta[place_][match][0],
            "beta_stderr": scan.beta_stderr[match][0],
            "kappa": scan.kappa[match],
            "kappa_stderr": scan.kappa_stderr[match],
            "explained": scan.nats_explained[match],
            "n_match": len(scan.match_heads),
            "n": scan.n,
        }
        rows.append(ip.results.jsonable(row))
    return rows


def events(rows: Sequence[Row]) -> Row:
    """What happens when in one run."""
    steps = [row["step"] for row in rows]
    found: Row = {f"{name}_at": half_way(steps, [row[name] for row in rows]) for name in ("copied", "matched", "loss")}
    loss = [row["loss"] for row in rows]
    room = FLAT * (loss[0] - loss[-1])
    flat = next(row for place_, row in enumerate(rows) if all(abs(one - loss[-1]) <= room for one in loss[place_:]))
    end = rows[-1]
    half = math.inf if end["beta"] is None else end["beta"] / 2
    found["beta_at"] = next((row["step"] for row in rows if row["beta"] is not None and row["beta"] >= half), None)
    found |= {"flat_at": flat["step"], "beta_flat": flat["beta"], "beta_end": end["beta"], "kappa_end": end["kappa"]}
    found["copied_leads"] = _less(found["loss_at"], found["copied_at"])
    found["matched_leads"] = _less(found["loss_at"], found["matched_at"])
    found["beta_leads"] = _less(found["loss_at"], found["beta_at"])
    found["beta_grows"] = _less(end["beta"], flat["beta"])
    return found


def half_way(steps: Sequence[float], curve: Sequence[float]) -> float:
    """Where a curve is first half way from its first to its last value.

    >>> half_way([0, 100, 200, 300], [4.0, 4.0, 0.0, 0.0])
    150.0
    """
    change = (np.asarray(curve) - curve[0]) / (curve[-1] - curve[0])
    after = int((change >= 0.5).argmax())
    share = (0.5 - change[after - 1]) / (change[after] - change[after - 1])
    return float(steps[after - 1] + share * (steps[after] - steps[after - 1]))


def _less(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one - other


def join(options: Options, studies: Sequence[Table]) -> Table:
    """All runs, with the means over seeds and over all runs."""
    rows = [row for one in studies for row in one.rows]
    runs = [row for row in rows if row["kind"] == "run"]
    cells = sorted({(row["layers"], row["bos"]) for row in runs})
    of_order = [_means(runs, layers=layers, bos=bos) for layers, bos in cells] + ([_means(runs)] if runs else [])
    notes = [_words(row) for row in of_order]
    formed = {row["run"] for row in runs}
    late = sorted({row["run"] for row in rows if row["layers"] > 1} - formed)
    notes += [f"no head matches at the end: {', '.join(late)}"] if late else []
    alone = [row for row in rows if row["layers"] == 1]
    if alone:
        most = max(row["explained"] for row in alone)
        notes.append(f"one layer (control): {sum(row['n_match'] for row in alone)} match heads, at most {most:.3f}")
    return gathered([*studies, Table(rows=of_order)], text="\n".join(notes))


def _means(runs: Sequence[Row], **cell: Any) -> Row:
    """Means over the runs of a cell, or over all of them."""
    chosen = [row for row in runs if all(row[name] == value for name, value in cell.items())]
    row: Row = {"kind": "order", "run": "all" if not cell else "seeds", "layers": None, "bos": None, **cell}
    for name in LEADS:
        known = [one[name] for one in chosen if one[name] is not None]
        row[name], row[f"{name}_stderr"] = ip.mean_stderr(known) if known else (None, None)
        row[f"{name}_n"] = len(known)
    return {**row, "n": len(chosen)}


def _words(row: Row) -> str:
    """One line about an order."""
    where = "all runs" if row["layers"] is None else f"{row['layers']} layers, {'BOS' if row['bos'] else 'no BOS'}"
    parts = [
        f"{words} {row[name]:+.{digits}f} ± {row[f'{name}_stderr'] or math.nan:.{digits}f}"
        for name, words, digits in (
            ("copied_leads", "steps from copying to the loss", 0),
            ("matched_leads", "from matching", 0),
            ("beta_grows", "beta grows at flat loss by", 2),
        )
        if row[name] is not None
    ]
    return f"{where} ({row['n']} runs): {', '.join(parts)}"
