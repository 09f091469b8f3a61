"""What hangs on two open choices: eta_0, and whether kappa is tied.

Draws the rows of `python -m analyses open_choices`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from figures.parts.curves import LOOKS, length_axis
from figures.parts.panels import absent, lettered, whisker
from figures.parts.rows import Row
from interp.results import half_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABEL = "beyond:open_choices"
ANALYSES = ("open_choices",)
CLAIMS = ("eta_0", "eta_0_range", "two_scalars")
CAPTION = (
    "Hierarchical prior with BOS, eta = 5 at every level; soft matching at its population optimum. (a) KL of the "
    "best soft matching and of the best add-alpha, tuned for each point, over the Bayes predictor as a share of "
    "its KL, over eta_0 of the root (the suite's own choice is 1), with 95% intervals. (b) beta_1, beta_2 and "
    "kappa of that soft matching. (c) KL over that with a free kappa on the same sequences, when kappa follows "
    "the betas (tied: the formula of prop:add_constant with alpha = 1; no bias: delta_2 = 0 on BOS), or without "
    "BOS, where the KL needs its floor."
)

READINGS = {  # reading of kappa -> name, colour and marker
    "tied(1)": (r"$\kappa = \beta_1 + \beta_2 + \ln|V|$: tied", "#003566", "o"),
    "fixed(0)": (r"$\kappa = (\beta_1 + \beta_2)/|V|$: no bias", "#5b99c2", "s"),
    "no BOS": ("no BOS", "#c1121f", "^"),
}
PARAMETERS = {r"$\beta_1$": ("#003566", "o"), r"$\beta_2$": ("#5b99c2", "s"), r"$\kappa$": ("#ffb703", "D")}
BELOW: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.22), "fontsize": 6}
LINES = ("-", "--", ":", "-.")


def chosen(results: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """All rows."""
    return {"open_choices": results["open_choices"]}


def of_question(results: dict[str, list[Row]], question: str) -> list[Row]:
    return [row for row in results["open_choices"] if row["question"] == question]


def by_length(rows: list[Row]) -> dict[int, list[Row]]:
    """The rows of each length, in order of eta_0."""
    lengths = sorted({row["length"] for row in rows})
    return {
        length: sorted((row for row in rows if row["length"] == length), key=lambda row: row["eta0"])
        for length in lengths
    }


def draw(results: dict[str, list[Row]]) -> Figure:
    """Excess over Bayes and the parameters over eta_0; the cost of each reading of kappa over T."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(6.3, 3.6))
    swept, readings = of_question(results, "eta0"), of_question(results, "kappa")
    if swept:
        draw_excess(axes[0], swept)
        draw_parameters(axes[1], swept)
    else:
        for ax in axes[:2]:
            absent(ax, "eta_0")
    if readings:
        draw_readings(axes[2], readings)
    else:
        absent(axes[2], "readings of kappa")
    lettered(axes)
    return figure


def draw_excess(ax: Axes, rows: list[Row]) -> None:
    """The best soft matching and the best add-alpha above Bayes."""
    looks = (
        ("excess_share", LOOKS["optimal, BOS"].colour, "soft matching", "o"),
        ("add_alpha_share", LOOKS["add-alpha, tuned"].colour, r"add-$\alpha$", "s"),
    )
    for line, (length, group) in zip(LINES, by_length(rows).items(), strict=False):
        for field, colour, name, marker in looks:
            ax.errorbar(
                [row["eta0"] for row in group], [row[field] for row in group],
                yerr=[half_width(row[f"{field}_stderr"], n=row["n"]) for row in group], color=colour, linestyle=line,
                marker=marker, markersize=2.5, elinewidth=0.6, label=f"{name}, T = {length}",
            )  # fmt: skip
    eta0_axis(ax, rows)
    ax.set_yscale("log")
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    ax.yaxis.set_minor_formatter(lambda value, _: "")
    ax.set_ylabel("KL over that of Bayes")
    ax.set_title("best of each kind", loc="left")
    handles, _ = ax.get_legend_handles_labels()
    ax.legend(handles=[*handles, whisker("95% interval")], **BELOW)


def draw_parameters(ax: Axes, rows: list[Row]) -> None:
    """beta and kappa of the best soft matching."""
    for line, (length, group) in zip(LINES, by_length(rows).items(), strict=False):
        columns = [*zip(*(row["beta"] for row in group), strict=True), tuple(row["kappa"] for row in group)]
        for (name, (colour, marker)), values in zip(PARAMETERS.items(), [*columns[:2], columns[-1]], strict=True):
            ax.plot(
                [row["eta0"] for row in group], values, color=colour, linestyle=line, marker=marker, markersize=2.5,
                label=f"{name}, T = {length}",
            )  # fmt: skip
    eta0_axis(ax, rows)
    ax.set_ylabel("nats")
    ax.set_title(r"best $\beta, \kappa$", loc="left")
    ax.legend(**BELOW)


def eta0_axis(ax: Axes, rows: list[Row]) -> None:
    values = sorted({row["eta0"] for row in rows})
    ax.set_xscale("log")
    ax.set_xticks(values, [f"{value:g}" for value in values])
    ax.minorticks_off()
    ax.set_xlabel(r"$\eta_0$")


def draw_readings(ax: Axes, rows: list[Row]) -> None:
    """KL of each reading over that of a free kappa."""
    for reading, (name, colour, marker) in READINGS.items():
        mine = sorted((row for row in rows if row["reading"] == reading), key=lambda row: row["length"])
        ax.plot(
            [row["length"] for row in mine], [row["over_free_share"] for row in mine], color=colour, marker=marker,
            markersize=2.5, label=name,
        )  # fmt: skip
    length_axis(ax, [row["length"] for row in rows])
    shares = [row["over_free_share"] for row in rows if row["reading"] in READINGS]
    if min(shares) > 0:
        ax.set_yscale("log")
        ax.set_ylim(0.8 * min(shares), 1.25 * max(shares))
        ticks = [tick for tick in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0) if 0.8 * min(shares) <= tick]
        ax.set_yticks([tick for tick in ticks if tick <= 1.25 * max(shares)])
    else:  # a reading that costs nothing
        ax.set_yscale("symlog", linthresh=0.01)
    ax.minorticks_off()
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    ax.set_ylabel(r"KL over that of a free $\kappa$")
    ax.set_title(r"readings of $\kappa$", loc="left")
    ax.legend(**BELOW)
