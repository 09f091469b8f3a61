"""Models that people bring, from the command line: file.py:function, and circuits that were saved."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import interp as ip
from analyses.running.cli import main
from tests.planted_heads import PLANTS, plant

FOUR = PLANTS["four match heads, no BOS"]
HEAD = "from tests.planted_heads import PLANTS, plant, random_transformer\nimport interp as ip\n"
MODELS = {
    "first": "def build():\n    return plant(PLANTS['the first token as BOS'])\n",
    "bare": "def build():\n    return plant(PLANTS['four match heads, no BOS'])\n",
    "with_bos": "def build():\n    return plant(PLANTS['two match heads'])\n",
    "circuit": "def build():\n    spec = PLANTS['two match heads']\n"
    "    return ip.Circuit(plant(spec), **spec.task, match_heads=tuple(spec.matches))\n",
    "random": "def build():\n    return random_transformer(0)\n",
    "broken": "def build(:\n",
    "text": "def build():\n    return 'model'\n",
}


@pytest.fixture
def brought(tmp_path: Path) -> Any:
    def write(name: str) -> str:
        (tmp_path / f"{name}.py").write_text(HEAD + MODELS[name])
        return f"{tmp_path / name}.py:build"

    return write


def row(arguments: list[str], capsys: pytest.CaptureFixture[str], *, code: int = 0) -> dict[str, Any]:
    assert main([*arguments, "--json"]) == code
    (found,) = json.loads(capsys.readouterr().out)["rows"]
    return found


def test_a_bare_model_is_scanned(brought: Any, capsys: pytest.CaptureFixture[str]) -> None:
    found = row(["scan", brought("bare"), "--order", "1", "--vocab", "5", "--bos", "none", "--batch", "40"], capsys)
    assert found["match_heads"] == [[1, 0], [1, 1], [1, 2], [1, 3]]
    assert found["copy_heads"] == [[0, 2]]
    assert found["beta"][1][2] == pytest.approx([3.0])
    assert found["subject"] == {**found["subject"], "family": "foreign", "length": 40, "order": 1, "vocab": 5}


def test_other_analyses_find_the_circuit_first(brought: Any, capsys: pytest.CaptureFixture[str]) -> None:
    task = ["--order", "1", "--vocab", "5", "--batch", "40"]
    found = row(["beta_kappa", brought("bare"), *task, "--source", "attention", "--query", "trained"], capsys)
    assert [one["beta"][0] for one in found["heads"]] == pytest.approx([2.0, 2.5, 3.0, 3.5])
    assert found["law"] == "additive"
    suffix = row(
        ["beta_kappa", brought("circuit"), "--batch", "40", "--source", "attention", "--law", "suffix"], capsys
    )
    assert suffix["law"] == "suffix"
    # Chains that are nearly certain: what even attention costs is clear on few of them.
    causal = row(["causal", brought("circuit"), "--batch", "40", "--prior", "independent:0.05"], capsys)
    assert causal["loss_recovered"] > 0.9


def test_a_circuit_is_saved_for_all_other_analyses(
    brought: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")  # a reason on one line
    out = tmp_path / "mine"
    row(["scan", brought("bare"), "--order", "1", "--vocab", "5", "--batch", "40", "--save", str(out)], capsys)
    circuit = ip.load(out)
    assert circuit.match_heads == ((1, 0), (1, 1), (1, 2), (1, 3))
    again = row(["scan", str(out), "--batch", "40"], capsys)
    assert again["match_heads"] == [[1, 0], [1, 1], [1, 2], [1, 3]]
    mass = row(["overlap_mass", str(out), "--batch", "40"], capsys)
    assert mass["distance_each"] == pytest.approx(0.0, abs=1e-6)
    assert main(["all", str(out), "--batch", "40", "--prior", "independent:0.05"]) == 0
    page = capsys.readouterr()
    assert "scan: " in page.out
    assert "replacement: " in page.out
    assert page.err == ""
    refused = re.sub(r"\n {4,}", " ", page.out.partition("not applicable\n")[2]).splitlines()
    names = [line.split(":")[0].strip() for line in refused]
    assert names == ["attention", "dynamics", "explorer", "identity_blocks", "lag_asymmetry", "vote_weight"]
    assert "it reads one match head, the circuit has 4" in refused[3]
    assert main(["identity_blocks", str(out), "--batch", "40"]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "identity_blocks does not apply: it reads one match head" in line


def test_replacement_is_for_models_that_predict_everywhere(
    brought: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = ["--order", "1", "--vocab", "5", "--batch", "40", "--prior", "independent:0.05"]
    found = row(["replacement", brought("bare"), *task], capsys)
    assert found["recovered"]["law"] == pytest.approx(1.0, abs=1e-6)
    assert found["control"]["law"] < 0.6
    assert found["alone"] < found["recovered"]["law"]
    assert main(["replacement", brought("bare"), *task]) == 0
    assert "only 1.0" in capsys.readouterr().out
    ip.save(ip.construct(order=1, vocab=4, length=12, beta=(2.0,)), tmp_path / "ours")
    assert main(["replacement", str(tmp_path / "ours")]) == 2
    assert "models of this suite predict at their last position alone" in capsys.readouterr().err


def test_the_first_token_as_bos(brought: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task = ["--order", "2", "--vocab", "5", "--batch", "40"]
    found = row(["scan", brought("first"), *task, "--bos", "first", "--save", str(tmp_path / "c")], capsys)
    assert found["match_heads"] == [[2, 0], [2, 2]]
    assert ip.load(tmp_path / "c").declared_bos == "first"
    assert "bos='first'" not in found["message"]
    assert main(["scan", str(tmp_path / "c"), "--batch", "40"]) == 0
    assert "the first token as BOS" in capsys.readouterr().out
    assert row(["scan", brought("first"), *task], capsys)["kappa"][2][0] is None


def test_the_law_of_the_attention_where_the_scores_follow_none(capsys: pytest.CaptureFixture[str]) -> None:
    """The shipped model with four match heads."""
    here = "models/foreign/four_heads"
    found = row(["beta_kappa", here, "--batch", "40"], capsys, code=1)
    assert "--source attention: the attention follows the law" in found["message"]
    causal = row(["causal", here, "--batch", "40"], capsys)
    assert causal["message"].startswith("the law is that of the attention; warning: the law explains ")
    assert "; the scores of all keys do not" in causal["message"]
    assert causal["loss_recovered"] > 0.5
    assert row(["overlap_mass", here, "--batch", "40"], capsys)["distance"] < 0.01


def test_a_model_without_a_circuit_says_so(brought: Any, capsys: pytest.CaptureFixture[str]) -> None:
    found = row(["scan", brought("random"), "--order", "1", "--batch", "40"], capsys, code=1)
    assert found["message"] == "no head copies lag 1; no head matches"
    assert main(["beta_kappa", brought("random"), "--order", "1", "--batch", "40"]) == 2
    assert "no circuit was found: no head copies lag 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("bare", [], "give --order"),
        ("bare", ["--order", "1", "--vocab", "9"], "input vocabulary has 5 symbols"),
        ("bare", ["--order", "1", "--bos", "7"], "BOS id 7 is outside"),
        ("bare", ["--order", "1", "--bos", "five"], "--bos must be none, first or the id of the BOS token, got 'five'"),
        ("bare", ["--order", "1", "--length", "99"], "--length must be more than the order and at most 41, got 99"),
        (
            "circuit",
            ["--order", "2"],
            "--order was given, but the function returns a Circuit, which already defines it",
        ),
        ("broken", ["--order", "1"], "does not parse"),
        ("text", ["--order", "1"], "a circuit needs a HookedTransformer, got str"),
    ],
)
def test_bad_input_gets_one_line(
    name: str, options: list[str], message: str, brought: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["scan", brought(name), *options]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert message in line


def test_files_and_functions_that_are_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty.py").write_text("")
    for text, message in (("none.py:build", "no file"), ("empty.py:build", "has no function build")):
        assert main(["scan", f"{tmp_path / text}", "--order", "1"]) == 2
        assert message in capsys.readouterr().err
    ip.save(ip.Circuit(plant(FOUR), **FOUR.task), tmp_path / "c")
    assert main(["scan", str(tmp_path / "c"), "--order", "1"]) == 2
    assert "--order is for a model from file.py:function; a checkpoint already defines it" in capsys.readouterr().err


def test_a_file_without_its_function_says_what_to_write(tmp_path, capsys):
    (tmp_path / "mine.py").write_text("def make(): ...")
    assert main(["beta_kappa", str(tmp_path / "mine.py")]) == 2
    assert "mine.py:FUNCTION, where the function returns a HookedTransformer" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("code", "said"), [("def make(x): ...", "TypeError"), ("def make():\n    1 / 0", "line 2: ZeroDivisionError")]
)
def test_an_error_in_the_users_own_function_is_one_line(code, said, tmp_path, capsys):
    (tmp_path / "mine.py").write_text(code)
    assert main(["scan", f"{tmp_path / 'mine.py'}:make", "--order", "1"]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
