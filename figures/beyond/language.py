"""What the study `language_model` finds in a pretrained model: language_heads, _mass, _kappa, _causal and _kl.

Each is a row of panels: a title, the rows that it needs, and the function that draws them.
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
    "language_heads": ("beyond:language_heads", "A language model's heads: which match, and with which beta"),
    "language_mass": ("beyond:language_mass", "A language model's matching heads: mass by overlap, beside the law"),
    "language_kappa": ("beyond:language_kappa", "A language model's sink: kappa by position"),
    "language_causal": (
        "beyond:language_causal", "A language model without its matching heads, and with the law in their place",
    ),
    "language_kl": (
        "beyond:language_kl", "A language model's in-context predictions: KL by position, beside estimators",
    ),
}  # fmt: skip
HEAD_COLOURS = ("#003566", "#5b99c2", "#52796f", "#ffb703", "#882255", "#7f7f7f", "#b08968", "#9b2226")
HEAD_MARKERS = "os^DvPX*"
LIGHT, GOLD = "#5b99c2", "#ffb703"
MOST_HEADS = 6  # beside each other
NAMED = 0.5  # of the least R2 of a head that matches: from here on a head has its name beside it
EDITS = {"ablated": "heads ablated", "even": "even attention", "law": "the law", "law of chains": "the law of chains",
         "grouped": "grouped by mask", "hard": "hard matching"}  # fmt: skip
SINKS = {  # column -> title and axis
    "kappa": ("against an empty match", r"$\kappa$ (nats)"),
    "kappa_minus_beta": ("against a full match", r"$\kappa - |\beta|$ (nats)"),
    "bos_mass": ("share of the attention", "attention on BOS"),
}
PREDICTORS: dict[str, dict[str, Any]] = {
    "model": {"label": "the language model", "color": "#003566"},
    "model, letters": {"label": "the model, in letters", "color": LIGHT, "linestyle": (0, (4, 1, 1, 1, 1, 1))},
    "alphabets averaged": {"label": "logits averaged over alphabets", "color": "#003566", "linestyle": "--"},
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


def head_panels(rows: list[Row]) -> Panels:
    """The map, matches against the classical score, and betas."""
    heads, laws = where(rows, kind="head"), where(rows, kind="law")
    studied = {row["name"] for row in laws}
    return {
        "every head": (heads, lambda ax, mine: draw_map(ax, mine, studied)),
        "beside the classical score": (heads, lambda ax, mine: draw_scores(ax, mine, studied)),
        "law of heads that match": (laws, draw_betas),
    }


def name_of(row: Row) -> str:
    return f"{row['layer']}.{row['head']}"


def draw_map(ax: Axes, heads: list[Row], studied: set[str]) -> None:
    """R2 of matches for every head; those that match are framed, heads that copy a lag carry its number."""
    values = np.full((1 + max(row["layer"] for row in heads), 1 + max(row["head"] for row in heads)), np.nan)
    marks: dict[tuple[int, int], tuple[str, str]] = {}
    for row in heads:
        place = row["layer"], row["head"]
        values[place] = row["r2_match"]
        if row["role"] == "copy":
            marks[place] = str(row["copy_lag"]), lag_colour(row["copy_lag"])
        if name_of(row) in studied:
            marks[place] = "", GOLD
    head_heatmap(ax, values, marks=marks, highest=max(0.1, float(np.nanmax(values))))
    ax.set_aspect("auto")
    bar = {"location": "right", "aspect": 30, "shrink": 0.7, "pad": 0.03, "label": "$R^2$ of matches on chains"}
    ax.get_figure().colorbar(ax.images[0], ax=ax, **bar)  # type: ignore[union-attr, arg-type]


def draw_scores(ax: Axes, heads: list[Row], studied: set[str]) -> None:
    """R2 of matches against the classical induction score; the control is below."""
    across = [row["repeat_induction"] for row in heads]
    for field, colour, marker, words in (
        ("control_r2_match", CONTROL_COLOUR, "x", "masks of another sequence"),
        ("r2_match", MAIN_COLOUR, "o", "masks of its own sequence"),
    ):
        up = [row[field] or 0.0 for row in heads]
        ax.scatter(across, up, s=8, color=colour, marker=marker, linewidth=0.7, label=words)
    least = NAMED * min((row["r2_match"] for row in heads if name_of(row) in studied), default=float("inf"))
    for row in heads:
        if name_of(row) in studied or (row["r2_match"] or 0.0) >= least:
            towards_room = -3 if row["repeat_induction"] > 0.2 else 3
            beside(ax, row["repeat_induction"], row["r2_match"], name_of(row), dx=towards_room, dy=3, va="baseline")
    ax.set_xlabel("classical induction score")
    ax.set_ylabel(r"$R^2$ of matches on chains")


def draw_betas(ax: Axes, laws: list[Row]) -> None:
    """kappa, and beta of each lag, of each head that matches."""
    order = len(laws[0]["beta"])
    series = {r"$\kappa$": ([row["kappa"] for row in laws], [row["kappa_stderr"] for row in laws])}
    for lag in range(order):
        series[rf"$\beta_{lag + 1}$"] = ([row["beta"][lag] for row in laws], [row["beta_stderr"][lag] for row in laws])
    for place, (name, (values, errors)) in enumerate(series.items()):
        reach = [float(half_width(error, n=row["n"])) for error, row in zip(errors, laws, strict=True)]
        places = [head + side_by_side(place, len(series), 0.14) for head in range(len(laws))]
        colour, marker = (lag_colour(place), "o") if place else (GOLD, "s")
        look: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 3, "linestyle": "none"}
        curve(ax, places, values, reach=reach, label=name, **look)
    ax.axhline(0.0, color=ZERO, linewidth=0.5)
    ax.set_xticks(range(len(laws)), [row["name"] for row in laws], rotation=45)
    ax.set_xlabel("head (layer.head)")
    ax.set_ylabel("nats above an empty match")


def mass_panels(rows: list[Row]) -> Panels:
    """A panel of bars for each head."""
    return {f"head {row['name']}": ([row], draw_masses) for row in rows[:MOST_HEADS]} or {"fits": ([], draw_masses)}


def draw_masses(ax: Axes, rows: list[Row]) -> None:
    """Observed masses beside those of the law."""
    names = ["BOS" if name == "bos" else name.replace("|M|=", "") for name in rows[0]["groups"]]
    series = {"observed": np.array(rows[0]["observed"]), "law": np.array(rows[0]["predicted"])}
    grouped_bars(ax, names, series, colours={"observed": MAIN_COLOUR, "law": CONTROL_COLOUR})
    ax.set_xlabel("overlap")
    ax.set_ylabel("mean attention" if ax.get_subplotspec().is_first_col() else "")  # type: ignore[union-attr]


def sink_panels(rows: list[Row]) -> Panels:
    """Three numbers by position."""

    def panel(column: str, words: str) -> Callable[[Axes, list[Row]], None]:
        return lambda ax, mine: draw_sink(ax, mine, column, words)

    bands = where(rows, kind="band")
    return {title: (bands, panel(column, words)) for column, (title, words) in SINKS.items()}


def draw_sink(ax: Axes, rows: list[Row], column: str, words: str) -> None:
    """One number of every head by position, with 95% intervals, the heads set apart."""
    heads = list(dict.fromkeys(row["name"] for row in rows))
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
    on = {
        title: where(rows, part="causal", on=name) for title, name in (("repeated tokens", "repeats"), ("chains",) * 2)
    }
    edits = list(dict.fromkeys(row["edit"] for mine in on.values() for row in mine))
    panels: Panels = {title: (mine, lambda ax, mine: draw_edits(ax, mine, edits)) for title, mine in on.items()}
    return {**panels, "text": (where(rows, part="text"), draw_gains)}


def draw_edits(ax: Axes, rows: list[Row], edits: list[str]) -> None:
    """The rise of the loss under each edit, beside its control; the same edits in every panel."""
    made = {row["edit"]: row for row in rows}

    def column(name: str) -> Any:
        return np.array([made[edit][name] if edit in made else None for edit in edits], dtype=np.float64)

    words = [EDITS.get(edit, edit) for edit in edits]
    series = {"edit": column("change"), "its control": column("control_change")}
    errors = {"edit": column("stderr"), "its control": column("control_stderr")}
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
    """Curves of the model, and of estimators on the same scale; the nearest soft matching by band."""
    curves = where(rows, kind="kl")
    known = next((row["position"] for row in where(curves, predictor="bayes")), None)  # where Bayes was computed
    of_model = ("model", "model, letters", "alphabets averaged", "uniform", "bayes")
    estimators = [name for name in PREDICTORS if name not in of_model[:-1]]

    def draw(ax: Axes, mine: list[Row]) -> None:
        draw_predictions(ax, mine, known)

    return {
        "the model": ([row for name in of_model for row in where(curves, predictor=name)], draw),
        "estimators": ([row for name in estimators for row in where(curves, predictor=name)], draw),
        "nearest soft matching": (where(rows, kind="nearest", predictor="soft matching"), draw_nearest),
    }


def draw_predictions(ax: Axes, rows: list[Row], known: list[int] | None) -> None:
    """KL at the positions at which Bayes is known; a band of 95% around the model and around Bayes."""
    for row in rows:
        told = zip(row["position"], row["kl"], row["stderr"], strict=True)
        points = [(t, kl, error) for t, kl, error in told if t >= 4 and (known is None or t in known)]
        places, values, errors = ([point[index] for point in points] for index in range(3))
        reach = half_width(errors, n=row["n"]) if row["predictor"] in BANDS else None
        curve(ax, places, values, reach=reach, band=True, linewidth=1.2, **PREDICTORS[row["predictor"]])
    positions(ax, "tokens before the prediction")
    ax.set_ylim(0.0, None)
    ax.set_ylabel("KL to the truth (nats)" if ax.get_subplotspec().is_first_col() else "")  # type: ignore[union-attr]


def draw_nearest(ax: Axes, rows: list[Row]) -> None:
    """The parameters of the nearest soft matching; the halves' are the ends of the bars."""

    def column(parameters: Row) -> list[float]:
        return [*parameters["beta"][:2], parameters["kappa"]]

    names = {r"$\beta_1$": (lag_colour(1), "o"), r"$\beta_2$": (lag_colour(2), "s"), r"$\kappa$": (GOLD, "D")}
    for place, (name, (colour, marker)) in enumerate(names.items()):
        aside = [at * 2 ** side_by_side(place, len(names), 0.12) for at in middles(rows)]  # so that bars are all seen
        ends = [[column(half)[place] for half in row["halves"]] for row in rows]
        values = [column(row["parameters"])[place] for row in rows]
        ax.vlines(aside, list(map(min, ends)), list(map(max, ends)), color=colour, linewidth=0.8)
        ax.plot(aside, values, color=colour, marker=marker, markersize=3, label=name)
    ax.axhline(0.0, color=ZERO, linewidth=0.5)
    positions(ax, "tokens before the prediction")
    ax.set_ylabel("nats")


INTERVAL = whisker("95% interval")
FIGURES = {
    "language_heads": of_panels(
        head_panels, ({"part": "heads", "kind": "head"}, {"part": "heads", "kind": "law"}), height=4.0,
        claims=("language_ablation", "language_law"),
        keys=(mark("(a) frame: a head that matches", marker="s", color=GOLD, markerfacecolor="white"),
              mark("(a) number: a head that copies that lag", color="white"), INTERVAL),
        caption="In-context chains of order 2 on five words, an alphabet for each sequence. (a) Of what position "
        "leaves of each head's scores, the share that matches explain; framed in yellow the heads that are studied, "
        "with a number the heads that look at that lag. (b) The same against the attention on the key after the "
        "query's earlier occurrence in repeated random tokens; grey: with the masks of another sequence. (c) The "
        "additive law of the attention, with 95% intervals.",
    ),
    "language_mass": of_panels(
        mass_panels, ({"part": "heads", "kind": "law"},), height=2.4, claims=("language_mass",), scale=("head",),
        caption="Mean attention of the matching heads on keys by overlap with the query's context, and on BOS, over "
        "queries of chains of order 2, beside the additive law fitted to the same attention. Early keys, about which "
        "the law says nothing, are left out. A fit of kappa and one number for each overlap would match these means "
        "by itself; what tests the law is the distance query by query and the share of the attention's information "
        "that it explains.",
    ),
    "language_kappa": of_panels(
        sink_panels, ({"part": "sink"},), height=2.8, claims=("language_kappa",), keys=(INTERVAL,),
        scale=("against an empty match", "against a full match"),
        caption="Additive law of the attention, without a positional term, fitted within bands of query positions of "
        "long chains; bars: 95% intervals; heads are set apart sideways. (a) The score of BOS above that of a key that "
        "matches nowhere; where such keys get next to no attention it is told badly. (b) The score of BOS against a "
        "full match. (c) Observed attention on BOS. With a constant number of pseudo-counts kappa would not depend on "
        "the position.",
    ),
    "language_causal": of_panels(
        edit_panels, ({"part": "causal"}, {"part": "text", "kind": "gain"}), height=2.8, keys=(INTERVAL,),
        claims=("language_ablation", "language_law"),
        caption="Match heads edited together. (a) Loss of the second copy of random tokens. Controls: as many other "
        "heads of the same layers (ablated), the same weights on shuffled keys (law, hard, grouped). The law is fitted "
        "on other repeats, without a positional term; `fitted with position` with one, `one law for all` to all heads "
        "together, `law of chains` on chains. (b) The same on chains. (c) On Alice's Adventures in Wonderland: how "
        "much lower the loss of the second half of a window is after its own first half than after another window's, "
        "at contexts of two tokens that repeat from the first half and at all others. 95% intervals over sequences.",
    ),
    "language_kl": of_panels(
        prediction_panels, ({"part": "prediction"},), height=3.6, claims=("language_kl",),
        scale=("the model", "estimators"), keys=(whisker("(c) range of two halves"),),
        caption="Chains of order 2 over five symbols (hierarchical prior), written in nouns of the model's vocabulary, "
        "each under several random alphabets; means over chains. (a, b) KL(truth || prediction) of the model over the "
        "alphabet and of estimators, on one scale, at the positions at which Bayes was computed; shaded: 95% intervals "
        "of the model and of Bayes. Estimators with parameters are tuned on other chains, one set for all positions. "
        "(c) beta and kappa with which soft matching comes nearest to the model within bands of positions; bars end at "
        "the values of the two halves of the chains.",
    ),
}  # fmt: skip
