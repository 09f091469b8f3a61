"""What does a model predict without its match head, and is that a count of tokens?

    found = direct_path(model, chains.tokens, next_law=chains.next_law)
    found.verdict, found.gain, found.r2

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
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int64

from interp.arguments import Number, shown
from interp.circuit.circuit import Circuit, as_circuit, head_name
from interp.circuit.edits import NOTICEABLE, MatchReader, write_pattern
from interp.circuit.law import check_next_law
from interp.circuit.runner import laws as laws_of
from interp.divergence import KL_FLOOR, check_floor, kl_divergence, raised
from interp.fitting.regression import clustered, leave_one_out, solve_normal_equations
from interp.notation import Tokens
from interp.results import Result, half_width, mean_stderr, provenance

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

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
    floor, n           the floor of the KL, and the number of sequences
    """

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
    floor: float
    n: int

    def table(self) -> pd.DataFrame:
        """One row per weight: term, estimate, stderr."""
        import pandas as pd

        names = ["frequency", *(f"x_{{t-{lag}}}" if lag else "x_t" for lag in range(len(self.recent)))]
        estimates = np.concatenate([[self.frequency], self.recent])
        errors = np.concatenate([[self.frequency_stderr], self.recent_stderr])
        return pd.DataFrame({"term": names, "estimate": estimates, "stderr": errors})

    def plot(self, ax: Axes | None = None, *, show: str = "loss") -> Axes:
        """The loss with and without the match head, or the weights of the regression ("weights")."""
        from interp.plotting import (
            INTERVAL_NAME,
            LAG_COLOURS,
            MAIN_COLOUR,
            estimate_points,
            grouped_bars,
            heading,
            panel,
        )

        if show not in ("loss", "weights"):
            raise ValueError(f"show must be 'loss' or 'weights', got {shown(show)}")
        title = f"without the match head, {self.n} sequences: {self.verdict}"
        ax = panel(ax, width=5.6)
        if show == "weights":
            rows = self.table()
            names = ["frequency", *(f"${name}$" for name in rows["term"].tolist()[1:])]
            estimate_points(ax, names, rows["estimate"].to_numpy(), half_width(rows["stderr"], n=self.n))
            ax.set_ylabel(f"weight in the log-probability\n(nats, {INTERVAL_NAME})")
            return heading(ax, f"{title}; $R^2$ {self.r2:.2f}, control {self.r2_control:.2f}", doubt=self.doubt)
        grouped_bars(
            ax,
            ["uniform law", "match head\nsilenced", "whole model"],
            {"KL": np.array([self.kl_uniform, self.kl, self.kl_model])},
            reach={"KL": half_width([math.nan, self.kl_stderr, math.nan], n=self.n)},
            colours={"KL": ["#a6a6a6", LAG_COLOURS[1], MAIN_COLOUR]},
            across=True,
        )
        ax.set_xlabel(f"KL(truth || prediction) (nats; silenced: {INTERVAL_NAME})")
        return heading(
            ax, f"{title}; gain over uniform {self.gain:+.3f} ± {self.gain_stderr:.3f} nats", doubt=self.doubt
        )

    def __str__(self) -> str:
        lines = [
            f"Without the match head, on {self.n} sequences: {self.verdict}",
            f"  KL to the truth {self.kl:.4f} ± {self.kl_stderr:.4f} nats; uniform law {self.kl_uniform:.4f}, the "
            f"whole model {self.kl_model:.4f}",
            f"  gain over the uniform law {self.gain:+.4f} ± {self.gain_stderr:.4f}",
        ]
        if not math.isnan(self.r2):
            recent = ", ".join(f"{value:.2f}" for value in self.recent)
            lines += [
                f"  log-probabilities: R2 {self.r2:.3f} by frequency and recent tokens together, "
                f"{self.r2_frequency:.3f} and {self.r2_recent:.3f} alone, {self.r2_control:.3f} by another sequence's",
                f"  weights: frequency {self.frequency:.2f} ± {self.frequency_stderr:.2f}; "
                f"x_t, x_{{t-1}}, ...: {recent}",
            ]
        return "\n".join([*lines, *self.remarks()])


def direct_path(
    model: Any,
    tokens: Tokens,
    *,
    next_law: Any,
    floor: Number = KL_FLOOR,
    checkpoint: str | None = None,
) -> DirectPath:
    """Silence the match head at the last query and see what is still predicted; the module's docstring says how."""
    circuit = as_circuit(model)
    array = circuit.check(tokens)
    truth = check_next_law(next_law, array, vocab=circuit.vocab)
    floor = check_floor(floor, vocab=circuit.vocab)
    reader = MatchReader(circuit)
    own = laws_of(circuit, array, hooks=reader.hooks, last_only=True)
    laws = _silenced(circuit, array, own=own, pattern=reader.pattern)
    silent, whole = (kl_divergence(truth, found, floor=floor) for found in (laws, own))
    uniform = kl_divergence(truth, torch.full_like(laws, 1 / circuit.vocab), floor=floor)
    gain, gain_stderr = mean_stderr(uniform.values - silent.values)
    logs = raised(laws, floor=floor).log().numpy()
    logs -= logs.mean(axis=1, keepdims=True)
    total, tokens_of = float((logs**2).sum()), array.numpy()
    sums = _sums(tokens_of, logs, order=circuit.order)
    control = _sums(np.roll(tokens_of, 1, axis=0), logs, order=circuit.order)
    terms = list(range(circuit.order + 2))
    both = _fit(sums, terms, total=total, size=logs.size)
    verdict = "counts tokens" if both.r2 >= EXPLAINED else "something else"
    if not gain > 2 * gain_stderr:
        verdict = "nothing"
    enough = len(array) >= MIN_SEQUENCES
    return DirectPath(
        verdict=verdict if enough else "cannot tell",
        kl=silent.mean,
        kl_stderr=silent.stderr,
        kl_uniform=uniform.mean,
        kl_model=whole.mean,
        gain=gain,
        gain_stderr=gain_stderr,
        r2=both.r2,
        r2_frequency=_fit(sums, terms[:1], total=total, size=logs.size).r2,
        r2_recent=_fit(sums, terms[1:], total=total, size=logs.size).r2,
        r2_control=_fit(control, terms, total=total, size=logs.size).r2,
        frequency=float(both.weights[0]),
        frequency_stderr=float(both.stderr[0]),
        recent=both.weights[1:],
        recent_stderr=both.stderr[1:],
        floor=floor,
        n=len(array),
        success=enough,
        message="" if enough else f"{len(array)} sequences; standard errors need at least {MIN_SEQUENCES}",
        provenance=provenance(checkpoint=checkpoint),
    )


def _silenced(
    circuit: Circuit,
    tokens: Int64[torch.Tensor, "batch length"],
    *,
    own: Float[torch.Tensor, "batch vocab"],
    pattern: Float[torch.Tensor, "batch match key"],
) -> Float[torch.Tensor, "batch vocab"]:
    """Predictions with all attention of the match heads' last query on BOS, or on nothing where there is no BOS.

    `own` and `pattern` are the model's predictions and attention as they are: silencing must show in the predictions.
    """
    rows = torch.zeros_like(pattern)
    if circuit.has_sink:
        rows[..., 0] = 1.0
    laws = laws_of(circuit, tokens, hooks=write_pattern(circuit, rows), last_only=True)
    if float((rows - pattern).abs().max()) > NOTICEABLE and torch.equal(laws, own):
        raise ValueError(
            f"silencing {', '.join(map(head_name, circuit.match_heads))} (layer.head) did not reach the logits: "
            f"nothing reads that head"
        )
    return laws


@dataclass(frozen=True, kw_only=True)
class _Sums:
    """Sums over the symbols of each sequence; terms and logs are centred over symbols."""

    gram: Float[np.ndarray, "batch term term"]
    moments: Float[np.ndarray, "batch term"]


def _sums(tokens: Int64[np.ndarray, "batch length"], logs: Float[np.ndarray, "batch vocab"], *, order: int) -> _Sums:
    """Products of the terms with each other and with the logs. The terms of a symbol are its frequency and whether it
    is x_t, ..., x_{t-k}: zero for nearly all symbols of a large vocabulary, so that they are never written out.
    """
    (batch, length), vocab = tokens.shape, logs.shape[1]
    rows = np.arange(batch)
    recent = tokens[:, ::-1][:, : order + 1]
    codes, counts = np.unique(tokens + vocab * rows[:, None], return_counts=True)
    frequency = counts / length
    gram = np.empty((batch, order + 2, order + 2))
    gram[:, 0, 0] = np.bincount(codes // vocab, weights=frequency**2, minlength=batch)
    gram[:, 0, 1:] = gram[:, 1:, 0] = frequency[np.searchsorted(codes, recent + vocab * rows[:, None])]
    gram[:, 1:, 1:] = recent[:, :, None] == recent[:, None, :]
    moments = np.column_stack([logs[rows[:, None], tokens].mean(axis=1), logs[rows[:, None], recent]])
    return _Sums(gram=gram - 1 / vocab, moments=moments)  # every term sums to one over the symbols


@dataclass(frozen=True, kw_only=True)
class _Line:
    weights: Float[np.ndarray, " term"]
    stderr: Float[np.ndarray, " term"]
    r2: float


def _fit(sums: _Sums, terms: list[int], *, total: float, size: int) -> _Line:
    """Least squares over all sequences and symbols, errors clustered by sequence; NaN where nothing varies."""
    gram, moments = sums.gram[:, terms][:, :, terms], sums.moments[:, terms]
    found = solve_normal_equations(gram.sum(axis=0), moments.sum(axis=0), total)
    if total <= np.finfo(np.float32).eps ** 2 * size or not found.full_rank:
        unknown = np.full(len(terms), np.nan)
        return _Line(weights=unknown, stderr=unknown, r2=math.nan)
    moved = leave_one_out(moments - gram @ found.coefficients, gram, found.inverse)
    return _Line(weights=found.coefficients, stderr=np.sqrt(np.diag(clustered(moved))), r2=1 - found.sse / total)
