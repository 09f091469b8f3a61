"""A small language model along its training: losses, beta and kappa."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from figures._instruments import listed
from figures._language import NOTHING, Results, pm
from figures.panels import absent, lettered, on_one_scale, whisker
from figures.rows import Row
from figures.verdict import Verdict
from interp.plotting import INTERVAL, MAIN_COLOUR

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
LOOKS: tuple[dict[str, Any], ...] = (
    {"color": MAIN_COLOUR, "marker": "o"},
    {"color": "#5b99c2", "marker": "s"},
    {"color": "#c1121f", "marker": "^"},
    {"color": "#52796f", "marker": "D"},
)
SECOND_LAG = {"markerfacecolor": "white", "linestyle": ":"}


def chosen(results: Results) -> Results:
    return {"text_training": results["text_training"]}


def runs_of(rows: list[Row]) -> dict[str, list[Row]]:
    """The histories by run."""
    return {name: [row for row in rows if row["run"] == name] for name in dict.fromkeys(row["run"] for row in rows)}


def draw(results: Results) -> Figure:
    """The gain on repeats, the attention on matches, beta and kappa over the steps; a line for each run."""
    import matplotlib.pyplot as plt

    runs = runs_of(results["text_training"])
    figure, axes = plt.subplots(2, 2, figsize=(6.3, 4.3), sharex=True)
    if not runs:
        for ax in axes.flat:
            absent(ax, "snapshots")
        return figure
    gain, attention, beta, kappa = axes.flat
    for place, (name, rows) in enumerate(runs.items()):
        look = LOOKS[place % len(LOOKS)]
        line(gain, rows, lambda row: (row["gain"], row["gain_stderr"]), look, label=name)
        line(attention, rows, relative_attention, look)
        line(beta, rows, lambda row: (row["beta"][0], row["beta_stderr"][0]), look)
        if len(rows[0]["beta"]) > 1:
            line(beta, rows, lambda row: (row["beta"][1], row["beta_stderr"][1]), {**look, **SECOND_LAG})
        line(kappa, rows, lambda row: (row["kappa"], row["kappa_stderr"]), look)
    gain.axhline(GAIN, color="#555555", linewidth=0.8, linestyle="--", gid="asked")
    gain.set_title("gain: loss of the first copy less that of the second", loc="left")
    attention.set_title("attention on matches, even attention = 1", loc="left")
    attention.set_ylabel("times even attention")
    beta.set_title(r"$\beta_1$ (filled) and $\beta_2$ (open) of the law", loc="left")
    kappa.set_title(r"$\kappa$ of the law", loc="left")
    on_one_scale([beta, kappa])
    for ax, empty in ((gain, 0.0), (attention, 1.0), (beta, 0.0), (kappa, 0.0)):
        ax.axhline(empty, color="#555555", linewidth=0.5, zorder=0)
        ax.set_xscale("symlog", linthresh=10)
        ax.minorticks_off()
    last = max(row["step"] for rows in runs.values() for row in rows)
    gain.set_xlim(-2.0, 1.4 * last)  # step 0 at the left end, the last one whole
    gain.set_xticks([step for step in (0, 10, 100, 1000, 10000, 100000) if step <= last])
    gain.xaxis.set_major_formatter("{x:g}")
    for ax in (gain, beta, kappa):
        ax.set_ylabel("nats per token" if ax is gain else "nats")
    for ax in axes[-1]:
        ax.set_xlabel("step")
    lettered(axes.flat)
    figure.legend(handles=legend(runs), loc="outside lower center", ncols=2)
    return figure


def legend(runs: dict[str, list[Row]]) -> list[Any]:
    """Runs, the gain that is asked for, and the intervals."""
    from matplotlib.lines import Line2D

    found = [
        Line2D([], [], label=f"{name}: {in_short(rows[0])}", **LOOKS[place % len(LOOKS)], markersize=3)
        for place, (name, rows) in enumerate(runs.items())
    ]
    return [
        *found,
        Line2D([], [], color="#555555", linewidth=0.8, linestyle="--", label=f"asked: {GAIN} nats"),
        whisker("95% interval over passages"),
    ]


def relative_attention(row: Row) -> tuple[float | None, float | None]:
    """Of the best head on keys that follow the query's token, as a multiple of what even attention has there."""
    even = row["induction_even"]
    if row["induction"] is None or not even:
        return None, None
    return row["induction"] / even, (row["induction_stderr"] or 0.0) / even


def line(
    ax: Axes, rows: list[Row], number: Callable[[Row], Any], look: dict[str, Any], *, label: str | None = None
) -> None:
    """One number of every snapshot with its standard error, drawn as a 95% interval."""
    mine = [(row["step"], *number(row)) for row in rows]
    known = [(step, value, INTERVAL * (error or 0.0)) for step, value, error in mine if value is not None]
    if not known:
        return
    steps, values, errors = zip(*known, strict=True)
    ax.errorbar(steps, values, yerr=errors, markersize=3, linewidth=1.0, elinewidth=0.6, label=label, **look)


def caption(results: Results) -> str:
    """What is to be seen."""
    rows = results["text_training"]
    if not rows:
        return "Models along their training on text: no results."
    told = "; ".join(f"{name}: {made_of(mine[0])}" for name, mine in runs_of(rows).items())
    explained = max(row["nats_explained"] or 0.0 for row in rows)
    return (
        f"Models of two layers along their training on text ({told}). {rows[0]['n']} passages of held-out text, each "
        f"twice in its sequence; bars: 95% intervals over passages. (a) By how much the second copy of a passage is "
        f"predicted better than the first; dashed: {GAIN} nats, from which on it counts as a gain. (b) Attention of "
        f"the head that ends with the highest score, on keys that follow the query's token, as a multiple of what even "
        f"attention has there. (c, d) beta and kappa of the additive law, fitted to that head's attention; matches "
        f"explain at most {explained:.1%} of its nats, and from {EXPLAINED:.0%} on count as a law."
    )


def made_of(row: Row) -> str:
    """What a run was trained on."""
    text = {
        "alice": "characters of Alice's Adventures in Wonderland",
        "asv": "byte pairs of the American Standard Version",
    }[row["text"]]
    return f"{text}, {row['repeated']:.0%} of the windows with a passage twice" if row["repeated"] else text


def in_short(row: Row) -> str:
    """The same in a few words, for the legend."""
    text = {"alice": "a book, in characters", "asv": "the Bible, in byte pairs"}[row["text"]]
    return f"{text}, {row['repeated']:.0%} with a repeat" if row["repeated"] else text


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
    ends = listed([f"{rows[-1]['step']:,}" for rows in runs.values()])
    most = max(rows[-1]["gain"] for rows in runs.values())
    return Verdict(
        word="beyond the paper",
        measured="; ".join(told),
        headline=f"When training ends, after {ends} steps, repeats are predicted better by {GAIN} nats in "
        f"{len(gained)} of {len(runs)} runs (at most {most:.2f}), and a head follows the law in {len(lawful)} "
        f"({'; '.join(heads)}).",
        number=f"repeats predicted better by {GAIN} nats in {len(gained)} of {len(runs)} runs (at most {most:.2f}), "
        f"law in {len(lawful)}; steps: {ends}",
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
