"""Runs jobs in this process, on several, or on a Ray cluster, the longest first, and shows how far the work is.

A cluster of many machines needs checkpoints and cache on a file system that all of them share.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from interp.outside import one_line
from models.running.command_line import option
from models.running.interrupt import end_with_parent
from models.running.progress import progress_bar
from models.running.terminal import say

WIDTH = 80  # of a line of progress in a log
FORM = "{desc} {n}/{total}, {elapsed}{postfix}"  # of the bar on a terminal


@dataclass(frozen=True, kw_only=True)
class Job:
    """A task with what a line of progress says of it, and about how many seconds it takes.

    Jobs of one `kind` mostly call the same compiled functions.
    """

    task: Any
    words: str
    cost: float = 1.0
    kind: str = ""


@dataclass(frozen=True, kw_only=True)
class Engine:
    """Where jobs run, as the options of a command."""

    jobs: int = option(1, "processes that run analyses (default: %(default)s)", metavar="N", least=1)
    engine: Literal["local", "ray"] = option("local", "this machine, or a Ray cluster (default: %(default)s)")
    address: str | None = option(
        None, "of the cluster; auto: the one that runs here (default: RAY_ADDRESS, else start one)", metavar="ADDRESS"
    )

    @property
    def cluster(self) -> str | None:
        """The address of the cluster, empty for the usual one; None for this machine."""
        return (self.address or "") if self.engine == "ray" else None


Found = TypeVar("Found")
Item = TypeVar("Item")


def run_jobs(
    perform: Callable[[Any], Found],
    jobs: Sequence[Job],
    *,
    workers: int,
    what: str,
    cluster: str | None = None,
    logged: bool = True,
) -> Iterator[tuple[Any, Found]]:
    """Each task with what `perform` returns for it, as they finish. With one worker all stays in this process.

    cluster  the address of a Ray cluster, empty for the usual one; None for this machine
    logged   whether a log, where stderr is no terminal, gets a line for each job, or one every half minute
    """
    ordered, workers = in_order(jobs, workers), max(1, min(workers, len(jobs)))
    here = ((job, perform(job.task)) for job in ordered)
    finished = here if workers == 1 else _in_processes(perform, ordered, workers, what)
    finished = finished if cluster is None else _on_ray(perform, ordered, workers, cluster)
    start, cost, spent = time.monotonic(), sum(job.cost for job in ordered), 0.0
    bar = progress_bar(
        total=len(ordered), desc=one_line(what), postfix=one_line(ordered[0].words) if ordered else "", leave=False,
        shown=bool(ordered), in_log=not logged, bar_format=FORM,
    )  # fmt: skip
    with bar, contextlib.closing(finished):  # also if an error keeps this frame alive
        for count, (job, found) in enumerate(finished, start=1):
            spent += job.cost
            words = f"{readable((cost - spent) * (time.monotonic() - start) / spent)} left; {one_line(job.words)}"
            bar.set_postfix_str(words, refresh=False)
            bar.update()
            if bar.disable and logged:
                say(in_width(f"  {count}/{len(ordered)}, {words}"))
            yield job.task, found


def in_order(jobs: Sequence[Job], workers: int) -> list[Job]:
    """The longest first, but the first jobs of the processes are of different kinds, as far as there are any.

    A function is compiled by the first process that calls it, and kept for the others. Processes that begin with the
    same kind of job would all compile the same functions at the same time.
    """
    waiting = sorted(jobs, key=lambda job: -job.cost)
    first: dict[str, Job] = {}
    for job in waiting:
        if len(first) < workers:
            first.setdefault(job.kind, job)
    return [*first.values(), *(job for job in waiting if first.get(job.kind) is not job)]


def _in_processes(
    perform: Callable[[Any], Found], jobs: Sequence[Job], workers: int, what: str
) -> Generator[tuple[Job, Found], None, None]:
    with ProcessPoolExecutor(
        workers, multiprocessing.get_context("spawn"), initializer=end_with_parent, initargs=(os.getpid(),)
    ) as pool:
        waiting = {pool.submit(perform, job.task): job for job in jobs}
        try:
            for future in as_completed(waiting):
                yield waiting[future], future.result()
        except BrokenProcessPool:
            why = f"a process of {what} was killed, perhaps for lack of memory"
            raise ChildProcessError(f"{why}; the same command goes on from what is kept") from None
        except BaseException:  # Ctrl-C: the workers must end, because compiled code would continue
            pool.shutdown(wait=False, cancel_futures=True)
            processes = multiprocessing.active_children()
            for process in processes:
                process.terminate()
            for process in processes:
                process.join()
            raise


def _on_ray(
    perform: Callable[[Any], Found], jobs: Sequence[Job], workers: int, address: str
) -> Generator[tuple[Job, Found], None, None]:
    from models.training.sweep import RETRIES, connected

    ray = connected(address or None, workers)
    task = ray.remote(num_cpus=1, max_retries=RETRIES)(_performed)
    waiting = {task.remote(perform, job.task, os.getcwd()): job for job in jobs}
    while waiting:
        (ready,), _ = ray.wait(list(waiting), num_returns=1)
        try:
            found = ray.get(ready)
        except ray.exceptions.RayError as error:  # what a task raised is its cause; a worker that died has none
            why = f"a worker of the cluster failed ({one_line(error)}); the same command goes on from what is kept"
            raise getattr(error, "cause", None) or ChildProcessError(why) from error
        yield waiting.pop(ready), found


def _performed(perform: Callable[[Any], Found], task: Any, folder: str) -> Found:
    """What a worker of a cluster does: paths are those of the folder where the command was given."""
    os.chdir(folder)
    return perform(task)


def watched(items: Sequence[Item], what: str, *, words: Callable[[Item], str]) -> Iterator[Item]:
    """The items; on a terminal a bar names the one in work."""
    bar = progress_bar(total=len(items), desc=one_line(what), leave=False, shown=bool(items), bar_format=FORM)
    with bar:
        for item in items:
            bar.set_postfix_str(one_line(words(item)))
            yield item
            bar.update()


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
