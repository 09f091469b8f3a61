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
GAIN = 0.1  # nats per token
EXPLAINED = 0.25  # of the head's nats: what makes a head match


def chosen(results: Results) -> Results:
    return {"text_training": results["text_training"]}


def runs_of(rows: list[Row]) -> dict[str, list[Row]]:
    """The histories by run."""
    return {name: [row for row in rows if row["run"] == name] for name in dict.fromkeys(row["run"] for row in rows)}


def draw(results: Results) -> Figure:
    """Losses, the induction score, and the law, over the steps; a row of panels for each run."""
    import matplotlib.pyplot as plt

    runs = runs_of(results["text_training"])
    figure, axes = plt.subplots(
        max(1, len(runs)), 3, figsize=(6.3, 1.1 + 1.8 * max(1, len(runs))), sharey="col", squeeze=False
    )
    if not runs:
        for ax in axes.flat:
            absent(ax, "snapshots")
        return figure
    for place, (row_of_axes, rows) in enumerate(zip(axes, runs.values(), strict=True)):
        draw_run(row_of_axes, rows)
        for ax in row_of_axes:
            ax.set_xlim(-2.0, 1.3 * rows[-1]["step"])  # step 0 at the left end, the last one whole
        if place < len(runs) - 1:
            for ax in row_of_axes:
                ax.set_xlabel("")
    for ax in axes[-1]:  # colours mean something else in each column
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.3), ncols=1 if ax is axes[-1, 0] else 2)
    lettered(axes.flat)
    return figure


def draw_run(axes: Any, rows: list[Row]) -> None:
    """One run."""
    losses, score, law = axes
    line(losses, rows, "held_out_loss", label="held-out text", colour=CONTROL_COLOUR)
    line(losses, rows, "first_copy", label="first copy", colour="#5b99c2")
    line(losses, rows, "second_copy", label="second copy", colour=MAIN_COLOUR)
    losses.set_ylabel("loss (nats)")
    losses.set_title(str(rows[0]["run"]), loc="left")
    line(score, rows, "induction", label="best head", colour=MAIN_COLOUR)
    line(score, rows, "others", label="best other head", colour="#5b99c2")
    line(score, rows, "induction_even", label="even attention", colour=CONTROL_COLOUR)
    line(score, rows, "nats_explained", label="nats explained", colour="#ffb703")
    score.set_ylim(-0.03, 1.0)
    score.set_title(f"head {rows[-1]['name']}", loc="left")
    for lag in range(len(rows[0]["beta"])):
        line(law, rows, "beta", index=lag, label=rf"$\beta_{lag + 1}$", colour=LAG_COLOURS[lag])
    line(law, rows, "kappa", label=r"$\kappa$", colour="#ffb703")
    law.axhline(0.0, color="#555555", linewidth=0.5)
    law.set_title("additive law (nats)", loc="left")
    for ax in axes:
        ax.set_xscale("symlog", linthresh=10)
        ax.set_xticks([step for step in (0, 10, 100, 1000, 10000) if step <= rows[-1]["step"]])
        ax.xaxis.set_major_formatter("{x:g}")
        ax.minorticks_off()
        ax.set_xlabel("step")


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
        return "Models along their training on text: no results."
    told = "; ".join(f"{name}: {made_of(mine[0])}" for name, mine in runs_of(rows).items())
    return (
        f"Models of two layers along their training on text, a row of panels for each ({told}). {rows[0]['n']} "
        f"passages of held-out text, each twice in its sequence; 95% intervals over passages. Left: loss on held-out "
        f"text, and of both copies. Middle, for the head that ends with the highest score: attention on keys that "
        f"follow the query's token, the highest of all other heads, that of even attention, and the share of the "
        f"head's nats that the additive law explains. Right: beta and kappa of that law."
    )


def made_of(row: Row) -> str:
    """What a run was trained on."""
    text = {
        "alice": "characters of Alice's Adventures in Wonderland",
        "asv": "byte pairs of the American Standard Version",
    }[row["text"]]
    return f"{text}, {row['repeated']:.0%} of the windows with a passage twice" if row["repeated"] else text


def first_step(rows: list[Row], holds: Any) -> int | None:
    """The first step from which it holds to the end."""
    found = None
    for row in reversed(rows):
        if not holds(row):
            break
        found = row["step"]
    return found


def verdict(results: Results) -> Verdict:
    """When the gain on repeats, and when beta, are there to stay, in each run."""
    runs = runs_of(results["text_training"])
    if not runs:
        return NOTHING
    told = [words(name, rows) for name, rows in runs.items()]
    heads = [f"{name}: {since('gain', gain_step(rows))}, {since('law', law_step(rows))}" for name, rows in runs.items()]
    gained, lawful = ([name for name, rows in runs.items() if step(rows) is not None] for step in (gain_step, law_step))
    longest = max(rows[-1]["step"] for rows in runs.values())
    most = max(rows[-1]["gain"] for rows in runs.values())
    return Verdict(
        word="beyond the paper",
        measured="; ".join(told),
        headline=f"Within {longest:,} steps repeats are predicted better by {GAIN} nats in {len(gained)} of "
        f"{len(runs)} runs (at most {most:.2f}), and a head follows the law in {len(lawful)} ({'; '.join(heads)}).",
        number=f"repeats predicted better by {GAIN} nats in {len(gained)} of {len(runs)} runs (at most {most:.2f}), "
        f"law in {len(lawful)}",
    )


def since(what: str, step: int | None) -> str:
    """From when on it is there."""
    return f"no {what}" if step is None else f"{what} from step {step}"


def gain_step(rows: list[Row]) -> int | None:
    """From when on the second copy is predicted better than the first by a tenth of a nat and three errors."""
    return first_step(rows, lambda row: row["gain"] > max(GAIN, SURE * row["gain_stderr"]))


def law_step(rows: list[Row]) -> int | None:
    """From when on matches explain a quarter of the head's nats, and beta_1 is sure."""

    def holds(row: Row) -> bool:
        beta, error = row["beta"][0], row["beta_stderr"][0]
        return (row["nats_explained"] or 0.0) > EXPLAINED and beta is not None and beta > SURE * (error or 1e9)

    return first_step(rows, holds)


def words(name: str, rows: list[Row]) -> str:
    """The last snapshot of a run."""
    last = rows[-1]
    beta = ", ".join(pm(*pair) for pair in zip(last["beta"], last["beta_stderr"], strict=True))
    return (
        f"{name}, step {last['step']}: held-out loss {last['held_out_loss']:.2f}, second copy "
        f"{pm(last['gain'], last['gain_stderr'], 3)} nats better than the first, head {last['name']} puts "
        f"{pm(last['induction'], last['induction_stderr'])} on matches (even attention {last['induction_even']:.2f}), "
        f"beta ({beta}), kappa {pm(last['kappa'], last['kappa_stderr'])}, "
        f"{pm(last['nats_explained'], last['nats_explained_stderr'])} of {last['nats']:.2f} nats explained (other "
        f"masks {last['control_explained'] or 0.0:.3f})"
    )
