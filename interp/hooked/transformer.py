"""The two-layer induction circuit as a `HookedTransformer`: the one module that subclasses TransformerLens.

    config = InductionConfig(family="disentangled", order=2, vocab=5, length=64, bos=True, readout="probability")
    model = InductionTransformer(config)             # every TransformerLens hook, cache and tool works on it

What TransformerLens 3 lacks and is added here: a learned relative bias r_{i-j} per head (`attn.rel_bias`), k heads
in the copy layer and one in the match layer, and a readout that turns attention shares into probabilities.

The disentangled transformer (sec:models) is exactly an attention-only HookedTransformer. Its residual stream is cut
into 2(k+1) blocks of width |V|: block 0 holds the token (BOS: 1/|V| everywhere), copy head h writes into block h,
and the match head writes its whole output into the second half. W_Q is the paper's W_A, W_K selects, so that
e_ij = h_i' W_A h_j + r_{i-j} with no 1/sqrt(d) scale; W_U is the paper's W_O transposed.
"""

from __future__ import annotations

import re
import warnings
from copy import deepcopy
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, TypeAlias, cast, get_args

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import nn

from interp.arguments import NumberField, WholeField, count, fits_memory, is_whole, shown
from interp.lens import Attention, Embed, HookedTransformer, HookedTransformerConfig, TransformerBlock, Unembed
from interp.notation import check_order, check_positive, check_vocab

Readout: TypeAlias = Literal["probability", "logit"]
Dtype: TypeAlias = Literal["float32", "float64"]

COPY, MATCH = "blocks.0", "blocks.1"
ANALYTIC = "construction"
HAS_WIDTHS = {"construction": False, "disentangled": False, "standard": True}


@dataclass(frozen=True, kw_only=True)
class InductionConfig:
    """All that fixes the shape of a model. Saved with every checkpoint; unknown or missing keys are refused.

    family   construction (analytic weights), disentangled (one-hot blocks, trained), standard (embeddings, LayerNorm,
             MLP), or the name of another family that is shaped like one of them: see `one_hot`
    order    k: the number of copy heads, and the context length that is matched
    vocab    |V|, without BOS
    length   T: real tokens; the model sees length + 1 positions where it has BOS
    bos      whether a BOS token (id = vocab) stands before the tokens
    readout  probability: the non-negative part of W_O h plus `floor`, normalised; logit: softmax(W_O h)
    floor    keeps log-probabilities finite under the probability readout
    d_model, d_mlp   widths of the standard family; None where the width follows from order and vocab (`one_hot`)
    dtype    float32 or float64
    """

    family: str
    order: WholeField
    vocab: WholeField
    length: WholeField
    bos: bool
    readout: Readout
    floor: NumberField = 1e-7
    d_model: int | None = None
    d_mlp: int | None = None
    dtype: Dtype = "float32"

    def __post_init__(self) -> None:
        if not isinstance(self.family, str) or not re.fullmatch("[a-z][a-z0-9_]*", self.family):
            raise ValueError(f"family must be a name in small letters, got {shown(self.family)}")
        if self.readout not in get_args(Readout):
            raise ValueError(f"readout must be one of {', '.join(get_args(Readout))}, got {shown(self.readout)}")
        if self.dtype not in get_args(Dtype):
            raise ValueError(f"dtype must be one of {', '.join(get_args(Dtype))}, got {shown(self.dtype)}")
        # Plain numbers only, whatever kind was given: the config is written as JSON.
        object.__setattr__(self, "order", check_order(self.order))
        object.__setattr__(self, "vocab", check_vocab(self.vocab))
        object.__setattr__(self, "floor", check_positive(self.floor, name="floor"))
        if isinstance(self.bos, np.bool_):
            object.__setattr__(self, "bos", bool(self.bos))
        if not isinstance(self.bos, bool):
            raise ValueError(f"bos must be true or false, got {shown(self.bos)}")
        try:
            object.__setattr__(self, "length", count(self.length, name="length", least=self.order + 1))
        except ValueError:
            raise ValueError(
                f"length must be an integer above the order {self.order}, got {shown(self.length)}"
            ) from None
        widths = (self.d_model, self.d_mlp)
        if HAS_WIDTHS.get(self.family, widths != (None, None)):
            if not all(is_whole(width) and (width or 0) >= 1 for width in widths):
                raise ValueError(
                    f"the {self.family} family needs d_model and d_mlp >= 1, "
                    f"got {shown(self.d_model)} and {shown(self.d_mlp)}"
                )
            if self.copy_width < 1:
                raise ValueError(f"d_model must be at least the order {self.order}, got {self.d_model}")
        elif widths != (None, None):
            raise ValueError(f"d_model and d_mlp belong to the standard family only, not to {self.family}")
        # The causal mask of every layer is n_ctx x n_ctx; the match layer has four matrices of stream by head width.
        fits_memory(4 * self.n_ctx**2, what=f"the causal masks of a model of length {self.length}")
        widest = max(self.match_width, self.vocab, self.d_mlp or 0)
        fits_memory(8 * 4 * self.stream_width * widest, what=f"a model of order {self.order}, |V| {self.vocab}")

    @property
    def one_hot(self) -> bool:
        """Whether the stream is made of |V|-wide one-hot blocks: W_A and the votes can then be read block by block.

        Otherwise the model has learnt embeddings, LayerNorm and an MLP.
        """
        return self.d_model is None

    @property
    def analytic(self) -> bool:
        """Whether beta and kappa were written into the weights, which ties the model to its length."""
        return self.family == ANALYTIC

    @property
    def n_ctx(self) -> int:
        """Positions the model sees: the tokens, and BOS where there is one."""
        return self.length + self.bos

    @property
    def blocks(self) -> int:
        """k + 1: the blocks that the match layer compares."""
        return self.order + 1

    @property
    def stream_width(self) -> int:
        """Width of the residual stream."""
        return self.d_model if self.d_model is not None else 2 * self.blocks * self.vocab

    @property
    def copy_width(self) -> int:
        """d_head of the copy heads."""
        return self.vocab if self.d_model is None else self.d_model // self.order

    @property
    def match_width(self) -> int:
        """d_head of the match head."""
        return self.blocks * self.vocab if self.d_model is None else self.d_model

    @property
    def torch_dtype(self) -> torch.dtype:
        return torch.float64 if self.dtype == "float64" else torch.float32

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> InductionConfig:
        """The strict inverse of `to_dict`: every field present, nothing else."""
        if not isinstance(values, dict):
            raise ValueError(f"a model config must be a JSON object, got {type(values).__name__}")
        known = {field.name for field in fields(cls)}
        if unknown := sorted(set(values) - known):
            raise ValueError(f"unknown key in the model config: {', '.join(unknown)}")
        if missing := sorted(known - set(values)):
            raise ValueError(f"missing key in the model config: {', '.join(missing)}")
        return cls(**values)

    def hooked_config(self) -> HookedTransformerConfig:
        """The TransformerLens config of copy layer and stream, without `seed`, which would reset global generators."""
        standard = not self.one_hot
        return HookedTransformerConfig(
            n_layers=2,
            d_model=self.stream_width,
            n_ctx=self.n_ctx,
            n_heads=self.order,
            d_head=self.copy_width,
            d_vocab=self.vocab + self.bos,
            d_vocab_out=self.vocab,
            attn_only=not standard,
            d_mlp=self.d_mlp,
            act_fn="gelu" if standard else "relu",  # attention-only models have no MLP to use it
            normalization_type="LN" if standard else None,
            use_attn_scale=standard,
            init_weights=False,
            default_prepend_bos=False,
            dtype=self.torch_dtype,
            device="cpu",
        )


class RelativeBiasAttention(Attention):
    """Attention whose scores carry r_{i-j}, one learned number per head and distance (sec:models, RPE)."""

    def __init__(self, cfg: HookedTransformerConfig, layer: int) -> None:
        super().__init__(cfg, "global", layer)
        self.rel_bias = nn.Parameter(torch.zeros(cfg.n_heads, cfg.n_ctx, dtype=cfg.dtype))

    def calculate_attention_scores(
        self,
        q: Float[torch.Tensor, "batch query head d_head"],
        k: Float[torch.Tensor, "batch key head d_head"],
    ) -> Float[torch.Tensor, "batch head query key"]:
        scores = super().calculate_attention_scores(q, k)
        keys = torch.arange(k.shape[1], device=k.device)
        queries = keys[-q.shape[1] :]  # with a key-value cache the queries are the last positions
        distance = (queries[:, None] - keys[None, :]).clamp(min=0)  # masked where negative
        return scores + self.rel_bias[:, distance]


class FixedBosEmbed(Embed):
    """Learned embeddings whose BOS row takes no gradient."""

    def __init__(self, cfg: HookedTransformerConfig, vocab: int) -> None:
        super().__init__(cfg)
        self.vocab = vocab

    def forward(self, tokens: Int[torch.Tensor, "batch pos"]) -> Float[torch.Tensor, "batch pos d_model"]:
        return torch.cat([self.W_E[: self.vocab], self.W_E[self.vocab :].detach()])[tokens]


class ProbabilityUnembed(Unembed):
    """W_U h read as shares of votes: its logits are the log of their non-negative part plus a floor, normalised.

    So softmax(logits) is the probability itself, and losses, logit lenses and samplers work unchanged.
    """

    def __init__(self, cfg: HookedTransformerConfig, floor: float) -> None:
        super().__init__(cfg)
        self.floor = floor

    def forward(
        self, residual: Float[torch.Tensor, "batch pos d_model"]
    ) -> Float[torch.Tensor, "batch pos d_vocab_out"]:
        residual = self.hook_in(residual)
        votes = torch.relu(residual @ self.W_U + self.b_U) + self.floor
        logits: torch.Tensor = self.hook_out(torch.log(votes) - torch.log(votes.sum(-1, keepdim=True)))
        return logits


def not_linear(model: HookedTransformer) -> str:
    """Why a model's prediction is not a normalised linear function of votes; empty where it is."""
    if not isinstance(model, InductionTransformer) or not model.config.one_hot:
        return "the final stream has no block that holds the votes"
    if model.config.readout != "probability":
        return "a logit readout is not linear in the votes"
    return ""


class InductionTransformer(HookedTransformer):
    """A two-layer `HookedTransformer` with k copy heads, one match head and relative biases.

    A new model has its fixed weights written and its free ones at zero: the label-symmetric start of
    theorem:invariance. `blocks.0` and `blocks.1` have different head counts, so TransformerLens' stacked `model.W_Q`
    does not apply; read `model.blocks[0].attn.W_Q`.
    """

    def __init__(self, config: InductionConfig) -> None:
        cfg = config.hooked_config()
        with warnings.catch_warnings():
            # TransformerLens announces that 4.0 drops this class; the dependency is pinned below 4.
            warnings.filterwarnings("ignore", message="HookedTransformer is deprecated", category=DeprecationWarning)
            super().__init__(cfg)
        self.config = config
        match_cfg = deepcopy(cfg)
        match_cfg.n_heads, match_cfg.d_head = 1, config.match_width
        if cfg.use_attn_scale:
            match_cfg.attn_scale = config.match_width**0.5
        self.blocks[1] = TransformerBlock(match_cfg, 1)
        self.blocks[0].attn = RelativeBiasAttention(cfg, 0)
        self.blocks[1].attn = RelativeBiasAttention(match_cfg, 1)
        if config.bos and not config.one_hot:
            self.embed = FixedBosEmbed(cfg, config.vocab)
        if config.readout == "probability":
            self.unembed = ProbabilityUnembed(cfg, config.floor)
        self._write_fixed_weights()
        self.setup()  # type: ignore[no-untyped-call]

    @property
    def copy_attention(self) -> RelativeBiasAttention:
        """The copy layer: k heads, lag h + 1 for head h in the construction."""
        return cast(RelativeBiasAttention, self.blocks[0].attn)

    @property
    def match_attention(self) -> RelativeBiasAttention:
        """The match layer: one head."""
        return cast(RelativeBiasAttention, self.blocks[1].attn)

    @torch.no_grad()
    def _write_fixed_weights(self) -> None:
        config = self.config
        for name, parameter in self.named_parameters():
            # LayerNorm's own scale starts at one; everything else is empty memory until written.
            if not (name.endswith(".w") and "ln" in name):
                parameter.zero_()
            parameter.requires_grad_(False)
        if config.bos:
            self.embed.W_E[config.vocab] = 1.0 / config.vocab
        if config.one_hot:
            self._write_selectors()
        for name in self.free_parameters():
            self.get_parameter(name).requires_grad_(True)

    def _write_selectors(self) -> None:
        """One-hot embedding, and the K, V and O matrices that read whole blocks and write them to their places."""
        vocab, half = self.config.vocab, self.config.blocks * self.config.vocab
        self.embed.W_E[:vocab, :vocab] = torch.eye(vocab)
        self.embed.W_E[vocab:, vocab:] = 0.0  # BOS, too, lives in block 0 only
        copy, match = self.copy_attention, self.match_attention
        copy.W_K[:, :vocab] = torch.eye(vocab)
        copy.W_V[:, :vocab] = torch.eye(vocab)
        for head in range(self.config.order):
            start = (head + 1) * vocab
            copy.W_O[head, :, start : start + vocab] = torch.eye(vocab)
        match.W_K[0, :half] = torch.eye(half)
        match.W_V[0, :half] = torch.eye(half)
        match.W_O[0, :, half:] = torch.eye(half)

    def free_parameters(self) -> list[str]:
        """Names of the parameters that training may change.

        The construction has none here: its free numbers, beta and kappa, are written into the weights by `construct`.
        The standard family's W_E is free except for its BOS row, whose gradient is zero.
        """
        if self.config.analytic:
            return []
        if self.config.one_hot:
            return [
                f"{COPY}.attn.W_Q",
                f"{COPY}.attn.rel_bias",
                f"{MATCH}.attn.W_Q",
                f"{MATCH}.attn.rel_bias",
                "unembed.W_U",
            ]
        return [name for name, _ in self.named_parameters() if name != "pos_embed.W_pos"]
