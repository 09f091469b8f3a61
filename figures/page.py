"""The page of `make reproduce`: each figure beside the paper's claim, the measured numbers and a verdict.

One file, `index.html`: pictures are inside it, there are no scripts, and nothing is fetched.
"""

from __future__ import annotations

import base64
import html
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from analyses.command import BadInput
from analyses.documents import Document
from analyses.files import write_file
from analyses.report import render_table
from figures.drawing import Drawn
from figures.verdict import sentence

FILE = "index.html"
MARK = '<meta name="generator" content="interp: python -m figures reproduce">'
WORD_CLASSES = {
    "holds": "good",
    "holds where": "part",
    "does not hold here": "bad",
    "cannot tell": "none",
    "beyond the paper": "ours",
}
REASON = "why, or what was measured"
BRIEF = 160  # characters of the headline in the table of verdicts; the figure's section has all numbers
MOST_PARTS = 5  # analyses whose time the page states
PAPER_ORDER = (
    "fig:task_priors", "fig:two_layer_circuit", "fig:kl_vs_position", "fig:mech_main", "fig:mech_indep", "fig:app2",
    "fig:hier",
)  # fmt: skip

STYLE = """
:root { --ink: #1a1a1a; --soft: #595959; --line: #d9d9d9; --paper: #ffffff; --back: #f6f6f4; }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 76rem; margin: 0 auto; padding: 1.5rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0.5rem 0; }
h2 { font-size: 1.25rem; margin: 2.2rem 0 0.6rem; }
h3 { font-size: 1.05rem; margin: 0 0 0.4rem; }
a { color: #003566; }
code { font-size: 0.9em; }
section.figure { background: var(--paper); border: 1px solid var(--line); border-radius: 6px; padding: 1rem 1.2rem;
  margin: 1.2rem 0; }
section.figure img { display: block; width: 100%; height: auto; margin: 0.8rem 0; }
.claim { display: grid; grid-template-columns: 8rem 1fr; gap: 0.25rem 1rem; margin: 0; }
.claim dt { color: var(--soft); }
.claim dd { margin: 0; }
.caption { color: var(--soft); font-size: 0.9rem; }
.missing { color: #9b2226; font-size: 0.9rem; }
.word { display: inline-block; padding: 0 0.5em; border-radius: 4px; font-weight: 600; white-space: nowrap; }
.good { background: #d8f0dd; color: #0b4f1f; } .part { background: #fdeeca; color: #6b4a00; }
.bad { background: #f9d9d6; color: #7d1410; } .none { background: #e6e6e6; color: #404040; }
.ours { background: #dce8f5; color: #003566; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; background: var(--paper); font-size: 0.92rem; }
th, td { text-align: left; vertical-align: top; padding: 0.35rem 0.7rem; border: 1px solid var(--line); }
footer { color: var(--soft); font-size: 0.85rem; margin: 2rem 0; }
@media (max-width: 40rem) { .claim { grid-template-columns: 1fr; } .claim dt { margin-top: 0.4rem; } }
@media print { body { background: #fff; } section.figure { break-inside: avoid; } }
"""


def check_target(file: Path, *, overwrite: bool) -> None:
    """Refuse to replace a page that is not ours."""
    if file.exists() and not overwrite and MARK not in file.read_text(errors="replace"):
        raise BadInput(f"{file} is no page of ours; --overwrite replaces it")


def write(out: Path, drawn: Sequence[Drawn], documents: Mapping[str, Document], timing: Mapping[str, Any]) -> Path:
    """Write the page of what was drawn and found; returns its path."""
    file = out / FILE
    write_file(file, page(out, sorted(drawn, key=lambda one: _order(one.record)), documents, timing))
    return file


def verdict_table(records: Sequence[dict[str, Any]]) -> str:
    """The verdicts for a terminal."""
    rows = [
        {"figure": record["figure"], "verdict": sentence(record["verdict"]), REASON: reason(record["verdict"])}
        for record in sorted(records, key=_order)
    ]
    return render_table(rows)


def reason(verdict: Mapping[str, str]) -> str:
    """What was required and not found, and why; where nothing of that is said, the one number."""
    failed = verdict["word"] in ("holds where", "does not hold here")
    parts = [f"required: {verdict['required']}"] if failed and verdict["required"] else []
    parts += [f"found: {verdict['found']}"] if failed and verdict["found"] else []
    parts += [verdict["why"]] if verdict["why"] else []
    return ". ".join(parts) or textwrap.shorten(verdict["headline"], BRIEF, placeholder=" …")


def tally(records: Sequence[dict[str, Any]]) -> str:
    """How often each word was said."""
    counts = Counter(record["verdict"]["word"] for record in records)
    return ", ".join(f"{counts[word]} {word}" for word in WORD_CLASSES if counts[word]) or "none drawn"


def page(out: Path, drawn: Sequence[Drawn], documents: Mapping[str, Document], timing: Mapping[str, Any]) -> str:
    """The whole page."""
    records = [one.record for one in drawn]
    ours = [one for one in drawn if not one.record["label"].startswith("fig:")]
    papers = [one for one in drawn if one.record["label"].startswith("fig:")]
    origins = [document.provenance for document in documents.values() if document.provenance]
    body = [
        "<h1>Induction heads interpolate n-grams: the figures, from the shipped checkpoints</h1>",
        "<p>Each picture stands beside what the paper claims with it, what was measured here, and a verdict with its "
        "reason. Every number can be traced: the JSON file beside a picture holds the values drawn, the tables hold "
        "the results behind them.</p>",
        f"<p>The paper's figures ({len(papers)}): {tally([one.record for one in papers])}. "
        f"Figures beyond the paper ({len(ours)}): {tally([one.record for one in ours])}.</p>",
        "<h2>Verdicts</h2>",
        _verdicts(records),
        "<h2>The paper's figures</h2>",
        *(_section(out, one) for one in papers),
        "<h2>Beyond the paper</h2>",
        *(_section(out, one) for one in ours),
        "<h2>The theory, claim by claim</h2>",
        _theory(documents["theory"].rows if "theory" in documents else []),
        "<h2>Tables</h2>",
        _tables(out, documents),
        f"<p>{html.escape(time_words(timing))}</p>",
        f"<footer>{html.escape(_origin(origins[0] if origins else {}))}</footer>",
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'{MARK}\n<title>interp: results</title>\n<link rel="icon" href="data:,">\n<style>{STYLE}</style>\n</head>\n'
        "<body>\n<main>\n" + "\n".join(body) + "\n</main>\n</body>\n</html>\n"
    )


def time_words(timing: Mapping[str, Any]) -> str:
    """Where the time went, in a few sentences."""
    seconds, parts = timing["seconds"], list(timing["by_analysis"].items())
    work = sum(timing["by_analysis"].values())
    shares = ", ".join(f"{name} {part:.0f} s" for name, part in parts[:MOST_PARTS])
    return (
        f"This run took {seconds['analyses']:.0f} s for the analyses and {seconds['figures']:.0f} s for the figures on "
        f"{timing['jobs']} processes; {timing['made']} answers were made and {timing['kept']} were known. "
        f"All of them took {work:.0f} s of processor time when they were made, most of it for {shares}. "
        "timing.json has the rest."
    )


def _order(record: Mapping[str, Any]) -> tuple[int, str]:
    """The paper's order; ours after the paper's."""
    return _place(record["label"]), record["figure"]


def _place(label: str) -> int:
    places = [place for place, start in enumerate(PAPER_ORDER) if label.startswith(start)]
    return places[0] if places else len(PAPER_ORDER)


def _word(verdict: Mapping[str, str]) -> str:
    condition = html.escape(verdict.get("condition", ""))
    return (
        f'<span class="word {WORD_CLASSES[verdict["word"]]}">{html.escape(verdict["word"])}</span> {condition}'.rstrip()
    )


def _verdicts(records: Sequence[dict[str, Any]]) -> str:
    rows = "".join(
        f'<tr><td><a href="#{record["figure"]}">{record["figure"]}</a></td><td>{_word(record["verdict"])}</td>'
        f"<td>{html.escape(reason(record['verdict']))}</td></tr>"
        for record in records
    )
    head = f"<tr><th>figure</th><th>verdict</th><th>{REASON}</th></tr>"
    return f'<div class="wide"><table><thead>{head}</thead><tbody>{rows}</tbody></table></div>'


def _section(out: Path, drawn: Drawn) -> str:
    record = drawn.record
    name, verdict = record["figure"], record["verdict"]
    data = base64.b64encode(drawn.png or b"").decode()
    beside = [file for file in (f"{name}.pdf", f"{name}.svg", f"{name}.json") if (out / "figures" / file).is_file()]
    links = " · ".join(f'<a href="figures/{file}">{file}</a>' for file in beside)
    asked = "the paper" if record["label"].startswith("fig:") else "the question"
    facts = [(asked, html.escape(record["claim"])), ("measured", html.escape(verdict["measured"]))]
    facts += [(name, html.escape(verdict[name])) for name in ("required", "found") if verdict[name]]
    facts.append(("verdict", _word(verdict) + (f". {html.escape(verdict['why'])}" if verdict["why"] else "")))
    missing = "".join(f'<p class="missing">{html.escape(note)}</p>' for note in record["missing"])
    return (
        f'<section class="figure" id="{name}">\n<h3>{name} <code>{html.escape(record["label"])}</code></h3>\n'
        f'<dl class="claim">{"".join(f"<dt>{term}</dt><dd>{text}</dd>" for term, text in facts)}</dl>\n'
        f'<img alt="{html.escape(name)}: see the caption below" src="data:image/png;base64,{data}">\n'
        f'{missing}<p class="caption">{html.escape(record["caption"])}</p>\n<p class="caption">{links}</p>\n</section>'
    )


def _theory(rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return "<p>Not run.</p>"
    lines = "".join(
        f"<tr><td><code>{html.escape(row['label'])}</code></td><td>{html.escape(row['claim'])}</td>"
        f"<td>{row['cases']}</td><td>{_number(row['error'])}</td>"
        f"<td>{_word({'word': 'holds' if row['holds'] else 'does not hold here'})}</td>"
        f"<td>{html.escape(row.get('note') or '')}</td></tr>"
        for row in rows
    )
    head = "<tr><th>label</th><th>claim</th><th>cases</th><th>largest error</th><th>verdict</th><th>note</th></tr>"
    return f'<div class="wide"><table><thead>{head}</thead><tbody>{lines}</tbody></table></div>'


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1e}"


def _tables(out: Path, documents: Mapping[str, Document]) -> str:
    lines = []
    for name, document in documents.items():
        files = [file for file in (f"{name}.csv", f"{name}_tidy.csv", f"{name}.json") if (out / file).is_file()]
        links = " · ".join(f'<a href="{file}">{file}</a>' for file in files)
        lines.append(f"<tr><td>{name}</td><td>{len(document.rows)}</td><td>{links}</td></tr>")
    head = "<tr><th>analysis</th><th>rows</th><th>files</th></tr>"
    return f'<div class="wide"><table><thead>{head}</thead><tbody>{"".join(lines)}</tbody></table></div>'


def _origin(provenance: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in provenance.get("versions", {}).items())
    return f"Made by python -m figures reproduce; commit {provenance.get('commit') or 'unknown'}; {versions}."
