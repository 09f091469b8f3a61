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


def on_page_content(content: str, **_: Any) -> str:
    return FORMULA.sub(_mathml, content)


def _mathml(found: re.Match[str]) -> str:
    latex = html.unescape(found["latex"]).strip()
    display = "block" if found["open"] == "[" else "inline"
    # Bars that open and close are spaced as fences, and what a displayed sum or limit runs over belongs below it.
    prepared = latex.replace(r"\lvert", r"\left|").replace(r"\rvert", r"\right|")
    if display == "block":
        prepared = re.sub(r"\\(sum|lim|inf)_", r"\\\1\\limits_", prepared)
    formula = convert(prepared, display=display)
    if "\\" in re.sub(r"<[^>]*>", "", formula):
        raise ValueError(f"a formula holds a command that does not convert: {latex}")
    # The text stays beside the formula: for readers that show no MathML, and for copying.
    label = html.escape(latex, quote=True)
    return formula.replace("<math ", f'<math aria-label="{label}" ', 1)
