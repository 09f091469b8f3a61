"""A language model's in-context predictions: KL by position, beside estimators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from figures.parts.language import Results, keep, pick
from figures.parts.panels import BAYES_COLOUR, absent, lettered, on_one_scale, whisker
from figures.parts.rows import Row
from interp.plotting import LAG_COLOURS
from interp.results import interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABEL = "beyond:language_kl"
ANALYSES = ("language_model",)
CLAIMS = ("language_kl",)
CAPTION = (
    "Chains of order 2 over five symbols (hierarchical prior), written in nouns of the model's vocabulary, each "
    "under several random alphabets; means over chains. (a, b) KL(truth || prediction) of the model over the "
    "alphabet and of estimators, on one scale, at the positions at which Bayes was computed; shaded: 95% "
    "intervals of the model and of Bayes. Estimators with parameters are tuned on other chains, one set for all "
    "positions. (c) beta and kappa with which soft matching comes nearest to the model within bands of positions; "
    "bars end at the values of the two halves of the chains."
)
LOOKS: dict[str, tuple[str, str, Any]] = {
    "model": ("the language model", "#003566", "-"),
    "model, letters": ("the model, in letters", "#5b99c2", (0, (4, 1, 1, 1, 1, 1))),
    "alphabets averaged": ("logits averaged over alphabets", "#003566", "--"),
    "uniform": ("uniform", "#8c8c8c", (0, (6, 2))),
    "add-alpha, order 0": ("add-alpha, order 0", "#b08968", ":"),
    "add-alpha, order 1": ("add-alpha, order 1", "#b08968", "--"),
    "add-alpha, order 2": ("add-alpha, order 2", "#b08968", "-"),
    "add-alpha, order 3": ("add-alpha, order 3", "#b08968", "-."),
    "soft matching": ("soft matching, tuned", "#ffb703", "-"),
    "bayes": ("Bayes", BAYES_COLOUR, "-"),
}
PANELS = {  # title -> predictors; Bayes stands in both
    "the model": ("model", "model, letters", "alphabets averaged", "uniform", "bayes"),
    "estimators": (
        "add-alpha, order 0", "add-alpha, order 1", "add-alpha, order 2", "add-alpha, order 3", "soft matching",
        "bayes",
    ),
}  # fmt: skip


def chosen(results: Results) -> Results:
    return keep(results, part="prediction")


def draw(results: Results) -> Figure:
    """Curves of the model, and of estimators on the same scale; the nearest soft matching by band."""
    import matplotlib.pyplot as plt

    rows = results["language_model"]
    figure, axes = plt.subplots(1, 3, figsize=(6.3, 3.6))
    curves = pick(rows, kind="kl")
    known: dict[str, Any] = {}
    for ax, (title, names) in zip(axes, PANELS.items(), strict=False):
        if not curves:
            absent(ax, "KL curves")
            continue
        draw_curves(ax, [row for name in names for row in pick(curves, predictor=name)], positions_of(curves))
        ax.set_title(title, loc="left")
        handles, labels = ax.get_legend_handles_labels()
        known |= dict(zip(labels, handles, strict=True))
    if curves:
        on_one_scale(axes[:2])
        axes[0].set_ylabel("KL to the truth (nats)")
    near = pick(rows, kind="nearest", predictor="soft matching")
    if near:
        draw_nearest(axes[2], near)
    else:
        absent(axes[2], "nearest estimators")
    lettered([ax for ax in axes if ax.axison])
    if near:
        bar = whisker("(c) range of two halves")
        known[str(bar.get_label())] = bar
    if known:
        figure.legend(known.values(), known.keys(), loc="outside lower center", ncols=3)
    return figure


def positions_of(rows: list[Row]) -> list[int] | None:
    """The positions at which Bayes is known; None where it is nowhere."""
    return next((row["position"] for row in rows if row["predictor"] == "bayes"), None)


def draw_curves(ax: Axes, rows: list[Row], known: list[int] | None) -> None:
    """KL at the positions at which Bayes is known; a band of 95% around the model and around Bayes."""
    for row in rows:
        name, colour, line = LOOKS[row["predictor"]]
        told = zip(row["position"], row["kl"], row["stderr"], strict=True)
        points = [(t, kl, e) for t, kl, e in told if t >= 4 and (known is None or t in known)]
        places, values, errors = ([point[index] for point in points] for index in range(3))
        ax.plot(places, values, color=colour, linestyle=line, linewidth=1.2, label=name)
        if row["predictor"] in ("model", "bayes"):
            low, high = interval(values, errors, n=row["n"])
            ax.fill_between(
                places, low, high, color=colour, alpha=0.15, linewidth=0,
                label=f"band: 95% interval ({name.removeprefix('the ')})",
            )  # fmt: skip
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set_ylim(0.0, None)
    ax.set_xlabel("tokens before the prediction")


def draw_nearest(ax: Axes, rows: list[Row]) -> None:
    """The parameters of the nearest soft matching; the halves' are the ends of the bars."""
    places = [(row["from"] * row["to"]) ** 0.5 for row in rows]

    def value(parameters: Row, name: str) -> float:
        return parameters["kappa"] if name == "kappa" else parameters["beta"][int(name) - 1]

    for side, (name, label, colour, marker) in enumerate(
        (
            ("1", r"$\beta_1$", LAG_COLOURS[0], "o"),
            ("2", r"$\beta_2$", LAG_COLOURS[1], "s"),
            ("kappa", r"$\kappa$", "#ffb703", "D"),
        )
    ):
        aside = [place * 2 ** (0.12 * (side - 1)) for place in places]  # so that bars do not hide each other
        middle = [value(row["parameters"], name) for row in rows]
        ends = [[value(half, name) for half in row["halves"]] for row in rows]
        ax.vlines(aside, [min(one) for one in ends], [max(one) for one in ends], color=colour, linewidth=0.8)
        ax.plot(aside, middle, color=colour, marker=marker, markersize=3, label=label)
    ax.axhline(0.0, color="#555555", linewidth=0.5)
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set_xlabel("tokens before the prediction")
    ax.set_ylabel("nats")
    ax.set_title("nearest soft matching", loc="left")
    ax.legend(loc="upper left")
