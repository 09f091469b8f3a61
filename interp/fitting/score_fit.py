"""The law of the match scores: least squares on match indicators, with an intercept per query.

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

The parameters are then compared with those of the attention's own fit. Where one differs by more than three standard
errors of the difference and by more than DIFFER, both fits say so, and name the keys for which the law of the scores is
furthest from the attention. Neither fit is wrong then: scores average over keys, attention over their exponentials.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from interp.circuit.capture import Capture
from interp.fitting.attention_fit import AttentionFitter, lone_note, mass_refusal, mass_warning
from interp.fitting.candidates import QueryView, Source, candidate_rows, count_distances, query_views, smallest_normal
from interp.fitting.fits import MatchFit
from interp.fitting.likelihood import Likelihood
from interp.fitting.regression import (
    SPLINE_TERMS,
    Array,
    NormalEquations,
    Solution,
    centred,
    clustered,
    distance_basis,
    leave_one_out,
    sign_flip_test,
)
from interp.notation import mask_bits, mask_name, overlap
from interp.results import provenance

MAX_ADDITIVITY_ORDER = 6  # 2**k mask indicators beyond this are too many to test
MAX_TOKEN_TERMS = 64  # (k + 1)(|V| - 1) indicators of the key's tokens beyond this are too many to fit
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
class Residuals:
    """What a second pass over the capture finds.

    pull           [sequence, column] each sequence's part of X' residual
    influence      [sequence, parameter] how far each sequence moves the match weights and, with BOS, kappa
    squares        [sequence, fit] squared residuals of each of the solutions
    bos            [query] the score of BOS less that of an empty match, where both are known
    r2_attended    with every key weighted by its attention
    """

    pull: Float[np.ndarray, "sequence column"]
    influence: Float[np.ndarray, "sequence parameter"]
    squares: Float[np.ndarray, "sequence fit"]
    bos: Float[np.ndarray, " query"]
    r2_attended: float


class ScoreRegression:
    """Least squares of a capture's scores on any columns of its candidate keys, in two passes over the capture.

    design   makes the columns of a view
    """

    def __init__(
        self, cap: Capture, design: Callable[[QueryView], Array], *, columns: int, source: Source = "scores"
    ) -> None:
        self.cap, self.design, self.columns, self.source = cap, design, columns, source
        self.sequences, masks = len(cap.tokens), 1 << cap.order
        read = cap.match_scores if source == "scores" else cap.match_pattern
        self.equations = NormalEquations.empty(columns=columns, epsilon=torch.finfo(read.dtype).eps)
        self.mask_count, self.mask_known = np.zeros(masks, dtype=np.int64), np.zeros(masks, dtype=np.int64)
        # Of keys whose attention underflowed: how many, and how far below the query's full matches they must lie.
        self.underflowed, self.bounds = 0, np.full(masks, np.inf)
        for view in self.views():
            self.equations.add(design(view), view.scores, view.known)
            self.mask_count += np.bincount(view.masks.ravel(), minlength=masks)
            self.mask_known += np.bincount(view.masks[view.known], minlength=masks)
            if not view.known.all():
                self._note_underflow(view)

    def views(self) -> Iterator[QueryView]:
        """The parts of the capture."""
        return query_views(self.cap, columns=self.columns + 1, source=self.source)

    def _note_underflow(self, view: QueryView) -> None:
        gone = np.isneginf(view.scores)
        self.underflowed += int(gone.sum())
        full = (view.masks == len(self.bounds) - 1) & ~gone
        top = np.where(full, view.scores, -np.inf).max(axis=1, keepdims=True)
        gap = np.broadcast_to(top - math.log(smallest_normal(self.cap)), view.scores.shape)
        counted = gone & np.isfinite(gap)
        np.minimum.at(self.bounds, view.masks[counted], gap[counted])

    def trouble(self) -> str | None:
        """Why there is nothing to fit, or None."""
        if count_distances(self.cap) < 2:
            return "a query needs at least two candidate keys: the sequences are too short"
        reason = self.equations.trouble()
        return self.why_underflow() if reason and self.underflowed and not self.equations.not_finite else reason

    def why_underflow(self) -> str:
        """What is known in spite of the underflow: how far below a full match a mask must lie."""
        everything = len(self.bounds) - 1
        words = [
            f"|beta|_{mask_name(everything & ~int(mask))} >= {self.bounds[mask]:.1f}"
            for mask in np.flatnonzero(np.isfinite(self.bounds))
        ]
        known = "; known bounds: " + ", ".join(words) if words else ""
        return f"{self.underflowed} attention weights underflowed: beta cannot be determined{known}"

    def residuals(self, fits: Sequence[Solution], *, matches: list[int], base: list[int]) -> Residuals:
        """The second pass: residuals of the last of the fits, which has the columns `base`.

        `matches` are the columns that are zero for an empty match.
        """
        weights = fits[-1].coefficients[matches]
        pull, information = np.zeros((self.sequences, self.columns)), np.zeros((self.sequences, len(base), len(base)))
        squares, attended = np.zeros((self.sequences, len(fits))), np.zeros(2)
        relative = [(np.zeros(0), np.zeros(0, dtype=np.int64), np.zeros((0, len(matches))))]
        for view in self.views():
            design = self.design(view)
            columns, y = centred(design, view.known), centred(view.scores, view.known)
            errors = [y - columns @ fit.coefficients for fit in fits]
            squares[view.sequences] += np.stack([(one**2).sum(axis=1) for one in errors], axis=1)
            pull[view.sequences] += np.einsum("bkc,bk->bc", columns, errors[-1])
            information[view.sequences] += np.swapaxes(columns[..., base], 1, 2) @ columns[..., base]
            attended += _attended(y, errors[-1], np.where(view.known, view.pattern, 0.0))
            some = np.asarray(view.known.any(axis=1))
            share = view.known[some] / view.known[some].sum(axis=1, keepdims=True)
            matched = np.einsum("bk,bkl->bl", share, design[some][..., matches])
            # The score of an empty match: a query's mean score without the part of the matches.
            empty = (share * np.where(view.known, view.scores, 0.0)[some]).sum(axis=1) - matched @ weights
            if view.bos_scores is not None:
                bos, owner = view.bos_scores[some] - empty, np.arange(self.sequences)[view.sequences][some]
                finite = np.isfinite(bos)
                relative.append((bos[finite], owner[finite], matched[finite]))
        inverse = fits[-1].inverse[np.ix_(base, base)]
        influence = leave_one_out(pull[:, base], information, inverse)[:, [base.index(one) for one in matches]]
        bos, owner, matched = (np.concatenate(one) for one in zip(*relative, strict=True))
        if len(bos):
            influence = np.column_stack([influence, _influence_of_kappa(bos, owner, matched, influence)])
        return Residuals(
            pull=pull,
            influence=influence,
            squares=squares,
            bos=bos,
            r2_attended=1.0 - attended[1] / attended[0] if attended[0] > self.equations.noise else math.nan,
        )


class ScoreFitter:
    """The fit of a capture's scores by the additive law, and its comparison with the attention's own fit."""

    def __init__(self, cap: Capture, *, source: Source, position: bool) -> None:
        self.cap, self.order, self.source = cap, cap.order, source
        self.basis = distance_basis(count_distances(cap), terms=SPLINE_TERMS if position else 0)
        tested = range(1 << self.order) if self.order <= MAX_ADDITIVITY_ORDER else ()
        self.interactions = np.array([mask for mask in tested if overlap(mask) >= 2], dtype=np.int64)
        few = (self.order + 1) * (cap.vocab - 1) <= MAX_TOKEN_TERMS
        self.symbols = np.arange(1, cap.vocab if few else 1)
        # The design's columns: a match indicator per lag, one per mask with several lags, the functions of distance,
        # and the key's tokens, an indicator per lag 0..k and symbol but the first.
        sizes = [self.order, len(self.interactions), self.basis.shape[1], (self.order + 1) * len(self.symbols)]
        self.lags, self.masks, self.places, self.tokens = (
            list(range(*pair)) for pair in itertools.pairwise(np.cumsum([0, *sizes]).tolist())
        )
        self.regression = ScoreRegression(cap, self.design, columns=sum(sizes), source=source)
        self.note = ""  # where the attention's own fit differs

    def design(self, view: QueryView) -> Float[np.ndarray, "batch key column"]:
        """The columns of the candidate keys."""
        lags = view.masks[..., None] >> np.arange(self.order) & 1
        masks = view.masks[..., None] == self.interactions
        places = np.broadcast_to(self.basis[view.distance], (*view.masks.shape, self.basis.shape[1]))
        last = view.tokens.shape[1]
        tokens = [view.tokens[:, self.order - lag : last - lag, None] == self.symbols for lag in range(self.order + 1)]
        return np.concatenate([lags, masks, places, *tokens], axis=-1, dtype=np.float64)

    def fit(self, *, min_r2: float, min_sequences: int, attention: AttentionFitter | None = None) -> MatchFit:
        """The fit. `attention` is the additive fit of the attention to compare with, where it was made already."""
        regression, base, found = self.regression, self.lags + self.places, dict[str, Any]()
        if not (failure := regression.trouble()):
            additive = regression.equations.solve(base)
            failure = None if additive.full_rank else self.why_collinear()
        if failure is None:
            second = regression.residuals([additive], matches=self.lags, base=base)
            found = self.estimates(additive, second)
            if len(second.bos) or not self.cap.has_sink:  # BOS has no score where it is always masked
                fitter = attention or AttentionFitter(self.cap, law="additive", position=bool(self.places), own=False)
                found |= self.compare(fitter, found, additive.coefficients[self.places], second.influence)
            failure = self.distrust(found, min_r2, min_sequences)
            found["bos_known"] = len(second.bos)
        return self.result(found, failure)

    def estimates(self, additive: Solution, second: Residuals) -> dict[str, Any]:
        """Estimates and their errors, and what the nested fits say."""
        equations, base = self.regression.equations, self.lags + self.places
        total, noise = equations.total, equations.noise
        match_only, place_only, labelled = map(equations.solve, (self.lags, self.places, base + self.tokens))
        tested = equations.independent(base=base, extra=self.masks)
        free = equations.solve(base + tested)
        covariance = clustered(second.influence)
        errors = np.sqrt(np.diag(covariance))
        scores = mask_bits(self.order) @ free.coefficients[self.lags]
        scores[self.interactions] += free.coefficients[self.masks]
        found = {
            "beta": additive.coefficients[self.lags],
            "stderr": errors[: self.order],
            "covariance": covariance,
            "beta_no_position": match_only.coefficients[self.lags],
            "r2": 1.0 - additive.sse / total,
            "r2_match": 1.0 - additive.sse / place_only.sse if place_only.sse > noise else 0.0,
            "r2_attended": second.r2_attended,
            "position_share": max(0.0, match_only.sse - additive.sse) / total,
            "token_share": max(0.0, additive.sse - labelled.sse) / total if self.tokens else math.nan,
            "position": self.basis @ additive.coefficients[self.places],
            "mask_score": np.where(self.regression.mask_known > 0, scores, np.nan),
            # With the residuals of the additive law, under which there is nothing to find. The sums are the estimates.
            "additivity_p": sign_flip_test((second.pull @ free.inverse)[:, tested], resolution=equations.resolution),
            "additivity_gain": max(0.0, additive.sse - free.sse) / total if tested else math.nan,
            "additivity_terms": len(tested),
        }
        if len(second.bos):
            kappa = {"kappa": second.bos.mean(), "kappa_stderr": errors[-1], "kappa_spread": second.bos.std()}
            found |= {name: float(value) for name, value in kappa.items()}
        return found

    def compare(
        self, fitter: AttentionFitter, found: dict[str, Any], places: Array, influence: Array
    ) -> dict[str, Any]:
        """The law of the scores beside the attention, and `note` where the two differ."""
        rows, law = fitter.rows, fitter.law
        if not fitter.count:
            return {}
        own = fitter.fit(min_explained=0.0, min_sequences=0)
        scores = np.append(found["beta"], found["kappa"] if self.cap.has_sink else [])
        by_law = Likelihood(rows, law.design).law(np.concatenate([scores, places])[None])
        masses, seen = (one.sum(axis=(0, 1, 2)) / fitter.count for one in (by_law.masses, rows.shares))
        if own.success:
            noise = np.sqrt(np.diag(clustered(fitter.found.influence[0] - influence)))
            differing = np.abs(own.estimates - scores) > np.maximum(3 * np.nan_to_num(noise), DIFFER)
            group = int(np.abs(seen - masses).argmax())
            keys = "BOS" if law.kappa is not None and group == len(seen) - 1 else f"the keys of mask {mask_name(group)}"
            words = ", ".join(
                f"{name} {ours:.2f} (scores: {theirs:.2f})"
                for name, ours, theirs, far in zip(law.parameters, own.estimates, scores, differing, strict=True)
                if far
            )
            self.note = words and (
                f"the attention shows {words}; the difference comes from {keys}, with "
                f"{seen[group]:.3f} of the attention, and {masses[group]:.3f} by the law of the scores"
            )
        gap = float(np.abs((seen - masses) @ law.sizes).sum() / 2)
        return {"mass_gap": gap, "attention_beta": own.beta, "attention_kappa": own.kappa}

    def why_collinear(self) -> str:
        """Why the betas cannot be determined separately."""
        regression = self.regression
        if regression.underflowed:
            return regression.why_underflow()
        for lag, matching in enumerate((regression.mask_count @ mask_bits(self.order)).tolist()):
            if matching in (0, regression.equations.n):
                return f"lag {lag + 1} never {'mis' if matching else ''}matches at a candidate key"
            if regression.equations.gram[lag, lag] <= 0:
                return f"lag {lag + 1} matches at all or none of the candidate keys of every query"
        return "the match indicators of the lags are collinear: their betas cannot be determined"

    def distrust(self, found: dict[str, Any], min_r2: float, min_sequences: int) -> str | None:
        """Why the numbers cannot be trusted, or None."""
        r2_match, attended, gap = found["r2_match"], found["r2_attended"], found.get("mass_gap", math.nan)
        if self.regression.sequences < min_sequences:
            return f"{self.regression.sequences} sequences; standard errors need at least {min_sequences}"
        if r2_match < min_r2:
            return f"matches explain {r2_match:.1%} of the scores; below {min_r2:.0%} no beta is trusted"
        if attended < MIN_ATTENDED:
            weighted = f"with keys weighted by attention R2 is {attended:.2f}"
            return f"{weighted}; below {MIN_ATTENDED} no beta is trusted"
        return mass_refusal(gap)

    def result(self, found: dict[str, Any], failure: str | None) -> MatchFit:
        """The fit with what is known about the data; if it failed, the estimates are NaN."""
        regression, cap, sink = self.regression, self.cap, self.cap.has_sink
        lags, masks, unknown = np.full(self.order, np.nan), np.full(1 << self.order, np.nan), math.nan if sink else None
        size, bos_known = self.order + sink, found.pop("bos_known", 0)
        estimates = {
            **dict.fromkeys(("beta", "stderr", "beta_no_position"), lags),
            **dict.fromkeys(("kappa", "kappa_stderr"), unknown),
            "covariance": np.full((size, size), np.nan),
            "mask_score": masks,
        }
        blank = estimates | {"position": np.full(len(self.basis), np.nan), "attention_beta": lags}
        found = blank | dict.fromkeys(("kappa_spread", "attention_kappa"), unknown) | found
        found |= estimates if failure else {}
        if failure is None and sink and math.isnan(found["kappa"]):
            failure = "BOS has no finite score at any query: kappa is not known"
        shares = {name: found.get(name, math.nan) for name in ("r2", "r2_match", "r2_attended", "mass_gap")}
        doubt = "" if failure else warning(**shares)
        names = tuple(f"beta_{lag + 1}" for lag in range(self.order))
        notes = [failure, doubt and f"warning: {doubt}"]
        notes += [lone_note(names, found["beta"], found["stderr"]) if regression.sequences > 1 else ""]
        queries = len(candidate_rows(cap))
        if failure is None:
            if regression.underflowed:
                left = f"{regression.equations.n} keys were left to fit"
                notes.append(f"{regression.underflowed} attention weights underflowed; {left}")
            if 0 < bos_known < regression.sequences * queries * cap.match_pattern.shape[1]:
                notes.append(f"kappa rests on the {bos_known} queries where BOS has a finite score")
            notes.append(self.note)
        return MatchFit(
            **found,
            mask_count=regression.mask_count,
            n=regression.equations.n,
            queries=queries,
            sequences=regression.sequences,
            underflowed=regression.underflowed,
            bounds=np.where(np.isfinite(regression.bounds), regression.bounds, np.nan),
            source=self.source,
            warning=doubt,
            success=failure is None,
            message="; ".join(filter(None, [*notes, cap.note])),
            provenance=provenance(checkpoint=cap.checkpoint),
        )


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


def _influence_of_kappa(bos: Array, owner: Array, matched: Array, of_beta: Array) -> Array:
    """How far kappa moves without each sequence: by BOS's own scores, and through the beta of the empty match."""
    sequences = len(of_beta)
    left = (len(bos) - np.bincount(owner, minlength=sequences)).astype(np.float64)
    left[left == 0] = np.nan
    own = np.bincount(owner, weights=bos - bos.mean(), minlength=sequences)
    others = np.repeat(matched.sum(axis=0)[None], sequences, axis=0)
    np.subtract.at(others, owner, matched)
    return np.asarray((own + (others * of_beta).sum(axis=1)) / left)


def _attended(y: Array, errors: Array, pattern: Array) -> Array:
    """Sums of squares of response and residual, every key weighted by its share of its query's attention."""
    totals = pattern.sum(axis=1, keepdims=True)
    weights = pattern / np.where(totals > 0, totals, 1.0)
    means = [(weights * values).sum(axis=1, keepdims=True) for values in (y, errors)]
    return np.array([(weights * (one - mean) ** 2).sum() for one, mean in zip((y, errors), means, strict=True)])
