"""Which law of attention predicts new sequences best: additive, suffix or free?

Every law is fitted to one half of the sequences (`interp.fitting.attention_fit`) and tested on the other half, then
the reverse, so that each query is predicted once by parameters fitted without it. A free law has more parameters than
an additive one: it cannot fit worse, but it can predict new sequences worse. The share of the nats that a law explains
is against the baseline without matches, fitted to the same half. Laws are compared sequence by sequence: `behind` is
what a law loses against the one that explains most, in nats per query, and its standard error is that of the
difference. The best law is the one with the fewest parameters among those that are less than two standard errors
behind.

Each match head has parameters of its own. Several heads are compared one by one, in `heads`, and pooled. A head of
which no law explains MIN_EXPLAINED of the nats is marked, and left out of the pool unless all heads are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, get_args

import numpy as np
from jaxtyping import Float

from interp.arguments import Switch, keywords, switch
from interp.circuit.capture import check_attention
from interp.circuit.circuit import head_name
from interp.fitting.attention_fit import MIN_EXPLAINED, MIN_NATS, MIN_SEQUENCES, share_explained
from interp.fitting.candidates import attention_rows
from interp.fitting.laws import Law, LawDesign, law_design
from interp.fitting.likelihood import AttentionRows, Likelihood, maximise
from interp.fitting.regression import Array
from interp.instruments.given import Captured, check_capture
from interp.results import Axes, DataFrame, Result, frame, half_width, mean_stderr, provenance

Divergences: TypeAlias = Float[np.ndarray, "head sequence query"]

ERRORS = 2  # standard errors by which a law must be behind to count as worse


@dataclass(frozen=True, kw_only=True)
class LawComparison(Result):
    """The laws, tested on sequences that they were not fitted to. Arrays have one number per law.

    laws            their names
    parameters      how many parameters each one has, without the positional term
    nats_explained, stderr   share of the held-out nats that it explains, and its standard error
    behind, behind_stderr    nats per query that it loses against the law that explains most, and the standard error
    best            see the module
    nats            mean KL(attention || baseline) on held-out sequences
    n, sequences    queries, over all heads, and sequences
    head            the head, "all" for several heads pooled
    heads           the comparison for each head alone, where there are several
    success         one law is the best: no other law with as few parameters predicts as well
    """

    DOUBT = "no law is the best"

    laws: tuple[Law, ...]
    parameters: tuple[int, ...]
    nats_explained: Float[np.ndarray, " law"]
    stderr: Float[np.ndarray, " law"]
    behind: Float[np.ndarray, " law"]
    behind_stderr: Float[np.ndarray, " law"]
    best: Law
    nats: float
    n: int
    sequences: int
    head: str
    heads: tuple[LawComparison, ...] = ()

    SHOWN = ("law", "parameters", "nats_explained", "stderr", "behind", "behind_stderr")

    def table(self) -> DataFrame:
        """One row per law: law, parameters, nats_explained, stderr, behind, behind_stderr. With several heads the rows
        of the pool, then those of each head, which the column head names.
        """
        every = [self, *self.heads]
        columns = {name: np.concatenate([getattr(one, name) for one in every]) for name in self.SHOWN[1:]}
        heads = {"head": [one.head for one in every for _ in one.laws]} if self.heads else {}
        return frame({**heads, "law": [law for one in every for law in one.laws], **columns})

    @property
    def title(self) -> str:
        """The best law."""
        where = f"{self.n} queries with {self.nats:.4f} nats to explain"
        return f"the {self.best} law predicts the attention of new sequences best, {where}"

    def plot(self, ax: Axes | None = None) -> Axes:
        """The share of the held-out nats that each law explains, with 95% intervals."""
        from interp.plotting import INTERVAL_NAME, estimate_points, heading, panel

        ax = panel(ax, width=4.8)
        estimate_points(ax, self.laws, self.nats_explained, half_width(self.stderr, n=self.sequences))
        ax.set_ylabel(f"share of the held-out nats\nexplained ({INTERVAL_NAME})")
        return heading(ax, self.title, doubt=self.doubt)


@keywords()
def compare_laws(cap: Captured, *, position: Switch = True, own: Switch = False) -> LawComparison:
    """Fit the three laws to one half of the sequences and test them on the other, then the reverse.

    At order 1 the three laws are one.

    Parameters
    ----------
    cap        what `capture` returns
    position   fit a smooth function of the distance, too
    own        fit a weight for the key's own token, too

    Returns
    -------
    `LawComparison`, a row for each law

    Examples
    --------
        found = compare_laws(cap)
        found.best, found.table(), found.heads
    """
    check_capture(cap)
    position, own = switch(position, name="position"), switch(own, name="own")
    sequences = int(cap.tokens.shape[0])
    if sequences < 2 * MIN_SEQUENCES:
        raise ValueError(f"{sequences} sequences; halves of at least {MIN_SEQUENCES} are needed")
    check_attention(cap.match_pattern, of="match")
    designs = [law_design(law, order=cap.order, bos=cap.has_sink, own=own) for law in get_args(Law)]
    rows, _ = attention_rows(cap, position=position, own=own)
    halves = (rows.some(slice(0, None, 2)), rows.some(slice(1, None, 2)))
    kappa = [] if designs[0].kappa is None else [designs[0].kappa]
    baseline = _held_out(halves, designs[0].design, kappa)
    held = np.stack([_held_out(halves, one.design, range(len(one.parameters))) for one in designs])
    count = len(rows.shares)
    names = list(map(head_name, cap.match_heads)) or list(map(str, range(count)))
    origin = provenance(checkpoint=cap.checkpoint)
    alone = [_compared([at], names[at], baseline, held, designs, origin) for at in range(count)]
    if count == 1:
        return alone[0]
    follow = [at for at, one in enumerate(alone) if one.nats_explained.max() >= MIN_EXPLAINED]
    pool = _compared(follow or list(range(count)), "all", baseline, held, designs, origin)
    left = [name for at, name in enumerate(names) if at not in follow]
    note = f"no law explains {MIN_EXPLAINED:.0%} of the nats of {', '.join(left)}"
    note += ", left out of the pool" if follow else ""
    message = "; ".join(filter(None, [pool.message, note if left else ""]))
    return replace(pool, heads=tuple(alone), message=message)


def _compared(
    heads: list[int],
    name: str,
    baseline: Divergences,
    held: Float[np.ndarray, "law head sequence query"],
    designs: Sequence[LawDesign],
    origin: dict[str, Any],
) -> LawComparison:
    """The laws of these heads: their divergences are NaN at queries that no fit can use."""
    sizes = [len(design.parameters) for design in designs]
    used = np.isfinite(baseline[heads])
    clusters = np.broadcast_to(np.arange(used.shape[1])[:, None], used.shape)[used]
    least, laws = baseline[heads][used], held[:, heads][:, used]
    left_out, few = int((~used).sum()), not all(used[:, start::2].any() for start in (0, 1))
    explained = behind = np.full((len(designs), 2), np.nan)
    best, nats, message = 0, float("nan"), ""
    if few:
        message = f"attention is on early keys: {left_out} queries were left out, and too few are left"
    else:
        nats = float(least.mean())
        explained = np.array([share_explained(one, least, clusters=clusters) for one in laws])
        first = int(laws.mean(axis=1).argmin())
        behind = np.array([mean_stderr(one - laws[first], clusters=clusters) for one in laws])
        close = [place for place, (gap, error) in enumerate(behind) if place == first or gap <= ERRORS * error]
        fewest = [place for place in close if sizes[place] == min(sizes[other] for other in close)]
        best = min(fewest, key=lambda place: float(behind[place, 0]))
        if nats < MIN_NATS:
            message = f"{nats:.1g} nats beyond the baseline: there is nothing to explain"
        elif not np.isfinite(explained).all():
            message = "the divergence of held-out attention from a law is not finite"
        elif len(fewest) > 1:
            message = f"{' and '.join(designs[place].law for place in fewest)} cannot be distinguished"
    return LawComparison(
        laws=tuple(design.law for design in designs),
        parameters=tuple(sizes),
        nats_explained=explained[:, 0],
        stderr=explained[:, 1],
        behind=behind[:, 0],
        behind_stderr=behind[:, 1],
        best=designs[best].law,
        nats=nats,
        n=int(used.sum()),
        sequences=used.shape[1],
        head=name,
        success=not message,
        message=message,
        provenance=origin,
    )


def _held_out(halves: Sequence[AttentionRows], design: Array, used: Sequence[int]) -> Divergences:
    """KL(attention || law) of every query, with parameters from the other half; `used` are the law's columns."""
    (heads, _, queries), sequences = halves[0].kept.shape, sum(len(one.keys) for one in halves)
    size, terms = design.shape[1], halves[0].basis.shape[1]
    found = np.full((heads, sequences, queries), np.nan)
    for start, (test, train) in enumerate((halves, halves[::-1])):
        begin = np.zeros((heads, size + terms))
        fit = maximise(Likelihood(train, design), start=begin, columns=[*used, *range(size, size + terms)])
        left = test.entropy - Likelihood(test, design).logs(fit.theta)
        found[:, start::2] = np.where(test.kept, left, np.nan)
    return found
