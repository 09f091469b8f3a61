"""Without BOS: longer training leaves the law, and the readout weighs evidence."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from figures.beyond.dynamics import step_axis
from figures.parts.panels import BAYES_COLOUR, DARK, Panels, draw_panels, legend_above, whisker
from figures.parts.rows import Results, Row, lengths_of, matching
from interp.plotting import QUIET, curve, lag_colour, mark

LABEL = "beyond:leaving_the_law"
ANALYSES = dict.fromkeys(
    ("vote_weight", "dynamics"), lambda rows: [row for protocol in MODELS for row in without_bos(rows, protocol)]
)
CLAIMS = ("leaving_the_law",)
CAPTION = (
    "Disentangled models on the independent prior without BOS ({setting}). (a) Share of the "
    "variance of the match scores that matches explain, at the snapshots of the runs that kept them (early in "
    "training it is small, too). (b) KL(truth || prediction) at the same snapshots, without the steep start; the "
    "standard error of a point is not the error of a difference of two. (c) How much the votes of the attention "
    "weigh against the uniform distribution, by the number of full matches, one line per seed (n = {n} sequences; bars "
    "are one standard error), beside what counts give, which is Bayes. (d) What each symbol adds to the level that "
    "the readout gives every successor, from the query's token x_(t-r+1) and from the attended keys' token "
    "x_(j-r), centred: on the line both cancel where the tokens match. Points coincide where the readout cannot "
    "tell symbols apart. Where it can, the match scores differ by symbol, too, and the fit of matches in (a) "
    "fails."
)

MODELS: dict[str | None, tuple[str, dict[str, Any]]] = {  # protocol -> name and look
    None: ("annealed, 40,000 steps", {"color": "#5b99c2", "marker": "o"}),
    "paper": ("paper's protocol, 1,000,000 steps", {"color": "#ffb703", "marker": "s"}),
    "long": ("annealed, 200,000 steps", {"color": "#003566", "marker": "D"}),
}
RUN_LINES = ("-", "--", "-.", ":")  # by length, shortest first
FIRST_STEP = 1000  # of the KL panel; before it the loss falls steeply


def without_bos(rows: list[Row], protocol: str | None) -> list[Row]:
    """The disentangled models without BOS of a protocol, shortest first, then by seed."""
    return matching(rows, family="disentangled", prior="independent", bos=False, protocol=protocol)


def shortest(rows: list[Row]) -> list[Row]:
    """The rows of the least length: there the change comes first."""
    return [row for row in rows if row["subject"]["length"] == min(lengths_of(rows))]


def draw(results: Results) -> Figure:
    """Two histories above, the votes' weight and the readout's two sides below."""
    runs, votes = results["dynamics"], results["vote_weight"]
    lines = dict(zip(lengths_of(runs), RUN_LINES, strict=False))
    sides = [row for row in without_bos(shortest(votes), "long") if row["query_side"] is not None]
    least = f", T = {min(lengths_of([*runs, *votes]), default='')}"
    panels: Panels = {
        "explained by matches": (runs, lambda ax, rows: draw_explained(ax, rows, lines)),
        f"the loss{least}": (shortest(runs), lambda ax, rows: draw_loss(ax, rows, lines)),
        f"votes against uniform{least}": (shortest(votes), draw_weights),
        f"the readout's level{least}": (sides[:1], draw_sides),
    }
    figure, _ = draw_panels(panels, height=2.6, across=2)
    handles = [mark(name, linestyle="-", **look) for name, look in MODELS.values()]
    handles += [mark(f"T = {length}", color=QUIET, linestyle=line) for length, line in lines.items()]
    legend_above(figure, [*handles, whisker("± one standard error")], 4)
    return figure


def draw_history(ax: Axes, runs: list[Row], quantity: str, lines: dict[int, str], *, first: int = 0) -> None:
    """One number of each snapshot, by step."""
    for protocol, (_, look) in MODELS.items():
        for row in without_bos(runs, protocol):
            points = [one for one in row["rows"] if one["step"] >= first and one[quantity] is not None]
            steps, values = ([one[name] for one in points] for name in ("step", quantity))
            line = lines.get(row["subject"]["length"], RUN_LINES[-1])
            ax.plot(steps, values, linestyle=line, markersize=2.0, linewidth=0.9, **look)
    ax.set_xlabel("step")


def draw_explained(ax: Axes, runs: list[Row], lines: dict[int, str]) -> None:
    """The share of the scores' variance that matches explain."""
    draw_history(ax, runs, "r2_match", lines)
    ax.set_ylim(-0.03, 1.03)
    ax.set_ylabel("share of the scores' variance")
    step_axis(ax, [one["step"] for row in runs for one in row["rows"]])


def draw_loss(ax: Axes, runs: list[Row], lines: dict[int, str]) -> None:
    """The loss, and one bar for all points, which see the same sequences: it is not the error of their differences."""
    draw_history(ax, runs, "kl", lines, first=FIRST_STEP)
    ax.set_xscale("log")
    error = max((one["kl_stderr"] for row in runs for one in row["rows"] if one["step"] >= FIRST_STEP), default=0)
    place, across = ax.get_ylim()[1] - 1.2 * error, ax.get_yaxis_transform()
    ax.errorbar(0.55, place, yerr=error, transform=across, color=DARK, capsize=2, gid="one standard error")
    words = "± one standard error of a point\n(all see the same sequences)"
    ax.text(0.58, place, words, va="center", fontsize=6, transform=across)
    ax.set_ylabel("KL to the truth (nats)")


def draw_weights(ax: Axes, rows: list[Row]) -> None:
    """The votes' weight by number of full matches, a line for each model of one length, beside that of counts."""
    counted: list[Row] = []
    for protocol, (_, look) in MODELS.items():
        for row in without_bos(rows, protocol):
            points = [one for one in row["weights"] if one["weight"] is not None]
            matches, weights, errors = ([one[name] for one in points] for name in ("matches", "weight", "stderr"))
            curve(ax, matches, weights, reach=errors, markersize=2.6, linewidth=0.8, gid="votes", **look)
            counted = [one for one in row["weights"] if one["counted"] is not None]
    if counted:
        matches, weights = ([one[name] for one in counted] for name in ("matches", "counted"))
        ax.plot(matches, weights, color=BAYES_COLOUR, linestyle="--", label=r"counts (Bayes): $N/(N+\alpha|V|)$")
        ax.set_xticks(range(matches[-1] + 1), [*map(str, range(matches[-1])), rf"$\geq${matches[-1]}"])
    ax.set_ylim(0, None)
    ax.set_xlabel("full matches N of the last query")
    ax.set_ylabel("weight of the votes")
    ax.legend(loc="upper left")


def draw_sides(ax: Axes, rows: list[Row]) -> None:
    """What each symbol adds to the readout's level, from the query's side and from the keys'."""
    (row,) = rows
    for lag, (query, key) in enumerate(zip(row["query_side"], row["key_side"], strict=True), start=1):
        ax.scatter(query, key, s=14, color=lag_colour(lag), marker="os^D"[lag - 1], label=f"lag {lag}", zorder=3)
    limit = 1.15 * max(abs(value) for side in (*row["query_side"], *row["key_side"]) for value in side)
    ax.plot([-limit, limit], [limit, -limit], color=QUIET, linewidth=0.7, label="sum zero: a comparison")
    ax.set(xlim=(-limit, limit), ylim=(-limit, limit))
    ax.set_xlabel("added by the query's token (units of the readout)")
    ax.set_ylabel("added by the attended keys' token")
    ax.legend(loc="lower left")
