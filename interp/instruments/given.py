"""What instruments are given: a model, and a law of its match heads.

    laws = laws_of_heads(fit, order=2, bos=True, heads=1)
    laws.heads[0].beta, laws.heads[0].kappa, laws.note

A law is what `fit_scores` returns, or any result with a `beta` and a `kappa`; or a pair (weights, kappa), where the
weights are one number for each lag or one for each mask, for all match heads or a row for each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from jaxtyping import Float

from interp.arguments import Numbers, real_array, shown
from interp.circuit.capture import Capture
from interp.notation import as_kappa, mask_bits

if TYPE_CHECKING:
    from interp.circuit.circuit import Model
    from interp.instruments.lag_pairs import PairFit

    Captured: TypeAlias = Capture

    class WithLaw(Protocol):
        """A result with a beta for each lag and a kappa."""

        @property
        def beta(self) -> Any: ...
        @property
        def kappa(self) -> Any: ...

    Law: TypeAlias = WithLaw | tuple[Numbers, Numbers | float | None]
    PairLaw: TypeAlias = PairFit | tuple[Numbers, float | None]
    Laws: TypeAlias = Mapping[str, Law]
    Models: TypeAlias = Sequence[Model]
    NextLaw: TypeAlias = Numbers
else:
    Captured = Models = Law = Laws = PairLaw = NextLaw = Any  # checked below, which says more than a type checker would


@dataclass(frozen=True, kw_only=True)
class HeadLaw:
    """The law of one match head.

    by_mask   score of a key by its mask
    kappa     score of BOS, None without BOS
    beta      the weight of each lag; None where the law is not additive
    """

    by_mask: Float[np.ndarray, " mask"]
    kappa: float | None
    beta: Float[np.ndarray, " lag"] | None


@dataclass(frozen=True, kw_only=True)
class HeadLaws:
    """The laws of all match heads, none where the fit is not to be trusted; `note` is what the fit says of itself."""

    heads: tuple[HeadLaw, ...] = ()
    note: str = ""


def check_capture(cap: Any) -> None:
    """Refuse what is no capture, such as a model."""
    if not isinstance(cap, Capture):
        raise ValueError(f"expected what ip.capture(model, tokens) returns, got {type(cap).__name__}")


def laws_of_heads(law: Law, *, order: int, bos: bool, heads: int = 1) -> HeadLaws:
    """The law of each match head, or one for all, of this order, with kappa exactly where there is BOS."""
    if isinstance(law, tuple) and len(law) == 2:
        return HeadLaws(heads=tuple(_rows(law[0], law[1], order=order, bos=bos, heads=heads)))
    if isinstance(law, (str, type)) or not hasattr(law, "beta") or not hasattr(law, "kappa"):
        raise ValueError(f"law must be a fit, such as fit_scores(cap), or a pair (beta, kappa), got {shown(law)}")
    if not getattr(law, "success", True):
        return HeadLaws(note=str(getattr(law, "message", "")))
    lags = np.shape(law.beta)
    if lags != (order,):
        of = "weights for pairs of lags" if len(lags) == 2 else f"order {lags[0] if lags else 0}"
        raise ValueError(f"law must be of order {order}, got a fit of {of}")
    own: Sequence[Any] = getattr(law, "heads", ()) if heads > 1 else ()
    if own and len(own) != heads:
        raise ValueError(f"the fit has {len(own)} match heads, the circuit {heads}")
    fits: Sequence[Any] = own if own and all(one.success for one in own) else (law,) * heads
    free = getattr(law, "law", "additive") != "additive" or getattr(law, "own", None) is not None
    found = [_rows(one.mask_score if free else one.beta, one.kappa, order=order, bos=bos, heads=1) for one in fits]
    return HeadLaws(heads=tuple(row for rows in found for row in rows), note=str(getattr(law, "message", "")))


def _rows(weights: Any, kappa: Any, *, order: int, bos: bool, heads: int) -> list[HeadLaw]:
    """One law for all heads, or a row of weights and a kappa for each."""
    table = real_array(weights, name="the law's weights")
    scores = [None] * heads if kappa is None else np.ravel(real_array(kappa, name="kappa")).tolist()
    scores = scores * heads if len(scores) == 1 else scores
    table = table if table.ndim == 2 else np.stack([table] * heads)
    if table.shape not in ((heads, order), (heads, 1 << order)):
        raise ValueError(
            f"the law has weights of shape {list(np.shape(weights))}; at order {order} with {heads} match "
            f"head{'s' * (heads > 1)} expected {order} (one for each lag) or {1 << order} (one for each mask), "
            "or a row of these for each head"
        )
    if len(scores) != heads:
        raise ValueError(f"kappa has {len(scores)} numbers, but the circuit has {heads} match heads")
    if not np.isfinite(table).all():
        raise ValueError("the law's weights must be finite")
    if (kappa is None) == bos:
        raise ValueError(f"the law has {'no ' * (kappa is None)}kappa, the model {'a' if bos else 'no'} BOS to score")
    additive = table.shape[1] == order
    return [
        HeadLaw(
            by_mask=mask_bits(order) @ row if additive else row, kappa=as_kappa(score), beta=row if additive else None
        )
        for row, score in zip(table, scores, strict=True)
    ]
