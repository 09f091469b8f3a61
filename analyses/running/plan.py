"""Runs the analyses that `make reproduce` or a figure needs, in parallel, except for results that are in the cache.

Some studies are too large to run each time; their shipped results are read (`analyses.shipped`).

    asks  ->  requests (which checkpoints of the zoo)  ->  questions  ->  answers, from the cache or anew  ->  documents

Each analysis says what it is run on (`analyses.running.ask`). Questions about one checkpoint make one job, so that they
share its captures, and so do pieces of studies that need the same optimum; the longest jobs start first. Answers come
back
from the worker processes as values; the cache keeps them for the next run.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analyses.running import answers
from analyses.running.answers import Answer, Opened, Question
from analyses.running.ask import Ask
from analyses.running.cache import Cache
from analyses.running.command import BadInput, read_entries
from analyses.running.documents import Document, Request, document_of, questions_of
from analyses.running.keys import Weights, key_of
from analyses.running.options import at
from analyses.running.pool import run_jobs
from analyses.running.subject import Subject
from analyses.running.zoo import find_subjects
from analyses.shipped import shipped_document

FOLDER = Path(__file__).parents[1]
BASE_LENGTH = 64  # the length that costs are stated for
MOST_NAMES = 4  # analyses that a line of progress names


@dataclass(frozen=True, kw_only=True)
class Job:
    """Questions that one process answers, one after the other, with their keys in the cache."""

    questions: tuple[Question, ...]
    keys: tuple[dict[str, Any], ...]
    cost: float
    cache: str

    @property
    def kind(self) -> str:
        """What the job measures: checkpoints, or the subject of a study."""
        first = self.questions[0]
        return "checkpoint" if first.checkpoint is not None else first.analysis

    @property
    def words(self) -> str:
        """The analyses, then what they are about."""
        names = list(dict.fromkeys(question.analysis for question in self.questions))
        listed = ", ".join(names) if len(names) <= MOST_NAMES else f"{len(names)} analyses of"
        return listed + self.questions[0].words.removeprefix(names[0])


@dataclass(frozen=True, kw_only=True)
class Run:
    """The documents by name; for each question the seconds of processor time that its answer took; and what is new."""

    documents: dict[str, Document]
    seconds: dict[Question, float]
    made: frozenset[Question]


def shipped_asks() -> dict[str, Ask]:
    """The `ASK` of every analysis of the package that has one."""
    modules = {name: answers.load_module(name) for name in read_entries(FOLDER, marker="KIND")}
    return {name: module.ASK for name, module in modules.items() if hasattr(module, "ASK")}


def asks_for(names: Iterable[str]) -> dict[str, Ask]:
    """The asks of the named analyses."""
    known = shipped_asks()
    for name in names:
        if name not in known:
            raise BadInput(f"no analysis {name!r} that figures can run; there are {', '.join(known)}")
    return {name: known[name] for name in names}


def check_zoo(asks: Iterable[str], zoo: Path, *, unfinished: bool = False) -> None:
    """Refuse, before any work, a directory without checkpoints if an analysis needs them; studies need none."""
    if not zoo.is_dir():
        raise BadInput(f"--checkpoints {zoo}: no such directory")
    if any(answers.load_module(name).KIND != "study" for name in asks) and not find_subjects(
        zoo, unfinished=unfinished
    ):
        raise BadInput(f"no finished checkpoint below {zoo}; python -m models train makes one")


def run_plan(asks: Mapping[str, Ask], *, zoo: Path, cache: Path, jobs: int, unfinished: bool = False) -> Run:
    """Run the analyses on the checkpoints below `zoo`, those of finished runs or, with `unfinished`, all."""
    _cache_of_process.cache_clear()  # the files in the folder may have changed since an earlier run
    subjects = find_subjects(zoo, unfinished=unfinished)
    shipped = {name: document for name in asks if (document := shipped_document(name)) is not None}
    requests = {
        name: request_of(name, ask, subjects, zoo=zoo, cache=cache, unfinished=unfinished)
        for name, ask in asks.items()
        if name not in shipped
    }
    asked = {name: questions_of(request) for name, request in requests.items()}
    questions = list(dict.fromkeys(question for mine in asked.values() for question in mine))
    weights = Weights()
    keys = {question: key_of(question, weights) for question in questions}
    keeping = Cache(cache)
    found = {
        question: known
        for question in questions
        if (known := answers.known_answer(question, keys[question], cache=keeping)) is not None
    }
    lengths = {str(one.path): one.model_config["length"] for one in subjects}
    missing = [question for question in questions if question not in found]
    planned = jobs_of(missing, asks, keys, lengths=lengths, cache=cache)
    for job, given in run_jobs(perform, planned, workers=jobs, what="analyses"):
        found |= dict(zip(job.questions, given, strict=True))
    return Run(
        documents={name: shipped.get(name) or document_of(requests[name], found, asked=asked[name]) for name in asks},
        seconds={question: found[question].seconds for question in questions},
        made=frozenset(missing),
    )


def request_of(
    name: str, ask: Ask, subjects: Sequence[Subject], *, zoo: Path, cache: Path, unfinished: bool = False
) -> Request:
    """The request that an ask makes of this zoo."""
    module = answers.load_module(name)
    options = answers.options_of(module)() if ask.options is None else ask.options
    chosen: list[Subject] = []
    if module.KIND != "study":
        chosen = ask.select([one for one in subjects if not answers.applies(module, one)])
    return Request(
        analysis=name,
        options=at(options, zoo=zoo, cache=cache, unfinished=unfinished),
        checkpoints=tuple(str(one.path) for one in chosen),
    )


def jobs_of(
    questions: Iterable[Question],
    asks: Mapping[str, Ask],
    keys: Mapping[Question, dict[str, Any]],
    *,
    lengths: Mapping[str, int],
    cache: Path,
) -> list[Job]:
    """The questions as jobs; questions that can share computations are in one job."""
    groups: dict[Any, list[Question]] = {}
    for question in questions:
        module = answers.load_module(question.analysis)
        group: Any = question.checkpoint
        if question.checkpoint is None and hasattr(module, "together"):
            group = ("study", module.together(question.options, question.piece))
        groups.setdefault(question if group is None else group, []).append(question)
    return [
        Job(
            questions=tuple(group),
            keys=tuple(keys[question] for question in group),
            cost=sum(cost_of(question, asks[question.analysis], lengths) for question in group),
            cache=str(cache),
        )
        for group in groups.values()
    ]


def cost_of(question: Question, ask: Ask, lengths: Mapping[str, int]) -> float:
    """About how many seconds the answer takes."""
    if question.checkpoint is not None:
        length = lengths[question.checkpoint]
    else:
        length = getattr(question.piece, "length", BASE_LENGTH)
    return ask.cost * length / BASE_LENGTH


def perform(job: Job) -> list[Answer]:
    """Answer the questions of a job."""
    opened: Opened = {}
    cache = _cache_of_process(job.cache)
    with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
        return [
            answers.kept_answer(question, key, cache=cache, opened=opened)
            for question, key in zip(job.questions, job.keys, strict=True)
        ]


@functools.cache
def _cache_of_process(directory: str) -> Cache:
    """One cache for all jobs of a process, so that they share what is in memory."""
    return Cache(Path(directory))
