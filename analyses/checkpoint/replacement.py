"""What do the match heads of a next-token model do for its loss, and does their law do the same?

All match heads are edited together, at every position that predicts: ablated (their output becomes its mean), with even
attention, with the attention of their fitted law, with hard matching. `recovered` is the share of the cost of the
ablation that an edit recovers. Controls: as many other heads of the same layers ablated; the same weights at random
keys. Then all but one match head are ablated, and that one is left as it is or gets its law: if the heads work
together, one alone recovers less. For models from outside this suite; for models of this suite, which predict at one
position, use `causal`.

    python -m analyses replacement CKPT
    python -m analyses replacement mine.py:build --order 1 --vocab 12 --bos none
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import interp as ip
from analyses.running.options import CheckpointOptions, option
from analyses.running.report import PAGE, decimals, render_table
from analyses.running.subject import Subject
from interp.results import Result

if TYPE_CHECKING:
    from interp.instruments.replacement import ReplacedHeads

COLUMNS = ("success", "loss", "lost", "recovered.law", "control.law", "recovered.hard", "alone", "message")
LEGEND = {
    "loss": "next-token loss in nats, mean over sequences and over the queries that have a target; change: its rise",
    "recovered": "share of the rise by ablating the heads that the edit avoids. It is not cut to [0, 1]: an edit may "
    "be better than the heads",
    "control": "the same weights at random keys; for the ablation, as many other heads",
}
SHOWN = ("edit", "loss", "change", "recovered", "control_change", "control_recovered")


@dataclass(frozen=True, kw_only=True)
class Options(CheckpointOptions):
    batch: int = option(128, "number of sequences (default: %(default)s)", metavar="N", least=10)
    draws: int = option(3, "draws of other heads, for the control (default: %(default)s)", metavar="N", least=1)


def applies(subject: Subject) -> str | None:
    """Only models that predict at every position."""
    if subject.is_foreign:
        return None
    return "models of this suite predict at their last position alone; causal is the question for them"


def analyse(subject: Subject, options: Options) -> Result:
    return ip.replace_heads(
        subject.model,
        subject.chains.tokens,
        query="trained",
        law="fitted",
        each=True,
        draws=options.draws,
        seed=options.seed,
    )


def page(result: ReplacedHeads) -> str:
    """The summary, and a row for every edit."""
    from interp.results import jsonable

    rows = result.table().rename(columns={"stderr": "change_stderr", "control_stderr": "control_change_stderr"})
    plain = [jsonable(row) for row in rows.to_dict("records")]
    fixed = [{**row, **{name: decimals(row[name]) for name in ("loss", "control_recovered")}} for row in plain]
    table = render_table(fixed, columns=SHOWN, width=PAGE)
    return f"{result}\n\n{table}"
