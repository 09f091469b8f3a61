"""A language model's heads: which match, and with which beta."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from figures._instruments import spread
from figures._language import HEAD_COLOURS, NOTHING, Results, listed, pick, pm
from figures.panels import absent, lettered, whisker
from figures.rows import Row
from figures.verdict import Check, Verdict, judged
from interp.plotting import CONTROL_COLOUR, INTERVAL, LAG_COLOURS, MAIN_COLOUR, head_heatmap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABEL = "beyond:language_heads"
ANALYSES = ("language_model",)
CLAIM = (
    "Question: does a pretrained language model have heads whose scores are explained by matches of the context, are "
    "they its classical induction heads, and what are their betas on in-context Markov chains?"
)
CONTROL_LIMIT = 0.01  # of r2_match with another sequence's masks
MATCH_FRAME = "#ffb703"
NAMED = 0.5  # of the least R2 of a head that matches: from here on a head has its name beside it
APART = 3.0  # standard errors between two halves


def chosen(results: Results) -> Results:
    """All heads, the laws of the best, and the random weights."""
    names = ("layer", "head", "role", "copy_lag", "r2_match", "control_r2_match", "repeat_induction")
    rows = results["language_model"]
    heads = [{name: row[name] for name in ("kind", *names)} for row in pick(rows, part="heads", kind="head")]
    return {"language_model": [*heads, *pick(rows, part="heads", kind="law"), *pick(rows, part="random")]}


def draw(results: Results) -> Figure:
    """The map, matches against the classical score, and betas."""
    import matplotlib.pyplot as plt

    rows = results["language_model"]
    heads, laws = pick(rows, kind="head"), pick(rows, kind="law")
    figure, axes = plt.subplots(1, 3, figsize=(6.3, 4.0), width_ratios=(1.25, 1.1, 1.1))
    if heads:
        draw_map(axes[0], heads, laws)
        figure.colorbar(
            axes[0].images[0], ax=axes[0], location="right", aspect=30, shrink=0.7, pad=0.03,
            label="$R^2$ of matches on chains",
        )  # fmt: skip
        draw_scores(axes[1], heads, laws)
    else:
        absent(axes[0], "the scan")
        absent(axes[1], "the scan")
    if laws:
        draw_betas(axes[2], laws)
    else:
        absent(axes[2], "fits")
    lettered([ax for ax in axes if ax.axison])
    if heads:
        points, _ = axes[1].get_legend_handles_labels()
        figure.legend(handles=[*legend(heads), *points], loc="outside lower center", ncols=3)
    return figure


def legend(heads: list[Row]) -> list[Any]:
    """The frames of the map, and the intervals."""
    from matplotlib.patches import Patch

    lags = sorted({row["copy_lag"] for row in heads if row["role"] == "copy"})
    return [
        Patch(facecolor="none", edgecolor=MATCH_FRAME, linewidth=1.5, label="(a) a head that matches"),
        *(
            Patch(
                facecolor="none", edgecolor=LAG_COLOURS[(lag - 1) % len(LAG_COLOURS)], linewidth=1.5,
                label=f"(a) {lag}: a head that copies lag {lag}",
            )
            for lag in lags
        ),
        whisker("(c) 95% interval"),
    ]  # fmt: skip


def draw_map(ax: Axes, heads: list[Row], laws: list[Row]) -> None:
    """r2_match of every head; the best are framed, heads that copy a lag carry its number."""
    import numpy as np

    values = np.full((1 + max(row["layer"] for row in heads), 1 + max(row["head"] for row in heads)), np.nan)
    for row in heads:
        values[row["layer"], row["head"]] = row["r2_match"]
    best = {row["name"] for row in laws}
    marks = {
        (row["layer"], row["head"]): (str(row["copy_lag"]), LAG_COLOURS[(row["copy_lag"] - 1) % len(LAG_COLOURS)])
        for row in heads
        if row["role"] == "copy"
    }
    marks |= {
        (row["layer"], row["head"]): ("", MATCH_FRAME) for row in heads if f"{row['layer']}.{row['head']}" in best
    }
    head_heatmap(ax, values, marks=marks, highest=max(0.1, float(np.nanmax(values))))
    ax.set_aspect("auto")
    ax.set_title("every head", loc="left")


def draw_scores(ax: Axes, heads: list[Row], laws: list[Row]) -> None:
    """r2_match against the classical induction score; the control is below."""
    names = [row["name"] for row in laws]
    ax.scatter(
        [row["repeat_induction"] for row in heads],
        [row["control_r2_match"] or 0.0 for row in heads],
        s=8,
        color=CONTROL_COLOUR,
        label="(b) masks of another sequence",
        marker="x",
        linewidth=0.7,
    )
    ax.scatter(
        [row["repeat_induction"] for row in heads],
        [row["r2_match"] or 0.0 for row in heads],
        s=8,
        color=MAIN_COLOUR,
        label="(b) masks of its own sequence",
    )
    named = [row for row in heads if f"{row['layer']}.{row['head']}" in names]
    least = NAMED * min((row["r2_match"] for row in named), default=float("inf"))
    for row in heads:
        if row in named or (row["r2_match"] or 0.0) >= least:
            left = row["repeat_induction"] > 0.2  # towards the side that has room
            ax.annotate(
                f"{row['layer']}.{row['head']}",
                (row["repeat_induction"], row["r2_match"]),
                textcoords="offset points",
                xytext=(-3 if left else 3, 3),
                ha="right" if left else "left",
            )
    ax.set_xlabel("classical induction score")
    ax.set_ylabel(r"$R^2$ of matches on chains")
    ax.set_title("beside the classical score", loc="left")


def draw_betas(ax: Axes, laws: list[Row]) -> None:
    """beta of each lag and each of the best heads."""
    for lag in range(len(laws[0]["beta"])):
        ax.errorbar(
            [place + 0.12 * lag for place in range(len(laws))],
            [row["beta"][lag] for row in laws],
            yerr=[INTERVAL * row["beta_stderr"][lag] for row in laws],
            linestyle="none",
            marker="o",
            markersize=3,
            color=LAG_COLOURS[lag],
            label=rf"$\beta_{lag + 1}$",
        )
    ax.errorbar(
        [place - 0.12 for place in range(len(laws))],
        [row["kappa"] for row in laws],
        yerr=[INTERVAL * row["kappa_stderr"] for row in laws],
        linestyle="none",
        marker="s",
        markersize=3,
        color=HEAD_COLOURS[3],
        label=r"$\kappa$",
    )
    ax.axhline(0.0, color="#555555", linewidth=0.5)
    ax.set_xticks(range(len(laws)), [row["name"] for row in laws], rotation=45)
    ax.set_xlabel("head (layer.head)")
    ax.set_ylabel("nats above an empty match")
    ax.set_title("law of heads that match", loc="left")
    ax.legend(loc="best")


def caption(results: Results) -> str:
    """What is to be seen, with the numbers."""
    rows = results["language_model"]
    laws = pick(rows, kind="law")
    if not laws:
        return "Heads of a language model: no results."
    gaps = listed([f"{row['name']} {row['query_gap']:.2f}" for row in laws])
    kinds = listed([f"{row['name']} {row['law_best']}{'' if row['law_told'] else ' (not told)'}" for row in laws])
    return (
        f"In-context chains of order 2 on five words, an alphabet for each sequence. (a) Of what position leaves of "
        f"each head's scores, the share that matches explain; framed in yellow the heads that are studied, with a "
        f"number the heads that look at that lag. (b) The same against the attention on the key after the query's "
        f"earlier occurrence in repeated random tokens; grey: with the masks of another sequence. (c) Additive law of "
        f"the attention on {laws[0]['n']} chains, 95% intervals. One set of parameters for all queries is off by a "
        f"mean total variation of {gaps} query by query. Best law on held-out chains: {kinds}."
    )


def verdict(results: Results) -> Verdict:
    """The controls of the scan, and the betas."""
    rows = results["language_model"]
    heads, laws, random = pick(rows, kind="head"), pick(rows, kind="law"), pick(rows, part="random")
    if not heads or not laws:
        return NOTHING
    control = max(row["control_r2_match"] or 0.0 for row in heads)
    apart = max(one or 0.0 for row in laws for one in row["halves_apart"])
    matching = sum(row["matching"] for row in random)
    checks = {
        f"with another sequence's masks every head is below {CONTROL_LIMIT}": Check(
            passed=control < CONTROL_LIMIT, found=f"{control:.4f}"
        ),
        f"betas of two halves agree within {APART:g} standard errors": Check(
            passed=apart < APART, found=f"{apart:.1f}"
        ),
        "random weights give no matching head": Check(passed=not matching, found=f"{matching} heads"),
    }
    betas = listed(
        [
            f"{row['name']} ({pm(row['beta'][0], row['beta_stderr'][0])}, {pm(row['beta'][1], row['beta_stderr'][1])})"
            for row in laws
        ]
    )
    judgement = judged(
        checks,
        headline=f"Controls of {len(laws)} heads: other masks explain at most {control:.4f}, and betas of two halves "
        f"are at most {apart:.1f} standard errors apart.",
        number=f"other masks at most {control:.4f}; halves at most {apart:.1f} s.e. apart; {matching} random heads",
        measured=f"betas {betas}; other masks at most {control:.4f}; halves at most {apart:.1f} s.e. apart",
    )
    if judgement.word != "holds":
        return judgement
    firsts, seconds = ([row["beta"][lag] for row in laws] for lag in (0, 1))
    return Verdict(
        word="beyond the paper",
        measured=judgement.measured,
        headline=f"{len(laws)} heads match, mostly on one token: beta_1 is {spread(firsts, '.1f')} nats and beta_2 "
        f"{spread(seconds, '.1f')}.",
        number=f"{len(laws)} heads match: beta_1 {spread(firsts, '.1f')}, beta_2 {spread(seconds, '.1f')} nats",
        why="these heads match mostly on one token: beta_2 is small beside beta_1, so that on chains of order 2 they "
        "compute a bigram estimate with pseudo-counts rather than one of order 2",
    )
