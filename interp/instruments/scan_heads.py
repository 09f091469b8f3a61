"""Every head of a model in one forward pass: which copy a lag, which match contexts, with which beta and kappa?

Per head, from the statistics that `scan_statistics` gathers while the model runs:

    copy_mass        mean attention on lag 1, 2, .. `copy_lags`, over all positions that have it
    beta, kappa      of the additive law, by maximum likelihood of the attention: the numbers of
                     `fit_scores(cap, source="attention")`, positional term included
    nats, nats_explained    beyond a baseline of position and BOS, and the share of that which matches explain
    r2_match         of what position leaves of the scores, the share that matches explain (least squares)
    mass_full, mass_partial, mass_none, mass_bos, mass_early      where the attention goes. With bos="first", BOS is the
                     first token; without BOS and much attention on early keys, the message says so
    induction        attention on keys whose previous token is the query's: the classical induction score, on these
                     sequences; `induction_even` is what even attention would get

The role of a head is "copy", "match", "duplicate", "self", "sink" or "none"; `interp.instruments.roles` has the rules
and their thresholds, which are printed with the scan. Where a lag has no copy head, or no head matches, the message
names the head that comes nearest, and what it has of each threshold. A head without a role that reaches a share of the
thresholds of a match head is named in `near`.

`success` of a head says whether its beta and kappa can be trusted, by the rule of `attention_fit`; where they cannot,
they are NaN. For each lag 1..k, `copy_heads` has the heads that copy it in a layer below the last match head: one, or
several that share the lag, the one with the most mass first. `find_circuit` tests whether the match depends on them.

Memory: the model holds one layer's attention for a few sequences at a time (`runner.parts`); kept are 2^k + 5 numbers
for each head, sequence and query asked for, at most half of the machine's memory.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int64

from interp.arguments import Switch, Whole, keywords, switch, whole_number
from interp.circuit.circuit import Bos, Circuit, Copies, Head, Model, Symbols, head_name, heads_in, one_or_all
from interp.circuit.queries import Query, query_positions, untrained_note
from interp.fitting.attention_fit import MAX_MASS_GAP, MIN_EXPLAINED, MIN_SEQUENCES, MUCH_EARLY, early_note, fit_law
from interp.fitting.laws import Law, law_design
from interp.fitting.regression import Array, clustered
from interp.fitting.scan_statistics import ScanStatistics
from interp.instruments.roles import (
    MOST_NAMED,
    Numbers,
    Role,
    RoleRules,
    copy_evidence,
    lag_of,
    match_evidence,
    matches,
    near_note,
    role_of,
)
from interp.notation import Tokens, mask_bits
from interp.results import Axes, DataFrame, Result, counted, provenance

COPY_LAGS = 8  # lags examined by default; k where that is more
OTHERS: tuple[Role, ...] = ("duplicate", "self", "sink")  # roles that no circuit has


@dataclass(frozen=True, kw_only=True)
class HeadScan(Result):
    """Every head of a model. Arrays are [layer, head, ...]; NaN where a layer has fewer heads than others.

    copy_mass, copy_mass_stderr       [layer, head, lag] mean attention on lag 1, 2, ...
    copy_lag                          [layer, head] the lag that a copy head copies, 0 of any other head
    self_mass, sink_mass              [layer, head] mean attention on the token itself, and on BOS and the first token
    duplicate_mass                    [layer, head] on earlier keys of the query's token, where there are any; else NaN
    beta, beta_stderr, kappa, kappa_stderr     NaN where they cannot be trusted; kappa also without BOS
    beta_scores                       [layer, head, lag] beta from the scores by least squares, not checked
    r2_match                          of what position leaves of the scores, the share that matches explain
    nats, nats_explained, nats_explained_stderr, mass_gap     of the law of the attention, see `attention_fit`
    mass, mass_stderr                 [layer, head, group] attention by overlap 0..k, then on BOS, then on early keys
    induction, induction_stderr       [layer, head] attention on keys whose previous token is the query's
    induction_even                    the same for even attention
    role                              [layer][head] as in the module; "" where there is no such head
    ok, reasons                       [layer][head] whether beta and kappa can be trusted, and why not
    copy_heads                        for each lag 1..k the head that copies it, several as a tuple, or None
    match_heads                       the heads that match
    missing                           by "lag r" and "match" why no head copies the lag, or matches
    near                              the heads that are below a threshold of a match head, with the thresholds; else ""
    rules                             the thresholds
    order, bos                        k, and whether key 0 has the score kappa
    n, queries                        sequences, and the token index of each query
    success                           every lag has its copy head, and some head matches
    """

    DOUBT = "incomplete"  # the measured numbers are valid all the same

    order: int
    copy_mass: Float[np.ndarray, "layer head lag"]
    copy_mass_stderr: Float[np.ndarray, "layer head lag"]
    copy_lag: Int64[np.ndarray, "layer head"]
    self_mass: Float[np.ndarray, "layer head"]
    duplicate_mass: Float[np.ndarray, "layer head"]
    sink_mass: Float[np.ndarray, "layer head"]
    beta: Float[np.ndarray, "layer head order"]
    beta_stderr: Float[np.ndarray, "layer head order"]
    beta_scores: Float[np.ndarray, "layer head order"]
    kappa: Float[np.ndarray, "layer head"]
    kappa_stderr: Float[np.ndarray, "layer head"]
    r2_match: Float[np.ndarray, "layer head"]
    nats: Float[np.ndarray, "layer head"]
    nats_explained: Float[np.ndarray, "layer head"]
    nats_explained_stderr: Float[np.ndarray, "layer head"]
    mass_gap: Float[np.ndarray, "layer head"]
    mass: Float[np.ndarray, "layer head group"]
    mass_stderr: Float[np.ndarray, "layer head group"]
    induction: Float[np.ndarray, "layer head"]
    induction_stderr: Float[np.ndarray, "layer head"]
    induction_even: float
    role: tuple[tuple[str, ...], ...]
    ok: Bool[np.ndarray, "layer head"]
    reasons: tuple[tuple[str, ...], ...]
    copy_heads: tuple[Copies, ...]
    match_heads: tuple[Head, ...]
    rules: RoleRules
    missing: dict[str, str]
    near: str = ""
    bos: bool
    n: int
    queries: Int64[np.ndarray, " query"]

    @property
    def heads(self) -> tuple[Head, ...]:
        """Every (layer, head) that there is."""
        return tuple((layer, head) for layer, roles in enumerate(self.role) for head, role in enumerate(roles) if role)

    def with_role(self, role: Role) -> list[Head]:
        """The heads with this role."""
        return [at for at in self.heads if self.role[at[0]][at[1]] == role]

    def copying(self, lag: int) -> list[Head]:
        """The heads that copy a lag, the one with the most mass on it first."""
        found = [at for at in self.with_role("copy") if self.copy_lag[at] == lag]
        return sorted(found, key=lambda at: -float(self.copy_mass[at][lag - 1]))

    def table(self) -> DataFrame:
        """One row per head: layer, head, role, copy_lag (missing where the head copies none), copy_mass (the most on
        one lag), copy_share (of the mass that its copy heads have on a lag), beta_1 .. beta_k, kappa, r2_match, nats,
        nats_explained, mass_full, mass_partial, mass_none, mass_bos, self_mass, duplicate_mass, sink_mass,
        success, message.
        """
        lags = range(1, self.copy_mass.shape[-1] + 1)
        total = {lag: sum(self.copy_mass[at][lag - 1] for at in self.copying(lag)) for lag in lags}
        names = ("self_mass", "duplicate_mass", "sink_mass")
        rows = self._rows(
            lambda at: {
                "copy_lag": int(self.copy_lag[at]) or None,
                "copy_mass": self.copy_mass[at].max(),
                "copy_share": self.copy_mass[at].max() / total[lag] if (lag := int(self.copy_lag[at])) else np.nan,
                **{f"beta_{lag + 1}": value for lag, value in enumerate(self.beta[at])},
                **{name: getattr(self, name)[at] for name in ("kappa", "r2_match", "nats", "nats_explained")},
                "mass_full": self.mass[at][self.order],
                "mass_partial": self.mass[at][1 : self.order].sum(),
                "mass_none": self.mass[at][0],
                "mass_bos": self.mass[at][self.order + 1],
                **{name: getattr(self, name)[at] for name in names},
                "success": bool(self.ok[at]),
                "message": self.reasons[at[0]][at[1]],
            }
        )
        return rows.astype({"copy_lag": "Int64"})

    def details(self) -> DataFrame:
        """One row per head with what `table` leaves out: standard errors, beta from the scores, mass on early keys, the
        classical induction score, the gap between the law's masses and the head's, and mass on every lag.
        """
        names = ("kappa_stderr", "nats_explained_stderr", "mass_gap", "induction", "induction_stderr")
        return self._rows(
            lambda at: {
                **{f"beta_{lag + 1}_stderr": error for lag, error in enumerate(self.beta_stderr[at])},
                **{f"beta_{lag + 1}_scores": value for lag, value in enumerate(self.beta_scores[at])},
                **{name: getattr(self, name)[at] for name in names},
                "mass_early": self.mass[at][-1],
                **{f"copy_mass_{lag + 1}": mass for lag, mass in enumerate(self.copy_mass[at])},
            }
        )

    def _rows(self, numbers: Any) -> DataFrame:
        import pandas as pd

        return pd.DataFrame(
            [{"layer": at[0], "head": at[1], "role": self.role[at[0]][at[1]], **numbers(at)} for at in self.heads]
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        """A map of layers and heads: the share of each head's nats that the law of matching explains. Match heads are
        framed in yellow, heads that copy a lag in its colour, with the lag's number.
        """
        from interp.plotting import OVERLAP_COLOURS, head_heatmap, heading, lag_colour, panel

        layers, heads = self.nats_explained.shape
        marks = {at: ("", OVERLAP_COLOURS["full"]) for at in self.match_heads}
        for lag in range(1, self.copy_mass.shape[-1] + 1):
            marks |= {at: (str(lag), lag_colour(lag)) for at in self.copying(lag)}
        width, height = (min(9.0, 1.8 + 0.32 * count) for count in (heads, layers))
        ax = panel(ax, width=max(4.2, width), height=max(2.8, height))
        explained = np.where(self.nats > 0, np.clip(self.nats_explained, 0.0, 1.0), np.nan)
        head_heatmap(ax, explained, marks=marks)
        figure = ax.get_figure(root=True)
        assert figure is not None
        figure.colorbar(ax.images[0], ax=ax, label="nats explained by matches")
        return heading(ax, self.title, doubt=self.doubt)

    @property
    def title(self) -> str:
        """The heads that match and those that copy."""
        copies = [
            f"{listed(map(head_name, heads_in(place)))} (lag {lag})"
            for lag, place in enumerate(self.copy_heads, start=1)
            if place
        ]
        return f"match heads: {listed(map(head_name, self.match_heads))}; copy heads: {', '.join(copies) or 'none'}"

    def lines(self) -> list[str]:
        """What was scanned, the heads with a role with what they do or the nearest head, and the thresholds."""
        where = f"{self.n} sequences, {counted(len(self.queries), 'query', 'queries')}, order {self.order}"
        matches = [f"{head_name(at)} ({self.nats_explained[at]:.0%})" for at in self.match_heads]
        copies = [
            f"lag {lag} {listed(f'{head_name(at)} ({self.copy_mass[at][lag - 1]:.3f})' for at in heads)}"
            for lag in range(1, self.copy_mass.shape[-1] + 1)
            if (heads := self.copying(lag))
        ]
        others = [f"{role} {listed(map(head_name, heads))}" for role in OTHERS if (heads := self.with_role(role))]
        lacking = "; ".join(reason for name, reason in self.missing.items() if name != "match")
        return [
            f"scan of {counted(len(self.heads), 'head')} on {where}",
            f"match   {listed(matches) + '; in brackets: nats explained' if matches else self.missing['match']}",
            f"copy    {'; '.join(filter(None, [', '.join(copies), lacking]))}",
            *([f"others  {'; '.join(others)}"] if others else []),
            *f"rules   {self.rules}".split("\n"),
        ]


def listed(names: Iterable[str]) -> str:
    """Names with commas, of many the first."""
    every = list(names)
    return ", ".join([*every[:MOST_NAMED], *["..."] * (len(every) > MOST_NAMED)]) or "none"


OF_RULES = "rules=RoleRules(...)"


@keywords(**dict.fromkeys(("min_copied", "min_matched", "min_explained"), OF_RULES))
def scan_heads(
    model: Model,
    tokens: Tokens,
    *,
    order: Whole | None = None,
    vocab: Whole | None = None,
    bos: Bos = None,
    symbols: Symbols = None,
    query: Query = "last",
    position: Switch = True,
    copy_lags: Whole | None = None,
    rules: RoleRules | None = None,
) -> HeadScan:
    """Scan every head of a model in one forward pass; the module's docstring says what is measured.

    Parameters
    ----------
    model           any HookedTransformer, or a `Circuit`, which contains the four arguments below
    tokens          [batch, length] symbols, without BOS
    order           k, how many tokens back contexts are matched
    vocab           |V|, by default the model's output size
    bos             the id of BOS; True for the id |V|, "first" where the first token serves as one; None without
    symbols         the ids that stand for the symbols, where the model's vocabulary is larger
    query           "last", "all", "trained" or token indices, as in `capture`; `copy_mass` is always over all positions
    position        give the law a smooth function of the distance, as in `fit_scores`. Without it where matches always
                    stand at one distance, as in tokens that are repeated once: the function would take a part of beta
    copy_lags       how many lags are examined for copying
    rules           the thresholds of the roles, by default `RoleRules()`

    Returns
    -------
    `HeadScan`, a row for each head

    Examples
    --------
        scan = scan_heads(foreign, tokens, order=2, vocab=5, bos=5)
        scan.table(), scan.copy_heads, scan.match_heads
    """
    circuit = as_scanned(model, order=order, vocab=vocab, bos=bos, symbols=symbols)
    array = circuit.check(tokens)
    if len(array) < MIN_SEQUENCES:
        raise ValueError(f"{len(array)} sequences; a scan needs at least {MIN_SEQUENCES} for its standard errors")
    queries = query_positions(query, circuit, array.shape[1])
    lags = max(COPY_LAGS, circuit.order) if copy_lags is None else copy_lags
    lags = min(whole_number(lags, name="copy_lags", least=1), array.shape[1] - 1)
    position = switch(position, name="position")
    statistics = ScanStatistics(circuit, array, queries, lags=max(lags, circuit.order), position=position)
    statistics.gather()
    note = untrained_note(queries, circuit, array.shape[1])
    return judged(statistics, rules, note=note)


def as_scanned(model: Any, **task: Any) -> Circuit:
    """The model with its task as a circuit, or the circuit that was given."""
    if not isinstance(model, Circuit):
        return Circuit(model, **task)
    if given := [name for name, value in task.items() if value is not None]:
        raise ValueError(f"{given[0]} was given together with a Circuit, which already defines it")
    return model


def judged(statistics: ScanStatistics, rules: RoleRules | None = None, *, note: str = "") -> HeadScan:
    """The scan: the numbers of every head, its role, and whether its beta and kappa can be trusted."""
    circuit, order, rules = statistics.circuit, statistics.order, rules or RoleRules()
    found, exists = _measured(statistics)
    heads = {
        (layer, head): {name: values[layer, head] for name, values in found.items()}
        for layer, head in np.argwhere(exists).tolist()
    }
    role, reasons = np.full(exists.shape, "", dtype=object), np.full(exists.shape, "", dtype=object)
    for at, one in heads.items():
        role[at] = role_of(one, rules)
        reasons[at] = distrust(one, min_explained=rules.min_explained)
    above = found.pop("above")
    for name in ("told", "on_lag", "duplicate", "sink", "by_mask"):
        del found[name]
    ok = exists & (reasons == "")
    for name in ("beta", "beta_stderr", "kappa", "kappa_stderr"):
        found[name] = np.where(ok if found[name].ndim == 2 else ok[..., None], found[name], np.nan)
    counts, follows = statistics.seen.counts.numpy(), np.arange(1 << order) & 1
    matching = tuple((int(layer), int(head)) for layer, head in np.argwhere(role == "match"))
    near = {at: one for at, one in heads.items() if role[at] == "none" and matches(one, rules, share=rules.near)}
    scan = HeadScan(
        **found,
        copy_lag=np.where(role == "copy", above.argmax(axis=-1), 0),
        order=order,
        induction_even=float((counts[..., : len(follows)] @ follows / counts.sum(axis=-1)).mean()),
        role=tuple(map(tuple, role)),
        ok=ok,
        reasons=tuple(map(tuple, reasons)),
        copy_heads=(None,) * order,
        match_heads=matching,
        rules=rules,
        missing={},
        near=near_note(near, rules),
        bos=circuit.has_sink,
        n=len(statistics.tokens),
        queries=statistics.queries.numpy() - int(circuit.has_bos),
        provenance=provenance(checkpoint=circuit.checkpoint),
    )
    last = max((layer for layer, _ in matching), default=len(role))
    copying, missing = list[tuple[Head, ...]](), dict[str, str]()
    for lag in range(1, order + 1):
        copying.append(tuple(at for at in scan.copying(lag) if at[0] < last))
        if not copying[-1]:
            missing[f"lag {lag}"] = copy_evidence(lag, heads, rules, late=scan.copying(lag))
    if not matching:
        missing["match"] = match_evidence(heads, rules)
    early = max((float(scan.mass[at][-1]) for at in matching), default=0.0)
    notes = [early_note(early) if early > MUCH_EARLY and not circuit.has_sink else "", note]
    return replace(
        scan,
        copy_heads=tuple(map(one_or_all, copying)),
        missing=missing,
        success=not missing,
        message="; ".join(filter(None, [*(reason.split(" (")[0] for reason in missing.values()), *notes])),
    )


def laws_of(statistics: ScanStatistics, heads: Sequence[Head], law: Law = "additive") -> list[Numbers]:
    """The law of each head, by name the numbers of a scan, and `by_mask`, the score of every mask.

    These are the parameters under which the attention is most likely, also where the law does not describe it. A test
    of the law, such as a replacement, uses them and reports which are in doubt. To read beta use `scan_heads` or
    `fit_scores`, which give NaN in that case.
    """
    found = {layer: _law_of_attention(statistics, layer, law) for layer in {layer for layer, _ in heads}}
    return [{name: values[head] for name, values in found[layer].items()} for layer, head in heads]


def copying_heads(statistics: ScanStatistics, rules: RoleRules) -> list[Head]:
    """Every head that copies a lag."""
    found = {layer: _copies(statistics, layer) for layer in statistics.layers}
    heads = [(layer, head) for layer, one in found.items() for head in range(len(one["above"]))]
    return [at for at in heads if lag_of({name: values[at[1]] for name, values in found[at[0]].items()}, rules)]


def distrust(numbers: Numbers, *, min_explained: float = MIN_EXPLAINED) -> str:
    """Why a head's beta and kappa cannot be trusted; empty where they can."""
    nats, explained, gap = (float(numbers[name]) for name in ("nats", "nats_explained", "mass_gap"))
    if nats < RoleRules.min_nats:
        return f"the attention has {max(0.0, nats):.2g} nats beyond its baseline: there is nothing to explain"
    if explained < min_explained:
        found_share = f"matches explain {max(0.0, explained):.1%} of {nats:.2f} nats"
        return f"{found_share}; below {min_explained:.0%} no beta is trusted"
    if not numbers["told"]:
        return "the attention is too sharp to determine beta and kappa"
    if gap > MAX_MASS_GAP:
        return f"the law's masses are off by {gap:.3f}; above {MAX_MASS_GAP} no beta is trusted"
    return ""


def _measured(statistics: ScanStatistics) -> tuple[dict[str, Any], Array]:
    """The numbers of every head as [layer, head, ...], and [layer, head] whether there is such a head."""
    parts = (_masses, _law_of_attention, _law_of_scores, _copies, _special)
    fitted = {
        layer: {name: values for part in parts for name, values in part(statistics, layer).items()}
        for layer in statistics.layers
    }
    shape = (len(statistics.circuit.model.blocks), max(len(one["nats"]) for one in fitted.values()))
    exists, found = np.zeros(shape, dtype=bool), dict[str, Any]()
    for name, first in next(iter(fitted.values())).items():
        filler = np.nan if first.dtype.kind == "f" else 0
        found[name] = np.full((*shape, *first.shape[1:]), filler, dtype=first.dtype)
        for layer, one in fitted.items():
            exists[layer, : len(one[name])] = True
            found[name][layer, : len(one[name])] = one[name]
    return found, exists


def _masses(statistics: ScanStatistics, layer: int) -> dict[str, Array]:
    """Mean attention by overlap, on BOS and on early keys, and on the keys that follow the query's token."""
    by_sequence = statistics.sums[layer].seen.masses.double().numpy().mean(axis=2)
    order, groups = statistics.order, by_sequence.shape[-1]
    masks = np.arange(1 << order)
    into = np.zeros((groups, order + 4))  # overlaps, BOS, early keys, and the keys of masks with lag 1
    into[masks, mask_bits(order).sum(axis=1)] = 1.0
    into[len(masks) : -1, order + 1] = into[-1, order + 2] = 1.0
    into[masks, order + 3] = masks & 1
    mean, stderr = _means(by_sequence @ into)
    return {
        "mass": mean[:, :-1],
        "mass_stderr": stderr[:, :-1],
        "induction": mean[:, -1],
        "induction_stderr": stderr[:, -1],
    }


def _law_of_attention(statistics: ScanStatistics, layer: int, name: Law = "additive") -> dict[str, Array]:
    """beta, kappa, nats and the gap of the masses, by maximum likelihood."""
    law = law_design(name, order=statistics.order, bos=statistics.circuit.has_sink)
    found = fit_law(statistics.rows(layer), law)
    errors = np.sqrt(np.diagonal(clustered(found.influence), axis1=1, axis2=2))
    columns, unknown = list(law.beta), np.full(len(errors), np.nan)
    by_group = found.theta[:, : len(law.parameters)] @ law.design.T
    return {
        "by_mask": by_group[:, : 1 << statistics.order],
        "beta": found.theta[:, columns],
        "beta_stderr": errors[:, columns],
        "kappa": unknown if law.kappa is None else found.theta[:, law.kappa],
        "kappa_stderr": unknown if law.kappa is None else errors[:, law.kappa],
        **{name: getattr(found, name) for name in ("nats", "nats_explained", "nats_explained_stderr", "mass_gap")},
        "told": found.told.all(axis=1) & found.converged,
    }


def _law_of_scores(statistics: ScanStatistics, layer: int) -> dict[str, Array]:
    """r2_match and beta by least squares; NaN where the scores could not be read or do not vary."""
    equations = statistics.equations(layer)
    columns = list(range(len(equations.gram)))
    with np.errstate(all="ignore"):  # scores that are too large
        place, both = equations.solve(columns[statistics.order :]), equations.solve(columns)
        r2 = np.where(place.sse > equations.noise, 1.0 - both.sse / place.sse, 0.0)
    known = equations.usable & statistics.sums[layer].saw_scores
    beta = both.coefficients[:, : statistics.order]
    return {"r2_match": np.where(known, r2, np.nan), "beta_scores": np.where(known[:, None], beta, np.nan)}


def _copies(statistics: ScanStatistics, layer: int) -> dict[str, Array]:
    """Mass on each lag from 0, and how much of that is above even attention."""
    mean, stderr = _means(statistics.sums[layer].on_lag.numpy().swapaxes(0, 1))
    visible = np.arange(1, statistics.tokens.shape[1] + 1) + statistics.bos
    even = np.array([(1.0 / visible[lag:]).mean() for lag in range(mean.shape[1])])
    above = (mean - even) / (1.0 - even)
    masses = {"copy_mass": mean[:, 1:], "copy_mass_stderr": stderr[:, 1:], "self_mass": mean[:, 0]}
    return {**masses, "on_lag": mean, "above": above}


def _special(statistics: ScanStatistics, layer: int) -> dict[str, Array]:
    """Attention on earlier keys of the query's token, and on BOS and the first token: its mean; and what is above even
    attention, symbol by symbol, with the standard error over symbols.
    """
    special, visible = statistics.sums[layer].special.double().numpy(), statistics.queries.numpy() + 1.0
    first = 1.0 + statistics.bos
    symbols = statistics.tokens[:, statistics.queries - statistics.bos].numpy()
    found = {}
    for name, mass, keys in (("duplicate", special[..., 0], statistics.same.numpy()), ("sink", special[..., 1], first)):
        even = np.broadcast_to(keys / visible, symbols.shape)
        some = (even > 0) & (even < 1)
        seen, places = np.unique(symbols[some], return_inverse=True)
        member = np.eye(len(seen))[places] / np.maximum(np.bincount(places, minlength=len(seen)), 1)
        by_symbol = ((mass - even) / np.where(some, 1.0 - even, 1.0))[:, some] @ member
        with warnings.catch_warnings():  # no query, or one symbol: NaN
            warnings.simplefilter("ignore", RuntimeWarning)
            found[f"{name}_mass"] = mass[:, some].mean(axis=1)
            error = by_symbol.std(axis=1, ddof=1) / np.sqrt(len(seen))
            found[name] = np.stack([by_symbol.mean(axis=1), error], axis=1)
    return found


def _means(values: Float[np.ndarray, "head sequence item"]) -> tuple[Array, Array]:
    """Means over sequences and their standard errors."""
    return values.mean(axis=1), values.std(axis=1, ddof=1) / np.sqrt(values.shape[1])
