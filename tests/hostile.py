"""Names from a stranger: what a folder, a title or a message may hold to act on a page or a terminal that shows it."""

from __future__ import annotations

RAN = "1337"  # the title of a page on which one of them has run
NAMES = {
    "image": f'a"><img src=x onerror=document.title={RAN}>',
    "comment": "b<!--<script>",
    "end_of_script": f"</script><script>document.title={RAN}</script>",
    "template": "${document.title=1337}{{ 7 * 7 }}{% raw %}",
    "quotes": f"'\"><b onclick='document.title={RAN}' style=\"color: red\">",
    "backticks": f"`${{document.title={RAN}}}`",
    "right_to_left": "safe\u202egnp.exe",
    "lines": "one\ntwo\rthree\u2028four",
    "escape": "\x1b[2J\x1b]0;1337\x07red\x9b31m",
    "long": "long" * 45,
    "javascript": f"javascript:document.title={RAN}",
    "markdown": f"[x](javascript:document.title={RAN}) ![x](//a.example/x) *x*{{: onclick=document.title={RAN}}}",
    "symbols": "$\\undefined{$ _a_ *b* &lt; %s {0}",
}


def controls(text: str) -> set[str]:
    """The characters that act on a terminal; a line break is none of them."""
    return {one for one in text if not one.isprintable() and one != "\n"}
