"""What runs of plain HookedTransformers share: their settings in a study file, the start, a step, and the command."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

import click

from models.running.command_line import OK, PATH, Whole, help_text, run

FLOOR = 0.05  # share of the learning rate at the end of the cosine
CLIP = 1.0  # largest norm of the gradient
Run = TypeVar("Run", bound="PlainRun")


@dataclass(frozen=True, kw_only=True)
class PlainRun:
    """The shape of a transformer, as HookedTransformerConfig takes it, and the steps of its training."""

    transformer: dict[str, Any]
    length: int
    batch: int
    steps: int
    learning_rate: float
    schedule: Literal["cosine", "constant"] = "cosine"
    weight_decay: float = 0.0
    warmup: int = 100
    seed: int = 0

    @classmethod
    def read(cls, file: Path) -> Self:
        """The run of a study file: tables `transformer` and `training`, and one for each other setting that is a table.

        A `ValueError` names what is wrong with it.
        """
        try:
            values = tomllib.loads(file.read_text(encoding="utf-8"))
            values.pop("summary", None)
            return cls(**values.pop("training"), **values)
        except OSError as error:
            raise ValueError(f"{file}: {error.strerror}") from error
        except KeyError as error:
            raise ValueError(f"{file}: no table {error.args[0]}") from error
        except (TypeError, tomllib.TOMLDecodeError) as error:
            raise ValueError(f"{file}: {error}") from error

    def rate(self, step: int) -> float:
        """The learning rate of a step: a linear warm-up, then a cosine or a constant."""
        turn = 0.5 * (1.0 + math.cos(math.pi * step / self.steps))
        falling = 1.0 if self.schedule == "constant" else FLOOR + (1.0 - FLOOR) * turn
        return self.learning_rate * (min(1.0, (step + 1) / self.warmup) * falling)

    def start(self, *, positions: int, vocab: int, out: int) -> Any:
        """The transformer before its first step; the global generators are left as they were."""
        import torch

        from interp.lens import HookedTransformer, HookedTransformerConfig

        sizes: dict[str, Any] = {"n_ctx": positions, "d_vocab": vocab, "d_vocab_out": out}
        config = HookedTransformerConfig(
            **self.transformer, **sizes, default_prepend_bos=False, device="cpu", init_weights=False
        )
        model = HookedTransformer(config)
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            model.init_weights()
        return model

    def descend(self, optimiser: Any, model: Any, loss: Any, *, step: int) -> None:
        """One step down the gradient of a loss."""
        import torch

        for group in optimiser.param_groups:
            group["lr"] = self.rate(step)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimiser.step()


def command(module: str, document: str, kind: type[Run], work: Callable[[Run, Path], None]) -> Callable[..., int]:
    """The `main` of a module that trains runs of a kind: it reads STUDY, and `work` trains and saves."""

    @click.command(f"python -m {module}", help=help_text(document))
    @click.argument("study", type=PATH)
    @click.option("--out", type=PATH, required=True, metavar="DIR", help="where the checkpoint goes")
    @click.option("--steps", type=Whole(1), help="another number of steps than the file says")
    @click.option("--seed", type=Whole(0), help="another seed than the file says")
    def train(study: Path, out: Path, **changed: Any) -> int:
        asked = kind.read(study)
        work(replace(asked, **{name: value for name, value in changed.items() if value is not None}), out)
        return OK

    def main(argv: list[str] | None = None) -> int:
        return run(lambda: train, argv, refusals=(ValueError,))

    return main
