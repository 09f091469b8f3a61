"""A third prior, registered here, works wherever a prior is taken, under its own name, or is refused with one line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from unittest.mock import patch

import numpy as np
import pytest
import torch

import interp as ip
from analyses.running.options import CheckpointOptions
from analyses.running.subject import Subject
from interp.chains import priors
from interp.divergence import kl_divergence
from models.running.zoo import measure
from models.training.run import run
from models.training.spec import make_spec
from models.training.sweep import run_name


@dataclass(frozen=True, kw_only=True)
class Geometric(ip.Prior):
    """A tree of Dirichlet laws: the hierarchical prior with eta_l = eta rate^(l-1)."""

    kind: ClassVar[str] = "geometric"
    form: ClassVar[str] = "geometric:ETA,RATE"

    eta: float
    rate: float

    @property
    def text(self) -> str:
        return f"geometric:{self.eta:g},{self.rate:g}"

    @classmethod
    def from_numbers(cls, numbers: Sequence[Sequence[float]], *, order: int, vocab: int) -> Geometric:
        ((eta, rate),) = numbers
        return cls(order=order, vocab=vocab, eta=eta, rate=rate)

    def hierarchy(self) -> ip.HierarchicalDirichlet:
        levels = [self.eta * self.rate**level for level in range(self.order)]
        return ip.HierarchicalDirichlet(order=self.order, vocab=self.vocab, eta=levels)

    def concentrations(self) -> np.ndarray:
        return self.hierarchy().concentrations()

    def draw_tree(self, batch: int, rng: np.random.Generator) -> dict[int, np.ndarray]:
        return self.hierarchy().draw_tree(batch, rng)


@dataclass(frozen=True, kw_only=True)
class LastToken(ip.Prior):
    """No tree of Dirichlet laws: kernels that depend on the last token alone."""

    kind: ClassVar[str] = "last_token"
    form: ClassVar[str] = "last_token"

    @property
    def text(self) -> str:
        return "last_token"

    @classmethod
    def from_numbers(cls, numbers: Sequence[Sequence[float]], *, order: int, vocab: int) -> LastToken:
        return cls(order=order, vocab=vocab)

    def draw_tree(self, batch: int, rng: np.random.Generator) -> dict[int, np.ndarray]:
        by_token = rng.dirichlet(np.ones(self.vocab), size=(batch, self.vocab))
        return {self.order: np.tile(by_token, (1, self.vocab ** (self.order - 1), 1))}


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    with patch.dict(priors.PRIORS):
        ip.register_prior(Geometric)
        ip.register_prior(LastToken)
        yield


TREE = Geometric(order=2, vocab=3, eta=4.0, rate=2.0)
OTHER = LastToken(order=2, vocab=3)


@pytest.mark.parametrize(
    "prior",
    [
        TREE,
        OTHER,
        ip.IndependentDirichlet(order=2, vocab=3, alpha=0.3),
        ip.HierarchicalDirichlet(order=2, vocab=3, eta=(4.0, 1.0), eta0=0.5),
    ],
    ids=lambda prior: prior.kind,
)
def test_text_and_description_read_back(prior: ip.Prior) -> None:
    assert ip.parse_prior(prior.text, order=2, vocab=3) == prior
    assert ip.prior_from_dict(prior.to_dict()) == prior
    assert prior.to_dict()["kind"] == prior.kind


def test_texts_of_the_shipped_priors_read_back() -> None:
    for text in (
        "independent:1",
        "independent:0.25",
        "hierarchical:5,5",
        "hierarchical:3,4:2",
        "hierarchical:0.1,1e-05",
    ):
        assert ip.parse_prior(text, order=2, vocab=3).text == text
    awkward = ip.IndependentDirichlet(order=2, vocab=3, alpha=1 / 3)
    assert ip.parse_prior(awkward.text, order=2, vocab=3) == awkward
    assert ip.parse_prior("hierarchical", order=3, vocab=3).text == "hierarchical:5,5,5"


def test_a_tree_is_what_the_hierarchical_prior_with_its_numbers_is() -> None:
    same = TREE.hierarchy()
    for method in ("explicit", "collapsed"):
        ours, theirs = (one.sample(batch=8, length=12, seed=3, method=method) for one in (TREE, same))
        torch.testing.assert_close(ours.tokens, theirs.tokens)
        torch.testing.assert_close(ours.next_law, theirs.next_law)
    chains = TREE.sample(batch=8, length=12, seed=3)
    laws = [ip.bayes_predictive(chains.tokens, prior=one, draws=40, seed=0).mean for one in (TREE, same)]
    torch.testing.assert_close(*laws)
    best = [ip.optimal_parameters(one, length=12, bos=True) for one in (TREE, same)]
    assert best[0].beta == best[1].beta


def test_a_run_on_it_is_trained_kept_and_measured_under_its_own_name(tmp_path: Path) -> None:
    spec = make_spec(family="disentangled", prior="geometric:4,2", vocab=3, bos=True, length=10, steps=60)
    assert run_name(spec) == "geometric_bos/disentangled/soft/T10_seed0"
    run(spec, tmp_path / "a", progress=False)
    assert measure(tmp_path / "a", "a")["prior"] == "geometric"
    subject = Subject.open(tmp_path / "a", CheckpointOptions(batch=32))
    assert subject.prior == TREE
    assert subject.summary()["prior"] == "geometric"
    assert subject.chains.tokens.shape == (32, 10)
    described = Subject.open(tmp_path / "a", CheckpointOptions(batch=32, prior="last_token"))
    assert described.summary()["prior"] == "last_token"
    assert kl_divergence(described.chains.next_law, ip.predict(described.model, described.chains.tokens)).mean > 0


def test_what_has_no_urn_is_refused_where_one_is_needed() -> None:
    chains = OTHER.sample(batch=4, length=12, seed=0)
    kernel = chains.kernel
    assert kernel is not None
    torch.testing.assert_close(kernel[:, :3], kernel[:, 3:6])  # the token before the last does not matter
    refusals = {
        "train": lambda: make_spec(family="disentangled", prior=OTHER.to_dict(), bos=True, length=10),
        "collapsed": lambda: OTHER.sample(batch=4, length=12, seed=0, method="collapsed"),
        "bayes": lambda: ip.bayes_predictive(chains.tokens, prior=OTHER, draws=10, seed=0),
        "independent": lambda: OTHER.independent,
    }
    for name, refused in refusals.items():
        with pytest.raises(ValueError, match="the last_token prior is not a tree of Dirichlet laws") as error:
            refused()
        assert "\n" not in str(error.value), name


def test_unknown_kinds_and_second_classes_of_one_kind_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"expected independent\[:ALPHA,...\] or .* or geometric:ETA,RATE or last_token"
    ):
        ip.parse_prior("uniform", order=2, vocab=3)
    with pytest.raises(ValueError, match=r"bad prior 'geometric:4': .*expected geometric:ETA,RATE"):
        ip.parse_prior("geometric:4", order=2, vocab=3)
    with pytest.raises(ValueError, match="must be one of independent, hierarchical, repeats, geometric, last_token"):
        ip.prior_from_dict({"kind": "uniform", "order": 2, "vocab": 3})

    class Impostor(Geometric):
        pass

    with pytest.raises(ValueError, match="there is a geometric prior already: Geometric"):
        ip.register_prior(Impostor)
