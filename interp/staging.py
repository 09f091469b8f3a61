"""Temporary files and directories beside a target; what a killed process leaves is recognised by its name and removed.

    with new_file(target) as staging:        .NAME.HOST-PID.RANDOM.new, beside the target
        ...                                  write it, then os.replace(staging, target)

A leftover is never read. The next process that writes the same target removes the leftovers of processes that have
ended: at once if they ran on this machine, after a day if they ran on another.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

SUFFIX = ".new"
NAME = re.compile(r"\.(?P<target>.+)\.(?P<host>[A-Za-z0-9_]+)-(?P<pid>\d+)\.[^.]+\.new")
OLD_NAME = re.compile(r"\.(?P<target>.+)\.[a-z0-9_]{8}\.new")  # the form of the names before they contained the process
SECONDS_ELSEWHERE = 24 * 3600.0


def host() -> str:
    """The name of this machine in temporary names."""
    return re.sub("[^A-Za-z0-9_]", "_", os.uname().nodename)[:32] or "host"


def new_directory(target: Path) -> Path:
    """An empty directory beside the target; leftovers of earlier writers of the target are removed first."""
    remove_leftovers(target)
    return Path(tempfile.mkdtemp(prefix=_prefix(target), suffix=SUFFIX, dir=target.parent))


@contextlib.contextmanager
def new_file(target: Path) -> Iterator[Path]:
    """An empty file beside the target; it is removed afterwards, unless it was renamed to the target."""
    remove_leftovers(target)
    descriptor, name = tempfile.mkstemp(prefix=_prefix(target), suffix=SUFFIX, dir=target.parent)
    os.close(descriptor)
    try:
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


def remove_leftovers(target: Path) -> None:
    """Remove what killed writers of the target left beside it."""
    try:
        beside = [entry.name for entry in os.scandir(target.parent) if entry.name.startswith(f".{target.name}.")]
    except OSError:
        return
    for name in beside:
        if is_leftover(target.parent / name, of=target.name):
            with contextlib.suppress(OSError):
                place = target.parent / name
                shutil.rmtree(place) if place.is_dir() and not place.is_symlink() else place.unlink()


def is_leftover(place: Path, *, of: str) -> bool:
    """Whether this is a temporary of the target named `of`, and its writer is gone."""
    found = NAME.fullmatch(place.name)
    if found is None:
        old = OLD_NAME.fullmatch(place.name)
        return old is not None and old["target"] == of and _age(place) > SECONDS_ELSEWHERE
    if found["target"] != of:
        return False
    if found["host"] != host():
        return _age(place) > SECONDS_ELSEWHERE
    return not _alive(int(found["pid"]))


def _prefix(target: Path) -> str:
    return f".{target.name}.{host()}-{os.getpid()}."


def _age(place: Path) -> float:
    try:
        return time.time() - place.lstat().st_mtime
    except OSError:
        return 0.0


def _alive(pid: int) -> bool:
    if pid > 1 << 30:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
