"""What do the match heads do for a next-token model? They are replaced, and the change of the loss is measured.

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
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int64

from interp.arguments import Switch, Whole, count, keywords, seed_number, shown, switch
from interp.circuit.circuit import Circuit, Head, Model, as_circuit, head_name, heads_of
from interp.circuit.edits import HeadMeans, layers_of, write_pattern
from interp.circuit.law import even_pattern, key_masks_at, largest_overlaps, law_pattern, shuffled
from interp.circuit.queries import Query, query_positions
from interp.circuit.runner import Hooks, next_losses
from interp.fitting.scan_statistics import attention_layers
from interp.instruments.given import HeadLaw, HeadLaws, Law, Laws, laws_of_heads
from interp.instruments.scan_heads import attention_laws
from interp.notation import Tokens
from interp.results import (
    Axes,
    NamedRows,
    counted,
    half_width,
    is_clear,
    jsonable,
    mean_stderr,
    nothing_to_recover,
    provenance,
    share_recovered,
)

Losses: TypeAlias = Float[np.ndarray, " sequence"]  # means over the queries of each sequence
Masks: TypeAlias = Int64[torch.Tensor, "batch query key"]

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
    control_change: float | None = None
    control_stderr: float | None = None
    control_recovered: float | None = None


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
    FIRST = (("change", "change"), ("recovered", "recovered"), ("control", "control_recovered"))
    SHOWN = ("edit", "change", "stderr", "control_change", "recovered", "control_recovered")

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
        best = self.best_alone
        alone = {"lost": self["ablated"].change, "alone": None if best is None else jsonable(best.recovered)}
        return {**super().record(), **alone}

    @property
    def title(self) -> str:
        """What was replaced, and what the law recovers of it."""
        where = f"{counted(self.queries, 'query', 'queries')} of {self.n} sequences"
        first = f"heads {', '.join(map(head_name, self.heads))} replaced at {where}"
        if not self.success or "law" not in self:
            return first
        alone = "" if self.best_alone is None else f", one head alone at most {self.best_alone.recovered:.2f}"
        return f"{first}: the law recovers {self['law'].recovered:.2f}{alone}"

    def plot(self, ax: Axes | None = None) -> Axes:
        """The change of loss of each replacement, beside its control; 95% intervals."""
        from interp.plotting import INTERVAL_NAME, control_bars, heading, panel

        rows = self.table().astype({"control_change": float, "control_stderr": float})
        ax = panel(ax, width=max(6.4, 0.75 * len(rows)))
        names = [name.replace(" ", "\n") for name in self]
        reach = (half_width(rows["stderr"], n=self.n), half_width(rows["control_stderr"], n=self.n))
        control_bars(ax, names, rows["change"], rows["control_change"], reach=reach)
        ax.set_ylabel(f"rise of the loss (nats)\n{INTERVAL_NAME}")
        return heading(ax, self.title, doubt=self.doubt)


@keywords(
    queries="query, as in capture",
    **dict.fromkeys(("by_mask", "kappa"), 'law="fitted", law=fit or law=(weights, kappa)'),
)
def replace_heads(
    model: Model,
    tokens: Tokens,
    *,
    query: Query = "trained",
    law: Law | Literal["fitted"] | None = None,
    other_laws: Laws | None = None,
    each: Switch = False,
    draws: Whole = DRAWS,
    seed: Whole = 0,
) -> ReplacedHeads:
    """Replace the circuit's match heads at the queries, and measure the losses of the tokens that follow them.

    Parameters
    ----------
    model        a `Circuit` of a next-token model
    tokens       [batch, length] symbols, without BOS
    query        token indices, or "trained" for all that have a candidate key and a next token
    law          "fitted" takes the additive law that makes each head's attention at these queries most likely; the
                 message names the heads where it is not to be trusted. Or a fit, or (weights, kappa) with a weight for
                 each lag or for each mask. Without a law the edit `law` is left out
    other_laws   more of them by name, tried without a control
    each         also leave one match head at a time
    draws        of other heads, for the control of the ablation
    seed         of the controls

    Returns
    -------
    `ReplacedHeads`, a row for each edit

    Examples
    --------
        tests = replace_heads(circuit, tokens, query=range(20, 50), law="fitted")
        tests["ablated"].change, tests["law"].recovered, tests["law"].control_recovered
        replace_heads(circuit, tokens, query=range(20, 50), law=(scores, kappas))      a law of your own
    """
    circuit = as_circuit(model)
    circuit.require_match()
    array = circuit.check(tokens)
    if len(array) < MIN_SEQUENCES:
        raise ValueError(f"{len(array)} sequences; losses need at least {MIN_SEQUENCES} for their standard errors")
    draws, seed, each = count(draws, name="draws", least=0), seed_number(seed), switch(each, name="each")
    if not isinstance(other_laws, Mapping | None):
        raise ValueError(f"other_laws must map names to laws, got {shown(other_laws)}")
    more = {name: _laws(circuit, other).heads for name, other in (other_laws or {}).items()}
    bench = _Bench(circuit, array, _positions(query, circuit, array.shape[1]), seed=seed)
    given = bench.fitted() if isinstance(law, str) and law == "fitted" else _laws(circuit, law)
    drawn = tuple(heads for _ in range(draws) if (heads := _others(circuit, bench.generator)))
    others = [bench.losses(bench.means.writing(heads)) for heads in drawn]
    rows = [bench.row("ablated", bench.ablated, np.mean(others, axis=0) if others else None)]
    rows.append(bench.row("even", bench.losses(bench.write(even_pattern(bench.masks)))))
    if given.heads:
        rows.append(bench.matched("law", lambda masks: bench.write(_attention(masks, given.heads))))
    rows += [bench.row(name, bench.losses(bench.write(_attention(bench.masks, one)))) for name, one in more.items()]
    rows += [bench.matched("grouped", bench.spread), bench.matched("hard", bench.hard)]
    if each and len(circuit.match_heads) > 1:
        for place in range(len(circuit.match_heads)):
            rows += bench.alone(place, given.heads[place : place + 1])
    cost, clear = mean_stderr(bench.lost), is_clear(*mean_stderr(bench.lost))
    loss, loss_stderr = mean_stderr(bench.base)
    failure = "" if clear else nothing_to_recover("ablating the heads", *cost)
    return ReplacedHeads(
        edits=tuple(rows),
        loss=loss,
        loss_stderr=loss_stderr,
        heads=circuit.match_heads,
        drawn=drawn,
        worst_control=max((float((one - bench.base).mean()) for one in others), default=math.nan),
        queries=len(bench.positions),
        n=len(array),
        success=clear,
        message="; ".join(filter(None, [failure, given.note])),
        provenance=provenance(seed=seed, checkpoint=circuit.checkpoint),
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
        found: dict[str, float] = {}
        if control is not None:
            found["control_change"], found["control_stderr"] = mean_stderr(control - self.base)
            found["control_recovered"], _ = share_recovered(control - self.base, self.lost)
        return ReplacedHead(
            edit=edit,
            loss=float(losses.mean()),
            change=change,
            stderr=stderr,
            recovered=recovered,
            recovered_stderr=recovered_stderr,
            **found,
        )

    def matched(self, edit: str, hooks: Callable[[Masks], Hooks]) -> ReplacedHead:
        """An edit that depends on the masks; the control shuffles them among the candidates of each query."""
        own = self.losses(hooks(self.masks))
        control = self.losses(hooks(shuffled(self.masks, self.masks, generator=self.generator)))
        return self.row(edit, own, control)

    def fitted(self) -> HeadLaws:
        """The law of each head, fitted at these queries, with a remark on fits in doubt."""
        found = attention_laws(self.circuit, self.tokens, queries=self.positions)
        note = f"laws in doubt: {'; '.join(found.doubts)}" if found.doubts else ""
        return replace(_laws(self.circuit, (found.beta, found.kappa)), note=note)

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

    def alone(self, index: int, law: Sequence[HeadLaw]) -> list[ReplacedHead]:
        """One match head as it is, then with its law, where there is one; the other match heads are ablated."""
        place = self.circuit.match_heads[index]
        silenced = self.means.writing([head for head in self.circuit.match_heads if head != place])
        rows = [self.row(f"only {head_name(place)}", self.losses(silenced))]
        if law:
            own = self.circuit.with_match_heads(place)

            def with_law(masks: Masks) -> Hooks:
                written = write_pattern(own, _attention(masks, law), queries=self.positions)
                return lambda part: written(part) + silenced(part)

            rows.append(self.matched(f"law {head_name(place)}", with_law))
        return rows


def _laws(circuit: Circuit, law: Law | None) -> HeadLaws:
    """The law of each match head as it was given."""
    if law is None:
        return HeadLaws()
    return laws_of_heads(law, order=circuit.order, bos=circuit.has_sink, heads=len(circuit.match_heads))


def _attention(masks: Masks, laws: Sequence[HeadLaw]) -> Float[torch.Tensor, "batch match query key"]:
    return torch.stack([law_pattern(masks, by_mask=one.by_mask, kappa=one.kappa) for one in laws], dim=1)


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


def _positions(query: Query, circuit: Circuit, length: int) -> Int64[torch.Tensor, " query"]:
    """The positions of the queries in the model."""
    if isinstance(query, str):
        if query != "trained":
            raise ValueError(f"query must be 'trained' or list token indices, got {shown(query)}")
        query = range(circuit.order, length - 1)
    positions = query_positions(query, circuit, length)
    for token in (positions - int(circuit.has_bos)).tolist():
        if token < circuit.order:
            raise ValueError(f"query {token} has no candidate key: the first that has one is {circuit.order}")
        if token == length - 1:
            raise ValueError(f"query {token} has no next token among the tokens 0..{length - 1}")
    return positions
