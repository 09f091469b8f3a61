"""beta and kappa of trained models over length, beside the population optimum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from figures.parts.curves import length_axis, shape_words
from figures.parts.panels import absent, lettered, whisker
from figures.parts.rows import Row, matching
from interp.results import half_width
from models.families.registry import drawing_order, find_family

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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

OPTIMUM_COLOUR = "#ffb703"
LEMMA_COLOUR = "#882255"
FIT_FIELDS = (
    "checkpoint",
    "subject",
    "success",
    "message",
    "beta",
    "stderr",
    "kappa",
    "kappa_stderr",
    "sequences",
    "n",
)
OPTIMUM_FIELDS = (
    "source", "sweep", "kind", "length", "bos", "beta", "kappa", "stderr", "combination", "combination_stderr",
    "log_alpha_vocab", "lemma_beta", "success", "message", "n", "checkpoint", "subject",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One parameter under one prior."""

    title: str
    name: str
    kind: str
    bos: bool
    lemma: bool = False  # whether the closed form is drawn beside it
    known: bool = False  # whether ln(alpha |V|) is


PANELS = (
    Panel(title="hierarchical, BOS", name="beta_1", kind="hierarchical", bos=True, lemma=True),
    Panel(title="hierarchical, BOS", name="beta_2", kind="hierarchical", bos=True, lemma=True),
    Panel(title="hierarchical, BOS", name="kappa", kind="hierarchical", bos=True),
    Panel(title="independent, no BOS", name="beta_1", kind="independent", bos=False, lemma=True),
    Panel(title="independent, no BOS", name="beta_2", kind="independent", bos=False, lemma=True),
    Panel(title="independent, BOS", name="combination", kind="independent", bos=True, known=True),
)
AXIS_NAMES = {
    "beta_1": r"$\beta_1$ (nats)",
    "beta_2": r"$\beta_2$ (nats)",
    "kappa": r"$\kappa$ (nats)",
    "combination": r"$\kappa-\beta_1-\beta_2$ (nats)",
}


@dataclass(frozen=True, kw_only=True)
class Point:
    """One estimate, and how far its 95% interval reaches to each side."""

    length: int
    value: float
    reach: float
    family: str = ""
    seed: int = 0


def chosen(results: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """The fits of every checkpoint, and the optimum over length; without the long arrays."""
    fits = [{name: row.get(name) for name in FIT_FIELDS} for row in matching(results["beta_kappa"])]
    best = [row for row in results["optimal"] if row["sweep"] == "length"]
    learned = matching([row for row in results["optimal"] if row["source"] == "trained"], prior="independent", bos=True)
    return {
        "beta_kappa": fits,
        "optimal": [{name: row.get(name) for name in OPTIMUM_FIELDS} for row in [*best, *learned]],
    }


def optimum_points(panel: Panel, results: dict[str, list[Row]]) -> list[Point]:
    """The population optimum over length."""
    found = []
    for row in results["optimal"]:
        if row["source"] != "optimum" or (row["kind"], row["bos"]) != (panel.kind, panel.bos) or not row["success"]:
            continue
        value, stderr = estimate(row, panel.name)
        if value is not None and stderr is not None:
            reach = float(half_width(stderr, n=row["n"]))
            found.append(Point(length=row["length"], value=value, reach=reach))
    return sorted(found, key=lambda point: point.length)


def estimate(row: Row, name: str) -> tuple[float | None, float | None]:
    """A parameter of a row and its standard error."""
    if name == "combination":
        return row["combination"], row["combination_stderr"]
    if name == "kappa":
        return row["kappa"], row.get("kappa_stderr", (row["stderr"] or [None])[-1])
    lag = int(name.removeprefix("beta_")) - 1
    return row["beta"][lag], row["stderr"][lag]


def trained_points(panel: Panel, results: dict[str, list[Row]]) -> list[Point]:
    """What the fits of trained models show; failed fits have no numbers."""
    rows = results["optimal"] if panel.name == "combination" else results["beta_kappa"]
    rows = [row for row in rows if row["checkpoint"] is not None]
    found = []
    for row in matching(rows, prior=panel.kind, bos=panel.bos):
        if not row["success"]:
            continue
        value, stderr = estimate(row, panel.name)
        if value is not None and stderr is not None:
            words = row["subject"]
            found.append(
                Point(
                    length=words["length"],
                    value=value,
                    reach=float(half_width(stderr, n=row.get("sequences", row["n"]))),
                    family=words["family"],
                    seed=words["seed"] or 0,
                )
            )
    return found


def draw(results: dict[str, list[Row]]) -> Figure:
    """A panel for each parameter that is identified."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 3, figsize=(6.3, 4.3))
    handles: dict[str, Any] = {}
    for ax, panel in zip(axes.flat, PANELS, strict=True):
        ax.set_title(panel.title, loc="left")
        best, learned = optimum_points(panel, results), trained_points(panel, results)
        if not best and not learned:
            absent(ax, f"{panel.name}, {panel.title}")
            continue
        handles |= draw_theory(ax, panel, best, results)
        for family in drawing_order():
            mine = [point for point in learned if point.family == family]
            if mine:
                handles[find_family(family).trained_label] = draw_points(ax, mine, family)
        length_axis(ax, [point.length for point in [*best, *learned]])
        ax.set_ylabel(AXIS_NAMES[panel.name])
        if ax in axes[0]:
            ax.set_xlabel("")
    for row in (axes[0, :2], axes[1, :2]):  # beta_1 beside beta_2 on one scale
        limits = [ax.get_ylim() for ax in row if ax.axison]
        for ax in row:
            if ax.axison:
                ax.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
    lettered(axes.flat)
    if handles:
        bar = whisker("95% interval")
        handles[str(bar.get_label())] = bar
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3)
    return figure


def draw_theory(ax: Axes, panel: Panel, best: list[Point], results: dict[str, list[Row]]) -> dict[str, Any]:
    """The optimum with its interval, and the closed form where there is one."""
    handles: dict[str, Any] = {}
    if best:
        lengths = [point.length for point in best]
        values = [point.value for point in best]
        low, high = ([point.value + side * point.reach for point in best] for side in (-1, 1))
        ax.fill_between(lengths, low, high, color=OPTIMUM_COLOUR, alpha=0.35, linewidth=0)
        (handles["population optimum"],) = ax.plot(lengths, values, color=OPTIMUM_COLOUR, linewidth=1.2)
    rows = [row for row in results["optimal"] if (row["kind"], row["bos"]) == (panel.kind, panel.bos)]
    rows = sorted((row for row in rows if row["source"] == "optimum"), key=lambda row: row["length"])
    for wanted, field, label in (
        (panel.lemma, "lemma_beta", r"$\beta(t)$ of the lemma ($\alpha=1$)"),
        (panel.known, "log_alpha_vocab", r"$\ln(\alpha|V|)$"),
    ):
        drawn = [(row["length"], row[field]) for row in rows if row[field] is not None]
        if wanted and drawn:
            (handles[label],) = ax.plot(
                *zip(*drawn, strict=True),
                color=LEMMA_COLOUR,
                linestyle="--" if panel.lemma else ":",
            )
    return handles


def draw_points(ax: Axes, points: list[Point], family: str) -> Any:
    """A marker with a 95% interval for each seed, a little apart so that seeds can be told."""
    families = drawing_order()
    shift = 0.09 * (families.index(family) - (len(families) - 1) / 2)
    return ax.errorbar(
        [point.length * 2 ** (shift + 0.03 * (point.seed % 3 - 1)) for point in points],
        [point.value for point in points],
        yerr=[point.reach for point in points],
        linestyle="None",
        marker=find_family(family).marker,
        markersize=3.0,
        markeredgewidth=0,
        color=find_family(family).colour,
        elinewidth=0.6,
    )


def fields(results: dict[str, list[Row]]) -> dict[str, object]:
    fits = results["beta_kappa"]
    shape = shape_words([row["subject"] for row in fits]) if fits else ""
    return {
        "shape": f" ({shape})" if shape else "",
        "fits": len(fits),
        "failed": sum(not row["success"] for row in fits),
    }
