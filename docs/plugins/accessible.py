"""What the theme leaves without a name or a place for the keyboard, so that screen readers can tell its parts.

And code in sentences, which the theme breaks at any hyphen.
"""

from __future__ import annotations

import re
from typing import Any

SHORT = 28  # characters of code that is not broken into lines
REPLACED = (
    # The search box opens as a dialog, which needs a name.
    (r'(<div class="md-search" data-md-component="search" role="dialog")>', r'\1 aria-label="search">'),
    # Sections of the contents are named by number: their titles stand in the page, too.
    (r'(<nav class="md-nav" data-md-level="[1-9]" )aria-labelledby="__nav_([\d_]+)_label"', r'\1aria-label="part \2"'),
    # Parts of a page's own contents may have the same name, and the list around them is the landmark.
    (r'<nav class="md-nav" aria-label="[^"]*">', '<nav class="md-nav" role="none">'),
    # An anchor is no link.
    (r'<a href="" (id="[^"]*")></a>', r"<a \1></a>"),
    # A formula that is wider than the window scrolls, and must be reachable by keyboard.
    (r'<math (?=[^>]*display="block")', '<math tabindex="0" '),
    (r"<th></th>", "<td></td>"),
)
INLINE = re.compile(r"(?<!</span>)<code>([^<\n]+)</code>")
TYPED = re.compile(r'<div class="language-bash highlight">.*?</pre>', re.DOTALL)


def on_post_page(output: str, **_: Any) -> str:
    for pattern, replacement in REPLACED:
        output = re.sub(pattern, replacement, output)
    return TYPED.sub(lambda found: whole_options(found[0]), INLINE.sub(unbroken, output))


def unbroken(found: re.Match[str]) -> str:
    """Code in a sentence: in one line where it is short, else with its options whole."""
    short = len(found[1]) <= SHORT
    return f'<code class="whole">{found[1]}</code>' if short else f"<code>{whole_options(found[1])}</code>"


def whole_options(code: str) -> str:
    """A line may not end at the hyphens of an option."""
    return re.sub(r"(?<![\w-])(--[\w-]+)", r'<span class="whole">\1</span>', code)
