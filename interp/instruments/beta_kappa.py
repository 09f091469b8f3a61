"""beta and kappa from a model's scores: is the match head's attention an exponential of the overlap, and how well?

The claim (prop:transformer_estimator) is that the score of a candidate key with mask M is |beta|_M plus a constant of
the query, and that BOS scores kappa on the same scale. So the scores of all candidate keys are regressed on one match
indicator per lag, with a free intercept per query:

    e_qs = c_q + sum_r beta_r [r in M_s] + f(t - s) + error,            kappa = mean over queries of e_q,BOS - c_q

f is a smooth function of the distance (cubic splines in log(1 + distance)), because trained models carry r_{i-j} in the
match layer. It is centred over each query's candidates, so c_q is the score of an empty match at an average position,
and kappa is relative to that. BOS is not used in the fit of beta, early keys are not used at all. At a single query,
distance and key position carry the same information.

How to read the numbers. Everything is within a query: SST is the squared score left after each query's mean.

    r2              1 - SSE / SST, matches and position together
    r2_match        of what position alone leaves unexplained, the part that matches explain; success is judged on it
    r2_attended     r2 with every key weighted by the attention it gets: the fit where it matters for the prediction
    position_share  what f adds to r2 when the matches are in the fit
    token_share     what the key's own tokens x_s .. x_{s-k} add to r2 when matches and position are in the fit, with
                    one free number per lag and symbol. It is 0 for the law, which does not depend on labels. It is
                    positive, and r2 is low, for a model that treats some symbol differently. These terms are not in the
                    fit of beta.
    additivity      the fit with one free number per mask against the additive one: its p-value, by flipping the
                    signs of whole sequences, and the r2 it adds. With many keys a tiny deviation is significant: read
                    both.

A fit is trusted if it also holds where the attention is (`interp.fitting.score_fit` has the rule). A fit that
cannot be trusted has success=False and a message, and its beta and kappa are NaN. A fit that is trusted but not close,
for instance with r2_match below 0.9, carries a warning.

`fit_scores(cap, source="attention")` fits the attention itself (`interp.fitting.attention_fit`). Where the two fits
differ, both say so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, get_args, overload

import numpy as np

from interp.arguments import Number, Switch, Whole, finite_number, keywords, shown, switch, whole_number
from interp.circuit.capture import Capture
from interp.circuit.circuit import head_name
from interp.fitting.attention_fit import MIN_SEQUENCES as MIN_SEQUENCES
from interp.fitting.attention_fit import AttentionFitter
from interp.fitting.candidates import Source
from interp.fitting.fits import AttentionFit
from interp.fitting.fits import MatchFit as MatchFit
from interp.fitting.laws import Law
from interp.fitting.score_fit import ScoreFitter
from interp.instruments.given import Captured, check_capture

Fit = TypeVar("Fit", MatchFit, AttentionFit)
if TYPE_CHECKING:
    AnySource: TypeAlias = Source | Literal["attention"]
    AnyLaw: TypeAlias = Law
else:
    AnySource = AnyLaw = Any  # checked below

MIN_R2 = 0.5  # of r2_match, and of nats_explained, for a fit to be trusted
SAME = 0.05  # heads whose parameters are closer than this count as equal


@overload
def fit_scores(
    cap: Capture, *, source: Source = ..., position: Switch = ..., min_r2: Number = ..., min_sequences: Whole = ...
) -> MatchFit: ...


@overload
def fit_scores(
    cap: Capture,
    *,
    source: Literal["attention"],
    law: Law = ...,
    own: Switch = ...,
    position: Switch = ...,
    min_r2: Number = ...,
    min_sequences: Whole = ...,
) -> AttentionFit: ...


@keywords()
def fit_scores(
    cap: Captured,
    *,
    source: AnySource = "scores",
    law: AnyLaw = "additive",
    own: Switch = False,
    position: Switch = True,
    min_r2: Number = MIN_R2,
    min_sequences: Whole = MIN_SEQUENCES,
) -> MatchFit | AttentionFit:
    """beta per lag and kappa from the match scores over all candidate keys, with a free intercept per query.

    Several match heads are fitted together, with an intercept per query and head: one beta and kappa for all. `heads`
    then holds the fit of each one alone, and the message says so where they differ.

    Parameters
    ----------
    cap             what `capture` returns
    source          "scores"; "pattern" fits log-attention instead, where scores are not known; "attention" takes the
                    parameters that make the attention itself most likely
    law             "additive", "suffix" or "free", for source="attention"
    own             fit a weight for the key's own token, too, for source="attention"
    position        fit a smooth function of the distance, too
    min_r2          least r2_match (of attention: nats_explained) of a fit to be trusted
    min_sequences   least number of sequences of a fit to be trusted

    Returns
    -------
    `MatchFit`, or `AttentionFit` for source="attention"

    Examples
    --------
        fit = fit_scores(capture(model, tokens))
        fit.beta, fit.kappa, fit.stderr, fit.r2, fit.success, fit.message

    Attention that underflowed (below the smallest normal number) is unknown, not zero. With source="pattern" all keys
    of its mask at that query are left out, so that no key is selected by its own value; they are counted. Where no
    data are left for a beta, the fit fails and gives the bounds that the underflow implies.
    """
    check_capture(cap)
    own, position = switch(own, name="own"), switch(position, name="position")
    limits: dict[str, Any] = {
        "min_r2": finite_number(min_r2, name="min_r2"),
        "min_sequences": whole_number(min_sequences, name="min_sequences"),
    }
    if not isinstance(source, str) or source not in (*get_args(Source), "attention"):
        raise ValueError(f"source must be 'scores', 'pattern' or 'attention', got {shown(source)}")
    if source != "attention" and (not isinstance(law, str) or law != "additive" or own):
        raise ValueError("law and own are for source='attention'; scores are fitted by the additive law")

    if source == "attention":
        return _with_heads(cap, lambda one: _fit_attention(one, law=law, own=own, position=position, **limits))
    read: Source = "pattern" if source == "pattern" else "scores"
    return _with_heads(cap, lambda one: ScoreFitter(one, source=read, position=position).fit(**limits))


def _with_heads(cap: Capture, fit: Callable[[Capture], Fit]) -> Fit:
    """The fit of all match heads together, and of each one alone where there are several.

    Heads that do not fit are left out where they spoil the fit of the others and are not more than these.
    """
    together, count = fit(cap), int(cap.match_pattern.shape[1])
    if count == 1:
        return together
    alone = tuple(fit(cap.match_head(index)) for index in range(count))
    names = [head_name(place) for place in cap.match_heads] or list(map(str, range(count)))
    failed = [f"{name}: {one.message}" for name, one in zip(names, alone, strict=True) if not one.success]
    others = [index for index, one in enumerate(alone) if one.success]
    word = "that do not fit alone"
    if failed and not together.success and len(others) >= count / 2:
        without = fit(cap.match_head(*others))
        if without.success:
            together, word = without, "left out because they do not fit"
    notes = [together.message] if together.message else []
    if not others and not together.success:
        notes.append("no match head fits alone, either: `heads` has the reasons")
    elif failed:
        notes.append(f"match heads {word}: {'; '.join(failed)}")
    elif differing := _differing(alone):
        notes.append(f"the match heads differ in {differing}: `heads` has the fit of each one")
    return replace(together, heads=alone, message="; ".join(notes))


def _fit_attention(
    cap: Capture, *, law: Law, own: bool, position: bool, min_r2: float, min_sequences: int
) -> AttentionFit:
    """The attention's own law; where the fit of the scores differs from it, the message says so."""
    fitter = AttentionFitter(cap, law=law, position=position, own=own)
    fit = fitter.fit(min_explained=min_r2, min_sequences=min_sequences)
    if law != "additive" or own or not fit.success:
        return fit
    scored = ScoreFitter(cap, source="scores", position=position)
    found = scored.fit(min_r2=min_r2, min_sequences=min_sequences, attention=fitter)
    note = scored.note
    if not found.success:
        note = f"the scores of all keys do not follow the law as the attention does: {found.message}"
    return replace(fit, message="; ".join(one for one in (fit.message, note) if one))


def _differing(fits: Sequence[MatchFit | AttentionFit]) -> str:
    """The parameters in which two of the fits lie more than three standard errors and `SAME` apart."""
    rows = [[*one.beta, *([] if one.kappa is None else [one.kappa])] for one in fits]
    errors = [[*one.stderr, *([] if one.kappa_stderr is None else [one.kappa_stderr])] for one in fits]
    gap = np.ptp(np.array(rows), axis=0)
    noise = 3 * np.sqrt(2) * np.max(np.array(errors), axis=0)
    names = [*(f"beta_{lag}" for lag in range(1, len(fits[0].beta) + 1)), "kappa"]
    return ", ".join(name for name, apart in zip(names, gap > np.maximum(noise, SAME), strict=False) if apart)
