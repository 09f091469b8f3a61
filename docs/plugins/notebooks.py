"""The notebooks as pages: run when the site is built, with what they print, tabulate and draw.

Sources in git stay without outputs. A notebook that was run is kept in `build/notebooks` under a digest of its text, of
the code of this repository and of the installed versions, so that the site and the tests run each of them once. What
only works in a live notebook (sliders, interactive attention) is named on the page and left out.
"""

from __future__ import annotations

import base64
import hashlib
import html
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

from interp.source import source_digest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "notebooks"
KEPT = ROOT / "build" / "notebooks"
CODE = (ROOT / "interp", ROOT / "models")  # what notebooks may import
CELL_SECONDS = 300
ALONE = "*This cell shows sliders, or attention that answers to the mouse: open the notebook in JupyterLab to use it.*"
# Before each notebook: no name and no style of the one before it.
FRESH = "%reset -f\nimport matplotlib\nmatplotlib.rcdefaults()\ndel matplotlib"
NOISE = ("application/vnd.jupyter.widget-view+json",)


def names() -> list[str]:
    """The notebooks, in their order."""
    return sorted(path.stem for path in SOURCES.glob("[0-9]*.ipynb"))


def executed(name: str) -> nbformat.NotebookNode:
    """The notebook with its outputs: run now, or as it was run before on the same text and code."""
    execute([name])
    return nbformat.read(kept(name), as_version=4)


def execute(names: list[str]) -> None:
    """Run the notebooks that are not kept, one after the other in one kernel, which imports the suite once."""
    with alone(KEPT / "run.lock"):
        books = {name: nbformat.read(SOURCES / f"{name}.ipynb", as_version=4) for name in names}
        books = {name: book for name, book in books.items() if not kept(name).is_file()}
        if not books:
            return
        whole = nbformat.v4.new_notebook(metadata=next(iter(books.values())).metadata)
        for book in books.values():
            whole.cells += [nbformat.v4.new_code_cell(FRESH), *book.cells]
        client = NotebookClient(
            whole, timeout=CELL_SECONDS, kernel_name="python3", resources={"metadata": {"path": str(SOURCES)}}
        )
        # Pictures inline, and no talk of the kernel on this process' stderr.
        environment = {key: value for key, value in os.environ.items() if key != "MPLBACKEND"}
        client.execute(env=environment, stderr=subprocess.DEVNULL)
        for name, book in books.items():  # their cells have been run in place
            for old in KEPT.glob(f"{name}-*.ipynb"):
                old.unlink()
            staged = kept(name).with_suffix(".new")
            nbformat.write(book, staged)
            staged.replace(kept(name))


def kept(name: str) -> Path:
    """Where the notebook is kept once it was run: a digest of all that its outputs may depend on is in the name."""
    behind = (SOURCES / f"{name}.ipynb", ROOT / "constraints.txt")
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in behind) + sys.version.encode())
    digest.update(source_digest(*CODE).encode())
    return KEPT / f"{name}-{digest.hexdigest()[:20]}.ipynb"


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """One process at a time."""
    import fcntl

    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


# --- from cells to Markdown ----------------------------------------------------------------------------------------


def markdown(book: nbformat.NotebookNode, name: str) -> tuple[str, dict[str, bytes]]:
    """The page, and the pictures it shows by their name."""
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    said = name  # for the alt text of the pictures below it
    for cell in book.cells:
        if cell.cell_type == "markdown":
            parts.append(re.sub(r"\]\((\d\d_\w+)\.ipynb\)", r"](\1.md)", cell.source).replace("](../docs/", "](../"))
            said = re.sub(r"[*_`$#]", "", cell.source).strip().partition("\n")[0] or said
            continue
        parts.append(f"```python\n{cell.source}\n```")
        outputs = [shown(output, pictures, name=name, said=said) for output in joined(cell.outputs)]
        parts += [output for place, output in enumerate(outputs) if output != ALONE or ALONE not in outputs[:place]]
    return "\n\n".join(part for part in parts if part) + "\n", pictures


def joined(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """The outputs without progress bars; text that a cell printed in several pieces is one."""
    found: list[nbformat.NotebookNode] = []
    for output in outputs:
        if any(kind in output.get("data", {}) for kind in NOISE) and "it/s]" in output.data.get("text/plain", ""):
            continue
        last = found[-1] if found else None
        if last and output.output_type == last.output_type == "stream" and output.name == last.name:
            found[-1] = nbformat.from_dict({**last, "text": last.text + output.text})
        else:
            found.append(output)
    return found


def shown(output: nbformat.NotebookNode, pictures: dict[str, bytes], *, name: str, said: str) -> str:
    """One output as Markdown; pictures are put aside."""
    if output.output_type == "stream":
        return "" if output.name == "stderr" else printed(output.text)
    if output.output_type == "error":
        raise ValueError(f"{name}: {output.ename}: {output.evalue}")
    data = output.data
    if any(kind in data for kind in NOISE):
        return ALONE
    if "image/png" in data:
        file = f"{name}_{len(pictures) + 1}.png"
        pictures[file] = base64.b64decode(data["image/png"])
        return f'<p><a href="{file}"><img alt="{html.escape(said)}" src="{file}"></a></p>'
    if "text/html" in data:
        text = "".join(data["text/html"])
        if "<script" in text or "://" in text:
            return ALONE
        bare = re.sub(r"<style.*?</style>", "", text, flags=re.DOTALL)
        return f'<div class="output" tabindex="0" role="group" aria-label="table">\n{bare.strip()}\n</div>'
    return printed("".join(data.get("text/plain", "")))


def printed(text: str) -> str:
    return f'<pre class="printed" tabindex="0">{html.escape(text.rstrip())}</pre>' if text.strip() else ""


# --- hooks of mkdocs -----------------------------------------------------------------------------------------------


def on_files(files: Any, config: Any) -> Any:
    """Run the notebooks and add their pages."""
    from mkdocs.structure.files import File

    def add(path: str, content: str | bytes) -> None:
        files.append(File.generated(config, f"notebooks/{path}", content=content))

    add("index.md", re.sub(r"\((\d\d_\w+)\.ipynb\)", r"(\1.md)", (SOURCES / "README.md").read_text(encoding="utf-8")))
    execute(names())
    for name in names():
        text, pictures = markdown(executed(name), name)
        add(f"{name}.md", text)
        for file, content in pictures.items():
            add(file, content)
    return files
