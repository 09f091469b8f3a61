"""A language model's matching heads: mass by overlap, beside the law."""

from __future__ import annotations

from typing import TYPE_CHECKING

from figures._language import NOTHING, Results, keep
from figures.panels import absent, lettered
from figures.verdict import Check, Verdict, judged
from interp.plotting import CONTROL_COLOUR, MAIN_COLOUR, grouped_bars

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABEL = "beyond:language_mass"
ANALYSES = ("language_model",)
CLAIM = (
    "Question: is the attention of a language model's matching heads the law N_M e^{|beta|_M} / Z, on average over "
    "queries and query by query?"
)
MEAN_GAP, QUERY_GAP = 0.05, 0.1


def chosen(results: Results) -> Results:
    return keep(results, part="heads", kind="law")


def draw(results: Results) -> Figure:
    """A panel of bars for each head."""
    import matplotlib.pyplot as plt
    import numpy as np

    rows = results["language_model"][:6]
    figure, axes = plt.subplots(1, max(1, len(rows)), figsize=(6.3, 2.4), sharey=True, squeeze=False)
    for ax, row in zip(axes[0], rows, strict=False):
        grouped_bars(
            ax,
            ["BOS" if name == "bos" else name.replace("|M|=", "") for name in row["groups"]],
            {"observed": np.array(row["observed"]), "law": np.array(row["predicted"])},
            colours={"observed": MAIN_COLOUR, "law": CONTROL_COLOUR},
        )
        ax.set_title(f"head {row['name']}", loc="left")
        ax.set_xlabel("overlap")
    if not rows:
        absent(axes[0][0], "fits")
    else:
        axes[0][0].set_ylabel("mean attention")
        handles, labels = axes[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2)
    lettered([ax for ax in axes[0] if ax.axison])
    return figure


def caption(results: Results) -> str:
    """What is to be seen."""
    rows = results["language_model"]
    if not rows:
        return "Attention by overlap of a language model's heads: no results."
    return (
        f"Mean attention of the matching heads on keys by overlap with the query's context, and on BOS, over "
        f"{rows[0]['queries']} queries of {rows[0]['n']} chains of order 2, beside the additive law fitted to the same "
        "attention. Early keys, about which the law says nothing, are left out ("
        + ", ".join(f"{row['name']} {row['early']:.2f}" for row in rows)
        + "). A fit of kappa and one number for each overlap would match these means by itself; what tests the law is "
        "the distance query by query and the share of the attention's information that it explains."
    )


def verdict(results: Results) -> Verdict:
    """Means agree; single queries may not."""
    rows = results["language_model"]
    if not rows:
        return NOTHING
    mean, query = max(row["mass_gap"] for row in rows), max(row["query_gap"] for row in rows)
    told = "; ".join(
        f"{row['name']}: mean masses off by {row['mass_gap']:.3f}, single queries by {row['query_gap']:.2f} "
        f"(mean total variation), {row['nats_explained']:.2f} ± {row['nats_explained_stderr']:.2f} of "
        f"{row['nats']:.2f} nats explained"
        for row in rows
    )
    checks = {
        f"mean masses within {MEAN_GAP}": Check(
            passed=mean <= MEAN_GAP, found=f"{mean:.3f}", part="on average over queries"
        ),
        f"masses of single queries within {QUERY_GAP}, mean total variation": Check(
            passed=query <= QUERY_GAP, found=f"{query:.2f}", part="query by query"
        ),
    }
    return judged(
        checks,
        measured=told,
        headline=f"The heads' mean masses are within {mean:.3f} of the law's; the masses of a single query are off by "
        f"{query:.2f} on average, in the worst head (total variation).",
        number=f"mean masses within {mean:.3f} of the law; single queries off by {query:.2f} on average (worst head)",
        why="one beta and kappa for all queries say where the attention goes on average, not in each query",
    )
