"""One run of the study of conditions: the numbers of each instrument, as a row.

Cheap instruments measure every run: KL beside the optimum's on the same sequences, the fit of the law to the scores,
the blocks of the match weights, and the copy heads. Others edit the live model (`EDITS`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from analyses.parts.heldout import Sequences, excess_columns, measure
from analyses.running.options import CheckpointOptions
from analyses.running.zoo import predictor_of

if TYPE_CHECKING:
    import numpy as np

    from analyses.running.cache import Cache
    from analyses.running.subject import Subject
    from interp.estimators.optimal import OptimalParameters
    from interp.fitting.fits import MatchFit
    from interp.instruments.identity_blocks import BlockMap
    from interp.instruments.lag_pairs import PairFit

# Numbers of a run, by the instrument that gives them; docs in `analyses.studies.conditions`.
LOSS = ("kl", "excess", "excess_stderr", "excess_share")
SCORES = ("r2", "beta_1", "beta_2", "kappa", "gap", "sum_gap", "position", "aligned_share", "own_token")
BLOCKS = ("block_1", "block_2", "block_gap", "elsewhere", "residual", "score_elsewhere", "score_residual")
COPIES = ("copy_1", "copy_2")
EDITS = (
    "law", "law_stderr", "pair_law", "pair_law_stderr", "partial", "bos_share", "readout_share", "partial_alone",
    "readout_alone", "direct", "direct_stderr", "dependence",
)  # fmt: skip
QUANTITIES = (*LOSS, *SCORES, *BLOCKS, *COPIES, *EDITS)

RELABELINGS = 5
# Sequences on which a law replaces the attention. Where it does not fit, a few sequences dominate; long ones cost more.
EDITED, EDITED_KEYS, LEAST_EDITED = 512, 512 * 64, 256


def run_row(
    run: Subject,
    *,
    best: OptimalParameters,
    ideal: np.ndarray,
    sequences: Sequences,
    keys: int,
    edits: bool,
    cache: Cache,
) -> dict[str, Any]:
    """Every number of one run; None where the instrument does not apply or was not run."""
    from interp.instruments.beta_kappa import fit_scores
    from interp.instruments.lag_pairs import fit_score_pairs

    length = run.model_config["length"]
    subject = run.asked(CheckpointOptions(batch=max(64, keys // length), seed=sequences.seed))
    values = measure(sequences, predictor_of(run), cache).values
    columns = excess_columns(values, ideal)
    record = run.training
    found: dict[str, Any] = dict.fromkeys(QUANTITIES)
    found |= {name: columns[name] for name in LOSS}
    seen = subject.capture(copies=True)
    laws = fit_scores(seen), fit_score_pairs(seen)
    found |= read_scores(*laws, best) | read_blocks(subject, best) | read_copies(subject)
    if edits:
        batch = min(EDITED, max(LEAST_EDITED, EDITED_KEYS // length))
        found |= edit_model(subject) | recovered(run.asked(CheckpointOptions(batch=batch, seed=sequences.seed)))
    return {
        "run": run.name,
        "seed": record.get("seed"),
        "steps": record.get("steps"),
        **{name: _number(value) for name, value in found.items()},
    }


def read_scores(fit: MatchFit, pairs: PairFit, best: OptimalParameters) -> dict[str, Any]:
    """The law fitted to the scores, and what else the scores depend on."""
    own: list[float] = pairs.beta[:, 0].tolist() if pairs.success else []
    return {
        "r2": fit.r2,
        "beta_1": fit.beta[0],
        "beta_2": fit.beta[1],
        "kappa": fit.kappa,
        "gap": _largest_gap(fit.beta, best),
        "sum_gap": _sum_gap(fit, best),
        "position": fit.position_share,
        "aligned_share": pairs.aligned_share,
        "own_token": min(own, default=None),
    }


def read_blocks(subject: Subject, best: OptimalParameters) -> dict[str, Any]:
    """The blocks of the match weights, in the weights themselves and in the scores."""
    from interp.instruments.identity_blocks import identity_blocks

    blocks = identity_blocks(subject.model, subject.chains.tokens)
    scores = blocks["scores"]
    found: dict[str, Any] = {"score_elsewhere": _elsewhere(scores), "score_residual": scores.largest_residual}
    if subject.info.one_hot:
        weights = blocks["weights"]
        found |= {
            "block_1": weights.beta[0],
            "block_2": weights.beta[1],
            "block_gap": _largest_gap(weights.beta, best),
            "elsewhere": _elsewhere(weights),
            "residual": weights.largest_residual,
        }
    return found


def read_copies(subject: Subject) -> dict[str, Any]:
    """The attention of each copy head on its lag at the last query, the one that is trained."""
    from interp.instruments.copy_heads import copy_heads

    heads = copy_heads(subject.capture(copies=True))
    by_lag = {int(lag): float(mass) for lag, mass in zip(heads.lag, heads.last_mass, strict=True)}
    return {"copy_1": by_lag.get(1), "copy_2": by_lag.get(2)}


def edit_model(subject: Subject) -> dict[str, Any]:
    """The rise of KL with a source of smoothing switched off, and the KL to the relabeled model."""
    from interp.instruments.label_symmetry import label_symmetry
    from interp.instruments.smoothing_source import smoothing_source

    tokens = subject.chains.tokens
    source = smoothing_source(subject.model, tokens, next_law=subject.chains.next_law)
    parts = {part.source: part for part in source.shares if part.applies}
    return {
        "partial": parts["partial"].share,
        "bos_share": parts["bos"].share if "bos" in parts else None,
        "readout_share": parts["readout"].share if "readout" in parts else None,
        "partial_alone": source["partial"].change,
        "readout_alone": source["readout"].change if "readout" in parts else None,
        "dependence": label_symmetry(subject.model, tokens, draws=RELABELINGS).kl,
    }


def recovered(subject: Subject) -> dict[str, Any]:
    """The shares of loss that the law and the law of all pairs recover, and the gain without the match head."""
    from interp.instruments.beta_kappa import fit_scores
    from interp.instruments.causal import causal_tests
    from interp.instruments.direct_path import direct_path
    from interp.instruments.lag_pairs import fit_score_pairs

    seen, tokens, law = subject.capture(), subject.chains.tokens, subject.chains.next_law
    fit, pairs = fit_scores(seen), fit_score_pairs(seen)
    tests = causal_tests(
        subject.model,
        tokens,
        next_law=law,
        beta=fit.beta if fit.success else None,
        kappa=fit.kappa if fit.success else None,
        pairs=pairs.beta if pairs.success else None,
        pairs_kappa=pairs.kappa if pairs.success else None,
        only_laws=True,
    )
    path = direct_path(subject.model, tokens, next_law=law)
    return {
        "law": tests.loss_recovered,
        "law_stderr": tests.loss_recovered_stderr,
        "pair_law": tests.pair_loss_recovered,
        "pair_law_stderr": tests.pair_loss_recovered_stderr,
        "direct": path.gain,
        "direct_stderr": path.gain_stderr,
    }


def _elsewhere(blocks: BlockMap) -> float:
    """The largest identity coefficient of a block that is not aligned."""
    size = len(blocks.identity)
    return max(abs(float(blocks.identity[a, b])) for a in range(size) for b in range(size) if b != a + 1)


def _largest_gap(beta: Any, best: OptimalParameters) -> float:
    """How far the betas are from the optimum's at most; NaN where the optimum is at infinity."""
    return max(
        abs(float(one) - other) if math.isfinite(other) else math.nan
        for one, other in zip(beta, best.beta, strict=True)
    )


def _sum_gap(fit: MatchFit, best: OptimalParameters) -> float | None:
    """How far kappa less the sum of beta is from the optimum's, where every beta of the optimum is infinite."""
    if best.combination is None or fit.kappa is None or not all(best.flat):
        return None
    return abs(float(fit.kappa - fit.beta.sum()) - best.combination)


def _number(value: Any) -> Any:
    """NaN becomes None, because JSON has no NaN; other values are returned unchanged."""
    return None if value is None or (isinstance(value, float) and not math.isfinite(value)) else float(value)
