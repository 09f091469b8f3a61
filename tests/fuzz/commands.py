"""Command lines of the three packages, made of their own options and odd words."""

from __future__ import annotations

import argparse
import functools
from types import SimpleNamespace
from typing import Any

import click
from hypothesis import strategies as st

from tests.fuzz.room import Sandbox, run_command
from tests.fuzz.values import NUMBER_TEXTS, PATHS, one_in, texts

Case = tuple[str, list[str]]


@functools.cache
def vocabulary() -> dict[str, list[tuple[list[str], list[argparse.Action]]]]:
    """For each package the beginnings of its command lines, with the options that may follow."""
    from analyses.running import cli as analyses
    from figures.running.cli import door
    from models.running.cli import models

    found: dict[str, list[tuple[list[str], list[argparse.Action]]]] = {"models": [], "analyses": [], "figures": []}
    found["models"] += [
        ([name], [action_of(one) for one in command.params]) for name, command in models.commands.items()
    ]
    for entry in (*analyses.entries().values(), analyses.ALL):
        found["analyses"].append(([entry.name], analyses.make_parser(entry)._actions))
    figures = door()
    for name, entry in figures.entries.items():
        found["figures"].append(([name], [action_of(one) for one in figures.make(entry).params]))
    return found


def action_of(one: click.Parameter) -> Any:
    """What argparse would know of a parameter."""
    flag = getattr(one, "is_flag", False)
    return SimpleNamespace(
        option_strings=[] if isinstance(one, click.Argument) else list(one.opts),
        nargs=0 if flag else "+" if one.multiple else None,
        type=str if one.type is click.STRING else one.type,
        choices=getattr(one.type, "choices", None),
        dest=one.name,
        required=one.required,
    )


GOOD_VALUES = {
    "checkpoints": ("ckpt", "zoo"),
    "CKPT": ("ckpt", "zoo/one"),
    "model": ("ckpt", "mine.py:build"),
    "results": ("results",),
    "out": ("made", "folder/new", "a/deep/place"),
    "csv": ("made.csv",),
    "cache": ("kept",),
    "spec": ("spec.json",),
    "study": ("smoke", "study.toml"),
    "prior": ("hierarchical:5", "independent:1", "hierarchical:5,5"),
    "format": ("png", "pdf,svg"),
    "beta": ("2.7,1.2", "1", "1,1"),
}


def good_values(action: argparse.Action) -> list[str]:
    """Values that the option takes, mostly."""
    if action.choices:
        return [str(one) for one in action.choices]
    return list(GOOD_VALUES.get(action.dest, ("1", "2", "3", "8", "0.5")))


@st.composite
def option(draw: st.DrawFn, action: argparse.Action) -> list[str]:
    """An option with as many values as it takes, mostly."""
    words = [action.option_strings[-1]] if action.option_strings else []
    if action.nargs == 0:
        return words
    if not draw(one_in(3)):  # so that most command lines are not refused at once
        value = st.sampled_from(good_values(action))
    elif isinstance(action.type, type) or action.type is None:
        value = texts()
    else:
        value = st.one_of(texts(), st.sampled_from(NUMBER_TEXTS), st.sampled_from(PATHS))
    several = action.nargs in ("+", "*")
    return [*words, *draw(st.lists(value, min_size=1, max_size=3 if several else 1))]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A package and a command line of it."""
    package = draw(st.sampled_from(["models", "models", "analyses", "figures"]))
    if draw(one_in(20)):
        return package, draw(st.lists(texts(), max_size=4))
    beginning, actions = draw(st.sampled_from(vocabulary()[package]))
    takes = [one for one in actions if "--help" not in one.option_strings]
    argv = list(beginning)
    for action in draw(st.lists(st.sampled_from(takes), max_size=5)):
        argv += draw(option(action))
    required = [one for one in takes if one.required and not {*one.option_strings} & {*argv}]
    for action in required:
        if not draw(one_in(10)):
            argv += draw(option(action))
    return package, argv


def main_of(package: str) -> Any:
    """The package's command line."""
    if package == "models":
        from models.running.cli import main

        return main
    if package == "analyses":
        from analyses.running.cli import main as analyses_main

        return analyses_main
    from figures.running.cli import main as figures_main

    return figures_main


def run(case: Case, sandbox: Sandbox) -> str:
    """Run the command line in the sandbox."""
    package, argv = case
    try:
        return f"{package}: {run_command(main_of(package), argv, sandbox)}"
    finally:
        sandbox.check()
