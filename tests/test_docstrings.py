"""Examples of docstrings run as they stand; public functions name every parameter, and have types for people."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch

import interp as ip
from interp.circuit.edits import MatchReader
from interp.circuit.runner import run
from tests.planted import planted_deep, trained_like

ROOT = Path(__file__).parent.parent
# Glossaries, formulas, functions of files, functions of arrays that a result fills in, and examples on pretrained
# weights, whose own tests run them.
NO_EXAMPLE = {
    "interp.fitting.likelihood",
    "interp.notation",
    "interp.outside",
    "interp.fitting.regression",
    "interp.results",
    "interp.language.load",
    "interp.language.prompts",
}
GIVEN = "interp.instruments.given"


def modules() -> list[str]:
    """Those whose docstring opens with an example; of an instrument it is in the docstring of its function."""
    files = sorted((ROOT / "interp").rglob("*.py"))
    names = [".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files if file.name != "__init__.py"]
    return [name for name in names if name not in NO_EXAMPLE and (name in GIVEN or "instruments" not in name)]


def functions() -> dict[str, Any]:
    """The public functions."""
    found = {name: getattr(ip, name) for name in ip.__all__}
    return {name: one for name, one in found.items() if inspect.isfunction(one)}


def instruments() -> list[str]:
    return [name for name, one in functions().items() if one.__module__.startswith("interp.instruments")]


def is_ours(kind: type, name: str) -> bool:
    """Whether a method is the suite's, and not another library's that a class overrides."""
    homes = [base for base in kind.__mro__ if name in vars(base)]
    one = getattr(kind, name)
    return (inspect.isfunction(one) or inspect.ismethod(one)) and homes[-1].__module__.startswith("interp.")


def callables() -> dict[str, tuple[Any, str]]:
    """Public functions, and constructors and public methods of public classes, each with what documents it."""
    found = {name: (one, inspect.getdoc(one) or "") for name, one in functions().items()}
    for kind in (getattr(ip, name) for name in ip.__all__ if inspect.isclass(getattr(ip, name))):
        bases = [base for base in kind.__mro__ if base.__module__.startswith("interp.")]
        found[kind.__name__] = (kind, "\n".join(map(inspect.cleandoc, (base.__doc__ or "" for base in bases))))
        for name in (name for name in dir(kind) if not name.startswith("_") and is_ours(kind, name)):
            texts = [inspect.getdoc(getattr(base, name)) or "" for base in bases if hasattr(base, name)]
            found[f"{kind.__name__}.{name}"] = (getattr(kind, name), "\n".join(texts))
    return found


CALLABLES = callables()


def example(document: str) -> list[str]:
    """The code of the first indented block, without the glosses that stand three spaces or a # behind it."""
    block = re.search(r"\n\n((?:    .*\n?)+)", document + "\n")
    if block is None:
        return []
    lines = textwrap.dedent(block[1]).rstrip("\n").split("\n")
    return [re.split(r"(?<=\S)\s{3,}|\s+# ", line)[0].rstrip() for line in lines]


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the examples speak of."""
    prior = ip.HierarchicalDirichlet(order=2, vocab=5, eta=(5.0, 5.0))
    chains = prior.sample(batch=64, length=64, seed=0)
    model = trained_like(order=2, vocab=5, beta=(2.7, 1.2), kappa=3.3, length=64)
    circuit = ip.Circuit(model)
    cap = ip.capture(model, chains.tokens)
    reader = MatchReader(circuit, chains.tokens)
    fit = ip.fit_scores(cap)
    deep = planted_deep(vocab=5, length=64)
    prediction = ip.predict(model, chains.tokens)
    return {
        **{name: getattr(ip, name) for name in ip.__all__},
        "ip": ip,
        "prior": prior,
        "chains": chains,
        "tokens": chains.tokens,
        "model": model,
        "foreign": deep,
        "run": run,
        "circuit": circuit,
        "cap": cap,
        "reader": reader,
        "rows": cap.match_pattern.double(),
        "fit": fit,
        "beta": fit.beta,
        "kappa": fit.kappa,
        "prediction": prediction,
        "truth": chains.next_law,
        "scores": [[0.0, 2.7, 1.2, 3.9]],  # by mask, of one match head
        "kappas": [3.3],
        "ids": circuit.ids(chains.tokens),
        "path": tmp_path_factory.mktemp("docstrings") / "model",
        "target": tmp_path_factory.mktemp("staging") / "file",
        "torch": torch,
    }


@pytest.mark.parametrize("module", modules())
def test_the_opening_example_runs(module: str, names: dict[str, Any]) -> None:
    loaded = importlib.import_module(module)
    lines = example(ast.get_docstring(ast.parse(Path(loaded.__file__).read_text())) or "")
    space = {**names, **{name: value for name, value in vars(loaded).items() if not name.startswith("__")}}
    if all(re.fullmatch(r"\w+(, \w+)*", line) for line in lines):  # a list of names, each with its gloss
        missing = [name for line in lines for name in line.split(", ") if name not in space]
        assert not missing
        return
    exec(compile("\n".join(lines), module, "exec"), space)


@pytest.mark.parametrize("name", instruments())
def test_the_example_of_an_instrument_runs(name: str, names: dict[str, Any]) -> None:
    function = functions()[name]
    text = (inspect.getdoc(function) or "").partition("Examples\n--------\n")[2]
    lines = example(f"\n\n{text}")
    assert lines
    space = {**names, **vars(importlib.import_module(function.__module__)), **names}
    exec(compile("\n".join(lines), name, "exec"), space)


@pytest.mark.parametrize("name", CALLABLES)
def test_every_parameter_is_named(name: str) -> None:
    """On a line of its own, alone or in a list of names, or in the words as `name`."""
    function, text = CALLABLES[name]
    names = set(inspect.signature(function).parameters) - {"self"}
    listed = re.findall(r"^(\w+(?:, \w+)*)(?: :|  |$)", text, re.MULTILINE)
    assert names <= {*re.split(", ", ", ".join(listed)), *re.findall(r"`(\w+)`", text)}


@pytest.mark.parametrize("name", CALLABLES)
def test_types_are_for_people(name: str) -> None:
    """No Any, and no keyword without a name; what people give has aliases that type checkers read."""
    for one in inspect.signature(CALLABLES[name][0]).parameters.values():
        assert one.kind is not one.VAR_KEYWORD
        assert one.name == "self" or not re.search(r"^$|\bAny\b|_empty", str(one.annotation)), one


def test_public_names_are_few() -> None:
    assert len(ip.__all__) <= 65


def test_a_broken_example_would_be_found() -> None:
    lines = example(
        "A module.\n\n    model = construct(order=2)   a model\n    model.nothing   # no such thing\n\nMore.\n"
    )
    assert lines == ["model = construct(order=2)", "model.nothing"]
    with pytest.raises(TypeError, match="missing"):
        exec("\n".join(lines), {"construct": ip.construct})
