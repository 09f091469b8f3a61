"""Help texts that fit a terminal: docstrings are written for 120 columns, terminals often have 80."""

from __future__ import annotations

import argparse
import re
import textwrap

from models.running.terminal import page_width

# A line of a list, such as "    python -m models    what there is": a name, two spaces or more, and what it means.
ITEM = re.compile(r"(?P<name>\s*\S+(?: \S+)*) {2,}(?P<text>\S.*)")
BESIDE = 0.45  # largest share of the width for names; the text of a longer name goes below it


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Keeps the paragraphs, lists and examples of a description, within the terminal's width."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return textwrap.indent(reflowed(text, width), indent)


def reflowed(text: str, width: int | None = None) -> str:
    """The text in lines of at most `width`. Paragraphs are refilled; of lists, only the lines that are too long.

    >>> print(reflowed("one two three four\\n\\n  a    what a is, in words", width=16))
    one two three
    four
    <BLANKLINE>
      a    what a
           is, in
           words
    """
    width = page_width() if width is None else width
    blocks = re.split(r"\n{2,}", text.strip("\n"))
    return "\n\n".join(_block(block.split("\n"), width) for block in blocks)


def _block(lines: list[str], width: int) -> str:
    if max(map(len, lines)) <= width:
        return "\n".join(lines)
    if not any(line.startswith(" ") or ITEM.fullmatch(line) for line in lines):
        return textwrap.fill(" ".join(lines), width, break_long_words=False, break_on_hyphens=False)
    return "\n".join(part for line in _joined(lines) for part in _line(line, width))


def _joined(lines: list[str]) -> list[str]:
    """The lines of a list, each with the lines that go on below its text."""
    joined: list[str] = []
    column = -1
    for line in lines:
        if joined and column > 0 and len(line) - len(line.lstrip()) == column:
            joined[-1] += f" {line.strip()}"
            continue
        joined.append(line)
        found = ITEM.fullmatch(line)
        column = found.start("text") if found else -1
    return joined


def _line(line: str, width: int) -> list[str]:
    if len(line) <= width:
        return [line]
    start = line[: len(line) - len(line.lstrip())]
    found = ITEM.fullmatch(line)
    if found is None:
        return _wrapped(line.strip(), width, first=start, then=f"{start}    ")
    column = found.start("text")
    if column <= BESIDE * width:
        return _wrapped(found["text"], width, first=line[:column], then=" " * column)
    below = f"{start}    "
    return [found["name"], *_wrapped(found["text"], width, first=below, then=below)]


def _wrapped(text: str, width: int, *, first: str, then: str) -> list[str]:
    return textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=then, break_long_words=False, break_on_hyphens=False
    )
