"""The cache: a key changes with every module behind a result, and with no other; stale numbers are impossible."""

from __future__ import annotations

import ast
import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analyses import answers, cli, estimators, heldout, optimal, regret, zoo
from analyses import cache as caching
from analyses.cache import PACKAGES, ROOT, Cache, SourceTree, data_files, file_digest, module_of, source_file
from analyses.command import read_entries
from analyses.subject import Subject
from figures import drawing
from interp.chains.priors import HierarchicalDirichlet
from interp.hooked.checkpoint import CheckpointInfo

TREE, PICTURES = caching.source_tree(), caching.picture_tree()
PRIOR = HierarchicalDirichlet(order=2, vocab=3, eta=(5.0, 5.0))


def predictors() -> dict[str, tuple[str, ...]]:
    """The modules that make the KL of each kind of predictor, as `measure` finds them."""
    model = {"family": "standard", "bos": True, "length": 8, "order": 2, "vocab": 3}
    info = CheckpointInfo(path=Path(), model=model, training={"prior": PRIOR.to_dict()})
    subject = Subject(path=Path(), name="x", info=info)
    vars(subject)["digest"] = ""  # there are no files
    kinds = {
        "closed form": next(estimators.constructions(PRIOR, length=8, draws=400, seed=0, cache=Cache(None))),
        "add-alpha": regret.add_alpha_of(PRIOR),
        "checkpoint": zoo.predictor_of(subject),
    }
    return {f"kl of {kind}": (module_of(heldout.measure), module_of(one.law)) for kind, one in kinds.items()}


def roots() -> dict[str, tuple[str, ...]]:
    """Everything that is kept: name -> the modules from which its code is found."""
    found = {f"analysis {name}": answers.code_of(name) for name in read_entries(cli.FOLDER, marker="KIND")}
    figures = read_entries(Path(drawing.__file__).parent, marker="LABEL")
    found |= {f"figure {name}": drawing.code_of(name) for name in figures}
    found |= {
        "optimum": (module_of(estimators.optimum),),
        "Bayes": (module_of(heldout.measure_bayes),),
        "weights of Jelinek-Mercer": (module_of(estimators.tuned_weights),),
        "fits of trained models": (module_of(optimal.fitted),),
    }
    return found | predictors()


ROOTS = roots()


# The definition: a module depends on what it imports, statement by statement.


def imported(module: str, *, pictures: bool) -> Iterator[str]:
    """The modules of the suite that a module imports when it runs, read with `ast` one statement at a time."""
    tree = ast.parse(source_file(ROOT, module).read_text())
    for node in walk_what_runs(tree, pictures=pictures):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in TREE.imports)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                name = inner if inner in TREE.imports else node.module
                if name in TREE.imports:
                    yield name


def walk_what_runs(node: ast.AST, *, pictures: bool) -> Iterator[ast.AST]:
    """All nodes but those under `if TYPE_CHECKING` and, for numbers, those of functions called `plot`."""
    for child in ast.iter_child_nodes(node):
        if not pictures and isinstance(child, ast.FunctionDef) and child.name == "plot":
            continue
        if isinstance(child, ast.If) and ast.unparse(child.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            for other in child.orelse:
                yield other
                yield from walk_what_runs(other, pictures=pictures)
            continue
        yield child
        yield from walk_what_runs(child, pictures=pictures)


def reference_closure(name: str) -> set[str]:
    """What a result needs, by repeating the definition until nothing is added."""
    found = set(ROOTS[name])
    while True:
        more = {needed for module in found for needed in needs(module, pictures=is_figure(name))} - found
        if not more:
            return found
        found |= more


@functools.cache
def needs(module: str, *, pictures: bool) -> set[str]:
    parts = module.split(".")
    packages = {".".join(parts[:count]) for count in range(1, len(parts))}
    return {name for name in imported(module, pictures=pictures)} | packages


def is_figure(name: str) -> bool:
    return name.startswith("figure ")


def tree_of(name: str) -> SourceTree:
    """The tree that the key of a result is made from."""
    return PICTURES if is_figure(name) else TREE


# Every key.


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source without the checkpoints."""
    return copied_tree(tmp_path_factory.mktemp("tree"))


def copied_tree(folder: Path) -> Path:
    ignored = shutil.ignore_patterns("__pycache__", "checkpoints")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=ignored)
    return folder


def digests_of(copy: Path) -> dict[str, str]:
    return {module: file_digest(copy, module) for module in TREE.imports}


def changed_digests(copy: Path, file: Path, text: bytes | None = None) -> dict[str, str]:
    """The digests after an edit of a file of the copy, which is taken back."""
    kept = file.read_bytes()
    try:
        file.write_bytes(kept + b"\n# another word\n" if text is None else text)
        return digests_of(copy)
    finally:
        file.write_bytes(kept)


def changed_keys(digests: dict[str, str]) -> set[str]:
    """The results whose keys are others when the files have these digests."""
    return {
        name for name, modules in ROOTS.items() if key_of(name) != replace(tree_of(name), digests=digests).key(*modules)
    }


@functools.cache
def key_of(name: str) -> str:
    """The key of a result with the code as it is."""
    return tree_of(name).key(*ROOTS[name])


def unnoticed(tree: SourceTree, name: str) -> set[str]:
    """The modules behind a result whose change leaves the key as it is: there must be none."""
    key = tree.key(*ROOTS[name])
    return {
        module
        for module in reference_closure(name)
        if key == replace(tree, digests={**tree.digests, module: "changed"}).key(*ROOTS[name])
    }


def test_the_copy_has_the_keys_of_the_original(copy: Path) -> None:
    assert changed_keys(digests_of(copy)) == set()


def test_a_key_changes_with_every_module_behind_it_and_with_no_other(copy: Path) -> None:
    """Each module of the suite is edited in turn: the keys that change are those whose code needs it."""
    behind = {name: reference_closure(name) for name in ROOTS}
    assert len(TREE.imports) > 100
    for module in TREE.imports:
        file = source_file(copy, module)
        kept = file.read_bytes()
        file.write_bytes(kept + b"\n# another word\n")
        digests = {**TREE.digests, module: file_digest(copy, module)}
        file.write_bytes(kept)
        assert digests[module] != TREE.digests[module]
        assert changed_keys(digests) == {name for name, modules in behind.items() if module in modules}, module


@pytest.mark.parametrize(
    "name", ["analysis copy_heads", "analysis theory", "figure leaving_the_law", "kl of checkpoint"]
)
def test_a_module_left_out_by_hand_would_be_found(name: str) -> None:
    tree = tree_of(name)
    assert unnoticed(tree, name) == set()
    for importer in ROOTS[name]:
        for left_out in sorted((tree.imports[importer] & set(tree.imports)) - set(ROOTS[name])):
            if any(module.startswith(f"{left_out}.") for module in tree.imports):
                continue  # a package is also there for its modules
            imports = {module: names - {left_out} for module, names in tree.imports.items()}
            assert left_out in unnoticed(replace(tree, imports=imports), name)


def test_closures_are_not_the_whole_suite() -> None:
    sizes = {name: len(tree_of(name).closure(*modules)) for name, modules in ROOTS.items()}
    assert max(sizes.values()) < len(TREE.imports) / 2
    assert not {module for module in TREE.closure(*answers.code_of("causal")) if module.startswith("interp.plotting")}
    assert "interp.plotting.panel" in PICTURES.closure(*drawing.code_of("mech_main"))
    assert "interp.estimators.bayes" not in TREE.closure(*answers.code_of("copy_heads"))
    assert "analyses.attention" in TREE.closure(*answers.code_of("construction_attention"))
    assert "figures.dynamics" in PICTURES.closure(*drawing.code_of("leaving_the_law"))
    assert "analyses.claims.backoff" in TREE.closure(*answers.code_of("theory"))
    assert {"models.zoo", "models.disentangled.compiled", "interp.hooked.checkpoint"} <= TREE.closure(
        *ROOTS["kl of checkpoint"]
    )


def test_data_files_are_part_of_the_key(copy: Path) -> None:
    style = copy / "figures" / drawing.STYLE.name
    assert data_files(copy, "figures.drawing") == [style]
    assert changed_keys(changed_digests(copy, style)) == {name for name in ROOTS if is_figure(name)}


def test_versions_are_part_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {name: tree_of(name).key(*modules) for name, modules in ROOTS.items()}
    real = caching.version_of
    monkeypatch.setattr(caching, "version_of", lambda name: "0" if name == "matplotlib" else real(name))
    changed = {name for name, modules in ROOTS.items() if tree_of(name).key(*modules) != before[name]}
    assert changed == {name for name in ROOTS if is_figure(name)}
    monkeypatch.setattr(caching, "version_of", lambda name: "0" if name == "transformer_lens" else real(name))
    assert TREE.key(*ROOTS["analysis copy_heads"]) != before["analysis copy_heads"]
    assert real("numpy") == np.__version__
    assert real("no_such_module") == "unknown"


# What the graph cannot show.


def lazy_importers(imports: dict[str, frozenset[str]]) -> set[str]:
    return {module for module, names in imports.items() if TREE.lazy & names}


def test_no_result_hides_behind_lazily_loaded_names() -> None:
    """`import interp as ip` is for notebooks and tests: here it would make every key depend on all of `interp`."""
    assert TREE.lazy == {"interp"}
    behind = {module for name, modules in ROOTS.items() for module in tree_of(name).closure(*modules)}
    assert lazy_importers(dict(TREE.imports)) & behind == set()


def test_a_module_that_imports_the_lazy_package_depends_on_all_of_it() -> None:
    imports = {**TREE.imports, "analyses.copy_heads": frozenset({"interp"})}
    hidden = replace(TREE, imports=imports).closure("analyses.copy_heads")
    assert {module for module in TREE.imports if module.split(".")[0] == "interp"} <= hidden


def computed_imports(source: str) -> list[str]:
    """Calls that import a module by a name that the source does not show."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return [
        name for call in calls if (name := ast.unparse(call.func)).split(".")[-1] in ("import_module", "__import__")
    ]


def test_no_result_imports_by_a_computed_name() -> None:
    behind = {module for name, modules in ROOTS.items() for module in tree_of(name).closure(*modules)}
    found = {module for module in behind if computed_imports(source_file(ROOT, module).read_text())}
    # The first two load the analysis or figure that is asked for, whose code each key names; then the lazy package; the
    # last imports installed packages only, which `interp.lens` names.
    assert found == {"analyses.answers", "figures.drawing", "interp", "interp.deferred"}
    assert computed_imports("import importlib\nimportlib.import_module(f'analyses.{name}')") == [
        "importlib.import_module"
    ]


# Run in a process of its own: what is loaded when a question has been answered, and which files were opened.
LOADED = """
import json, os, sys, tempfile, warnings
warnings.simplefilter("ignore")
PACKAGES = ("interp", "models", "analyses", "figures")
opened, root = [], os.getcwd()

def watch(event, arguments):
    if event == "open" and isinstance(arguments[0], str) and arguments[1] in ("r", "rb", None):
        opened.append(os.path.realpath(arguments[0]))

sys.addaudithook(watch)
found = {}
for name, options, checkpoint in json.load(sys.stdin):
    for module in [module for module in sys.modules if module.split(".")[0] in PACKAGES]:
        del sys.modules[module]
    from analyses import answers
    from analyses.cache import Cache, source_tree
    source_tree()  # it reads every file of the suite
    opened.clear()
    kind = answers.options_of(answers.load_module(name))
    question = answers.Question(analysis=name, options=kind(**options), checkpoint=checkpoint)
    answer = answers.answer(question, cache=Cache(None))
    assert answer.error is None, answer.error
    inside = {file for file in opened if os.path.relpath(file, root).split("/")[0] in PACKAGES}
    found[name] = {
        "modules": sorted(module for module in sys.modules if module.split(".")[0] in PACKAGES),
        "data": sorted(file for file in inside if not file.endswith(".py") and "__pycache__" not in file),
    }
print(json.dumps(found))
"""


def test_what_runs_is_what_the_key_names() -> None:
    """Analyses are run: every module that they loaded, and every data file that they read, is in the key."""
    checkpoint = "models/checkpoints/hierarchical_bos/disentangled/T32_seed0"
    questions = [
        ["copy_heads", {"batch": 4}, checkpoint],
        ["causal", {"batch": 16}, checkpoint],
        ["lag_asymmetry", {"batch": 16}, checkpoint],
        ["theory", {"only": "corollary:mixture", "batch": 1}, None],
        ["construction_attention", {"batch": 64}, None],
        ["regret", {"batch": 20, "length": 8, "draws": 16, "vocab": 3}, None],
    ]
    done = subprocess.run(
        [sys.executable, "-c", LOADED],
        cwd=ROOT,
        input=json.dumps(questions),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    asked = {name: checkpoint for name, _, checkpoint in questions}
    for name, found in json.loads(done.stdout).items():
        closure = TREE.closure(*answers.code_of(name))
        assert set(found["modules"]) <= closure, name
        data = {str(file) for module in closure for file in data_files(ROOT, module)}
        weights = ROOT / (asked[name] or "models/checkpoints")  # a study looks through the zoo, and its key names all
        data |= {str(file) for file in weights.rglob("*.*")}
        assert set(found["data"]) <= data, name


# The store.


def own_tree(**digests: str) -> SourceTree:
    """A tree in which this module and `json` are the whole suite."""
    files = {"tests": "1", __name__: "1", "json": "1", "json.decoder": "1", **digests}
    return SourceTree(root=ROOT, imports=dict.fromkeys(files, frozenset()), digests=files, lazy=frozenset())


@pytest.fixture
def still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files on disk are as they were."""
    monkeypatch.setattr(caching, "file_digest", lambda root, module: "1")


@pytest.mark.usefixtures("still")
def test_values_are_kept_by_key_and_by_code(tmp_path: Path) -> None:
    made = []

    def make(value: float) -> dict[str, np.ndarray]:
        made.append(value)
        return {"x": np.full(3, value)}

    key = {"what": "test", "a": 1}
    tree = own_tree()
    assert Cache(tmp_path, tree=tree).arrays(key, lambda: make(1.0))["x"][0] == 1
    again = Cache(tmp_path, tree=tree)
    assert again.arrays(key, lambda: make(2.0))["x"][0] == 1  # read, not made
    assert again.arrays({**key, "a": 2}, lambda: make(3.0))["x"][0] == 3
    other = Cache(tmp_path, tree=own_tree(**{__name__: "2"}))
    assert other.arrays(key, lambda: make(4.0))["x"][0] == 4
    for file in tmp_path.iterdir():
        file.write_bytes(b"damaged")
    assert Cache(tmp_path, tree=tree).arrays(key, lambda: make(5.0))["x"][0] == 5
    assert Cache(None, tree=tree).value(key, lambda: (5, None)) == [5, None]
    assert made == [1.0, 3.0, 4.0, 5.0]
    assert {file.suffix for file in tmp_path.iterdir()} == {".npz"}


@pytest.mark.usefixtures("still")
def test_code_that_a_maker_was_given_is_part_of_the_key(tmp_path: Path) -> None:
    tree = own_tree()
    key = {"what": "test"}
    using = (json.JSONDecoder,)
    assert Cache(tmp_path, tree=tree).value(key, lambda: 1, using=using) == 1
    assert Cache(tmp_path, tree=tree).value(key, lambda: 2, using=using) == 1
    later = own_tree(**{"json.decoder": "2"})
    assert Cache(tmp_path, tree=later).value(key, lambda: 3, using=using) == 3


def test_what_was_made_while_the_source_changed_is_not_kept(tmp_path: Path) -> None:
    cache = Cache(tmp_path, tree=own_tree())  # "1" is not the digest of this file
    assert cache.value({"what": "test"}, lambda: 1) == 1
    assert list(tmp_path.iterdir()) == []


def test_code_from_elsewhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"tests\.test_cache is not a module of the suite"):
        Cache(tmp_path).value({"what": "test"}, lambda: 1)


# The experiments: an edit that changes a number must change the keys of all results that it shapes.

EDITS = {
    "weights halved in load": (
        "interp.hooked.checkpoint",
        "    return model\n",
        "    for part in model.parameters():\n        part.data *= 0.5\n    return model\n",
        {"analysis kl_curves", "analysis beta_kappa", "analysis optimal", "kl of checkpoint", "fits of trained models"},
    ),
    "fast_predict mixes in the uniform law": (
        "models.trainers",
        "    return code_of(model.config.family).predict(model, tokens)\n",
        "    law = code_of(model.config.family).predict(model, tokens)\n    return 0.5 * law + 0.5 / law.shape[-1]\n",
        {"analysis kl_curves", "analysis optimal", "analysis regret", "kl of checkpoint"},
    ),
    "doubled betas in optimal": (
        "analyses.optimal",
        '        "beta": fit.beta.tolist(),\n',
        '        "beta": (2 * fit.beta).tolist(),\n',
        {"analysis optimal", "fits of trained models"},
    ),
    "tripled standard errors": (
        "interp.results",
        "    return mean, float(np.sqrt((sums**2).sum() * groups / (groups - 1)) / array.size)\n",
        "    return mean, 3 * float(np.sqrt((sums**2).sum() * groups / (groups - 1)) / array.size)\n",
        {"analysis kl_curves", "analysis optimal", "analysis pseudo_counts", "analysis regret", "analysis copy_heads"},
    ),
    "doubled KL in measure": (
        "analyses.heldout",
        '        return {"values": divergence.values.numpy(), "floored": np.array(divergence.floored)}\n',
        '        return {"values": 2 * divergence.values.numpy(), "floored": np.array(divergence.floored)}\n',
        {"analysis kl_curves", "analysis optimal", "analysis regret", "kl of checkpoint", "kl of closed form"},
    ),
    "doubled eta in parse_prior": (
        "interp.chains.priors",
        "        eta = tuple(numbers[0]) if numbers else (DEFAULT_ETA,)\n",
        "        eta = tuple(2 * value for value in (numbers[0] if numbers else (DEFAULT_ETA,)))\n",
        {"analysis kl_curves", "analysis optimal", "analysis regret", "analysis beta_kappa"},
    ),
}


def apply_edit(copy: Path, edit: str) -> tuple[Path, str]:
    """Make the edit in the copy; returns the file and what it held."""
    module, before, after, _ = EDITS[edit]
    file = source_file(copy, module)
    text = file.read_text()
    assert before in text, f"{module} no longer has the line that the experiment edits"
    start = text.rindex(before)
    file.write_text(text[:start] + after + text[start + len(before) :])
    return file, text


@pytest.mark.parametrize("edit", EDITS)
def test_edits_that_change_numbers_change_keys(edit: str, copy: Path) -> None:
    file, text = apply_edit(copy, edit)
    after = file.read_bytes()
    file.write_text(text)
    assert EDITS[edit][3] <= changed_keys(changed_digests(copy, file, after))


# Run in the copied tree, where machine code would have to be compiled anew: small enough for Python alone.
SCRIPT = """
import contextlib, io, json, sys, warnings
from pathlib import Path
warnings.simplefilter("ignore")

def asked(study):
    for name in [name for name in sys.modules if name.split(".")[0] in ("interp", "models", "analyses", "figures")]:
        del sys.modules[name]
    from analyses import kl_curves
    from analyses.cli import main
    kl_curves.TUNING_DRAWS = 100
    own = {"kl_curves": ["--draws", "16"], "optimal": ["--sweeps", "length", "--draws", "100"]}[study]
    common = ["--json", "--zoo", "zoo", "--cache", "cache", "--lengths", "32", "--priors", "hierarchical:5"]
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        main([study, *common, "--batch", "6", *own])
    return json.loads(out.getvalue())["rows"]

results = {}
for name, study, file, text in json.loads(sys.stdin.read()):
    kept = Path(file).read_text()
    Path(file).write_text(text)
    results[name] = asked(study)
    Path(file).write_text(kept)
print(json.dumps(results))
"""


@pytest.fixture(scope="module")
def experiments(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """A small study of one shipped checkpoint in a copied tree, after each edit, always with the same cache."""
    folder = copied_tree(tmp_path_factory.mktemp("experiments"))
    shutil.copytree(ROOT / "models/checkpoints/hierarchical_bos/standard/T32_seed0", folder / "zoo" / "model")
    runs = []
    for edit, (module, *_) in EDITS.items():
        study = "optimal" if module == "analyses.optimal" else "kl_curves"
        file, text = apply_edit(folder, edit)
        runs.append([edit, study, str(file), file.read_text()])
        file.write_text(text)
    file = source_file(folder, "analyses.optimal")
    before, after = (
        [[f"{study}, {when}", study, str(file), file.read_text()] for study in ("kl_curves", "optimal")]
        for when in ("before", "after")
    )
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "NUMBA_DISABLE_JIT": "1"},
        input=json.dumps([*before, *runs, *after]),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, list[dict[str, Any]]] = json.loads(done.stdout)
    return found


def kl_of(rows: list[dict[str, Any]], predictor: str, column: str = "kl") -> float:
    return next(row[column] for row in rows if row["predictor"] == predictor)


def beta_of(rows: list[dict[str, Any]]) -> np.ndarray:
    return np.array(next(row["beta"] for row in rows if row["source"] == "trained"))


def test_numbers_move_with_the_code(experiments: dict[str, list[dict[str, Any]]]) -> None:
    plain = experiments["kl_curves, before"]
    halved, mixed = (experiments[name] for name in ("weights halved in load", "fast_predict mixes in the uniform law"))
    assert kl_of(halved, "model") > 1.1 * kl_of(plain, "model")
    assert kl_of(mixed, "model") > 1.1 * kl_of(plain, "model")
    assert kl_of(halved, "katz") == kl_of(mixed, "katz") == kl_of(plain, "katz")
    tripled = experiments["tripled standard errors"]
    assert kl_of(tripled, "katz", "stderr") == pytest.approx(3 * kl_of(plain, "katz", "stderr"))
    assert kl_of(tripled, "katz") == kl_of(plain, "katz")
    doubled = experiments["doubled KL in measure"]
    assert kl_of(doubled, "katz") == pytest.approx(2 * kl_of(plain, "katz"))
    assert kl_of(experiments["doubled eta in parse_prior"], "katz") != kl_of(plain, "katz")
    before = beta_of(experiments["optimal, before"])
    np.testing.assert_allclose(beta_of(experiments["doubled betas in optimal"]), 2 * before)


def test_the_numbers_come_back_with_the_code(experiments: dict[str, list[dict[str, Any]]]) -> None:
    for study in ("kl_curves", "optimal"):
        assert experiments[f"{study}, after"] == experiments[f"{study}, before"]


def test_a_change_on_disk_is_seen_though_unchanged_files_are_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a folder that looks as before no file is read again; a new time, size or data file is looked into."""
    folder = tmp_path / "interp"
    folder.mkdir()
    for name in ("one", "two"):
        (folder / f"{name}.py").write_text("DATA = 'table.json'\n")
    (folder / "__init__.py").write_text("")
    names = ("interp", "interp.one", "interp.two")
    tree = SourceTree(
        root=tmp_path,
        imports=dict.fromkeys(names, frozenset()),
        digests={name: caching.file_digest(tmp_path, name) for name in names},
        lazy=frozenset(),
    )
    assert tree.unchanged("interp.one")
    read: list[str] = []
    plain = caching.file_digest

    def counted(root: Path, module: str) -> str:
        read.append(module)
        return plain(root, module)

    monkeypatch.setattr(caching, "file_digest", counted)
    assert tree.unchanged("interp.one")
    assert read == []
    assert tree.unchanged("interp.two")
    assert read == ["interp.two"]
    (folder / "table.json").write_text("{}")
    assert not tree.unchanged("interp.one")
    (folder / "table.json").unlink()
    assert tree.unchanged("interp.one")
    source = folder / "one.py"
    stat = source.stat()
    source.write_text("DATA = 'tables.jso'\n")  # of the same size
    assert not tree.unchanged("interp.one")
    source.write_text("DATA = 'table.json'\n")
    os.utime(source, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert tree.unchanged("interp.one")
    source.unlink()
    assert not tree.unchanged("interp.one")
