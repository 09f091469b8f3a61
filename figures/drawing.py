"""Draws a figure from rows of results, and writes its files.

Beside each picture lies a JSON file (its sidecar) with caption, claim and verdict, the numbers that were drawn, where
they come from, and a digest of all that shapes the picture: a figure whose digest has not changed is not drawn again.
"""

from __future__ import annotations

import argparse
import io
import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from analyses.cache import digest_of, source_tree
from analyses.command import BadInput, Entry, one_line, say
from analyses.report import check_document_target, json_text, write_file
from figures.panels import MissingPanel

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLE = Path(__file__).parent / "house.mplstyle"


def produce(
    entry: Entry, module: ModuleType, documents: dict[str, dict[str, Any] | BadInput], options: argparse.Namespace
) -> list[Path]:
    """Draw one figure and write its files; returns their paths. What is already drawn is left as it is."""
    mine = {}
    for name in module.ANALYSES:
        document = documents[name]
        if isinstance(document, BadInput):
            raise document
        mine[name] = document
    results = module.chosen({name: document["rows"] for name, document in mine.items()})
    provenance = {name: document["provenance"] for name, document in mine.items()}
    sidecar = options.out / f"{entry.name}.json"
    pictures = [options.out / f"{entry.name}.{suffix}" for suffix in options.format]
    digest = picture_digest(entry, results, provenance)
    if already_drawn(sidecar, pictures, digest):
        return [*pictures, sidecar]
    import matplotlib.pyplot as plt

    with plt.style.context(STYLE), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", MissingPanel)
        figure = module.draw(results)
        contents = [picture_bytes(figure, suffix) for suffix in options.format]
        plt.close(figure)
    missing = list(dict.fromkeys(str(one.message) for one in caught if issubclass(one.category, MissingPanel)))
    for one in caught:
        if not issubclass(one.category, MissingPanel):
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
    for note in missing:
        say(f"warning: {entry.name}: {one_line(note)}")
    for picture, content in zip(pictures, contents, strict=True):
        write_file(picture, content)
    record = {
        "figure": entry.name,
        "label": entry.marker,
        "caption": module.caption(results),
        "claim": module.CLAIM,
        "verdict": vars(module.verdict(results)),
        "missing": missing,
        "digest": digest,
        "provenance": provenance,
        "numbers": results,
    }
    write_file(sidecar, json_text(record) + "\n")
    return [*pictures, sidecar]


def check_figure_target(entry: Entry, options: argparse.Namespace) -> None:
    """Refuse, before any work, to write where something else lies."""
    sidecar = options.out / f"{entry.name}.json"
    check_document_target(sidecar, key="figure", name=entry.name, overwrite=options.overwrite)
    if not sidecar.exists() and not options.overwrite:
        for suffix in options.format:
            picture = options.out / f"{entry.name}.{suffix}"
            if picture.exists():
                raise BadInput(f"{picture} is no figure of ours; --overwrite replaces it")


def picture_digest(entry: Entry, results: dict[str, Any], provenance: dict[str, Any]) -> str:
    """A digest of everything that a picture and its sidecar depend on."""
    return digest_of([results, provenance, source_tree().key(*code_of(entry.name))])


def code_of(figure: str) -> tuple[str, ...]:
    """The modules whose imports are the code of a picture: the figure itself, and what draws and saves it."""
    return f"figures.{figure}", "figures.drawing"


def already_drawn(sidecar: Path, pictures: Sequence[Path], digest: str) -> bool:
    """Whether the files are there, made from the same results by the same code."""
    if not sidecar.is_file() or not all(picture.is_file() for picture in pictures):
        return False
    try:
        return json.loads(sidecar.read_text()).get("digest") == digest
    except ValueError:
        return False


def picture_bytes(figure: Figure, suffix: str) -> bytes:
    """The picture, without dates or versions in it: the same results give the same file."""
    metadata = {"pdf": {"CreationDate": None, "Producer": None, "Creator": None}, "png": {"Software": None}}
    buffer = io.BytesIO()
    figure.savefig(buffer, format=suffix, metadata=metadata.get(suffix, {"Date": None}))
    return buffer.getvalue()
