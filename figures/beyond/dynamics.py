"""How the circuit forms in training: KL, copies, betas, kappa and mass by step.

Draws the rows of `python -m analyses dynamics`, of the runs that kept snapshots.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from figures.parts.instruments import SHOWN_LENGTH, Results, only, setting_fields
from figures.parts.panels import absent
from figures.parts.rows import Row, beside, nearest
from interp.plotting import LAG_COLOURS, OVERLAP_COLOURS, OVERLAP_NAMES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABEL = "beyond:dynamics"
ANALYSES = ("dynamics",)
CLAIMS = ("dynamics",)
CAPTION = (
    "The circuit over training, {setting}. From top: KL(truth || prediction) with one standard "
    "error over n = {n} held-out sequences; attention of the best copy head on each lag, averaged over positions "
    "(it can be less at the last query); beta and kappa fitted to the match scores, empty where the scores are no "
    "law of matches; attention mass of the match head at the last query. The step axis is logarithmic beyond the "
    "first snapshot, step 0 at its left end. A dotted line marks where a part has formed: from there on it stays "
    "within a tenth of its whole change of its last value; what overshoots has formed only when it is back. One "
    "run each: no spread over seeds is known. A construction starts with its copies in place; only beta and kappa "
    "move."
)

MOST_RUNS = 4
LOSS_COLOUR = "#7b3294"  # of nothing else in the picture
LAG_MARKERS = "sPXd"
KIND_MARKERS = {"full": "^", "partial": "v", "none": "x", "bos": "D", "early": "*"}
MARKER_SIZE = 2.4
LINES = ("KL to the truth\n(nats)", "copy mass\non its lag", r"$\beta$, $\kappa$ (nats)", "attention mass")


def chosen(results: Results) -> Results:
    """One run of each family, task and protocol, at the length nearest to that of the paper's figures."""
    return {"dynamics": [only(row, "rows", "formed", "n", "success", "message") for row in runs(results["dynamics"])]}


def runs(rows: list[Row]) -> list[Row]:
    """The runs that are drawn: constructions first, those of the paper's protocol last.

    Runs five times as long have a figure of their own (`leaving_the_law`), and so have those without BOS.
    """
    found = []
    for protocol in (None, "paper"):
        kinds = {
            (row["subject"]["family"], row["subject"]["prior"])
            for row in rows
            if row.get("subject") and row["subject"]["bos"] and beside(row["subject"]) == protocol
        }
        for family, prior in sorted(kinds):
            row = nearest(rows, SHOWN_LENGTH, family=family, prior=prior, bos=True, protocol=protocol)
            if row is not None:
                found.append(row)
    return found[:MOST_RUNS]


def draw(results: Results) -> Figure:
    """A column for each run, a row for each quantity."""
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D

    found = runs(results["dynamics"])
    if not found:
        figure, ax = plt.subplots()
        absent(ax, "a run with snapshots")
        return figure
    figure, axes = plt.subplots(len(LINES), len(found), figsize=(6.3, 6.0), sharex=True, sharey="row", squeeze=False)
    for place, (row, column) in enumerate(zip(found, axes.T, strict=True)):
        draw_run(row, column)
        column[0].set_title(f"({chr(ord('a') + place)}) {title_of(row)}")
        column[-1].set_xlabel("training step")
    step_axis(axes[0, 0], [one["step"] for row in found for one in row["rows"]])
    # The columns share their scales, so that the highest curve of all sets it.
    axes[0, 0].set_ylim(0.0, 1.1 * max(one["kl"] for row in found for one in row["rows"]))
    for ax, name in zip(axes[:, 0], LINES, strict=True):
        ax.set_ylabel(name)
    order = max(row["subject"]["order"] for row in found)
    lags = [
        Line2D(
            [],
            [],
            color=LAG_COLOURS[lag % len(LAG_COLOURS)],
            marker=lag_marker(lag),
            markersize=MARKER_SIZE,
            label=rf"lag {lag + 1} (copy, $\beta_{lag + 1}$)",
        )
        for lag in range(order)
    ]
    kinds = [
        Line2D(
            [], [], color=colour, marker=KIND_MARKERS[kind], markersize=MARKER_SIZE,
            label=r"$\kappa$; mass on BOS" if kind == "bos" else OVERLAP_NAMES[kind],
        )
        for kind, colour in sorted(OVERLAP_COLOURS.items(), key=lambda item: item[0] != "bos")
    ]  # fmt: skip
    loss = Line2D(
        [], [], color=LOSS_COLOUR, marker="o", markersize=MARKER_SIZE, label="KL (± one standard error)"
    )  # fmt: skip
    mark = Line2D([], [], color="#555555", linestyle=":", label="formed (colour: which part)")
    figure.legend(
        handles=[loss, *lags, *kinds, mark], loc="outside upper center", ncols=4, handlelength=1.5, columnspacing=1.2
    )
    return figure


def draw_run(row: Row, column: Any) -> None:
    """The four panels of one run; dotted lines where a part has formed."""
    kl, copy, law, mass = column
    rows, formed = row["rows"], row["formed"]
    steps = [one["step"] for one in rows]
    draw_curve(kl, steps, [one["kl"] for one in rows], LOSS_COLOUR, formed.get("kl"), label="kl")
    kl.fill_between(
        steps,
        [one["kl"] - one["kl_stderr"] for one in rows],
        [one["kl"] + one["kl_stderr"] for one in rows],
        color=LOSS_COLOUR,
        alpha=0.25,
        linewidth=0,
    )
    order = len(rows[0]["copy"])
    for lag in range(order):
        colour = LAG_COLOURS[lag % len(LAG_COLOURS)]
        name = f"copy lag {lag + 1}"
        copied = [one["copy"][lag] for one in rows]
        draw_curve(copy, steps, copied, colour, formed.get(name), label=name, marker=lag_marker(lag))
        name = f"beta_{lag + 1}"
        beta = [one["beta"][lag] for one in rows]
        draw_curve(law, steps, beta, colour, formed.get(name), label=name, marker=lag_marker(lag))
    if row["subject"]["bos"]:
        kappa = [one["kappa"] for one in rows]
        colour, marker = OVERLAP_COLOURS["bos"], KIND_MARKERS["bos"]
        draw_curve(law, steps, kappa, colour, formed.get("kappa"), label="kappa", marker=marker)
    law.axhline(0.0, color="#555555", linewidth=0.5)
    for kind, values in masses(rows, bos=row["subject"]["bos"]).items():
        draw_curve(mass, steps, values, OVERLAP_COLOURS[kind], None, label=kind, marker=KIND_MARKERS[kind])
    copy.set_ylim(-0.03, 1.03)
    mass.set_ylim(-0.03, 1.03)


def lag_marker(lag: int) -> str:
    """The marker of lag 1, 2, ..., given from 0."""
    return LAG_MARKERS[lag % len(LAG_MARKERS)]


def draw_curve(
    ax: Axes,
    steps: Sequence[int],
    values: Sequence[float | None],
    colour: str,
    formed: int | None,
    *,
    label: str,
    marker: str = "o",
) -> None:
    """A curve with a marker for each snapshot; gaps where nothing is known."""
    known = [float("nan") if value is None else value for value in values]
    ax.plot(steps, known, color=colour, marker=marker, markersize=MARKER_SIZE, linewidth=0.8, label=label)
    if formed is not None and formed < steps[-1]:  # the last snapshot cannot tell that anything stays
        ax.axvline(formed, color=colour, linestyle=":", linewidth=0.9)


def masses(rows: list[dict[str, Any]], *, bos: bool) -> dict[str, list[float]]:
    """Mass by kind of key, snapshot by snapshot."""
    order = len(rows[0]["mass"]) - 1
    return {
        "full": [one["mass"][order] for one in rows],
        "partial": [sum(one["mass"][1:order]) for one in rows],
        "none": [one["mass"][0] for one in rows],
        **({"bos": [one["bos"] for one in rows]} if bos else {}),
        "early": [one["early"] for one in rows],
    }


def step_axis(ax: Axes, steps: list[int]) -> None:
    """Logarithmic, with room for step 0 at the left end."""
    first = min((step for step in steps if step > 0), default=1)
    ax.set_xscale("symlog", linthresh=first, linscale=0.4)
    ticks = [0, *(10**power for power in range(1, 8) if first <= 10**power <= max(steps))]
    ax.set_xticks(ticks, ["0", *(f"$10^{len(str(tick)) - 1}$" for tick in ticks[1:])])
    ax.minorticks_off()
    ax.set_xlim(-0.1 * first, 1.6 * max(steps))


def title_of(row: Row) -> str:
    """What the run is, in short lines: up to four stand side by side."""
    subject = row["subject"]
    paper = "paper's protocol\n" if subject["protocol"] == "paper" else ""
    bos = "BOS" if subject["bos"] else "no BOS"
    return f"{subject['family']}\n{paper}{subject['prior']}, {bos}, T = {subject['length']}"


def fields(results: Results) -> dict[str, object]:
    return setting_fields(runs(results["dynamics"]))
