"""What is predicted with the match head silenced: nothing, or a count of tokens.

Draws the rows of `python -m analyses direct_path` and `lag_pairs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from figures._instruments import (
    SETTINGS,
    Results,
    all_of,
    lengths_text,
    listed,
    note_missing,
    one_of,
    only,
    seeds_text,
    shape_text,
    shown,
)
from figures.known_conditions import NO_DIRECT_PATH, by_family
from figures.panels import absent, lettered
from figures.rows import Row
from figures.verdict import Check, Verdict, judged
from interp.plotting import lag_names
from models.families import find_family

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABEL = "beyond:direct_path"
ANALYSES = ("direct_path", "lag_pairs")
CLAIM = (
    "In the paper's circuit all that is known of the next token comes through the match head, in constructions and "
    "trained transformers alike: silenced, a model must predict the uniform law."
)

POINTS = {"kl_uniform": ("uniform law", "|"), "kl": ("match head silenced", "o"), "kl_model": ("whole model", "D")}
SHARES = {"r2_frequency": "frequency", "r2_recent": "last tokens", "r2": "both", "r2_control": "control"}
SHADES = {"r2_frequency": "#5b99c2", "r2_recent": "#ffb703", "r2": "#003566", "r2_control": "#bdbdbd"}
FIELDS = ("verdict", "gain", "gain_stderr", *POINTS, *SHARES, "frequency", "recent", "n", "success", "message")


def chosen(results: Results) -> Results:
    """One model of each setting, and its key block 0."""
    paths = [row for setting in SETTINGS for row in all_of(results["direct_path"], setting)]
    pairs = [row for setting in SETTINGS for row in all_of(results["lag_pairs"], setting)]
    return {
        "direct_path": [only(row, *FIELDS) for row in paths],
        "lag_pairs": [only(row, "beta", "stderr", "success") for row in pairs],
    }


def draw(results: Results) -> Figure:
    """KL with and without the match head, what the rest is made of, and the match head's answer to it."""
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D

    figure, axes = plt.subplots(1, 3, figsize=(6.3, 3.2), width_ratios=[1.3, 1.0, 1.0])
    if not shown(results["direct_path"]):
        for ax in axes:
            absent(ax, "every model")
        return figure
    loss, made_of, discount = axes
    draw_losses(loss, results["direct_path"])
    draw_shares(made_of, results["direct_path"])
    draw_discount(discount, results["lag_pairs"])
    for ax in axes:
        ax.set_ylim(len(SETTINGS) - 0.5, -0.5)
        ax.set_yticks(range(len(SETTINGS)), [setting.title for setting in SETTINGS] if ax is loss else [])
        ax.tick_params(axis="y", length=0)
        for edge in range(1, len(SETTINGS)):
            ax.axhline(edge - 0.5, color="#d9d9d9", linewidth=0.5)
    lettered(axes)
    handles = [
        Line2D([], [], color="#555555", marker=marker, linestyle="none", label=name) for name, marker in POINTS.values()
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=3)
    return figure


def draw_losses(ax: Axes, rows: list[Row]) -> None:
    """KL to the truth: uniform law, silenced model, whole model."""
    for place, setting in enumerate(SETTINGS):
        row = one_of(rows, setting)
        if row is None:
            note_missing(ax, place, setting.words)
            continue
        colour = find_family(setting.family).colour
        ax.plot([row[field] for field in POINTS], [place] * len(POINTS), color=colour, linewidth=0.8)
        for field, (_, marker) in POINTS.items():
            ax.plot(row[field], place, marker, color=colour, markersize=8 if marker == "|" else 4)
        for other in all_of(rows, setting):
            if other is not row and other["subject"]["length"] == row["subject"]["length"]:
                below = [other[field] for field in ("kl", "kl_model")]
                ax.plot(below, [place + 0.18] * 2, "o", color=colour, markersize=1.6, markerfacecolor="none")
    ax.set_xlim(0, None)
    ax.set_xlabel("KL to the truth (nats)")
    ax.set_title("the loss", loc="left")


def draw_shares(ax: Axes, rows: list[Row]) -> None:
    """What explains the silenced model's log-probabilities, where they are better than the uniform law."""
    height = 0.19
    for place, setting in enumerate(SETTINGS):
        row = one_of(rows, setting)
        if row is None:
            continue
        if row["verdict"] == "nothing":
            ax.annotate("nothing to explain", (0.02, place), va="center", fontsize=6, color="#7f7f7f")
            continue
        for number, (field, name) in enumerate(SHARES.items()):
            y = place + (number - 1.5) * height
            ax.barh(y, row[field] or 0.0, height=0.9 * height, color=SHADES[field])
            ax.annotate(name, ((row[field] or 0.0) + 0.02, y), va="center", fontsize=6, annotation_clip=False)
    ax.set_xlim(0, 1.45)
    ax.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    ax.set_xlabel("$R^2$ of log-probabilities")
    ax.set_title("what is left", loc="left")


def draw_discount(ax: Axes, rows: list[Row]) -> None:
    """Weights of the pairs in which a key's own token takes part."""
    names = lag_names("t", 3)
    for place, setting in enumerate(SETTINGS):
        row = one_of(rows, setting)
        if row is None or not row["success"]:
            continue
        for lag, weights in enumerate(row["beta"]):
            y = place + (lag - (len(row["beta"]) - 1) / 2) * 0.25
            ax.barh(
                y, weights[0], xerr=row["stderr"][lag][0], height=0.21, color=find_family(setting.family).colour,
                error_kw={"linewidth": 0.5},
            )  # fmt: skip
            if lag < len(names):
                ax.annotate(
                    names[lag], (max(weights[0], 0.0), y), xytext=(3, 0), textcoords="offset points", va="center",
                    fontsize=6,
                )  # fmt: skip
    ax.axvline(0.0, color="#555555", linewidth=0.5)
    ax.margins(x=0.15)
    ax.set_xlabel("weight in the scores (nats)")
    ax.set_title("the key's own token", loc="left")


def caption(results: Results) -> str:
    """What is to be seen, with the numbers."""
    rows = [row for _, row in shown(results["direct_path"])]
    if not rows:
        return "The direct path: no model was there to be silenced."
    return (
        f"Models whose match head is silenced at the last query: all its attention on BOS, or on nothing where there "
        f"is no BOS ({lengths_text(rows)}, {shape_text(rows)}, {seeds_text(results['direct_path'])}; n = "
        f"{rows[0]['n']} held-out sequences). (a) KL(truth || prediction) of the uniform law, of the silenced and of "
        f"the whole model; small circles, the latter two of the other seeds. (b) Where the silenced model is better "
        f"than the uniform law: share of the variance of its centred log-probabilities that the frequency of a symbol "
        f"in the sequence explains, whether it is one of the last k + 1 tokens, both, and, as control, both of another "
        f"sequence. (c) Weight that the match scores give to a key whose own token x_s equals the query's x_t, "
        f"x_(t-1), x_(t-2); the paper's law has none. Bars: one standard error."
    )


def verdict(results: Results) -> Verdict:
    """Silenced, a model should know nothing."""
    checks: dict[str, bool | Check] = {}
    measured, reasons = [], []
    for setting in SETTINGS:
        rows = [row for row in all_of(results["direct_path"], setting) if row["success"]]
        if not rows:
            continue
        gains = [f"{row['gain']:+.3f} ± {row['gain_stderr']:.3f}" for row in rows]
        checks[f"{setting.words}: nothing is left without the match head"] = by_family(
            setting.family,
            all(row["verdict"] == "nothing" for row in rows),
            otherwise="",
            softmax=NO_DIRECT_PATH,
            found=f"{listed(gains)} nats",
        )
        measured.append(f"{setting.words}: gain over the uniform law {listed(gains)} nats")
        counting = [row for row in rows if row["verdict"] == "counts tokens"]
        if counting:
            shares = listed([f"{row['r2']:.2f}" for row in counting])
            reasons.append(
                f"{setting.words}: the rest of the model counts tokens (R2 {shares}): an estimate of order 0 that "
                f"bypasses the matching, brought by copy heads that spread their attention"
            )
    told = "; ".join(measured) or "no model was silenced"
    parts = []
    for family in dict.fromkeys(row["subject"]["family"] for row in results["direct_path"]):
        gains = [row["gain"] for row in results["direct_path"] if row["subject"]["family"] == family and row["success"]]
        parts += [f"{family} {min(gains):+.2f} to {max(gains):+.2f}"] if gains else []
    headline = f"nats known without the match head: {', '.join(parts)}" if parts else ""
    return judged(checks, measured=told, headline=headline, why=". ".join(reasons))
