"""Does the mechanism cause the prediction? Edits of the live circuit, each beside a matched random control.

    tests = causal_tests(model, chains.tokens, next_law=chains.next_law, beta=fit.beta, kappa=fit.kappa)
    tests.loss_recovered, tests.table()

Attention is edited at the last query, where the prediction is made. With s the model's own match scores and M
the mask of a candidate key:

    law            the pattern becomes e^{|beta|_M} / Z, BOS e^kappa / Z, early keys 0 (eq:transformer_estimator)
    pair_law       the same with a weight for every pair of blocks, not only the aligned ones (corollary:inductive)
    beta_zero      s - |beta|_M: matching no longer counts; whatever else is in the scores stays
    beta_infinite  the limit of s - |beta|_M + C |M|: only the candidates with the largest overlap are left, the
                   full matches where there are any. At fixed kappa, BOS then has no weight.
    lag_r_only     s - |beta|_M + beta_r [r in M]: only lag r counts (for k > 1)
    no_partial     only full matches and BOS are left; where there is neither, the head attends to nothing
    no_bos         BOS gets nothing, the rest is renormalised
    copy_head_h    the output of copy head h (from 0) becomes its mean over sequences and positions
    uniform        even attention over all visible keys

The control of an edit of matches is the same edit with the masks shuffled among the candidates of each sequence:
the same weights or score changes, at random keys. The control of `no_bos` takes the same mass from random
candidates. The control of `copy_head_h` moves the head's output just as far, in a random direction.

Loss is KL(truth || prediction), which differs from the cross-entropy by a constant. `uniform` sets the scale on
which loss is recovered: 1 - (L_law - L_model) / (L_uniform - L_model), cut to [0, 1]; `pair_loss_recovered` is the
same of the pair law. A model that the pair law recovers and the law does not compares tokens of unequal lags, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from transformer_lens import HookedTransformer

from interp.circuit.edits import (
    NOTICEABLE,
    Circuit,
    Hooks,
    check_next_law,
    check_parameters,
    key_masks,
    kl_between,
    law_pattern,
    locate,
    mask_scores,
)
from interp.divergence import KL_FLOOR, kl_divergence
from interp.notation import Tokens, mask_bits
from interp.results import Result, mean_stderr, provenance

if TYPE_CHECKING:
    import pandas as pd

PatternEdit: TypeAlias = Callable[[torch.Tensor], torch.Tensor]  # masks of the keys -> attention over the keys


@dataclass(frozen=True, kw_only=True)
class CausalEdit:
    """What one edit did to the predictions, and what its random control did.

    loss           mean loss of the edited model
    loss_change    mean of L_edited - L_model, with its standard error over sequences
    kl             mean of KL(model || edited model), with its standard error
    change         how much was edited: the mean total-variation distance between the edited and the model's own
                   attention; for a copy head the mean distance between its output and what took its place
    reached        the hook was seen to change the logits: by the edit, or by its control where the edit equals the
                   model's own attention. Attention edits that fail this raise; False is left for a copy head that
                   nothing reads.
    floored        share of sequences where the edited prediction needed the floor of the loss
    control_*      the same numbers for the control; None for `uniform`, which is a control itself
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
class CausalTests(Result):
    """The edits, and how much of the model the fitted law recovers.

    loss            the unedited model's KL(truth || prediction), with its standard error
    loss_recovered  1 when the law's attention predicts as well as the model's own, 0 when no better than even
                    attention does
    kl_recovered    1 - KL(model || law) / KL(model || uniform), cut to [0, 1]: the same question about the
                    predictions themselves, which a model cannot pass by losing in another way
    pair_*          the same two shares for the law of all pairs; NaN where none was given
    success         False where no law was given to test, or where even attention loses nothing, so that there is
                    nothing to recover
    """

    edits: tuple[CausalEdit, ...]
    loss: float
    loss_stderr: float
    loss_recovered: float
    loss_recovered_stderr: float
    kl_recovered: float
    kl_recovered_stderr: float
    pair_loss_recovered: float
    pair_loss_recovered_stderr: float
    pair_kl_recovered: float
    pair_kl_recovered_stderr: float
    beta: Float[np.ndarray, " lag"] | None
    kappa: float | None
    floor: float
    n: int
    success: bool
    message: str
    provenance: dict[str, Any]

    def __getitem__(self, edit: str) -> CausalEdit:
        """The edit of that name."""
        for row in self.edits:
            if row.edit == edit:
                return row
        raise KeyError(f"no edit {edit!r}; there are {', '.join(row.edit for row in self.edits)}")

    def record(self) -> dict[str, Any]:
        """The fields, after the change of loss that each edit made."""
        return {"change": {row.edit: row.loss_change for row in self.edits}, **super().record()}

    def table(self) -> pd.DataFrame:
        """One row per edit; the columns are the fields of `CausalEdit`."""
        import pandas as pd

        names = [field.name for field in fields(CausalEdit)]
        return pd.DataFrame([[getattr(row, name) for name in names] for row in self.edits], columns=names)

    def __str__(self) -> str:
        others = [row for row in self.edits if row.edit not in ("law", "pair_law", "uniform")]
        worst = sorted(others, key=lambda row: -row.loss_change)[:3]
        lines = [f"Causal tests on {self.n} sequences, loss {self.loss:.4f} +- {self.loss_stderr:.4f} nats"]
        if self.beta is not None:
            law = self["law"]
            lines += [
                f"  attention replaced by the law: loss {law.loss_change:+.5f} +- {law.loss_stderr:.5f}, "
                f"KL {law.kl:.5f}",
                f"  the law at shuffled keys: loss {law.control_loss_change:+.5f}, KL {law.control_kl:.5f}",
                f"  loss recovered {self.loss_recovered:.3f} +- {self.loss_recovered_stderr:.3f}, "
                f"predictions recovered {self.kl_recovered:.3f} +- {self.kl_recovered_stderr:.3f}",
            ]
        if not math.isnan(self.pair_kl_recovered):
            lines.append(
                f"  by the law of all lag pairs: loss {self.pair_loss_recovered:.3f} +- "
                f"{self.pair_loss_recovered_stderr:.3f}, predictions {self.pair_kl_recovered:.3f} +- "
                f"{self.pair_kl_recovered_stderr:.3f}"
            )
        lines.append("  worst edits: " + ", ".join(f"{row.edit} {row.loss_change:+.4f}" for row in worst))
        if not self.success:
            lines.append(f"  not to be trusted: {self.message}")
        return "\n".join(lines)

    __repr__ = __str__


def causal_tests(
    model: HookedTransformer,
    tokens: Tokens,
    *,
    next_law: Float[torch.Tensor, "batch vocab"],
    beta: Any | None,
    kappa: float | None,
    pairs: Any | None = None,
    pairs_kappa: float | None = None,
    seed: int = 0,
    floor: float = KL_FLOOR,
    order: int | None = None,
    copy_layer: int | None = None,
    match_layer: int | None = None,
    match_head: int | None = None,
    bos: int | bool | None = None,
    vocab: int | None = None,
    checkpoint: str | None = None,
) -> CausalTests:
    """Run every edit and its control on the live model; the module's docstring says what each one does.

    `next_law` is the true law of the token after each sequence (a one-hot row of the token that came will also
    do), beta and kappa are the fitted law's (`fit_scores`), pairs [k+1, k+1] and pairs_kappa those of the law of all
    pairs (`fit_score_pairs`), `seed` draws the controls. With beta=None, only the edits that need no law are made, and
    with pairs=None no pair law. An edit that does not reach the logits is an error, not a result.
    """
    circuit = locate(
        model,
        order=order,
        copy_layer=copy_layer,
        match_layer=match_layer,
        match_head=match_head,
        bos=bos,
        vocab=vocab,
    )
    array = circuit.check(tokens)
    truth = check_next_law(next_law, array, vocab=circuit.vocab)
    weights, pseudo = (None, None) if beta is None else check_parameters(circuit, beta=beta, kappa=kappa)
    bench = _Bench(circuit, array, truth, floor=floor, seed=seed)
    edits = {} if weights is None else _law_edits(bench.scores, beta=weights, kappa=pseudo)
    edits["no_partial"] = lambda masks: keep_keys(
        bench.scores, full_matches(masks, order=circuit.order, bos=circuit.bos)
    )
    measured = [bench.edit_matches(name, edit) for name, edit in edits.items()]
    pair_law = None if pairs is None else bench.write_pairs(*_checked_pairs(circuit, pairs, pairs_kappa))
    measured += [] if pair_law is None else [pair_law]
    if circuit.bos:
        measured.append(bench.remove_bos())
    measured += [bench.ablate_copy_head(head) for head in range(circuit.copy_heads)]
    uniform = bench.spread_evenly()
    loss, loss_stderr = mean_stderr(bench.losses)
    recovered, recovered_stderr, kl_recovered, kl_recovered_stderr = (math.nan,) * 4
    by_pairs = (math.nan,) * 4
    if pair_law is not None:
        by_pairs = (
            *_recovered(pair_law.losses - bench.losses, uniform.losses - bench.losses),
            *_recovered(pair_law.kls, uniform.kls),
        )
    message = "no law was given, so none was tested"
    if weights is not None:
        law = measured[0]
        recovered, recovered_stderr = _recovered(law.losses - bench.losses, uniform.losses - bench.losses)
        kl_recovered, kl_recovered_stderr = _recovered(law.kls, uniform.kls)
        nothing_lost = math.isnan(recovered)
        message = "even attention costs this model no loss, so there is none to recover" if nothing_lost else ""
    return CausalTests(
        edits=tuple(row.summary(bench.losses) for row in [*measured, uniform]),
        loss=loss,
        loss_stderr=loss_stderr,
        loss_recovered=recovered,
        loss_recovered_stderr=recovered_stderr,
        kl_recovered=kl_recovered,
        kl_recovered_stderr=kl_recovered_stderr,
        pair_loss_recovered=by_pairs[0],
        pair_loss_recovered_stderr=by_pairs[1],
        pair_kl_recovered=by_pairs[2],
        pair_kl_recovered_stderr=by_pairs[3],
        beta=weights,
        kappa=pseudo,
        floor=floor,
        n=array.shape[0],
        success=not message,
        message=message,
        provenance=provenance(seed=seed, checkpoint=checkpoint),
    )


def full_matches(masks: Int64[torch.Tensor, "batch key"], *, order: int, bos: bool) -> Bool[torch.Tensor, "batch key"]:
    """Where a key is a full match, or is BOS if `bos` says to count it."""
    kept = masks == (1 << order) - 1
    if bos:
        kept[:, 0] = True
    return kept


def keep_keys(
    scores: Float[torch.Tensor, "batch key"], kept: Bool[torch.Tensor, "batch key"]
) -> Float[torch.Tensor, "batch key"]:
    """The softmax over the kept keys alone. Where none is kept the row is zero: the head attends to nothing."""
    pattern = torch.softmax(torch.where(kept, scores, -torch.inf), dim=-1)
    return torch.nan_to_num(pattern, nan=0.0)


def pair_scores(
    tokens: Int64[torch.Tensor, "batch length"], pairs: Float[np.ndarray, "block block"]
) -> Float[torch.Tensor, "batch candidate"]:
    """sum_ab beta_ab [x_{t-a} = x_{s-b}] of the last query t and its candidates s = k..t."""
    last = tokens.shape[1] - 1
    keys = torch.arange(len(pairs) - 1, last + 1)
    scores = torch.zeros(tokens.shape[0], len(keys), dtype=torch.float64)
    for (query, key), weight in np.ndenumerate(pairs):
        scores += float(weight) * (tokens[:, last - query, None] == tokens[:, keys - key])
    return scores


def _checked_pairs(
    circuit: Circuit, pairs: Any, kappa: float | None
) -> tuple[Float[np.ndarray, "block block"], float | None]:
    """The matrix and kappa of a pair law that belongs to this model."""
    matrix = np.asarray(pairs, dtype=np.float64)
    if matrix.shape != (circuit.order + 1,) * 2 or not np.isfinite(matrix).all():
        raise ValueError(f"pairs must be finite numbers of shape {[circuit.order + 1] * 2}, got {list(matrix.shape)}")
    _, pseudo = check_parameters(circuit, beta=np.zeros(circuit.order), kappa=kappa)
    return matrix, pseudo


def _law_edits(
    scores: Float[torch.Tensor, "batch key"], *, beta: Float[np.ndarray, " lag"], kappa: float | None
) -> dict[str, PatternEdit]:
    """The edits that a law makes, itself first, as functions of the masks: shuffled masks give their controls."""
    order = beta.size

    def clamp(kept: Float[np.ndarray, " lag"]) -> PatternEdit:
        return lambda masks: torch.softmax(scores + mask_scores(masks, kept - beta), dim=-1)

    def hardest(masks: torch.Tensor) -> torch.Tensor:
        sizes = torch.from_numpy(mask_bits(order).sum(-1))
        overlaps = torch.where(masks >= 0, sizes[masks.clamp(min=0)], -1)
        largest = overlaps == overlaps.max(dim=-1, keepdim=True).values
        return keep_keys(scores - mask_scores(masks, beta), largest)

    edits: dict[str, PatternEdit] = {
        "law": lambda masks: law_pattern(masks, beta=beta, kappa=kappa),
        "beta_zero": clamp(np.zeros(order)),
        "beta_infinite": hardest,
    }
    if order > 1:
        for lag in range(1, order + 1):
            edits[f"lag_{lag}_only"] = clamp(np.where(np.arange(order) == lag - 1, beta, 0.0))
    return edits


@dataclass(frozen=True, kw_only=True)
class _Measured:
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


class _Bench:
    """A model at rest, its tokens and truth, and the means to edit it and to measure what changed."""

    def __init__(self, circuit: Circuit, tokens: torch.Tensor, truth: torch.Tensor, *, floor: float, seed: int) -> None:
        self.circuit, self.tokens, self.truth, self.floor = circuit, tokens, truth, floor
        self.generator = torch.Generator().manual_seed(seed)
        self.masks = key_masks(tokens, order=circuit.order, bos=circuit.bos)
        self.candidates = (self.masks[0] >= 0).nonzero().squeeze(-1)  # the same keys in every sequence
        self.stream = circuit.stream(tokens)  # most edits leave the copy layer alone
        scores: list[torch.Tensor] = []
        patterns: list[torch.Tensor] = []
        self.logits = self._run(circuit.read_match(scores, patterns))
        self.scores, self.pattern = torch.cat(scores).double(), torch.cat(patterns).double()
        self.base = torch.softmax(self.logits[:, : circuit.vocab].double(), dim=-1)
        self.losses = kl_divergence(truth, self.base, floor=floor).values

    def edit_matches(self, name: str, edit: PatternEdit) -> _Measured:
        """Write the edit's attention; the control's comes from masks dealt anew to each sequence's candidates."""
        shuffled = self.masks.clone()
        shuffled[:, self.candidates] = self.masks[:, self.candidates].gather(1, self._deal())
        return self._edit_pattern(name, edit(self.masks), control=edit(shuffled))

    def write_pairs(self, pairs: Float[np.ndarray, "block block"], kappa: float | None) -> _Measured:
        """Attention of the law of all pairs; the control deals its scores anew to each sequence's candidates."""
        scores = torch.full_like(self.scores, -torch.inf)
        scores[:, self.candidates] = pair_scores(self.tokens, pairs)
        dealt = scores.clone()
        dealt[:, self.candidates] = scores[:, self.candidates].gather(1, self._deal())
        if kappa is not None:
            scores[:, 0] = dealt[:, 0] = kappa
        return self._edit_pattern("pair_law", torch.softmax(scores, -1), control=torch.softmax(dealt, -1))

    def remove_bos(self) -> _Measured:
        visible = torch.ones_like(self.masks, dtype=torch.bool)
        visible[:, 0] = False
        return self._edit_pattern("no_bos", keep_keys(self.scores, visible), control=self._without_random_mass())

    def spread_evenly(self) -> _Measured:
        return self._edit_pattern("uniform", torch.full_like(self.pattern, 1 / self.pattern.shape[1]))

    def ablate_copy_head(self, head: int) -> _Measured:
        """Replace one copy head's output by its mean; the control moves it just as far in a random direction."""
        mean = self._mean_output(head)
        distances: list[torch.Tensor] = []

        def to_mean(z: torch.Tensor, rows: slice) -> torch.Tensor:
            distances.append((z.double() - mean).norm(dim=-1).flatten())
            return mean.expand_as(z)

        def to_random(z: torch.Tensor, rows: slice) -> torch.Tensor:
            direction = torch.randn(z.shape, generator=self.generator, dtype=torch.float64)
            step = (z.double() - mean).norm(dim=-1, keepdim=True)
            moved: torch.Tensor = z.double() + step * direction / direction.norm(dim=-1, keepdim=True)
            return moved

        edited = self._run_copy(self.circuit.write_copy(head, to_mean))
        control = self._run_copy(self.circuit.write_copy(head, to_random))
        return self._measured(f"copy_head_{head}", edited, control, change=float(torch.cat(distances).mean()))

    def _edit_pattern(self, name: str, rows: torch.Tensor, *, control: torch.Tensor | None = None) -> _Measured:
        distance = (rows - self.pattern).abs().sum(-1) / 2
        edited = self._run(self.circuit.write_pattern(rows))
        if float(distance.max()) > NOTICEABLE and torch.equal(edited, self.logits):
            raise ValueError(
                f"the edit {name!r} changed the attention of head {self.circuit.match_head} of layer "
                f"{self.circuit.match_layer} but did not reach the logits: nothing reads that head"
            )
        other = None if control is None else self._run(self.circuit.write_pattern(control))
        return self._measured(name, edited, other, change=float(distance.mean()))

    def _measured(self, name: str, edited: torch.Tensor, control: torch.Tensor | None, *, change: float) -> _Measured:
        losses, kls, floored = self._score(edited)
        control_losses, control_kls = None, None
        reached = not torch.equal(edited, self.logits)
        if control is not None:
            control_losses, control_kls, _ = self._score(control)
            reached = reached or not torch.equal(control, self.logits)
        return _Measured(
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
        return self.circuit.run(self.tokens, hooks=hooks, last_only=True, stream=self.stream)

    def _run_copy(self, hooks: Hooks) -> torch.Tensor:
        return self.circuit.run(self.tokens, copy_hooks=hooks, last_only=True)

    def _score(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, float]:
        laws = torch.softmax(logits[:, : self.circuit.vocab].double(), dim=-1)
        loss = kl_divergence(self.truth, laws, floor=self.floor)
        return loss.values, kl_between(self.base, laws, floor=self.floor), loss.floored

    def _deal(self) -> torch.Tensor:
        """For every sequence a random order of its candidates."""
        shape = (self.masks.shape[0], len(self.candidates))
        return torch.rand(shape, generator=self.generator).argsort(dim=-1)

    def _without_random_mass(self) -> torch.Tensor:
        """The pattern once as much mass as BOS has is taken from random candidates, as far as they have it."""
        order = self._deal()
        dealt = self.pattern[:, self.candidates].gather(1, order)
        before = dealt.cumsum(-1) - dealt
        taken = torch.minimum((self.pattern[:, :1] - before).clamp(min=0.0), dealt)
        rows = self.pattern.clone()
        rows[:, self.candidates] = torch.zeros_like(dealt).scatter(1, order, dealt - taken)
        return rows / rows.sum(-1, keepdim=True)

    def _mean_output(self, head: int) -> torch.Tensor:
        """The mean of a copy head's output over sequences and positions."""
        sums: list[torch.Tensor] = []

        def read(z: torch.Tensor, rows: slice) -> torch.Tensor:
            sums.append(z.double().sum((0, 1)))
            return z

        self._run_copy(self.circuit.write_copy(head, read))
        if not sums:
            raise ValueError(f"the hook on copy layer {self.circuit.copy_layer} was never called")
        return torch.stack(sums).sum(0) / self.masks.numel()  # a mask per sequence and position


def _recovered(lost: torch.Tensor, scale: torch.Tensor) -> tuple[float, float]:
    """1 - mean(lost) / mean(scale), cut to [0, 1], and the standard error of the ratio (delta method).

    NaN where the scale is not positive: nothing can be recovered then.
    """
    bottom = float(scale.mean())
    if bottom <= 0:
        return math.nan, math.nan
    ratio = float(lost.mean()) / bottom
    return min(1.0, max(0.0, 1.0 - ratio)), mean_stderr(lost - ratio * scale)[1] / bottom
