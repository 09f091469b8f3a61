"""`make reproduce`: every analysis that has an `ASK`, every figure, and the page with the paper's claims beside them.

Results go from the analyses to the figures, and from both to the page, as values; what is written is for the reader and
for the next run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
import time
from typing import Any

from analyses.claims import document as claims
from analyses.running import plan
from analyses.running.command import BAD_INPUT, FAILED, OK, Entry, say, show
from analyses.running.documents import Document
from analyses.running.files import check_document_target, write_file
from figures.page import results as page
from figures.page.explorer import page as explorer
from figures.running import cli, drawing

TIMING_FILE = "timing.json"


def reproduce(entries: dict[str, Entry], order: cli.Order) -> int:
    """Run the analyses, write their tables, draw the figures, write the page; returns the exit code."""
    start = time.monotonic()
    asks = plan.shipped_asks()
    unfinished = cli.say_left_out(order)
    plan.check_zoo(asks, order.checkpoints, unfinished=order.unfinished)
    for name in (*asks, claims.NAME):
        check_document_target(order.out / f"{name}.json", key="analysis", name=name, overwrite=order.overwrite)
    page.check_target(order.out / page.FILE, overwrite=order.overwrite)
    explorer.check_target(order.out / explorer.FILE, overwrite=order.overwrite)
    pictures = dataclasses.replace(
        order,
        out=order.out / "figures",
        formats=tuple(dict.fromkeys([*order.formats, "png"])),  # the page shows PNGs
    )
    for name in entries:
        drawing.check_figure_target(name, out=pictures.out, formats=pictures.formats, overwrite=order.overwrite)

    say(f"== analyses, of the checkpoints below {order.checkpoints}")
    with contextlib.redirect_stdout(sys.stderr):
        run = plan.run_plan(
            asks, zoo=order.checkpoints, cache=order.cache, jobs=order.jobs, unfinished=order.unfinished
        )
    documents = {**run.documents, claims.NAME: claims.document(run.documents)}
    for document in documents.values():
        document.write(order.out)
    analysed = time.monotonic()

    say(f"== figures, into {pictures.out}")
    drawn, undrawn = cli.draw_all(list(entries.values()), cli.of_protocol(run.documents, order.protocol), pictures)
    end = time.monotonic()
    timing = timing_of(run, analyses=analysed - start, figures=end - analysed, jobs=order.jobs)
    write_file(order.out / TIMING_FILE, json.dumps(timing, indent=1) + "\n")
    if isinstance(live := run.documents.get(explorer.ANALYSIS), Document):
        explorer.write(order.out, live, back=page.FILE)
    written = page.write(order.out, drawn, documents, timing)
    failures = [f"{name}: {line}" for name, document in documents.items() for line in document.failures]
    for line in failures:
        say(f"failed: {line}")
    show(documents[claims.NAME].text)
    show(f"\n{page.answer(page.of_the_paper(documents[claims.NAME].rows))}")
    show(f"{written}: {len(entries)} figures, {len(run.documents)} analyses, {time.monotonic() - start:.0f} s.")
    if undrawn or any(document.errors for document in run.documents.values()):
        return BAD_INPUT
    return FAILED if failures or unfinished else OK


def timing_of(run: plan.Run, *, analyses: float, figures: float, jobs: int) -> dict[str, Any]:
    """Where the time went: in this run, by analysis, and question by question, the longest first.

    Those of this run are by the clock. Those of analyses and questions are of processor time; an answer that the cache
    kept counts with what it took when it was made.
    """
    by_analysis: dict[str, float] = dict.fromkeys((question.analysis for question in run.seconds), 0.0)
    for question, seconds in run.seconds.items():
        by_analysis[question.analysis] += seconds
    shares = sorted(by_analysis.items(), key=lambda share: -share[1])
    longest = sorted(run.seconds, key=lambda question: -run.seconds[question])
    return {
        "jobs": jobs,
        "seconds": {"analyses": round(analyses, 2), "figures": round(figures, 2)},
        "made": len(run.made),
        "kept": len(run.seconds) - len(run.made),
        "by_analysis": {name: round(seconds, 2) for name, seconds in shares},
        "questions": [
            {"what": question.words, "seconds": round(run.seconds[question], 3), "made": question in run.made}
            for question in longest
        ],
    }
