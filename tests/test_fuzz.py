"""A few hundred cases of each kind from the fuzz room; `make fuzz FUZZ=100000` runs as many as asked."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from types import ModuleType

import pytest

from tests.fuzz.__main__ import ROOMS, explore
from tests.fuzz.room import Finding, Sandbox, run_call, run_command
from tests.fuzz.world import build, light

CASES = {"commands": 150, "files": 150, "checkpoints": 80, "library": 300}


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Sandbox:
    return build(tmp_path_factory.mktemp("fuzz") / "root")


@pytest.mark.parametrize("name", ROOMS)
def test_nothing_crashes_hangs_or_loses_a_file(name: str, sandbox: Sandbox) -> None:
    room: ModuleType = ROOMS[name]
    with light():
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
    for change in (lambda: (root / "mine").unlink(), lambda: (root / "mine").write_text("other")):
        change()
        with pytest.raises(Finding, match="file lost or changed: mine"):
            box.check()
        assert (root / "mine").read_text() == "1"


def test_a_result_that_is_no_law_is_found() -> None:
    import torch

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
