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

import sys
import warnings
from copy import deepcopy
from types import FrameType
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import nn

from interp.hooked.config import Dtype as Dtype
from interp.hooked.config import InductionConfig as InductionConfig
from interp.hooked.config import Readout as Readout
from interp.lens import Attention, Embed, HookedTransformer, HookedTransformerConfig, TransformerBlock, Unembed

COPY, MATCH = "blocks.0", "blocks.1"
OWN = (
    "interp",
    "torch",
    "transformer_lens",
    "jaxtyping",
    "beartype",
)  # packages whose lines a warning does not point to


def hooked_config(config: InductionConfig) -> HookedTransformerConfig:
    """The TransformerLens config of copy layer and stream, without `seed`, which would reset global generators."""
    standard = not config.one_hot
    return HookedTransformerConfig(
        n_layers=2,
        d_model=config.stream_width,
        n_ctx=config.n_ctx,
        n_heads=config.order,
        d_head=config.copy_width,
        d_vocab=config.vocab + config.bos,
        d_vocab_out=config.vocab,
        attn_only=not standard,
        d_mlp=config.d_mlp,
        act_fn="gelu" if standard else "relu",  # attention-only models have no MLP to use it
        normalization_type="LN" if standard else None,
        use_attn_scale=standard,
        init_weights=False,
        default_prepend_bos=False,
        dtype=config.torch_dtype,
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


def _lacks_bos(input: Any, bos: int, options: dict[str, Any]) -> bool:
    """Whether these are tokens from position 0 on, and one sequence does not begin with BOS."""
    if not isinstance(input, torch.Tensor) or input.is_floating_point() or not input.numel() or input.is_meta:
        return False  # floats are a stream that enters a later layer
    return options.get("past_kv_cache") is None and bool((input[..., 0] != bos).any())


def _callers_level(frame: FrameType) -> int:
    """The `stacklevel`, in this frame, of the line that ran the model, outside torch and TransformerLens."""
    level = 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in OWN:
        frame, level = frame.f_back, level + 1
    return level


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

    Parameters
    ----------
    config : InductionConfig
        Family, order, vocabulary, length, BOS and readout (`interp.hooked.config`).
    """

    def __init__(self, config: InductionConfig) -> None:
        cfg = hooked_config(config)
        with warnings.catch_warnings():
            # TransformerLens announces that 4.0 drops this class; the dependency is pinned below 4.
            warnings.filterwarnings("ignore", message="HookedTransformer is deprecated", category=DeprecationWarning)
            super().__init__(cfg, move_to_device=False)
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
        self._checks_bos = config.bos

    def forward(self, input: Any, *args: Any, **options: Any) -> Any:
        """TransformerLens' forward. A model with BOS warns once where the tokens do not begin with it."""
        if self._checks_bos and _lacks_bos(input, self.config.vocab, options):
            self._checks_bos = False
            warnings.warn(
                f"the tokens do not begin with BOS, id {self.config.vocab}, which this model was made for: "
                "ip.Circuit(model).ids(tokens) puts it in front",
                stacklevel=_callers_level(sys._getframe()),
            )
        return super().forward(input, *args, **options)

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
        if self.embed.W_E.is_meta:  # only the shapes are asked for; there `torch.eye` would import torch's compiler
            return
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
