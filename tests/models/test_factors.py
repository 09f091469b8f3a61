"""Factors of a run: readout, frozen parts, starts, tied kappa, symmetrised batches; checked against autograd."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from einops import rearrange
from torch.func import functional_call

import interp as ip
from interp.hooked.construction import COPY_STRENGTH, write_construction
from interp.hooked.transformer import InductionConfig, InductionTransformer
from models.families import construction
from models.families.disentangled import weights as disentangled
from models.families.disentangled.training import DisentangledTrainer, loss_and_gradient, symmetrise
from models.families.disentangled.weights import PARAMETERS
from models.families.kappa import KappaRule
from models.families.registry import DISENTANGLED, FAMILIES
from models.running.cli import main
from models.training import run as runs
from models.training.run import RunError, recorded_spec, run
from models.training.spec import RunSpec, make_spec
from models.training.trainers import make_trainer

pytestmark = pytest.mark.usefixtures("few_held_out")

PRIOR = ip.HierarchicalDirichlet(order=2, vocab=3, eta=(2.0, 4.0))
SUBSETS = [
    pytest.param(chosen, id="+".join(chosen) or "nothing")
    for size in range(3)
    for chosen in itertools.combinations(DISENTANGLED.freezable, size)
]
# Parts that are columns of a parameter, here with 9 positions and BOS. Of W_O: 0-8 the query's own stream, 9-11 the
# votes, 12-17 copies of the keys.
COLUMNS = {
    "direct": ("readout_weight", range(9)),
    "carried": ("readout_weight", range(12, 18)),
    "copies_bos": ("copy_bias", [9]),
    "copies_first": ("copy_bias", [8]),
}
HOOKED_NAMES = {
    "copy_weight": "blocks.0.attn.W_Q",
    "copy_bias": "blocks.0.attn.rel_bias",
    "match_weight": "blocks.1.attn.W_Q",
    "match_bias": "blocks.1.attn.rel_bias",
    "readout_weight": "unembed.W_U",
}


def config_of(*, readout: str = "probability", bos: bool = True, length: int = 9) -> InductionConfig:
    small = disentangled.config(order=2, vocab=3, length=length, bos=bos, readout=readout)
    return replace(small, dtype="float64")


def tiny(**changes: object) -> RunSpec:
    settings: dict[str, object] = {"family": "disentangled", "prior": PRIOR.to_dict(), "length": 10, "bos": True}
    return make_spec(**{**settings, "steps": 60, **changes})  # type: ignore[arg-type]


def batch_of(config: InductionConfig, *, batch: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    chains = PRIOR.sample(batch=batch, length=config.length, seed=seed)
    return chains.tokens, chains.next_law


def loss_of(model: InductionTransformer, tokens: torch.Tensor, laws: torch.Tensor) -> torch.Tensor:
    """Last-token cross-entropy by the HookedTransformer's own forward."""
    if model.config.bos:
        tokens = torch.nn.functional.pad(tokens, (1, 0), value=model.config.vocab)
    return -(laws * torch.log_softmax(model(tokens)[:, -1], dim=-1)).sum(-1).mean()


@pytest.mark.parametrize("readout", ["probability", "logit"])
@pytest.mark.parametrize("frozen", SUBSETS)
def test_every_mask_and_readout_trains_as_autograd_does(readout: str, frozen: tuple[str, ...]) -> None:
    """The same batches through the HookedTransformer and torch.optim.Adam, with the frozen parameters left out."""
    init = "random(0.4)" if {"direct", "carried"} & set(frozen) else "random(0.4),readout=symmetric(0.4)"
    spec = tiny(length=9, batch=3, seed=3, readout=readout, freeze=",".join(frozen), init=init)
    trainer, twin = (DisentangledTrainer(spec, dtype="float64") for _ in range(2))
    config, start = trainer.config, trainer.params.copy()
    trainer.advance(np.full(8, 1e-2))
    model = disentangled.to_hooked(config, start)
    still = {name for part in frozen if part not in COLUMNS for name in PARAMETERS[part]}
    whole = {HOOKED_NAMES[name] for name in still}
    free = [model.get_parameter(name) for name in model.free_parameters() if name not in whole]
    optimiser = torch.optim.Adam(free, lr=1e-2)
    for _ in range(8):
        tokens, laws = map(torch.from_numpy, twin.draw())
        optimiser.zero_grad()
        loss_of(model, tokens, laws).backward()
        grads = {"readout_weight": model.unembed.W_U.grad.T, "copy_bias": model.copy_attention.rel_bias.grad}
        for part in frozen:
            if part in COLUMNS:
                name, columns = COLUMNS[part]
                grads[name][:, columns] = 0.0
        optimiser.step()
    np.testing.assert_allclose(trainer.params, disentangled.from_hooked(model), atol=1e-8)
    before, after = disentangled.views(config, start), disentangled.views(config, trainer.params)
    for name in disentangled.parameter_shapes(config):
        assert np.array_equal(before[name], after[name]) == (name in still), name
    for name in {"readout_weight", "copy_bias"} - still:
        stays = (before[name] == after[name]).all(0)
        cut = [column for part in frozen if part in COLUMNS and COLUMNS[part][0] == name for column in COLUMNS[part][1]]
        assert np.flatnonzero(stays).tolist() == sorted(cut)


def test_hard_is_the_constructions_own_copying_and_readout() -> None:
    config = config_of(length=12)
    parts = disentangled.views(config, disentangled.initial(config, init="hard", seed=5))
    analytic = ip.construct(order=2, vocab=3, length=12, beta=(2.0, 1.0), kappa=0.5)
    theirs = disentangled.views(config, disentangled.from_hooked(analytic))
    for name in ("copy_weight", "copy_bias", "readout_weight"):
        np.testing.assert_array_equal(parts[name], theirs[name])
    assert not parts["match_weight"].any()
    assert not parts["match_bias"].any()


def test_the_named_starts_are_what_they_were() -> None:
    """Starts of the shipped checkpoints: one normal draw for the whole vector, the readout overwritten."""
    config = disentangled.config(order=2, vocab=3, length=12, bos=True)
    for init, std, peak in (("random(0.3)", 0.3, 0.0), ("copy(5)", 0.02, 5.0)):
        expected = np.random.default_rng([4, 1]).normal(scale=std, size=disentangled.size_of(config))
        views = disentangled.views(config, expected)
        for lag in (1, 2):
            views["copy_bias"][lag - 1, lag] += peak
        views["readout_weight"][:] = np.eye(3, 18, k=9)
        np.testing.assert_array_equal(disentangled.initial(config, init=init, seed=4), expected.astype(np.float32))


def blocks_of(weight: np.ndarray) -> np.ndarray:
    return rearrange(weight, "(row m) (column n) -> (row column) m n", m=3, n=3)


def asymmetry(parts: dict[str, np.ndarray]) -> float:
    """How far any block of any W_A or of W_O is from a I + b J."""
    stacked = [*parts["copy_weight"], *blocks_of(parts["match_weight"]), *blocks_of(parts["readout_weight"])]
    orders = [list(order) for order in itertools.permutations(range(3))]
    return float(max(np.abs(block[np.ix_(order, order)] - block).max() for block in stacked for order in orders))


@pytest.mark.parametrize(
    ("init", "symmetric"),
    [
        ("symmetric(0.5)", True),
        ("bias(0.5)", True),
        ("zero", True),
        ("hard", True),
        ("hard,readout=symmetric(1)", True),
        ("random(0.5)", False),
        ("copy(5)", False),
        ("hard,readout=random(1)", False),
        ("symmetric(0.5),match=random(0.1)", False),
    ],
)
def test_symmetric_starts_are_those_that_no_relabeling_changes(init: str, symmetric: bool) -> None:
    config = config_of()
    parts = disentangled.views(config, disentangled.initial(config, init=init, seed=1))
    assert (asymmetry(parts) == 0) == symmetric
    factors = {"init": init, "freeze": "copies" if "hard" in init else "", "readout": "logit", "symmetrise": True}
    if symmetric:
        assert tiny(**factors).symmetrise
    else:
        with pytest.raises(ValueError, match="no relabeling changes"):
            tiny(**factors)


def test_a_parts_start_does_not_depend_on_the_other_parts() -> None:
    config = config_of()
    starts = ("random(0.3)", "hard,match=random(0.3),readout=random(2)")
    whole, mixed = (disentangled.views(config, disentangled.initial(config, init=init, seed=2)) for init in starts)
    np.testing.assert_array_equal(whole["match_weight"], mixed["match_weight"])
    assert mixed["copy_bias"].max() == COPY_STRENGTH
    assert mixed["readout_weight"].std() == pytest.approx(2.0, rel=0.3)


@pytest.mark.parametrize("readout", ["probability", "logit"])
@pytest.mark.parametrize("bos", [True, False])
def test_a_symmetrised_gradient_is_the_mean_over_relabelled_batches(readout: str, bos: bool) -> None:
    config = config_of(readout=readout, bos=bos)
    flat = disentangled.initial(config, init="symmetric(0.7)", seed=0)
    tokens, laws = batch_of(config, batch=5, seed=2)
    loss, gradient, _ = loss_and_gradient(config, flat, tokens.numpy(), laws.numpy())
    symmetrise(config, gradient)
    total = torch.zeros((), dtype=torch.float64)
    model = disentangled.to_hooked(config, flat)
    for order in itertools.permutations(range(3)):
        new = torch.tensor(order)
        relabelled = torch.empty_like(laws)
        relabelled[:, new] = laws
        total = total + loss_of(model, new[tokens], relabelled) / 6
    total.backward()
    assert loss == pytest.approx(total.item(), abs=1e-8)
    parts, half = disentangled.views(config, gradient), config.blocks * config.vocab
    np.testing.assert_allclose(parts["copy_weight"], model.copy_attention.W_Q.grad[:, :3].numpy(), atol=1e-8)
    np.testing.assert_allclose(parts["copy_bias"], model.copy_attention.rel_bias.grad.numpy(), atol=1e-8)
    np.testing.assert_allclose(parts["match_weight"], model.match_attention.W_Q.grad[0, :half].numpy(), atol=1e-8)
    np.testing.assert_allclose(parts["match_bias"], model.match_attention.rel_bias.grad[0].numpy(), atol=1e-8)
    np.testing.assert_allclose(parts["readout_weight"], model.unembed.W_U.grad.numpy().T, atol=1e-8)


def test_symmetrised_batches_keep_the_symmetry_to_the_last_bit_and_plain_ones_do_not() -> None:
    found = {}
    for relabelled in (True, False):
        spec = tiny(init="bias(0.3)", readout="logit", symmetrise=relabelled)
        trainer = make_trainer(spec)
        trainer.advance(spec.schedule.learning_rates(0, 60))
        parts = disentangled.views(trainer.config, trainer.params)
        assert np.abs(parts["match_weight"]).max() > 1e-3
        found[relabelled] = asymmetry(parts)
    assert found[True] == 0.0
    assert found[False] > 1e-3


# --- kappa ------------------------------------------------------------------------------------------------------


def test_the_rules_of_kappa() -> None:
    tied, fixed = KappaRule.parse("tied(0.5)"), KappaRule.parse("fixed(-2)")
    assert tied.line(vocab=4) == (np.log(2.0), 1.0)
    assert fixed.line(vocab=4) == (-2.0, 0.25)
    assert KappaRule.parse("free").free
    # tied(ALPHA) is prop:add_constant: kappa = k beta + ln(alpha |V|) where the betas are equal.
    built = make_trainer(tiny(family="construction", kappa="tied(0.5)", init="beta(2)"))
    assert built.reading() == ([2.0, 2.0], pytest.approx(4.0 + np.log(1.5)))
    # fixed(DELTA) leaves the relative bias of BOS where it is.
    for beta in ("beta(0)", "beta(3)"):
        model = make_trainer(tiny(family="construction", kappa="fixed(-2)", init=beta)).hooked()
        assert model.match_attention.rel_bias[0, 10].item() == pytest.approx(-2.0)


@pytest.mark.parametrize("rule", ["free", "tied(0.7)", "fixed(1.5)"])
def test_the_gradient_of_a_tied_kappa_is_autograds_through_the_hooked_transformer(rule: str) -> None:
    kappa = KappaRule.parse(rule)
    built = ip.construct(order=2, vocab=3, length=11, beta=(0, 0), kappa=0)
    config = replace(built.config, floor=construction.FLOOR)
    tokens, laws = batch_of(config, batch=8, seed=3)
    beta = torch.tensor([1.3, -0.4], dtype=torch.float64, requires_grad=True)
    own = torch.tensor(0.6, dtype=torch.float64, requires_grad=True)
    offset, slope = (0.0, 0.0) if kappa.free else kappa.line(vocab=3)
    score = own if kappa.free else offset + slope * beta.sum()
    model = InductionTransformer(config)
    write_construction(model, beta=beta.detach().numpy(), kappa=score.item())
    query = model.match_attention.W_Q.detach().clone()
    query[0, 0:3, 3:6] = beta[0] * torch.eye(3, dtype=torch.float64)
    query[0, 3:6, 6:9] = beta[1] * torch.eye(3, dtype=torch.float64)
    bias = model.match_attention.rel_bias.detach().clone()
    bias[0, 11] = score - beta.sum() / 3
    weights = {"blocks.1.attn.W_Q": query, "blocks.1.attn.rel_bias": bias}
    seen = torch.nn.functional.pad(tokens, (1, 0), value=3)
    logits = functional_call(model, weights, (seen,))[:, -1]
    expected = -(laws * torch.log_softmax(logits, dim=-1)).sum(-1).mean()
    expected.backward()
    params = np.array([1.3, -0.4, 0.6] if kappa.free else [1.3, -0.4])
    loss, gradient = construction.loss_and_gradient(config, params, tokens.numpy(), laws.numpy(), kappa=kappa)
    assert loss == pytest.approx(expected.item(), abs=1e-10)
    np.testing.assert_allclose(gradient[:2], beta.grad.numpy(), atol=1e-9)
    assert gradient[2:] == pytest.approx([own.grad.item()] if kappa.free else [], abs=1e-9)


# --- Specs and checkpoints --------------------------------------------------------------------------------------

FACTORS = [
    {"readout": "logit"},
    {"freeze": "copies,readout", "init": "hard"},
    {"freeze": "direct,carried", "readout": "logit"},
    {"freeze": "match_bias", "init": "copy(4),match_bias=zero,readout=random(0.5)", "readout": "logit"},
    {"init": "bias(0.3)", "readout": "logit", "symmetrise": True},
    {"family": "construction", "kappa": "tied(1)"},
    {"family": "standard", "bos_vector": "block", "batch": 4},
]


@pytest.mark.parametrize("factors", FACTORS, ids=lambda factors: ",".join(factors))
def test_factors_are_kept_and_an_interrupted_run_ends_in_the_same_bits(
    factors: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = tiny(**factors)
    run(spec, tmp_path / "whole", progress=False)
    calls, log = 0, runs._log

    def interrupt(work: Path, **entry: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 23:
            raise KeyboardInterrupt
        log(work, **entry)

    monkeypatch.setattr(runs, "_log", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(spec, tmp_path / "cut", progress=False, save_seconds=0.0)
    monkeypatch.setattr(runs, "_log", log)
    with pytest.raises(RunError, match=r"other settings \(seed\)"):
        run(tiny(**factors, seed=1), tmp_path / "cut", resume=True, progress=False)
    run(spec, tmp_path / "cut", resume=True, progress=False)
    steps = [json.loads(line)["step"] for line in (tmp_path / ".cut.run" / "log.jsonl").read_text().splitlines()]
    assert len(steps) == len(set(steps))
    files = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "cut")]
    assert files[0] == files[1]
    assert recorded_spec(tmp_path / "cut") == spec == RunSpec.from_dict(spec.to_dict())
    assert ip.load(tmp_path / "cut").config.readout == spec.readout


def test_frozen_parts_of_a_checkpoint_are_bit_equal_to_their_start(tmp_path: Path) -> None:
    arguments = ["train", "--prior", "hierarchical:5,5", "--bos", "--length", "12", "--steps", "300"]
    assert main([*arguments, "--freeze", "copies,readout", "--init", "hard", "--out", str(tmp_path / "a")]) == 0
    spec = recorded_spec(tmp_path / "a")
    assert (spec.freeze, spec.init, spec.prior["eta"]) == ("copies,readout", "hard", [5.0, 5.0])
    model = ip.load(tmp_path / "a")
    start = disentangled.to_hooked(model.config, disentangled.initial(model.config, init="hard", seed=0))
    for name, value in start.named_parameters():
        moved = not torch.equal(value, model.get_parameter(name))
        assert moved == (name in ("blocks.1.attn.W_Q", "blocks.1.attn.rel_bias")), name


@pytest.mark.parametrize(("init", "stays"), [("copy(40)", True), ("copy(3)", False)])
def test_saturated_copies_stay_and_that_is_said(
    init: str, stays: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["train", "--length", "12", "--vocab", "3", "--steps", "1500", "--init", init]
    assert main([*arguments, "--out", str(tmp_path / "a")]) == 0
    assert ("cannot move them off their lags" in capsys.readouterr().err) == stays
    cap = ip.capture(ip.load(tmp_path / "a"), PRIOR.sample(batch=64, length=12, seed=0).tokens)
    assert (ip.copy_heads(cap).last_mass.min() > 0.999) == stays


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"init": "bias(0.3)"}, "no gradient under the probability readout"),
        ({"init": "bias(0.3)", "readout": "logit", "freeze": "readout"}, "frozen at zero"),
        ({"freeze": "carried", "init": "random(0.3),readout=random(1)"}, "freezing carried cuts it only where"),
        ({"symmetrise": True}, "copies=random\\(0.3\\) is none"),
        ({"freeze": "copies"}, "copies: it would stay at its random start, random\\(0.3\\); add --init 'hard'"),
        ({"freeze": "readout, match_bias"}, "match_bias: it would .* add --init 'random\\(0.3\\),match_bias=zero'"),
        ({"kappa": "tied(1)"}, "kappa tied\\(1\\): in the disentangled family"),
        ({"family": "construction", "kappa": "tied(-1)"}, "ALPHA > 0"),
        ({"family": "construction", "kappa": "tied(1)", "bos": False}, "needs a BOS token"),
        ({"family": "standard", "freeze": "readout"}, "freeze of the standard family must be nothing"),
        ({"family": "standard", "bos_vector": "mean", "bos": False}, "bos_vector mean needs a BOS token"),
        ({"family": "standard", "symmetrise": True}, "cannot train on symmetrised"),
        ({"init": "hard,votes=zero"}, "no part 'votes'"),
        ({"init": "copies=hard,match=zero"}, "does not say where match_bias, readout start"),
        ({"init": "random(-1)"}, "number >= 0"),
        ({"init": "hard(3)"}, "init must be"),
    ],
)
def test_what_contradicts_itself_is_refused_in_one_line(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message) as refusal:
        tiny(**changes)
    assert "\n" not in str(refusal.value)


def test_parts_are_frozen_at_random_weights_only_where_the_start_is_named() -> None:
    asked = tiny(freeze="copies,match_bias", init="random(0.3)")
    assert (asked.freeze, asked.init) == ("copies,match_bias", "random(0.3)")
    assert RunSpec.from_dict(asked.to_dict()) == asked  # as a checkpoint describes its run
    assert tiny(freeze="readout").freeze == "readout"  # starts at the construction's
    assert tiny(freeze="readout, copies", init="hard").freeze == "copies,readout"


def test_a_run_made_before_there_were_factors_is_the_same_run() -> None:
    for family in FAMILIES:
        spec = tiny(family=family)
        old = {
            name: value
            for name, value in spec.to_dict().items()
            if name not in ("readout", "freeze", "kappa", "symmetrise", "bos_vector")
        }
        assert RunSpec.from_dict(old) == spec
    with pytest.raises(ValueError, match="unknown or missing key: length"):
        RunSpec.from_dict({name: value for name, value in old.items() if name != "length"})
    with pytest.raises(ValueError, match="unknown or missing key: lenght"):
        RunSpec.from_dict({**old, "lenght": 3})
