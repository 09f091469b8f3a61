"""The page of `make reproduce`: a card for each claim, with its verdict, its number, its figure, its needs and tables.

`index.html` fetches nothing. Its pictures lie beside it as WebP, and as PNG in full size; with `standalone` they are in
the file itself.
"""

from __future__ import annotations

import base64
import functools
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from analyses.claims import document as claims
from analyses.running import questions
from analyses.running.files import write_file
from analyses.running.table import Table
from analyses.shipped import FOLDER, shipped_table
from figures.page.explorer import page as explorer
from figures.page.templates import render
from figures.running.drawing import Drawn
from models.running.command_line import BadInput

FILE = "index.html"
MARK = '<meta name="generator" content="interp: python -m figures reproduce">'
ASSETS = Path(__file__).parent / "assets"
SETTING = "setting"  # the topic of what the paper says of its own experiments
WORD_CLASSES = {
    "does not hold": "bad", "holds where": "part", "cannot tell": "none", "holds": "good", "not judged": "ours",
}  # fmt: skip
COUNTED = {  # of one, and of several
    "does not hold": ("does not hold", "do not hold"),
    "holds where": ("holds under a condition", "hold under a condition"),
    "cannot tell": ("cannot be told", "cannot be told"),
    "holds": ("holds", "hold"),
    "not judged": ("is measured only", "are measured only"),
}
OTHER_STARTS = "random or soft starts: "  # as `analyses.claims.wording` says it
MOST_PARTS = 5  # analyses whose time the page states
WIDTH, THUMBNAIL = 1260, 208  # pixels: of a picture, and of one in a card, twice its place for fine screens


def check_target(file: Path, *, overwrite: bool) -> None:
    """Refuse to replace a page that is not ours."""
    if file.exists() and not overwrite and MARK not in file.read_text(errors="replace"):
        raise BadInput(f"{file} is no page of ours; --overwrite replaces it")


def write(
    out: Path, drawn: Sequence[Drawn], documents: Mapping[str, Table], timing: Mapping[str, Any], *,
    standalone: bool = False,
) -> Path:  # fmt: skip
    """Write the page of what was drawn and found, and its pictures; returns its path."""
    if not standalone:
        for one in drawn:
            if one.png and (one.new or not (out / picture_file(one)).is_file()):
                write_file(out / picture_file(one), webp(one.png, WIDTH))
    write_file(out / FILE, page(out, drawn, documents, timing, standalone=standalone))
    return out / FILE


def answer(rows: Sequence[Mapping[str, Any]]) -> str:
    """How many claims have each verdict: a sentence.

    >>> answer([{"verdict": "holds"}, {"verdict": "holds"}, {"verdict": "does not hold"}])
    'Of 3 claims, 1 does not hold; 2 hold.'
    """
    counts = Counter(row["verdict"] for row in rows)
    parts = [f"{counts[word]} {COUNTED[word][counts[word] > 1]}" for word in WORD_CLASSES if counts[word]]
    return f"Of {len(rows)} claims, {'; '.join(parts)}."


def by_start(rows: Sequence[Mapping[str, Any]]) -> str:
    """How many claims that rest on hard copies hold from other starts too: a sentence, empty where none does."""
    found = [row["others"] for row in rows if OTHER_STARTS in row["others"]]
    if not found:
        return ""
    same = sum(f"{OTHER_STARTS}too" in one for one in found)
    return f"{len(found)} rest on models trained from hard copies: {same} hold from random or soft starts too."


def of_the_paper(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The paper's claims: not its settings, nor what we ask."""
    return [row for row in rows if not row["ours"] and row["topic"] != SETTING]


def page(
    out: Path, drawn: Sequence[Drawn], documents: Mapping[str, Table], timing: Mapping[str, Any], *,
    standalone: bool = False,
) -> str:  # fmt: skip
    """The whole page."""
    rows = documents[claims.NAME].rows
    theirs, ours = of_the_paper(rows), [row for row in rows if row["ours"]]
    settings = [row for row in rows if row["topic"] == SETTING]
    figures: dict[str, list[Drawn]] = {}
    placed: dict[str, set[str]] = {row["claim"]: set() for row in rows}  # the first claim of a figure shows it
    for one in drawn:
        known = [row["claim"] for row in [*theirs, *settings, *ours] if row["claim"] in one.record["claims"]]
        for claim in known:
            figures.setdefault(claim, []).append(one)
        for claim in known[:1]:
            placed[claim].add(one.record["figure"])
    origins = [document.provenance for document in documents.values() if document.provenance]
    live = explorer.ANALYSIS in documents and (out / explorer.FILE).is_file()
    return render(
        "assets/page.html",
        mark=MARK,
        style=(ASSETS / "style.css").read_text(),
        script=(ASSETS / "page.js").read_text(),
        title="interp: results",
        figures=figures,
        placed=placed,
        theirs=theirs,
        settings=settings,
        ours=ours,
        groups={word: mine for word in WORD_CLASSES if (mine := [row for row in theirs if row["verdict"] == word])},
        answer=answer(theirs),
        by_start=by_start(theirs),
        rest=rest_of_verdict,
        explorer=explorer.FILE if live else None,
        shipped=shipped_among(documents),
        documents=documents,
        time=time_words(timing),
        origin=_origin(origins[0] if origins else {}),
        files_of=lambda record: _files(out, record),
        tables_of=lambda name: _existing(out, (f"{name}.csv", f"{name}.json")),
        full_size=lambda one: f"figures/{one.record['figure']}.png" if one.png else "#",
        address=lambda one: (
            picture_file(one) if one.png and not standalone else data_address(webp(one.png or b"", WIDTH))
        ),
        width=lambda one: size_of(one.png or b"")[0],
        height=lambda one: size_of(one.png or b"")[1],
        thumbnail=lambda one: data_address(webp(one.png or b"", THUMBNAIL)),
        COUNTED=COUNTED,
        WORD_CLASSES=WORD_CLASSES,
    )


def rest_of_verdict(row: Mapping[str, Any]) -> str:
    """What the verdict says after its first words, which stand apart."""
    return str(row["says"]).removeprefix(row["verdict"].removesuffix(" where")).removeprefix("measured").strip()


def picture_file(one: Drawn) -> str:
    """A figure's picture, from the page."""
    return f"figures/{one.record['figure']}.webp"


@functools.cache
def webp(png: bytes, width: int) -> bytes:
    """The picture as WebP of at most this width; a picture that is missing is empty."""
    if not png:
        return b""
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    picture.thumbnail((width, 10 * width))
    buffer = io.BytesIO()
    picture.save(buffer, format="WEBP", quality=70)
    return buffer.getvalue()


def size_of(png: bytes) -> tuple[int, int]:
    """Width and height in pixels, by which a browser keeps a place for the picture."""
    return Image.open(io.BytesIO(png)).size if png else (1, 1)


def data_address(content: bytes) -> str:
    """A picture as an address that holds it."""
    return f"data:image/webp;base64,{base64.b64encode(content).decode()}" if content else "data:,"


def time_words(timing: Mapping[str, Any]) -> str:
    """Where the time went, in a few sentences."""
    seconds, parts = timing["seconds"], list(timing["by_analysis"].items())
    work = sum(timing["by_analysis"].values())
    shares = ", ".join(f"{name} {part:.0f} s" for name, part in parts[:MOST_PARTS])
    return (
        f"This run took {seconds['analyses']:.0f} s for the analyses and {seconds['figures']:.0f} s for the figures on "
        f"{timing['jobs']} processes; {timing['made']} answers were made and {timing['kept']} were known. "
        f"All of them took {work:.0f} s of processor time when they were made, most of it for {shares}. "
        "timing.json has the rest."
    )


def shipped_among(documents: Mapping[str, Table]) -> dict[str, str]:
    """The analyses that were read from the repository rather than made from --checkpoints: what to say of each."""
    found = {}
    for name in documents:
        if (FOLDER / f"{name}.json").is_file() and shipped_table(name) is not None:
            variable = questions.load_module(name).SHIPPED
            found[name] = (
                f"{name} is the table that comes with the suite (analyses/shipped/{name}.json), whatever --checkpoints "
                f"says; {variable}=1 make reproduce measures it anew."
            )
    return found


def _files(out: Path, record: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The picture in print, and the caption with the numbers drawn: address and name."""
    name = record["figure"]
    wanted = {"png": "PNG", "pdf": "PDF", "svg": "SVG", "json": "caption and numbers"}
    return [(file, wanted[file.rpartition(".")[2]]) for file in _existing(out, (f"figures/{name}.{s}" for s in wanted))]


def _existing(out: Path, files: Iterable[str]) -> list[str]:
    return [file for file in files if (out / file).is_file()]


def _origin(provenance: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in provenance.get("versions", {}).items())
    return f"Made by python -m figures reproduce; commit {provenance.get('commit') or 'unknown'}; {versions}."
