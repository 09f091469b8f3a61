"""`make reproduce`: every analysis that has an `ASK`, every figure, and the page with the paper's claims beside them.

Results go from the analyses to the figures, and from both to the page, as values; what is written is for the reader and
for the next run.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import replace
from typing import Any

from analyses.claims import document as claims
from analyses.running import plan
from analyses.running.files import write_file
from figures.page import results as page
from figures.page.explorer import page as explorer
from figures.running import drawing, sources
from figures.running.order import Order
from models.running.command_line import BAD_INPUT, FAILED, OK, Entry
from models.running.terminal import say, show

TIMING_FILE = "timing.json"


def reproduce(entries: dict[str, Entry], order: Order) -> int:
    """Run the analyses, write their tables, draw the figures, write the page; returns the exit code."""
    start, out = time.monotonic(), order.place
    asks = plan.shipped_asks()
    unfinished = sources.say_left_out(order)
    plan.check_zoo(asks, order.zoo, unfinished=order.unfinished)
    page.check_target(out / page.FILE, overwrite=order.overwrite)
    explorer.check_target(out / explorer.FILE, overwrite=order.overwrite)
    formats = tuple(dict.fromkeys([*order.format, "png"]))  # the page shows PNGs
    pictures = replace(order, out=out / "figures", format=formats)

    say(f"== analyses, of the checkpoints below {order.zoo}")
    run = sources.made(asks, order)
    documents = {**run.tables, claims.NAME: claims.document(run.tables)}
    for document in documents.values():
        document.write(out)
    analysed = time.monotonic()

    say(f"== figures, into {pictures.place}")
    shown = sources.of_protocol(run.tables, order.protocol)
    drawn, undrawn = drawing.draw_all(list(entries.values()), shown, pictures)
    timing = timing_of(run, analyses=analysed - start, figures=time.monotonic() - analysed, jobs=order.jobs)
    write_file(out / TIMING_FILE, json.dumps(timing, indent=1) + "\n")
    if (live := run.tables.get(explorer.ANALYSIS)) is not None:
        explorer.write(out, live, back=page.FILE)
    written = page.write(out, drawn, documents, timing, standalone=order.standalone)
    failures = [f"{name}: {line}" for name, document in documents.items() for line in document.failures]
    for line in failures:
        say(f"failed: {line}")
    show(documents[claims.NAME].text)
    show(f"\n{page.answer(page.of_the_paper(documents[claims.NAME].rows))}")
    show(f"{written}: {len(entries)} figures, {len(run.tables)} analyses, {time.monotonic() - start:.0f} s.")
    if undrawn or any(document.errors for document in run.tables.values()):
        return BAD_INPUT
    return FAILED if failures or unfinished else OK


def timing_of(run: plan.Run, *, analyses: float, figures: float, jobs: int) -> dict[str, Any]:
    """Where the time went: in this run, by analysis, and question by question, the longest first.

    Those of this run are by the clock. Those of analyses and questions are of processor time; an answer that the cache
    kept counts with what it took when it was made.
    """
    by_analysis: Counter[Any] = Counter()
    for question, seconds in run.seconds.items():
        by_analysis[question.analysis] += seconds  # type: ignore[assignment]  # a Counter adds any number
    return {
        "jobs": jobs,
        "seconds": {"analyses": round(analyses, 2), "figures": round(figures, 2)},
        "made": len(run.made),
        "kept": len(run.seconds) - len(run.made),
        "by_analysis": {name: round(seconds, 2) for name, seconds in by_analysis.most_common()},
        "questions": [
            {"what": question.words, "seconds": round(seconds, 3), "made": question in run.made}
            for question, seconds in sorted(run.seconds.items(), key=lambda one: -one[1])
        ],
    }
