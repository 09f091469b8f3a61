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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int64

from interp.arguments import Switch, Whole, count, is_whole, plain_array, real_array, seed_number, shown, switch
from interp.circuit.circuit import Circuit, Head, as_circuit, head_name, heads_of
from interp.circuit.edits import write_pattern
from interp.circuit.law import key_masks_at, law_pattern
from interp.circuit.runner import Hook, Hooks, next_losses
from interp.fitting.scan_statistics import attention_layers
from interp.instruments.replaced_heads import ReplacedHead as ReplacedHead
from interp.instruments.replaced_heads import ReplacedHeads as ReplacedHeads
from interp.instruments.scan_heads import attention_laws
from interp.notation import Tokens, mask_bits
from interp.results import is_clear, mean_stderr, nothing_to_recover, provenance, share_recovered

Losses: TypeAlias = Float[np.ndarray, " sequence"]  # means over the queries of each sequence
Masks: TypeAlias = Int64[torch.Tensor, "batch query key"]
Laws: TypeAlias = Sequence[tuple[Float[np.ndarray, " mask"], float | None]]  # scores by mask and kappa, for each head

DRAWS = 3
MIN_SEQUENCES = 2


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
    more = _checked_pairs(other_laws)
    bench = _Bench(circuit, array, _positions(queries, array.shape[1], order=circuit.order), seed=seed)
    laws, notes = bench.laws(by_mask, kappa)
    others = [heads for _ in range(draws) if (heads := _others(circuit, bench.generator))]
    ablated = bench.losses(bench.to_mean(circuit.match_heads))
    drawn = [bench.losses(bench.to_mean(heads)) for heads in others]
    rows = [_Row(edit="ablated", losses=ablated, control=np.mean(drawn, axis=0) if drawn else None)]
    rows.append(_Row(edit="even", losses=bench.losses(bench.write(_even(bench.masks, circuit))), control=None))
    if laws is not None:
        rows.append(bench.matched("law", partial(_law, laws=laws)))
    for name, (scores, score) in more.items():
        other = _checked_laws(circuit, scores, score)
        rows.append(_Row(edit=name, losses=bench.losses(bench.write(_law(bench.masks, laws=other))), control=None))
    hard = partial(_hard, heads=len(circuit.match_heads), order=circuit.order)
    rows += [bench.grouped(), bench.matched("hard", hard)]
    if each and len(circuit.match_heads) > 1:
        rows += [row for place in circuit.match_heads for row in bench.alone(place, laws)]
    lost = mean_stderr(ablated - bench.base)
    if not is_clear(*lost):
        notes = [nothing_to_recover("ablating the heads", *lost), *notes]
    return ReplacedHeads(
        edits=tuple(row.summary(bench.base, ablated) for row in rows),
        **dict(zip(("loss", "loss_stderr"), mean_stderr(bench.base), strict=True)),
        heads=circuit.match_heads,
        drawn=tuple(others),
        worst_control=max((float((one - bench.base).mean()) for one in drawn), default=math.nan),
        queries=len(bench.queries),
        n=array.shape[0],
        success=is_clear(*lost),
        message="; ".join(notes),
        provenance=provenance(seed=seed, checkpoint=checkpoint),
    )


@dataclass(frozen=True, kw_only=True)
class _Row:
    edit: str
    losses: Losses
    control: Losses | None

    def summary(self, base: Losses, ablated: Losses) -> ReplacedHead:
        change, stderr = mean_stderr(self.losses - base)
        recovered, recovered_stderr = share_recovered(self.losses - base, ablated - base)
        of_control: tuple[float | None, float | None] = (None, None)
        control_recovered = None
        if self.control is not None:
            of_control = mean_stderr(self.control - base)
            control_recovered = share_recovered(self.control - base, ablated - base)[0]
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
    """The model, the masks of the keys at its queries, and functions that edit it there."""

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

    def write(self, patterns: Float[torch.Tensor, "batch match query key"]) -> Hooks:
        return write_pattern(self.circuit, patterns, queries=self.positions)

    def matched(self, name: str, pattern: Callable[[Masks], torch.Tensor]) -> _Row:
        """An edit that depends on the masks, and its control on shuffled masks."""
        edited = self.losses(self.write(pattern(self.masks)))
        return _Row(edit=name, losses=edited, control=self.losses(self.write(pattern(self._dealt()))))

    def grouped(self) -> _Row:
        """The heads' own masses by mask, spread evenly over the keys of each, and the control on shuffled masks."""

        def spread(masks: Masks) -> Hooks:
            def write(part: slice, layer: int, pattern: torch.Tensor, hook: Any) -> torch.Tensor:
                edited = pattern.clone()
                for own, head in self.circuit.match_heads:
                    if own == layer:
                        rows = pattern[:, head, self.positions].double().cpu()
                        edited[:, head, self.positions] = _spread(rows, masks[part]).to(pattern)
                return edited

            layers = _layers(self.circuit.match_heads)
            return lambda part: [(f"blocks.{layer}.attn.hook_pattern", partial(write, part, layer)) for layer in layers]

        losses, control = (self.losses(spread(masks)) for masks in (self.masks, self._dealt()))
        return _Row(edit="grouped", losses=losses, control=control)

    def alone(self, place: Head, laws: Laws | None) -> list[_Row]:
        """One match head as it is, then with its law; the other match heads are ablated."""
        index = self.circuit.match_heads.index(place)
        silenced = self.to_mean([head for head in self.circuit.match_heads if head != place])
        rows = [_Row(edit=f"only {head_name(place)}", losses=self.losses(silenced), control=None)]
        if laws is not None:
            own = self.circuit.with_match_heads(place)

            def with_law(masks: Masks) -> Losses:
                written = write_pattern(own, _law(masks, laws=[laws[index]]), queries=self.positions)
                return self.losses(lambda part: written(part) + silenced(part))

            rows.append(
                _Row(edit=f"law {head_name(place)}", losses=with_law(self.masks), control=with_law(self._dealt()))
            )
        return rows

    def _dealt(self) -> Masks:
        """The masks of each query's candidates in a random order."""
        dealt = self.masks.clone()
        for place in range(len(self.positions)):
            candidates = (self.masks[0, place] >= 0).nonzero().squeeze(-1)
            order = torch.rand(len(dealt), len(candidates), generator=self.generator).argsort(dim=-1)
            dealt[:, place, candidates] = self.masks[:, place, candidates].gather(1, order)
        return dealt

    def _sum_outputs(self, part: slice) -> list[Hook]:
        """Hooks that change nothing and add up the outputs of every head."""

        def add(layer: int, z: torch.Tensor, hook: Any) -> None:
            total = z[:, self.positions].double().sum((0, 1)).cpu()
            for head, one in enumerate(total):
                self._sums[layer, head] = self._sums.get((layer, head), torch.zeros_like(one)) + one

        layers = attention_layers(self.circuit.model)
        return [(f"blocks.{layer}.attn.hook_z", partial(add, layer)) for layer in layers]

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


def _law(masks: Masks, *, laws: Laws) -> torch.Tensor:
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


def _spread(rows: Float[torch.Tensor, "batch query key"], masks: Masks) -> Float[torch.Tensor, "batch query key"]:
    """The mass on each mask, spread evenly over its keys."""
    groups = int(masks.max()) + 2  # one more, for keys that are not candidates
    codes = torch.where(masks >= 0, masks, groups - 1)
    empty = torch.zeros(*rows.shape[:2], groups, dtype=rows.dtype)
    mass, count = empty.scatter_add(2, codes, rows), empty.scatter_add(2, codes, torch.ones_like(rows))
    return torch.where(masks >= 0, (mass / count.clamp(min=1)).gather(2, codes), rows)


def _layers(heads: Iterable[Head]) -> list[int]:
    return sorted({layer for layer, _ in heads})


def _others(circuit: Circuit, generator: torch.Generator) -> tuple[Head, ...]:
    """As many heads outside the circuit as match: of the match heads' layers first, then of all others."""
    drawn: list[Head] = []
    taken = {*circuit.match_heads, *circuit.known_copy_heads}
    free = {
        layer: [(layer, head) for head in range(heads_of(circuit.model, layer)) if (layer, head) not in taken]
        for layer in attention_layers(circuit.model)
    }
    for layer in _layers(circuit.match_heads):
        wanted = sum(own == layer for own, _ in circuit.match_heads)
        drawn += _some(free[layer], wanted, generator)
    rest = [head for heads in free.values() for head in heads if head not in drawn]
    drawn += _some(rest, len(circuit.match_heads) - len(drawn), generator)
    return tuple(sorted(drawn))


def _some(heads: Sequence[Head], count: int, generator: torch.Generator) -> list[Head]:
    """This many of them, drawn at random; all if there are fewer."""
    return [heads[place] for place in torch.randperm(len(heads), generator=generator)[:count].tolist()]


def _positions(queries: Any, length: int, *, order: int) -> Int64[torch.Tensor, " query"]:
    if isinstance(queries, str):
        if queries != "trained":
            raise ValueError(f"queries must be 'trained' or list token indices, got {shown(queries)}")
        queries = range(order, length - 1)
    listed = plain_array(queries, name="queries").tolist() if hasattr(queries, "ndim") else queries
    listed = list(listed) if isinstance(listed, Iterable) else [None]
    if not all(map(is_whole, listed)):
        raise ValueError(f"queries must be 'trained' or list token indices, got {shown(queries)}")
    asked = sorted({int(query) for query in listed})
    if not asked:
        raise ValueError("queries lists no token index")
    for query in (asked[0], asked[-1]):
        if 0 <= query < order:
            raise ValueError(f"query {query} has no candidate key: the first that has one is {order}")
        if not 0 <= query < length - 1:
            raise ValueError(f"query {query} has no next token among the tokens 0..{length - 1}")
    return torch.tensor(asked)


def _checked_pairs(other_laws: Any) -> Mapping[str, Any]:
    """More laws by name, each a pair (by_mask, kappa)."""
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
