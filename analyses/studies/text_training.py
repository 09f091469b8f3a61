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

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analyses.running.ask import Ask
from analyses.running.options import ROOT, CachedOptions, option, place
from analyses.running.table import Table

if TYPE_CHECKING:
    import torch

    from analyses.running.cache import Cache
    from models.text.source import Source

ASK = Ask(cost=30.0)
COPY = 64  # tokens that are repeated
WINDOW = 192  # tokens of a plain window
ORDER = 2
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
    from interp.results import jsonable, provenance

    found = snapshots(options)
    texts = {run: text_of(paths) for run, paths in found.items()}
    shown = ("run", "step", "held_out_loss", "first_copy", "second_copy", "induction", "beta_1", "kappa")
    return Table(
        rows=[row for run, paths in found.items() for row in history(run, paths, texts[run], batch=options.batch)],
        provenance=jsonable(
            provenance(
                seed=options.seed,
                weights=weights(options),
                texts={text.name: text.digest for text in texts.values()},
            )
        ),
        shown=(*shown, "nats_explained", "control_explained"),
    )


def text_of(paths: list[Path]) -> Source:
    """What a run was trained on."""
    from interp.hooked.checkpoint import read_info
    from models.text.source import source

    return source((read_info(paths[-1]).training or {}).get("source", "alice"))


def history(run: str, paths: list[Path], text: Source, *, batch: int) -> list[dict[str, Any]]:
    """The rows of one run; the head is the one that ends with the highest score."""
    from interp.circuit.checkpoint import load
    from interp.hooked.checkpoint import read_info
    from interp.results import jsonable

    tokens = text.held_out(batch=batch, length=COPY).repeat(1, 2)
    circuits = [load(path) for path in paths]
    seen: Any = circuits[-1].model.cfg  # type: ignore[union-attr]
    windows = text.held_out(batch=2 * batch, length=min(WINDOW, int(seen.n_ctx) - 1) // 2 * 2)
    scans = [_scores(circuit, tokens) for circuit in circuits]
    last = scans[-1]
    best = max(last, key=lambda at: last[at][0])
    rows = []
    for path, circuit, scores in zip(paths, circuits, scans, strict=True):
        record = read_info(path).training or {}
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
            "induction": scores[best][0],
            "induction_stderr": scores[best][1],
            "others": max(score for at, (score, _) in scores.items() if at != best),
            "induction_even": _even(tokens),
            **_law(circuit, tokens, best),
            "n": len(tokens),
        }
        rows.append(jsonable(row))
    return rows


def _scores(circuit: Any, tokens: torch.Tensor) -> dict[tuple[int, int], tuple[float, float]]:
    """Attention of every head on keys that follow the query's token, at the second copy: mean and error."""
    from interp.instruments.scan_heads import scan_heads

    scan = scan_heads(circuit, tokens, query=range(COPY, 2 * COPY - 1, QUERY_STEP))
    return {at: (float(scan.induction[at]), float(scan.induction_stderr[at])) for at in scan.heads}


def _even(tokens: torch.Tensor) -> float:
    """The induction score of even attention over all keys, BOS among them."""
    import torch

    from interp.circuit.law import key_masks_at

    queries = torch.arange(COPY, 2 * COPY - 1, QUERY_STEP)
    masks = key_masks_at(tokens, order=1, bos=False, queries=queries)
    return float(((masks == 1).sum(-1) / (queries + 2)).mean())


def _losses(circuit: Any, tokens: torch.Tensor) -> dict[str, float]:
    """Losses of both copies; the first token of each is left out."""
    from interp.circuit.runner import next_losses
    from interp.results import mean_stderr

    losses = next_losses(circuit, tokens)
    first, second = losses[:, : COPY - 1].mean(dim=1), losses[:, COPY:].mean(dim=1)
    found = {}
    for name, values in (("first_copy", first), ("second_copy", second), ("gain", first - second)):
        found[name], found[f"{name}_stderr"] = mean_stderr(values)
    return found


def _natural_gains(circuit: Any, windows: torch.Tensor) -> dict[str, Any]:
    """The in-context gain of plain windows, at repeated contexts and at new ones."""
    import numpy as np

    from analyses.studies.language.natural import repeated_contexts, with_other_beginning
    from interp.circuit.runner import next_losses
    from interp.results import mean_stderr

    half, repeated = windows.shape[1] // 2, repeated_contexts(windows).numpy()
    own, other = (next_losses(circuit, some)[:, half:].numpy() for some in (windows, with_other_beginning(windows)))
    window = np.broadcast_to(np.arange(len(windows))[:, None], repeated.shape)
    found: dict[str, Any] = {"windows": len(windows)}
    for name, chosen in (("repeated_gain", repeated), ("new_gain", ~repeated)):
        found[name], found[f"{name}_stderr"] = mean_stderr((other - own)[chosen], clusters=window[chosen])
        found[f"{name}_tokens"] = int(chosen.sum())
    return found


def _law(circuit: Any, tokens: torch.Tensor, head: tuple[int, int]) -> dict[str, Any]:
    """The additive law of the head's attention; parameters are NaN where the attention does not determine them."""
    import dataclasses

    from interp.circuit.capture import capture
    from interp.fitting.attention_fit import fit_attention

    cap = capture(circuit.with_match_heads(head), tokens, query=range(COPY, 2 * COPY - 1, QUERY_STEP))
    fit = fit_attention(cap, position=False, min_explained=0.0)
    other = dataclasses.replace(cap, tokens=tokens.roll(1, dims=0))
    control = fit_attention(other, position=False, min_explained=0.0)
    return {
        "beta": fit.beta.tolist(),
        "beta_stderr": fit.stderr.tolist(),
        "kappa": fit.kappa,
        "kappa_stderr": fit.kappa_stderr,
        "nats": fit.nats,
        "nats_explained": fit.nats_explained,
        "nats_explained_stderr": fit.nats_explained_stderr,
        "control_explained": control.nats_explained,
        "message": fit.message,
    }
