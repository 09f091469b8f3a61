"""What the three command lines share, on click: kinds of values, options from a dataclass, and how a command ends.

    @dataclass(frozen=True, kw_only=True)
    class Options:
        source: Literal["scores", "pattern"] = option("scores", "what to read (default: %(default)s)")
        within: int = option(5, "tokens (default: %(default)s)", least=1)

    command = Command("NAME", params=parameters(Options), callback=...)       NAME --source pattern --within 3
    sys.exit(run(lambda: command, argv))

The annotation says how an option is read: `bool` is a switch, `Literal` a choice, `tuple[X, ...]` takes several values,
an `int` is a whole number of at least `least`. A field that is `positional` is given without a flag.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import math
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import click

from interp.outside import as_path, one_line
from models.running.interrupt import INTERRUPTED
from models.running.terminal import discard_output, error_line, page_width, say

OK, FAILED, BAD_INPUT, READER_GONE = 0, 1, 2, 141
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
ITEM = re.compile(r"\s*\S+(?: \S+)* {2,}(?=\S)")  # of a list: a name, two spaces or more, and what it means

Kind = TypeVar("Kind")


class BadInput(click.ClickException):
    """Bad input from the user; the message is one line that says what is wrong."""


# ---- kinds of values


class PathOf(click.ParamType):
    """A path that a file system can hold."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        try:
            return as_path(value)
        except ValueError as error:
            self.fail(one_line(error), param, ctx)


class Whole(click.IntRange):
    """A whole number within limits."""

    name = "n"


class Finite(click.FloatRange):
    """A finite number."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is no finite number.", param, ctx)
        return number


class Listed(click.ParamType):
    """Values of one kind with commas between them."""

    name = "list"

    def __init__(self, kind: click.ParamType) -> None:
        self.kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[Any, ...]:
        parts = value.split(",") if isinstance(value, str) else value
        return tuple(self.kind.convert(part, param, ctx) for part in parts)


PATH = PathOf()
NUMBER = Finite()
POSITIVE = Finite(min=0, min_open=True)


# ---- options from a dataclass


def option(
    default: Any,
    text: str,
    *,
    metavar: str | None = None,
    least: int | None = None,
    positional: bool = False,
    kind: click.ParamType | None = None,
) -> Any:
    """A field of an options class. `%(default)s` in the text stands for the default; `kind` replaces the annotation."""
    words = {"help": text, "metavar": metavar, "least": least, "positional": positional, "kind": kind}
    return dataclasses.field(default=default, metadata=words)


def parameters(options: type) -> list[click.Parameter]:
    """The parameters of a command, one for each field of a dataclass of options."""
    hints = get_type_hints(options)
    return [_parameter(field, hints[field.name]) for field in dataclasses.fields(options)]


def read(options: type[Kind], given: Mapping[str, Any]) -> Kind:
    """The options of this class among what a command was given."""
    names = {field.name for field in dataclasses.fields(options)}  # type: ignore[arg-type]
    return options(**{name: value for name, value in given.items() if name in names})


def _parameter(field: dataclasses.Field[Any], hint: Any) -> click.Parameter:
    words = field.metadata
    if NoneType in get_args(hint):
        (hint,) = (inner for inner in get_args(hint) if inner is not NoneType)
    several = get_origin(hint) is tuple and words["kind"] is None
    inner = get_args(hint)[0] if several else hint
    kind = words["kind"] or _kind(inner, words["least"])
    several_or_default: Any = (lambda _, __, value: value or field.default) if several else None
    if words["positional"]:
        many: dict[str, Any] = {"nargs": -1, "callback": several_or_default} if several else {"default": field.default}
        metavar = f"[{words['metavar']}]..." if several else words["metavar"]
        return click.Argument([field.name], type=kind, required=False, metavar=metavar, **many)
    return click.Option(
        [f"--{field.name.replace('_', '-')}", field.name],
        default=field.default,
        type=None if inner is bool else kind,
        is_flag=inner is bool,
        multiple=several,
        callback=several_or_default,
        metavar=words["metavar"] if not several else f"{words['metavar'] or 'VALUE'} ...",
        help=words["help"].replace("%(default)s", shown(field.default)),
    )


def _kind(hint: Any, least: int | None) -> Any:
    """What click reads a value of this annotation as."""
    if get_origin(hint) is Literal:
        return click.Choice(get_args(hint))
    if hint is int:
        return Whole(least or 0)
    return {float: NUMBER, Path: PATH}.get(hint, hint)


def shown(default: Any) -> str:
    """A default as it would be typed."""
    if isinstance(default, tuple):
        return " ".join(map(shown, default))
    return f"{default:g}" if isinstance(default, float) else str(default)


# ---- commands


class Command(click.Command):
    """A command whose options may take several values: `--lengths 32 64` is `--lengths 32 --lengths 64`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        several = {flag for one in self.params if isinstance(one, click.Option) and one.multiple for flag in one.opts}
        words: list[str] = []
        flag = ""
        for word in args:
            if re.match(r"-\D", word):
                flag = word if word in several else ""
            elif flag and words[-1] != flag:
                words.append(flag)
            words.append(word)
        return super().parse_args(ctx, words)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One module of a package, as its source says: its marker and docstring; or one of several in a module."""

    name: str
    marker: str
    document: str
    module: str = ""

    @property
    def summary(self) -> str:
        """The docstring's first line."""
        return self.document.partition("\n")[0].rstrip(".")


def read_entries(folder: Path, *, marker: str) -> dict[str, Entry]:
    """What the modules in the folders of a package say at top level, by name.

    A module assigns a string to `marker`, or, where it holds several entries, {name: (string, summary)}.
    """
    found = [entry for file in folder.glob("*/*.py") for entry in _entries(file, file.read_text("utf-8"), marker)]
    return {entry.name: entry for entry in sorted(found, key=lambda entry: entry.name)}


@functools.cache  # keyed by the text: a process that runs many commands parses each file once
def _entries(file: Path, text: str, marker: str) -> list[Entry]:
    try:
        tree = ast.parse(text, filename=str(file))
    except SyntaxError as error:
        raise BadInput(f"{file.name} does not parse: {error}") from error
    module = f"{file.parent.name}.{file.stem}"
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(value))) if name == marker:
                document = ast.get_docstring(tree) or ""
                return [Entry(name=file.stem, marker=value, document=document, module=module)]
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Dict() as several) if name == marker:
                entries: dict[str, tuple[str, str]] = ast.literal_eval(several)
                return [
                    Entry(name=key, marker=value, document=summary, module=module)
                    for key, (value, summary) in entries.items()
                ]
    return []


class Door(click.Group):
    """The command line of a package. A command is made when it is asked for: listings and --help import none of them.

    entries   what there is
    make      makes the command of an entry
    page      what is printed where no command is given
    """

    def __init__(
        self,
        name: str,
        document: str,
        *,
        entries: Mapping[str, Entry],
        make: Callable[[Entry], click.Command],
        page: Callable[[], str],
    ) -> None:
        self.entries, self.make, self.page = entries, make, page
        unmade: Any = dict.fromkeys(entries)  # the names, for suggestions
        super().__init__(name, unmade, help=help_text(document), invoke_without_command=True, callback=self.show_page)

    def show_page(self) -> None:
        if click.get_current_context().invoked_subcommand is None:
            click.echo(self.page())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self.entries:
            return self.make(self.entries[cmd_name])
        if os.path.exists(cmd_name):
            path = one_line(cmd_name)
            raise BadInput(f"{path} is a path; a name comes first: {self.name} NAME {path}")
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write(f"\n{self.page()}\n")


def listing(rows: Iterable[tuple[str, str]]) -> str:
    """Names and what they mean, in two columns."""
    formatter = click.HelpFormatter(indent_increment=2, width=page_width())
    with formatter.indentation():
        formatter.write_dl([(one_line(name), one_line(text)) for name, text in rows], col_max=60)
    return formatter.getvalue().rstrip("\n")


def help_text(document: str) -> str:
    r"""A docstring for click, which fills paragraphs but not what stands after \b: lists and examples keep their lines.

    >>> help_text("What it does,\nin words.\n\n    a    what a is")
    'What it does,\nin words.\n\n\x08\n    a    what a is'
    """
    blocks = re.split(r"\n{2,}", document.strip("\n"))
    return "\n\n".join(_kept(block) if re.search("^ |  ", block, re.MULTILINE) else block for block in blocks)


def _kept(block: str) -> str:
    lines = []
    for line in block.split("\n"):
        item = ITEM.match(line)
        below = " " * (item.end() if item and item.end() < 0.6 * page_width() else 4 + len(line) - len(line.lstrip()))
        lines.append(textwrap.fill(line, page_width() - 2, subsequent_indent=below, break_long_words=False, tabsize=4))
    return "\b\n" + "\n".join(lines)


# ---- how a command ends


def run(
    door: Callable[[], click.Command], argv: Sequence[str] | None = None, *, refusals: tuple[type[Exception], ...] = ()
) -> int:
    """Make a command line and run it; returns its exit code.

    Bad input, a full disk or too little memory is one line on stderr and exit code 2, and so are the errors in
    `refusals`. Any other error is a bug, and keeps its traceback.
    """
    for name, value in ONE_THREAD.items():  # two threads on a busy machine of two cores can be 50 times slower than one
        os.environ.setdefault(name, value)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    with contextlib.suppress(AttributeError, OSError, ValueError):  # characters that the terminal's encoding lacks
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        code = _invoke(door(), list(sys.argv[1:] if argv is None else argv))
        print(end="", flush=True)  # a full disk or a closed pipe raises its error here at the latest
        return code
    except BrokenPipeError:  # the reader of the pipe, e.g. `head`, has closed it: end without a message
        discard_output()
        return READER_GONE
    except KeyboardInterrupt as stop:
        say("; ".join(("interrupted", *stop.args)))
        return INTERRUPTED
    except Exception as error:
        if not isinstance(error, (click.ClickException, OSError, MemoryError, *refusals)):
            raise
        say(_refusal(error))
        try:
            print(end="", flush=True)
        except OSError:
            discard_output()
        return BAD_INPUT


def _invoke(door: click.Command, argv: list[str]) -> int:
    try:
        with door.make_context(door.name, argv, terminal_width=page_width()) as context:
            return door.invoke(context) or OK
    except click.exceptions.Exit as end:  # --help
        return end.exit_code


def _refusal(error: BaseException) -> str:
    if not isinstance(error, click.ClickException):
        return error_line(error)
    line = f"error: {one_line(error.format_message())}"
    context = getattr(error, "ctx", None)
    return line if context is None or "Did you mean" in line else f"{line} (see {context.command_path} --help)"
