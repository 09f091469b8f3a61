"""Questions and answers: the smallest part of a request that can be answered, and kept, on its own.

A question is one analysis about one checkpoint, or one piece of a study. Its answer is JSON-able, so that processes can
send it and the cache can keep it. `analyses.running.documents` puts the answers of a request together.

A module of `analyses.checkpoint` or `analyses.studies` is an analysis if it defines:

    KIND = "checkpoint"   analyse(subject, options) -> Result                   one row per checkpoint
    KIND = "zoo"          row(subject, options) -> dict                         one row per checkpoint, and from these
                          survey(rows, options) -> Study                        what they say together
    KIND = "study"        study(options, cache) -> Study                        needs no checkpoint; or, in pieces,
                          pieces(options) -> list of frozen dataclasses
                          study_piece(options, piece, cache) -> Study
                          join(options, studies) -> Study

and where it needs them

    Options                   a dataclass of options (`analyses.running.options`); by default those that all analyses
    take ASK                       what `make reproduce` runs of it (`analyses.running.ask`); by default nothing
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
import importlib
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from analyses.running.brought import TASK, is_brought, open_brought
from analyses.running.brought_language import is_language, open_language
from analyses.running.cache import Cache
from analyses.running.command import BadInput, one_line
from analyses.running.options import CheckpointOptions, Options
from analyses.running.subject import DoesNotApply, Study, Subject, Unfinished

if TYPE_CHECKING:
    from interp.results import Result

OWN_OPTIONS: dict[str, type[Options]] = {"checkpoint": CheckpointOptions, "zoo": CheckpointOptions, "study": Options}
Opened = dict[tuple[Any, ...], Subject]
FOLDER = Path(__file__).parents[1]


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


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What was found.

    rows, provenance, shown, notes, failures   as in `Study`; a checkpoint's answer has one row
    tidy      the rows of the result's own table; None for studies
    text      the result as it prints itself, and `about`, what the checkpoint is
    error     what was wrong with the checkpoint; None if all is well
    unfinished  whether that is that its run is not finished
    refused   why the analysis does not apply to the checkpoint; None if it does
    seconds   of processor time that it took
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    provenance: dict[str, Any] = field(default_factory=dict)
    shown: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    tidy: list[dict[str, Any]] | None = None
    text: str = ""
    about: str = ""
    error: str | None = None
    unfinished: bool = False
    refused: str | None = None
    seconds: float = 0.0

    def study(self) -> Study:
        """The answer to a piece of a study, for `join`."""
        return Study(
            rows=self.rows,
            provenance=self.provenance,
            shown=self.shown,
            notes=self.notes,
            failures=self.failures,
            text=self.text,
        )


def load_module(analysis: str) -> ModuleType:
    """The analysis itself."""
    folder = "checkpoint" if (FOLDER / "checkpoint" / f"{analysis}.py").is_file() else "studies"
    return importlib.import_module(f"analyses.{folder}.{analysis}")


def options_of(module: ModuleType) -> type[Options]:
    """The options that an analysis takes."""
    found: type[Options] = getattr(module, "Options", OWN_OPTIONS[module.KIND])
    return found


def answer(question: Question, *, cache: Cache, opened: Opened | None = None) -> Answer:
    """Compute the answer. `opened` keeps the subjects, so that questions about one checkpoint share its captures."""
    start = time.process_time()
    module = load_module(question.analysis)
    if question.checkpoint is None:
        found = _from_study(module, question, cache)
    else:
        found = _from_checkpoint(module, question, {} if opened is None else opened)
    return dataclasses.replace(found, seconds=time.process_time() - start)


def kept_answer(question: Question, key: dict[str, Any], *, cache: Cache, opened: Opened | None = None) -> Answer:
    """The answer that the cache keeps for the key, or a new one, which it keeps unless a checkpoint was bad."""

    def make() -> dict[str, Any]:
        return dataclasses.asdict(answer(question, cache=cache, opened=opened))

    found = cache.value(key, make, keep=lambda one: one["error"] is None)
    return _answer_of(found)


def known_answer(question: Question, key: dict[str, Any], *, cache: Cache) -> Answer | None:
    """The answer that the cache keeps for the key, or None."""
    found = cache.known(key)
    return None if found is None else _answer_of(found)


def open_subject(question: Question, opened: Opened) -> Subject:
    """The checkpoint on the sequences that are asked for, opened once."""
    options = question.options
    assert isinstance(options, CheckpointOptions)
    assert question.checkpoint is not None
    place = (question.checkpoint, options.batch, options.seed, options.prior, *(getattr(options, one) for one in TASK))
    if place not in opened:
        opening: Any = Subject.open
        if is_brought(question.checkpoint):
            opening = open_brought
        elif is_language(question.checkpoint):
            opening = open_language
        opened[place] = opening(question.checkpoint, options)
    return opened[place]


def applies(module: ModuleType, subject: Subject) -> str | None:
    """Why the analysis does not apply to this checkpoint, or None."""
    return module.applies(subject.info) if hasattr(module, "applies") else None


def _from_checkpoint(module: ModuleType, question: Question, opened: Opened) -> Answer:
    """A `ValueError` is bad input and becomes the answer's error; any other exception is a bug and is raised."""
    from interp.results import jsonable, provenance

    assert question.checkpoint is not None
    place = one_line(question.checkpoint)
    try:
        subject = open_subject(question, opened)
        if reason := applies(module, subject):
            raise DoesNotApply(reason)
        if module.KIND == "zoo":
            row, tidy, text = module.row(subject, question.options), None, ""
        else:
            result: Result = module.analyse(subject, question.options)
            row = {"checkpoint": str(subject.path), "subject": subject.summary(), **result.record()}
            table = result.table().assign(checkpoint=str(subject.path))
            table = table[["checkpoint", *table.columns.drop("checkpoint")]]
            tidy = [jsonable({str(name): value for name, value in one.items()}) for one in table.to_dict("records")]
            text = module.page(result) if hasattr(module, "page") else str(result)
    except DoesNotApply as error:
        why = one_line(error)
        return Answer(error=f"{place}: {question.analysis} does not apply: {why}", refused=why)
    except (ValueError, OSError) as error:
        message = one_line(error)
        message = message if place in message else f"{place}: {message}"
        return Answer(error=message, unfinished=isinstance(error, Unfinished))
    tested = {str(subject.path): subject.prior.to_dict()} if "prior" in vars(subject) else {}
    return Answer(
        rows=[jsonable(row)],
        provenance=jsonable(provenance(seed=question.options.seed, priors=tested)),
        tidy=tidy,
        text=text,
        about=about(subject),
    )


def _from_study(module: ModuleType, question: Question, cache: Cache) -> Answer:
    """In a study a `ValueError` means that an option was wrong."""
    try:
        if question.piece is None:
            return study_answer(module.study(question.options, cache))
        return study_answer(module.study_piece(question.options, question.piece, cache))
    except ValueError as error:
        raise BadInput(one_line(error)) from error


def study_answer(study: Study) -> Answer:
    """A study as an answer."""
    from interp.results import jsonable

    return Answer(
        rows=[jsonable(dict(row)) for row in study.rows],
        provenance=jsonable(study.provenance),
        shown=tuple(study.shown),
        notes=tuple(study.notes),
        failures=tuple(study.failures),
        text=study.text,
    )


def about(subject: Subject) -> str:
    """What the checkpoint is, in one line."""
    model = subject.model_config
    words = [
        f"{model['family']}, k = {model['order']}, |V| = {model['vocab']}, T = {model['length']}",
        "the first token as BOS" if model.get("first_as_bos") else "BOS" if model["bos"] else "no BOS",
    ]
    if "protocol" in subject.training:
        words.append(f"protocol {subject.training['protocol']}")
    if "prior" in vars(subject):
        words.append(f"on {subject.prior.to_dict()['kind']} chains")
    if subject.unfinished_at:
        words.append(f"not finished: {subject.unfinished_at}")
    return ", ".join(words)


def _answer_of(values: dict[str, Any]) -> Answer:
    tuples = {name: tuple(values[name]) for name in ("shown", "notes", "failures")}
    return Answer(**{**values, **tuples})
