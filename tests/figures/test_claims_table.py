"""The table of claims is made from what figures say; README has it in that form."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from analyses.command import read_entries
from figures import claims_table as claims
from figures import cli
from figures.claims import CLAIMS
from figures.verdict import BRIEF, WORDS, Check, judged

README = Path(__file__).parents[2] / "README.md"


@pytest.fixture
def results(tmp_path):
    checks = {"a": True, "b": Check(passed=False, where="|V| < 6")}
    verdict = judged(checks, measured="1 of 2; and more", headline="1 of 2")
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "lag_asymmetry.json").write_text(json.dumps({"verdict": vars(verdict)}))
    return tmp_path


def test_every_claim_has_a_figure():
    assert set(claims.SHOWN) <= set(CLAIMS) & set(read_entries(cli.FOLDER, marker="LABEL"))


def test_the_table_says_what_the_figures_say(results, capsys):
    assert cli.main(["claims", "--results", str(results)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + len(claims.SHOWN)
    own = next(line for line in lines if "`lag_asymmetry`" in line)
    assert own.endswith("| holds where \\|V\\| < 6 | 1 of 2 |")
    assert sum("not drawn" in line for line in lines) == len(claims.SHOWN) - 1


def test_the_table_goes_between_the_marks(results, tmp_path, capsys):
    file = tmp_path / "page.md"
    file.write_text(f"before\n{claims.BEGIN}\nthe former one\n{claims.END}\nafter\n")
    for _ in range(2):  # the second time changes nothing
        assert cli.main(["claims", "--results", str(results), "--write", str(file)]) == 0
        text = file.read_text()
        assert text.startswith(f"before\n{claims.BEGIN}\n{claims.HEAD[0]}")
        assert text.endswith(f"{claims.END}\nafter\n")
        assert "the former one" not in text
    file.write_text("no marks")
    with pytest.raises(SystemExit, match="2"):
        cli.main(["claims", "--results", str(results), "--write", str(file)])
    assert "once each" in capsys.readouterr().err
    assert file.read_text() == "no marks"


def test_no_results_is_one_line(tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(["claims", "--results", str(tmp_path)])
    assert "figures reproduce" in capsys.readouterr().err


def test_readme_has_the_form_that_the_command_makes():
    text = README.read_text()
    table = text[text.index(claims.BEGIN) : text.index(claims.END)].splitlines()[1:]
    assert tuple(table[:2]) == claims.HEAD
    assert len(table) == 2 + len(claims.SHOWN)
    for line, name in zip(table[2:], claims.SHOWN, strict=True):
        claim = CLAIMS[name].sentence.replace("|", "\\|")
        assert line.startswith(f"| {claim} (`{name}`) | ")
        said, number = re.split(r"(?<!\\)\|", line)[2:4]
        assert any(said.strip().startswith(word.removesuffix(" where")) for word in WORDS)
        assert len(said.strip()) <= BRIEF
        assert number.strip()
    assert "holds in part" not in text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not valid JSON"),
        ("[]", "expected a JSON object"),
        ("{}", "no verdict in it"),
        ('{"verdict": 3}', "no verdict in it"),
        ('{"verdict": {"word": "holds"}}', "no verdict in it"),
        ('{"verdict": {"word": "holds", "condition": "", "number": 3}}', "no verdict in it"),
    ],
)
def test_a_figure_without_a_verdict_is_one_line(results, capsys, content, message):
    (results / "figures" / "mech_main.json").write_text(content)
    with pytest.raises(SystemExit, match="2"):
        cli.main(["claims", "--results", str(results)])
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert message in lines[0]


def test_a_file_that_cannot_be_read_gets_no_table(results, tmp_path, capsys):
    (tmp_path / "binary.md").write_bytes(b"\xff\xfe")
    for place, message in (("missing.md", "no such file"), ("binary.md", "in UTF-8"), ("figures", "not a file")):
        with pytest.raises(SystemExit, match="2"):
            cli.main(["claims", "--results", str(results), "--write", str(tmp_path / place)])
        assert message in capsys.readouterr().err
