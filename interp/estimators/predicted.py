"""The optimum of soft matching, predicted from the prior alone: no sequence is drawn and no data are searched.

    predicted = predicted_parameters(prior, length=64, bos=True)
    predicted.beta, predicted.kappa                    beside those of `optimal_parameters`
    predicted.derived_beta, predicted.derived_kappa    without the fitted term
    predicted.leading_beta, predicted.leading_kappa    the leading order, explicit formulas

docs/concepts/optimum.md derives both, and says of every approximation how large it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.optimize import minimize

from interp.arguments import Switch, Whole, count, switch
from interp.chains.priors import Prior, check_prior
from interp.estimators.fitted_correction import fitted_correction
from interp.estimators.optimal import Optimum
from interp.estimators.soft_matching import beta_for_add_alpha
from interp.estimators.tree_risk import TreeRisk
from interp.results import provenance

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

Array: TypeAlias = NDArray[Any]

SLOPE = 5e-7  # of the closed-form loss at which the descent stops; the loss is flat where the KL is small
LARGEST_SLOPE = 1e-5  # of a descent that is accepted as converged
STEPS = 200
FAR = 5.0  # nats from the leading order: so far away the loss may be flat
PROBES = 16  # points at which the loss is read then


@dataclass(frozen=True, kw_only=True)
class PredictedParameters(Optimum):
    """The optimum of eq:transformer_estimator under a prior, as the law of the optimum predicts it.

    Only exact matches inform under the independent prior with BOS: there beta and kappa are infinite, and `combination`
    is ln(alpha |V|). `Optimum` has the other fields.

    derived_beta   by the derivation alone, without the fitted term
    derived_kappa  the same for kappa
    leading_beta   the leading order, an explicit formula
    leading_kappa  the same for kappa
    """

    derived_beta: tuple[float, ...]
    derived_kappa: float | None
    leading_beta: tuple[float, ...]
    leading_kappa: float | None

    @property
    def title(self) -> str:
        return f"predicted optimum of soft matching, {self._task}"

    def table(self) -> pd.DataFrame:
        """One row per parameter: parameter, predicted, derived, leading; then `combination` where there is one."""
        import pandas as pd

        kappas = (self.kappa, self.derived_kappa, self.leading_kappa)
        rows = self._rows(self.beta, self.derived_beta, self.leading_beta, kappas=kappas)
        if self.combination is not None:
            rows.append(("combination", *[self.combination] * 3))
        return pd.DataFrame(rows, columns=["parameter", "predicted", "derived", "leading"])

    def plot(self, ax: Axes | None = None) -> Axes:
        """beta per lag and kappa as predicted; what is infinite is written at the upper end."""
        values = self.table()["predicted"].to_numpy()
        return self._panel(ax, values, np.full(len(values), math.nan), note="predicted")


def predicted_parameters(prior: Prior, *, length: Whole, bos: Switch = True) -> PredictedParameters:
    """beta_1..beta_k (and kappa, with BOS) that minimise the closed-form loss `TreeRisk` under the prior at one length.

    The loss is a deterministic function of the prior and the length. A few quasi-Newton steps from the leading order
    find its minimum; nothing is sampled. Under the independent prior with BOS the answer is exact and needs no step:
    beta -> infinity with kappa - sum(beta) = ln(alpha |V|).

    A fitted term is added under the hierarchical prior, inside the range of the worlds it was fitted on
    (`fitted_correction`); `derived_beta` and `derived_kappa` are the derivation alone.

    Parameters
    ----------
    prior
        What the sequences are drawn from.
    length
        Tokens of a sequence, more than the order.
    bos
        Whether there is a BOS, and so a kappa.

    Returns
    -------
    PredictedParameters
        beta and kappa: predicted, by the derivation alone, and to leading order.

    Examples
    --------
    >>> from interp.chains.priors import HierarchicalDirichlet
    >>> prior = HierarchicalDirichlet(order=1, vocab=5, eta=(5.0,))
    >>> predicted_parameters(prior, length=64).beta[0] > predicted_parameters(prior, length=16).beta[0]
    True
    """
    length = count(length, name="length", least=check_prior(prior).order + 1)
    bos = switch(bos, name="bos")
    prior.require_symmetry("The closed form of beta and kappa takes every symbol to be equally frequent")
    leading_beta, leading_kappa = leading_order(prior, length=length, bos=bos)
    beta, kappa, combination, success, message = leading_beta, leading_kappa, None, True, "converged"
    if prior.independent and bos:
        combination = math.log(prior.concentrations()[-1])
        message = "exact: only kappa - sum(beta) is identified"
    else:
        start = np.array([*leading_beta, *([] if leading_kappa is None else [leading_kappa])])
        theta, gradient, ended = _descend(prior, start, length=length, bos=bos)
        slope = float(np.abs(gradient).max())
        success = slope < LARGEST_SLOPE
        if not success:
            message = f"the descent stopped with a slope of {slope:.1e}: {ended}"
        beta = tuple(float(value) for value in theta[: prior.order])
        kappa = float(theta[-1]) if bos else None
    derived_beta, derived_kappa = beta, kappa
    added = fitted_correction(prior, length=length, beta=beta, kappa=kappa) if success else None
    if added is not None:
        beta = tuple((np.array(beta) + added[: prior.order]).tolist())
        kappa = None if kappa is None else kappa + float(added[-1])
    elif success and not prior.independent:
        message = "converged; outside the range of the fitted term: the derivation alone"
    return PredictedParameters(
        beta=beta,
        kappa=kappa,
        combination=combination,
        derived_beta=derived_beta,
        derived_kappa=derived_kappa,
        leading_beta=leading_beta,
        leading_kappa=leading_kappa,
        length=length,
        bos=bos,
        order=prior.order,
        vocab=prior.vocab,
        success=success,
        message=message,
        provenance=provenance(seed=None, prior=prior.to_dict()),
    )


def _descend(prior: Prior, start: Array, *, length: int, bos: bool) -> tuple[Array, Array, str]:
    """First the minimum of the loss with all queries alike, which is cheap; from there the minimum of the loss itself.

    Where the loss is flat, the first minimum can be so far away that the second descent ends on the plateau. Then the
    loss is read along its flattest direction, back towards the start; from a lower point there is one more descent.
    Returns the parameters, the gradient there and how the descent ended.
    """
    options: Any = {"gtol": SLOPE, "maxiter": STEPS}
    alike: Any = TreeRisk(prior, length=length, bos=bos, spread=False)
    rough: Any = minimize(alike, start, jac=True, method="BFGS", options=options)
    risk: Any = TreeRisk(prior, length=length, bos=bos)
    known = {"hess_inv0": 0.5 * (rough.hess_inv + rough.hess_inv.T)}
    found: Any = minimize(risk, rough.x, jac=True, method="BFGS", options=options | known)
    far = np.abs(found.x - start).max()
    if far > FAR:
        flattest = np.linalg.eigh(found.hess_inv)[1][:, -1]
        back = flattest / np.abs(flattest).max() * np.sign(flattest @ (start - found.x))
        probes = found.x + np.linspace(0.0, far, PROBES)[:, None] * back
        lowest = int(np.argmin([float(risk.value(torch.from_numpy(probe))) for probe in probes]))
        if lowest > 0:
            found = minimize(risk, probes[lowest], jac=True, method="BFGS", options=options)
    return found.x, found.jac, str(found.message)


def leading_order(prior: Prior, *, length: int, bos: bool) -> tuple[tuple[float, ...], float | None]:
    """beta and kappa to leading order: the weights of the exact predictor where all contexts are visited alike.

    Under the independent prior without BOS it is the beta of lemma:optimal_beta.
    """
    order, vocab = prior.order, prior.vocab
    concentrations = prior.concentrations()
    if prior.independent:
        if bos:
            return (math.inf,) * order, math.inf
        beta = beta_for_add_alpha(
            length=max(length, order + 2), order=order, vocab=vocab, alpha=float(concentrations[-1] / vocab)
        )
        return (float(beta),) * order, None
    weights = suffix_weights(concentrations, vocab=vocab, keys=length - order)
    beta = np.log(weights[2:] / weights[1:-1])
    return tuple(beta.tolist()), float(np.log(weights[0] / weights[1])) if bos else None


def suffix_weights(
    concentrations: Float[np.ndarray, " depth"], *, vocab: int, keys: int
) -> Float[np.ndarray, " weight"]:
    """What one vote weighs in the exact predictor: BOS first, then keys with a common suffix of 0, 1, .., k tokens.

    m_l customers of a node at depth l, of which the share t_l = eta_l / (eta_l + m_l) are customers of its parent too:
    m_k = keys / |V|^k, m_{l-1} = |V| m_l t_l. A customer of depth l enters the prediction with w_k = 1 / (m_k + eta_k),
    w_{l-1} = w_l eta_l / (m_{l-1} + eta_{l-1}), and a key is one with probability t_{l+1} .. t_k.
    """
    order = len(concentrations) - 1
    customers, reach, enters = np.empty(order + 1), np.empty(order + 1), np.empty(order + 1)
    customers[order], reach[order] = keys / vocab**order, 1.0
    for depth in range(order, 0, -1):
        passed = concentrations[depth] / (concentrations[depth] + customers[depth])
        customers[depth - 1] = vocab * customers[depth] * passed
        reach[depth - 1] = reach[depth] * passed
    enters[order] = 1.0 / (customers[order] + concentrations[order])
    for depth in range(order, 0, -1):
        enters[depth - 1] = enters[depth] * concentrations[depth] / (customers[depth - 1] + concentrations[depth - 1])
    return np.append(concentrations[0] * enters[0], np.cumsum(enters * reach))
