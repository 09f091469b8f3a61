"""The gallery of the documentation: every figure has its part and its picture, and results from elsewhere are text."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from analyses.claims.document import CLAIMS
from figures.page import gallery
from figures.running import cli
from models.running.command_line import read_entries
from tests.figures.chromium import Browser
from tests.hostile import NAMES, RAN

KEPT = gallery.DOCS / gallery.PICTURES
FIGURES = set(read_entries(cli.FOLDER, marker="LABEL"))
SHOWN = [claim.id for claim in CLAIMS if not claim.ours and claim.label.startswith("fig:")]  # each has a figure
HOSTILE = {
    claim: {"verdict": "holds", "found": f"found {name}"} for claim, name in zip(SHOWN, NAMES.values(), strict=False)
}


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
    page, without = gallery.page(HOSTILE), gallery.page({})
    assert page.count("found ") - without.count("found ") >= len(NAMES)
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


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documentation with a gallery of a stranger's results, and no other page."""
    pytest.importorskip("mkdocs", reason="the documentation is built with the `docs` extra")
    place = tmp_path_factory.mktemp("site")
    for folder in ("css", "js"):
        shutil.copytree(gallery.DOCS / folder, place / "docs" / folder)
    (place / "docs" / "index.md").write_text("# Home\n")
    (place / "docs" / "gallery.md").write_text(re.sub("<img [^>]*>", "", gallery.page(HOSTILE)))
    settings = (gallery.DOCS.parent / "mkdocs.yml").read_text()
    settings = re.sub(r"(?ms)^nav:.*?^hooks:\n", "nav: [{Home: index.md}, {Gallery: gallery.md}]\nhooks:\n", settings)
    settings = re.sub(r"  - docs/plugins/(commands|notebooks|mathml).py\n", "", settings)
    settings = settings.replace("docs/plugins", str(gallery.DOCS / "plugins"))
    settings = settings.replace("paths: [.]", f"paths: ['{gallery.DOCS.parent}']")
    (place / "mkdocs.yml").write_text(settings)
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--config-file", str(place / "mkdocs.yml")]
    command += ["--site-dir", str(place / "site")]
    done = subprocess.run(command, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return place / "site"


def test_a_strangers_findings_run_nothing_in_the_gallery(chromium: Browser, site: Path) -> None:
    with chromium.opened((site / "gallery.html").as_uri()) as tab:
        assert tab.view.text_content("article").count("found ") >= len(NAMES)
        assert tab.view.locator("article [onclick], article a[href^=javascript], article script").count() == 0
        assert "Gallery" in tab.view.title()
        assert tab.complaints == []


def test_the_policy_stops_a_script_in_the_text(chromium: Browser, site: Path) -> None:
    written = (site / "gallery.html").read_text(encoding="utf-8")
    assert "unsafe" not in re.findall(r"script-src ([^;]*);", written)[0]
    broken = site / "broken.html"
    broken.write_text(written.replace("</article>", f"{NAMES['image']}{NAMES['end_of_script']}</article>"))
    with chromium.opened(broken.as_uri()) as tab:
        assert tab.view.title() != RAN
        assert sum("Content Security Policy" in one for one in tab.complaints) == 2
