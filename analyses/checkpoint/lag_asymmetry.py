"""Does the most recent token have the larger weight: is beta_1 > beta_2?

Over several checkpoints: the effective betas, which the scores show, beside the raw coefficients of the weight blocks.
Raw blocks can mislead where a copy head is not sharp: other tokens dilute its block, so training makes its weight
larger to reach the same effective match. The paper reads the asymmetry from the blocks; both are shown here. Under the
hierarchical prior beta_1 > beta_2 is expected, because contexts that share their most recent token share a parent;
under the independent prior the lags are exchangeable.

    python -m analyses lag_asymmetry models/checkpoints/hierarchical_bos/disentangled/soft/T*_seed?
"""

from __future__ import annotations

import math

from analyses.running.ask import Ask, not_long, up_to
from analyses.running.options import CheckpointOptions
from analyses.running.subject import Subject
from analyses.running.table import Table
from interp.digits import plus_minus

ASK = Ask(select=not_long(up_to(256)), cost=0.1)
COLUMNS = ("prior", "length", "beta_1", "beta_2", "difference", "stderr", "raw_1", "raw_2", "asymmetric")
SIGMAS = 3.0
LEGEND = {
    "beta": "fitted to the scores of the last query, as in `beta_kappa`; none where the scores do not follow the law",
    "difference": "beta_1 - beta_2",
    "asymmetric": f"which of them is larger by {SIGMAS:g} standard errors",
    "raw": "the same read from the aligned blocks of W_A; the standard family has no such blocks",
}
ROUNDING = 1e-6  # a construction has no noise: equal betas differ by rounding only


def applies(subject: Subject) -> str | None:
    return "order 1 has one lag, so there is nothing to compare" if subject.model_config["order"] < 2 else None


def analyse(subject: Subject, options: CheckpointOptions) -> Table:
    """One checkpoint: its betas from the scores, and from its weight blocks."""
    fit = subject.fit(subject.capture())
    difference = stderr = math.nan
    asymmetric = None
    if fit.success:
        difference = float(fit.beta[0] - fit.beta[1])
        covariance = fit.covariance
        stderr = math.sqrt(max(0.0, covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]))
        if abs(difference) > max(SIGMAS * stderr, ROUNDING):
            asymmetric = "beta_1" if difference > 0 else "beta_2"
    raw = _raw_blocks(subject)
    row = {
        "family": subject.model_config["family"],
        "prior": subject.prior.kind,
        "length": subject.model_config["length"],
        "fit": fit.success,
        "beta_1": fit.beta[0],
        "beta_2": fit.beta[1],
        "difference": difference,
        "stderr": stderr,
        "asymmetric": asymmetric,
        "raw_1": raw[0],
        "raw_2": raw[1],
        "r2": fit.r2,
    }
    text = f"beta_1 - beta_2 = {plus_minus(difference, stderr)}" if fit.success else "the scores do not follow the law"
    text += f"; in the weight blocks {raw[0] - raw[1]:.3f}" if subject.info.one_hot else ""
    return Table(rows=[row], text=text)


def _raw_blocks(subject: Subject) -> tuple[float, float]:
    """Identity coefficients of the aligned weight blocks of lags 1 and 2; NaN where weights have no blocks."""
    from models.families.disentangled import weights as disentangled

    if not subject.info.one_hot:
        return math.nan, math.nan
    beta, _ = disentangled.read_weights(subject.model.config, disentangled.from_hooked(subject.model))
    return beta[0], beta[1]
