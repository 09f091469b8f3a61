"""The public API: the names that must not move, lazily loaded and quick to import."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import interp
from interp.results import jsonable
from tests.planted import trained_like

# The design's API block, as it is written there but for the path, the pair matrix and a smaller batch.
API = """
import interp as ip

prior  = ip.HierarchicalDirichlet(order=2, vocab=5, eta=(5.0, 5.0), eta0=1.0)
prior  = ip.IndependentDirichlet(order=2, vocab=5, alpha=1.0)
chains = prior.sample(batch=32, length=64, seed=0)
tokens = chains.tokens
laws   = chains.laws()
soft   = ip.soft_matching(tokens, vocab=5, beta=(2.7, 1.2), kappa=3.3)
no_bos = ip.soft_matching(tokens, vocab=5, beta=(2.7, 1.2), kappa=None)
every  = ip.soft_matching(tokens, vocab=5, beta=(2.7, 1.2), every_position=True)
paired = ip.soft_matching_pairs(tokens, vocab=5, beta=[[2.7, 0.1], [-0.2, 1.2]])
ml     = ip.maximum_likelihood(tokens, order=2, vocab=5)
added  = ip.add_alpha(tokens, order=2, vocab=5, alpha=1.0)
jm     = ip.jelinek_mercer(tokens, vocab=5, weights=(0.1, 0.3, 0.6))
katz   = ip.katz(tokens, order=2, vocab=5)
wb     = ip.witten_bell(tokens, order=2, vocab=5)
kn     = ip.kneser_ney(tokens, order=2, vocab=5)
ctw    = ip.context_tree_weighting(tokens, order=2, vocab=5)
mix    = ip.order_mixture(tokens, order=2, vocab=5, beta=1.5)
parts  = (mix.order_weights, mix.order_models, mix.pattern_weights, mix.pattern_models)
pseudo = ip.pseudo_counts(tokens, order=2, vocab=5, beta=1.5)
bayes  = ip.bayes_predictive(tokens[:8], prior=prior, draws=20, seed=0)
closed = ip.beta_for_add_alpha(length=64, order=2, vocab=5, alpha=1.0, method="closed_form")
line   = ip.beta_for_add_alpha(length=64, order=2, vocab=5, alpha=1.0, method="line_search", draws=500)
root   = ip.beta_for_add_alpha(length=64, order=2, vocab=5, alpha=1.0, method="polynomial", draws=500)
best   = ip.optimal_parameters(prior, length=64, bos=True)
guess  = ip.predicted_parameters(prior, length=64, bos=True)
masks  = ip.match_masks(tokens, order=2)
counts = ip.mask_counts(tokens, order=2, vocab=5)
sums   = ip.cumulative_counts(tokens, order=2, vocab=5)

model  = ip.construct(order=2, vocab=5, length=64, beta=(2.7, 1.2), kappa=3.3)
saved  = ip.save(model, path)
model  = ip.load(path)
law    = ip.predict(model, tokens)
cap    = ip.capture(model, tokens)
seen   = (cap.copy_pattern, cap.match_scores, cap.match_pattern)
fit    = ip.fit_scores(cap)
pairs  = ip.fit_score_pairs(cap)
mass   = ip.overlap_mass(cap)
copy   = ip.copy_heads(cap)
blocks = ip.identity_blocks(model)
sym    = ip.label_symmetry(model, chains.tokens)
"""


def test_the_api_block_runs(tmp_path: Path) -> None:
    space: dict = {"path": tmp_path / "model"}
    exec(API, space)
    assert space["tokens"].shape == (32, 64)
    assert space["tokens"].dtype == torch.int64
    assert space["chains"].next_law.shape == (32, 5)
    assert space["laws"].shape == space["every"].shape == (32, 64, 5)
    for law in ("soft", "no_bos", "paired", "ml", "added", "jm", "katz", "wb", "kn", "ctw", "law"):
        assert space[law].shape == (32, 5), law
        assert torch.allclose(space[law].sum(-1), torch.ones(32, dtype=space[law].dtype)), law
    assert torch.allclose(space["soft"], space["law"], atol=1e-5)
    assert [tuple(part.shape) for part in space["parts"]] == [(32, 3), (32, 3, 5), (32, 4), (32, 4, 5)]
    assert all(0 < space[beta] < 20 for beta in ("closed", "line", "root"))
    assert space["masks"].shape == (32, 64)
    assert space["counts"].shape == space["sums"].shape == (32, 4, 5)
    assert sorted(entry.name for entry in space["path"].iterdir()) == ["config.json", "model.safetensors"]
    copy_pattern, match_scores, match_pattern = space["seen"]
    assert copy_pattern.shape[1:] == (2, 65, 65)
    assert match_scores.shape == match_pattern.shape == (32, 1, 1, 65)


TASK = {"order": 2, "vocab": 4}
CHAINS = interp.HierarchicalDirichlet(**TASK, eta=(5.0, 5.0)).sample(batch=32, length=24, seed=0)
TRUTH = {"next_law": CHAINS.next_law}
LAW: dict[str, Any] = {"vocab": 4, "beta": (2.0, 1.0)}
# Every public function that takes tokens, with what else it needs. Those of a model take the model first.
OF_TOKENS: dict[str, dict[str, Any]] = {
    "add_alpha": {**TASK, "alpha": 1.0},
    "bayes_predictive": {"prior": CHAINS.prior, "draws": 16},
    "context_tree_weighting": TASK,
    "cumulative_counts": TASK,
    "jelinek_mercer": {"vocab": 4, "weights": (0.1, 0.3, 0.6)},
    "katz": TASK,
    "kneser_ney": TASK,
    "mask_counts": TASK,
    "match_masks": {"order": 2},
    "maximum_likelihood": TASK,
    "order_mixture": {**TASK, "beta": 1.5},
    "pseudo_counts": {**TASK, "beta": 1.5},
    "soft_matching": LAW,
    "soft_matching_pairs": {"vocab": 4, "beta": [[2.0, 0.1], [0.0, 1.0]]},
    "witten_bell": TASK,
}
OF_A_MODEL: dict[str, dict[str, Any]] = {
    "capture": {},
    "causal_tests": {**TRUTH, "law": None},
    "copying_scores": {},
    "direct_path": TRUTH,
    "find_circuit": {},
    "identity_blocks": {"draws": 99},
    "label_symmetry": {"draws": 3},
    "law_by_layer": {},
    "nearest_estimator": {},
    "predict": {},
    "replace_heads": {},
    "scan_heads": {},
    "smoothing_source": TRUTH,
    "vote_weight": TRUTH,
}


@pytest.mark.parametrize("name", [*OF_TOKENS, *OF_A_MODEL])
def test_chains_are_taken_for_their_tokens(name: str) -> None:
    function = getattr(interp, name)
    model, words = [trained_like()] * (name in OF_A_MODEL), {**OF_TOKENS, **OF_A_MODEL}[name]
    of_chains, of_tokens = (jsonable(function(*model, given, **words)) for given in (CHAINS, CHAINS.tokens))
    assert str(of_chains) == str(of_tokens)


def test_the_table_names_every_function_of_tokens() -> None:
    public = {name: getattr(interp, name) for name in interp.__all__}
    functions = {name: one for name, one in public.items() if inspect.isfunction(one)}
    taking = {name for name, one in functions.items() if "tokens" in inspect.signature(one).parameters}
    assert taking - {"track"} == {*OF_TOKENS, *OF_A_MODEL}  # which takes several models


def test_every_exported_name_resolves_to_its_home() -> None:
    for name, home in interp._HOME_OF.items():
        assert getattr(interp, name) is getattr(importlib.import_module(home), name)
    assert set(interp.__all__) == set(dir(interp))
    namespace: dict = {}
    exec("from interp import *", namespace)
    assert set(interp.__all__) <= set(namespace)


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("layer_one", "'layer_one'$"),
        ("MatchFit", r"it is in interp\.fitting\.\w+"),
        ("superset_sum", r"it is in interp\.estimators\.counts$"),
        ("KL_FLOOR", r"it is in interp\.divergence$"),
    ],
)
def test_a_name_that_is_not_public_is_an_attribute_error(name: str, end: str) -> None:
    with pytest.raises(AttributeError, match=f"module 'interp' has no attribute.*{end}"):
        getattr(interp, name)


def test_importing_is_instant() -> None:
    """No torch, no numpy, no TransformerLens before something is used."""
    heavy = ("torch", "transformer_lens", "numba", "numpy", "pandas", "scipy", "matplotlib")
    code = f"import sys, interp; print([name for name in {heavy} if name in sys.modules], interp.__version__)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=Path(interp.__file__).parent.parent,
        timeout=120,
    )
    assert done.stderr == ""
    assert done.stdout.split() == ["[]", interp.__version__]


def test_the_version_is_the_packages() -> None:
    project = Path(interp.__file__).parent.parent / "pyproject.toml"
    assert f'version = "{interp.__version__}"' in project.read_text()
