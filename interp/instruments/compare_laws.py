"""Which law of attention predicts new sequences best: additive, suffix or free?

    found = compare_laws(cap)
    found.best, found.table()

Every law is fitted to one half of the sequences (`interp.fitting.attention_fit`) and tested on the other half, then
the reverse, so that each query is predicted once by parameters fitted without it. A free law has more parameters than
an additive one: it cannot fit worse, but it can predict new sequences worse. The share of the nats that a law explains
is against the baseline without matches, fitted to the same half. Laws are compared sequence by sequence: `behind` is
what a law loses against the one that explains most, in nats per query, and its standard error is that of the
difference. The best law is the one with the fewest parameters among those that are less than two standard errors
behind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

import numpy as np
from jaxtyping import Float

from interp.arguments import Switch, switch
from interp.circuit.capture import Capture, check_attention
from interp.digits import plus_minus
from interp.fitting.attention_fit import MIN_NATS, MIN_SEQUENCES
from interp.fitting.attention_rows import AttentionRows, attention_rows
from interp.fitting.laws import Law, LawDesign, law_design
from interp.fitting.likelihood import maximise
from interp.results import Result, half_width, mean_stderr, provenance, share_explained

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

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

    def table(self) -> pd.DataFrame:
        """One row per law: law, parameters, nats_explained, stderr, behind, behind_stderr."""
        import pandas as pd

        names = ("parameters", "nats_explained", "stderr", "behind", "behind_stderr")
        return pd.DataFrame({"law": self.laws, **{name: getattr(self, name) for name in names}})

    def plot(self, ax: Axes | None = None) -> Axes:
        """The share of the held-out nats that each law explains, with 95% intervals."""
        from interp.plotting import INTERVAL_NAME, estimate_points, heading, panel

        ax = panel(ax, width=4.8)
        estimate_points(ax, self.laws, self.nats_explained, half_width(self.stderr, n=self.sequences))
        ax.set_ylabel(f"share of the held-out nats\nexplained ({INTERVAL_NAME})")
        return heading(ax, f"{self.best} law predicts new sequences best", doubt=self.doubt)

    def __str__(self) -> str:
        lines = [f"laws of attention on held-out sequences, {self.n} queries, {self.nats:.4f} nats to explain"]
        for place, law in enumerate(self.laws):
            behind = (
                "best" if law == self.best else f"{plus_minus(self.behind[place], self.behind_stderr[place])} behind"
            )
            lines.append(
                f"  {law:<9} {self.nats_explained[place]:.2%} ± {self.stderr[place]:.2%} explained, "
                f"{self.parameters[place]} parameters, {behind}"
            )
        return "\n".join([*lines, *self.remarks()])


def compare_laws(cap: Capture, *, position: Switch = True, own: Switch = False) -> LawComparison:
    """Fit the three laws to one half of the sequences and test them on the other, then the reverse.

    Several match heads are taken together, as one law for all. At order 1 the three laws are one.
    """
    position, own = switch(position, name="position"), switch(own, name="own")
    sequences = int(cap.tokens.shape[0])
    if sequences < 2 * MIN_SEQUENCES:
        raise ValueError(f"{sequences} sequences; halves of at least {MIN_SEQUENCES} are needed")
    check_attention(cap.match_pattern, of="match")
    rows = attention_rows(cap, position=position, own=own)
    laws = get_args(Law)
    designs = [law_design(law, order=cap.order, bos=cap.has_sink, own=own) for law in laws]
    sizes = [len(design.parameters) for design in designs]
    if {0, 1} - set((rows.sequence % 2).tolist()):  # one half of the sequences has no query to fit or to test on
        return _nothing_known(cap, rows, laws, sizes)
    held, baseline = np.zeros((len(laws), len(rows.sequence))), np.zeros(len(rows.sequence))
    for odd in (False, True):
        test = np.arange(sequences) % 2 == int(odd)
        train, new = rows.some(~test), rows.some(test)
        place = test[rows.sequence]
        for index, design in enumerate(designs):
            held[index, place] = _held_out(train, new, design, matches=True)
        baseline[place] = _held_out(train, new, designs[0], matches=False)
    nats = float(baseline.mean())
    first = int(held.mean(axis=1).argmin())
    behind = [mean_stderr(one - held[first], clusters=rows.sequence) for one in held]
    close = [place for place, (gap, error) in enumerate(behind) if place == first or gap <= ERRORS * error]
    fewest = [place for place in close if sizes[place] == min(sizes[other] for other in close)]
    best = min(fewest, key=lambda place: behind[place][0])
    explained = [share_explained(one, baseline, clusters=rows.sequence) for one in held]
    message = "" if len(fewest) == 1 else f"{' and '.join(laws[place] for place in fewest)} cannot be distinguished"
    if nats < MIN_NATS:
        message = f"{nats:.1g} nats beyond the baseline: there is nothing to explain"
    elif not np.isfinite(explained).all():
        message = "the divergence of held-out attention from a law is not finite"
    return LawComparison(
        laws=laws,
        parameters=tuple(sizes),
        nats_explained=np.array([share for share, _ in explained]),
        stderr=np.array([error for _, error in explained]),
        behind=np.array([gap for gap, _ in behind]),
        behind_stderr=np.array([error for _, error in behind]),
        best=laws[best],
        nats=nats,
        n=len(rows.sequence),
        sequences=sequences,
        success=not message,
        message=message,
        provenance=provenance(checkpoint=cap.checkpoint),
    )


def _nothing_known(cap: Capture, rows: AttentionRows, laws: tuple[Law, ...], sizes: list[int]) -> LawComparison:
    """The comparison where attention lies on early keys, which no law includes."""
    unknown = np.full(len(laws), np.nan)
    return LawComparison(
        laws=laws,
        parameters=tuple(sizes),
        nats_explained=unknown,
        stderr=unknown,
        behind=unknown,
        behind_stderr=unknown,
        best=laws[0],
        nats=float("nan"),
        n=len(rows.sequence),
        sequences=int(cap.tokens.shape[0]),
        success=False,
        message=f"attention is on early keys: {rows.left_out} queries were left out, and too few are left",
        provenance=provenance(checkpoint=cap.checkpoint),
    )


def _held_out(
    train: AttentionRows, new: AttentionRows, design: LawDesign, *, matches: bool
) -> Float[np.ndarray, " row"]:
    """KL(attention || law) of every new row, with parameters from the others."""
    size = len(design.parameters) + train.basis.shape[1]
    used = [column for column in range(size) if matches or column not in design.matches]
    found = maximise(train.likelihood(design), start=np.zeros((1, size)), columns=used)
    return np.asarray(new.entropy - new.likelihood(design).logs(found.theta)[0])
