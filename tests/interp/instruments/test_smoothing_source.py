"""Sources of smoothing: every combination is a known estimator on a construction, and planted sources are found."""

from __future__ import annotations

import math

import pytest
import torch

from interp.chains.priors import ChainBatch
from interp.circuit.circuit import Circuit
from interp.divergence import kl_divergence
from interp.estimators.soft_matching import add_alpha, maximum_likelihood, soft_matching
from interp.hooked.construction import construct
from interp.hooked.transformer import InductionTransformer
from interp.instruments.smoothing_source import SmoothingSource, SourceShare, smoothing_source
from tests import planted
from tests.planted import FOREIGN, planted_foreign, planted_standard, trained_like, without_mechanism

BETA, KAPPA = (2.5, 1.2), 2.0


@pytest.fixture(scope="module")
def chains() -> ChainBatch:
    return planted.chains(batch=128)


def run(model: InductionTransformer, chains: ChainBatch, **arguments: object) -> SmoothingSource:
    return smoothing_source(model, chains.tokens, next_law=chains.next_law, **arguments)


def part(found: SmoothingSource, source: str) -> SourceShare:
    """The part of one source."""
    return next(one for one in found.shares if one.source == source)


@pytest.fixture(scope="module")
def with_bos(chains: ChainBatch) -> SmoothingSource:
    return run(construct(order=2, vocab=4, length=24, beta=BETA, kappa=KAPPA), chains)


def with_uniform_readout(share: float, **changes: object) -> InductionTransformer:
    """A trained-like model whose readout mixes a share of the uniform law into the votes, through constants in W_O."""
    model = trained_like(**changes)
    vocab, half = model.config.vocab, model.config.blocks * model.config.vocab
    with torch.no_grad():
        readout = model.unembed.W_U
        readout[half : half + vocab] *= 1 - share
        # Each block of the final stream sums to one, so a constant c in all its rows adds c to every vote.
        readout[:vocab] += share / vocab / 2
        readout[half + vocab : half + 2 * vocab] += share / vocab / 2
    return model


def test_every_combination_is_a_known_estimator(with_bos: SmoothingSource, chains: ChainBatch) -> None:
    tokens = chains.tokens
    pseudo = math.exp(KAPPA - sum(BETA)) / 4
    known = {
        "none": soft_matching(tokens, vocab=4, beta=BETA, kappa=KAPPA),
        "partial": add_alpha(tokens, order=2, vocab=4, alpha=pseudo),
        "bos": soft_matching(tokens, vocab=4, beta=BETA),
        "partial+bos": maximum_likelihood(tokens, order=2, vocab=4),
    }
    for off, laws in known.items():
        expected = kl_divergence(chains.next_law, laws)
        assert with_bos[off].kl == pytest.approx(expected.mean, rel=1e-6)
        assert with_bos[off].floored == expected.floored
        combined = f"{off}+readout" if off != "none" else "readout"
        assert with_bos[combined].kl == pytest.approx(expected.mean, rel=1e-6)
        assert with_bos[off].change == pytest.approx(with_bos[off].kl - with_bos["none"].kl)
    assert with_bos["partial"].empty == 0.0  # BOS is always left
    counts = maximum_likelihood(tokens, order=2, vocab=4)
    unseen = (counts == 1 / 4).all(-1).double().mean()
    assert with_bos["partial+bos"].empty == pytest.approx(float(unseen))


def test_contributions_add_up(with_bos: SmoothingSource, chains: ChainBatch) -> None:
    for found in (with_bos, run(with_uniform_readout(0.2), chains)):
        whole = found["partial+bos+readout"].change
        assert sum(one.contribution for one in found.shares) == pytest.approx(whole)
        assert sum(one.share for one in found.shares) == pytest.approx(1.0)
    assert part(with_bos, "partial").contribution > 0.1
    assert part(with_bos, "bos").contribution > 0.1
    assert part(with_bos, "partial").stderr > 0
    # Two sources alone, by hand: half the first step and half the last one.
    alone = run(trained_like(readout="logit"), chains)
    steps = (alone["bos"].change, alone["partial+bos"].change - alone["partial"].change)
    assert part(alone, "bos").contribution == pytest.approx(sum(steps) / 2)


def test_the_constructions_readout_smooths_nothing(with_bos: SmoothingSource) -> None:
    assert part(with_bos, "readout").contribution == pytest.approx(0.0, abs=1e-12)
    assert with_bos.readout_uniform == pytest.approx(0.0, abs=1e-9)
    assert with_bos.readout_r2 == pytest.approx(1.0)


@pytest.mark.parametrize("share", [0.1, 0.35])
def test_a_uniform_share_in_the_readout_is_found(share: float, chains: ChainBatch) -> None:
    """Without BOS: the constants in W_O do the work of pseudo-counts."""
    found = run(with_uniform_readout(share, kappa=None), chains)
    assert found.readout_uniform == pytest.approx(share, abs=1e-5)
    assert found.readout_r2 == pytest.approx(1.0)
    assert part(found, "readout").contribution > 0.05
    assert not part(found, "bos").applies
    expected = (1 - share) * soft_matching(chains.tokens, vocab=4, beta=BETA) + share / 4
    assert found["none"].kl == pytest.approx(kl_divergence(chains.next_law, expected).mean, rel=1e-4)
    assert found["readout"].kl == pytest.approx(
        kl_divergence(chains.next_law, soft_matching(chains.tokens, vocab=4, beta=BETA)).mean, rel=1e-4
    )


def test_a_hard_construction_owes_nothing_to_partial_matches(chains: ChainBatch) -> None:
    """Add-alpha by BOS alone, prop:add_constant: switching partial matches off changes nothing."""
    model = construct(order=2, vocab=4, length=24, beta=(60.0, 60.0), kappa=120.0 + math.log(0.5 * 4))
    found = run(model, chains)
    assert found["partial"].change == pytest.approx(0.0, abs=1e-9)
    assert found["bos"].change > 0.1
    assert part(found, "bos").share > part(found, "partial").share


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (lambda: trained_like(readout="logit"), "a logit readout is not linear in the votes"),
        (planted_standard, "the final stream has no block that holds the votes"),
    ],
)
def test_a_readout_that_cannot_be_taken_apart_is_not_guessed_at(model: object, reason: str, chains: ChainBatch) -> None:
    found = run(model(), chains)
    readout = part(found, "readout")
    assert not readout.applies
    assert readout.reason == reason
    assert math.isnan(readout.contribution)
    assert math.isnan(found.readout_uniform)
    row = found.table().set_index("off").loc["readout"]
    assert row["reason"] == reason
    assert math.isnan(row["kl"])
    assert part(found, "partial").applies


def test_someone_elses_model() -> None:
    own = planted.chains(order=1, vocab=5, length=16, batch=40)
    found = smoothing_source(Circuit(planted_foreign(), **FOREIGN), own.tokens, next_law=own.next_law)
    assert [row.off for row in found.switched] == ["none", "partial"]
    assert found["partial"].change != 0


def test_random_weights_have_no_line_in_their_readout(chains: ChainBatch) -> None:
    """The negative control: what a random readout does is not a uniform share."""
    assert run(without_mechanism(), chains).readout_r2 < 0.5
