"""Pages from Jinja2 templates. Every value is escaped, and a page runs and shows only what is inside it.

What a page says of results and checkpoints may be a stranger's text. So its policy (Content-Security-Policy) names the
page's one script and one style by their digests and allows pictures that are inside the file or beside it, and nothing
else; scripts may not read text as markup (`require-trusted-types-for`).
"""

from __future__ import annotations

import base64
import functools
import hashlib
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from interp.outside import printable


def render(template: str, *, mark: str, style: str, script: str, **values: Any) -> str:
    """The page of a template in this package; `mark`, `style` and `script` are ours and stay as they are."""
    policy = (
        f"default-src 'none'; script-src {digest(script)}; style-src {digest(style)}; img-src data: 'self'; "
        "base-uri 'none'; form-action 'none'; object-src 'none'; require-trusted-types-for 'script'; "
        "trusted-types 'none'"
    )
    ours = {"mark": Markup(mark), "style": Markup(style), "script": Markup(script), "policy": policy}
    return _environment().get_template(template).render(**values, **ours)


def digest(text: str) -> str:
    """A script or style as a policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@functools.cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        finalize=lambda value: printable(value) if type(value) is str else value,  # a `Markup` is ours
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    # For `tojson`, which writes <, > and & as \u003c, \u003e and \u0026, so that no text ends the script it stands in.
    made.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return made
