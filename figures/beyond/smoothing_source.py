"""What smooths: partial matches, BOS or the readout, each switched off."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.parts.panels import (
    ZERO,
    legend_above,
    lettered,
    of_each_setting,
    setting_lines,
    share_axis,
    side_by_side,
    whisker,
)
from figures.parts.rows import Results, Row, of_seeds, seeds_shown
from interp.plotting import QUIET, SOURCE_COLOURS, SOURCE_NAMES, area, beside, mark

LABEL = "beyond:smoothing_source"
ANALYSES = {"smoothing_source": of_seeds}
CLAIMS = ("partial_smooths", "bos_smooths")
CAPTION = (
    "How much of the smoothing comes from partial matches (finite beta), BOS (kappa) and the readout W_O: bars "
    "are the first seed of each setting, circles the others ({setting}; n = {n} held-out "
    "sequences). (a) Rise of KL(truth || prediction) when one source is switched off and the others stay; linear "
    "up to 0.01 nats and logarithmic above; bars are one standard error over sequences (paired). (b) Each "
    "source's part (Shapley value) in the rise from all on to all off; sources stand in for each other, so a part "
    "can be large though the source is not missed alone. (c) The share of the uniform law that the readout mixes "
    "in, by regression of the prediction on the match head's output. KL has a floor, which shapes the rise with "
    "everything off. The readout of the standard family cannot be taken apart."
)

SEED_MARK: dict[str, Any] = {
    "marker": "o", "color": "black", "markersize": 2.2, "markerfacecolor": "none", "markeredgewidth": 0.5,
}  # fmt: skip
HEIGHT = 0.26  # of a bar's place
Found = list[tuple[int, list[Row]]]  # place of a setting, and its seeds


def draw(results: Results) -> Figure:
    """Costs of switching each source off alone, parts in the whole, and the readout's uniform share."""
    settings = of_each_setting(seeds_shown(results["smoothing_source"]))
    found = list(enumerate(settings.values()))
    size = (6.3, 0.7 + 0.5 * len(found))
    figure, (alone, parts, uniform) = plt.subplots(1, 3, figsize=size, width_ratios=[2.2, 1.3, 1.0])
    draw_alone(alone, found)
    draw_shares(parts, found)
    draw_uniform(uniform, found)
    names = [f"{setting.title}, T = {rows[0]['subject']['length']}" for setting, rows in settings.items()]
    setting_lines((alone, parts, uniform), names)
    share_axis(parts)
    share_axis(uniform)
    lettered((alone, parts, uniform))
    handles: list[Any] = [area(SOURCE_NAMES[source], colour) for source, colour in SOURCE_COLOURS.items()]
    handles += [mark("another seed", **SEED_MARK), whisker("± one standard error")]
    legend_above(figure, handles, 5)
    return figure


def draw_alone(ax: Axes, found: Found) -> None:
    """Change in KL to the truth when one source is off and the others are on; a circle for each other seed."""
    for place, (source, colour) in enumerate(SOURCE_COLOURS.items()):
        for index, (first, *others) in found:
            y, one = index + side_by_side(place, len(SOURCE_COLOURS), HEIGHT), switched(first, source)
            if one is None:
                beside(ax, 0.0, y, "does not apply", color=QUIET)
                continue
            look: dict[str, Any] = {"color": colour, "error_kw": {"linewidth": 0.6}, "label": source}
            ax.barh(y, one["change"], xerr=one["change_stderr"], height=0.85 * HEIGHT, **look)
            # What rounds to nothing has no sign.
            words = "0.000" if abs(one["change"]) < 0.0005 else f"{one['change']:+.3f}"
            beside(ax, max(one["change"], 0.0) + one["change_stderr"], y, words)
            for other in (switched(row, source) for row in others):
                if other is not None:
                    ax.plot(other["change"], y, zorder=3, **SEED_MARK)
    ax.axvline(0.0, color=ZERO, linewidth=0.5)
    ax.set_xscale("symlog", linthresh=0.01)
    ax.set_xlim(-0.004, 20)
    ax.set_xticks([0, 0.01, 0.1, 1], ["0", "0.01", "0.1", "1"])
    ax.minorticks_off()
    ax.set_xlabel("rise of KL to the truth (nats)")
    ax.set_title("switched off alone")


def draw_shares(ax: Axes, found: Found) -> None:
    """Parts in the rise from everything on to everything off."""
    for index, (row, *_) in found:
        left = 0.0
        for source, colour in SOURCE_COLOURS.items():
            width = share(row, source)
            if width is not None:
                look: dict[str, Any] = {"color": colour, "edgecolor": "white", "linewidth": 0.8}  # for grey print
                ax.barh(index, width, left=left, height=0.5, **look)
                left += width
        whole = row["switched"][-1]["change"]
        ax.text(0.5, index + 0.27, f"all off: {whole:+.2f} nats", ha="center", va="top", fontsize=6)
    ax.set_xlabel("share of the whole rise")
    ax.set_title("parts in the whole")


def draw_uniform(ax: Axes, found: Found) -> None:
    """The uniform law's share in the prediction, put there by the readout."""
    for index, (first, *others) in found:
        value = first["readout_uniform"]
        if value is None:
            beside(ax, 0.0, index, "does not\napply", color=QUIET)
            continue
        ax.barh(index, value, height=0.3, color=SOURCE_COLOURS["readout"], linewidth=0)
        beside(ax, max(value, 0.0), index, f"{value:.1%}")
        for row in others:
            if row["readout_uniform"] is not None:
                ax.plot(row["readout_uniform"], index, zorder=3, clip_on=False, **SEED_MARK)
    ax.set_xlabel("share of the prediction")
    ax.set_title("uniform law")


def switched(row: Row, off: str) -> dict[str, Any] | None:
    """The model with this source off; None where it does not apply."""
    return next((one for one in row["switched"] if one["off"] == off), None)


def share(row: Row, source: str) -> float | None:
    """The source's part; None where it does not apply."""
    return next((one["share"] for one in row["shares"] if one["source"] == source and one["applies"]), None)
