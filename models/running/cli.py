"""Train, build and list the models under study.

python -m models                                    families, studies and the shipped checkpoints
python -m models train --prior hierarchical:5,5 --length 64 --out runs/a
python -m models train --resume --out runs/a        continue an interrupted run
python -m models construct --length 64 --beta 2.7,1.2 --kappa 3.3 --out runs/b
python -m models sweep smoke --out runs/smoke       a whole study, one process per core
python -m models zoo                                the table of the shipped checkpoints
"""

from __future__ import annotations

import contextlib
import json
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from interp.outside import MAX_DESCRIPTION_BYTES, one_line, read_object, shown
from models.families.registry import FAMILIES, start_name
from models.running.command_line import (
    FAILED,
    NUMBER,
    OK,
    PATH,
    POSITIVE,
    Listed,
    Whole,
    help_text,
    listing,
    run,
)
from models.running.terminal import page_width, say, say_loading, show
from models.training.protocols import PROTOCOLS
from models.training.spec import SAVE_SECONDS, RunSpec, make_spec

ROOT = Path(__file__).parents[1]
CHECKPOINTS = ROOT / "checkpoints"
STUDIES = ROOT / "studies"
DEFAULTS: dict[str, Any] = {"family": "disentangled", "prior": "hierarchical:5", "length": 64, "bos": True}
# The settings of a run: how they are read, and what they are. `models.families.registry` has what a family supports.
SETTINGS: dict[str, tuple[Any, str]] = {
    "--family": (click.Choice(list(FAMILIES)), "kind of model (default: disentangled)"),
    "--prior": (
        str,
        "what the chains are drawn from: hierarchical[:ETA,...[:ETA0]] or independent[:ALPHA,...] "
        "(default: hierarchical:5)",
    ),
    "--order": (Whole(1), "k, the number of tokens in a context (default: 2)"),
    "--vocab": (Whole(2), "|V|, the number of symbols (default: 5)"),
    "--bos/--no-bos": (bool, "whether a BOS token stands before the sequence (default: yes)"),
    "--length": (Whole(2), "T, the tokens of a sequence (default: 64)"),
    "--seed": (Whole(0), "of weights and data (default: 0)"),
    "--protocol": (
        click.Choice(list(PROTOCOLS)),
        "paper: constant rate, sampled targets, a million steps; annealed: falling rate, fewer steps; long: annealed "
        "with five times the steps (default: annealed)",
    ),
    "--steps": (Whole(1), "number of steps (default: the protocol's)"),
    "--learning-rate": (POSITIVE, "the highest rate (default: the protocol's)"),
    "--batch": (Whole(1), "sequences per step (default: the protocol's)"),
    "--target": (
        click.Choice(["token", "law"]),
        "of the loss: a sampled next token, or its law given the sequence (default: the protocol's)",
    ),
    "--readout": (
        click.Choice(["probability", "logit"]),
        "normalised votes, or a softmax of logits (default: the family's)",
    ),
    "--freeze": (
        str,
        "parts that are not trained, separated by commas: copies, match_bias, readout. Parts of the readout: direct "
        "(what it reads of the query's own stream), carried (copied tokens of the keys). Of the copy heads' relative "
        "bias: copies_bos (at BOS's distance from the last query), copies_first (its neighbour). copies and match_bias "
        "also need --init, e.g. hard: by default they would be frozen at random weights",
    ),
    "--init": (
        str,
        "start of the weights: random(STD), copy(STRENGTH), hard, symmetric(STD), bias(STD) or zero; then PART=START "
        "for a part (copies, match, match_bias, readout) with another start, e.g. hard,readout=random(0.3)",
    ),
    "--kappa": (
        str,
        "kappa of a construction: free (trained), tied(ALPHA): sum(beta) + ln(ALPHA |V|), or fixed(DELTA): DELTA + "
        "sum(beta)/|V| (default: free)",
    ),
    "--bos-vector": (
        click.Choice(["constant", "block", "mean"]),
        "fixed vector of BOS in the standard family. constant: 1/|V| everywhere, which LayerNorm maps to zero (the "
        "default); block: 1/|V| in the first |V| coordinates; mean: the mean of the token embeddings at the start",
    ),
    "--symmetrise/--no-symmetrise": (bool, "average every batch over all relabelings of its symbols (default: no)"),
    "--snapshots/--no-snapshots": (bool, "keep checkpoints at log-spaced steps (default: no)"),
}
TRAIN_EXAMPLES = """
examples:
  python -m models train --prior hierarchical:5,5 --length 64 --out runs/a
  python -m models train --prior hierarchical:5,5 --bos --length 64 \\
      --freeze copies,readout --init hard --out runs/b
  python -m models train --prior independent:1 --no-bos --length 64 \\
      --init "copy(5)" --readout logit --out runs/c

Exit codes: 0 success, 1 the run diverged or ended worse than the uniform law (weights are kept), 2 bad input.
"""

OUT = click.option(
    "--out", type=PATH, required=True, metavar="DIR", help="where the checkpoint goes (missing directories are made)"
)
SAVE = click.option(
    "--save-seconds",
    type=POSITIVE,
    default=SAVE_SECONDS,
    metavar="S",
    help=f"seconds between two saves of the state, at most (default: {SAVE_SECONDS:g})",
)
JSON = click.option("--json", "as_json", is_flag=True, help="print the outcome as one JSON object")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    return run(lambda: models, argv, refusals=(ValueError, RuntimeError))


@click.group("python -m models", help=help_text(__doc__ or ""), invoke_without_command=True)
@click.pass_context
def models(context: click.Context) -> None:
    if context.invoked_subcommand is None:
        show(what_there_is())


@contextlib.contextmanager
def resumable(how: str) -> Iterator[None]:
    """Ctrl-C inside the block also says how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"{how} goes on from the last save") from None


def settings(command: Any) -> Any:
    """The options for the settings of a run, each None where it is not given."""
    for flag, (kind, text) in reversed(SETTINGS.items()):
        command = click.option(flag, type=kind, default=None, help=text)(command)
    return command


@models.command(epilog=help_text(TRAIN_EXAMPLES))
@settings
@click.option(
    "--spec", type=PATH, metavar="FILE", help="the run's description as a JSON file, instead of the options above"
)
@OUT
@click.option(
    "--resume",
    is_flag=True,
    help="continue the run in DIR with the settings that it was started with; with other options: or start it",
)
@SAVE
@JSON
def train(out: Path, spec: Path | None, resume: bool, save_seconds: float, as_json: bool, **settings: Any) -> int:
    """Train one model."""
    say_loading("torch and the compiled trainers")
    asked = spec_asked({name: value for name, value in settings.items() if value is not None}, spec, out, resume=resume)
    if start_name(asked.family, init=asked.init) == "hard" and "copies" not in asked.frozen:
        say(f"note: copy heads that start at {asked.init} are saturated: training cannot move them off their lags")
    from models.training.run import READINGS, AlreadyFinished, Diverged, reading_source, run

    try:
        with resumable("--resume"):
            finished = run(asked, out, resume=resume, save_seconds=save_seconds)
    except (Diverged, AlreadyFinished) as ended:
        diverged = isinstance(ended, Diverged)
        say(f"failed: {one_line(ended)}" if diverged else str(ended))
        if as_json:
            print(json.dumps({"path": str(out), "status": "diverged" if diverged else "finished"}))
        return FAILED if diverged else OK
    source = reading_source(asked)
    if as_json:
        from interp.results import jsonable

        record = {
            "path": str(finished.path),
            "status": "finished",
            "failure": finished.failure,
            "kl": finished.held_out.mean,
            "kl_stderr": finished.held_out.stderr,
            "learnt": finished.learnt,
            "beta": finished.beta,
            "kappa": finished.kappa,
            "read_from": source,
            "seconds": finished.seconds,
        }
        print(json.dumps(jsonable(record)))
    else:
        beta = ", ".join(f"{value:.2f}" for value in finished.beta)
        kappa = "" if finished.kappa is None else f", kappa {finished.kappa:.2f}"
        show(finished.path)
        print(textwrap.fill(f"  held-out {finished.held_out}", page_width(), subsequent_indent="    "))
        if not finished.learnt and not finished.failure:
            print("  note: no better than the uniform law")
        print(f"  {READINGS[source]} {beta}{kappa}; {finished.seconds:.0f} s")
        if source == "weights":
            print("  (beta is what the scores show, which may differ from the weights:)")
        show(f"  python -m analyses beta_kappa {finished.path}\n  python -m analyses all {finished.path}")
    if finished.failure:
        say(f"failed: {one_line(finished.failure)}")
    return FAILED if finished.failure else OK


def spec_asked(given: dict[str, Any], file: Path | None, out: Path, *, resume: bool) -> RunSpec:
    """The run that is asked for: by its file, by its settings or, to resume it, by what it was started with."""
    if file is not None:
        if given:
            raise ValueError(f"--spec describes the whole run: leave out {_flags(given)}")
        try:
            return RunSpec.from_dict(read_object(file, most=MAX_DESCRIPTION_BYTES))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{file}: {error}") from None
    if resume:
        from models.training.run import started_spec

        if (started := started_spec(out)) is not None:
            return _agreeing(started, given, out)
        if not given:
            raise ValueError(f"{out}: no run there to resume; give the settings of a new one")
    return make_spec(**{**DEFAULTS, **given})


def _agreeing(started: RunSpec, given: dict[str, Any], out: Path) -> RunSpec:
    """The spec that a run was started with; settings given beside --resume that differ from it are refused."""
    task = {name: started.prior[name] for name in ("order", "vocab")}  # a prior that is given as text has these
    asked = make_spec(**{**started.to_dict(), **task, **given})
    different = [name for name, value in asked.to_dict().items() if value != getattr(started, name)]
    different += [name for name in task if given.get(name, task[name]) != task[name] and "prior" not in different]
    if different:
        raise ValueError(f"{out}: was started with another {_flags(different)}; leave it out, or use another --out")
    return started


def _flags(names: Iterable[str]) -> str:
    return ", ".join(f"--{name.replace('_', '-')}" for name in names)


@models.command()
@click.option("--order", type=Whole(1), default=2, help="k, the number of tokens in a context (default: 2)")
@click.option("--vocab", type=Whole(2), default=5, help="|V|, the number of symbols (default: 5)")
@click.option("--length", type=Whole(2), default=64, help="T, the tokens of a sequence (default: 64)")
@click.option(
    "--beta", type=Listed(NUMBER), metavar="LIST", required=True, help="a number per lag, lag 1 first, e.g. 2.7,1.2"
)
@click.option("--kappa", type=NUMBER, help="the score of BOS; without it the model has no BOS")
@OUT
@JSON
def construct(
    order: int, vocab: int, length: int, beta: tuple[float, ...], kappa: float | None, out: Path, as_json: bool
) -> int:
    """Write a construction with given beta and kappa."""
    say_loading("torch and TransformerLens")
    import interp as ip

    if out.exists() or out.is_symlink():
        raise ValueError(f"{out}: already there; choose another --out")
    ip.save(ip.construct(order=order, vocab=vocab, length=length, beta=beta, kappa=kappa), out)
    if as_json:
        print(json.dumps({"path": str(out), "beta": beta, "kappa": kappa}))
    else:
        show(f"{out}: construction of order {order}, |V| = {vocab}, T = {length}")
    return OK


@models.command()
@click.argument("study")
@click.option(
    "--engine",
    type=click.Choice(["local", "here", "ray"]),
    default="local",
    help="local: a process for each run, as many as there are cores; here: one run after the other in this process; "
    "ray: a cluster (default: local)",
)
@click.option(
    "--address",
    help="address of a Ray cluster; auto: the one that runs on this machine (default: RAY_ADDRESS, else start one)",
)
@click.option("--jobs", type=Whole(1, 1024), help="processes at the same time (default: one per core)")
@click.option("--only", metavar="TEXT", default="", help="only runs whose name contains TEXT")
@click.option("--without", metavar="TEXT", help="leave out runs whose name contains TEXT")
@click.option(
    "--out",
    type=PATH,
    metavar="DIR",
    help="where the runs go (a shipped study: models/checkpoints by default; missing directories are made)",
)
@SAVE
@click.option("--overwrite", is_flag=True, help="allow --out to be a directory that holds other files")
@click.option("--dry-run", is_flag=True, help="only list the runs and which of them are left to do")
@JSON
def sweep(
    study: str, out: Path | None, only: str, without: str | None, overwrite: bool, dry_run: bool, **how: Any
) -> int:
    """Train every run of a study: a name from `python -m models`, or the path of a .toml file."""
    from models.training import sweep

    if out is None and Path(study).suffix:
        raise ValueError(f"a study of your own needs --out DIR, as --out runs/{Path(study).stem}")
    out = out or CHECKPOINTS
    runs = sweep.load_study(study, studies=STUDIES, out=out)
    if not dry_run and not overwrite:
        sweep.check_sweep_target(out, runs)
    chosen = [run for run in runs if only in run.name and (without is None or without not in run.name)]
    if not chosen:
        words = f" without {shown(without)}" if without is not None else ""
        raise ValueError(f"no run of {study} has {shown(only)}{words} in its name")
    with resumable("the same command"):
        return sweep.sweep(chosen, dry_run=dry_run, **how)


@models.command()
@click.option("--checkpoints", type=PATH, metavar="DIR", help="default: models/checkpoints")
@click.option("--write", is_flag=True, help="write the table to README.md and zoo.json beside the checkpoints")
@click.option("--overwrite", is_flag=True, help="allow --write to replace files that it did not make")
@JSON
def zoo(checkpoints: Path | None, **how: bool) -> int:
    """The table of the checkpoints; new ones are measured."""
    from models.running.zoo import zoo_command

    return zoo_command(checkpoints or CHECKPOINTS, **how)


def what_there_is() -> str:
    """The families, the studies and the shipped checkpoints."""
    from models.running.zoo import find_checkpoints, find_zoos, unfinished_runs
    from models.training.sweep import study_summaries

    found = find_checkpoints(CHECKPOINTS)
    unfinished = unfinished_runs(found)
    groups: dict[str, list[str]] = {}
    for place in found:
        words = f" (not finished: {unfinished[place]})" if place in unfinished else ""
        groups.setdefault(str(place.parent.relative_to(CHECKPOINTS)), []).append(f"{place.name}{words}")
    lines = [
        "Families (models/FAMILY)",
        listing((family.name, family.summary) for family in FAMILIES.values()),
        "\nStudies (python -m models sweep NAME)",
        listing(study_summaries(STUDIES).items()),
        f"\nCheckpoints ({len(found)} below models/checkpoints; the table: python -m models zoo)",
        listing(
            ("" if line else group, text)
            for group, names in groups.items()
            for line, text in enumerate(alike_together(names))
        ),
    ]
    for place in find_zoos(CHECKPOINTS):
        below = f"models/checkpoints/{place.relative_to(CHECKPOINTS)}"
        more = len(find_checkpoints(place))
        lines.append(f"\n{more} more in {below}\n  table: python -m models zoo --checkpoints {below}")
    return "\n".join(lines)


def alike_together(names: Sequence[str]) -> list[str]:
    """Names of runs, shortened: runs that differ only in length and seed share a line.

    >>> alike_together(["T32_seed0", "T32_seed1", "T64_seed0", "T64_seed1", "T64_seed0_long", "mine"])
    ['T32, T64: _seed0, _seed1', 'T64: _seed0_long', 'mine']
    """
    lengths: dict[str, list[str]] = {}  # what follows the length in a name -> the lengths
    others = []
    for name in names:
        if parts := re.fullmatch(r"(T\d+)(_seed\d+[^ ]*)", name):
            lengths.setdefault(parts[2], []).append(parts[1])
        else:
            others.append(name)
    lines: dict[str, list[str]] = {}
    for rest, found in lengths.items():
        lines.setdefault(", ".join(found), []).append(rest)
    return [f"{found}: {', '.join(same)}" for found, same in lines.items()] + others
