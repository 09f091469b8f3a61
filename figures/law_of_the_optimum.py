"""The optimum of soft matching on the second test grid: predicted beside searched.

Draws the rows of `python -m analyses worlds`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from figures.panels import absent, lettered
from figures.rows import Row
from figures.verdict import Check, Verdict, judged

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABEL = "beyond:law_of_the_optimum"
ANALYSES = ("worlds",)
CLAIM = (
    "The paper leaves open which beta and kappa are best. Question: does the law of the optimum, which knows the prior "
    "and the length and sees no sequence, give the parameters that a search on sampled sequences finds?"
)

LAGS = ("1", "2", "3", "4")
COLOURS = {"1": "#003566", "2": "#5b99c2", "3": "#52796f", "4": "#c1121f", "kappa": "#ffb703"}
LAG_MARKERS = {"1": "o", "2": "s", "3": "^", "4": "D", "kappa": "o"}
KINDS = {  # column -> name, colour and line
    "over_leading": ("leading order", "#5b99c2", ":"),
    "over_derived": ("derivation", "#003566", "--"),
    "over_predicted": ("with the fitted term", "#c1121f", "-"),
}
NEAR, FAR, SHARE = 0.02, 0.05, 0.9
CLOSE = 0.25
OUTLIER = 3.0  # nats between predicted and searched: from here on a world is named
LEAST = 1e-4  # share of KL: below it a logarithmic axis shows noise
END = 60.0  # where the axis of costs ends
FIELDS = (
    "prior", "order", "vocab", "length", "bos", "kl", *KINDS, *(f"error_{name}" for name in COLOURS),
    *(f"{what}_{name}" for what in ("searched", "predicted") for name in COLOURS),
)  # fmt: skip


def chosen(results: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """What is drawn of each world."""
    return {"worlds": [{name: row[name] for name in FIELDS} for row in results["worlds"]]}


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
    for place, side in ((NEAR, "right"), (FAR, "left")):
        ax.axvline(
            place, color="#7f7f7f", linewidth=0.6, zorder=0, label=f"{NEAR:.0%}, {FAR:.0%}" if place == NEAR else None
        )
        ax.annotate(
            f"{place:.0%}", (place, 0.02), xytext=(-2 if side == "right" else 2, 0), textcoords="offset points",
            ha=side, va="bottom", fontsize=6, color="#555555",
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


def caption(results: dict[str, list[Row]]) -> str:
    """What is to be seen, with the numbers."""
    rows = results["worlds"]
    if not rows:
        return "The law of the optimum: no worlds."
    apart = [row for row in rows if any(abs(row[f"error_{name}"] or 0.0) >= OUTLIER for name in COLOURS)]
    named = "; ".join(f"{world_words(row)}: KL {row['over_predicted']:+.1%}" for row in apart)
    flat = sum(row["searched_1"] is None or abs(row["searched_1"]) == float("inf") for row in rows)
    return (
        f"{len(rows)} worlds drawn at random (k = 1 to 4, |V| = 2 to 32, T = 16 to 4096, eta = 1 to 50, alpha and "
        "eta_0 = 0.1 to 5, with and without BOS), none of which was used to derive or fit. (a, b) beta and kappa as "
        "`predicted_parameters` gives them from the prior and T alone, against the search of `optimal_parameters` on "
        f"sampled sequences; {flat} worlds in which the best beta_1 is infinite are not drawn here"
        + (f"; named: {OUTLIER:g} nats or more apart ({named})" if apart else "")
        + ". (c) The share of "
        "worlds in which the KL at predicted parameters is at most so far above that at the searched ones, on the same "
        "sequences: for the explicit leading order, the derivation, and the derivation with its fitted term. "
        f"Thin lines: {NEAR:.0%} and {FAR:.0%}. Without BOS the KL has its floor, which is the same for all parameters."
    )


def verdict(results: dict[str, list[Row]]) -> Verdict:
    """Whether the prediction is as good as the search."""
    rows = results["worlds"]
    if not rows:
        return Verdict(word="cannot tell", measured="no worlds")
    near = {column: part(row[column] <= NEAR for row in rows) for column in KINDS}
    far = sum(row["over_predicted"] > FAR for row in rows)
    errors = [row[f"error_{name}"] for row in rows for name in COLOURS if row[f"error_{name}"] is not None]
    close = part(abs(value) <= CLOSE for value in errors)
    checks = {
        f"the KL at the predicted parameters is within {NEAR:.0%} of the searched in {SHARE:.0%} of the worlds": Check(
            passed=near["over_predicted"] >= SHARE, found=f"{near['over_predicted']:.1%}", part="for the KL"
        ),
        f"beta and kappa are within {CLOSE} nats in {SHARE:.0%}": Check(
            passed=close >= SHARE,
            found=f"{close:.1%} of {len(errors)} parameters",
            part="for the parameters",
        ),
    }
    measured = (
        f"KL within {NEAR:.0%} of the searched optimum's in {near['over_predicted']:.1%} of {len(rows)} worlds "
        f"({near['over_derived']:.1%} without the fitted term, {near['over_leading']:.1%} to leading order); "
        f"beyond {FAR:.0%} in {far}; {close:.1%} of {len(errors)} parameters within {CLOSE} nats"
    )
    share = f"{near['over_predicted']:.1%} of {len(rows)} worlds"
    return judged(
        checks,
        measured=measured,
        headline=f"The predicted parameters have a KL within {NEAR:.0%} of the searched optimum's in {share}, and "
        f"{close:.1%} of the parameters are within {CLOSE} nats.",
        number=f"KL within {NEAR:.0%} of the optimum's in {share}; {close:.1%} of parameters within {CLOSE} nats",
    )


def part(flags: object) -> float:
    """The share that is true."""
    many = list(flags)  # type: ignore[call-overload]
    return sum(many) / max(len(many), 1)
