"""The same forward pass for one who reads the last position only, in a fraction of the time and memory.

    stream = before_match(model, ids)            what the match layer reads, at every position
    logits = from_match(model, stream)           the logits after the last token

A prediction needs every position of the copy layer, but no more than one query of the match layer; and no layer needs
all its queries at once. TransformerLens' key-value cache, made for generation, says just that: a block that is given
the keys and values of the past takes a few queries alone. So the copy layer goes through the sequence `QUERIES`
positions at a time, and the match layer takes the last position. Nothing is computed in another way: blocks, hooks and
weights are the model's own, and the numbers are those of a plain run up to rounding.

Hooks see what is computed: at most `QUERIES` positions of the copy layer at a time, with the keys up to the last of
them, and one query of the match layer. Someone else's hook would not expect that, so `applies` says no to a model that
has any: such a model is to be run as it is, and so is every model that is not an `InductionTransformer`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from jaxtyping import Float, Int64

from interp.hooked.transformer import InductionTransformer
from interp.lens import HookedTransformer, KeyValueCacheEntry

Hook: TypeAlias = tuple[str | Callable[..., Any], Callable[..., Any]]

QUERIES = 64  # of the copy layer at a time: few enough that their scores stay in the processor's cache


def applies(model: Any) -> bool:
    """Whether the model can be run this way: one of this suite's, as it came, with nobody else's hooks on it."""
    if not isinstance(model, InductionTransformer):
        return False
    # Switches of TransformerLens that give every head an input of its own.
    split = any(block.attn.cfg.use_split_qkv_input or block.attn.cfg.use_attn_in for block in model.blocks)
    watched = any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    return not split and not watched


def before_match(
    model: HookedTransformer, ids: Int64[torch.Tensor, "batch key"], *, hooks: Sequence[Hook] = ()
) -> Float[torch.Tensor, "batch key d_model"]:
    """The residual stream that enters the match layer. `hooks` are for the copy layer, and see it in parts."""
    copy = model.blocks[0]
    with torch.no_grad(), model.hooks(fwd_hooks=list(hooks)):
        stream = model(ids, prepend_bos=False, stop_at_layer=0)
        past = KeyValueCacheEntry.init_cache_entry(copy.attn.cfg, stream.device, len(ids))
        return torch.cat([copy(part, past_kv_cache_entry=past) for part in stream.split(QUERIES, dim=1)], dim=1)


def from_match(
    model: HookedTransformer, stream: Float[torch.Tensor, "batch key d_model"], *, hooks: Sequence[Hook] = ()
) -> Float[torch.Tensor, "batch d_vocab_out"]:
    """The logits after the last token. `hooks` are for the match layer and what follows, and see the last position."""
    match = model.blocks[1]
    with torch.no_grad():
        # The past is read before the hooks come on: they are to see the last position, once.
        normed = match.ln1(stream[:, :-1])
        _, keys, values = match.attn.calculate_qkv_matrices(normed, normed, normed)
        past = KeyValueCacheEntry(past_keys=keys, past_values=values)
        with model.hooks(fwd_hooks=list(hooks)):
            last = match(stream[:, -1:], past_kv_cache_entry=past)
            logits: torch.Tensor = model(last, prepend_bos=False, start_at_layer=len(model.blocks))
    return logits[:, -1]
