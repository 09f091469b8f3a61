"""`make reproduce`: every analysis of the plan, every figure, and the page that sets them beside the paper's claims."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time

from analyses import plan
from analyses.command import BAD_INPUT, FAILED, OK, Entry, say
from analyses.report import check_document_target
from figures import door, drawing, page


def reproduce(entries: dict[str, Entry], options: argparse.Namespace) -> int:
    """Run the plan, write the tables, draw the figures, write the page; returns the exit code."""
    start = time.monotonic()
    plan.check_zoo(plan.PLAN, options.checkpoints)
    for name in plan.PLAN:
        check_document_target(options.out / f"{name}.json", key="analysis", name=name, overwrite=options.overwrite)
    page.check_target(options.out / page.FILE, overwrite=options.overwrite)
    pictures = argparse.Namespace(**{**vars(options), "out": options.out / "figures", "results": options.out})
    pictures.format = tuple(dict.fromkeys([*options.format, "png"]))  # the page shows PNGs
    for entry in entries.values():
        drawing.check_figure_target(entry, pictures)

    say(f"== analyses, of the checkpoints below {options.checkpoints}")
    with contextlib.redirect_stdout(sys.stderr):
        documents = plan.run_plan(plan.PLAN, zoo=options.checkpoints, cache=options.cache, jobs=options.jobs)
    plan.write_documents(documents, options.out)
    failures = [f"{name}: {line}" for name, document in documents.items() for line in document["failures"]]
    errors = [error["error"] for document in documents.values() for error in document.get("errors", [])]

    say(f"== figures, into {pictures.out}")
    _, undrawn = door.draw_all(list(entries.values()), pictures)
    written = page.write(options.out, entries, documents)
    for line in failures:
        say(f"failed: {line}")
    seconds = time.monotonic() - start
    print(page.verdict_table(options.out, entries))
    print(f"\n{written}: {len(entries)} figures, {len(documents)} analyses, {seconds:.0f} s.")
    if errors or undrawn:
        return BAD_INPUT
    return FAILED if failures else OK
