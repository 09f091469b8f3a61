"""The gallery: every figure with its claim, on one page.

A picture comes from the results of `make reproduce` where there are any (`results/`, or the folder that INTERP_RESULTS
names), else from `docs/images/figures`, where `make gallery` puts small copies of them, with what each of them finds. A
figure that has neither is listed with its command.
"""

from __future__ import annotations

import html
import io
import itertools
import json
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "docs" / "images" / "figures"
FINDINGS = KEPT / "findings.json"  # claim -> its verdict, and the number that decides
FOLDER = "images/gallery"  # of the site
INTRODUCTION = """# Gallery

Every figure, drawn from the shipped checkpoints by `make reproduce`. Below each title stands what the picture shows,
and each claim that it illustrates with its verdict and the number that decides. `make reproduce` also writes
`results/index.html`, with what each claim requires and all that was found, and `results/figures`, with the pictures as
PDF and their numbers as JSON.
"""
GROUPS = {False: "The paper's claims", True: "Beyond the paper"}  # whether the paper leaves it open
WIDTH = 1000  # of the copies that are kept, in pixels
LARGEST = 80_000  # bytes of such a copy
sys.path.insert(0, str(ROOT))  # mkdocs does not put the checkout on the path


def results() -> Path:
    return Path(os.environ.get("INTERP_RESULTS", ROOT / "results")) / "figures"


def on_config(config: Any) -> Any:
    """Put the gallery into the contents, after the notebooks."""
    place = next(at for at, one in enumerate(config.nav) if "How to" in one)
    config.nav.insert(place, {"Gallery": "gallery.md"})
    return config


def on_files(files: Any, config: Any) -> Any:
    """Write the page, and bring its pictures and their data."""
    from mkdocs.structure.files import File

    from models.running.command_line import read_entries

    parts = [INTRODUCTION]
    entries = read_entries(ROOT / "figures", marker="LABEL")
    for group, names in itertools.groupby(in_order(entries), key=beyond):
        parts.append(f"## {GROUPS[group]}\n")
        for name in names:
            text, brought = section(name, entries[name].summary)
            parts.append(text)
            for address, file in brought.items():
                files.append(File.generated(config, address, content=file.read_bytes()))
    files.append(File.generated(config, "gallery.md", content="\n".join(parts)))
    return files


def section(name: str, summary: str) -> tuple[str, dict[str, Path]]:
    """A figure's part of the page, and the files that it shows or links to, by address."""
    parts = [f"### {title(name)}\n", f"{sentence(name, summary)}\n", f"{verdict(name)}\n"]
    picture, data = picture_of(name), results() / f"{name}.json"
    brought, links = {}, [f"`python -m figures {name}`"]
    if data.is_file():
        brought[f"{FOLDER}/{data.name}"] = data
        links.insert(0, f'<a href="{FOLDER}/{data.name}">numbers and caption (JSON)</a>')
    if picture is None:
        parts.append("Not among the pictures kept here: draw it with the command below.\n")
    else:
        address = f"{FOLDER}/{picture.name}"
        brought[address] = picture
        links.insert(0, f'<a href="{address}">picture in full size</a>')
        image = f'<img alt="{html.escape(title(name))}" src="{address}" loading="lazy">'
        parts.append(f'<p class="figure"><a href="{address}">{image}</a></p>\n')
    return "\n".join([*parts, ", ".join(links) + "\n"]), brought


def in_order(names: Iterable[str]) -> list[str]:
    """The paper's figures first, in the order of its claims, then those that go beyond it."""
    numbers = {name: [one.number for one in claims_of(name) if one.number and not one.ours] for name in names}
    return sorted(names, key=lambda name: (beyond(name), min(numbers[name], default=0), name))


def beyond(name: str) -> bool:
    """Whether none of the claims that it shows is the paper's."""
    return all(one.ours for one in claims_of(name))


def claims_of(name: str) -> list[Any]:
    """The claims that a figure shows."""
    from analyses.claims.document import CLAIMS
    from figures.running.drawing import load_module

    return [one for one in CLAIMS if one.id in load_module(name).CLAIMS]


def title(name: str) -> str:
    """The figure's name as words."""
    return capital(name.replace("_", " "))


def sentence(name: str, summary: str) -> str:
    """What the picture shows."""
    return shown(summary)


def shown(summary: str) -> str:
    """What the picture shows, as a sentence."""
    return f"{capital(summary)}{'' if summary.endswith('?') else '.'}"


def capital(words: str) -> str:
    """With a capital at the beginning, as a sentence has one."""
    symbol = re.match(r"\w*[_\d]", words)  # beta_1 stays as it is
    return plain(words if symbol else words[:1].upper() + words[1:])


def plain(words: str) -> str:
    """Text without marks of Markdown or HTML: every sign is written as its number."""
    from interp.outside import one_line

    return re.sub(r"[^\w\s]|_", lambda sign: f"&#{ord(sign[0])};", one_line(words))


def verdict(name: str) -> str:
    """Each claim with its verdict and the number that decides."""
    found = findings()
    lines = []
    for claim in claims_of(name):
        said = found.get(claim.id)
        words = f" *{plain(said['verdict'])}*: {plain(said['found'])}." if said else ""
        lines.append(f"- {plain(claim.sentence)}{words}")
    return "\n".join(lines) + "\n"


def findings() -> dict[str, dict[str, str]]:
    """Verdict and number of every claim: of the last results, else what was kept with the pictures."""
    last = results().parent / "claims.json"
    if last.is_file():
        return judged(last)
    return dict(json.loads(FINDINGS.read_text(encoding="utf-8"))) if FINDINGS.is_file() else {}


def judged(file: Path) -> dict[str, dict[str, str]]:
    """What is kept of the claims' document."""
    rows = json.loads(file.read_text(encoding="utf-8"))["rows"]
    return {row["claim"]: {"verdict": row["verdict"], "found": row["found"]} for row in rows}


def keep(folder: Path) -> None:
    """Put small copies of the pictures of a results folder, and their findings, beside the documentation."""
    from PIL import Image

    KEPT.mkdir(parents=True, exist_ok=True)
    found = judged(folder / "claims.json")
    for file in sorted((folder / "figures").glob("*.png")):
        picture = Image.open(file).convert("RGB")
        picture.thumbnail((WIDTH, 10 * WIDTH))
        (KEPT / f"{file.stem}.webp").write_bytes(small(picture))
    FINDINGS.write_text(json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


def small(picture: Any) -> bytes:
    """The picture as WebP, at the highest quality that fits `LARGEST`."""
    for quality in range(85, 25, -5):
        buffer = io.BytesIO()
        picture.save(buffer, format="WEBP", quality=quality, method=6)
        if buffer.tell() <= LARGEST:
            break
    return buffer.getvalue()


def picture_of(name: str) -> Path | None:
    """The picture of a figure: of the last results, else the copy that is kept."""
    for file in (results() / f"{name}.png", KEPT / f"{name}.webp"):
        if file.is_file():
            return file
    return None


if __name__ == "__main__":
    keep(Path(sys.argv[1]))
