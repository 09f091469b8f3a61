"""The page of `make reproduce`: the paper's claims in words with their verdicts, then each figure with its numbers.

One file, `index.html`: pictures, style and the script that filters and sorts are inside it, and nothing is fetched.
"""

from __future__ import annotations

import base64
import html
import io
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from analyses import answers
from analyses.command import BadInput, listed
from analyses.documents import Document
from analyses.files import write_file
from analyses.shipped import FOLDER, shipped_document
from figures.claims import TOPICS, claim_of
from figures.drawing import Drawn
from figures.explorer import page as explorer
from figures.first_screen import WORD_CLASSES, answer, board, counted, glossary, links
from figures.verdict import FAILED, capital, sentence

FILE = "index.html"
MARK = '<meta name="generator" content="interp: python -m figures reproduce">'
ASSETS = Path(__file__).parent / "page_assets"
REASON = "what was required and not found"
BRIEF = 160  # characters of the one number in the terminal's list; the page has all of it
MOST_PARTS = 5  # analyses whose time the page states
THUMBNAIL_WIDTH = 416  # twice the width of its place, for fine screens
PAPER_ORDER = (
    "fig:task_priors", "fig:two_layer_circuit", "fig:kl_vs_position", "fig:mech_main", "fig:mech_indep", "fig:app2",
    "fig:hier",
)  # fmt: skip


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
    """The verdicts for a terminal: each figure with its verdict and one number, then what failed and why."""
    in_order = sorted(records, key=_order)
    widest = max((len(record["figure"]) for record in in_order), default=0)
    lines = ["verdicts, each with its number:", ""]
    for record in in_order:
        verdict = record["verdict"]
        number = textwrap.shorten(verdict.get("number") or verdict["headline"], BRIEF, placeholder=" …")
        lines += [listed(record["figure"], sentence(verdict), names=widest), listed("", number, names=widest)]
    failed = [record for record in in_order if record["verdict"]["word"] in FAILED]
    if failed:
        lines += ["", f"{REASON}:"]
    for record in failed:
        lines += ["", record["figure"], *(listed(*part, names=8) for part in shortfalls(record["verdict"]))]
    return "\n".join(line.rstrip() for line in lines)


def shortfalls(verdict: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Each requirement that was not met with what was found and where it holds, and why; each part with its name."""
    parts = []
    for check in verdict.get("checks", ()):
        if not check["met"]:
            said = [("required", check["required"]), ("found", check["found"]), ("holds", check["where"])]
            parts += [(name, f"where {words}" if name == "holds" else words) for name, words in said if words]
    if not parts:
        return [("", reason(verdict))]
    return [*parts, ("why", verdict["why"])] if verdict["why"] else parts


def reason(verdict: Mapping[str, str]) -> str:
    """What was required and not found, and why, as one text; where nothing of that is said, the one number."""
    failed = verdict["word"] in FAILED
    parts = [f"required: {verdict['required']}"] if failed and verdict["required"] else []
    parts += [f"found: {verdict['found']}"] if failed and verdict["found"] else []
    parts += [verdict["why"]] if verdict["why"] else []
    return ". ".join(parts) or textwrap.shorten(verdict["headline"], BRIEF, placeholder=" …")


def page(out: Path, drawn: Sequence[Drawn], documents: Mapping[str, Document], timing: Mapping[str, Any]) -> str:
    """The whole page."""
    claims = [one for one in drawn if not claim_of(one.record).ours]
    findings = [one for one in drawn if claim_of(one.record).ours]
    origins = [document.provenance for document in documents.values() if document.provenance]
    theory = documents["theory"].rows if "theory" in documents else []
    shipped = shipped_among(documents)
    body = [
        "<h1>Do induction heads interpolate n-grams? What holds in the models shipped here</h1>",
        '<p class="answer">The paper says: an induction head is a smoothed n-gram estimator. Each of its claims was '
        f"tested here. <b>{answer([one.record for one in claims])}</b></p>",
        board(claims),
        _explorer_words(out, documents),
        glossary(),
        '<section aria-labelledby="claims">',
        '<h2 id="claims">The paper\'s claims</h2>',
        _filters(drawn),
        *(_group(word, claims) for word in WORD_CLASSES),
        "</section>",
        '<section aria-labelledby="findings">',
        '<h2 id="findings">Beyond the paper: what was asked here, and found</h2>',
        _rows(findings, level=3),
        "</section>",
        '<section aria-labelledby="figures">',
        '<h2 id="figures">The figures</h2>',
        *(_section(out, one, shipped=shipped) for one in (*claims, *findings)),
        "</section>",
        '<section aria-labelledby="theory"><h2 id="theory">The theory, claim by claim</h2>',
        _theory(theory),
        "</section>",
        '<section aria-labelledby="tables"><h2 id="tables">Tables</h2>',
        _tables(out, documents),
        f"<p>{html.escape(time_words(timing))}</p>",
        "</section>",
        f"<footer>{html.escape(_origin(origins[0] if origins else {}))}</footer>",
    ]
    return _framed("\n".join(body), _contents(claims, findings))


def _framed(body: str, contents: str) -> str:
    style, script = (ASSETS / "style.css").read_text(), (ASSETS / "page.js").read_text()
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="color-scheme" content="light dark">\n{MARK}\n<title>interp: results</title>\n'
        f'<link rel="icon" href="data:,">\n<style>\n{style}</style>\n</head>\n<body>\n'
        f'<a class="skip" href="#claims">to the claims</a>\n<div class="layout">\n{contents}\n<main>\n{body}\n</main>\n'
        f"</div>\n<script>\n{script}</script>\n</body>\n</html>\n"
    )


def _group_id(word: str) -> str:
    return f"claims-{word.replace(',', '').replace(' ', '-')}"


def _group(word: str, claims: Sequence[Drawn]) -> str:
    """The claims with one verdict."""
    mine = [one for one in claims if one.record["verdict"]["word"] == word]
    if not mine:
        return ""
    return (
        f'<section class="group" aria-labelledby="{_group_id(word)}"><h3 id="{_group_id(word)}">'
        f'<span class="word {WORD_CLASSES[word]}">{len(mine)}</span> {counted(word, len(mine))}</h3>'
        f"{_rows(mine, level=4)}</section>"
    )


def _contents(claims: Sequence[Drawn], findings: Sequence[Drawn]) -> str:
    in_order = [one for word in WORD_CLASSES for one in claims if one.record["verdict"]["word"] == word]
    return (
        '<nav aria-label="contents"><details open><summary>Contents</summary><ul>'
        f'<li><a href="#claims">The paper\'s claims</a><ul class="by-verdict">{links(in_order)}</ul></li>'
        f'<li><a href="#findings">Beyond the paper</a><ul class="by-verdict">{links(findings)}</ul></li>'
        '<li><a href="#figures">The figures</a></li>'
        '<li><a href="#theory">The theory</a></li><li><a href="#tables">Tables</a></li></ul></details></nav>'
    )


def _explorer_words(out: Path, documents: Mapping[str, Document]) -> str:
    if explorer.ANALYSIS not in documents or not (out / explorer.FILE).is_file():
        return ""
    return (
        f'<p><a href="{explorer.FILE}">Open the explorer</a> to run these models in the browser: point at a query, and '
        "move beta and kappa.</p>"
    )


def _filters(drawn: Sequence[Drawn]) -> str:
    said = {one.record["verdict"]["word"] for one in drawn}
    topics = {claim_of(one.record).topic for one in drawn}

    def options(names: Iterable[str]) -> str:
        return '<option value="">all</option>' + "".join(f"<option>{name}</option>" for name in names)

    return (
        '<div class="filters" hidden><label for="by-verdict">verdict <select id="by-verdict">'
        f"{options(word for word in WORD_CLASSES if word in said)}</select></label>"
        '<label for="by-topic">about <select id="by-topic">'
        f"{options(topic for topic in TOPICS if topic in topics)}</select></label>"
        '<span id="shown" role="status"></span></div>'
    )


def _rows(drawn: Sequence[Drawn], *, level: int) -> str:
    lines = "".join(_row(one, level=level) for one in drawn)
    return f'<ul class="rows">{lines}</ul>' if drawn else "<p>None drawn.</p>"


def _row(one: Drawn, *, level: int) -> str:
    """A claim in words, its verdict, the one number, its picture in small, and what was required and found."""
    record, verdict = one.record, one.record["verdict"]
    claim, name = claim_of(record), record["figure"]
    number = verdict.get("number") or verdict["headline"]
    why = f'<p class="soft">{html.escape(capital(verdict["why"]))}.</p>' if verdict["why"] else ""
    return (
        f'<li class="row {WORD_CLASSES[verdict["word"]]}-row" data-verdict="{verdict["word"]}" '
        f'data-topic="{claim.topic}"><a class="thumbnail" href="#{name}" tabindex="-1" aria-hidden="true">'
        f'<img alt="" src="{_thumbnail(one.png)}"></a>'
        f'<div><h{level}><a href="#{name}">{html.escape(claim.sentence)}</a></h{level}><p>{_word(verdict)}</p></div>'
        f'<p class="number">{html.escape(capital(number))}</p>'
        f"<details><summary>{_checks_in_short(verdict)}</summary>{_checks(verdict)}{why}</details></li>"
    )


def _checks_in_short(verdict: Mapping[str, Any]) -> str:
    checks = verdict.get("checks", ())
    met = sum(check["met"] for check in checks)
    if not checks:
        return "what was found"
    known = sum(bool(check.get("where")) for check in checks)
    return f"required and found: {met} of {len(checks)} met" + (f", {known} more under the condition" if known else "")


def _checks(verdict: Mapping[str, Any]) -> str:
    """Every requirement with what was found; where none was stated, what the verdict says of them as a whole."""
    checks = verdict.get("checks", ())
    if not checks:
        facts = [(term, verdict[term]) for term in ("required", "found") if verdict[term]]
        facts = facts or [("found", verdict["headline"])]
        lines = "".join(f"<dt>{term}</dt><dd>{html.escape(text)}</dd>" for term, text in facts)
        return f'<dl class="facts">{lines}</dl>'
    lines = "".join(
        f'<li class="{"met" if check["met"] else "unmet"}"><b>{"met" if check["met"] else "not met"}</b>'
        f"<span>required: {html.escape(check['required'])}</span>"
        + (f"<span>found: {html.escape(check['found'])}</span>" if check["found"] else "")
        + _where(check)
        + "</li>"
        for check in sorted(checks, key=lambda check: bool(check["met"]))
    )
    return f'<ul class="checks">{lines}</ul>'


def _where(check: Mapping[str, Any]) -> str:
    """Under which condition a requirement is met, and what that rests on; empty where it is met, or none is known."""
    if not check.get("where"):
        return ""
    evidence = f" ({check['evidence']})" if check.get("evidence") else ""
    return f'<span class="where">met where {html.escape(check["where"] + evidence)}</span>'


def _thumbnail(png: bytes | None) -> str:
    """The picture in small, as an address; a picture that is missing is an empty one."""
    if not png:
        return "data:,"
    from PIL import Image

    small = Image.open(io.BytesIO(png)).convert("RGB")
    small.thumbnail((THUMBNAIL_WIDTH, THUMBNAIL_WIDTH))
    buffer = io.BytesIO()
    small.save(buffer, format="WEBP", quality=70)
    return f"data:image/webp;base64,{base64.b64encode(buffer.getvalue()).decode()}"


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
    """The verdict's sentence, its first words set off."""
    said, word = sentence(verdict), verdict["word"]
    first = word if said.startswith(word) else word.removesuffix(" where")
    return f'<span class="word {WORD_CLASSES[word]}">{first}</span>{html.escape(said.removeprefix(first))}'


def shipped_among(documents: Mapping[str, Document]) -> dict[str, str]:
    """The analyses that were read from the repository rather than made from --checkpoints: what to say of each."""
    found = {}
    for name in documents:
        if (FOLDER / f"{name}.json").is_file() and shipped_document(name) is not None:
            variable = answers.load_module(name).SHIPPED
            found[name] = (
                f"{name} is the table that comes with the suite (analyses/shipped/{name}.json), whatever --checkpoints "
                f"says; {variable}=1 make reproduce measures it anew."
            )
    return found


def _section(out: Path, drawn: Drawn, *, shipped: Mapping[str, str]) -> str:
    """A figure: the claim in full, what was found, the picture; then every requirement and number, files, command."""
    record = drawn.record
    name, verdict, claim = record["figure"], record["verdict"], claim_of(record)
    asked = "question" if claim.ours else "the paper"
    why = f" {capital(verdict['why'])}." if verdict["why"] else ""
    found = capital(verdict["headline"]).rstrip(".") + f".{why}"
    facts = [
        (asked, html.escape(record["claim"].removeprefix("Question: "))),
        ("verdict", _word(verdict)),
        ("found", html.escape(found)),
    ]
    folded = [(_checks_in_short(verdict), _checks(verdict))] if verdict.get("checks") else []
    folded.append(("all numbers", f"<p>{html.escape(capital(verdict['measured']))}</p>"))
    details = "".join(f"<details><summary>{title}</summary>{text}</details>" for title, text in folded)
    missing = "".join(f'<p class="missing">{html.escape(note)}</p>' for note in record["missing"])
    known = [shipped[analysis] for analysis in record["provenance"] if analysis in shipped]
    missing += "".join(f'<p class="soft">{html.escape(words)}</p>' for words in known)
    finding = f"{claim.sentence} {capital(sentence(verdict))}: {verdict['headline']}"
    return (
        f'<article class="figure" id="{name}">\n<h3>{html.escape(claim.sentence)}</h3>\n'
        f'<dl class="facts">{"".join(f"<dt>{term}</dt><dd>{text}</dd>" for term, text in facts)}</dl>\n'
        f"{_picture(out, name, finding, drawn.png)}\n"
        f'{missing}<p class="soft">{html.escape(record["caption"])}</p>\n{details}\n'
        f'<p class="soft"><code>python -m figures {name}</code> · <code>{html.escape(record["label"])}</code> · '
        f"{_files(out, record)}</p>\n</article>"
    )


def _picture(out: Path, name: str, finding: str, png: bytes | None) -> str:
    """The picture inside the page; a click opens it in full size, which a narrow screen needs."""
    data = base64.b64encode(png or b"").decode()
    shown = f'<img alt="{html.escape(finding)}" src="data:image/png;base64,{data}">'
    file = f"figures/{name}.png"
    return f'<a href="{file}" title="open in full size">{shown}</a>' if (out / file).is_file() else shown


def _files(out: Path, record: Mapping[str, Any]) -> str:
    """Links to the picture in print, to the numbers drawn, and to the tables behind them."""
    name = record["figure"]
    wanted = [(f"figures/{name}.pdf", "PDF"), (f"figures/{name}.svg", "SVG"), (f"figures/{name}.json", "numbers drawn")]
    wanted += [(f"{analysis}.csv", f"{analysis}.csv") for analysis in record["provenance"]]
    return " · ".join(f'<a href="{file}">{text}</a>' for file, text in wanted if (out / file).is_file())


def _theory(rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return "<p>Not run.</p>"
    lines = "".join(
        f"<tr><td><code>{html.escape(row['label'])}</code></td><td>{html.escape(row['claim'])}</td>"
        f"<td>{row['cases']}</td><td>{_number(row['error'])}</td>"
        f"<td>{_word({'word': 'holds' if row['holds'] else 'does not hold'})}</td>"
        f"<td>{html.escape(row.get('note') or '')}</td></tr>"
        for row in rows
    )
    return _table(("label", "claim", "cases", "largest error", "verdict", "note"), lines, name="checks of the theory")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1e}"


def _tables(out: Path, documents: Mapping[str, Document]) -> str:
    lines = []
    for name, document in documents.items():
        files = [file for file in (f"{name}.csv", f"{name}_tidy.csv", f"{name}.json") if (out / file).is_file()]
        links = " · ".join(f'<a href="{file}">{file}</a>' for file in files)
        lines.append(f"<tr><td>{name}</td><td>{len(document.rows)}</td><td>{links}</td></tr>")
    return _table(("analysis", "rows", "files"), "".join(lines), name="tables of the analyses")


def _table(columns: Sequence[str], lines: str, *, name: str) -> str:
    """A table that scrolls by itself where the window is narrow; the script makes its heads sort it."""
    head = "".join(f'<th scope="col">{column}</th>' for column in columns)
    return (
        f'<div class="wide" tabindex="0" role="group" aria-label="{name}"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{lines}</tbody></table></div>"
    )


def _origin(provenance: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in provenance.get("versions", {}).items())
    return f"Made by python -m figures reproduce; commit {provenance.get('commit') or 'unknown'}; {versions}."
