"""Where the match head's attention goes: by overlap, by mask, on BOS and on early keys, beside what the law predicts.

Observed mass is the pattern summed over the keys of a group. Predicted mass is that of eq:transformer_estimator with
the fitted beta and kappa, N_M e^{|beta|_M} / Z for a mask and e^kappa / Z for BOS, computed for each sequence and query
from its own counts and then averaged. The law gives early keys no attention, and does not depend on position.

The groups {overlap 0..k, bos, early} partition the keys, so that their masses sum to one. `distance` is the total
variation distance between mean observed and mean predicted mass over these groups; `distance_each` is the mean of the
same distance taken query by query, where errors cannot cancel; `largest_gap` is the largest difference of a mean. The
table by mask says which masks are contiguous, {1..i}: of partial matches (0 < |M| < k), back-off uses only these.

Order weights generalise corollary:mixture to one beta per lag. With gamma_r = e^{beta_r} - 1,

    sum_M e^{|beta|_M} N_M = sum_M gamma_M K_M,    gamma_M = product of gamma_r over r in M,

so lambda_i is the share of the masks of size i in the right-hand sum: the paper's gamma^i K_i / sum_j gamma^j K_j where
all betas are equal. BOS is left out: it mixes in the uniform law with weight e^kappa / Z, and the lambda_i sum to one
without it. A negative beta makes some weights negative; the identity still holds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import torch
from jaxtyping import Float
from scipy.special import softmax

from interp.arguments import keywords, shown
from interp.circuit.capture import Capture, check_attention
from interp.estimators.counts import superset_sum
from interp.fitting.attention_fit import mass_warning
from interp.fitting.candidates import candidate_rows, query_views
from interp.fitting.likelihood import sum_by_group
from interp.fitting.regression import Array
from interp.instruments.beta_kappa import fit_scores
from interp.instruments.given import Captured, HeadLaw, Law, check_capture, laws_of_heads
from interp.notation import is_contiguous, mask_bits, mask_name, overlap
from interp.results import Axes, DataFrame, Result, frame, half_width, jsonable, mean_stderr, provenance

if TYPE_CHECKING:
    By: TypeAlias = Literal["overlap", "mask"]
else:
    By = Any  # checked below

CANCELLED = 1e-9  # of the sum of absolute values: a smaller sum of order weights is rounding


@dataclass(frozen=True, kw_only=True)
class OverlapMass(Result):
    """Attention mass by group, averaged over sequences and queries. Groups: overlap 0..k, then BOS, then early.

    by_mask, by_overlap, bos, early  observed
    predicted_by_mask, predicted_by_overlap, predicted_bos     the same from the law; NaN without a trusted fit
    stderr_by_mask, stderr_by_group  standard errors of the observed means over sequences
    order_weights                    [batch, order] lambda_0 .. lambda_k of each sequence at the last query; NaN
                                     where terms of both signs cancel but for rounding, or the law is not additive
    distance, distance_each, largest_gap     see the module
    n                                sequences
    success                          the prediction comes from a trusted fit
    """

    NUMBERS = ("distance", "distance_each")
    DOUBT = "incomplete"  # the observed masses are valid all the same

    by_mask: Float[np.ndarray, " mask"]
    by_overlap: Float[np.ndarray, " order"]
    bos: float
    early: float
    predicted_by_mask: Float[np.ndarray, " mask"]
    predicted_by_overlap: Float[np.ndarray, " order"]
    predicted_bos: float
    stderr_by_mask: Float[np.ndarray, " mask"]
    stderr_by_group: Float[np.ndarray, " group"]
    order_weights: Float[np.ndarray, "batch order"]
    distance: float
    distance_each: float
    largest_gap: float
    n: int

    @property
    def title(self) -> str:
        """What was measured, and how far it is from the law."""
        gap = f": largest gap to the law {self.largest_gap:.3f}" if self.success else ""
        return f"attention by overlap, {self.n} sequences{gap}"

    def table(self, by: By = "overlap") -> DataFrame:
        """One row per group of keys, whose masses sum to one: observed, predicted, stderr.

        by="overlap" has the groups |M|=0..k, bos and early, by="mask" a row for each mask, and bos and early again.
        """
        if by not in ("overlap", "mask"):
            raise ValueError(f"by must be 'overlap' or 'mask', got {shown(by)}")
        masks = by == "mask"
        groups = range(len(self.by_mask if masks else self.by_overlap))
        outside = 0.0 if self.success else math.nan  # what the law gives to early keys
        errors = [*self.stderr_by_mask, *self.stderr_by_group[-2:]] if masks else self.stderr_by_group
        columns = {
            "group": [*(map(mask_name, groups) if masks else (f"|M|={size}" for size in groups)), "bos", "early"],
            "overlap": [*(map(overlap, groups) if masks else groups), None, None],
            **({"contiguous": [*map(is_contiguous, groups), None, None]} if masks else {}),
            "observed": [*(self.by_mask if masks else self.by_overlap), self.bos, self.early],
            "predicted": [
                *(self.predicted_by_mask if masks else self.predicted_by_overlap), self.predicted_bos, outside,
            ],
            "stderr": errors,
        }  # fmt: skip
        return frame(columns).astype({"overlap": "Int64"})

    def record(self) -> dict[str, Any]:
        """The fields as JSON-able values: masks and overlaps by name, order weights averaged over sequences."""
        record = super().record() | {"order_weights": jsonable(self.order_weights.mean(axis=0))}
        for name in ("by_mask", "predicted_by_mask", "stderr_by_mask"):
            record[name] = {mask_name(mask): value for mask, value in enumerate(record[name])}
        for name in ("by_overlap", "predicted_by_overlap", "order_weights"):
            record[name] = {str(size): value for size, value in enumerate(record[name])}
        return record

    def plot(self, ax: Axes | None = None) -> Axes:
        """Observed mass as bars with 95% intervals, predicted mass as rings where the fit is trusted."""
        from interp.plotting import INTERVAL_NAME, OVERLAP_COLOURS, grouped_bars, heading, overlap_kind, panel

        rows, order = self.table(), len(self.by_overlap) - 1
        names = [*(f"{size} of {order}" for size in range(order + 1)), "BOS", "early"]
        kinds = [*(overlap_kind(size, order=order) for size in range(order + 1)), "bos", "early"]
        shown = [place for place, kind in enumerate(kinds) if kind != "bos" or self.bos > 0]
        rows = rows.iloc[shown]
        ax = grouped_bars(
            panel(ax, width=5.6),
            [names[place] for place in shown],
            {"observed": rows["observed"].to_numpy()},
            reach={"observed": half_width(rows["stderr"], n=self.n)},
            colours={"observed": [OVERLAP_COLOURS[kinds[place]] for place in shown]},
        )
        if self.success:
            look: dict[str, Any] = {"color": "#000000", "fillstyle": "none", "markersize": 9}
            ax.plot(range(len(rows)), rows["predicted"].to_numpy(), "o", label="predicted", **look)
            ax.legend(handles=ax.lines[-1:], frameon=False, loc="best")
        ax.set_xlabel("keys, by how many lags of their context match")
        ax.set_ylabel(f"share of the attention\n(observed mean, {INTERVAL_NAME})")
        return heading(ax, self.title, doubt=self.doubt)


@keywords(fit="law=fit")
def overlap_mass(cap: Captured, law: Law | None = None) -> OverlapMass:
    """Observed and predicted attention mass at the capture's queries.

    Queries before the first candidate have nothing to match and are left out. Several match heads are taken together:
    masses are means over them, and the prediction is the mean of each head's own law where `law.heads` has them.

    Parameters
    ----------
    cap   what `capture` returns
    law   what predicts: a fit, of the scores or of the attention itself, or (beta, kappa); by default the fit of the
          capture's scores

    Returns
    -------
    `OverlapMass`, a row for each group of keys

    Examples
    --------
        mass = overlap_mass(capture(model, tokens))
        mass.by_overlap, mass.predicted_by_overlap, mass.distance
        mass.order_weights                       # lambda_i per sequence: the weight of each order in the mixture
    """
    check_capture(cap)
    check_attention(cap.match_pattern, of="match")
    heads, law = int(cap.match_pattern.shape[1]), fit_scores(cap) if law is None else law
    laws = laws_of_heads(law, order=cap.order, bos=cap.has_sink, heads=heads)
    trusted = bool(laws.heads)
    observed, predicted, order_weights = _masses(cap, laws.heads)
    masks, order = 1 << cap.order, cap.order
    into = np.eye(order + 3)[[*mask_bits(order).sum(axis=1), order + 1, order + 2]]  # from masks to groups
    found: dict[str, Any] = {}
    for prefix, mass in (("", observed), ("predicted_", predicted)):
        mean = mass.mean(axis=(0, 1))
        found |= {
            f"{prefix}by_mask": mean[:masks],
            f"{prefix}by_overlap": (mean @ into)[: order + 1],
            f"{prefix}bos": float(mean[masks]),
        }
    by_group, by_law = observed @ into, predicted @ into
    gap = np.abs((by_group - by_law).mean(axis=(0, 1)))
    distance = float(gap.sum() / 2)
    doubt = mass_warning(distance) if trusted else ""
    return OverlapMass(
        **found,
        early=float(observed[..., -1].mean()),
        stderr_by_mask=_stderr(observed[..., :masks]),
        stderr_by_group=_stderr(by_group),
        order_weights=order_weights,
        distance=distance,
        distance_each=float(np.abs(by_group - by_law).sum(axis=-1).mean() / 2),
        largest_gap=float(gap.max()),
        n=len(cap.tokens),
        success=trusted,
        message=(f"warning: {doubt}" if doubt else "") if trusted else f"no law to compare with: {laws.note}",
        provenance=provenance(checkpoint=cap.checkpoint),
    )


def _masses(cap: Capture, laws: Sequence[HeadLaw]) -> tuple[Array, Array, Array]:
    """Observed and predicted mass [batch, query, mask, then BOS and early], and order weights at the last query.

    All are means over the match heads. Without laws, what depends on them is NaN.
    """
    (sequences, heads), masks, rows = cap.match_pattern.shape[:2], 1 << cap.order, candidate_rows(cap)
    observed, predicted = (np.zeros((sequences, len(rows), masks + 2)) for _ in range(2))
    order_weights = np.zeros((sequences, cap.order + 1))
    for view in query_views(cap):
        place, law = (view.sequences, rows.index(view.row)), laws[view.head] if laws else None
        counts = sum_by_group(view.masks, None, masks)
        bos = np.zeros(len(counts)) if view.bos_pattern is None else view.bos_pattern
        early = view.early_pattern.sum(axis=1)
        observed[place] += np.column_stack([sum_by_group(view.masks, view.pattern, masks), bos, early]) / heads
        predicted[place] += np.nan if law is None else _law(counts, law) / heads
        if view.row == rows[-1]:
            beta = None if law is None else law.beta
            order_weights[view.sequences] += np.nan if beta is None else _order_weights(counts, beta) / heads
    return observed, predicted, order_weights


def _law(counts: Float[np.ndarray, "batch mask"], law: HeadLaw) -> Float[np.ndarray, "batch group"]:
    """N_M e^{|beta|_M} / Z for every mask, e^kappa / Z for BOS, nothing for early keys."""
    outside = np.full((len(counts), 2), -np.inf)
    if law.kappa is not None:
        outside[:, 0] = law.kappa
    with np.errstate(divide="ignore"):
        scores = np.column_stack([law.by_mask + np.log(counts), outside])
    return np.asarray(softmax(scores, axis=1))


def _order_weights(counts: Float[np.ndarray, "batch mask"], beta: Array) -> Float[np.ndarray, "batch order"]:
    """lambda_i: the share of the masks of size i in sum_M gamma_M K_M; in logs, because gamma overflows first."""
    cumulative = superset_sum(torch.from_numpy(counts[..., None])).numpy()[..., 0]
    bits = mask_bits(len(beta))
    with np.errstate(divide="ignore", invalid="ignore"):
        # log |e^b - 1| = max(b, 0) + log(1 - e^{-|b|}), and -inf at b = 0, where only the empty mask keeps its weight.
        log_gamma = np.maximum(beta, 0.0) + np.log(-np.expm1(-np.abs(beta)))
        log_terms = np.where(bits, log_gamma, 0.0).sum(axis=1) + np.log(cumulative)
    signs = np.where(bits & (beta < 0), -1.0, 1.0).prod(axis=1)
    terms = signs * np.exp(log_terms - log_terms.max(axis=1, keepdims=True))
    by_order = terms @ np.eye(len(beta) + 1)[bits.sum(axis=1)]
    total = by_order.sum(axis=1, keepdims=True)
    # Terms of both signs, where a beta is negative, may leave nothing but rounding of their sum.
    kept = np.abs(total) > CANCELLED * np.abs(by_order).sum(axis=1, keepdims=True)
    return np.asarray(np.divide(by_order, total, out=np.full_like(by_order, np.nan), where=kept))


def _stderr(values: Float[np.ndarray, "batch query group"]) -> Float[np.ndarray, " group"]:
    """Standard errors over sequences: queries of one sequence are not independent, so each sequence counts once."""
    return np.array([mean_stderr(column)[1] for column in values.mean(axis=1).T])
