"""Two checkpoints on the same sequences: planted differences are found, with errors of the paired difference."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import interp as ip
from analyses.checkpoint import compare
from analyses.running.cli import main
from analyses.running.options import CheckpointOptions
from analyses.running.subject import Subject
from interp.notation import key_kinds, kind_masses
from tests import tiny_zoo
from tests.planted import without_mechanism

BATCH = 96
OPTIONS = CheckpointOptions(batch=BATCH)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("planted")
    for name, beta, kappa in (("first", (2.5, 1.2), 2.0), ("second", (2.0, 1.5), 2.0), ("bare", (2.5, 1.2), None)):
        ip.save(ip.construct(order=2, vocab=4, length=24, beta=beta, kappa=kappa), folder / name)
    ip.save(without_mechanism(), folder / "random")
    return {name: folder / name for name in ("first", "second", "bare", "random")}


def compared(capsys: pytest.CaptureFixture[str], *paths: Path) -> dict[str, dict[str, Any]]:
    assert main(["compare", *map(str, paths), "--batch", str(BATCH), "--json"]) == 0
    return {row["number"]: row for row in json.loads(capsys.readouterr().out)["rows"]}


def test_planted_differences_are_found(planted: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    rows = compared(capsys, planted["first"], planted["second"])
    for name, difference in (("beta_1", -0.5), ("beta_2", 0.3), ("kappa", 0.0), ("copy lag 1", 0.0)):
        assert rows[name]["difference"] == pytest.approx(difference, abs=1e-5)
    masses = [row["difference"] for name, row in rows.items() if name.startswith("attention")]
    assert sum(masses) == pytest.approx(0.0, abs=1e-6)


def test_a_checkpoint_does_not_differ_from_itself(
    planted: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ip.save(ip.load(planted["random"]), tmp_path / "again")
    for row in compared(capsys, planted["random"], tmp_path / "again").values():
        assert (row["difference"], row["stderr"]) == (0.0, 0.0)


def test_errors_are_those_of_the_paired_differences(
    planted: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    row = compared(capsys, planted["first"], planted["random"])["kl"]
    subjects = [Subject.open(planted[name], OPTIONS) for name in ("first", "random")]
    tokens, truth = subjects[0].chains.tokens, subjects[0].chains.next_law
    first, second = (ip.kl_divergence(truth, ip.predict(one.model, tokens)).values.tolist() for one in subjects)
    each = [b - a for a, b in zip(first, second, strict=True)]
    mean = sum(each) / BATCH
    variance = sum((value - mean) ** 2 for value in each) / (BATCH - 1)
    assert row["difference"] == pytest.approx(mean)
    assert row["stderr"] == pytest.approx(math.sqrt(variance / BATCH))


def test_the_jackknife_agrees_with_the_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of noisy weights beside those of a construction, whose fit has no error of its own."""
    for family in ("construction", "disentangled"):
        ip.save(tiny_zoo.model_of(family, kappa=tiny_zoo.KAPPA, seed=0), tmp_path / family)
    rows = compared(capsys, tmp_path / "construction", tmp_path / "disentangled")
    fit = ip.fit_scores(Subject.open(tmp_path / "disentangled", OPTIONS).capture())
    assert rows["beta_1"]["second"] == pytest.approx(fit.beta[0])
    for name, error in (("beta_1", fit.stderr[0]), ("beta_2", fit.stderr[1]), ("kappa", fit.kappa_stderr)):
        assert rows[name]["stderr"] == pytest.approx(error, rel=0.4)


@pytest.mark.parametrize(
    ("others", "words"), [((), "compare needs two checkpoints or more"), (("longer",), "not on the same sequences")]
)
def test_what_cannot_be_compared_is_refused(
    others: tuple[str, ...], words: str, planted: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ip.save(ip.construct(order=2, vocab=4, length=30, beta=(2.0, 1.0), kappa=1.0), tmp_path / "longer")
    assert main(["compare", str(planted["first"]), *(str(tmp_path / one) for one in others), "--batch", "8"]) == 2
    assert words in capsys.readouterr().err


def test_kappa_is_compared_where_both_have_bos(planted: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    rows = compared(capsys, planted["first"], planted["bare"])
    assert "kappa" not in rows
    assert rows["beta_1"]["difference"] == pytest.approx(0.0, abs=1e-5)


@pytest.mark.parametrize("name", ["first", "random"])
def test_masses_of_many_sequences_are_those_of_each(name: str, planted: dict[str, Path]) -> None:
    model = ip.load(planted[name])
    tokens = ip.HierarchicalDirichlet(order=2, vocab=4, eta=(5.0, 5.0)).sample(batch=7, length=24, seed=5).tokens
    cap = ip.capture(model, tokens)
    masses = compare.masses_of_each(cap)
    for row in range(len(tokens)):
        kinds = key_kinds(ip.match_masks(tokens[row : row + 1], order=2)[0].numpy(), order=2, bos=True)
        for kind, mass in kind_masses(cap.match_pattern[row, 0, -1].double().numpy(), kinds).items():
            assert masses[kind][row] == pytest.approx(mass, abs=1e-6)
    assert sum(masses.values()) == pytest.approx(1.0, abs=1e-5)
