"""beta and kappa as a model's scores show them: is the match head an exponential of overlap, and how sure is that?

    fit = fit_scores(capture(model, tokens))
    fit.beta, fit.kappa, fit.stderr, fit.r2, fit.success, fit.message

The claim (prop:transformer_estimator) is that the score of a candidate key with mask M is |beta|_M plus a constant of
the query, and that BOS scores kappa on the same scale. So the scores of all candidate keys are regressed on one match
indicator per lag, with a free intercept per query:

    e_qs = c_q + sum_r beta_r [r in M_s] + f(t - s) + error,            kappa = mean over queries of e_q,BOS - c_q

f is a smooth function of the distance (cubic splines in log(1 + distance)), because trained models carry r_{i-j} in
the match layer. It is centred over each query's candidates, so c_q is the score of an empty match at an average
position, and kappa is relative to that. BOS takes no part in the fit of beta; early keys take no part at all and are
reported. At a single query, distance and key position are the same thing.

How to read the numbers. Everything is within a query: SST is the squared score left after each query's mean.

    r2              1 - SSE / SST, matches and position together
    r2_match        of what position alone leaves unexplained, the part that matches explain; success is judged on it
    r2_attended     r2 with every key weighted by the attention it gets: the fit where it matters for the prediction
    position_share  what f adds to r2 once the matches are in
    token_share     what the key's own tokens x_s .. x_{s-k} add to r2 once matches and position are in, one free number
                    per lag and symbol. The law is blind to labels, so this is 0 for it; a model that treats one symbol
                    apart shows it here, and its r2 is low for that reason. They take no part in the fit of beta.
    additivity      the fit with one free number per mask against the additive one: its p-value (cluster-robust, on
                    Hotelling's scale) and the r2 it adds. With many keys tiny departures are significant: look at both.

A fit is trusted if it also holds where the attention is (`interp.instruments.agreement` has the rule). One that cannot
be trusted has success=False, says why, and its beta and kappa are NaN.

`fit_scores(cap, source="attention")` fits the attention itself (`interp.instruments.attention_fit`). Where the two fits
differ, both say so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, overload

import numpy as np
import torch
from jaxtyping import Float, Int64

from interp.circuit.capture import Capture
from interp.circuit.circuit import head_name
from interp.instruments.agreement import Agreement, agreement, distrust
from interp.instruments.attention_fit import AttentionFit, AttentionFitter
from interp.instruments.candidates import (
    Array,
    BosTally,
    QueryView,
    Source,
    candidate_rows,
    count_distances,
    query_views,
    smallest_normal,
)
from interp.instruments.laws import Law
from interp.notation import mask_bits, mask_name, overlap
from interp.regression import (
    SPLINE_TERMS,
    NormalEquations,
    Solution,
    centred,
    clustered,
    distance_basis,
    joint_test,
)
from interp.results import Result, provenance

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

Fit = TypeVar("Fit", "MatchFit", AttentionFit)

MIN_R2 = 0.5  # of r2_match
MIN_SEQUENCES = 10  # clusters; fewer cannot show how far estimates vary
MAX_ADDITIVITY_ORDER = 6  # 2**k mask indicators beyond this are too many to test
SAME = 0.05  # heads whose parameters are nearer than this are not said to differ
MAX_TOKEN_TERMS = 64  # (k + 1)(|V| - 1) indicators of the key's tokens beyond this are too many to fit


@dataclass(frozen=True, kw_only=True)
class MatchFit(Result):
    """The fitted law of the match scores. Arrays over lags have lag 1 first; arrays over masks are indexed by mask.

    beta, stderr            match weight per lag and its standard error, clustered by sequence
    kappa, kappa_stderr     BOS score relative to an empty match; None without BOS
    kappa_spread            standard deviation of that score over queries: 0 if BOS is the paper's constant sink
    covariance              of (beta, kappa)
    beta_no_position        beta without the positional term
    r2, r2_match, r2_attended, position_share, token_share     see the module; token_share is NaN where there are too
                            many symbols to tell
    position                [distance] the fitted positional term at distance 0, 1, ..., mean 0
    mask_count              candidate keys with this mask
    mask_score              score relative to the empty match, with a free number per mask; NaN if never seen
    mask_residual           mean residual of the additive fit over the keys with this mask
    additivity_p            p-value of "no interactions"; NaN where none could be tested
    additivity_gain         the r2 that free masks add
    additivity_terms        interactions tested
    early_score             mean score of the k early keys, oldest first, relative to the empty match
    n, queries, sequences   candidate keys in the fit, queries, sequences (clusters)
    underflowed             keys whose attention underflowed to zero (source="pattern" only)
    mass_gap                between the attention and the fitted law, see `interp.instruments.agreement`; NaN unknown
    attention_beta, attention_kappa    what the attention itself shows
    bounds                  [mask] where a mask underflowed beside a full match: |beta|_[k] - |beta|_M is at least this
    heads                   where the capture has several match heads, the fit of each one alone; else empty
    """

    beta: Float[np.ndarray, " lag"]
    stderr: Float[np.ndarray, " lag"]
    kappa: float | None
    kappa_stderr: float | None
    kappa_spread: float | None
    covariance: Float[np.ndarray, "parameter parameter"]
    beta_no_position: Float[np.ndarray, " lag"]
    r2: float
    r2_match: float
    r2_attended: float
    position_share: float
    token_share: float
    position: Float[np.ndarray, " distance"]
    mask_count: Int64[np.ndarray, " mask"]
    mask_score: Float[np.ndarray, " mask"]
    mask_residual: Float[np.ndarray, " mask"]
    additivity_p: float
    additivity_gain: float
    additivity_terms: int
    early_score: Float[np.ndarray, " lag"]
    n: int
    queries: int
    sequences: int
    underflowed: int
    bounds: Float[np.ndarray, " mask"]
    mass_gap: float
    attention_beta: Float[np.ndarray, " lag"]
    attention_kappa: float | None
    source: Source
    heads: tuple[MatchFit, ...] = ()

    def table(self) -> pd.DataFrame:
        """One row per parameter: parameter, lag (missing for kappa), estimate, stderr, no_position (kappa: missing) and
        attention, what the attention itself shows.
        """
        import pandas as pd

        rows = [
            {
                "parameter": f"beta_{lag}",
                "lag": lag,
                "estimate": self.beta[lag - 1],
                "stderr": self.stderr[lag - 1],
                "no_position": self.beta_no_position[lag - 1],
                "attention": self.attention_beta[lag - 1],
            }
            for lag in range(1, len(self.beta) + 1)
        ]
        if self.kappa is not None:
            rows.append(
                {
                    "parameter": "kappa",
                    "lag": None,
                    "estimate": self.kappa,
                    "stderr": self.kappa_stderr,
                    "no_position": math.nan,
                    "attention": self.attention_kappa,
                }
            )
        return pd.DataFrame(rows).astype({"lag": "Int64"})

    def masks(self) -> pd.DataFrame:
        """One row per mask: count, the additive law's score, the free score, and the mean residual of the law."""
        import pandas as pd

        order = len(self.beta)
        return pd.DataFrame(
            {
                "mask": [mask_name(mask) for mask in range(1 << order)],
                "overlap": [overlap(mask) for mask in range(1 << order)],
                "count": self.mask_count,
                "additive": mask_bits(order) @ self.beta,
                "free": self.mask_score,
                "residual": self.mask_residual,
            }
        )

    def record(self) -> dict[str, Any]:
        """All fields as JSON-able values; arrays over masks become dicts by the mask's name."""
        by_mask = ("mask_count", "mask_score", "mask_residual", "bounds")
        record = {
            name: {mask_name(mask): item for mask, item in enumerate(value)} if name in by_mask else value
            for name, value in super().record().items()
            if name != "heads"
        }
        return record | ({"heads": [one.record() for one in self.heads]} if self.heads else {})

    def plot(self, ax: Axes | None = None) -> Axes:
        """beta per lag and kappa, with 95% intervals; those of each head alone, where there are several, are dashes.

        A fit that failed has none to draw, and the title says why.
        """
        from interp.plotting import INTERVAL_NAME, heading, panel, parameter_points

        rows = self.table()
        ax = panel(ax, width=4.8)
        parameter_points(
            ax, rows["parameter"].tolist(), rows["estimate"].to_numpy(np.float64), rows["stderr"].to_numpy(np.float64)
        )
        for place, one in enumerate(self.heads):
            values = one.table()["estimate"].to_numpy(np.float64)
            ax.plot(range(len(values)), values, "_", color="#7f7f7f", label=None if place else "each head alone")
        if self.heads:
            ax.legend(frameon=False)
        ax.set_ylabel(f"score above an empty match\n(nats, {INTERVAL_NAME})")
        title = f"match weights of {self.sequences} sequences"
        if self.success:
            title += f": matches explain {self.r2_match:.1%} of the scores"
        return heading(ax, title, doubt=self.doubt)

    def __str__(self) -> str:
        pairs = zip(self.beta, self.stderr, strict=True)
        beta = ", ".join(f"{value:.4g} ± {error:.2g}" for value, error in pairs)
        lines = [
            f"match fit of {self.n} keys, {self.sequences} sequences: {'ok' if self.success else 'FAILED'}",
            f"  beta       {beta}",
        ]
        if self.kappa is not None:
            lines.append(
                f"  kappa      {self.kappa:.4g} ± {self.kappa_stderr:.2g} (over queries: sd {self.kappa_spread:.2g})"
            )
        lines.append(
            f"  R2         {self.r2:.4f}; of what position leaves {self.r2_match:.4f}; "
            f"keys weighted by attention {self.r2_attended:.4f}"
        )
        tokens = "" if math.isnan(self.token_share) else f"; the key's own tokens then add {self.token_share:.2%}"
        lines.append(f"  position   adds {self.position_share:.2%} of the variance{tokens}")
        if self.additivity_terms:
            lines.append(
                f"  additive   p = {self.additivity_p:.2g}; free masks add {self.additivity_gain:.2%} of the variance"
            )
        return "\n".join([*lines, *self.remarks()])


@overload
def fit_scores(
    cap: Capture, *, source: Source = ..., position: bool = ..., min_r2: float = ..., min_sequences: int = ...
) -> MatchFit: ...


@overload
def fit_scores(
    cap: Capture,
    *,
    source: Literal["attention"],
    law: Law = ...,
    own: bool = ...,
    position: bool = ...,
    min_r2: float = ...,
    min_sequences: int = ...,
) -> AttentionFit: ...


def fit_scores(
    cap: Capture,
    *,
    source: Source | Literal["attention"] = "scores",
    law: Law = "additive",
    own: bool = False,
    position: bool = True,
    min_r2: float = MIN_R2,
    min_sequences: int = MIN_SEQUENCES,
) -> MatchFit | AttentionFit:
    """beta per lag and kappa from the match scores over all candidate keys, with a free intercept per query.

    source="pattern" works from log-attention instead, for when scores are not known. Attention that underflowed
    (below the smallest normal number) is unknown, not zero: all keys of its mask at that query leave the fit, so that
    none is left out for its own value. They are counted. Where that leaves a beta without evidence, the fit fails and
    gives the bounds that the underflow implies.

    source="attention" takes the parameters that make the attention itself most likely, under law="additive", "suffix"
    or "free", with own=True also with a weight for the key's own token; the result is an `AttentionFit`.

    position=False leaves the positional term out; min_r2 (of r2_match, and of nats_explained) and min_sequences say
    when a fit is to be trusted.

    Several match heads are fitted together, with an intercept per query and head: one beta and kappa for all. `heads`
    then holds the fit of each one alone, and the message says so where they differ.
    """
    if source not in (*get_args(Source), "attention"):
        raise ValueError(f"source must be 'scores', 'pattern' or 'attention', got {source!r}")
    if source != "attention" and (law != "additive" or own):
        raise ValueError("law and own are for source='attention'; scores are fitted by the additive law")

    limits: dict[str, Any] = {"min_r2": min_r2, "min_sequences": min_sequences}
    if source == "attention":
        return _with_heads(cap, lambda one: _fit_attention(one, law=law, own=own, position=position, **limits))
    return _with_heads(cap, lambda one: _Fitter(one, source=source, position=position).fit(**limits))


def _with_heads(cap: Capture, fit: Callable[[Capture], Fit]) -> Fit:
    """The fit of all match heads together, and of each one alone where there are several."""
    together, count = fit(cap), int(cap.match_pattern.shape[1])
    if count == 1:
        return together
    alone = tuple(fit(cap.match_head(index)) for index in range(count))
    names = [head_name(place) for place in cap.match_heads] or list(map(str, range(count)))
    notes = [together.message] if together.message else []
    if failed := [f"{name}: {one.message}" for name, one in zip(names, alone, strict=True) if not one.success]:
        notes.append(f"match heads that do not fit alone: {'; '.join(failed)}")
    elif differing := _differing(alone):
        notes.append(f"the match heads differ in {differing}: `heads` has the fit of each one")
    return replace(together, heads=alone, message="; ".join(notes))


def _fit_attention(
    cap: Capture, *, law: Law, own: bool, position: bool, min_r2: float, min_sequences: int
) -> AttentionFit:
    """The attention's own law; where the fit of the scores differs from it, the message says so."""
    fit = AttentionFitter(cap, law=law, position=position, own=own).fit(
        min_explained=min_r2, min_sequences=min_sequences
    )
    if law != "additive" or own or not fit.success:
        return fit
    scored = _Fitter(cap, source="scores", position=position)
    found = scored.fit(min_r2=min_r2, min_sequences=min_sequences)
    note = scored.agreement.note if scored.agreement is not None else ""
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


class _Fitter:
    """Two walks over the capture: the first makes the normal equations, the second what needs the residuals."""

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

    def fit(self, *, min_r2: float, min_sequences: int) -> MatchFit:
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
        if influence.shape[1] == self.order + self.cap.bos:  # BOS has no score where it is always shut out
            self.agreement = agreement(
                AttentionFitter(self.cap, law="additive", position=bool(self.places), own=False),
                scores=np.append(found["beta"], found["kappa"] if self.cap.bos else []),
                places=additive.coefficients[self.places],
                influence=influence,
            )
            found |= {
                "mass_gap": self.agreement.mass_gap,
                "attention_beta": self.agreement.attention[: self.order],
                "attention_kappa": float(self.agreement.attention[self.order]) if self.cap.bos else None,
            }
        return self.result(found, failure=self.distrust(found, min_r2, min_sequences))

    def note_underflow(self, view: QueryView) -> None:
        """Count it, and keep how far below the query's full matches an underflowed key must lie."""
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
        """What keeps the betas from being told apart."""
        if self.underflowed:
            return self.why_underflow()
        bits = mask_bits(self.order)
        for lag in range(self.order):
            matching = int(self.mask_count[bits[:, lag] == 1].sum())
            if matching in (0, self.equations.n):
                return f"lag {lag + 1} never {'mis' if matching else ''}matches at a candidate key"
            if self.equations.gram[lag, lag] <= 0:
                return f"lag {lag + 1} matches at all or none of the candidate keys of every query"
        return "the match indicators of the lags are collinear: their betas cannot be told apart"

    def why_underflow(self) -> str:
        """What the underflow leaves to say: how far below a full match a mask must lie."""
        everything = (1 << self.order) - 1
        words = [
            f"|beta|_{mask_name(everything & ~int(mask))} >= {self.bounds[mask]:.1f}"
            for mask in np.flatnonzero(np.isfinite(self.bounds))
        ]
        known = "; all that is known: " + ", ".join(words) if words else ""
        return f"{self.underflowed} attention weights underflowed and hide beta{known}"

    def distrust(self, found: dict[str, Any], min_r2: float, min_sequences: int) -> str | None:
        """Why the numbers are not to be believed, or None."""
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
        pull, free_pull = (np.zeros((self.sequences, self.size)) for _ in range(2))
        mask_sum, attended = np.zeros(1 << self.order), np.zeros(2)
        early: list[Array] = []
        bos = BosTally(sequences=self.sequences)
        for view in self.views():
            design = self.design(view)
            columns, y = centred(design, view.known), centred(view.scores, view.known)
            errors = y - columns @ additive.coefficients
            pull[view.sequences] += np.einsum("bkc,bk->bc", columns, errors)
            free_pull[view.sequences] += np.einsum("bkc,bk->bc", columns, y - columns @ free.coefficients)
            mask_sum += np.bincount(view.masks[view.known], weights=errors[view.known], minlength=1 << self.order)
            attended += _attended(y, errors, np.where(view.known, view.pattern, 0.0))
            some, empty = bos.add(view, design[..., self.lags], beta)
            early.append(view.early_scores[some] - empty[:, None])
        influence = (pull @ additive.inverse)[:, self.lags]
        found: dict[str, Any] = {
            "beta": beta,
            "mask_residual": np.where(self.mask_known > 0, mask_sum / np.maximum(self.mask_known, 1), np.nan),
            "r2_attended": 1.0 - attended[1] / attended[0] if attended[0] > self.equations.noise else math.nan,
            "early_score": np.concatenate(early).mean(axis=0),
            "additivity_p": joint_test(
                free.coefficients[tested], (free_pull @ free.inverse)[:, tested], resolution=self.equations.resolution
            ),
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
        unknown = math.nan if self.cap.bos else None
        parameters = self.order + self.cap.bos
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
        """The fit with what is known about the data; a failure takes the estimates with it."""
        bos_known = found.pop("bos_known", None)
        if failure is not None:
            estimates = ("beta", "stderr", "kappa", "kappa_stderr", "covariance", "beta_no_position", "mask_score")
            found |= {name: value for name, value in self.blank().items() if name in estimates}
        elif self.cap.bos and not math.isfinite(found["kappa"]):
            failure = "BOS has no finite score at any query: kappa is not known"
        notes = [failure] if failure else []
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
