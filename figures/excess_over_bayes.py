"""How far each predictor lies above exact Bayes, over length (hierarchical).

The paper compares with add-alpha only, because it has no Bayes predictor for this prior. Here it is computed, so that
one can see what is left: in nats, and as a share of the KL that no predictor can avoid.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from figures._curves import (
    LOOKS,
    by_length,
    concentration,
    counted,
    curve,
    length_axis,
    listed,
    models,
    of_kind,
    plot_curve,
    plot_seeds,
    shape_words,
    spread_out,
)
from figures.panels import absent, lettered
from figures.rows import Row
from figures.verdict import Verdict
from models.families import drawing_order, find_family

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABEL = "beyond:excess_over_bayes"
ANALYSES = ("kl_curves",)
CLAIM = (
    "Question: under the hierarchical prior, how much is left between soft matching, as constructed or as trained, and "
    "the best that any predictor can do, and how do classical smoothers compare?"
)

OTHERS = tuple(name for name in LOOKS if name != "bayes")
LABEL_GAP = 0.052  # between labels at the right, as a share of the axis' height
GOLD, GOLD_TEXT = LOOKS["optimal, BOS"].colour, "#8a6000"  # the line's gold is too light to read
SIGMAS = 3.0  # a difference that is no chance
LEAST = 1e-4  # nats or share: below it a logarithmic axis shows noise


def chosen(results: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """Every predictor under the hierarchical prior, and the models trained with BOS."""
    mine = of_kind(results["kl_curves"], "hierarchical")
    kept = [row for name in ("bayes", *OTHERS) for row in curve(mine, name)]
    return {"kl_curves": kept + [row for family in drawing_order() for row in models(mine, family=family, bos=True)]}


def draw(results: dict[str, list[Row]]) -> Figure:
    """Nats on the left, share on the right with a name at the end of each curve."""
    import matplotlib.pyplot as plt

    rows = results["kl_curves"]
    figure, (nats, share) = plt.subplots(1, 2, figsize=(6.3, 3.9))
    if not [row for row in rows if row["predictor"] != "bayes"]:
        absent(nats, "KL curves, hierarchical prior")
        absent(share, "KL curves, hierarchical prior")
        return figure
    for ax, field in ((nats, "excess"), (share, "excess_share")):
        ends = []
        for name in OTHERS:
            if found := curve(rows, name):
                plot_curve(ax, found, field, LOOKS[name], error=f"{field}_stderr")
                ends.append((found[-1]["length"], found[-1][field], LOOKS[name].label, LOOKS[name].colour))
        for family in drawing_order():
            if found := models(rows, family=family):
                plot_seeds(ax, found, field, family)
                length, last = list(by_length(found).items())[-1]
                look = find_family(family)
                ends.append((length, median(row[field] for row in last), look.trained_label, look.colour))
        drawn = [row[field] for row in rows if row["predictor"] != "bayes" and row[field] > LEAST]
        ax.set_yscale("log")
        ax.set_ylim(0.6 * min(drawn, default=LEAST), 1.8 * max(drawn, default=1.0))
        length_axis(ax, [row["length"] for row in rows])
        if ax is share:
            name_ends(ax, ends)
    nats.set_ylabel("excess KL over Bayes (nats)")
    share.set_ylabel("excess as a share of Bayes' KL")
    share.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}" if value >= 0.01 else f"{value:.1%}")
    nats.set_title("in nats", loc="left")
    share.set_title("as a share", loc="left")
    lettered([nats, share])
    return figure


def name_ends(ax: Axes, ends: list[tuple[int, float, str, str]]) -> None:
    """The name of each curve to the right of the axes, with a thin line to where the curve ends."""
    to_share = ax.transScale + ax.transLimits  # of the axes, in both directions
    places = [to_share.transform((length, value)) for length, value, _, _ in ends]
    heights = spread_out([float(y) for _, y in places], gap=LABEL_GAP)
    for (x, y), height, (_, _, label, colour) in zip(places, heights, ends, strict=True):
        dark = GOLD_TEXT if colour == GOLD else colour
        elbow = max(x + 0.02, 1.02)  # a curve that ends early is led along its own height to the edge
        ax.plot(
            [x, elbow, 1.09],
            [y, y, height],
            transform=ax.transAxes,
            clip_on=False,
            color=dark,
            linewidth=0.35,
            linestyle="-" if x > 0.9 else (0, (2, 2)),
            zorder=0,
            gid="leader",
        )
        ax.text(1.10, height, label, transform=ax.transAxes, va="center", color=dark, fontsize=6.2)


def caption(results: dict[str, list[Row]]) -> str:
    """What is to be seen, with the numbers."""
    rows = results["kl_curves"]
    if not rows:
        return "Excess over the Bayes predictor under the hierarchical prior: no results."
    sizes = sorted({row["n"] for row in rows})
    bayes = curve(rows, "bayes")
    groups = [group for family in drawing_order() for group in by_length(models(rows, family=family)).values()]
    first, last = bayes[0], bayes[-1]
    return (
        "Excess of KL(truth || prediction) over the Bayes predictor at the last of T tokens under the hierarchical "
        f"prior ({shape_words(rows)}, eta = {concentration(rows, 'hierarchical')} at each level), on "
        f"{listed(f'{size:,}' for size in sizes)} sequences per T that all predictors share. Left, in nats; right, as "
        f"a share of the Bayes predictor's own KL, which falls from {first['kl']:.3f} nats at T = {first['length']} to "
        f"{last['kl']:.4f} at T = {last['length']} (Monte Carlo error of its law at most "
        f"{max(row['monte_carlo_error'] for row in bayes):.2g}). Bars are 95% intervals from paired differences; "
        f"models trained with BOS have a marker for each seed ({counted(groups)} per length) and a line through the "
        "medians. `Best` are the parameters of least population KL at that T, found on other sequences; Jelinek-Mercer "
        "weights are tuned in the same way; add-alpha, Katz, Witten-Bell, Kneser-Ney and context tree weighting have "
        f"nothing to tune. Infinite KLs are floored at {first['floor']:g}: this shapes maximum likelihood, Katz and "
        "beta = 100 without BOS. With BOS beta = 100 is add-1, so these two curves coincide."
    )


def verdict(results: dict[str, list[Row]]) -> Verdict:
    """What is left, and for whom."""
    rows = results["kl_curves"]
    parts = []
    for name, label in (("optimal, BOS", "best soft matching"), ("add-0.5", "add-0.5")):
        if found := curve(rows, name):
            parts.append(f"{label} {span(found)}")
    for family in drawing_order():
        if found := models(rows, family=family):
            parts.append(f"{find_family(family).trained_label.partition(' (')[0]} {span(found)}")
    classical = [row for row in rows if row["group"] == "classical"]
    if classical:
        best = min(classical, key=lambda row: row["excess_share"])
        parts.append(f"nearest classical: {best['predictor']} at T = {best['length']}, {best['excess_share']:+.0%}")
    if not parts:
        return Verdict(word="cannot tell", measured="no KL curves of the hierarchical prior")
    last = curve(rows, "optimal, BOS")[-1:]
    stays = any(row["excess"] > SIGMAS * row["excess_stderr"] for row in last)
    return Verdict(
        word="beyond the paper",
        measured="over Bayes: " + "; ".join(parts),
        why=f"even the best soft matching is not the Bayes predictor at T = {last[0]['length']}: what it leaves is "
        f"{last[0]['excess'] / last[0]['excess_stderr']:.0f} standard errors from nothing"
        if stays
        else "",
    )


def span(rows: list[Row]) -> str:
    """The share at the shortest and at the longest length."""
    groups = list(by_length(rows).items())
    ends = [groups[0], groups[-1]] if len(groups) > 1 else groups
    return " to ".join(f"{median(row['excess_share'] for row in group):+.1%} (T = {length})" for length, group in ends)
