"""The last query's attention, independent task: constructions and trained models."""

from __future__ import annotations

from matplotlib.figure import Figure

from figures.parts.attention import caption_fields, draw_bars, independent, kept, length_of
from figures.parts.panels import there
from figures.parts.rows import Results, Row

LABEL = "fig:mech_indep"
ANALYSES = {
    "construction_attention": kept,
    "attention": lambda rows: kept(independent(rows, bos=False) + independent(rows, bos=True)),
}
CLAIMS = ("three_constructions", "bos_pattern", "nobos_pattern")
CAPTION = (
    "Match attention of the last query on one sequence of the independent prior ({setting}), each key coloured by its "
    "overlap with the query's context; above each panel the share of each kind; the vertical scale is one. Trained "
    "models, without BOS and then with it, are of the disentangled family. {starts}"
)
TITLES = {  # in the order of the panels
    "hard": "no BOS, construction, hard (counting)",
    "adaptive": "no BOS, construction, adaptive (interpolation)",
    "nobos_trained": "no BOS, trained",
    "bos": r"BOS, construction, hard, $\kappa=k\beta+\ln(\alpha|V|)$ (add-$\alpha$)",
    "bos_trained": "BOS, trained",
}


def rows_of(results: Results) -> dict[str, Row]:
    """hard, adaptive, bos; nobos_trained, bos_trained: what is there of them."""
    rows = {row["construction"]: row for row in results["construction_attention"]}
    return rows | {"bos_trained" if row["subject"]["bos"] else "nobos_trained": row for row in results["attention"]}


def draw(results: Results) -> Figure:
    rows, bars = rows_of(results), []
    for words, row in there({words: rows.get(name) for name, words in TITLES.items()}).items():
        beta = rf", $\beta={row['beta'][0]:.3g}$" if "construction" in row else ""  # type: ignore[index, operator]
        bars.append((f"{words}{beta}, T = {length_of(row)}", row))  # type: ignore[arg-type]
    return draw_bars(bars)  # type: ignore[arg-type]


fields = caption_fields
