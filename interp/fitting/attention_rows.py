"""A capture's attention as rows of mass over groups of keys: what laws of attention are fitted to."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int64
from scipy.special import xlogy

from interp.circuit.capture import Capture
from interp.fitting.candidates import Array, QueryView, count_distances, query_views
from interp.fitting.laws import LawDesign
from interp.fitting.likelihood import GroupLikelihood, Likelihood, PlacedLikelihood, PlacedPart, sum_by_group
from interp.fitting.regression import SPLINE_TERMS, distance_basis

MIN_COVERED = 1e-6  # attention on candidates and BOS below which a query is left out


@dataclass(frozen=True, kw_only=True)
class AttentionRows:
    """A capture's attention, row by row (a row is a query of a sequence in a head), over the groups of a law.

    shares     [row, group] renormalised over candidates and BOS
    counts     [row, group] keys of each group
    entropy    [row] sum_s p_s log p_s over single keys
    sequence   [row]
    parts      the same key by key, for a positional term; empty without one
    basis      the functions of the distance that make up that term
    early      mean mass on early keys
    left_out   rows that were left out
    """

    shares: Float[np.ndarray, "row group"]
    counts: Float[np.ndarray, "row group"]
    entropy: Float[np.ndarray, " row"]
    sequence: Int64[np.ndarray, " row"]
    parts: tuple[PlacedPart, ...]
    basis: Float[np.ndarray, "distance term"]
    early: float
    left_out: int
    sequences: int

    def likelihood(self, law: LawDesign) -> Likelihood:
        """The likelihood of a law; its columns are the law's, then the positional terms."""
        design, sequence, sequences = law.design, self.sequence, self.sequences
        if self.basis.shape[1]:
            return PlacedLikelihood(parts=self.parts, design=design, sequence=sequence, sequences=sequences)
        return GroupLikelihood(
            shares=self.shares[None], counts=self.counts, design=design, sequence=sequence, sequences=sequences
        )

    def some(self, sequences: Bool[np.ndarray, " sequence"]) -> AttentionRows:
        """The rows of some of the sequences, marked in a boolean array."""
        chosen = sequences[self.sequence]
        parts, start = [], 0
        for part in self.parts:
            kept = chosen[part.rows]
            rows = slice(start, start + int(kept.sum()))
            start = rows.stop
            if kept.any():
                parts.append(
                    PlacedPart(rows=rows, groups=part.groups[kept], shares=part.shares[kept], places=part.places)
                )
        return AttentionRows(
            shares=self.shares[chosen],
            counts=self.counts[chosen],
            entropy=self.entropy[chosen],
            sequence=self.sequence[chosen],
            parts=tuple(parts),
            basis=self.basis,
            early=self.early,
            left_out=self.left_out,
            sequences=self.sequences,
        )


def attention_rows(cap: Capture, *, position: bool, own: bool = False) -> AttentionRows:
    """Walk the capture once and keep what a fit of its attention needs."""
    groups = (1 << cap.order + int(own)) + int(cap.has_sink)
    basis = distance_basis(count_distances(cap), terms=SPLINE_TERMS if position else 0)
    shares, counts, entropy, sequence, early, parts = [], [], [], [], [], []
    left_out = start = 0
    for view in query_views(cap):
        codes, pattern = _keys(view, order=cap.order, own=own, bos_group=groups - 1)
        covered = pattern.sum(axis=1)
        kept = covered > MIN_COVERED
        left_out += int((~kept).sum())
        codes, p = codes[kept], pattern[kept] / covered[kept, None]
        rows = slice(start, start + len(p))
        start = rows.stop
        shares.append(sum_by_group(codes, p, groups))
        counts.append(sum_by_group(codes, None, groups))
        entropy.append(xlogy(p, p).sum(axis=1))
        sequence.append(np.arange(len(cap.tokens))[view.sequences][kept])
        early.append(view.early_pattern.sum(axis=1))
        if basis.shape[1] and len(p):
            places = basis[view.distance] - basis[view.distance].mean(axis=0)
            places = np.concatenate([places, np.zeros((int(cap.has_sink), basis.shape[1]))])
            parts.append(PlacedPart(rows=rows, groups=codes, shares=p, places=places))
    return AttentionRows(
        shares=np.concatenate(shares) if shares else np.zeros((0, groups)),
        counts=np.concatenate(counts) if counts else np.zeros((0, groups)),
        entropy=np.concatenate(entropy) if entropy else np.zeros(0),
        sequence=np.concatenate(sequence) if sequence else np.zeros(0, dtype=np.int64),
        parts=tuple(parts),
        basis=basis,
        early=float(np.concatenate(early).mean()) if early else math.nan,
        left_out=left_out,
        sequences=int(cap.tokens.shape[0]),
    )


def _keys(view: QueryView, *, order: int, own: bool, bos_group: int) -> tuple[Array, Array]:
    """The group and the attention of every candidate key, BOS after them where there is one."""
    codes, pattern = view.masks, view.pattern
    if own:
        codes = codes | (view.tokens[:, order:] == view.tokens[:, -1:]).astype(np.int64) << order
    if view.bos_pattern is not None:
        codes = np.concatenate([codes, np.full((len(codes), 1), bos_group)], axis=1)
        pattern = np.concatenate([pattern, view.bos_pattern[:, None]], axis=1)
    return codes, pattern
