"""The roles of attention heads: which rules name them, with which thresholds.

    rules = RoleRules(min_copied=0.4)
    scan_heads(model, tokens, order=1, rules=rules), find_circuit(model, tokens, order=1, rules=rules)

Attention on some keys *above even* is (mass - even) / (1 - even), where `even` is what even attention puts there: 0 for
even attention, 1 where all attention is on these keys. The first rule that a head meets is its role:

    copy        of all lags 0, 1, 2, .. one lag r >= 1 has most above even: at least `min_copied`, and no other lag more
                than `max_second` of that. Or more than half of all attention is on lag r
    match       the law of matches explains `min_matched` of its nats, which are at least `min_nats`, and its largest
                beta is at least `min_beta` and `min_errors` standard errors
    duplicate   of the queries whose token occurred before, `min_duplicate` above even is on these earlier keys
    self        the rule of copy, for lag 0
    sink        `min_sink` above even is on BOS and the first token
    none        any other head

Attention on duplicates and on the first keys is averaged symbol by symbol and must be `min_errors` standard errors,
over symbols, above even: random weights may attend so for some symbols by chance. On lags it is averaged over all
positions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias

import numpy as np

from interp.arguments import finite_number
from interp.circuit.circuit import Head, head_name, one_or_all
from interp.fitting.regression import Array

Role: TypeAlias = Literal["copy", "match", "duplicate", "self", "sink", "none"]
Numbers: TypeAlias = Mapping[str, Any]  # of a head, by name
Heads: TypeAlias = Mapping[Head, Numbers]

MOST_NAMED = 6  # heads in a line


@dataclass(frozen=True, kw_only=True)
class RoleRules:
    """The thresholds of the roles; the module says what each one does.

    Parameters
    ----------
    min_copied      of a copy head and of a self head: attention above even on the lag
    max_second      of the same: attention above even on any other lag, as a share of that
    min_matched     of a match head: share of its nats that matches explain
    min_nats        of a match head: its nats
    min_beta        of a match head: its largest beta
    min_duplicate   of a duplicate head: attention above even on earlier keys of the query's token
    min_sink        of a sink: attention above even on BOS and the first token
    min_errors      standard errors of beta, and of attention on duplicates and on the first keys
    min_explained   share of the nats that the law explains where beta and kappa are trusted
    near            share of each threshold of a match head below which a head is not worth naming

    Examples
    --------
    >>> print(RoleRules(min_copied=0.4))
    copy and self 0.4 above even, other lags at most 0.8 of that, or half of all attention; duplicate 0.25; sink 0.5
    match a beta of 1, 0.02 nats, 25% of them explained; 5 standard errors
    """

    min_copied: float = 0.25
    max_second: float = 0.8
    min_matched: float = 0.25
    min_nats: float = 0.02
    min_beta: float = 1.0
    min_duplicate: float = 0.25
    min_sink: float = 0.5
    min_errors: float = 5.0
    min_explained: float = 0.5
    near: float = 0.25

    def __post_init__(self) -> None:
        """Refuse thresholds that are no numbers above 0, or shares above 1."""
        for one in fields(self):
            most = None if one.name in ("min_nats", "min_beta", "min_errors") else 1.0
            finite_number(getattr(self, one.name), name=one.name, above=0, most=most)

    def __str__(self) -> str:
        copied = (
            f"{self.min_copied:g} above even, other lags at most {self.max_second:g} of that, or half of all attention"
        )
        attended = f"copy and self {copied}; duplicate {self.min_duplicate:g}; sink {self.min_sink:g}"
        return f"{attended}\nmatch {needed_to_match(self)}; {self.min_errors:g} standard errors"


def role_of(head: Numbers, rules: RoleRules) -> Role:
    """The role of a head. Its numbers: `on_lag` and `above` (attention by lag from 0, and above even), `duplicate` and
    `sink` (above even, and the standard error of that), beta, beta_stderr, nats and nats_explained.
    """
    lag = lag_of(head, rules)
    if lag:
        return "copy"
    if matches(head, rules):
        return "match"
    if _sure(head["duplicate"], rules.min_duplicate, rules):
        return "duplicate"
    if lag == 0:
        return "self"
    return "sink" if _sure(head["sink"], rules.min_sink, rules) else "none"


def lag_of(head: Numbers, rules: RoleRules) -> int | None:
    """The one lag, from 0, that the head attends to, or None."""
    lag = int(head["above"].argmax())
    above, others = head["above"][lag], np.delete(head["above"], lag).max()
    clear = above >= rules.min_copied and others <= rules.max_second * above
    return lag if clear or head["on_lag"][lag] > 0.5 else None


def matches(head: Numbers, rules: RoleRules, *, share: float = 1.0) -> bool:
    """Whether the head reaches this share of each threshold of a match head, with a beta that is sure."""
    enough = head["nats"] >= share * rules.min_nats and head["nats_explained"] >= share * rules.min_matched
    needed = np.maximum(share * rules.min_beta, rules.min_errors * head["beta_stderr"])
    return bool(enough and (head["beta"] >= needed).any())


def _sure(measured: Array, least: float, rules: RoleRules) -> bool:
    """Whether a mean with its standard error is at least this, and above zero beyond doubt."""
    mean, stderr = measured
    return bool(mean >= max(least, rules.min_errors * stderr))


def copy_evidence(lag: int, heads: Heads, rules: RoleRules, *, late: Sequence[Head]) -> str:
    """That no head copies a lag: which heads do in too late a layer, or which head comes nearest, and what it has."""
    if late:
        would = head_name(one_or_all(sorted(late)))
        return f"no head copies lag {lag} below the match heads ({would} would, but in too late a layer)"
    best = max(heads, key=lambda at: float(heads[at]["above"][lag]))
    above = heads[best]["above"].tolist()
    other = max((place for place in range(len(above)) if place != lag), key=above.__getitem__)
    much = f", but {above[other]:.2f} on lag {other}" if above[lag] >= rules.min_copied else ""
    needed = f"{head_name(best)} with {above[lag]:z.2f} above even{much}; {rules.min_copied:g} needed"
    return f"no head copies lag {lag} (nearest: {needed})"


def match_evidence(heads: Heads, rules: RoleRules) -> str:
    """That no head matches: which head comes nearest, and what it has."""
    large = {at: one for at, one in heads.items() if one["nats"] >= rules.min_nats} or heads
    best = max(large, key=lambda at: float(np.nan_to_num(large[at]["nats_explained"])))
    one = heads[best]
    place = int(one["beta"].argmax())
    share, nats = max(0.0, float(np.nan_to_num(one["nats_explained"]))), max(0.0, float(one["nats"]))
    return (
        f"no head matches (nearest: {head_name(best)} with {share:.1%} of {nats:.2g} nats explained, beta "
        f"{one['beta'][place]:z.2f} ± {one['beta_stderr'][place]:.2g}; {needed_to_match(rules)} needed)"
    )


def needed_to_match(rules: RoleRules) -> str:
    """The thresholds of a match head."""
    return f"a beta of {rules.min_beta:g}, {rules.min_nats:g} nats, {rules.min_matched:.0%} of them explained"


def near_note(heads: Heads, rules: RoleRules) -> str:
    """The heads below the thresholds of a match head, the first of them by name, and the thresholds; else empty."""
    named = [
        f"{head_name(at)} (beta {', '.join(f'{value:z.2f}' for value in one['beta'])}; {one['nats_explained']:.0%} of "
        f"{one['nats']:.2g} nats)"
        for at, one in heads.items()
    ]
    more = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
    listed = f"{', '.join(named[:MOST_NAMED])}{more}"
    return f"below the thresholds of a match head ({needed_to_match(rules)}): {listed}" if named else ""
