"""The same forward pass restricted to the last position, in a fraction of the time and memory.

    stream = before_match(model, ids)            what the match layer reads, at every position
    logits = from_match(model, stream)           the logits after the last token

A prediction needs every position of the copy layer, but no more than one query of the match layer; and no layer needs
all its queries at once. TransformerLens' key-value cache, made for generation, provides this: a block that is given the
keys and values of the past computes a few queries alone. So the copy layer processes the sequence `QUERIES` positions
at a time, and the match layer only the last position. Hooks and weights are the model's own, and the numbers are those
of a plain run up to rounding. The copy layer's attention is computed by `attend`, unless hooks need more than it shows:
the same sums, without the copies of arrays that TransformerLens makes at every step.

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

Hook: TypeAlias = tuple[str | Callable[..., Any], Callable[..., Any]]

QUERIES = 64  # of the copy layer at a time; their scores fit into the processor's cache
SHOWN = ("blocks.0.attn.hook_pattern", "blocks.0.attn.hook_z")  # what hooks can see of `attend`


def applies(model: Any) -> bool:
    """Whether the model can be run this way: a model of this suite, unchanged, without other hooks."""
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
    copy: Any = model.blocks[0]
    with torch.no_grad(), watched(model, hooks):
        stream = model(ids, prepend_bos=False, stop_at_layer=0)
        if isinstance(copy.attn, RelativeBiasAttention) and all(name in SHOWN for name, _ in hooks):
            middle: torch.Tensor = stream + attend(copy.attn, copy.ln1(stream))
            if copy.cfg.attn_only:
                return middle
            after: torch.Tensor = middle + copy.mlp(copy.ln2(middle))
            return after
        past = KeyValueCacheEntry.init_cache_entry(copy.attn.cfg, stream.device, len(ids))
        return torch.cat([copy(part, past_kv_cache_entry=past) for part in stream.split(QUERIES, dim=1)], dim=1)


def attend(
    attention: RelativeBiasAttention, normed: Float[torch.Tensor, "batch key d_model"]
) -> Float[torch.Tensor, "batch key d_model"]:
    """What the attention layer adds to the stream; hooks on pattern and output see some queries at a time."""
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


@contextlib.contextmanager
def watched(model: HookedTransformer, hooks: Sequence[Hook]) -> Iterator[None]:
    """Like `model.hooks`, but at the end it visits only the hook points that were used, not all of them."""
    if not all(isinstance(name, str) for name, _ in hooks):
        with model.hooks(fwd_hooks=list(hooks)):
            yield
        return
    points = [(model.hook_dict[name], hook) for name, hook in hooks if isinstance(name, str)]
    model.context_level += 1
    try:
        for point, hook in points:
            point.add_hook(hook, dir="fwd", level=model.context_level)
        yield
    finally:
        for point, _ in points:
            point.remove_hooks("fwd", level=model.context_level)
        model.context_level -= 1


def from_match(
    model: HookedTransformer, stream: Float[torch.Tensor, "batch key d_model"], *, hooks: Sequence[Hook] = ()
) -> Float[torch.Tensor, "batch d_vocab_out"]:
    """The logits after the last token. `hooks` are for the match layer and what follows, and see the last position."""
    match = model.blocks[1]
    with torch.no_grad():
        # The past is read before the hooks are added: they must see only the last position, once. It needs no queries.
        normed = match.ln1(stream[:, :-1])
        attention = match.attn
        keys = simple_attn_linear(normed, attention.W_K, attention.b_K)
        values = simple_attn_linear(normed, attention.W_V, attention.b_V)
        past = KeyValueCacheEntry(past_keys=keys, past_values=values)
        with watched(model, hooks):
            last = match(stream[:, -1:], past_kv_cache_entry=past)
            logits: torch.Tensor = model(last, prepend_bos=False, start_at_layer=len(model.blocks))
    return logits[:, -1]
