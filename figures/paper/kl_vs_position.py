"""KL to the true law over length: estimators, constructions, trained models.

Above, the KL itself, as the paper draws it; below, how far it lies above the Bayes predictor, where the curves that
coincide above come apart. The paper has no Bayes curve under the hierarchical prior; here it is computed.
"""

from __future__ import annotations

from dataclasses import dataclass

import matplotlib.pyplot as plt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from figures.parts.curves import LOOKS, curve, length_axis, of_kind, plot_curve, plot_seeds
from figures.parts.panels import legend_below, lettered, side_by_side, there, whisker
from figures.parts.rows import Results, Row, listed, matching, shape_words
from models.families.registry import drawing_order, find_family

LABEL = "fig:kl_vs_position"
ANALYSES = {"kl_curves": lambda rows: of_panels(rows)}
CLAIMS = (
    "hard_beta", "adaptive_beta", "trained_smooths", "bos_construction_bayes", "bos_trained_bayes", "families_match",
    "beat_add_alpha", "tuned_add_alpha", "excess",
)  # fmt: skip
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


@dataclass(frozen=True)
class Panel:
    """Which curves stand in one panel."""

    title: str
    kind: str
    bos: bool
    predictors: tuple[str, ...]
    families: tuple[str, ...]

    def __str__(self) -> str:
        return f"KL curves, {self.title}"

    def rows(self, rows: list[Row]) -> list[Row]:
        """Those of this panel."""
        mine = of_kind(rows, self.kind)
        kept = [row for name in self.predictors for row in curve(mine, name)]
        return kept + [row for family in self.families for row in matching(mine, family=family, bos=self.bos)]


EVERY = tuple(drawing_order())
TRAINED = tuple(name for name in EVERY if not find_family(name).analytic)
PANELS = (
    Panel(
        "independent prior, no BOS", "independent", False,
        ("bayes", "maximum likelihood", "hard, no BOS", "beta(t), no BOS"), TRAINED,
    ),
    Panel("independent prior, BOS", "independent", True, ("bayes", "maximum likelihood", "hard, BOS"), TRAINED),
    Panel(
        "hierarchical prior, BOS", "hierarchical", True, ("bayes", "add-0.1", "add-0.5", "add-1", "add-alpha, tuned"),
        EVERY,
    ),
)  # fmt: skip


def of_panels(rows: list[Row]) -> list[Row]:
    """The rows of the three panels, each once."""
    kept = {(row["prior"], row["length"], row["predictor"]): row for panel in PANELS for row in panel.rows(rows)}
    return list(kept.values())


def draw(results: Results) -> Figure:
    """KL above, its share over Bayes below; a column for each prior with and without BOS."""
    rows = results["kl_curves"]
    panels = there({panel: panel.rows(rows) for panel in PANELS})
    figure, axes = plt.subplots(
        2, len(panels), figsize=(6.3, 4.4), height_ratios=(1.5, 1.0), sharex="col", squeeze=False
    )
    found: dict[str, Artist] = {}
    for (above, below), (panel, mine) in zip(axes.T, panels.items(), strict=True):
        above.set_title(panel.title)
        found |= draw_predictors(above, below, panel, mine) | draw_models(above, below, panel, mine)
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
    axes[0, 0].set_ylabel("KL to the truth (nats)")
    axes[1, 0].set_ylabel("excess over Bayes")
    lettered(axes[0])
    order = [key_of(name) for name in LOOKS] + [find_family(name).trained_label for name in EVERY]
    handles = [found[name] for name in sorted(found, key=order.index)]
    legend_below(figure, [*handles, whisker("95% interval; of trained models: all seeds")], 3)
    return figure


def draw_predictors(above: Axes, below: Axes, panel: Panel, rows: list[Row]) -> dict[str, Artist]:
    """A curve for each estimator and construction; what the legend says of them."""
    found: dict[str, Artist] = {}
    for name in panel.predictors:
        if mine := curve(rows, name):
            found[key_of(name)] = plot_curve(above, mine, "kl", LOOKS[name] | {"label": key_of(name)})
            plot_curve(below, mine, "excess_share", LOOKS[name], error="excess_share_stderr")
    return found


def draw_models(above: Axes, below: Axes, panel: Panel, rows: list[Row]) -> dict[str, Artist]:
    """A marker for each trained model; what the legend says of them."""
    found: dict[str, Artist] = {}
    families = [family for family in panel.families if matching(rows, family=family)]
    for place, family in enumerate(families):
        mine = matching(rows, family=family)
        # Set aside, a point of a falling curve would seem to lie above it: there, markers stand inside each other.
        size = 2.8 + 1.7 * place if len(families) > 1 else 4.2
        points = plot_seeds(above, mine, "kl", family, size=size, joined=False)
        points.set_zorder(4 - 0.1 * place)
        points = plot_seeds(below, mine, "excess_share", family, shift=side_by_side(place, len(families), 0.17))
        found[str(points.get_label())] = points
    return found


def key_of(name: str) -> str:
    """What the legend calls a predictor; with or without BOS is said by the panel's title."""
    return str(LOOKS[name]["label"]).removesuffix(", BOS")


def fields(results: Results) -> dict[str, object]:
    rows = results["kl_curves"]
    sizes = sorted({row["n"] for row in rows})
    return {
        "shape": shape_words(rows),
        "n": listed(f"{size:,}" for size in sizes) or "no",
        "floor": rows[0]["floor"] if rows else 0.0,
    }
