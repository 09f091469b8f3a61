"""Draws a figure from rows of results, and writes its files.

Beside each picture lies a JSON file (its sidecar) with caption and claims, the numbers that were drawn, where
they come from, and a digest of all that shapes the picture: a figure whose digest has not changed is not drawn again.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analyses.running.cache import digest_of, picture_key
from analyses.running.command import BadInput, Entry, one_line
from analyses.running.files import check_document_target, write_file
from analyses.running.report import json_text
from figures.parts.panels import MissingPanel
from figures.parts.rows import protocol_note

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from analyses.running.documents import Document

FOLDER = Path(__file__).parents[1]
STYLE = Path(__file__).parent / "house.mplstyle"


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A figure to draw: the rows that it chose, where they come from, and where the files go."""

    figure: str
    label: str
    results: dict[str, Any]
    provenance: dict[str, Any]
    out: Path
    formats: tuple[str, ...]

    @property
    def words(self) -> str:
        """What it is, for a line of progress."""
        return self.figure

    @property
    def kind(self) -> str:
        """Pictures need nothing compiled."""
        return self.figure

    @property
    def cost(self) -> float:
        """Figures take about as long as each other; many rows take longer."""
        return 1.0 + sum(map(len, self.results.values())) / 100

    @property
    def sidecar(self) -> Path:
        return self.out / f"{self.figure}.json"

    @property
    def pictures(self) -> list[Path]:
        return [self.out / f"{self.figure}.{suffix}" for suffix in self.formats]


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """A figure's files, what its sidecar says, its PNG if that was asked for, and whether it was drawn just now."""

    files: tuple[Path, ...]
    record: dict[str, Any]
    png: bytes | None
    new: bool


def load_module(figure: str) -> Any:
    """The figure itself."""
    folder = "paper" if (FOLDER / "paper" / f"{figure}.py").is_file() else "beyond"
    return importlib.import_module(f"figures.{folder}.{figure}")


def drawing_of(
    entry: Entry, documents: Mapping[str, Document | BadInput], *, out: Path, formats: tuple[str, ...]
) -> Drawing:
    """What to draw; if a document could not be had, what was wrong is raised."""
    module = load_module(entry.name)
    mine: dict[str, Document] = {}
    for name in module.ANALYSES:
        document = documents[name]
        if isinstance(document, BadInput):
            raise document
        mine[name] = document
    return Drawing(
        figure=entry.name,
        label=entry.marker,
        results=module.chosen({name: document.rows for name, document in mine.items()}),
        provenance={name: document.provenance for name, document in mine.items()},
        out=out,
        formats=formats,
    )


def known_drawing(drawing: Drawing) -> Drawn | None:
    """The figure as it lies there, if it was made from the same results by the same code."""
    try:
        record = json.loads(drawing.sidecar.read_text())
        png = (drawing.out / f"{drawing.figure}.png").read_bytes() if "png" in drawing.formats else None
    except (OSError, ValueError):
        return None
    here = all(picture.is_file() for picture in drawing.pictures)
    if not here or not isinstance(record, dict) or record.get("digest") != picture_digest(drawing):
        return None
    return Drawn(files=(*drawing.pictures, drawing.sidecar), record=record, png=png, new=False)


def draw(drawing: Drawing) -> Drawn:
    """Draw the figure and write its files."""
    import matplotlib.pyplot as plt

    module, results = load_module(drawing.figure), drawing.results
    with plt.style.context(STYLE), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", MissingPanel)
        figure = module.draw(results)
        contents = {}
        for suffix in drawing.formats:
            contents[suffix] = picture_bytes(figure, suffix)
            figure.set_layout_engine("none")  # laid out once: every format shows the same places
        plt.close(figure)
    missing = list(dict.fromkeys(str(one.message) for one in caught if issubclass(one.category, MissingPanel)))
    for one in caught:
        if not issubclass(one.category, MissingPanel):
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
    record = {
        "figure": drawing.figure,
        "label": drawing.label,
        "caption": " ".join(filter(None, (caption_of(module, results), protocol_note(results)))),
        "claims": list(module.CLAIMS),
        "missing": missing,
        "digest": picture_digest(drawing),
        "provenance": drawing.provenance,
        "numbers": results,
    }
    for picture, content in zip(drawing.pictures, contents.values(), strict=True):
        write_file(picture, content)
    write_file(drawing.sidecar, json_text(record) + "\n")
    files = (*drawing.pictures, drawing.sidecar)
    return Drawn(files=files, record=record, png=contents.get("png"), new=True)


def caption_of(module: Any, results: dict[str, Any]) -> str:
    """The figure's fixed caption with its fields filled in."""
    return str(module.CAPTION.format(**(module.fields(results) if hasattr(module, "fields") else {})))


def draw_given(drawing: Drawing) -> Drawn | BadInput:
    """Draw the figure from results that were read from files; what they lack is said, and is no bug."""
    try:
        with of_given_results(drawing.figure, given=True):
            return draw(drawing)
    except BadInput as error:
        return error


@contextlib.contextmanager
def of_given_results(figure: str, *, given: bool) -> Iterator[None]:
    """An error in what draws results from files (`given`) means that the files do not hold what the figure draws."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, AssertionError, RuntimeError) as error:
        if not given:
            raise
        reason = f"{type(error).__name__}: {one_line(error)}"
        raise BadInput(f"{figure}: the results do not hold what it draws ({reason})") from error


def check_figure_target(name: str, *, out: Path, formats: Sequence[str], overwrite: bool) -> None:
    """Refuse, before any work, to write where something else lies."""
    sidecar = out / f"{name}.json"
    check_document_target(sidecar, key="figure", name=name, overwrite=overwrite)
    if not sidecar.exists() and not overwrite:
        for suffix in formats:
            picture = out / f"{name}.{suffix}"
            if picture.exists():
                raise BadInput(f"{picture} is no figure of ours; --overwrite replaces it")


def picture_digest(drawing: Drawing) -> str:
    """A digest of everything that a picture and its sidecar depend on."""
    return digest_of([drawing.results, drawing.provenance, picture_key()])


def picture_bytes(figure: Figure, suffix: str) -> bytes:
    """The picture, without dates or versions in it: the same results give the same file."""
    metadata = {"pdf": {"CreationDate": None, "Producer": None, "Creator": None}, "png": {"Software": None}}
    buffer = io.BytesIO()
    figure.savefig(buffer, format=suffix, metadata=metadata.get(suffix, {"Date": None}))
    return buffer.getvalue()
