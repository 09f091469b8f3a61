"""Progress: a line that moves where someone watches, and nothing in a pipe."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from analyses.running import watching

ROOT = Path(__file__).parents[2]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("items", [["one"], ["one", "two"]])
def test_the_line_names_what_is_done_and_moves_while_it_is(items: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(watching, "SECONDS", 0.01)
    for item in watching.watched(items, "study", words=lambda item: f"piece {item}"):
        before = len(screen.getvalue())
        end = time.monotonic() + 10
        while len(screen.getvalue()) == before and time.monotonic() < end:
            time.sleep(0.01)
        assert len(screen.getvalue()) > before  # without a word from the worker
        assert re.search(rf"study \d/{len(items)}, 00:0\d, piece {item}", screen.getvalue())
    assert screen.getvalue().endswith("\r")  # and is gone at the end


def test_nothing_is_written_where_nobody_watches(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(watching.watched([1, 2], "study", words=str)) == [1, 2]
    assert capsys.readouterr() == ("", "")


def test_an_error_ends_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    monkeypatch.setattr(sys, "stderr", Terminal())
    threads = threading.active_count()

    def fail() -> None:
        found = watching.watched([1], "study", words=str)
        try:
            next(found)
            raise KeyError("in the work")
        finally:
            found.close()

    with pytest.raises(KeyError):
        fail()
    assert threading.active_count() == threads


def test_a_study_moves_on_a_terminal_and_is_silent_in_a_pipe(tmp_path: Path) -> None:
    """`kl_curves` of one setting: a single piece, in which the study itself says nothing."""
    command = [sys.executable, "-m", "analyses", "kl_curves", "--priors", "independent:1", "--lengths", "8"]
    command += ["--batch", "50", "--draws", "16", "--zoo", str(tmp_path), "--no-cache"]
    piped = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert piped.returncode in (0, 1), piped.stderr
    assert not re.search(r"\d/\d", piped.stderr)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    shown = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    seen = b""
    while shown.poll() is None or select.select([ours], [], [], 0)[0]:
        if select.select([ours], [], [], 0.1)[0]:
            try:
                seen += os.read(ours, 4096)
            except OSError:  # the other end is closed
                break
    shown.communicate(timeout=300)
    os.close(ours)
    assert re.search(rb"kl_curves 0/1, 00:\d\d, kl_curves independent:1 T=8", seen)
