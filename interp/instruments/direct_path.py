"""What does a model predict without its match head, and is that a count of tokens?

In the paper's circuit all information about the next token passes through the match head: a query without a match
predicts the uniform law. Here the match head is silenced in the live model (all its attention on BOS, or on nothing
where there is no BOS), and what is left is the direct path: the query's own stream, with what copy heads have written
into it, straight to the readout. A copy head that attends to many tokens at once writes their mean there. That is a
count: the estimate of order 0, which interpolation would otherwise take from its lowest order.

The centred log-probabilities of the silenced model are regressed on two descriptions of the sequence, alone and
together:

    frequency   how often a symbol has occurred in the sequence
    recent      whether it is x_t, x_{t-1}, ..., x_{t-k}

Errors are clustered by sequence. The control regresses on the frequencies and recent tokens of another sequence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int64

from interp.arguments import keywords
from interp.circuit.circuit import Model
from interp.circuit.experiment import Experiment
from interp.circuit.runner import law_of
from interp.divergence import raised
from interp.fitting.regression import clustered, leave_one_out, solve_normal_equations
from interp.instruments.given import NextLaw
from interp.notation import Tokens
from interp.results import Axes, DataFrame, Result, frame, half_width, mean_stderr, provenance

MIN_SEQUENCES = 8  # with fewer, clustered errors are not reliable
EXPLAINED = 0.5  # share of the log-probabilities' variance above which the verdict is "counts tokens"


@dataclass(frozen=True, kw_only=True)
class DirectPath(Result):
    """The prediction without the match head.

    verdict            "nothing" (no better than the uniform law by two standard errors), "counts tokens" (better, and
                       frequency and recent tokens explain at least half) or "something else"
    kl, kl_stderr      mean KL(truth || prediction) of the silenced model
    kl_uniform, kl_model       the same of the uniform law and of the whole model
    gain, gain_stderr  kl_uniform - kl; the error is paired by sequence
    r2                 share of the variance of the centred log-probabilities that both descriptions explain
    r2_frequency, r2_recent    the same for each alone
    r2_control         for both, taken from another sequence
    frequency, frequency_stderr   weight of the frequency when both are in the fit (log-probability per unit)
    recent, recent_stderr      [k+1] weight of the token being x_t, x_{t-1}, ..., x_{t-k}
    n                  sequences
    """

    NUMBERS = ("kl", "kl_uniform", "kl_model", "r2", "r2_frequency", "r2_recent", "r2_control")

    verdict: str
    kl: float
    kl_stderr: float
    kl_uniform: float
    kl_model: float
    gain: float
    gain_stderr: float
    r2: float
    r2_frequency: float
    r2_recent: float
    r2_control: float
    frequency: float
    frequency_stderr: float
    recent: Float[np.ndarray, " block"]
    recent_stderr: Float[np.ndarray, " block"]
    n: int

    @property
    def title(self) -> str:
        """The verdict, and what is gained over the uniform law."""
        gain = f"gain over the uniform law {self.gain:+.3f} ± {self.gain_stderr:.3f} nats"
        return f"without the match head, {self.n} sequences: {self.verdict}; {gain}"

    def table(self) -> DataFrame:
        """One row per weight: term, estimate, stderr."""
        return frame(
            {
                "term": ["frequency", *(f"x_{{t-{lag}}}" if lag else "x_t" for lag in range(len(self.recent)))],
                "estimate": [self.frequency, *self.recent],
                "stderr": [self.frequency_stderr, *self.recent_stderr],
            }
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        """The loss with and without the match head, beside that of the uniform law."""
        from interp.plotting import INTERVAL_NAME, LAG_COLOURS, MAIN_COLOUR, grouped_bars, heading, panel

        ax = grouped_bars(
            panel(ax, width=5.6),
            ["uniform law", "match head\nsilenced", "whole model"],
            {"KL": np.array([self.kl_uniform, self.kl, self.kl_model])},
            reach={"KL": half_width([math.nan, self.kl_stderr, math.nan], n=self.n)},
            colours={"KL": ["#a6a6a6", LAG_COLOURS[1], MAIN_COLOUR]},
            across=True,
        )
        ax.set_xlabel(f"KL(truth || prediction) (nats; silenced: {INTERVAL_NAME})")
        return heading(ax, self.title, doubt=self.doubt)


@keywords()
def direct_path(model: Model, tokens: Tokens, *, next_law: NextLaw) -> DirectPath:
    """Silence the match head at the last query and see what is still predicted; the module's docstring says how.

    Parameters
    ----------
    model      a model of this suite, or a `Circuit`
    tokens     [batch, length] symbols, without BOS
    next_law   [batch, vocab] the true law of the token after each sequence

    Returns
    -------
    `DirectPath`, whose verdict is "nothing", "counts tokens" or "something else"

    Examples
    --------
        found = direct_path(model, chains.tokens, next_law=chains.next_law)
        found.verdict, found.gain, found.r2
    """
    trial = Experiment(model, tokens, next_law=next_law)
    silenced = torch.zeros_like(trial.pattern)
    if trial.circuit.has_sink:
        silenced[..., 0] = 1.0
    laws = law_of(trial.write(silenced, edit="silencing"))
    silent, uniform = trial.kl(laws), trial.kl(torch.full_like(laws, 1 / trial.circuit.vocab))
    gain, gain_stderr = mean_stderr(uniform.values - silent.values)
    logs = raised(laws, floor=trial.floor).log().numpy()
    logs -= logs.mean(axis=1, keepdims=True)
    tokens_of, order = trial.tokens.numpy(), trial.circuit.order
    terms = _terms(tokens_of, order=order, vocab=trial.circuit.vocab)
    weights, errors, r2 = _fit(terms, logs)
    verdict = "counts tokens" if r2 >= EXPLAINED else "something else"
    if not gain > 2 * gain_stderr:
        verdict = "nothing"
    enough = len(tokens_of) >= MIN_SEQUENCES
    return DirectPath(
        verdict=verdict if enough else "cannot tell",
        kl=silent.mean,
        kl_stderr=silent.stderr,
        kl_uniform=uniform.mean,
        kl_model=trial.divergence.mean,
        gain=gain,
        gain_stderr=gain_stderr,
        r2=r2,
        r2_frequency=_fit(terms[..., :1], logs)[2],
        r2_recent=_fit(terms[..., 1:], logs)[2],
        r2_control=_fit(np.roll(terms, 1, axis=0), logs)[2],
        frequency=float(weights[0]),
        frequency_stderr=float(errors[0]),
        recent=weights[1:],
        recent_stderr=errors[1:],
        n=len(tokens_of),
        success=enough,
        message="" if enough else f"{len(tokens_of)} sequences; standard errors need at least {MIN_SEQUENCES}",
        provenance=provenance(checkpoint=trial.circuit.checkpoint),
    )


def _terms(
    tokens: Int64[np.ndarray, "batch length"], *, order: int, vocab: int
) -> Float[np.ndarray, "batch vocab term"]:
    """Of each symbol its frequency in the sequence, and whether it is x_t, ..., x_{t-k}; centred over the symbols."""
    frequency = np.stack([np.bincount(row, minlength=vocab) / len(row) for row in tokens])
    recent = np.eye(vocab)[tokens[:, ::-1][:, : order + 1]].swapaxes(1, 2)
    return np.concatenate([frequency[..., None], recent], axis=2) - 1 / vocab  # every term sums to one


def _fit(
    terms: Float[np.ndarray, "batch vocab term"], logs: Float[np.ndarray, "batch vocab"]
) -> tuple[Float[np.ndarray, " term"], Float[np.ndarray, " term"], float]:
    """Weights by least squares, errors clustered by sequence, and R2; NaN where nothing varies."""
    gram, moments = np.einsum("bvi,bvj->bij", terms, terms), np.einsum("bvi,bv->bi", terms, logs)
    total = float((logs**2).sum())
    found = solve_normal_equations(gram.sum(axis=0), moments.sum(axis=0), total)
    if total <= np.finfo(np.float32).eps ** 2 * logs.size or not found.full_rank:
        unknown = np.full(terms.shape[2], np.nan)
        return unknown, unknown, math.nan
    moved = leave_one_out(moments - gram @ found.coefficients, gram, found.inverse)
    return found.coefficients, np.sqrt(np.diag(clustered(moved))), 1 - found.sse / total
