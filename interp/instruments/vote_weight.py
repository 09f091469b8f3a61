"""How much do the attention's votes weigh in the prediction, and does that weight follow the evidence?

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
from typing import Any

import einops
import numpy as np
import torch
from jaxtyping import Float

from interp.arguments import Number, Whole, finite_number, keywords, seed_number
from interp.circuit.capture import capture
from interp.circuit.circuit import Model, as_circuit
from interp.circuit.edits import NOTICEABLE
from interp.circuit.experiment import Experiment
from interp.circuit.law import full_matches
from interp.fitting.regression import slope_through_origin
from interp.hooked.transformer import not_linear
from interp.instruments.copy_heads import COPY_SEQUENCES, copy_heads
from interp.instruments.given import NextLaw
from interp.instruments.smoothing_source import final_stream, law_of_shares, token_votes
from interp.notation import Tokens
from interp.results import Axes, DataFrame, Result, half_width, mean_stderr, provenance, rows_table

MIN_SEQUENCES = 32  # with fewer, spread and errors are not reliable
MOST_MATCHES = 6  # sequences with more full matches are counted together
STEADY = 0.05  # sd / mean of the level below which it counts as constant
FOLLOWS = -0.5  # correlation of level and attention on full matches at or below which it "follows the evidence"
CLIPPED = 0.01  # share of sequences where holding the level may clip a sum
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
    held, held_stderr          change of KL(truth || prediction) with the level held at its harmonic mean
    shuffled, shuffled_stderr  the same with the level of another sequence
    clipped            share of sequences where a sum that was positive is not so at the held level. Above 0.01 the
                       law there is the floor's, not the readout's: `held` and `shuffled` are then NaN
    n                  sequences
    """

    NUMBERS = ("level_spread", "level_full", "compared", "held", "shuffled")

    verdict: str
    weights: tuple[WeightAt, ...] = ()
    level_spread: float = math.nan
    level_full: float = math.nan
    query_side: Float[np.ndarray, "lag vocab"] | None = None
    key_side: Float[np.ndarray, "lag vocab"] | None = None
    opposed: tuple[float, ...] | None = None
    compared: float = math.nan
    held: float = math.nan
    held_stderr: float = math.nan
    shuffled: float = math.nan
    shuffled_stderr: float = math.nan
    clipped: float = math.nan
    n: int = 0

    @property
    def title(self) -> str:
        """The verdict."""
        return f"weight of the votes on {self.n} sequences: {self.verdict}"

    def table(self) -> DataFrame:
        """One row per number of full matches; the columns are the fields of `WeightAt`."""
        return rows_table(self.weights, WeightAt)

    def plot(self, ax: Axes | None = None) -> Axes:
        """The votes' weight by number of full matches, with 95% intervals, beside the weight that counts give."""
        from interp.plotting import INTERVAL_NAME, MAIN_COLOUR, heading, panel

        ax, rows = panel(ax, width=5.2), self.table()
        errors = np.nan_to_num([float(half_width(row.stderr, n=row.sequences)) for row in self.weights])
        ax.errorbar(rows["matches"], rows["weight"], errors, fmt="o-", color=MAIN_COLOUR, label="the readout")
        ax.set_xticks(rows["matches"], [f"{N}\nor more" if N == MOST_MATCHES else str(N) for N in rows["matches"]])
        if rows["counted"].notna().any():
            label = r"counts: $N / (N + \alpha |V|)$"
            ax.plot(rows["matches"], rows["counted"], "--", color="#000000", label=label)
            ax.legend(frameon=False)
        ax.set_ylim(bottom=0)
        ax.set_xlabel("full matches $N$ of the last query")
        ax.set_ylabel(f"weight of the votes\n(0: uniform law; {INTERVAL_NAME})")
        return heading(ax, self.title, doubt=self.doubt)


@keywords()
def vote_weight(
    model: Model,
    tokens: Tokens,
    *,
    next_law: NextLaw,
    alpha: Number | None = None,
    seed: Whole = 0,
) -> VoteWeight:
    """Read the votes' weight off a construction or disentangled model; the module's docstring says how.

    Other families have no block of votes: success is then False.

    Parameters
    ----------
    model      a model of this suite, or a `Circuit`
    tokens     [batch, length] symbols, without BOS
    next_law   [batch, vocab] the true law of the token after each sequence
    alpha      the pseudo-count to compare with; that of an independent prior gives the weights of Bayes
    seed       shuffles the levels of the control

    Returns
    -------
    `VoteWeight`, a row for each number of full matches

    Examples
    --------
        found = vote_weight(model, chains.tokens, next_law=chains.next_law)
        found.verdict, found.table()
    """
    seed, circuit = seed_number(seed), as_circuit(model)
    alpha = None if alpha is None else finite_number(alpha, name="alpha", above=0)
    origin = provenance(seed=seed, checkpoint=circuit.checkpoint)

    def unknown(reason: str) -> VoteWeight:
        return VoteWeight(verdict="cannot tell", success=False, message=reason, provenance=origin)

    if reason := not_linear(circuit.model):
        return unknown(reason)
    trial = Experiment(circuit, tokens, next_law=next_law, seed=seed)
    if len(trial.tokens) < MIN_SEQUENCES:
        return unknown(f"{len(trial.tokens)} sequences; at least {MIN_SEQUENCES} are needed")
    stream, weights = final_stream(trial).double(), circuit.model.unembed.W_U.detach().cpu().double()
    level = (sums := stream @ weights).mean(-1)
    if float((_laws_at(trial, sums, level) - trial.base).abs().max()) > SAME:
        return unknown("the predictions are not the normalised sums of the readout")
    if bool((level <= 0).any()):
        return unknown("the readout's level is not positive everywhere")
    pattern, full = trial.pattern[:, 0, 0], full_matches(trial.masks, order=circuit.order, bos=False)[:, 0]
    spread = float(level.std(correction=0) / level.mean())
    falls = correlation(level, (pattern * full).sum(-1)) if spread > NOTICEABLE else math.nan  # less is rounding
    moved = _moved_level(trial, sums)
    sides, comparison = _sides(trial, stream, weights)
    negative = float((sums < 0).any(-1).double().mean())
    # BOS votes for all symbols alike: without it, the differences from uniform are larger by its share.
    votes, on_bos = token_votes(trial, stream) - 1 / circuit.vocab, pattern[:, :1] * circuit.has_bos
    on_tokens = (1 - on_bos).clamp(min=torch.finfo(torch.float32).eps)
    varies = bool(sides) and spread > NOTICEABLE
    follows = falls <= FOLLOWS and moved.get("held", 0.0) > 2 * moved.get("held_stderr", 0.0)
    return VoteWeight(
        verdict="constant level" if spread < STEADY else f"level {'follows the evidence' if follows else 'varies'}",
        weights=_by_matches(trial.base, votes / on_tokens, full.sum(-1), alpha=alpha),
        level_spread=spread,
        level_full=falls,
        **sides,
        compared=1 - float((level - comparison).var(correction=0) / level.var(correction=0)) if varies else math.nan,
        **moved,
        n=len(level),
        message="; ".join(_notes(moved["clipped"], negative, compared=bool(sides))),
        provenance=origin,
    )


def _laws_at(trial: Experiment, sums: torch.Tensor, level: torch.Tensor) -> Float[torch.Tensor, "batch vocab"]:
    """What the readout makes of these sums with its level moved to this one, sequence by sequence."""
    return law_of_shares(trial, sums + (level - sums.mean(-1))[:, None])


def _moved_level(trial: Experiment, sums: torch.Tensor) -> dict[str, Any]:
    """The change of KL with the level held at its harmonic mean, and, as a control, at that of another sequence."""
    level = sums.mean(-1)
    steady = (1 / (1 / level).mean()).expand_as(level)
    clipped = float(((sums > 0) & (sums - level[:, None] + steady[:, None] <= 0)).any(-1).double().mean())
    found = {"clipped": clipped}
    if clipped <= CLIPPED:
        other = level[torch.randperm(len(level), generator=trial.generator)]
        for name, moved in (("held", steady), ("shuffled", other)):
            change = trial.kl(_laws_at(trial, sums, moved)).values - trial.divergence.values
            found[name], found[f"{name}_stderr"] = mean_stderr(change)
    return found


def _sides(trial: Experiment, stream: torch.Tensor, weights: torch.Tensor) -> tuple[dict[str, Any], torch.Tensor]:
    """What each block of the final stream adds to the level, by lag, and what their comparison of tokens adds.

    Nothing where the copy heads serve no distinct lags.
    """
    heads = copy_heads(capture(trial.circuit, trial.tokens[:COPY_SEQUENCES]))
    if not heads.success:
        return {}, torch.zeros(0)
    blocks = trial.circuit.model.config.blocks
    by_block = einops.rearrange(weights.mean(-1), "(half block v) -> half block v", half=2, block=blocks)
    centred = by_block - by_block.mean(-1, keepdim=True)
    parts = einops.rearrange(stream, "n (half block v) -> half n block v", half=2, block=blocks)
    places = [0, *(1 + np.argsort(heads.lag)).tolist()]
    query, key = centred[0, places[:-1]], centred[1, places[1:]]
    comparison = ((parts[0][:, places[:-1]] - parts[1][:, places[1:]]) * (query - key) / 2).sum((-2, -1))
    opposed = tuple(correlation(one, -other) for one, other in zip(query, key, strict=True))
    return {"query_side": query.numpy(), "key_side": key.numpy(), "opposed": opposed}, comparison


def correlation(first: torch.Tensor, second: torch.Tensor) -> float:
    """Pearson's; NaN where one side does not vary."""
    one, other = first - first.mean(), second - second.mean()
    size = float(one.norm() * other.norm())
    return float((one * other).sum()) / size if size > 0 else math.nan


def _notes(clipped: float, negative: float, *, compared: bool) -> list[str]:
    """Why some of the numbers cannot be determined."""
    notes = []
    if clipped > CLIPPED:
        notes.append(f"holding the level would clip a sum in {clipped:.0%} of sequences: its cost cannot be measured")
    if negative > CLIPPED:
        notes.append(f"{negative:.0%} of sequences have a negative sum, where weight and level say less than the whole")
    if not compared:
        notes.append("copy heads do not copy distinct lags: tokens cannot be compared by lag")
    return notes


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
