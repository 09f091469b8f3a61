"""Pages in a real browser: an installed Chromium through playwright, with what they asked for and complained of."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

WIDTHS = (1400, 800, 390)
SCHEMES = ("light", "dark")
HEIGHT = 900
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
# Lines of text that lie on each other: the boxes of every text that is seen, cut to what the boxes around it show, each
# without a quarter of its height above and below, because the boxes of neighbouring lines touch.
OVERLAPS = """(within) => {
  const shown = (element) => element.checkVisibility({visibilityProperty: true, opacityProperty: true});
  const window_of = new Map([[document.documentElement, [-1e6, -1e6, 1e6, 1e6]]]);
  const cut = ([a, b, c, d], [e, f, g, h]) => [Math.max(a, e), Math.max(b, f), Math.min(c, g), Math.min(d, h)];
  const view = (element) => {
    if (!window_of.has(element)) {
      const outer = view(element.parentElement), style = getComputedStyle(element);
      const box = element.getBoundingClientRect();
      const clips = style.overflowX !== "visible" || style.overflowY !== "visible";
      window_of.set(element, clips ? cut(outer, [box.left, box.top, box.right, box.bottom]) : outer);
    }
    return window_of.get(element);
  };
  const texts = document.createTreeWalker(document.querySelector(within), NodeFilter.SHOW_TEXT);
  const lines = [], range = document.createRange();
  for (let text = texts.nextNode(); text; text = texts.nextNode()) {
    const parent = text.parentElement;
    if (!text.data.trim() || parent.closest("script, style, svg, math, option") || !shown(parent)) continue;
    range.selectNodeContents(text);
    for (const box of range.getClientRects()) {
      const [left, top, right, bottom] = cut([box.left, box.top, box.right, box.bottom], view(parent));
      const edge = (bottom - top) / 4;
      if (right - left > 4 && bottom - top > 4) lines.push({left, right, top: top + edge, bottom: bottom - edge, text});
    }
  }
  lines.sort((one, other) => one.top - other.top);
  const found = [];
  lines.forEach((one, place) => {
    for (let next = place + 1; next < lines.length && lines[next].top < one.bottom - 1; next++) {
      const other = lines[next];
      if (other.text !== one.text && Math.min(one.right, other.right) - Math.max(one.left, other.left) > 2)
        found.push(`${one.text.data.trim().slice(0, 40)} / ${other.text.data.trim().slice(0, 40)}`);
    }
  });
  return found;
}"""


def installed() -> str:
    """An installed Chromium; without one the test is skipped, except where it must run."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    if os.environ.get("INTERP_NEEDS_BROWSER"):
        pytest.fail("no Chromium is installed, though INTERP_NEEDS_BROWSER is set")
    pytest.skip("no Chromium is installed; the page was not opened in a browser")


class Tab:
    """The page that is shown, and all that it asked for or complained of."""

    def __init__(self, view: Any) -> None:
        self.view = view
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self._heard = {
            "request": lambda request: self.requests.append(request.url),
            "console": lambda message: self.complaints.append(message.text),
            "pageerror": lambda error: self.complaints.append(str(error)),
        }
        for event, hear in self._heard.items():
            view.on(event, hear)

    def leave(self) -> None:
        """An empty page, without a trace of this one: what it stored, where the mouse was, who was listening."""
        self.view.evaluate("localStorage.clear(); sessionStorage.clear()")
        self.view.goto("about:blank")
        self.view.mouse.move(0, 0)
        for event, hear in self._heard.items():
            self.view.remove_listener(event, hear)

    def fetched(self) -> list[str]:
        """What was asked for from another machine."""
        return [url for url in self.requests if not url.startswith(("file:", "data:"))]

    def in_each_scheme(self) -> Iterator[str]:
        """The page in light and in dark colours, without loading it again."""
        for scheme in SCHEMES:
            self.view.emulate_media(color_scheme=scheme)
            yield scheme

    def until(self, expression: str) -> None:
        """Wait until it is true; playwright's own waiting evaluates a string, which the policy of a page forbids."""
        look = f"(function look() {{ ({expression}) ? done() : setTimeout(look, 10); }})()"
        self.view.evaluate(f"new Promise(done => {{ {look} }})")

    def overflow(self) -> int:
        """By how many pixels the page is wider than the window."""
        return max(0, int(self.view.evaluate(OVERFLOW)))

    def overlaps(self, within: str = "body") -> list[str]:
        """Texts that lie on each other, in pairs."""
        return [str(pair) for pair in self.view.evaluate(OVERLAPS, within)]

    def resize(self, width: int) -> None:
        """Another width of the window."""
        self.view.set_viewport_size({"width": width, "height": HEIGHT})

    def violations(self, *, contrast: bool = True) -> list[str]:
        """What axe-core finds wrong: contrast (most of its time), names, roles, alt texts, headings."""
        import axe_playwright_python

        if not self.view.evaluate("'axe' in window"):
            self.view.evaluate((Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text())
        # Without `preload`, which would read style sheets again, as no page that was opened from disk may. Without
        # `resultTypes` every element that passed is sent here too.
        rules = {} if contrast else {"color-contrast": {"enabled": False}}
        options = {"preload": False, "resultTypes": ["violations"], "rules": rules}
        found = self.view.evaluate("(options) => axe.run(options)", options)["violations"]
        return [f"{one['id']}: {one['help']}: {one['nodes'][0]['html'][:200]}" for one in found]


class Browser:
    """A running Chromium with one tab, for all tests. A tab for each page would be a process for each."""

    def __init__(self, chromium: Any) -> None:
        self.view = chromium.new_page()
        self.shows: str | None = None

    @contextmanager
    def opened(self, address: str, *, width: int = 1400, scheme: str = "light") -> Iterator[Tab]:
        """The page, loaded in a window of this width."""
        if self.shows is not None:
            raise RuntimeError(f"the tab still shows {self.shows}")
        self.view.set_viewport_size({"width": width, "height": HEIGHT})
        self.view.emulate_media(color_scheme=scheme)
        tab, self.shows = Tab(self.view), address
        try:
            self.view.goto(address)
            yield tab
        finally:
            tab.leave()
            self.shows = None


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """The browser of this process."""
    program = installed()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=program)
        yield Browser(running)
        running.close()
