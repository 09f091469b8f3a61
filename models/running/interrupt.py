"""How processes end: by Ctrl-C while a command is being imported, and with the process that started them.

    with one_line_on_interrupt():
        from analyses.running.cli import main      # Ctrl-C ends the process with one line and exit code 130

    end_with_parent(parent)                # in a worker: SIGKILL of the parent leaves no orphan

Everywhere else Ctrl-C is an ordinary `KeyboardInterrupt`, which the commands catch (`models.running.cli`,
`analyses.running.command`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType

INTERRUPTED = 130  # the exit code: 128 + SIGINT, as shells have it
PARENT_SECONDS = 0.5  # between two looks for the parent


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


def end_with_parent(parent: int) -> None:
    """End this worker when the process that started it, whose id is `parent`, has ended for any reason.

    A thread looks for it, so that a worker in compiled code ends when that returns.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_SECONDS)
        os._exit(INTERRUPTED)

    threading.Thread(target=watch, daemon=True).start()


def _raises() -> bool:
    """Whether Ctrl-C would raise `KeyboardInterrupt` here: not in other threads, nor where the process ignores it."""
    in_main = threading.current_thread() is threading.main_thread()
    return in_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler


def _end(number: int, frame: FrameType | None) -> None:
    with contextlib.suppress(OSError):
        os.write(2, b"interrupted\n")
    os._exit(INTERRUPTED)
