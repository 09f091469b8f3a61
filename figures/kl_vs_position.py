"""KL to the true law over length: estimators, constructions, trained models.

Above, the KL itself, as the paper draws it; below, how far it lies above the Bayes predictor, where the curves that
coincide above come apart. The paper has no Bayes curve under the hierarchical prior; here it is computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from figures._curves import (
    LOOKS,
    by_length,
    concentration,
    counted,
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
from figures._kl_claims import ADD_ALPHA, PANELS, Panel, judge, margins_of
from figures.known_conditions import copying
from figures.panels import absent, lettered, whisker
from figures.rows import Row
from figures.verdict import Verdict, judged
from models.families import drawing_order, find_family

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABEL = "fig:kl_vs_position"
ANALYSES = ("kl_curves", "copy_heads")
CLAIM = (
    "Independent prior without BOS: with beta = 100 the construction tracks maximum likelihood, with the beta(t) of "
    "lemma:optimal_beta it approaches the Bayes predictor (add-alpha), and trained models recover the smoothing. "
    "With BOS the construction is near Bayes even at beta = 100, and so are trained models. Hierarchical prior: "
    "construction, disentangled and standard model match each other and beat every add-alpha."
)

LINEAR_SHARE = 0.01  # the lower row is linear up to here and logarithmic above: it has zeros, and curves a decade apart


def chosen(results: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """The rows of the three panels."""
    rows = results["kl_curves"]
    kept = {(row["prior"], row["length"], row["predictor"]): row for panel in PANELS for row in panel.rows(rows)}
    return {"kl_curves": list(kept.values()), "copy_heads": copying(results.get("copy_heads", ()))}


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


def caption(results: dict[str, list[Row]]) -> str:
    """What is to be seen, with the numbers."""
    rows = results["kl_curves"]
    if not rows:
        return "KL to the true law over the sequence length: no results."
    bayes = [row for row in rows if row["predictor"] == "bayes"]
    found = [row for row in rows if row["subject"] is not None]
    sizes = sorted({row["n"] for row in rows})
    worst = max((row["stderr"] / row["kl"] for row in rows if row["kl"] > 0), default=0.0)
    parts = [
        f"KL(truth || prediction) in nats at the last of T tokens ({shape_words(rows)}), mean over "
        f"{listed(f'{size:,}' for size in sizes)} sequences per T that all predictors share. "
        f"Above, the KL (standard errors at most {worst:.1%}, not drawn); below, the excess over the Bayes predictor "
        f"on the same sequences as a share of its KL, linear up to {LINEAR_SHARE:.0%}, with 95% intervals from paired "
        "differences where no model was trained. Trained models are measured at the length they were trained on: a "
        "marker for each seed and a bar from the least to the largest; above, the markers of one family stand "
        "inside those of another, below, families are set apart sideways, with lines through the medians "
        f"({counted(group for panel in PANELS for group in family_groups(panel, rows))} per length).",
        f"Under the independent prior (alpha = {concentration(rows, 'independent')}) the Bayes predictor is add-alpha. "
        f"Under the hierarchical prior (eta = {concentration(rows, 'hierarchical')} at each level) it is a Monte Carlo "
        "estimate"
        + (f" (error of its law at most {max(row['monte_carlo_error'] for row in bayes):.2g})." if bayes else "."),
    ]
    if tuned := tuned_in_words(rows):
        parts.append(tuned)
    likelihood = curve(of_kind(rows, "independent"), "maximum likelihood")
    if likelihood:
        first, last = likelihood[0], likelihood[-1]
        parts.append(
            "Maximum likelihood gives symbols it has not seen no mass, so its KL can be infinite: a floor of "
            f"{first['floor']:g} stands in for that in {first['floored']:.0%} of sequences at T = {first['length']} "
            f"and {last['floored']:.0%} at T = {last['length']} (independent prior), and the curve is about the floor "
            "as much as about the estimator. After a context that was never seen it is uniform, while the "
            "construction at beta = 100 falls back on partial matches."
        )
    if found:
        missing = [
            f"{family}, {panel.title}"
            for panel in PANELS
            for family in panel.families
            if not models(panel.rows(rows), family=family)
        ]
        if missing:
            parts.append(f"No such models were shipped: {'; '.join(missing)}.")
    return " ".join(parts)


def tuned_in_words(rows: list[Row]) -> str:
    """The best alpha of each length, and what it gains over the best of the fixed ones."""
    mine = of_kind(rows, "hierarchical")
    tuned = curve(mine, "add-alpha, tuned")
    gains = []
    for row in tuned:
        fixed = [one["kl"] for name in ADD_ALPHA[:-1] for one in curve(mine, name) if one["length"] == row["length"]]
        gains += [1 - row["kl"] / min(fixed)] if fixed else []
    if not gains:
        return ""
    alphas = [row["alpha"] for row in tuned]
    return (
        "`Every fixed add-alpha` includes the best one: alpha is tuned for each T on other sequences of the prior "
        f"({min(alphas):.2f} to {max(alphas):.2f}, KL {min(gains):.1%} to {max(gains):.1%} below the best of "
        f"{listed(name.removeprefix('add-') for name in ADD_ALPHA[:-1])})."
    )


def family_groups(panel: Panel, rows: list[Row]) -> list[list[Row]]:
    """The seeds of each family and length in one panel."""
    mine = panel.rows(rows)
    return [group for family in panel.families for group in by_length(models(mine, family=family)).values()]


def verdict(results: dict[str, list[Row]]) -> Verdict:
    """Each sentence of the paper's caption, at every length that is there."""
    rows = results["kl_curves"]
    checks, measured = judge(rows, results.get("copy_heads", ()))
    why = (
        "Without BOS the attention alone cannot be Bayes, not even at the best beta: trained models come nearer "
        "because their readout smooths too. The construction has three trained scalars here, beta_1, beta_2 and kappa; "
        "the paper speaks of two, and `open_choices` shows what a fixed kappa costs"
    )
    return judged(
        checks,
        measured="; ".join(measured),
        headline=headline(rows),
        number=next((one for one in measured if one.startswith("KL below")), ""),
        why=why if checks else "no KL curves were made",
    )


def headline(rows: list[Row]) -> str:
    """The trained models between the best add-alpha and Bayes."""
    mine = PANELS[2].rows(rows)
    margins = margins_of(mine)
    if not margins:
        return ""
    shares = [row["excess_share"] for row in models(mine)]
    side = "below" if min(margins) >= 0 else "(negative: above) below"
    return (
        f"Under the hierarchical prior trained models have a KL {min(margins):.0%} to {max(margins):.0%} {side} the "
        f"best add-alpha's, and {min(shares):+.1%} to {max(shares):+.1%} over that of Bayes ({len(margins)} runs)."
    )
