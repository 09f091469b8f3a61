"""KL to the true law over length: estimators, constructions, trained models.

Above, the KL itself, as the paper draws it; below, how far it lies above the Bayes predictor, where the curves that
coincide above come apart. The paper has no Bayes curve under the hierarchical prior; here it is computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from figures.parts.curves import (
    LOOKS,
    curve,
    family_shift,
    length_axis,
    listed,
    models,
    of_kind,
    plot_curve,
    plot_seeds,
    shape_words,
)
from figures.parts.panels import absent, lettered, whisker
from figures.parts.rows import Row
from models.families.registry import drawing_order, find_family

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABEL = "fig:kl_vs_position"
ANALYSES = ("kl_curves",)
CLAIMS = (
    "hard_beta",
    "adaptive_beta",
    "trained_smooths",
    "bos_construction_bayes",
    "bos_trained_bayes",
    "families_match",
    "beat_add_alpha",
    "tuned_add_alpha",
)
CAPTION = (
    "KL(truth || prediction) in nats at the last of T tokens ({shape}), mean over {n} sequences per T that all "
    "predictors share. Above, the KL; below, the excess over the Bayes predictor on the same sequences as a share "
    "of its KL, linear up to 1%, with 95% intervals of paired differences. Trained models are measured at the "
    "length they were trained on: a marker for each seed and a bar from the least to the largest. Under the "
    "independent prior the Bayes predictor is add-alpha; under the hierarchical prior it is a Monte Carlo "
    "estimate. `Every fixed add-alpha` includes the best one, tuned for each T. Maximum likelihood gives unseen "
    "symbols no mass: a floor of {floor:g} on probabilities keeps its KL finite, and shapes that curve. The "
    "construction trains beta_1, beta_2 and kappa; the paper speaks of two scalars (`open_choices`)."
)

LINEAR_SHARE = 0.01  # the lower row is linear up to here and logarithmic above: it has zeros, and curves a decade apart


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Which curves stand in one panel."""

    title: str
    kind: str
    bos: bool
    predictors: tuple[str, ...]
    constructions: bool = False  # whether trained constructions stand beside trained models

    @property
    def families(self) -> list[str]:
        """Which families to look for."""
        return [name for name in drawing_order() if self.constructions or not find_family(name).analytic]

    def rows(self, rows: list[Row]) -> list[Row]:
        """Those of this panel."""
        mine = of_kind(rows, self.kind)
        kept = [row for name in self.predictors for row in curve(mine, name)]
        return kept + [row for family in self.families for row in models(mine, family=family, bos=self.bos)]


PANELS = (
    Panel(
        title="independent prior, no BOS",
        kind="independent",
        bos=False,
        predictors=("bayes", "maximum likelihood", "hard, no BOS", "beta(t), no BOS"),
    ),
    Panel(
        title="independent prior, BOS",
        kind="independent",
        bos=True,
        predictors=("bayes", "maximum likelihood", "hard, BOS"),
    ),
    Panel(
        title="hierarchical prior, BOS",
        kind="hierarchical",
        bos=True,
        predictors=("bayes", "add-0.1", "add-0.5", "add-1", "add-alpha, tuned"),
        constructions=True,
    ),
)


def chosen(results: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """The rows of the three panels."""
    rows = results["kl_curves"]
    kept = {(row["prior"], row["length"], row["predictor"]): row for panel in PANELS for row in panel.rows(rows)}
    return {"kl_curves": list(kept.values())}


def draw(results: dict[str, list[Row]]) -> Figure:
    """KL above, its share over Bayes below; a column for each prior with and without BOS."""
    import matplotlib.pyplot as plt
    from matplotlib.ticker import NullLocator

    rows = results["kl_curves"]
    figure, axes = plt.subplots(2, 3, figsize=(6.3, 4.4), height_ratios=(1.5, 1.0), sharex="col")
    handles: dict[str, Any] = {}
    for column, panel in enumerate(PANELS):
        above, below = axes[:, column]
        mine = panel.rows(rows)
        above.set_title(panel.title, loc="left")
        if not mine:
            absent(above, f"KL curves,\n{panel.title}")
            below.set_axis_off()
            continue
        for name in panel.predictors:
            if found := curve(mine, name):
                handles[key_of(name)] = plot_curve(above, found, "kl", LOOKS[name])
                plot_curve(below, found, "excess_share", LOOKS[name], error="excess_share_stderr")
        there = [family for family in panel.families if models(mine, family=family)]
        for family in there:
            found, shift = models(mine, family=family), family_shift(family, there)
            # Set aside, a point of a falling curve would seem to lie above it: there, markers stand inside each other.
            size = 2.8 + 1.7 * there.index(family) if len(there) > 1 else 4.2
            points = plot_seeds(above, found, "kl", family, size=size, medians=False)
            points.set_zorder(4 - 0.1 * there.index(family))
            points = plot_seeds(below, found, "excess_share", family, shift=shift)
            handles[str(points.get_label())] = points
        above.set_yscale("log")
        above.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        # One scale for all three panels: add-alpha under one prior is to be seen beside the other.
        above.set_ylim(0.8 * min(row["kl"] for row in rows), 1.25 * max(row["kl"] for row in rows))
        below.set_yscale("symlog", linthresh=LINEAR_SHARE, linscale=0.6)
        below.set_ylim(-LINEAR_SHARE / 2, 40)
        below.set_yticks([0, 0.01, 0.1, 1, 10], ["0", "1%", "10%", "100%", "1000%"])
        below.yaxis.set_minor_locator(NullLocator())
        length_axis(below, [row["length"] for row in mine])
        above.tick_params(axis="x", which="both", labelbottom=False)
        above.set_xlabel("")
    axes[0, 0].set_ylabel("KL to the true law (nats)")
    axes[1, 0].set_ylabel("excess over Bayes")
    lettered(axes[0])
    order = [key_of(name) for name in LOOKS] + [find_family(name).trained_label for name in drawing_order()]
    names = sorted(handles, key=order.index)
    if handles:
        bar = whisker("95% interval; of trained models: all seeds")
        figure.legend(
            [*(handles[name] for name in names), bar],
            [*names, str(bar.get_label())],
            loc="outside lower center",
            ncols=3,
        )
    return figure


def key_of(name: str) -> str:
    """What the legend calls a predictor; with or without BOS is said by the panel's title."""
    return LOOKS[name].label.removesuffix(", BOS")


def fields(results: dict[str, list[Row]]) -> dict[str, object]:
    rows = results["kl_curves"]
    sizes = sorted({row["n"] for row in rows})
    return {
        "shape": shape_words(rows),
        "n": listed(f"{size:,}" for size in sizes) or "no",
        "floor": rows[0]["floor"] if rows else 0.0,
    }
