"""The standard transformer (sec:models) trained fast: several seeds in one model, and only what the last token needs.

    config = standard_config(order=2, vocab=5, length=64, bos=True)
    state = StackedState.start(config, seeds=(0, 1, 2))
    losses = train_chunk(config, state, prior, np.full(1000, 1e-3))     # [steps, seeds]
    model = to_hooked(config, state.params, 0)                          # an InductionTransformer

The maths is exact: loss and gradients are those of the HookedTransformer of the same weights.

- The copy layer reads symbols, of which there are |V| + 1, so its LayerNorm, queries, keys and values are tables.
  With C_m(i) = sum over j <= i with x_j = m of exp(r_{i-j}), the share of symbol m in a head's output at position i
  is exp(S[x_i, m]) C_m(i), normalised over m. C is one product of a Toeplitz matrix with the one-hot tokens. Row i
  of the matrix is taken relative to its own largest bias, so no row underflows, however sharp the head.
- Every read of the stream is behind a LayerNorm, which does not see the mean: all writes are centred beforehand, and
  a LayerNorm is then a division by a root mean square. The stream after the copy heads is linear in (one-hot token,
  shares), (k+1)(|V|+1) numbers, so the first matrix of the MLP is applied to those.
- Of the match layer only the last query is needed. It is carried into the stream (W_K q), rather than every key out
  of it, and values are averaged before W_V. The bias b_K adds a constant to all scores of a query, which the softmax
  does not see: its gradient is zero.

Arrays are [seed, feature, row], with rows over (sequence, position): long contiguous inner loops. The sequences go
through in groups small enough for the cache, each forward and backward before the next.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, TypeAlias

import einops
import numpy as np
import torch
from jaxtyping import Float, Int64
from numba import njit
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from interp.chains.priors import Prior
from interp.chains.urn import draw_chain, new_urn, predictive_law
from interp.hooked.transformer import COPY, MATCH, InductionConfig, InductionTransformer

Array: TypeAlias = NDArray[Any]
TargetKind: TypeAlias = Literal["token", "law"]

LAYER_NORM_EPSILON = 1e-5  # that of HookedTransformerConfig
GROUP_ROWS = 4096  # stream rows worked on at once, all seeds together: a few MiB of hidden activations
COUNT_QUERIES = (
    256  # queries per product with the Toeplitz matrix: it is lower triangular, so few keys for early queries
)
D_MODEL, D_MLP = 64, 256


def standard_config(
    *, order: int, vocab: int, length: int, bos: bool, d_model: int = D_MODEL, d_mlp: int = D_MLP
) -> InductionConfig:
    """The standard family's config: two layers with LayerNorm and MLP, logit readout."""
    return InductionConfig(
        family="standard",
        order=order,
        vocab=vocab,
        length=length,
        bos=bos,
        readout="logit",
        d_model=d_model,
        d_mlp=d_mlp,
    )


# --- Parameters ---------------------------------------------------------------------------------------------


def parameter_shapes(config: InductionConfig) -> dict[str, tuple[int, ...]]:
    """The free parameters by their names in the HookedTransformer, for one seed, in the order of the flat vector."""
    if config.family != "standard" or config.readout != "logit":
        raise ValueError(
            "the stacked trainer takes the standard family with logit readout, "
            f"got {config.family} with {config.readout}"
        )
    width, mlp = config.stream_width, config.d_mlp
    assert mlp is not None
    shapes: dict[str, tuple[int, ...]] = {"embed.W_E": (config.vocab + config.bos, width)}
    for block, heads, d_head in ((COPY, config.order, config.copy_width), (MATCH, 1, config.match_width)):
        for layer_norm in ("ln1", "ln2"):
            shapes |= {f"{block}.{layer_norm}.w": (width,), f"{block}.{layer_norm}.b": (width,)}
        for matrix in "QKV":
            shapes |= {f"{block}.attn.W_{matrix}": (heads, width, d_head), f"{block}.attn.b_{matrix}": (heads, d_head)}
        shapes |= {f"{block}.attn.W_O": (heads, d_head, width), f"{block}.attn.b_O": (width,)}
        shapes[f"{block}.attn.rel_bias"] = (heads, config.n_ctx)
        shapes |= {f"{block}.mlp.W_in": (width, mlp), f"{block}.mlp.b_in": (mlp,)}
        shapes |= {f"{block}.mlp.W_out": (mlp, width), f"{block}.mlp.b_out": (width,)}
    shapes |= {"ln_final.w": (width,), "ln_final.b": (width,)}
    shapes |= {"unembed.W_U": (width, config.vocab), "unembed.b_U": (config.vocab,)}
    return shapes


def unstack(config: InductionConfig, flat: Float[Tensor, "seed size"]) -> dict[str, Tensor]:
    """The flat parameters by name, each with a leading seed axis. They are views: writing to one writes to `flat`."""
    shapes = parameter_shapes(config)
    size = sum(map(math.prod, shapes.values()))
    if flat.ndim != 2 or flat.shape[1] != size:
        raise ValueError(f"parameters must be [seed, {size}] for this config, got {list(flat.shape)}")
    parts = torch.split(flat, [math.prod(shape) for shape in shapes.values()], dim=1)
    return {
        name: part.unflatten(1, shape) if len(shape) > 1 else part
        for (name, shape), part in zip(shapes.items(), parts, strict=True)
    }


def stack(config: InductionConfig, params: Sequence[Mapping[str, Tensor]]) -> Float[Tensor, "seed size"]:
    """The inverse of `unstack` for a list of one-seed parameter sets."""
    rows = []
    for one in params:
        for name, shape in parameter_shapes(config).items():
            if tuple(one[name].shape) != shape:
                raise ValueError(f"{name} must be {list(shape)}, got {list(one[name].shape)}")
        rows.append(torch.cat([one[name].detach().flatten() for name in parameter_shapes(config)]))
    return torch.stack(rows).to(config.torch_dtype)


def init_standard(
    config: InductionConfig, seed: int, *, std: float | None = None, copy: float = 0.0
) -> dict[str, Tensor]:
    """Parameters of one seed before training.

    Matrices are normal with standard deviation `std`, by default 1/sqrt(fan-in) each, and 1 for the embedding;
    LayerNorm scales are one, biases zero, relative biases too. `copy` adds that much to head h's bias at lag h: the
    named initialisation copy(strength). From a random start the model predicts as well, but its copy heads mix lags.
    """
    if std is not None and not std > 0:
        raise ValueError(f"std must be positive, got {std}")
    generator = torch.Generator().manual_seed(seed)
    params: dict[str, Tensor] = {}
    for name, shape in parameter_shapes(config).items():
        kind = name.rsplit(".", 1)[-1]
        if kind == "w":
            value = torch.ones(shape)
        elif kind == "W_E":
            value = torch.randn(shape, generator=generator) * (1.0 if std is None else std)
            value[config.vocab :] = 1.0 / config.vocab  # the BOS row, which never changes
        elif kind.startswith("W_"):
            fan_in = shape[-2] * (shape[0] if kind == "W_O" else 1)  # the heads' outputs are summed
            value = torch.randn(shape, generator=generator) * (fan_in**-0.5 if std is None else std)
        else:
            value = torch.zeros(shape)
        params[name] = value.to(config.torch_dtype)
    for head in range(config.order):
        params[f"{COPY}.attn.rel_bias"][head, head + 1] += copy
    return params


def from_hooked(models: Sequence[InductionTransformer]) -> Float[Tensor, "seed size"]:
    """The flat parameters of models of one config, a row each."""
    if not models:
        raise ValueError("from_hooked needs at least one model")
    config = models[0].config
    for model in models[1:]:
        if model.config != config:
            raise ValueError(f"models to be stacked must share one config, got {config} and {model.config}")
    return stack(config, [dict(model.named_parameters()) for model in models])


@torch.no_grad()
def to_hooked(config: InductionConfig, flat: Float[Tensor, "seed size"], index: int = 0) -> InductionTransformer:
    """The HookedTransformer with the weights of row `index`."""
    model = InductionTransformer(config)
    for name, value in unstack(config, flat).items():
        model.get_parameter(name).copy_(value[index])
    return model


# --- The copy layer -----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Tables:
    """What the copy layer computes from the parameters alone; writes to the stream are centred."""

    decay: Float[Tensor, "seed head query key"]  # exp(r_{i-j} - row maximum), zero above the diagonal
    content: Float[Tensor, "seed head_key symbol"]  # S[x_i, m], row (head, m), column x_i
    stream: Float[Tensor, "seed feature d_model"]  # what the token and each share write
    hidden: Float[Tensor, "seed feature_1 d_mlp"]  # the same carried through LayerNorm's scale and W_in; last row b_in
    out: Float[Tensor, "seed d_mlp d_model"]
    out_bias: Float[Tensor, "seed d_model"]

    def tensors(self) -> tuple[Tensor, ...]:
        return self.content, self.stream, self.hidden, self.out, self.out_bias


def _tables(config: InductionConfig, params: Mapping[str, Tensor]) -> _Tables:
    def of(name: str) -> Tensor:
        return params[f"{COPY}.{name}"]

    symbols = params["embed.W_E"]
    read = _layer_norm(symbols, params, f"{COPY}.ln1")
    read = einops.repeat(read, "seed symbol d_model -> seed head symbol d_model", head=config.order)
    weights = torch.cat([of("attn.W_Q"), of("attn.W_K"), of("attn.W_V")], dim=-1)
    query, key, value = (read @ weights).split(config.copy_width, dim=-1)
    query = query + of("attn.b_Q")[:, :, None]  # b_K would shift all scores of a query alike
    content = key @ query.mT * config.copy_width**-0.5
    value = (value + of("attn.b_V")[:, :, None]) @ of("attn.W_O")
    # All that is written to the stream, to be centred in one go.
    writes = torch.cat(
        [symbols + of("attn.b_O")[:, None], value.flatten(1, 2), of("mlp.W_out"), of("mlp.b_out")[:, None]], dim=1
    )
    writes = writes - writes.mean(-1, keepdim=True)
    features = symbols.shape[1] * config.blocks
    stream, out, out_bias = writes.split([features, writes.shape[1] - features - 1, 1], dim=1)
    into = of("ln2.w")[:, :, None] * of("mlp.W_in")
    bias = torch.baddbmm(of("mlp.b_in")[:, None], of("ln2.b")[:, None], of("mlp.W_in"))
    return _Tables(
        decay=_Toeplitz.apply(of("attn.rel_bias")),
        content=content.flatten(1, 2),
        stream=stream,
        hidden=torch.cat([stream @ into, bias], dim=1),
        out=out,
        out_bias=out_bias[:, 0],
    )


def _layer_norm(x: Float[Tensor, "seed row d_model"], params: Mapping[str, Tensor], name: str) -> Tensor:
    x = functional.layer_norm(x, x.shape[-1:], eps=LAYER_NORM_EPSILON)
    return torch.addcmul(params[f"{name}.b"][:, None], x, params[f"{name}.w"][:, None])


class _Toeplitz(torch.autograd.Function):
    """exp(r_{i-j} - max over d <= i of r_d) for j <= i, else zero. The maxima cancel in use: they carry no gradient."""

    @staticmethod
    def forward(ctx: Any, bias: Float[Tensor, "seed head lag"]) -> Float[Tensor, "seed head query key"]:
        n = bias.shape[-1]
        # Row i is the window of (r_{n-1}, ..., r_0, -inf, ...) that starts at n - 1 - i.
        padded = torch.cat([bias.flip(-1), bias.new_full((*bias.shape[:-1], n - 1), -math.inf)], dim=-1)
        rows = padded.unfold(-1, n, 1).flip(-2)
        decay = torch.exp(rows - bias.cummax(-1).values[..., None])
        ctx.save_for_backward(decay)
        return decay

    @staticmethod
    def backward(ctx: Any, *pulls: Tensor) -> Tensor:
        (decay,) = ctx.saved_tensors
        n = decay.shape[-1]
        # In rows of 2n - 1 the flattened matrix, padded to rows of 2n, has lag d in column n - 1 - d.
        skewed = decay.new_zeros(*decay.shape[:-2], n * 2 * n)
        window = skewed[..., n - 1 : n - 1 + n * (2 * n - 1)].unflatten(-1, (n, 2 * n - 1))[..., :n]
        torch.mul(pulls[0], decay, out=window)
        return skewed.unflatten(-1, (n, 2 * n)).sum(-2)[..., :n].flip(-1)


class _Counts(torch.autograd.Function):
    """C_m(i) of every head, symbol and sequence: one-hot tokens times the Toeplitz matrix, block by causal block."""

    @staticmethod
    def forward(
        ctx: Any, decay: Float[Tensor, "seed head query key"], onehot: Float[Tensor, "seed symbol batch key"]
    ) -> Float[Tensor, "seed head symbol batch query"]:
        ctx.save_for_backward(onehot)
        seeds, heads, n, _ = decay.shape
        flat = onehot.flatten(1, 2)
        counts = decay.new_empty(seeds, heads, flat.shape[1], n)
        for head in range(heads):
            for start in range(0, n, COUNT_QUERIES):
                stop = min(start + COUNT_QUERIES, n)
                counts[:, head, :, start:stop] = flat[:, :, :stop] @ decay[:, head, start:stop, :stop].mT
        return counts.unflatten(2, onehot.shape[1:3])

    @staticmethod
    def backward(ctx: Any, *pulls: Tensor) -> tuple[Tensor, None]:
        (onehot,) = ctx.saved_tensors
        pull = pulls[0].flatten(2, 3).mT
        flat = onehot.flatten(1, 2)
        seeds, heads, n, _ = pull.shape
        decay = pull.new_zeros(seeds, heads, n, n)
        for head in range(heads):
            for start in range(0, n, COUNT_QUERIES):
                stop = min(start + COUNT_QUERIES, n)
                decay[:, head, start:stop, :stop] = pull[:, head, start:stop] @ flat[:, :, :stop]
        return decay, None


class _CopyLayer(torch.autograd.Function):
    """From C to the centred stream after the copy layer's MLP, [seed, d_model, batch, position]."""

    @staticmethod
    def forward(
        ctx: Any,
        counts: Float[Tensor, "seed head symbol batch position"],
        content: Float[Tensor, "seed head_key symbol"],
        stream: Float[Tensor, "seed feature d_model"],
        hidden: Float[Tensor, "seed feature_1 d_mlp"],
        out: Float[Tensor, "seed d_mlp d_model"],
        out_bias: Float[Tensor, "seed d_model"],
        onehot: Float[Tensor, "seed symbol batch position"],
    ) -> Float[Tensor, "seed d_model batch position"]:
        token = onehot.flatten(2)
        scores = counts.log().flatten(3)  # -inf where a symbol has not occurred
        scores += (content @ token).view_as(scores)
        scores -= scores.amax(2, keepdim=True)
        shares = scores.exp_()
        shares /= shares.sum(2, keepdim=True)
        features = torch.cat([token, shares.flatten(1, 2)], dim=1)
        residual = stream.mT @ features
        scale = (residual.square().mean(1, keepdim=True) + LAYER_NORM_EPSILON).rsqrt()
        read = torch.cat([features * scale, torch.ones_like(scale)], dim=1)  # the last row is for the bias
        before = hidden.mT @ read
        after = functional.gelu(before)
        result = torch.baddbmm(residual + out_bias[..., None], out.mT, after)
        ctx.save_for_backward(
            counts, stream, hidden, out, token, shares, features, residual, scale, read, before, after
        )
        return result.unflatten(2, onehot.shape[2:])

    @staticmethod
    def backward(ctx: Any, *pulls: Tensor) -> tuple[Tensor | None, ...]:
        counts, stream, hidden, out, token, shares, features, residual, scale, read, before, after = ctx.saved_tensors
        pull = pulls[0].flatten(2)
        symbols = token.shape[1]
        pull_out = after @ pull.mT
        pull_before = torch.ops.aten.gelu_backward(out @ pull, before)
        pull_hidden = read @ pull_before.mT
        pull_read = (hidden @ pull_before)[:, :-1]
        # The LayerNorm: a row's scale is (mean of squares + epsilon)^(-1/2).
        pull_scale = (pull_read * features).sum(1, keepdim=True)
        pull_residual = torch.addcmul(pull, residual, pull_scale * scale**3, value=-1.0 / residual.shape[1])
        pull_stream = features @ pull_residual.mT
        pull_shares = torch.addcmul(stream[:, symbols:] @ pull_residual, pull_read[:, symbols:], scale)
        pull_shares = pull_shares.view_as(shares)
        # The softmax over symbols, and the logarithm. Where C is zero, so is the share.
        pull_shares -= (shares * pull_shares).sum(2, keepdim=True)
        pull_shares *= shares
        pull_content = pull_shares.flatten(1, 2) @ token.mT
        pull_counts = pull_shares.view_as(counts) / counts.clamp_min(torch.finfo(counts.dtype).tiny)
        return pull_counts, pull_content, pull_stream, pull_hidden, pull_out, pull.sum(2), None


# --- The match layer ----------------------------------------------------------------------------------------


class _MatchRead(torch.autograd.Function):
    """What the match head attends to from the last position: sum over j of A_j LN(h_j), before LN's scale and shift."""

    @staticmethod
    def forward(
        ctx: Any,
        stream: Float[Tensor, "seed d_model batch key"],
        query: Float[Tensor, "seed d_model batch"],
        bias: Float[Tensor, "seed lag"],
    ) -> Float[Tensor, "seed d_model batch"]:
        scale = (stream.square().mean(1) + LAYER_NORM_EPSILON).rsqrt()
        raw = (stream * query[..., None]).sum(1)
        pattern = torch.softmax(raw * scale + bias.flip(-1)[:, None], dim=-1)
        ctx.save_for_backward(stream, query, scale, raw, pattern)
        return (stream * (pattern * scale)[:, None]).sum(-1)

    @staticmethod
    def backward(ctx: Any, *pulls: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        stream, query, scale, raw, pattern = ctx.saved_tensors
        pull = pulls[0][..., None]
        pull_weight = (stream * pull).sum(1)
        pull_pattern = pull_weight * scale
        pull_score = pattern * (pull_pattern - (pattern * pull_pattern).sum(-1, keepdim=True))
        pull_scale = pull_weight * pattern + pull_score * raw
        pull_raw = pull_score * scale
        pull_stream = stream * (pull_scale * scale**3 * (-1.0 / stream.shape[1]))[:, None]
        pull_stream.addcmul_((pattern * scale)[:, None], pull)
        pull_stream.addcmul_(pull_raw[:, None], query[..., None])
        return pull_stream, (stream * pull_raw[:, None]).sum(-1), pull_score.sum(1).flip(-1)


def _read_out(
    config: InductionConfig, params: Mapping[str, Tensor], stream: Float[Tensor, "seed d_model batch position"]
) -> Float[Tensor, "seed batch vocab"]:
    """The match layer, its MLP and the readout, all at the last position: logits."""

    def of(name: str) -> Tensor:
        return params[f"{MATCH}.{name}"]

    last = stream[..., -1].mT
    query = torch.baddbmm(of("attn.b_Q"), _layer_norm(last, params, f"{MATCH}.ln1"), of("attn.W_Q")[:, 0])
    query = of("attn.W_K")[:, 0] @ query.mT * config.match_width**-0.5  # b_K and ln1.b shift all scores alike
    read = _MatchRead.apply(stream, query * of("ln1.w")[..., None], of("attn.rel_bias")[:, 0])
    read = torch.addcmul(of("ln1.b")[:, None], read.mT, of("ln1.w")[:, None])
    value = torch.baddbmm(of("attn.b_V"), read, of("attn.W_V")[:, 0])
    last = last + torch.baddbmm(of("attn.b_O")[:, None], value, of("attn.W_O")[:, 0])
    hidden = torch.baddbmm(of("mlp.b_in")[:, None], _layer_norm(last, params, f"{MATCH}.ln2"), of("mlp.W_in"))
    last = last + torch.baddbmm(of("mlp.b_out")[:, None], functional.gelu(hidden), of("mlp.W_out"))
    return torch.baddbmm(params["unembed.b_U"][:, None], _layer_norm(last, params, "ln_final"), params["unembed.W_U"])


# --- Loss, gradients, predictions ---------------------------------------------------------------------------


def _onehot(
    config: InductionConfig, tokens: Int64[Tensor, "seed batch length"]
) -> Float[Tensor, "seed symbol batch key"]:
    """Tokens, after BOS where there is one, as indicator rows."""
    if config.bos:
        tokens = functional.pad(tokens, (1, 0), value=config.vocab)
    symbols = torch.arange(config.vocab + config.bos, device=tokens.device)
    return (tokens[:, None] == symbols[:, None, None]).to(config.torch_dtype)


def _group_loss(
    config: InductionConfig,
    counts: Tensor,
    tables: tuple[Tensor, ...],
    params: Mapping[str, Tensor],
    onehot: Tensor,
    target: Float[Tensor, "seed batch vocab"],
) -> Float[Tensor, " seed"]:
    """The cross-entropy of some of the sequences, summed over them."""
    stream = _CopyLayer.apply(counts, *tables, onehot)
    return -(functional.log_softmax(_read_out(config, params, stream), dim=-1) * target).sum((1, 2))


@cache
def _compiled_group_loss() -> Callable[..., Tensor]:
    return torch.compile(_group_loss)


def _group_size(config: InductionConfig, seeds: int, batch: int) -> int:
    return max(1, min(batch, round(GROUP_ROWS / (seeds * config.n_ctx))))


def _backward(
    config: InductionConfig,
    flat: Float[Tensor, "seed size"],
    tokens: Int64[Tensor, "seed batch length"],
    target: Float[Tensor, "seed batch vocab"],
    *,
    compiled: bool = False,
) -> Float[Tensor, " seed"]:
    """Each seed's mean cross-entropy; its gradient goes to `flat.grad`."""
    seeds, batch, _ = tokens.shape
    group_loss = _compiled_group_loss() if compiled else _group_loss
    params = unstack(config, flat)
    tables = _tables(config, params)
    onehot = _onehot(config, tokens)
    counts = _Counts.apply(tables.decay, onehot)
    # Groups of sequences run forward and backward in turn, each up to here; from here on back it is done once, for all.
    late = {name: value for name, value in params.items() if not name.startswith((COPY, "embed"))}
    joints = [*tables.tensors(), *late.values()]
    leaves = [joint.detach().requires_grad_() for joint in joints]
    leaf_tables, leaf_params = leaves[: len(leaves) - len(late)], dict(zip(late, leaves[-len(late) :], strict=True))
    pull_counts = torch.empty_like(counts)
    loss = flat.new_zeros(seeds)
    size = _group_size(config, seeds, batch)
    for start in range(0, batch, size):
        part = slice(start, start + size)
        leaf = counts[:, :, :, part].detach().contiguous().requires_grad_()
        losses = group_loss(config, leaf, tuple(leaf_tables), leaf_params, onehot[:, :, part], target[:, part]) / batch
        losses.sum().backward()
        pull_counts[:, :, :, part] = leaf.grad
        loss += losses.detach()
    pulls = [leaf.grad for leaf in leaves]
    live = [index for index, pull in enumerate(pulls) if pull is not None]  # nothing reads the match head's b_K
    torch.autograd.backward(
        [counts, *(joints[index] for index in live)], [pull_counts, *(pulls[index] for index in live)]
    )
    if config.bos:
        assert flat.grad is not None
        width = config.stream_width
        flat.grad[:, config.vocab * width : (config.vocab + 1) * width] = 0.0  # the BOS row; W_E comes first
    return loss


def loss_and_gradient(
    config: InductionConfig,
    flat: Float[Tensor, "seed size"],
    tokens: Int64[Tensor, "seed batch length"],
    target: Tensor,
    *,
    compiled: bool = False,
) -> tuple[Float[Tensor, " seed"], Float[Tensor, "seed size"]]:
    """Each seed's mean cross-entropy at the last position, and its gradient in the layout of `flat`.

    `target` is the next token [seed, batch], or the law to compare with [seed, batch, vocab].
    """
    _check(config, flat, tokens)
    if target.shape == tokens.shape[:2] and not target.is_floating_point():
        target = functional.one_hot(target, config.vocab)
    if target.shape != (*tokens.shape[:2], config.vocab):
        raise ValueError(
            f"target must be integers {list(tokens.shape[:2])} or laws {[*tokens.shape[:2], config.vocab]}, "
            f"got {list(target.shape)}"
        )
    flat = flat.detach().clone().requires_grad_()
    with _one_thread():
        loss = _backward(config, flat, tokens, target.to(flat), compiled=compiled)
    assert flat.grad is not None
    return loss, flat.grad


@torch.no_grad()
def predict(
    config: InductionConfig, flat: Float[Tensor, "seed size"], tokens: Int64[Tensor, "batch length"]
) -> Float[Tensor, "seed batch vocab"]:
    """Each seed's law of the token after the last one, in float64."""
    seeds = flat.shape[0]
    everyone = einops.repeat(tokens, "batch length -> seed batch length", seed=seeds)
    _check(config, flat, everyone)
    laws = []
    with _one_thread():
        params = unstack(config, flat)
        tables = _tables(config, params)
        for part in everyone.split(max(1, _group_size(config, seeds, tokens.shape[0])), dim=1):
            onehot = _onehot(config, part)
            stream = _CopyLayer.apply(_Counts.apply(tables.decay, onehot), *tables.tensors(), onehot)
            laws.append(torch.softmax(_read_out(config, params, stream).double(), dim=-1))
    return torch.cat(laws, dim=1)


def predict_hooked(model: InductionTransformer, tokens: Int64[Tensor, "batch length"]) -> Float[Tensor, "batch vocab"]:
    """`interp.predict` for a model of the standard family at its full length, many times faster for long sequences."""
    return predict(model.config, from_hooked([model]), tokens)[0]


def _check(config: InductionConfig, flat: Tensor, tokens: Tensor) -> None:
    if flat.dtype != config.torch_dtype:
        raise ValueError(f"parameters must be {config.dtype} as in the config, got {flat.dtype}")
    if tokens.ndim != 3 or tokens.shape[0] != flat.shape[0] or tokens.shape[2] != config.length:
        raise ValueError(f"tokens must be [{flat.shape[0]}, batch, {config.length}], got {list(tokens.shape)}")
    if tokens.shape[1] < 1 or tokens.min() < 0 or tokens.max() >= config.vocab:
        raise ValueError(f"tokens must be one sequence or more over 0..{config.vocab - 1}")


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Matrices here are small: a second thread costs more than it brings. Runs share a machine by processes instead."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


# --- Training -----------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class StackedState:
    """All that a run of stacked seeds needs to go on bit for bit: parameters, Adam's moments, step and generators.

    Tensors are [seed, size], in the layout of `parameter_shapes`; `unstack(config, state.params)` names them. Each
    seed has its own generator, and so its own stream of sequences. `train_chunk` changes the state in place.
    """

    params: Float[Tensor, "seed size"]
    generators: list[np.random.Generator]
    first_moment: Tensor | None = None
    second_moment: Tensor | None = None
    step: int = 0

    def __post_init__(self) -> None:
        if self.params.ndim != 2 or len(self.generators) != self.params.shape[0]:
            raise ValueError(
                f"params must be [seed, size] with one generator a seed, got {list(self.params.shape)} "
                f"and {len(self.generators)} generators"
            )
        for name in ("first_moment", "second_moment"):
            moment = getattr(self, name)
            if moment is None:
                setattr(self, name, torch.zeros_like(self.params))
            elif moment.shape != self.params.shape or moment.dtype != self.params.dtype:
                raise ValueError(f"{name} must be like params, got {moment.dtype} {list(moment.shape)}")

    @classmethod
    def start(
        cls,
        config: InductionConfig,
        *,
        seeds: Sequence[int],
        std: float | None = None,
        copy: float = 0.0,
        device: str | torch.device = "cpu",
    ) -> StackedState:
        """A new run. A seed's parameters and stream of sequences are the same whichever seeds share the stack."""
        if not seeds:
            raise ValueError("a run needs at least one seed")
        params = stack(config, [init_standard(config, seed, std=std, copy=copy) for seed in seeds])
        return cls(params=params.to(device), generators=[np.random.default_rng([seed, 0]) for seed in seeds])

    def dump(self) -> dict[str, Any]:
        """Copies of the arrays, the step, and the generators' states: all of it plain data."""
        assert self.first_moment is not None
        assert self.second_moment is not None
        return {
            "params": self.params.cpu().numpy().copy(),
            "first_moment": self.first_moment.cpu().numpy().copy(),
            "second_moment": self.second_moment.cpu().numpy().copy(),
            "step": self.step,
            "generators": [generator.bit_generator.state for generator in self.generators],
        }

    @classmethod
    def restore(cls, data: Mapping[str, Any], *, device: str | torch.device = "cpu") -> StackedState:
        """The state that `dump` described."""
        generators = []
        for state in data["generators"]:
            bits = getattr(np.random, state["bit_generator"])()
            bits.state = state
            generators.append(np.random.Generator(bits))
        tensors = {
            name: torch.tensor(data[name], device=device) for name in ("params", "first_moment", "second_moment")
        }
        return cls(generators=generators, step=int(data["step"]), **tensors)


@njit(cache=True)
def _draw_batch(
    uniforms: Array,
    tokens: Array,
    target: Array,
    order: int,
    vocab: int,
    concentrations: Array,
    independent: bool,
    by_law: bool,
) -> None:
    """Sequences and what follows them, from uniforms [batch, length + 1]; `target` [batch, vocab], a law or one-hot."""
    batch, length = tokens.shape
    urn = new_urn(length, order, vocab)
    for b in range(batch):
        draw_chain(uniforms[b, :length], tokens[b], order, vocab, concentrations, independent, urn)
        law = target[b]
        predictive_law(law, order, vocab, concentrations, independent, urn)
        if not by_law:
            left = uniforms[b, length]
            chosen = 0
            while chosen < vocab - 1 and left >= law[chosen]:
                left -= law[chosen]
                chosen += 1
            law[:] = 0
            law[chosen] = 1


def draw(
    config: InductionConfig, prior: Prior, generators: Sequence[np.random.Generator], *, batch: int, target: TargetKind
) -> tuple[Int64[Tensor, "seed batch length"], Float[Tensor, "seed batch vocab"]]:
    """One step's sequences and targets. Both kinds of target use up the same random numbers: same sequences."""
    tokens = np.empty((len(generators), batch, config.length), dtype=np.int64)
    laws = np.empty((len(generators), batch, config.vocab))
    concentrations = np.ascontiguousarray(prior.concentrations(), dtype=np.float64)
    for index, generator in enumerate(generators):
        uniforms = generator.random((batch, config.length + 1))
        _draw_batch(
            uniforms,
            tokens[index],
            laws[index],
            config.order,
            config.vocab,
            concentrations,
            prior.independent,
            target == "law",
        )
    return torch.from_numpy(tokens), torch.from_numpy(laws)


def train_chunk(
    config: InductionConfig,
    state: StackedState,
    prior: Prior,
    lrs: Array,
    *,
    target: TargetKind = "token",
    batch: int = 32,
    betas: tuple[float, float] = (0.9, 0.999),
    epsilon: float = 1e-8,
    compiled: bool = False,
) -> Float[np.ndarray, "step seed"]:
    """len(lrs) Adam steps on fresh sequences from `prior`; changes `state` in place, returns the losses [step, seed].

    Where a run is cut into chunks changes nothing, not even the last bit. `target` is "token", a sampled next token
    as in eq:icl_optimization_markov, or "law", the urn's law of it: the same expected gradient, with less noise.
    `compiled` uses torch.compile: a fifth faster, after a minute or more to start.

    If a seed's loss or gradient stops being finite, the run stops before that step's update: its row holds that loss
    or nan, later rows are nan, and `state` holds the last good parameters (its generators have moved on).
    """
    if (prior.order, prior.vocab) != (config.order, config.vocab):
        raise ValueError(
            f"the prior has order {prior.order} and vocab {prior.vocab}, the config {config.order} and {config.vocab}"
        )
    if target not in ("token", "law"):
        raise ValueError(f"target must be 'token' or 'law', got {target!r}")
    if batch < 1:
        raise ValueError(f"batch must be at least 1, got {batch}")
    if state.params.dtype != config.torch_dtype:
        raise ValueError(f"parameters must be {config.dtype} as in the config, got {state.params.dtype}")
    losses = np.full((len(lrs), state.params.shape[0]), np.nan)
    flat = state.params.detach().requires_grad_()  # shares its memory with the state
    adam = torch.optim.Adam([flat], lr=0.0, betas=betas, eps=epsilon, fused=True)
    adam.state[flat] = {
        "step": torch.tensor(float(state.step), device=flat.device),
        "exp_avg": state.first_moment,
        "exp_avg_sq": state.second_moment,
    }
    with _one_thread():
        for row, lr in enumerate(lrs):
            tokens, laws = draw(config, prior, state.generators, batch=batch, target=target)
            flat.grad = None
            loss = _backward(config, flat, tokens.to(flat.device), laws.to(flat), compiled=compiled)
            assert flat.grad is not None
            losses[row] = loss.cpu().numpy()
            sizes = flat.grad.sum(1)  # not finite if any entry is not
            if not math.isfinite(losses[row].sum() + sizes.sum().item()):
                losses[row][np.isfinite(losses[row]) & ~sizes.isfinite().cpu().numpy()] = np.nan
                break
            adam.param_groups[0]["lr"] = float(lr)
            adam.step()
            state.step += 1
    return losses
