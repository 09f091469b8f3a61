"""The last query's attention, independent task: constructions and trained models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from figures.parts import attention as panels
from figures.parts import circuit
from figures.parts.rows import Row, nearest

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABEL = "fig:mech_indep"
ANALYSES = ("construction_attention", "attention")
CLAIMS = ("three_constructions", "bos_pattern", "nobos_pattern")
CAPTION = (
    "Match attention of the last query on one sequence of the independent prior ({setting}), each key coloured by its "
    "overlap with the query's context; the legends give the share of each kind, and the vertical scale is one. Trained "
    "models, without BOS and then with it, are of the disentangled family. {starts}"
)
LENGTH = 64
TRAINED = {"nobos": {"bos": False}, "bos": {"bos": True}}


def chosen(results: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """The three constructions, and the trained disentangled model without and with BOS."""
    found = [
        nearest(results["attention"], LENGTH, family="disentangled", prior="independent", **words)
        for words in TRAINED.values()
    ]
    return {
        "construction_attention": [circuit.kept(row) for row in results["construction_attention"]],
        "attention": [circuit.kept(row) for row in found if row is not None],
    }


def rows_of(results: dict[str, list[Row]]) -> dict[str, Row]:
    """hard, adaptive, bos; nobos_trained, bos_trained: what is there of them."""
    rows = {row["construction"]: row for row in results["construction_attention"]}
    for row in results["attention"]:
        rows["bos_trained" if row["subject"]["bos"] else "nobos_trained"] = row
    return rows


def draw(results: dict[str, list[Row]]) -> Figure:
    rows = rows_of(results)
    order = ("hard", "adaptive", "nobos_trained", "bos", "bos_trained")
    return panels.draw_bars(
        [(title_of(name, rows.get(name)), rows.get(name), missing_words(name)) for name in order], height=6.0
    )


def title_of(name: str, row: Row | None) -> str:
    """What the panel is of."""
    length = "" if row is None else f", T = {circuit.length_of(row)}"
    titles = {
        "hard": "no BOS, construction, hard (counting)",
        "adaptive": "no BOS, construction, adaptive (interpolation)",
        "bos": r"BOS, construction, hard, $\kappa=k\beta+\ln(\alpha|V|)$ (add-$\alpha$)",
        "nobos_trained": "no BOS, trained",
        "bos_trained": "BOS, trained",
    }
    if row is not None and name in ("hard", "adaptive", "bos"):
        return rf"{titles[name]}, $\beta={row['beta'][0]:.3g}${length}"
    return titles[name] + length


def missing_words(name: str) -> str:
    """The note in place of a panel."""
    words = {
        "nobos_trained": "disentangled model, independent prior without BOS",
        "bos_trained": "disentangled model, independent prior with BOS",
    }
    return words.get(name, f"construction_attention, {name}")


fields = panels.caption_fields
