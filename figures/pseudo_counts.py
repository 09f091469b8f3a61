"""The pseudo-count that partial matches make at the lemma's beta, beside alpha."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from figures._curves import length_axis, listed
from figures.known_conditions import largest_box
from figures.panels import absent, lettered
from figures.rows import Row
from figures.verdict import Check, Verdict, Where, judged

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABEL = "beyond:pseudo_counts"
ANALYSES = ("pseudo_counts",)
CLAIM = (
    "lemma:optimal_beta treats the partial matches as a constant pseudo-count: it chooses beta so that the "
    "pseudo-count of eq:pseudo_count has mean alpha, and takes it to be close to that mean in every sequence. The "
    "paper says that this is an approximation, valid where counts are near their means."
)

FIELDS = (
    "order", "vocab", "length", "alpha", "beta", "mean", "stderr", "ratio", "sd", "variation", "low", "high",
    "within_two", "n",
)  # fmt: skip
MEAN_TOLERANCE = 0.25  # of alpha: add-0.75 and add-1.25 hardly differ
LARGEST_VARIATION = 0.5  # sd over mean: beyond it a constant is a poor description
COLOURS = ("#003566", "#52796f", "#ffb703", "#882255", "#7f7f7f")
MARKERS = ("o", "s", "^", "D", "v")


def chosen(results: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """Every setting, without the expected counts."""
    return {"pseudo_counts": [{name: row[name] for name in FIELDS} for row in results["pseudo_counts"]]}


def draw(results: dict[str, list[Row]]) -> Figure:
    """A panel for each order: mean and 5% to 95% range over T; vocabularies side by side."""
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D
    from matplotlib.ticker import LogLocator, NullLocator

    rows = results["pseudo_counts"]
    orders = sorted({row["order"] for row in rows}) or [2]
    vocabs = sorted({row["vocab"] for row in rows})
    figure, axes = plt.subplots(1, len(orders), figsize=(6.3, 2.6), sharey=True, squeeze=False)
    handles: dict[str, Any] = {}
    floor = 0.8 * min((row["low"] if row["low"] > 0 else row["mean"] for row in rows), default=1.0)
    for ax, order in zip(axes[0], orders, strict=True):
        mine = [row for row in rows if row["order"] == order]
        ax.set_title(f"$k = {order}$", loc="left")
        if not mine:
            absent(ax, "pseudo-counts")
            continue
        for place, vocab in enumerate(vocabs):
            here = sorted((row for row in mine if row["vocab"] == vocab), key=lambda row: row["length"])
            # Side by side: ranges of neighbours would hide each other.
            lengths = [row["length"] * 2 ** (0.16 * (place - (len(vocabs) - 1) / 2)) for row in here]
            colour = COLOURS[place % len(COLOURS)]
            lows = [row["low"] if row["low"] > 0 else floor for row in here]
            ax.vlines(lengths, lows, [row["high"] for row in here], color=colour, linewidth=0.8)
            to_zero = [length for length, row in zip(lengths, here, strict=True) if row["low"] <= 0]
            ax.plot(to_zero, [floor] * len(to_zero), "v", color=colour, markersize=3, linestyle="none")
            (handles[f"$|V| = {vocab}$"],) = ax.plot(
                lengths, [row["mean"] for row in here], color=colour, marker=MARKERS[place % len(MARKERS)]
            )
        handles[r"$\alpha$"] = ax.axhline(mine[0]["alpha"], color="#000000", linestyle="--", linewidth=0.7, zorder=3)
        ax.set_yscale("log")
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.yaxis.set_minor_locator(NullLocator())
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        ax.set_ylim(0.9 * floor, 1.2 * max(row["high"] for row in rows))
        length_axis(ax, [row["length"] for row in mine])
    axes[0, 0].set_ylabel("pseudo-count (marker: mean)")
    handles["bar: 5% to 95% of sequences"] = Line2D([], [], color="#404040", marker="|", linestyle="none", markersize=7)
    if any(row["low"] <= 0 for row in rows):
        handles["down to 0"] = Line2D([], [], color="#404040", marker="v", linestyle="none", markersize=3)
    lettered(axes[0])
    if handles:
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=len(handles))
    return figure


def caption(results: dict[str, list[Row]]) -> str:
    """What is to be seen, with the numbers."""
    rows = results["pseudo_counts"]
    if not rows:
        return "The data-dependent pseudo-count at the lemma's beta: no results."
    sizes = listed(f"{size:,}" for size in sorted({row["n"] for row in rows}))
    return (
        "The data-dependent pseudo-count of eq:pseudo_count at the beta(t) of lemma:optimal_beta, over T, for orders k "
        f"and vocabularies |V|, on {sizes} sequences per setting from the independent prior (alpha = "
        f"{rows[0]['alpha']:g}). Markers: mean over sequences and symbols (standard errors at most "
        f"{max(row['stderr'] / row['mean'] for row in rows):.1%}); bars: from the 5% to the 95% point, a "
        "triangle where that range reaches 0. Dashed: alpha, where the lemma wants the mean. "
        "Vocabularies are shifted sideways."
    )


def verdict(results: dict[str, list[Row]]) -> Verdict:
    """Where the mean is alpha, and where the pseudo-count is nearly constant."""
    rows = results["pseudo_counts"]
    if not rows:
        return Verdict(word="cannot tell", measured="no pseudo-counts")
    off = [row for row in rows if abs(row["ratio"] - 1) > MEAN_TOLERANCE]
    wide = [row for row in rows if row["variation"] > LARGEST_VARIATION]
    checks = {
        f"in every setting the mean is within {MEAN_TOLERANCE:.0%} of alpha": Check(
            passed=not off,
            found=f"mean in {len(rows) - len(off)} of {len(rows)} settings",
            where=where(rows, off) or "",
        ),
        f"in every setting the spread (sd over sequences) is below {LARGEST_VARIATION:g} of the mean": Check(
            passed=not wide,
            found=f"spread in {len(rows) - len(wide)} of {len(rows)} settings",
            where=where(rows, wide) or "",
        ),
    }
    ratios = [row["ratio"] for row in rows]
    spreads = [row["variation"] for row in rows]
    paper = sorted((row for row in rows if (row["order"], row["vocab"]) == (2, 5)), key=lambda row: row["length"])
    ends = [paper[0], paper[-1]] if paper else []
    own = ", ".join(f"T = {row['length']} mean {row['mean']:.2f} and sd {row['sd']:.2f}" for row in ends)
    told = (
        f"mean / alpha {min(ratios):.2f} to {max(ratios):.2f}, sd / mean {min(spreads):.2f} to {max(spreads):.2f} "
        f"({len(rows)} settings)"
    )
    return judged(
        checks,
        headline=f"The pseudo-count of partial matches has a mean of {min(ratios):.2f} to {max(ratios):.2f} alpha, and "
        f"varies between sequences by {min(spreads):.0%} to {max(spreads):.0%} of it ({len(rows)} settings).",
        number=told,
        measured=f"mean / alpha from {min(ratios):.2f} to {max(ratios):.2f}; sd / mean from {min(spreads):.2f} to "
        f"{max(spreads):.2f}" + (f"; k = 2, |V| = 5: {own}" if own else ""),
    )


def where(rows: list[Row], failed: list[Row]) -> Where | None:
    """The bounds of T, |V| and k within which no setting fails, with counts: told from these settings."""
    return largest_box(
        rows,
        lambda row: all(row is not one for one in failed),
        {"length": "T >=", "vocab": "|V| >=", "order": "k <="},
    )
