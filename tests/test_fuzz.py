"""Odd inputs at the three command lines, at `load` and at the public functions: refused in one line, or done.

`make fuzz FUZZ=2000` runs so many cases of each test; `make test` a few dozen.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import struct
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import strategies as st

import interp as ip
from analyses.running import cli as analyses_cli
from figures.running import cli as figures_cli
from models.running import cli as models_cli
from models.training.run import RunError
from tests.planted import without_mechanism

CASES = int(os.environ.get("FUZZ", "40"))
fuzzed = hypothesis.settings(
    max_examples=CASES,
    deadline=None,
    database=None,
    derandomize="FUZZ" not in os.environ,
    phases=[hypothesis.Phase.generate],
    suppress_health_check=list(hypothesis.HealthCheck),
)

# --- the command lines ---------------------------------------------------------------------------------------------

MAINS: dict[str, Callable[[list[str]], int]] = {
    "models": models_cli.main,
    "analyses": analyses_cli.main,
    "figures": figures_cli.main,
}
# Lines that work, or that fail early; cases are made of them by changing a word or two.
LINES = (
    "models train --family construction --length 8 --steps 5 --prior hierarchical:5 --out made",
    "models train --init random(0.3) --freeze readout --out made",
    "models train --spec junk.json --out made",
    "models sweep study.toml --out made --dry-run",
    "models construct --order 1 --vocab 2 --length 8 --beta 1 --kappa 0.5 --out made",
    "models zoo zoo",
    "analyses beta_kappa ckpt --batch 16",
    "analyses overlap_mass zoo --batch 16 --json --seed 1",
    "analyses copy_heads ckpt zoo/one --csv made.csv --batch 16",
    "analyses scan mine.py:build --order 1 --vocab 2",
    "analyses nearest_estimator ckpt --out made --batch 16",
    "figures beta_kappa_zoo --results results --out made",
    "figures claims --results results",
)
ODD_WORDS = st.one_of(
    st.sampled_from(["0", "-1", "1.5", "nan", "inf", "1e309", "0x10", "true", "None", "9" * 5000, "999999999999"]),
    st.sampled_from(["-", "--", "=", "x=y", "é", "<b>", "%s", "{0}", "$(x)", "", " ", "x\0y", "new\nline", "\x1b[2J"]),
    st.sampled_from(["absent", "absent/deep", "ckpt", "broken", "results", "..", "folder", "precious.txt", "link"]),
    st.sampled_from(["study.toml", "junk.json", "junk.toml", "mine.py", "mine.py:absent", "/proc/nothing", "\udcff"]),
    st.sampled_from(["hierarchical:", "independent:0", "copy(-1)", "random(nan)", "tied(0)", "a/" * 3000, "=formula"]),
    st.sampled_from(["--help", "--out", "--json", "--seed", "--batch", "beta_kappa"]),
    st.text(max_size=8),
)


@pytest.fixture
def sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a user's files; no case trains."""
    work = tmp_path / "a" / "b"
    (work / "folder").mkdir(parents=True)
    (work / "results").mkdir()
    for name in ("precious.txt", "folder/notes.md", "junk.json", "junk.toml", "../beside.txt"):
        (work / name).write_text(f"{name} of the user\n")
    model = ip.construct(order=1, vocab=2, length=4, beta=(1.0,), kappa=0.5)
    ip.save(model, work / "ckpt")
    shutil.copytree(work / "ckpt", work / "zoo" / "one")
    shutil.copytree(work / "ckpt", work / "broken")
    (work / "broken" / "model.safetensors").write_bytes(b"no tensors")
    (work / "mine.py").write_text("def build():\n    raise ValueError('not today')\n")
    (work / "study.toml").write_text('[[runs]]\nfamily = "construction"\nprior = "hierarchical:5"\nlength = [8, 16]\n')
    (work / "link").symlink_to("precious.txt")

    def no_training(*_: Any, **__: Any) -> Any:
        raise RunError("nothing is trained here")

    monkeypatch.setattr("models.training.run.make_trainer", no_training)
    monkeypatch.chdir(work)
    return work


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below, with what it holds."""
    return {str(file): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    """A line with one or two words replaced, added or left out."""
    package, *words = draw(st.sampled_from(LINES)).split()
    for _ in range(draw(st.integers(1, 2))):
        place = draw(st.integers(0, max(0, len(words) - 1)))
        new = [] if draw(st.integers(0, 4)) == 2 else [draw(ODD_WORDS)]
        words[place : place + draw(st.integers(0, 1))] = new
    return [package, *words]


def test_command_lines_end_in_a_word(sandbox: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(sandbox.parent)
    codes = set()

    @fuzzed
    @hypothesis.given(command_lines())
    def run(line: list[str]) -> None:
        try:
            code: Any = MAINS[line[0]](line[1:])
        except SystemExit as stop:
            code = stop.code or 0
        said = capsys.readouterr().err
        assert code in (0, 1, 2), line
        assert "Traceback" not in said, line
        assert code != 2 or "error:" in said.lower(), line
        after = contents(sandbox.parent)
        assert {name: after.get(name) for name in before} == before, line
        for made in after.keys() - before.keys():
            Path(made).unlink()
        codes.add(code)

    run()
    assert {0, 2} <= codes


# --- checkpoints ---------------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.sampled_from([0, 1, 3, -1, 10**30, 2**63, 0.5, 1e308, math.nan, math.inf, "float64", "os.system", ""]),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("abc"), inner, max_size=2)),
    max_leaves=4,
)


def edited(draw: st.DrawFn, config: dict[str, Any]) -> bytes:
    """The description with one value changed, removed or added, at its top or one level below."""
    config = json.loads(json.dumps(config))
    part = config[draw(st.sampled_from(["model", "training"]))] if draw(st.booleans()) else config
    part = part if isinstance(part, dict) else config
    name = draw(st.sampled_from([*part, "extra"]))
    part[name] = draw(JSON)
    if draw(st.integers(0, 3)) == 2:
        del part[name]
    return json.dumps(config).encode()


@st.composite
def damages(draw: st.DrawFn, config: dict[str, Any], tensors: bytes) -> tuple[bytes, bytes]:
    """config.json and model.safetensors, one of them damaged."""
    if draw(st.booleans()):
        return edited(draw, config), tensors
    place = draw(st.integers(0, len(tensors) - 1))
    kind = draw(st.sampled_from(["flip", "cut", "number", "junk"]))
    changed = {
        "flip": tensors[:place] + bytes([tensors[place] ^ 1 << draw(st.integers(0, 7))]) + tensors[place + 1 :],
        "cut": tensors[:place],
        "number": tensors[:-8] + struct.pack("<d", draw(st.sampled_from([math.nan, math.inf, 1e308, -1e20]))),
        "junk": draw(st.binary(max_size=64)),
    }[kind]
    return json.dumps(config).encode(), changed


def test_damaged_checkpoints_are_refused_or_predict(tmp_path: Path) -> None:
    folder = tmp_path / "ckpt"
    ip.save(ip.construct(order=1, vocab=2, length=4, beta=(1.0,), kappa=0.5), folder, training={"steps": 3})
    config, tensors = json.loads((folder / "config.json").read_text()), (folder / "model.safetensors").read_bytes()
    ended = set()

    @fuzzed
    @hypothesis.given(damages(config, tensors))
    def run(damaged: tuple[bytes, bytes]) -> None:
        (folder / "config.json").write_bytes(damaged[0])
        (folder / "model.safetensors").write_bytes(damaged[1])

        def predicted() -> torch.Tensor:
            shape = ip.read_info(folder).model
            return ip.predict(ip.load(folder), torch.arange(shape["length"])[None] % shape["vocab"])

        ended.add(outcome(predicted, is_distribution))

    run()
    assert ended == {"done", "refused"}


# --- public functions ----------------------------------------------------------------------------------------------


def outcome(call: Callable[[], Any], check: Callable[[Any], bool]) -> str:
    """Done, with a result that passes the check, or refused by a `ValueError` of one line."""
    refusal = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numbers that overflow are what is tried here
            found = call()
    except ValueError as error:
        refusal = str(error)
    except Exception as error:
        if "beartype" not in type(error).__module__ and "jaxtyping" not in type(error).__module__:
            raise AssertionError("".join(traceback.format_exception(error))) from error
        refusal = "by the annotations, which only the tests enforce"
    if refusal is None:
        assert check(found), found
        return "done"
    assert len(refusal.splitlines()) == 1, refusal
    return "refused"


def is_distribution(found: Any) -> bool:
    """Finite, not negative, and one in sum."""
    law = torch.as_tensor(found).detach().double()
    return bool(torch.isfinite(law).all() and (law >= 0).all() and ((law.sum(-1) - 1).abs() < 1e-6).all())


def is_finite(found: Any) -> bool:
    """Finite numbers."""
    return bool(torch.isfinite(torch.as_tensor(found).detach().double()).all())


def is_result(found: Any) -> bool:
    """Prints itself in a few lines, tabulates itself, and gives a reason where it has no success."""
    found.table()
    json.dumps(found.record(), allow_nan=False)
    return len(str(found).splitlines()) <= 8 and (found.success or bool(found.message)) and "\n" not in found.message


TOKENS = np.random.default_rng(0).integers(0, 3, (12, 8))
ODD_NUMBERS = (None, True, -1, 0, 7, 1.5, 1e9, 1e308, math.nan, math.inf, 10**400, np.int8(2), np.array([[1]]), 2j)
ODD = st.sampled_from([*ODD_NUMBERS, "2", "", b"1", [], [1], {}, [math.nan, 1.0], (2.0, 1.0), [[0, 1], [0]]])
OTHER_TYPES = (TOKENS.tolist(), torch.from_numpy(TOKENS), TOKENS.astype(np.int8), TOKENS * 1.0, "012", None, 3)
OTHER_SHAPES = (TOKENS[0], TOKENS[None], TOKENS[:0], TOKENS[:, :0], TOKENS[:, :1], TOKENS[::-1].T, [[0, 1], [0]])
ODD_TOKENS = st.sampled_from([*OTHER_TYPES, *OTHER_SHAPES, TOKENS - 1, TOKENS * 100, [[10**30, 0]]])
PRIOR = ip.HierarchicalDirichlet(order=2, vocab=3, eta=(5.0, 5.0))
ORDER, VOCAB = {"order": 2}, {"vocab": 3}
TREE = {"tokens": TOKENS, **ORDER, **VOCAB}
MATCH = {"tokens": TOKENS, **VOCAB, "beta": (2.0, 1.0), "kappa": 0.5}
# name -> arguments that work, and what comes out
FUNCTIONS: dict[str, tuple[dict[str, Any], Callable[[Any], bool]]] = {
    "soft_matching": ({**MATCH, "every_position": True}, is_distribution),
    "soft_matching_pairs": ({"tokens": TOKENS, **VOCAB, "beta": [[1.0, 0.0], [0.0, 2.0]]}, is_distribution),
    "maximum_likelihood": ({**TREE, "every_position": True}, is_distribution),
    "add_alpha": ({**TREE, "alpha": 1.0}, is_distribution),
    "jelinek_mercer": ({"tokens": TOKENS, **VOCAB, "weights": (0.1, 0.3, 0.6)}, is_distribution),
    "katz": (TREE, is_distribution),
    "witten_bell": (TREE, is_distribution),
    "kneser_ney": (TREE, is_distribution),
    "context_tree_weighting": (TREE, is_distribution),
    "pseudo_counts": ({**TREE, "beta": 1.5}, is_finite),
    "mask_counts": (TREE, is_finite),
    "match_masks": ({"tokens": TOKENS, **ORDER}, is_finite),
    "cumulative_counts": (TREE, is_finite),
    "predicted_parameters": ({"prior": PRIOR, "length": 16, "bos": True}, is_result),
    "optimal_parameters": ({"prior": PRIOR, "length": 8, "bos": True, "draws": 100, "seed": 0}, is_result),
    "tune_add_alpha": ({"prior": PRIOR, "length": 8, "draws": 20, "seed": 0}, is_result),
    "beta_for_add_alpha": ({"length": 16, **ORDER, **VOCAB, "alpha": 1.0}, is_finite),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_refuse_odd_arguments(name: str) -> None:
    good, check = FUNCTIONS[name]
    function = getattr(ip, name)
    assert outcome(lambda: function(**good), check) == "done"
    ended = set()

    @fuzzed
    @hypothesis.given(st.data())
    def run(data: st.DataObject) -> None:
        given = dict(good)
        for argument in data.draw(st.sets(st.sampled_from(sorted(good)), min_size=1, max_size=2)):
            given[argument] = data.draw(ODD_TOKENS if argument == "tokens" else ODD)
        ended.add(outcome(lambda: function(**given), check))

    run()
    assert "refused" in ended


# --- instruments on odd models -------------------------------------------------------------------------------------

LAW = torch.full((12, 3), 1 / 3, dtype=torch.float64)
OF_CAPTURES = ("fit_scores", "fit_score_pairs", "overlap_mass", "copy_heads", "compare_laws")
OF_MODELS: dict[str, dict[str, Any]] = {
    "scan_heads": {},
    "identity_blocks": {"draws": 19},
    "label_symmetry": {"draws": 2},
    "nearest_estimator": {},
    **{name: {"next_law": LAW} for name in ("smoothing_source", "direct_path", "vote_weight")},
}
FACTORS = (1.0, 0.0, math.nan, 1e20, 1e-30)  # of the weights


@pytest.mark.parametrize("name", [*OF_CAPTURES, *OF_MODELS])
def test_instruments_survive_damaged_models(name: str) -> None:
    @hypothesis.settings(fuzzed, max_examples=max(5, CASES // 5))
    @hypothesis.given(
        family=st.sampled_from(["disentangled", "standard"]),
        bos=st.booleans(),
        seed=st.integers(0, 9),
        factor=st.sampled_from(FACTORS),
    )
    def run(factor: float, **case: Any) -> None:
        widths: dict[str, Any] = {"d_model": 4, "d_mlp": 4, "readout": "logit"} if case["family"] == "standard" else {}
        model = without_mechanism(scale=0.3, order=2, vocab=3, length=8, **case, **widths)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(factor)
        before = [one.clone() for one in model.parameters()]
        if name in OF_CAPTURES:
            outcome(lambda: getattr(ip, name)(ip.capture(model, TOKENS)), is_result)
        else:
            outcome(lambda: getattr(ip, name)(model, TOKENS, **OF_MODELS[name]), is_result)
        assert all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(before, model.parameters(), strict=True))

    run()
