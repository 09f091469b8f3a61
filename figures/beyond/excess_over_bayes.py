"""How far each predictor lies above exact Bayes, over length (hierarchical).

The paper compares with add-alpha only, because it has no Bayes predictor for this prior. Here it is computed, so that
one can see what is left: in nats, and as a share of the KL that no predictor can avoid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

from figures.parts.curves import (
    LOOKS,
    by_length,
    curve,
    family_shift,
    length_axis,
    of_kind,
    plot_curve,
    plot_seeds,
)
from figures.parts.panels import absent, lettered, whisker
from figures.parts.rows import Row, matching, shape_words
from interp.plotting import name_ends
from interp.plotting.curves import END_GAP
from interp.results import half_width
from models.families.registry import drawing_order, find_family

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABEL = "beyond:excess_over_bayes"
ANALYSES = ("kl_curves",)
CLAIMS = ("excess",)
CAPTION = (
    "Excess of KL(truth || prediction) over the Bayes predictor at the last of T tokens under the hierarchical "
    "prior ({shape}), as a share of the Bayes predictor's own KL, on sequences that all predictors share. The "
    "best soft matching, broad and gold, stands in each panel: (a) models trained with BOS, (b) constructions, "
    "(c) estimators of the full context alone, (d) classical smoothers that use shorter contexts; (b) to (d) "
    "share one scale. Bars are 95% intervals of paired differences; trained models have a marker for each seed "
    "and a line through the medians. `Best` are the parameters of least population KL at that T, found on other "
    "sequences; Jelinek-Mercer weights and alpha are tuned in the same way. Infinite KLs are floored, which "
    "shapes maximum likelihood, Katz and beta = 100 without BOS. With BOS beta = 100 is add-1: one curve in (b) "
    "and (c)."
)

REFERENCE = "optimal, BOS"  # stands in every panel, to compare with
TRAINED = "trained models, on a linear scale"
PANELS = {  # title -> the predictors of one kind
    TRAINED: (REFERENCE,),
    "constructions": ("hard, no BOS", "hard, BOS", "beta(t), no BOS", "optimal, no BOS", REFERENCE),
    "counting": ("maximum likelihood", "add-0.1", "add-0.5", "add-1", "add-alpha, tuned"),
    "back-off and mixtures": (
        "jelinek-mercer", "katz", "katz, absolute", "katz, good-turing", "witten-bell", "kneser-ney",
        "context tree weighting",
    ),
}  # fmt: skip
OTHERS = tuple(dict.fromkeys(name for names in PANELS.values() for name in names))
SHORT = {  # names beside the curves, where those of the legends are too long
    "hard, no BOS": r"$\beta=100$, no BOS",
    "hard, BOS": r"$\beta=100$",
    "beta(t), no BOS": r"$\beta(t)$, no BOS",
    "optimal, no BOS": r"best $\beta$, no BOS",
    "optimal, BOS": r"best $\beta, \kappa$",
    "maximum likelihood": "max. likelihood",
    "add-alpha, tuned": r"add-$\alpha$, tuned",
    "jelinek-mercer": "Jelinek-Mercer",
    "katz, absolute": "Katz, abs.",
    "katz, good-turing": "Katz, G.-T.",
    "context tree weighting": "context tree",
}
FAMILY_NAMES = {"construction": "trained constr."}
ASIDE = 0.4  # of the step that sets families apart in narrow panels
GOLD, GOLD_TEXT = LOOKS[REFERENCE].colour, "#8a6000"  # the line's gold is too light to read
LEAST = 1e-4  # nats or share: below it a logarithmic axis shows noise


def chosen(results: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """Every predictor under the hierarchical prior, and the models trained with BOS."""
    mine = of_kind(results["kl_curves"], "hierarchical")
    kept = [row for name in ("bayes", *OTHERS) for row in curve(mine, name)]
    return {"kl_curves": kept + [row for family in drawing_order() for row in matching(mine, family=family, bos=True)]}


def draw(results: dict[str, list[Row]]) -> Figure:
    """Trained models on a scale of their own; below, a panel for each kind of predictor on one scale."""
    import matplotlib.pyplot as plt

    rows = results["kl_curves"]
    figure = plt.figure(figsize=(6.3, 5.2))
    if not rows:
        absent(figure.add_subplot(), "KL curves, hierarchical prior")
        return figure
    kinds = [title for title in PANELS if title != TRAINED]
    grid = figure.add_gridspec(2, len(kinds), height_ratios=(1.0, 1.7))
    axes = [figure.add_subplot(grid[0, :])]
    for column in range(len(kinds)):
        axes.append(figure.add_subplot(grid[1, column], sharey=axes[1] if column else None))
        axes[-1].tick_params(labelleft=column == 0)
    lengths = sorted({row["length"] for row in rows})
    scales(axes, rows)
    for ax, (title, names) in zip(axes, PANELS.items(), strict=True):
        length_axis(ax, lengths, sparse=title != TRAINED)
        ax.set_xlim(0.85 * lengths[0], 1.2 * lengths[-1])
        ends = draw_predictors(ax, rows, names) + (draw_models(ax, rows) if title == TRAINED else [])
        if title == TRAINED:
            name_ends(ax, ends, gap=1.9 * END_GAP, room=0.35)
        else:
            name_ends(ax, ends)
        ax.set_title(title, loc="left")
    figure.supylabel("KL above that of Bayes, as a share of it", fontsize=7)
    words = "95% interval (trained models: from the least to the largest seed)"
    figure.legend(handles=[whisker(words)], loc="outside lower center")
    lettered(axes)
    return figure


def scales(axes: Sequence[Axes], rows: list[Row]) -> None:
    """Shares over Bayes: from zero for the trained models, on one logarithmic scale for all kinds of predictors."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    trained = [row["excess_share"] for family in drawing_order() for row in matching(rows, family=family)]
    best = [
        row["excess_share"] + float(half_width(row["excess_share_stderr"], n=row["n"]))
        for row in curve(rows, REFERENCE)
    ]
    axes[0].set_ylim(min([0.0, *trained]), 1.1 * max([*trained, *best, LEAST]))
    axes[0].yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes[0].yaxis.set_major_formatter(
        lambda value, _: f"{value:.0%}" if abs(100 * value - round(100 * value)) < 1e-6 else f"{value:.1%}"
    )
    drawn = [row["excess_share"] for row in rows if row["group"] != "trained" and row["excess_share"] > LEAST]
    axes[1].set_yscale("log")
    axes[1].set_ylim(0.55 * min(drawn, default=LEAST), 1.6 * max(drawn, default=1.0))
    axes[1].yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes[1].yaxis.set_major_formatter(lambda value, _: f"{value:.0%}" if value >= 0.01 else f"{value:.1%}")
    axes[1].yaxis.set_minor_locator(NullLocator())


End = tuple[int, float, str, str]  # length, value, name and colour


def draw_predictors(ax: Axes, rows: list[Row], names: tuple[str, ...]) -> list[End]:
    """The curves of one panel, and the best soft matching, broad and pale where it is not among them."""
    ends = []
    for name in dict.fromkeys([*names, REFERENCE]):
        found, look = curve(rows, name), LOOKS[name]
        if not found:
            continue
        if name == REFERENCE:
            look = replace(look, width=2.2, below=True)
        plot_curve(ax, found, "excess_share", look, error="excess_share_stderr")
        colour = GOLD_TEXT if look.colour == GOLD else look.colour
        ends.append((found[-1]["length"], found[-1]["excess_share"], SHORT.get(name, look.label), colour))
    return ends


def draw_models(ax: Axes, rows: list[Row]) -> list[End]:
    """The trained models, a marker for each seed."""
    ends = []
    families = [family for family in drawing_order() if matching(rows, family=family)]
    for family in families:
        found = matching(rows, family=family)
        plot_seeds(ax, found, "excess_share", family, shift=ASIDE * family_shift(family, families))
        length, last = list(by_length(found).items())[-1]
        middle = median(row["excess_share"] for row in last)
        ends.append((length, middle, FAMILY_NAMES.get(family, family), find_family(family).colour))
    return ends


def fields(results: dict[str, list[Row]]) -> dict[str, object]:
    return {"shape": shape_words(results["kl_curves"])}
