"""Which queries of a sequence are read: the last, all, those that a model was trained at, or some by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import torch
from jaxtyping import Int64

from interp.arguments import is_whole, plain_array, shown
from interp.circuit.circuit import Circuit
from interp.hooked.transformer import InductionTransformer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Query: TypeAlias = Literal["last", "all", "trained"] | Sequence[int] | torch.Tensor | NDArray[Any]
else:  # checked by `query_positions`
    Query = Any

NAMES = "'last', 'all', 'trained' or a list of token indices"


def query_positions(query: Query, circuit: Circuit, length: int) -> Int64[torch.Tensor, " query"]:
    """The key index of every query that was asked for; BOS, where there is one, is key 0.

    "trained" is where the model's loss has a target. For a model of this suite that is the last position. Other models
    are assumed to be next-token models: all positions of a full context except the last, which has no next token.
    """
    bos = int(circuit.has_bos)
    if isinstance(query, str):
        if query not in ("last", "all", "trained"):
            raise ValueError(f"query must be {NAMES}, got {shown(query)}")
        every = torch.arange(length + bos)
        if query == "all":
            return every
        if query == "last" or isinstance(circuit.model, InductionTransformer):
            return every[-1:]
        return every[: len(every) - int(last_is_untrained(circuit, length))]
    listed: Any = plain_array(query, name="query").tolist() if hasattr(query, "ndim") else query
    asked = list(listed) if isinstance(listed, Iterable) else []
    if not asked and isinstance(listed, Iterable):
        raise ValueError("query lists no token index")
    if not asked or not all(is_whole(t) for t in asked):
        raise ValueError(f"query must be {NAMES}, got {shown(query)}")
    for t in asked:
        if not -length <= t < length:
            raise ValueError(f"query {t} is outside the tokens 0..{length - 1}")
    return torch.tensor(sorted({int(t) % length for t in asked})) + bos


def last_is_untrained(circuit: Circuit, length: int) -> bool:
    """Whether a next-token loss never reaches the last position: the context is full, so that no token can follow."""
    if isinstance(circuit.model, InductionTransformer):
        return False
    return length + circuit.has_bos == int(circuit.model.cfg.n_ctx)


def untrained_note(queries: Int64[torch.Tensor, " query"], circuit: Circuit, length: int) -> str:
    """A warning where only the last position of a full context is read, else nothing."""
    if not last_is_untrained(circuit, length) or queries.tolist() != [length - 1 + circuit.has_bos]:
        return ""
    return (
        "the last position of a full context has no next token: a next-token loss never trained it "
        "(query='trained' reads the others)"
    )
