"""beta and kappa of trained models over length, beside the population optimum."""

from __future__ import annotations

from dataclasses import dataclass

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.parts.curves import length_axis
from figures.parts.panels import labelled, legend_below, lettered, on_one_scale, side_by_side, there, whisker
from figures.parts.rows import Results, Row, matching, shape_words, where
from interp.plotting import curve
from interp.results import half_width
from models.families.registry import drawing_order, find_family

LABEL = "beyond:beta_kappa_zoo"
ANALYSES = {"beta_kappa": matching, "optimal": lambda rows: of_optima(rows)}
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

    def __str__(self) -> str:
        return f"{self.name}, {self.title}"

    def optimum(self, results: Results) -> list[Row]:
        """The population optimum where it has this parameter, shortest first."""
        rows = where(results["optimal"], kind=self.kind, bos=self.bos, source="optimum")
        return sorted((row for row in rows if self.is_in(row)), key=lambda row: row["length"])

    def fits(self, results: Results) -> list[Row]:
        """The trained models whose fit has this parameter."""
        rows = results["optimal"] if self.name == "combination" else results["beta_kappa"]
        rows = [row for row in rows if row["checkpoint"] is not None]
        return [row for row in matching(rows, prior=self.kind, bos=self.bos) if self.is_in(row)]

    def is_in(self, row: Row) -> bool:
        return None not in self.estimate(row)

    def estimate(self, row: Row) -> tuple[float | None, float | None]:
        """The parameter in a row and its standard error; a failed fit has no numbers."""
        if not row["success"]:
            return None, None
        if self.name == "combination":
            return row["combination"], row["combination_stderr"]
        if self.name == "kappa":
            return row["kappa"], row.get("kappa_stderr", (row["stderr"] or [None])[-1])
        lag = int(self.name.removeprefix("beta_")) - 1
        return row["beta"][lag], row["stderr"][lag]

    def numbers(self, rows: list[Row]) -> tuple[list[float], list[float]]:
        """The parameter of each row, and how far its 95% interval reaches."""
        known = [self.estimate(row) for row in rows]
        reach = [
            half_width(error, n=row.get("sequences", row["n"])) for row, (_, error) in zip(rows, known, strict=True)
        ]
        return [float(value) for value, _ in known if value is not None], [float(one) for one in reach]


PANELS = (
    Panel("beta_1", r"$\beta_1$ (nats)", "hierarchical", True, "lemma_beta"),
    Panel("beta_2", r"$\beta_2$ (nats)", "hierarchical", True, "lemma_beta"),
    Panel("kappa", r"$\kappa$ (nats)", "hierarchical", True),
    Panel("beta_1", r"$\beta_1$ (nats)", "independent", False, "lemma_beta"),
    Panel("beta_2", r"$\beta_2$ (nats)", "independent", False, "lemma_beta"),
    Panel("combination", r"$\kappa-\beta_1-\beta_2$ (nats)", "independent", True, "log_alpha_vocab"),
)


def of_optima(rows: list[Row]) -> list[Row]:
    """The optimum over length, and what models learned under the independent prior with BOS."""
    learned = matching(where(rows, source="trained"), prior="independent", bos=True)
    return [*where(rows, sweep="length", source="optimum"), *learned]


def draw(results: Results) -> Figure:
    """A panel for each parameter that is identified."""
    panels = list(there({panel: [*panel.optimum(results), *panel.fits(results)] for panel in PANELS}))
    lines = -(-len(panels) // 3)
    figure, axes = plt.subplots(lines, 3, figsize=(6.3, 0.7 + 1.8 * lines))
    for ax in axes.flat[len(panels) :]:
        ax.set_axis_off()
    for ax, panel in zip(axes.flat, panels, strict=False):
        ax.set_title(panel.title)
        draw_theory(ax, panel, panel.optimum(results))
        draw_fits(ax, panel, panel.fits(results))
        rows = [*panel.optimum(results), *panel.fits(results)]
        length_axis(ax, [row["subject"]["length"] if row.get("subject") else row["length"] for row in rows])
        ax.set_ylabel(panel.axis)
    betas = [(panel, ax) for panel, ax in zip(panels, axes.flat, strict=False) if panel.name.startswith("beta")]
    for kind in {panel.kind for panel, _ in betas}:
        on_one_scale(ax for panel, ax in betas if panel.kind == kind)
    lettered(axes.flat[: len(panels)])
    legend_below(figure, [*labelled(axes.flat), whisker("95% interval")], 3)
    return figure


def draw_theory(ax: Axes, panel: Panel, rows: list[Row]) -> None:
    """The optimum with its interval, and the closed form where there is one."""
    values, reach = panel.numbers(rows)
    lengths = [row["length"] for row in rows]
    if rows:
        curve(ax, lengths, values, reach=reach, band=True, color="#ffb703", linewidth=1.2, label="population optimum")
    known = [row for row in rows if panel.theory and row[panel.theory] is not None]
    if known:
        name, line = THEORY[panel.theory]
        drawn = [row["length"] for row in known], [row[panel.theory] for row in known]
        ax.plot(*drawn, color="#882255", linestyle=line, label=name)


def draw_fits(ax: Axes, panel: Panel, rows: list[Row]) -> None:
    """What the fits of trained models show, seeds and families a little apart."""
    for place, family in enumerate(drawing_order()):
        if mine := matching(rows, family=family):
            look, shift = find_family(family), side_by_side(place, len(drawing_order()), 0.09)
            aside = [2 ** (shift + 0.03 * ((row["subject"]["seed"] or 0) % 3 - 1)) for row in mine]
            places = [row["subject"]["length"] * by for row, by in zip(mine, aside, strict=True)]
            values, reach = panel.numbers(mine)
            curve(
                ax, places, values, reach=reach, linestyle="none", marker=look.marker, markeredgewidth=0,
                color=look.colour, label=look.trained_label,
            )  # fmt: skip


def fields(results: Results) -> dict[str, object]:
    fits = results["beta_kappa"]
    return {
        "shape": f" ({shape_words(fits)})" if fits else "",
        "fits": len(fits),
        "failed": sum(not row["success"] for row in fits),
    }
