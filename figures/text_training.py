"""A small language model along its training: losses, beta and kappa."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from figures._language import NOTHING, Results, pm
from figures.panels import absent, lettered
from figures.rows import Row
from figures.verdict import Verdict
from interp.plotting import CONTROL_COLOUR, INTERVAL, LAG_COLOURS, MAIN_COLOUR

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABEL = "beyond:text_training"
ANALYSES = ("text_training",)
CLAIM = (
    "Question: when a small language model is trained on natural text, do beta and kappa of its matching head appear "
    "together with the drop of the loss on repeated text?"
)
SURE = 3.0  # standard errors
EXPLAINED = 0.25  # of the head's nats: what makes a head match


def chosen(results: Results) -> Results:
    return {"text_training": results["text_training"]}


def draw(results: Results) -> Figure:
    """Losses, the induction score, and the law, over the steps."""
    import matplotlib.pyplot as plt

    rows = results["text_training"]
    figure, axes = plt.subplots(1, 3, figsize=(6.3, 2.7))
    if not rows:
        for ax in axes:
            absent(ax, "snapshots")
        return figure
    losses, score, law = axes
    line(losses, rows, "held_out_loss", label="held-out text", colour=CONTROL_COLOUR)
    line(losses, rows, "first_copy", label="first copy", colour="#5b99c2")
    line(losses, rows, "second_copy", label="second copy", colour=MAIN_COLOUR)
    losses.set_ylabel("loss (nats per character)")
    losses.set_title("losses", loc="left")
    line(score, rows, "induction", label=f"head {rows[-1]['name']}", colour=MAIN_COLOUR)
    line(score, rows, "others", label="best other head", colour="#5b99c2")
    line(score, rows, "induction_even", label="even attention", colour=CONTROL_COLOUR)
    line(score, rows, "nats_explained", label="nats explained", colour="#ffb703")
    score.set_ylim(0.0, None)
    score.set_title("attention on matches", loc="left")
    for lag in range(len(rows[0]["beta"])):
        line(law, rows, "beta", index=lag, label=rf"$\beta_{lag + 1}$", colour=LAG_COLOURS[lag])
    line(law, rows, "kappa", label=r"$\kappa$", colour="#ffb703")
    law.axhline(0.0, color="#555555", linewidth=0.5)
    law.set_ylabel("nats")
    law.set_title("additive law", loc="left")
    for ax in axes:
        ax.set_xscale("symlog", linthresh=10)
        ax.set_xticks([0, 10, 100, 1000][: 3 + (rows[-1]["step"] >= 1000)])
        ax.xaxis.set_major_formatter("{x:g}")
        ax.set_xlabel("step")
        ax.legend(loc="best", fontsize="small")
    lettered(axes)
    return figure


def line(ax: Axes, rows: list[Row], name: str, *, label: str, colour: str, index: int | None = None) -> None:
    """One number of every snapshot, with 95% intervals where it has an error."""

    def number(row: Row, key: str) -> Any:
        value = row.get(key)
        return value if index is None or value is None else value[index]

    mine = [row for row in rows if number(row, name) is not None]
    errors = [INTERVAL * (number(row, f"{name}_stderr") or 0.0) for row in mine]
    ax.errorbar(
        [row["step"] for row in mine],
        [number(row, name) for row in mine],
        yerr=errors,
        color=colour,
        marker="o",
        markersize=2,
        linewidth=1.0,
        elinewidth=0.6,
        label=label,
    )


def caption(results: Results) -> str:
    """What is to be seen."""
    rows = results["text_training"]
    if not rows:
        return "A character model along its training: no results."
    return (
        f"A character model trained on Alice's Adventures in Wonderland, at {len(rows)} snapshots; {rows[0]['n']} "
        f"windows of held-out text, each twice in its sequence; 95% intervals over windows. (a) Loss on "
        f"held-out text, and of both copies. (b) For head {rows[-1]['name']}, which ends with the highest score: "
        f"attention on keys that follow the query's character, the highest of all other heads, that of even attention; "
        f"and the share of the head's nats that the additive law explains. (c) beta and kappa of that law."
    )


def first_step(rows: list[Row], holds: Any) -> int | None:
    """The first step from which it holds to the end."""
    found = None
    for row in reversed(rows):
        if not holds(row):
            break
        found = row["step"]
    return found


def verdict(results: Results) -> Verdict:
    """When the gain on repeats, and when beta, are there to stay."""
    rows = results["text_training"]
    if not rows:
        return NOTHING
    gain = first_step(rows, lambda row: row["gain"] > SURE * row["gain_stderr"])
    beta = first_step(
        rows, lambda row: row["beta"][0] is not None and row["beta"][0] > SURE * (row["beta_stderr"][0] or 1e9)
    )
    law = first_step(rows, lambda row: (row["nats_explained"] or 0.0) > EXPLAINED)
    last = rows[-1]
    told = [
        f"last snapshot: gain {pm(last['gain'], last['gain_stderr'], 3)} nats per character, head {last['name']} puts "
        f"{pm(last['induction'], last['induction_stderr'])} on matches (even attention {last['induction_even']:.2f})",
        f"beta ({', '.join(pm(*pair) for pair in zip(last['beta'], last['beta_stderr'], strict=True))}), kappa "
        f"{pm(last['kappa'], last['kappa_stderr'])}, {pm(last['nats_explained'], last['nats_explained_stderr'])} of "
        f"{last['nats']:.2f} nats explained (other masks {last['control_explained']:.3f})",
        f"for good from step: gain {gain}, beta_1 {beta}, a quarter of the nats explained {law}",
    ]
    return Verdict(
        word="beyond the paper",
        measured="; ".join(told),
        headline=f"gain on repeats from step {gain}, beta_1 from step {beta}",
    )
