"""The constructions' figure: what is drawn is what was computed, and the files say where it comes from."""

from __future__ import annotations

import argparse
import json
import math

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex

import interp as ip
from analyses import construction_attention
from figures import construction_attention as picture
from figures import door
from interp.plotting import OVERLAP_COLOURS

OPTIONS = argparse.Namespace(seed=0, batch=64, order=2, vocab=5, length=64, alpha=1.0)


@pytest.fixture(scope="module")
def rows():
    return construction_attention.study(OPTIONS).rows


@pytest.fixture(scope="module")
def figure(rows):
    with plt.style.context(door.STYLE):
        drawn = picture.draw({"construction_attention": rows})
        drawn.canvas.draw()
    yield drawn
    plt.close(drawn)


def test_the_masses_are_those_of_the_three_estimators(rows):
    hard, soft, bos = rows
    for row in rows:
        assert sum(row[f"mass_{kind}"] for kind in OVERLAP_COLOURS) == pytest.approx(1.0, abs=1e-9)
        assert row["mass_early"] == 0.0
    matches = hard["kinds"].count("full")
    assert matches >= construction_attention.LEAST_MATCHES
    assert hard["mass_full"] == pytest.approx(1.0)
    assert hard["to_counting"] < 1e-9
    assert bos["mass_bos"] == pytest.approx(5 / (matches + 5))  # alpha |V| pseudo-counts
    assert bos["to_add_alpha"] < 1e-9
    assert soft["mass_partial"] > 0.05
    beta = ip.beta_for_add_alpha(length=64, order=2, vocab=5, alpha=1.0)
    expected = soft["kinds"].count("partial") * math.exp(beta)
    assert soft["mass_partial"] / soft["mass_none"] == pytest.approx(expected / soft["kinds"].count("none"))


def test_bars_are_the_last_querys_weights_coloured_by_overlap(figure, rows):
    panels = [axes for axes in figure.axes if axes.containers]
    assert len(panels) == 3
    for panel, row in zip(panels, rows, strict=True):
        bars = panel.containers[0]
        assert [bar.get_height() for bar in bars] == row["weights"]
        assert row["weights"] == row["match_pattern"][-1]
        colours = [to_hex(bar.get_facecolor()) for bar in bars]
        assert colours == [OVERLAP_COLOURS[kind] for kind in row["kinds"]]
        masks = ip.match_masks([row["tokens"]], order=2)[0].tolist()
        full = [place + row["bos"] for place, mask in enumerate(masks) if mask == 3]
        assert [place for place, colour in enumerate(colours) if colour == OVERLAP_COLOURS["full"]] == full
        # Token t stands at position t, BOS at 0.
        assert bars[0].get_x() + bars[0].get_width() / 2 == pytest.approx(0 if row["bos"] else 1)
        assert panel.get_ylim()[1] > max(row["weights"])


def test_heatmaps_are_the_patterns(figure, rows):
    maps = [axes for axes in figure.axes if axes.images]
    patterns = [pattern for row in rows for pattern in [*row["copy_pattern"], row["match_pattern"]]]
    assert len(maps) == len(patterns) == 9
    for panel, pattern in zip(maps, patterns, strict=True):
        assert np.array_equal(panel.images[0].get_array().filled(0.0), np.array(pattern))


def test_no_text_is_cut_off_and_none_is_too_small(figure):
    renderer = figure.canvas.get_renderer()
    page = figure.bbox
    assert figure.get_size_inches()[0] <= 6.3
    for text in figure.findobj(plt.Text):
        if text.get_visible() and text.get_text():
            box = text.get_window_extent(renderer)
            assert page.padded(1).contains(box.x0, box.y0), text.get_text()
            assert page.padded(1).contains(box.x1, box.y1), text.get_text()
            assert text.get_fontsize() >= 6


def test_command_writes_pictures_and_sidecar(tmp_path, capsys):
    assert door.main(["construction_attention", "--out", str(tmp_path), "--format", "pdf,png"]) == 0
    files = {file.name: file for file in tmp_path.iterdir()}
    assert set(files) == {f"construction_attention.{suffix}" for suffix in ("pdf", "png", "json")}
    assert capsys.readouterr().out.split() == [
        str(tmp_path / f"construction_attention.{suffix}") for suffix in ("pdf", "png", "json")
    ]
    sidecar = json.loads(files["construction_attention.json"].read_text())
    assert sidecar["label"] == "fig:mech_indep"
    assert set(sidecar) == {"figure", "label", "caption", "numbers", "provenance"}
    numbers = sidecar["numbers"]["construction_attention"]
    assert f"{numbers[2]['mass_bos']:.2f} on BOS" in sidecar["caption"]
    assert sidecar["provenance"]["construction_attention"]["seed"] == 0
    before = {name: file.read_bytes() for name, file in files.items()}
    # Drawn again from the result alone, the picture is the same, byte for byte.
    result = {"analysis": "construction_attention", "rows": numbers, "provenance": {}}
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "construction_attention.json").write_text(json.dumps(result))
    again = ["construction_attention", "--out", str(tmp_path), "--results", str(tmp_path / "results")]
    assert door.main(again) == 0
    for suffix in ("pdf", "png"):
        name = f"construction_attention.{suffix}"
        assert files[name].read_bytes() == before[name]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing"], "no figure 'nothing'"),
        (["construction_attention", "--format", "bmp"], "expected a list of pdf, png, svg, got 'bmp'"),
        (["construction_attention", "--results", "/nowhere"], "/nowhere/construction_attention.json"),
        (["construction_attention", "--out", __file__], "a file is in the way"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments, words, capsys):
    with pytest.raises(SystemExit) as stop:
        door.main(arguments)
    captured = capsys.readouterr()
    assert stop.value.code == 2
    assert not captured.out
    assert len(captured.err.splitlines()) == 1
    assert words in captured.err


def test_foreign_files_are_kept(tmp_path, capsys):
    file = tmp_path / "construction_attention.png"
    file.write_text("mine")
    with pytest.raises(SystemExit) as stop:
        door.main(["construction_attention", "--out", str(tmp_path)])
    assert stop.value.code == 2
    assert "--overwrite" in capsys.readouterr().err
    assert file.read_text() == "mine"


def test_listing_names_the_label(capsys):
    assert door.main([]) == 0
    assert "construction_attention  fig:mech_indep" in capsys.readouterr().out


def test_a_sequence_without_matches_is_refused():
    options = argparse.Namespace(**{**vars(OPTIONS), "batch": 1, "length": 4})
    with pytest.raises(ValueError, match="none of 1 sequences of length 4"):
        construction_attention.study(options)
