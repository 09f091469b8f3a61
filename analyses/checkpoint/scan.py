"""Which heads of a model copy, which match, and with which beta and kappa?

Every head of any model, in one forward pass: the lag it copies and how much of its attention is there, the additive law
of its attention (beta, kappa, and the share of its nats that the law explains), and its mass by overlap, on BOS and on
early keys. `role` is match, copy, duplicate, self, sink or none, by rules that are printed. `success` is false where a
lag has no copy head or no head matches.

    python -m analyses scan CKPT
    python -m analyses scan mine.py:build --order 1 --vocab 12 --bos none      a HookedTransformer of your own
    python -m analyses scan smollm2 --batch 24                                 a language model, on chains in words
    python -m analyses scan mine.py:build --order 1 --save runs/mine           and its circuit, for all other analyses
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import interp as ip
from analyses.running.options import CheckpointOptions, option, place
from analyses.running.report import PAGE, decimals, render_table
from analyses.running.subject import Subject
from interp.results import Result

if TYPE_CHECKING:
    from interp.instruments.scan_heads import HeadScan

COLUMNS = ("success", "message")
LEGEND = {
    "copy_lag": "the lag that a copy head copies",
    "copy_mass": "the most attention on one lag, mean over sequences and all queries that have a token there",
    "beta, kappa": "of the additive law under which the attention is most likely (`beta_kappa --source attention`). "
    "It weighs keys by their attention; `beta_kappa` weighs all scores alike, so its numbers differ a little",
    "nats_explained": "share of the head's nats, KL(attention || even attention and BOS), that this law explains",
    "mass_full": "attention on keys that match at all lags, mean over sequences and over the queries asked for",
    "r2_match": "of what position leaves of the scores, the share that matches explain",
}
SHOWN = ("head", "role", "copy_lag", "copy_mass", "beta_", "kappa", "nats_explained", "mass_full", "r2_match", "nats")
MOST_ROWS = 40


@dataclass(frozen=True, kw_only=True)
class Options(CheckpointOptions):
    batch: int = option(128, "number of sequences (default: %(default)s)", metavar="N", least=10)
    query: Literal["trained", "last", "all"] = option(
        "trained", "which queries to read: where the loss has a target, the last, all (default: %(default)s)"
    )
    save: Path | None = place(
        None, "also find the circuit of a model from file.py:function and save it here", metavar="DIR"
    )


def analyse(subject: Subject, options: Options) -> Result:
    tokens = subject.chains.tokens
    scan = ip.scan_heads(subject.scanned, tokens, query=options.query)
    if options.save is not None:
        from interp.circuit.checkpoint import save
        from interp.instruments.find_circuit import find_circuit

        circuit = find_circuit(subject.scanned, tokens, query=options.query, scan=scan)
        record = {"prior": subject.prior.to_dict(), "source": str(subject.path)}
        save(circuit, options.save, length=subject.model_config["length"], training=record)
    return scan


def page(result: HeadScan) -> str:
    """The summary, the table of the heads (of many heads those that have a role), and why a match head has no beta."""
    from interp.circuit.circuit import head_name
    from interp.results import jsonable

    table = result.table().astype(object)
    rows = [jsonable(row) for row in table.where(table.notna(), None).to_dict("records")]
    if len(rows) > MOST_ROWS:
        rows = [row for row in rows if row["role"] != "none"]
    named = [
        {name: decimals(value) if isinstance(value, float) else value for name, value in row.items()}
        | {"head": head_name((row["layer"], row["head"]))}
        for row in rows
    ]
    columns = [name for one in SHOWN for name in (rows[0] if rows else ()) if name == one or one == name[:5] == "beta_"]
    shown = render_table(named, columns=columns, width=PAGE) if rows else "no head has a role"
    doubts = [f"{head_name(at)}: {why}" for at in result.match_heads if (why := result.reasons[at[0]][at[1]])]
    below = "\n\nno beta for a match head whose law is not to be trusted: " + "; ".join(doubts) if doubts else ""
    return f"{result}\n\n{shown}{below}"
