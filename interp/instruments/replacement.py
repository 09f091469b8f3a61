"""What do the match heads do for a next-token model? Something else is put in their place, and the losses tell.

    tests = replace_heads(circuit, tokens, queries=range(20, 50), by_mask=scores, kappa=kappas)
    tests["ablated"].change, tests["law"].recovered, tests["law"].control_recovered

A language model predicts at every position, so that the match heads are edited at many queries at once, all heads
together, and the loss is that of the tokens that follow these queries (`next_losses`: over the symbols of the circuit,
or over the whole vocabulary where it has none).

    ablated    the heads' outputs become their means over sequences and edited queries; the control does this to other
               heads of the same layers, as many in each layer, drawn at random `draws` times
    even       even attention over all keys that the query sees
    law        the attention of the law: a key of mask M gets e^{score_M} / Z, BOS e^kappa / Z, early keys nothing. The
               control deals the masks anew among the candidates of each query: the same weights at random keys
    hard       the limit of matching: only the keys with the largest overlap, evenly; BOS gets nothing. Control as above

`recovered` is (L_ablated - L_edit) / (L_ablated - L_model): 1 where the edit is as good as the heads' own attention, 0
where it is as bad as none. It is not cut: an edit may be better than the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int64

from interp.circuit.circuit import Circuit, Head, as_circuit, head_name, heads_of
from interp.circuit.edits import write_pattern
from interp.circuit.law import key_masks_at, law_pattern
from interp.circuit.runner import Hook, Hooks, next_losses
from interp.notation import Tokens, mask_bits
from interp.results import NamedRows, mean_stderr, provenance

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Losses: TypeAlias = Float[np.ndarray, " sequence"]  # means over the queries of each sequence
Masks: TypeAlias = Int64[torch.Tensor, "batch query key"]

DRAWS = 3


@dataclass(frozen=True, kw_only=True)
class ReplacedHead:
    """What one replacement did to the loss, and what its control did.

    loss               mean loss after the replacement
    change             mean of L_edited - L_model, with its standard error over sequences
    recovered          see the module, with its standard error
    control_*          the same for the control; None for `even`, which has none
    """

    edit: str
    loss: float
    change: float
    stderr: float
    recovered: float
    recovered_stderr: float
    control_change: float | None
    control_stderr: float | None
    control_recovered: float | None


@dataclass(frozen=True, kw_only=True)
class ReplacedHeads(NamedRows[ReplacedHead]):
    """The replacements, found by name (`tests["law"]`).

    loss           the model's own, over the tokens that follow the queries; with its standard error over sequences
    heads          the match heads, replaced together
    drawn          the heads that were ablated as a control, a tuple for each draw
    worst_control  the largest change of loss that one of these draws made
    success        False where ablating the heads costs nothing: then there is nothing to recover
    """

    ROWS, NAME, NOUN = "edits", "edit", "edit"

    edits: tuple[ReplacedHead, ...]
    loss: float
    loss_stderr: float
    heads: tuple[Head, ...]
    drawn: tuple[tuple[Head, ...], ...]
    worst_control: float
    queries: int
    n: int

    def __str__(self) -> str:
        names = ", ".join(map(head_name, self.heads))
        lines = [
            f"heads {names} replaced at {self.queries} queries of {self.n} sequences",
            f"  loss {self.loss:.3f} +- {self.loss_stderr:.3f} nats; other heads ablated: at most "
            f"{self.worst_control:+.3f}",
        ]
        for row in self.edits[:5]:
            control = "" if row.control_change is None else f" (control {row.control_change:+.3f})"
            lines.append(
                f"  {row.edit:<8} {row.change:+.3f} +- {row.stderr:.3f}{control}, recovers {row.recovered:.2f}"
            )
        return "\n".join([*lines, *self.remarks()])

    def plot(self, ax: Axes | None = None) -> Axes:
        """The change of loss of each replacement, beside its control; 95% intervals."""
        from interp.plotting import (
            CONTROL_COLOUR,
            INTERVAL_NAME,
            MAIN_COLOUR,
            grouped_bars,
            heading,
            legend_beside,
            panel,
        )

        rows = self.table().astype({"control_change": float, "control_stderr": float})
        ax = panel(ax)
        grouped_bars(
            ax,
            list(self),
            {"edit": rows["change"].to_numpy(), "control": rows["control_change"].to_numpy()},
            stderrs={"edit": rows["stderr"].to_numpy(), "control": rows["control_stderr"].to_numpy()},
            colours={"edit": MAIN_COLOUR, "control": CONTROL_COLOUR},
        )
        ax.set_ylabel(f"rise of the loss (nats)\n{INTERVAL_NAME}")
        legend_beside(ax)
        return heading(ax, f"heads {', '.join(map(head_name, self.heads))} replaced", doubt=self.doubt)


def replace_heads(
    model: Any,
    tokens: Tokens,
    *,
    queries: Any,
    by_mask: Any = None,
    kappa: Any = None,
    draws: int = DRAWS,
    seed: int = 0,
    checkpoint: str | None = None,
) -> ReplacedHeads:
    """Replace the circuit's match heads at the queries, and measure the losses of the tokens that follow them.

    `queries` are token indices. `by_mask` [match, mask] and `kappa` [match] are the law of each head (an attention
    fit's `mask_score` and `kappa`; a MatchFit's are mask_bits(k) @ beta and kappa); without them the edit `law` is left
    out. `seed` draws the controls.
    """
    circuit = as_circuit(model)
    circuit.require_match()
    array = circuit.check(tokens)
    bench = _Bench(circuit, array, _positions(queries, array.shape[1]), seed=seed)
    laws = None if by_mask is None else _checked_laws(circuit, by_mask, kappa)
    others = [_others(circuit, bench.generator) for _ in range(draws)]
    ablated = bench.losses(bench.to_mean(circuit.match_heads))
    drawn = [bench.losses(bench.to_mean(heads)) for heads in others]
    rows = [_Row(edit="ablated", losses=ablated, control=np.mean(drawn, axis=0) if drawn else None)]
    rows.append(_Row(edit="even", losses=bench.losses(bench.write(_even(bench.masks, circuit))), control=None))
    if laws is not None:
        rows.append(bench.matched("law", partial(_law, laws=laws)))
    rows.append(bench.matched("hard", partial(_hard, heads=len(circuit.match_heads), order=circuit.order)))
    loss, loss_stderr = mean_stderr(bench.base)
    lost = float((ablated - bench.base).mean())
    return ReplacedHeads(
        edits=tuple(row.summary(bench.base, ablated) for row in rows),
        loss=loss,
        loss_stderr=loss_stderr,
        heads=circuit.match_heads,
        drawn=tuple(others),
        worst_control=max((float((one - bench.base).mean()) for one in drawn), default=math.nan),
        queries=len(bench.queries),
        n=array.shape[0],
        success=lost > 0,
        message="" if lost > 0 else "ablating the heads costs no loss, so there is none to recover",
        provenance=provenance(seed=seed, checkpoint=checkpoint),
    )


@dataclass(frozen=True, kw_only=True)
class _Row:
    edit: str
    losses: Losses
    control: Losses | None

    def summary(self, base: Losses, ablated: Losses) -> ReplacedHead:
        change, stderr = mean_stderr(self.losses - base)
        recovered, recovered_stderr = _recovered(self.losses - base, ablated - base)
        of_control: tuple[float | None, float | None] = (None, None)
        control_recovered = None
        if self.control is not None:
            of_control = mean_stderr(self.control - base)
            control_recovered = _recovered(self.control - base, ablated - base)[0]
        return ReplacedHead(
            edit=self.edit,
            loss=float(self.losses.mean()),
            change=change,
            stderr=stderr,
            recovered=recovered,
            recovered_stderr=recovered_stderr,
            control_change=of_control[0],
            control_stderr=of_control[1],
            control_recovered=control_recovered,
        )


class _Bench:
    """The model at rest, the masks that its queries see, and the means to edit it there."""

    def __init__(self, circuit: Circuit, tokens: torch.Tensor, queries: torch.Tensor, *, seed: int) -> None:
        self.circuit, self.tokens, self.queries = circuit, tokens, queries
        self.generator = torch.Generator().manual_seed(seed)
        self.positions = queries + int(circuit.has_bos)
        self.masks = key_masks_at(tokens, order=circuit.order, bos=circuit.has_bos, queries=self.positions)
        self._sums: dict[Head, torch.Tensor] = {}
        self.base = self.losses(self._sum_outputs)

    def losses(self, hooks: Hooks) -> Losses:
        """The mean loss after the queries, for every sequence."""
        every = next_losses(self.circuit, self.tokens, hooks=hooks)
        return np.asarray(every[:, self.queries].mean(dim=1).numpy())

    def write(self, patterns: Float[torch.Tensor, "batch match query key"]) -> Hooks:
        return write_pattern(self.circuit, patterns, queries=self.positions)

    def matched(self, name: str, pattern: Callable[[Masks], torch.Tensor]) -> _Row:
        """An edit that follows the masks, and its control on masks dealt anew."""
        edited = self.losses(self.write(pattern(self.masks)))
        return _Row(edit=name, losses=edited, control=self.losses(self.write(pattern(self._dealt()))))

    def _dealt(self) -> Masks:
        """The masks of each query's candidates in a random order."""
        dealt = self.masks.clone()
        for place in range(len(self.positions)):
            candidates = (self.masks[0, place] >= 0).nonzero().squeeze(-1)
            order = torch.rand(len(dealt), len(candidates), generator=self.generator).argsort(dim=-1)
            dealt[:, place, candidates] = self.masks[:, place, candidates].gather(1, order)
        return dealt

    def _sum_outputs(self, part: slice) -> list[Hook]:
        """Hooks that change nothing and add up the outputs of every head in the match heads' layers."""

        def add(layer: int, z: torch.Tensor, hook: Any) -> None:
            total = z[:, self.positions].double().sum((0, 1)).cpu()
            for head, one in enumerate(total):
                self._sums[layer, head] = self._sums.get((layer, head), torch.zeros_like(one)) + one

        return [(f"blocks.{layer}.attn.hook_z", partial(add, layer)) for layer in _layers(self.circuit.match_heads)]

    def to_mean(self, heads: Sequence[Head]) -> Hooks:
        """Hooks that replace these heads' outputs at the queries by their means."""
        count = self.tokens.shape[0] * len(self.positions)

        def write(layer: int, z: torch.Tensor, hook: Any) -> torch.Tensor:
            edited = z.clone()
            for own, head in heads:
                if own == layer:
                    edited[:, self.positions, head] = (self._sums[own, head] / count).to(z)
            return edited

        return lambda part: [(f"blocks.{layer}.attn.hook_z", partial(write, layer)) for layer in _layers(heads)]


def _law(masks: Masks, *, laws: Sequence[tuple[Float[np.ndarray, " mask"], float | None]]) -> torch.Tensor:
    return torch.stack([law_pattern(masks, by_mask=scores, kappa=kappa) for scores, kappa in laws], dim=1)


def _hard(masks: Masks, *, heads: int, order: int) -> torch.Tensor:
    sizes = torch.from_numpy(mask_bits(order).sum(-1))
    overlaps = torch.where(masks >= 0, sizes[masks.clamp(min=0)], -1)
    largest = (overlaps == overlaps.max(dim=-1, keepdim=True).values).double()
    return (largest / largest.sum(-1, keepdim=True))[:, None].expand(-1, heads, -1, -1)


def _even(masks: Masks, circuit: Circuit) -> torch.Tensor:
    """Even attention; a query with any candidate sees all keys up to its own, which is its last candidate."""
    last = (masks >= 0).long().cumsum(-1).argmax(-1, keepdim=True)
    seen = (torch.arange(masks.shape[-1]) <= last).double()
    return (seen / seen.sum(-1, keepdim=True))[:, None].expand(-1, len(circuit.match_heads), -1, -1)


def _layers(heads: Iterable[Head]) -> list[int]:
    return sorted({layer for layer, _ in heads})


def _others(circuit: Circuit, generator: torch.Generator) -> tuple[Head, ...]:
    """As many heads in each layer as match there, drawn from those that do not; all of these where they are fewer."""
    drawn: list[Head] = []
    for layer in _layers(circuit.match_heads):
        matching = [head for own, head in circuit.match_heads if own == layer]
        rest = [head for head in range(heads_of(circuit.model, layer)) if head not in matching]
        order = torch.randperm(len(rest), generator=generator).tolist()
        drawn += [(layer, rest[place]) for place in sorted(order[: len(matching)])]
    return tuple(drawn)


def _positions(queries: Any, length: int) -> Int64[torch.Tensor, " query"]:
    try:
        asked = sorted({int(query) for query in queries})
    except (TypeError, ValueError):
        raise ValueError(f"queries must list token indices, got {queries!r}") from None
    if not asked:
        raise ValueError("queries lists no token index")
    for query in (asked[0], asked[-1]):
        if not 0 <= query < length - 1:
            raise ValueError(f"query {query} has no next token among the tokens 0..{length - 1}")
    return torch.tensor(asked)


def _checked_laws(circuit: Circuit, by_mask: Any, kappa: Any) -> list[tuple[Float[np.ndarray, " mask"], float | None]]:
    heads, masks = len(circuit.match_heads), 1 << circuit.order
    table = np.asarray(by_mask, dtype=np.float64)
    if table.shape != (heads, masks) or not np.isfinite(table).all():
        raise ValueError(f"by_mask must be finite numbers of shape [{heads}, {masks}], got {list(table.shape)}")
    if (kappa is None) == circuit.has_bos:
        raise ValueError(f"kappa is needed exactly where there is BOS: BOS {circuit.bos}, kappa {kappa!r}")
    if kappa is None:
        return [(row, None) for row in table]
    scores = np.asarray(kappa, dtype=np.float64)
    if scores.shape != (heads,) or not np.isfinite(scores).all():
        raise ValueError(f"kappa must be finite numbers of shape [{heads}], got {list(scores.shape)}")
    return [(row, float(score)) for row, score in zip(table, scores, strict=True)]


def _recovered(change: Losses, lost: Losses) -> tuple[float, float]:
    """1 - mean(change) / mean(lost), and the standard error of the ratio (delta method); NaN where nothing is lost."""
    bottom = float(lost.mean())
    if bottom <= 0:
        return math.nan, math.nan
    ratio = float(change.mean()) / bottom
    return 1.0 - ratio, mean_stderr(change - ratio * lost)[1] / bottom
