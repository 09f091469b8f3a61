"""Where the excess over Bayes comes from: counts, randomness of the law, place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from figures._curves import LOOKS, Look, shape_words
from figures.panels import absent, lettered, whisker
from figures.rows import Row, beside
from figures.verdict import Verdict
from interp.plotting import INTERVAL
from models.families import find_family

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABEL = "beyond:regret_by_context"
ANALYSES = ("regret",)
CLAIM = (
    "Question: in which sequences do soft matching and trained models lose against the Bayes predictor under the "
    "hierarchical prior: after new contexts or after known ones, where the true law is sharp or flat, early or late?"
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
    """All rows but those of runs beside the main ones."""
    kept = [row for row in results["regret"] if beside(row["subject"]) is None]
    return {"regret": kept}


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
    reach = [INTERVAL * row["excess_stderr"] for row in rows]
    return ax.errorbar(places, values, yerr=reach, elinewidth=0.6, **{**look.style(), "markersize": 2.6})


def caption(results: dict[str, list[Row]]) -> str:
    """What is to be seen, with the numbers."""
    rows = results["regret"]
    if not rows:
        return "Where the excess over Bayes comes from: no results."
    total = sum(row["n"] for row in rows if row["by"] == "seen" and row["predictor"] == "bayes")
    length = max((int(row["bin"]) for row in rows if row["by"] == "position"), default=0)
    return (
        f"Mean excess of KL over the Bayes predictor within bins of the same {total:,} sequences of T = {length} "
        f"tokens (prior {rows[0]['prior']}, {shape_words(rows)}), with 95% intervals from paired differences; "
        "percentages are the bins' shares of the sequences. (a) By how often the last context has occurred before. "
        "(b) By the entropy of the true law: the Bayes predictor is best on average over laws, not for laws picked by "
        "their entropy, so excesses may be negative here. (c) By the position of the prediction, in as many shorter "
        "sequences. Trained models (first seed) are measured at their own length only. The vertical axis is linear "
        f"within {LINEAR:g} nats of 0 and logarithmic beyond."
    )


def verdict(results: dict[str, list[Row]]) -> Verdict:
    """Which counts the excess comes from."""
    rows = results["regret"]
    parts = []
    for name, look in looks(rows).items():
        mine = [row for row in rows if row["predictor"] == name and row["by"] == "seen"]
        shares = [f"{row['contribution_share']:.0%} seen {row['bin']}" for row in mine if row["contribution_share"]]
        if shares:
            parts.append(
                f"{name if name in ('soft matching', *LOOKS) else look.label.partition(' (')[0]}: {', '.join(shares)}"
            )
    if not parts:
        return Verdict(word="cannot tell", measured="no regret by context")
    return Verdict(
        word="beyond the paper",
        **headline(rows),
        measured="parts of the whole excess by earlier occurrences of the context: " + "; ".join(parts),
    )


def headline(rows: list[Row]) -> dict[str, Any]:
    """The counts of the context from which most of soft matching's excess comes: a sentence and the number."""
    mine = [row for row in rows if row["predictor"] == "soft matching" and row["by"] == "seen"]
    told = [row for row in mine if row["contribution_share"] is not None]
    if not told:
        return {}
    most = max(told, key=lambda row: row["contribution_share"])
    bins = bins_of(rows, "seen")
    before = bins[bins.index(most["bin"]) - 1].rpartition("-")[2]
    times = f"more than {before} times" if most["bin"] == "more" else f"{most['bin']} times"
    part, share = f"{most['contribution_share']:.0%}", f"{most['share']:.0%}"
    return {
        "headline": f"{part} of soft matching's excess over Bayes comes from the {share} of sequences whose last "
        f"context was seen {times} before ({most['excess']:.4f} ± {most['excess_stderr']:.4f} nats there).",
        "number": f"{part} of the excess after contexts seen {times}, in {share} of the sequences",
    }
