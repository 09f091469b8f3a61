"""The optimum of soft matching on the second test grid: predicted beside searched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from figures.parts.panels import absent, lettered
from figures.parts.rows import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABEL = "beyond:law_of_the_optimum"
ANALYSES = ("worlds",)
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
COLOURS = {"1": "#003566", "2": "#5b99c2", "3": "#52796f", "4": "#c1121f", "kappa": "#ffb703"}
LAG_MARKERS = {"1": "o", "2": "s", "3": "^", "4": "D", "kappa": "o"}
KINDS = {  # column -> name, colour and line
    "over_leading": ("leading order", "#5b99c2", ":"),
    "over_derived": ("derivation", "#003566", "--"),
    "over_predicted": ("with the fitted term", "#c1121f", "-"),
}
OUTLIER = 3.0  # nats between predicted and searched: from here on a world is named
LEAST = 1e-4  # share of KL: below it a logarithmic axis shows noise
END = 60.0  # where the axis of costs ends
FIELDS = (
    "prior", "order", "vocab", "length", "bos", "kl", *KINDS, *(f"error_{name}" for name in COLOURS),
    *(f"{what}_{name}" for what in ("searched", "predicted") for name in COLOURS),
)  # fmt: skip


def chosen(results: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """What is drawn of each world."""
    rows = [row for row in results["worlds"] if row["question"] == "optimum"]
    return {"worlds": [{name: row[name] for name in FIELDS} for row in rows]}


def draw(results: dict[str, list[Row]]) -> Figure:
    """beta, kappa, and what the difference costs."""
    import matplotlib.pyplot as plt
    from matplotlib.ticker import MultipleLocator

    rows = results["worlds"]
    figure, axes = plt.subplots(1, 3, figsize=(6.3, 2.6))
    if not rows:
        for ax in axes:
            absent(ax, "the worlds")
        return figure
    for name in LAGS:
        points(axes[0], rows, name, rf"$\beta_{name}$")
    points(axes[1], rows, "kappa", r"$\kappa$")
    for ax, title in ((axes[0], r"$\beta$"), (axes[1], r"$\kappa$")):
        ends = [min(*ax.get_xlim(), *ax.get_ylim()), max(*ax.get_xlim(), *ax.get_ylim())]
        ax.plot(ends, ends, color="#7f7f7f", linewidth=0.6, zorder=0, label="equal")
        ax.set_xlim(ends)
        ax.set_ylim(ends)
        for axis in (ax.xaxis, ax.yaxis):  # the same ticks on both
            axis.set_major_locator(MultipleLocator(5.0))
        ax.set_xlabel("searched (nats)")
        ax.set_ylabel("predicted (nats)")
        ax.set_title(title, loc="left")
    draw_costs(axes[2], rows)
    lettered(axes)
    parameters, _ = axes[0].get_legend_handles_labels()
    costs, _ = axes[2].get_legend_handles_labels()
    axes[0].legend(handles=parameters, loc="lower right")
    figure.legend(handles=costs, loc="outside lower right", ncols=4, columnspacing=1.2)
    return figure


def points(ax: Axes, rows: list[Row], name: str, label: str) -> None:
    """One parameter of every world in which both numbers are finite."""
    mine = [row for row in rows if row[f"error_{name}"] is not None and row[f"searched_{name}"] is not None]
    x, y = ([row[f"{what}_{name}"] for row in mine] for what in ("searched", "predicted"))
    ax.plot(
        x,
        y,
        linestyle="",
        marker=LAG_MARKERS[name],
        markersize=2.2,
        markeredgewidth=0,
        alpha=0.7,
        color=COLOURS[name],
        label=label,
    )
    for row in mine:
        if abs(row[f"error_{name}"]) >= OUTLIER:
            ax.annotate(
                world_words(row).replace(", T", ",\nT"), (row[f"searched_{name}"], row[f"predicted_{name}"]),
                xytext=(-4, 0), textcoords="offset points", ha="right", va="center", fontsize=6,
            )  # fmt: skip


def world_words(row: Row) -> str:
    """The size of a world."""
    return f"k = {row['order']}, |V| = {row['vocab']}, T = {row['length']}"


def draw_costs(ax: Axes, rows: list[Row]) -> None:
    """The share of worlds in which the KL lies at most so far above the searched optimum's."""
    for column, (name, colour, line) in KINDS.items():
        costs = sorted(max(row[column], LEAST) for row in rows)
        # A point for each cost and no steps between them: dashes along small steps break up.
        shares = [(place + 1) / len(rows) for place in range(len(rows))]
        known = {cost: share for cost, share in zip(costs, shares, strict=True)}  # of equal costs the last
        ax.plot(
            [*known, END], [*known.values(), 1.0], color=colour, linestyle=line, label=f"(c) {name}", gid=column,
            zorder=3 if line == "-" else 4,
            dash_capstyle="butt",
        )  # fmt: skip
    ax.set_xscale("log")
    ax.set_xlim(LEAST, END)
    ax.set_ylim(0, 1.02)
    ax.set_xticks([LEAST, 1e-3, 1e-2, 0.1, 1.0, 10.0], ["0.01%", "", "1%", "", "100%", ""])
    ax.minorticks_off()
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    ax.set_xlabel("KL over the searched optimum's")
    ax.set_ylabel("share of the worlds")
    ax.set_title("what it costs", loc="left")


def fields(results: dict[str, list[Row]]) -> dict[str, object]:
    return {"worlds": len(results["worlds"])}
