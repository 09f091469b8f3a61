"""One run of the study of conditions: the numbers of each instrument, as a row.

Cheap instruments measure every run: KL beside the optimum's on the same sequences, the fit of the law to the scores,
the blocks of the match weights, and the copy heads. Others edit the live model (`EDITS`).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

import interp as ip
from analyses.parts.heldout import Sequences, excess_columns, measure, predictor_of
from analyses.running.options import CheckpointOptions

if TYPE_CHECKING:
    from analyses.running.cache import Cache
    from analyses.running.subject import Subject
    from interp.estimators.optimal import OptimalParameters
    from interp.instruments.identity_blocks import BlockMap

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
    length, seed = run.model_config["length"], sequences.seed
    subject = run.asked(CheckpointOptions(batch=max(64, keys // length), seed=seed))
    columns = excess_columns(measure(sequences, predictor_of(run), cache).values, ideal)
    found: dict[str, Any] = {name: columns[name] for name in LOSS} | read(subject, best)
    if edits:
        batch = min(EDITED, max(LEAST_EDITED, EDITED_KEYS // length))
        found |= edited(subject) | recovered(run.asked(CheckpointOptions(batch=batch, seed=seed)))
    known = {name: float(value) for name, value in found.items() if value is not None and math.isfinite(value)}
    return {
        "run": run.name,
        "seed": run.training.get("seed"),
        "steps": run.training.get("steps"),
        **{name: known.get(name) for name in QUANTITIES},
    }


def read(subject: Subject, best: OptimalParameters) -> dict[str, Any]:
    """The law fitted to the scores and what else they depend on, the blocks, and the copy heads at the last query."""
    seen = subject.capture(copies=True)
    fit, pairs, heads = ip.fit_scores(seen), ip.fit_score_pairs(seen), ip.copy_heads(seen)
    blocks = ip.identity_blocks(subject.model, subject.chains.tokens)
    scores = blocks["scores"]
    found: dict[str, Any] = {
        "r2": fit.r2,
        "beta_1": fit.beta[0],
        "beta_2": fit.beta[1],
        "kappa": fit.kappa,
        "gap": _largest_gap(fit.beta, best),
        "position": fit.position_share,
        "aligned_share": pairs.aligned_share,
        "own_token": pairs.beta[:, 0].min() if pairs.success else None,
        "score_elsewhere": _elsewhere(scores),
        "score_residual": scores.largest_residual,
    }
    if best.combination is not None and fit.kappa is not None and all(best.flat):
        found["sum_gap"] = abs(fit.kappa - fit.beta.sum() - best.combination)
    if subject.info.one_hot:
        weights = blocks["weights"]
        found |= {
            "block_1": weights.beta[0],
            "block_2": weights.beta[1],
            "block_gap": _largest_gap(weights.beta, best),
            "elsewhere": _elsewhere(weights),
            "residual": weights.largest_residual,
        }
    return found | {f"copy_{lag}": mass for lag, mass in zip(heads.lag.tolist(), heads.last_mass, strict=True)}


def edited(subject: Subject) -> dict[str, Any]:
    """The rise of KL with a source of smoothing switched off, and the KL to the relabeled model."""
    tokens = subject.chains.tokens
    source = ip.smoothing_source(subject.model, tokens, next_law=subject.chains.next_law)
    parts = {part.source: part.share for part in source.shares if part.applies}
    return {
        "partial": parts["partial"],
        "bos_share": parts.get("bos"),
        "readout_share": parts.get("readout"),
        "partial_alone": source["partial"].change,
        "readout_alone": source["readout"].change if "readout" in parts else None,
        "dependence": ip.label_symmetry(subject.model, tokens, draws=RELABELINGS).kl,
    }


def recovered(subject: Subject) -> dict[str, Any]:
    """The shares of loss that the law and the law of all pairs recover, and the gain without the match head."""
    seen, tokens, law = subject.capture(), subject.chains.tokens, subject.chains.next_law
    fit, pairs = ip.fit_scores(seen), ip.fit_score_pairs(seen)
    tests = ip.causal_tests(
        subject.model,
        tokens,
        next_law=law,
        law=fit,
        pair_law=pairs,
        only_laws=True,
    )
    path = ip.direct_path(subject.model, tokens, next_law=law)
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
    return float(np.abs(blocks.identity[~np.eye(len(blocks.identity), k=1, dtype=bool)]).max())


def _largest_gap(beta: np.ndarray, best: OptimalParameters) -> float:
    """How far the betas are from the optimum's at most; NaN where the optimum is at infinity."""
    gaps = np.abs(np.asarray(beta) - best.beta)
    return float(gaps.max()) if np.isfinite(gaps).all() else math.nan
