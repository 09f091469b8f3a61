"""The gallery of the documentation: each figure with a small copy of its picture, its claims and their verdicts.

    python -m figures.page.gallery results      docs/gallery.md and docs/images/figures, from what `make reproduce` left

`make gallery` says this.
"""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from analyses.claims.document import CLAIMS
from figures.page.results import webp
from figures.parts.figure import FOLDER, load_figure
from interp.outside import one_line
from models.running.command_line import read_entries

DOCS = FOLDER.parent / "docs"
PICTURES = "images/figures"  # of the documentation
INTRODUCTION = """# Gallery

Every figure, drawn from the shipped checkpoints by `make reproduce`. Below each title stands what the picture shows,
and each claim that it illustrates with its verdict and the number that decides. `make reproduce` also writes
`results/index.html`, with what each claim requires and all that was found, and `results/figures`, with the pictures as
PDF and their numbers as JSON.
"""
GROUPS = {False: "The paper's claims", True: "Beyond the paper"}  # whether the paper leaves it open
WIDTH = 1000  # pixels of a copy


def write(results: Path, docs: Path = DOCS) -> None:
    """The page, from the claims' table of a results folder, and copies of its pictures."""
    judged = {row["claim"]: row for row in json.loads((results / "claims.json").read_text(encoding="utf-8"))["rows"]}
    folder = docs / PICTURES
    folder.mkdir(parents=True, exist_ok=True)
    for file in sorted((results / "figures").glob("*.png")):
        (folder / f"{file.stem}.webp").write_bytes(webp(file.read_bytes(), WIDTH))
    (docs / "gallery.md").write_text(page(judged), encoding="utf-8")


def page(judged: dict[str, dict[str, Any]]) -> str:
    """The paper's figures first, in the order of its claims, then those that go beyond it."""
    entries = read_entries(FOLDER, marker="LABEL")
    claims = {name: [one for one in CLAIMS if one.id in load_figure(name).CLAIMS] for name in entries}

    def beyond(name: str) -> bool:
        return all(one.ours for one in claims[name])

    def place(name: str) -> tuple[bool, int, str]:
        return beyond(name), min((one.number or 0 for one in claims[name] if not one.ours), default=0), name

    parts = [INTRODUCTION]
    for group, names in itertools.groupby(sorted(entries, key=place), key=beyond):
        parts.append(f"## {GROUPS[group]}\n")
        parts += [section(name, entries[name].summary, claims[name], judged) for name in names]
    return "\n".join(parts)


def section(name: str, summary: str, claims: Sequence[Any], judged: dict[str, dict[str, Any]]) -> str:
    """A figure's part of the page."""
    title, file = sentence(name.replace("_", " ")), f"{PICTURES}/{name}.webp"
    lines = [f"### {title}\n", f"{sentence(summary)}{'' if summary.endswith('?') else '.'}\n"]
    for one in claims:
        said = judged.get(one.id, {"found": ""})
        verdict = f" *{plain(said['verdict'])}*: {plain(said['found'])}." if said["found"] else ""
        lines.append(f"- {plain(one.sentence)}{verdict}")
    image = f'<img alt="{title}" src="{file}" loading="lazy">'
    lines.append(f'\n<p class="figure"><a href="{file}">{image}</a></p>\n')
    return "\n".join([*lines, f"`python -m figures {name}`\n"])


def sentence(words: str) -> str:
    """With a capital at the beginning, unless a symbol such as beta_1 stands there."""
    return plain(words if re.match(r"\w*[_\d]", words) else words[:1].upper() + words[1:])


def plain(words: str) -> str:
    """Text without marks of Markdown or HTML: each is written as its number."""
    return re.sub(r"[&<>\"*_`[\]\\|$#{}!:]", lambda mark: f"&#{ord(mark[0])};", one_line(words))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
