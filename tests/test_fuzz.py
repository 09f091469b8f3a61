"""Some dozens of cases from each room of the fuzz room; `make fuzz FUZZ=100000` runs as many as asked."""

from __future__ import annotations

import math
import os
import re
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import pandas as pd
import pytest
import torch

import interp as ip
from interp.results import Result
from tests.fuzz.found import ESTIMATES, fingerprint, wrong_result
from tests.fuzz.room import Finding, Sandbox, run_call, run_command
from tests.fuzz.rooms import ROOMS, explore
from tests.fuzz.world import build, light, shipped_files

CASES = {
    "commands": 100,
    "files": 100,
    "checkpoints": 60,
    "library": 150,
    "captures": 80,
    "circuits": 60,
    "language": 40,
}


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    with patch.dict(os.environ):  # it turns progress bars off, which `test_watching.py` looks for
        yield build(tmp_path_factory.mktemp("fuzz") / "root")


# Methods of results and of types take what the functions below made; `provenance` takes nothing.
NOT_CALLED = {"KL_FLOOR", "provenance", "__version__"}


def test_every_public_function_is_called() -> None:
    """A new name of `interp` gets a strategy of its own."""
    sources = "".join(file.read_text() for file in (Path(__file__).parent / "fuzz").glob("*.py"))
    functions = {name for name in ip.__all__ if callable(getattr(ip, name)) and not isinstance(getattr(ip, name), type)}
    assert {name for name in functions - NOT_CALLED if not re.search(rf"\bip\.{name}\b", sources)} == set()


@pytest.mark.parametrize("name", ROOMS)
def test_nothing_crashes_hangs_or_loses_a_file(name: str, sandbox: Sandbox) -> None:
    room: ModuleType = ROOMS[name]
    with light(sandbox):
        ended, findings = explore(room, sandbox, number=CASES[name], seed=1)
    assert not findings, findings[0]
    assert sum(ended.values()) >= CASES[name] // 2  # a strategy may be exhausted, but not at once
    assert any(outcome.endswith("ok") for outcome in ended), ended
    assert any(outcome.endswith("refused") for outcome in ended), ended


# ---- the room itself: each kind of finding is found


def test_a_traceback_is_found(sandbox: Sandbox) -> None:
    def crashes(argv: list[str]) -> int:
        raise KeyError("x")

    with pytest.raises(Finding, match=r"traceback: KeyError at tests/test_fuzz\.py"):
        run_command(crashes, [], sandbox)


def test_a_hang_is_found(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    set_timer = signal.setitimer
    monkeypatch.setattr(signal, "setitimer", lambda which, seconds: set_timer(which, seconds / 300))

    def busy(argv: list[str]) -> int:
        while True:
            pass

    def waiting(argv: list[str]) -> int:
        time.sleep(60)
        return 0

    for command in (busy, waiting):
        with pytest.raises(Finding, match="hang of more than 10 s"):
            run_command(command, [], sandbox)


def test_work_on_a_busy_machine_is_no_hang(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes longer by the clock than what waits may, and little of its processor time."""
    set_timer = signal.setitimer
    shorter = {signal.ITIMER_PROF: 1, signal.ITIMER_REAL: 300}  # by the clock 0.2 s
    monkeypatch.setattr(signal, "setitimer", lambda which, seconds: set_timer(which, seconds / shorter[which]))

    def slow(argv: list[str]) -> int:
        end = time.monotonic() + 0.7
        while time.monotonic() < end:
            sum(range(200_000))
            time.sleep(0.01)
        return 0

    assert run_command(slow, [], sandbox) == "ok"


def test_a_silent_refusal_and_an_odd_exit_code_are_found(sandbox: Sandbox) -> None:
    with pytest.raises(Finding, match="without a line"):
        run_command(lambda argv: 2, [], sandbox)
    with pytest.raises(Finding, match="exit code 7"):
        run_command(lambda argv: 7, [], sandbox)


def test_lost_and_changed_files_are_found_and_new_ones_removed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "mine").write_text("1")
    box = Sandbox(root)
    box.remember()
    (root / "new").mkdir()
    (root / "new/file").write_text("2")
    box.check()
    assert not (root / "new").exists()
    for change in (
        lambda: (root / "mine").unlink(),
        lambda: (root / "mine").write_text("other"),
        lambda: [(root / "mine").unlink(), (root / "mine").mkdir()],
    ):
        change()
        with pytest.raises(Finding, match="file lost or changed: mine"):
            box.check()
        assert (root / "mine").read_text() == "1"


def test_links_belong_to_the_user_and_a_change_without_a_trace_is_found(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "mine").write_text("1")
    (root / "link").symlink_to("mine")
    box = Sandbox(root)
    box.remember()
    box.check()
    assert (root / "link").is_symlink()
    (root / "link").unlink()
    with pytest.raises(Finding, match="file lost or changed: link"):
        box.check()
    assert (root / "link").readlink() == Path("mine")
    content = b"2"
    box.kept = {name: (state, content) for name, (state, _) in box.kept.items()}  # as if the file system were blind
    box.check()
    with pytest.raises(Finding, match="file lost or changed: mine"):
        box.check(every_byte=True)


def test_the_rooms_leave_alone_what_the_repository_ships(sandbox: Sandbox) -> None:
    """`models zoo --write` writes beside the checkpoints that it looks at, unless told the shipped ones."""
    from models.running.cli import main

    before = shipped_files()
    with light(sandbox):
        assert run_command(main, ["zoo", "--write"], sandbox) == "ok"
        assert (sandbox.work / "zoo/README.md").is_file()
        assert not (sandbox.work / "zoo/one/README.md").exists()
        assert run_command(main, ["sweep", "smoke"], sandbox) in ("ok", "failed", "refused")
    sandbox.check()
    assert shipped_files() == before
    assert len(before) > 100  # or nothing was looked at


@dataclass(frozen=True, kw_only=True)
class Odd(Result):
    """A result with the faults that the rooms look for."""

    value: float = 1.0
    stderr: float = 0.1
    bos: float = 0.5

    def table(self) -> pd.DataFrame:
        return pd.DataFrame([{"value": self.value}])


@pytest.mark.parametrize(
    ("result", "wrong"),
    [
        (Odd(), None),
        (Odd(success=False, message="too few", value=math.inf), None),
        (Odd(success=False), "with the message ''"),
        (Odd(message="two\nlines"), "with the message"),
        (Odd(value=math.inf), "value is infinite"),
        (Odd(stderr=-1.0), "stderr is negative"),
        (Odd(bos=1.5), "bos is no share"),
        (torch.tensor([math.nan]), "not finite"),
        (ip.kl_divergence([[0.5, 0.5]] * 2, [[0.5, 0.5]] * 2), None),
    ],
)
def test_a_result_that_says_nothing_of_its_fault_is_found(result: Any, wrong: str | None) -> None:
    found = wrong_result(result)
    assert found is None if wrong is None else wrong in str(found)


def test_success_with_an_estimate_that_is_not_finite_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ESTIMATES, "Odd", ("value",))
    assert wrong_result(Odd(value=math.nan)) == "Odd: success, but value is not finite"
    assert wrong_result(Odd()) is None


def test_an_input_changed_in_place_is_found() -> None:
    model = ip.construct(order=1, vocab=2, length=4, beta=(1.0,))
    tokens = torch.tensor([[0, 1, 1, 0]])
    cap = ip.capture(model, tokens)
    for value, array in (
        (model, model.embed.W_E),
        (tokens, tokens),
        (cap, cap.match_scores),
        ({"x": [tokens]}, tokens),
    ):
        before = fingerprint(value)
        assert fingerprint(value) == before
        with torch.no_grad():
            array.view(-1)[0] += 1
        assert fingerprint(value) != before


def test_a_result_that_is_no_law_is_found() -> None:
    from tests.fuzz.library import is_law

    def two_lines() -> None:
        raise ValueError("one\ntwo")

    assert run_call(lambda: torch.full((1, 2), 0.5), is_law) == "ok"
    with pytest.raises(Finding, match="off by"):
        run_call(lambda: torch.zeros(1, 2), is_law)
    with pytest.raises(Finding, match="TypeError"):
        run_call(lambda: len(3), is_law)  # type: ignore[arg-type]
    with pytest.raises(Finding, match="a refusal of 2 lines"):
        run_call(two_lines, is_law)
