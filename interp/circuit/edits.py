"""Edit a live model through hooks and read what it then predicts.

    circuit = locate(model)                                   where the copy and match layers sit
    circuit.laws(tokens)                                      what the model predicts after the last token
    circuit.laws(tokens, hooks=circuit.write_pattern(rows))   the same with other attention in the match head

Weights are never touched: hooks hand on edited copies of activations, so that the model which is changed is the
very one that is studied. `causal`, `smoothing`, `symmetry` and `nearest` stand on this module.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int64
from transformer_lens import HookedTransformer

from interp.circuit import last_query
from interp.circuit.capture import Capture, Setting, batches, capture, check_length, check_place, setting_of
from interp.circuit.last_query import Hook as Hook
from interp.divergence import KL_FLOOR
from interp.estimators.counts import NOT_A_CANDIDATE, match_masks
from interp.notation import Tokens, as_beta, as_kappa, as_tokens, mask_bits

Hooks: TypeAlias = Callable[[slice], list[Hook]]  # the hooks for one slice of the batch

STREAM_BYTES = 256 << 20  # of the stream before the match layer kept between edits
NOTICEABLE = 1e-5  # a change of an activation that must show in float32 predictions if anything reads it


@dataclass(frozen=True, kw_only=True)
class Circuit:
    """A live model and the place of its circuit: which layer copies, which layer and head match."""

    model: HookedTransformer
    setting: Setting
    copy_layer: int
    match_layer: int
    match_head: int

    @property
    def order(self) -> int:
        return self.setting.order

    @property
    def vocab(self) -> int:
        return self.setting.vocab

    @property
    def bos(self) -> bool:
        return self.setting.bos_id is not None

    @property
    def copy_heads(self) -> int:
        """Number of heads in the copy layer."""
        return int(self.model.blocks[self.copy_layer].attn.cfg.n_heads)

    def check(self, tokens: Tokens) -> Int64[torch.Tensor, "batch length"]:
        """The tokens as a tensor, or a ValueError that says why this model cannot read them."""
        array = torch.from_numpy(as_tokens(tokens, vocab=self.vocab, order=self.order))
        check_length(self.model, array.shape[1], self.setting)
        return array

    def capture(self, tokens: Tokens, *, copies: bool = True) -> Capture:
        """The circuit's attention on these tokens, at the last query."""
        return capture(
            self.model,
            tokens,
            copies=copies,
            order=self.order,
            vocab=self.vocab,
            bos=self.setting.bos_id,
            copy_layer=self.copy_layer,
            match_layer=self.match_layer,
            match_head=self.match_head,
        )

    @property
    def short(self) -> bool:
        """Whether the model can be run at the last query alone (`last_query`)."""
        return (self.copy_layer, self.match_layer) == (0, 1) and last_query.applies(self.model)

    def stream(self, tokens: Int64[torch.Tensor, "batch length"]) -> Float[torch.Tensor, "batch key d_model"] | None:
        """What the match layer reads, for `run` to start from: edits of the match head leave it as it is.

        None where it would take too much memory, and where the model has to be run whole.
        """
        keys = tokens.shape[1] + int(self.bos)
        number = 8 if self.model.cfg.dtype == torch.float64 else 4
        if not self.short or number * tokens.shape[0] * keys * self.model.cfg.d_model > STREAM_BYTES:
            return None
        kept = torch.empty(tokens.shape[0], keys, self.model.cfg.d_model, dtype=self.model.cfg.dtype)
        start = 0
        for part in batches(tokens, self.model, self.setting, queries=last_query.QUERIES):
            kept[start : start + len(part)] = last_query.before_match(self.model, self.setting.with_bos(part))
            start += len(part)
        return kept

    def run(
        self,
        tokens: Int64[torch.Tensor, "batch length"],
        *,
        hooks: Hooks | None = None,
        copy_hooks: Hooks | None = None,
        last_only: bool = False,
        stream: Float[torch.Tensor, "batch key d_model"] | None = None,
    ) -> Float[torch.Tensor, "batch d_vocab_out"]:
        """Logits after the last token, under the given hooks.

        Hooks see whole activations, unless last_only=True says that `hooks`, on the match layer and what follows, need
        the last position only, and that `copy_hooks`, on the copy layer, may come for some positions at a time: that
        is many times faster. Then `stream` saves the copy layer, too, for edits that leave it alone.
        """
        if stream is not None and (copy_hooks is not None or not last_only):
            raise ValueError(
                "a stream starts at the match layer and its last query: give last_only=True, no copy_hooks"
            )
        short = self.short and (last_only or (hooks is None and copy_hooks is None))
        logits = []
        start = 0
        with torch.no_grad():
            for part in batches(tokens, self.model, self.setting, queries=last_query.QUERIES if short else None):
                rows = slice(start, start + part.shape[0])
                late, early = ([] if given is None else given(rows) for given in (hooks, copy_hooks))
                ids = self.setting.with_bos(part)
                if short:
                    before = last_query.before_match(self.model, ids, hooks=early) if stream is None else stream[rows]
                    logits.append(last_query.from_match(self.model, before, hooks=late).clone())
                else:
                    out = self.model.run_with_hooks(ids, prepend_bos=False, fwd_hooks=early + late)
                    logits.append(out[:, -1].clone())
                start = rows.stop
        return torch.cat(logits)

    def laws(
        self,
        tokens: Int64[torch.Tensor, "batch length"],
        *,
        hooks: Hooks | None = None,
        last_only: bool = False,
        stream: Float[torch.Tensor, "batch key d_model"] | None = None,
    ) -> Float[torch.Tensor, "batch vocab"]:
        """The predicted law after the last token, under the given hooks; the arguments are those of `run`."""
        logits = self.run(tokens, hooks=hooks, last_only=last_only, stream=stream)
        return torch.softmax(logits[:, : self.vocab].double(), dim=-1)

    def read_match(self, scores: list[torch.Tensor], patterns: list[torch.Tensor]) -> Hooks:
        """Hooks that add the match head's scores and attention at the last query to these lists, part by part."""

        def keep(kept: list[torch.Tensor], activation: torch.Tensor, hook: Any) -> None:
            kept.append(activation[:, self.match_head, -1].detach().clone())

        place = f"blocks.{self.match_layer}.attn"
        return lambda part: [
            (f"{place}.hook_attn_scores", partial(keep, scores)),
            (f"{place}.hook_pattern", partial(keep, patterns)),
        ]

    def write_pattern(self, rows: Float[torch.Tensor, "batch key"]) -> Hooks:
        """Hooks that put these attention weights in place of the match head's own at the last query."""

        def overwrite(part: slice) -> list[Hook]:
            def write(pattern: torch.Tensor, hook: Any) -> torch.Tensor:
                edited = pattern.clone()
                edited[:, self.match_head, -1] = rows[part].to(pattern)
                return edited

            return [(f"blocks.{self.match_layer}.attn.hook_pattern", write)]

        return overwrite

    def write_copy(
        self, head: int, value: Callable[[torch.Tensor, slice], Float[torch.Tensor, "batch pos d_head"]]
    ) -> Hooks:
        """Hooks that replace the output z of one copy head, at every position, by `value(z, rows)`.

        As `copy_hooks` of a run with last_only=True, `value` is called for some positions at a time.
        """

        def overwrite(part: slice) -> list[Hook]:
            def write(z: torch.Tensor, hook: Any) -> torch.Tensor:
                edited = z.clone()
                edited[:, :, head] = value(z[:, :, head], part).to(z)
                return edited

            return [(f"blocks.{self.copy_layer}.attn.hook_z", write)]

        return overwrite


def locate(
    model: HookedTransformer,
    *,
    order: int | None = None,
    copy_layer: int | None = None,
    match_layer: int | None = None,
    match_head: int | None = None,
    bos: int | bool | None = None,
    vocab: int | None = None,
) -> Circuit:
    """The circuit of a model. The arguments are those of `capture`; only models from elsewhere need them."""
    copy_layer, match_layer, match_head = check_place(
        model, copy_layer=copy_layer, match_layer=match_layer, match_head=match_head
    )
    return Circuit(
        model=model,
        setting=setting_of(model, order=order, bos=bos, vocab=vocab),
        copy_layer=copy_layer,
        match_layer=match_layer,
        match_head=match_head,
    )


def key_masks(
    tokens: Int64[torch.Tensor, "batch length"], *, order: int, bos: bool
) -> Int64[torch.Tensor, "batch key"]:
    """The match mask of every key of the model as seen from the last query; -1 for BOS and early keys."""
    masks = match_masks(tokens, order=order)
    return torch.nn.functional.pad(masks, (int(bos), 0), value=NOT_A_CANDIDATE)


def mask_scores(
    masks: Int64[torch.Tensor, "batch key"], beta: Float[np.ndarray, " lag"]
) -> Float[torch.Tensor, "batch key"]:
    """|beta|_M for every candidate key; 0 for the others."""
    by_mask = torch.from_numpy(mask_bits(beta.size) @ beta)
    return torch.where(masks >= 0, by_mask[masks.clamp(min=0)], 0.0)


def law_pattern(
    masks: Int64[torch.Tensor, "batch key"],
    *,
    beta: Float[np.ndarray, " lag"],
    kappa: float | None,
) -> Float[torch.Tensor, "batch key"]:
    """The attention of eq:transformer_estimator: e^{|beta|_M} / Z on candidates, e^kappa / Z on BOS, else 0.

    With kappa, key 0 is BOS.
    """
    scores = torch.where(masks >= 0, mask_scores(masks, beta), -torch.inf)
    if kappa is not None:
        scores[:, 0] = kappa
    return torch.softmax(scores, dim=-1)


def raised(laws: Float[torch.Tensor, "*rows vocab"], *, floor: float) -> Float[torch.Tensor, "*rows vocab"]:
    """The laws with every probability at least `floor`, normalised again."""
    lifted = laws.clamp(min=floor)
    return lifted / lifted.sum(-1, keepdim=True)


def kl_between(
    first: Float[torch.Tensor, "*rows vocab"], second: Float[torch.Tensor, "*rows vocab"], *, floor: float = KL_FLOOR
) -> Float[torch.Tensor, "*rows"]:
    """KL(first || second) between two predictions, law by law; differentiable.

    `kl_divergence` is for a truth, which is taken as it is. A prediction has no such standing: both sides are raised to
    the floor, so that equal predictions are at distance 0 whatever zeros they hold.
    """
    one, other = raised(first.double(), floor=floor), raised(second.double(), floor=floor)
    return (one * (torch.log(one) - torch.log(other))).sum(-1).clamp(min=0.0)


def check_parameters(
    circuit: Circuit, *, beta: Any, kappa: float | None
) -> tuple[Float[np.ndarray, " lag"], float | None]:
    """beta and kappa that belong to this model: one number per lag, and kappa exactly where there is BOS."""
    weights, pseudo = as_beta(beta, order=circuit.order), as_kappa(kappa)
    if circuit.bos and pseudo is None:
        raise ValueError("this model has a BOS token: give kappa, its score relative to an empty match")
    if not circuit.bos and pseudo is not None:
        raise ValueError(f"this model has no BOS token: expected kappa=None, got {kappa!r}")
    return weights, pseudo


def check_next_law(
    next_law: torch.Tensor, tokens: Int64[torch.Tensor, "batch length"], *, vocab: int
) -> Float[torch.Tensor, "batch vocab"]:
    """The true laws of these sequences' next tokens, in float64."""
    expected = (tokens.shape[0], vocab)
    if tuple(next_law.shape) != expected:
        raise ValueError(f"next_law must have shape {list(expected)}, got {list(next_law.shape)}")
    return next_law.double()
