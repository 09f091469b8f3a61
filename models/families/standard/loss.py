"""Loss, gradients and predictions.

The sequences go through in groups small enough for the cache, each forward and backward before the next.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional

from interp.hooked.transformer import COPY, InductionConfig, InductionTransformer
from models.families.standard.copy_layer import CopyLayer, Counts, make_tables
from models.families.standard.match_layer import read_out
from models.families.standard.parameters import from_hooked, views
from models.training.trainers import one_thread

GROUP_ROWS = 4096  # stream rows worked on at once: a few MiB of hidden activations


def _onehot(config: InductionConfig, tokens: Int64[Tensor, "batch length"]) -> Float[Tensor, "symbol batch key"]:
    """Tokens, after BOS where there is one, as indicator rows."""
    if config.bos:
        tokens = functional.pad(tokens, (1, 0), value=config.vocab)
    symbols = torch.arange(config.vocab + config.bos, device=tokens.device)
    return (tokens == symbols[:, None, None]).to(config.torch_dtype)


def _group_size(config: InductionConfig, batch: int) -> int:
    return max(1, min(batch, round(GROUP_ROWS / config.n_ctx)))


def loss_and_gradient(
    config: InductionConfig,
    flat: Float[Tensor, " size"],
    tokens: Int64[Tensor, "batch length"],
    target: Float[Tensor, "batch vocab"],
) -> tuple[Float[Tensor, ""], Float[Tensor, " size"]]:
    """The mean cross-entropy of the law `target` at the last position, and its gradient in the layout of `flat`."""
    flat, target = flat.detach().clone().requires_grad_(), target.to(flat)
    batch = len(tokens)
    params = views(config, flat)
    decay, tables = make_tables(config, params)
    onehot = _onehot(config, tokens)
    counts = Counts.apply(decay, onehot)
    # Groups of sequences run forward and backward in turn, each up to here; the rest of the backward pass is done once,
    # for all.
    late = {name: value for name, value in params.items() if not name.startswith((COPY, "embed"))}
    joints = [*tables, *late.values()]
    leaves = [joint.detach().requires_grad_() for joint in joints]
    leaf_tables, leaf_params = leaves[: len(leaves) - len(late)], dict(zip(late, leaves[-len(late) :], strict=True))
    pull_counts = torch.empty_like(counts)
    loss = flat.new_zeros(())
    size = _group_size(config, batch)
    for start in range(0, batch, size):
        part = slice(start, start + size)
        leaf = counts[:, :, part].detach().contiguous().requires_grad_()
        stream = CopyLayer.apply(leaf, *leaf_tables, onehot[:, part])
        laws = functional.log_softmax(read_out(config, leaf_params, stream), dim=-1)
        part_loss = -(laws * target[part]).sum() / batch
        part_loss.backward()
        pull_counts[:, :, part] = leaf.grad
        loss += part_loss.detach()
    pulls = [leaf.grad for leaf in leaves]
    live = [index for index, pull in enumerate(pulls) if pull is not None]  # nothing reads the match head's b_K
    torch.autograd.backward(
        [counts, *(joints[index] for index in live)], [pull_counts, *(pulls[index] for index in live)]
    )
    assert flat.grad is not None
    if config.bos:
        width = config.stream_width
        flat.grad[config.vocab * width : (config.vocab + 1) * width] = 0.0  # the BOS row; W_E comes first
    return loss, flat.grad


@torch.no_grad()
def predict(
    config: InductionConfig, flat: Float[Tensor, " size"], tokens: Int64[Tensor, "batch length"]
) -> Float[Tensor, "batch vocab"]:
    """The law of the token after the last one, in float64."""
    laws = []
    with one_thread():
        params = views(config, flat)
        decay, tables = make_tables(config, params)
        for part in tokens.split(_group_size(config, len(tokens))):
            onehot = _onehot(config, part)
            stream = CopyLayer.apply(Counts.apply(decay, onehot), *tables, onehot)
            laws.append(torch.softmax(read_out(config, params, stream).double(), dim=-1))
    return torch.cat(laws)


def predict_hooked(model: InductionTransformer, tokens: Int64[Tensor, "batch length"]) -> Float[Tensor, "batch vocab"]:
    """`interp.predict` for a model of the standard family at its full length, many times faster for long sequences."""
    return predict(model.config, from_hooked(model), tokens)
