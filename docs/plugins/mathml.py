"""Formulas as MathML when the site is built, so that pages need no script and no network to show them.

`pymdownx.arithmatex` finds the formulas; this hook replaces what it leaves for a script to do. A formula that does not
convert stops the build.
"""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert

FORMULA = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\(?P<open>[(\[])(?P<latex>.*?)\\[)\]]</(?P=tag)>', re.DOTALL
)
SPACE = '<mspace width="0.167em" />'
REPAIRED = (  # what the converter gets wrong, in the order in which it is set right
    (r"<mi>&#x0007E;</mi>", "<mo>&#x0223C;</mo>"),  # "is distributed as" is a relation, with space around it
    (r"<mi>(&#x0007[BD];)</mi>", r'<mo stretchy="false">\1</mo>'),  # braces
    (r'</mi><mi mathvariant="normal">(?=\w</mi>)', ""),  # a word is one name,
    (r'<mi mathvariant="normal">(?=\w{2,}<)', "<mi>"),  # and upright as it is
    (r"(<mi>(?:ln|log)</mi>)(?!<mo[^>]*>&#x00028;)", rf"\1{SPACE}"),
    (r"(</m(?:i|sub|sup)>|&#x00029;</mo>)(?=<mi>(?:ln|log)</mi>)", rf"\1{SPACE}"),
)


def on_page_content(content: str, **_: Any) -> str:
    return FORMULA.sub(_mathml, content)


def _mathml(found: re.Match[str]) -> str:
    latex = html.unescape(found["latex"]).strip()
    display = "block" if found["open"] == "[" else "inline"
    # Bars that open and close are spaced as fences, and what a displayed sum or limit runs over belongs below it.
    prepared = paired_bars(latex).replace(r"\lvert", r"\left|").replace(r"\rvert", r"\right|")
    if display == "block":
        prepared = re.sub(r"\\(sum|lim|inf)_", r"\\\1\\limits_", prepared)
    formula = convert(prepared, display=display)
    for pattern, replacement in REPAIRED:
        formula = re.sub(pattern, replacement, formula)
    if "\\" in re.sub(r"<[^>]*>", "", formula):
        raise ValueError(f"a formula holds a command that does not convert: {latex}")
    # The text stays beside the formula: for readers that show no MathML, and for copying.
    label = html.escape(latex, quote=True)
    return formula.replace("<math ", f'<math aria-label="{label}" ', 1)


def paired_bars(latex: str) -> str:
    """Plain bars, as notebooks write them, as bars that open and close."""
    pieces = re.split(r"(?<!\\)(?<!\\left)(?<!\\right)\|", latex)
    if len(pieces) % 2 == 0:  # one of them has no partner
        return latex
    bars = [r"\lvert ", r"\rvert "] * (len(pieces) // 2) + [""]
    return "".join(piece + bar for piece, bar in zip(pieces, bars, strict=True))
