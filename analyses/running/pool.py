"""Runs jobs on several processes, the longest first, with a line of progress that says how much time is left."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Protocol, TypeVar

from interp.outside import one_line
from models.running.interrupt import end_with_parent
from models.running.progress import progress_bar


class Job(Protocol):
    """What can be run: `words` name it in the progress line, `cost` is about its seconds.

    Jobs of one `kind` mostly call the same compiled functions.
    """

    @property
    def words(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def cost(self) -> float: ...


WIDTH = 80  # of a line of progress
Task = TypeVar("Task", bound=Job)
Found = TypeVar("Found")


def run_jobs(
    perform: Callable[[Task], Found], jobs: Sequence[Task], *, workers: int, what: str
) -> Iterator[tuple[Task, Found]]:
    """Each job with what `perform` returns for it, as they finish. With one worker all stays in this process."""
    ordered = in_order(jobs, workers)
    progress = Progress(what, ordered, workers=workers)
    finished = _finished(perform, ordered, workers, what)
    with contextlib.closing(progress), contextlib.closing(finished):  # also if an error keeps this frame alive
        for job, found in finished:
            progress.advance(job)
            yield job, found


def in_order(jobs: Sequence[Task], workers: int) -> list[Task]:
    """The longest first, but the first jobs of the processes are of different kinds, as far as there are any.

    A function is compiled by the first process that calls it, and kept for the others. Processes that begin with the
    same kind of job would all compile the same functions at the same time.
    """
    waiting = sorted(jobs, key=lambda job: -job.cost)
    first: list[Task] = []
    for job in waiting:
        if len(first) < workers and job.kind not in {one.kind for one in first}:
            first.append(job)
    return first + [job for job in waiting if not any(job is one for one in first)]


def _finished(
    perform: Callable[[Task], Found], jobs: Sequence[Task], workers: int, what: str
) -> Generator[tuple[Task, Found], None, None]:
    if workers == 1 or len(jobs) <= 1:
        for job in jobs:
            yield job, perform(job)
        return
    # Threads inside the workers would only wait for each other; torch reads this when it is imported, there.
    with _environment(OMP_NUM_THREADS="1"):
        spawning = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(
            max_workers=min(workers, len(jobs)),
            mp_context=spawning,
            initializer=end_with_parent,
            initargs=(os.getpid(),),
        ) as pool:
            waiting = {pool.submit(perform, job): job for job in jobs}
            try:
                for future in as_completed(waiting):
                    yield waiting[future], future.result()
            except BrokenProcessPool:
                why = f"a process of the {what} was killed, perhaps for lack of memory"
                raise ChildProcessError(f"{why}; the same command goes on from what is kept") from None
            except BaseException:  # Ctrl-C: the workers must end, because compiled code would continue
                processes = list((pool._processes or {}).values())
                pool.shutdown(wait=False, cancel_futures=True)
                for process in processes:
                    process.terminate()
                for process in processes:
                    process.join()
                raise


@contextlib.contextmanager
def _environment(**values: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


class Progress:
    """A progress bar on a terminal; otherwise a line for each job."""

    def __init__(self, what: str, jobs: Sequence[Job], *, workers: int) -> None:
        self.total, self.done = len(jobs), 0
        self.cost, self.spent = sum(job.cost for job in jobs), 0.0
        self.workers = max(1, min(workers, len(jobs)))
        self.start = time.monotonic()
        self.bar: Any = None
        if self.total and sys.stderr.isatty():
            self.bar = progress_bar(
                total=self.total,
                desc=what,
                leave=False,
                bar_format="{desc} {bar:10} {n}/{total}{postfix}",  # tqdm puts a comma before the postfix
            )

    def advance(self, job: Job) -> None:
        """One job is finished."""
        self.done += 1
        self.spent += job.cost
        line = f"{readable(self.seconds_left())} left; {one_line(job.words)}"
        if self.bar is not None:
            self.bar.set_postfix_str(line, refresh=False)
            self.bar.update()
        else:
            line = f"  {self.done}/{self.total}, {line}"
            print(in_width(line), file=sys.stderr, flush=True)

    def seconds_left(self) -> float:
        """From the costs of the remaining jobs, at the speed so far."""
        elapsed = time.monotonic() - self.start
        pace = elapsed / self.spent if self.spent else 1 / self.workers
        return (self.cost - self.spent) * pace

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


def in_width(line: str) -> str:
    """The line in at most 80 columns: of a long one the middle goes, since a run's name ends it.

    >>> in_width("  1/48, 5 s left; dynamics runs/" + 40 * "long" + "/step_00040000").endswith("long/step_00040000")
    True
    """
    return line if len(line) <= WIDTH else f"{line[: WIDTH // 2]}…{line[1 - WIDTH // 2 :]}"


def readable(seconds: float) -> str:
    """A duration in words.

    >>> readable(4), readable(75), readable(400)
    ('4 s', '75 s', '7 min')
    """
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
