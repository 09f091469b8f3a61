"""Causal edits: what each does to a construction is known in closed form; edits that reach nothing raise."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

from analyses.running.cli import main
from interp.chains.priors import ChainBatch
from interp.circuit.capture import capture
from interp.circuit.circuit import Circuit
from interp.circuit.edits import write_pattern
from interp.circuit.runner import laws, predict
from interp.divergence import kl_between, kl_divergence
from interp.estimators.soft_matching import add_alpha, maximum_likelihood, soft_matching
from interp.hooked.checkpoint import save
from interp.hooked.construction import construct
from interp.hooked.transformer import InductionTransformer
from interp.instruments.causal import CausalTests, causal_tests
from interp.instruments.lag_pairs import fit_score_pairs
from tests import planted
from tests.planted import FOREIGN, planted_foreign, planted_standard, trained_like, without_mechanism
from tests.planted_heads import Plant, plant

BETA, KAPPA = (2.5, 1.2), 2.0


@pytest.fixture(scope="module")
def chains() -> ChainBatch:
    return planted.chains()


def run(model: InductionTransformer, chains: ChainBatch, **changes: object) -> CausalTests:
    kappa = KAPPA if model.config.bos else None
    return causal_tests(model, chains.tokens, **{"next_law": chains.next_law, "law": (BETA, kappa), **changes})


@pytest.fixture(scope="module")
def with_bos(chains: ChainBatch) -> CausalTests:
    return run(construct(order=2, vocab=4, length=24, beta=BETA, kappa=KAPPA), chains)


@pytest.fixture(scope="module")
def without_bos(chains: ChainBatch) -> CausalTests:
    return run(construct(order=2, vocab=4, length=24, beta=BETA), chains)


def loss_of(laws: torch.Tensor, chains: ChainBatch) -> float:
    return kl_divergence(chains.next_law, laws).mean


def test_the_law_in_place_of_a_constructions_attention_changes_nothing(
    with_bos: CausalTests, without_bos: CausalTests
) -> None:
    for tests in (with_bos, without_bos):
        law = tests["law"]
        assert law.change == pytest.approx(0.0, abs=1e-12)
        assert law.loss_change == pytest.approx(0.0, abs=1e-12)
        assert law.kl == pytest.approx(0.0, abs=1e-12)
        assert tests.kl_recovered == pytest.approx(1.0)
        # At shuffled keys the same weights ruin the prediction.
        assert law.control_loss_change > 0.1
        assert all(row.reached for row in tests.edits)
    assert with_bos.success
    assert with_bos.loss_recovered == pytest.approx(1.0)


def test_a_share_of_a_loss_within_its_error_is_not_told(without_bos: CausalTests) -> None:
    """Without BOS even attention costs some hundredths of a nat on these sequences, and its error is as large."""
    uniform = without_bos["uniform"]
    assert 0 < uniform.loss_change < 2 * uniform.loss_stderr
    assert not without_bos.success
    assert without_bos.message.startswith("cannot tell what is recovered: even attention costs")
    assert math.isnan(without_bos.loss_recovered)
    assert without_bos.kl_recovered == pytest.approx(1.0)  # its own scale is clear


@pytest.mark.parametrize("bos", [True, False])
def test_every_edit_of_the_matches_is_a_known_estimator(
    bos: bool, with_bos: CausalTests, without_bos: CausalTests, chains: ChainBatch
) -> None:
    tests, kappa = (with_bos, KAPPA) if bos else (without_bos, None)

    def soft(*beta: float) -> float:
        return loss_of(soft_matching(chains.tokens, vocab=4, beta=beta, kappa=kappa), chains)

    assert tests.loss == pytest.approx(soft(2.5, 1.2))
    assert tests["beta_zero"].loss == pytest.approx(soft(0.0, 0.0))
    assert tests["lag_1_only"].loss == pytest.approx(soft(2.5, 0.0))
    assert tests["lag_2_only"].loss == pytest.approx(soft(0.0, 1.2))
    assert tests["lag_1_only"].loss_change == pytest.approx(soft(2.5, 0.0) - soft(2.5, 1.2))
    # Hard matching: the largest overlap there is, in equal parts, and nothing on BOS.
    hard = soft_matching(chains.tokens, vocab=4, beta=(500.0, 500.0))
    assert tests["beta_infinite"].loss == pytest.approx(loss_of(hard, chains))


def test_removing_bos_costs_what_the_estimator_says(with_bos: CausalTests, chains: ChainBatch) -> None:
    bare = loss_of(soft_matching(chains.tokens, vocab=4, beta=BETA), chains)
    assert with_bos["no_bos"].loss == pytest.approx(bare)
    full = loss_of(soft_matching(chains.tokens, vocab=4, beta=BETA, kappa=KAPPA), chains)
    assert with_bos["no_bos"].loss_change == pytest.approx(bare - full)


def test_the_control_of_removing_bos_takes_the_same_mass_elsewhere() -> None:
    """Where all tokens are one symbol, only the mass on BOS matters: p goes to p / (1 - p) instead of to 0."""
    tokens = torch.zeros(3, 24, dtype=torch.int64)
    model = construct(order=2, vocab=4, length=24, beta=BETA, kappa=KAPPA)
    tests = causal_tests(model, tokens, next_law=torch.full((3, 4), 0.25), law=(BETA, KAPPA))
    mass = math.exp(KAPPA) / (math.exp(KAPPA) + 22 * math.exp(sum(BETA)))

    def law(bos: float) -> torch.Tensor:
        return torch.tensor([[1 - 3 * bos / 4, bos / 4, bos / 4, bos / 4]], dtype=torch.float64)

    assert tests["no_bos"].control_kl == pytest.approx(float(kl_between(law(mass), law(mass / (1 - mass)))), rel=1e-4)
    assert tests["no_bos"].kl == pytest.approx(float(kl_between(law(mass), law(0.0))), rel=1e-4)
    assert tests["law"].control_kl == pytest.approx(0.0, abs=1e-12)  # all masks are equal: nothing to shuffle


def test_removing_partial_matches_leaves_add_alpha(
    with_bos: CausalTests, without_bos: CausalTests, chains: ChainBatch
) -> None:
    alpha = math.exp(KAPPA - sum(BETA)) / 4
    smoothed = add_alpha(chains.tokens, order=2, vocab=4, alpha=alpha)
    assert with_bos["no_partial"].loss == pytest.approx(loss_of(smoothed, chains))
    # Without BOS nothing may be left: empty votes are uniform, as maximum likelihood is for a new context.
    counted = maximum_likelihood(chains.tokens, order=2, vocab=4)
    assert without_bos["no_partial"].loss == pytest.approx(loss_of(counted, chains), rel=1e-6)
    assert "no_bos" not in {row.edit for row in without_bos.edits}


def test_uniform_is_even_attention_over_all_visible_keys(with_bos: CausalTests, chains: ChainBatch) -> None:
    counts = torch.nn.functional.one_hot(chains.tokens, 4).double().sum(1)
    even = (counts + 1 / 4) / 25  # 24 tokens and BOS
    assert with_bos["uniform"].loss == pytest.approx(loss_of(even, chains), rel=1e-6)
    assert with_bos["uniform"].control_loss_change is None


def test_a_mean_ablated_copy_head_takes_its_lag_with_it(without_bos: CausalTests) -> None:
    """The mean token at every key gives every key the same score: matching on that lag is gone."""
    assert without_bos["copy_head_1"].loss == pytest.approx(without_bos["lag_1_only"].loss, rel=1e-3)
    assert without_bos["copy_head_0"].loss == pytest.approx(without_bos["lag_2_only"].loss, rel=0.15)
    for head in (0, 1):
        row = without_bos[f"copy_head_{head}"]
        assert 0 < row.control_kl < row.kl


def test_a_wrong_law_recovers_less(chains: ChainBatch) -> None:
    model = construct(order=2, vocab=4, length=24, beta=BETA, kappa=KAPPA)
    near, far = (run(model, chains, law=(beta, KAPPA)) for beta in ((2.4, 1.1), (0.3, 2.5)))
    assert near.kl_recovered > 0.98
    assert far.kl_recovered < 0.6
    assert 0 <= far.loss_recovered < near.loss_recovered
    assert near["law"].kl > 0


PAIRS = np.array([[-0.6, BETA[0], 0.0], [0.0, -0.4, BETA[1]], [0.0, 0.0, 0.0]])


@pytest.mark.parametrize("kappa", [KAPPA, None])
def test_a_head_that_compares_unequal_lags_is_recovered_by_its_pairs_alone(
    kappa: float | None, chains: ChainBatch
) -> None:
    model = trained_like(beta=BETA, kappa=kappa)
    with torch.no_grad():
        for block in (0, 1):  # x_t with x_s, and x_{t-1} with x_{s-1}
            part = slice(4 * block, 4 * block + 4)
            model.match_attention.W_Q[0, part, part] += PAIRS[block, block] * torch.eye(4)
    # BOS holds 1/|V| of every symbol, in the blocks of the copies too.
    shifted = None if kappa is None else kappa + np.trace(PAIRS) / 4
    tests = run(model, chains, pair_law=(PAIRS, shifted))
    pair_law = tests["pair_law"]
    assert pair_law.change == pytest.approx(0.0, abs=1e-7)
    if kappa is not None:  # without BOS even attention costs this model no loss
        assert tests.pair_loss_recovered == pytest.approx(1.0)
    assert tests.pair_kl_recovered == pytest.approx(1.0)
    assert pair_law.control_kl > 3 * tests["law"].kl > 0
    assert tests.kl_recovered < 0.97
    fitted = fit_score_pairs(capture(model, chains.tokens))
    np.testing.assert_allclose(fitted.beta, PAIRS, atol=1e-6)
    assert fitted.kappa == (None if kappa is None else pytest.approx(shifted))


def test_pairs_that_do_not_belong_to_the_model_are_refused(with_bos: CausalTests, chains: ChainBatch) -> None:
    assert math.isnan(with_bos.pair_loss_recovered)  # none were given
    model = construct(order=2, vocab=4, length=24, beta=BETA, kappa=KAPPA)
    with pytest.raises(ValueError, match=r"finite weights of shape \[3, 3\], got \[2, 2\]"):
        run(model, chains, pair_law=(np.zeros((2, 2)), KAPPA))
    with pytest.raises(ValueError, match="needs a kappa exactly where"):
        run(model, chains, pair_law=(PAIRS, None))
    wrong = run(model, chains, pair_law=(-PAIRS, KAPPA))
    assert wrong.pair_loss_recovered < 0.5


def test_a_noisy_model_is_recovered_and_its_errors_are_stated() -> None:
    tests = run(trained_like(noise=0.05), planted.chains(batch=1000))
    assert tests.loss_recovered > 0.95
    assert 0 < tests.kl_recovered < 1
    assert 0 < tests.kl_recovered_stderr < 0.05
    assert tests["law"].change > 0


def test_random_weights_fail(chains: ChainBatch) -> None:
    """The negative control: some law is fed in, and it is not what this model does."""
    tests = run(without_mechanism(), chains)
    assert not tests.kl_recovered > 0.3


def test_nothing_to_recover_is_said(chains: ChainBatch) -> None:
    """A model that attends evenly already: the scale of the recovered loss is zero."""
    model = construct(order=2, vocab=4, length=24, beta=(0.0, 0.0), kappa=0.0)
    with torch.no_grad():
        model.blocks[1].attn.rel_bias.zero_()
    tests = run(model, chains)
    assert not tests.success
    assert "even attention costs no loss" in tests.message
    assert math.isnan(tests.loss_recovered)
    assert tests["uniform"].change == pytest.approx(0.0, abs=1e-12)


def test_without_a_law_the_other_edits_are_made(chains: ChainBatch) -> None:
    tests = run(trained_like(), chains, law=None)
    assert [row.edit for row in tests.edits] == ["no_partial", "no_bos", "copy_head_0", "copy_head_1", "uniform"]
    assert not tests.success
    assert "no law was given" in tests.message
    assert len(str(tests).splitlines()) <= 8
    json.dumps(tests.record(), allow_nan=False)


def test_an_edit_that_reaches_nothing_raises(chains: ChainBatch) -> None:
    model = trained_like()
    with torch.no_grad():
        model.blocks[1].attn.W_O.zero_()
    with pytest.raises(ValueError, match="did not reach the logits: nothing reads that head"):
        run(model, chains)


def test_a_copy_head_that_nothing_reads_is_reported(chains: ChainBatch) -> None:
    model = construct(order=2, vocab=4, length=24, beta=(2.5, 0.0), kappa=KAPPA)
    tests = run(model, chains, law=((2.5, 0.0), KAPPA))
    assert tests["copy_head_0"].reached
    assert not tests["copy_head_1"].reached
    assert tests["copy_head_1"].change > 0
    assert tests["copy_head_1"].loss_change == 0.0


def test_someone_elses_head(chains: ChainBatch) -> None:
    own = planted.chains(order=1, vocab=5, length=16, batch=40)
    model = planted_foreign()
    tests = causal_tests(Circuit(model, **FOREIGN), own.tokens, next_law=own.next_law, law=((2.0,), None))
    # Its first key is no candidate, yet it is attended: the law is nearly, not exactly, what it does.
    assert tests.kl_recovered > 0.9
    assert {"law", "beta_zero", "beta_infinite", "no_partial", "uniform", "copy_head_0"} <= {
        row.edit for row in tests.edits
    }
    wrong = Circuit(model, order=1, match_heads=[(2, 1)])
    with pytest.raises(ValueError, match="nothing reads that head"):
        causal_tests(wrong, own.tokens, next_law=own.next_law, law=((2.0,), None))


def test_a_standard_model(chains: ChainBatch) -> None:
    tests = run(planted_standard(), chains)
    assert tests.loss_recovered > 0.99
    assert tests["law"].kl < 1e-4
    assert tests["beta_zero"].kl > tests["beta_zero"].control_kl


def test_a_one_hot_truth_is_the_log_loss(chains: ChainBatch) -> None:
    """For sequences whose law is not known: the token that came."""
    came = torch.nn.functional.one_hot(chains.tokens[:, 0], 4).double()
    model = trained_like()
    tests = run(model, chains, next_law=came)
    expected = -torch.log(predict(model, chains.tokens).gather(1, chains.tokens[:, :1])).mean()
    assert tests.loss == pytest.approx(float(expected), rel=1e-4)


def test_the_model_and_the_tokens_stay_as_they_were(chains: ChainBatch) -> None:
    model = trained_like(noise=0.1)
    before = {name: value.clone() for name, value in model.named_parameters()}
    tokens, predicted = chains.tokens.clone(), predict(model, chains.tokens)
    run(model, chains)
    assert all(torch.equal(value, before[name]) for name, value in model.named_parameters())
    assert torch.equal(tokens, chains.tokens)
    assert torch.equal(predicted, predict(model, chains.tokens))
    assert not any(point.fwd_hooks for point in model.hook_dict.values())


def test_writing_a_models_own_attention_changes_nothing(chains: ChainBatch) -> None:
    model = trained_like(noise=0.1)
    circuit = Circuit(model)
    own = capture(circuit, chains.tokens).match_pattern.double()
    edited = laws(circuit, chains.tokens, hooks=write_pattern(circuit, own))
    torch.testing.assert_close(edited, predict(model, chains.tokens))


def test_the_seed_draws_the_controls_only(with_bos: CausalTests, chains: ChainBatch) -> None:
    model = construct(order=2, vocab=4, length=24, beta=BETA, kappa=KAPPA)
    same, other = run(model, chains), run(model, chains, seed=1)
    assert same.table().equals(with_bos.table())
    columns = [name for name in same.table().columns if not name.startswith("control")]
    assert other.table()[columns].equals(with_bos.table()[columns])
    assert other["law"].control_kl != same["law"].control_kl


def test_many_parts_of_a_batch_are_one_batch(
    with_bos: CausalTests, chains: ChainBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long sequences are run in parts; every part must get its own rows of the edit."""
    monkeypatch.setattr("interp.circuit.runner.BATCH_BYTES", 40 * 8 * 2 * 25 * 25)
    parts = run(construct(order=2, vocab=4, length=24, beta=BETA, kappa=KAPPA), chains)
    for row in with_bos.edits:
        assert parts[row.edit].loss == pytest.approx(row.loss, rel=1e-9)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"next_law": torch.ones(3, 4) / 4}, r"next_law must have shape \[96, 4\], got \[3, 4\]"),
        ({"next_law": torch.ones(96, 4)}, "sum to 1"),
        ({"floor": 0.0}, "floor must be a finite number > 0"),
        ({"law": (np.zeros(4), KAPPA)}, "give a law with a weight for each lag"),
    ],
)
def test_bad_input(changes: dict, message: str, chains: ChainBatch) -> None:
    with pytest.raises(ValueError, match=message):
        run(trained_like(), chains, **changes)


def test_the_command_line(tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    save(trained_like(noise=0.02, length=16), tmp_path / "trained")
    save(without_mechanism(length=16), tmp_path / "random")
    assert main(["causal", str(tmp_path / "trained"), str(tmp_path / "random"), "--batch", "64", "--json"]) == 1
    captured = capsys.readouterr()
    trained, random = json.loads(captured.out)["rows"]
    assert trained["loss_recovered"] > 0.9
    assert trained["success"]
    assert not random["success"]
    assert random["message"].startswith("no law to test: ")
    assert f"failed: {tmp_path / 'random'}: no law to test" in captured.err
    assert f"failed: {tmp_path / 'trained'}" not in captured.err


def test_copy_heads_of_one_lag_are_ablated_together() -> None:
    """Two heads share lag 1: one alone costs little of what both cost."""
    spec = Plant(order=1, copies={1: ((0, 0), (0, 2))}, matches={(1, 0): ((6.0,), 0.0)}, vocab=4, length=24, layers=2)
    chains = planted.chains(order=1)
    place = {"order": 1, "vocab": 4, "bos": 4, "match_heads": ((1, 0),)}
    model = plant(spec)
    both = Circuit(model, copy_heads=(((0, 0), (0, 2)),), **place)
    one = Circuit(model, copy_heads=((0, 2),), **place)
    assert both.known_copy_heads == ((0, 0), (0, 2))
    assert "lag 1: 0.0 and 0.2" in repr(both)
    tests, alone = (causal_tests(circuit, chains.tokens, next_law=chains.next_law, law=None) for circuit in (both, one))
    assert [name for name in tests if name.startswith("copy")] == ["copy_head_0+2"]
    assert tests["copy_head_0+2"].kl > 2 * alone["copy_head_2"].kl > 0
    assert tests["copy_head_0+2"].kl > tests["copy_head_0+2"].control_kl
