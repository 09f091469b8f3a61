"""Where the excess over Bayes comes from: counts, randomness of the law, place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from figures.parts.curves import LOOKS, Look, shape_words
from figures.parts.panels import absent, lettered, whisker
from figures.parts.rows import Row, beside, of_one_start
from interp.results import half_width
from models.families.registry import find_family

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABEL = "beyond:regret_by_context"
ANALYSES = ("regret",)
CLAIMS = ("by_context",)
CAPTION = (
    "Mean excess of KL over the Bayes predictor within bins of the same sequences ({shape}), with 95% intervals "
    "of paired differences; percentages are the bins' shares of the sequences. (a) By how often the last context "
    "has occurred before. (b) By the entropy of the true distribution: the Bayes predictor is best on average, "
    "not for chains picked by their entropy, so excesses may be negative here. (c) By the position of the "
    "prediction, in as many shorter sequences. Trained models (first seed) are measured at their own length only. "
    "The vertical axis is linear within 0.01 nats of 0 and logarithmic beyond."
)

PANELS = (
    ("seen", "by count", "earlier occurrences of the context"),
    ("entropy", "by entropy", r"entropy of the true law / $\ln|V|$"),
    ("position", "by position", "tokens before the prediction"),
)
LINEAR = 0.01  # nats: the axis is linear up to here, because some excesses are negative
SOFT = Look(label=r"construction, best $\beta, \kappa$ for the full length", colour="#ffb703", marker="o")
RETUNED = Look(
    label=r"construction, best $\beta, \kappa$ for the position", colour="#ffb703", line=":", marker="o", filled=False
)


def looks(rows: list[Row]) -> dict[str, Look]:
    """How each predictor is drawn: estimators, then models."""
    found: dict[str, Look] = {}
    for row in rows:
        name, words = row["predictor"], row["subject"]
        if name == "soft matching":
            found[name] = SOFT
        elif name == "soft matching, retuned":
            found[name] = RETUNED
        elif words is not None:
            family = words["family"]
            found[name] = Look(
                label=find_family(family).trained_label + ("" if words["bos"] else ", no BOS"),
                colour=find_family(family).colour,
                marker=find_family(family).marker,
            )
        elif name in LOOKS and name != "bayes":
            found[name] = LOOKS[name]
    return found


def chosen(results: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """Runs of one start for each family, and none beside the main ones."""
    return {"regret": of_one_start([row for row in results["regret"] if beside(row["subject"]) is None])}


def bins_of(rows: list[Row], by: str) -> list[str]:
    """The bins that are there, in their order."""
    return list(dict.fromkeys(row["bin"] for row in rows if row["by"] == by))


def draw(results: dict[str, list[Row]]) -> Figure:
    """The mean excess within each bin, a panel for each way to cut."""
    import matplotlib.pyplot as plt

    rows = results["regret"]
    figure, axes = plt.subplots(1, 3, figsize=(6.3, 3.1), sharey=True)
    handles: dict[str, Any] = {}
    for ax, (by, title, words) in zip(axes, PANELS, strict=True):
        ax.set_title(title, loc="left")
        mine = [row for row in rows if row["by"] == by]
        if not mine:
            absent(ax, f"regret {title}")
            continue
        found = looks(mine)
        for rank, (name, look) in enumerate(found.items()):
            bars = [row for row in mine if row["predictor"] == name]
            # Side by side, so that the intervals of neighbours do not hide each other.
            shift = 0.07 * (rank - (len(found) - 1) / 2)
            handles[look.label] = draw_bins(ax, bars, look, bins_of(rows, by), shift=shift)
        ax.axhline(0.0, color="#000000", linewidth=0.8, zorder=1)
        ax.set_yscale("symlog", linthresh=LINEAR, linscale=1.0)
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        ax.set_xlabel(words if by == "position" else f"{words}\n(percent: share of the queries)")
        ticks = []
        for label in bins_of(rows, by):
            share = next(row["share"] for row in mine if row["bin"] == label)
            ticks.append(label if by == "position" else f"{label}\n{share:.0%}")
        ax.set_xticks(range(len(ticks)), ticks)
    axes[0].set_ylabel("excess over Bayes (nats)")
    lettered(axes)
    if handles:
        bar = whisker("95% interval")
        handles[str(bar.get_label())] = bar
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=2)
    return figure


def draw_bins(ax: Axes, rows: list[Row], look: Look, labels: list[str], *, shift: float) -> Any:
    """A curve over the bins with 95% bars."""
    places = [labels.index(row["bin"]) + shift for row in rows]
    values = [row["excess"] for row in rows]
    reach = [half_width(row["excess_stderr"], n=row["n"]) for row in rows]
    return ax.errorbar(places, values, yerr=reach, elinewidth=0.6, **{**look.style(), "markersize": 2.6})


def fields(results: dict[str, list[Row]]) -> dict[str, object]:
    return {"shape": shape_words(results["regret"])}
