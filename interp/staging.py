"""Files and directories that are written whole or not at all: beside the target first, then renamed.

    replace_file(target, "text")             the old file or the new one is there, whatever happens
    new_directory(target)                    .NAME.HOST-PID.RANDOM.new, beside the target

What a killed process leaves is never read. The next process that writes the same target removes it: at once if the
writer ran on this machine, after a day if it ran on another.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import time
from pathlib import Path

SUFFIX = ".new"
SECONDS_ELSEWHERE = 24 * 3600.0


def host() -> str:
    """The name of this machine in temporary names."""
    return re.sub("[^A-Za-z0-9_]", "_", os.uname().nodename)[:32] or "host"


def new_directory(target: Path) -> Path:
    """An empty directory beside the target; leftovers of earlier writers of the target are removed first."""
    remove_leftovers(target)
    return Path(tempfile.mkdtemp(prefix=_prefix(target), suffix=SUFFIX, dir=target.parent))


def replace_file(target: Path, content: str | bytes) -> None:
    """Write the file completely or not at all: after a crash or a full disk, the old file or the new one is there."""
    remove_leftovers(target)
    descriptor, staging = tempfile.mkstemp(prefix=_prefix(target), suffix=SUFFIX, dir=target.parent)
    os.close(descriptor)
    try:
        with open(staging, "wb") as stream:
            stream.write(content if isinstance(content, bytes) else content.encode(errors="backslashreplace"))
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(staging, 0o644)  # a temporary file is private
        os.replace(staging, target)
    finally:
        Path(staging).unlink(missing_ok=True)


def remove_leftovers(target: Path) -> None:
    """Remove what killed writers of the target left beside it."""
    name = re.compile(rf"\.{re.escape(target.name)}\.(?P<host>\w+)-(?P<pid>\d{{1,9}})\.[^.]+\.new")
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(target.parent)):
            if (found := name.fullmatch(entry.name)) is None:
                continue
            with contextlib.suppress(OSError):
                elsewhere = found["host"] != host()
                old = time.time() - entry.stat(follow_symlinks=False).st_mtime > SECONDS_ELSEWHERE
                if old if elsewhere else not _alive(int(found["pid"])):
                    shutil.rmtree(entry) if entry.is_dir(follow_symlinks=False) else os.unlink(entry)


def _prefix(target: Path) -> str:
    return f".{target.name}.{host()}-{os.getpid()}."


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        return True
    return True
