"""Every head of a model in one forward pass: which copy a lag, which match contexts, with which beta and kappa?

Per head, from the statistics that `scan_statistics` gathers while the model runs:

    copy_mass        mean attention on lag 1, 2, .. `copy_lags`, over all positions that have it
    beta, kappa      of the additive law, by maximum likelihood of the attention (`attention_fit`, without a positional
                     term: the baseline of `nats` is even attention, and a number for BOS)
    nats, nats_explained
    r2_match         of what position leaves of the scores, the share that matches explain (least squares)
    mass_full, mass_partial, mass_none, mass_bos, mass_early      where the attention goes. With bos="first", BOS is the
                     first token; without BOS and much attention on early keys, the message says so
    induction        attention on keys whose previous token is the query's: the classical induction score, on these
                     sequences; `induction_even` is what even attention would get

The role of a head:

    copy     `min_copied` of the attention that even attention would put elsewhere is on one lag, and no other lag has
             more than half of that
    match    the law explains `min_matched` of its nats, which are at least MIN_NATS, and its largest beta is at least
             MIN_BETA and five standard errors
    none     any other head

A head that meets both conditions is a copy head. A head without a role that reaches a share `NEAR` of each of the three
thresholds of a match head, with a beta of five standard errors, is named in `near`, with the thresholds.

`success` of a head says whether its beta and kappa can be trusted, by the rule of `attention_fit`; where they cannot,
they are NaN. For each lag 1..k, `copy_heads` has the copy head with the most mass on it in a layer below the last match
head; `find_circuit` tests whether the match depends on it.

Memory: the model holds one layer's attention for a few sequences at a time (`runner.parts`); kept are 2^k + 3 numbers
for each head, sequence and query asked for, at most half of the machine's memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64

from interp.arguments import Number, Whole, finite_number, keywords, whole_number
from interp.circuit.circuit import Bos, Circuit, Head, Model, Symbols, head_name
from interp.circuit.queries import Query, query_positions, untrained_note
from interp.circuit.runner import Hooks
from interp.fitting.attention_fit import MAX_MASS_GAP, MIN_EXPLAINED, MIN_SEQUENCES, MUCH_EARLY, early_note, fit_law
from interp.fitting.laws import law_design
from interp.fitting.regression import Array, clustered
from interp.fitting.scan_statistics import ScanStatistics
from interp.notation import Tokens, mask_bits
from interp.results import Axes, DataFrame, Result, counted, provenance

COPY_LAGS = 8  # lags examined by default; k where that is more
MIN_COPIED = 0.25  # a copy head has on one lag this share of what even attention puts elsewhere
MIN_MATCHED = 0.25  # share of a match head's nats that the law explains at least
MIN_NATS = 0.02
MIN_BETA = 1.0
SURE = 5  # standard errors of beta
NEAR = 0.25  # of a threshold: a head that reaches less is not worth naming
MOST_NAMED = 6  # heads below the thresholds


@dataclass(frozen=True, kw_only=True)
class HeadScan(Result):
    """Every head of a model. Arrays are [layer, head, ...]; NaN where a layer has fewer heads than others.

    copy_mass, copy_mass_stderr       [layer, head, lag] mean attention on lag 1, 2, ...
    copy_lag                          the lag with the most mass beyond that of even attention
    beta, beta_stderr, kappa, kappa_stderr     NaN where they cannot be trusted; kappa also without BOS
    beta_scores                       [layer, head, lag] beta from the scores by least squares, not checked
    r2_match                          of what position leaves of the scores, the share that matches explain
    nats, nats_explained, nats_explained_stderr, mass_gap     of the law of the attention, see `attention_fit`
    mass, mass_stderr                 [layer, head, group] attention by overlap 0..k, then on BOS, then on early keys
    induction, induction_stderr       [layer, head] attention on keys whose previous token is the query's
    induction_even                    the same for even attention
    role                              [layer][head] "copy", "match" or "none"; "" where there is no such head
    ok, reasons                       [layer][head] whether beta and kappa can be trusted, and why not
    copy_heads                        the copy head chosen for each lag 1..k, None where there is none
    match_heads                       the heads that match
    near                              the heads that are below a threshold of a match head, with the thresholds; else ""
    order, bos                        k, and whether key 0 has the score kappa
    n, queries                        sequences, and the token index of each query
    success                           every lag has its copy head, and some head matches
    """

    DOUBT = "incomplete"  # the measured numbers are valid all the same

    order: int
    copy_mass: Float[np.ndarray, "layer head lag"]
    copy_mass_stderr: Float[np.ndarray, "layer head lag"]
    copy_lag: Int64[np.ndarray, "layer head"]
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
    copy_heads: tuple[Head | None, ...]
    match_heads: tuple[Head, ...]
    near: str = ""
    bos: bool
    n: int
    queries: Int64[np.ndarray, " query"]

    @property
    def heads(self) -> tuple[Head, ...]:
        """Every (layer, head) that there is."""
        return tuple((layer, head) for layer, roles in enumerate(self.role) for head, role in enumerate(roles) if role)

    def copying(self, lag: int) -> list[Head]:
        """The heads that copy a lag, the one with the most mass on it first."""
        found = [at for at in self.heads if self.role[at[0]][at[1]] == "copy" and self.copy_lag[at] == lag]
        return sorted(found, key=lambda at: -float(self.copy_mass[at][lag - 1]))

    def table(self) -> DataFrame:
        """One row per head: layer, head, role, copy_lag, copy_mass (on that lag), beta_1 .. beta_k, kappa, r2_match,
        nats, nats_explained, mass_full, mass_partial, mass_none, mass_bos, success, message.
        """
        return self._rows(
            lambda at: {
                "copy_lag": int(self.copy_lag[at]),
                "copy_mass": self.copy_mass[at][self.copy_lag[at] - 1],
                **{f"beta_{lag + 1}": value for lag, value in enumerate(self.beta[at])},
                **{name: getattr(self, name)[at] for name in ("kappa", "r2_match", "nats", "nats_explained")},
                "mass_full": self.mass[at][self.order],
                "mass_partial": self.mass[at][1 : self.order].sum(),
                "mass_none": self.mass[at][0],
                "mass_bos": self.mass[at][self.order + 1],
                "success": bool(self.ok[at]),
                "message": self.reasons[at[0]][at[1]],
            }
        )

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
        """The heads with a role."""
        names = [*map(head_name, self.match_heads[:MOST_NAMED]), *["..."] * (len(self.match_heads) > MOST_NAMED)]
        copies = [f"{head_name(at)} (lag {lag})" for lag, at in enumerate(self.copy_heads, start=1) if at is not None]
        return f"match heads: {', '.join(names) or 'none'}; copy heads: {', '.join(copies) or 'none'}"

    def lines(self) -> list[str]:
        """What was scanned, and the heads with a role with what they do."""
        where = f"{self.n} sequences, {counted(len(self.queries), 'query', 'queries')}, order {self.order}"
        shown = [f"{head_name(at)} ({self.nats_explained[at]:.0%})" for at in self.match_heads[:MOST_NAMED]]
        copies = [
            f"{head_name(at)} ({self.copy_mass[at][lag - 1]:.3f} on lag {lag})"
            for lag, at in enumerate(self.copy_heads[:MOST_NAMED], start=1)
            if at is not None
        ]
        return [
            f"scan of {counted(len(self.heads), 'head')} on {where}",
            f"match   {', '.join(shown) or 'no head'}{'; in brackets: nats explained' * bool(shown)}",
            f"copy    {', '.join(copies) or 'no head'}{'; in brackets: mean attention' * bool(copies)}",
        ]


@keywords(copies="min_copied", explains="min_matched")
def scan_heads(
    model: Model,
    tokens: Tokens,
    *,
    order: Whole | None = None,
    vocab: Whole | None = None,
    bos: Bos = None,
    symbols: Symbols = None,
    query: Query = "last",
    copy_lags: Whole | None = None,
    min_copied: Number = MIN_COPIED,
    min_matched: Number = MIN_MATCHED,
    min_explained: Number = MIN_EXPLAINED,
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
    copy_lags       how many lags are examined for copying
    min_copied      least share that a copy head puts on one lag, of what even attention puts elsewhere
    min_matched     least share of a match head's nats that the law explains
    min_explained   least share of the nats that the law explains where beta and kappa are trusted

    Returns
    -------
    `HeadScan`, a row for each head

    Examples
    --------
        scan = scan_heads(foreign, tokens, order=2, vocab=5, bos=5)
        scan.table(), scan.copy_heads, scan.match_heads
    """
    circuit = as_scanned(model, order=order, vocab=vocab, bos=bos, symbols=symbols)
    shares = {"min_copied": min_copied, "min_matched": min_matched, "min_explained": min_explained}
    limits = {name: finite_number(value, name=name, above=0, most=1.0) for name, value in shares.items()}
    array = circuit.check(tokens)
    if len(array) < MIN_SEQUENCES:
        raise ValueError(f"{len(array)} sequences; a scan needs at least {MIN_SEQUENCES} for its standard errors")
    queries = query_positions(query, circuit, array.shape[1])
    lags = max(COPY_LAGS, circuit.order) if copy_lags is None else copy_lags
    lags = min(whole_number(lags, name="copy_lags", least=1), array.shape[1] - 1)
    statistics = ScanStatistics(circuit, array, queries, lags=max(lags, circuit.order))
    statistics.gather()
    note = untrained_note(queries, circuit, array.shape[1])
    return judged(statistics, **limits, note=note)


def as_scanned(model: Any, **task: Any) -> Circuit:
    """The model with its task as a circuit, or the circuit that was given."""
    if not isinstance(model, Circuit):
        return Circuit(model, **task)
    if given := [name for name, value in task.items() if value is not None]:
        raise ValueError(f"{given[0]} was given together with a Circuit, which already defines it")
    return model


def judged(
    statistics: ScanStatistics,
    *,
    min_copied: float = MIN_COPIED,
    min_matched: float = MIN_MATCHED,
    min_explained: float = MIN_EXPLAINED,
    note: str = "",
) -> HeadScan:
    """The scan: the numbers of every head, its role, and whether its beta and kappa can be trusted."""
    circuit, order = statistics.circuit, statistics.order
    found, exists = _measured(statistics)
    told, excess = found.pop("told"), found.pop("excess")
    role, reasons = np.full(exists.shape, "", dtype=object), np.full(exists.shape, "", dtype=object)
    near = []
    for layer, head in np.argwhere(exists).tolist():
        at = (layer, head)
        numbers = {name: values[at] for name, values in found.items()}
        lag = int(found["copy_lag"][at])
        role[at] = "none"
        if excess[at][lag] >= min_copied and np.delete(excess[at], lag).max() <= excess[at][lag] / 2:
            role[at] = "copy"
        elif _matches(numbers, explains=min_matched, share=1.0):
            role[at] = "match"
        elif _matches(numbers, explains=min_matched, share=NEAR):
            beta = ", ".join(f"{value:z.2f}" for value in numbers["beta"])
            near.append(f"{head_name(at)} (beta {beta}; {numbers['nats_explained']:.0%} of {numbers['nats']:.2g} nats)")
        reasons[at] = distrust(numbers, bool(told[at]), min_explained=min_explained)
    ok = exists & (reasons == "")
    for name in ("beta", "beta_stderr", "kappa", "kappa_stderr"):
        found[name] = np.where(ok if found[name].ndim == 2 else ok[..., None], found[name], np.nan)
    counts, follows = statistics.counts.numpy(), np.arange(1 << order) & 1
    scan = HeadScan(
        **found,
        order=order,
        induction_even=float((counts[..., : len(follows)] @ follows / counts.sum(axis=-1)).mean()),
        role=tuple(map(tuple, role)),
        ok=ok,
        reasons=tuple(map(tuple, reasons)),
        copy_heads=(None,) * order,
        match_heads=tuple((int(layer), int(head)) for layer, head in np.argwhere(role == "match")),
        near=_near_note(near, explains=min_matched) if near else "",
        bos=circuit.has_sink,
        n=len(statistics.tokens),
        queries=statistics.queries.numpy() - int(circuit.has_bos),
        provenance=provenance(checkpoint=circuit.checkpoint),
    )
    last = max((layer for layer, _ in scan.match_heads), default=len(role))
    copying = tuple(next((at for at in scan.copying(lag) if at[0] < last), None) for lag in range(1, order + 1))
    missing = [f"no head copies lag {lag}" for lag, place in enumerate(copying, start=1) if place is None]
    missing += [] if scan.match_heads else ["no head matches"]
    early = max((float(scan.mass[at][-1]) for at in scan.match_heads), default=0.0)
    notes = [early_note(early) if early > MUCH_EARLY and not circuit.has_sink else "", note]
    message = "; ".join(filter(None, [*missing, *notes]))
    return replace(scan, copy_heads=copying, success=not missing, message=message)


def attention_laws(
    circuit: Circuit,
    tokens: Int64[torch.Tensor, "batch length"],
    *,
    queries: Int64[torch.Tensor, " query"],
    edits: Hooks | None = None,
) -> AttentionLaws:
    """The additive laws at these queries (positions of the model, BOS counted), under hooks that edit the model."""
    statistics = ScanStatistics(circuit, tokens, queries, lags=1, layers=[layer for layer, _ in circuit.match_heads])
    statistics.gather(edits)
    found = {layer: _law_of_attention(statistics, layer) for layer in statistics.layers}
    heads = [{name: values[head] for name, values in found[layer].items()} for layer, head in circuit.match_heads]
    doubts = [distrust(numbers, bool(numbers["told"])) for numbers in heads]
    return AttentionLaws(
        beta=np.stack([numbers["beta"] for numbers in heads]),
        kappa=np.array([numbers["kappa"] for numbers in heads]) if circuit.has_sink else None,
        doubts=tuple(
            f"{head_name(at)}: {doubt}" for at, doubt in zip(circuit.match_heads, doubts, strict=True) if doubt
        ),
    )


@dataclass(frozen=True, kw_only=True)
class AttentionLaws:
    """The law of each match head, in the circuit's order: the numbers of a scan without its verdict.

    These are the parameters under which the attention is most likely, also where the law does not describe it. A test
    of the law, such as a replacement, uses them and reports which are in doubt. To read beta use `scan_heads` or
    `fit_scores`, which give NaN in that case.

    beta      [match, lag]
    kappa     [match]; None without BOS
    doubts    for each head whose law cannot be trusted: its name and the reason, as in a scan
    """

    beta: Float[np.ndarray, "match lag"]
    kappa: Float[np.ndarray, " match"] | None
    doubts: tuple[str, ...]

    @property
    def by_mask(self) -> Float[np.ndarray, "match mask"]:
        """|beta|_M of every mask."""
        return np.asarray(self.beta @ mask_bits(self.beta.shape[1]).T)


def distrust(numbers: Mapping[str, Any], told: bool, *, min_explained: float = MIN_EXPLAINED) -> str:
    """Why a head's beta and kappa cannot be trusted; empty where they can."""
    nats, explained, gap = (float(numbers[name]) for name in ("nats", "nats_explained", "mass_gap"))
    if nats < MIN_NATS:
        return f"the attention has {max(0.0, nats):.2g} nats beyond even attention: nothing to explain"
    if explained < min_explained:
        found_share = f"matches explain {max(0.0, explained):.1%} of {nats:.2f} nats"
        return f"{found_share}; below {min_explained:.0%} no beta is trusted"
    if not told:
        return "the attention is too sharp to determine beta and kappa"
    if gap > MAX_MASS_GAP:
        return f"the law's masses are off by {gap:.3f}; above {MAX_MASS_GAP} no beta is trusted"
    return ""


def _measured(statistics: ScanStatistics) -> tuple[dict[str, Any], Array]:
    """The numbers of every head as [layer, head, ...], and [layer, head] whether there is such a head."""
    parts = (_masses, _law_of_attention, _law_of_scores, _copies)
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
    by_sequence = statistics.sums[layer].masses.double().numpy().mean(axis=2)
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


def _law_of_attention(statistics: ScanStatistics, layer: int) -> dict[str, Array]:
    """beta, kappa, nats and the gap of the masses, by maximum likelihood."""
    law = law_design("additive", order=statistics.order, bos=statistics.circuit.has_sink)
    found = fit_law(statistics.rows(layer), law)
    errors = np.sqrt(np.diagonal(clustered(found.influence), axis1=1, axis2=2))
    columns, unknown = list(law.beta), np.full(len(errors), np.nan)
    return {
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
    """Mass on each lag, and the lag that exceeds even attention most; lag 0 is measured, but is not a copy."""
    mean, stderr = _means(statistics.sums[layer].on_lag.numpy().swapaxes(0, 1))
    visible = np.arange(1, statistics.tokens.shape[1] + 1) + statistics.bos
    even = np.array([(1.0 / visible[lag:]).mean() for lag in range(mean.shape[1])])
    excess = (mean - even) / (1.0 - even)
    best = 1 + excess[:, 1:].argmax(axis=1)
    return {"copy_mass": mean[:, 1:], "copy_mass_stderr": stderr[:, 1:], "copy_lag": best, "excess": excess}


def _matches(numbers: Mapping[str, Any], *, explains: float, share: float) -> bool:
    """Whether a head reaches this share of each threshold of a match head, with a beta that is sure."""
    enough = numbers["nats"] >= share * MIN_NATS and numbers["nats_explained"] >= share * explains
    return bool(enough and (numbers["beta"] >= np.maximum(share * MIN_BETA, SURE * numbers["beta_stderr"])).any())


def _near_note(heads: list[str], *, explains: float) -> str:
    """The heads below a threshold, the first of them by name, and the thresholds."""
    more = f" and {len(heads) - MOST_NAMED} more" if len(heads) > MOST_NAMED else ""
    return (
        f"below the thresholds of a match head (a beta of {MIN_BETA:g}, {MIN_NATS:g} nats, {explains:.0%} of them "
        f"explained): {', '.join(heads[:MOST_NAMED])}{more}"
    )


def _means(values: Float[np.ndarray, "head sequence item"]) -> tuple[Array, Array]:
    """Means over sequences and their standard errors."""
    return values.mean(axis=1), values.std(axis=1, ddof=1) / np.sqrt(values.shape[1])
