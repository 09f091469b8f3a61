"""Without BOS: longer training leaves the law, and the readout weighs evidence.

Draws the rows of `python -m analyses dynamics`, `vote_weight` and `beta_kappa`, of models without BOS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from figures.beyond.dynamics import step_axis
from figures.parts.instruments import Results, only, setting_fields
from figures.parts.panels import BAYES_COLOUR, absent, lettered, whisker
from figures.parts.rows import Row, lengths_of, matching
from interp.plotting import LAG_COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABEL = "beyond:leaving_the_law"
ANALYSES = ("dynamics", "vote_weight", "beta_kappa")
CLAIMS = ("leaving_the_law",)
CAPTION = (
    "Disentangled models on the independent prior without BOS ({setting}). (a) Share of the "
    "variance of the match scores that matches explain, at the snapshots of the runs that kept them (early in "
    "training it is small, too). (b) KL(truth || prediction) at the same snapshots, without the steep start; the "
    "standard error of a point is not the error of a difference of two. (c) How much the votes of the attention "
    "weigh against the uniform law, by the number of full matches, one line per seed (n = {n} sequences; bars are "
    "one standard error), beside what counts give, which is Bayes. (d) What each symbol adds to the level that "
    "the readout gives every successor, from the query's token x_(t-r+1) and from the attended keys' token "
    "x_(j-r), centred: on the line both cancel where the tokens match. Points coincide where the readout cannot "
    "tell symbols apart. Where it can, the match scores differ by symbol, too, and the fit of matches in (a) "
    "fails."
)

MODELS: dict[str | None, tuple[str, str, str]] = {
    None: ("annealed, 40,000 steps", "#5b99c2", "o"),
    "paper": ("paper's protocol, 1,000,000 steps", "#ffb703", "s"),
    "long": ("annealed, 200,000 steps", "#003566", "D"),
}
RUN_LINES = ("-", "--", "-.", ":")  # by length, shortest first
FIRST_STEP = 1000  # of the KL panel; before it the loss falls steeply


def without_bos(rows: list[Row], protocol: str | None, *, length: int | None = None) -> list[Row]:
    """The disentangled models without BOS of a protocol, shortest first, then by seed."""
    found = matching(rows, family="disentangled", prior="independent", bos=False, protocol=protocol)
    return [row for row in found if length is None or row["subject"]["length"] == length]


def chosen(results: Results) -> Results:
    """What is drawn and told of the models without BOS."""

    def kept(name: str, *fields: str) -> list[Row]:
        return [only(row, *fields) for protocol in MODELS for row in without_bos(results[name], protocol)]

    votes = ("verdict", "weights", "query_side", "key_side", "opposed", "compared", "held", "held_stderr", "n")
    return {
        "dynamics": kept("dynamics", "rows", "n"),
        "vote_weight": kept("vote_weight", *votes, "level_spread", "success"),
        "beta_kappa": kept("beta_kappa", "r2", "n"),
    }


def draw(results: Results) -> Figure:
    """Two histories above, the votes' weight and the readout's two sides below."""
    import matplotlib.pyplot as plt
    from matplotlib.lines import Line2D

    figure, axes = plt.subplots(2, 2, figsize=(6.3, 5.3))
    explained, loss, weights, sides = axes.flat
    shortest = shown_length(results)
    lengths = lengths_of(results["dynamics"])
    lines: dict[int, Any] = {length: RUN_LINES[min(place, len(RUN_LINES) - 1)] for place, length in enumerate(lengths)}
    draw_history(explained, results["dynamics"], "r2_match", lines=lines)
    draw_history(loss, [row for row in results["dynamics"] if row["subject"]["length"] == shortest], "kl", lines=lines)
    draw_weights(weights, results["vote_weight"], length=shortest)
    draw_sides(sides, without_bos(results["vote_weight"], "long", length=shortest))
    lettered([ax for ax in axes.flat if ax.axison])
    handles = [
        Line2D([], [], color=colour, marker=marker, markersize=3, label=name)
        for name, colour, marker in MODELS.values()
    ]
    handles += [Line2D([], [], color="#7f7f7f", linestyle=line, label=f"T = {T}") for T, line in lines.items()]
    handles.append(whisker("(c) ± one standard error"))
    figure.legend(handles=handles, loc="outside upper center", ncols=4, columnspacing=1.2)
    return figure


def shown_length(results: Results) -> int:
    """The one length that some panels show: the shortest, where the change comes first."""
    return min(lengths_of([*results["vote_weight"], *results["dynamics"]]), default=0)


def draw_history(ax: Axes, histories: list[Row], quantity: str, *, lines: dict[int, Any]) -> None:
    """One number of each snapshot, by step."""
    if not histories:
        absent(ax, "a run without BOS that kept snapshots")
        return
    share = quantity == "r2_match"
    for protocol, (_, colour, marker) in MODELS.items():
        for row in without_bos(histories, protocol):
            points = [
                (one["step"], one[quantity])
                for one in row["rows"]
                if one[quantity] is not None and (share or one["step"] >= FIRST_STEP)
            ]
            ax.plot(
                [step for step, _ in points],
                [value for _, value in points],
                color=colour,
                linestyle=lines[row["subject"]["length"]],
                marker=marker,
                markersize=2.0,
                linewidth=0.9,
            )
    if share:
        ax.set_ylim(-0.03, 1.03)
        ax.set_ylabel("share of the scores' variance")
        ax.set_title("explained by matches", loc="left")
        step_axis(ax, [one["step"] for row in histories for one in row["rows"]])
    else:
        ax.set_xscale("log")
        name_error(ax, largest_error(histories))
        ax.set_ylabel("KL to the truth (nats)")
        ax.set_title(f"the loss, T = {histories[0]['subject']['length']}", loc="left")
    ax.set_xlabel("step")


def largest_error(histories: list[Row]) -> float:
    """The largest standard error among the KLs that are drawn."""
    return max((one["kl_stderr"] for row in histories for one in row["rows"] if one["step"] >= FIRST_STEP), default=0.0)


def name_error(ax: Axes, error: float) -> None:
    """One bar for all points, which see the same sequences: it is not the error of their differences."""
    _, high = ax.get_ylim()
    ax.errorbar(
        0.55, high - 1.2 * error, yerr=error, color="#404040", elinewidth=0.8, capsize=2, gid="one standard error",
        transform=ax.get_yaxis_transform(),
    )  # fmt: skip
    ax.text(
        0.58, high - 1.2 * error, "± one standard error of a point\n(all see the same sequences)", va="center",
        fontsize=6, transform=ax.get_yaxis_transform(),
    )  # fmt: skip


def draw_weights(ax: Axes, rows: list[Row], *, length: int) -> None:
    """The votes' weight by number of full matches, a line for each model of one length, beside that of counts."""
    found = {protocol: without_bos(rows, protocol, length=length) for protocol in MODELS}
    if not any(found.values()):
        absent(ax, "a model without BOS")
        return
    counted: list[Any] = []
    for protocol, group in found.items():
        _, colour, marker = MODELS[protocol]
        for row in group:
            points = [one for one in row["weights"] if one["weight"] is not None]
            ax.errorbar(
                [one["matches"] for one in points],
                [one["weight"] for one in points],
                yerr=[one["stderr"] or 0.0 for one in points],
                color=colour,
                marker=marker,
                markersize=2.6,
                linewidth=0.8,
            )
            counted = [one for one in row["weights"] if one["counted"] is not None]
    if counted:
        ax.plot(
            [one["matches"] for one in counted],
            [one["counted"] for one in counted],
            color=BAYES_COLOUR,
            linestyle="--",
            linewidth=1.0,
            label=r"counts (Bayes): $N/(N+\alpha|V|)$",
        )
        last = counted[-1]["matches"]
        ax.set_xticks(range(last + 1), [*map(str, range(last)), rf"$\geq${last}"])
    ax.set_ylim(0, None)
    ax.set_xlabel("full matches N of the last query")
    ax.set_ylabel("weight of the votes")
    ax.set_title(f"votes against uniform, T = {length}", loc="left")
    ax.legend(loc="upper left")


def draw_sides(ax: Axes, rows: list[Row]) -> None:
    """What each symbol adds to the readout's level, from the query's side and from the keys'."""
    rows = [row for row in rows if row["query_side"] is not None]
    if not rows:
        absent(ax, "a long run without BOS")
        return
    row = rows[0]
    largest = 0.0
    for lag, (query, key) in enumerate(zip(row["query_side"], row["key_side"], strict=True), start=1):
        largest = max(largest, *(abs(value) for value in (*query, *key)))
        ax.scatter(query, key, s=14, color=LAG_COLOURS[lag - 1], marker="os^D"[lag - 1], label=f"lag {lag}", zorder=3)
    limit = 1.15 * largest
    ax.plot([-limit, limit], [limit, -limit], color="#7f7f7f", linewidth=0.7, label="sum zero: a comparison")
    ax.set_xlim(-limit, limit)
    ax.set_ylim(-limit, limit)
    ax.set_xlabel("added by the query's token (units of the readout)")
    ax.set_ylabel("added by the attended keys' token")
    ax.set_title(f"the readout's level, T = {row['subject']['length']}, seed {row['subject']['seed']}", loc="left")
    ax.legend(loc="lower left")


def fields(results: Results) -> dict[str, object]:
    return setting_fields(results["vote_weight"])
