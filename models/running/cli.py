"""The command line of models.

python -m models                                    families, studies and the shipped checkpoints
python -m models train --prior hierarchical:5,5 --length 64 --out runs/a
python -m models train --resume --out runs/a        continue an interrupted run
python -m models construct --length 64 --beta 2.7,1.2 --kappa 3.3 --out runs/b
python -m models sweep smoke --out runs/smoke       a whole study, one process per core
python -m models zoo                                the table of the shipped checkpoints
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import re
import sys
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from interp.outside import MAX_DESCRIPTION_BYTES, one_line, read_object, shown
from models.families.registry import FAMILIES, start_name
from models.running.command import (
    BAD_INPUT,
    FAILED,
    INTERRUPTED,
    MAKES_FOLDERS,
    READER_GONE,
    Parser,
    discard_output,
    end_output,
    error_line,
    flush_output,
    listed,
    number,
    number_list,
    page_width,
    path,
    path_text,
    positive_number,
    prepare_output,
    say,
    say_loading,
    seed,
    show,
    whole_number,
)
from models.running.help_text import HelpFormatter
from models.training.protocols import PROTOCOLS
from models.training.spec import SAVE_SECONDS, RunSpec, make_spec

ROOT = Path(__file__).parents[1]
CHECKPOINTS = ROOT / "checkpoints"
STUDIES = ROOT / "studies"
SETTINGS = {name: parameter.default for name, parameter in inspect.signature(make_spec).parameters.items()}
DEFAULTS = SETTINGS | {"family": "disentangled", "prior": "hierarchical:5", "length": 64, "bos": True}

TRAIN_EXAMPLES = """examples:
  python -m models train --prior hierarchical:5,5 --length 64 --out runs/a
  python -m models train --prior hierarchical:5,5 --bos --length 64 \\
      --freeze copies,readout --init hard --out runs/b
  python -m models train --prior independent:1 --no-bos --length 64 \\
      --init "copy(5)" --readout logit --out runs/c

Exit codes: 0 success, 1 the run diverged or ended worse than the uniform law
(weights are kept), 2 bad input."""


Commands: TypeAlias = "argparse._SubParsersAction[Parser]"


def main(argv: list[str] | None = None) -> int:
    # Two torch threads on a busy two-core machine can be 50 times slower than one.
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    options = parser().parse_args(_attach_negative_lists(sys.argv[1:] if argv is None else argv))
    prepare_output()
    try:
        code = int(options.command(options))
        flush_output()
        return code
    except BrokenPipeError:  # the reader of the pipe, e.g. `head`, has closed it: end without a message
        discard_output()
        return READER_GONE
    except (ValueError, RuntimeError, OSError, MemoryError) as error:
        say(error_line(error))
        end_output()
        return BAD_INPUT
    except KeyboardInterrupt:
        again = {train_one: "--resume", sweep_study: "the same command"}.get(options.command)
        say(f"interrupted; {again} goes on from the last save" if again else "interrupted")
        return INTERRUPTED


def parser() -> Parser:
    top = Parser(
        prog="python -m models",
        description="Train, build and list the models under study.",
        epilog=(__doc__ or "").partition("\n\n")[2],
        formatter_class=HelpFormatter,
    )
    top.set_defaults(command=show_everything, json=False)
    commands = top.add_subparsers(title="commands", metavar="COMMAND")

    add_train(commands)
    add_construct(commands)
    add_sweep(commands)
    add_zoo(commands)
    return top


def add_train(commands: Commands) -> None:
    train = commands.add_parser(
        "train",
        help="train one model",
        formatter_class=HelpFormatter,
        epilog=TRAIN_EXAMPLES,
    )
    train.add_argument("--family", choices=list(FAMILIES), help=f"kind of model (default: {DEFAULTS['family']})")
    train.add_argument(
        "--prior",
        metavar="KIND[:NUMBERS]",
        help=f"of the chains: hierarchical[:ETA,...[:ETA0]] or independent[:ALPHA,...] (default: {DEFAULTS['prior']})",
    )
    train.add_argument(
        "--order", type=whole_number(1), help=f"k, the number of tokens in a context (default: {DEFAULTS['order']})"
    )
    train.add_argument(
        "--vocab", type=whole_number(2), help=f"|V|, the number of symbols (default: {DEFAULTS['vocab']})"
    )
    train.add_argument(
        "--bos",
        action=argparse.BooleanOptionalAction,
        help="whether a BOS token stands before the sequence (default: yes)",
    )
    train.add_argument(
        "--length", type=whole_number(2), help=f"T, the tokens of a sequence (default: {DEFAULTS['length']})"
    )
    train.add_argument("--seed", type=seed, help=f"of weights and data (default: {DEFAULTS['seed']})")
    train.add_argument(
        "--protocol",
        choices=list(PROTOCOLS),
        help="paper: constant rate, sampled targets, a million steps; annealed: falling rate, fewer steps; long: "
        f"annealed with five times the steps (default: {DEFAULTS['protocol']})",
    )
    train.add_argument("--steps", type=whole_number(1), help="number of steps (default: the protocol's)")
    train.add_argument("--learning-rate", type=positive_number, help="default: the protocol's")
    train.add_argument("--batch", type=whole_number(1), help="sequences per step (default: the protocol's)")
    train.add_argument(
        "--target",
        choices=["token", "law"],
        help="of the loss: a sampled next token, or its law given the sequence (default: the protocol's)",
    )
    add_factors(train)
    train.add_argument("--snapshots", action="store_const", const=True, help="keep checkpoints at log-spaced steps")
    train.add_argument(
        "--spec", type=path, metavar="FILE", help="the run's description as a JSON file, instead of the options above"
    )
    train.add_argument(
        "--out", type=path, required=True, metavar="DIR", help=f"where the checkpoint goes ({MAKES_FOLDERS})"
    )
    train.add_argument(
        "--resume",
        action="store_true",
        help="continue the run in DIR with the settings that it was started with; with other options: or start it",
    )
    add_save_argument(train)
    train.add_argument("--json", action="store_true", help="print the outcome as one JSON object")
    train.set_defaults(command=train_one)


def add_factors(train: argparse.ArgumentParser) -> None:
    """What a run may vary besides its task and protocol; `models.families.registry` says what each family supports."""
    factors = train.add_argument_group("factors", "settings that contradict each other are refused")
    factors.add_argument(
        "--readout",
        choices=["probability", "logit"],
        help="normalised votes, or a softmax of logits (default: the family's)",
    )
    factors.add_argument(
        "--freeze",
        metavar="PARTS",
        help="parts that are not trained, separated by commas: copies, match_bias, readout. Parts of the readout: "
        "direct (what it reads of the query's own stream), carried (copied tokens of the keys). Of the copy heads' "
        "relative bias: copies_bos (at BOS's distance from the last query), copies_first (its neighbour). copies and "
        "match_bias also need --init, e.g. hard: by default they would be frozen at random weights",
    )
    factors.add_argument(
        "--init",
        metavar="START",
        help="start of the weights: random(STD), copy(STRENGTH), hard, symmetric(STD), bias(STD) or zero; then "
        "PART=START for a part (copies, match, match_bias, readout) with another start, e.g. hard,readout=random(0.3)",
    )
    factors.add_argument(
        "--kappa",
        metavar="RULE",
        help="kappa of a construction: free (trained), tied(ALPHA): sum(beta) + ln(ALPHA |V|), or fixed(DELTA): "
        f"DELTA + sum(beta)/|V| (default: {DEFAULTS['kappa']})",
    )
    factors.add_argument(
        "--bos-vector",
        choices=["constant", "block", "mean"],
        help="fixed vector of BOS in the standard family. constant: 1/|V| everywhere, which LayerNorm maps to zero "
        "(the default); block: 1/|V| in the first |V| coordinates; mean: the mean of the token embeddings at the start",
    )
    factors.add_argument(
        "--symmetrise",
        action="store_const",
        const=True,
        help="average every batch over all relabelings of its symbols",
    )


def add_construct(commands: Commands) -> None:
    construct = commands.add_parser("construct", help="write a construction with given beta and kappa")
    construct.add_argument(
        "--order", type=whole_number(1), default=2, help="k, the number of tokens in a context (default: %(default)s)"
    )
    construct.add_argument(
        "--vocab", type=whole_number(2), default=5, help="|V|, the number of symbols (default: %(default)s)"
    )
    construct.add_argument(
        "--length", type=whole_number(2), default=64, help="T, the tokens of a sequence (default: %(default)s)"
    )
    construct.add_argument(
        "--beta", type=number_list, required=True, help="one number per lag, lag 1 first, e.g. 2.7,1.2"
    )
    construct.add_argument("--kappa", type=number, help="the score of BOS; without it the model has no BOS")
    construct.add_argument(
        "--out", type=path, required=True, metavar="DIR", help=f"where the checkpoint goes ({MAKES_FOLDERS})"
    )
    construct.add_argument("--json", action="store_true", help="print the outcome as one JSON object")
    construct.set_defaults(command=construct_one)


def add_sweep(commands: Commands) -> None:
    sweep = commands.add_parser("sweep", help="train every run of a study")
    sweep.add_argument("study", type=path_text, help="a name from `python -m models`, or the path of a .toml file")
    sweep.add_argument(
        "--engine",
        choices=["local", "here", "ray"],
        default="local",
        help="local: a process for each run, as many as there are cores; here: one run after the other in this "
        "process; ray: a cluster (default: %(default)s)",
    )
    sweep.add_argument("--address", help="address of a Ray cluster (default: find or start one on this machine)")
    sweep.add_argument("--jobs", type=whole_number(1, 1024), help="processes at the same time (default: one per core)")
    sweep.add_argument("--only", metavar="TEXT", help="only runs whose name contains TEXT")
    sweep.add_argument("--without", metavar="TEXT", help="leave out runs whose name contains TEXT")
    sweep.add_argument(
        "--out", type=path, metavar="DIR", help=f"where the runs go (default: models/checkpoints; {MAKES_FOLDERS})"
    )
    add_save_argument(sweep)
    sweep.add_argument("--overwrite", action="store_true", help="allow --out to be a directory that holds other files")
    sweep.add_argument("--dry-run", action="store_true", help="only list the runs and which of them are left to do")
    sweep.add_argument("--json", action="store_true", help="print the outcome as one JSON object")
    sweep.set_defaults(command=sweep_study)


def add_zoo(commands: Commands) -> None:
    zoo = commands.add_parser("zoo", help="the table of the checkpoints; new ones are measured")
    zoo.add_argument("--checkpoints", type=path, default=CHECKPOINTS, metavar="DIR", help="default: models/checkpoints")
    zoo.add_argument(
        "--write", action="store_true", help="write the table to README.md and zoo.json beside the checkpoints"
    )
    zoo.add_argument("--overwrite", action="store_true", help="allow --write to replace files that it did not make")
    zoo.add_argument("--json", action="store_true", help="print the rows as one JSON object")
    zoo.set_defaults(command=show_zoo)


def add_save_argument(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--save-seconds",
        type=positive_number,
        default=SAVE_SECONDS,
        metavar="S",
        help=f"seconds between two saves of the state, at most (default: {SAVE_SECONDS:g})",
    )


def show_everything(options: argparse.Namespace) -> int:
    from models.running.zoo import find_checkpoints, find_zoos, unfinished_runs
    from models.training.sweep import study_summaries

    studies = study_summaries(STUDIES)
    width = max(map(len, (*FAMILIES, *studies)))
    print("Families (models/FAMILY)")
    for family in FAMILIES.values():
        print(listed(family.name, family.summary, names=width))
    print("\nStudies (python -m models sweep NAME)")
    for name, summary in studies.items():
        print(listed(name, summary, names=width))
    found = find_checkpoints(CHECKPOINTS)
    print(f"\nCheckpoints ({len(found)} below models/checkpoints; the table: python -m models zoo)")
    groups: dict[str, list[str]] = {}
    unfinished = unfinished_runs(found)
    for place in found:
        relative = place.relative_to(CHECKPOINTS)
        words = f" (not finished: {unfinished[place]})" if place in unfinished else ""
        groups.setdefault(str(relative.parent), []).append(f"{relative.name}{words}")
    widest = max(map(len, groups), default=0)
    for group, names in groups.items():
        for line, text in enumerate(alike_together(names)):
            print(listed("" if line else group, text, names=widest))
    for zoo in find_zoos(CHECKPOINTS):
        below = f"models/checkpoints/{zoo.relative_to(CHECKPOINTS)}"
        show(f"\n{len(find_checkpoints(zoo))} more in {below}\n  table: python -m models zoo --checkpoints {below}")
    return 0


def alike_together(names: Sequence[str]) -> list[str]:
    """Names of runs, shortened: runs that differ only in length and seed share a line.

    >>> alike_together(["T32_seed0", "T32_seed1", "T64_seed0", "T64_seed1", "T64_seed0_long", "mine"])
    ['T32, T64: _seed0, _seed1', 'T64: _seed0_long', 'mine']
    """
    lengths: dict[str, list[str]] = {}  # what follows the seed in a name -> the lengths
    seeds: dict[tuple[str, str], list[str]] = {}
    others = []
    for name in names:
        if parts := re.fullmatch(r"(T\d+)(_seed\d+)([^ ]*)", name):
            length, seed_text, rest = parts.groups()
            if length not in lengths.setdefault(rest, []):
                lengths[rest].append(length)
            seeds.setdefault((rest, length), []).append(f"{seed_text}{rest}")
        else:
            others.append(name)
    lines: dict[tuple[str, ...], list[str]] = {}
    for rest, found in lengths.items():
        for length in found:
            lines.setdefault(tuple(seeds[rest, length]), []).append(length)
    return [f"{', '.join(found)}: {', '.join(same)}" for same, found in lines.items()] + others


def spec_asked(options: argparse.Namespace) -> RunSpec:
    """The run that is asked for: by its file, by its settings or, to resume it, by what it was started with."""
    given = {name: value for name in SETTINGS if (value := getattr(options, name)) is not None}
    if options.spec is not None:
        if given:
            raise ValueError(f"--spec describes the whole run: leave out {_flags(given)}")
        try:
            return RunSpec.from_dict(read_object(options.spec, most=MAX_DESCRIPTION_BYTES))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{options.spec}: {error}") from None
    if options.resume:
        from models.training.run import started_spec

        if (started := started_spec(options.out)) is not None:
            return _agreeing(started, given, options.out)
        if not given:
            raise ValueError(f"{options.out}: no run there to resume; give the settings of a new one")
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


def train_one(options: argparse.Namespace) -> int:
    say_loading("torch and the compiled trainers")
    spec = spec_asked(options)
    if start_name(spec.family, init=spec.init) == "hard" and "copies" not in spec.frozen:
        say(f"note: copy heads that start at {spec.init} are saturated: training cannot move them off their lags")
    from models.training.run import READINGS, AlreadyFinished, Diverged, reading_source, run

    try:
        finished = run(spec, options.out, resume=options.resume, save_seconds=options.save_seconds)
    except Diverged as failure:
        say(f"failed: {one_line(failure)}")
        if options.json:
            print(json.dumps({"path": str(options.out), "status": "diverged"}))
        return FAILED
    except AlreadyFinished as note:
        say(str(note))
        if options.json:
            print(json.dumps({"path": str(options.out), "status": "finished"}))
        return 0
    source = reading_source(spec)
    if options.json:
        from interp.results import jsonable

        document = {
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
        print(json.dumps(jsonable(document)))
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
        show(f"  python -m analyses beta_kappa {finished.path}")
        show(f"  python -m analyses all {finished.path}")
    if finished.failure:
        say(f"failed: {one_line(finished.failure)}")
    return FAILED if finished.failure else 0


def construct_one(options: argparse.Namespace) -> int:
    say_loading("torch and TransformerLens")
    import interp as ip

    if options.out.exists() or options.out.is_symlink():
        raise ValueError(f"{options.out}: already there; choose another --out")
    model = ip.construct(
        order=options.order, vocab=options.vocab, length=options.length, beta=options.beta, kappa=options.kappa
    )
    ip.save(model, options.out)
    if options.json:
        print(json.dumps({"path": str(options.out), "beta": options.beta, "kappa": options.kappa}))
    else:
        show(f"{options.out}: construction of order {options.order}, |V| = {options.vocab}, T = {options.length}")
    return 0


def sweep_study(options: argparse.Namespace) -> int:
    from models.training.sweep import check_sweep_target, load_study, sweep

    out = options.out or CHECKPOINTS
    runs = load_study(options.study, studies=STUDIES, out=out)
    if not options.dry_run and not options.overwrite:
        check_sweep_target(out, runs)
    if options.only:
        runs = [run for run in runs if options.only in run.name]
        if not runs:
            raise ValueError(f"no run of {options.study} has {shown(options.only)} in its name")
    if options.without:
        runs = [run for run in runs if options.without not in run.name]
        if not runs:
            raise ValueError(f"every run of {options.study} that is left has {options.without!r} in its name")
    return sweep(
        runs,
        engine=options.engine,
        address=options.address,
        jobs=options.jobs,
        save_seconds=options.save_seconds,
        dry_run=options.dry_run,
        as_json=options.json,
    )


def show_zoo(options: argparse.Namespace) -> int:
    from models.running.zoo import zoo_command

    return zoo_command(options.checkpoints, write=options.write, as_json=options.json, overwrite=options.overwrite)


def _attach_negative_lists(argv: list[str]) -> list[str]:
    """Turn `--beta -5,5` into `--beta=-5,5`: argparse would take a list that begins with a minus for an option."""
    attached: list[str] = []
    for word in argv:
        if attached and re.fullmatch("--[a-z]+", attached[-1]) and re.match(r"-[\d.][^,]*,", word):
            attached[-1] += f"={word}"
        else:
            attached.append(word)
    return attached
