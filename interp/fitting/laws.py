"""Laws of attention as designs: which parameters make up the score of each group of keys.

A group is a mask of matching lags, or, with lag 0, a mask and whether the key's own token is the query's; BOS is the
last group where there is one. `scores = design @ parameters`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
from jaxtyping import Bool, Float, Int64

from interp.arguments import shown
from interp.notation import check_order, mask_bits, mask_name, overlap

Law: TypeAlias = Literal["additive", "suffix", "free"]


@dataclass(frozen=True, kw_only=True)
class LawDesign:
    """A law over groups of keys.

    parameters   the name of every column: beta_0 (lag 0, where asked for), beta_1 .. beta_k or score_{..}, kappa
    design       [group, column]
    matches      the columns that weigh matches; the others, kappa, are the baseline's, too
    beta         the columns of beta_1 .. beta_k
    own          the column of beta_0, or None
    kappa        the column of kappa, or None
    """

    law: Law
    order: int
    parameters: tuple[str, ...]
    design: Float[np.ndarray, "group column"]
    beta: tuple[int, ...]
    own: int | None
    kappa: int | None

    @property
    def matches(self) -> list[int]:
        """All columns but that of kappa."""
        return [column for column in range(len(self.parameters)) if column != self.kappa]

    @property
    def groups(self) -> int:
        """How many groups there are, BOS among them."""
        return len(self.design)


def law_design(law: Law, *, order: int, bos: bool, own: bool = False) -> LawDesign:
    """The design of a law.

    >>> law_design("suffix", order=2, bos=False).design.tolist()
    [[0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [1.0, 1.0]]
    """
    if law not in get_args(Law):
        raise ValueError(f"law must be 'additive', 'suffix' or 'free', got {shown(law)}")
    check_order(order)
    bits = mask_bits(order).astype(np.float64)
    masks = len(bits)
    if law == "free":
        # A column for every group but the empty one; lag 0 doubles the masks.
        size = masks << int(own)
        columns = np.eye(size)[:, 1:]
        names = [f"score_{mask_name(group & masks - 1)}{'+0' if group >= masks else ''}" for group in range(1, size)]
        beta = [(1 << lag) - 1 for lag in range(order)]
        own_column = masks - 1 if own else None
    else:
        columns = bits if law == "additive" else np.cumprod(bits, axis=1, dtype=np.float64)
        names = [f"beta_{lag}" for lag in range(1, order + 1)]
        beta = list(range(order))
        own_column = None
        if own:
            columns = np.concatenate([np.tile(columns, (2, 1)), np.repeat([0.0, 1.0], masks)[:, None]], axis=1)
            names, own_column = [*names, "beta_0"], order
    if bos:
        columns = np.block([[columns, np.zeros((len(columns), 1))], [np.zeros((1, columns.shape[1])), 1.0]])
        names = [*names, "kappa"]
    return LawDesign(
        law=law,
        order=order,
        parameters=tuple(names),
        design=columns,
        beta=tuple(beta),
        own=own_column,
        kappa=columns.shape[1] - 1 if bos else None,
    )


def group_sizes(*, order: int, bos: bool, own: bool = False) -> Int64[np.ndarray, " group"]:
    """The overlap |M| of every group; k + 1 for BOS.

    >>> group_sizes(order=2, bos=True).tolist()
    [0, 1, 1, 2, 3]
    """
    sizes = [overlap(mask) for mask in range(1 << order)] * (2 if own else 1)
    return np.array([*sizes, *([order + 1] if bos else [])])


def into_sizes(sizes: Int64[np.ndarray, " group"], *, order: int) -> Bool[np.ndarray, "group size"]:
    """Which groups have overlap 0..k, and which is BOS (the last column): sums by group become sums by overlap."""
    return np.asarray(sizes[:, None] == np.arange(max(int(sizes.max()), order) + 1))
