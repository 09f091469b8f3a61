"""Draw the figures from results: those of the paper, and others.

    python -m figures                                      what there is, a line each
    python -m figures kl_vs_position --out DIR             DIR/kl_vs_position.{pdf,png,json}
    python -m figures all --checkpoints runs --out DIR     every figure, of the checkpoints below a directory
    python -m figures all --results results --out DIR      every figure, from results made before
    python -m figures mech_main --size 16x11cm --dpi 600    another size, and --style FILE for a style sheet of yours
    python -m figures mech_main --protocol paper           the runs of the paper's protocol instead of the main ones
    python -m figures explorer --out results               results/explorer.html: models and estimators, live in a page
    python -m figures reproduce --out results              every analysis, every figure, both pages
    python -m figures claims --write docs/claims.md        the claims with their verdicts, from results

A figure draws results and computes nothing. A module of `figures.paper` or `figures.beyond` is a figure if it says
`LABEL = "fig:..."`; a module of several says {name: (label, summary)}, and has each in `FIGURES`. A figure names the
analyses whose results it draws in `ANALYSES`, each with the function that picks its rows, and the claims that it
illustrates in `CLAIMS` (`analyses.claims` judges them). `draw(results)` draws these rows, which results[analysis]
lists. `CAPTION` is a fixed text whose fields `fields(results)` fills in (by default `rows.setting_fields`).

Results come from --results DIR, as `python -m analyses NAME --out DIR` leaves them; without it the analyses are run on
the checkpoints below --checkpoints (`analyses.running.plan`), and what they find is kept in --cache, so that the second
run reads it. A panel without results is left out, with a warning.

Beside each picture lies a JSON file with its caption and claims, the numbers that were drawn, and where they come
from. Exit codes: 0 success, 1 a run is unfinished (it is named and left out), 2 bad input (one line on stderr; other
figures are still drawn).
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from figures.running.order import RESULTS, Order
from models.running.command_line import (
    BAD_INPUT,
    FAILED,
    OK,
    BadInput,
    Command,
    Door,
    Entry,
    help_text,
    listing,
    parameters,
    read,
    read_entries,
    run,
)
from models.running.terminal import page_width, say_loading, show

FOLDER = Path(__file__).parents[1]
EXTRA = {
    name: Entry(name=name, marker="", document=document)
    for name, document in (
        ("all", "Every figure."),
        ("explorer", "A page in which models of the zoo and the paper's estimators run live: explorer.html."),
        ("reproduce", "Every analysis of the plan, every figure, and index.html with the claims and our verdicts."),
        ("claims", "The claims with their verdicts, a line each, from the tables in results."),
    )
}
PAGES = ("explorer", "reproduce")  # written to results, not to results/figures
LOOK = {"size", "dpi", "style", "format"}
NO_OPTIONS = {"explorer": {*LOOK, "standalone"}, "reproduce": {"results", "size"}}  # of a figure: standalone


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    return run(door, arguments)


def door() -> Door:
    """The command line."""
    figures = read_entries(FOLDER, marker="LABEL")
    return Door(
        "python -m figures",
        __doc__ or "",
        entries={**figures, **EXTRA},
        make=lambda entry: make_command(entry, figures),
        page=lambda: page(figures),
    )


def page(figures: dict[str, Entry]) -> str:
    """A line for each figure; the paper's label only where the name does not say it."""
    rows = []
    for name, entry in figures.items():
        named = entry.marker in (f"fig:{name}", f"beyond:{name}")
        rows.append((name, entry.summary if named else f"{entry.summary} [{entry.marker}]"))
    more = (
        "`all` draws every one; `explorer` writes a page in which models run live; `reproduce` does all of it, runs "
        "every analysis and writes index.html; `claims` prints the table of claims from what it left. "
        "python -m figures NAME --help says more."
    )
    title = "figures (in brackets the paper's label, where it is another than the name):"
    return "\n".join([title, listing(rows), "", textwrap.fill(more, page_width())])


def make_command(entry: Entry, figures: dict[str, Entry]) -> click.Command:
    """The command of a figure, or one of `EXTRA`."""
    if entry.name == "claims":
        from figures.running.claims_table import claims

        return claims
    command = f"python -m figures {entry.name}"
    more = "--checkpoints runs --out runs/results" if entry.name in PAGES else "--results results --format pdf"
    return Command(
        entry.name,
        params=[one for one in parameters(Order) if one.name not in NO_OPTIONS.get(entry.name, {"standalone"})],
        help=help_text(entry.document),
        epilog=help_text(f"examples:\n  {command}\n  {command} {more}"),
        callback=lambda **given: perform(entry, read(Order, given), figures),
    )


def perform(entry: Entry, order: Order, figures: dict[str, Entry]) -> int:
    """Check where the files go, and write them."""
    from analyses.running.files import check_cache, check_directory, is_result

    order = replace(order, out=order.out or (RESULTS if entry.name in PAGES else order.place))
    if entry.name == "reproduce":
        order = replace(order, cache=order.cache or order.place / "cache")
    check_directory(order.place, ours=is_result, overwrite=order.overwrite)
    if order.results is None:
        check_cache(order.kept, overwrite=order.overwrite)
    os.environ.setdefault("MPLBACKEND", "Agg")
    say_loading("the analyses and their checkpoints")
    if entry.name == "reproduce":
        from figures.running.reproduce import reproduce

        return reproduce(figures, order)
    return explore(order) if entry.name == "explorer" else draw(entry, order, figures)


def draw(entry: Entry, order: Order, figures: dict[str, Entry]) -> int:
    """Draw a figure, or all."""
    from figures.parts.figure import load_figure
    from figures.running import drawing, sources

    chosen = list(figures.values()) if entry.name == "all" else [entry]
    unfinished = sources.say_left_out(order)
    needed = [name for one in chosen for name in load_figure(one.name).ANALYSES]
    documents = sources.documents_of(needed, order)
    if order.protocol is not None and entry.name != "all":
        sources.check_protocol(entry.name, documents, order.protocol)
    drawn, errors = drawing.draw_all(chosen, sources.of_protocol(documents, order.protocol), order)
    show("\n".join(str(file) for one in drawn for file in one.files))
    return BAD_INPUT if errors or _unread(documents) else FAILED if unfinished else OK


def explore(order: Order) -> int:
    """Write the explorer."""
    from figures.page.explorer import page as explorer
    from figures.running import drawing, sources

    explorer.check_target(order.place / explorer.FILE, overwrite=order.overwrite)
    unfinished = sources.say_left_out(order)
    documents = sources.documents_of([explorer.ANALYSIS], order)
    document = documents[explorer.ANALYSIS]
    if isinstance(document, BadInput):
        raise document
    with drawing.of_given_results("explorer", given=order.results is not None):
        show(explorer.write(order.place, document))
    return BAD_INPUT if _unread(documents) else FAILED if unfinished else OK


def _unread(documents: Any) -> bool:
    """Whether a checkpoint could not be read."""
    return any(not isinstance(document, BadInput) and document.errors for document in documents.values())
