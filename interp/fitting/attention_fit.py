"""The law that the attention itself shows: maximum likelihood of the match heads' attention, key by key.

    fit = fit_scores(cap, source="attention", law="additive")
    fit.beta, fit.kappa, fit.nats, fit.nats_explained

`fit_scores` on scores weighs all keys alike, whether they are attended to or not. Here every query's attention is a
distribution over keys, and the fit takes the parameters under which its cross-entropy is smallest
(`interp.fitting.likelihood`): what counts is where the attention is. A law gives a key of mask M the score

    additive   |beta|_M, the sum of beta_r over the lags in M (eq:transformer_estimator)
    suffix     beta_1 + ... + beta_i, where {1..i} is the longest suffix in M: a match further back counts only after
               an unbroken match, as in back-off
    free       a number of its own for every mask; beta_r is then that of {r} alone

and BOS the score kappa. With position=True every key gets a smooth function of its distance, too, centred over a
query's candidates, as in the fit of scores. With own=True a key whose own token is the query's (x_s = x_t, lag 0) gets
beta_0 more. A law does not include early keys: attention is renormalised over candidates and BOS, query by query, and
the mass on early keys is reported. Queries with less than `MIN_COVERED` on candidates and BOS are left out.

    nats             mean KL(attention || baseline). The baseline is the same law without matches: kappa and the
                     positional term, fitted again. The nats are what matches can explain.
    nats_explained   1 - KL(attention || law) / KL(attention || baseline), in [0, 1]
    mass_gap         total variation distance between mean observed and mean predicted mass over {overlap 0..k, BOS}

A fit is trusted if matches explain at least `MIN_EXPLAINED` of the nats and mass_gap is at most `MAX_MASS_GAP`. It
carries a warning if they explain less than `WARN_EXPLAINED`, or if mass_gap is above `WARN_MASS_GAP`.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int64

from interp.circuit.capture import Capture
from interp.fitting.candidates import attention_rows, candidate_rows, count_distances
from interp.fitting.fits import AttentionFit
from interp.fitting.laws import Law, LawDesign, law_design
from interp.fitting.likelihood import AttentionRows, Likelihood, influence, maximise
from interp.fitting.regression import clustered
from interp.notation import mask_bits
from interp.results import mean_stderr, provenance

MIN_EXPLAINED = 0.5  # of the nats, for a fit to be trusted
MAX_MASS_GAP = 0.1
# A twentieth of the attention lies on other keys than the law predicts; trained models that follow it have at most
# 0.03.
WARN_MASS_GAP = 0.05
# Of nats_explained: more than a tenth of what there is to explain is not the law, as `score_fit.WARN_MATCH` has it for
# the scores. In the zoo, disentangled models that follow the law have 0.94 and more; standard models, whose scores warn
# too, have 0.87 to 0.92.
WARN_EXPLAINED = 0.9
MIN_NATS = 1e-4  # with less, there is nothing to explain beyond the baseline
MIN_SEQUENCES = 10  # clusters; fewer cannot show how far estimates vary
MUCH_EARLY = 0.1  # attention on early keys above which the message mentions it
ROUNDING = 1e-12  # nats
NUMBERS = ("nats", "nats_stderr", "nats_explained", "nats_explained_stderr", "mass_gap")


@dataclass(frozen=True, kw_only=True)
class LawFit:
    """A law fitted to each head's attention; `interp.fitting.attention_fit` says what the numbers are.

    theta        [head, column] the parameters, then the positional terms; 0 where the data do not determine them
    told         [head, parameter] whether they do
    converged    [head]
    influence    [head, sequence, parameter] how far each sequence moves each parameter
    observed, predicted    [head, group]
    """

    theta: Float[np.ndarray, "head column"]
    told: Bool[np.ndarray, "head parameter"]
    converged: Bool[np.ndarray, " head"]
    influence: Float[np.ndarray, "head sequence parameter"]
    nats: Float[np.ndarray, " head"]
    nats_stderr: Float[np.ndarray, " head"]
    nats_explained: Float[np.ndarray, " head"]
    nats_explained_stderr: Float[np.ndarray, " head"]
    observed: Float[np.ndarray, "head group"]
    predicted: Float[np.ndarray, "head group"]
    mass_gap: Float[np.ndarray, " head"]


def fit_law(rows: AttentionRows, law: LawDesign) -> LawFit:
    """Baseline and law of every head, by maximum likelihood."""
    likelihood, size = Likelihood(rows, law.design), len(law.parameters)
    heads, columns = len(rows.shares), size + rows.basis.shape[1]
    # The parameter of a group that no query sees cannot be determined.
    unseen = [column for column in law.matches if not law.design[rows.seen, column].any()]
    start = np.zeros((heads, columns))
    baseline = maximise(likelihood, start=start, columns=[c for c in range(columns) if c not in law.matches])
    found = maximise(likelihood, start=baseline.theta, columns=[c for c in range(columns) if c not in unseen])
    left, nats = (np.where(rows.kept, rows.entropy - likelihood.logs(one.theta), 0.0) for one in (found, baseline))
    each = np.zeros((heads, 4))
    for head, kept in enumerate(rows.kept):
        own, clusters = nats[head, kept], rows.sequence[kept]
        each[head, :2] = mean_stderr(own, clusters=clusters)
        each[head, 2:] = share_explained(left[head, kept], own, clusters=clusters)
    kept = np.maximum(rows.kept.sum(axis=(1, 2)), 1)[:, None]
    masses = (rows.shares, likelihood.law(found.theta).masses)
    observed, predicted = (one.sum(axis=(1, 2)) / kept for one in masses)
    return LawFit(
        theta=found.theta,
        told=found.told[:, :size],
        converged=found.converged,
        influence=influence(likelihood, found)[..., :size],
        nats=each[:, 0],
        nats_stderr=each[:, 1],
        nats_explained=each[:, 2],
        nats_explained_stderr=each[:, 3],
        observed=observed,
        predicted=predicted,
        mass_gap=np.abs((observed - predicted) @ law.sizes).sum(axis=1) / 2,
    )


def share_explained(
    law: Float[np.ndarray, " row"], baseline: Float[np.ndarray, " row"], *, clusters: Int64[np.ndarray, " row"]
) -> tuple[float, float]:
    """1 - sum(law) / sum(baseline) of two divergences, with the standard error of the ratio (delta method)."""
    mean = float(baseline.mean()) if len(baseline) else 0.0
    if mean <= ROUNDING:
        return math.nan, math.nan
    ratio = float(law.mean()) / mean
    return 1.0 - ratio, mean_stderr((law - ratio * baseline) / mean, clusters=clusters)[1]


class AttentionFitter:
    """The fit of a capture, with what comparisons with other fits need besides its result. The search is made once."""

    def __init__(self, cap: Capture, *, law: Law, position: bool, own: bool) -> None:
        self.cap = cap
        self.law = law_design(law, order=cap.order, bos=cap.has_sink, own=own)
        rows, self.early = attention_rows(cap, position=position, own=own)
        self.rows = rows.together()
        self.clusters = int(self.rows.kept.any(axis=(0, 2)).sum())  # sequences that have a query

    @functools.cached_property
    def found(self) -> LawFit:
        """The law of all match heads together, as that of one head."""
        return fit_law(self.rows, self.law)

    def trouble(self) -> str | None:
        """Why there is nothing to fit, or None."""
        if count_distances(self.cap) < 2:
            return "a query needs at least two candidate keys: the sequences are too short"
        if not self.count:
            return f"all attention is on early keys: {self.early.size} queries were left out"
        if not np.isfinite(self.rows.entropy[self.rows.kept]).all():
            return "the attention is not finite"
        if self.law.law != "free":
            masks = 1 << self.cap.order
            keys = np.bincount(self.rows.keys[self.rows.keys >= 0] & masks - 1, minlength=masks)
            for lag, matching in enumerate((keys @ mask_bits(self.cap.order)).tolist(), start=1):
                if matching in (0, keys.sum()):
                    return f"lag {lag} never {'mis' if matching else ''}matches at a candidate key"
        return None

    def distrust(self, min_explained: float, min_sequences: int) -> str | None:
        """Why the numbers cannot be trusted, or None."""
        found = self.found
        nats, explained, gap = (float(one[0]) for one in (found.nats, found.nats_explained, found.mass_gap))
        seen = self.law.design[self.rows.seen].any(axis=0)
        hidden = np.array(self.law.parameters)[seen & ~found.told[0]].tolist()
        if nats < MIN_NATS:
            return f"the attention has {nats:.1g} nats beyond its baseline: there is nothing to explain"
        if not found.converged[0] or hidden:
            what = ", ".join(hidden) or "the parameters"
            return f"the attention does not determine {what}: keys are collinear, or the attention is too sharp"
        if self.clusters < min_sequences:
            return f"{self.clusters} sequences; standard errors need at least {min_sequences}"
        if explained < min_explained:
            little = f"the law explains {explained:.1%} of the attention's nats"
            return f"{little}; below {min_explained:.0%} no beta is trusted"
        return mass_refusal(gap)

    def fit(self, *, min_explained: float, min_sequences: int) -> AttentionFit:
        """The fit; if it cannot be trusted, the estimates are NaN."""
        cap, law, size = self.cap, self.law, len(self.law.parameters)
        groups, masks = np.full(law.sizes.shape[1], np.nan), 1 << cap.order
        numbers: dict[str, Any] = dict.fromkeys(NUMBERS, math.nan) | {
            **dict.fromkeys(("observed", "predicted"), groups),
            "position": np.full(len(self.rows.basis), np.nan),
            "mask_score": np.full(masks, np.nan),
        }
        estimates, covariance = np.full(size, np.nan), np.full((size, size), np.nan)
        failure = self.trouble()
        if not failure:
            found, told = self.found, self.found.told[0]
            numbers |= {name: float(getattr(found, name)[0]) for name in NUMBERS}
            numbers |= {name: getattr(found, name)[0] @ law.sizes for name in ("observed", "predicted")}
            numbers["position"] = self.rows.basis @ found.theta[0, size:]
            failure = self.distrust(min_explained, min_sequences)
        if not failure:
            estimates = np.where(told, found.theta[0, :size], np.nan)
            covariance = np.where(told[:, None] & told, clustered(found.influence[0]), np.nan)
            visible = self.rows.seen[:masks] | (law.law != "free")
            numbers["mask_score"] = np.where(visible, law.design[:masks] @ np.where(told, estimates, 0.0), np.nan)
        errors = np.sqrt(np.diag(covariance))
        own, kappa = (
            (None, None) if at is None else (float(estimates[at]), float(errors[at])) for at in (law.own, law.kappa)
        )
        early, left_out = float(self.early.mean()) if self.early.size else math.nan, self.early.size - self.count
        doubt = "" if failure else attention_warning(explained=numbers["nats_explained"], gap=numbers["mass_gap"])
        notes = [failure, doubt and f"warning: {doubt}"]
        notes += [lone_note(law.parameters, estimates, errors) if self.clusters > 1 else ""]
        if left_out and not failure:
            notes.append(f"{left_out} queries have all attention on early keys and were left out")
        notes += [early_note(early) if not cap.has_sink and early > MUCH_EARLY else "", cap.note]
        return AttentionFit(
            **numbers,
            warning=doubt,
            law=law.law,
            beta=estimates[list(law.beta)],
            stderr=errors[list(law.beta)],
            kappa=kappa[0],
            kappa_stderr=kappa[1],
            own=own[0],
            own_stderr=own[1],
            parameters=law.parameters,
            estimates=estimates,
            covariance=covariance,
            groups=(*(f"|M|={overlap}" for overlap in range(cap.order + 1)), *["bos"] * cap.has_sink),
            early=early,
            n=self.count,
            queries=len(candidate_rows(cap)),
            sequences=self.clusters,
            left_out=left_out,
            success=failure is None,
            message="; ".join(filter(None, notes)),
            provenance=provenance(checkpoint=cap.checkpoint),
        )

    @property
    def count(self) -> int:
        """Queries in the fit, over all sequences and heads."""
        return int(self.rows.kept.sum())


def fit_attention(
    cap: Capture,
    *,
    law: Law = "additive",
    position: bool = True,
    own: bool = False,
    min_explained: float = MIN_EXPLAINED,
    min_sequences: int = MIN_SEQUENCES,
) -> AttentionFit:
    """The law under which the capture's attention is most likely. `fit_scores(source="attention")` is the way to it.

    Several match heads are fitted together: one set of parameters for all.
    """
    fitter = AttentionFitter(cap, law=law, position=position, own=own)
    return fitter.fit(min_explained=min_explained, min_sequences=min_sequences)


def attention_warning(*, explained: float, gap: float) -> str:
    """Why a fit of attention that is not refused is doubtful; empty where it is not.

    >>> attention_warning(explained=0.83, gap=0.01)
    "the law explains 83.0% of the attention's nats, below 90%"
    """
    little = f"the law explains {explained:.1%} of the attention's nats, below {WARN_EXPLAINED:.0%}"
    return "; ".join(filter(None, (little if explained < WARN_EXPLAINED else "", mass_warning(gap))))


def mass_refusal(gap: float) -> str | None:
    """Why masses are too far from the law's for a fit to be trusted, or None."""
    return (
        f"the law's masses are off by {gap:.3f}; above {MAX_MASS_GAP} no beta is trusted"
        if gap > MAX_MASS_GAP
        else None
    )


def mass_warning(gap: float) -> str:
    """Why masses that are not refused are doubtful; empty where they are within `WARN_MASS_GAP` of the law's."""
    return f"the law's masses are off by {gap:.3f}, above {WARN_MASS_GAP}" if gap > WARN_MASS_GAP else ""


def early_note(early: float) -> str:
    """What to do about attention on early keys, which a law without BOS does not include."""
    return (
        f"{early:.2f} of the attention is on early keys, outside the law: bos='first' gives the first token a score, "
        "as BOS has one"
    )


def lone_note(names: tuple[str, ...], estimates: Float[np.ndarray, " name"], errors: Float[np.ndarray, " name"]) -> str:
    """Which errors are not known because one sequence alone determines the parameter.

    >>> lone_note(("beta_1", "beta_2"), np.array([2.0, 1.0]), np.array([0.1, np.nan]))
    'one sequence alone determines beta_2: its error is not known'
    """
    lone = [name for name, unknown in zip(names, np.isfinite(estimates) & np.isnan(errors), strict=True) if unknown]
    return f"one sequence alone determines {', '.join(lone)}: its error is not known" if lone else ""
