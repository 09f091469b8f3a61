"""The documentation: it builds without a warning, it is whole, it needs no network, and what it says runs.

The site is built once, into a temporary directory. Every Python block of the pages is run, and what it prints is
compared with the block of text that follows it. Every command is parsed by the program it is for.
"""

from __future__ import annotations

import ast
import contextlib
import html
import importlib
import importlib.util
import io
import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from unittest.mock import patch
from urllib.parse import unquote, urldefrag

import click
import matplotlib.pyplot as plt
import pytest

import interp
from analyses.claims.document import CLAIMS
from interp.chains import priors
from interp.outside import one_line
from models.families import registry as families
from models.running.command_line import read_entries
from tests.figures.chromium import SCHEMES, WIDTHS, Tab
from tests.hostile import NAMES, RAN

pytest.importorskip("mkdocs", reason="the documentation is built with the `docs` extra")

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
README = ROOT / "README.md"
READ = [README, *PAGES]  # what is read, in the repository or as pages
README_WORDS, PAGE_WORDS = 1000, 2500
FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
BUILD_ENVIRONMENT = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "NO_COLOR": "1"}


def build(config: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Build as a user does, in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--config-file",
        str(config),
        "--site-dir",
        str(site),
    ]
    return subprocess.run(command, cwd=ROOT, env=BUILD_ENVIRONMENT, capture_output=True, text=True, check=False)


class Page(HTMLParser):
    """What a page defines and what it asks for."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.requests: list[str] = []
        self.feed(text)
        article = re.sub(r"(?s)^.*?<article|</article>.*", "", text)
        self.words = len(re.sub(r"(?s)<(pre|script|style|math|svg)\b.*?</\1>|<[^>]+>", " ", article).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag == "link" and "canonical" not in values.get("rel", ""):
            self.requests.append(values.get("href", ""))
        self.requests += [values[name] for name in ("src", "srcset", "data", "poster") if name in values]

    handle_startendtag = handle_starttag


def is_remote(address: str) -> bool:
    return re.match(r"(?:[a-z]+:)?//", address) is not None


def missing_targets(pages: dict[Path, Page]) -> list[str]:
    """Links within the site that lead nowhere."""
    missing = []
    for path, page in pages.items():
        for link in page.links:
            if is_remote(link) or link.startswith(("mailto:", "javascript:")):
                continue
            address, fragment = urldefrag(unquote(link))
            target = (path.parent / address).resolve() if address else path
            anchors = pages[target].anchors if target in pages else {fragment}
            if not target.exists() or (fragment and fragment not in anchors):
                missing.append(f"{path.name}: {link}")
    return missing


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("site")
    done = build(ROOT / "mkdocs.yml", place)
    assert done.returncode == 0, done.stderr
    assert not re.search("warning|error", done.stderr, re.IGNORECASE), done.stderr
    return place


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    # 404.html is for servers: its links start at their root.
    files = [file.resolve() for file in site.rglob("*.html") if file.name != "404.html"]
    return {file: Page(file.read_text(encoding="utf-8")) for file in files}


def undocumented(names: set[str], pages: dict[Path, Page]) -> set[str]:
    anchors = set().union(*(page.anchors for path, page in pages.items() if path.parent.name == "api"))
    return {name for name in names if f"{interp._HOME_OF.get(name, '')}.{name}" not in anchors}


def test_every_page_is_built(site: Path) -> None:
    for page in PAGES:
        assert (site / page.relative_to(DOCS)).with_suffix(".html").is_file(), page
    assert not list(site.rglob("*.py"))


def test_notebooks_and_gallery_are_pages_with_pictures(site: Path, pages: dict[Path, Page]) -> None:
    for notebook in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb")):
        page = pages[(site / "notebooks" / f"{notebook.stem}.html").resolve()]
        assert [one for one in page.requests if one.endswith(".png")], notebook
    gallery = (site / "gallery.html").read_text(encoding="utf-8")
    assert gallery.count("python -m figures ") >= 25
    assert gallery.count('<img alt="') >= len(read_entries(ROOT / "figures", marker="LABEL"))
    assert "Not among the pictures kept here" not in gallery
    findings = json.loads((DOCS / "images" / "figures" / "findings.json").read_text(encoding="utf-8"))
    assert gallery.count('<p class="figure"><a href="images/gallery/') == len(
        read_entries(ROOT / "figures", marker="LABEL")
    )
    assert {one["verdict"] for one in findings.values()} >= {"holds", "holds where"}
    assert gallery.count("<em>holds") > 20


def test_the_gallery_states_the_verdict_and_links_to_picture_and_data(tmp_path, monkeypatch) -> None:
    gallery = load_plugin("gallery")
    monkeypatch.setenv("INTERP_RESULTS", str(tmp_path))
    text, brought = gallery.section("hier_induction", "attention by overlap")
    assert list(brought) == ["images/gallery/hier_induction.webp"]  # the copy that is kept
    assert "*holds*" in text
    (tmp_path / "figures").mkdir()
    row = {"claim": "hier_induction", "verdict": "does not hold", "found": "beta_1 < 3 in 2 * 3 runs"}
    (tmp_path / "claims.json").write_text(json.dumps({"rows": [row]}))
    (tmp_path / "figures" / "hier_induction.json").write_text("{}")
    (tmp_path / "figures" / "hier_induction.png").write_bytes(b"")
    text, brought = gallery.section("hier_induction", "attention by overlap")
    assert [address.rpartition(".")[2] for address in brought] == ["json", "png"]
    assert all(f'href="{address}"' in text for address in brought)
    assert "*does not hold*: beta_1 < 3 in 2 * 3 runs." in html.unescape(text)
    assert "`python -m figures hier_induction`" in text


def test_findings_from_a_stranger_are_text_in_the_gallery(chromium, tmp_path: Path) -> None:
    """Markup, Markdown, and a script that comes into the page all the same, which the page's policy stops."""
    figures, docs, names = tmp_path / "results" / "figures", tmp_path / "docs", list(NAMES.values())
    figures.mkdir(parents=True)
    for folder in ("css", "js"):
        shutil.copytree(DOCS / folder, docs / folder)
    shown = [claim for claim in CLAIMS if not claim.ours and claim.label.startswith("fig:")]
    rows = [
        {"claim": one.id, "verdict": "holds", "found": f"found {name}"} for one, name in zip(shown, names, strict=False)
    ]
    (figures.parent / "claims.json").write_text(json.dumps({"rows": rows}))
    (docs / "index.md").write_text("# Home\n")
    settings = re.sub(
        r"(?ms)^nav:.*?^hooks:\n", "nav: [{How to: index.md}]\nhooks:\n", (ROOT / "mkdocs.yml").read_text()
    )
    settings = re.sub(r"  - docs/plugins/(notebooks|mathml).py\n", "", settings)
    (tmp_path / "mkdocs.yml").write_text(settings.replace("docs/plugins", str(DOCS / "plugins")))
    with patch.dict(BUILD_ENVIRONMENT, {"INTERP_RESULTS": str(tmp_path / "results")}):
        done = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert done.returncode == 0, done.stderr
    page = tmp_path / "site" / "gallery.html"
    with chromium.opened(page.as_uri()) as tab:
        text = " ".join(tab.view.text_content("article").split())
        for name in names:
            assert f"holds: found {one_line(name)}." in text
        assert (
            tab.view.locator("article [onclick], article a[href^=javascript], article img:not([loading])").count() == 0
        )
        assert "Gallery" in tab.view.title()
        assert (tab.complaints, tab.fetched()) == ([], [])
    written = page.read_text(encoding="utf-8")
    assert "unsafe" not in re.findall(r"script-src ([^;]*);", written)[0]
    page.write_text(written.replace("</article>", f"{NAMES['image']}{NAMES['end_of_script']}</article>"))
    with chromium.opened(page.as_uri()) as tab:
        assert tab.view.title() != RAN
        assert sum("Content Security Policy" in one for one in tab.complaints) == 2


def test_every_link_leads_somewhere(pages: dict[Path, Page]) -> None:
    assert sum(len(page.links) for page in pages.values()) > 200
    assert missing_targets(pages) == []


def test_a_dead_link_or_anchor_would_be_found(pages: dict[Path, Page], site: Path) -> None:
    broken = dict(pages)
    broken[site.resolve() / "broken.html"] = Page(
        '<a href="nowhere.html">x</a> <a href="models.html#no-such-anchor">y</a>'
    )
    assert missing_targets(broken) == ["broken.html: nowhere.html", "broken.html: models.html#no-such-anchor"]


def test_the_reference_has_every_public_name(pages: dict[Path, Page]) -> None:
    assert undocumented(set(interp.__all__) - {"__version__"}, pages) == set()


def test_a_name_without_an_entry_would_be_found(pages: dict[Path, Page]) -> None:
    assert undocumented({"soft_matching", "no_such_name"}, pages) == {"no_such_name"}


def test_every_label_that_docstrings_cite_is_among_the_concepts(pages: dict[Path, Page]) -> None:
    plugin = load_plugin("plain_docstrings")
    cited = {
        label
        for file in (ROOT / "interp").rglob("*.py")
        for label in plugin.LABEL.findall(file.read_text(encoding="utf-8"))
        if not label.startswith("fig:")
    }
    assert len(cited) > 15
    concepts = [page.anchors for path, page in pages.items() if path.parent.name == "concepts"]
    assert cited - set().union(*concepts) == set()


def test_no_page_is_longer_than_a_sitting(pages: dict[Path, Page]) -> None:
    """Words of the text as it is read: what code prints and the notebooks' cells are not among them."""
    long = {path.name: page.words for path, page in pages.items() if page.words > PAGE_WORDS}
    assert long == {}


def test_pages_ask_nothing_of_the_network(site: Path, pages: dict[Path, Page]) -> None:
    remote = {request for page in pages.values() for request in page.requests if is_remote(request)}
    assert remote == set()
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//", sheet.read_text(encoding="utf-8")), sheet


def test_a_remote_script_would_be_found() -> None:
    page = Page('<script src="https://example.org/x.js"></script><link rel="stylesheet" href="//example.org/x.css">')
    assert [is_remote(request) for request in page.requests] == [True, True]


def wrong_with(tab: Tab) -> list[str]:
    """What a reader would meet on a page, in windows of three widths; contrast apart."""
    wrong = [*tab.violations(contrast=False), *tab.fetched(), *tab.complaints]
    for width in WIDTHS:
        tab.resize(width)
        wrong += [f"{width}: wider than the window by {tab.overflow()}"] if tab.overflow() else []
        wrong += [f"{width}: {pair}" for pair in tab.overlaps("main .md-content")]  # a narrow window hides the contents
    return wrong


def test_every_page_fits_every_window_and_axe_finds_nothing_wrong(
    chromium, site: Path, pages: dict[Path, Page]
) -> None:
    assert len(pages) > len(PAGES)
    wrong = {}
    for page in pages:
        with chromium.opened(page.as_uri()) as tab:
            if found := wrong_with(tab):
                wrong[page.name] = found
    assert wrong == {}


# Colours are the theme's, by kind of text: a page of each kind has them all.
COLOURED = ("index.html", "models.html", "howto/causal.html", "api/results.html", "notebooks/03_from_scratch.html")


@pytest.mark.parametrize("name", COLOURED)
def test_text_stands_out_in_light_and_in_dark(chromium, site: Path, name: str) -> None:
    for scheme, palette in zip(SCHEMES, ("default", "slate"), strict=True):
        with chromium.opened((site / name).as_uri(), scheme=scheme) as tab:
            assert tab.view.evaluate("document.body.dataset.mdColorScheme") == palette
            assert tab.violations() == [], scheme


def test_what_is_wrong_with_a_page_would_be_found(chromium, tmp_path: Path) -> None:
    file = tmp_path / "bad.html"
    file.write_text(
        '<html lang="en"><title>bad</title><main><h1>Bad</h1><img src="data:,"><p style="color: #aaa">pale</p>'
        '<p style="width: 2000px">wide</p><p>below</p><p style="margin-top: -2em">above</p></main></html>'
    )
    with chromium.opened(file.as_uri()) as tab:
        assert {line.partition(":")[0] for line in tab.violations()} == {"color-contrast", "image-alt"}
        assert tab.overflow() > 500
        assert tab.overlaps() == ["above / below"] or tab.overlaps() == ["below / above"]


def test_formulas_are_mathml(site: Path) -> None:
    optimum = (site / "concepts" / "optimum.html").read_text(encoding="utf-8")
    assert optimum.count("<math ") > 50
    assert "arithmatex" not in optimum
    assert "<math " not in (site / "api" / "optimum.html").read_text(encoding="utf-8")  # shapes are no formulas


def test_no_escape_is_left_in_the_text(site: Path, pages: dict[Path, Page]) -> None:
    for page in pages:
        text = re.sub(r"(?s)<(pre|code|script|style|math)\b.*?</\1>", "", page.read_text(encoding="utf-8"))
        assert not re.findall(r".{20}\\(?:&lt;|[|$#<]).{20}", text), page


def test_options_in_a_sentence_are_not_broken() -> None:
    accessible = load_plugin("accessible")
    page = "<p><code>--seed</code></p><pre><span></span><code>make --x</code></pre>"
    assert accessible.on_post_page(page) == page.replace("<code>--seed", '<code class="whole">--seed')
    long = accessible.on_post_page("<code>python -m models train --out a-b-c --x-y</code>")
    assert re.findall('<span class="whole">(.*?)</span>', long) == ["--out", "--x-y"]
    typed = '<div class="language-bash highlight"><pre><span></span><code>a --x-y <span class="m">1</span></code></pre>'
    assert '<span class="whole">--x-y</span> <span class="m">1</span>' in accessible.on_post_page(typed)


def test_a_formula_that_does_not_convert_stops_the_build() -> None:
    mathml = load_plugin("mathml")
    good = mathml.on_page_content(r'<span class="arithmatex">\(\beta_1 &lt; 2\)</span>')
    assert good.startswith("<math ")
    assert "arithmatex" not in good
    with pytest.raises(ValueError, match="does not convert"):
        mathml.on_page_content(r'<span class="arithmatex">\(\nosuchcommand x\)</span>')


@pytest.mark.parametrize(
    ("latex", "holds"),
    [
        (r"u \sim \mathrm{Beta}(a)", "<mo>&#x0223C;</mo><mrow><mi>Beta</mi></mrow>"),
        (r"\lbrace r \rbrace", '<mo stretchy="false">&#x0007B;</mo><mi>r</mi><mo stretchy="false">&#x0007D;</mo>'),
        (r"x \ln S", '<mi>x</mi><mspace width="0.167em" /><mi>ln</mi><mspace width="0.167em" /><mi>S</mi>'),
        (r"\ln(x)", '<mi>ln</mi><mo stretchy="false">&#x00028;</mo>'),
        (r"|V| + |\beta|_M", 'form="prefix">&#x0007C;</mo><mi>V</mi><mo stretchy="true" fence="true" form="postfix">'),
        (r"\left| t \right|", 'form="prefix">&#x0007C;</mo><mi>t</mi>'),
    ],
)
def test_what_the_converter_gets_wrong_is_set_right(latex: str, holds: str) -> None:
    assert holds in load_plugin("mathml").on_page_content(rf'<span class="arithmatex">\({latex}\)</span>')


@pytest.mark.parametrize(
    ("addition", "complaints"),
    [
        ("[x](theory.md#theory) and ::: words", []),
        (  # one build says all that is wrong with links
            "[x](nowhere.md) and [x](theory.md#no-such-anchor) and [x][interp.no_such_name]",
            ["'nowhere.md'", "'#no-such-anchor'", "'interp.no_such_name'"],
        ),
        ("::: interp.estimators.soft_matching.no_such_function", ["no_such_function"]),
    ],
    ids=["nothing", "links", "object"],
)
def test_the_strict_build_fails_on(addition: str, complaints: list[str], tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text(f"# Home\n\n{addition}\n")
    (docs / "theory.md").write_text("# Theory\n")
    settings = (ROOT / "mkdocs.yml").read_text()
    settings = re.sub(r"(?ms)^nav:.*?^hooks:.*?^markdown", "markdown", settings)
    settings = settings.replace("docs/plugins", str(DOCS / "plugins")).replace("paths: [.]", f"paths: ['{ROOT}']")
    (tmp_path / "mkdocs.yml").write_text(settings)
    (docs / "css").mkdir()
    (docs / "css" / "interp.css").touch()
    done = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert (done.returncode != 0) == bool(complaints), done.stderr
    for complaint in complaints:
        assert complaint in done.stderr


def load_plugin(name: str):
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / "plugins" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_docstrings_keep_their_shape() -> None:
    translator = load_plugin("plain_docstrings").Translator(
        links={"katz": "interp.estimators.classical.katz"}, labels={"eq:one"}
    )
    text = """N_[k](m) and *this* are text; `katz`, `own` and eq:one, eq:two are names.

    alpha   the first,
            on two lines
    beta    the second    gamma   the third

        x = 1  # code

        >>> katz()
    """
    markdown = translator.markdown(text, own={"own"})
    assert translator.markdown("0 < |M| at $1", own=set()) == "0 &lt; &#124;M&#124; at &#36;1"
    assert r"N\_\[k\](m) and \*this\* are text" in markdown
    assert (
        '<autoref optional identifier="interp.estimators.classical.katz"><code>katz</code></autoref>, `own`' in markdown
    )
    assert "[`eq:one`][eq:one], `eq:two`" in markdown
    assert "`alpha`\n:   the first, on two lines" in markdown
    assert "`beta`\n:   the second\n\n`gamma`\n:   the third" in markdown
    assert "```text\nx = 1  # code\n```" in markdown
    fields = """mass, stderr   [lag] mean over lag 1, 2, ...
    beta           what docs/concepts/optimum.md derives
    r2, nats
    kappa_of_every_head
                   the score of BOS
    """
    markdown = translator.markdown(fields, own=set())
    assert "`mass, stderr`\n:   \\[lag\\] mean over lag 1, 2, ...\n" in markdown
    assert "`beta`\n:   what [The optimum][the-optimum] derives\n" in markdown
    assert "`r2, nats`\n:   &nbsp;\n" in markdown
    assert "`kappa_of_every_head`\n:   the score of BOS" in markdown
    section = """Parameters
    ----------
    beta : float
        a weight,
        one a lag
    vocab
        symbols
    """
    markdown = translator.markdown(section, own=set())
    assert markdown.startswith("**Parameters**\n\n`beta : float`\n:   a weight, one a lag\n\n`vocab`\n:   symbols")
    assert translator.markdown("Returns\n-------\nlaws   [batch]", own=set()).endswith("`laws`\n:   \\[batch\\]")


# What the pages say, run.


@dataclass(frozen=True, kw_only=True)
class Block:
    language: str
    body: str
    line: int
    output: str | None  # the text block right after a Python block: what it prints


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    found = list(FENCE.finditer(text))
    for place, fence in enumerate(found):
        after = found[place + 1] if place + 1 < len(found) else None
        follows = after is not None and after["language"] == "text" and not text[fence.end() : after.start()].strip()
        yield Block(
            language=fence["language"],
            body=fence["body"],
            line=text[: fence.start()].count("\n") + 2,
            output=after["body"] if after is not None and follows else None,
        )


def says_the_same(shown: str, printed: str) -> bool:
    """The same words, and numbers that agree: to 3 percent, or to one in the last place shown."""
    if " ".join(NUMBER.sub("#", shown).split()) != " ".join(NUMBER.sub("#", printed).split()):
        return False
    for left, right in zip(NUMBER.findall(shown), NUMBER.findall(printed), strict=True):
        last_place = 10.0 ** -len(left.partition(".")[2]) if "." in left and "e" not in left else 0.0
        if not math.isclose(float(left), float(right), rel_tol=0.03, abs_tol=1.01 * last_place):
            return False
    return True


@pytest.fixture
def kinds_of_its_own() -> Iterator[None]:
    """What a page registers is forgotten after it."""
    with patch.dict(priors.PRIORS), patch.dict(families.FAMILIES):
        yield


@pytest.mark.parametrize(
    "page",
    [page for page in READ if any(block.language == "python" for block in blocks(page))],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_python_blocks_run_and_print_what_they_show(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kinds_of_its_own: None
) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "checkpoints").symlink_to(ROOT / "models" / "checkpoints")
    (tmp_path / "models" / "studies").symlink_to(ROOT / "models" / "studies")
    (tmp_path / "models" / "foreign").symlink_to(ROOT / "models" / "foreign")
    monkeypatch.chdir(tmp_path)
    # Dataclasses look their module up by name.
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("docs_page", loader=None))
    monkeypatch.setitem(sys.modules, "docs_page", module)
    for block in blocks(page):
        if block.language != "python":
            continue
        printed = io.StringIO()
        tree = ast.increment_lineno(ast.parse(block.body), block.line - 1)
        with contextlib.redirect_stdout(printed):
            exec(compile(tree, str(page), "exec", dont_inherit=True), vars(module))
        where = f"{page.name}:{block.line}"
        if block.output is None:
            assert not printed.getvalue().strip(), f"{where} prints what the page does not show: {printed.getvalue()}"
        else:
            assert says_the_same(block.output, printed.getvalue()), f"{where} prints:\n{printed.getvalue()}"
    plt.close("all")


def test_the_readme_is_short_and_its_links_lead_somewhere() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.split()) <= README_WORDS
    links = [link for link in re.findall(r"\]\(([^)]+)\)", text) if not is_remote(link)]
    assert len(links) > 8
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_text_blocks_belong_to_python_blocks() -> None:
    """No shown output escapes the comparison."""
    for page in READ:
        shown = sum(block.language == "text" for block in blocks(page))
        assert shown == sum(block.language == "python" and block.output is not None for block in blocks(page)), page


def test_wrong_output_would_be_found() -> None:
    assert says_the_same("beta 3.434 +- 0.0081, n = 512", "beta  3.4335 +- 0.0082, n = 512")
    assert not says_the_same("beta 3.434", "beta 3.9")
    assert not says_the_same("beta 3.434", "kappa 3.434")
    assert not says_the_same("0.30", "0.35")
    assert not says_the_same("n = 100", "n = 104")


def example(marker: str) -> str:
    """The block of docs/howto/extend.md that is a file of its own and assigns the marker."""
    return next(block.body for block in blocks(DOCS / "howto" / "extend.md") if f"\n{marker} = " in block.body)


def test_an_analysis_and_a_figure_are_one_file_each(tmp_path: Path) -> None:
    """In a copied tree the page's two files work from the command line, and `make reproduce` would ask for both."""
    for package in ("interp", "models", "analyses", "figures"):
        ignored = shutil.ignore_patterns("__pycache__", "checkpoints")
        shutil.copytree(ROOT / package, tmp_path / package, ignore=ignored)
    (tmp_path / "analyses" / "checkpoint" / "recent_mass.py").write_text(example("ASK"))
    (tmp_path / "figures" / "beyond" / "two_curves.py").write_text(example("LABEL"))
    rows = [{"predictor": name, "length": 32, "kl": kl} for name, kl in (("bayes", 0.2), ("add-1", 0.3))]
    (tmp_path / "kl_curves.json").write_text(json.dumps({"analysis": "kl_curves", "rows": rows, "provenance": {}}))
    script = (
        "import json\n"
        "from analyses.running import cli, plan\n"
        "from figures.running import cli as figures_cli\n"
        "assert plan.shipped_asks()['recent_mass'].options.batch == 256\n"
        f"checkpoint = {str(ROOT / 'models/checkpoints/hierarchical_bos/disentangled/soft/T32_seed0')!r}\n"
        "assert cli.main(['recent_mass', checkpoint, '--within', '3', '--batch', '16', '--json']) == 0\n"
        "assert figures_cli.main(['two_curves', '--results', '.', '--out', 'out', '--format', 'png']) == 0\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    document, _ = json.JSONDecoder().raw_decode(done.stdout)
    assert document["rows"][0]["within"] == 3
    assert document["rows"][0]["n"] == 16
    sidecar = json.loads((tmp_path / "out" / "two_curves.json").read_text())
    assert sidecar["caption"].endswith("at T = 32.")
    assert (tmp_path / "out" / "two_curves.png").stat().st_size > 1000


def commands() -> list[tuple[str, str]]:
    return [
        (page.relative_to(ROOT).as_posix(), line)
        for page in READ
        for block in blocks(page)
        if block.language == "bash"
        for line in block.body.strip().splitlines()
    ]


def parse(door: click.Group, words: list[str]) -> None:
    """Parse a command line without running it."""
    with door.make_context(door.name, list(words)) as context:
        if words:
            name, command, rest = door.resolve_command(context, words)
            command.make_context(name, rest, parent=context)


def check_command(line: str) -> None:
    """Parse a command by the program it is for; its checkpoints, if they are shipped ones, must be there."""
    words = shlex.split(line)
    for word in words:
        if word.startswith(("models/checkpoints", "models/foreign")):
            assert (ROOT / word / "config.json").is_file(), f"no checkpoint {word}"
    if words[0] == "make":
        targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert words[1] in targets, f"no target {words[1]}"
        return
    if words[0] == "pip":
        assert words[1:] == ["install", "."], line  # what test_setup.py does
        return
    assert words[:2] == ["python", "-m"], line
    program, arguments = words[2], words[3:]
    if program == "models":
        from models.running.cli import models

        parse(models, arguments)
        return

    assert program in ("analyses", "figures"), line
    parse(importlib.import_module(f"{program}.running.cli").door(), arguments)


@pytest.mark.parametrize(("page", "line"), commands(), ids=[f"{page}: {line}" for page, line in commands()])
def test_commands_are_real(page: str, line: str) -> None:
    check_command(line)


@pytest.mark.parametrize(
    "line",
    [
        "python -m analyses no_such_analysis",
        "python -m analyses beta_kappa --no-such-option x",
        "python -m models train --family nonsense --out x",
        "python -m figures no_such_figure",
        "python -m analyses causal models/checkpoints/no_such_checkpoint",
        "make no_such_target",
    ],
)
def test_wrong_commands_would_be_found(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises((SystemExit, KeyError, AssertionError, click.UsageError)):
        check_command(line)


def test_studies_on_the_pages_load(tmp_path: Path) -> None:
    from models.training.sweep import load_study

    found = [block for page in PAGES for block in blocks(page) if block.language == "toml"]
    assert found
    for block in found:
        file = tmp_path / "study.toml"
        file.write_text(block.body)
        assert len(load_study(str(file), studies=ROOT / "models" / "studies", out=tmp_path)) == 12
