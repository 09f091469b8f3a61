"""How much do the attention's votes weigh in the prediction, and does that weight follow the evidence?

    found = vote_weight(model, chains.tokens, next_law=chains.next_law)
    found.verdict, found.table()

Under the probability readout the law is s / sum(s) with s = (final stream) W_O. With `level`, the mean of s over the
symbols,

    p_v - 1/|V| = (s_v - level) / (|V| level)

where no sum is negative, so that the level acts as a pseudo-count: the higher it is, the less the votes weigh, and the
closer the prediction is to the uniform law. A level that is the same for every sequence mixes in a fixed share. An
estimator from counts gives N full matches the weight N / (N + alpha |V|), which is small where there is little
evidence. BOS does this in the attention. The readout can do it alone: it reads the query's tokens and, weighted by
attention, the tokens before the keys. With weights u_r on the first and -u_r on the second it adds to the level

    sum_r ( u_r[x_{t-r+1}] - sum_j a_j u_r[x_{j-r}] )

which is zero for full matches. Mismatches raise it if attention without a match goes to keys of smaller u. This needs
different u for different symbols, so that no label-symmetric model can do it. For symbols of equal u the level stays
constant.

What is measured: the weight of the tokens' votes by the number of full matches, whether the level or BOS sets it; how
far the level varies, and falls with the attention on full matches; how much of its variance such a comparison of tokens
explains; and what it costs this model to lose it, by holding the level at its harmonic mean in the live model (which
keeps the mean of 1 / level), beside a control that gives each sequence the level of another. This is not the value of
the level as such: the other weights were trained together with it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float

from interp.arguments import Number, Whole, finite_number, seed_number
from interp.circuit.circuit import Circuit, as_circuit
from interp.circuit.edits import NOTICEABLE
from interp.circuit.law import check_next_law, full_matches, key_masks
from interp.circuit.runner import laws
from interp.divergence import KL_FLOOR, check_floor, kl_divergence
from interp.fitting.regression import slope_through_origin
from interp.hooked.transformer import InductionTransformer, not_linear
from interp.instruments.readout_level import (
    CLIPPED,
    MovedLevel,
    Sides,
    correlation,
    explained,
    final_stream,
    laws_at_level,
    move_level,
    sides_by_lag,
)
from interp.notation import Tokens
from interp.results import Result, half_width, provenance, rows_table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

MIN_SEQUENCES = 32  # with fewer, spread and errors are not reliable
MOST_MATCHES = 6  # sequences with more full matches are counted together
STEADY = 0.05  # sd / mean of the level below which it counts as constant
FOLLOWS = -0.5  # correlation of level and attention on full matches at or below which it "follows the evidence"
SAME = 1e-4  # largest allowed difference between predictions recomputed from the readout and the model's


@dataclass(frozen=True, kw_only=True)
class WeightAt:
    """The votes' weight over the sequences with one number of full matches.

    matches     how many full matches the last query has; the last row stands for that many or more
    sequences   how many such sequences there are
    weight, stderr   slope a of p - 1/|V| = a (z - 1/|V|), z the votes of tokens: what the attention on tokens,
                without BOS, would predict; NaN where no votes differ from uniform
    counted     mean of N / (N + alpha |V|), the weight that counts give; NaN without alpha
    """

    matches: int
    sequences: int
    weight: float
    stderr: float
    counted: float


@dataclass(frozen=True, kw_only=True)
class VoteWeight(Result):
    """How the readout weighs the votes.

    verdict            "constant level" (it hardly varies), "level follows the evidence" (it falls with the attention on
                       full matches, and holding it costs more than two standard errors) or "level varies"
    weights            the votes' weight by number of full matches
    level_spread       standard deviation over mean of the level
    level_full         its correlation with the attention on full matches; NaN where the level does not vary
    query_side         [lag, symbol] u_r: what the query's token x_{t-r+1} adds to the level, centred over symbols
    key_side           [lag, symbol] the same for the attended keys' token x_{j-r}
    opposed            [lag] correlation of query_side and -key_side over symbols: 1 for a comparison of tokens
    compared           share of the level's variance that the comparison with u = (query_side - key_side) / 2 explains;
                       it can be negative, and is NaN where the level does not vary
    kl, kl_stderr      the model's KL(truth || prediction)
    held, held_stderr          change of KL(truth || prediction) with the level held at its harmonic mean
    shuffled, shuffled_stderr  the same with the level of another sequence
    negative           share of sequences with a negative sum, which the readout cuts to zero
    clipped            share of sequences where a sum that was positive is not so at the held level. Above 0.01 the
                       law there is the floor's, not the readout's: `held` and `shuffled` are then NaN
    floor, n           the floor of the KL, and the number of sequences
    """

    verdict: str
    weights: tuple[WeightAt, ...]
    level_spread: float
    level_full: float
    query_side: Float[np.ndarray, "lag vocab"] | None
    key_side: Float[np.ndarray, "lag vocab"] | None
    opposed: tuple[float, ...] | None
    compared: float
    kl: float
    kl_stderr: float
    held: float
    held_stderr: float
    shuffled: float
    shuffled_stderr: float
    clipped: float
    negative: float
    floor: float
    n: int

    def table(self) -> pd.DataFrame:
        """One row per number of full matches; the columns are the fields of `WeightAt`."""
        return rows_table(self.weights, WeightAt)

    def plot(self, ax: Axes | None = None) -> Axes:
        """The votes' weight by number of full matches, with 95% intervals, beside the weight that counts give."""
        from interp.plotting import INTERVAL_NAME, MAIN_COLOUR, heading, panel

        ax = panel(ax, width=5.2)
        matches = [row.matches for row in self.weights]
        errors = [float(np.nan_to_num(half_width(row.stderr, n=row.sequences))) for row in self.weights]
        if matches:
            ax.errorbar(
                matches, [row.weight for row in self.weights], errors, fmt="o-", color=MAIN_COLOUR, label="the readout"
            )
            ax.set_xticks(matches, [*map(str, matches[:-1]), f"{matches[-1]}\nor more"])
        if not all(math.isnan(row.counted) for row in self.weights):
            counted = [row.counted for row in self.weights]
            ax.plot(matches, counted, "--", color="#000000", label=r"counts: $N / (N + \alpha |V|)$")
            ax.legend(frameon=False)
        ax.set_ylim(bottom=0)
        ax.set_xlabel("full matches $N$ of the last query")
        ax.set_ylabel(f"weight of the votes\n(0: uniform law; {INTERVAL_NAME})")
        if not self.success:
            ax.set(xticks=[], yticks=[])
        words = f", {self.n} sequences" if self.n else ""
        return heading(ax, f"weight of the votes{words}: {self.verdict}", doubt=self.doubt)

    def __str__(self) -> str:
        if not self.success:
            return f"Weight of the votes: cannot tell; {self.message}"
        weights = ", ".join(f"{row.weight:.3f}" for row in self.weights)
        lines = [
            f"Weight of the votes on {self.n} sequences: {self.verdict}",
            f"  by full matches 0, 1, ...: {weights}",
        ]
        if not all(math.isnan(row.counted) for row in self.weights):
            lines.append(f"  counts would give        : {', '.join(f'{row.counted:.3f}' for row in self.weights)}")
        level = f"  level: sd / mean {self.level_spread:.3f}"
        if not math.isnan(self.level_full):
            level += f", correlation with attention on full matches {self.level_full:.2f}"
        lines.append(level)
        if not math.isnan(self.held):
            lines.append(
                f"  held at its harmonic mean: KL {self.held:+.5f} ± {self.held_stderr:.5f} nats; from another "
                f"sequence: {self.shuffled:+.5f} ± {self.shuffled_stderr:.5f}"
            )
        if self.opposed is not None and not math.isnan(self.compared):
            opposed = ", ".join(f"{value:.2f}" for value in self.opposed)
            lines.append(
                f"  comparison of tokens: explains {self.compared:.0%} of the level's variance; query and key side "
                f"opposed by lag: {opposed}"
            )
        return "\n".join([*lines, *self.remarks()])


def vote_weight(
    model: Any,
    tokens: Tokens,
    *,
    next_law: Any,
    alpha: Number | None = None,
    floor: Number = KL_FLOOR,
    seed: Whole = 0,
    checkpoint: str | None = None,
) -> VoteWeight:
    """Read the votes' weight off a construction or disentangled model; the module's docstring says how.

    `alpha` is the pseudo-count to compare with; that of an independent prior gives the weights of Bayes. `seed`
    shuffles the levels of the control. Other families have no block of votes: success is then False.
    """
    seed = seed_number(seed)
    origin = provenance(seed=seed, checkpoint=checkpoint)
    alpha = None if alpha is None else finite_number(alpha, name="alpha", above=0)
    circuit = as_circuit(model)
    floor = check_floor(floor, vocab=circuit.vocab)
    if reason := not_linear(circuit.model):
        return _unknown(reason, floor=floor, provenance=origin)
    array = circuit.check(tokens)
    truth = check_next_law(next_law, array, vocab=circuit.vocab)
    if len(array) < MIN_SEQUENCES:
        return _unknown(f"{len(array)} sequences; at least {MIN_SEQUENCES} are needed", floor=floor, provenance=origin)
    stream, pattern = final_stream(circuit, array)
    weights = circuit.model.unembed.W_U.detach().cpu().double()
    level = (sums := stream @ weights).mean(-1)
    base = laws(circuit, array)
    if float((laws_at_level(circuit, array, sums, level) - base).abs().max()) > SAME:
        return _unknown("the predictions are not the normalised sums of the readout", floor=floor, provenance=origin)
    if bool((level <= 0).any()):
        return _unknown("the readout's level is not positive everywhere", floor=floor, provenance=origin)
    masks = key_masks(array, order=circuit.order, bos=circuit.has_bos)
    full = full_matches(masks, order=circuit.order, bos=False)
    votes = _token_votes(circuit, stream, pattern)
    divergence = kl_divergence(truth, base, floor=floor)
    moved = move_level(circuit, array, sums, truth=truth, divergence=divergence, seed=seed)
    spread = float(level.std(correction=0) / level.mean())
    falls = correlation(level, (pattern * full).sum(-1)) if spread > NOTICEABLE else math.nan  # less is rounding
    sides = sides_by_lag(circuit, array, stream, weights)
    negative = float((sums < 0).any(-1).double().mean())
    return VoteWeight(
        verdict=_verdict(spread, falls, moved),
        weights=_by_matches(base, votes, full.sum(-1), alpha=alpha),
        level_spread=spread,
        level_full=falls,
        **_by_side(sides),
        compared=math.nan if sides is None or spread <= NOTICEABLE else explained(level, sides.comparison),
        kl=divergence.mean,
        kl_stderr=divergence.stderr,
        **vars(moved),
        negative=negative,
        floor=floor,
        n=len(level),
        success=True,
        message="; ".join(_notes(moved.clipped, negative, sides)),
        provenance=origin,
    )


def _by_side(sides: Sides | None) -> dict[str, Any]:
    """The fields of the result that separate query and key side."""
    if sides is None:
        return dict.fromkeys(("query_side", "key_side", "opposed"))
    return {"query_side": sides.query, "key_side": sides.key, "opposed": sides.opposed}


def _token_votes(circuit: Circuit, stream: torch.Tensor, pattern: torch.Tensor) -> torch.Tensor:
    """What the attention on tokens alone would predict, less the uniform law.

    BOS votes for all symbols alike: without it, the differences from uniform are larger by its share.
    """
    assert isinstance(circuit.model, InductionTransformer)
    start = circuit.model.config.blocks * circuit.vocab
    votes = stream[:, start : start + circuit.vocab] - 1 / circuit.vocab
    return votes / (1 - pattern[:, :1]).clamp(min=torch.finfo(torch.float32).eps) if circuit.has_bos else votes


def _verdict(spread: float, falls: float, moved: MovedLevel) -> str:
    if spread < STEADY:
        return "constant level"
    follows = falls <= FOLLOWS and moved.held > 2 * moved.held_stderr
    return "level follows the evidence" if follows else "level varies"


def _notes(clipped: float, negative: float, sides: Sides | None) -> list[str]:
    """Why some of the numbers cannot be determined."""
    notes = []
    if clipped > CLIPPED:
        notes.append(f"holding the level would clip a sum in {clipped:.0%} of sequences: its cost cannot be measured")
    if negative > CLIPPED:
        notes.append(f"{negative:.0%} of sequences have a negative sum, where weight and level say less than the whole")
    if sides is None:
        notes.append("copy heads do not copy distinct lags: tokens cannot be compared by lag")
    return notes


def _unknown(reason: str, *, floor: float, provenance: dict[str, Any]) -> VoteWeight:
    numbers = dict.fromkeys(
        (
            "level_spread", "level_full", "compared", "kl", "kl_stderr", "held", "held_stderr", "shuffled",
            "shuffled_stderr", "clipped", "negative",
        ),
        math.nan,
    )  # fmt: skip
    return VoteWeight(
        verdict="cannot tell",
        weights=(),
        query_side=None,
        key_side=None,
        opposed=None,
        floor=floor,
        n=0,
        success=False,
        message=reason,
        provenance=provenance,
        **numbers,
    )


def _by_matches(
    laws: torch.Tensor, votes: torch.Tensor, matches: torch.Tensor, *, alpha: float | None
) -> tuple[WeightAt, ...]:
    """The slope of prediction on centred votes in each group."""
    vocab = laws.shape[-1]
    target = laws - 1 / vocab
    rows = []
    for count in range(MOST_MATCHES + 1):
        here = matches == count if count < MOST_MATCHES else matches >= count
        z, p = votes[here], target[here]
        counted = math.nan
        if alpha is not None and len(z):
            counted = float((matches[here] / (matches[here] + alpha * vocab)).double().mean())
        line = slope_through_origin(z.numpy(), p.numpy())
        rows.append(WeightAt(matches=count, sequences=len(z), weight=line.slope, stderr=line.stderr, counted=counted))
    return tuple(rows)
