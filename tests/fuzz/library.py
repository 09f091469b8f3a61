"""Library functions with odd tokens and parameters: a law comes out, or a `ValueError` of one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from hypothesis import strategies as st

import interp as ip
from interp.chains.priors import PRIORS
from interp.estimators.counts import superset_difference, superset_sum
from interp.estimators.pseudo_counts import expected_cumulative_count
from interp.hooked.config import InductionConfig
from interp.hooked.construction import write_construction
from interp.notation import is_contiguous, overlap
from tests.fuzz.found import wrong_result
from tests.fuzz.room import Sandbox, run_call
from tests.fuzz.values import mostly, numbers, one_in, texts

Case = tuple[str, dict[str, Any]]

SHAPES = st.tuples(st.integers(1, 3), st.integers(3, 9))


@st.composite
def tokens(draw: st.DrawFn) -> Any:
    """Tokens of every kind, good ones more often than not."""
    batch, length = draw(SHAPES)
    array = draw(st.integers(0, 2**16).map(lambda seed: np.random.default_rng(seed).integers(0, 3, (batch, length))))
    if not draw(one_in(3)):
        return array
    return draw(
        st.sampled_from(
            [
                array,
                array,
                array,
                array.tolist(),
                torch.from_numpy(array),
                array.astype(np.int8),
                array.astype(np.uint64),
                array - 1,
                array * 100,
                array.astype(float),
                array.astype(bool),
                array.astype(str),
                array[0],
                array[None],
                array[:0],
                array[:, :0],
                array[:, :1],
                array.T[::-1],
                np.ma.masked_array(array),
                [[0, 1], [0]],
                [[True, 0, 1]],
                [[None, 1, 0]],
                None,
                3,
                "012",
                {},
                [[10**30, 0, 1]],
            ]
        )
    )


ORDER, VOCAB = mostly(st.integers(1, 3)), mostly(st.integers(2, 5))
EVERY = mostly(st.booleans())
POSITIVE = mostly(st.sampled_from([0.1, 1.0, 5.0, 1e-100, 1e100]))
BETAS = st.lists(mostly(st.floats(-5, 5)), min_size=1, max_size=3)
KAPPA = mostly(st.one_of(st.none(), st.floats(-5, 5)))
SIZES = {"order": ORDER, "vocab": VOCAB, "every_position": EVERY}
SMALL = mostly(st.integers(2, 12))
SEED = mostly(st.integers(0, 3))


@st.composite
def priors(draw: st.DrawFn) -> Any:
    """A prior, or a `ValueError` where its numbers are no prior's, or something else."""
    if draw(one_in(10)):
        return draw(numbers())
    if draw(st.booleans()):
        return ip.IndependentDirichlet(order=2, vocab=3, alpha=draw(st.sampled_from([0.1, 1.0, 1e-100, 1e100])))
    return ip.HierarchicalDirichlet(order=2, vocab=3, eta=(draw(st.sampled_from([1e-100, 5.0, 1e100])), 5.0))


def is_law(found: Any) -> str | None:
    """What is wrong with laws; None if nothing is."""
    law = found.detach()
    if not torch.isfinite(law).all() or (law < 0).any():
        return "a law with a negative or non-finite entry"
    off = (law.double().sum(-1) - 1).abs()
    return f"a law that is off by {float(off.max()):.2g}" if off.numel() and float(off.max()) > 1e-6 else None


def is_finite(found: Any) -> str | None:
    """What is wrong with counts."""
    return None if torch.isfinite(torch.as_tensor(found)).all() else "a count that is not finite"


def anything(found: Any) -> None:
    """Nothing to check."""


def sampled(*, prior: dict[str, Any], kind: str, batch: Any, length: Any, seed: Any, method: str) -> Any:
    classes = {"independent": ip.IndependentDirichlet, "hierarchical": ip.HierarchicalDirichlet}
    return classes[kind](**prior).sample(batch=batch, length=length, seed=seed, method=method).next_law


class OtherPrior(ip.IndependentDirichlet):
    """A kind of its own."""

    kind = "another"


def registered(*, prior: Any) -> None:
    """Register a kind of prior, and forget it again."""
    with patch.dict(PRIORS):
        ip.register_prior(prior)


def written(*, family: str, bos: bool, beta: Any, kappa: Any) -> Any:
    """What a model predicts after the construction was written into it."""
    widths = {"d_model": 8, "d_mlp": 8} if family == "standard" else {}
    readout = "logit" if family == "standard" else "probability"
    config = InductionConfig(family=family, order=2, vocab=3, length=4, bos=bos, readout=readout, **widths)
    model = ip.InductionTransformer(config)
    write_construction(model, beta=beta, kappa=kappa)
    return ip.predict(model, [[0, 1, 2, 0]])


HIERARCHICAL = st.fixed_dictionaries({"order": ORDER, "vocab": VOCAB, "eta": BETAS, "eta0": POSITIVE})
INDEPENDENT = st.fixed_dictionaries({"order": ORDER, "vocab": VOCAB, "alpha": POSITIVE})
DRAWN = {"batch": SMALL, "length": SMALL, "seed": SEED, "method": st.sampled_from(["explicit", "collapsed", "other"])}
COUNTS = st.sampled_from(
    [
        np.ones((4, 3)),
        np.ones((4, 3), dtype=np.uint8),
        -np.ones((4, 3)),
        np.full((4, 3), np.nan),
        np.ones((3, 3)),
        np.ones(4),
        np.zeros((4, 3)),
        np.ones((2, 4, 3), dtype=bool),
        np.full((4, 3), 1e308),
        torch.ones(4, 3, requires_grad=True),
        [[1, 2], [3, 4]],
        None,
        "x",
    ]
)
LAWS = st.sampled_from(
    [
        torch.full((2, 3), 1 / 3),
        np.full((2, 3), 1 / 3),
        [[0.5, 0.5]],
        torch.eye(3),
        np.eye(3, dtype=bool),
        -torch.eye(3),
        torch.zeros(0, 3),
        np.nan,
        "x",
    ]
)

# name -> (function, its arguments, what its result must be)
FUNCTIONS: dict[str, tuple[Callable[..., Any], dict[str, st.SearchStrategy[Any]], Callable[[Any], str | None]]] = {
    "soft_matching": (
        ip.soft_matching,
        {"tokens": tokens(), "vocab": VOCAB, "beta": BETAS, "kappa": KAPPA, "every_position": EVERY},
        is_law,
    ),
    "soft_matching_pairs": (
        ip.soft_matching_pairs,
        {"tokens": tokens(), "vocab": VOCAB, "beta": st.lists(BETAS, min_size=1, max_size=3), "kappa": KAPPA},
        is_law,
    ),
    "soft_matching_from_counts": (
        ip.soft_matching_from_counts,
        {"counts": COUNTS, "beta": BETAS, "kappa": KAPPA},
        is_law,
    ),
    "maximum_likelihood": (ip.maximum_likelihood, {"tokens": tokens(), **SIZES}, is_law),
    "add_alpha": (ip.add_alpha, {"tokens": tokens(), **SIZES, "alpha": POSITIVE}, is_law),
    "jelinek_mercer": (
        ip.jelinek_mercer,
        {"tokens": tokens(), "vocab": VOCAB, "weights": st.one_of(st.just((0.2, 0.8)), BETAS)},
        is_law,
    ),
    "katz": (
        ip.katz,
        {"tokens": tokens(), **SIZES, "discount": st.sampled_from([None, "absolute", "good_turing", 1])},
        is_law,
    ),
    "witten_bell": (ip.witten_bell, {"tokens": tokens(), **SIZES}, is_law),
    "kneser_ney": (ip.kneser_ney, {"tokens": tokens(), **SIZES, "discount": KAPPA}, is_law),
    "context_tree_weighting": (ip.context_tree_weighting, {"tokens": tokens(), **SIZES, "alpha": POSITIVE}, is_law),
    "order_mixture": (
        ip.order_mixture,
        {"tokens": tokens(), "order": ORDER, "vocab": VOCAB, "beta": POSITIVE},
        anything,
    ),
    "pseudo_counts": (ip.pseudo_counts, {"tokens": tokens(), **SIZES, "beta": mostly(st.floats(0.1, 9))}, is_finite),
    "mask_counts": (ip.mask_counts, {"tokens": tokens(), **SIZES}, is_finite),
    "match_masks": (ip.match_masks, {"tokens": tokens(), "order": ORDER, "every_position": EVERY}, is_finite),
    "superset_sum": (superset_sum, {"counts": COUNTS}, anything),
    "superset_difference": (superset_difference, {"counts": COUNTS}, anything),
    "bayes_predictive": (
        lambda **given: ip.bayes_predictive(**given).mean,
        {
            "tokens": tokens(),
            "prior": priors(),
            "draws": mostly(st.integers(8, 16)),
            "seed": SEED,
            "chains": mostly(st.just(2)),
            "burn_in": mostly(st.just(1)),
        },
        is_law,
    ),
    "bayes_predictive to an error": (
        lambda **given: ip.bayes_predictive(**given).mean,
        {"tokens": tokens(), "prior": priors(), "draws": mostly(st.just(8)), "error": POSITIVE, "seed": SEED},
        is_law,
    ),
    "predicted_parameters": (
        ip.predicted_parameters,
        {"prior": priors(), "length": SMALL, "bos": EVERY, "fitted": EVERY},
        wrong_result,
    ),
    "optimal_parameters": (
        ip.optimal_parameters,
        {"prior": priors(), "length": SMALL, "bos": EVERY, "draws": mostly(st.integers(50, 200)), "seed": SEED},
        wrong_result,
    ),
    "tune_add_alpha": (
        ip.tune_add_alpha,
        {"prior": priors(), "length": SMALL, "order": ORDER, "draws": mostly(st.integers(20, 50)), "seed": SEED},
        wrong_result,
    ),
    "tune_jelinek_mercer": (
        ip.tune_jelinek_mercer,
        {
            "prior": priors(),
            "length": SMALL,
            "order": ORDER,
            "draws": mostly(st.integers(20, 50)),
            "seed": SEED,
            "steps": mostly(st.integers(1, 9)),
        },
        wrong_result,
    ),
    "construct": (
        ip.construct,
        {
            "order": ORDER,
            "vocab": VOCAB,
            "length": SMALL,
            "beta": BETAS,
            "kappa": KAPPA,
            "dtype": st.sampled_from(["float64", "float32", "float16", None, 3]),
        },
        anything,
    ),
    "cumulative_counts": (ip.cumulative_counts, {"tokens": tokens(), **SIZES}, is_finite),
    "sample hierarchical": (sampled, {"prior": HIERARCHICAL, "kind": st.just("hierarchical"), **DRAWN}, is_law),
    "sample independent": (sampled, {"prior": INDEPENDENT, "kind": st.just("independent"), **DRAWN}, is_law),
    "parse_prior": (
        ip.parse_prior,
        {
            "text": st.one_of(
                numbers(),
                st.sampled_from(["hierarchical:5", "independent:1", "x:1", "hierarchical:1,2,3", "independent:nan"]),
            ),
            "order": ORDER,
            "vocab": VOCAB,
        },
        anything,
    ),
    "prior_from_dict": (
        ip.prior_from_dict,
        {
            "values": st.one_of(
                numbers(),
                HIERARCHICAL.map(lambda given: {"kind": "hierarchical", **given}),
                INDEPENDENT.map(lambda given: {"kind": "independent", **given}),
                st.fixed_dictionaries(
                    {"kind": mostly(st.sampled_from(["independent", "hierarchical", "other"]))},
                    optional={"order": ORDER, "vocab": VOCAB, "alpha": POSITIVE, "eta": BETAS, "eta0": POSITIVE},
                ),
            )
        },
        anything,
    ),
    "register_prior": (
        registered,
        {"prior": st.one_of(numbers(), st.sampled_from([ip.IndependentDirichlet, OtherPrior, ip.Prior, dict, len]))},
        anything,
    ),
    "read_info": (ip.read_info, {"path": st.one_of(numbers(), texts(), st.just(Path()))}, anything),
    "write_construction": (
        written,
        {
            "family": st.sampled_from(["construction", "disentangled", "standard"]),
            "bos": st.booleans(),
            "beta": mostly(st.tuples(st.floats(-5, 5), st.floats(-5, 5))),
            "kappa": KAPPA,
        },
        is_law,
    ),
    "beta_for_add_alpha": (
        ip.beta_for_add_alpha,
        {"length": SMALL, "order": ORDER, "vocab": VOCAB, "alpha": POSITIVE},
        is_finite,
    ),
    "expected_cumulative_count": (
        expected_cumulative_count,
        {"length": SMALL, "order": ORDER, "vocab": VOCAB, "overlap": ORDER},
        is_finite,
    ),
    "kl_divergence": (ip.kl_divergence, {"truth": LAWS, "prediction": LAWS, "floor": POSITIVE}, anything),
    "mean_stderr": (ip.mean_stderr, {"values": st.one_of(numbers(), BETAS)}, anything),
    "mask_name": (ip.mask_name, {"mask": ORDER}, anything),
    "overlap": (overlap, {"mask": ORDER}, anything),
    "is_contiguous": (is_contiguous, {"mask": ORDER}, anything),
}


def cases() -> st.SearchStrategy[Case]:
    """A function's name and its arguments."""
    return st.one_of(
        *(st.tuples(st.just(name), st.fixed_dictionaries(given)) for name, (_, given, _) in FUNCTIONS.items())
    )


def run(case: Case, sandbox: Sandbox) -> str:
    """Call it."""
    name, given = case
    function, _, check = FUNCTIONS[name]
    return f"{name}: {run_call(lambda: function(**given), check)}"
