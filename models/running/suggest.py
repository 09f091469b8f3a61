"""Names that a user may have meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

CHOICE = re.compile(r"invalid choice: '(?P<given>[^']*)' \(choose from (?P<known>.*)\)")


def unknown(what: str, given: str, known: Iterable[str]) -> str:
    """The error message for an unknown name: with the most similar known name, or else with all of them.

    >>> unknown("analysis", "beta_kapa", ["attention", "beta_kappa"])
    "no analysis 'beta_kapa'; did you mean beta_kappa?"
    >>> unknown("analysis", "xyz", ["attention", "beta_kappa"])
    "no analysis 'xyz'; there are attention, beta_kappa"
    """
    names = list(known)
    near = nearest(given, names)
    return f"no {what} {given!r}; " + (f"did you mean {near}?" if near else f"there are {', '.join(names)}")


def nearest(given: str, known: Iterable[str]) -> str:
    """The known names that are most similar to the given one, or begin with it; empty if there are none."""
    names = list(known)
    near = difflib.get_close_matches(given, names, n=2) or [name for name in names if given and name.startswith(given)]
    return " or ".join(near[:3])


def with_suggestion(message: str, *, options: Iterable[str] = ()) -> str:
    """argparse's message; for a refused choice or option, with the most similar known one.

    >>> with_suggestion("argument --family: invalid choice: 'standart' (choose from 'construction', 'standard')")
    "argument --family: no choice 'standart'; did you mean standard?"
    >>> with_suggestion("unrecognized arguments: --sed 3", options=["--seed", "--batch"])
    'unrecognized arguments: --sed 3; did you mean --seed?'
    """
    found = CHOICE.search(message)
    if found is not None:
        near = nearest(found["given"], re.findall(r"[\w.-]+", found["known"]))
        shown = f"no choice {found['given']!r}; did you mean {near}?"
        return message.replace(found[0], shown) if near else message
    _, refused, given = message.partition("unrecognized arguments: ")
    near = nearest(given.split()[0], options) if refused and given.startswith("--") else ""
    return f"{message}; did you mean {near}?" if near else message
