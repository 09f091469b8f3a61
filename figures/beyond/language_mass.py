"""A language model's matching heads: mass by overlap, beside the law."""

from __future__ import annotations

from typing import TYPE_CHECKING

from figures.parts.language import Results, keep
from figures.parts.panels import absent, lettered
from interp.plotting import CONTROL_COLOUR, MAIN_COLOUR, grouped_bars

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABEL = "beyond:language_mass"
ANALYSES = ("language_model",)
CLAIMS = ("language_mass",)
CAPTION = (
    "Mean attention of the matching heads on keys by overlap with the query's context, and on BOS, over queries "
    "of chains of order 2, beside the additive law fitted to the same attention. Early keys, about which the law "
    "says nothing, are left out. A fit of kappa and one number for each overlap would match these means by "
    "itself; what tests the law is the distance query by query and the share of the attention's information that "
    "it explains."
)


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
