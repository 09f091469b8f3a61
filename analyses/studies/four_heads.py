"""Does the law do what four match heads do together? An example model from outside this suite.

One row per edit of `replacement` on `models/foreign/four_heads`, a plain next-token model of 4 layers with 4 heads
each: all match heads edited together, then one of them left alone. `recovered` is the share of the cost of ablating all
of them that an edit recovers; `control_recovered` is the same with the weights at random keys.

    python -m analyses four_heads
    python -m analyses four_heads --folder runs/mine
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import interp as ip
from analyses.running.ask import Ask
from analyses.running.cache import Cache
from analyses.running.options import ROOT, CachedOptions, CheckpointOptions, option, place
from analyses.running.subject import Subject
from analyses.running.table import Table
from interp.results import jsonable

ASK = Ask(cost=2.0)
SHOWN = ("edit", "loss", "change", "stderr", "recovered", "recovered_stderr", "control_recovered")


@dataclass(frozen=True, kw_only=True)
class Options(CachedOptions):
    batch: int = option(128, "number of sequences (default: %(default)s)", metavar="N", least=10)
    draws: int = option(3, "draws of other heads, for the control (default: %(default)s)", metavar="N", least=1)
    folder: Path = place(
        ROOT / "models" / "foreign" / "four_heads",
        "a checkpoint that predicts at every position (default: models/foreign/four_heads)",
        metavar="DIR",
    )


def weights(options: Options) -> dict[str, str]:
    """A digest of the model."""
    return {"model": Subject.open(options.folder).digest}


def study(options: Options, cache: Cache) -> Table:
    """One row per edit."""
    from interp.circuit.circuit import head_name

    subject = Subject.open(options.folder, CheckpointOptions(batch=options.batch, seed=options.seed))
    found = ip.replace_heads(
        subject.model, subject.chains.tokens, query="trained", law="fitted", each=True, draws=options.draws,
        seed=options.seed,
    )  # fmt: skip
    said = {"model": subject.name, "heads": ", ".join(map(head_name, found.heads))}
    said |= {name: getattr(found, name) for name in ("queries", "n", "success", "message")}
    return Table(
        rows=[jsonable({**dataclasses.asdict(edit), **said}) for edit in found.edits],
        provenance={"weights": weights(options)},
        shown=SHOWN,
        failures=() if found.success else (found.message,),
    )
