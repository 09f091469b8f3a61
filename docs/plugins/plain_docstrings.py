"""The docstrings of `interp` as Markdown.

They are written to be read in an editor: plain text with names in backticks, indented blocks for code and tables, and
lists of `name   meaning` with the meanings aligned. Taken for Markdown, `N_[k](m)` would be a link and an aligned list
one long line. This Griffe extension translates them; names of the package and labels of the paper become links.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

from griffe import Alias, Extension, Module, Object

CONCEPTS = Path(__file__).parent.parent / "concepts"
LABEL = re.compile(r"\b(?:eq|prop|lemma|corollary|theorem|def|sec|app|fig):\w+(?:-\w+)*")
CODE = re.compile(r"`[^`]+`")
ENTRY = re.compile(r"(?P<name>\S+(?: \S+)*)\s{2,}(?P<meaning>\S.*)")
NAMES = re.compile(r"\*?\w+(?:, \w+)*(?: : .+)?")  # an entry whose meaning stands on the next line, or elsewhere
RULE = re.compile(r"-{3,}")  # below the name of a section, as in numpy's docstrings
PAGE = re.compile(r"docs/concepts/(\w+)\.md")
SPECIAL = re.compile(r"[\\*_\[\]<>$#|]")
NO_ESCAPE = {"<": "&lt;", "|": "&#124;", "$": "&#36;"}  # Markdown has no backslash escape for these


def plain(text: str) -> str:
    """The text with every character that Markdown would read as a mark escaped."""
    return SPECIAL.sub(lambda found: NO_ESCAPE.get(found[0], f"\\{found[0]}"), text)


class PlainDocstrings(Extension):
    """Rewrites every docstring once its package is loaded."""

    def on_package(self, *, pkg: Module, **_: Any) -> None:
        names = {
            name: f"{module.path}.{name}"
            for module in pkg.modules.values()
            for name, member in module.members.items()
            if not member.is_alias and not name.startswith("_") and (member.is_function or member.is_class)
        }
        names |= {module.name: module.path for module in pkg.modules.values()}
        _rewrite(pkg, Translator(links=names, labels=concept_labels()))


def concept_labels() -> set[str]:
    """The labels that the pages of concepts have an anchor for."""
    text = "".join(page.read_text(encoding="utf-8") for page in CONCEPTS.glob("*.md"))
    return set(re.findall(r"\{ *#([a-z]+:[\w-]+) *\}", text))


def _rewrite(item: Object, translator: Translator) -> None:
    if item.docstring is not None:
        # An argument or a field may be called like a function; in its own docstring the word means the argument.
        own = {parameter.name for parameter in getattr(item, "parameters", ())} | set(item.members)
        item.docstring.value = translator.markdown(item.docstring.value, own=own)
    for member in item.members.values():
        if not isinstance(member, Alias):
            _rewrite(member, translator)


class Translator:
    """Plain text to Markdown, with `links` from names to objects and `labels` that the pages of concepts explain."""

    def __init__(self, *, links: dict[str, str], labels: set[str]) -> None:
        self.links, self.labels = links, labels
        self.own: set[str] = set()

    def markdown(self, text: str, *, own: set[str]) -> str:
        self.own = own
        blocks = re.split(r"\n\s*\n", inspect.cleandoc(text))
        return "\n\n".join(self.block(block.split("\n")) for block in blocks)

    def block(self, lines: list[str]) -> str:
        """One paragraph: a section, code, a list of entries, a heading with an indented list, or prose."""
        if len(lines) > 2 and RULE.fullmatch(lines[1]):
            named = any(NAMES.fullmatch(line) for line in lines[2:]) and any(line.startswith(" ") for line in lines[2:])
            return f"**{lines[0]}**\n\n{self.entries(lines[2:]) if named else self.block(lines[2:])}"
        if lines[0].startswith(">>>"):
            return code(lines)
        if lines[0].startswith(" "):
            return self.indented(lines)
        sentence = lines[0].endswith(".") and not (len(lines) > 1 and ENTRY.fullmatch(lines[1]))
        if ENTRY.fullmatch(lines[0]) and not sentence:
            return self.entries(lines)
        rest = lines[1:]
        if rest and all(line.startswith("    ") for line in rest):
            return f"{self.prose(lines[0])}\n\n{self.indented(rest)}"
        return self.prose(" ".join(lines))

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
        found: list[tuple[str, str]] = []
        for line in lines:
            parts = re.split(r"\s{2,}", line.strip())
            if line.startswith(" ") or (len(parts) == 1 and not NAMES.fullmatch(line)):
                found[-1] = (found[-1][0], f"{found[-1][1]} {' '.join(parts)}".strip())
            elif len(parts) == 1:
                found.append((line, ""))
            elif len(parts) % 2 == 0:
                found += [(name, meaning) for name, meaning in zip(parts[::2], parts[1::2], strict=True)]
            else:
                found.append((parts[0], " ".join(parts[1:])))
        return "\n\n".join(f"`{name}`\n:   {self.prose(meaning) or '&nbsp;'}" for name, meaning in found)

    def prose(self, text: str) -> str:
        """Escaped text; code stays as it is, and what can be linked is."""
        pieces, end = [], 0
        for found in CODE.finditer(text):
            pieces += [self.plain(text[end : found.start()]), self.linked(found[0])]
            end = found.end()
        return "".join([*pieces, self.plain(text[end:])])

    def plain(self, text: str) -> str:
        pieces, end = [], 0
        for found in LABEL.finditer(text):
            pieces.append(plain(text[end : found.start()]))
            label = found[0]
            pieces.append(f"[`{label}`][{label}]" if label in self.labels else f"`{label}`")
            end = found.end()
        return PAGE.sub(titled, "".join([*pieces, plain(text[end:])]))

    def linked(self, quoted: str) -> str:
        name = quoted.strip("`")
        if name in self.own or name not in self.links:
            return quoted
        # Optional: a name that no page documents stays plain.
        return f'<autoref optional identifier="{self.links[name]}"><code>{name}</code></autoref>'


def titled(found: re.Match[str]) -> str:
    """A link to the page by its title, whose anchor is the title in small letters."""
    title = (CONCEPTS / f"{found[1]}.md").read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
    return f"[{title}][{'-'.join(re.findall(r'[a-z]+', title.lower()))}]"


def code(lines: list[str]) -> str:
    """A fenced block, so that nothing in it is taken for markup."""
    body = "\n".join(lines)
    language = "pycon" if body.startswith(">>>") else "text"
    return f"```{language}\n{body}\n```"
