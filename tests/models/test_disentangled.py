"""The compiled trainer against autograd, against torch's Adam, and against itself cut into chunks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from einops import einsum, rearrange

from interp.hooked.transformer import InductionConfig
from models.families.disentangled import weights as disentangled
from models.families.disentangled.training import DisentangledTrainer, loss_and_gradient, predict
from models.training.spec import make_spec
from models.training.trainers import Array

CASES = [
    pytest.param(order, bos, readout, id=f"k{order}-{'bos' if bos else 'nobos'}-{readout}")
    for order in (1, 2, 3)
    for bos in (True, False)
    for readout in ("probability", "logit")
]


class ReferenceTransformer(torch.nn.Module):
    """The disentangled transformer as sec:models writes it: dense one-hot streams, every score, explicit softmax."""

    def __init__(self, shape: InductionConfig, flat: Array) -> None:
        super().__init__()
        self.shape = shape
        for name, view in disentangled.views(shape, flat).items():
            setattr(self, name, torch.nn.Parameter(torch.tensor(view, dtype=torch.float64)))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        shape = self.shape
        stream = torch.nn.functional.one_hot(tokens, shape.vocab).double()
        if shape.bos:
            bos = torch.full((len(tokens), 1, shape.vocab), 1 / shape.vocab, dtype=torch.float64)
            stream = torch.cat([bos, stream], dim=1)
        copied = self.attend(stream, self.copy_weight, self.copy_bias)
        stream = torch.cat([stream, rearrange(copied, "batch head query width -> batch query (head width)")], dim=-1)
        matched = self.attend(stream, self.match_weight[None], self.match_bias[None])[:, 0]
        votes = torch.cat([stream, matched], dim=-1)[:, -1] @ self.readout_weight.T
        if shape.readout == "logit":
            return torch.softmax(votes, dim=-1)
        votes = torch.relu(votes) + shape.floor
        return votes / votes.sum(dim=-1, keepdim=True)

    @staticmethod
    def attend(stream: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        place = torch.arange(stream.shape[1])
        lag = place[:, None] - place
        scores = einsum(stream, weight, stream, "batch query a, head a b, batch key b -> batch head query key")
        scores = scores + bias[:, lag.clamp(min=0)]
        pattern = torch.softmax(scores.masked_fill(lag < 0, -torch.inf), dim=-1)
        return einsum(pattern, stream, "batch head query key, batch key width -> batch head query width")

    def flat_gradient(self) -> Array:
        return torch.cat(
            [getattr(self, name).grad.flatten() for name in disentangled.parameter_shapes(self.shape)]
        ).numpy()


def cross_entropy(laws: torch.Tensor, target: Array) -> torch.Tensor:
    law = torch.tensor(target if target.ndim == 2 else np.eye(laws.shape[1])[target])
    return -torch.special.xlogy(law, laws).sum(dim=-1).mean()


def reference(shape: InductionConfig, flat: Array, tokens: Array, target: Array) -> tuple[float, Array]:
    model = ReferenceTransformer(shape, flat)
    loss = cross_entropy(model(torch.tensor(tokens)), target)
    loss.backward()
    return loss.item(), model.flat_gradient()


def example(shape: InductionConfig, *, seed: int, batch: int = 6) -> tuple[Array, Array, dict[str, Array]]:
    """Parameters, tokens and both kinds of target. A positive readout keeps votes away from the kink of relu."""
    rng = np.random.default_rng(seed)
    flat = rng.normal(scale=0.7, size=disentangled.size_of(shape)).astype(np.float32).astype(np.float64)
    readout = disentangled.views(shape, flat)["readout_weight"]
    readout[:] = np.abs(readout)
    tokens = rng.integers(shape.vocab, size=(batch, shape.length))
    targets = {"token": rng.integers(shape.vocab, size=batch), "law": rng.dirichlet(np.ones(shape.vocab), size=batch)}
    return flat, tokens, targets


def assert_gradient(shape: InductionConfig, flat: Array, tokens: Array, target: Array) -> None:
    """Loss and gradient in both precisions, relative to the largest component."""
    loss, gradient = reference(shape, flat, tokens, target)
    for dtype, tolerance in ((np.float64, 1e-9), (np.float32, 1e-5)):
        law = target if target.ndim == 2 else np.eye(shape.vocab)[target]
        ours, grad, laws = loss_and_gradient(shape, flat.astype(dtype), tokens, law)
        assert ours == pytest.approx(loss, rel=tolerance)
        assert grad.dtype == dtype
        assert np.abs(grad - gradient).max() < tolerance * np.abs(gradient).max()
        assert laws.sum(axis=1) == pytest.approx(1.0)


@pytest.mark.parametrize(("order", "bos", "readout"), CASES)
def test_gradient_is_autograds(order: int, bos: bool, readout: str) -> None:
    for vocab, length in ((5, 20), (3, 9), (10, 40)):
        shape = disentangled.config(order=order, vocab=vocab, length=length, bos=bos, readout=readout)
        flat, tokens, targets = example(shape, seed=order)
        for target in targets.values():
            assert_gradient(shape, flat, tokens, target)


@pytest.mark.parametrize("bos", [True, False])
@pytest.mark.parametrize("peak", [60.0, 200.0])
def test_sharp_heads_stay_exact(bos: bool, peak: float) -> None:
    """Before a sharp head's lag every weight but the peak's counts, and exp(r - max r) has underflowed."""
    shape = disentangled.config(order=3, vocab=4, length=30, bos=bos)
    flat, tokens, targets = example(shape, seed=0)
    parts = disentangled.views(shape, flat)
    for head, lag in enumerate((1, 2, 17)):
        parts["copy_bias"][head, lag] += peak
    assert_gradient(shape, flat, tokens, targets["law"])


def test_content_that_shuns_what_was_seen_stays_exact() -> None:
    """The other way to a normaliser of nothing: the favoured symbol has not occurred."""
    shape = disentangled.config(order=1, vocab=4, length=12, bos=False)
    flat, tokens, targets = example(shape, seed=0)
    disentangled.views(shape, flat)["copy_weight"][0, :, 3] += 150.0
    assert_gradient(shape, flat, np.minimum(tokens, 2), targets["token"])


@pytest.mark.parametrize("readout", ["probability", "logit"])
def test_predictions_are_laws_and_do_not_depend_on_the_batch(readout: str) -> None:
    shape = disentangled.config(order=2, vocab=5, length=33, bos=True, readout=readout)
    flat, tokens, targets = example(shape, seed=1)
    laws = predict(shape, flat, tokens)
    assert laws.sum(axis=1) == pytest.approx(1.0)
    assert (laws > 0).all()
    assert np.array_equal(laws, loss_and_gradient(shape, flat, tokens, targets["law"])[2])
    assert np.array_equal(laws[3:4], predict(shape, flat, tokens[3:4]))


def trainer_of(prior: str = "independent:1", *, dtype: str = "float32", **settings: object) -> DisentangledTrainer:
    given = {"length": 18, "batch": 4, "init": "random(0.2)", **settings}
    return DisentangledTrainer(make_spec(family="disentangled", prior=prior, bos=True, **given), dtype=dtype)


@pytest.mark.parametrize("target", ["token", "law"])
@pytest.mark.parametrize("prior", ["hierarchical:5,5", "independent:1"])
def test_calls_leave_no_trace(prior: str, target: str) -> None:
    rates = np.linspace(1e-2, 1e-3, 100)
    whole, pieces = (trainer_of(prior, target=target) for _ in range(2))
    losses, parts = whole.advance(rates), []
    for some in np.split(rates, 10):
        parts.append(pieces.advance(some))
        state, pieces = pieces.dump(), trainer_of(prior, target=target, seed=1)  # as a killed run would
        pieces.restore(*state)
    assert np.array_equal(losses, np.concatenate(parts))
    for name, value in whole.dump()[0].items():
        assert np.array_equal(value, pieces.dump()[0][name])
    assert whole.dump()[1] == pieces.dump()[1]
    assert not np.array_equal(losses, trainer_of(prior, target=target, seed=1).advance(rates))


@pytest.mark.parametrize("target", ["token", "law"])
def test_twenty_steps_are_torchs_adam(target: str) -> None:
    """The same batches through autograd and torch.optim.Adam."""
    ours, twin = (trainer_of("hierarchical:2,4", target=target, dtype="float64", vocab=3) for _ in range(2))
    model = ReferenceTransformer(ours.config, ours.params)
    optimiser = torch.optim.Adam(model.parameters())
    rates = np.linspace(1e-2, 1e-3, 20)
    for rate, loss in zip(rates, ours.advance(rates), strict=True):
        optimiser.param_groups[0]["lr"] = rate
        optimiser.zero_grad()
        tokens, laws = twin.draw()
        expected = cross_entropy(model(torch.tensor(tokens)), laws)
        expected.backward()
        optimiser.step()
        assert loss == pytest.approx(expected.item(), rel=1e-9)
    for name, view in disentangled.views(ours.config, ours.params).items():
        assert view == pytest.approx(getattr(model, name).detach().numpy(), abs=1e-9)


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["copy_weight", "copy_bias", "match_weight", "match_bias", "readout_weight"])
def test_divergence_shows_and_stops(name: str, poison: float) -> None:
    trainer = trainer_of()
    disentangled.views(trainer.config, trainer.params)[name].flat[:] = poison
    before = trainer.dump()[0]
    assert not np.isfinite(trainer.advance(np.full(3, 1e-3))).any()
    assert trainer.step == 0
    for key, value in trainer.dump()[0].items():
        assert np.array_equal(value, before[key], equal_nan=True)


def test_a_divergence_on_the_way_stops_there() -> None:
    trainer = trainer_of()
    losses = trainer.advance(np.array([1e-3, 1e-3, np.inf, 1e-3, 1e-3]))
    assert np.isfinite(losses).tolist() == [True, True, True, False, False]
    assert trainer.step == 3


def test_tokens_that_do_not_fit_are_refused() -> None:
    shape = disentangled.config(order=2, vocab=5, length=18, bos=True)
    flat, tokens, _ = example(shape, seed=0)
    with pytest.raises(ValueError, match="flat vector must have shape"):
        predict(shape, flat[:-1], tokens)
    with pytest.raises(ValueError, match=r"tokens must be \[batch, 18\]"):
        predict(shape, flat, tokens[:, :-1])
    with pytest.raises(ValueError, match=r"tokens must lie in 0\.\.4"):
        predict(shape, flat, tokens + 1)
