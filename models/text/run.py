"""Train a small HookedTransformer to predict the next character of the shipped text, with snapshots.

    python -m models.text.run models/text/alice.toml --out runs/alice

The study file has the arguments of HookedTransformerConfig and those of the run. Windows are drawn at random from the
first nine tenths of Alice's Adventures in Wonderland, each after a BOS token; in a part of them, `repeated`, a passage
stands twice. The loss is the cross-entropy of the next character at every position. AdamW with a linear warm-up and a
cosine, gradients cut to norm 1. The checkpoint is one that `ip.load` reads, with `<out>.run/log.jsonl` and snapshots at
steps that grow geometrically beside it.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
import tomllib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from models.text.characters import Characters, alice

FLOOR = 0.05  # of the learning rate, where the cosine ends
CLIP = 1.0
TESTED = 64  # held-out windows
REPEATS, REPEAT_LENGTH = 64, 32  # sequences of repeated random characters, and how long a copy is
SHORTEST = 24  # characters of a passage that stands twice
ORDER = 2  # of the circuit that is saved: analyses may ask for another


@dataclass(frozen=True, kw_only=True)
class TextRun:
    """One run: the shape of the transformer, the windows, and the steps.

    repeated   the part of the windows that begin with a passage and then the same again. Its length is drawn anew for
               each window: with one length a model learns to copy from that distance, and needs no match
    """

    transformer: dict[str, Any]
    length: int
    batch: int
    steps: int
    learning_rate: float
    weight_decay: float = 0.0
    warmup: int = 100
    snapshots: int = 16
    repeated: float = 0.0
    seed: int = 0

    def rate(self, step: int) -> float:
        """The learning rate of a step."""
        cosine = 0.5 * (1.0 + math.cos(math.pi * step / self.steps))
        return self.learning_rate * min(1.0, (step + 1) / self.warmup) * (FLOOR + (1.0 - FLOOR) * cosine)

    def kept(self) -> list[int]:
        """The steps of the snapshots: 0, then a geometric row from the warm-up's fifth to the last step.

        >>> TextRun(transformer={}, length=8, batch=1, steps=100, learning_rate=1.0, warmup=50, snapshots=4).kept()
        [0, 10, 32, 100]
        """
        first = max(1, self.warmup // 5)
        ratio = (self.steps / first) ** (1 / max(1, self.snapshots - 2))
        return sorted({0, self.steps, *(round(first * ratio**place) for place in range(self.snapshots - 1))})


def read_run(file: Path) -> TextRun:
    """The run that a study file describes; a `ValueError` names what is wrong with it."""
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
        return TextRun(transformer=values["transformer"], **values["training"])
    except OSError as error:
        raise ValueError(f"{file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, TypeError) as error:
        raise ValueError(f"{file}: {error}") from error
    except KeyError as error:
        raise ValueError(f"{file}: no table {error.args[0]}") from error


def make_model(run: TextRun, *, vocab: int) -> Any:
    """The transformer before its first step; the global generators are left as they were."""
    import torch

    from interp.lens import HookedTransformer, HookedTransformerConfig

    config = HookedTransformerConfig(
        **run.transformer,
        n_ctx=run.length + 1,
        d_vocab=vocab + 1,
        d_vocab_out=vocab,
        default_prepend_bos=False,
        device="cpu",
        init_weights=False,
    )
    model = HookedTransformer(config)
    with torch.random.fork_rng():
        torch.manual_seed(run.seed)
        model.init_weights()
    return model


def losses(model: Any, tokens: Any, *, bos: int) -> Any:
    """Cross-entropy of every token after those before it, BOS in front: [batch, length]."""
    import torch

    logits = model(torch.nn.functional.pad(tokens, (1, 0), value=bos)[:, :-1], prepend_bos=False)
    flat = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten(), reduction="none")
    return flat.unflatten(0, tokens.shape)


def tested(model: Any, text: Characters, run: TextRun) -> dict[str, float]:
    """Losses on held-out windows, and on both copies of repeated random characters."""
    import torch

    with torch.no_grad():
        held = losses(model, text.held_out(batch=TESTED, length=run.length), bos=text.vocab)
        twice = losses(model, text.repeated(batch=REPEATS, length=REPEAT_LENGTH, seed=0), bos=text.vocab)
    return {
        "held_out_loss": float(held.mean()),
        "first_copy_loss": float(twice[:, :REPEAT_LENGTH].mean()),
        "second_copy_loss": float(twice[:, REPEAT_LENGTH + 1 :].mean()),
    }


def train(run: TextRun, text: Characters, *, keep: Callable[[Any, dict[str, Any]], None]) -> dict[str, Any]:
    """Train, and hand the model to `keep` at every snapshot; returns the record of the last one."""
    import torch

    torch.set_num_threads(1)
    model = make_model(run, vocab=text.vocab)
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=run.learning_rate, betas=(0.9, 0.98), weight_decay=run.weight_decay
    )
    generator = torch.Generator().manual_seed(run.seed)
    start, wanted, recent = time.process_time(), set(run.kept()), 0.0
    about = {"loss": "next_token", "text": text.digest, **asdict(run)}
    about.pop("transformer")
    record: dict[str, Any] = {}
    for step in range(run.steps + 1):
        if step in wanted:
            spent = round(time.process_time() - start, 1)
            record = {**about, "step": step, "train_loss": recent, **tested(model, text, run), "cpu_seconds": spent}
            keep(model, record)
        if step == run.steps:
            break
        tokens = text.drawn(batch=run.batch, length=run.length, generator=generator)
        for row in tokens[: round(run.repeated * run.batch)]:
            passage = int(torch.randint(SHORTEST, run.length // 2 + 1, (), generator=generator))
            row[passage : 2 * passage] = row[:passage].clone()
        for group in optimiser.param_groups:
            group["lr"] = run.rate(step)
        loss = losses(model, tokens, bos=text.vocab).mean()
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimiser.step()
        recent = loss.item()
    return record


def save_run(run: TextRun, text: Characters, out: Path, *, say: Callable[[str], None]) -> dict[str, Any]:
    """Train and write checkpoint, log and snapshots."""
    from interp.circuit.checkpoint import save
    from interp.circuit.circuit import Circuit

    beside = out.parent / f"{out.name}.run"
    if beside.exists():
        raise ValueError(f"{beside} is there already: name another directory")
    log: list[str] = []

    def keep(model: Any, record: dict[str, Any]) -> None:
        circuit = Circuit(model, order=ORDER, vocab=text.vocab, bos=text.vocab)
        save(circuit, beside / "snapshots" / f"step_{record['step']:08d}", length=run.length, training=record)
        shown = ("step", "train_loss", "held_out_loss", "first_copy_loss", "second_copy_loss", "cpu_seconds")
        log.append(json.dumps({name: record[name] for name in shown}))
        (beside / "log.jsonl").write_text("\n".join(log) + "\n")
        say(log[-1])
        if record["step"] == run.steps:
            save(circuit, out, length=run.length, training=record)

    return train(run, text, keep=keep)


def main(argv: list[str] | None = None) -> int:
    """Train and save."""
    parser = argparse.ArgumentParser(
        prog="python -m models.text.run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", type=Path, help="a TOML file")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where the checkpoint goes")
    parser.add_argument("--steps", type=int, metavar="N", help="another number of steps than the file says")
    parser.add_argument("--seed", type=int, metavar="S", help="another seed than the file says")
    options = parser.parse_args(argv)
    try:
        run = read_run(options.study)
        changed = {name: getattr(options, name) for name in ("steps", "seed") if getattr(options, name) is not None}
        run = TextRun(**{**asdict(run), **changed})
        save_run(run, alice(), options.out, say=lambda line: print(line, file=sys.stderr, flush=True))
    except (ValueError, OSError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
