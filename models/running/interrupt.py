"""How processes end: by Ctrl-C while a command is being imported, and with the process that started them.

    sys.exit(enter("analyses.running.cli"))   # Ctrl-C during the import ends it with one line and exit code 130
    end_with_parent(parent)                   # in a worker: SIGKILL of the parent leaves no orphan

Everywhere else Ctrl-C is an ordinary `KeyboardInterrupt`, which `models.running.command_line` catches.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import threading
import time
from types import FrameType

INTERRUPTED = 130  # the exit code: 128 + SIGINT, as shells have it
PARENT_SECONDS = 0.5  # between two looks for the parent


def enter(module: str) -> int:
    """Import a command line and run its `main`.

    During the import Ctrl-C raises no exception: a module that is being imported could catch it. A process that ignores
    Ctrl-C still does.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    main = importlib.import_module(module).main
    signal.signal(signal.SIGINT, before)
    code: int = main()
    return code


def end_with_parent(parent: int) -> None:
    """End this worker when the process that started it, whose id is `parent`, has ended for any reason.

    A thread looks for it, so that a worker in compiled code ends when that returns.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_SECONDS)
        os._exit(INTERRUPTED)

    threading.Thread(target=watch, daemon=True).start()


def _end(number: int, frame: FrameType | None) -> None:
    with contextlib.suppress(OSError):
        os.write(2, b"interrupted\n")
    os._exit(INTERRUPTED)
