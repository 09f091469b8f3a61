"""Files are written whole or not at all, and never over something that is not ours."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from analyses.command import BadInput


def check_table_target(file: Path, *, overwrite: bool) -> None:
    """Refuse to put a table where something else lies; an earlier table may be refreshed."""
    if file.is_dir():
        raise BadInput(f"{file} is a directory, expected a file name")
    if file.exists() and not overwrite:
        with file.open(errors="replace") as stream:
            if not stream.readline().startswith("analysis,"):
                raise BadInput(f"{file} is no table of an analysis; --overwrite replaces it")


def check_document_target(file: Path, *, key: str, name: str, overwrite: bool) -> None:
    """Refuse to put a result where something else lies; one whose `key` says `name` may be refreshed."""
    if file.is_dir():
        raise BadInput(f"{file} is a directory, expected a file name")
    if file.exists() and not overwrite:
        try:
            document = json.loads(file.read_text())
        except (OSError, ValueError):
            document = None
        if not isinstance(document, dict) or document.get(key) != name:
            raise BadInput(f"{file} is no result of {name}; --overwrite replaces it")


def check_directory(directory: Path) -> None:
    """A directory, or a place where one can be made."""
    if directory.exists() and not directory.is_dir():
        raise BadInput(f"--out {directory}: a file is in the way, expected a directory")


def write_file(file: Path, content: str | bytes) -> None:
    """Write all of it or nothing: a crash leaves the old file or the new one."""
    data = content.encode() if isinstance(content, str) else content
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    except OSError as error:
        raise BadInput(f"cannot write {file}: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).chmod(0o644)  # mkstemp makes private files
        os.replace(temporary, file)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
