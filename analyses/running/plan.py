"""Runs the analyses that `make reproduce` or a figure needs, in parallel, except for results that are in the cache.

Some studies are too large to run each time; their shipped results are read (`analyses.shipped`).

    asks  ->  questions (about which checkpoints of the zoo)  ->  tables, from the cache or anew  ->  one table for each

Each analysis says what it is run on (`analyses.running.ask`). Questions about one checkpoint make one job, so that they
share its captures, and so do pieces of studies that need the same optimum; the longest jobs start first.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analyses.running import questions
from analyses.running.ask import Ask
from analyses.running.cache import Cache
from analyses.running.options import at
from analyses.running.pool import Job, run_jobs
from analyses.running.questions import Question
from analyses.running.subject import Opened, Subject, find_subjects
from analyses.running.table import Table
from analyses.shipped import shipped_table
from models.running.command_line import BadInput

BASE_LENGTH = 64  # the length that costs are stated for
MOST_NAMES = 4  # analyses that a line of progress names


@dataclass(frozen=True, kw_only=True)
class Run:
    """The tables by analysis; for each question the seconds of processor time that it took; and what is new."""

    tables: dict[str, Table]
    seconds: dict[Question, float]
    made: frozenset[Question]


def shipped_asks(names: Iterable[str] | None = None) -> dict[str, Ask]:
    """The `ASK` of every analysis that has one; or of those among these names, without importing the others."""
    known = questions.analyses()
    modules = {
        name: questions.load_module(name) for name in (sorted(known) if names is None else names) if name in known
    }
    return {name: module.ASK for name, module in modules.items() if hasattr(module, "ASK")}


def asks_for(names: Iterable[str]) -> dict[str, Ask]:
    """The asks of the named analyses."""
    names = list(names)
    asks = shipped_asks(names)
    for name in names:
        if name not in asks:
            raise BadInput(f"no analysis {name!r} that figures can run; there are {', '.join(shipped_asks())}")
    return {name: asks[name] for name in names}


def check_zoo(asks: Iterable[str], zoo: Path, *, unfinished: bool = False) -> None:
    """Refuse, before any work, a directory without checkpoints if an analysis needs them; studies need none."""
    if not zoo.is_dir():
        raise BadInput(f"--checkpoints {zoo}: no such directory")
    if not all(map(questions.is_study, asks)) and not find_subjects(zoo, unfinished=unfinished):
        raise BadInput(f"no finished checkpoint below {zoo}; python -m models train makes one")


def run_plan(
    asks: Mapping[str, Ask], *, zoo: Path, cache: Path, jobs: int, cluster: str | None = None, unfinished: bool = False
) -> Run:
    """Run the analyses on the checkpoints below `zoo`, those of finished runs or, with `unfinished`, all."""
    forget()
    subjects = find_subjects(zoo, unfinished=unfinished)
    shipped = {name: table for name in asks if (table := shipped_table(name)) is not None}
    options = {
        name: at(ask.options or questions.options_of(name)(), zoo=zoo, cache=cache, unfinished=unfinished)
        for name, ask in asks.items()
        if name not in shipped
    }
    asked = {
        name: questions.questions_of(name, mine, chosen(name, asks[name], subjects)) for name, mine in options.items()
    }
    keys = questions.keys_of(question for mine in asked.values() for question in mine)
    keeping = Cache(cache)
    found = {question: Table(**kept) for question, key in keys.items() if (kept := keeping.known(key)) is not None}
    lengths = {str(one.path): one.model_config["length"] for one in subjects}
    missing = {question: key for question, key in keys.items() if question not in found}
    waiting = jobs_of(missing, asks, lengths=lengths, cache=cache)
    for (mine, _), tables in run_jobs(perform, waiting, workers=jobs, what="analyses", cluster=cluster):
        found |= dict(zip(mine, tables, strict=True))
    made = {name: questions.joined(name, options[name], [found[one] for one in mine]) for name, mine in asked.items()}
    return Run(
        tables={name: shipped.get(name) or made[name] for name in asks},
        seconds={question: found[question].seconds for question in keys},
        made=frozenset(missing),
    )


def chosen(name: str, ask: Ask, subjects: Iterable[Subject]) -> list[str]:
    """The checkpoints that the analysis is run on; none for a study."""
    if questions.is_study(name):
        return []
    module = questions.load_module(name)
    return [str(one.path) for one in ask.select([one for one in subjects if not questions.why_not(module, one)])]


def jobs_of(
    keys: Mapping[Question, dict[str, Any]], asks: Mapping[str, Ask], *, lengths: Mapping[str, int], cache: Path
) -> list[Job]:
    """Jobs of questions with their keys, and of the cache; questions that can share computations are in one job."""
    groups: dict[Any, dict[Question, dict[str, Any]]] = {}
    for question, key in keys.items():
        module = questions.load_module(question.analysis)
        group: Any = question.checkpoint
        if question.checkpoint is None and hasattr(module, "together"):
            group = ("study", module.together(question.options, question.piece))
        groups.setdefault(question if group is None else group, {})[question] = key
    return [
        Job(
            task=(group, str(cache)),
            words=words_of(group),
            kind=next("checkpoint" if one.checkpoint is not None else one.analysis for one in group),
            cost=sum(cost_of(question, asks[question.analysis], lengths) for question in group),
        )
        for group in groups.values()
    ]


def words_of(group: Iterable[Question]) -> str:
    """The analyses, then what they are about."""
    first, *_ = group
    names = list(dict.fromkeys(question.analysis for question in group))
    listed = ", ".join(names) if len(names) <= MOST_NAMES else f"{len(names)} analyses of"
    return listed + first.words.removeprefix(first.analysis)


def cost_of(question: Question, ask: Ask, lengths: Mapping[str, int]) -> float:
    """About how many seconds the answer takes."""
    length = getattr(question.piece, "length", BASE_LENGTH)
    return ask.cost * lengths.get(question.checkpoint or "", length) / BASE_LENGTH


def perform(task: tuple[Mapping[Question, dict[str, Any] | None], str]) -> list[Table]:
    """Answer the questions of a job; an answer without a key is not kept."""
    keys, cache = task
    opened: Opened = {}
    with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
        return [
            questions.answer(question, key=key, cache=_cache_of_process(cache), opened=opened)
            for question, key in keys.items()
        ]


def forget() -> None:
    """Begin with an empty memory: the files in the folder may have changed since an earlier run of this process."""
    _cache_of_process.cache_clear()


@functools.cache
def _cache_of_process(directory: str) -> Cache:
    """One cache for all jobs of a process, so that they share what is in memory; in memory alone without a folder."""
    return Cache(Path(directory) if directory else None)
