"""How the circuit forms in training: KL, copies, betas, kappa and mass by step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.parts.panels import ZERO, legend_above, lettered
from figures.parts.rows import SHOWN_LENGTH, Results, Row, beside, nearest
from interp.plotting import OVERLAP_COLOURS, OVERLAP_NAMES, curve, lag_colour, mark

LABEL = "beyond:dynamics"
ANALYSES = {"dynamics": lambda rows: runs(rows)}
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
LOSS: dict[str, Any] = {"color": "#7b3294", "marker": "o"}  # a colour of nothing else in the picture
LAG_MARKERS = "sPXd"
KINDS: dict[str, dict[str, Any]] = {
    kind: {"color": OVERLAP_COLOURS[kind], "marker": marker}
    for kind, marker in {"bos": "D", "full": "^", "partial": "v", "none": "x", "early": "*"}.items()
}
THIN: dict[str, Any] = {"markersize": 2.4, "linestyle": "-", "linewidth": 0.8}
LINES = ("KL to the truth\n(nats)", "copy mass\non its lag", r"$\beta$, $\kappa$ (nats)", "attention mass")


def runs(rows: list[Row]) -> list[Row]:
    """The runs that are drawn: constructions first, those of the paper's protocol last.

    Runs five times as long have a figure of their own (`leaving_the_law`), and so have those without BOS.
    """
    found = []
    with_bos = [row for row in rows if row.get("subject") and row["subject"]["bos"]]
    for protocol in (None, "paper"):
        mine = [row["subject"] for row in with_bos if beside(row["subject"]) == protocol]
        for family, prior in sorted({(one["family"], one["prior"]) for one in mine}):
            found.append(nearest(rows, SHOWN_LENGTH, family=family, prior=prior, bos=True, protocol=protocol))
    return [row for row in found if row is not None][:MOST_RUNS]


def draw(results: Results) -> Figure:
    """A column for each run, a row for each quantity."""
    found = results["dynamics"]
    figure, axes = plt.subplots(len(LINES), len(found), figsize=(6.3, 6.0), sharex=True, sharey="row", squeeze=False)
    for row, column in zip(found, axes.T, strict=True):
        draw_run(row, column)
        column[0].set_title(title_of(row))
        column[-1].set_xlabel("training step")
    lettered(axes[0])
    step_axis(axes[0, 0], [one["step"] for row in found for one in row["rows"]])
    # The columns share their scales, so that the highest curve of all sets it.
    axes[0, 0].set_ylim(0.0, 1.1 * max(one["kl"] for row in found for one in row["rows"]))
    for ax, name in zip(axes[:, 0], LINES, strict=True):
        ax.set_ylabel(name)
    lags = range(1, 1 + max(row["subject"]["order"] for row in found))
    names = {**OVERLAP_NAMES, "bos": r"$\kappa$; mass on BOS"}
    handles = [
        mark("KL (± one standard error)", **LOSS, **THIN),
        *(mark(rf"lag {lag} (copy, $\beta_{lag}$)", **lag_look(lag), **THIN) for lag in lags),
        *(mark(names[kind], **look, **THIN) for kind, look in KINDS.items()),
        mark("formed (colour: which part)", color=ZERO, linestyle=":"),
    ]
    legend_above(figure, handles, 4, handlelength=1.5)
    return figure


def draw_run(row: Row, axes: Sequence[Axes]) -> None:
    """The four panels of one run; dotted lines where a part has formed."""
    kl, copy, law, mass = axes
    rows, formed = row["rows"], row["formed"]
    steps = [one["step"] for one in rows]

    def draw_curve(ax: Axes, name: str, values: Sequence[float | None], look: dict[str, Any], **more: Any) -> None:
        curve(ax, steps, values, label=name, band=True, **look, **THIN, **more)
        # The last snapshot cannot tell that anything stays.
        if formed.get(name) is not None and formed[name] < steps[-1]:
            ax.axvline(formed[name], color=look["color"], linestyle=":", linewidth=0.9)

    draw_curve(kl, "kl", [one["kl"] for one in rows], LOSS, reach=[one["kl_stderr"] for one in rows])
    for lag in range(1, len(rows[0]["copy"]) + 1):
        draw_curve(copy, f"copy lag {lag}", [one["copy"][lag - 1] for one in rows], lag_look(lag))
        draw_curve(law, f"beta_{lag}", [one["beta"][lag - 1] for one in rows], lag_look(lag))
    if row["subject"]["bos"]:
        draw_curve(law, "kappa", [one["kappa"] for one in rows], KINDS["bos"])
    law.axhline(0.0, color=ZERO, linewidth=0.5)
    for kind in KINDS:
        if kind != "bos" or row["subject"]["bos"]:
            draw_curve(mass, kind, [mass_of(one, kind) for one in rows], KINDS[kind])
    copy.set_ylim(-0.03, 1.03)
    mass.set_ylim(-0.03, 1.03)


def lag_look(lag: int) -> dict[str, Any]:
    """The colour and the marker of lag 1, 2, ..."""
    return {"color": lag_colour(lag), "marker": LAG_MARKERS[(lag - 1) % len(LAG_MARKERS)]}


def mass_of(snapshot: dict[str, Any], kind: str) -> float:
    """The mass on one kind of key."""
    by_overlap = snapshot["mass"]
    parts = {"full": by_overlap[-1], "partial": sum(by_overlap[1:-1]), "none": by_overlap[0]}
    return parts[kind] if kind in parts else snapshot[kind]


def step_axis(ax: Axes, steps: list[int]) -> None:
    """Logarithmic, with room for step 0 at the left end."""
    first = min((step for step in steps if step > 0), default=1)
    ax.set_xscale("symlog", linthresh=first, linscale=0.4)
    ticks = [0, *(10**power for power in range(1, 8) if first <= 10**power <= max(steps))]
    ax.set_xticks(ticks, ["0", *(f"$10^{math.log10(tick):.0f}$" for tick in ticks[1:])])
    ax.minorticks_off()
    ax.set_xlim(-0.1 * first, 1.6 * max(steps))


def title_of(row: Row) -> str:
    """What the run is, in short lines: up to four stand side by side."""
    subject = row["subject"]
    paper = "paper's protocol\n" if subject["protocol"] == "paper" else ""
    bos = "BOS" if subject["bos"] else "no BOS"
    return f"{subject['family']}\n{paper}{subject['prior']}, {bos}, T = {subject['length']}"
