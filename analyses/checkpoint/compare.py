"""How do two checkpoints differ on the same sequences?

Every further checkpoint beside the first: KL to the truth, attention of the copy heads on their lags, attention of the
match heads by what the keys are, and beta and kappa. Differences are paired, sequence by sequence, so that their
errors are far smaller than those of the two numbers where the checkpoints resemble each other.

    python -m analyses compare A B
    python -m analyses compare A B C --prior hierarchical:5 --latex
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

import interp as ip
from analyses.running.cache import digest_of
from analyses.running.options import CheckpointOptions
from analyses.running.subject import Subject
from analyses.running.table import Table
from interp.results import mean_stderr, provenance

COLUMNS = ("checkpoint", "number", "first", "second", "difference", "stderr")
LEGEND = {
    "first, second": "of the first checkpoint and of this one, on the same sequences",
    "difference": "second minus first, ± one standard error of the paired difference: of means over sequences from the "
    "differences at single sequences, of beta and kappa from fits without one group of sequences",
    "kl": "KL(truth || prediction) at the last query in nats",
    "copy lag r": "attention of the copy head that has most there, mean over the queries that have a token at that lag",
    "attention": "of the match heads at the last query, on keys that match at all, some or none of the lags, on BOS, "
    "and on early keys, which have fewer than k tokens before them",
    "beta, kappa": "as `beta_kappa` fits them; left out where one of the fits is not to be trusted",
}
GROUPS = 32  # of sequences: as many fits without one of them


def analyse(subject: Subject, options: CheckpointOptions) -> Table:
    """One checkpoint: its numbers on each sequence, and its fits, of all sequences and without each group of them."""
    tokens, cap = subject.chains.tokens, subject.capture(copies=True)
    lags = ip.copy_heads(cap).masses.argmax(axis=0)  # of the heads, for each lag
    each = {"kl": ip.kl_divergence(subject.chains.next_law, ip.predict(subject.model, tokens)).values.numpy()}
    for lag, head in enumerate(lags, start=1):
        each[f"copy lag {lag}"] = copies_of_each(cap, head=int(head), lag=lag)
    each |= {f"attention, {kind}": shares for kind, shares in masses_of_each(cap).items()}
    fit = subject.fit(cap)
    fits = [parameters(fit), *map(parameters, fits_without(cap))] if fit.success else []
    row = {"tokens": digest_of(tokens.tolist()), "each": each, "fits": fits, "doubt": fit.doubt}
    return Table(rows=[row])


def copies_of_each(cap: ip.Capture, *, head: int, lag: int) -> np.ndarray:
    """[sequence]: the attention of a copy head on its lag, mean over the queries that have a token there, not BOS."""
    on_lag = np.diagonal(cap.copy_pattern[:, head].double().numpy(), -lag, axis1=1, axis2=2)
    return on_lag[:, int(cap.bos) :].mean(-1)


def masses_of_each(cap: ip.Capture) -> dict[str, np.ndarray]:
    """kind -> [sequence]: the last query's attention on keys of that kind, mean over the match heads."""
    from interp.notation import OVERLAP_KINDS, overlap

    masks = ip.match_masks(cap.tokens, order=cap.order).numpy()
    weights = cap.match_pattern[:, :, -1].double().mean(1).numpy()
    own = weights[:, int(cap.bos) :]
    overlaps = np.array([overlap(mask) for mask in range(1 << cap.order)])[np.maximum(masks, 0)]
    candidate = masks >= 0
    shares = {
        "full": own * (candidate & (overlaps == cap.order)),
        "partial": own * (candidate & (overlaps > 0) & (overlaps < cap.order)),
        "none": own * (candidate & (overlaps == 0)),
        "bos": weights[:, : int(cap.bos)],
        "early": own * ~candidate,
    }
    return {kind: shares[kind].sum(-1) for kind in OVERLAP_KINDS}


def parameters(fit: Any) -> dict[str, float]:
    """beta by lag and, with BOS, kappa."""
    found = {f"beta_{lag}": float(beta) for lag, beta in enumerate(fit.beta, start=1)}
    return found if fit.kappa is None else {**found, "kappa": float(fit.kappa)}


def fits_without(cap: ip.Capture) -> Iterator[Any]:
    """The fit of the scores without each group of sequences."""
    group = np.arange(len(cap.tokens)) % GROUPS
    for left_out in range(min(GROUPS, len(cap.tokens))):
        kept = group != left_out
        parts = {name: getattr(cap, name)[kept] for name in ("tokens", "match_scores", "match_pattern")}
        yield ip.fit_scores(replace(cap, **parts, copy_pattern=cap.copy_pattern[:0]))


def survey(rows: list[dict[str, Any]], options: CheckpointOptions) -> Table:
    """Every further checkpoint beside the first."""
    if len(rows) < 2:
        raise ValueError("compare needs two checkpoints or more")
    first, *others = rows
    found = []
    for other in others:
        if other["tokens"] != first["tokens"]:
            raise ValueError(
                f"{other['checkpoint']} and {first['checkpoint']}: not on the same sequences; compare needs the same "
                "length, vocabulary and order, and --prior where they were trained on different priors"
            )
        place = {"checkpoint": other["checkpoint"], "beside": first["checkpoint"]}
        found += [{**place, **one} for one in differences(first, other)]
    notes = [f"first: {first['checkpoint']}"]
    notes += [f"{row['checkpoint']}: beta and kappa {row['doubt']}" for row in rows if row["doubt"]]
    return Table(rows=found, provenance=provenance(seed=options.seed), notes=notes)


def differences(first: dict[str, Any], second: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The numbers that both checkpoints have, side by side."""
    for name in (name for name in first["each"] if name in second["each"]):
        count = min(len(first["each"][name]), len(second["each"][name]))
        a, b = (np.array(row["each"][name][:count]) for row in (first, second))
        difference, stderr = mean_stderr(b - a)
        yield {"number": name, "first": a.mean(), "second": b.mean(), "difference": difference, "stderr": stderr}
    fits = list(zip(first["fits"], second["fits"], strict=False))
    for name in (name for name in fits[0][0] if name in fits[0][1]) if fits else ():
        a, b = (np.array([pair[side][name] for pair in fits], dtype=np.float64) for side in (0, 1))
        (difference, *without), count = b - a, len(fits) - 1
        stderr = np.sqrt((count - 1) * np.var(without))  # the jackknife's
        yield {"number": name, "first": a[0], "second": b[0], "difference": difference, "stderr": stderr}
