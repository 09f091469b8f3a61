"""Which law of attention predicts new sequences best: additive, suffix or free?

Every law is fitted to one half of the sequences (`interp.fitting.attention_fit`) and tested on the other half, then
the reverse, so that each query is predicted once by parameters fitted without it. A free law has more parameters than
an additive one: it cannot fit worse, but it can predict new sequences worse. The share of the nats that a law explains
is against the baseline without matches, fitted to the same half. Laws are compared sequence by sequence: `behind` is
what a law loses against the one that explains most, in nats per query, and its standard error is that of the
difference. The best law is the one with the fewest parameters among those that are less than two standard errors
behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np
from jaxtyping import Float

from interp.arguments import Switch, keywords, switch
from interp.circuit.capture import Capture, check_attention
from interp.fitting.attention_fit import MIN_NATS, MIN_SEQUENCES, share_explained
from interp.fitting.candidates import attention_rows
from interp.fitting.laws import Law, law_design
from interp.fitting.likelihood import AttentionRows, Likelihood, maximise
from interp.fitting.regression import Array
from interp.instruments.given import Captured, check_capture
from interp.results import Axes, DataFrame, Result, frame, half_width, mean_stderr, provenance

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
    n, sequences    queries and sequences
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

    SHOWN = ("law", "parameters", "nats_explained", "stderr", "behind", "behind_stderr")

    def table(self) -> DataFrame:
        """One row per law: law, parameters, nats_explained, stderr, behind, behind_stderr."""
        return frame({"law": self.laws, **{name: getattr(self, name) for name in self.SHOWN[1:]}})

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

    Several match heads are taken together, as one law for all. At order 1 the three laws are one.

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
        found.best, found.table()
    """
    check_capture(cap)
    position, own = switch(position, name="position"), switch(own, name="own")
    sequences = int(cap.tokens.shape[0])
    if sequences < 2 * MIN_SEQUENCES:
        raise ValueError(f"{sequences} sequences; halves of at least {MIN_SEQUENCES} are needed")
    check_attention(cap.match_pattern, of="match")
    laws = get_args(Law)
    designs = [law_design(law, order=cap.order, bos=cap.has_sink, own=own) for law in laws]
    halves, early = zip(
        *(attention_rows(_half(cap, start), position=position, own=own) for start in (0, 1)), strict=True
    )
    sizes = [len(design.parameters) for design in designs]
    clusters = np.concatenate([2 * half.sequence + start for start, half in enumerate(halves)])
    unknown = np.full((len(laws), 2), np.nan)
    best, nats, explained, behind = 0, float("nan"), unknown, unknown
    if all(len(half.sequence) for half in halves):
        kappa = [] if designs[0].kappa is None else [designs[0].kappa]
        baseline = _held_out(halves, designs[0].design, kappa)
        held = [_held_out(halves, design.design, range(size)) for design, size in zip(designs, sizes, strict=True)]
        nats = float(baseline.mean())
        explained = np.array([share_explained(one, baseline, clusters=clusters) for one in held])
        first = int(np.mean(held, axis=1).argmin())
        behind = np.array([mean_stderr(one - held[first], clusters=clusters) for one in held])
        close = [place for place, (gap, error) in enumerate(behind) if place == first or gap <= ERRORS * error]
        fewest = [place for place in close if sizes[place] == min(sizes[other] for other in close)]
        best = min(fewest, key=lambda place: float(behind[place, 0]))
        message = "" if len(fewest) == 1 else f"{' and '.join(laws[place] for place in fewest)} cannot be distinguished"
        if nats < MIN_NATS:
            message = f"{nats:.1g} nats beyond the baseline: there is nothing to explain"
        elif not np.isfinite(explained).all():
            message = "the divergence of held-out attention from a law is not finite"
    else:
        left_out = sum(map(len, early)) - len(clusters)
        message = f"attention is on early keys: {left_out} queries were left out, and too few are left"
    return LawComparison(
        laws=laws,
        parameters=tuple(sizes),
        nats_explained=explained[:, 0],
        stderr=explained[:, 1],
        behind=behind[:, 0],
        behind_stderr=behind[:, 1],
        best=laws[best],
        nats=nats,
        n=len(clusters),
        sequences=sequences,
        success=not message,
        message=message,
        provenance=provenance(checkpoint=cap.checkpoint),
    )


def _half(cap: Capture, start: int) -> Capture:
    """Every second sequence, from the first or the second one on."""
    return replace(
        cap,
        tokens=cap.tokens[start::2],
        copy_pattern=cap.copy_pattern[:0],
        match_scores=cap.match_scores[start::2],
        match_pattern=cap.match_pattern[start::2],
    )


def _held_out(halves: Sequence[AttentionRows], design: Array, used: Sequence[int]) -> Float[np.ndarray, " row"]:
    """KL(attention || law) of every row, with parameters from the other half; `used` are the law's columns."""
    size, terms = design.shape[1], halves[0].basis.shape[1]
    found = []
    for test, train in (halves, halves[::-1]):
        start = np.zeros((1, size + terms))
        fit = maximise(Likelihood(train, design), start=start, columns=[*used, *range(size, size + terms)])
        found.append(test.entropy[0] - Likelihood(test, design).logs(fit.theta)[0])
    return np.concatenate(found)
