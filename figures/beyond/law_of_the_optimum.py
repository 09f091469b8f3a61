"""The optimum of soft matching on the second test grid: predicted beside searched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator, PercentFormatter

from figures.parts.panels import Panels, draw_panels, labelled, legend_below
from figures.parts.rows import Results, Row, where
from interp.plotting import QUIET, beside, lag_colour

LABEL = "beyond:law_of_the_optimum"
ANALYSES = {"worlds": lambda rows: where(rows, question="optimum")}
CLAIMS = ("predicted_optimum",)
CAPTION = (
    "{worlds} worlds drawn at random (k = 1 to 4, |V| = 2 to 32, T = 16 to 4096, eta = 1 to 50, alpha and eta_0 = "
    "0.1 to 5, with and without BOS), none of which was used to derive or fit. (a, b) beta and kappa as "
    "`predicted_parameters` gives them from the prior and T alone, against the search of `optimal_parameters` on "
    "sampled sequences; worlds whose best beta_1 is infinite are not drawn here, and worlds 1 nat or more apart "
    "are named. (c) The share of worlds in which the KL at predicted parameters is at most so far above that at "
    "the searched ones, on the same sequences: for the explicit leading order, the derivation, and the derivation "
    "with its fitted term. Without BOS the KL has its floor, which is the same for all parameters."
)

LAGS = ("1", "2", "3", "4")
LOOKS = {  # name, colour and marker of each parameter
    "1": (r"$\beta_1$", lag_colour(1), "o"), "2": (r"$\beta_2$", lag_colour(2), "s"),
    "3": (r"$\beta_3$", lag_colour(3), "^"), "4": (r"$\beta_4$", "#c1121f", "D"),
    "kappa": (r"$\kappa$", "#ffb703", "o"),
}  # fmt: skip
KINDS = {  # column -> name, colour and line
    "over_leading": ("leading order", "#5b99c2", ":"),
    "over_derived": ("derivation", "#003566", "--"),
    "over_predicted": ("with the fitted term", "#c1121f", "-"),
}
OUTLIER = 3.0  # nats between predicted and searched: from here on a world is named
LEAST = 1e-4  # share of KL: below it a logarithmic axis shows noise
END = 60.0  # where the axis of costs ends


def draw(results: Results) -> Figure:
    """beta, kappa, and what the difference costs."""
    rows = results["worlds"]
    panels: Panels = {
        r"$\beta$": (rows, lambda ax, rows: draw_parameters(ax, rows, LAGS)),
        r"$\kappa$": (rows, lambda ax, rows: draw_parameters(ax, rows, ("kappa",))),
        "what it costs": (rows, draw_costs),
    }
    figure, axes = draw_panels(panels, height=2.6)
    betas, _, costs = axes.values()
    betas.legend(loc="lower right")
    legend_below(figure, labelled([costs]), 4)
    return figure


def draw_parameters(ax: Axes, rows: list[Row], names: Sequence[str]) -> None:
    """Predicted against searched parameters, on one scale."""
    for name in names:
        draw_points(ax, rows, name)
    ends = [min(*ax.get_xlim(), *ax.get_ylim()), max(*ax.get_xlim(), *ax.get_ylim())]
    ax.plot(ends, ends, color=QUIET, linewidth=0.6, zorder=0, label="equal")
    ax.set(xlim=ends, ylim=ends, xlabel="searched (nats)", ylabel="predicted (nats)")
    for axis in (ax.xaxis, ax.yaxis):  # the same ticks on both
        axis.set_major_locator(MultipleLocator(5.0))


def draw_points(ax: Axes, rows: list[Row], name: str) -> None:
    """One parameter of every world in which both numbers are finite; worlds far from the diagonal are named."""
    mine = [row for row in rows if row[f"error_{name}"] is not None and row[f"searched_{name}"] is not None]
    x, y = ([row[f"{what}_{name}"] for row in mine] for what in ("searched", "predicted"))
    label, colour, marker = LOOKS[name]
    ax.plot(x, y, marker, markersize=2.2, markeredgewidth=0, alpha=0.7, color=colour, label=label)
    for row, place in zip(mine, zip(x, y, strict=True), strict=True):
        if abs(row[f"error_{name}"]) >= OUTLIER:
            beside(ax, *place, f"k = {row['order']}, |V| = {row['vocab']},\nT = {row['length']}", dx=-4)


def draw_costs(ax: Axes, rows: list[Row]) -> None:
    """The share of worlds in which the KL lies at most so far above the searched optimum's."""
    for column, (name, colour, line) in KINDS.items():
        costs = sorted(max(row[column], LEAST) for row in rows)
        # A point for each cost, of equal costs the last, and no steps between them: dashes along small steps break up.
        known = {cost: place / len(rows) for place, cost in enumerate(costs, start=1)}
        look: dict[str, Any] = {"color": colour, "linestyle": line, "zorder": 3 if line == "-" else 4, "gid": column}
        ax.plot([*known, END], [*known.values(), 1.0], label=f"(c) {name}", dash_capstyle="butt", **look)
    ax.set_xscale("log")
    ax.set_xlim(LEAST, END)
    ax.set_ylim(0, 1.02)
    ax.set_xticks([LEAST, 1e-3, 1e-2, 0.1, 1.0, 10.0], ["0.01%", "", "1%", "", "100%", ""])
    ax.minorticks_off()
    ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    ax.set_xlabel("KL over the searched optimum's")
    ax.set_ylabel("share of the worlds")


def fields(results: Results) -> dict[str, object]:
    return {"worlds": len(results["worlds"])}
