"""Tables for a terminal and for LaTeX: they fit, and a value stands with its error."""

from __future__ import annotations

import pytest

from analyses.running import cli, questions, report
from analyses.running.table import Table, flat_rows

PATHS = ("hierarchical_bos/disentangled/soft/T64_seed0", "hierarchical_bos/standard/soft/T64_seed0")
NUMBERS = {"beta_1": 3.43412, "stderr_1": 0.0081, "kappa": None}
ROWS = [{"checkpoint": f"models/checkpoints/{path}", **NUMBERS, "note": "word " * 30} for path in PATHS]
LATEX = r"""
\begin{tabular}{lrr}
\toprule
checkpoint & beta\_1 & kappa \\
\midrule
disentangled/soft/T64\_seed0 & 3.434 ± 0.008 & - \\
standard/soft/T64\_seed0 & 3.434 ± 0.008 & - \\
\bottomrule
\end{tabular}
"""


def test_a_table_fits_and_names_what_does_not() -> None:
    rows = [{"name": "a", "value": 0.123456, "text": "word " * 40}, {"name": "bb", "value": 2e-9, "text": ""}]
    lines = report.render_table(rows, width=60).splitlines()
    assert max(map(len, lines)) <= 60
    assert lines[2].startswith("a      0.1235  word")
    assert "2.0e-09" in lines[-1]
    narrow = report.render_table([{f"column{number}": number for number in range(30)}], width=60)
    assert "(also in --json and --csv: column6, " in narrow
    assert max(map(len, narrow.splitlines())) <= 60


def test_a_shared_folder_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = report.rows_text(ROWS, columns=("beta_1", "stderr_1", "kappa", "note")).splitlines()
    assert lines[0] == "checkpoints below models/checkpoints/hierarchical_bos/"
    assert max(map(len, lines)) <= 80
    assert not any("stderr" in line or "models/" in line for line in lines[1:])
    mixed = [{**ROWS[0], "checkpoint": "/a/b"}, {**ROWS[1], "checkpoint": "c/d"}]
    assert report.rows_text(mixed, columns=("beta_1",)).startswith("checkpoint ")


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        (("difference", "stderr"), "1.658 ± 0.011"),
        (("votes.0.vote", "votes.0.stderr"), "2.0 ± 0.5"),
        (("beta_1",), "3.434 ± 0.008"),
        (("n", "votes.0.stderr"), "0.5"),
    ],
)
def test_a_value_stands_with_its_error(columns: tuple[str, ...], shown: str) -> None:
    row = {**NUMBERS, "difference": 1.65789, "stderr": 0.0112, "votes.0.vote": 2.0, "votes.0.stderr": 0.5, "n": 3}
    assert report.render_table([row], columns=columns).splitlines()[-1].endswith(shown)


def test_warnings_and_notes_stand_below() -> None:
    rows = [{"checkpoint": f"zoo/{name}", "beta_1": 3.4, "warning": name.strip("a")} for name in ("a", "b")]
    text = cli.screen(Table(analysis="theory", rows=rows, shown=("beta_1",), notes=("a note",)))
    assert text.endswith("\nwarning: b: b\n\na note")
    assert text.count("warning") == 1


def test_the_table_for_latex_has_the_same_columns() -> None:
    assert report.latex_table(ROWS, columns=("beta_1", "stderr_1", "kappa")) == LATEX.strip()


def test_numbers_are_defined_below_the_result() -> None:
    for name in questions.analyses():
        if terms := getattr(questions.load_module(name), "LEGEND", {}):
            text = cli.screen(Table(analysis=name, rows=[{"checkpoint": "a"}], about="it", text="result"))
            assert "\n\nwhat the numbers are:\n  " in text
            assert all(f"\n  {term} " in text for term in terms)


def test_flat_rows_keep_scalars_and_short_vectors() -> None:
    row = {"a": 1, "b": [1.0, 2.0], "c": {"d": True}, "e": [[1]], "f": list(range(99)), "provenance": {"seed": 0}}
    assert flat_rows([row]) == [{"a": 1, "b_1": 1.0, "b_2": 2.0, "c.d": True}]
