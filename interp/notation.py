"""The glossary: read this file after the README. Every other module uses these words.

Axes, as they appear in jaxtyping annotations
    batch   independent sequences                      vocab   a symbol m in V
    length  token positions, BOS never among them      mask    a subset M of the lags [k], 2**k of them
    query   the position that attends                  lag     r in [k]; 1 is the most recent token
    key     the position attended to                   block   a |V|-wide slice of the residual stream
    head    attention heads of one layer               order   0..k, the size of a sub-context

Words
    copy / match   the circuit's first and second attention layer (`blocks.0` / `blocks.1`)
    mask           an int; bit r-1 is set when lag r matches: the query's x_{t-r+1} equals the key's x_{s-r}
                   (def:match_mask). It prints as `{1,2}`; its popcount is the overlap |M|.
    candidate      a key s in [k', T]: one that has k tokens before it. s = T itself is a candidate, as in
                   def:match_mask and as a causal head sees it (lemma:optimal_beta counts one fewer).
    early          a key with fewer than k tokens before it, which the construction shuts out
    bos            the beginning-of-sequence key, always at model position 0 where the model has one
    scores/pattern  attention before / after the softmax
    beta, kappa    match weight per lag, and the score of BOS relative to an empty match
    next_law       pi_{u_T}, the true law of the token after the last one

Token arrays never contain BOS: `length` is the number of real tokens, and a model with BOS sees length + 1
positions. In arrays, lag r sits at index r - 1 and the context code puts lag 1 in the lowest digit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from jaxtyping import Float, Int64
from numpy.typing import NDArray

from interp.arguments import Number, Numbers, Whole, finite_number, plain_array, real_array, shown, whole_number

if TYPE_CHECKING:
    import torch

    class Chains(Protocol):
        """Sequences with their tokens, such as a `ChainBatch`."""

        @property
        def tokens(self) -> torch.Tensor: ...

    Tokens: TypeAlias = torch.Tensor | NDArray[Any] | Sequence[Sequence[int]] | Chains
else:
    Tokens = Any

OVERLAP_KINDS = ("full", "partial", "none", "bos", "early")  # a candidate is classified by its overlap
MAX_ORDER = 12  # 2**12 masks; with more, arrays over masks become large
MAX_VOCAB = 1 << 20  # symbols; the largest vocabularies of language models have a quarter of that
# Concentrations outside this range act as 0 or infinity in any sampler: their products and logs leave the range of
# floats.
LEAST_CONCENTRATION, MOST_CONCENTRATION = 1e-100, 1e100


def as_tokens(
    tokens: Tokens, *, vocab: int | None = None, order: int | None = None
) -> Int64[np.ndarray, "batch length"]:
    """The tokens, also those of chains, as a checked int64 array, or a `ValueError` that names what is wrong.

    >>> as_tokens([[0, 1, 2, 0]], vocab=3, order=2).shape
    (1, 4)
    """
    array = plain_array(getattr(tokens, "tokens", tokens), name="tokens")
    if array.ndim != 2:
        raise ValueError(f"tokens must have shape [batch, length], got {array.ndim} dimensions {array.shape}")
    if array.shape[0] == 0:
        raise ValueError("tokens hold no sequence: the batch is empty")
    if not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"tokens must be integers, got {array.dtype}")
    array = np.array(array, dtype=np.int64, order="C")  # a copy: results must not share memory with the caller
    if order is not None and array.shape[1] <= order:
        raise ValueError(f"sequences must be longer than the order: length {array.shape[1]}, order {order}")
    if array.shape[1] == 0:
        raise ValueError("tokens hold no position: the length is 0")
    if vocab is not None:
        lowest, highest = int(array.min()), int(array.max())
        if lowest < 0 or highest >= vocab:
            bad = lowest if lowest < 0 else highest
            raise ValueError(f"token {bad} is outside the vocabulary 0..{vocab - 1}")
    return array


def check_order(order: Whole) -> int:
    """An order k >= 1 that this suite can hold masks for."""
    number = whole_number(order, name="order", least=1)
    if number > MAX_ORDER:
        raise ValueError(f"order must be at most {MAX_ORDER} (there are 2**order masks), got {shown(number)}")
    return number


def check_vocab(vocab: Whole) -> int:
    """A vocabulary size |V| >= 2."""
    return whole_number(vocab, name="vocab", least=2, most=MAX_VOCAB)


def check_concentration(value: Number, *, name: str) -> float:
    """A pseudo-count or concentration, such as alpha or eta: a number > 0 within the range that samplers can use."""
    number = finite_number(value, name=name, above=0, most=MOST_CONCENTRATION)
    if number < LEAST_CONCENTRATION:
        raise ValueError(f"{name} must be at least {LEAST_CONCENTRATION:g}, got {number:g}")
    return number


def as_alpha(alpha: Any, *, vocab: int, name: str = "alpha") -> Float[np.ndarray, " vocab"]:
    """One pseudo-count > 0 per symbol; a single number is used for all symbols.

    >>> as_alpha(0.5, vocab=3).tolist(), as_alpha((1, 2, 3), vocab=3).tolist()
    ([0.5, 0.5, 0.5], [1.0, 2.0, 3.0])
    """
    plain = real_array(alpha, name=name) if np.ndim(alpha) else check_concentration(alpha, name=name)
    array = np.asarray(plain)
    if array.ndim > 1 or (array.ndim == 1 and array.size != vocab):
        raise ValueError(f"{name} must be one number, or one per symbol ({vocab} of them), got shape {array.shape}")
    for value in array.ravel().tolist():
        check_concentration(value, name=name)
    return np.broadcast_to(array, (vocab,)).copy()


def as_beta(beta: Numbers, *, order: int | None = None) -> Float[np.ndarray, " lag"]:
    """One finite match weight per lag, lag 1 first."""
    array = real_array(beta, name="beta")
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"beta must list one number per lag, e.g. (2.7, 1.2), got shape {array.shape}")
    if order is not None and array.size != order:
        raise ValueError(f"beta must have one number per lag: expected {order}, got {array.size}")
    check_order(array.size)
    check_sum(array)
    return array


def check_sum(beta: NDArray[np.float64]) -> None:
    """Refuse match weights of which the sum is not finite."""
    with np.errstate(over="ignore"):
        if not math.isfinite(np.abs(beta).sum()):
            raise ValueError(f"beta must be finite, and so must its sum, got {beta.tolist()}")


def as_kappa(kappa: Number | None) -> float | None:
    """A finite BOS score, or None where there is no BOS (the paper's kappa = -inf)."""
    if kappa is None or (isinstance(kappa, (float, np.floating)) and kappa == -math.inf):
        return None
    try:
        return finite_number(kappa, name="kappa")
    except ValueError:
        raise ValueError(f"kappa must be finite, or None where there is no BOS, got {shown(kappa)}") from None


def overlap(mask: Whole) -> int:
    """|M|: how many lags match.

    >>> overlap(0b101)
    2
    """
    return whole_number(mask, name="mask").bit_count()


def mask_name(mask: Whole) -> str:
    """The mask as the paper writes it.

    Parameters
    ----------
    mask
        Bit r-1 is set where lag r matches.

    Returns
    -------
    str
        The lags in braces.

    Examples
    --------
    >>> mask_name(0b101), mask_name(0)
    ('{1,3}', '{}')
    """
    bits = whole_number(mask, name="mask")
    return "{" + ",".join(str(lag + 1) for lag in range(bits.bit_length()) if bits >> lag & 1) + "}"


def mask_bits(order: int) -> Int64[np.ndarray, "mask lag"]:
    """Row M, column r-1: 1 where lag r belongs to mask M. So `mask_bits(k) @ beta` is |beta|_M for every M.

    >>> mask_bits(2).tolist()
    [[0, 0], [1, 0], [0, 1], [1, 1]]
    """
    masks = np.arange(1 << order, dtype=np.int64)
    return (masks[:, None] >> np.arange(order, dtype=np.int64)[None, :]) & 1


def is_contiguous(mask: Whole) -> bool:
    """Whether the mask is a suffix of the context, {1..i}: classical back-off uses only these partial matches.

    >>> [is_contiguous(mask) for mask in range(4)]
    [True, True, False, True]
    """
    bits = whole_number(mask, name="mask")
    return bits & (bits + 1) == 0


def key_kinds(masks: Int64[np.ndarray, " key"], *, order: int, bos: bool) -> list[str]:
    """What each key is to the query: `bos`, `early`, or a candidate of which `full`, `partial` or `none` matches.

    `masks` are one query's match masks without BOS, as `match_masks` gives them: -1 where a key is not a candidate.

    >>> key_kinds(np.array([-1, -1, 3, 0, 1]), order=2, bos=True)
    ['bos', 'early', 'early', 'full', 'none', 'partial']
    """
    kinds = ["bos"] if bos else []
    for mask in masks.tolist():
        if mask < 0:
            kinds.append("early")
        elif overlap(mask) == order:
            kinds.append("full")
        else:
            kinds.append("partial" if mask else "none")
    return kinds


def kind_masses(weights: Float[np.ndarray, " key"], kinds: Sequence[str]) -> dict[str, float]:
    """One query's attention on each kind of key, for all of `OVERLAP_KINDS`; the numbers sum to one.

    >>> kind_masses(np.array([0.25, 0.25, 0.5]), ["bos", "full", "full"])
    {'full': 0.75, 'partial': 0.0, 'none': 0.0, 'bos': 0.25, 'early': 0.0}
    """
    found = np.array(kinds)
    return {kind: float(weights[found == kind].sum()) for kind in OVERLAP_KINDS}
