"""Whether what a legend tells apart can be told apart in grey print and by readers who confuse colours.

Two entries of one legend that differ in nothing but colour must stay apart in CIE Lab: as most people see them, under
deuteranopia and protanopia (Machado, Oliveira and Fernandes 2009, severity 1), and in grey. A second mark (another
marker, dash, hatch, an open marker, a line against an area) makes up for colour.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.collections import PathCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.offsetbox import DrawingArea, HPacker, TextArea
from matplotlib.patches import Patch

# Linear RGB -> linear RGB as a dichromat sees it.
SIGHTS = {
    "everyone": np.eye(3),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "grey": np.tile([0.2126, 0.7152, 0.0722], (3, 1)),
}
LEAST = {"everyone": 15.0, "deuteranopia": 15.0, "protanopia": 15.0, "grey": 10.0}  # of CIE Lab; 2.3 can just be seen
NOTHING = ("None", "none", "", " ", None)
WIDE = 1.5  # points: a line that is seen to be thicker than others
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)


def seen(colour: Any, sight: str) -> np.ndarray:
    """A colour in CIE Lab (D65), as it is seen."""
    encoded = np.array(to_rgb(colour))
    linear = np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)
    x, y, z = TO_XYZ @ np.clip(SIGHTS[sight] @ linear, 0.0, 1.0) / (TO_XYZ @ np.ones(3))
    fx, fy, fz = (np.cbrt(one) if one > (6 / 29) ** 3 else one * (29 / 6) ** 2 / 3 + 4 / 29 for one in (x, y, z))
    return np.array([116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)])


def apart(one: Any, other: Any, sight: str) -> float:
    """The distance of two colours (CIE 1976)."""
    return float(np.linalg.norm(seen(one, sight) - seen(other, sight)))


def mark_of(handle: Artist) -> tuple[Any, tuple[Any, ...]]:
    """The colour of a legend's entry, and what else sets it apart."""
    lines = handle.findobj(Line2D)
    if lines:
        shown = [line for line in lines if line.get_marker() not in NOTHING]
        marker = shown[-1] if shown else None
        drawn = [line for line in lines if line.get_linestyle() not in NOTHING]
        dash = str(drawn[0]._unscaled_dash_pattern) if drawn else "none"
        wide = bool(drawn) and drawn[0].get_linewidth() > WIDE
        if marker is None:
            return lines[0].get_color(), ("line", dash, wide)
        face = marker.get_markerfacecolor()
        is_open = str(face) == "none" or to_rgb(face) != to_rgb(marker.get_color())
        return marker.get_color(), ("marker", str(marker.get_marker()), is_open, dash, wide)
    if areas := handle.findobj(Patch):
        return areas[-1].get_facecolor(), ("area", areas[-1].get_hatch())
    (points, *_) = handle.findobj(PathCollection)
    return points.get_facecolor()[0], ("points", len(points.get_paths()[0].vertices))


def entries_of(legend: Legend) -> list[tuple[str, Any, tuple[Any, ...]]]:
    """(text, colour, mark) of every entry; an entry is a row of a drawing and its text."""
    found = []
    for row in legend.findobj(HPacker):
        children = row.get_children()
        texts = [child for child in children if isinstance(child, TextArea)]
        drawings = [child for child in children if isinstance(child, DrawingArea)]
        if texts and drawings:
            found.append((texts[0].get_text(), *mark_of(drawings[0])))
    return found


def confused(figure: Figure) -> list[str]:
    """Entries of a legend that differ in colour alone, and by too little."""
    found = []
    for legend in figure.findobj(Legend):
        entries = entries_of(legend)
        for (name, colour, mark), (other_name, other, other_mark) in combinations(entries, 2):
            if mark != other_mark or np.allclose(to_rgb(colour), to_rgb(other)):
                continue
            for sight, least in LEAST.items():
                if (distance := apart(colour, other, sight)) < least:
                    found.append(f"{name} / {other_name}: {distance:.0f} of {least:.0f} ({sight})")
    return found
