"""Which condition does each claim need? A row for each cell of the study.

Freedom grows downwards: frozen copies and readout, a free readout, a hard start, a random start, the theorem's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from analyses.condition_answers import readout_answer
from figures._curves import listed
from figures.panels import absent
from figures.rows import Row
from figures.verdict import Verdict
from interp.plotting import LAG_COLOURS, SOURCE_COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABEL = "beyond:conditions"
ANALYSES = ("conditions",)
CLAIM = (
    "The theory has hypotheses: frozen sharp copies, a start that treats symbols alike, a readout that adds votes. "
    "Each cell of this study frees one part. Which claim of the paper needs which of them? (The paper does not ask.)"
)
NAMES = {
    "frozen": "copies, readout frozen",
    "frozen_copies": "copies frozen",
    "hard_start": "free, hard start",
    "random_start": "free, random start",
    "symmetrised": "free, symmetric",
    "zero_start": "free, zero start",
    "zero_start_symmetrised": "free, zero, symm.",
    "leaving": "free, 5 x steps",
    "frozen_copies_no_direct": "copies frozen, no direct path",
    "frozen_copies_votes": "copies frozen, votes alone",
    "random_start_no_direct": "free, no direct path",
    "random_start_votes": "free, votes alone",
    "standard": "standard family",
}
SETTINGS = (("hierarchical", True), ("independent", True), ("independent", False))
LENGTH_COLOURS = {32: "#bdbdbd", 64: "#8c8c8c", 128: "#4d4d4d", 256: "#000000"}
OTHER_LENGTH = "#ffb703"
HEAD = 1.2  # rows that the name of a setting takes
Results = dict[str, list[Row]]


def chosen(results: Results) -> Results:
    """The annealed runs, and those trained for longer."""
    kept = [row for row in results["conditions"] if row["protocol"] in ("annealed", "long") and row["cell"] in NAMES]
    return {"conditions": kept}


def layout(rows: Sequence[Row]) -> tuple[dict[tuple[str, bool, str, str], float], list[tuple[float, str]]]:
    """The height of each cell's line, downwards, and of each setting's name."""
    places: dict[tuple[str, bool, str, str], float] = {}
    heads = []
    height = 0.0
    for prior, bos in SETTINGS:
        mine = {(row["cell"], row["readout"]) for row in rows if (row["prior"], row["bos"]) == (prior, bos)}
        if not mine:
            continue
        heads.append((height + HEAD / 2, f"{prior} prior, {'with' if bos else 'no'} BOS"))
        height += HEAD
        for readout in ("probability", "logit"):
            for cell in NAMES:
                if (cell, readout) in mine:
                    places[prior, bos, cell, readout] = height + 0.5
                    height += 1.0
    return places, heads


def draw(results: Results) -> Figure:
    """Eight columns of the same lines."""
    import matplotlib.pyplot as plt

    rows = results["conditions"]
    if not rows:
        figure, ax = plt.subplots(figsize=(6.3, 2.0))
        absent(ax, "runs of the study conditions")
        return figure
    places, heads = layout(rows)
    bottom = max(places.values()) + 0.5
    figure, axes = plt.subplots(
        1, len(COLUMNS), figsize=(6.3, 0.9 + 0.16 * bottom), sharey=True, gridspec_kw={"wspace": 0.05}
    )
    for ax, (title, ticks, scale, paint) in zip(axes, COLUMNS, strict=True):
        paint(ax, rows, places)
        ax.set_title(title, fontsize=6.5, loc="center")
        if scale == "log":
            ax.set_xscale("log")
        ax.set_xlim(*scale) if isinstance(scale, tuple) else None
        ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        ax.minorticks_off()
        ax.tick_params(axis="y", length=0)
        ax.tick_params(axis="x", top=True, labeltop=True, pad=1)
        for place, _ in heads:
            ax.axhspan(place - HEAD / 2, place + HEAD / 2, color="#eeeeee", linewidth=0, zorder=3)
        for place in places.values():
            ax.axhline(place, color="#e6e6e6", linewidth=0.4, zorder=0)
        ax.spines[["left", "bottom"]].set_visible(False)
    axes[0].set_ylim(bottom, 0)
    names = {place: f"{NAMES[cell]}, {READOUTS[readout]}" for (_, _, cell, readout), place in places.items()}
    axes[0].set_yticks([*names, *(place for place, _ in heads)], [*names.values(), *(name for _, name in heads)])
    for label in axes[0].get_yticklabels()[len(names) :]:
        label.set_fontweight("bold")
    figure.legend(handles=legend(rows), loc="outside lower center", ncols=5, fontsize=6)
    return figure


READOUTS = {"probability": "prob.", "logit": "logit"}


SPREAD = 0.6  # of a line's height, over which its lengths are set apart


def shifts(rows: Sequence[Row]) -> dict[int, float]:
    """How far each length stands from the middle of its line; the shortest on top."""
    lengths = sorted({row["length"] for row in rows})
    step = SPREAD / len(lengths)
    return {length: step * (place - (len(lengths) - 1) / 2) for place, length in enumerate(lengths)}


def each(rows: Sequence[Row], places: dict[Any, float], name: str) -> list[tuple[float, float, int]]:
    """(value, height, length) of every run that has the number."""
    shift = shifts(rows)
    found = []
    for row in rows:
        place = places[row["prior"], row["bos"], row["cell"], row["readout"]] + shift[row["length"]]
        found += [(run[name], place, row["length"]) for run in row["runs"] if run[name] is not None]
    return found


def dots(
    *names: str, markers: str = "o", colours: Sequence[str] | None = None, change: Callable[[float], float] = float
) -> Callable[[Axes, Sequence[Row], dict[Any, float]], None]:
    """A marker for each run; several numbers have several markers, and colours of their own or of the length."""

    def paint(ax: Axes, rows: Sequence[Row], places: dict[Any, float]) -> None:
        for number, name in enumerate(names):
            groups: dict[str, list[tuple[float, float]]] = {}
            for value, place, length in each(rows, places, name):
                colour = colours[number] if colours else LENGTH_COLOURS.get(length, OTHER_LENGTH)
                groups.setdefault(colour, []).append((change(value), place))
            for colour, points in groups.items():
                values, heights = zip(*points, strict=True)
                filled = markers[number] in "o^v"
                ax.plot(
                    values, heights, marker=markers[number].lower(), markersize=2.0, markeredgewidth=0.5,
                    color=colour, markerfacecolor=colour if filled else "none", linestyle="None", zorder=2,
                )  # fmt: skip

    return paint


def paint_blocks(ax: Axes, rows: Sequence[Row], places: dict[Any, float]) -> None:
    """The aligned blocks of W_A, over ticks at the optimum's beta for each length."""
    shift = shifts(rows)
    half = SPREAD / len(shift) / 2
    for lag in (0, 1):
        drawn = [
            (
                row["best_beta"][lag],
                places[row["prior"], row["bos"], row["cell"], row["readout"]] + shift[row["length"]],
            )
            for row in rows
            if row["best_beta"][lag] is not None
        ]
        if drawn:
            best, heights = zip(*drawn, strict=True)
            lows, highs = [height - half for height in heights], [height + half for height in heights]
            ax.vlines(best, lows, highs, color=LAG_COLOURS[lag + 1], linewidth=0.5, zorder=1)
    dots("block_1", "block_2", markers="^v", colours=(LAG_COLOURS[1], LAG_COLOURS[2]))(ax, rows, places)


def paint_sources(ax: Axes, rows: Sequence[Row], places: dict[Any, float]) -> None:
    """Parts in the smoothing, where all sources can be switched off: the mean of the seeds, a bar for each length."""
    sources = {"partial": "partial", "bos_share": "bos", "readout_share": "readout"}
    shift = shifts(rows)
    known = [row for row in rows if row["readout_share"]["median"] is not None]
    heights = [places[row["prior"], row["bos"], row["cell"], row["readout"]] + shift[row["length"]] for row in known]
    left = [0.0] * len(known)
    for name, source in sources.items():
        widths = [mean_of(row["runs"], name) for row in known]
        ax.barh(heights, widths, left=left, height=0.9 * SPREAD / len(shift), color=SOURCE_COLOURS[source], linewidth=0)
        left = [one + width for one, width in zip(left, widths, strict=True)]


def mean_of(runs: Sequence[Row], name: str) -> float:
    """Of the runs that have the number; 0 where the source is not there."""
    values = [run[name] for run in runs if run[name] is not None]
    return sum(values) / len(values) if values else 0.0


# Title, ticks, limits ("log" for a logarithmic scale), and what is drawn.
COLUMNS: tuple[tuple[str, tuple[float, ...], Any, Callable[..., None]], ...] = (
    ("KL over\noptimum", (-20, 0, 20), (-32, 38), dots("excess_share", change=lambda share: min(100 * share, 36))),
    ("$R^2$ of\nthe law", (0.5, 1), (0.15, 1.06), dots("r2")),
    ("blocks\nof $W_A$", (2, 5, 8), (0.5, 9.5), paint_blocks),
    ("off\nspan{I, J}", (0.001, 1), "log", dots("residual", change=lambda value: max(value, 1e-4))),
    ("copies,\nlast query", (0, 0.5, 1), (-0.08, 1.08), dots("copy_1", "copy_2", markers="^v",
                                                           colours=(LAG_COLOURS[1], LAG_COLOURS[2]))),
    ("loss\nrecovered", (0.5, 1), (0.4, 1.08), dots("law", "pair_law", markers="oS", colours=("#003566", "#c1121f"))),
    ("smooth-\ning by", (0, 0.5, 1), (-0.02, 1.04), paint_sources),
    ("relabeled\n(nats)", (1e-6, 1e-2), "log", dots("dependence", change=lambda value: max(value, 1e-7))),
)  # fmt: skip


def legend(rows: Sequence[Row]) -> list[Any]:
    """Lengths, lags, laws and sources."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    def mark(label: str, marker: str, colour: str, *, filled: bool = True) -> Any:
        face = colour if filled else "none"
        return Line2D(
            [], [], marker=marker, color=colour, markerfacecolor=face, linestyle="None", markersize=3, label=label
        )

    found = [
        mark(f"T = {one}", "o", LENGTH_COLOURS.get(one, OTHER_LENGTH))
        for one in sorted({row["length"] for row in rows})
    ]
    found += [mark("lag 1", "^", LAG_COLOURS[1]), mark("lag 2", "v", LAG_COLOURS[2])]
    found += [mark("the law", "o", "#003566"), mark("law of all pairs", "s", "#c1121f", filled=False)]
    names = {"partial": "partial matches", "bos": "BOS", "readout": "readout"}
    return found + [Patch(color=SOURCE_COLOURS[source], label=name) for source, name in names.items()]


def caption(results: Results) -> str:
    """What is to be seen, with the numbers."""
    rows = results["conditions"]
    if not rows:
        return "Which condition each claim needs: no run of the study was there to be measured."
    lengths = sorted({row["length"] for row in rows})
    runs = sum(row["seeds"] for row in rows)
    beyond = sum(run["excess_share"] > 0.36 for row in rows for run in row["runs"])
    return (
        f"{runs} runs in {len(rows)} cells of the study `conditions` (k = 2, |V| = 5; T = {listed(lengths)}), a marker "
        f"for each seed. prob.: the readout adds votes; logit: softmax. From left: KL above the optimum of the law, in "
        f"percent ({beyond} runs beyond 36% are drawn there); share of the variance of the scores that the law "
        f"explains; identity coefficients of the aligned blocks of W_A, ticks at the optimum's beta; largest entry of "
        f"W_A outside span{{I, J}} once the gauge is fixed (nats; below 1e-4 drawn there); copy mass at the last "
        f"query; loss recovered when the law, or the law of all lag pairs, takes the attention's place; parts in the "
        f"smoothing (Shapley values, mean of the seeds; a logit readout cannot be taken apart); KL to the relabeled "
        f"model. In each line the lengths stand one below the other, the shortest on top. No direct path: W_O does not "
        f"read the query's own stream; votes alone: nor the copied tokens of the keys. Standard models and long runs "
        f"with the probability readout are the zoo's."
    )


def verdict(results: Results) -> Verdict:
    """No claim of the paper: where each of its claims holds."""
    rows = results["conditions"]
    if not rows:
        return Verdict(word="cannot tell", measured="no run of the study was measured")
    measured = [f"{name}: {where}" for name in rows[0]["claims"] if (where := counts_text(rows, name))]
    return Verdict(
        word="beyond the paper",
        measured="; ".join(measured),
        headline=headline(rows),
        why="Runs that meet the claim, of those asked, by cell: what holds in one cell and not in the next needs what "
        "was freed between them. " + " ".join(readout_answer(list(rows))),
    )


def counts_text(rows: Sequence[Row], claim: str) -> str:
    """Cell by cell, in how many runs a claim is met."""
    found: dict[tuple[str, str], list[int]] = {}
    for row in rows:
        met, asked = row["claims"][claim]
        count = found.setdefault((row["cell"], row["readout"]), [0, 0])
        count[0] += met
        count[1] += asked
    return ", ".join(
        f"{cell} {READOUTS[readout]} {met}/{asked}" for (cell, readout), (met, asked) in found.items() if asked
    )


def headline(rows: Sequence[Row]) -> str:
    """The claim that turns on one condition alone."""
    words = []
    for cell in ("frozen", "random_start"):
        counts = [row["claims"]["beta_1 > beta_2 in weights"] for row in rows
                  if (row["cell"], row["readout"]) == (cell, "probability")]  # fmt: skip
        if asked := sum(count[1] for count in counts):
            words.append(f"{NAMES[cell]} {sum(count[0] for count in counts)} of {asked}")
    return f"beta_1 > beta_2 in the weights: {', '.join(words)}" if words else ""
