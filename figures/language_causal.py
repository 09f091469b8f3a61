"""A language model without its matching heads, and with the law in their place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from figures._language import NOTHING, Results, listed, pick, pm
from figures.panels import absent, lettered, whisker
from figures.rows import Row
from figures.verdict import Check, Verdict, judged
from interp.plotting import CONTROL_COLOUR, MAIN_COLOUR, grouped_bars

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABEL = "beyond:language_causal"
ANALYSES = ("language_model",)
CLAIM = (
    "Question: do the matching heads cause the language model's in-context predictions, on repeated tokens, on chains "
    "and on natural text, and does the law, fitted on other sequences, do the same in their place?"
)
EDIT_NAMES = {
    "ablated": "heads ablated",
    "even": "even attention",
    "law": "the law",
    "law of chains": "the law of chains",
    "grouped": "grouped by mask",
    "hard": "hard matching",
}
COST, CONTROL_COST = 5.0, 1.0  # nats on the second copy
RECOVERED, CONTROL_RECOVERED = 0.9, 0.2
SIGMAS = 3.0  # a loss that is no chance


def chosen(results: Results) -> Results:
    rows = results["language_model"]
    return {"language_model": [*pick(rows, part="causal"), *pick(rows, part="text", kind="gain")]}


def draw(results: Results) -> Figure:
    """Edits on repeats, on chains, and the gain on text."""
    import matplotlib.pyplot as plt

    rows = results["language_model"]
    figure, axes = plt.subplots(1, 3, figsize=(6.3, 2.7), width_ratios=(1.0, 1.0, 0.9))
    edits = list(dict.fromkeys(row["edit"] for on in ("repeats", "chains") for row in pick(rows, part="causal", on=on)))
    for ax, on, title in zip(axes, ("repeats", "chains"), ("repeated tokens", "chains"), strict=False):
        mine = pick(rows, part="causal", on=on)
        if mine:
            draw_edits(ax, mine, edits)
            ax.set_title(title, loc="left")
        else:
            absent(ax, f"edits on {on}")
    gains = pick(rows, part="text")
    if gains:
        draw_gains(axes[2], gains)
    else:
        absent(axes[2], "natural text")
    known: dict[str, Any] = {}
    for ax, place in zip(axes, ("(a, b) ", "(a, b) ", "(c) contexts: "), strict=True):
        handles, labels = ax.get_legend_handles_labels()
        known |= {f"{place}{label}": handle for label, handle in zip(labels, handles, strict=True)}
    if known:
        known["bar: 95% interval"] = whisker("95% interval")
        figure.legend(known.values(), known.keys(), loc="outside lower center", ncols=5, columnspacing=1.2)
    lettered([ax for ax in axes if ax.axison])
    return figure


def draw_edits(ax: Axes, rows: list[Row], edits: list[str]) -> None:
    """The rise of the loss under each edit, beside its control; the same edits in every panel."""
    import numpy as np

    made = {row["edit"]: row for row in rows}

    def column(name: str) -> np.ndarray:
        found = [made[edit][name] if edit in made else None for edit in edits]
        return np.array([np.nan if value is None else value for value in found], dtype=np.float64)

    grouped_bars(
        ax,
        [EDIT_NAMES.get(edit, edit) for edit in edits],
        {"edit": column("change"), "its control": column("control_change")},
        stderrs={"edit": column("stderr"), "its control": column("control_stderr")},
        colours={"edit": MAIN_COLOUR, "its control": CONTROL_COLOUR},
        across=True,
    )
    for place, edit in enumerate(edits):
        if edit not in made:
            ax.annotate(
                "not made", (0.0, place), xytext=(3, 0), textcoords="offset points", va="center", fontsize=6,
                color="#7f7f7f",
            )  # fmt: skip
    ax.set_xlabel("rise of the loss (nats)")


def draw_gains(ax: Axes, rows: list[Row]) -> None:
    """In-context gain on text at repeated and other contexts."""
    import numpy as np

    kinds = list(dict.fromkeys(row["without"] for row in rows))
    grouped_bars(
        ax,
        [f"without\n{kind.replace(' ', chr(10))}" if kind != "nothing" else "whole\nmodel" for kind in kinds],
        {place: np.array([row["gain"] for row in pick(rows, positions=place)]) for place in ("repeated", "new")},
        stderrs={
            place: np.array([row["gain_stderr"] for row in pick(rows, positions=place)])
            for place in ("repeated", "new")
        },
        colours={"repeated": MAIN_COLOUR, "new": "#5b99c2"},
        across=True,
    )
    ax.set_xlim(0.0, None)
    ax.set_xlabel("in-context gain (nats)")
    ax.set_title("text", loc="left")


def caption(results: Results) -> str:
    """What is to be seen."""
    rows = results["language_model"]
    repeats, chains, gains = (pick(rows, on="repeats"), pick(rows, on="chains"), pick(rows, part="text"))
    if not repeats:
        return "Edits of a language model's matching heads: no results."
    parts = [
        f"Heads {listed(repeats[0]['heads'])} edited together. (a) Loss of the second copy of random tokens "
        f"({repeats[0]['n']} sequences; {pm(repeats[0]['loss_before'], repeats[0]['loss_before_stderr'])} nats without "
        f"edits). Controls: as many other heads of the same layers (ablated), the same weights on shuffled keys (law, "
        f"hard, grouped). The law is fitted on other repeats, without a positional term; `fitted with position` with "
        f"one, `one law for all` to all heads together, `law of chains` on chains."
    ]
    if chains:
        parts.append(
            f"(b) The same on chains ({chains[0]['n']} sequences; "
            f"{pm(chains[0]['loss_before'], chains[0]['loss_before_stderr'])} nats without edits)."
        )
    if gains:
        parts.append(
            f"(c) On Alice's Adventures in Wonderland: how much lower the loss of the second half of a window is after "
            f"its own first half than after another window's, at contexts of two tokens that repeat from the first "
            f"half ({gains[0]['tokens']} tokens) and at all others."
        )
    return " ".join([*parts, "95% intervals over sequences."])


def verdict(results: Results) -> Verdict:
    """Ablation, replacement, and their controls on repeated tokens; whether the heads are missed elsewhere."""
    rows = results["language_model"]
    edits = {row["edit"]: row for row in pick(rows, on="repeats")}
    if not {"ablated", "law"} <= set(edits):
        return NOTHING
    ablated, law = edits["ablated"], edits["law"]
    told = [
        f"repeats: ablated {pm(ablated['change'], ablated['stderr'])}, other heads at most "
        f"{ablated['worst_control']:.2f}",
        f"the law recovers {pm(law['recovered'], law['recovered_stderr'])}, on shuffled keys "
        f"{law['control_recovered']:.2f}",
    ]
    if "law of chains" in edits:
        other = edits["law of chains"]
        told.append(f"the law of chains recovers {pm(other['recovered'], other['recovered_stderr'])}")
    for row in pick(rows, on="chains"):
        if row["edit"] in ("ablated", "law"):
            told.append(
                f"chains, {row['edit']}: {pm(row['change'], row['stderr'], 3)} (control {row['control_change']:.3f})"
            )
    for row in pick(rows, part="text", positions="repeated"):
        if row["without"] != "nothing":
            told.append(f"text, without {row['without']}: {pm(row['carried'], row['carried_stderr'])} of the gain lost")
    return judged(
        checks_on_repeats(ablated, law) | checks_elsewhere(rows),
        measured="; ".join(told),
        headline=f"On repeated tokens the heads are worth {pm(ablated['change'], ablated['stderr'])} nats, and the law "
        f"in their place recovers {pm(law['recovered'], law['recovered_stderr'])} of it{missed_in_words(rows)}.",
        number=f"heads worth {pm(ablated['change'], ablated['stderr'])} nats on repeats"
        + "".join(f", {pm(lost, error)}{unit} on {place}" for place, (lost, error, unit) in missed(rows).items()),
    )


def checks_on_repeats(ablated: Row, law: Row) -> dict[str, bool | Check]:
    """What is asked of the heads and of the law where tokens repeat, with controls."""
    part = "on repeated tokens"
    return {
        f"ablating the heads costs at least {COST:g} nats on the second copy": Check(
            passed=ablated["change"] >= COST, found=f"{ablated['change']:.2f}", part=part
        ),
        f"ablating other heads costs at most {CONTROL_COST:g} nats": Check(
            passed=ablated["worst_control"] <= CONTROL_COST, found=f"{ablated['worst_control']:.2f}", part=part
        ),
        f"the law in the heads' place recovers at least {RECOVERED} of that": Check(
            passed=law["recovered"] >= RECOVERED,
            found=pm(law["recovered"], law["recovered_stderr"])
            + ("; more than the heads do, which first have to notice the repeat" if law["recovered"] > 1 else ""),
            part=part,
        ),
        f"the law on shuffled keys recovers at most {CONTROL_RECOVERED}": Check(
            passed=law["control_recovered"] <= CONTROL_RECOVERED, found=f"{law['control_recovered']:.2f}", part=part
        ),
    }


def missed(rows: list[Row]) -> dict[str, tuple[float, float, str]]:
    """What is lost without the heads on chains and on text, its standard error, and of what it is."""
    found = {}
    for row in pick(rows, on="chains", edit="ablated"):
        found["chains"] = (row["change"], row["stderr"], " nats")
    for row in pick(rows, part="text", positions="repeated", without="matching heads"):
        found["natural text"] = (row["carried"], row["carried_stderr"], " of the gain")
    return found


def checks_elsewhere(rows: list[Row]) -> dict[str, bool | Check]:
    """Whether the heads are missed on chains and on text at all."""
    return {
        f"{place}: more than {SIGMAS:g} standard errors are lost without the heads": Check(
            passed=lost > SIGMAS * error, found=f"{pm(lost, error)}{unit}", part=f"on {place}"
        )
        for place, (lost, error, unit) in missed(rows).items()
    }


def missed_in_words(rows: list[Row]) -> str:
    """The same for a sentence; empty where nothing was measured there."""
    parts = [f"{pm(lost, error)}{unit} on {place}" for place, (lost, error, unit) in missed(rows).items()]
    return f"; without the heads {' and '.join(parts)}" if parts else ""
