"""What do the match heads do for a next-token model? They are replaced, and the change of the loss is measured.

    tests = replace_heads(circuit, tokens, queries="trained", by_mask="fitted")
    tests["ablated"].change, tests["law"].recovered, tests["law"].control_recovered
    replace_heads(circuit, tokens, queries=range(20, 50), by_mask=scores, kappa=kappas)      a law of your own

A language model predicts at every position, so that the match heads are edited at many queries at once, all heads
together, and the loss is that of the tokens that follow these queries (`next_losses`: over the symbols of the circuit,
or over the whole vocabulary where it has none).

    ablated    the heads' outputs become their means over sequences and edited queries; the control does this to as many
               heads outside the circuit, drawn at random `draws` times: of the same layers as far as these have others
    even       even attention over all keys that the query sees
    law        the attention of the law: a key of mask M gets e^{score_M} / Z, BOS e^kappa / Z, early keys nothing. The
               control shuffles the masks among the candidates of each query: the same weights at random keys
    grouped    each head keeps its own mass on every mask, spread evenly over the keys of that mask; BOS and early keys
               keep theirs. What this does not recover is due to differences between keys of one mask. What `law`
               recovers less is due to variation of the masses between queries. Control: the same for shuffled masks
    hard       the limit of matching: only the keys with the largest overlap, evenly; BOS gets nothing. Control as above

With each=True and several match heads, one head at a time is left, and all the others are ablated:

    only 1.0   head 1.0 attends as it does
    law 1.0    head 1.0 has the attention of its law. Control as for `law`

If the heads do the work together, each of these recovers less than `law`, which replaces all of them.

`recovered` is (L_ablated - L_edit) / (L_ablated - L_model): 1 where the edit is as good as the heads' own attention, 0
where it is no better than the ablation. It is not cut to [0, 1]: an edit may be better than the model. It is NaN, and
the result says why, where the ablation costs less than two standard errors: then a share of it is not defined.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int64

from interp.arguments import Switch, Whole, count, real_array, seed_number, shown, switch
from interp.circuit.circuit import Circuit, Head, as_circuit, head_name, heads_of
from interp.circuit.edits import HeadMeans, layers_of, write_pattern
from interp.circuit.law import even_pattern, key_masks_at, largest_overlaps, law_pattern, shuffled
from interp.circuit.queries import query_positions
from interp.circuit.runner import Hooks, next_losses
from interp.fitting.scan_statistics import attention_layers
from interp.instruments.scan_heads import attention_laws
from interp.notation import Tokens
from interp.results import (
    NamedRows,
    half_width,
    is_clear,
    jsonable,
    mean_stderr,
    nothing_to_recover,
    provenance,
    share_recovered,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Losses: TypeAlias = Float[np.ndarray, " sequence"]  # means over the queries of each sequence
Masks: TypeAlias = Int64[torch.Tensor, "batch query key"]
Laws: TypeAlias = Sequence[tuple[Float[np.ndarray, " mask"], float | None]]  # scores by mask and kappa, for each head

DRAWS = 3
MIN_SEQUENCES = 2


@dataclass(frozen=True, kw_only=True)
class ReplacedHead:
    """The change of the loss by one replacement and by its control.

    edit               its name, see the module
    loss               mean loss after the replacement
    change, stderr     mean of L_edited - L_model, and its standard error over sequences
    recovered, recovered_stderr   (L_ablated - L_edited) / (L_ablated - L_model)
    control_change, control_stderr, control_recovered   the same for the control; None for `even` and `only`
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

    edits          a `ReplacedHead` for each edit
    loss, loss_stderr   the model's own loss on the tokens that follow the queries
    heads          the match heads, replaced together
    drawn          the heads that were ablated as a control, a tuple for each draw
    worst_control  the largest change of the loss among these draws
    queries, n     queries of a sequence, and the number of sequences
    success        False where ablating the heads raises the loss by less than two standard errors: then no share of the
                   rise is defined, and every `recovered` is NaN
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

    @property
    def best_alone(self) -> ReplacedHead | None:
        """The edit with one head left that recovers most; None where none was made."""
        alone = [row for row in self.edits if " " in row.edit]
        return max(alone, key=lambda row: row.recovered, default=None)

    def record(self) -> dict[str, Any]:
        """The fields, after what each edit did, by name: the change of loss, what it and its control recover."""
        rows = self.edits
        by_name = {
            "change": {row.edit: row.change for row in rows},
            "recovered": {row.edit: jsonable(row.recovered) for row in rows},
            "control": {row.edit: jsonable(row.control_recovered) for row in rows},
            "lost": self["ablated"].change,
            "alone": None if self.best_alone is None else jsonable(self.best_alone.recovered),
        }
        return {**by_name, **super().record()}

    def __str__(self) -> str:
        names = ", ".join(map(head_name, self.heads))
        lines = [
            f"heads {names} replaced at {self.queries} queries of {self.n} sequences",
            f"  loss {self.loss:.3f} ± {self.loss_stderr:.3f} nats; other heads ablated: at most "
            f"{self.worst_control:+.3f}",
        ]
        for row in self.edits:
            if " " not in row.edit:
                control = "" if row.control_change is None else f" (control {row.control_change:+.3f})"
                moved = f"{row.change:+.3f} ± {row.stderr:.3f}{control}"
                share = f"recovers {row.recovered:.2f}" if self.success else "recovers: cannot tell"
                lines.append(f"  {row.edit:<8} {moved}, {share}")
        if self.success and (best := self.best_alone) is not None:
            lines[1] += f"; one match head alone recovers at most {best.recovered:.2f}"
        return "\n".join([*lines, *self.remarks()])

    def plot(self, ax: Axes | None = None) -> Axes:
        """The change of loss of each replacement, beside its control; 95% intervals."""
        from interp.plotting import INTERVAL_NAME, control_bars, heading, panel

        rows = self.table().astype({"control_change": float, "control_stderr": float})
        ax = panel(ax, width=max(6.4, 0.75 * len(rows)))
        names = [name.replace(" ", "\n") for name in self]
        reach = (half_width(rows["stderr"], n=self.n), half_width(rows["control_stderr"], n=self.n))
        control_bars(ax, names, rows["change"], rows["control_change"], reach=reach)
        ax.set_ylabel(f"rise of the loss (nats)\n{INTERVAL_NAME}")
        return heading(ax, f"heads {', '.join(map(head_name, self.heads))} replaced", doubt=self.doubt)


def replace_heads(
    model: Any,
    tokens: Tokens,
    *,
    queries: Any,
    by_mask: Any = None,
    kappa: Any = None,
    other_laws: Any = None,
    each: Switch = False,
    draws: Whole = DRAWS,
    seed: Whole = 0,
    checkpoint: str | None = None,
) -> ReplacedHeads:
    """Replace the circuit's match heads at the queries, and measure the losses of the tokens that follow them.

    `queries` are token indices, or "trained" for all that have a candidate key and a next token. `by_mask`
    [match, mask] and `kappa` [match] are the law of each head (an attention fit's `mask_score` and `kappa`; a
    MatchFit's are mask_bits(k) @ beta and kappa); by_mask="fitted" takes the additive law that makes each head's
    attention at these queries most likely, and the message names the heads where it is not to be trusted. Without a
    law the edit `law` is left out. `other_laws` are more of them by name, each (by_mask, kappa), tried without a
    control. each=True also leaves one match head at a time. `seed` draws the controls.
    """
    circuit = as_circuit(model)
    circuit.require_match()
    array = circuit.check(tokens)
    if len(array) < MIN_SEQUENCES:
        raise ValueError(f"{len(array)} sequences; losses need at least {MIN_SEQUENCES} for their standard errors")
    draws, seed, each = count(draws, name="draws", least=0), seed_number(seed), switch(each, name="each")
    more = {name: _checked_laws(circuit, *law) for name, law in _pairs(other_laws).items()}
    bench = _Bench(circuit, array, _positions(queries, circuit, array.shape[1]), seed=seed)
    laws, notes = bench.laws(by_mask, kappa)
    drawn = tuple(heads for _ in range(draws) if (heads := _others(circuit, bench.generator)))
    others = [bench.losses(bench.means.writing(heads)) for heads in drawn]
    heads = circuit.match_heads
    rows = [bench.row("ablated", bench.ablated, np.mean(others, axis=0) if others else None)]
    rows.append(bench.row("even", bench.losses(bench.write(even_pattern(bench.masks)))))
    if laws is not None:
        rows.append(bench.matched("law", lambda masks: bench.write(_law(masks, laws=laws))))
    rows += [bench.row(name, bench.losses(bench.write(_law(bench.masks, laws=law)))) for name, law in more.items()]
    rows += [bench.matched("grouped", bench.spread), bench.matched("hard", bench.hard)]
    if each and len(heads) > 1:
        rows += [row for place in range(len(heads)) for row in bench.alone(place, laws)]
    cost, clear = mean_stderr(bench.lost), is_clear(*mean_stderr(bench.lost))
    loss, loss_stderr = mean_stderr(bench.base)
    return ReplacedHeads(
        edits=tuple(rows),
        loss=loss,
        loss_stderr=loss_stderr,
        heads=heads,
        drawn=drawn,
        worst_control=max((float((one - bench.base).mean()) for one in others), default=math.nan),
        queries=len(bench.positions),
        n=len(array),
        success=clear,
        message="; ".join(notes if clear else [nothing_to_recover("ablating the heads", *cost), *notes]),
        provenance=provenance(seed=seed, checkpoint=checkpoint),
    )


class _Bench:
    """The model at its queries, and the losses of the tokens that follow when its heads are edited there."""

    def __init__(self, circuit: Circuit, tokens: torch.Tensor, positions: torch.Tensor, *, seed: int) -> None:
        self.circuit, self.tokens, self.positions = circuit, tokens, positions
        self.generator = torch.Generator().manual_seed(seed)
        self.masks = key_masks_at(tokens, order=circuit.order, bos=circuit.has_bos, queries=positions)
        self.means = HeadMeans(attention_layers(circuit.model), positions=positions)
        self.base = self.losses(self.means.reading)
        self.ablated = self.losses(self.means.writing(circuit.match_heads))
        self.lost = self.ablated - self.base

    def losses(self, hooks: Hooks) -> Losses:
        """The mean loss after the queries, for every sequence."""
        every = next_losses(self.circuit, self.tokens, hooks=hooks)
        return np.asarray(every[:, self.positions - int(self.circuit.has_bos)].mean(dim=1).numpy())

    def row(self, edit: str, losses: Losses, control: Losses | None = None) -> ReplacedHead:
        """What the losses say of an edit, and those of its control."""
        change, stderr = mean_stderr(losses - self.base)
        recovered, recovered_stderr = share_recovered(losses - self.base, self.lost)
        of_control = (None, None) if control is None else mean_stderr(control - self.base)
        return ReplacedHead(
            edit=edit,
            loss=float(losses.mean()),
            change=change,
            stderr=stderr,
            recovered=recovered,
            recovered_stderr=recovered_stderr,
            control_change=of_control[0],
            control_stderr=of_control[1],
            control_recovered=None if control is None else share_recovered(control - self.base, self.lost)[0],
        )

    def matched(self, edit: str, hooks: Callable[[Masks], Hooks]) -> ReplacedHead:
        """An edit that depends on the masks; the control shuffles them among the candidates of each query."""
        own = self.losses(hooks(self.masks))
        control = self.losses(hooks(shuffled(self.masks, self.masks, generator=self.generator)))
        return self.row(edit, own, control)

    def laws(self, by_mask: Any, kappa: Any) -> tuple[Laws | None, list[str]]:
        """The law of each head as given, or fitted at these queries, with a remark on fits in doubt."""
        if by_mask is None:
            return None, []
        if not isinstance(by_mask, str):
            return _checked_laws(self.circuit, by_mask, kappa), []
        if by_mask != "fitted":
            raise ValueError(f"by_mask must be 'fitted' or a score for each head and mask, got {shown(by_mask)}")
        if kappa is not None:
            raise ValueError("kappa was given beside by_mask='fitted', which finds it itself")
        found = attention_laws(self.circuit, self.tokens, queries=self.positions)
        notes = [f"laws in doubt: {'; '.join(found.doubts)}"] if found.doubts else []
        return _checked_laws(self.circuit, found.by_mask, found.kappa), notes

    def write(self, pattern: torch.Tensor) -> Hooks:
        """Hooks that write a pattern [batch, query, key] in all match heads, or [batch, match, query, key]."""
        if pattern.ndim == 3:
            pattern = pattern[:, None].expand(-1, len(self.circuit.match_heads), -1, -1)
        return write_pattern(self.circuit, pattern, queries=self.positions)

    def hard(self, masks: Masks) -> Hooks:
        """Even attention on the keys with the largest overlap."""
        largest = largest_overlaps(masks, order=self.circuit.order).double()
        return self.write(largest / largest.sum(-1, keepdim=True))

    def spread(self, masks: Masks) -> Hooks:
        """The heads' own masses by mask, spread evenly over the keys of each."""

        def write(part: slice, layer: int, pattern: torch.Tensor, hook: Any) -> torch.Tensor:
            edited = pattern.clone()
            for own, head in self.circuit.match_heads:
                if own == layer:
                    rows = pattern[:, head, self.positions].double().cpu()
                    edited[:, head, self.positions] = spread_by_mask(rows, masks[part]).to(pattern)
            return edited

        layers = layers_of(self.circuit.match_heads)
        return lambda part: [(f"blocks.{layer}.attn.hook_pattern", partial(write, part, layer)) for layer in layers]

    def alone(self, index: int, laws: Laws | None) -> list[ReplacedHead]:
        """One match head as it is, then with its law; the other match heads are ablated."""
        place = self.circuit.match_heads[index]
        silenced = self.means.writing([head for head in self.circuit.match_heads if head != place])
        rows = [self.row(f"only {head_name(place)}", self.losses(silenced))]
        if laws is not None:
            own = self.circuit.with_match_heads(place)

            def with_law(masks: Masks) -> Hooks:
                written = write_pattern(own, _law(masks, laws=[laws[index]]), queries=self.positions)
                return lambda part: written(part) + silenced(part)

            rows.append(self.matched(f"law {head_name(place)}", with_law))
        return rows


def _law(masks: Masks, *, laws: Laws) -> Float[torch.Tensor, "batch match query key"]:
    return torch.stack([law_pattern(masks, by_mask=scores, kappa=kappa) for scores, kappa in laws], dim=1)


def spread_by_mask(
    rows: Float[torch.Tensor, "batch query key"], masks: Masks
) -> Float[torch.Tensor, "batch query key"]:
    """The mass on each mask, spread evenly over its keys; other keys keep theirs."""
    groups = int(masks.max()) + 2  # one more, for keys that are not candidates
    codes = torch.where(masks >= 0, masks, groups - 1)
    empty = torch.zeros(*rows.shape[:2], groups, dtype=rows.dtype)
    mass, count = empty.scatter_add(2, codes, rows), empty.scatter_add(2, codes, torch.ones_like(rows))
    return torch.where(masks >= 0, (mass / count.clamp(min=1)).gather(2, codes), rows)


def _others(circuit: Circuit, generator: torch.Generator) -> tuple[Head, ...]:
    """As many heads outside the circuit as match: of the match heads' layers first, then of all others."""
    drawn: list[Head] = []
    taken = {*circuit.match_heads, *circuit.known_copy_heads}
    free = {
        layer: [(layer, head) for head in range(heads_of(circuit.model, layer)) if (layer, head) not in taken]
        for layer in attention_layers(circuit.model)
    }

    def draw(heads: Sequence[Head], wanted: int) -> list[Head]:
        return [heads[place] for place in torch.randperm(len(heads), generator=generator)[:wanted].tolist()]

    for layer in layers_of(circuit.match_heads):
        drawn += draw(free[layer], sum(own == layer for own, _ in circuit.match_heads))
    rest = [head for heads in free.values() for head in heads if head not in drawn]
    return tuple(sorted(drawn + draw(rest, len(circuit.match_heads) - len(drawn))))


def _positions(queries: Any, circuit: Circuit, length: int) -> Int64[torch.Tensor, " query"]:
    """The positions of the queries in the model."""
    if isinstance(queries, str):
        if queries != "trained":
            raise ValueError(f"queries must be 'trained' or list token indices, got {shown(queries)}")
        queries = range(circuit.order, length - 1)
    positions = query_positions(queries, circuit, length)
    for query in (positions - int(circuit.has_bos)).tolist():
        if query < circuit.order:
            raise ValueError(f"query {query} has no candidate key: the first that has one is {circuit.order}")
        if query == length - 1:
            raise ValueError(f"query {query} has no next token among the tokens 0..{length - 1}")
    return positions


def _pairs(other_laws: Any) -> Mapping[str, Any]:
    more = {} if other_laws is None else other_laws
    if not isinstance(more, Mapping) or not all(isinstance(law, tuple) and len(law) == 2 for law in more.values()):
        raise ValueError(f"other_laws must map names to pairs (by_mask, kappa), got {shown(other_laws)}")
    return more


def _checked_laws(circuit: Circuit, by_mask: Any, kappa: Any) -> Laws:
    heads, masks = len(circuit.match_heads), 1 << circuit.order
    table = real_array(by_mask, name="by_mask")
    if table.shape != (heads, masks) or not np.isfinite(table).all():
        raise ValueError(f"by_mask must be finite numbers of shape [{heads}, {masks}], got {list(table.shape)}")
    if (kappa is None) == circuit.has_sink:
        raise ValueError(
            f"kappa is needed exactly where there is BOS: BOS {circuit.declared_bos}, kappa {shown(kappa)}"
        )
    if kappa is None:
        return [(row, None) for row in table]
    scores = real_array(kappa, name="kappa")
    if scores.shape != (heads,) or not np.isfinite(scores).all():
        raise ValueError(f"kappa must be finite numbers of shape [{heads}], got {list(scores.shape)}")
    return [(row, float(score)) for row, score in zip(table, scores, strict=True)]
