"""interp: instruments for one claim, that an induction head is a smoothed n-gram estimator.

    import interp as ip

Names load on first use, so that importing the package is instant. `interp.notation` is the glossary.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from interp.chains.batch import ChainBatch as ChainBatch
    from interp.chains.descriptions import parse_prior as parse_prior
    from interp.chains.descriptions import prior_from_dict as prior_from_dict
    from interp.chains.priors import HierarchicalDirichlet as HierarchicalDirichlet
    from interp.chains.priors import IndependentDirichlet as IndependentDirichlet
    from interp.chains.priors import Prior as Prior
    from interp.chains.priors import register_prior as register_prior
    from interp.circuit.capture import Capture as Capture
    from interp.circuit.capture import capture as capture
    from interp.circuit.checkpoint import load as load
    from interp.circuit.checkpoint import save as save
    from interp.circuit.circuit import Circuit as Circuit
    from interp.circuit.runner import predict as predict
    from interp.divergence import KL_FLOOR as KL_FLOOR
    from interp.divergence import Divergence as Divergence
    from interp.divergence import kl_divergence as kl_divergence
    from interp.estimators.bayes import BayesPredictive as BayesPredictive
    from interp.estimators.bayes import bayes_predictive as bayes_predictive
    from interp.estimators.classical import JelinekMercerFit as JelinekMercerFit
    from interp.estimators.classical import jelinek_mercer as jelinek_mercer
    from interp.estimators.classical import katz as katz
    from interp.estimators.classical import kneser_ney as kneser_ney
    from interp.estimators.classical import tune_jelinek_mercer as tune_jelinek_mercer
    from interp.estimators.classical import witten_bell as witten_bell
    from interp.estimators.context_trees import context_tree_weighting as context_tree_weighting
    from interp.estimators.counts import cumulative_counts as cumulative_counts
    from interp.estimators.counts import mask_counts as mask_counts
    from interp.estimators.counts import match_masks as match_masks
    from interp.estimators.counts import superset_difference as superset_difference
    from interp.estimators.counts import superset_sum as superset_sum
    from interp.estimators.optimal import OptimalParameters as OptimalParameters
    from interp.estimators.optimal import optimal_parameters as optimal_parameters
    from interp.estimators.predicted import PredictedParameters as PredictedParameters
    from interp.estimators.predicted import predicted_parameters as predicted_parameters
    from interp.estimators.pseudo_counts import expected_cumulative_count as expected_cumulative_count
    from interp.estimators.pseudo_counts import pseudo_counts as pseudo_counts
    from interp.estimators.soft_matching import OrderMixture as OrderMixture
    from interp.estimators.soft_matching import add_alpha as add_alpha
    from interp.estimators.soft_matching import beta_for_add_alpha as beta_for_add_alpha
    from interp.estimators.soft_matching import maximum_likelihood as maximum_likelihood
    from interp.estimators.soft_matching import order_mixture as order_mixture
    from interp.estimators.soft_matching import soft_matching as soft_matching
    from interp.estimators.soft_matching import soft_matching_from_counts as soft_matching_from_counts
    from interp.estimators.soft_matching import soft_matching_pairs as soft_matching_pairs
    from interp.estimators.tuned_alpha import AddAlphaFit as AddAlphaFit
    from interp.estimators.tuned_alpha import tune_add_alpha as tune_add_alpha
    from interp.fitting.attention_fit import AttentionFit as AttentionFit
    from interp.fitting.match_fit import MatchFit as MatchFit
    from interp.hooked.checkpoint import CheckpointError as CheckpointError
    from interp.hooked.checkpoint import CheckpointInfo as CheckpointInfo
    from interp.hooked.checkpoint import read_info as read_info
    from interp.hooked.config import InductionConfig as InductionConfig
    from interp.hooked.construction import construct as construct
    from interp.hooked.construction import write_construction as write_construction
    from interp.hooked.transformer import InductionTransformer as InductionTransformer
    from interp.instruments.beta_kappa import fit_scores as fit_scores
    from interp.instruments.causal import CausalTests as CausalTests
    from interp.instruments.causal import causal_tests as causal_tests
    from interp.instruments.compare_laws import LawComparison as LawComparison
    from interp.instruments.compare_laws import compare_laws as compare_laws
    from interp.instruments.copy_heads import CopyHeads as CopyHeads
    from interp.instruments.copy_heads import copy_heads as copy_heads
    from interp.instruments.copying_scores import CopyingScores as CopyingScores
    from interp.instruments.copying_scores import HeadVote as HeadVote
    from interp.instruments.copying_scores import copying_scores as copying_scores
    from interp.instruments.direct_path import DirectPath as DirectPath
    from interp.instruments.direct_path import direct_path as direct_path
    from interp.instruments.find_circuit import FoundCircuit as FoundCircuit
    from interp.instruments.find_circuit import find_circuit as find_circuit
    from interp.instruments.head_scan import HeadScan as HeadScan
    from interp.instruments.identity_blocks import IdentityBlocks as IdentityBlocks
    from interp.instruments.identity_blocks import identity_blocks as identity_blocks
    from interp.instruments.label_symmetry import LabelSymmetry as LabelSymmetry
    from interp.instruments.label_symmetry import label_symmetry as label_symmetry
    from interp.instruments.lag_pairs import PairFit as PairFit
    from interp.instruments.lag_pairs import fit_score_pairs as fit_score_pairs
    from interp.instruments.layers import LawByLayer as LawByLayer
    from interp.instruments.layers import law_by_layer as law_by_layer
    from interp.instruments.nearest_estimator import NearestEstimator as NearestEstimator
    from interp.instruments.nearest_estimator import nearest_estimator as nearest_estimator
    from interp.instruments.overlap_mass import OverlapMass as OverlapMass
    from interp.instruments.overlap_mass import overlap_mass as overlap_mass
    from interp.instruments.replaced_heads import ReplacedHead as ReplacedHead
    from interp.instruments.replaced_heads import ReplacedHeads as ReplacedHeads
    from interp.instruments.replacement import replace_heads as replace_heads
    from interp.instruments.scan_heads import scan_heads as scan_heads
    from interp.instruments.smoothing_source import SmoothingSource as SmoothingSource
    from interp.instruments.smoothing_source import smoothing_source as smoothing_source
    from interp.instruments.vote_weight import VoteWeight as VoteWeight
    from interp.instruments.vote_weight import vote_weight as vote_weight
    from interp.language.load import LanguageModel as LanguageModel
    from interp.language.load import load_language_model as load_language_model
    from interp.language.prompts import Prompts as Prompts
    from interp.language.prompts import natural_text as natural_text
    from interp.language.prompts import prompts as prompts
    from interp.language.prompts import repeated_tokens as repeated_tokens
    from interp.language.weights import LanguageModelError as LanguageModelError
    from interp.notation import is_contiguous as is_contiguous
    from interp.notation import mask_name as mask_name
    from interp.notation import overlap as overlap
    from interp.results import Result as Result
    from interp.results import mean_stderr as mean_stderr
    from interp.results import provenance as provenance

_HOMES = {
    "estimators.bayes": (
        "BayesPredictive",
        "bayes_predictive",
    ),
    "instruments.identity_blocks": (
        "IdentityBlocks",
        "identity_blocks",
    ),
    "instruments.causal": (
        "CausalTests",
        "causal_tests",
    ),
    "chains.batch": ("ChainBatch",),
    "chains.descriptions": (
        "parse_prior",
        "prior_from_dict",
    ),
    "chains.priors": (
        "HierarchicalDirichlet",
        "IndependentDirichlet",
        "Prior",
        "register_prior",
    ),
    "hooked.checkpoint": (
        "CheckpointError",
        "CheckpointInfo",
        "read_info",
    ),
    "estimators.context_trees": ("context_tree_weighting",),
    "estimators.tuned_alpha": (
        "AddAlphaFit",
        "tune_add_alpha",
    ),
    "estimators.classical": (
        "JelinekMercerFit",
        "jelinek_mercer",
        "katz",
        "kneser_ney",
        "tune_jelinek_mercer",
        "witten_bell",
    ),
    "hooked.construction": (
        "construct",
        "write_construction",
    ),
    "instruments.copy_heads": (
        "CopyHeads",
        "copy_heads",
    ),
    "estimators.counts": (
        "cumulative_counts",
        "mask_counts",
        "match_masks",
        "superset_difference",
        "superset_sum",
    ),
    "instruments.copying_scores": (
        "CopyingScores",
        "HeadVote",
        "copying_scores",
    ),
    "instruments.direct_path": (
        "DirectPath",
        "direct_path",
    ),
    "divergence": (
        "Divergence",
        "KL_FLOOR",
        "kl_divergence",
    ),
    "estimators.soft_matching": (
        "OrderMixture",
        "add_alpha",
        "beta_for_add_alpha",
        "maximum_likelihood",
        "order_mixture",
        "soft_matching",
        "soft_matching_from_counts",
        "soft_matching_pairs",
    ),
    "fitting.attention_fit": ("AttentionFit",),
    "instruments.compare_laws": (
        "LawComparison",
        "compare_laws",
    ),
    "instruments.beta_kappa": ("fit_scores",),
    "fitting.match_fit": ("MatchFit",),
    "hooked.config": ("InductionConfig",),
    "hooked.transformer": ("InductionTransformer",),
    "instruments.overlap_mass": (
        "OverlapMass",
        "overlap_mass",
    ),
    "instruments.layers": (
        "LawByLayer",
        "law_by_layer",
    ),
    "instruments.nearest_estimator": (
        "NearestEstimator",
        "nearest_estimator",
    ),
    "language.load": (
        "LanguageModel",
        "load_language_model",
    ),
    "language.prompts": (
        "Prompts",
        "natural_text",
        "prompts",
        "repeated_tokens",
    ),
    "language.weights": ("LanguageModelError",),
    "notation": (
        "is_contiguous",
        "mask_name",
        "overlap",
    ),
    "circuit.capture": (
        "Capture",
        "capture",
    ),
    "circuit.checkpoint": (
        "load",
        "save",
    ),
    "circuit.circuit": ("Circuit",),
    "circuit.runner": ("predict",),
    "estimators.optimal": (
        "OptimalParameters",
        "optimal_parameters",
    ),
    "estimators.predicted": (
        "PredictedParameters",
        "predicted_parameters",
    ),
    "instruments.lag_pairs": (
        "PairFit",
        "fit_score_pairs",
    ),
    "estimators.pseudo_counts": (
        "expected_cumulative_count",
        "pseudo_counts",
    ),
    "instruments.vote_weight": (
        "VoteWeight",
        "vote_weight",
    ),
    "results": (
        "Result",
        "mean_stderr",
        "provenance",
    ),
    "instruments.replaced_heads": (
        "ReplacedHead",
        "ReplacedHeads",
    ),
    "instruments.replacement": ("replace_heads",),
    "instruments.find_circuit": (
        "FoundCircuit",
        "find_circuit",
    ),
    "instruments.head_scan": ("HeadScan",),
    "instruments.scan_heads": ("scan_heads",),
    "instruments.smoothing_source": (
        "SmoothingSource",
        "smoothing_source",
    ),
    "instruments.label_symmetry": (
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
