"""TransformerLens without Hugging Face's libraries: absent until something of theirs is used, then the real ones."""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from interp.deferred import StandInModule, StandInType, import_without

ROOT = Path(__file__).parents[2]
LIBRARY = {
    "__init__.py": "class Model:\n    kind = 'real'\n\n\ndef ready():\n    return True\n",
    "parts.py": "class Part:\n    def __init__(self, size):\n        self.size = size\n",
}
PACKAGE = """
import some_library.parts as parts
from some_library import Model, ready
from some_library.parts import Part

IS_READY = ready()
Either = Part | None


def make(size):
    return Part(size)


def is_part(one):
    return isinstance(one, Part)


def is_model(one):
    return issubclass(one, Model)


def through_module(size):
    return parts.Part(size)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Where `some_package` and `some_library` can be written and imported; both are forgotten afterwards."""
    (tmp_path / "some_library").mkdir()
    (tmp_path / "some_package").mkdir()
    for name, text in LIBRARY.items():
        (tmp_path / "some_library" / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] in ("some_package", "some_library")]:
        del sys.modules[name]


def imported(folder: Path, source: str = PACKAGE) -> tuple[ModuleType, bool]:
    (folder / "some_package" / "__init__.py").write_text(source)
    importlib.invalidate_caches()
    deferred = import_without("some_package", ("some_library",), answers={"ready": False})
    return sys.modules["some_package"], deferred


def stand_ins(module: ModuleType) -> list[str]:
    return [name for name, value in vars(module).items() if type(value) in (StandInType, StandInModule)]


def test_a_library_waits_for_its_first_use_and_is_then_the_real_one(folder: Path) -> None:
    package, deferred = imported(folder)
    assert deferred
    assert "some_library" not in sys.modules
    assert package.IS_READY is False
    assert stand_ins(package) == ["parts", "Model", "Part"]
    assert not package.is_part(3)
    assert not package.is_model(int)
    assert "some_library" not in sys.modules, "asking whether something is an instance is no reason to import"
    made = package.make(4)
    assert made.size == 4
    assert stand_ins(package) == []
    from some_library import Model
    from some_library.parts import Part

    assert package.Part is Part
    assert type(made) is Part
    assert package.is_part(made)
    assert package.is_model(Model)


def test_a_stand_in_that_somebody_keeps_still_does_what_the_real_one_does(folder: Path) -> None:
    package, _ = imported(folder)
    part, model, parts = package.Part, package.Model, package.parts
    assert repr(part) == "<stand-in for some_library.parts.Part>"
    assert model.kind == "real"
    assert isinstance(parts.Part(2), part)
    assert isinstance(part(2), package.Part)
    assert issubclass(package.Model, model)
    assert package.through_module(3).size == 3


def test_whoever_imports_the_library_first_has_it_everywhere(folder: Path) -> None:
    importlib.import_module("some_library")
    package, deferred = imported(folder)
    assert not deferred
    assert package.IS_READY is True
    assert stand_ins(package) == []


@pytest.mark.parametrize(
    "early",
    [
        "class Own(Part):\n    pass\n",
        "part = Part(3)\n",
        "kind = Model.kind\n",
    ],
)
def test_a_package_that_uses_the_library_at_once_is_imported_as_usual(folder: Path, early: str) -> None:
    package, deferred = imported(folder, PACKAGE + early)
    assert not deferred
    assert stand_ins(package) == []
    assert package.IS_READY is True
    assert package.make(3).size == 3


def test_an_error_of_the_package_itself_rises(folder: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        imported(folder, PACKAGE + "1 / 0\n")
    assert "some_library" not in sys.modules
    assert not [one for one in sys.meta_path if type(one).__module__ == "interp.deferred"]


# "gpt2" is a tiny model here, in a cache of the Hub's form; everything runs as it does for the real one.
PRETRAINED = """
import sys, warnings
from pathlib import Path

warnings.simplefilter("ignore")
import interp as ip
from interp.lens import HookedTransformer

model = ip.construct(order=1, vocab=3, length=8, beta=(2.0,), kappa=1.0)
tokens = ip.IndependentDirichlet(order=1, vocab=3, alpha=1.0).sample(batch=4, length=8, seed=0).tokens
ip.overlap_mass(ip.capture(model, tokens))
assert not {"transformers", "datasets"} & set(sys.modules), "the suite's own models need no Hugging Face"

from tests import tiny_language

cache = Path(sys.argv[1]) / "hub/models--gpt2"
(cache / "refs").mkdir(parents=True)
(cache / "refs/main").write_text("0123")
theirs = tiny_language.gpt2(n_ctx=96)
tiny_language.write(theirs, cache / "snapshots/0123")
if hasattr(HookedTransformer, "from_pretrained"):
    plain = dict(fold_ln=False, center_writing_weights=False, center_unembed=False, device="cpu")
    ours = HookedTransformer.from_pretrained("gpt2", **plain)
else:  # TransformerLens 4
    ours = ip.load_language_model(cache / "snapshots/0123").model
ids = ours.to_tokens("red blue green one two")
assert ours.cfg.n_layers == 2 and ids.shape[1] > 5
difference = float((ours(ids) - theirs(ids).logits).abs().max())
assert difference < 1e-4, difference
held = [module for name, module in sys.modules.items() if name.startswith("transformer_lens")]
kinds = {type(value).__name__ for module in held for value in vars(module).values()}
assert not kinds & {"StandInType", "StandInModule"}, kinds
print("as usual")
"""


def test_our_models_need_no_hugging_face_and_pretrained_ones_work_as_usual(tmp_path: Path) -> None:
    environment = {**os.environ, "HF_HOME": str(tmp_path), "HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PRETRAINED, str(tmp_path)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip().endswith("as usual"), done.stderr


def test_only_lens_and_its_decoder_import_transformer_lens() -> None:
    """Any other would import it with all that it imports, if it came first."""
    found = []
    for package in ("interp", "models", "analyses", "figures"):
        for file in sorted((ROOT / package).rglob("*.py")):
            for node in ast.parse(file.read_text(encoding="utf-8")).body:
                names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                if any(name.partition(".")[0] == "transformer_lens" for name in names):
                    found.append(str(file.relative_to(ROOT)))
    assert set(found) == {"interp/lens.py", "interp/hooked/decoder.py"}
