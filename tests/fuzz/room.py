"""The sandbox, the watchdog, and what counts as a finding."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SECONDS = 10  # of processor time that a case may take
WAITING = 6  # times as long by the clock
BUSY = 0.01  # of the time by the clock is work; what waits does less
DEPTH = Path("a/b/c")  # of the working directory below the sandbox: `../..` does not lead out of it


class Hang(BaseException):
    """A case took too long. No `except Exception` holds it up."""


class Finding(AssertionError):
    """A case that did not end as it must; the message says how."""


State = tuple[int, ...]  # of a file, as the file system knows it: it changes whenever the content may have changed


@dataclass
class Sandbox:
    """A directory with files that no case may change; what a case adds is removed after it."""

    root: Path
    kept: dict[str, tuple[State, bytes]] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    links: dict[str, str] = field(default_factory=dict)

    @property
    def work(self) -> Path:
        """Where commands run."""
        return self.root / DEPTH

    def remember(self) -> None:
        """What is there now belongs to the user."""
        for entry in self._all():
            if entry.is_dir(follow_symlinks=False):
                self.folders.add(entry.path)
            elif entry.is_symlink():
                self.links[entry.path] = os.readlink(entry.path)
            else:
                self.kept[entry.path] = _state(entry), Path(entry.path).read_bytes()

    def check(self, *, every_byte: bool = False) -> None:
        """Raise a finding if a file of the user's is gone or changed; remove what is new.

        A file is read only where the file system says that it was written to, or with `every_byte`.
        """
        lost = {*self.kept, *self.folders, *self.links}
        new = []
        for entry in self._all():
            if entry.path in self.folders and entry.is_dir(follow_symlinks=False):
                lost.discard(entry.path)
            elif entry.path in self.kept and entry.is_file(follow_symlinks=False):
                state, content = self.kept[entry.path]
                if every_byte or state != _state(entry):
                    if Path(entry.path).read_bytes() != content:
                        continue
                    self.kept[entry.path] = _state(entry), content
                lost.discard(entry.path)
            elif entry.path in self.links and entry.is_symlink():
                lost -= {entry.path} if os.readlink(entry.path) == self.links[entry.path] else set()
            else:
                new.append(entry)
        for entry in new:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                Path(entry.path).unlink(missing_ok=True)
        for name in sorted(lost):
            if name in self.folders:
                Path(name).mkdir(parents=True, exist_ok=True)
            elif name in self.links:
                Path(name).unlink(missing_ok=True)
                Path(name).symlink_to(self.links[name])
            else:
                Path(name).parent.mkdir(parents=True, exist_ok=True)
                Path(name).write_bytes(self.kept[name][1])
                self.kept[name] = _state(Path(name)), self.kept[name][1]
        if lost:
            raise Finding(f"file lost or changed: {Path(min(lost)).relative_to(self.root)}")

    def _all(self) -> Iterator[os.DirEntry[str]]:
        """What is below the root, folders before what they hold; below a new folder nothing is listed."""
        waiting = [str(self.root)]
        while waiting:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    yield entry
                    if entry.is_dir(follow_symlinks=False) and entry.path in self.folders:
                        waiting.append(entry.path)


def _state(entry: os.DirEntry[str] | Path) -> State:
    found = os.stat(entry, follow_symlinks=False)  # the entry's own may be older than a change
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


@contextlib.contextmanager
def watched(seconds: int = SECONDS) -> Iterator[None]:
    """Raise `Hang` in what takes longer; only where signals can be had.

    What waits and does nothing is stopped by the clock. On a busy machine a case may work so long by the clock, too, as
    the first call of a compiled function does; it is given more time, until its processor time is up.
    """
    begun, worked = time.monotonic(), time.process_time()

    def stop(number: int, _: Any) -> None:
        busy = time.process_time() - worked > BUSY * (time.monotonic() - begun)
        if number == signal.SIGPROF or not busy:
            raise Hang
        signal.setitimer(signal.ITIMER_REAL, WAITING * seconds)

    before = {one: signal.signal(one, stop) for one in (signal.SIGPROF, signal.SIGALRM)}
    signal.setitimer(signal.ITIMER_PROF, seconds)  # of processor time, so that a busy machine does not matter
    signal.setitimer(signal.ITIMER_REAL, WAITING * seconds)  # for what waits and does nothing
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for one, handler in before.items():
            signal.signal(one, handler)


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Run in the folder, with the environment put back afterwards."""
    before, environment = Path.cwd(), dict(os.environ)
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
        os.environ.clear()
        os.environ.update(environment)


def run_command(main: Callable[[list[str]], int], argv: list[str], sandbox: Sandbox) -> str:
    """Run a command line in the sandbox; how it ended in a word, or a `Finding`."""
    out, err = io.StringIO(), io.StringIO()
    with inside(sandbox.work), watched(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = main(list(argv))
        except SystemExit as stop:
            code = int(stop.code) if isinstance(stop.code, int) else 0 if stop.code is None else 2
        except Hang:
            raise Finding(f"hang of more than {SECONDS} s") from None
        except Exception as error:
            raise Finding(f"traceback: {where(error)}") from error
    if code not in (0, 1, 2, 130, 141):
        raise Finding(f"exit code {code}")
    lines = [line for line in err.getvalue().splitlines() if line.startswith("error:")]
    if code == 2 and not lines:
        raise Finding(f"exit code 2 without a line that says why: {err.getvalue()[-200:]!r}")
    if "Traceback" in err.getvalue():
        raise Finding("a traceback was printed")
    return {0: "ok", 1: "failed", 2: "refused"}.get(code, str(code))


def run_call(call: Callable[[], Any], check: Callable[[Any], str | None]) -> str:
    """Call a library function; what it returns must pass `check`, and what it refuses must take one line."""
    with watched(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = call()
        except ValueError as error:
            if "\n" in str(error) or not str(error):
                raise Finding(f"a refusal of {len(str(error).splitlines())} lines: {where(error)}") from error
            return "refused"
        except Hang:
            raise Finding(f"hang of more than {SECONDS} s") from None
        except Finding:
            raise
        except Exception as error:
            if type(error).__module__.startswith("jaxtyping") or "beartype" in type(error).__module__:
                return "refused"  # by the annotations, which only the tests enforce
            raise Finding(f"{type(error).__name__}: {where(error)}") from error
        try:
            wrong = check(found)
        except Hang:
            raise Finding(f"hang of more than {SECONDS} s after the call") from None
        except Exception as error:  # a result that cannot be printed, tabulated or drawn
            raise Finding(f"after the call {type(error).__name__}: {where(error)}") from error
    if wrong:
        raise Finding(wrong)
    return "ok"


def where(error: BaseException) -> str:
    """The error and the last line of the project that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "/site-packages/" not in frame.filename and "/lib/python" not in frame.filename]
    last = (own or frames)[-1]
    place = Path(last.filename)
    return f"{type(error).__name__} at {place.parent.name}/{place.name}:{last.lineno}: {str(error)[:160]}"


def quiet() -> None:
    """No progress bars: they would write to the terminal of the one who runs the room."""
    os.environ["TQDM_DISABLE"] = "1"
