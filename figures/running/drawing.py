"""Draws a figure from rows of results, and writes its files.

Beside each picture lies a JSON file (its sidecar) with caption and claims, the numbers that were drawn, where
they come from, and a digest of all that shapes the picture: a figure whose digest has not changed is not drawn again.
"""

from __future__ import annotations

import contextlib
import io
import json
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analyses.running.cache import digest_of, picture_key
from analyses.running.files import write_file
from analyses.running.pool import Job, run_jobs
from analyses.running.table import json_text
from figures.parts.figure import Figure, load_figure
from figures.parts.rows import MissingPanel, protocol_note
from interp.outside import one_line
from models.running.command_line import BadInput, Entry
from models.running.terminal import say

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Plt

    from analyses.running.table import Table
    from figures.running.order import Order
    from figures.running.sources import Documents

STYLE = Path(__file__).parent / "house.mplstyle"
TOO_SMALL = "constrained_layout not applied"  # what matplotlib says where labels leave no room for panels


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A figure to draw: the rows that it chose, where they come from, and where the files go.

    given   whether the rows were read from files, which may lack what the figure draws
    """

    figure: str
    label: str
    results: dict[str, Any]
    provenance: dict[str, Any]
    out: Path
    formats: tuple[str, ...]
    given: bool = False
    size: tuple[float, float] | None = None
    style: tuple[Any, ...] = ()  # on top of the house style: style sheets as dicts

    @property
    def cost(self) -> float:
        """Figures take about as long as each other; many rows take longer."""
        return 1.0 + sum(map(len, self.results.values())) / 100

    @property
    def files(self) -> tuple[Path, ...]:
        """The pictures, and then the sidecar."""
        return tuple(self.out / f"{self.figure}.{suffix}" for suffix in (*self.formats, "json"))

    @property
    def digest(self) -> str:
        """Of everything that a picture and its sidecar depend on."""
        return digest_of([self.results, self.provenance, picture_key(), self.size, self.style])


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """A figure's files, what its sidecar says, its PNG if that was asked for, and whether it was drawn just now."""

    files: tuple[Path, ...]
    record: dict[str, Any]
    png: bytes | None
    new: bool


def draw_all(chosen: Sequence[Entry], documents: Documents, order: Order) -> tuple[list[Drawn], list[str]]:
    """Draw the figures that are not there yet; also returns what was wrong with those that could not be drawn.

    What is wrong with the only figure is raised.
    """
    found: dict[str, Drawn | BadInput] = {}
    wanted: list[Drawing] = []
    for entry in chosen:
        try:
            one = drawing_of(entry, documents, order)
            if len(chosen) == 1 and not any(one.results.values()):
                what = " and ".join(load_figure(entry.name).ANALYSES)
                raise BadInput(f"{entry.name}: no model that it draws is among the results of {what}; nothing written")
        except BadInput as error:
            found[entry.name] = error
            continue
        if known := known_drawing(one):
            found[entry.name] = known
        else:
            wanted.append(one)
    jobs = [Job(task=one, words=one.figure, kind=one.figure, cost=one.cost) for one in wanted]
    found |= {one.figure: drawn for one, drawn in run_jobs(draw, jobs, workers=order.jobs, what="figures")}
    drawn, errors = [], []
    for entry in chosen:
        one_found = found[entry.name]
        if isinstance(one_found, Drawn):
            drawn.append(one_found)
            for note in one_found.record["missing"] if one_found.new else []:
                say(f"warning: {entry.name}: {one_line(note)}")
        elif len(chosen) == 1:
            raise one_found
        else:
            errors.append(one_line(one_found))
            say(f"error: {errors[-1]}")
    return drawn, errors


def drawing_of(entry: Entry, documents: Documents, order: Order) -> Drawing:
    """What to draw; if a document could not be had, what was wrong is raised."""
    figure = load_figure(entry.name)
    mine: dict[str, Table] = {}
    for name in figure.ANALYSES:
        document = documents[name]
        if isinstance(document, BadInput):
            raise BadInput(f"{entry.name}: {document}")
        mine[name] = document
    given = order.results is not None
    with of_given_results(entry.name, given=given):
        results = figure.chosen({name: list(document.rows) for name, document in mine.items()})
    return Drawing(
        figure=entry.name,
        label=entry.marker,
        results=results,
        provenance={name: document.provenance for name, document in mine.items()},
        out=order.place,
        formats=order.format,
        given=given,
        size=order.size,
        style=style_of(order),
    )


def known_drawing(drawing: Drawing) -> Drawn | None:
    """The figure as it lies there, if it was made from the same results by the same code."""
    try:
        record = json.loads(drawing.files[-1].read_text())
        png = (drawing.out / f"{drawing.figure}.png").read_bytes() if "png" in drawing.formats else None
    except (OSError, ValueError):
        return None
    here = all(picture.is_file() for picture in drawing.files)
    if not here or not isinstance(record, dict) or record.get("digest") != drawing.digest:
        return None
    return Drawn(files=drawing.files, record=record, png=png, new=False)


def draw(drawing: Drawing) -> Drawn | BadInput:
    """Draw the figure and write its files; what given results lack is said, and is no bug."""
    try:
        with of_given_results(drawing.figure, given=drawing.given):
            contents, missing = pictures_of(drawing)
    except BadInput as error:
        return error
    figure = load_figure(drawing.figure)
    record = {
        "figure": drawing.figure,
        "label": drawing.label,
        "caption": " ".join(filter(None, (figure.caption(drawing.results), protocol_note(drawing.results)))),
        "claims": list(figure.CLAIMS),
        "missing": missing,
        "digest": drawing.digest,
        "provenance": drawing.provenance,
        "numbers": drawing.results,
    }
    for picture, content in zip(drawing.files, contents.values(), strict=False):
        write_file(picture, content)
    write_file(drawing.files[-1], json_text(record) + "\n")
    return Drawn(files=drawing.files, record=record, png=contents.get("png"), new=True)


def pictures_of(drawing: Drawing) -> tuple[dict[str, bytes], list[str]]:
    """The picture in each format, and the panels that it lacks."""
    import matplotlib.pyplot as plt

    with plt.style.context([STYLE, *drawing.style]), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", MissingPanel)
        figure = picture_of(load_figure(drawing.figure), drawing.results)
        if drawing.size is not None:
            figure.set_size_inches(drawing.size)
        contents = {}
        for suffix in drawing.formats:
            contents[suffix] = picture_bytes(figure, suffix)
            figure.set_layout_engine("none")  # laid out once: every format shows the same places
        plt.close(figure)
    missing = [str(one.message) for one in caught if issubclass(one.category, MissingPanel)]
    for one in caught:
        if str(one.message).startswith(TOO_SMALL):
            missing.append(
                "labels leave no room for panels: a larger --size, or a --style with smaller text, would help"
            )
        elif not issubclass(one.category, MissingPanel):
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
    return contents, list(dict.fromkeys(missing))


def style_of(order: Order) -> tuple[dict[str, Any], ...]:
    """What the order's style sheet and resolution change of the house style."""
    import matplotlib

    resolution = () if order.dpi is None else ({"savefig.dpi": order.dpi},)
    if order.style is None:
        return resolution
    try:
        sheet = matplotlib.rc_params_from_file(order.style, use_default_template=False)
    except (OSError, ValueError) as error:
        raise BadInput(f"--style {order.style}: {one_line(error)}") from error
    return (dict(sheet), *resolution)


def picture_of(figure: Figure, results: dict[str, Any]) -> Plt:
    """The figure drawn; where none of its panels has results, a note in their place, and a warning."""
    import matplotlib.pyplot as plt

    from figures.parts.panels import NothingThere, note

    try:
        if any(results.values()):
            return figure.draw(results)
        warnings.warn(f"panel left out: all; no rows of {', '.join(figure.ANALYSES)}", MissingPanel, stacklevel=2)
    except NothingThere:
        pass
    plt.close()
    empty, ax = plt.subplots(figsize=(6.3, 1.2))
    note(ax, f"not available: no rows of {', '.join(figure.ANALYSES)} that this figure draws")
    return empty


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


def picture_bytes(figure: Plt, suffix: str) -> bytes:
    """The picture, without dates or versions in it: the same results give the same file."""
    metadata = {"pdf": {"CreationDate": None, "Producer": None, "Creator": None}, "png": {"Software": None}}
    buffer = io.BytesIO()
    figure.savefig(buffer, format=suffix, metadata=metadata.get(suffix, {"Date": None}))
    return buffer.getvalue()
