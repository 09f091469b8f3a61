"""What hangs on two open choices: eta_0, and whether kappa is tied."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, PercentFormatter

from figures.parts.curves import LOOKS, by_length, length_axis, reach_of
from figures.parts.figure import every
from figures.parts.panels import Panels, draw_panels, labelled, whisker
from figures.parts.rows import Results, Row, where
from interp.plotting import curve

LABEL = "beyond:open_choices"
ANALYSES = {"open_choices": every}
CLAIMS = ("eta_0", "eta_0_range", "two_scalars")
CAPTION = (
    "Hierarchical prior with BOS, eta = 5 at every level; soft matching at its population optimum. (a) KL of the "
    "best soft matching and of the best add-alpha, tuned for each point, over the Bayes predictor as a share of "
    "its KL, over eta_0 of the root (the suite's own choice is 1), with 95% intervals. (b) beta_1, beta_2 and "
    "kappa of that soft matching. (c) KL over that with a free kappa on the same sequences, when kappa follows "
    "the betas (tied: the formula of prop:add_constant with alpha = 1; no bias: delta_2 = 0 on BOS), or without "
    "BOS, where the KL needs its floor."
)

READINGS: dict[str, tuple[str, dict[str, Any]]] = {  # reading of kappa -> name and look
    "tied(1)": (r"$\kappa = \beta_1 + \beta_2 + \ln|V|$: tied", {"color": "#003566", "marker": "o"}),
    "fixed(0)": (r"$\kappa = (\beta_1 + \beta_2)/|V|$: no bias", {"color": "#5b99c2", "marker": "s"}),
    "no BOS": ("no BOS", {"color": "#c1121f", "marker": "^"}),
}
PARAMETERS: dict[str, dict[str, Any]] = {
    r"$\beta_1$": {"color": "#003566", "marker": "o"},
    r"$\beta_2$": {"color": "#5b99c2", "marker": "s"},
    r"$\kappa$": {"color": "#ffb703", "marker": "D"},
}
SHARES: dict[str, tuple[str, dict[str, Any]]] = {
    "excess_share": ("soft matching", {"color": LOOKS["optimal, BOS"]["color"], "marker": "o"}),
    "add_alpha_share": (r"add-$\alpha$", {"color": LOOKS["add-alpha, tuned"]["color"], "marker": "s"}),
}
BELOW: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.22), "fontsize": 6}
LINES = ("-", "--", ":", "-.")
SIZE = 2.5  # of markers
TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)  # of what a reading costs


def draw(results: Results) -> Figure:
    """Excess over Bayes and the parameters over eta_0; the cost of each reading of kappa over T."""
    swept = sorted(where(results["open_choices"], question="eta0"), key=lambda row: row["eta0"])
    panels: Panels = {
        "best of each kind": (swept, draw_excess),
        r"best $\beta, \kappa$": (swept, draw_parameters),
        r"readings of $\kappa$": (where(results["open_choices"], question="kappa"), draw_readings),
    }
    return draw_panels(panels, height=3.6)[0]


def draw_excess(ax: Axes, rows: list[Row]) -> None:
    """The best soft matching and the best add-alpha above Bayes."""
    for line, (length, group) in zip(LINES, by_length(rows).items(), strict=False):
        for field, (name, look) in SHARES.items():
            eta0, values = ([row[column] for row in group] for column in ("eta0", field))
            words, reach = f"{name}, T = {length}", reach_of(group, f"{field}_stderr")
            curve(ax, eta0, values, reach=reach, linestyle=line, markersize=SIZE, label=words, **look)
    eta0_axis(ax, rows)
    ax.set_yscale("log")
    ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.set_ylabel("KL over that of Bayes")
    ax.legend(handles=[*labelled([ax]), whisker("95% interval")], **BELOW)


def draw_parameters(ax: Axes, rows: list[Row]) -> None:
    """beta and kappa of the best soft matching."""
    for line, (length, group) in zip(LINES, by_length(rows).items(), strict=False):
        eta0 = [row["eta0"] for row in group]
        columns = zip(*([*row["beta"][:2], row["kappa"]] for row in group), strict=True)
        for (name, look), values in zip(PARAMETERS.items(), columns, strict=True):
            ax.plot(eta0, values, linestyle=line, markersize=SIZE, label=f"{name}, T = {length}", **look)
    eta0_axis(ax, rows)
    ax.set_ylabel("nats")
    ax.legend(**BELOW)


def eta0_axis(ax: Axes, rows: list[Row]) -> None:
    values = sorted({row["eta0"] for row in rows})
    ax.set_xscale("log")
    ax.set_xticks(values, [f"{value:g}" for value in values])
    ax.minorticks_off()
    ax.set_xlabel(r"$\eta_0$")


def draw_readings(ax: Axes, rows: list[Row]) -> None:
    """KL of each reading over that of a free kappa."""
    for reading, (name, look) in READINGS.items():
        mine = sorted(where(rows, reading=reading), key=lambda row: row["length"])
        lengths, shares = ([row[column] for row in mine] for column in ("length", "over_free_share"))
        ax.plot(lengths, shares, markersize=SIZE, label=name, **look)
    length_axis(ax, [row["length"] for row in rows])
    shares = [row["over_free_share"] for row in rows if row["reading"] in READINGS]
    if min(shares) > 0:
        ax.set_yscale("log")
        ax.set_ylim(0.8 * min(shares), 1.25 * max(shares))
        ax.set_yticks([tick for tick in TICKS if 0.8 * min(shares) <= tick <= 1.25 * max(shares)])
    else:  # a reading that costs nothing
        ax.set_yscale("symlog", linthresh=0.01)
    ax.minorticks_off()
    ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    ax.set_ylabel(r"KL over that of a free $\kappa$")
    ax.legend(**BELOW)
