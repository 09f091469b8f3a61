"""The edits of `causal`, each with its control, made and measured on a live model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Float

from interp.circuit.circuit import Circuit, Head, head_name
from interp.circuit.edits import NOTICEABLE, MatchReader, write_output, write_pattern
from interp.circuit.law import full_matches, keep_keys, key_masks, law_pattern, mask_scores, pair_scores
from interp.circuit.runner import Hooks, run, stream_before_match
from interp.divergence import kl_between, kl_divergence
from interp.notation import mask_bits
from interp.results import mean_stderr, share_recovered

# Masks of the keys [batch, key] -> attention over the keys [batch, match, key].
PatternEdit: TypeAlias = Callable[[torch.Tensor], torch.Tensor]
HeadLaw: TypeAlias = tuple[Float[np.ndarray, " lag"], float | None]  # beta and kappa of one match head


@dataclass(frozen=True, kw_only=True)
class CausalEdit:
    """The change of the predictions by one edit and by its random control.

    loss           mean loss of the edited model
    loss_change, loss_stderr   mean of L_edited - L_model, and its standard error over sequences
    kl, kl_stderr  mean of KL(model || edited model), and its standard error
    change         how much was edited: the mean total-variation distance between the edited and the model's own
                   attention; for a copy head the mean distance between its output and what took its place
    reached        whether the hook changed the logits: by the edit, or by its control where the edit equals the model's
                   own attention. An edit of attention that does not raises an error, so that False occurs only for a
                   copy head that nothing reads.
    floored        share of sequences where the edited prediction needed the floor of the loss
    control_loss_change, control_loss_stderr, control_kl, control_kl_stderr   the same for the control; None for
                   `uniform`, which is a control itself
    """

    edit: str
    loss: float
    loss_change: float
    loss_stderr: float
    kl: float
    kl_stderr: float
    change: float
    reached: bool
    floored: float
    control_loss_change: float | None
    control_loss_stderr: float | None
    control_kl: float | None
    control_kl_stderr: float | None


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Per-sequence losses and divergences of one edit, and of its control."""

    edit: str
    losses: torch.Tensor
    kls: torch.Tensor
    change: float
    reached: bool
    floored: float
    control_losses: torch.Tensor | None
    control_kls: torch.Tensor | None

    def summary(self, base: torch.Tensor) -> CausalEdit:
        loss_change, loss_stderr = mean_stderr(self.losses - base)
        kl, kl_stderr = mean_stderr(self.kls)
        control: tuple[float | None, ...] = (None,) * 4
        if self.control_losses is not None:
            control = (*mean_stderr(self.control_losses - base), *mean_stderr(self.control_kls))
        return CausalEdit(
            edit=self.edit,
            loss=float(self.losses.mean()),
            loss_change=loss_change,
            loss_stderr=loss_stderr,
            kl=kl,
            kl_stderr=kl_stderr,
            change=self.change,
            reached=self.reached,
            floored=self.floored,
            control_loss_change=control[0],
            control_loss_stderr=control[1],
            control_kl=control[2],
            control_kl_stderr=control[3],
        )


class CausalBench:
    """A model, its tokens and the true laws, with functions that edit the model and measure what changed."""

    def __init__(self, circuit: Circuit, tokens: torch.Tensor, truth: torch.Tensor, *, floor: float, seed: int) -> None:
        self.circuit, self.tokens, self.truth, self.floor = circuit, tokens, truth, floor
        self.generator = torch.Generator().manual_seed(seed)
        self.masks = key_masks(tokens, order=circuit.order, bos=circuit.has_bos)
        self.candidates = (self.masks[0] >= 0).nonzero().squeeze(-1)  # the same keys in every sequence
        self.stream = stream_before_match(circuit, tokens)  # most edits do not change the copy layer
        reader = MatchReader(circuit)
        self.logits = self._run(reader.hooks)
        self.scores, self.pattern = reader.scores, reader.pattern
        self.base = torch.softmax(self.logits.double(), dim=-1)
        self.losses = kl_divergence(truth, self.base, floor=floor).values

    def match_edits(self, heads: Sequence[HeadLaw] | None) -> dict[str, PatternEdit]:
        """The edits as functions of the masks, so that shuffled masks give their controls; the law, if any, first."""
        order, bos = self.circuit.order, self.circuit.has_sink
        edits: dict[str, PatternEdit] = {}
        if heads is not None:
            edits = {"law": lambda masks: torch.stack([law_pattern(masks, beta=b, kappa=c) for b, c in heads], dim=1)}
            edits["beta_zero"] = self._clamped([(beta, np.zeros(order)) for beta, _ in heads])
            edits["beta_infinite"] = lambda masks: self._hardest(masks, [beta for beta, _ in heads])
            for lag in range(1, order + 1) if order > 1 else ():
                only = np.arange(order) == lag - 1
                edits[f"lag_{lag}_only"] = self._clamped([(beta, np.where(only, beta, 0.0)) for beta, _ in heads])
        edits["no_partial"] = lambda masks: keep_keys(self.scores, full_matches(masks, order=order, bos=bos)[:, None])
        return edits

    def _clamped(self, betas: Sequence[tuple[Float[np.ndarray, " lag"], Float[np.ndarray, " lag"]]]) -> PatternEdit:
        """Each head's scores with its beta replaced by another."""

        def edit(masks: torch.Tensor) -> torch.Tensor:
            moved = torch.stack([mask_scores(masks, other - beta) for beta, other in betas], dim=1)
            return torch.softmax(self.scores + moved, dim=-1)

        return edit

    def _hardest(self, masks: torch.Tensor, betas: Sequence[Float[np.ndarray, " lag"]]) -> torch.Tensor:
        sizes = torch.from_numpy(mask_bits(self.circuit.order).sum(-1))
        overlaps = torch.where(masks >= 0, sizes[masks.clamp(min=0)], -1)
        largest = overlaps == overlaps.max(dim=-1, keepdim=True).values
        law = torch.stack([mask_scores(masks, beta) for beta in betas], dim=1)
        return keep_keys(self.scores - law, largest[:, None])

    def edit_matches(self, name: str, edit: PatternEdit) -> Measured:
        """Write the edit's attention; the control uses masks that are shuffled among each sequence's candidates."""
        shuffled = self.masks.clone()
        shuffled[:, self.candidates] = self.masks[:, self.candidates].gather(1, self._deal())
        return self._edit_pattern(name, edit(self.masks), control=edit(shuffled))

    def write_pairs(self, pairs: Float[np.ndarray, "block block"], kappa: float | None) -> Measured:
        """Attention of the law of all pairs; the control shuffles its scores among each sequence's candidates."""
        scores = torch.full(self.masks.shape, -torch.inf, dtype=torch.float64)
        scores[:, self.candidates] = pair_scores(self.tokens, pairs)
        dealt = scores.clone()
        dealt[:, self.candidates] = scores[:, self.candidates].gather(1, self._deal())
        if kappa is not None:
            scores[:, 0] = dealt[:, 0] = kappa
        rows, control = (torch.softmax(given, -1)[:, None].expand_as(self.scores) for given in (scores, dealt))
        return self._edit_pattern("pair_law", rows, control=control)

    def remove_bos(self) -> Measured:
        visible = torch.ones_like(self.masks, dtype=torch.bool)
        visible[:, 0] = False
        rows = keep_keys(self.scores, visible[:, None])
        return self._edit_pattern("no_bos", rows, control=self._without_random_mass())

    def spread_evenly(self) -> Measured:
        return self._edit_pattern("uniform", torch.full_like(self.pattern, 1 / self.pattern.shape[-1]))

    def ablate_copy_head(self, place: Head) -> Measured:
        """Replace one copy head's output by its mean; the control moves it as far in a random direction."""
        mean = self._mean_output(place)
        distances: list[torch.Tensor] = []

        def to_mean(z: torch.Tensor, rows: slice) -> torch.Tensor:
            distances.append((z.cpu().double() - mean).norm(dim=-1).flatten())
            return mean.expand_as(z)

        def to_random(z: torch.Tensor, rows: slice) -> torch.Tensor:
            direction = torch.randn(z.shape, generator=self.generator, dtype=torch.float64)
            step = (z.cpu().double() - mean).norm(dim=-1, keepdim=True)
            moved: torch.Tensor = z.cpu().double() + step * direction / direction.norm(dim=-1, keepdim=True)
            return moved

        edited = self._run_copy(write_output(place, to_mean))
        control = self._run_copy(write_output(place, to_random))
        layers = {layer for layer, _ in self.circuit.known_copy_heads}
        name = f"copy_head_{place[1] if len(layers) == 1 else head_name(place)}"
        return self._measured(name, edited, control, change=float(torch.cat(distances).mean()))

    def recovered(self, law: Measured | None, uniform: Measured) -> dict[str, float]:
        """The shares of loss and of predictions that a law recovers, with standard errors; NaN where there is none."""
        loss = kls = (math.nan, math.nan)
        if law is not None:
            loss = _recovered(law.losses - self.losses, uniform.losses - self.losses)
            kls = _recovered(law.kls, uniform.kls)
        return {
            "loss_recovered": loss[0],
            "loss_recovered_stderr": loss[1],
            "kl_recovered": kls[0],
            "kl_recovered_stderr": kls[1],
        }

    def _edit_pattern(self, name: str, rows: torch.Tensor, *, control: torch.Tensor | None = None) -> Measured:
        distance = (rows - self.pattern).abs().sum(-1) / 2
        edited = self._run(write_pattern(self.circuit, rows))
        if float(distance.max()) > NOTICEABLE and torch.equal(edited, self.logits):
            raise ValueError(
                f"the edit {name!r} changed the attention of {', '.join(map(head_name, self.circuit.match_heads))} "
                f"(layer.head) but did not reach the logits: nothing reads that head"
            )
        other = None if control is None else self._run(write_pattern(self.circuit, control))
        return self._measured(name, edited, other, change=float(distance.mean()))

    def _measured(self, name: str, edited: torch.Tensor, control: torch.Tensor | None, *, change: float) -> Measured:
        losses, kls, floored = self._score(edited)
        control_losses, control_kls = None, None
        reached = not torch.equal(edited, self.logits)
        if control is not None:
            control_losses, control_kls, _ = self._score(control)
            reached = reached or not torch.equal(control, self.logits)
        return Measured(
            edit=name,
            losses=losses,
            kls=kls,
            change=change,
            reached=reached,
            floored=floored,
            control_losses=control_losses,
            control_kls=control_kls,
        )

    def _run(self, hooks: Hooks) -> torch.Tensor:
        return run(self.circuit, self.tokens, hooks=hooks, last_only=True, stream=self.stream)

    def _run_copy(self, hooks: Hooks) -> torch.Tensor:
        return run(self.circuit, self.tokens, copy_hooks=hooks, last_only=True)

    def _score(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, float]:
        laws = torch.softmax(logits.double(), dim=-1)
        loss = kl_divergence(self.truth, laws, floor=self.floor)
        return loss.values, kl_between(self.base, laws, floor=self.floor), loss.floored

    def _deal(self) -> torch.Tensor:
        """For every sequence a random order of its candidates."""
        shape = (self.masks.shape[0], len(self.candidates))
        return torch.rand(shape, generator=self.generator).argsort(dim=-1)

    def _without_random_mass(self) -> torch.Tensor:
        """The pattern after as much mass as BOS has was taken from random candidates, as far as they have it."""
        own = self.pattern[..., self.candidates]
        order = self._deal()[:, None].expand(own.shape)
        dealt = own.gather(-1, order)
        before = dealt.cumsum(-1) - dealt
        taken = torch.minimum((self.pattern[..., :1] - before).clamp(min=0.0), dealt)
        rows = self.pattern.clone()
        rows[..., self.candidates] = torch.zeros_like(dealt).scatter(-1, order, dealt - taken)
        return rows / rows.sum(-1, keepdim=True)

    def _mean_output(self, place: Head) -> torch.Tensor:
        """The mean of a copy head's output over sequences and positions."""
        sums: list[torch.Tensor] = []

        def read(z: torch.Tensor, rows: slice) -> torch.Tensor:
            sums.append(z.cpu().double().sum((0, 1)))
            return z

        self._run_copy(write_output(place, read))
        if not sums:
            raise ValueError(f"the hook on copy head {head_name(place)} was never called")
        return torch.stack(sums).sum(0) / self.masks.numel()  # a mask per sequence and position


def _recovered(lost: torch.Tensor, scale: torch.Tensor) -> tuple[float, float]:
    """`share_recovered`, cut to [0, 1]."""
    share, stderr = share_recovered(lost, scale)
    return (share if math.isnan(share) else min(1.0, max(0.0, share))), stderr
