"""Progress on a terminal: a line on stderr that says what is being done and for how long, and keeps moving.

    for question in watched(questions, "kl_curves", words=str):

Where stderr is not a terminal, nothing is written.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from interp.outside import one_line
from models.running.progress import progress_bar

Item = TypeVar("Item")

SECONDS = 1.0  # between two movements of the line


def watched(items: Sequence[Item], what: str, *, words: Callable[[Item], str]) -> Iterator[Item]:
    """The items; while one is in work, the line names it and counts the seconds, also where it is the only one."""
    if not items or sys.stderr is None or not sys.stderr.isatty():
        yield from items
        return
    ended = threading.Event()
    line = "{desc} {n}/{total}, {elapsed}{postfix}"
    with progress_bar(total=len(items), desc=one_line(what), leave=False, bar_format=line) as bar:

        def move() -> None:
            while not ended.wait(SECONDS):
                bar.refresh()

        mover = threading.Thread(target=move, daemon=True)
        mover.start()
        try:
            for item in items:
                bar.set_postfix_str(one_line(words(item)))
                yield item
                bar.update()
        finally:
            ended.set()
            mover.join()
