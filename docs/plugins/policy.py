"""A policy (Content-Security-Policy) in every page: it runs the scripts of the site and of the theme, and no other.

The theme has a few scripts inside its pages, around the text; the policy names them by their digests. A script in the
text itself, say in a finding of the gallery, does not run. `mkdocs serve` adds a script of its own to each page, so
that its pages go without a policy.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any, Literal

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)
TEXT = re.compile(r"<article.*</article>", re.DOTALL)
PLACE = '<meta charset="utf-8">'
sys.path.insert(0, str(ROOT))  # mkdocs does not put the checkout on the path
serving = False


def on_startup(*, command: Literal["build", "gh-deploy", "serve"], **_: Any) -> None:
    global serving
    serving = command == "serve"


def on_post_page(output: str, **_: Any) -> str:
    from figures.page.templates import digest

    if serving:
        return output
    if PLACE not in output:
        raise ValueError(f"the theme's pages have no {PLACE}, after which their policy goes")
    own = " ".join(digest(script) for script in SCRIPT.findall(TEXT.sub("", output)))
    policy = (
        f"default-src 'none'; script-src 'self' {own}; worker-src 'self'; connect-src 'self'; "
        "style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self'; base-uri 'none'; form-action 'none'"
    )
    return output.replace(PLACE, f'{PLACE}<meta http-equiv="Content-Security-Policy" content="{policy}">', 1)
