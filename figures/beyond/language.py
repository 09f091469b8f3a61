"""What the study `language_model` finds in pretrained models: language_heads, language_kappa, _causal and _kl.

Each is a row of panels: a title, the rows that it needs, and the function that draws them. They are of the first model
with match heads; the other models stand beside it where one panel can show several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Plt

from figures.parts.figure import Figure
from figures.parts.panels import BAYES_COLOUR, ZERO, labelled, legend_below, lettered, on_one_scale, side_by_side, there
from figures.parts.rows import Results, Row, where
from interp.plotting import (
    CONTROL_COLOUR,
    MAIN_COLOUR,
    QUIET,
    beside,
    curve,
    grouped_bars,
    head_heatmap,
    lag_colour,
    mark,
    whisker,
)
from interp.results import half_width

LABEL = {
    "language_heads": ("beyond:language_heads", "Language models' heads: which match, and with which beta"),
    "language_kappa": ("beyond:language_kappa", "A language model's sink: kappa by position"),
    "language_causal": (
        "beyond:language_causal", "A language model without its match heads, and with a law in their place",
    ),
    "language_kl": (
        "beyond:language_kl", "Language models' in-context predictions: KL by position, beside estimators",
    ),
}  # fmt: skip
HEAD_COLOURS = ("#003566", "#5b99c2", "#52796f", "#ffb703", "#882255", "#7f7f7f", "#b08968", "#9b2226")
HEAD_MARKERS = "os^DvPX*"
LIGHT, GOLD = "#5b99c2", "#ffb703"
TEXTS = {"chains": (MAIN_COLOUR, "o"), "repeats": (GOLD, "s"), "text": (BAYES_COLOUR, "^")}
MOST_HEADS = 8  # in one panel
EDITS = {"ablated": "heads ablated", "even": "even attention", "law": "their law", "grouped": "grouped by mask",
         "hard": "hard matching", "suffix": "suffix law", "free": "free law"}  # fmt: skip
SINKS = {  # column -> title and axis
    "kappa": ("against an empty match", r"$\kappa$ (nats)"),
    "kappa_minus_beta": ("against a full match", r"$\kappa - |\beta|$ (nats)"),
    "first_key": ("share of the attention", "attention on BOS"),
}
PREDICTORS: dict[str, dict[str, Any]] = {
    "model": {"label": "the language model", "color": "#003566"},
    "letters": {"label": "the model, in letters", "color": LIGHT, "linestyle": (0, (4, 1, 1, 1, 1, 1))},
    "alphabets averaged": {"label": "logits averaged over alphabets", "color": "#003566", "linestyle": "--"},
    "other model": {"color": "#9b2226", "linestyle": ":"},
    "uniform": {"label": "uniform", "color": "#8c8c8c", "linestyle": (0, (6, 2))},
    **{
        f"add-alpha, order {order}": {"label": f"add-alpha, order {order}", "color": "#b08968", "linestyle": line}
        for order, line in enumerate((":", "--", "-", "-."))
    },
    "soft matching": {"label": "soft matching, tuned", "color": GOLD},
    "bayes": {"label": "Bayes", "color": BAYES_COLOUR},
}
BANDS = ("model", "bayes")  # drawn with their intervals

Panels = dict[str, tuple[list[Row], Callable[[Axes, list[Row]], None]]]  # title -> rows, and what draws them


def of_panels(
    panels: Callable[[list[Row]], Panels], kept: Sequence[dict[str, Any]], *, height: float, claims: tuple[str, ...],
    caption: str, scale: Sequence[str] = (), keys: Iterable[Any] = (),
) -> Figure:  # fmt: skip
    """A figure of panels side by side, of the study's rows with the values of `kept`.

    scale   beginnings of the titles of panels that share their vertical axis
    keys    what the legend has beside the labels
    """

    def chosen(rows: list[Row]) -> list[Row]:
        return [row for values in kept for row in where(rows, **values)]

    def draw(results: Results) -> Plt:
        parts = panels(results["language_model"])
        found = there({title: rows for title, (rows, _) in parts.items()})
        figure, grid = plt.subplots(1, len(found), figsize=(6.3, height), squeeze=False)
        for ax, (title, rows) in zip(grid[0], found.items(), strict=True):
            parts[title][1](ax, rows)
            ax.set_title(title)
        on_one_scale(ax for ax, title in zip(grid[0], found, strict=True) if title.startswith(tuple(scale)))
        handles = [*labelled(grid[0]), *keys]
        lettered(grid[0])
        legend_below(figure, handles, 3, columnspacing=1.2)
        return figure

    return Figure(ANALYSES={"language_model": chosen}, CLAIMS=claims, CAPTION=caption, draw=draw, fields=lambda _: {})


# --- Heads, and the law of those that match --------------------------------------------------------------------------


def of_first(rows: list[Row]) -> list[Row]:
    """The rows of the first model with match heads, or of the first."""
    models = [row["model"] for row in rows if row.get("role") == "match"] or [row["model"] for row in rows]
    return where(rows, model=models[0]) if rows else []


def head_panels(rows: list[Row]) -> Panels:
    """The map, chains against repeated tokens, and betas by text."""
    scan = where(rows, kind="head")
    laws = of_first([row for row in where(rows, kind="law") if row["order"] == longest(rows, row["text"])])
    return {
        "every head": (of_first(scan), draw_map),
        "explained by matches": (scan, draw_explained),
        "law of heads that match": (laws, draw_betas),
    }


def longest(rows: list[Row], text: str) -> int:
    """The longest context of a law on these prompts."""
    return max(row["order"] for row in where(rows, kind="law", text=text))


def by_head(rows: list[Row]) -> dict[tuple[int, int], dict[str, Row]]:
    """The rows of each head, by text."""
    found: dict[tuple[int, int], dict[str, Row]] = {}
    for row in rows:
        found.setdefault((row["layer"], row["head"]), {})[row["text"]] = row
    return found


def draw_map(ax: Axes, scan: list[Row]) -> None:
    """What matches explain of every head; match heads are framed, heads that copy a lag have its number."""
    values = np.full((1 + max(row["layer"] for row in scan), 1 + max(row["head"] for row in scan)), np.nan)
    marks: dict[tuple[int, int], tuple[str, str]] = {}
    for at, texts in by_head(scan).items():
        values[at] = max(row["nats_explained"] or 0.0 for row in texts.values())
        for row in texts.values():
            if row["role"] == "copy":
                marks.setdefault(at, (str(row["copy_lag"]), lag_colour(row["copy_lag"])))
        if any(row["role"] == "match" for row in texts.values()):
            marks[at] = "", GOLD
    head_heatmap(ax, values, marks=marks, highest=max(0.1, float(np.nanmax(values))))
    ax.set_aspect("auto")
    bar = {"location": "right", "aspect": 30, "shrink": 0.7, "pad": 0.03, "label": "share of nats explained"}
    ax.get_figure().colorbar(ax.images[0], ax=ax, **bar)  # type: ignore[union-attr, arg-type]


def draw_explained(ax: Axes, scan: list[Row]) -> None:
    """What matches explain on chains against repeated tokens: of each model, and with another sequence's masks."""
    models = list(dict.fromkeys(row["model"] for row in scan))
    series = [(model, "nats_explained", MAIN_COLOUR if place == 0 else "#9b2226", "o^v<>"[place % 5])
              for place, model in enumerate(models)]  # fmt: skip
    for model, field, colour, marker in [*series, (models[0], "control_explained", CONTROL_COLOUR, "x")]:
        heads = [texts for texts in by_head(where(scan, model=model)).values() if len(texts) == 2]
        across, up = ([texts[text][field] or 0.0 for texts in heads] for text in ("repeats", "chains"))
        words = model if field == "nats_explained" else "masks of another sequence"
        ax.scatter(across, up, s=8, color=colour, marker=marker, linewidth=0.7, label=words)
    ringed = [texts for texts in by_head(where(scan, model=models[0])).values() if len(texts) == 2]
    ringed = [texts for texts in ringed if texts["chains"]["role"] == "match"]
    across, up = ([texts[text]["nats_explained"] for texts in ringed] for text in ("repeats", "chains"))
    ax.scatter(across, up, s=24, facecolor="none", edgecolor=GOLD, label="(b) ring: it matches on chains")
    ax.set_xlabel("on repeated tokens")
    ax.set_ylabel("share of nats explained, on chains")


def draw_betas(ax: Axes, laws: list[Row]) -> None:
    """beta_1 of each head that matches, by text."""
    heads = list(dict.fromkeys(row["name"] for row in laws))
    for place, (text, (colour, marker)) in enumerate(TEXTS.items()):
        if not (mine := where(laws, text=text)):
            continue
        reach = [float(half_width(row["beta_stderr"][0], n=row["n"])) for row in mine]
        places = [heads.index(row["name"]) + side_by_side(place, len(TEXTS), 0.2) for row in mine]
        look: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 2.5, "linestyle": "none"}
        curve(ax, places, [row["beta"][0] for row in mine], reach=reach, label=rf"$\beta_1$ on {text}", **look)
    ax.axhline(0.0, color=ZERO, linewidth=0.5)
    ax.set_xticks(range(len(heads)), heads, rotation=90)
    ax.set_xlabel("head (layer.head)")
    ax.set_ylabel("nats above an empty match")


def sink_panels(rows: list[Row]) -> Panels:
    """Three numbers by position."""

    def panel(column: str, words: str) -> Callable[[Axes, list[Row]], None]:
        return lambda ax, mine: draw_sink(ax, mine, column, words)

    bands = of_first(where(rows, kind="band"))
    return {title: (bands, panel(column, words)) for column, (title, words) in SINKS.items()}


def draw_sink(ax: Axes, rows: list[Row], column: str, words: str) -> None:
    """One number by position, of the heads whose law explains most, with 95% intervals, the heads set apart."""
    explained = {row["name"]: row["nats_explained"] or 0.0 for row in rows}
    heads = sorted(explained, key=lambda head: -explained[head])[:MOST_HEADS]
    for place, head in enumerate(heads):
        mine = [row for row in where(rows, name=head) if row[column] is not None]
        reach = [float(half_width(row[f"{column}_stderr"] or 0.0, n=row["n"])) for row in mine]
        look: dict[str, Any] = {"color": HEAD_COLOURS[place % 8], "marker": HEAD_MARKERS[place % 8], "linewidth": 0.9}
        places = [at * 2 ** side_by_side(place, len(heads), 0.09) for at in middles(mine)]
        curve(ax, places, [row[column] for row in mine], reach=reach, label=f"head {head}", **look)
    positions(ax, "position of the query")
    ax.set_ylabel(words)


def middles(rows: list[Row]) -> list[float]:
    """The middle of each band of positions, on a logarithmic axis."""
    return [(row["from"] * row["to"]) ** 0.5 for row in rows]


def positions(ax: Axes, words: str) -> None:
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set_xlabel(words)


# --- Edits -----------------------------------------------------------------------------------------------------------


def edit_panels(rows: list[Row]) -> Panels:
    """Edits on repeats, on chains, and the gain on text."""
    mine = of_first(rows)
    on = {
        title: where(mine, text=text, kind="edit") for title, text in (("repeated tokens", "repeats"), ("chains",) * 2)
    }
    edits = list(dict.fromkeys(row["edit"] for found in on.values() for row in found))
    panels: Panels = {title: (found, lambda ax, one: draw_edits(ax, one, edits)) for title, found in on.items()}
    return {**panels, "text": (where(mine, kind="gain"), draw_gains)}


def draw_edits(ax: Axes, rows: list[Row], edits: list[str]) -> None:
    """The rise of the loss under each edit, beside its control; the same edits in every panel."""
    made = {row["edit"]: row for row in rows}

    def column(name: str) -> Any:
        return np.array([made[edit][name] if edit in made else None for edit in edits], dtype=np.float64)

    words = [EDITS.get(edit, edit) for edit in edits]
    series = {"edit": column("change"), "its control": column("control_change")}
    errors = {"edit": column("change_stderr"), "its control": column("control_change_stderr")}
    reach = {name: half_width(values, n=rows[0]["n"]) for name, values in errors.items()}
    colours = {"edit": MAIN_COLOUR, "its control": CONTROL_COLOUR}
    grouped_bars(ax, words, series, reach=reach, colours=colours, across=True)
    for place, edit in enumerate(edits):
        if edit not in made:
            beside(ax, 0.0, place, "not made", color=QUIET)
    ax.set_xlabel("rise of the loss (nats)")


def draw_gains(ax: Axes, rows: list[Row]) -> None:
    """In-context gain on text at repeated and other contexts."""
    kinds = list(dict.fromkeys(row["without"] for row in rows))
    names = [f"without\n{kind.replace(' ', chr(10))}" if kind != "nothing" else "whole\nmodel" for kind in kinds]
    places = {"repeated": "(c) contexts that repeat", "new": "(c) other contexts"}
    mine = {words: where(rows, positions=place) for place, words in places.items()}
    series = {words: np.array([row["gain"] for row in group]) for words, group in mine.items()}
    reach = {words: half_width([row["gain_stderr"] for row in group], n=None) for words, group in mine.items()}
    colours = dict(zip(places.values(), (MAIN_COLOUR, LIGHT), strict=True))
    grouped_bars(ax, names, series, reach=reach, colours=colours, across=True)
    ax.set_xlim(0.0, None)
    ax.set_xlabel("in-context gain (nats)")


# --- Predictions -----------------------------------------------------------------------------------------------------


def prediction_panels(rows: list[Row]) -> Panels:
    """Curves of the models, and of estimators on the same scale; the nearest soft matching by band."""
    first = where(rows, model=rows[0]["model"]) if rows else []
    curves = where(first, kind="kl")
    others = [{**row, "predictor": "other model"} for row in where(rows, predictor="model") if row not in first]
    known = next((row["position"] for row in where(curves, predictor="bayes")), None)  # where Bayes was computed
    of_model = ("model", "letters", "alphabets averaged", "uniform", "bayes")
    estimators = [name for name in PREDICTORS if name not in of_model[:-1]]

    def draw(ax: Axes, mine: list[Row]) -> None:
        draw_predictions(ax, mine, known)

    return {
        "the models": ([row for name in of_model for row in where(curves, predictor=name)] + others, draw),
        "estimators": ([row for name in estimators for row in where(curves, predictor=name)], draw),
    }


def draw_predictions(ax: Axes, rows: list[Row], known: list[int] | None) -> None:
    """KL at the positions at which Bayes is known; a band of 95% around the model and around Bayes."""
    for row in rows:
        told = zip(row["position"], row["kl"], row["kl_stderr"], strict=True)
        points = [(t, kl, error) for t, kl, error in told if t >= 4 and (known is None or t in known)]
        places, values, errors = ([point[index] for point in points] for index in range(3))
        reach = half_width(errors, n=row["n"]) if row["predictor"] in BANDS else None
        look = {"label": row["model"], **PREDICTORS[row["predictor"]]}
        curve(ax, places, values, reach=reach, band=True, linewidth=1.2, **look)
    positions(ax, "tokens before the prediction")
    ax.set_ylim(0.0, None)
    ax.set_ylabel("KL to the truth (nats)" if ax.get_subplotspec().is_first_col() else "")  # type: ignore[union-attr]


INTERVAL = whisker("95% interval")
FIGURES = {
    "language_heads": of_panels(
        head_panels, ({"kind": "head"}, {"kind": "law"}), height=4.0,
        claims=("language_ablation", "language_law", "language_mass"),
        keys=(mark("(a) frame: a head that matches", marker="s", color=GOLD, markerfacecolor="white"),
              mark("(a) number: a head that copies that lag", color="white"), INTERVAL),
        caption="In-context chains on five words, an alphabet for each sequence, and repeated random tokens, a period "
        "for each sequence. (a) Of what there is to explain in each head's attention, the share that matches explain, "
        "on chains or on repeated tokens, whichever is more; framed in yellow the heads that match in either, with a "
        "number the heads that copy that lag. (b) Both shares of every head; crosses: with the masks of another "
        "sequence. (c) beta_1 of the additive law of the attention of the heads that match, with 95% intervals.",
    ),
    "language_kappa": of_panels(
        sink_panels, ({"kind": "band"},), height=2.8, claims=("language_kappa",), keys=(INTERVAL,),
        scale=("against an empty match", "against a full match"),
        caption="Additive law of the attention, without a positional term, fitted within bands of query positions of "
        "long chains; the heads whose law explains most; bars: 95% intervals; heads are set apart sideways. (a) The "
        "score of BOS above that of a key that matches nowhere; where such keys get next to no attention it is told "
        "badly. (b) The score of BOS against a full match. (c) Observed attention on BOS. With a constant number of "
        "pseudo-counts kappa would not depend on the position.",
    ),
    "language_causal": of_panels(
        edit_panels, ({"kind": "edit"}, {"kind": "gain"}), height=2.8, keys=(INTERVAL,),
        claims=("language_ablation", "language_law"),
        caption="All match heads edited together. (a) Loss of repeated random tokens. Controls: as many other heads "
        "(ablated), the same weights on shuffled keys (law, hard, grouped). The laws are fitted on other sequences. "
        "(b) The same on chains. (c) On Alice's Adventures in "
        "Wonderland: how much lower the loss of the second half of a window is after its own first half than after "
        "another window's, at contexts of two tokens that repeat from the first half and at all others. 95% intervals "
        "over sequences.",
    ),
    "language_kl": of_panels(
        prediction_panels, ({"kind": "kl"},), height=3.6, claims=("language_kl",),
        scale=("the models", "estimators"), keys=(whisker("(c) range of two halves"),),
        caption="Chains over five symbols (hierarchical prior), written in words of the model's vocabulary, each under "
        "several random alphabets; means over chains. (a, b) KL(truth || prediction) of the models over the alphabet "
        "and of estimators, on one scale, at the positions at which Bayes was computed; shaded: 95% intervals of the "
        "model and of Bayes. add-alpha has the alpha that is best on other chains, soft matching the best beta and "
        "kappa at the chains' full length.",
    ),
}  # fmt: skip
