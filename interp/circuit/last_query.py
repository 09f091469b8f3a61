"""The same forward pass restricted to the last position, in a fraction of the time and memory.

    stream = before_match(model, ids)            what the match layer reads, at every position
    logits = from_match(model, stream)           the logits after the last token

A prediction needs every position of the copy layer, but only one query of the match layer. So the copy layer processes
`QUERIES` positions at a time (`attend`), and the match layer the last position alone, with the keys and values of the
past from TransformerLens' key-value cache. Hooks and weights are the model's own, and the numbers are those of a plain
run up to rounding.

Hooks see what is computed: at most `QUERIES` positions of the copy layer at a time, with the keys up to the last of
them, and one query of the match layer. Hooks of other code do not expect that. So `applies` is False for a model that
has any, and for every model that is not an `InductionTransformer`: these are run as they are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import einops
import torch
from jaxtyping import Float, Int64
from torch.nn import functional

from interp.hooked.transformer import InductionTransformer, RelativeBiasAttention
from interp.lens import HookedTransformer, KeyValueCacheEntry, simple_attn_linear

Hook: TypeAlias = tuple[str, Callable[..., Any]]

QUERIES = 64  # of the copy layer at a time; their scores fit into the processor's cache
SHOWN = ("blocks.0.attn.hook_pattern", "blocks.0.attn.hook_z")  # the hooks of the copy layer that `attend` calls


def applies(model: Any) -> bool:
    """Whether the model can be run this way: a model of this suite, unchanged, without other hooks."""
    if not isinstance(model, InductionTransformer) or not isinstance(model.blocks[0].attn, RelativeBiasAttention):
        return False
    # Switches of TransformerLens that give every head an input of its own.
    split = any(block.attn.cfg.use_split_qkv_input or block.attn.cfg.use_attn_in for block in model.blocks)
    return not split and not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def before_match(
    model: HookedTransformer, ids: Int64[torch.Tensor, "batch key"], *, hooks: Sequence[Hook] = ()
) -> Float[torch.Tensor, "batch key d_model"]:
    """The residual stream that enters the match layer. `hooks` are some of `SHOWN`, and see the copy layer in parts."""
    copy: Any = model.blocks[0]
    with torch.no_grad(), watched(model, hooks):
        stream = model(ids, prepend_bos=False, stop_at_layer=0)
        middle: torch.Tensor = stream + attend(copy.attn, copy.ln1(stream))
        return middle if copy.cfg.attn_only else middle + copy.mlp(copy.ln2(middle))


def attend(
    attention: RelativeBiasAttention, normed: Float[torch.Tensor, "batch key d_model"]
) -> Float[torch.Tensor, "batch key d_model"]:
    """What the attention layer adds to the stream, without the copies of arrays that TransformerLens makes."""
    length = normed.shape[1]
    queries, keys, values = attention.calculate_qkv_matrices(normed, normed, normed)
    queries = einops.rearrange(queries, "batch query head width -> batch head query width")
    keys = einops.rearrange(keys, "batch key head width -> batch head width key").contiguous()
    values = einops.rearrange(values, "batch key head width -> batch head key width").contiguous()
    # Row r of the windows holds the biases of query length - 1 - r, and -inf for the keys after it.
    after = attention.rel_bias.new_full((attention.rel_bias.shape[0], length - 1), -torch.inf)
    windows = torch.cat([attention.rel_bias[:, :length].flip(1), after], dim=1).unfold(1, length, 1)
    found = []
    for start in range(0, length, QUERIES):
        stop = min(start + QUERIES, length)
        scores = queries[:, :, start:stop] @ keys[..., :stop]
        if attention.attn_scale != 1:
            scores /= attention.attn_scale
        scores += windows[:, length - stop : length - start, :stop].flip(1)
        pattern = attention.hook_pattern(torch.softmax(scores, dim=-1))
        mixed = einops.rearrange(pattern @ values[:, :, :stop], "batch head query width -> batch query head width")
        found.append(attention.hook_z(mixed))
    mixed = einops.rearrange(torch.cat(found, dim=1), "batch query head width -> batch query (head width)")
    weight = einops.rearrange(attention.W_O, "head width d_model -> d_model (head width)")
    return functional.linear(mixed, weight, attention.b_O)


def from_match(
    model: HookedTransformer, stream: Float[torch.Tensor, "batch key d_model"], *, hooks: Sequence[Hook] = ()
) -> Float[torch.Tensor, "batch d_vocab_out"]:
    """The logits after the last token. `hooks` are for the match layer and what follows, and see the last position."""
    match = model.blocks[1]
    with torch.no_grad():
        # The past is read before the hooks are added: they must see only the last position, once. It needs no queries.
        normed, attention = match.ln1(stream[:, :-1]), match.attn
        past = KeyValueCacheEntry(
            past_keys=simple_attn_linear(normed, attention.W_K, attention.b_K),
            past_values=simple_attn_linear(normed, attention.W_V, attention.b_V),
        )
        with watched(model, hooks):
            last = match(stream[:, -1:], past_kv_cache_entry=past)
            logits: torch.Tensor = model(last, prepend_bos=False, start_at_layer=len(model.blocks))
    return logits[:, -1]


@contextlib.contextmanager
def watched(model: HookedTransformer, hooks: Sequence[Hook]) -> Iterator[None]:
    """`model.hooks` for a model without hooks: at the end it visits only the points that were used."""
    points = [(model.hook_dict[name], hook) for name, hook in hooks]
    try:
        for point, hook in points:
            point.add_hook(hook)
        yield
    finally:
        for point, _ in points:
            point.remove_hooks("fwd")
