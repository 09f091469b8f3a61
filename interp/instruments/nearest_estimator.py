"""Which estimator does the model compute? KL from its predictions to each candidate, the nearest first.

    soft_matching_fitted     eq:transformer_estimator at the beta and kappa of a fit (where given)
    soft_matching_best       the same estimator at the parameters closest to the predictions; kappa only where the model
                             has BOS
    soft_matching_best_bos   for a model without BOS: the same with pseudo-counts (kappa), which its attention cannot
                             make
    add_alpha_1, add_alpha_best, maximum_likelihood, jelinek_mercer_best, katz, witten_bell, kneser_ney

"best" means the least KL(model || estimator). Parameters are tuned on one half of the sequences and tested on the
other, then the reverse, so that tuning gives no advantage. The reported parameters are tuned on all sequences.
Predictions and estimators are raised to the suite's floor (`divergence`); `floored` says how often this was needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import softmax

from interp.arguments import keywords
from interp.circuit.circuit import Circuit, Model, as_circuit
from interp.circuit.runner import laws as laws_of
from interp.divergence import KL_FLOOR, kl_between
from interp.estimators.classical import jelinek_mercer, katz, kneser_ney, witten_bell
from interp.estimators.counts import mask_counts
from interp.estimators.soft_matching import add_alpha, law_from_counts, maximum_likelihood, soft_matching
from interp.instruments.given import HeadLaws, Law, laws_of_heads
from interp.notation import Tokens
from interp.results import Axes, DataFrame, NamedRows, half_width, mean_stderr, provenance, rows_table

Array: TypeAlias = NDArray[Any]

LINEAR_BELOW = 1e-3  # nats: the axis of a plot is logarithmic from here on
WIDEST = 200.0  # no parameter leaves [-200, 200]: exp(200) is hard attention in any precision


@dataclass(frozen=True, kw_only=True)
class EstimatorDistance:
    """KL(model || estimator) of one estimator.

    parameters  what the estimator was run at; empty if it has none
    kl, stderr  mean over sequences
    behind      mean difference to the nearest estimator, paired by sequence, with `behind_stderr`; 0 for the nearest
    floored     share of sequences where a symbol that the model gives at least the floor gets less from the estimator
    tuned       whether the parameters were chosen to be closest to the model
    """

    estimator: str
    parameters: dict[str, Any]
    kl: float
    stderr: float
    behind: float
    behind_stderr: float
    floored: float
    tuned: bool


@dataclass(frozen=True, kw_only=True)
class NearestEstimator(NamedRows[EstimatorDistance]):
    """The estimators by their distance from the model, the nearest first; `near["katz"]` is the row of one.

    estimators  an `EstimatorDistance` for each
    n           sequences
    """

    ROWS, NAME, NOUN = "estimators", "estimator", "estimator"
    FIRST = (("kl", "kl"),)
    SHOWN = ("estimator", "kl", "stderr", "floored", "parameters")

    estimators: tuple[EstimatorDistance, ...]
    n: int

    @property
    def nearest(self) -> str:
        """The name of the nearest estimator."""
        return self.estimators[0].estimator

    @property
    def title(self) -> str:
        """The nearest."""
        return f"nearest of {len(self.estimators)} estimators on {self.n} sequences: {self.nearest}"

    def table(self) -> DataFrame:
        """One row per estimator, nearest first; parameters as text."""
        table = rows_table(self.estimators).drop(columns="parameters")
        return table.assign(parameters=[_text(row.parameters) for row in self.estimators])

    def record(self) -> dict[str, Any]:
        """The fields, after the nearest estimator and the KL of each."""
        return {"nearest": self.nearest, **super().record()}

    def plot(self, ax: Axes | None = None) -> Axes:
        """KL(model || estimator) with 95% intervals, the nearest on top; open markers are of tuned parameters."""
        from interp.plotting import INTERVAL_NAME, estimate_points, heading, panel, signed_log

        rows = self.table()
        names = [
            f"{row.estimator} (floored {row.floored:.0%})" if row.floored else row.estimator for row in self.estimators
        ]
        ax = panel(ax, width=6.4, height=1.2 + 0.42 * len(names))
        estimate_points(
            ax,
            names,
            rows["kl"].to_numpy(),
            half_width(rows["stderr"], n=self.n),
            filled=(~rows["tuned"]).tolist(),
            across=True,
        )
        signed_log(ax, linear_below=LINEAR_BELOW)
        ax.set_xlim(left=0)
        notes = f"{INTERVAL_NAME}; open: tuned to the model\nlogarithmic above {LINEAR_BELOW:g}"
        ax.set_xlabel(f"KL(model || estimator) (nats)\n{notes}")
        return heading(ax, self.title, doubt=self.doubt)


@keywords(**dict.fromkeys(("beta", "kappa"), "law=fit, what fit_scores returns, or law=(beta, kappa)"))
def nearest_estimator(model: Model, tokens: Tokens, *, law: Law | None = None) -> NearestEstimator:
    """KL from the model's predictions after the last token to every estimator.

    Parameters
    ----------
    model    a model of this suite, or a `Circuit`, of which only order, vocabulary, BOS and symbols are used
    tokens   [batch, length] symbols, without BOS; at least two sequences
    law      a fit, or (beta, kappa), for `soft_matching_fitted`; that estimator is left out without a law, and where
             the fit is not to be trusted

    Returns
    -------
    `NearestEstimator`, a row for each estimator

    Examples
    --------
        near = nearest_estimator(model, chains.tokens, law=fit)
        near.nearest, near.table()
    """
    circuit = as_circuit(model)
    array, vocab = circuit.check(tokens), circuit.vocab
    if array.shape[0] < 2:
        raise ValueError("tuning and judging take different sequences: give at least 2")
    predicted = laws_of(circuit, array)
    found: dict[str, tuple[torch.Tensor, dict[str, Any]]] = {}
    given = HeadLaws() if law is None else laws_of_heads(law, order=circuit.order, bos=circuit.has_sink)
    for one in given.heads:
        if one.beta is None:
            raise ValueError("soft matching takes a weight for each lag: give an additive law")
        fitted = soft_matching(array, vocab=vocab, beta=one.beta, kappa=one.kappa)
        found["soft_matching_fitted"] = (fitted, {"beta": one.beta.tolist(), "kappa": one.kappa})
    notes = [f"no soft_matching_fitted: {given.note}"] if law is not None and not given.heads else []
    tuned, troubles = _families(array, circuit), []
    for name, family in tuned.items():
        laws, best, trouble = _tuned(family, predicted)
        found[name] = (laws, family.parameters(best))
        troubles += [f"{name}: the search for its parameters ended early ({trouble})"] if trouble else []
    found["add_alpha_1"] = (add_alpha(array, order=circuit.order, vocab=vocab, alpha=1.0), {"alpha": 1.0})
    for estimator in (maximum_likelihood, katz, witten_bell, kneser_ney):
        found[estimator.__name__] = (estimator(array, order=circuit.order, vocab=vocab), {})
    values = {name: kl_between(predicted, laws) for name, (laws, _) in found.items()}
    order = sorted(found, key=lambda name: float(values[name].mean()))
    rows = []
    for name in order:
        laws, parameters = found[name]
        kl, stderr = mean_stderr(values[name])
        behind, behind_stderr = mean_stderr(values[name] - values[order[0]])
        rows.append(
            EstimatorDistance(
                estimator=name,
                parameters=parameters,
                kl=kl,
                stderr=stderr,
                behind=behind,
                behind_stderr=behind_stderr,
                floored=float(((laws < KL_FLOOR) & (predicted >= KL_FLOOR)).any(-1).double().mean()),
                tuned=name in tuned,
            )
        )
    return NearestEstimator(
        estimators=tuple(rows),
        n=array.shape[0],
        success=not troubles,
        message="; ".join(troubles + notes),
        provenance=provenance(checkpoint=circuit.checkpoint),
    )


@dataclass(frozen=True)
class Family:
    """Estimators with parameters to tune.

    laws         the parameters, and rows of the batch -> the laws of those rows; differentiable in the parameters
    starts       of the search
    parameters   those of the search as the estimator's own
    """

    laws: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    starts: list[list[float]]
    parameters: Callable[[Array], dict[str, Any]]


def _families(tokens: torch.Tensor, circuit: Circuit) -> dict[str, Family]:
    """Soft matching, add-alpha and Jelinek-Mercer."""
    counts, order, vocab = mask_counts(tokens, order=circuit.order, vocab=circuit.vocab), circuit.order, circuit.vocab
    # The mixture is linear in its weights: the corners of the simplex are the models of each order.
    corners = [jelinek_mercer(tokens, vocab=vocab, weights=corner) for corner in np.eye(order + 1)]
    models = torch.stack(corners, dim=1)

    def soft(point: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return law_from_counts(counts[rows], beta=point[:order], kappa=point[order] if len(point) > order else None)

    def add(point: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        votes = counts[rows, -1].double() + torch.exp(point[0])
        return votes / votes.sum(-1, keepdim=True)

    def mix(point: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return torch.einsum("i,biv->bv", torch.softmax(point, dim=0), models[rows])

    without = Family(soft, [[1.0] * order, [3.0] * order], lambda best: {"beta": best.tolist()})
    with_bos = Family(
        soft,
        [[1.0] * order + [0.0], [3.0] * order + [3.0]],
        lambda best: {"beta": best[:-1].tolist(), "kappa": float(best[-1])},
    )
    added = {} if circuit.has_sink else {"soft_matching_best_bos": with_bos}
    return {
        "soft_matching_best": with_bos if circuit.has_sink else without,
        **added,
        "add_alpha_best": Family(add, [[0.0]], lambda best: {"alpha": float(np.exp(best[0]))}),
        "jelinek_mercer_best": Family(mix, [[0.0] * (order + 1)], lambda best: {"weights": softmax(best).tolist()}),
    }


def _tuned(family: Family, predicted: torch.Tensor) -> tuple[torch.Tensor, Array, str]:
    """Laws for each half at the parameters of the other half, the best parameters on all sequences, and what went wrong
    in the search for these.
    """

    def minimum(rows: torch.Tensor, starts: list[list[float]]) -> Any:
        def loss(point: Array) -> tuple[float, Array]:
            parameters = torch.tensor(point, dtype=torch.float64, requires_grad=True)
            with torch.enable_grad():
                value = kl_between(predicted[rows], family.laws(parameters, rows)).mean()
                (gradient,) = torch.autograd.grad(value, parameters)
            return float(value.detach()), gradient.numpy()

        bounds = [(-WIDEST, WIDEST)] * len(starts[0])
        found = [minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds) for start in starts]
        return min(found, key=lambda result: float(result.fun))

    everyone = torch.arange(len(predicted))
    best = minimum(everyone, family.starts)
    laws = torch.empty_like(predicted)
    for half, other in ((everyone[::2], everyone[1::2]), (everyone[1::2], everyone[::2])):
        laws[half] = family.laws(torch.from_numpy(minimum(other, [best.x.tolist()]).x), half)
    return laws, best.x, "" if best.success else str(best.message)


def _text(parameters: dict[str, Any]) -> str:
    def show(value: Any) -> str:
        return "(" + ", ".join(map(show, value)) + ")" if isinstance(value, (list, tuple)) else f"{value:.4g}"

    return ", ".join(f"{name} {show(value)}" for name, value in parameters.items() if value is not None)
