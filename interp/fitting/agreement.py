"""Do the fit of the scores and the fit of the attention agree, and does the law hold where the attention is?

    fit = fit_scores(cap)
    fit.r2_attended, fit.mass_gap, fit.attention_beta

The fit of scores weighs every key alike, although most keys of a sharp head get almost no attention. So a law may
describe the scores and not the attention. Two numbers test this, and a fit of scores is trusted only if both pass:

    r2_attended   R2 of the scores with every key weighted by its attention: at least MIN_ATTENDED. It is 0 for a law
                  that gives all attended keys the same score, and close to 0 for sharp attention on keys of one mask.
    mass_gap      total variation distance between the mean mass by overlap (and BOS) and what the fitted law, its
                  positional term included, gives: at most MAX_MASS_GAP

A fit that passes may still be doubtful. It carries a warning, in its message and its table, if r2_match is below
WARN_MATCH, if r2_attended is below WARN_ATTENDED or more than WARN_DROP under r2, or if mass_gap is above
`attention_fit.WARN_MASS_GAP`. Its beta is then the mean weight of a match, from which single keys deviate.

On the trained models of the zoo whose fits are trusted, r2_attended is at least 0.62 up to T = 256 and falls to 0.24
for the standard model at T = 1024; mass_gap is at most 0.03. The rule was made for a model with four match heads: a fit
explained its scores well, with r2_attended -0.24 and a gap of 0.14.

The parameters of the two fits are then compared. Where one differs by more than three standard errors of the difference
and by more than DIFFER, both fits say so, and name the keys for which the law of the scores is furthest from the
attention. Neither fit is wrong then: scores average over keys, attention over their exponentials.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from interp.fitting.attention_fit import MAX_MASS_GAP, AttentionFitter, mass_warning
from interp.fitting.regression import clustered
from interp.notation import mask_name

MIN_ATTENDED = -0.1  # of r2_attended
# Of r2_match: more than a tenth of the scores is not the law. In the study `conditions` under the hierarchical prior,
# runs whose readout adds votes have 0.97 and more, and those with a free softmax readout, which leave the law,
# 0.60 to 0.93.
WARN_MATCH = 0.9
# Below it the law leaves more than half of the attended scores' variation unexplained; of the zoo's models only the
# standard ones at T = 768 and 1024 are below.
WARN_ATTENDED = 0.5
# r2 minus r2_attended: attended keys are described so much worse than the others that beta describes the others.
WARN_DROP = 0.3
DIFFER = 0.25  # in a score: it gives a key 28% more attention


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """The law of the scores beside the attention.

    mass_gap           see the module
    attention          [parameter] beta and kappa of the attention's own fit; NaN where it found none
    note               where the fits differ: in which parameters, and for which keys; else empty
    """

    mass_gap: float
    attention: Float[np.ndarray, " parameter"]
    note: str


def agreement(
    fitter: AttentionFitter,
    *,
    scores: Float[np.ndarray, " parameter"],
    places: Float[np.ndarray, " term"],
    influence: Float[np.ndarray, "sequence parameter"],
) -> Agreement:
    """Compare a fit of scores (beta, kappa, positional term, and how each sequence moves them) with the attention."""
    own = fitter.fit(min_explained=0.0, min_sequences=0)
    law = fitter.likelihood.masses(np.concatenate([scores, places])[None])[0].mean(axis=0)
    seen = fitter.rows.shares.mean(axis=0)
    gap = float(np.abs((seen - law) @ fitter.sizes).sum() / 2)
    apart = own.estimates - scores
    noise = np.sqrt(np.diag(clustered(fitter.influence - influence)))
    differing = np.abs(apart) > np.maximum(3 * np.nan_to_num(noise), DIFFER)
    note = ""
    if differing.any():
        parts = [
            f"{name} {ours:.2f} (scores: {theirs:.2f})"
            for name, ours, theirs in zip(
                np.array(fitter.law.parameters)[differing], own.estimates[differing], scores[differing], strict=True
            )
        ]
        group = int(np.abs(seen - law).argmax())
        bos = fitter.law.kappa is not None and group == fitter.law.groups - 1
        keys = "BOS" if bos else f"the keys of mask {mask_name(group)}"
        note = (
            f"the attention shows {', '.join(parts)}; the difference comes from {keys}, with {seen[group]:.3f} of the "
            f"attention, and {law[group]:.3f} by the law of the scores"
        )
    return Agreement(mass_gap=gap, attention=own.estimates, note=note)


def distrust(*, r2_attended: float, mass_gap: float) -> str | None:
    """Why the law of the scores does not hold where the attention is, or None."""
    if r2_attended < MIN_ATTENDED:
        return f"with keys weighted by attention R2 is {r2_attended:.2f}; below {MIN_ATTENDED} no beta is trusted"
    if mass_gap > MAX_MASS_GAP:
        return f"the law's masses are off by {mass_gap:.3f}; above {MAX_MASS_GAP} no beta is trusted"
    return None


def warning(*, r2: float, r2_match: float, r2_attended: float, mass_gap: float) -> str:
    """Why a fit that is not refused is doubtful; empty where it is not.

    >>> warning(r2=0.98, r2_match=0.98, r2_attended=0.95, mass_gap=0.02)
    ''
    """
    parts = []
    if r2_match < WARN_MATCH:
        parts.append(f"matches explain {r2_match:.1%} of the scores, below {WARN_MATCH:.0%}")
    if r2_attended < WARN_ATTENDED:
        parts.append(f"with keys weighted by attention R2 is {r2_attended:.2f}, below {WARN_ATTENDED}")
    elif r2 - r2_attended > WARN_DROP:
        parts.append(f"with keys weighted by attention R2 is {r2_attended:.2f}, far below {r2:.2f}")
    return "; ".join([*parts, *filter(None, [mass_warning(mass_gap)])])
