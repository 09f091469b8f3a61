"""What the sandbox holds, and the parts of the suite that cases do not run: training, drawing and long analyses."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from tests.fuzz.room import Sandbox, quiet

LIMIT = 8 << 20  # bytes: the stated limit of sizes, lowered so that what it lets through is quick
MOST_CHECKPOINTS = 3
SPEC = {
    "family": "construction",
    "prior": {"kind": "independent", "order": 1, "vocab": 2, "alpha": 1.0},
    "length": 4,
    "bos": True,
    "seed": 0,
    "protocol": "annealed",
    "steps": 10,
    "learning_rate": 0.01,
    "batch": 2,
    "target": "law",
    "init": "beta(1)",
    "snapshots": False,
    "readout": "probability",
    "freeze": "",
    "kappa": "free",
    "symmetrise": False,
}
STUDY = """summary = "small"

[[runs]]
family = "construction"
prior = "hierarchical:5"
bos = true
length = [8, 16]
seed = [0, 1]
"""
ROW = {
    "checkpoint": "x",
    "subject": {"family": "construction", "prior": "independent", "bos": True, "length": 4, "order": 1, "vocab": 2},
}


def build(root: Path) -> Sandbox:
    """The sandbox: a user's files, a checkpoint, a damaged one, results and studies."""
    import interp as ip

    quiet()
    sandbox = Sandbox(root)
    work = sandbox.work
    work.mkdir(parents=True)
    (work / "folder").mkdir()
    for name in (
        "precious.txt",
        "folder/notes.md",
        "../beside.txt",
        "../../above.txt",
        "junk.json",
        "junk.toml",
        "junk.csv",
    ):
        (work / name).write_text(f"{name} of the user\n")
    record = {**SPEC, "step": 10, "status": "finished", "seconds": 1.0}
    ip.save(ip.construct(order=1, vocab=2, length=4, beta=(1.0,), kappa=0.5), work / "ckpt", training=record)
    ip.save(ip.construct(order=1, vocab=2, length=4, beta=(1.0,), kappa=0.5), work / "broken")
    shutil.copytree(work / "ckpt", work / "zoo/one")
    (work / "broken/model.safetensors").write_bytes(b"no tensors")
    (work / "foreign").mkdir()
    (work / "foreign/config.json").write_text('{"architectures": ["GPT2LMHeadModel"]}')
    (work / "results").mkdir()
    for name in ("theory", "beta_kappa", "kl_curves"):
        (work / f"results/{name}.json").write_text(json.dumps({"analysis": name, "rows": [ROW], "provenance": {}}))
    (work / "study.toml").write_text(STUDY)
    (work / "spec.json").write_text(json.dumps(SPEC))
    (work / "mine.py").write_text("def build():\n    raise ValueError('not today')\n")
    (work / "link").symlink_to("precious.txt")
    sandbox.remember()
    return sandbox


def built_once(make: Callable[..., Any]) -> Callable[..., Any]:
    """The parsers that a command builds when it starts, kept: a default may depend on the working directory."""
    built: dict[Any, Any] = {}

    def parser(*given: Any) -> Any:
        key = (os.getcwd(), *given)
        if key not in built:
            built[key] = make(*given)
        return built[key]

    return parser


def first_of(find: Callable[..., list[Path]]) -> Callable[..., list[Path]]:
    """The shipped checkpoints are many, and a study reads them all one by one: three will do."""

    def found(*given: Any, **more: Any) -> list[Path]:
        return find(*given, **more)[:MOST_CHECKPOINTS]

    return found


def shipped_files() -> dict[str, tuple[int, int]]:
    """Size and time of every file that the repository ships as a result: no case may touch one."""
    import analyses
    import models

    roots = [Path(models.__file__).parent, Path(analyses.__file__).parent / "shipped"]
    found = {}
    for root in roots:
        for place, folders, files in os.walk(root):
            folders[:] = [name for name in folders if name != "__pycache__"]
            for name in files:
                state = os.stat(os.path.join(place, name))
                found[os.path.join(place, name)] = state.st_size, state.st_mtime_ns
    return found


@contextlib.contextmanager
def light(sandbox: Sandbox) -> Iterator[None]:
    """No training, no analysis, no drawing, and sizes limited to `LIMIT`: the rest of a command line is as it is.

    Where commands look for checkpoints unless told, and write what they measured of them, is a folder of the sandbox.
    """
    import models.running.cli
    import models.running.zoo
    import models.training.run
    import models.training.sweep
    from analyses.running import cli, plan, questions
    from analyses.running.command import BadInput
    from analyses.running.subject import open_subject
    from analyses.running.table import Table
    from figures.running import drawing
    from interp import arguments

    def trained(*_: Any) -> Any:
        raise models.training.run.RunError("nothing is trained in the fuzz room")

    def measured(path: Path, name: str) -> dict[str, Any]:
        texts = {"protocol": "annealed", "target": "law", "init": "", "freeze": "", "bos_vector": "", "copies": "none"}
        return (
            dict.fromkeys(models.running.zoo.COLUMNS, 1.0) | texts | {"checkpoint": name, "steps": 10, "change": None}
        )

    def answered(question: questions.Question, *, cache: Any, opened: Any = None) -> Table:
        if question.checkpoint is None:
            return Table(rows=[dict(ROW)])
        try:
            subject = open_subject(question.checkpoint, question.options, {})
            subject.summary()
        except (ValueError, OSError) as error:
            return questions.unread(question.checkpoint, question.analysis, error)
        return Table(rows=[{**ROW, "checkpoint": str(subject.path)}])

    def joined(name: str, options: Any, tables: Any) -> Table:
        rows = [row for table in tables for row in table.rows]
        return Table(analysis=name, rows=rows, errors=[one for table in tables for one in table.errors], text="rows")

    def planned(*_: Any, **__: Any) -> Any:
        raise BadInput("no analysis is run in the fuzz room")

    def drawn(one: drawing.Drawing) -> drawing.Drawn:
        module = drawing.load_module(one.figure)
        record = {"missing": [], "caption": drawing.caption_of(module, one.results), "claims": list(module.CLAIMS)}
        return drawing.Drawn(files=(), record=record, png=None, new=True)

    with contextlib.ExitStack() as stack:
        for target, name, value in (
            (arguments, "MAX_BYTES", LIMIT),
            (models.training.run, "make_trainer", trained),
            (models.training.sweep, "_run_in_process", lambda *_: None),
            (models.training.sweep, "_ray", lambda runs, *_: (one for one in ())),
            (models.running.zoo, "measure", measured),
            (questions, "answer", answered),
            (questions, "joined", joined),
            (cli, "run_all", lambda options, checkpoints: Table(analysis="all", rows=[dict(ROW)], text="rows")),
            (plan, "run_plan", planned),
            (models.running.cli, "CHECKPOINTS", sandbox.work / "zoo"),
            (models.running.zoo, "find_checkpoints", first_of(models.running.zoo.find_checkpoints)),
            (cli, "make_parser", built_once(cli.make_parser)),
            (drawing, "draw", drawn),
        ):
            stack.enter_context(mock.patch.object(target, name, value))
        yield
