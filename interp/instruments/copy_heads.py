"""Which copy head attends to which lag, how sharply, and whether it looks at positions or at tokens (sec:copying).

Lag r of token t is the key t - r, where that is a token: BOS is never a lag. Mass on a lag is averaged over the
sequences and over the positions that have it. Heads and lags are matched by the Hungarian method, so that the total
mass is largest and no two heads get the same lag; the verdict on a head depends on the lag r with its largest mass:

    copies lag r    most of its attention (`min_mass`) is on lag r, and of what is on lags 1..k nearly all
                    (`min_purity`): a copy may have a thin spread over far tokens, but not over another lag
    mixed           no copy, but lags 1..k get more than in an even pattern, by at least `min_mixed` of what it puts
                    elsewhere
    none            attention goes elsewhere

The thresholds were chosen on five models; they are not derived. On the 200 heads of the 100 trained models of the zoo
(k = 2), the largest mass on a lag is 0.12 for one head, 0.48 to 0.56 for 20 (the lag-2 heads of the standard family)
and above 0.80 for all others; the least purity is 0.86. So `min_mass` decides about those 20 alone: at 0.5 three of
them are 'mixed', at 0.6 all. They are diffuse: about half of their attention is spread over far tokens. Read their
verdict together with `mass`.

A head that copies attends by position alone. Its pattern varies over keys (sum of squares around 1/n, with n visible
keys). `position_share` is the part of that variation that is the same in every sequence; the rest depends on the
tokens. A head with an even pattern has no variation: its position_share is 1.

TransformerLens' previous-token score (`detect_head`) is the same average for lag 1, taken over all positions, the first
included, and with BOS counted as a token.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int64
from scipy.optimize import linear_sum_assignment
from scipy.special import xlogy

from interp.arguments import Number, finite_number, keywords
from interp.circuit.capture import Capture, check_attention
from interp.circuit.circuit import Head, head_name
from interp.instruments.given import Captured, check_capture
from interp.results import Axes, DataFrame, Result, frame, half_width, mean_stderr, provenance

MIN_MASS = 0.5  # mass on one lag that makes a head a copy head
MIN_PURITY = 0.75  # and its share of the mass on lags 1..k
MIN_MIXED = 0.2  # of the mass that an even pattern puts elsewhere, the part on lags 1..k that makes a head mixed
COPY_SEQUENCES = 64  # enough to see which head copies which lag
PART_BYTES = 32 << 20  # of one head's pattern held in float64
MOST_NAMED = 4  # heads in the title
COLUMNS = (
    "lag", "mass", "stderr", "spread", "entropy", "position_share", "self_mass", "bos_mass", "last_mass", "last_bos",
    "verdict",
)  # fmt: skip
EVEN = 1e-12  # mean squared deviation from an even pattern that is rounding


@dataclass(frozen=True, kw_only=True)
class CopyHeads(Result):
    """The copy layer's heads.

    lag               the lag assigned to each head; 0 where there are more heads than lags
    mass, stderr      mean attention on the assigned lag, and its standard error over sequences; NaN where there is none
    spread            standard deviation over positions of the mean attention on the assigned lag
    masses            [head, lag] mean attention on each lag 1..k
    self_mass         mean attention on the token itself (lag 0)
    bos_mass          mean attention on BOS; 0 without BOS
    last_mass         mean attention of the last token on its assigned lag; it may differ from the mean over positions
    last_bos          mean attention of the last token on BOS; 0 without BOS
    entropy           of the pattern in nats, averaged over tokens
    position_share    see the module; NaN with a single sequence
    profile           [head, position] mean attention of token t on its assigned lag; NaN where t has no such lag
    verdict           per head: 'copies lag r', 'mixed' or 'none'
    heads             the (layer, head) of each, where the capture knows them; else empty
    n                 sequences whose copy pattern was kept
    success           every lag has a head that copies it
    """

    DOUBT = "incomplete"  # the observed masses are valid all the same
    SHOWN = ("head", "lag", "mass", "last_mass", "entropy", "position_share", "verdict")

    lag: Int64[np.ndarray, " head"]
    mass: Float[np.ndarray, " head"]
    stderr: Float[np.ndarray, " head"]
    spread: Float[np.ndarray, " head"]
    masses: Float[np.ndarray, "head lag"]
    self_mass: Float[np.ndarray, " head"]
    bos_mass: Float[np.ndarray, " head"]
    last_mass: Float[np.ndarray, " head"]
    last_bos: Float[np.ndarray, " head"]
    entropy: Float[np.ndarray, " head"]
    position_share: Float[np.ndarray, " head"]
    profile: Float[np.ndarray, "head position"]
    verdict: tuple[str, ...]
    n: int
    heads: tuple[Head, ...] = ()

    def name(self, head: int) -> str:
        """The name of a head: its number, with its layer unless these are the heads of layer 0, in order."""
        in_order = tuple((0, number) for number in range(len(self.lag)))
        return str(head) if self.heads in ((), in_order) else head_name(self.heads[head])

    def table(self) -> DataFrame:
        """One row per head; the columns are the fields of the class that have one value for each head."""
        return frame({"head": np.arange(len(self.lag)), **{name: getattr(self, name) for name in COLUMNS}})

    @property
    def title(self) -> str:
        """The verdict on each head."""
        verdicts = ", ".join(f"{self.name(head)} {verdict}" for head, verdict in enumerate(self.verdict[:MOST_NAMED]))
        more = f", and {len(self.verdict) - MOST_NAMED} more" if len(self.verdict) > MOST_NAMED else ""
        return f"copy heads on {self.n} sequences: {verdicts}{more}"

    def plot(self, ax: Axes | None = None) -> Axes:
        """Mean attention of each head on every lag, on itself and on BOS, with a 95% interval for the assigned lag.

        A diamond marks what the last query gives to that lag.
        """
        from interp.plotting import (
            INTERVAL_NAME,
            OVERLAP_COLOURS,
            bar_centre,
            grouped_bars,
            heading,
            lag_colour,
            legend_beside,
            panel,
        )

        lags = range(1, self.masses.shape[1] + 1)
        series = {f"lag {lag}": self.masses[:, lag - 1] for lag in lags} | {"itself": self.self_mass}
        colours = {f"lag {lag}": lag_colour(lag) for lag in lags} | {"itself": OVERLAP_COLOURS["none"]}
        if self.bos_mass.any():
            series, colours = series | {"BOS": self.bos_mass}, colours | {"BOS": OVERLAP_COLOURS["bos"]}
        names = [f"head {self.name(head)}\n{verdict}" for head, verdict in enumerate(self.verdict)]
        ax = panel(ax, width=max(6.4, 1.4 * len(names)))
        errors = half_width(self.stderr, n=self.n)
        reach = {f"lag {lag}": np.where(self.lag == lag, errors, np.nan) for lag in lags}
        grouped_bars(ax, names, series, reach=reach, colours=colours)
        served = np.flatnonzero(self.lag)
        middle = [bar_centre(head, place=int(self.lag[head]) - 1, count=len(series)) for head in served.tolist()]
        ax.plot(middle, self.last_mass[served], "D", color="#000000", markersize=4, label="its lag,\nlast query")
        ax.set_ylim(0, 1.02)
        ax.set_ylabel(f"attention, mean over positions\n({INTERVAL_NAME} for its lag)")
        return heading(legend_beside(ax), f"copy heads on {self.n} sequences", doubt=self.doubt)


@keywords(copies="min_mass", pure="min_purity", some="min_mixed")
def copy_heads(
    cap: Captured, *, min_mass: Number = MIN_MASS, min_purity: Number = MIN_PURITY, min_mixed: Number = MIN_MIXED
) -> CopyHeads:
    """Attention of every copy head by lag, the matching of heads to lags, and a verdict on each head.

    Parameters
    ----------
    cap          what `capture` returns
    min_mass     least mass on one lag of a copy head
    min_purity   least share of its mass on lags 1..k that is on that lag
    min_mixed    least mass on lags 1..k of a mixed head, as a share of what an even pattern puts elsewhere

    Returns
    -------
    `CopyHeads`, a row for each head

    Examples
    --------
        heads = copy_heads(capture(model, tokens))
        heads.lag, heads.mass, heads.verdict        # e.g. [1 2], [0.998 0.931], ('copies lag 1', 'copies lag 2')
    """
    check_capture(cap)
    copies, pure, some = (
        finite_number(value, name=name, above=0, most=1.0)
        for name, value in (("min_mass", min_mass), ("min_purity", min_purity), ("min_mixed", min_mixed))
    )
    if cap.copy_pattern.shape[1] == 0:
        raise ValueError("the circuit names no copy head: give copy_heads=((layer, head), ...), or a copy_layer")
    if cap.copy_pattern.shape[0] == 0:
        raise ValueError("the capture kept no copy patterns (copies=False): capture again with copies=True")
    check_attention(cap.copy_pattern, of="copy")
    order, bos = cap.order, int(cap.bos)
    sequences, heads, keys, _ = cap.copy_pattern.shape
    seen = [_read_head(cap, head) for head in range(heads)]
    masses = np.array([one.per_sequence.mean(axis=0) for one in seen]).reshape(heads, order)
    assigned = np.zeros(heads, dtype=np.int64)
    rows, columns = linear_sum_assignment(masses, maximize=True)
    assigned[rows] = columns + 1
    mass, stderr, spread = (np.full(heads, np.nan) for _ in range(3))
    profile = np.full((heads, keys - bos), np.nan)
    for head in rows.tolist():
        lag = int(assigned[head])
        mass[head], stderr[head] = mean_stderr(seen[head].per_sequence[:, lag - 1])
        profile[head] = seen[head].by_position[lag - 1]
        spread[head] = np.nanstd(profile[head])
    even = np.array([(1.0 / np.arange(lag + 1 + bos, keys + 1)).mean() for lag in range(1, order + 1)])
    verdicts = tuple(_verdict(row, even, copies=copies, pure=pure, some=some) for row in masses)
    missing = [lag for lag in range(1, order + 1) if f"copies lag {lag}" not in verdicts]
    return CopyHeads(
        lag=assigned,
        mass=mass,
        stderr=stderr,
        spread=spread,
        masses=masses,
        self_mass=np.array([one.self_mass for one in seen]),
        bos_mass=np.array([one.bos_mass for one in seen]),
        last_mass=profile[:, -1].copy(),
        last_bos=np.array([one.last_bos for one in seen]),
        entropy=np.array([one.entropy for one in seen]),
        position_share=np.array([one.position_share for one in seen]),
        profile=profile,
        verdict=verdicts,
        heads=cap.copy_heads,
        n=sequences,
        success=not missing,
        message="; ".join(_without(lag, masses, copies=copies, pure=pure) for lag in missing),
        provenance=provenance(checkpoint=cap.checkpoint),
    )


@dataclass(frozen=True, kw_only=True)
class _HeadPattern:
    """What is read from one head's pattern: its mass on each lag by sequence and by position, and the means."""

    per_sequence: Float[np.ndarray, "batch lag"]
    by_position: Float[np.ndarray, "lag position"]
    self_mass: float
    bos_mass: float
    last_bos: float
    entropy: float
    position_share: float


def _read_head(cap: Capture, head: int) -> _HeadPattern:
    order, bos = cap.order, int(cap.bos)
    sequences, _, keys, _ = cap.copy_pattern.shape
    length = keys - bos
    per_sequence, by_position = np.zeros((sequences, order)), np.full((order, length), np.nan)
    at_lag, total = np.zeros((order, length)), np.zeros((length, keys))
    self_mass = bos_mass = last_bos = entropy = squares = 0.0
    for part, pattern in _parts(cap, head):
        for lag in range(1, order + 1):
            # Row t of the pattern is token t; key t - lag + bos. The first `lag` rows have no such token.
            on_lag = np.diagonal(pattern, offset=bos - lag, axis1=1, axis2=2)[:, -(length - lag) :]
            per_sequence[part, lag - 1] = on_lag.mean(axis=1)
            at_lag[lag - 1, lag:] += on_lag.sum(axis=0)
        self_mass += np.diagonal(pattern, offset=bos, axis1=1, axis2=2).sum() / (sequences * length)
        if bos:
            bos_mass += pattern[:, :, 0].sum() / (sequences * length)
            last_bos += pattern[:, -1, 0].sum() / sequences
        entropy -= xlogy(pattern, pattern).sum() / (sequences * length)
        total += pattern.sum(axis=0)
        squares += float((pattern**2).sum())
    for lag in range(1, order + 1):
        by_position[lag - 1, lag:] = at_lag[lag - 1, lag:] / sequences
    return _HeadPattern(
        per_sequence=per_sequence,
        by_position=by_position,
        self_mass=float(self_mass),
        bos_mass=float(bos_mass),
        last_bos=float(last_bos),
        entropy=float(entropy),
        position_share=_position_share(total / sequences, squares, sequences=sequences, bos=bos),
    )


def _parts(cap: Capture, head: int) -> Iterator[tuple[slice, Float[np.ndarray, "part token key"]]]:
    """One head's pattern at the tokens (not at BOS), some sequences at a time, in float64."""
    sequences, _, keys, _ = cap.copy_pattern.shape
    step = max(1, PART_BYTES // (8 * keys * keys))
    for start in range(0, sequences, step):
        part = slice(start, min(start + step, sequences))
        yield part, cap.copy_pattern[part, head, int(cap.bos) :].detach().cpu().double().numpy()


def _position_share(mean: Float[np.ndarray, "token key"], squares: float, *, sequences: int, bos: int) -> float:
    """Share of the pattern's variation over keys that is the same in every sequence, corrected for its own noise."""
    if sequences < 2:
        return math.nan
    visible = np.arange(len(mean)) + 1 + bos
    # Each row sums to one over its visible keys, so the squares around 1/n are the plain squares minus 1/n.
    variation = squares / sequences - float((1.0 / visible).sum())
    if variation <= EVEN * len(mean):
        return 1.0
    content = (squares / sequences - float((mean**2).sum())) * sequences / (sequences - 1)
    return float(np.clip(1.0 - content / variation, 0.0, 1.0))


def _verdict(
    masses: Float[np.ndarray, " lag"],
    even: Float[np.ndarray, " lag"],
    *,
    copies: float,
    pure: float,
    some: float,
) -> str:
    """By the mass on each lag, beside what an even pattern would put there."""
    if masses.max() >= copies and masses.max() >= pure * masses.sum():
        return f"copies lag {int(masses.argmax()) + 1}"
    return "mixed" if masses.sum() - even.sum() >= some * (1.0 - even.sum()) else "none"


def _without(lag: int, masses: Float[np.ndarray, "head lag"], *, copies: float, pure: float) -> str:
    """That no head copies a lag: what the head with the most mass on it has, and what is required."""
    best = masses[masses[:, lag - 1].argmax()]
    if best[lag - 1] < copies:
        return f"no head copies lag {lag}: largest mass {best[lag - 1]:.2f}, required {copies:g}"
    share = best[lag - 1] / best.sum()
    return f"no head copies lag {lag}: it has {share:.2f} of a head's mass on lags 1..{len(best)}, required {pure:g}"
