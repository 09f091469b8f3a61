"""What the theme leaves without a name or a place for the keyboard, and options, which it breaks at any hyphen."""

from __future__ import annotations

import re
from typing import Any

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
CODE = re.compile(r"<code\b.*?</code>", re.DOTALL)
OPTION = re.compile(r"(?<![\w-])--[\w-]+")


def on_post_page(output: str, **_: Any) -> str:
    for pattern, replacement in REPLACED:
        output = re.sub(pattern, replacement, output)
    # A line may not end at the hyphens of an option.
    return CODE.sub(lambda code: OPTION.sub(r'<span class="whole">\g<0></span>', code[0]), output)
