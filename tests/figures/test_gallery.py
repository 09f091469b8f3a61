"""The pictures that the gallery of the documentation keeps: one of every figure, small, with what it finds."""

from __future__ import annotations

import json
from pathlib import Path

from PIL import Image

from analyses.claims.document import CLAIMS
from figures.running import cli
from models.running.command_line import read_entries

KEPT = Path(__file__).parents[2] / "docs" / "images" / "figures"
LARGEST = 80_000  # bytes
FIGURES = set(read_entries(cli.FOLDER, marker="LABEL"))


def test_every_figure_has_its_picture_and_no_other_is_kept() -> None:
    assert {file.stem for file in KEPT.glob("*.webp")} == FIGURES


def test_pictures_are_small_and_whole() -> None:
    for file in KEPT.glob("*.webp"):
        assert file.stat().st_size <= LARGEST, file
        with Image.open(file) as picture:
            picture.load()
            assert picture.width >= 600, file


def test_every_claim_has_its_finding() -> None:
    findings = json.loads((KEPT / "findings.json").read_text(encoding="utf-8"))
    assert set(findings) == {claim.id for claim in CLAIMS}
    for name, found in findings.items():
        assert set(found) == {"verdict", "found"}, name
