"""The docstrings of `interp` as HTML.

They are written to be read in an editor: plain text with names in backticks, indented blocks for code and tables, and
lists of `name   meaning` with the meanings aligned. Taken for Markdown, `N_[k](m)` would be a link and an aligned list
one long line. This Griffe extension translates them; names of the package and labels of the paper become links.
"""

from __future__ import annotations

import html
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from griffe import Alias, Extension, Module, Object

ROOT = Path(__file__).resolve().parents[2]
LABEL = re.compile(r"\b(?:eq|prop|lemma|corollary|theorem|def|sec|app|fig):\w+(?:-\w+)*")
PAGE = re.compile(r"docs/concepts/\w+\.md")
LINKED = re.compile(rf"`[^`]+`|{LABEL.pattern}|{PAGE.pattern}")
ENTRY = re.compile(r"(?P<name>\S+(?: \S+)*)\s{2,}(?P<meaning>\S.*)")
NAMES = re.compile(r"\*?\w+(?:, \w+)*(?: : .+)?")  # an entry whose meaning stands on the next line, or elsewhere
RULE = re.compile(r"-{3,}")  # below the name of a section, as in numpy's docstrings


class PlainDocstrings(Extension):
    """Rewrites every docstring once its package is loaded."""

    def on_package(self, *, pkg: Module, **_: Any) -> None:
        every = list(objects(pkg))
        links = {one.name: one.path for one in every if (one.is_class or one.is_function) and one.parent.is_module}
        for one in every:
            if one.docstring is not None:
                # An argument or a field may be called like a function; in its own docstring it is no link.
                own = {parameter.name for parameter in getattr(one, "parameters", ())} | set(one.members)
                known = {name: path for name, path in links.items() if name not in own}
                one.docstring.value = Translator(known).markdown(one.docstring.value)


def objects(item: Object) -> Iterator[Object]:
    """The object and all below it."""
    yield item
    for member in item.members.values():
        if not isinstance(member, Alias):
            yield from objects(member)


class Translator:
    """Plain text to HTML, and code to Markdown, with `links` from names to objects."""

    def __init__(self, links: dict[str, str]) -> None:
        self.links = links

    def markdown(self, text: str) -> str:
        blocks = re.split(r"\n\s*\n", inspect.cleandoc(text))
        return "\n\n".join(self.block(block.split("\n")) for block in blocks)

    def block(self, lines: list[str]) -> str:
        """One paragraph: a section, code, a list of entries, a heading with an indented list, or prose."""
        if len(lines) > 2 and RULE.fullmatch(lines[1]):
            named = any(NAMES.fullmatch(line) for line in lines[2:]) and any(line.startswith(" ") for line in lines[2:])
            rest = self.entries(lines[2:]) if named else self.block(lines[2:])
            return f"<p><strong>{lines[0]}</strong></p>\n\n{rest}"
        if lines[0].startswith(">>>"):
            return code(lines)
        if lines[0].startswith(" "):
            return self.indented(lines)
        sentence = lines[0].endswith(".") and not (len(lines) > 1 and ENTRY.fullmatch(lines[1]))
        if ENTRY.fullmatch(lines[0]) and not sentence:
            return self.entries(lines)
        if lines[1:] and all(line.startswith("    ") for line in lines[1:]):
            return f"<p>{self.prose(lines[0])}</p>\n\n{self.indented(lines[1:])}"
        return f"<p>{self.prose(' '.join(lines))}</p>"

    def indented(self, lines: list[str]) -> str:
        """A list of entries if all lines are entries or go on with one, else code or a formula."""
        lines = inspect.cleandoc("\n" + "\n".join(lines)).split("\n")
        heads = [line for line in lines if not line.startswith(" ")]
        found = [ENTRY.fullmatch(line) for line in heads if not NAMES.fullmatch(line)]
        if found and all(one and " = " not in one["name"] and not one["meaning"].startswith("#") for one in found):
            return self.entries(lines)
        return code(lines)

    def entries(self, lines: list[str]) -> str:
        """`name   meaning`, where further lines go on with the meaning and some hold two entries side by side."""
        found: list[list[str]] = []
        for line in lines:
            parts = re.split(r"\s{2,}", line.strip())
            if line.startswith(" ") or (len(parts) == 1 and not NAMES.fullmatch(line)):
                found[-1] += parts
            elif len(parts) % 2 == 0:
                found += [[name, meaning] for name, meaning in zip(parts[::2], parts[1::2], strict=True)]
            else:
                found.append(parts)
        rows = [(html.escape(name), self.prose(" ".join(meaning))) for name, *meaning in found]
        return f"<dl>{''.join(f'<dt><code>{name}</code></dt><dd>{meaning}</dd>' for name, meaning in rows)}</dl>"

    def prose(self, text: str) -> str:
        """Escaped text; what no page documents (`optional`) stays plain."""
        return LINKED.sub(self.link, html.escape(text, quote=False))

    def link(self, found: re.Match[str]) -> str:
        if PAGE.fullmatch(found[0]):  # by its title, whose anchor is the title in small letters
            title = (ROOT / found[0]).read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
            return f'<autoref identifier="{"-".join(re.findall("[a-z]+", title.lower()))}">{title}</autoref>'
        name = found[0].strip("`")
        words = f"<code>{name}</code>"
        target = self.links.get(name) if found[0] != name else name
        return f'<autoref optional identifier="{target}">{words}</autoref>' if target else words


def code(lines: list[str]) -> str:
    """A fenced block, so that nothing in it is taken for markup."""
    language = "pycon" if lines[0].startswith(">>>") else "text"
    return "\n".join([f"```{language}", *lines, "```"])
