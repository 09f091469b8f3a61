"""Laws of attention as designs: which parameters make up the score of each group of keys.

A group is a mask of matching lags, or, with lag 0, a mask and whether the key's own token is the query's; BOS is the
last group where there is one. `scores = design @ parameters`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
from jaxtyping import Float

from interp.arguments import shown
from interp.notation import mask_bits, mask_name

Law: TypeAlias = Literal["additive", "suffix", "free"]


@dataclass(frozen=True, kw_only=True)
class LawDesign:
    """A law over groups of keys.

    parameters   the name of every column: beta_0 (lag 0, where asked for), beta_1 .. beta_k or score_{..}, kappa
    design       [group, column]
    sizes        [group, size] 1 where a group has overlap 0..k; BOS is the last size where there is one
    beta         the columns of beta_1 .. beta_k
    own, kappa   the columns of beta_0 and of kappa, or None
    """

    law: Law
    parameters: tuple[str, ...]
    design: Float[np.ndarray, "group column"]
    sizes: Float[np.ndarray, "group size"]
    beta: tuple[int, ...]
    own: int | None
    kappa: int | None

    @property
    def matches(self) -> list[int]:
        """The columns that weigh matches: all but kappa, which is the baseline's, too."""
        return [column for column in range(len(self.parameters)) if column != self.kappa]


def law_design(law: Law, *, order: int, bos: bool, own: bool = False) -> LawDesign:
    """The design of a law.

    >>> law_design("suffix", order=2, bos=False).design.tolist()
    [[0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [1.0, 1.0]]
    """
    if law not in get_args(Law):
        raise ValueError(f"law must be 'additive', 'suffix' or 'free', got {shown(law)}")
    bits = mask_bits(order).astype(np.float64)
    masks = len(bits)
    if law == "free":  # a column for every group but the empty one; lag 0 doubles the masks
        columns = np.eye(masks << own)[:, 1:]
        groups = range(1, masks << own)
        names = [f"score_{mask_name(group & masks - 1)}{'+0' if group >= masks else ''}" for group in groups]
        beta, own_column = [(1 << lag) - 1 for lag in range(order)], masks - 1
    else:
        columns = bits if law == "additive" else np.cumprod(bits, axis=1, dtype=np.float64)
        names = [f"beta_{lag}" for lag in range(1, order + 1)] + ["beta_0"] * own
        beta, own_column = list(range(order)), order
        if own:
            columns = np.concatenate([np.tile(columns, (2, 1)), np.repeat([0.0, 1.0], masks)[:, None]], axis=1)
    sizes = np.tile(np.eye(order + 1)[bits.sum(axis=1).astype(int)], (1 + own, 1))
    if bos:
        columns, sizes = _with_bos(columns), _with_bos(sizes)
    return LawDesign(
        law=law,
        parameters=(*names, *["kappa"] * bos),
        design=columns,
        sizes=sizes,
        beta=tuple(beta),
        own=own_column if own else None,
        kappa=columns.shape[1] - 1 if bos else None,
    )


def _with_bos(table: Float[np.ndarray, "group column"]) -> Float[np.ndarray, "group_bos column_bos"]:
    """A row and a column more, for BOS alone."""
    return np.block([[table, np.zeros((len(table), 1))], [np.zeros((1, table.shape[1])), 1.0]])
