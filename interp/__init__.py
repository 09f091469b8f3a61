"""interp: instruments for one claim, that an induction head is a smoothed n-gram estimator.

    import interp as ip

Names load on first use, so that importing the package is instant. `interp.notation` is the glossary.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    from interp.construction import construct as construct
    from interp.construction import write_construction as write_construction
    from interp.counts import cumulative_counts as cumulative_counts
    from interp.counts import mask_counts as mask_counts
    from interp.counts import match_masks as match_masks
    from interp.counts import superset_difference as superset_difference
    from interp.counts import superset_sum as superset_sum
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
    from interp.hooked import InductionConfig as InductionConfig
    from interp.hooked import InductionTransformer as InductionTransformer
    from interp.notation import is_contiguous as is_contiguous
    from interp.notation import mask_name as mask_name
    from interp.notation import overlap as overlap
    from interp.observe import Capture as Capture
    from interp.observe import capture as capture
    from interp.observe import predict as predict
    from interp.results import Result as Result
    from interp.results import mean_stderr as mean_stderr
    from interp.results import provenance as provenance

_HOMES = {
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
    "construction": (
        "construct",
        "write_construction",
    ),
    "counts": (
        "cumulative_counts",
        "mask_counts",
        "match_masks",
        "superset_difference",
        "superset_sum",
    ),
    "divergence": (
        "Divergence",
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
    "hooked": (
        "InductionConfig",
        "InductionTransformer",
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
    "results": (
        "Result",
        "mean_stderr",
        "provenance",
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
