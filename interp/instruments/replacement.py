"""What do the match heads do for a next-token model? They are replaced, and the change of the loss is measured.

A language model predicts at every position, so that the match heads are edited at many queries at once, all heads
together, and the loss is that of the tokens that follow these queries (`next_losses`: over the symbols of the circuit,
or over the whole vocabulary where it has none).

    ablated    the heads' outputs become their means over sequences and edited queries; the control does this to as many
               heads outside the circuit, drawn at random `draws` times: of the same layers as far as these have others,
               and none that copies a lag (by `RoleRules`), whether the circuit names it or not
    even       even attention over all keys that the query sees
    law        the attention of the law: a key of mask M gets e^{score_M} / Z, BOS e^kappa / Z, early keys nothing. The
               control shuffles the masks among the candidates of each query: the same weights at random keys. The
               pattern has no positional term, and neither has a law that is fitted here
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

Where the true distributions are known (`next_law`), KL(truth || prediction) is measured too: its mean change is that of
the loss, without the chance of which token came. `needed` is the number of sequences whose standard error would be a
tenth of the change; with a change below two standard errors it cannot be told.
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
from interp.circuit.circuit import Circuit, Head, Model, all_heads, as_circuit, head_name
from interp.circuit.edits import HeadMeans, layers_of, write_pattern
from interp.circuit.law import even_pattern, key_masks_at, largest_overlaps, law_pattern, shuffled
from interp.circuit.queries import Query, query_positions
from interp.circuit.runner import Hooks, every_law, next_losses
from interp.divergence import as_laws, kl_divergence
from interp.fitting.laws import Law as LawName
from interp.fitting.scan_statistics import ScanStatistics, attention_layers
from interp.instruments.given import HeadLaw, HeadLaws, Law, Laws, NextLaw, laws_of_heads
from interp.instruments.roles import RoleRules
from interp.instruments.scan_heads import COPY_LAGS, copying_heads, distrust, laws_of
from interp.notation import Tokens
from interp.results import (
    Axes,
    DataFrame,
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

Losses: TypeAlias = Float[np.ndarray, "measure sequence"]  # the loss, then the KL where the truth is known; by sequence
Masks: TypeAlias = Int64[torch.Tensor, "batch query key"]

FittedLaw: TypeAlias = Literal["fitted", "additive", "suffix", "free"]

DRAWS = 3
FITTED: dict[str, LawName] = {"fitted": "additive", "additive": "additive", "suffix": "suffix", "free": "free"}
MIN_SEQUENCES = 2


@dataclass(frozen=True, kw_only=True)
class ReplacedHead:
    """The change of the loss by one replacement and by its control.

    edit               its name, see the module
    loss               mean loss after the replacement
    change, stderr     mean of L_edited - L_model, and its standard error over sequences
    recovered, recovered_stderr   (L_ablated - L_edited) / (L_ablated - L_model)
    needed             sequences for a standard error of a tenth of the change; None where it cannot be told
    control_change, control_stderr, control_recovered   the same for the control; None for `even` and `only`
    kl, kl_change, kl_stderr, kl_recovered, kl_needed, control_kl_change   the same of KL(truth || prediction); None
                       without the truth
    """

    edit: str
    loss: float
    change: float
    stderr: float
    recovered: float
    recovered_stderr: float
    needed: int | None
    control_change: float | None = None
    control_stderr: float | None = None
    control_recovered: float | None = None
    kl: float | None = None
    kl_change: float | None = None
    kl_stderr: float | None = None
    kl_recovered: float | None = None
    kl_needed: int | None = None
    control_kl_change: float | None = None


@dataclass(frozen=True, kw_only=True)
class ReplacedHeads(NamedRows[ReplacedHead]):
    """The replacements, found by name (`tests["law"]`).

    edits          a `ReplacedHead` for each edit
    loss, loss_stderr   the model's own loss on the tokens that follow the queries
    kl, kl_stderr  the model's own KL(truth || prediction) there; None without the truth
    heads          the match heads, replaced together
    drawn          the heads that were ablated as a control, a tuple for each draw
    worst_control  the largest change of the loss among these draws
    queries, n     queries of a sequence, and the number of sequences
    success        False where ablating the heads raises the loss by less than two standard errors: then no share of the
                   rise is defined, and every `recovered` is NaN
    """

    ROWS, NAME, NOUN = "edits", "edit", "edit"
    FIRST = (("change", "change"), ("recovered", "recovered"), ("control", "control_recovered"))
    SHOWN = ("edit", "change", "stderr", "control_change", "recovered", "control_recovered", "needed")

    edits: tuple[ReplacedHead, ...]
    loss: float
    loss_stderr: float
    kl: float | None
    kl_stderr: float | None
    heads: tuple[Head, ...]
    drawn: tuple[tuple[Head, ...], ...]
    worst_control: float
    queries: int
    n: int

    def table(self) -> DataFrame:
        """One row per edit; the columns are the fields of `ReplacedHead`. Where no number of sequences can be told, the
        columns `needed` and `kl_needed` say so.
        """
        table = super().table()
        told = {name: table[name].map(as_told) for name in ("needed", *["kl_needed"] * (self.kl is not None))}
        return table.assign(**told)

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
        kl = self["law"].kl_recovered
        of_kl = "" if kl is None else f" of the loss, {kl:.2f} of the KL"
        return f"{first}: the law recovers {self['law'].recovered:.2f}{of_kl}{alone}"

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
    law: Law | FittedLaw | None = None,
    other_laws: Laws | None = None,
    next_law: NextLaw | None = None,
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
    law          "additive" (or "fitted"), "suffix" or "free" takes that law as it makes each head's attention at these
                 queries most likely; the message names the heads where it is not to be trusted. Or a fit of any law, or
                 (weights, kappa) with a weight for each lag or for each mask. Without a law the edit `law` is left out
    other_laws   more of them by name, tried without a control
    next_law     [batch, length, vocab] the true distribution after every token, such as `chains.laws()`
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
    truth = None if next_law is None else _truth(next_law, array, vocab=circuit.vocab)
    named = FITTED.get(law) if isinstance(law, str) else None
    given = HeadLaws() if named or law is None else _laws(circuit, law)
    more = {name: _laws(circuit, other).heads for name, other in (other_laws or {}).items()}
    bench = _Bench(circuit, array, _positions(query, circuit, array.shape[1]), truth=truth, seed=seed)
    given = bench.fitted(named) if named else given
    drawn = tuple(heads for _ in range(draws) if (heads := bench.others()))
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
    cost = mean_stderr(bench.lost[0])
    loss, kl = mean_stderr(bench.base[0]), (None, None) if truth is None else mean_stderr(bench.base[-1])
    failure = "" if is_clear(*cost) else nothing_to_recover("ablating the heads", *cost)
    return ReplacedHeads(
        edits=tuple(rows),
        loss=loss[0],
        loss_stderr=loss[1],
        kl=kl[0],
        kl_stderr=kl[1],
        heads=circuit.match_heads,
        drawn=drawn,
        worst_control=max((float((one - bench.base)[0].mean()) for one in others), default=math.nan),
        queries=len(bench.positions),
        n=len(array),
        success=not failure,
        message="; ".join(filter(None, [failure, given.note])),
        provenance=provenance(seed=seed, checkpoint=circuit.checkpoint),
    )


def sequences_needed(change: float, stderr: float, *, n: int) -> int | None:
    """For a standard error of a tenth of the change; None where the change is below two standard errors.

    >>> sequences_needed(0.5, 0.1, n=20), sequences_needed(0.1, 0.1, n=20)
    (80, None)
    """
    if not is_clear(abs(change), stderr):
        return None
    return math.ceil(n * (10 * stderr / change) ** 2 - 1e-9)


def as_told(needed: int | float | None) -> int | str:
    """A number of sequences in a table."""
    return "cannot tell" if needed is None or math.isnan(needed) else int(needed)


class _Bench:
    """The model at its queries, and the losses of the tokens that follow when its heads are edited there."""

    def __init__(
        self,
        circuit: Circuit,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        *,
        truth: Float[torch.Tensor, "batch length vocab"] | None,
        seed: int,
    ) -> None:
        self.circuit, self.tokens, self.positions, self.truth = circuit, tokens, positions, truth
        self.generator = torch.Generator().manual_seed(seed)
        self.masks = key_masks_at(tokens, order=circuit.order, bos=circuit.has_bos, queries=positions)
        self.means = HeadMeans(attention_layers(circuit.model), positions=positions)
        lags = min(max(COPY_LAGS, circuit.order), tokens.shape[1] - 1)
        self.statistics = ScanStatistics(circuit, tokens, positions, lags=lags, position=False, scores=False)
        self.base = self.losses(lambda rows: self.means.reading(rows) + self.statistics.hooks(rows))
        self.copying = copying_heads(self.statistics, RoleRules())
        self.ablated = self.losses(self.means.writing(circuit.match_heads))
        self.lost = self.ablated - self.base

    def losses(self, hooks: Hooks) -> Losses:
        """The mean loss after the queries, and the mean KL there, for every sequence."""
        places = self.positions - int(self.circuit.has_bos)
        if self.truth is None:
            every = next_losses(self.circuit, self.tokens, hooks=hooks)[None, :, places]
        else:
            laws, _ = every_law(self.circuit, self.tokens, hooks=hooks)
            came = laws[:, places].gather(-1, self.tokens[:, places + 1, None]).squeeze(-1)
            every = torch.stack([-came.log(), kl_divergence(self.truth[:, places], laws[:, places]).values])
        return np.asarray(every.mean(dim=2).numpy())

    def row(self, edit: str, losses: Losses, control: Losses | None = None) -> ReplacedHead:
        """What the losses say of an edit, and those of its control."""
        n, found = len(self.tokens), dict[str, Any]()
        for prefix, base, lost, own in zip(("", "kl_"), self.base, self.lost, losses, strict=False):
            change, stderr = mean_stderr(own - base)
            found |= {prefix.rstrip("_") or "loss": float(own.mean()), f"{prefix}change": change}
            recovered, recovered_stderr = share_recovered(own - base, lost)
            found |= {f"{prefix}stderr": stderr, f"{prefix}recovered": recovered}
            found[f"{prefix}needed"] = sequences_needed(change, stderr, n=n)
            if not prefix:
                found["recovered_stderr"] = recovered_stderr
        if control is not None:
            found["control_change"], found["control_stderr"] = mean_stderr(control[0] - self.base[0])
            found["control_recovered"], _ = share_recovered(control[0] - self.base[0], self.lost[0])
            found |= {} if self.truth is None else {"control_kl_change": float((control - self.base)[1].mean())}
        return ReplacedHead(edit=edit, **found)

    def matched(self, edit: str, hooks: Callable[[Masks], Hooks]) -> ReplacedHead:
        """An edit that depends on the masks; the control shuffles them among the candidates of each query."""
        own = self.losses(hooks(self.masks))
        control = self.losses(hooks(shuffled(self.masks, self.masks, generator=self.generator)))
        return self.row(edit, own, control)

    def fitted(self, law: LawName) -> HeadLaws:
        """The law of each head, fitted at these queries, with a remark on fits in doubt."""
        heads = self.circuit.match_heads
        found = laws_of(self.statistics, heads, law)
        doubts = [f"{head_name(at)}: {doubt}" for at, one in zip(heads, found, strict=True) if (doubt := distrust(one))]
        kappa = np.array([one["kappa"] for one in found]) if self.circuit.has_sink else None
        laws = _laws(self.circuit, (np.stack([one["by_mask"] for one in found]), kappa))
        return replace(laws, note=f"laws in doubt: {'; '.join(doubts)}" if doubts else "")

    def others(self) -> tuple[Head, ...]:
        """As many heads that neither match nor copy: of the match heads' layers first, then of all others."""
        circuit, drawn = self.circuit, list[Head]()
        taken = {*circuit.match_heads, *circuit.known_copy_heads, *self.copying}
        layers = attention_layers(circuit.model)
        free = {layer: [head for head in all_heads(circuit.model, layer) if head not in taken] for layer in layers}

        def draw(heads: Sequence[Head], wanted: int) -> list[Head]:
            return [heads[place] for place in torch.randperm(len(heads), generator=self.generator)[:wanted].tolist()]

        for layer in layers_of(circuit.match_heads):
            drawn += draw(free[layer], sum(own == layer for own, _ in circuit.match_heads))
        rest = [head for heads in free.values() for head in heads if head not in drawn]
        return tuple(sorted(drawn + draw(rest, len(circuit.match_heads) - len(drawn))))

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


def _laws(circuit: Circuit, law: Any) -> HeadLaws:
    """The law of each match head as it was given."""
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


def _truth(next_law: NextLaw, tokens: torch.Tensor, *, vocab: int) -> Float[torch.Tensor, "batch length vocab"]:
    """The true distributions after every token."""
    given, expected = as_laws(next_law, name="next_law"), (*tokens.shape, vocab)
    if tuple(given.shape) != expected:
        raise ValueError(f"next_law must have shape {list(expected)}, one row for each token, got {list(given.shape)}")
    return given.detach().cpu()


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
