"""Every head of a model in one forward pass: which copy a lag, which match contexts, with which beta and kappa?

    scan = scan_heads(foreign, tokens, order=2, vocab=5, bos=5)
    scan.table(), scan.copy_heads, scan.match_heads

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

    copy     `copies` of the attention that even attention would put elsewhere is on one lag, and no other lag has more
             than half of that
    match    the law explains `explains` of its nats, which are at least MIN_NATS, and its largest beta is at least
             MIN_BETA and five standard errors
    none     any other head

A head that meets both conditions is a copy head. A head without a role that reaches a share `NEAR` of each of the three
thresholds of a match head, with a beta of five standard errors, is named in `near`, with the thresholds.

`success` of a head says whether its beta and kappa can be trusted, by the rule of `attention_fit`; where they cannot,
they are NaN. For each lag 1..k, `copy_heads` has the copy head with the most mass on it in a layer below the last match
head; `find_circuit` tests whether the match depends on it.

Memory: the model holds one layer's attention for a few sequences at a time (`runner.parts`); kept are 2^k + 3 numbers
for each head, sequence and query asked for, at most `scan_statistics.KEPT_BYTES`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from interp.arguments import Number, finite_number
from interp.circuit.circuit import Circuit, Head, head_name
from interp.circuit.queries import query_positions, untrained_note
from interp.fitting.attention_fit import MAX_MASS_GAP, MIN_EXPLAINED, MIN_SEQUENCES, MUCH_EARLY, early_note
from interp.fitting.attention_rows import MIN_COVERED
from interp.fitting.candidates import Array
from interp.fitting.laws import LawDesign, group_sizes, into_sizes, law_design
from interp.fitting.likelihood import GroupLikelihood, influence, maximise
from interp.fitting.regression import clustered
from interp.fitting.scan_statistics import ScanStatistics, check_lags
from interp.instruments.head_scan import HeadScan
from interp.notation import Tokens
from interp.results import mean_stderr, provenance

COPY_LAGS = 8  # lags examined by default; k where that is more
COPIES = 0.25  # a copy head has on one lag this share of what even attention puts elsewhere
EXPLAINS = 0.25  # share of a match head's nats that the law explains at least
MIN_NATS = 0.02
MIN_BETA = 1.0
SURE = 5  # standard errors of beta
NEAR = 0.25  # of a threshold: a head that reaches less is not worth naming
MOST_NAMED = 6  # heads below the thresholds
ROUNDING = 1e-12  # nats


def scan_heads(
    model: Any,
    tokens: Tokens,
    *,
    order: Any = None,
    vocab: Any = None,
    bos: Any = None,
    symbols: Any = None,
    query: Any = "last",
    copy_lags: Any = None,
    copies: Number = COPIES,
    explains: Number = EXPLAINS,
    min_explained: Number = MIN_EXPLAINED,
    checkpoint: str | None = None,
) -> HeadScan:
    """Scan every head of a model in one forward pass; the module's docstring says what is measured.

    The model is a HookedTransformer, with order, vocab, bos and symbols as `Circuit` takes them, or a `Circuit`. query:
    "last", "all", "trained" or a list of token indices, as in `capture`; `copy_mass` is always over all positions.
    copies, explains and min_explained are the thresholds of the two roles and of trust.
    """
    circuit = as_scanned(model, order=order, vocab=vocab, bos=bos, symbols=symbols)
    shares = {"copies": copies, "explains": explains, "min_explained": min_explained}
    limits = {name: finite_number(value, name=name, above=0, most=1.0) for name, value in shares.items()}
    array = circuit.check(tokens)
    if len(array) < MIN_SEQUENCES:
        raise ValueError(f"{len(array)} sequences; a scan needs at least {MIN_SEQUENCES} for its standard errors")
    queries = query_positions(query, circuit, array.shape[1])
    lags = check_lags(max(COPY_LAGS, circuit.order) if copy_lags is None else copy_lags, length=array.shape[1])
    statistics = ScanStatistics(circuit, array, queries, lags=max(lags, circuit.order))
    statistics.gather()
    fitter = LayerFitter(statistics, **limits)
    return assembled(
        fitter, note=untrained_note(queries, circuit, array.shape[1]), origin=provenance(checkpoint=checkpoint)
    )


def assembled(fitter: LayerFitter, *, note: str = "", origin: dict[str, Any] | None = None) -> HeadScan:
    """The fits of all layers as one result."""
    statistics, circuit = fitter.statistics, fitter.statistics.circuit
    fitted = {layer: fitter.fit(layer) for layer in statistics.layers}
    # A layer without attention has no heads.
    none = {name: values[:0] for name, values in next(iter(fitted.values())).items()}
    layers = [fitted.get(layer, none) for layer in range(len(circuit.model.blocks))]
    width = max(statistics.heads.values())
    arrays = {name: np.stack([_padded(one[name], width) for one in layers]) for name in fitter.ARRAYS}
    role, reasons = (
        tuple((*one[name], *[""] * (width - len(one[name]))) for one in layers) for name in ("role", "reasons")
    )
    copying, matching = _chosen(role, arrays["copy_mass"], arrays["copy_lag"], order=circuit.order)
    missing = [f"no head copies lag {lag}" for lag, place in enumerate(copying, start=1) if place is None]
    missing += [] if matching else ["no head matches"]
    early = max((float(arrays["mass"][at][-1]) for at in matching), default=0.0)
    notes = [] if circuit.has_sink or early <= MUCH_EARLY else [early_note(early)]
    notes += [note] if note else []
    below = [
        f"{head_name((layer, head))} ({told})"
        for layer, one in enumerate(layers)
        for head, told in enumerate(one["near"])
        if told
    ]
    return HeadScan(
        **arrays,
        order=circuit.order,
        induction_even=_induction_even(statistics),
        role=role,
        reasons=reasons,
        copy_heads=copying,
        match_heads=matching,
        near=_near_note(below, explains=fitter.explains) if below else "",
        bos=circuit.has_sink,
        n=len(statistics.tokens),
        queries=statistics.queries.numpy() - int(circuit.has_bos),
        success=not missing,
        message="; ".join([*missing, *notes]),
        provenance=provenance() if origin is None else origin,
    )


def as_scanned(model: Any, **task: Any) -> Circuit:
    """The model with its task as a circuit, or the circuit that was given."""
    if not isinstance(model, Circuit):
        return Circuit(model, **task)
    if given := [name for name, value in task.items() if value is not None]:
        raise ValueError(f"{given[0]} was given together with a Circuit, which already defines it")
    return model


class LayerFitter:
    """The fits of one layer's heads, all at once."""

    ARRAYS = (
        "copy_mass",
        "copy_mass_stderr",
        "copy_lag",
        "beta",
        "beta_stderr",
        "beta_scores",
        "kappa",
        "kappa_stderr",
        "r2_match",
        "nats",
        "nats_explained",
        "nats_explained_stderr",
        "mass_gap",
        "mass",
        "mass_stderr",
        "induction",
        "induction_stderr",
        "ok",
    )

    def __init__(
        self,
        statistics: ScanStatistics,
        *,
        copies: float = COPIES,
        explains: float = EXPLAINS,
        min_explained: float = MIN_EXPLAINED,
    ) -> None:
        self.statistics = statistics
        self.copies, self.explains, self.min_explained = copies, explains, min_explained
        order, bos = statistics.order, bool(statistics.sink)
        self.order, self.bos = order, bos
        self.law: LawDesign = law_design("additive", order=order, bos=bos)
        self.sizes = into_sizes(group_sizes(order=order, bos=bos), order=order).astype(np.float64)
        sequences, queries, _ = statistics.counts.shape
        self.counts = statistics.counts.numpy().reshape(sequences * queries, -1)[:, :-1]
        self.sequences, self.sequence = sequences, np.repeat(np.arange(sequences), queries)
        self.even = statistics.even_lags()

    def fit(self, layer: int) -> dict[str, Any]:
        """Everything about the heads of one layer."""
        found = {**self.masses(layer), **self.attention(layer), **self.scores(layer), **self.copying(layer)}
        return found | self.judge(found)

    def masses(self, layer: int) -> dict[str, Any]:
        """Mean attention by overlap, on BOS and on early keys, and on the keys that follow the query's token."""
        masses = self.statistics.masses[layer].double().numpy()
        sizes = np.zeros((masses.shape[-1], self.order + 3))
        sizes[: len(self.sizes), : self.sizes.shape[1]] = self.sizes
        sizes[-1, -1] = 1.0
        follows = np.zeros(masses.shape[-1])
        follows[: 1 << self.order] = np.arange(1 << self.order) & 1
        by_sequence = masses.mean(axis=2)
        mass, mass_stderr = _means(by_sequence @ sizes)
        induction, induction_stderr = _means((by_sequence @ follows)[..., None])
        return {
            "mass": mass,
            "mass_stderr": mass_stderr,
            "induction": induction[:, 0],
            "induction_stderr": induction_stderr[:, 0],
        }

    def attention(self, layer: int) -> dict[str, Any]:
        """beta, kappa, nats and the gap of the masses, by maximum likelihood."""
        masses = self.statistics.masses[layer].double().numpy()
        heads = len(masses)
        inside = masses.reshape(heads, len(self.sequence), -1)[..., :-1]
        covered = inside.sum(axis=-1)
        kept = covered > MIN_COVERED
        whole = np.where(kept, covered, 1.0)
        shares = inside / whole[..., None]
        # sum q log q of q = p / c is (sum p log p) / c - log c.
        entropy = self.statistics.entropy[layer].double().numpy().reshape(heads, -1) / whole - np.log(whole)
        likelihood = GroupLikelihood(
            shares=shares,
            counts=self.counts,
            design=self.law.design,
            sequence=self.sequence,
            sequences=self.sequences,
            kept=kept,
        )
        size, matches = len(self.law.parameters), self.law.matches
        baseline = maximise(
            likelihood,
            start=np.zeros((heads, size)),
            columns=[column for column in range(size) if column not in matches],
        )
        found = maximise(likelihood, start=baseline.theta)
        errors = np.sqrt(np.diagonal(clustered(influence(likelihood, found)), axis1=1, axis2=2))
        left, nats = (np.where(kept, entropy - likelihood.logs(one.theta), 0.0) for one in (found, baseline))
        rows = np.maximum(kept.sum(axis=1), 1)
        mean = nats.sum(axis=1) / rows
        mean = np.where(mean > ROUNDING, mean, np.nan)  # even attention has no nats to explain
        ratio = left.sum(axis=1) / (rows * mean)
        off = (left - ratio[:, None] * nats) / mean[:, None]
        law = likelihood.masses(found.theta).sum(axis=1)
        gap = np.abs((likelihood.shares.sum(axis=1) - law) @ self.sizes).sum(axis=1) / (2 * rows)
        explained_stderr = [mean_stderr(one, clusters=self.sequence)[1] for one in off]
        columns, kappa = list(self.law.beta), self.law.kappa
        unknown = np.full(heads, np.nan)
        return {
            "beta": found.theta[:, columns],
            "beta_stderr": errors[:, columns],
            "kappa": unknown if kappa is None else found.theta[:, kappa],
            "kappa_stderr": unknown if kappa is None else errors[:, kappa],
            "nats": nats.sum(axis=1) / rows,
            "nats_explained": 1.0 - ratio,
            "nats_explained_stderr": np.array(explained_stderr),
            "mass_gap": gap,
            "told": found.told.all(axis=1) & found.converged,
        }

    def scores(self, layer: int) -> dict[str, Any]:
        """r2_match and beta by least squares; NaN where the scores could not be read or do not vary."""
        heads = self.statistics.heads[layer]
        r2, beta = np.full(heads, np.nan), np.full((heads, self.order), np.nan)
        if f"blocks.{layer}.attn.hook_attn_scores" not in self.statistics.called:
            return {"r2_match": r2, "beta_scores": beta}
        lags, everything = list(range(self.order)), list(range(len(self.statistics.gram)))
        for head in range(heads):
            equations = self.statistics.equations(layer, head)
            if equations.trouble() is None:
                place, both = equations.solve(everything[self.order :]), equations.solve(everything)
                r2[head] = 1.0 - both.sse / place.sse if place.sse > equations.noise else 0.0
                beta[head] = both.coefficients[lags]
        return {"r2_match": r2, "beta_scores": beta}

    def copying(self, layer: int) -> dict[str, Any]:
        """Mass on each lag, and the lag that exceeds even attention most; lag 0 is measured, but is not a copy."""
        on_lag = self.statistics.on_lag[layer].numpy()
        mean, stderr = _means(on_lag.swapaxes(0, 1))
        excess = (mean - self.even) / (1.0 - self.even)
        best = 1 + excess[:, 1:].argmax(axis=1)
        return {"copy_mass": mean[:, 1:], "copy_mass_stderr": stderr[:, 1:], "copy_lag": best, "excess": excess}

    def judge(self, found: dict[str, Any]) -> dict[str, Any]:
        """The role of each head, and whether its beta and kappa can be trusted."""
        roles, reasons, near, ok = [], [], [], []
        for head, lag in enumerate(found["copy_lag"].tolist()):
            excess = found["excess"][head]
            others = np.delete(excess, lag).max()
            role = "none"
            if excess[lag] >= self.copies and others <= excess[lag] / 2:
                role = "copy"
            elif self.matches(found, head, share=1.0):
                role = "match"
            named = role == "none" and self.matches(found, head, share=NEAR)
            beta = ", ".join(f"{value:z.2f}" for value in found["beta"][head])
            seen = f"beta {beta}; {found['nats_explained'][head]:.0%} of {found['nats'][head]:.2g} nats"
            near.append(seen if named else "")
            reason = self.distrust(found, head)
            roles.append(role)
            reasons.append(reason)
            ok.append(not reason)
        trusted = np.array(ok)
        names = ("beta", "beta_stderr", "kappa", "kappa_stderr")
        hidden = {name: np.where(_like(trusted, found[name]), found[name], np.nan) for name in names}
        return {"role": tuple(roles), "reasons": tuple(reasons), "near": tuple(near), "ok": trusted, **hidden}

    def matches(self, found: dict[str, Any], head: int, *, share: float) -> bool:
        """Whether a head reaches this share of each threshold of a match head, with a beta that is sure."""
        beta, sure = found["beta"][head], SURE * found["beta_stderr"][head]
        nats, explained = found["nats"][head], found["nats_explained"][head]
        enough = nats >= share * MIN_NATS and explained >= share * self.explains
        return bool(enough and (beta >= np.maximum(share * MIN_BETA, sure)).any())

    def distrust(self, found: dict[str, Any], head: int) -> str:
        """Why a head's beta and kappa cannot be trusted; empty where they can."""
        nats, explained = float(found["nats"][head]), float(found["nats_explained"][head])
        if nats < MIN_NATS:
            return f"the attention has {max(0.0, nats):.2g} nats beyond even attention: nothing to explain"
        if explained < self.min_explained:
            found_share = f"matches explain {max(0.0, explained):.1%} of {nats:.2f} nats"
            return f"{found_share}; below {self.min_explained:.0%} no beta is trusted"
        if not found["told"][head]:
            return "the attention is too sharp to determine beta and kappa"
        if found["mass_gap"][head] > MAX_MASS_GAP:
            return f"the law's masses are off by {found['mass_gap'][head]:.3f}; above {MAX_MASS_GAP} no beta is trusted"
        return ""


def _near_note(heads: list[str], *, explains: float) -> str:
    """The heads below a threshold, the first of them by name, and the thresholds."""
    more = f" and {len(heads) - MOST_NAMED} more" if len(heads) > MOST_NAMED else ""
    return (
        f"below the thresholds of a match head (a beta of {MIN_BETA:g}, {MIN_NATS:g} nats, {explains:.0%} of them "
        f"explained): {', '.join(heads[:MOST_NAMED])}{more}"
    )


def _induction_even(statistics: ScanStatistics) -> float:
    """The classical induction score of attention that is even over all visible keys."""
    counts = statistics.counts.numpy()
    follows = np.arange(1 << statistics.order) & 1
    return float((counts[..., : len(follows)] @ follows / counts.sum(axis=-1)).mean())


def _chosen(
    role: tuple[tuple[str, ...], ...], copy_mass: Array, copy_lag: Array, *, order: int
) -> tuple[tuple[Head | None, ...], tuple[Head, ...]]:
    """For each lag the copy head with the most mass on it, below the last match head; and the match heads."""
    named = [(layer, head) for layer, row in enumerate(role) for head in range(len(row))]
    matching = tuple(place for place in named if role[place[0]][place[1]] == "match")
    last = max((layer for layer, _ in matching), default=len(role))
    chosen: list[Head | None] = []
    for lag in range(1, order + 1):
        heads = [at for at in named if role[at[0]][at[1]] == "copy" and copy_lag[at] == lag and at[0] < last]
        chosen.append(max(heads, key=lambda at: float(copy_mass[at][lag - 1]), default=None))
    return tuple(chosen), matching


def _means(values: Float[np.ndarray, "head sequence item"]) -> tuple[Array, Array]:
    """Means over sequences and their standard errors."""
    pairs = np.array([[mean_stderr(column) for column in one.T] for one in values])
    return pairs[..., 0], pairs[..., 1]


def _like(flags: Array, values: Array) -> Array:
    return flags if values.ndim == 1 else flags[:, None]


def _padded(values: Array, width: int) -> Array:
    """More heads, NaN (or 0, False) where there are none."""
    missing = width - len(values)
    filler = np.nan if values.dtype.kind == "f" else 0
    return np.pad(values, [(0, missing)] + [(0, 0)] * (values.ndim - 1), constant_values=filler)
