"""The gallery: every figure with its claim, on one page.

A picture comes from the results of `make reproduce` where there are any (`results/`, or the folder that INTERP_RESULTS
names), else from `docs/images/figures`, where `make gallery` puts small copies of them, with what each of them finds. A
figure that has neither is listed with its command.
"""

from __future__ import annotations

import html
import io
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "docs" / "images" / "figures"
FINDINGS = KEPT / "findings.json"  # figure -> its headline
WIDTH = 1000  # of the copies that are kept, in pixels
LARGEST = 60_000  # bytes of such a copy
sys.path.insert(0, str(ROOT))  # mkdocs does not put the checkout on the path


def results() -> Path:
    return Path(os.environ.get("INTERP_RESULTS", ROOT / "results")) / "figures"


def on_config(config: Any) -> Any:
    """Put the gallery into the contents, after the notebooks."""
    place = next(at for at, one in enumerate(config.nav) if "How to" in one)
    config.nav.insert(place, {"Gallery": "gallery.md"})
    return config


def on_files(files: Any, config: Any) -> Any:
    """Write the page, and bring its pictures."""
    from mkdocs.structure.files import File

    from analyses.command import read_entries

    parts = [
        "# Gallery\n\nEvery figure, drawn from the shipped checkpoints by `make reproduce`, which also judges each "
        "claim on `results/index.html`.\n"
    ]
    entries = read_entries(ROOT / "figures", marker="LABEL")
    for name in in_order(entries):
        entry = entries[name]
        parts.append(f"## {title(name)}\n\n{sentence(name, entry.summary)}\n")
        picture = picture_of(name)
        if picture is None:
            parts.append("Not among the pictures kept here: draw it with the command below.\n")
        else:
            address = f"images/gallery/{picture.name}"
            files.append(File.generated(config, address, content=picture.read_bytes()))
            parts.append(
                f'<p><img alt="{html.escape(finding(name) or entry.summary)}" src="{address}" loading="lazy"></p>\n'
            )
        parts.append(f"`python -m figures {name}`\n")
    files.append(File.generated(config, "gallery.md", content="\n".join(parts)))
    return files


def in_order(names: Iterable[str]) -> list[str]:
    """The paper's claims first, then the questions beyond it, each in the order of `figures.claims`."""
    from figures.claims import CLAIMS

    listed = sorted((name for name in CLAIMS if name in set(names)), key=lambda name: CLAIMS[name].ours)
    return [*listed, *(name for name in names if name not in CLAIMS)]


def title(name: str) -> str:
    """The claim in a few words."""
    from figures.claims import CLAIMS

    return CLAIMS[name].title if name in CLAIMS else name


def sentence(name: str, summary: str) -> str:
    """The claim in words, and what the picture shows."""
    from figures.claims import CLAIMS

    claim = CLAIMS.get(name)
    shown = f"{summary[:1].upper()}{summary[1:]}{'' if summary.endswith('?') else '.'}"
    return f"**{claim.sentence}** {shown}" if claim else shown


def finding(name: str) -> str:
    """What a figure finds, in a sentence: of the last results, else what was kept with its copy."""
    sidecar = results() / f"{name}.json"
    if sidecar.is_file():
        return str(json.loads(sidecar.read_text())["verdict"]["headline"])
    return str(json.loads(FINDINGS.read_text()).get(name, "")) if FINDINGS.is_file() else ""


def keep(folder: Path) -> None:
    """Put small copies of the pictures of a results folder, and their findings, beside the documentation."""
    from PIL import Image

    KEPT.mkdir(parents=True, exist_ok=True)
    found = json.loads(FINDINGS.read_text()) if FINDINGS.is_file() else {}
    for file in sorted((folder / "figures").glob("*.png")):
        picture = Image.open(file).convert("RGB")
        picture.thumbnail((WIDTH, 10 * WIDTH))
        (KEPT / f"{file.stem}.webp").write_bytes(small(picture))
        found[file.stem] = json.loads(file.with_suffix(".json").read_text())["verdict"]["headline"]
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
