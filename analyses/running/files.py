"""Files are written completely or not at all, and never over files that the suite did not write."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from interp.outside import one_line
from interp.staging import replace_file
from models.running.command_line import BadInput

CACHED = re.compile(r"[\w-]+-[0-9a-f]{24}\.(json|npz)")  # what `analyses.running.cache` writes


def check_writable(place: Path, *, named: str) -> None:
    """Refuse a folder that cannot be written or made, before an hour of work is lost."""
    above = next(one for one in (place, *place.absolute().parents) if one.exists())
    if not above.is_dir():
        raise BadInput(f"{named}: a file is in the way, expected a directory")
    if not os.access(above, os.W_OK | os.X_OK):
        raise BadInput(f"{named}: {above} cannot be written")


def check_table_target(file: Path, *, overwrite: bool) -> None:
    """Refuse to overwrite any file but an earlier table."""
    check_writable(file.parent, named=str(file))
    if file.exists() and not file.is_file():
        raise BadInput(f"{file} is no regular file: it is not replaced")
    if file.exists() and not overwrite and not is_table(file):
        raise BadInput(f"{file} is not a table of an analysis; --overwrite replaces it")


def check_directory(
    directory: Path, *, ours: Callable[[Path], bool], overwrite: bool, option: str = "--out", hint: str = ""
) -> None:
    """A directory with files of this suite only, or a path where one can be made; otherwise it is refused.

    Hidden files, such as temporary ones, are ignored.
    """
    if directory.is_dir():
        if option == "--out":  # a cache may be read-only if it has all the results
            check_writable(directory, named=f"{option} {directory}")
        other = sorted(one.name for one in directory.iterdir() if not one.name.startswith(".") and not ours(one))
        if other and not overwrite:
            more = f" and {len(other) - 1} more" if len(other) > 1 else ""
            ways = hint or "give a fresh directory, or --overwrite to use this one"
            raise BadInput(f"{option} {directory}: also holds {one_line(other[0])!r}{more}; {ways}")
    else:
        check_writable(directory, named=f"{option} {directory}")


def check_cache(directory: Path, *, overwrite: bool = False) -> None:
    """A directory of the cache alone, or a place where one can be made."""
    check_directory(directory, ours=is_cached, overwrite=overwrite, option="--cache", hint="give another directory")


def is_result(file: Path) -> bool:
    """Whether this is a table, a result, a picture with its JSON file, a page, a folder of figures or the cache."""
    if file.is_dir():
        return file.name in ("figures", "cache")
    if file.suffix in (".pdf", ".png", ".svg"):
        return file.with_suffix(".json").is_file()
    if file.name in ("index.html", "explorer.html", "timing.json"):
        return True
    if file.suffix == ".csv":
        return is_table(file)
    return file.suffix == ".json" and re.match(r"\s*\{\s*\"(analysis|figure)\":", _beginning(file)) is not None


def is_cached(file: Path) -> bool:
    """Whether this lies in a directory of the cache."""
    return CACHED.fullmatch(file.name) is not None and not file.is_dir()


def is_table(file: Path) -> bool:
    """Whether a CSV file is the table of an analysis, perhaps one without rows."""
    return re.match(r"analysis(,|\s*$)", _beginning(file).partition("\n")[0]) is not None


def _beginning(file: Path) -> str:
    with file.open(errors="replace") as stream:
        return stream.read(200)


def write_file(file: Path, content: str | bytes) -> None:
    """Write the file completely or not at all: after a crash or a full disk, the old file or the new one is there."""
    if file.exists() and not file.is_file():
        raise BadInput(f"{file} is no regular file: it is not replaced")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(file, content)
    except OSError as error:
        raise BadInput(f"cannot write {file}: {error.strerror or one_line(error)}") from error
