"""Questions: what can be answered, and kept, on its own. One analysis about one checkpoint, or one piece of a study.

Every file of `analyses/checkpoint` and `analyses/studies` is an analysis. Its docstring's first line is its line in the
listing. A question to a checkpoint defines

    analyse(subject, options)                 a Result, or a Table of one row; and, to compare several,
    survey(rows, options) -> Table            what the rows of all checkpoints say together

and a study

    study(options, cache) -> Table            or, in pieces,
    pieces(options) -> list of words, or of frozen dataclasses
    study_piece(options, piece, cache) -> Table
    join(options, tables) -> Table

and where they need them

    Options                   a dataclass of options (`analyses.running.options`); by default those that all take
    ASK                       what `make reproduce` runs of it (`analyses.running.ask`); by default nothing
    COLUMNS                   the columns to print when several checkpoints are compared
    LEGEND                    what its numbers are, term by term: which queries, and means over what
    compared(row)             the row as that table shows it; by default with its lists and dicts flattened
    page(result)              how a result is printed where it is the only one; by default as it prints itself
    applies(subject)          why it does not apply to a checkpoint, or None
    reads(path, options)      other folders of weights that it reads for a checkpoint
    weights(options)          of a study: digests by name of the weights that it reads, beside those of a zoo
    SHIPPED                   of a study: the environment variable that requests computing what is shipped
                              (`analyses.shipped`); without it `make reproduce` and the figures read the shipped result
    merged(known, new)        of a study in pieces whose rows hold runs: joins rows of the same cells, so that `python
                              -m analyses.shipped NAME` can add new runs; its study_piece takes `known`
    together(options, piece)  a word: questions with the same word run in one process and share what they cache
"""

from __future__ import annotations

import functools
import importlib
import itertools
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from analyses.running.cache import Cache
from analyses.running.options import CheckpointOptions, Options
from analyses.running.subject import ZOOS, DoesNotApply, Opened, Subject, Unfinished, find_subjects, open_subject
from analyses.running.table import Table
from interp.outside import one_line
from models.running.command_line import BadInput

FOLDER, PACKAGE = Path(__file__).parents[1], "analyses"
FOLDERS = ("studies", "checkpoint")


@dataclass(frozen=True, kw_only=True)
class Question:
    """One analysis about one checkpoint, or one piece of a study (None for a study that is not in pieces)."""

    analysis: str
    options: Options
    checkpoint: str | None = None
    piece: Any = None

    @property
    def words(self) -> str:
        """A short name; of a checkpoint's path the parts that name task, family, start and run."""
        if self.checkpoint is not None:
            return f"{self.analysis} {'/'.join(Path(self.checkpoint).parts[-4:])}"
        return self.analysis if self.piece is None else f"{self.analysis} {self.piece}"


def analyses() -> dict[str, Path]:
    """The file of every analysis, by name: studies first."""
    return {file.stem: file for folder in FOLDERS for file in sorted((FOLDER / folder).glob("[a-z]*.py"))}


def is_study(name: str) -> bool:
    """Whether it needs no checkpoint."""
    return analyses()[name].parent.name == "studies"


def load_module(name: str) -> ModuleType:
    """The analysis itself."""
    return importlib.import_module(f"{PACKAGE}.{analyses()[name].parent.name}.{name}")


def options_of(name: str) -> type[Options]:
    """The options that an analysis takes."""
    found: type[Options] = getattr(load_module(name), "Options", Options if is_study(name) else CheckpointOptions)
    return found


def why_not(module: ModuleType, subject: Subject) -> str | None:
    """Why the analysis does not apply to this checkpoint, or None."""
    return module.applies(subject) if hasattr(module, "applies") else None


def questions_of(name: str, options: Options, checkpoints: Iterable[str] = ()) -> list[Question]:
    """What is asked about these checkpoints, or in each piece of a study."""
    if not is_study(name):
        return [Question(analysis=name, options=options, checkpoint=path) for path in checkpoints]
    module = load_module(name)
    pieces = module.pieces(options) if hasattr(module, "pieces") else [None]
    return [Question(analysis=name, options=options, piece=piece) for piece in pieces]


def answer(
    question: Question, *, cache: Cache, key: Mapping[str, Any] | None = None, opened: Opened | None = None
) -> Table:
    """The answer: that which the cache keeps for the key, or a new one. What a bad checkpoint gives is not kept.

    `opened` keeps the subjects, so that questions about one checkpoint share its captures.
    """

    def ask() -> dict[str, Any]:
        start = time.process_time()
        found = ask_study(question, cache) if question.checkpoint is None else ask_checkpoint(question, opened)
        return asdict(replace(found, seconds=time.process_time() - start))

    try:
        return Table(**(ask() if key is None else cache.value(dict(key), ask)))
    except (ValueError, OSError) as error:
        if question.checkpoint is not None:
            return unread(question.checkpoint, question.analysis, error)
        if isinstance(error, OSError):
            raise
        raise BadInput(one_line(error)) from error  # in a study a `ValueError` means that an option was wrong


def ask_study(question: Question, cache: Cache) -> Table:
    """What the study finds; seed and versions are added to where it comes from."""
    from interp.results import provenance

    module = load_module(question.analysis)
    if question.piece is None:
        found: Table = module.study(question.options, cache)
    else:
        found = module.study_piece(question.options, question.piece, cache)
    return replace(found, provenance={**provenance(seed=question.options.seed), **found.provenance}).plain()


def ask_checkpoint(question: Question, opened: Opened | None = None) -> Table:
    """What the analysis finds in the checkpoint; `DoesNotApply`, `Unfinished` or another ValueError if it cannot."""
    from interp.results import Result, provenance

    module, options = load_module(question.analysis), question.options
    assert question.checkpoint is not None
    assert isinstance(options, CheckpointOptions)
    subject = open_subject(question.checkpoint, options, {} if opened is None else opened)
    if reason := why_not(module, subject):
        raise DoesNotApply(reason)
    found = module.analyse(subject, options)
    if isinstance(found, Result):
        text = module.page(found) if hasattr(module, "page") else str(found)
        tidy: list[dict[Any, Any]] = found.table().to_dict("records")
        found = Table(rows=[found.record()], tidy=tidy, text=text)
    place = {"checkpoint": str(subject.path)}
    tested = {str(subject.path): subject.prior.to_dict()} if "prior" in vars(subject) else {}
    return replace(
        found,
        rows=[{**place, "subject": subject.summary(), **row} for row in found.rows],
        tidy=None if found.tidy is None else [{**place, **row} | place for row in found.tidy],
        provenance=provenance(seed=options.seed, priors=tested),
        about=subject.about,
    ).plain()


def unread(checkpoint: str, analysis: str, error: Exception) -> Table:
    """The table of a checkpoint that was not read: with the reason alone."""
    place, message = one_line(checkpoint), one_line(error)
    if isinstance(error, DoesNotApply):
        message = f"{place}: {analysis} does not apply: {message}"
    message = message if place in message else f"{place}: {message}"
    return Table(errors=[{"checkpoint": checkpoint, "error": message, "unfinished": isinstance(error, Unfinished)}])


def joined(name: str, options: Options, tables: Sequence[Table]) -> Table:
    """One table of the answers to the questions of one analysis."""
    module = load_module(name)
    good = [table for table in tables if not table.errors]
    rows = [row for table in good for row in table.rows]
    if hasattr(module, "survey"):
        whole = module.survey(rows, options).plain()
    elif hasattr(module, "pieces"):
        whole = module.join(options, good).plain()
    elif len(good) == 1:
        (whole,) = good
    else:
        tidied = [table.tidy for table in good if table.tidy is not None]
        tidy = list(itertools.chain(*tidied)) if tidied else None
        whole = Table(rows=rows, provenance=joined_origin(good), tidy=tidy)
    return replace(
        whole,
        analysis=name,
        provenance={**whole.provenance, "options": options.shaping()} if tables else {},
        errors=[error for table in tables for error in table.errors],
    )


def joined_origin(tables: Sequence[Table]) -> dict[str, Any]:
    """Provenance of several checkpoints, with the prior that each one was tested on."""
    priors = {path: prior for table in tables for path, prior in table.provenance.get("priors", {}).items()}
    return {**tables[-1].provenance, "priors": priors} if tables else {}


def keys_of(questions: Iterable[Question]) -> dict[Question, dict[str, Any]]:
    """What each answer depends on besides the code: options, piece, and the weights that are read."""

    @functools.cache
    def digest(folder: Path) -> str:
        try:
            return Subject.open(folder).digest
        except (ValueError, OSError):  # what is wrong with it is said when it is read
            return ""

    @functools.cache
    def zoo(folder: Path, unfinished: bool) -> dict[str, str]:
        return {one.name: digest(one.path) for one in find_subjects(folder, unfinished=unfinished)}

    def weights_of(question: Question) -> dict[str, str]:
        module, options = load_module(question.analysis), question.options
        if question.checkpoint is not None:
            more = module.reads(Path(question.checkpoint), options) if hasattr(module, "reads") else []
            return {str(folder): digest(Path(folder)) for folder in [question.checkpoint, *more]}
        read: dict[str, str] = module.weights(options) if hasattr(module, "weights") else {}
        for place in ZOOS:
            if hasattr(options, place):
                found = zoo(getattr(options, place), options.unfinished)  # type: ignore[attr-defined]
                read |= {f"{place}/{name}": digest for name, digest in found.items()}
        return read

    def key_of(question: Question) -> dict[str, Any]:
        return {
            "what": f"answer-{question.analysis}",
            "options": question.options.shaping(),
            "checkpoint": question.checkpoint,
            "piece": vars(question.piece) if is_dataclass(question.piece) else question.piece,
            "weights": weights_of(question),
        }

    return {question: key_of(question) for question in questions}
