"""Do beta and kappa appear when the loss drops? A small language model during its training on text.

One row per snapshot of each model trained here on text (`python -m models.text.run`). Losses on held-out text; on
held-out text that is repeated within the window, first and second copy; and, on plain held-out windows, the in-context
gain: the loss of the second half after the first half of another window, minus its loss after its own. It is measured
at `repeated` contexts, whose last two tokens occurred together in the first half and not since, and at all others,
`new`.

For the head that ends with the highest induction score, its attention on the repeated text: induction score beside that
of even attention, beta and kappa of the additive law, the share of the attention's nats that the law explains, and the
same share with the masks of another sequence. The law has no positional term: in repeated text the match is always at
the same distance, so that a term for the distance would replace beta. `others` is the highest induction score of all
other heads.

    python -m analyses text_training
    python -m analyses text_training --histories runs
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import interp as ip
from analyses.running.ask import Ask
from analyses.running.cache import Cache
from analyses.running.options import ROOT, CachedOptions, option, place
from analyses.running.table import Table
from interp.results import jsonable

ASK = Ask(cost=30.0)
COPY = 64  # tokens that are repeated
WINDOW = 192  # tokens of a plain window
QUERY_STEP = 3


@dataclass(frozen=True, kw_only=True)
class Options(CachedOptions):
    batch: int = option(48, "windows of held-out text (default: %(default)s)", metavar="N", least=20)
    histories: Path = place(
        ROOT / "models" / "text" / "checkpoints",
        "a directory of runs with snapshots (default: models/text/checkpoints)",
        metavar="DIR",
    )


def snapshots(options: Options) -> dict[str, list[Path]]:
    """The snapshots of every run, in order of their steps."""
    folders = sorted(options.histories.glob(".*.run/snapshots"))
    found = {folder.parent.name[1:].removesuffix(".run"): sorted(folder.glob("step_*")) for folder in folders}
    if not found:
        raise ValueError(f"{options.histories} has no runs with snapshots; python -m models.text.run makes them")
    return found


def weights(options: Options) -> dict[str, str]:
    """Digests of the snapshots."""
    from interp.language.weights import digest

    found = snapshots(options).items()
    return {f"{run}/{path.name}": digest(path / "model.safetensors") for run, paths in found for path in paths}


def study(options: Options, cache: Cache) -> Table:
    """One row per run and snapshot."""
    from models.text.source import source

    rows, texts = [], {}
    for run, paths in snapshots(options).items():
        text = source((ip.read_info(paths[-1]).training or {}).get("source", "alice"))
        texts[text.name] = text.digest
        rows += history(run, paths, text, batch=options.batch)
    shown = ("run", "step", "held_out_loss", "first_copy", "second_copy", "induction", "beta_1", "kappa")
    return Table(
        rows=rows,
        provenance={"weights": weights(options), "texts": texts},
        shown=(*shown, "nats_explained", "control_explained"),
    )


def history(run: str, paths: list[Path], text: Any, *, batch: int) -> list[dict[str, Any]]:
    """The rows of one run; the head is the one that ends with the highest score."""
    tokens = text.held_out(batch=batch, length=COPY).repeat(1, 2)
    circuits = [ip.load(path) for path in paths]
    config: Any = circuits[-1].model.cfg  # type: ignore[union-attr]
    windows = text.held_out(batch=2 * batch, length=min(WINDOW, int(config.n_ctx) - 1) // 2 * 2)
    queries = range(COPY, 2 * COPY - 1, QUERY_STEP)  # of the second copy
    scans = [ip.scan_heads(circuit, tokens, query=queries) for circuit in circuits]
    best = max(scans[-1].heads, key=lambda at: float(scans[-1].induction[at]))
    rows = []
    for path, circuit, scan in zip(paths, circuits, scans, strict=True):
        record = ip.read_info(path).training or {}
        if missing := [name for name in ("step", "held_out_loss") if record.get(name) is None]:
            raise ValueError(f"{path}: the training record has no {missing[0]}")
        row = {
            "run": run,
            "text": text.name,
            "repeated": record.get("repeated", 0.0),
            "step": record["step"],
            "held_out_loss": record["held_out_loss"],
            **_losses(circuit, tokens),
            **_natural_gains(circuit, windows),
            "name": f"{best[0]}.{best[1]}",
            "induction": scan.induction[best],
            "induction_stderr": scan.induction_stderr[best],
            "others": max(scan.induction[at] for at in scan.heads if at != best),
            "induction_even": scan.induction_even,
            **_law(circuit, tokens, best, queries),
            "n": len(tokens),
        }
        rows.append(jsonable(row))
    return rows


def _losses(circuit: Any, tokens: Any) -> dict[str, float]:
    """Losses of both copies; the first token of each is left out."""
    from interp.circuit.runner import next_losses

    losses = next_losses(circuit, tokens)
    first, second = losses[:, : COPY - 1].mean(dim=1), losses[:, COPY:].mean(dim=1)
    found = {}
    for name, values in (("first_copy", first), ("second_copy", second), ("gain", first - second)):
        found[name], found[f"{name}_stderr"] = ip.mean_stderr(values)
    return found


def _natural_gains(circuit: Any, windows: Any) -> dict[str, Any]:
    """The in-context gain of plain windows, at repeated contexts and at new ones."""
    from analyses.studies.language.natural import gains, repeated_contexts, with_other_beginning
    from interp.circuit.runner import next_losses

    half = windows.shape[1] // 2
    own, other = (next_losses(circuit, some)[:, half:].numpy() for some in (windows, with_other_beginning(windows)))
    found: dict[str, Any] = {"windows": len(windows)}
    for kind, (values, window) in gains(own, other, repeated_contexts(windows).numpy()).items():
        found[f"{kind}_gain"], found[f"{kind}_gain_stderr"] = ip.mean_stderr(values, clusters=window)
        found[f"{kind}_gain_tokens"] = len(values)
    return found


def _law(circuit: Any, tokens: Any, head: tuple[int, int], queries: range) -> dict[str, Any]:
    """The additive law of the head's attention; parameters are NaN where the attention does not determine them."""
    from analyses.studies.language.task import fitted

    cap = ip.capture(circuit.with_match_heads(head), tokens, query=queries)
    fit = fitted(cap, position=False)
    control = fitted(dataclasses.replace(cap, tokens=tokens.roll(1, dims=0)), position=False)
    return {
        "beta": fit.beta.tolist(),
        "beta_stderr": fit.stderr.tolist(),
        **{
            name: getattr(fit, name)
            for name in ("kappa", "kappa_stderr", "nats", "nats_explained", "nats_explained_stderr", "message")
        },
        "control_explained": control.nats_explained,
    }
