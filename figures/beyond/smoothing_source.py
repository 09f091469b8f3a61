"""What smooths: partial matches, BOS or the readout, each switched off.

Draws the rows of `python -m analyses smoothing_source`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from figures.parts.instruments import SETTINGS, Results, Setting, note_missing, only, seeds_shown, setting_fields, shown
from figures.parts.panels import absent, lettered, whisker
from figures.parts.rows import Row
from interp.plotting import SOURCE_COLOURS, SOURCE_NAMES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABEL = "beyond:smoothing_source"
ANALYSES = ("smoothing_source",)
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

SOURCES = {source: (name, SOURCE_COLOURS[source]) for source, name in SOURCE_NAMES.items()}
SEED_MARK: dict[str, Any] = {"markersize": 2.2, "markerfacecolor": "none", "markeredgewidth": 0.5}
LINEAR_BELOW = 0.01  # nats: the horizontal scale is linear up to here, then logarithmic


def chosen(results: Results) -> Results:
    """The seeds of each setting."""
    fields = ("switched", "shares", "readout_uniform", "readout_uniform_stderr", "readout_r2", "floor", "n", "success")
    groups = seeds_shown(results["smoothing_source"])
    return {"smoothing_source": [only(row, *fields) for _, rows in groups for row in rows]}


def draw(results: Results) -> Figure:
    """Costs of switching each source off alone, parts in the whole, and the readout's uniform share."""
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    found = [(SETTINGS.index(setting), row) for setting, row in shown(results["smoothing_source"])]
    there = dict(found)
    figure, axes = plt.subplots(1, 3, figsize=(6.3, 3.2), width_ratios=[2.2, 1.3, 1.0])
    if not found:
        for ax in axes:
            absent(ax, "every model")
        return figure
    alone, parts, uniform = axes
    draw_alone(alone, found)
    seeds = {SETTINGS.index(setting): rows[1:] for setting, rows in seeds_shown(results["smoothing_source"])}
    draw_other_seeds(alone, uniform, seeds)
    draw_shares(parts, found)
    draw_uniform(uniform, found)
    for ax in axes:
        names = [name_of(setting, there.get(place)) for place, setting in enumerate(SETTINGS)]
        ax.set_yticks(range(len(SETTINGS)), names if ax is alone else [])
        ax.set_ylim(len(SETTINGS) - 0.5, -0.5)
        ax.tick_params(axis="y", length=0)
        for edge in range(1, len(SETTINGS)):
            ax.axhline(edge - 0.5, color="#d9d9d9", linewidth=0.5)
    for place, setting in enumerate(SETTINGS):
        if place not in there:
            note_missing(alone, place, setting.words)
    lettered(axes)
    handles: list[Any] = [Patch(facecolor=colour, label=name) for name, colour in SOURCES.values()]
    handles += [
        Line2D([], [], linestyle="none", marker="o", color="black", label="another seed", **SEED_MARK),
        whisker("± one standard error"),
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=5)
    return figure


def draw_alone(ax: Axes, found: list[tuple[int, Row]]) -> None:
    """Change in KL to the truth when one source is off and the others are on."""
    height = 0.26
    for place, source in enumerate(SOURCES):
        positions = [index + (place - 1) * height for index, _ in found]
        changes = [switched(row, source) for _, row in found]
        known = [(y, one) for y, one in zip(positions, changes, strict=True) if one is not None]
        ax.barh(
            [y for y, _ in known],
            [one["change"] for _, one in known],
            xerr=[one["change_stderr"] for _, one in known],
            height=0.85 * height,
            color=SOURCES[source][1],
            error_kw={"linewidth": 0.6},
            label=source,
        )
        for y, one in zip(positions, changes, strict=True):
            words = "does not apply" if one is None else rise_text(one["change"])
            end = 0.0 if one is None else max(one["change"], 0.0) + one["change_stderr"]
            ax.annotate(
                words, (end, y), xytext=(3, 0), textcoords="offset points", va="center", fontsize=6,
                color="#7f7f7f" if one is None else "black",
            )  # fmt: skip
    ax.axvline(0.0, color="#555555", linewidth=0.5)
    ax.set_xscale("symlog", linthresh=LINEAR_BELOW)
    ax.set_xlim(-0.004, 20)
    ax.set_xticks([0, 0.01, 0.1, 1], ["0", "0.01", "0.1", "1"])
    ax.minorticks_off()
    ax.set_xlabel("rise of KL to the truth (nats)")
    ax.set_title("switched off alone")


def draw_other_seeds(alone: Axes, uniform: Axes, seeds: dict[int, list[Row]]) -> None:
    """A small open circle for each seed beside the one whose bars are drawn."""
    for index, rows in seeds.items():
        for place, source in enumerate(SOURCES):
            for row in rows:
                if (one := switched(row, source)) is not None:
                    alone.plot(one["change"], index + (place - 1) * 0.26, "o", color="black", zorder=3, **SEED_MARK)
        for row in rows:
            if row["readout_uniform"] is not None:
                uniform.plot(row["readout_uniform"], index, "o", color="black", zorder=3, clip_on=False, **SEED_MARK)


def rise_text(change: float) -> str:
    """A signed number; what rounds to nothing has no sign."""
    return "0.000" if abs(change) < 0.0005 else f"{change:+.3f}"


def draw_shares(ax: Axes, found: list[tuple[int, Row]]) -> None:
    """Parts in the rise from everything on to everything off."""
    for index, row in found:
        left = 0.0
        for source in SOURCES:
            part = share(row, source)
            if part is None or part["share"] is None:
                continue
            ax.barh(
                index, part["share"], left=left, height=0.5, color=SOURCES[source][1], edgecolor="white", linewidth=0.8
            )  # an edge, for grey print
            left += part["share"]
        whole = row["switched"][-1]["change"]
        ax.text(0.5, index + 0.27, f"all off: {whole:+.2f} nats", ha="center", va="top", fontsize=6)
    ax.set_xlim(0, 1)
    ax.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    ax.set_xlabel("share of the whole rise")
    ax.set_title("parts in the whole")


def draw_uniform(ax: Axes, found: list[tuple[int, Row]]) -> None:
    """The uniform law's share in the prediction, put there by the readout."""
    for index, row in found:
        value = row["readout_uniform"]
        if value is not None:
            ax.barh(index, value, height=0.3, color=SOURCES["readout"][1], linewidth=0)
        words = "does not\napply" if value is None else f"{value:.1%}"
        ax.annotate(
            words, (max(value or 0.0, 0.0), index), xytext=(3, 0), textcoords="offset points", va="center", fontsize=6,
            color="#7f7f7f" if value is None else "black",
        )  # fmt: skip
    ax.set_xlim(0, 1)
    ax.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    ax.set_xlabel("share of the prediction")
    ax.set_title("uniform law")


def name_of(setting: Setting, row: Row | None) -> str:
    return setting.title if row is None else f"{setting.title}, T = {row['subject']['length']}"


def switched(row: Row, off: str) -> dict[str, Any] | None:
    """The model with this source off; None where it does not apply."""
    return next((one for one in row["switched"] if one["off"] == off), None)


def share(row: Row, source: str) -> dict[str, Any] | None:
    """The source's part; None where it does not apply."""
    return next((one for one in row["shares"] if one["source"] == source and one["applies"]), None)


def fields(results: Results) -> dict[str, object]:
    return setting_fields(results["smoothing_source"])
