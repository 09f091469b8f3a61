"""Match weights by block: where they are, and how far multiples of the identity.

Draws the rows of `python -m analyses identity_blocks`. Disentangled models are read from their weights and from their
scores on held-out sequences; standard ones from their scores and from their embedding and OV circuits.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from figures._instruments import (
    SETTINGS,
    Results,
    Setting,
    lengths_text,
    only,
    seeds_shown,
    seeds_text,
    shape_text,
    shown,
    spread,
)
from figures.panels import absent
from figures.rows import Row
from figures.verdict import Check, Verdict, judged
from interp.plotting import lag_names, share_heatmap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABEL = "beyond:identity_blocks"
ANALYSES = ("identity_blocks",)
CLAIM = (
    "From a label-symmetric start, gradient flow keeps the match weights invariant under renaming of the symbols "
    "(theorem:invariance), so that every |V| x |V| block is a I + b J (lemma:permutation_invariant_matrix): the head "
    "tests tokens for equality and does nothing else. Our models start from random weights, of which the theorem does "
    "not speak."
)

HEAVY = 0.05  # a block with this share of the visible squared norm carries weight, as `interp.identity_blocks` counts
LARGEST_RESIDUAL = 0.1  # outside span{I, J}: an equality test explains nine tenths of the block, as R2 >= 0.9 asks
LARGEST_P = 0.05
GRIDS = ("weight_share", "identity_share", "constant_share", "residual_share", "visible_residual_share", "p_value")
PARTS = {  # share of a block's squared norm -> its name and colour
    "identity_share": ("identity $aI$", "#003566"),
    "constant_share": ("constant (unseen by the softmax)", "#d9d9d9"),
    "residual_share": ("residual (number: what the softmax sees of it)", "#c1121f"),
}
ROUTES = {"weights": "the weights", "scores": "the scores", "circuit": "the circuits"}


def chosen(results: Results) -> Results:
    """The seeds of each setting, of which the first is drawn; of each route the maps, not the blocks themselves."""
    rows = []
    for row in (row for _, seeds in seeds_shown(results["identity_blocks"]) for row in seeds):
        maps = [
            {name: found[name] for name in ("route", *GRIDS, "identity", "r2", "n", "success", "message")}
            for found in row["maps"]
        ]
        rows.append(only(row, "agreement", "n", "success", "message") | {"maps": maps})
    return {"identity_blocks": rows}


def draw(results: Results) -> Figure:
    """A row for each setting: for each of its two routes the map of weight, and what the heavy blocks are made of."""
    import matplotlib.pyplot as plt
    from matplotlib.patches import Patch

    found = dict(shown(results["identity_blocks"]))
    figure, axes = plt.subplots(
        len(SETTINGS), 4, figsize=(6.3, 1.55 * len(SETTINGS) + 0.5), width_ratios=[1.25, 1.0, 1.25, 1.0]
    )
    for place, (setting, panels) in enumerate(zip(SETTINGS, axes, strict=True)):
        row = found.get(setting)
        letter = f"({chr(ord('a') + place)}) "
        if row is None:
            absent(panels[0], setting.title)
            for ax in panels[1:]:
                ax.set_axis_off()
            continue
        for side, ax, bars in ((0, panels[0], panels[1]), (1, panels[2], panels[3])):
            if side >= len(row["maps"]):
                absent(ax, f"second reading of\n{setting.title}")
                bars.set_axis_off()
                continue
            reading = row["maps"][side]
            draw_map(ax, reading, first=side == 0, least=least_p(row))
            draw_parts(bars, reading)
            trust = "" if reading["success"] else "\n(not to be trusted)"
            bars.set_title(f"← from {ROUTES[reading['route']]}{trust}", fontsize=6.5)
        for ax in panels if place < len(SETTINGS) - 1 else []:
            ax.set_xlabel("")
        panels[0].set_title(f"{letter}{setting.title}, T = {row['subject']['length']}", fontsize=6.5)
    handles = [Patch(facecolor=colour, label=name) for name, colour in PARTS.values()]
    figure.legend(handles=handles, loc="outside upper center", ncols=3, title="share of the block's squared norm")
    return figure


def draw_map(ax: Axes, reading: dict[str, Any], *, first: bool, least: float) -> None:
    """Each block's part of the visible squared norm; p of a heavy block is written where it is not the least."""
    share, p_value = (np.array(reading[name], dtype=np.float64) for name in ("weight_share", "p_value"))
    larger = np.where(p_value > 1.01 * least, p_value, np.nan)
    share_heatmap(ax, share, p_values=larger, heavy=HEAVY, query=first, fontsize=6.0)


def least_p(row: Row) -> float:
    """The least p that a permutation test over all relabelings can give."""
    return 1 / math.factorial(row["subject"]["vocab"])


def draw_parts(ax: Axes, reading: dict[str, Any]) -> None:
    """Stacked bars of the heavy blocks in the rows of the map, the visible residual written beside them."""
    pairs = sorted(heavy(reading))
    blocks = len(reading["weight_share"])
    queried = [query for query, _ in pairs]
    places = queried if len(set(queried)) == len(pairs) else list(range(len(pairs)))  # beside its row of the map
    queries, keys = lag_names("t", blocks), lag_names("s", blocks)
    left = np.zeros(len(pairs))
    for part, (_, colour) in PARTS.items():
        widths = np.array([reading[part][query][key] for query, key in pairs], dtype=np.float64)
        ax.barh(places, widths, left=left, height=0.6, color=colour, linewidth=0)
        left += widths
    for place, (query, key) in zip(places, pairs, strict=True):
        text = f"{reading['visible_residual_share'][query][key]:.3f}"
        ax.text(1.03, place, text, va="center", fontsize=6, color=PARTS["residual_share"][1])
    ax.set_yticks(places, [f"{queries[query]}, {keys[key]}" for query, key in pairs])
    ax.set_ylim(max(len(pairs), blocks) - 0.5, -0.5)
    ax.set_xlim(0, 1)
    ax.set_xticks([0, 0.5, 1], ["0", ".5", "1"])
    ax.set_xlabel("share")


def heavy(reading: dict[str, Any]) -> list[tuple[int, int]]:
    """The blocks that carry weight, heaviest first."""
    share = reading["weight_share"]
    pairs = [(query, key) for query, line in enumerate(share) for key, value in enumerate(line) if value >= HEAVY]
    return sorted(pairs, key=lambda pair: -share[pair[0]][pair[1]])


def caption(results: Results) -> str:
    """What is to be seen, with the numbers."""
    rows = results["identity_blocks"]
    if not rows:
        return "Blocks of the match weights: no model was there to be measured."
    agreement = "; ".join(
        f"{setting.words} {spread([row['agreement'] for row in seeds if row['agreement']])}"
        for setting, seeds in seeds_shown(rows)
        if any(row["agreement"] for row in seeds)
    )
    return (
        f"Blocks of the match weights, the first seed of each setting ({lengths_text(rows)}, {shape_text(rows)}, "
        f"{seeds_text(rows)}), read in two ways: from W_A itself and from the scores on n = {rows[0]['n']} held-out "
        f"sequences; for the standard model from the scores and from its circuits (embedding, OV and QK). Maps: each "
        f"block's part of the squared norm that the softmax can see, block (x_t-a, x_s-b) comparing these two tokens; "
        f"aligned blocks framed; where a block carries {HEAVY:.0%} or more, the p of its permutation test over all "
        f"|V|! relabelings is the least there can be, 1/|V|! = {least_p(rows[0]):.2g}, unless another p is written in "
        f"it. Bars: what these blocks are made of, as shares of squared norm; in red "
        f"the residual outside span{{I, J}} once the gauge is fixed. The scores do not determine constants, so that "
        f"they have none. Cosine between the two readings: {agreement}. The weights act through the copies: where a "
        f"head gives its lag only part of its attention, above all at the last query, a block of W_A is larger than "
        f"the weight it has in the scores, and raw weights mislead."
    )


def verdict(results: Results) -> Verdict:
    """Trained models: by either reading, every heavy block is an equality test that no relabeling rivals."""
    groups = [(setting, seeds) for setting, seeds in seeds_shown(results["identity_blocks"]) if setting.trained]
    found = [(setting, row) for setting, seeds in groups for row in seeds]
    checks: dict[str, bool | Check] = {}
    measured = []
    for setting, seeds in groups:
        by_route: dict[str, list[dict[str, Any]]] = {}
        for reading in (reading for row in seeds for reading in row["maps"]):
            by_route.setdefault(reading["route"], []).append(reading)
        for route, readings in by_route.items():
            name = f"{setting.words}, from {ROUTES[route]}"
            checks[f"{name}: every heavy block is a I + b J"] = Check(
                passed=all(passes(reading) for reading in readings),
                found=f"residual {seeds_in_words(readings)}",
                part=f"in {ROUTES[route]}",
            )
            measured.append(f"{name}: worst residual {seeds_in_words(readings)}")
        agreements = [row["agreement"] for row in seeds if row["agreement"] is not None]
        if agreements:
            measured.append(f"{setting.words}: cosine of the two readings {spread(agreements, '.2f')}")
    told = decides([row for _, row in found])
    return judged(
        checks,
        measured="; ".join(measured) or "no trained model was measured",
        headline=headline([row for _, row in found]),
        number=told,
        why=f"Asked of each block that carries {HEAVY:.0%} of the weight: at most {LARGEST_RESIDUAL:.0%} of it outside "
        f"span{{I, J}}, p <= {LARGEST_P}. How large a block is, the two readings may say differently: a block counts "
        f"times what its copy heads bring" + surprise(found),
    )


def found_of(rows: list[Row]) -> tuple[list[float], list[float]]:
    """The largest residual of each reading, and the cosine between the readings of each model."""
    residuals = [found[0] for row in rows for reading in row["maps"] if (found := worst(reading)) is not None]
    return residuals, [row["agreement"] for row in rows if row["agreement"] is not None]


def headline(rows: list[Row]) -> str:
    """Both requirements with what was found, as a sentence."""
    residuals, cosines = found_of(rows)
    parts = []
    if residuals:
        parts.append(
            f"at most {max(residuals):.2g} of a block that carries weight is no test of equality (allowed "
            f"{LARGEST_RESIDUAL})"
        )
    if cosines:
        agree = spread(cosines, ".2f")
        parts.append(f"the two readings of the weights agree to a cosine of {agree}")
    words = "; ".join(parts)
    return f"{words[:1].upper()}{words[1:]}." if parts else ""


def decides(rows: list[Row]) -> str:
    """The same, short."""
    residuals, cosines = found_of(rows)
    parts = []
    if residuals:
        parts.append(
            f"part of a block that is no equality test: at most {max(residuals):.2g} (allowed {LARGEST_RESIDUAL})"
        )
    if cosines:
        parts.append(f"cosine of the two readings {spread(cosines, '.2f')}")
    return "; ".join(parts)


def passes(reading: dict[str, Any]) -> bool:
    """Whether every heavy block is an equality test."""
    pairs = heavy(reading)
    return bool(reading["success"] and pairs) and all(
        reading["visible_residual_share"][query][key] <= LARGEST_RESIDUAL
        and reading["p_value"][query][key] <= LARGEST_P
        for query, key in pairs
    )


def worst(reading: dict[str, Any]) -> tuple[float, tuple[int, int]] | None:
    """The largest visible residual among the heavy blocks, and where."""
    return max(((reading["visible_residual_share"][a][b], (a, b)) for a, b in heavy(reading)), default=None)


def worst_text(reading: dict[str, Any]) -> str:
    found = worst(reading)
    return "unknown (no heavy block)" if found is None else f"{found[0]:.2g} at block {found[1]}"


def seeds_in_words(readings: list[dict[str, Any]]) -> str:
    """The worst residual of one reading over the seeds, and where the largest of them is."""
    residuals = [found for reading in readings if (found := worst(reading)) is not None]
    if len(readings) == 1 or not residuals:
        return worst_text(readings[0])
    largest = max(residuals)
    passed = sum(passes(reading) for reading in readings)
    return (
        f"{spread([residual for residual, _ in residuals], '.2g')} over {len(readings)} seeds, largest at block "
        f"{largest[1]}; {passed} of {len(readings)} pass"
    )


def surprise(found: list[tuple[Setting, Row]]) -> str:
    """Where the weights fail but the scores do not, the head computes equality tests all the same."""
    names = []
    for setting, row in found:
        by_route = {reading["route"]: reading for reading in row["maps"]}
        if {"weights", "scores"} <= set(by_route) and passes(by_route["scores"]) and not passes(by_route["weights"]):
            names.append(setting.words)
    if not names:
        return ""
    listed = ", ".join(dict.fromkeys(names))
    return f". Of {listed} the weights are not clean but the scores are: on data the head tests for equality"
