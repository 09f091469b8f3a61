"""The gallery of the documentation: every figure has its part and its picture, and results from elsewhere are text."""

from __future__ import annotations

import re
from pathlib import Path

from PIL import Image

from analyses.claims.document import CLAIMS
from figures.page import gallery
from figures.running import cli
from models.running.command_line import read_entries
from tests.hostile import NAMES

KEPT = gallery.DOCS / gallery.PICTURES
FIGURES = set(read_entries(cli.FOLDER, marker="LABEL"))


def test_every_figure_has_its_part_and_its_picture() -> None:
    text = (gallery.DOCS / "gallery.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`python -m figures (\w+)`", text)) == FIGURES
    assert {file.stem for file in KEPT.iterdir()} == FIGURES


def test_pictures_are_small_and_whole() -> None:
    for file in KEPT.glob("*.webp"):
        assert file.stat().st_size < 150_000, file
        with Image.open(file) as picture:
            picture.load()
            assert picture.width >= 600, file


def test_verdicts_and_numbers_are_text() -> None:
    names = dict(zip([claim.id for claim in CLAIMS], NAMES.values(), strict=False))
    judged = {claim: {"verdict": "holds", "found": f"found {name}"} for claim, name in names.items()}
    page, without = gallery.page(judged), gallery.page({})
    assert "*holds*&#58; found" not in without
    assert re.findall("<[^>]*>|[`*]+|://", page.replace("*holds*", "")) == re.findall("<[^>]*>|[`*]+|://", without)


def test_pictures_and_page_are_written(tmp_path: Path) -> None:
    results = tmp_path / "results"
    (results / "figures").mkdir(parents=True)
    Image.new("RGB", (2000, 500)).save(results / "figures" / "mech_main.png")
    (results / "claims.json").write_text('{"rows": [{"claim": "blocks", "verdict": "holds", "found": "3 < 4"}]}')
    gallery.write(results, tmp_path)
    with Image.open(tmp_path / gallery.PICTURES / "mech_main.webp") as picture:
        assert picture.width == gallery.WIDTH
    assert "*holds*: 3 &#60; 4." in (tmp_path / "gallery.md").read_text()
