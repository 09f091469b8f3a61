"""Which estimator does the model compute? KL from its predictions to each candidate, the nearest first.

    near = nearest_estimator(model, chains.tokens, beta=fit.beta, kappa=fit.kappa)
    near.nearest, near.table()

    soft_matching_fitted     eq:transformer_estimator at the beta and kappa of the scores (where given)
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
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.optimize import minimize

from interp.arguments import Number
from interp.circuit.circuit import Circuit, as_circuit
from interp.circuit.law import check_parameters
from interp.circuit.runner import laws as laws_of
from interp.divergence import KL_FLOOR, check_floor, kl_between
from interp.estimators.classical import jelinek_mercer, katz, kneser_ney, witten_bell
from interp.estimators.counts import mask_counts
from interp.estimators.soft_matching import add_alpha, law_from_counts, maximum_likelihood, soft_matching
from interp.notation import Tokens
from interp.results import NamedRows, half_width, mean_stderr, provenance

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

# Parameters and rows of the batch -> the laws of those rows; differentiable in the parameters.
Family: TypeAlias = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

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
    floor, n    the floor of the KL, and the number of sequences
    """

    ROWS, NAME, NOUN = "estimators", "estimator", "estimator"

    estimators: tuple[EstimatorDistance, ...]
    floor: float
    n: int

    @property
    def nearest(self) -> str:
        """The name of the nearest estimator."""
        return self.estimators[0].estimator

    def table(self) -> pd.DataFrame:
        """One row per estimator, nearest first; parameters as text."""
        import pandas as pd

        return pd.DataFrame(
            [
                {
                    "estimator": row.estimator,
                    "kl": row.kl,
                    "stderr": row.stderr,
                    "behind": row.behind,
                    "behind_stderr": row.behind_stderr,
                    "floored": row.floored,
                    "tuned": row.tuned,
                    "parameters": _text(row.parameters),
                }
                for row in self.estimators
            ]
        )

    def record(self) -> dict[str, Any]:
        """The fields, after the nearest estimator and the KL of each."""
        distances = {row.estimator: row.kl for row in self.estimators}
        return {"nearest": self.nearest, "kl": distances, **super().record()}

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
        return heading(
            ax, f"nearest of {len(names)} estimators on {self.n} sequences: {self.nearest}", doubt=self.doubt
        )

    def __str__(self) -> str:
        shown = self.estimators[:6]
        lines = [
            f"The {len(shown)} nearest of {len(self.estimators)} estimators on {self.n} sequences, "
            "KL(model || estimator) in nats"
        ]
        for row in shown:
            needed = f", floored {row.floored:.0%}" if row.floored else ""
            line = f"  {row.estimator:22} {row.kl:.5f} ± {row.stderr:.5f}{needed}  {_text(row.parameters)}"
            lines.append(line.rstrip())
        return "\n".join([*lines, *self.remarks()])


def nearest_estimator(
    model: Any,
    tokens: Tokens,
    *,
    beta: Any | None = None,
    kappa: Any = None,
    floor: Number = KL_FLOOR,
    checkpoint: str | None = None,
) -> NearestEstimator:
    """KL from the model's predictions after the last token to every estimator.

    beta and kappa are those of `fit_scores`; without them, soft matching is tested only at its best parameters. A model
    from elsewhere comes as a `Circuit`; only its order, vocabulary, BOS and symbols are used.
    """
    circuit = as_circuit(model)
    array = circuit.check(tokens)
    if array.shape[0] < 2:
        raise ValueError("tuning and judging take different sequences: give at least 2")
    floor = check_floor(floor, vocab=circuit.vocab)
    bench = _Bench(circuit, array, floor=floor)
    if beta is not None:
        weights, pseudo = check_parameters(circuit, beta=beta, kappa=kappa)
        bench.judge(
            "soft_matching_fitted",
            soft_matching(array, vocab=circuit.vocab, beta=weights, kappa=pseudo),
            beta=weights.tolist(),
            kappa=pseudo,
        )
    bench.tune_soft_matching("soft_matching_best", pseudo_counts=circuit.has_sink)
    if not circuit.has_sink:
        bench.tune_soft_matching("soft_matching_best_bos", pseudo_counts=True)
    bench.tune_add_alpha("add_alpha_best")
    bench.tune_jelinek_mercer("jelinek_mercer_best")
    symbols, lags = circuit.vocab, circuit.order
    bench.judge("add_alpha_1", add_alpha(array, order=lags, vocab=symbols, alpha=1.0), alpha=1.0)
    bench.judge("maximum_likelihood", maximum_likelihood(array, order=lags, vocab=symbols))
    bench.judge("katz", katz(array, order=lags, vocab=symbols))
    bench.judge("witten_bell", witten_bell(array, order=lags, vocab=symbols))
    bench.judge("kneser_ney", kneser_ney(array, order=lags, vocab=symbols))
    return NearestEstimator(
        estimators=bench.ranking(),
        floor=floor,
        n=array.shape[0],
        success=not bench.troubles,
        message="; ".join(bench.troubles),
        provenance=provenance(checkpoint=checkpoint),
    )


@dataclass(frozen=True, kw_only=True)
class _Judged:
    estimator: str
    parameters: dict[str, Any]
    values: torch.Tensor
    floored: float
    tuned: bool


class _Bench:
    """The model's predictions, and the estimators that were measured against them."""

    def __init__(self, circuit: Circuit, tokens: torch.Tensor, *, floor: float) -> None:
        self.order, self.vocab, self.tokens, self.floor = circuit.order, circuit.vocab, tokens, floor
        self.model_laws = laws_of(circuit, tokens)
        self.counts = mask_counts(tokens, order=circuit.order, vocab=circuit.vocab)
        self.everyone = torch.arange(tokens.shape[0])
        self.judged: list[_Judged] = []
        self.troubles: list[str] = []

    def judge(self, name: str, laws: torch.Tensor, *, tuned: bool = False, **parameters: Any) -> None:
        short = (laws < self.floor) & (self.model_laws >= self.floor)
        self.judged.append(
            _Judged(
                estimator=name,
                parameters=parameters,
                values=kl_between(self.model_laws, laws, floor=self.floor),
                floored=float(short.any(-1).double().mean()),
                tuned=tuned,
            )
        )

    def tune_soft_matching(self, name: str, *, pseudo_counts: bool) -> None:
        def family(parameters: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
            kappa = parameters[self.order] if pseudo_counts else None
            return law_from_counts(self.counts[rows], beta=parameters[: self.order], kappa=kappa)

        starts = [[beta] * self.order + [kappa] * pseudo_counts for beta, kappa in ((1.0, 0.0), (3.0, 3.0))]
        best, laws = self._tuned(name, family, starts)
        kappa = {"kappa": float(best[self.order])} if pseudo_counts else {}
        self.judge(name, laws, tuned=True, beta=best[: self.order].tolist(), **kappa)

    def tune_add_alpha(self, name: str) -> None:
        full = self.counts[:, -1].double()

        def family(parameters: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
            votes = full[rows] + torch.exp(parameters[0])
            return votes / votes.sum(-1, keepdim=True)

        best, laws = self._tuned(name, family, [[0.0]])
        self.judge(name, laws, tuned=True, alpha=float(np.exp(best[0])))

    def tune_jelinek_mercer(self, name: str) -> None:
        # The mixture is linear in its weights: the corners of the simplex are the models of each order.
        corners = np.eye(self.order + 1)
        models = torch.stack(
            [jelinek_mercer(self.tokens, vocab=self.vocab, weights=corner) for corner in corners], dim=1
        )

        def family(parameters: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
            return torch.einsum("i,biv->bv", torch.softmax(parameters, dim=0), models[rows])

        best, laws = self._tuned(name, family, [[0.0] * (self.order + 1)])
        self.judge(name, laws, tuned=True, weights=torch.softmax(torch.from_numpy(best), dim=0).tolist())

    def ranking(self) -> tuple[EstimatorDistance, ...]:
        order = sorted(self.judged, key=lambda row: float(row.values.mean()))
        rows = []
        for row in order:
            kl, stderr = mean_stderr(row.values)
            behind, behind_stderr = mean_stderr(row.values - order[0].values)
            rows.append(
                EstimatorDistance(
                    estimator=row.estimator,
                    parameters=row.parameters,
                    kl=kl,
                    stderr=stderr,
                    behind=behind,
                    behind_stderr=behind_stderr,
                    floored=row.floored,
                    tuned=row.tuned,
                )
            )
        return tuple(rows)

    def _tuned(
        self, name: str, family: Family, starts: list[list[float]]
    ) -> tuple[Float[np.ndarray, " parameter"], Float[torch.Tensor, "batch vocab"]]:
        """The best parameters on all sequences, and laws for each half at the parameters of the other half."""
        best = self._minimum(name, family, self.everyone, starts)
        laws = torch.empty_like(self.model_laws)
        for half in (self.everyone[::2], self.everyone[1::2]):
            other = self.everyone[~torch.isin(self.everyone, half)]
            found = self._minimum(name, family, other, [best.tolist()])
            laws[half] = family(torch.from_numpy(found), half)
        return best, laws

    def _minimum(
        self, name: str, family: Family, rows: torch.Tensor, starts: list[list[float]]
    ) -> Float[np.ndarray, " parameter"]:
        target = self.model_laws[rows]

        def loss(point: NDArray[Any]) -> tuple[float, NDArray[Any]]:
            parameters = torch.tensor(point, dtype=torch.float64, requires_grad=True)
            with torch.enable_grad():
                value = kl_between(target, family(parameters, rows), floor=self.floor).mean()
                (gradient,) = torch.autograd.grad(value, parameters)
            return float(value.detach()), gradient.numpy()

        bounds = [(-WIDEST, WIDEST)] * len(starts[0])
        found = [minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds) for start in starts]
        best = min(found, key=lambda result: float(result.fun))
        if not best.success and len(rows) == len(self.everyone):
            self.troubles.append(f"{name}: the search for its parameters ended early ({best.message})")
        return np.asarray(best.x, dtype=np.float64)


def _text(parameters: dict[str, Any]) -> str:
    def show(value: Any) -> str:
        return "(" + ", ".join(map(show, value)) + ")" if isinstance(value, (list, tuple)) else f"{value:.4g}"

    return ", ".join(f"{name} {show(value)}" for name, value in parameters.items() if value is not None)
