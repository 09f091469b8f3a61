"""The circuit on one real sequence, with arrows as wide as the attention.

Draws the row of `python -m analyses circuit` for k = 2.
"""

from __future__ import annotations

from matplotlib.figure import Figure

from figures.parts import circuit_picture as picture
from figures.parts.rows import Results, Row
from figures.parts.schematic import letters, page_of_inches, whole

LABEL = "fig:two_layer_circuit"
ANALYSES = {"circuit": lambda rows: [row for row in rows if fits(row)][:1]}
CLAIMS = ("circuit",)
CAPTION = (
    "The construction of prop:transformer_estimator at work on one sequence of the hierarchical prior "
    "({eta}{setting}; symbols 0, 1, ... are written {letters}). Layer 1: at a position s, head 0 brings x_(s-1) and "
    "head 1 x_(s-2), shown for three candidates and the query t; the line widths are the attention. Layer 2: the "
    "query's last two tokens against the two tokens before each candidate, = where a lag agrees. Every key votes for "
    "its token with its attention, BOS for all symbols alike, and keys without a full context do not vote; arrows are "
    "as wide as the attention, so that those that reach a symbol together are as wide as its probability. Bottom: the "
    "prediction that the votes add up to, by the kind of key, and the true distribution of the next token."
)
ORDER, LONGEST, MOST_SYMBOLS = 2, 12, 4  # the picture is laid out for these


def fits(row: Row) -> bool:
    """Whether the picture has room for the circuit."""
    return row["order"] == ORDER and row["length"] <= LONGEST and row["vocab"] <= MOST_SYMBOLS


def draw(results: Results) -> Figure:
    """From the sequence at the top to the prediction at the bottom."""
    page = page_of_inches(picture.WIDTH, picture.HEIGHT)
    (row,) = results["circuit"]
    picture.draw_sequence(page, row)
    for stack in row["copies"]:
        picture.draw_stack(page, row, stack)
    picture.draw_comparison(page, row)
    picture.draw_values(page, row)
    picture.draw_votes(page, row)
    picture.draw_prediction(page, row)
    picture.draw_words(page, row)
    return whole(page)


def fields(results: Results) -> dict[str, object]:
    if not results["circuit"]:
        return {"eta": "not available", "setting": "", "letters": letters(MOST_SYMBOLS)}
    row = results["circuit"][0]
    eta = [f"eta_{level} = {value:g}" for level, value in enumerate(row["prior"]["eta"], start=1)]
    beta = [f"beta_{lag} = {value:.3f}" for lag, value in enumerate(row["beta"], start=1)]
    source = "the optimum of the population loss" if row["parameters"] == "optimal" else "as given"
    shape = [f"k = {row['order']}", f"|V| = {row['vocab']}", f"T = {row['length']}", "with BOS"]
    words = [*shape, *beta, f"kappa = {row['kappa']:.3f} ({source})", f"sequence {row['sequence']} of its batch"]
    return {"eta": " and ".join(eta), "setting": f"; {', '.join(words)}", "letters": letters(row["vocab"])}
