"""Ctrl-C where an exception would do harm: while a command is being imported, and inside foreign compiled code.

    with one_line_on_interrupt():
        from analyses.cli import main      # Ctrl-C ends the process with one line and exit code 130

    with interrupt_after():
        graph = grimp.build_graph(...)     # Ctrl-C is raised when the block has ended

Everywhere else Ctrl-C is an ordinary `KeyboardInterrupt`, which the commands catch (`models.cli`, `analyses.command`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

INTERRUPTED = 130  # the exit code: 128 + SIGINT, as shells have it


@contextlib.contextmanager
def one_line_on_interrupt() -> Iterator[None]:
    """End the process with one line where Ctrl-C comes inside the block.

    No exception is raised: a module that is being imported could catch it, or turn it into another error.
    """
    if not _raises():
        yield
        return
    signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextlib.contextmanager
def interrupt_after() -> Iterator[None]:
    """Raise the `KeyboardInterrupt` of a Ctrl-C inside the block when the block has ended."""
    if not _raises():
        yield
        return
    heard: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if heard:
        raise KeyboardInterrupt


def _raises() -> bool:
    """Whether Ctrl-C would raise `KeyboardInterrupt` here: not in other threads, nor where the process ignores it."""
    in_main = threading.current_thread() is threading.main_thread()
    return in_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def _end(number: int, frame: FrameType | None) -> None:
    with contextlib.suppress(OSError):
        os.write(2, b"interrupted\n")
    os._exit(INTERRUPTED)
