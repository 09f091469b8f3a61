"""Results: the base of all, named rows, notebooks; the one standard error, JSON-able records, provenance."""

from __future__ import annotations

import json
import math
import re
from dataclasses import FrozenInstanceError, dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from interp import results as module
from interp.results import (
    CLEAR_ERRORS,
    MOST_LINES,
    MOST_ROWS,
    NamedRows,
    Result,
    git_commit,
    half_width,
    interval,
    is_clear,
    jsonable,
    mean_stderr,
    nothing_to_recover,
    provenance,
    rows_table,
    share_recovered,
)


@dataclass(frozen=True, kw_only=True)
class Example(Result):
    values: torch.Tensor
    n: int

    def table(self) -> pd.DataFrame:
        return pd.DataFrame({"value": self.values.numpy()})


@dataclass(frozen=True, kw_only=True)
class Part:
    part: str
    size: float


@dataclass(frozen=True, kw_only=True)
class Whole(NamedRows[Part]):
    ROWS, NAME, NOUN = "parts", "part", "piece"

    parts: tuple[Part, ...]

    @property
    def title(self) -> str:
        return "a <b>bold</b> whole"


@dataclass(frozen=True, kw_only=True)
class Tabled(Result):
    frame: pd.DataFrame

    def table(self) -> pd.DataFrame:
        return self.frame


WHOLE = Whole(parts=(Part(part="head", size=1.5), Part(part="tail", size=math.nan)))


def test_a_share_of_a_loss_is_told_only_where_the_loss_stands_clear_of_its_error() -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(size=400)
    noise = (noise - noise.mean()) / mean_stderr(noise)[1]  # mean 0, and a standard error of the mean of 1
    above, below = noise + CLEAR_ERRORS + 0.01, noise + CLEAR_ERRORS - 0.01
    share, stderr = share_recovered(0.25 * above, above)
    assert (share, stderr) == (pytest.approx(0.75), pytest.approx(0.0, abs=1e-12))
    assert np.isnan(share_recovered(0.25 * below, below)).all()
    assert np.isnan(share_recovered(above, -above)).all()
    assert is_clear(*mean_stderr(above))
    assert not is_clear(*mean_stderr(below))
    assert not is_clear(*mean_stderr([1.0]))  # one sequence shows no error
    assert "less than 2 standard errors" in nothing_to_recover("it", *mean_stderr(below))
    assert "one sequence shows no error" in nothing_to_recover("it", *mean_stderr([1.0]))
    assert "costs no loss" in nothing_to_recover("it", *mean_stderr(-above))


def test_intervals_use_students_t() -> None:
    assert half_width(1.0, n=None) == pytest.approx(1.959964, abs=1e-6)
    assert half_width(1.0, n=2, level=0.95) == pytest.approx(12.706, abs=1e-3)
    assert half_width([1.0, 2.0], n=10, level=0.9) == pytest.approx([1.833, 3.666], abs=1e-3)
    assert np.isnan(half_width(1.0, n=1))
    low, high = interval([2.0, math.nan], [0.5, 0.5], n=10)
    assert low == pytest.approx([2.0 - 2.262 * 0.5, math.nan], abs=1e-3, nan_ok=True)
    assert high == pytest.approx([2.0 + 2.262 * 0.5, math.nan], abs=1e-3, nan_ok=True)
    for level in (0.0, 1.0, 95, math.nan):
        with pytest.raises(ValueError, match="level must be"):
            half_width(1.0, n=10, level=level)


def test_the_error_of_a_share_leaves_out_each_sequence() -> None:
    rng = np.random.default_rng(0)
    lost = rng.normal(1.0, 0.3, size=12)
    change = 0.3 * lost + rng.normal(0.0, 0.4, size=12)
    without = np.array([1 - np.delete(change, left).sum() / np.delete(lost, left).sum() for left in range(12)])
    expected = np.sqrt(11 / 12 * ((without - without.mean()) ** 2).sum())
    assert share_recovered(change, lost) == pytest.approx((1 - change.sum() / lost.sum(), expected))


def test_the_standard_error_is_the_textbooks() -> None:
    values = np.random.default_rng(0).normal(size=50)
    mean, stderr = mean_stderr(values)
    assert mean == pytest.approx(values.mean())
    assert stderr == pytest.approx(values.std(ddof=1) / math.sqrt(50))
    assert mean_stderr(torch.from_numpy(values)) == (mean, stderr)
    assert mean_stderr(values.reshape(5, 10)) == pytest.approx((mean, stderr))


def test_one_value_cannot_show_its_spread() -> None:
    mean, stderr = mean_stderr([2.0])
    assert mean == 2.0
    assert math.isnan(stderr)
    assert all(map(math.isnan, mean_stderr([])))
    assert math.isnan(mean_stderr([1.0, 2.0], clusters=[7, 7])[1])


@settings(max_examples=40)
@given(st.integers(2, 8), st.integers(1, 6), st.integers(0, 2**31))
def test_repeating_values_within_clusters_adds_no_information(groups: int, copies: int, seed: int) -> None:
    """The control for ignoring clusters: each value given `copies` times has the error of the values given once."""
    values = np.random.default_rng(seed).normal(size=groups)
    once = mean_stderr(values)
    repeated = mean_stderr(np.repeat(values, copies), clusters=np.repeat(np.arange(groups), copies))
    assert repeated == pytest.approx(once, rel=1e-9)
    if copies > 1:
        assert mean_stderr(np.repeat(values, copies))[1] < once[1]


def test_the_standard_error_is_calibrated() -> None:
    """Clustered samples with a known mean: the z-scores have unit variance."""
    rng = np.random.default_rng(2)
    scores = []
    for _ in range(400):
        shared = rng.normal(size=40)
        values = shared[:, None] + rng.normal(size=(40, 5))
        mean, stderr = mean_stderr(values, clusters=np.repeat(np.arange(40), 5))
        scores.append(mean / stderr)
    assert np.std(scores) == pytest.approx(1.0, abs=0.15)


def test_records_are_json() -> None:
    result = Example(values=torch.tensor([1.0, math.nan, math.inf]), n=3, provenance={"seed": np.int64(4)})
    record = json.loads(json.dumps(result.record(), allow_nan=False))
    common = {"success": True, "message": "", "provenance": {"seed": 4}}
    assert record == {"values": [1.0, None, None], "n": 3, **common}
    assert list(record) == ["values", "n", *common]  # what a class adds comes first


def test_jsonable_takes_everything_results_hold() -> None:
    inner = Part(part="x", size=-math.inf)
    values = {
        "array": np.array([[1, 2], [3, 4]]),
        "scalar": np.float32(0.5),
        "flag": np.bool_(True),
        3: (1, "x", None, True),
        "path": Path("a") / "b",
        "nested": [inner],
        "grad": torch.ones(2, requires_grad=True),
        "minus": -math.inf,
    }
    found = json.loads(json.dumps(jsonable(values), allow_nan=False))
    assert found == {
        "array": [[1, 2], [3, 4]],
        "scalar": 0.5,
        "flag": True,
        "3": [1, "x", None, True],
        "path": str(Path("a") / "b"),
        "nested": [{"part": "x", "size": None}],
        "grad": [1.0, 1.0],
        "minus": None,
    }


def test_results_are_frozen_keyword_only_and_need_a_table() -> None:
    result = Example(values=torch.zeros(2), n=2, provenance={})
    with pytest.raises(FrozenInstanceError):
        result.n = 3
    with pytest.raises(TypeError):
        Example(torch.zeros(2), 2, {})
    with pytest.raises(TypeError, match="abstract"):
        Result()
    assert list(result.table()["value"]) == [0.0, 0.0]
    with pytest.raises(NotImplementedError, match=r"Example has no plot; its numbers are in .table()"):
        result.plot()


def test_the_text_is_the_repr_and_ends_with_the_doubt() -> None:
    result = Example(values=torch.arange(20.0), n=20)
    assert repr(result) == str(result)
    assert str(result).splitlines()[0] == "Example"
    assert len(str(result).splitlines()) <= MOST_LINES
    assert result.doubt == ""
    noted = replace(result, message="mind the tail")
    assert str(noted).splitlines()[-1] == "  mind the tail"
    assert noted.doubt == ""
    failed = replace(noted, success=False)
    assert str(failed).splitlines()[-1] == "  not to be trusted: mind the tail"
    assert len(str(failed).splitlines()) <= MOST_LINES
    assert repr(WHOLE).splitlines() == ["a <b>bold</b> whole", "  part  size", "  head   1.5", "  tail     -"]


def test_rows_are_found_by_name() -> None:
    assert WHOLE["head"] is WHOLE.parts[0]
    assert list(WHOLE) == ["head", "tail"]
    assert "tail" in WHOLE
    assert "wing" not in WHOLE
    with pytest.raises(KeyError, match="no piece 'wing'; there are head, tail"):
        WHOLE["wing"]
    assert WHOLE.table().columns.tolist() == ["part", "size"]
    assert WHOLE.table()["part"].tolist() == ["head", "tail"]
    assert rows_table((), Part).columns.tolist() == ["part", "size"]


def test_a_notebook_shows_the_table_under_the_first_line() -> None:
    html = replace(WHOLE, message="a < b")._repr_html_()
    assert "<b>a &lt;b&gt;bold&lt;/b&gt; whole</b>" in html
    assert "a &lt; b" in html
    assert "not to be trusted" not in html
    assert re.findall("<th>(.*?)</th>", html) == ["part", "size"]
    assert re.findall("<td>(.*?)</td>", html) == ["head", "1.5", "tail", "-"]
    failed = replace(WHOLE, success=False, message="no <i>data</i>")._repr_html_()
    assert "not to be trusted: no &lt;i&gt;data&lt;/i&gt;" in failed
    table = pd.DataFrame({"lag": pd.array([1, None], dtype="Int64"), "share": [1 / 3, math.inf], "ok": [True, False]})
    cells = re.findall("<td>(.*?)</td>", Tabled(frame=table)._repr_html_())
    assert cells == ["1", "0.3333", "True", "-", "inf", "False"]
    named = replace(WHOLE, parts=(Part(part="<script>", size=1.0),))._repr_html_()
    assert "<script>" not in named
    assert "&lt;script&gt;" in named


def test_a_notebook_shows_no_more_rows_than_can_be_read() -> None:
    html = Example(values=torch.arange(500.0), n=500)._repr_html_()
    assert html.count("<tr") <= MOST_ROWS + 2  # the head, and the row that stands for those left out
    assert f"{MOST_ROWS} of 500 rows" in html
    assert "rows" not in Example(values=torch.arange(3.0), n=3)._repr_html_()


def test_provenance_says_where_a_number_comes_from() -> None:
    record = provenance(seed=3, checkpoint="zoo/model", draws=200)
    assert record["seed"] == 3
    assert record["checkpoint"] == "zoo/model"
    assert record["draws"] == 200
    assert set(record["versions"]) >= {"python", "torch", "transformer-lens", "numpy"}
    assert torch.__version__.startswith(record["versions"]["torch"].split("+")[0])
    assert "commit" in record
    json.dumps(record, allow_nan=False)


def test_outside_a_checkout_there_is_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "interp").mkdir()
    monkeypatch.setattr(module, "__file__", str(tmp_path / "interp" / "results.py"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    git_commit.cache_clear()
    try:
        assert git_commit() is None
        monkeypatch.setenv("PATH", str(tmp_path))  # no git at all
        git_commit.cache_clear()
        assert git_commit() is None
    finally:
        git_commit.cache_clear()
