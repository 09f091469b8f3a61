"""beta and kappa of trained models over length, beside the population optimum."""

from __future__ import annotations

from dataclasses import dataclass

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.parts.curves import length_axis
from figures.parts.panels import absent, labelled, legend_below, lettered, on_one_scale, side_by_side, whisker
from figures.parts.rows import Results, Row, matching, shape_words, where
from interp.plotting import curve
from interp.results import half_width
from models.families.registry import drawing_order, find_family

LABEL = "beyond:beta_kappa_zoo"
ANALYSES = ("beta_kappa", "optimal")
CLAIMS = ("optimum", "optimal_kappa")
CAPTION = (
    "Match weights and BOS score in nats over T{shape}. Markers: fits to the match head's scores at the last "
    "query, 95% intervals clustered by sequence, one marker per seed (seeds and families are shifted sideways a "
    "little); {failed} of {fits} fits failed and are not drawn. Gold: the population optimum of soft matching, "
    "with its 95% band. Dashed: beta(t) of lemma:optimal_beta for alpha = 1, which is about the independent prior "
    "without BOS and is shown under the hierarchical prior for comparison only. Under the independent prior with "
    "BOS the best beta is infinite, and only kappa - beta_1 - beta_2 is identified; dotted, what "
    "prop:add_constant says of it."
)
THEORY = {  # column of `optimal` -> name and line
    "lemma_beta": (r"$\beta(t)$ of the lemma ($\alpha=1$)", "--"),
    "log_alpha_vocab": (r"$\ln(\alpha|V|)$", ":"),
}
FIT_FIELDS = (
    "checkpoint", "subject", "success", "message", "beta", "stderr", "kappa", "kappa_stderr", "sequences", "n",
)  # fmt: skip
OPTIMUM_FIELDS = (
    "source", "sweep", "kind", "length", "bos", "beta", "kappa", "stderr", "combination", "combination_stderr",
    "log_alpha_vocab", "lemma_beta", "success", "message", "n", "checkpoint", "subject",
)  # fmt: skip


@dataclass(frozen=True)
class Panel:
    """One parameter under one prior, and the column of the closed form that is drawn beside it."""

    name: str
    axis: str
    kind: str
    bos: bool
    theory: str = ""

    @property
    def title(self) -> str:
        return f"{self.kind}, {'BOS' if self.bos else 'no BOS'}"


PANELS = (
    Panel("beta_1", r"$\beta_1$ (nats)", "hierarchical", True, "lemma_beta"),
    Panel("beta_2", r"$\beta_2$ (nats)", "hierarchical", True, "lemma_beta"),
    Panel("kappa", r"$\kappa$ (nats)", "hierarchical", True),
    Panel("beta_1", r"$\beta_1$ (nats)", "independent", False, "lemma_beta"),
    Panel("beta_2", r"$\beta_2$ (nats)", "independent", False, "lemma_beta"),
    Panel("combination", r"$\kappa-\beta_1-\beta_2$ (nats)", "independent", True, "log_alpha_vocab"),
)


def chosen(results: Results) -> Results:
    """The fits of every checkpoint, and the optimum over length; without the long arrays."""
    best = where(results["optimal"], sweep="length")
    learned = matching(where(results["optimal"], source="trained"), prior="independent", bos=True)
    return {
        "beta_kappa": [{name: row.get(name) for name in FIT_FIELDS} for row in matching(results["beta_kappa"])],
        "optimal": [{name: row.get(name) for name in OPTIMUM_FIELDS} for row in [*best, *learned]],
    }


def estimate(row: Row, name: str) -> tuple[float | None, float | None]:
    """A parameter of a row and its standard error; a failed fit has no numbers."""
    if not row["success"]:
        return None, None
    if name == "combination":
        return row["combination"], row["combination_stderr"]
    if name == "kappa":
        return row["kappa"], row.get("kappa_stderr", (row["stderr"] or [None])[-1])
    lag = int(name.removeprefix("beta_")) - 1
    return row["beta"][lag], row["stderr"][lag]


def drawable(rows: list[Row], name: str) -> tuple[list[Row], list[float], list[float]]:
    """The rows that have the parameter, its values, and how far their 95% intervals reach."""
    known = [(row, *estimate(row, name)) for row in rows]
    known = [one for one in known if one[1] is not None and one[2] is not None]
    reach = [float(half_width(stderr, n=row.get("sequences", row["n"]))) for row, _, stderr in known]
    return [row for row, _, _ in known], [value for _, value, _ in known if value is not None], reach


def draw(results: Results) -> Figure:
    """A panel for each parameter that is identified."""
    figure, axes = plt.subplots(2, 3, figsize=(6.3, 4.3))
    for ax, panel in zip(axes.flat, PANELS, strict=True):
        ax.set_title(panel.title)
        lengths = [*draw_theory(ax, panel, results), *draw_fits(ax, panel, results)]
        if not lengths:
            absent(ax, f"{panel.name}, {panel.title}")
            continue
        length_axis(ax, lengths)
        ax.set_ylabel(panel.axis)
        if ax in axes[0]:
            ax.set_xlabel("")
    on_one_scale(axes[0, :2])  # beta_1 beside beta_2
    on_one_scale(axes[1, :2])
    lettered(axes.flat)
    if handles := labelled(axes.flat):
        legend_below(figure, [*handles, whisker("95% interval")], 3)
    return figure


def draw_theory(ax: Axes, panel: Panel, results: Results) -> list[int]:
    """The optimum with its interval, and the closed form where there is one; returns the lengths."""
    rows = where(results["optimal"], kind=panel.kind, bos=panel.bos, source="optimum")
    rows = sorted(rows, key=lambda row: row["length"])
    best, values, reach = drawable(rows, panel.name)
    lengths = [row["length"] for row in best]
    if lengths:
        curve(ax, lengths, values, reach=reach, band=True, color="#ffb703", linewidth=1.2, label="population optimum")
    known = [row for row in rows if panel.theory and row[panel.theory] is not None]
    if known and lengths:
        name, line = THEORY[panel.theory]
        drawn = [row["length"] for row in known], [row[panel.theory] for row in known]
        ax.plot(*drawn, color="#882255", linestyle=line, label=name)
    return lengths


def draw_fits(ax: Axes, panel: Panel, results: Results) -> list[int]:
    """What the fits of trained models show, seeds and families a little apart; returns the lengths."""
    rows = results["optimal"] if panel.name == "combination" else results["beta_kappa"]
    rows = [row for row in rows if row["checkpoint"] is not None]
    lengths: list[int] = []
    for place, family in enumerate(drawing_order()):
        mine, values, reach = drawable(matching(rows, family=family, prior=panel.kind, bos=panel.bos), panel.name)
        if mine:
            look, shift = find_family(family), side_by_side(place, len(drawing_order()), 0.09)
            aside = [2 ** (shift + 0.03 * ((row["subject"]["seed"] or 0) % 3 - 1)) for row in mine]
            lengths += [row["subject"]["length"] for row in mine]
            curve(
                ax, [row["subject"]["length"] * by for row, by in zip(mine, aside, strict=True)], values, reach=reach,
                linestyle="none", marker=look.marker, markeredgewidth=0, color=look.colour, label=look.trained_label,
            )  # fmt: skip
    return lengths


def fields(results: Results) -> dict[str, object]:
    fits = results["beta_kappa"]
    return {
        "shape": f" ({shape_words(fits)})" if fits else "",
        "fits": len(fits),
        "failed": sum(not row["success"] for row in fits),
    }
