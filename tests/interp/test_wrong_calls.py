"""Wrong calls that people make get one line that says what to do; a type checker finds them before."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import interp as ip
from tests.planted import planted_foreign, trained_like

RIGHT = """
import interp as ip

prior = ip.HierarchicalDirichlet(order=2, vocab=5, eta=(5.0, 5.0))
chains = prior.sample(batch=64, length=64, seed=0)
model = ip.construct(order=2, vocab=5, length=64, beta=(2.7, 1.2), kappa=3.3)
circuit = ip.Circuit(model, match_heads=((1, 0),))
cap = ip.capture(circuit, chains.tokens, query="last")
fit, pairs = ip.fit_scores(cap), ip.fit_score_pairs(cap)
law = ip.fit_scores(cap, source="attention", law="suffix")
share: float = law.nats_explained + fit.r2_match
groups = ip.overlap_mass(cap, fit).table(by="mask")
tests = ip.causal_tests(model, chains.tokens, next_law=chains.next_law, law=fit, pair_law=pairs)
by_hand = ip.causal_tests(model, chains.tokens, next_law=chains.next_law, law=((2.7, 1.2), 3.3))
scan = ip.scan_heads(model, [[0, 1, 2, 3]], query=[2, 3], rules=ip.RoleRules(min_copied=0.5))
found = ip.find_circuit(model, chains.tokens, scan=scan)
edits = ip.replace_heads(found, chains.tokens, query="trained", law="fitted")
near = ip.nearest_estimator(model, chains.tokens, law=ip.optimal_parameters(prior, length=64, bos=True))
blocks = ip.identity_blocks(model, routes=["weights"])
symmetry = ip.label_symmetry(model, chains, other_models=[model])
trained_on: ip.Prior = ip.read_info("runs/mine").prior
ip.save(model, "runs/mine", training={"prior": trained_on.to_dict()})
"""
WRONG = {
    "ip.Circuit(3)": "Argument 1",
    'ip.Circuit(model, order="two")': '"order"',
    "ip.fit_scores(model)": "No overload",
    'ip.fit_scores(cap, source="sores")': "No overload",
    'ip.overlap_mass(cap).table(by="lag")': '"by"',
    "ip.causal_tests(model, chains.tokens, next_law=chains.next_law, law=3)": '"law"',
    'ip.scan_heads(model, chains.tokens, query="first")': '"query"',
    "ip.scan_heads(model, chains.tokens, bos=1.5)": '"bos"',
    'ip.identity_blocks(model, routes=["wishes"])': "List item 0",
    'ip.label_symmetry(model, chains.tokens, draws="many")': '"draws"',
    'ip.save(model, "runs/mine", training=[1])': '"training"',
    'ip.load_language_model("smollm2", dtype="float64")': '"dtype"',
}
FIT = ip.fit_scores
CHAINS = ip.HierarchicalDirichlet(order=2, vocab=4, eta=(5.0, 5.0)).sample(
    batch=32, length=24, seed=0, method="explicit"
)
TRUTH: dict[str, Any] = {"next_law": CHAINS.next_law}


@pytest.fixture(scope="module")
def model() -> Any:
    return trained_like()


CALLS: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "a path for a model": (
        lambda model: ip.capture("runs/a", CHAINS.tokens),
        ValueError,
        r"got str: ip\.load\('runs/a'\) reads a checkpoint",
    ),
    "arguments in the wrong order": (
        lambda model: ip.scan_heads(CHAINS.tokens, model),
        ValueError,
        "needs a HookedTransformer, got Tensor",
    ),
    "a model for a capture": (
        lambda model: ip.fit_scores(model),
        ValueError,
        r"expected what ip\.capture\(model, tokens\) returns, got InductionTransformer",
    ),
    "a misspelt function": (lambda model: ip.scan_head, AttributeError, "did you mean scan_heads?"),
    "a misspelt keyword": (
        lambda model: ip.scan_heads(model, CHAINS.tokens, qurey="all"),
        TypeError,
        r"scan_heads\(\) has no keyword qurey: did you mean query\?",
    ),
    "a former keyword": (
        lambda model: ip.causal_tests(model, CHAINS.tokens, **TRUTH, beta=(2.5, 1.2), kappa=2.0),
        TypeError,
        "has no keyword beta: write law=fit",
    ),
    "a former threshold": (
        lambda model: ip.copy_heads(ip.capture(model, CHAINS.tokens), copies=0.3),
        TypeError,
        "has no keyword copies: write min_mass",
    ),
    "a fit of another order": (
        lambda model: ip.causal_tests(
            model,
            CHAINS.tokens,
            **TRUTH,
            law=ip.predicted_parameters(ip.IndependentDirichlet(order=1, vocab=4, alpha=1.0), length=24, bos=True),
        ),
        ValueError,
        "law must be of order 2, got a fit of order 1",
    ),
    "a fit of pairs for a law": (
        lambda model: ip.causal_tests(
            model, CHAINS.tokens, **TRUTH, law=ip.fit_score_pairs(ip.capture(model, CHAINS.tokens))
        ),
        ValueError,
        "got a fit of weights for pairs of lags",
    ),
    "beta alone for a law": (
        lambda model: ip.nearest_estimator(model, CHAINS.tokens, law=[2.5, 1.2]),
        ValueError,
        r"law must be a fit, such as fit_scores\(cap\), or a pair \(beta, kappa\)",
    ),
    "laws of every position": (
        lambda model: ip.direct_path(model, CHAINS.tokens, next_law=CHAINS.laws()),
        ValueError,
        r"next_law must have shape \[32, 4\], got \[32, 24, 4\]",
    ),
    "one sequence": (lambda model: ip.predict(model, CHAINS.tokens[0]), ValueError, r"shape \[batch, length\]"),
    "tokens with BOS": (
        lambda model: ip.capture(model, ip.Circuit(model).ids(CHAINS.tokens)),
        ValueError,
        "token 4 is outside the vocabulary 0..3",
    ),
    "a circuit without heads": (
        lambda model: ip.direct_path(planted_foreign(), CHAINS.tokens, **TRUTH),
        ValueError,
        "does not say where its circuit sits: give ip.Circuit",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_call_says_what_to_do(name: str, model: Any) -> None:
    call, kind, message = CALLS[name]
    with pytest.raises(kind, match=message) as error:
        call(model)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["smoothing_source", "direct_path", "vote_weight", "causal_tests"])
@pytest.mark.parametrize(
    ("truth", "message"),
    [(np.full((32, 4), np.nan), "negative or non-finite"), (np.full((32, 4), 1.0), "sum to 1")],
)
def test_what_is_no_next_law_is_refused(name: str, truth: Any, message: str, model: Any) -> None:
    law = {"law": None} if name == "causal_tests" else {}
    with pytest.raises(ValueError, match=message):
        getattr(ip, name)(model, CHAINS.tokens, next_law=truth, **law)


@pytest.mark.parametrize("name", ["label_symmetry", "nearest_estimator", "law_by_layer", "predict", "replace_heads"])
def test_a_prediction_that_is_not_finite_is_refused(name: str) -> None:
    broken = trained_like()
    with torch.no_grad():
        broken.unembed.W_U.fill_(torch.nan)
    with pytest.raises(ValueError, match="prediction is not finite"):
        getattr(ip, name)(broken, CHAINS.tokens)


def test_a_type_checker_knows_right_from_wrong(tmp_path: Path) -> None:
    """`mypy --strict` on a file of correct calls, and on the same file with wrong ones below."""
    (tmp_path / "right.py").write_text(RIGHT)
    (tmp_path / "wrong.py").write_text(RIGHT + "\n".join(WRONG))
    root = Path(ip.__file__).parent.parent
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--config-file", "pyproject.toml"]
    files = [str(tmp_path / name) for name in ("right.py", "wrong.py")]
    done = subprocess.run([*command, *files], capture_output=True, text=True, cwd=root, timeout=600, check=False)
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    first = 1 + len(RIGHT.splitlines())
    for place, (call, words) in enumerate(WRONG.items()):
        here = [line for line in errors if f"wrong.py:{first + place}: " in line]
        assert any(words in line for line in here), (call, done.stdout)
    assert all("wrong.py:" in line for line in errors), done.stdout
    assert not [line for line in errors if int(line.split(":")[1]) < first], done.stdout
