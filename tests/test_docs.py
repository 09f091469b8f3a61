"""The documentation: it builds without a warning, it is whole, it needs no network, and what it says runs.

The site is built once, into a temporary directory. Every Python block of the pages is run, and what it prints is
compared with the block of text that follows it. Every command is parsed by the program it is for.
"""

from __future__ import annotations

import ast
import contextlib
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

import click
import matplotlib.pyplot as plt
import pytest

import interp
from interp.chains import priors
from models.families import registry as families
from models.running.command_line import read_entries
from tests.figures.chromium import SCHEMES, WIDTHS, Tab

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
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", config, "--site-dir", site]
    return subprocess.run(command, cwd=ROOT, env=BUILD_ENVIRONMENT, capture_output=True, text=True, check=False)


class Page(HTMLParser):
    """What a page defines and what it asks for."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.requests: list[str] = []
        self.feed(text)
        article = re.sub(r"(?s)^.*?<article|</article>.*", "", text)
        self.words = len(re.sub(r"(?s)<(pre|script|style|math|svg)\b.*?</\1>|<[^>]+>", " ", article).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "link" and "canonical" not in values.get("rel", ""):
            self.requests.append(values.get("href", ""))
        self.requests += [values[name] for name in ("src", "srcset", "data", "poster") if name in values]

    handle_startendtag = handle_starttag


def is_remote(address: str) -> bool:
    return re.match(r"(?:[a-z]+:)?//", address) is not None


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
    shown = {Path(one).stem for one in pages[(site / "gallery.html").resolve()].requests if one.endswith(".webp")}
    assert shown == set(read_entries(ROOT / "figures", marker="LABEL"))


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


def test_no_line_ends_within_an_option() -> None:
    page = "<p>--x <code>models train --x-y a-b-c</code></p>"
    shown = load_plugin("accessible").on_post_page(page)
    assert shown == page.replace("--x-y", '<span class="whole">--x-y</span>')


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


KATZ = '<autoref optional identifier="interp.katz"><code>katz</code></autoref>'
EQ = '<autoref optional identifier="eq:one"><code>eq:one</code></autoref>'
SHAPES = {
    "text": ("N_[k](m), *this* and 0 < |M|", "<p>N_[k](m), *this* and 0 &lt; |M|</p>"),
    "links": ("`katz`, `own` and eq:one.", f"<p>{KATZ}, <code>own</code> and {EQ}.</p>"),
    "entries": (
        "alpha   the first,\n        on two lines\nbeta    the second    r2   the third",
        "<dl><dt><code>alpha</code></dt><dd>the first, on two lines</dd>"
        "<dt><code>beta</code></dt><dd>the second</dd><dt><code>r2</code></dt><dd>the third</dd></dl>",
    ),
    "names without a meaning": (
        "beta_of_all   [lag] of each\nr2, nats\nkappa\n        of BOS",
        "<dl><dt><code>beta_of_all</code></dt><dd>[lag] of each</dd><dt><code>r2, nats</code></dt><dd></dd>"
        "<dt><code>kappa</code></dt><dd>of BOS</dd></dl>",
    ),
    "section": (
        "Parameters\n----------\nbeta : float\n    a weight,\n    one a lag",
        "<p><strong>Parameters</strong></p>\n\n<dl><dt><code>beta : float</code></dt><dd>a weight, one a lag</dd></dl>",
    ),
    "page": ("See docs/concepts/optimum.md.", '<p>See <autoref identifier="the-optimum">The optimum</autoref>.</p>'),
    "code": ("Text:\n\n    x = 1  # code\n\nOn.", "<p>Text:</p>\n\n```text\nx = 1  # code\n```\n\n<p>On.</p>"),
    "example": (">>> katz()", "```pycon\n>>> katz()\n```"),
}


@pytest.mark.parametrize("kind", SHAPES)
def test_docstrings_keep_their_shape(kind: str) -> None:
    text, page = SHAPES[kind]
    assert load_plugin("plain_docstrings").Translator({"katz": "interp.katz"}).markdown(text) == page


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
    (tmp_path / "models" / "formation").symlink_to(ROOT / "models" / "formation")
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
