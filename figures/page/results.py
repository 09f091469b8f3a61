"""The page of `make reproduce`: the paper's claims in words with their verdicts, then each figure with its numbers.

One file, `index.html`: pictures, style and the script that filters and sorts are inside it, and nothing is fetched.
"""

from __future__ import annotations

import base64
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from analyses.claims import document as claims
from analyses.running import questions
from analyses.running.command import BadInput
from analyses.running.files import write_file
from analyses.running.table import Table
from analyses.shipped import FOLDER, shipped_table
from figures.page.explorer import page as explorer
from figures.page.templates import render
from figures.running.drawing import Drawn

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
MOST_PARTS = 5  # analyses whose time the page states
THUMBNAIL_WIDTH = 416  # twice the width of its place, for fine screens
PAPER_ORDER = (
    "fig:task_priors", "fig:two_layer_circuit", "fig:kl_vs_position", "fig:mech_main", "fig:mech_indep", "fig:app2",
    "fig:hier",
)  # fmt: skip


def check_target(file: Path, *, overwrite: bool) -> None:
    """Refuse to replace a page that is not ours."""
    if file.exists() and not overwrite and MARK not in file.read_text(errors="replace"):
        raise BadInput(f"{file} is no page of ours; --overwrite replaces it")


def write(out: Path, drawn: Sequence[Drawn], documents: Mapping[str, Table], timing: Mapping[str, Any]) -> Path:
    """Write the page of what was drawn and found; returns its path."""
    file = out / FILE
    write_file(file, page(out, sorted(drawn, key=lambda one: _order(one.record)), documents, timing))
    return file


def answer(rows: Sequence[Mapping[str, Any]]) -> str:
    """How many claims have each verdict: a sentence.

    >>> answer([{"verdict": "holds"}, {"verdict": "holds"}, {"verdict": "does not hold"}])
    'Of 3 claims, 1 does not hold; 2 hold.'
    """
    counts = Counter(row["verdict"] for row in rows)
    parts = [f"{counts[word]} {COUNTED[word][counts[word] > 1]}" for word in WORD_CLASSES if counts[word]]
    return f"Of {len(rows)} claims, {'; '.join(parts)}."


def of_the_paper(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The paper's claims: not its settings, nor what we ask."""
    return [row for row in rows if not row["ours"] and row["topic"] != SETTING]


def page(out: Path, drawn: Sequence[Drawn], documents: Mapping[str, Table], timing: Mapping[str, Any]) -> str:
    """The whole page."""
    rows = documents[claims.NAME].rows
    theirs = of_the_paper(rows)
    origins = [document.provenance for document in documents.values() if document.provenance]
    figures: dict[str, list[Drawn]] = {}
    for one in drawn:
        for claim in one.record["claims"]:
            figures.setdefault(claim, []).append(one)
    live = explorer.ANALYSIS in documents and (out / explorer.FILE).is_file()
    return render(
        "assets/page.html",
        mark=MARK,
        style=(ASSETS / "style.css").read_text(),
        script=(ASSETS / "page.js").read_text(),
        title="interp: results",
        drawn=drawn,
        figures=figures,
        by_id={row["claim"]: row for row in rows},
        theirs=theirs,
        settings=[row for row in rows if row["topic"] == SETTING],
        ours=[row for row in rows if row["ours"]],
        groups={word: mine for word in WORD_CLASSES if (mine := [row for row in theirs if row["verdict"] == word])},
        answer=answer(theirs),
        shares=claims.SHARES,
        legend=claims.LEGEND,
        zoo=claims.zoo_lines(documents),
        explorer=explorer.FILE if live else None,
        shipped=shipped_among(documents),
        theory=documents["theory"].rows if "theory" in documents else [],
        documents=documents,
        time=time_words(timing),
        origin=_origin(origins[0] if origins else {}),
        is_there=lambda file: (out / file).is_file(),
        files_of=lambda record: _files(out, record),
        tables_of=lambda name: _existing(out, (f"{name}.csv", f"{name}_tidy.csv", f"{name}.json")),
        picture=_picture,
        thumbnail=_thumbnail,
        COUNTED=COUNTED,
        WORD_CLASSES=WORD_CLASSES,
    )


def _thumbnail(png: bytes | None) -> str:
    """The picture in small, as an address; a picture that is missing is an empty one."""
    if not png:
        return "data:,"
    from PIL import Image

    small = Image.open(io.BytesIO(png)).convert("RGB")
    small.thumbnail((THUMBNAIL_WIDTH, THUMBNAIL_WIDTH))
    buffer = io.BytesIO()
    small.save(buffer, format="WEBP", quality=70)
    return f"data:image/webp;base64,{base64.b64encode(buffer.getvalue()).decode()}"


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


def _order(record: Mapping[str, Any]) -> tuple[int, str]:
    """The paper's order; ours after the paper's."""
    return _place(record["label"]), record["figure"]


def _place(label: str) -> int:
    places = [place for place, start in enumerate(PAPER_ORDER) if label.startswith(start)]
    return places[0] if places else len(PAPER_ORDER)


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


def _picture(png: bytes | None) -> str:
    """The picture, as an address."""
    return f"data:image/png;base64,{base64.b64encode(png or b'').decode()}"


def _files(out: Path, record: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The picture in print, the numbers drawn, and the tables behind them: address and name."""
    name = record["figure"]
    wanted = {f"figures/{name}.pdf": "PDF", f"figures/{name}.svg": "SVG", f"figures/{name}.json": "numbers drawn"}
    wanted |= {f"{analysis}.csv": f"{analysis}.csv" for analysis in record["provenance"]}
    return [(file, wanted[file]) for file in _existing(out, wanted)]


def _existing(out: Path, files: Iterable[str]) -> list[str]:
    return [file for file in files if (out / file).is_file()]


def _origin(provenance: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in provenance.get("versions", {}).items())
    return f"Made by python -m figures reproduce; commit {provenance.get('commit') or 'unknown'}; {versions}."
