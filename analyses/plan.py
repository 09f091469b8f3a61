"""What `make reproduce` asks of the shipped checkpoints, and how the answers are had: in parallel, and only once.

`PLAN` says for each analysis which checkpoints it is asked about, and with which options. A job is one analysis on one
checkpoint, or one whole study. Its outcome is kept by the digest of everything it depends on (options, weights, code),
so that the second run reads instead of computing.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import math
import multiprocessing
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analyses import door
from analyses.cache import source_tree
from analyses.command import BadInput, Entry, read_entries
from analyses.report import json_text, render_table, write_file
from analyses.subject import flat_rows
from analyses.yardstick import PAPER_LENGTHS, Trained, trained_checkpoints

Select = Callable[[list[Trained]], list[Trained]]


def everything(zoo: list[Trained]) -> list[Trained]:
    """Every finished checkpoint."""
    return zoo


def up_to(length: int) -> Select:
    """Those trained on sequences of at most this length."""
    return lambda zoo: [one for one in zoo if one.model["length"] <= length]


def near(*lengths: int, seeds: int | None = None) -> Select:
    """In each group of one family, prior, BOS and protocol, those of the length nearest to each one wanted.

    The paper's figures are of T = 64 and T = 128; a zoo of other lengths is shown at those it has. `seeds` keeps only
    the first few.
    """

    def select(zoo: list[Trained]) -> list[Trained]:
        groups: dict[tuple[Any, ...], list[Trained]] = {}
        for one in zoo:
            words = one.summary()
            groups.setdefault(tuple(words[word] for word in ("family", "prior", "bos", "protocol")), []).append(one)
        chosen = []
        for group in groups.values():
            found = {one.model["length"] for one in group}
            kept = {min(found, key=lambda length: abs(math.log(length / wanted))) for wanted in lengths}
            for length in sorted(kept):
                here = sorted((one for one in group if one.model["length"] == length), key=_seed)
                chosen += here[:seeds]
        return chosen

    return select


def with_votes(select: Select) -> Select:
    """Of the families whose final stream holds the votes in a block of its own, those that `select` takes."""
    return lambda zoo: select([one for one in zoo if one.model["family"] != "standard"])


def not_long(select: Select) -> Select:
    """What `select` takes of the zoo without the runs of the `long` protocol, which a few analyses only are about."""
    return lambda zoo: select([one for one in zoo if one.training.get("protocol") != "long"])


def with_snapshots(zoo: list[Trained]) -> list[Trained]:
    """Those whose run kept its history."""
    from analyses.dynamics import snapshots_of

    return [one for one in zoo if snapshots_of(one.path.resolve())]


def _seed(one: Trained) -> tuple[int, str]:
    return one.training.get("seed") or 0, one.name


@dataclass(frozen=True, kw_only=True)
class Ask:
    """How one analysis is asked: which checkpoints (None for studies), which options.

    `pieces` are parts of a long study, each a list of options; they fill the cache that the whole then reads, so that
    they can run side by side.
    """

    select: Select | None = None
    argv: tuple[str, ...] = ()
    pieces: tuple[tuple[str, ...], ...] = ()


def _by_length(*argv: str) -> tuple[tuple[str, ...], ...]:
    return tuple((*argv, "--lengths", str(length)) for length in reversed(PAPER_LENGTHS))


KL_SEQUENCES = ("--batch", "4000")
# Found on the draws that kl_curves has tuned on by then, so that each optimum is searched for once.
OPTIMA = ("--sweeps", "length", "--draws", "40000", "--seed", "1", "--batch", "500")

PLAN: dict[str, Ask] = {
    "theory": Ask(),
    "prior_trees": Ask(),
    "circuit": Ask(),
    "construction_attention": Ask(),
    "kl_curves": Ask(argv=KL_SEQUENCES, pieces=_by_length(*KL_SEQUENCES)),
    "optimal": Ask(argv=OPTIMA, pieces=_by_length(*OPTIMA, "--models", "swept")),
    "pseudo_counts": Ask(argv=KL_SEQUENCES),
    "regret": Ask(argv=KL_SEQUENCES),
    "attention": Ask(select=not_long(near(64, 128, seeds=1))),
    "copy_heads": Ask(select=everything, argv=("--batch", "64")),
    "beta_kappa": Ask(select=everything, argv=("--batch", "256")),
    "overlap_mass": Ask(select=everything, argv=("--batch", "256")),
    "lag_pairs": Ask(select=not_long(near(64, seeds=1))),
    "identity_blocks": Ask(select=not_long(near(64, seeds=1))),
    "label_symmetry": Ask(select=not_long(near(64, seeds=1)), argv=("--siblings", "--batch", "128")),
    "causal": Ask(select=near(32, 64, seeds=1), argv=("--batch", "2048")),
    "smoothing_source": Ask(select=not_long(near(64, seeds=1))),
    "direct_path": Ask(select=not_long(near(64, seeds=1)), argv=("--batch", "2048")),
    "vote_weight": Ask(select=with_votes(near(32, 64)), argv=("--batch", "2048")),
    "nearest_estimator": Ask(select=not_long(near(64, seeds=1))),
    "dynamics": Ask(select=with_snapshots),
    "lag_asymmetry": Ask(select=not_long(up_to(256))),
}


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run of one analysis; everything a worker process needs to know."""

    analysis: str
    argv: tuple[str, ...]
    checkpoints: tuple[str, ...]
    zoo: str
    cache: str
    digest: str

    @property
    def file(self) -> Path:
        """Where its outcome is kept."""
        return Path(self.cache) / f"job-{self.analysis}-{self.digest[:24]}.json"

    @property
    def words(self) -> str:
        """What it is, for a line of progress; of the checkpoint's path the parts that say prior, family and run."""
        places = ["/".join(Path(path).parts[-3:]) for path in self.checkpoints[:1]]
        return " ".join([self.analysis, *self.argv, *places])


def check_zoo(names: Iterable[str], zoo: Path) -> None:
    """Refuse, before any work, to ask about checkpoints where there are none; studies need none."""
    if not zoo.is_dir():
        raise BadInput(f"--checkpoints {zoo}: no such directory")
    entries = read_entries(door.FOLDER, marker="KIND")
    asks = any(name in entries and entries[name].marker != "study" for name in names)
    if asks and not trained_checkpoints(zoo):
        raise BadInput(f"no finished checkpoint below {zoo}; python -m models train makes one")


def run_plan(names: Iterable[str], *, zoo: Path, cache: Path, jobs: int) -> dict[str, dict[str, Any]]:
    """The documents of the named analyses, `{"analysis": ..., "rows": ..., "provenance": ...}`, by name.

    Each also has `text`, the table for a terminal, and `tidy`, the rows of the results' own tables (None for studies).
    """
    entries = read_entries(door.FOLDER, marker="KIND")
    found = trained_checkpoints(zoo)
    wholes: dict[str, list[Job]] = {}
    first: list[Job] = []
    for name in dict.fromkeys(names):
        if name not in PLAN or name not in entries:
            raise BadInput(f"no analysis {name!r} in the plan; there are {', '.join(PLAN)}")
        wholes[name] = _jobs_of(entries[name], PLAN[name], found, zoo=zoo, cache=cache)
        pieces = [] if _known(wholes[name]) else PLAN[name].pieces
        first += [_job(name, argv, (), found, zoo=zoo, cache=cache) for argv in pieces]
    last = [job for name, group in wholes.items() if PLAN[name].pieces for job in group]
    first += [job for name, group in wholes.items() if not PLAN[name].pieces for job in group]
    _run(first, workers=jobs, what="analyses")
    _run(last, workers=jobs, what="summaries")
    return {name: _document(entries[name], group) for name, group in wholes.items()}


def write_documents(documents: dict[str, dict[str, Any]], out: Path) -> None:
    """NAME.json, NAME.csv and, for checkpoints, NAME_tidy.csv, as `python -m analyses NAME --out` writes them."""
    from analyses.report import csv_text

    for name, document in documents.items():
        kept = {key: value for key, value in document.items() if key not in ("text", "tidy")}
        write_file(out / f"{name}.json", json_text(kept) + "\n")
        write_file(out / f"{name}.csv", csv_text(name, flat_rows(document["rows"])))
        if document["tidy"] is not None:
            write_file(out / f"{name}_tidy.csv", csv_text(name, document["tidy"]))


def _jobs_of(entry: Entry, ask: Ask, found: list[Trained], *, zoo: Path, cache: Path) -> list[Job]:
    if entry.marker == "study":
        return [_job(entry.name, ask.argv, (), found, zoo=zoo, cache=cache)]
    chosen = ask.select(found) if ask.select is not None else []
    if entry.marker == "zoo":
        return [_job(entry.name, ask.argv, chosen, found, zoo=zoo, cache=cache)] if chosen else []
    return [_job(entry.name, ask.argv, [one], found, zoo=zoo, cache=cache) for one in chosen]


def _job(
    name: str,
    argv: tuple[str, ...],
    checkpoints: Sequence[Trained],
    found: Sequence[Trained],
    *,
    zoo: Path,
    cache: Path,
) -> Job:
    """A study may look at the whole zoo, so it depends on all of it."""
    weights = {str(one.path): _digest_of(one, name) for one in checkpoints or found}
    key = {"analysis": name, "argv": argv, "weights": weights, "code": source_tree().key(*code_of(name))}
    return Job(
        analysis=name,
        argv=argv,
        checkpoints=tuple(str(one.path) for one in checkpoints),
        zoo=str(zoo),
        cache=str(cache),
        digest=hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest(),
    )


def _digest_of(one: Trained, analysis: str) -> str:
    """What an analysis of this checkpoint reads: its weights, and for some the snapshots or the other seeds too."""
    from analyses.dynamics import snapshots_of
    from analyses.label_symmetry import siblings_of

    read = {"dynamics": snapshots_of, "label_symmetry": siblings_of}.get(analysis)
    digest = hashlib.sha256(one.digest.encode())
    for folder in [] if read is None else read(one.path.resolve()):
        for file in sorted(folder.iterdir()):
            digest.update(file.read_bytes())
    return digest.hexdigest()


def code_of(analysis: str) -> tuple[str, ...]:
    """The modules whose imports are the code of a result: the analysis itself, and what runs it."""
    return f"analyses.{analysis}", "analyses.door"


def _run(jobs: Sequence[Job], *, workers: int, what: str) -> None:
    """Do what is not known yet, with a bar where someone watches and a line for each otherwise."""
    from tqdm import tqdm

    wanted = list({job.file: job for job in jobs if not _known([job])}.values())
    if not wanted:
        return
    watched = sys.stderr.isatty()
    with tqdm(total=len(wanted), desc=what, file=sys.stderr, disable=not watched, leave=False) as bar:
        for place, job in enumerate(_done(wanted, workers), start=1):
            words = job.words
            bar.set_postfix_str(words, refresh=False)
            bar.update()
            if not watched:
                print(f"  {place}/{len(wanted)} {words}", file=sys.stderr, flush=True)


def _done(jobs: Sequence[Job], workers: int) -> Iterable[Job]:
    """The jobs, each when it is finished."""
    if workers == 1 or len(jobs) == 1:
        for job in jobs:
            perform(job)
            yield job
        return
    # Threads inside the workers would only wait for each other; torch reads this when it is imported, there.
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        spawning = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(max_workers=min(workers, len(jobs)), mp_context=spawning) as pool:
            waiting = {pool.submit(perform, job): job for job in jobs}
            try:
                for future in as_completed(waiting):
                    future.result()
                    yield waiting[future]
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before


def perform(job: Job) -> None:
    """Run one job and keep its outcome."""
    entry = read_entries(door.FOLDER, marker="KIND")[job.analysis]
    module = door.load_module(entry)
    options = door.make_parser(entry, module).parse_args([*job.checkpoints, *job.argv])
    for name in ("zoo", "cache"):
        if hasattr(options, name):
            setattr(options, name, Path(getattr(job, name)))
    with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
        if entry.marker == "study":
            outcome = door.run_study(module, options)
        elif entry.marker == "zoo":
            outcome = door.run_survey(module, job.analysis, options)
        else:
            outcome = door.run_checkpoints(module, job.analysis, options)
    kept = door.document_of(job.analysis, outcome, _without_places(options))
    tidy = None if outcome.tidy is None else json.loads(outcome.tidy.to_json(orient="records", double_precision=15))
    write_file(
        job.file, json.dumps({**kept, "text": outcome.text, "tidy": tidy, "failures": list(outcome.failures)}) + "\n"
    )


def _without_places(options: argparse.Namespace) -> argparse.Namespace:
    return argparse.Namespace(**{key: value for key, value in vars(options).items() if key not in ("zoo", "cache")})


def _known(jobs: Sequence[Job]) -> bool:
    return all(_outcome(job) is not None for job in jobs)


def _outcome(job: Job) -> dict[str, Any] | None:
    """What is kept of a job; a damaged file counts as nothing, and is made again."""
    try:
        outcome = json.loads(job.file.read_text())
    except (OSError, ValueError):
        return None
    return outcome if isinstance(outcome, dict) and outcome.get("analysis") == job.analysis else None


def _document(entry: Entry, jobs: Sequence[Job]) -> dict[str, Any]:
    """One document of all jobs of an analysis."""
    parts = [outcome for job in jobs if (outcome := _outcome(job)) is not None]
    if len(parts) == 1:
        return parts[0]
    rows = [row for part in parts for row in part["rows"]]
    document: dict[str, Any] = {"analysis": entry.name, "rows": rows, "provenance": {}}
    if parts:
        priors = {path: prior for part in parts for path, prior in part["provenance"].get("priors", {}).items()}
        document["provenance"] = {**parts[0]["provenance"], "priors": priors}
        if errors := [error for part in parts for error in part.get("errors", [])]:
            document["errors"] = errors
    columns = getattr(door.load_module(entry), "COLUMNS", ())
    document["text"] = render_table(flat_rows(rows), columns=("checkpoint", *columns) if columns else ())
    document["tidy"] = [row for part in parts for row in part["tidy"] or []] if rows else None
    document["failures"] = [failure for part in parts for failure in part["failures"]]
    return document
