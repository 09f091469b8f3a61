"""The least-squares fit behind `fit_scores`: match scores on match indicators, with an intercept per query."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from interp.circuit.capture import Capture
from interp.fitting.agreement import Agreement, agreement, distrust, warning
from interp.fitting.attention_fit import AttentionFitter
from interp.fitting.candidates import (
    Array,
    BosTally,
    QueryView,
    Source,
    candidate_rows,
    count_distances,
    query_views,
    smallest_normal,
)
from interp.fitting.match_fit import MatchFit
from interp.fitting.regression import (
    SPLINE_TERMS,
    NormalEquations,
    Solution,
    centred,
    clustered,
    distance_basis,
    leave_one_out,
    lone_note,
    sign_flip_test,
)
from interp.notation import mask_bits, mask_name, overlap
from interp.results import provenance

MAX_ADDITIVITY_ORDER = 6  # 2**k mask indicators beyond this are too many to test
MAX_TOKEN_TERMS = 64  # (k + 1)(|V| - 1) indicators of the key's tokens beyond this are too many to fit


class ScoreFitter:
    """Two passes over the capture: the first makes the normal equations, the second what needs the residuals."""

    def __init__(self, cap: Capture, *, source: Source, position: bool) -> None:
        self.cap, self.source, self.order = cap, source, cap.order
        self.sequences = int(cap.tokens.shape[0])
        self.distances = count_distances(cap)
        self.basis = distance_basis(self.distances, terms=SPLINE_TERMS if position else 0)
        tested = range(1 << self.order) if self.order <= MAX_ADDITIVITY_ORDER else ()
        self.interactions = np.array([mask for mask in tested if overlap(mask) >= 2], dtype=np.int64)
        terms = (self.order + 1) * (cap.vocab - 1)
        self.symbols = np.arange(1, cap.vocab if terms <= MAX_TOKEN_TERMS else 1)
        # The design's columns: a match indicator per lag, one per mask with several lags, the functions of distance,
        # and the key's tokens, an indicator per lag 0..k and symbol but the first.
        ends = np.cumsum(
            [self.order, len(self.interactions), self.basis.shape[1], (self.order + 1) * len(self.symbols)]
        ).tolist()
        self.lags, self.masks, self.places, self.tokens = (
            list(range(*ends_)) for ends_ in zip([0, *ends], ends, strict=False)
        )
        self.size = ends[-1]
        read = cap.match_scores if source == "scores" else cap.match_pattern
        self.equations = NormalEquations(columns=self.size, epsilon=torch.finfo(read.dtype).eps)
        self.mask_count = np.zeros(1 << self.order, dtype=np.int64)
        self.mask_known = np.zeros(1 << self.order, dtype=np.int64)
        self.bounds = np.full(1 << self.order, np.inf)
        self.underflowed = 0
        self.agreement: Agreement | None = None

    def views(self) -> Iterator[QueryView]:
        return query_views(self.cap, columns=self.size + 1, source=self.source)

    def design(self, view: QueryView) -> Float[np.ndarray, "batch key column"]:
        lags = view.masks[..., None] >> np.arange(self.order) & 1
        masks = view.masks[..., None] == self.interactions
        places = np.broadcast_to(self.basis[view.distance], (*view.masks.shape, self.basis.shape[1]))
        last = view.tokens.shape[1]
        tokens = [view.tokens[:, self.order - lag : last - lag, None] == self.symbols for lag in range(self.order + 1)]
        return np.concatenate([lags, masks, places, *tokens], axis=-1, dtype=np.float64)

    def fit(self, *, min_r2: float, min_sequences: int, attention: AttentionFitter | None = None) -> MatchFit:
        """The fit. `attention` is the additive fit of the attention to compare with, where it was made already."""
        for view in self.views():
            self.equations.add(self.design(view), view.scores, view.known)
            self.mask_count += np.bincount(view.masks.ravel(), minlength=len(self.mask_count))
            self.mask_known += np.bincount(view.masks[view.known], minlength=len(self.mask_count))
            if not view.known.all():
                self.note_underflow(view)
        found = self.blank()
        if reason := self.trouble():
            return self.result(found, failure=reason)
        base, total, noise = self.lags + self.places, self.equations.total, self.equations.noise
        additive = self.equations.solve(base)
        if not additive.full_rank:
            return self.result(found, failure=self.why_collinear())
        match_only, place_only = self.equations.solve(self.lags), self.equations.solve(self.places)
        tested = self.equations.independent(base=base, extra=self.masks)
        free = self.equations.solve(base + tested)
        labelled = self.equations.solve(base + self.tokens)
        found |= {
            "beta_no_position": match_only.coefficients[self.lags],
            "r2": 1.0 - additive.sse / total,
            "r2_match": 1.0 - additive.sse / place_only.sse if place_only.sse > noise else 0.0,
            "position_share": max(0.0, match_only.sse - additive.sse) / total,
            "token_share": max(0.0, additive.sse - labelled.sse) / total if self.tokens else math.nan,
            "position": self.basis @ additive.coefficients[self.places],
            "mask_score": self.free_scores(free),
            "additivity_gain": max(0.0, additive.sse - free.sse) / total if tested else math.nan,
            "additivity_terms": len(tested),
            **self.residuals(additive, free, tested),
        }
        influence = found.pop("influence")
        if influence.shape[1] == self.order + self.cap.has_sink:  # BOS has no score where it is always masked
            self.agreement = agreement(
                attention or AttentionFitter(self.cap, law="additive", position=bool(self.places), own=False),
                scores=np.append(found["beta"], found["kappa"] if self.cap.has_sink else []),
                places=additive.coefficients[self.places],
                influence=influence,
            )
            found |= {
                "mass_gap": self.agreement.mass_gap,
                "attention_beta": self.agreement.attention[: self.order],
                "attention_kappa": float(self.agreement.attention[self.order]) if self.cap.has_sink else None,
            }
        return self.result(found, failure=self.distrust(found, min_r2, min_sequences))

    def note_underflow(self, view: QueryView) -> None:
        """Count underflowed keys, and record how far below the query's full matches they must lie."""
        gone = np.isneginf(view.scores)
        self.underflowed += int(gone.sum())
        full = (view.masks == len(self.bounds) - 1) & ~gone
        top = np.where(full, view.scores, -np.inf).max(axis=1, keepdims=True)
        gap = np.broadcast_to(top - math.log(smallest_normal(self.cap)), view.scores.shape)
        counted = gone & np.isfinite(gap)
        np.minimum.at(self.bounds, view.masks[counted], gap[counted])

    def trouble(self) -> str | None:
        """Why there is nothing to fit, or None."""
        if self.distances < 2:
            return "a query needs at least two candidate keys: the sequences are too short"
        reason = self.equations.trouble()
        return self.why_underflow() if reason and self.underflowed and not self.equations.not_finite else reason

    def why_collinear(self) -> str:
        """Why the betas cannot be determined separately."""
        if self.underflowed:
            return self.why_underflow()
        bits = mask_bits(self.order)
        for lag in range(self.order):
            matching = int(self.mask_count[bits[:, lag] == 1].sum())
            if matching in (0, self.equations.n):
                return f"lag {lag + 1} never {'mis' if matching else ''}matches at a candidate key"
            if self.equations.gram[lag, lag] <= 0:
                return f"lag {lag + 1} matches at all or none of the candidate keys of every query"
        return "the match indicators of the lags are collinear: their betas cannot be determined"

    def why_underflow(self) -> str:
        """What is known in spite of the underflow: how far below a full match a mask must lie."""
        everything = (1 << self.order) - 1
        words = [
            f"|beta|_{mask_name(everything & ~int(mask))} >= {self.bounds[mask]:.1f}"
            for mask in np.flatnonzero(np.isfinite(self.bounds))
        ]
        known = "; known bounds: " + ", ".join(words) if words else ""
        return f"{self.underflowed} attention weights underflowed: beta cannot be determined{known}"

    def distrust(self, found: dict[str, Any], min_r2: float, min_sequences: int) -> str | None:
        """Why the numbers cannot be trusted, or None."""
        if self.sequences < min_sequences:
            return f"{self.sequences} sequences; standard errors need at least {min_sequences}"
        if found["r2_match"] < min_r2:
            return f"matches explain {found['r2_match']:.1%} of the scores; below {min_r2:.0%} no beta is trusted"
        return distrust(r2_attended=found["r2_attended"], mass_gap=found["mass_gap"])

    def free_scores(self, free: Solution) -> Float[np.ndarray, " mask"]:
        """|beta|_M plus the interaction of M, for the masks that were seen."""
        scores = mask_bits(self.order) @ free.coefficients[self.lags]
        scores[self.interactions] += free.coefficients[self.masks]
        return np.asarray(np.where(self.mask_known > 0, scores, np.nan))

    def residuals(self, additive: Solution, free: Solution, tested: list[int]) -> dict[str, Any]:
        """Standard errors, kappa, the test of interactions, residuals by mask, the attended fit, and the early keys."""
        beta = additive.coefficients[self.lags]
        base = self.lags + self.places
        pull, information = np.zeros((self.sequences, self.size)), np.zeros((self.sequences, len(base), len(base)))
        mask_sum, attended = np.zeros(1 << self.order), np.zeros(2)
        early: list[Array] = []
        bos = BosTally(sequences=self.sequences)
        for view in self.views():
            design = self.design(view)
            columns, y = centred(design, view.known), centred(view.scores, view.known)
            errors = y - columns @ additive.coefficients
            pull[view.sequences] += np.einsum("bkc,bk->bc", columns, errors)
            information[view.sequences] += np.swapaxes(columns[..., base], 1, 2) @ columns[..., base]
            mask_sum += np.bincount(view.masks[view.known], weights=errors[view.known], minlength=1 << self.order)
            attended += _attended(y, errors, np.where(view.known, view.pattern, 0.0))
            some, empty = bos.add(view, design[..., self.lags], beta)
            early.append(view.early_scores[some] - empty[:, None])
        influence = leave_one_out(pull[:, base], information, additive.inverse[np.ix_(base, base)])[:, : self.order]
        found: dict[str, Any] = {
            "beta": beta,
            "mask_residual": np.where(self.mask_known > 0, mask_sum / np.maximum(self.mask_known, 1), np.nan),
            "r2_attended": 1.0 - attended[1] / attended[0] if attended[0] > self.equations.noise else math.nan,
            "early_score": _known_mean(np.concatenate(early)),
            # With the residuals of the additive law, under which there is nothing to find. The sums are the estimates.
            "additivity_p": sign_flip_test((pull @ free.inverse)[:, tested], resolution=self.equations.resolution),
        }
        if len(relative := bos.relative):
            influence = np.column_stack([influence, bos.influence(influence)])
            found |= {"kappa": float(relative.mean()), "kappa_spread": float(relative.std())}
            if len(relative) < self.sequences * self.queries * self.cap.match_pattern.shape[1]:
                found["bos_known"] = len(relative)
        found["influence"] = influence
        covariance = clustered(influence)
        spread = np.sqrt(np.diag(covariance))
        found |= {"covariance": covariance, "stderr": spread[: self.order]}
        if "kappa" in found:
            found["kappa_stderr"] = float(spread[self.order])
        return found

    @property
    def queries(self) -> int:
        return len(candidate_rows(self.cap))

    def blank(self) -> dict[str, Any]:
        """The fields of a fit that found nothing."""
        lags, masks = np.full(self.order, np.nan), np.full(1 << self.order, np.nan)
        unknown = math.nan if self.cap.has_sink else None
        parameters = self.order + self.cap.has_sink
        return {
            "beta": lags,
            "stderr": lags,
            "kappa": unknown,
            "kappa_stderr": unknown,
            "kappa_spread": unknown,
            "covariance": np.full((parameters, parameters), np.nan),
            "beta_no_position": lags,
            "r2": math.nan,
            "r2_match": math.nan,
            "r2_attended": math.nan,
            "position_share": math.nan,
            "token_share": math.nan,
            "position": np.full(self.distances, np.nan),
            "mask_score": masks,
            "mask_residual": masks,
            "additivity_p": math.nan,
            "additivity_gain": math.nan,
            "additivity_terms": 0,
            "early_score": lags,
            "mass_gap": math.nan,
            "attention_beta": lags,
            "attention_kappa": unknown,
        }

    def result(self, found: dict[str, Any], *, failure: str | None) -> MatchFit:
        """The fit with what is known about the data; if it failed, the estimates are NaN."""
        bos_known = found.pop("bos_known", None)
        if failure is not None:
            estimates = ("beta", "stderr", "kappa", "kappa_stderr", "covariance", "beta_no_position", "mask_score")
            found |= {name: value for name, value in self.blank().items() if name in estimates}
        elif self.cap.has_sink and not math.isfinite(found["kappa"]):
            failure = "BOS has no finite score at any query: kappa is not known"
        notes = [failure] if failure else []
        doubt = ""
        if failure is None:
            doubt = warning(**{name: found[name] for name in ("r2", "r2_match", "r2_attended", "mass_gap")})
            notes += [f"warning: {doubt}"] if doubt else []
        names = [f"beta_{lag + 1}" for lag in range(self.order)]
        notes += lone_note(names, found["beta"], found["stderr"]) if self.sequences > 1 else []
        if failure is None and self.underflowed:
            notes.append(f"{self.underflowed} attention weights underflowed; {self.equations.n} keys were left to fit")
        if failure is None and bos_known is not None:
            notes.append(f"kappa rests on the {bos_known} queries where BOS has a finite score")
        if failure is None and self.agreement is not None and self.agreement.note:
            notes.append(self.agreement.note)
        if self.cap.note:
            notes.append(self.cap.note)
        return MatchFit(
            **found,
            mask_count=self.mask_count,
            n=self.equations.n,
            queries=self.queries,
            sequences=self.sequences,
            underflowed=self.underflowed,
            bounds=np.where(np.isfinite(self.bounds), self.bounds, np.nan),
            source=self.source,
            warning=doubt,
            success=failure is None,
            message="; ".join(notes),
            provenance=provenance(checkpoint=self.cap.checkpoint),
        )


def _attended(y: Array, errors: Array, pattern: Array) -> Array:
    """Sums of squares of response and residual, every key weighted by its share of its query's attention."""
    totals = pattern.sum(axis=1, keepdims=True)
    weights = pattern / np.where(totals > 0, totals, 1.0)
    return np.array(
        [
            float((weights * (values - (weights * values).sum(axis=1, keepdims=True)) ** 2).sum())
            for values in (y, errors)
        ]
    )


def _known_mean(values: Float[np.ndarray, "row column"]) -> Float[np.ndarray, " column"]:
    """Means of the columns; NaN where a value is infinite, as the logarithm of attention that underflowed is."""
    return np.where(np.isfinite(values).all(axis=0), np.where(np.isfinite(values), values, 0.0).mean(axis=0), np.nan)
