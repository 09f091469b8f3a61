"""What hangs on two open choices: eta_0, and whether kappa is tied.

Draws the rows of `python -m analyses open_choices`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from figures._curves import LOOKS, length_axis, listed
from figures.panels import absent, lettered, whisker
from figures.rows import Row
from figures.verdict import Check, Verdict, judged
from interp.plotting import INTERVAL

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABEL = "beyond:open_choices"
ANALYSES = ("open_choices",)
CLAIM = (
    "Under the hierarchical prior with eta_1 = eta_2 = 5 soft matching beats every fixed add-alpha, with beta_1 > "
    "beta_2, and a construction with only two trainable scalars matches the trained transformers. The paper gives no "
    "eta_0, and does not say where training beta_1 and beta_2 alone leaves kappa: do these claims hang on either?"
)

ON_ETA = "for eta_0"  # this part of the claim
SIGMAS = 3.0
ALIKE = 0.05  # of KL: what figure kl_vs_position calls the same
READINGS = {  # reading of kappa -> name, colour and marker
    "tied(1)": (r"$\kappa = \beta_1 + \beta_2 + \ln|V|$: tied", "#003566", "o"),
    "fixed(0)": (r"$\kappa = (\beta_1 + \beta_2)/|V|$: no bias", "#5b99c2", "s"),
    "no BOS": ("no BOS", "#c1121f", "^"),
}
PARAMETERS = {r"$\beta_1$": ("#003566", "o"), r"$\beta_2$": ("#5b99c2", "s"), r"$\kappa$": ("#ffb703", "D")}
BELOW: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.22), "fontsize": 6}
LINES = ("-", "--", ":", "-.")


def chosen(results: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """All rows."""
    return {"open_choices": results["open_choices"]}


def of_question(results: dict[str, list[Row]], question: str) -> list[Row]:
    return [row for row in results["open_choices"] if row["question"] == question]


def by_length(rows: list[Row]) -> dict[int, list[Row]]:
    """The rows of each length, in order of eta_0."""
    lengths = sorted({row["length"] for row in rows})
    return {
        length: sorted((row for row in rows if row["length"] == length), key=lambda row: row["eta0"])
        for length in lengths
    }


def draw(results: dict[str, list[Row]]) -> Figure:
    """Excess over Bayes and the parameters over eta_0; the cost of each reading of kappa over T."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(6.3, 3.6))
    swept, readings = of_question(results, "eta0"), of_question(results, "kappa")
    if swept:
        draw_excess(axes[0], swept)
        draw_parameters(axes[1], swept)
    else:
        for ax in axes[:2]:
            absent(ax, "eta_0")
    if readings:
        draw_readings(axes[2], readings)
    else:
        absent(axes[2], "readings of kappa")
    lettered(axes)
    return figure


def draw_excess(ax: Axes, rows: list[Row]) -> None:
    """The best soft matching and the best add-alpha above Bayes."""
    looks = (
        ("excess_share", LOOKS["optimal, BOS"].colour, "soft matching", "o"),
        ("add_alpha_share", LOOKS["add-alpha, tuned"].colour, r"add-$\alpha$", "s"),
    )
    for line, (length, group) in zip(LINES, by_length(rows).items(), strict=False):
        for field, colour, name, marker in looks:
            ax.errorbar(
                [row["eta0"] for row in group], [row[field] for row in group],
                yerr=[INTERVAL * row[f"{field}_stderr"] for row in group], color=colour, linestyle=line, marker=marker,
                markersize=2.5, elinewidth=0.6, label=f"{name}, T = {length}",
            )  # fmt: skip
    eta0_axis(ax, rows)
    ax.set_yscale("log")
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    ax.yaxis.set_minor_formatter(lambda value, _: "")
    ax.set_ylabel("KL over that of Bayes")
    ax.set_title("best of each kind", loc="left")
    handles, _ = ax.get_legend_handles_labels()
    ax.legend(handles=[*handles, whisker("95% interval")], **BELOW)


def draw_parameters(ax: Axes, rows: list[Row]) -> None:
    """beta and kappa of the best soft matching."""
    for line, (length, group) in zip(LINES, by_length(rows).items(), strict=False):
        columns = [*zip(*(row["beta"] for row in group), strict=True), tuple(row["kappa"] for row in group)]
        for (name, (colour, marker)), values in zip(PARAMETERS.items(), [*columns[:2], columns[-1]], strict=True):
            ax.plot(
                [row["eta0"] for row in group], values, color=colour, linestyle=line, marker=marker, markersize=2.5,
                label=f"{name}, T = {length}",
            )  # fmt: skip
    eta0_axis(ax, rows)
    ax.set_ylabel("nats")
    ax.set_title(r"best $\beta, \kappa$", loc="left")
    ax.legend(**BELOW)


def eta0_axis(ax: Axes, rows: list[Row]) -> None:
    values = sorted({row["eta0"] for row in rows})
    ax.set_xscale("log")
    ax.set_xticks(values, [f"{value:g}" for value in values])
    ax.minorticks_off()
    ax.set_xlabel(r"$\eta_0$")


def draw_readings(ax: Axes, rows: list[Row]) -> None:
    """KL of each reading over that of a free kappa."""
    for reading, (name, colour, marker) in READINGS.items():
        mine = sorted((row for row in rows if row["reading"] == reading), key=lambda row: row["length"])
        ax.plot(
            [row["length"] for row in mine], [row["over_free_share"] for row in mine], color=colour, marker=marker,
            markersize=2.5, label=name,
        )  # fmt: skip
    length_axis(ax, [row["length"] for row in rows])
    shares = [row["over_free_share"] for row in rows if row["reading"] in READINGS]
    if min(shares) > 0:
        ax.set_yscale("log")
        ax.set_ylim(0.8 * min(shares), 1.25 * max(shares))
        ticks = [tick for tick in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0) if 0.8 * min(shares) <= tick]
        ax.set_yticks([tick for tick in ticks if tick <= 1.25 * max(shares)])
    else:  # a reading that costs nothing
        ax.set_yscale("symlog", linthresh=0.01)
    ax.minorticks_off()
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    ax.set_ylabel(r"KL over that of a free $\kappa$")
    ax.set_title(r"readings of $\kappa$", loc="left")
    ax.legend(**BELOW)


def caption(results: dict[str, list[Row]]) -> str:
    """What is to be seen, with the numbers."""
    swept, readings = of_question(results, "eta0"), of_question(results, "kappa")
    if not swept and not readings:
        return "Choices that the paper leaves open: no results."
    parts = ["Hierarchical prior with BOS, eta = 5 at every level; soft matching at its population optimum."]
    if swept:
        alphas = [row["alpha"] for row in swept]
        parts.append(
            f"(a) KL of the best soft matching and of the best add-alpha (alpha tuned for each point, "
            f"{min(alphas):.2f} to {max(alphas):.2f}) over the Bayes predictor, as a share of its KL, over eta_0 of "
            f"the root (the suite's own choice is 1), with 95% intervals. (b) beta_1, beta_2 and kappa of that "
            f"soft matching."
        )
    if readings:
        free = sorted((row for row in readings if row["reading"] == "free"), key=lambda row: row["length"])
        implied = ", ".join(f"{row['implied_alpha']:.2f}" for row in free)
        parts.append(
            "(c) The best betas when kappa follows them (tied: the formula of prop:add_constant with alpha = 1; no "
            "bias: delta_2 = 0 on BOS), or without BOS, where KL needs its floor: KL over that with a free "
            "kappa on the same sequences. A free kappa is the tied one with the best "
            f"pseudo-count in place of 1: {implied} at T = {listed(row['length'] for row in free)}."
        )
    return " ".join(parts)


def verdict(results: dict[str, list[Row]]) -> Verdict:
    """Whether the claims stand at every eta_0 and under each reading."""
    swept, readings = of_question(results, "eta0"), of_question(results, "kappa")
    checks: dict[str, bool | Check] = {}
    measured = []
    if swept:
        ahead = [row for row in swept if row["below_add_alpha"] > SIGMAS * row["below_add_alpha_stderr"]]
        checks["at every eta_0 soft matching beats the best add-alpha"] = Check(
            passed=len(ahead) == len(swept),
            found=f"{len(ahead)} of {len(swept)} settings",
            part=ON_ETA,
        )
        gaps = [row["beta"][0] - row["beta"][-1] for row in swept]
        checks["at every eta_0 beta_1 > beta_2"] = Check(
            passed=min(gaps) > 0, found=f"beta_1 - beta_2 {min(gaps):.2f} to {max(gaps):.2f}", part=ON_ETA
        )
        gains = [row["below_add_alpha"] / (row["kl"] + row["below_add_alpha"]) for row in swept]
        shares = [row["excess_share"] for row in swept]
        etas = [row["eta0"] for row in swept]
        measured.append(
            f"eta_0 from {min(etas):g} to {max(etas):g}: KL {min(gains):.0%} to {max(gains):.0%} below the best "
            f"add-alpha, {min(shares):+.1%} to {max(shares):+.1%} over Bayes, beta_1 - beta_2 {min(gaps):.2f} to "
            f"{max(gaps):.2f}"
        )
    for reading in ("tied(1)", "fixed(0)"):
        mine = {row["length"]: row["over_free_share"] for row in readings if row["reading"] == reading}
        if mine:
            checks[f"with kappa {reading} the construction is within {ALIKE:.0%} of a free kappa"] = Check(
                passed=max(mine.values()) <= ALIKE,
                found=f"{min(mine.values()):.1%} to {max(mine.values()):.1%} over it",
                part="for kappa",
            )
            measured.append(
                f"kappa {reading}: KL {min(mine.values()):+.1%} to {max(mine.values()):+.1%} over a free kappa"
            )
    return judged(checks, measured="; ".join(measured) or "no results", **headline(swept, readings))


def headline(swept: list[Row], readings: list[Row]) -> dict[str, str]:
    """What each choice costs: a sentence and the number."""
    parts, numbers = [], []
    if swept:
        gains = [row["below_add_alpha"] / (row["kl"] + row["below_add_alpha"]) for row in swept]
        etas = [row["eta0"] for row in swept]
        told = f"KL {min(gains):.0%} to {max(gains):.0%} below the best add-alpha"
        parts.append(f"at every eta_0 from {min(etas):g} to {max(etas):g} soft matching has a {told}'s")
        numbers.append(f"eta_0 {min(etas):g} to {max(etas):g}: {told}")
    tied = [row["over_free_share"] for row in readings if row["reading"] == "tied(1)"]
    if tied:
        cost = f"{min(tied):+.0%} to {max(tied):+.0%} KL"
        parts.append(f"a kappa tied to beta as in prop:add_constant costs {cost}")
        numbers.append(f"kappa tied: {cost}")
    words = "; ".join(parts)
    return {"headline": f"{words[:1].upper()}{words[1:]}.", "number": "; ".join(numbers)} if parts else {}
