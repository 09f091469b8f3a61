"""The circuit on one real sequence, with arrows as wide as the attention.

Draws the row of `python -m analyses circuit` for k = 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from figures import _circuit_picture as picture
from figures._schematic import letters, page_of_inches, whole
from figures.panels import absent
from figures.verdict import Check, Verdict, judged
from interp.plotting import OVERLAP_NAMES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from figures.rows import Row

LABEL = "fig:two_layer_circuit"
ANALYSES = ("circuit",)
CLAIM = (
    "Copy heads put the k previous tokens beside each token. The match head compares the query's context with each "
    "candidate's, lag by lag, and attends in proportion to exp(|beta|_M), the match weights of the lags that agree. "
    "The successors of the candidates, added up with these weights, are the predicted law: eq:transformer_estimator."
)

ORDER, LONGEST, MOST_SYMBOLS = 2, 12, 4  # the picture is laid out for these

# The construction computes in float64, so that it is right only if nothing but rounding is left.
COPY_LEAST = 0.999  # of a copy head's attention must be on its lag, at every position
RATIO_TOLERANCE = 1e-6  # of ln(attention / attention of an empty match) against |beta|_M
LAW_TOLERANCE = 1e-9  # of the predicted law against the estimator's; the readout has a floor of 1e-12


def chosen(results: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """The first circuit that the picture has room for."""
    fitting = [
        row
        for row in results["circuit"]
        if row["order"] == ORDER and row["length"] <= LONGEST and row["vocab"] <= MOST_SYMBOLS
    ]
    return {"circuit": fitting[:1]}


def draw(results: dict[str, list[Row]]) -> Figure:
    """From the sequence at the top to the predicted law at the bottom."""
    page = page_of_inches(picture.WIDTH, picture.HEIGHT)
    if not results["circuit"]:
        absent(page, f"a circuit of order {ORDER}, at most {LONGEST} tokens and {MOST_SYMBOLS} symbols")
        return whole(page)
    row = results["circuit"][0]
    picture.draw_sequence(page, row)
    for stack in row["copies"]:
        picture.draw_stack(page, row, stack)
    picture.draw_comparison(page, row)
    picture.draw_values(page, row)
    picture.draw_votes(page, row)
    picture.draw_law(page, row)
    picture.draw_words(page, row)
    return whole(page)


def caption(results: dict[str, list[Row]]) -> str:
    """What is to be seen, with the numbers."""
    if not results["circuit"]:
        return f"The two-layer circuit of order {ORDER}: not available."
    row = results["circuit"][0]
    keys = row["keys"]
    beta = ", ".join(f"beta_{lag} = {value:.3f}" for lag, value in enumerate(row["beta"], start=1))
    source = "the optimum of the population loss at this length" if row["parameters"] == "optimal" else "as given"
    eta = " and ".join(f"eta_{level} = {value:g}" for level, value in enumerate(row["prior"]["eta"], start=1))
    candidates = "; ".join(
        f"position {position}, {OVERLAP_NAMES[keys[position]['kind']]}: attention {keys[position]['weight']:.4f}, "
        f"{keys[position]['ratio']:.3f} times that of an empty match"
        for position in row["shown"]
    )
    return (
        f"The construction of prop:transformer_estimator at work on one sequence of the hierarchical prior "
        f"({eta}; k = {row['order']}, |V| = {row['vocab']}, T = {row['length']}; symbols 0, 1, ... are written "
        f"{letters(row['vocab'])}), with BOS, {beta} and kappa = {row['kappa']:.3f} ({source}). "
        f"It is the sequence {row['sequence']} of its batch, the first with three such candidates well apart. "
        f"Layer 1: at a position s, head 0 brings x_(s-1) and head 1 x_(s-2); shown for three candidates and the "
        f"query t; the line widths are the attention (at least {row['least_copy']:.4f} everywhere). "
        f"Layer 2: the query's last two tokens against the two tokens before each candidate, = where a lag agrees. "
        f"{candidates}; BOS {keys[0]['weight']:.4f}. Every key votes for its token with its attention, BOS for all "
        f"symbols alike, and keys without a full context (0) do not vote; arrows are as wide as the attention, and "
        f"those that reach a symbol together are as wide as its probability. Bottom: the law that the votes add up "
        f"to, ({', '.join(f'{value:.3f}' for value in row['aggregated'])}), by the kind of key, and the true law of "
        f"the next token (black lines). One sequence, so there are no error bars."
    )


def verdict(results: dict[str, list[Row]]) -> Verdict:
    """Do the captured copies, weights and votes agree with the closed form, to rounding?"""
    if not results["circuit"]:
        return Verdict(word="cannot tell", measured="no circuit", why="the analysis `circuit` has no row of order 2")
    row = results["circuit"][0]
    ratios = ", ".join(
        f"{row['keys'][position]['ratio']:.4f} against {row['keys'][position]['expected']:.4f}"
        for position in row["shown"]
    )
    law, ratio = max(row["to_estimator"], row["model_to_estimator"]), row["largest_ratio_error"]
    checks = {
        "copy heads attend to their lags": Check(
            passed=row["least_copy"] >= COPY_LEAST, found=f"at least {row['least_copy']:.6f} on its lag"
        ),
        "attention is in proportion to exp(|beta|_M)": Check(
            passed=ratio < RATIO_TOLERANCE, found=f"log attention off by at most {ratio:.1g}"
        ),
        "the votes add up to the estimator": Check(passed=law < LAW_TOLERANCE, found=f"off by at most {law:.0e}"),
    }
    attention = f"{ratio:.0e}" if ratio else "the last digit"
    return judged(
        checks,
        headline=f"On one sequence the log attention of each key is |beta|_M to {attention}, and the votes add up to "
        f"the estimator to {law:.0e}.",
        number=f"errors on one sequence: log attention {ratio:.1g}, predicted law {law:.0e}",
        measured=f"least attention of a copy head to its lag {row['least_copy']:.6f}; attention of the three "
        f"candidates over an empty match's, against exp(|beta|_M): {ratios}; largest error of its logarithm "
        f"over all keys {row['largest_ratio_error']:.1e}; votes from soft_matching {row['to_estimator']:.1e}, model's "
        f"readout from it {row['model_to_estimator']:.1e}",
        why="on one sequence through weights that were written by hand; trained models are judged in other figures",
    )
