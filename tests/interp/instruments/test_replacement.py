"""Replacing match heads of a next-token model: the planted law recovers everything, and its controls nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import interp as ip
from interp.circuit.edits import write_pattern
from interp.circuit.law import key_masks_at, law_pattern
from interp.circuit.runner import every_law, laws, next_losses
from interp.instruments.replacement import spread_by_mask
from interp.notation import mask_bits
from tests import tiny_language
from tests.planted import DEEP, planted_deep
from tests.planted_heads import Plant, plant

BETAS, KAPPAS = ((2.7, 1.2), (1.4, 2.1)), (1.5, 0.4)
BY_MASK = np.stack([mask_bits(2) @ beta for beta in BETAS])
QUERIES = range(12, 23)


@pytest.fixture(scope="module")
def circuit() -> ip.Circuit:
    return ip.Circuit(planted_deep(betas=BETAS, kappas=KAPPAS), bos=True, **DEEP)


@pytest.fixture(scope="module")
def tokens() -> torch.Tensor:
    """Twelve random symbols, and the same again."""
    return torch.randint(4, (60, 12), generator=torch.Generator().manual_seed(0)).repeat(1, 2)


# ---- masks, losses and edits at many queries


@pytest.mark.parametrize("bos", [False, True])
def test_masks_from_a_query_are_those_of_its_prefix(tokens: torch.Tensor, bos: bool) -> None:
    queries = torch.tensor([2, 7, 15]) + int(bos)
    found = key_masks_at(tokens, order=2, bos=bos, queries=queries)
    assert found.shape == (60, 3, 24 + bos)
    for place, query in enumerate((queries - int(bos)).tolist()):
        prefix = torch.nn.functional.pad(ip.match_masks(tokens[:, : query + 1], order=2), (int(bos), 0), value=-1)
        assert torch.equal(found[:, place, : query + 1 + bos], prefix)
        assert bool((found[:, place, query + 1 + bos :] == -1).all())


def test_losses_are_those_of_the_predicted_laws(circuit: ip.Circuit, tokens: torch.Tensor) -> None:
    predicted, mass = every_law(circuit, tokens)
    torch.testing.assert_close(mass, torch.ones_like(mass))
    expected = -predicted[:, :-1].gather(-1, tokens[:, 1:, None]).squeeze(-1).log()
    torch.testing.assert_close(next_losses(circuit, tokens), expected)


def test_the_mass_of_the_symbols_is_what_others_leave(tokens: torch.Tensor) -> None:
    names = (6, 0, 3, 5)
    named = ip.Circuit(planted_deep(names=names), bos=8, symbols=names, **DEEP)
    _, mass = every_law(named, tokens)
    with torch.no_grad():
        everything = torch.softmax(named.model(named.ids(tokens), prepend_bos=False), -1)
    torch.testing.assert_close(mass, everything[:, 1:, list(names)].sum(-1))
    assert 0.3 < float(mass.mean()) < 0.999


def test_attention_is_written_at_the_queries_alone(circuit: ip.Circuit, tokens: torch.Tensor) -> None:
    queries = torch.tensor([8, 12])  # positions: tokens 7 and 11
    turned = torch.rand(60, 2, 2, 25, dtype=torch.float64)
    plain, edited = (
        next_losses(circuit, tokens),
        next_losses(
            circuit, tokens, hooks=write_pattern(circuit, turned / turned.sum(-1, keepdim=True), queries=queries)
        ),
    )
    changed = (plain != edited).any(0).nonzero().squeeze(-1)
    assert changed.tolist() == [7, 11]


def test_the_last_query_is_edited_where_none_is_listed(circuit: ip.Circuit, tokens: torch.Tensor) -> None:
    last = torch.tensor([24])
    masks = key_masks_at(tokens, order=2, bos=True, queries=last)
    rows = torch.stack([law_pattern(masks, by_mask=np.array([0.0, 1.0, 0.5, 1.5]), kappa=0.0)] * 2, dim=1)
    listed = laws(circuit, tokens, hooks=write_pattern(circuit, rows, queries=last))
    torch.testing.assert_close(laws(circuit, tokens, hooks=write_pattern(circuit, rows)), listed)


# ---- replacements


@pytest.fixture(scope="module")
def chains() -> ip.ChainBatch:
    prior = ip.HierarchicalDirichlet(order=2, vocab=4, eta=(3.0, 3.0))
    return prior.sample(batch=40, length=24, seed=2, method="explicit")


def test_the_divergence_from_the_truth_is_reported(chains: ip.ChainBatch) -> None:
    """By hand; the loss of the tokens that came has the same mean change."""
    model = planted_deep(betas=BETAS, kappas=KAPPAS)
    with torch.no_grad():
        model.unembed.W_U *= 0.25
    circuit, law, truth = ip.Circuit(model, bos=True, **DEEP), (BY_MASK, KAPPAS), chains.laws()
    tests = ip.replace_heads(circuit, chains.tokens, query=QUERIES, law=law, next_law=truth)
    plain = ip.replace_heads(circuit, chains.tokens, query=QUERIES, law=law)
    predicted, _ = every_law(circuit, chains.tokens)
    places = list(QUERIES)
    assert tests.kl == pytest.approx(ip.kl_divergence(truth[:, places], predicted[:, places]).mean)
    assert tests.loss == pytest.approx(plain.loss)
    assert plain.kl is plain["hard"].kl is plain["hard"].kl_needed is None
    for name in tests:
        assert tests[name].change == pytest.approx(plain[name].change, abs=1e-9)
        assert tests[name].kl == pytest.approx(tests.kl + tests[name].kl_change)
    even = tests["even"]
    assert even.kl_change == pytest.approx(even.change, abs=3 * even.stderr)
    assert even.kl_change > 3 * even.kl_stderr
    assert even.kl_needed == pytest.approx(100 * 40 * (even.kl_stderr / even.kl_change) ** 2, abs=1)
    assert tests["law"].kl_recovered == pytest.approx(1.0, abs=1e-9)
    assert "of the loss, 1.00 of the KL" in tests.title
    table = tests.table().set_index("edit")
    assert table.needed["law"] == table.kl_needed["law"] == "cannot tell"  # the planted law changes nothing
    with pytest.raises(ValueError, match=r"next_law must have shape \[40, 24, 4\], one row for each token, got"):
        ip.replace_heads(circuit, chains.tokens, query=QUERIES, next_law=chains.next_law)


@pytest.mark.parametrize("law", ["additive", "suffix", "free"])
def test_every_law_is_fitted_and_taken_as_a_fit(circuit: ip.Circuit, tokens: torch.Tensor, law: str) -> None:
    one = circuit.with_match_heads((3, 0))
    fit = ip.fit_scores(ip.capture(one, tokens, query=QUERIES), source="attention", law=law, position=False)
    given, found = (ip.replace_heads(one, tokens, query=QUERIES, law=kind, draws=0) for kind in (fit, law))
    assert found["law"].loss == pytest.approx(given["law"].loss, abs=1e-6)
    assert (abs(found["law"].change) < 1e-6) == (law != "suffix")  # the planted law is additive


def test_controls_leave_every_copy_head_alone(tokens: torch.Tensor) -> None:
    """Copy heads that the circuit does not name: ablating one would cost what the match heads do."""
    spec = Plant(order=1, copies={1: ((0, 0), (0, 1))}, matches={(1, 0): ((3.0,), 1.0)}, vocab=4, length=24, layers=2)
    place = {"order": 1, "vocab": 4, "bos": 4, "match_heads": ((1, 0),)}
    tests = ip.replace_heads(ip.Circuit(plant(spec), **place), tokens, query=QUERIES, draws=12)
    assert {head for heads in tests.drawn for head in heads} == {(1, 1), (1, 2), (1, 3)}
    assert tests.worst_control == pytest.approx(0.0, abs=1e-9)
    wide = Plant(**{**vars(spec), "heads": 2, "matches": {(1, 0): ((3.0,), 1.0), (1, 1): ((2.0,), 1.0)}})
    both = ip.Circuit(plant(wide), **{**place, "match_heads": ((1, 0), (1, 1))})
    assert ip.replace_heads(both, tokens, query=QUERIES).drawn == ()


def test_the_planted_law_replaces_the_heads(circuit: ip.Circuit, tokens: torch.Tensor) -> None:
    tests = ip.replace_heads(circuit, tokens, query=QUERIES, law=(BY_MASK, KAPPAS))
    assert tests.success
    assert list(tests) == ["ablated", "even", "law", "grouped", "hard"]
    assert tests["grouped"].recovered == pytest.approx(1.0, abs=1e-9)  # keys of one mask are alike here
    assert tests["grouped"].control_recovered < 0.5
    assert tests["law"].change == pytest.approx(0.0, abs=1e-9)
    assert tests["law"].recovered == pytest.approx(1.0, abs=1e-9)
    assert tests["law"].control_recovered < 0.5
    assert tests["ablated"].change > 4 * tests["ablated"].stderr > 0
    assert tests["ablated"].recovered == 0.0
    assert tests["ablated"].control_change == pytest.approx(0.0, abs=1e-9)  # the other heads do nothing
    assert tests["even"].recovered < 0.9
    for drawn in tests.drawn:  # the one other head of the layer, and one of another layer; none of the circuit
        assert len(drawn) == 2
        assert (3, 1) in drawn
        assert not {*circuit.match_heads, *circuit.known_copy_heads} & {*drawn}
    assert tests.loss == pytest.approx(float(next_losses(circuit, tokens)[:, 12:23].mean()))
    assert "the law recovers 1.00" in str(tests)
    assert len(str(tests).splitlines()) <= 8
    assert tests.table()["edit"].tolist() == list(tests)
    heights = [bar.get_height() for bar in tests.plot().containers[1]]
    assert heights == pytest.approx([row.change for row in tests.edits])


def test_the_fitted_law_is_the_planted_one(circuit: ip.Circuit, tokens: torch.Tensor) -> None:
    given = ip.replace_heads(circuit, tokens, query=range(2, 23), law=(BY_MASK, KAPPAS))
    found = ip.replace_heads(circuit, tokens, query="trained", law="fitted")
    assert found.queries == given.queries == 21
    assert "doubt" not in found.message
    for name in given:
        assert found[name].loss == pytest.approx(given[name].loss, abs=1e-6)


def test_one_head_at_a_time(circuit: ip.Circuit, tokens: torch.Tensor) -> None:
    """Two heads share the votes. At a temperature where more votes help, one alone recovers a part, both all."""
    model = planted_deep(betas=((3.0, 3.0),) * 2, kappas=(0.0, 0.0))
    with torch.no_grad():
        model.unembed.W_U *= 0.25
    both = ip.Circuit(model, bos=True, **DEEP)
    tests = ip.replace_heads(both, tokens, query=range(14, 23), law="fitted", each=True)
    names = [f"{place[0]}.{place[1]}" for place in both.match_heads]
    alone = [f"{kind} {one}" for one in names for kind in ("only", "law")]
    assert list(tests) == ["ablated", "even", "law", "grouped", "hard", *alone]
    for name in names:
        law = tests[f"law {name}"]
        assert law.loss == pytest.approx(tests[f"only {name}"].loss, abs=1e-6)  # the law is the head's own attention
        assert 0.2 < law.recovered < 0.9 < tests["law"].recovered
        assert law.control_recovered < law.recovered - 0.1
    assert tests.best_alone is not None
    assert tests.best_alone.recovered == max(tests[name].recovered for name in alone)
    assert f"one head alone at most {tests.best_alone.recovered:.2f}" in str(tests)
    assert len(str(tests).splitlines()) <= 8
    record = tests.record()
    assert record["recovered"]["law"] == pytest.approx(tests["law"].recovered)
    assert record["alone"] == pytest.approx(tests.best_alone.recovered)


def test_one_head_alone_is_the_others_ablated(circuit: ip.Circuit, tokens: torch.Tensor) -> None:
    first, second = circuit.match_heads
    tests = ip.replace_heads(circuit, tokens, query=QUERIES, each=True)
    other = ip.replace_heads(circuit.with_match_heads(second), tokens, query=QUERIES)
    assert tests[f"only {first[0]}.{first[1]}"].loss == pytest.approx(other["ablated"].loss)
    single = ip.replace_heads(circuit.with_match_heads(first), tokens, query=QUERIES, law="fitted", each=True)
    assert list(single) == ["ablated", "even", "law", "grouped", "hard"]
    assert single.best_alone is None


@pytest.mark.parametrize("bos", [False, True])
def test_masses_are_spread_over_the_keys_of_a_mask(bos: bool) -> None:
    """Against a double loop."""
    tokens = torch.randint(3, (5, 12), generator=torch.Generator().manual_seed(1))
    masks = key_masks_at(tokens, order=2, bos=bos, queries=torch.tensor([4, 11]) + int(bos))
    rows = torch.rand(masks.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    found = spread_by_mask(rows, masks)
    for place in np.ndindex(*masks.shape):
        alike = masks[place[0], place[1]] == masks[place]
        expected = rows[place[0], place[1]][alike].mean() if masks[place] >= 0 else rows[place]
        assert float(found[place]) == pytest.approx(float(expected))


def test_a_law_in_doubt_is_named(circuit: ip.Circuit, tokens: torch.Tensor) -> None:
    idle = ip.Circuit(circuit.model, order=2, vocab=4, bos=4, match_heads=((2, 0), (3, 0)))
    tests = ip.replace_heads(idle, tokens, query=QUERIES, law="fitted", draws=1)
    assert "laws in doubt: 2.0: the attention has" in tests.message
    assert "3.0:" not in tests.message


def test_another_law_recovers_less(circuit: ip.Circuit, tokens: torch.Tensor) -> None:
    weak = ip.replace_heads(circuit, tokens, query=QUERIES, law=(0.2 * BY_MASK, KAPPAS))
    assert weak["law"].change > 3 * weak["law"].stderr > 0
    assert weak["law"].recovered < 0.9


def test_hard_matching_is_the_limit_of_the_law(circuit: ip.Circuit, tokens: torch.Tensor) -> None:
    large = 40.0 * np.stack([mask_bits(2).sum(1)] * 2)
    tests = ip.replace_heads(circuit, tokens, query=QUERIES, law=(large, (-40.0, -40.0)))
    assert tests["law"].loss == pytest.approx(tests["hard"].loss)


def test_heads_that_do_nothing_have_nothing_to_recover(circuit: ip.Circuit, tokens: torch.Tensor) -> None:
    idle = ip.Circuit(circuit.model, order=2, vocab=4, bos=4, match_heads=((2, 0),))
    tests = ip.replace_heads(idle, tokens, query=QUERIES, draws=1)
    assert not tests.success
    assert "costs no loss" in tests.message
    assert np.isnan(tests["hard"].recovered)
    assert list(tests) == ["ablated", "even", "grouped", "hard"]


def test_what_heads_do_within_its_error_has_no_share(tokens: torch.Tensor) -> None:
    """Only some sequences repeat themselves: on the others matching costs, and the mean is not clear of its error."""
    model = planted_deep(betas=BETAS, kappas=KAPPAS)
    with torch.no_grad():
        model.unembed.W_U *= 0.25
    circuit, mixed = ip.Circuit(model, bos=True, **DEEP), tokens.clone()
    mixed[20:, 12:] = torch.randint(4, (40, 12), generator=torch.Generator().manual_seed(1))
    doubtful, clear = (
        ip.replace_heads(circuit, given, query=QUERIES, law=(BY_MASK, KAPPAS), each=True) for given in (mixed, tokens)
    )
    assert 0 < doubtful["ablated"].change < 2 * doubtful["ablated"].stderr
    assert not doubtful.success
    assert doubtful.message.startswith("cannot tell what is recovered: ablating the heads costs 0.0")
    assert all(np.isnan(row.recovered) and np.isnan(row.recovered_stderr) for row in doubtful.edits)
    assert "nan" not in str(doubtful)
    assert clear["ablated"].change > 2 * clear["ablated"].stderr
    assert clear.success
    assert "cannot tell" not in clear.message


@pytest.mark.parametrize("kind", sorted(tiny_language.KINDS))
def test_random_weights_recover_nothing_by_matching(kind: str, tmp_path: Path) -> None:
    language = ip.load_language_model(tiny_language.write(tiny_language.KINDS[kind](), tmp_path))
    given = ip.repeated_tokens(language, batch=12, length=10, seed=1)
    circuit = ip.Circuit(language.model, order=2, match_heads=((1, 0), (1, 2)), **given.place)
    tests = ip.replace_heads(circuit, given.tokens, query=range(10, 19), law=(BY_MASK, KAPPAS))
    assert abs(tests["ablated"].change) < 1.0
    assert tests["law"].change != 0.0  # the edit reached the logits
    assert abs(tests["law"].change - tests["law"].control_change) < 4 * tests["law"].stderr + 0.05


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"query": []}, "query lists no token index"),
        ({"query": [3, 23]}, "query 23 has no next token among the tokens 0..23"),
        ({"query": [1, 3]}, "query 1 has no candidate key: the first that has one is 2"),
        ({"query": "last"}, "query must be 'trained' or list token indices, got 'last'"),
        ({"law": "best"}, "law must be a fit, such as fit_scores"),
        ({"other_laws": (BY_MASK, KAPPAS)}, "other_laws must map names to laws"),
    ],
)
def test_bad_calls_are_refused(circuit: ip.Circuit, tokens: torch.Tensor, options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ip.replace_heads(circuit, tokens, **{"query": QUERIES, "law": (BY_MASK, KAPPAS), **options})


def test_one_sequence_shows_no_error(circuit: ip.Circuit, tokens: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="1 sequences; losses need at least 2"):
        ip.replace_heads(circuit, tokens[:1], query=QUERIES)
