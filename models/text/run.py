"""Train a small HookedTransformer to predict the next token of a text, with snapshots.

    python -m models.text.run models/text/asv.toml --out runs/asv

The study file has the arguments of HookedTransformerConfig and those of the run. Windows are drawn at random from the
part of the text that is not held out, each after a BOS token; in a share of them, `repeated`, a passage occurs twice.
The loss is the cross-entropy of the next token at every position. AdamW with a linear warm-up, then a cosine or a
constant rate, gradients cut to norm 1. The checkpoint is one that `ip.load` reads; its log, and snapshots at steps that
grow geometrically, are in the hidden `.NAME.run` beside it. An interrupted run continues from its last saved state;
with a constant rate, a larger `--steps` continues a finished run.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from models.families.plain import PlainRun, command
from models.running.terminal import say
from models.running.zoo import work_directory
from models.text.forward import next_token_losses
from models.text.source import Source, source

TESTED = 64  # held-out windows
REPEATS, REPEAT_LENGTH = 64, 32  # sequences of repeated random tokens, and how long a copy is
SHORTEST = 24  # tokens of a passage that is repeated
ORDER = 2  # of the circuit that is saved: analyses may ask for another
STATE_EVERY = 60.0  # seconds of processor time between saved states


@dataclass(frozen=True, kw_only=True)
class TextRun(PlainRun):
    """One run: the transformer, the text, and the windows.

    repeated   the share of the windows that begin with a passage and its repetition. Its length is drawn for each
               window: with a fixed length a model learns to copy from that distance, without matching
    snapshots  how many per factor of ten in steps
    """

    source: str = "alice"
    snapshots: int = 6
    repeated: float = 0.0

    def kept(self) -> list[int]:
        """The steps of the snapshots: 0, then a geometric row from 10 on, and the last step.

        >>> TextRun(transformer={}, length=8, batch=1, steps=120, learning_rate=1.0, snapshots=2).kept()
        [0, 10, 32, 100, 120]
        """
        row, place = [], 0
        while (step := round(10 ** (1 + place / self.snapshots))) < self.steps:
            row.append(step)
            place += 1
        return [0, *row, self.steps]


def make_model(run: TextRun, *, vocab: int) -> Any:
    """The transformer before its first step: BOS is one more input, and stands before a window."""
    return run.start(positions=run.length + 1, vocab=vocab + 1, out=vocab)


def tested(model: Any, text: Source, run: TextRun) -> dict[str, float]:
    """Losses on held-out windows, and on both copies of repeated random tokens."""
    import torch

    with torch.no_grad():
        held = next_token_losses(model, text.held_out(batch=TESTED, length=run.length), bos=text.vocab)
        repeats = text.repeated(batch=REPEATS, length=REPEAT_LENGTH, seed=0)
        twice = next_token_losses(model, repeats, bos=text.vocab)
    return {
        "held_out_loss": float(held.mean()),
        "first_copy_loss": float(twice[:, :REPEAT_LENGTH].mean()),
        "second_copy_loss": float(twice[:, REPEAT_LENGTH + 1 :].mean()),
    }


def drawn(run: TextRun, text: Source, generator: Any) -> Any:
    """The windows of a step, [batch, length]."""
    import torch

    tokens = text.drawn(batch=run.batch, length=run.length, generator=generator)
    for row in tokens[: round(run.repeated * run.batch)]:
        passage = int(torch.randint(SHORTEST, run.length // 2 + 1, (), generator=generator))
        row[passage : 2 * passage] = row[:passage].clone()
    return tokens


def train(
    run: TextRun, text: Source, *, keep: Callable[[Any, dict[str, Any]], None], state: Path | None = None
) -> dict[str, Any]:
    """Train, and hand the model to `keep` at every snapshot; returns the record of the last one.

    With a `state` file the run can be interrupted: the file is written every minute, and the next run continues from
    it.
    """
    import torch

    torch.set_num_threads(1)
    model = make_model(run, vocab=text.vocab)
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=run.learning_rate, betas=(0.9, 0.98), weight_decay=run.weight_decay
    )
    generator = torch.Generator().manual_seed(run.seed)
    about = {"loss": "next_token", "text": text.digest, **asdict(run)}
    about.pop("transformer")
    first, spent, recent = 0, 0.0, 0.0
    if state is not None and state.exists():
        first, spent, recent = _restored(state, run, model, optimiser, generator)
    start, written, wanted = time.process_time() - spent, time.process_time(), set(run.kept())
    record: dict[str, Any] = {}
    for step in range(first, run.steps + 1):
        if step in wanted:
            seconds = round(time.process_time() - start, 1)
            record = {**about, "step": step, "train_loss": recent, **tested(model, text, run), "cpu_seconds": seconds}
            keep(model, record)
        if state is not None and (step == run.steps or time.process_time() - written > STATE_EVERY):
            now = {"first": step, "spent": time.process_time() - start, "recent": recent}
            _write(state, run, model, optimiser, generator, now)
            written = time.process_time()
        if step == run.steps:
            break
        loss = next_token_losses(model, drawn(run, text, generator), bos=text.vocab).mean()
        run.descend(optimiser, model, loss, step=step)
        recent = loss.item()
    return record


def _same_run(run: TextRun) -> dict[str, Any]:
    """The settings that must not change when a run continues; a cosine also fixes the number of steps."""
    free = {"snapshots"} if run.schedule == "cosine" else {"snapshots", "steps"}
    return {name: value for name, value in asdict(run).items() if name not in free}


def _write(state: Path, run: TextRun, model: Any, optimiser: Any, generator: Any, now: dict[str, Any]) -> None:
    """Write all that a run needs to continue; the file is written completely or not at all."""
    import torch

    state.parent.mkdir(parents=True, exist_ok=True)
    part = state.with_suffix(".part")
    kept = {"model": model.state_dict(), "optimiser": optimiser.state_dict(), "generator": generator.get_state()}
    torch.save({**kept, **now, "run": _same_run(run)}, part)
    os.replace(part, state)


def _restored(state: Path, run: TextRun, model: Any, optimiser: Any, generator: Any) -> tuple[int, float, float]:
    import torch

    kept = torch.load(state, weights_only=True)
    if kept["run"] != _same_run(run):
        raise ValueError(f"{state} is of another run: name another directory")
    model.load_state_dict(kept["model"])
    optimiser.load_state_dict(kept["optimiser"])
    generator.set_state(kept["generator"])
    return kept["first"], kept["spent"], kept["recent"]


def save_run(run: TextRun, text: Source, out: Path, *, say: Callable[[str], None]) -> dict[str, Any]:
    """Train, and write checkpoint, log, snapshots and the state from which the run can continue."""
    from interp.circuit.checkpoint import save
    from interp.circuit.circuit import Circuit

    beside = work_directory(out)
    state, lines = beside / "state.pt", beside / "log.jsonl"
    if beside.exists() and not state.exists():
        raise ValueError(f"{beside} is there already, without a state to go on from: name another directory")
    log = {json.loads(line)["step"]: line for line in lines.read_text().splitlines()} if lines.exists() else {}

    def keep(model: Any, record: dict[str, Any]) -> None:
        circuit = Circuit(model, order=ORDER, vocab=text.vocab, bos=text.vocab)
        snapshot = beside / "snapshots" / f"step_{record['step']:08d}"
        save(circuit, snapshot, length=run.length, training=record)
        shown = ("step", "train_loss", "held_out_loss", "first_copy_loss", "second_copy_loss", "cpu_seconds")
        log[record["step"]] = json.dumps({name: record[name] for name in shown})
        lines.write_text("".join(f"{log[step]}\n" for step in sorted(log)))
        say(log[record["step"]])
        if record["step"] == run.steps:
            save(circuit, out, length=run.length, training=record)

    return train(run, text, keep=keep, state=state)


def train_and_save(run: TextRun, out: Path) -> None:
    """Train and save; every snapshot is a line on stderr."""
    save_run(run, source(run.source), out, say=say)


main = command("models.text.run", __doc__ or "", TextRun, train_and_save)

if __name__ == "__main__":
    sys.exit(main())
