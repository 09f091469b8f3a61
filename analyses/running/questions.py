"""Questions: what can be answered, and kept, on its own. One analysis about one checkpoint, or one piece of a study.

Every file of `analyses/checkpoint` and `analyses/studies` is an analysis. Its docstring's first line is its line in the
listing. A question to a checkpoint defines

    analyse(subject, options) -> Result       one row per checkpoint; or, to compare several,
    row(subject, options) -> dict             one row per checkpoint, and from these
    survey(rows, options) -> Table            what they say together

and a study

    study(options, cache) -> Table            or, in pieces,
    pieces(options) -> list of frozen dataclasses
    study_piece(options, piece, cache) -> Table
    join(options, tables) -> Table

and where they need them

    Options                   a dataclass of options (`analyses.running.options`); by default those that all take
    ASK                       what `make reproduce` runs of it (`analyses.running.ask`); by default nothing
    COLUMNS                   the columns to print when several checkpoints are compared
    LEGEND                    what its numbers are, term by term: which queries, and means over what
    compared(row)             the row as that table shows it; by default with its lists and dicts flattened
    page(result)              how a result is printed where it is the only one; by default as it prints itself
    applies(info)             why it does not apply to a checkpoint, or None
    reads(path, options)      other folders of weights that it reads for a checkpoint
    weights(options)          of a study: digests by name of the weights that it reads, beside those of a zoo
    SHIPPED                   of a study: the environment variable that requests computing what is shipped
                              (`analyses.shipped`); without it `make reproduce` and the figures read the shipped result
    merged(known, new)        of a study in pieces whose rows hold runs: joins rows of the same cells, so that `python
                              -m analyses.shipped NAME` can add new runs; its study_piece takes `known`
    together(options, piece)  a word: questions with the same word run in one process and share what they cache
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from analyses.running.cache import Cache
from analyses.running.command import BadInput, one_line
from analyses.running.options import CheckpointOptions, Options
from analyses.running.subject import ZOOS, DoesNotApply, Opened, Subject, Unfinished, find_subjects, open_subject
from analyses.running.table import Table

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
    return module.applies(subject.info) if hasattr(module, "applies") else None


def questions_of(name: str, options: Options, checkpoints: Iterable[str] = ()) -> list[Question]:
    """What is asked about these checkpoints, or in each piece of a study."""
    if not is_study(name):
        return [Question(analysis=name, options=options, checkpoint=path) for path in checkpoints]
    module = load_module(name)
    pieces = module.pieces(options) if hasattr(module, "pieces") else [None]
    return [Question(analysis=name, options=options, piece=piece) for piece in pieces]


def answer(question: Question, *, cache: Cache, opened: Opened | None = None) -> Table:
    """Compute the answer. `opened` keeps the subjects, so that questions about one checkpoint share its captures."""
    start = time.process_time()
    if question.checkpoint is None:
        found = _of_study(question, cache)
    else:
        found = _of_checkpoint(question, {} if opened is None else opened)
    return dataclasses.replace(found, seconds=time.process_time() - start)


def kept_answer(question: Question, key: dict[str, Any], *, cache: Cache, opened: Opened | None = None) -> Table:
    """The answer that the cache keeps for the key, or a new one, which it keeps unless a checkpoint was bad."""

    def make() -> dict[str, Any]:
        return dataclasses.asdict(answer(question, cache=cache, opened=opened))

    return Table(**cache.value(key, make, keep=lambda one: not one["errors"]))


def _of_study(question: Question, cache: Cache) -> Table:
    """In a study a `ValueError` means that an option was wrong. Its seed and versions are added to its origin."""
    from interp.results import provenance

    module = load_module(question.analysis)
    try:
        if question.piece is None:
            found: Table = module.study(question.options, cache)
        else:
            found = module.study_piece(question.options, question.piece, cache)
        origin = {**provenance(seed=question.options.seed), **found.provenance}
        return dataclasses.replace(found, provenance=origin).plain()
    except ValueError as error:
        raise BadInput(one_line(error)) from error


def _of_checkpoint(question: Question, opened: Opened) -> Table:
    """A `ValueError` is bad input and becomes the table's error; any other exception is a bug and is raised."""
    assert question.checkpoint is not None
    try:
        return ask_checkpoint(question, opened)
    except (ValueError, OSError) as error:
        return unread(question.checkpoint, question.analysis, error)


def unread(checkpoint: str, analysis: str, error: Exception) -> Table:
    """The table of a checkpoint that was not read: with the reason alone."""
    place, message = one_line(checkpoint), one_line(error)
    if isinstance(error, DoesNotApply):
        message = f"{place}: {analysis} does not apply: {message}"
    message = message if place in message else f"{place}: {message}"
    return Table(errors=[{"checkpoint": checkpoint, "error": message, "unfinished": isinstance(error, Unfinished)}])


def ask_checkpoint(question: Question, opened: Opened) -> Table:
    """What the analysis finds in the checkpoint; `DoesNotApply`, `Unfinished` or another ValueError if it cannot."""
    from interp.results import jsonable, provenance

    module, options = load_module(question.analysis), question.options
    assert question.checkpoint is not None
    assert isinstance(options, CheckpointOptions)
    subject = open_subject(question.checkpoint, options, opened)
    if reason := why_not(module, subject):
        raise DoesNotApply(reason)
    tidy, text = None, ""
    if hasattr(module, "row"):
        row = module.row(subject, options)
    else:
        result = module.analyse(subject, options)
        row = {"checkpoint": str(subject.path), "subject": subject.summary(), **result.record()}
        table = result.table().assign(checkpoint=str(subject.path))
        table = table[["checkpoint", *table.columns.drop("checkpoint")]]
        tidy = [jsonable({str(name): value for name, value in one.items()}) for one in table.to_dict("records")]
        text = module.page(result) if hasattr(module, "page") else str(result)
    tested = {str(subject.path): subject.prior.to_dict()} if "prior" in vars(subject) else {}
    return Table(
        rows=[jsonable(row)],
        provenance=jsonable(provenance(seed=options.seed, priors=tested)),
        tidy=tidy,
        text=text,
        about=subject.about,
    )


def joined(name: str, options: Options, tables: Sequence[Table]) -> Table:
    """One table of the answers to the questions of one analysis."""
    module = load_module(name)
    good = [table for table in tables if not table.errors]
    if hasattr(module, "survey"):
        whole = module.survey([row for table in good for row in table.rows], options).plain()
    elif hasattr(module, "pieces"):
        whole = module.join(options, good).plain()
    elif is_study(name):
        (whole,) = good
    else:
        alone = good[0] if len(good) == 1 else Table()
        whole = Table(
            rows=[row for table in good for row in table.rows],
            provenance=joined_origin(good),
            tidy=[row for table in good for row in table.tidy or []] if good else None,
            text=alone.text,
            about=alone.about,
        )
    return dataclasses.replace(
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
    digest = functools.cache(_digest)

    @functools.cache
    def zoo(folder: Path, unfinished: bool) -> dict[str, str]:
        return {one.name: digest(one.path.resolve()) for one in find_subjects(folder, unfinished=unfinished)}

    def key_of(question: Question) -> dict[str, Any]:
        path, options = question.checkpoint, question.options
        module = load_module(question.analysis)
        read: dict[str, str] = {}
        if path is not None:
            more = module.reads(Path(path), options) if hasattr(module, "reads") else []
            read = {str(folder): digest(Path(folder).resolve()) for folder in [path, *more]}
        else:
            read |= module.weights(options) if hasattr(module, "weights") else {}
            for place in ZOOS:
                if hasattr(options, place):
                    found = zoo(getattr(options, place), options.unfinished)  # type: ignore[attr-defined]
                    read |= {f"{place}/{name}": digest for name, digest in found.items()}
        return {
            "what": f"answer-{question.analysis}",
            "options": options.shaping(),
            "checkpoint": path,
            "piece": None if question.piece is None else dataclasses.asdict(question.piece),
            "weights": read,
        }

    return {question: key_of(question) for question in questions}


def _digest(folder: Path) -> str:
    """A digest of all files of a checkpoint; empty if it is not there."""
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    contents = [(file.name, hashlib.sha256(file.read_bytes()).hexdigest()) for file in files if file.is_file()]
    return hashlib.sha256(json.dumps(contents).encode()).hexdigest() if contents else ""
