"""What smooths: partial matches, BOS or the readout, each switched off.

Draws the rows of `python -m analyses smoothing_source`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from figures._instruments import (
    SETTINGS,
    Results,
    Setting,
    lengths_text,
    note_missing,
    only,
    seeds_shown,
    seeds_text,
    shape_text,
    shown,
    spread,
)
from figures.known_conditions import SMOOTHING_BY_ATTENTION
from figures.panels import absent, lettered, whisker
from figures.rows import Row
from figures.verdict import Check, Verdict, judged, sentences
from interp.plotting import SOURCE_COLOURS, SOURCE_NAMES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABEL = "beyond:smoothing_source"
ANALYSES = ("smoothing_source",)
CLAIM = (
    "Without BOS a finite beta smooths by spreading attention over partial matches; with BOS on the independent task "
    "the pseudo-count of BOS does it; on the hierarchical task partial matches do it even with BOS (fig:mech_indep, "
    "fig:mech_main). The paper does not speak of the readout W_O, through which a constant can pass as well."
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


def caption(results: Results) -> str:
    """What is to be seen, with the numbers."""
    rows = results["smoothing_source"]
    if not rows:
        return "Sources of smoothing: no model was there to be measured."
    needed = listed_floors(rows)
    return (
        f"How much of the smoothing comes from partial matches (finite beta), BOS (kappa) and the readout W_O: bars "
        f"are the first seed of each setting, circles the others ({lengths_text(rows)}, {shape_text(rows)}, "
        f"{seeds_text(rows)}; n = {rows[0]['n']} held-out sequences). (a) Rise of KL(truth || prediction) when "
        f"one source is switched off and the others "
        f"stay; the scale is linear up to {LINEAR_BELOW} nats and logarithmic above, bars are one standard error over "
        f"sequences (paired). (b) Each source's part (Shapley value) in the rise from all on to all off; sources stand "
        f"in for each other, so a part can be large though the source is not missed alone. (c) The share of the "
        f"uniform law that the readout mixes in, by regression of the prediction on the match head's output. With "
        f"everything off the floor of KL ({rows[0]['floor']:g}) is needed in {needed} of sequences, with one source "
        f"off in at most {floored_alone(rows):.0%}; where it is needed, the rise depends on it. The readout of the "
        f"standard family cannot be taken apart."
    )


def listed_floors(rows: list[Row]) -> str:
    shares = [row["switched"][-1]["floored"] for row in rows]
    return f"{min(shares):.0%} to {max(shares):.0%}" if len(shares) > 1 else f"{shares[0]:.0%}"


def floored_alone(rows: list[Row]) -> float:
    return max(one["floored"] for row in rows for one in row["switched"] if one["off"] in SOURCES)


def verdict(results: Results) -> Verdict:
    """Whether the source that the paper names is the one that is missed most."""
    checks: dict[str, bool | Check] = {}
    measured, surprises, number = [], [], ""
    for setting, rows in seeds_shown(results["smoothing_source"]):
        row = rows[0]
        every = [costs_of(one) for one in rows]
        costs = every[0]
        named = "bos" if setting.prior == "independent" and setting.bos else "partial"
        most = max(costs, key=lambda source: costs[source])
        checks[f"{setting.words}: the largest cost is that of switching off {SOURCES[named][0]}"] = Check(
            passed=all(max(one, key=lambda source: one[source]) == named for one in every),
            found=", ".join(f"{SOURCES[source][0]} {rise_text(cost)}" for source, cost in ranked(costs)) + " nats",
            where=SMOOTHING_BY_ATTENTION if most == "readout" else "",
            part="with BOS" if setting.bos else "without BOS",
        )
        words = ", ".join(f"{SOURCES[source][0]} {rises_text([one[source] for one in every])}" for source in costs)
        uniform = [one["readout_uniform"] for one in rows if one["readout_uniform"] is not None]
        words += f", uniform share of the readout {spread(uniform, '.1%')}" if uniform else ""
        if not setting.bos:
            number = (
                f"without BOS, KL rises by {rise_text(costs['readout'])} nats with the readout's part off, by "
                f"{rise_text(costs['partial'])} with partial matches off"
            )
            words += f"; {parts_text(row)}" + (f" (seed {row['subject']['seed']})" if len(rows) > 1 else "")
        measured.append(f"{setting.words}{f' ({len(rows)} seeds)' if len(rows) > 1 else ''}: {words}")
        if most == "readout":
            surprises.append(
                f"{setting.words}: switched off alone, the readout, of which the paper does not speak, costs "
                f"{rise_text(costs['readout'])} nats and partial matches {rise_text(costs['partial'])}; "
                f"{parts_text(row)}"
            )
    told = "; ".join(measured)
    return judged(
        checks,
        measured=f"rise of KL when switched off alone, in nats: {told}" if told else "no model was measured",
        headline=f"{number[:1].upper()}{number[1:]}." if number else "",
        number=number,
        why=sentences(surprises),
    )


def costs_of(row: Row) -> dict[str, float]:
    """The rise of KL when each source is switched off alone, as far as it applies."""
    return {source: one["change"] for source in SOURCES if (one := switched(row, source)) is not None}


def ranked(costs: dict[str, float]) -> list[tuple[str, float]]:
    """The sources, the most costly first."""
    return sorted(costs.items(), key=lambda one: -one[1])


def rises_text(changes: list[float]) -> str:
    """One signed number, or the least and the largest of several seeds."""
    words = [rise_text(change) for change in sorted(changes)]
    return words[0] if words[0] == words[-1] else f"{words[0]} to {words[-1]}"


def shares_text(row: Row) -> str:
    """Each source's part in the whole rise."""
    return ", ".join(
        f"{SOURCES[source][0]} {part['share']:.0%}"
        for source in SOURCES
        if (part := share(row, source)) is not None and part["share"] is not None
    )


def parts_text(row: Row) -> str:
    """Each source's part in the whole rise, and how far that split hangs on the floor."""
    whole = row["switched"][-1]
    return (
        f"parts (Shapley) in the whole rise of {whole['change']:.2f} nats: {shares_text(row)}, a split that depends on "
        f"the floor of KL, which is needed in {whole['floored']:.0%} of sequences with everything off"
    )
