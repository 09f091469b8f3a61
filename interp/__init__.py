"""interp: instruments for one claim, that an induction head is a smoothed n-gram estimator.

    import interp as ip

Names load on first use, so that importing the package is instant. `interp.notation` is the glossary.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from interp.bayes import BayesPredictive as BayesPredictive
    from interp.bayes import bayes_predictive as bayes_predictive
    from interp.blocks import IdentityBlocks as IdentityBlocks
    from interp.blocks import identity_blocks as identity_blocks
    from interp.causal import CausalTests as CausalTests
    from interp.causal import causal_tests as causal_tests
    from interp.chains import ChainBatch as ChainBatch
    from interp.chains import HierarchicalDirichlet as HierarchicalDirichlet
    from interp.chains import IndependentDirichlet as IndependentDirichlet
    from interp.chains import Prior as Prior
    from interp.chains import prior_from_dict as prior_from_dict
    from interp.checkpoint import CheckpointError as CheckpointError
    from interp.checkpoint import CheckpointInfo as CheckpointInfo
    from interp.checkpoint import load as load
    from interp.checkpoint import read_info as read_info
    from interp.checkpoint import save as save
    from interp.classical import JelinekMercerFit as JelinekMercerFit
    from interp.classical import context_tree_weighting as context_tree_weighting
    from interp.classical import jelinek_mercer as jelinek_mercer
    from interp.classical import katz as katz
    from interp.classical import kneser_ney as kneser_ney
    from interp.classical import tune_jelinek_mercer as tune_jelinek_mercer
    from interp.classical import witten_bell as witten_bell
    from interp.construction import construct as construct
    from interp.construction import write_construction as write_construction
    from interp.copying import CopyHeads as CopyHeads
    from interp.copying import copy_heads as copy_heads
    from interp.counts import cumulative_counts as cumulative_counts
    from interp.counts import mask_counts as mask_counts
    from interp.counts import match_masks as match_masks
    from interp.counts import superset_difference as superset_difference
    from interp.counts import superset_sum as superset_sum
    from interp.direct import DirectPath as DirectPath
    from interp.direct import direct_path as direct_path
    from interp.divergence import KL_FLOOR as KL_FLOOR
    from interp.divergence import Divergence as Divergence
    from interp.divergence import kl_divergence as kl_divergence
    from interp.estimators import OrderMixture as OrderMixture
    from interp.estimators import add_alpha as add_alpha
    from interp.estimators import beta_for_add_alpha as beta_for_add_alpha
    from interp.estimators import maximum_likelihood as maximum_likelihood
    from interp.estimators import order_mixture as order_mixture
    from interp.estimators import soft_matching as soft_matching
    from interp.estimators import soft_matching_from_counts as soft_matching_from_counts
    from interp.estimators import soft_matching_pairs as soft_matching_pairs
    from interp.fits import MatchFit as MatchFit
    from interp.fits import fit_scores as fit_scores
    from interp.hooked import InductionConfig as InductionConfig
    from interp.hooked import InductionTransformer as InductionTransformer
    from interp.mass import OverlapMass as OverlapMass
    from interp.mass import overlap_mass as overlap_mass
    from interp.nearest import NearestEstimator as NearestEstimator
    from interp.nearest import nearest_estimator as nearest_estimator
    from interp.notation import is_contiguous as is_contiguous
    from interp.notation import mask_name as mask_name
    from interp.notation import overlap as overlap
    from interp.observe import Capture as Capture
    from interp.observe import capture as capture
    from interp.observe import predict as predict
    from interp.optimal import OptimalParameters as OptimalParameters
    from interp.optimal import optimal_parameters as optimal_parameters
    from interp.pairs import PairFit as PairFit
    from interp.pairs import fit_score_pairs as fit_score_pairs
    from interp.pseudo import expected_cumulative_count as expected_cumulative_count
    from interp.pseudo import pseudo_counts as pseudo_counts
    from interp.readout import VoteWeight as VoteWeight
    from interp.readout import vote_weight as vote_weight
    from interp.results import Result as Result
    from interp.results import mean_stderr as mean_stderr
    from interp.results import provenance as provenance
    from interp.smoothing import SmoothingSource as SmoothingSource
    from interp.smoothing import smoothing_source as smoothing_source
    from interp.symmetry import LabelSymmetry as LabelSymmetry
    from interp.symmetry import label_symmetry as label_symmetry

_HOMES = {
    "bayes": (
        "BayesPredictive",
        "bayes_predictive",
    ),
    "blocks": (
        "IdentityBlocks",
        "identity_blocks",
    ),
    "causal": (
        "CausalTests",
        "causal_tests",
    ),
    "chains": (
        "ChainBatch",
        "HierarchicalDirichlet",
        "IndependentDirichlet",
        "Prior",
        "prior_from_dict",
    ),
    "checkpoint": (
        "CheckpointError",
        "CheckpointInfo",
        "load",
        "read_info",
        "save",
    ),
    "classical": (
        "JelinekMercerFit",
        "context_tree_weighting",
        "jelinek_mercer",
        "katz",
        "kneser_ney",
        "tune_jelinek_mercer",
        "witten_bell",
    ),
    "construction": (
        "construct",
        "write_construction",
    ),
    "copying": (
        "CopyHeads",
        "copy_heads",
    ),
    "counts": (
        "cumulative_counts",
        "mask_counts",
        "match_masks",
        "superset_difference",
        "superset_sum",
    ),
    "direct": (
        "DirectPath",
        "direct_path",
    ),
    "divergence": (
        "Divergence",
        "KL_FLOOR",
        "kl_divergence",
    ),
    "estimators": (
        "OrderMixture",
        "add_alpha",
        "beta_for_add_alpha",
        "maximum_likelihood",
        "order_mixture",
        "soft_matching",
        "soft_matching_from_counts",
        "soft_matching_pairs",
    ),
    "fits": (
        "MatchFit",
        "fit_scores",
    ),
    "hooked": (
        "InductionConfig",
        "InductionTransformer",
    ),
    "mass": (
        "OverlapMass",
        "overlap_mass",
    ),
    "nearest": (
        "NearestEstimator",
        "nearest_estimator",
    ),
    "notation": (
        "is_contiguous",
        "mask_name",
        "overlap",
    ),
    "observe": (
        "Capture",
        "capture",
        "predict",
    ),
    "optimal": (
        "OptimalParameters",
        "optimal_parameters",
    ),
    "pairs": (
        "PairFit",
        "fit_score_pairs",
    ),
    "pseudo": (
        "expected_cumulative_count",
        "pseudo_counts",
    ),
    "readout": (
        "VoteWeight",
        "vote_weight",
    ),
    "results": (
        "Result",
        "mean_stderr",
        "provenance",
    ),
    "smoothing": (
        "SmoothingSource",
        "smoothing_source",
    ),
    "symmetry": (
        "LabelSymmetry",
        "label_symmetry",
    ),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__version__ = "0.1.0"
__all__ = [*sorted(_HOME_OF), "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'interp' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"interp.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
