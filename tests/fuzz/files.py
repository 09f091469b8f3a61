"""Files that commands read: descriptions of runs, studies and results, of wrong shapes or damaged."""

from __future__ import annotations

import functools
import json
from typing import Any

from hypothesis import strategies as st

from tests.fuzz.commands import main_of
from tests.fuzz.room import Sandbox, run_command
from tests.fuzz.values import json_values
from tests.fuzz.world import ROW, SPEC, STUDY

Case = tuple[str, str, bytes]


def damaged(text: str) -> st.SearchStrategy[bytes]:
    """The text cut, with bytes flipped, or with something in the middle."""
    data = text.encode()
    places = st.integers(0, max(0, len(data) - 1))
    return st.one_of(
        places.map(lambda place: data[:place]),
        st.tuples(places, st.integers(0, 7)).map(
            lambda flip: data[: flip[0]] + bytes([data[flip[0]] ^ 1 << flip[1]]) + data[flip[0] + 1 :]
        ),
        st.tuples(places, st.sampled_from([b"\0", b"\xff", b"[" * 3000, b'"', b"9" * 5000, b"NaN", b"\n", b"{"])).map(
            lambda put: data[: put[0]] + put[1] + data[put[0] :]
        ),
    )


def changed(values: dict[str, Any]) -> st.SearchStrategy[Any]:
    """The values with some replaced, removed or added."""
    return st.tuples(
        st.dictionaries(st.sampled_from([*values, "extra"]), json_values(), max_size=3),
        st.lists(st.sampled_from(sorted(values)), max_size=2),
    ).map(lambda edit: {name: value for name, value in {**values, **edit[0]}.items() if name not in edit[1]})


def toml_value(value: Any) -> str:
    """A value as TOML writes it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if value is None:
        return '""'
    return json.dumps(value).replace("NaN", "nan").replace("Infinity", "inf")


RUN = {
    "cell": "c",
    "family": "construction",
    "prior": "hierarchical:5",
    "bos": True,
    "length": [8, 16],
    "seed": [0, 1],
    "steps": 5,
    "init": "beta(1)",
    "order": 2,
    "vocab": 3,
    "protocol": "annealed",
    "kappa": "free",
}
ODD_CELLS = st.sampled_from(["../up", "/abs", "a/../b", ".hidden", "a\\b", "", "x" * 300, "<b>", "=1", "a b"])


def studies() -> st.SearchStrategy[bytes]:
    """Studies as TOML."""

    def written(entries: list[Any]) -> bytes:
        return "\n".join(
            "[[runs]]\n" + "\n".join(f"{json.dumps(key)} = {toml_value(value)}" for key, value in entry.items())
            for entry in entries
        ).encode(errors="surrogatepass")

    entry = st.one_of(changed(RUN), ODD_CELLS.map(lambda cell: {**RUN, "cell": cell}))
    return st.one_of(damaged(STUDY), st.lists(entry, max_size=2).map(written))


def specs() -> st.SearchStrategy[bytes]:
    """Descriptions of runs as JSON."""
    prior = changed(SPEC["prior"]).map(lambda one: {**SPEC, "prior": one})
    return st.one_of(
        damaged(json.dumps(SPEC)),
        st.one_of(changed(SPEC), prior, json_values(3)).map(lambda value: json.dumps(value).encode()),
    )


@functools.cache
def figure_names() -> dict[str, tuple[str, ...]]:
    """The figures, with the analyses that each one draws."""
    from analyses.running.command import read_entries
    from figures.running import cli, drawing

    return {name: tuple(drawing.load_module(name).ANALYSES) for name in read_entries(cli.FOLDER, marker="LABEL")}


@st.composite
def results(draw: st.DrawFn) -> Case:
    """A figure, and a result that it reads."""
    figure, analyses = draw(st.sampled_from(sorted(figure_names().items())))
    row = st.dictionaries(
        st.sampled_from(["kl", "predictor", "length", "beta", "kappa", "source", "stderr", "success", "position"]),
        json_values(),
        max_size=4,
    ).map(lambda more: {**ROW, **more})
    document = st.fixed_dictionaries(
        {"analysis": st.just(analyses[0]), "rows": st.one_of(st.lists(row, max_size=3), json_values())},
        optional={"provenance": st.one_of(st.just({}), json_values()), "errors": json_values()},
    )
    whole = json.dumps({"analysis": analyses[0], "rows": [ROW], "provenance": {}})
    content = draw(st.one_of(document.map(lambda value: json.dumps(value).encode()), damaged(whole)))
    return "results", f"{figure} {' '.join(analyses)}", content


def cases() -> st.SearchStrategy[Case]:
    """What the file is, what reads it, and its content."""
    return st.one_of(
        specs().map(lambda content: ("spec", "", content)),
        studies().map(lambda content: ("study", "", content)),
        results(),
    )


def run(case: Case, sandbox: Sandbox) -> str:
    """Write the file into the sandbox and run the command that reads it."""
    kind, words, content = case
    work = sandbox.work
    if kind == "results":
        figure, *analyses = words.split()
        (work / "given").mkdir(exist_ok=True)
        for name in analyses:
            (work / f"given/{name}.json").write_bytes(content.replace(analyses[0].encode(), name.encode()))
        package, argv = "figures", [figure, "--results", "given", "--out", "drawn", "--jobs", "1"]
    else:
        file = work / ("given.json" if kind == "spec" else "given.toml")
        file.write_bytes(content)
        package = "models"
        argv = (
            ["train", "--spec", str(file), "--out", "made"] if kind == "spec" else ["sweep", str(file), "--out", "made"]
        )
    try:
        return f"{kind}: {run_command(main_of(package), argv, sandbox)}"
    finally:
        sandbox.check()
