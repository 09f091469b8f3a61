"""Progress of long work on stderr: a line that moves on a terminal; in a log, a line every half minute."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from models.running.terminal import say

if TYPE_CHECKING:
    from tqdm import tqdm

LOG_SECONDS = 30.0
STILL_SECONDS = 25.0  # so that a busy machine, too, says something every half minute
UNKNOWN_SIZE = {"ncols": 79, "nrows": 24}  # of a terminal that does not say: tqdm would show nothing there


def progress_bar(*, in_log: bool = False, shown: bool = True, **settings: Any) -> tqdm[Any]:
    """A progress bar of tqdm, with these of its `settings`; hidden where stderr is no terminal.

    in_log   whether what the bar shows is written there every `LOG_SECONDS`; work that takes less writes nothing
    shown    False hides it everywhere
    """
    from tqdm import tqdm

    if sys.stderr is not None and sys.stderr.isatty():
        return tqdm(file=sys.stderr, disable=not shown, **{**_size(), **settings})
    rarely = {"delay": LOG_SECONDS, "mininterval": LOG_SECONDS, "maxinterval": LOG_SECONDS, "miniters": 1}
    return tqdm(file=_Lines(), disable=not (shown and in_log), **{**settings, **rarely, "leave": False})


@contextlib.contextmanager
def still_at(work: str) -> Iterator[None]:
    """While the block runs, a line now and then that says so, where stderr is no terminal."""
    ended, start = threading.Event(), time.monotonic()

    def tell() -> None:
        while not ended.wait(STILL_SECONDS):
            say(f"{work}: {time.monotonic() - start:.0f} s")

    teller = threading.Thread(target=tell, daemon=True)
    if sys.stderr is None or not sys.stderr.isatty():
        teller.start()
    try:
        yield
    finally:
        ended.set()
        if teller.is_alive():
            teller.join()


class _Lines:
    """In place of a terminal: whatever the bar shows becomes a line."""

    def write(self, text: str) -> None:
        if words := text.strip():
            say(words)

    def flush(self) -> None:
        pass


def _size() -> dict[str, Any]:
    try:
        known = os.get_terminal_size(sys.stderr.fileno()).columns > 0
    except (OSError, ValueError):
        known = False
    return {"dynamic_ncols": True} if known else dict(UNKNOWN_SIZE)
