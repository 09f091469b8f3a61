"""The study of formation on the shipped snapshots, its events on planted curves, and `analyses track`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from analyses.running.cache import Cache
from analyses.running.cli import main
from analyses.studies.formation import Options, events, half_way, join, pieces, snapshots, study_piece

OPTIONS = Options(batch=48)


def of(piece: str) -> list[dict[str, Any]]:
    return list(study_piece(OPTIONS, piece, Cache(None)).rows)


def test_every_size_has_runs_with_and_without_bos() -> None:
    found = pieces(OPTIONS)
    for size in ("one_layer", "two_layers", "three_layers"):
        for bos in ("", "_bos"):
            assert sum(run.startswith(f"{size}{bos}/") for run in found) >= 2
    counts = {len(snapshots(OPTIONS, run)) for run in found if not run.startswith("one")}
    assert counts == {15}


def test_a_match_head_forms_with_the_loss_and_sharpens_after_it() -> None:
    *rows, run = of("two_layers_bos/seed_0")
    first, last = rows[0], rows[-1]
    assert first["loss"] > 3.4 > 0.1 > last["loss"]
    assert first["copied"] < 0.1 < 0.6 < last["copied"]
    assert (first["n_match"], last["n_match"] >= 1) == (0, True)
    assert last["beta"] > 5.5
    assert last["matched"] > 0.9
    assert max(row["sink"] for row in rows if row["step"] >= 600) < 0.05  # BOS gets next to nothing
    assert abs(run["copied_leads"]) < 100
    assert abs(run["matched_leads"]) < 100
    assert run["beta_grows"] > 0.4
    assert run["flat_at"] < last["step"]


def test_one_layer_never_matches() -> None:
    table = join(OPTIONS, [study_piece(OPTIONS, f"one_layer{bos}/seed_0", Cache(None)) for bos in ("", "_bos")])
    assert {row["kind"] for row in table.rows} == {"snapshot"}
    assert all(row["n_match"] == 0 and row["explained"] < 0.02 and row["beta"] is None for row in table.rows)
    assert min(row["loss"] for row in table.rows) > 2.5
    assert "0 match heads" in table.text


def planted(**late: float) -> list[dict[str, Any]]:
    """A loss that falls between steps 100 and 200; other curves rise as much later."""
    steps = (0, 100, 200, 300, 400, 1000)
    shapes = {"loss": (3, 3, 0, 0, 0, 0), "copied": (0, 0, 1, 1, 1, 1), "matched": (0, 0, 0, 1, 1, 1)}
    beta = (None, None, 2.0, 4.0, 5.0, 6.0)
    rows = zip(steps, *shapes.values(), beta, strict=True)
    return [dict(zip(("step", *shapes, "beta"), row, strict=True)) | {"kappa": None} for row in rows]


def test_events_of_planted_curves() -> None:
    found = events(planted())
    assert (found["copied_at"], found["matched_at"], found["loss_at"], found["beta_at"]) == (150, 250, 150, 300)
    assert (found["copied_leads"], found["matched_leads"], found["beta_leads"]) == (0, -100, -150)
    assert (found["flat_at"], found["beta_flat"], found["beta_grows"]) == (200, 2.0, 4.0)
    assert half_way([0, 10], [1.0, 0.0]) == 5.0


def test_means_over_seeds_have_errors() -> None:
    rows = [
        {"kind": "run", "run": "a", "layers": 2, "bos": True, "seed": seed, **events(planted()), "copied_leads": lead}
        for seed, lead in enumerate((10.0, 20.0, 30.0))
    ]
    from analyses.running.table import Table

    cell, whole = (row for row in join(OPTIONS, [Table(rows=rows)]).rows if row["kind"] == "order")
    assert (cell["copied_leads"], cell["copied_leads_n"], cell["kappa_end"]) == (20.0, 3, None)
    assert cell["copied_leads_stderr"] == pytest.approx(10 / 3**0.5)
    assert (whole["run"], whole["layers"]) == ("all", None)


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no runs with snapshots"):
        pieces(Options(histories=tmp_path))


def test_track_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    places = [str(place) for place in snapshots(OPTIONS, "two_layers_bos/seed_0")]
    assert main(["track", places[-1], places[0], "--batch", "32", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["step"] for row in rows] == [0] * 8 + [2000] * 8  # two layers of four heads
    assert {row["role"] for row in rows if row["step"] == 0} <= {"none"}
    assert {row["role"] for row in rows if row["layer"] == 1 and row["step"] == 2000} == {"match"}
    assert main(["track", str(Path(places[0]).parent), "--batch", "32"]) == 0
    out = capsys.readouterr().out
    assert "copy" in out
    assert "match" in out
    assert "2000" in out
    assert main(["track", places[0], "--batch", "32"]) == 0
    assert "no head copies or matches" in capsys.readouterr().out
