"""The notebooks: pairs that agree, no outputs, only the imports they may have; they run, and become pages."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path

import jupytext
import nbformat
import pytest

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "notebooks"
NAMES = ["01_tour", "02_hooks", "03_from_scratch", "04_smoothing", "05_your_model", "06_language_model"]
ALLOWED = {"interp", "numpy", "torch", "matplotlib", "seaborn", "transformer_lens"}
OPTIONAL = {"circuitsvis", "ipywidgets", "IPython"}  # only where a failed import is caught
TRAINS = {"03_from_scratch"}


def text(name: str) -> str:
    return (FOLDER / f"{name}.py").read_text(encoding="utf-8")


def notebook(name: str) -> nbformat.NotebookNode:
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def differences(first: nbformat.NotebookNode, second: nbformat.NotebookNode) -> list[int]:
    """The cells in which two notebooks differ."""
    cells = [[(cell.cell_type, cell.source) for cell in book.cells] for book in (first, second)]
    longest = max(map(len, cells))
    return [place for place in range(longest) if cells[0][place : place + 1] != cells[1][place : place + 1]]


def leftovers(book: nbformat.NotebookNode) -> list[int]:
    """The cells that carry an output or the number of a run."""
    code = [(place, cell) for place, cell in enumerate(book.cells) if cell.cell_type == "code"]
    return [place for place, cell in code if cell.outputs or cell.execution_count is not None]


def imports(source: str) -> tuple[set[str], set[str]]:
    """The packages that are imported come what may, and those whose absence is caught."""
    tree = ast.parse(source)
    guarded = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Try) and any(
            isinstance(handler.type, ast.Name) and handler.type.id == "ImportError" for handler in node.handlers
        ):
            guarded |= {child for statement in node.body for child in ast.walk(statement)}
    found: tuple[set[str], set[str]] = (set(), set())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            continue
        found[node in guarded].update(name.split(".")[0] for name in names)
    return found


def test_every_notebook_is_here_and_nothing_else():
    assert sorted(path.stem for path in FOLDER.glob("[0-9]*.py")) == NAMES
    assert sorted(path.stem for path in FOLDER.glob("*.ipynb")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_text_and_the_notebook_agree(name):
    twin = jupytext.reads(text(name), fmt="py:percent")
    book = notebook(name)
    assert differences(twin, book) == [], "run: jupytext --sync notebooks/*.py"
    assert twin.metadata["kernelspec"] == book.metadata["kernelspec"]


@pytest.mark.parametrize("name", NAMES)
def test_no_outputs_are_kept(name):
    assert leftovers(notebook(name)) == []


@pytest.mark.parametrize("name", NAMES)
def test_only_allowed_imports(name):
    always, guarded = imports(text(name))
    allowed = ALLOWED | set(sys.stdlib_module_names) | ({"models"} if name in TRAINS else set())
    assert always <= allowed
    assert guarded <= OPTIONAL


@pytest.mark.parametrize("name", NAMES)
def test_notebooks_check_what_they_say(name):
    """Prose with numbers rots unless cells assert them; and no notebook knows the machine that it was written on."""
    assert sum(isinstance(node, ast.Assert) for node in ast.walk(ast.parse(text(name)))) >= 5
    assert "/home" not in text(name)
    assert str(ROOT) not in text(name)


def test_the_checks_find_what_they_look_for():
    book = notebook(NAMES[0])
    changed = notebook(NAMES[0])
    changed.cells[1].source += "\n1 / 0"
    assert differences(book, changed) == [1]
    assert differences(book, nbformat.from_dict({**book, "cells": book.cells[:-1]})) == [len(book.cells) - 1]
    assert changed.cells[1].cell_type == "code"
    changed.cells[1].execution_count = 3
    assert leftovers(changed) == [1]
    source = "import a.b\ntry:\n    from c import d\nexcept ImportError:\n    import e\n"
    assert imports(source) == ({"a", "e"}, {"c"})


def plugin():
    spec = importlib.util.spec_from_file_location("docs_notebooks", ROOT / "docs" / "plugins" / "notebooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", NAMES)
def test_notebooks_run_and_show_pictures(name):
    """Run once for this test and for the documentation, which shows what comes out."""
    pages = plugin()
    text, pictures = pages.markdown(pages.executed(name), name)
    assert pictures
    assert all(picture.startswith(b"\x89PNG") for picture in pictures.values())
    assert text.count("<img ") == len(pictures)


@pytest.fixture
def pages(tmp_path, monkeypatch):
    """The plugin, on notebooks in a folder of their own."""
    loaded = plugin()
    monkeypatch.setattr(loaded, "SOURCES", tmp_path)
    monkeypatch.setattr(loaded, "KEPT", tmp_path / "kept")
    return loaded


def write(folder, name, *cells):
    made = [nbformat.v4.new_code_cell(cell) for cell in cells]
    nbformat.write(nbformat.v4.new_notebook(cells=made), folder / f"{name}.ipynb")


def test_outputs_become_text_pictures_and_notes(pages, tmp_path, monkeypatch):
    draw = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.rcParams['lines.linewidth'] = 9\nplt.show()"
    show = (
        "from IPython.display import HTML, display\nfor _ in range(2):\n    display(HTML('<script>1</script>'))\n"
        "print('a < b')\nfrom tqdm.notebook import tqdm\nfor _ in tqdm(range(3)):\n    pass"
    )
    pieces = "for part in ('one ', 'text'):\n    print(part, end='', flush=True)"
    write(tmp_path, "01_a", draw, show, pieces)
    write(tmp_path, "02_b", "import matplotlib\nprint(matplotlib.rcParams['lines.linewidth'], 'plt' in globals())")
    pages.execute(["01_a", "02_b"])  # in one kernel, and without a trace of each other
    monkeypatch.setattr(pages, "NotebookClient", lambda *_, **__: pytest.fail("ran again"))
    text, pictures = pages.markdown(pages.executed("01_a"), "01_a")
    assert list(pictures) == ["01_a_1.png"]
    assert text.count(pages.ALONE) == 1  # once for two of them, and none for the progress bar
    assert text.count("<script") == 1  # in the code that is shown, and not as an output
    assert ">one text<" in text
    assert "a &lt; b" in text
    assert ">1.5 False<" in pages.markdown(pages.executed("02_b"), "02_b")[0]


def test_a_cell_that_fails_is_an_error(pages, tmp_path):
    write(tmp_path, "02_b", "1 / 0")
    with pytest.raises(Exception, match="ZeroDivisionError"):
        pages.executed("02_b")
