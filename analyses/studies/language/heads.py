"""The heads that match, on chains, repeated tokens or text: the law of their attention, and what they cause.

law    for each head and order: beta and kappa with errors, the share of the attention's information that the law
       explains (control: another sequence's masks), masses by overlap, and how much better the suffix and the free
       law predict other sequences
edit   on other sequences, all heads together (`ip.replace_heads`): outputs set to their means (control: as many other
       heads), even attention, laws in place of the attention (control: the same weights on shuffled keys), hard
       matching; the change of the loss and, on chains, of the KL to the truth. Not on text, where `gain` rows say more
path   on repeated tokens: the heads that copy lag 1 below the match heads are set to their means; what is left of each
       match head's attention on the keys after the query's earlier occurrences (control: as many other heads)
gain   on text, see `analyses.studies.language.gains`

A law of order k is fitted to all heads from one capture. Its numbers are kept however little it explains: the rows say
how much. The laws of the edits have no positional term, since the attention that is written has none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from analyses.studies.language import gains
from analyses.studies.language.case import FIRST_QUERY, Case, Row, names, others, rounded
from interp.circuit.capture import Capture, capture
from interp.circuit.circuit import Circuit, Head
from interp.circuit.edits import HeadMeans, layers_of
from interp.circuit.runner import Hooks, observe
from interp.fitting.attention_fit import fit_attention
from interp.fitting.fits import AttentionFit
from interp.fitting.scan_statistics import ScanStatistics
from interp.instruments.compare_laws import LawComparison, compare_laws
from interp.instruments.replacement import replace_heads
from interp.instruments.scan_heads import COPY_LAGS, HeadScan, judged
from interp.language.prompts import Prompts

STEP = 4  # of the queries of chains and of text that are fitted
EDIT_LENGTH, EDIT_QUERIES = 64, 32  # of chains that are edited: tokens, and the last queries
FIT = 2  # times the batch: sequences of repeated tokens that laws are fitted on; others are edited
DRAWS = 2


class Prompted(NamedTuple):
    """Prompts, the longest context of a law, and the queries."""

    given: Prompts
    order: int
    queries: range
    truth: torch.Tensor | None = None


def rows(case: Case, part: str) -> list[Row]:
    """Everything about the match heads on one kind of prompt; nothing where no head matches."""
    heads = case.heads("match")
    if not heads:
        return []
    fitted = to_fit(case, part)
    cap = capture(
        case.circuit(fitted.given, heads, order=fitted.order),
        fitted.given.tokens,
        query=fitted.queries,
        copies=False,
    )
    found = [row for order in range(1, fitted.order + 1) for row in law_rows(dataclasses.replace(cap, order=order))]
    if part == "text":
        found += gains.rows(case, heads)
    else:
        found += edit_rows(case, part, heads, cap)
    found += path_rows(case, heads) if part == "repeats" else []
    return [{"text": part, **row} for row in found]


def to_fit(case: Case, part: str) -> Prompted:
    """What laws are fitted on."""
    order, batch = case.options.order, case.options.batch
    if part == "repeats":
        given, queries = case.repeats(batch=FIT * batch, stream=7)
        return Prompted(given, 1, queries)
    if part == "text":
        given = case.windows()
        length = given.tokens.shape[1]
        return Prompted(given, order, range(length // 2, length, STEP))
    _, given = case.chains(batch=batch + batch // 3, stream=4)
    return Prompted(given, order, range(FIRST_QUERY, given.tokens.shape[1], STEP))


def to_edit(case: Case, part: str) -> Prompted:
    """What is edited: other sequences."""
    if part == "repeats":
        given, queries = case.repeats(batch=case.options.batch // 2, stream=8)
        return Prompted(given, 1, queries)
    drawn, given = case.chains(batch=case.options.batch // 2, length=EDIT_LENGTH, stream=9)
    length = given.tokens.shape[1]
    queries = range(max(length - 1 - EDIT_QUERIES, length // 2), length - 1)
    return Prompted(given, case.options.order, queries, drawn.laws())


# ---- laws


def law_rows(cap: Capture) -> Iterator[Row]:
    """The law of each head at the capture's order, with its control, and how the three laws compare."""
    control = laws_of(dataclasses.replace(cap, tokens=others(cap.tokens)))
    for place, (row, other) in enumerate(zip(head_laws(cap), control, strict=True)):
        more = law_comparison(compare_laws(cap.match_head(place))) if cap.order > 1 else {}
        yield {"kind": "law", "order": cap.order, **row, "control_explained": other.nats_explained, **more}


def head_laws(cap: Capture, **how: Any) -> Iterator[Row]:
    """The numbers of each head's law. kappa_minus_beta is kappa - |beta|: the score of BOS relative to a full match."""
    for name, fit in zip(names(cap.match_heads), laws_of(cap, **how), strict=True):
        signs = np.array([-1.0 if one.startswith("beta") else float(one == "kappa") for one in fit.parameters])
        yield {
            "name": name,
            "beta": rounded(fit.beta),
            "beta_stderr": rounded(fit.stderr),
            "kappa": fit.kappa,
            "kappa_stderr": fit.kappa_stderr,
            "kappa_minus_beta": float(signs @ fit.estimates),
            "kappa_minus_beta_stderr": float(np.sqrt(signs @ fit.covariance @ signs)),
            "nats": fit.nats,
            "nats_explained": fit.nats_explained,
            "nats_explained_stderr": fit.nats_explained_stderr,
            "groups": list(fit.groups),
            "observed": rounded(fit.observed),
            "predicted": rounded(fit.predicted),
            "mass_gap": fit.mass_gap,
            "message": fit.message,
            "n": fit.sequences,
        }


def laws_of(cap: Capture, **how: Any) -> list[AttentionFit]:
    """The law of each match head."""
    return [fit_attention(cap.match_head(at), min_explained=0.0, **how) for at in range(cap.match_pattern.shape[1])]


def law_comparison(found: LawComparison) -> Row:
    """How much more of new sequences' attention one law explains than another, in nats."""
    return {
        "laws": list(found.laws),
        "held_out": rounded(found.nats_explained),
        "behind": rounded(found.behind, 6),
        "behind_stderr": rounded(found.behind_stderr, 6),
        "additive_behind": rounded(found.behind, 6)[0],
        "additive_behind_stderr": rounded(found.behind_stderr, 6)[0],
        "best_law": found.best if found.success else None,
    }


# ---- edits


def edit_rows(case: Case, part: str, heads: Sequence[Head], cap: Capture) -> list[Row]:
    """What happens when all match heads are edited together."""
    given, order, queries, _ = to_edit(case, part)
    # At order 1 the three laws are one.
    more = {law: _as_law(laws_of(cap, law=law, position=False)) for law in ("suffix", "free") if order > 1}
    tests = replace_heads(
        case.circuit(given, heads, order=order),
        given.tokens,
        query=queries,
        law=_as_law(laws_of(cap, position=False)),
        other_laws=more,
        draws=DRAWS,
        seed=case.options.seed,
    )
    place = {
        "kind": "edit",
        "loss_before": tests.loss,
        "loss_before_stderr": tests.loss_stderr,
        "worst_control": tests.worst_control,
        "message": tests.message,
        "heads": names(heads),
        "n": tests.n,
    }
    table = tests.table().rename(columns={"stderr": "change_stderr", "control_stderr": "control_change_stderr"})
    return [{**place, **{str(name): value for name, value in row.items()}} for row in table.to_dict("records")]


def _as_law(fits: Sequence[AttentionFit]) -> Any:
    """The scores by mask, and kappa where there is BOS."""
    return [fit.mask_score for fit in fits], None if fits[0].kappa is None else [fit.kappa for fit in fits]


def path_rows(case: Case, heads: Sequence[Head]) -> Iterator[Row]:
    """From the heads that copy lag 1 to the match heads."""
    last = max(layer for layer, _ in heads)
    copies = [at for at in case.heads("copy", lag=1) if at[0] < last]
    given, queries = case.repeats(batch=case.options.batch // 2, stream=10)
    circuit = case.circuit(given, heads, order=1)
    beside = case.others(copies, draw=11)
    means = HeadMeans(layers_of([*copies, *beside]))
    observe(circuit, given.tokens, hooks=means.reading)
    masses = [
        followed(circuit, given.tokens, queries, hooks)
        for hooks in (None, means.writing(copies), means.writing(beside))
    ]
    for at, name in zip(heads, names(heads), strict=True):
        row: Row = {"kind": "path", "name": name, "copies": names(copies), "n": len(given.tokens)}
        for column, scan in zip(("mass", "without_copies", "control"), masses, strict=True):
            row |= {column: scan.induction[at], f"{column}_stderr": scan.induction_stderr[at]}
        yield row


def followed(circuit: Circuit, tokens: torch.Tensor, queries: Sequence[int], hooks: Hooks | None) -> HeadScan:
    """A scan under hooks: its induction scores are the attention on keys after the query's earlier occurrences."""
    places = torch.tensor(queries) + int(circuit.has_bos)
    layers = layers_of(circuit.match_heads)
    statistics = ScanStatistics(circuit, tokens, places, lags=COPY_LAGS, layers=layers)
    statistics.gather(hooks)
    return judged(statistics)
