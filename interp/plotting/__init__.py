"""Plotting primitives: axes in, axes out. They draw arrays and compute nothing.

    attention_heatmap(ax, pattern)                 one head's attention or scores, query by key
    induction_bars(ax, weights, kinds)             one query's attention, each key coloured by its overlap
    rpe_stem(ax, bias)                             a relative bias r_{i-j} over the distance
    block_heatmap(ax, matrix, vocab=5)             a weight matrix with its |V| x |V| blocks ruled
    pair_heatmap(ax, beta, stderr)                 a number for each pair of query block and key block
    share_heatmap(ax, shares)                      each pair's share of a whole
    head_heatmap(ax, values)                       a number for each layer and head of a model
    estimate_points(ax, names, values, reach)      estimates with their intervals
    grouped_bars(ax, names, series)                several numbers for each name, side by side
    control_bars(ax, names, own, control)          numbers beside those of their controls
    curve(ax, x, y, reach=...)                     a line or markers with their intervals

The `.plot()` of every result draws with these, and so do the figures. The overlap colours are fixed, so that they mean
the same in every picture: full match yellow, partial teal, none grey, as in the paper (fig:mech_main), BOS wine and
early keys black. They differ in lightness, so that they can be distinguished in greyscale and with common colour
blindness.

Only `.plot()` methods and figures import this package: no number depends on it, and matplotlib is loaded when something
is drawn.
"""

from __future__ import annotations

from interp.plotting.attention import attention_heatmap as attention_heatmap
from interp.plotting.attention import induction_bars as induction_bars
from interp.plotting.attention import overlap_handles as overlap_handles
from interp.plotting.attention import rpe_stem as rpe_stem
from interp.plotting.attention import share_text as share_text
from interp.plotting.attention import visible_masses as visible_masses
from interp.plotting.blocks import NEGATIVE as NEGATIVE
from interp.plotting.blocks import block_heatmap as block_heatmap
from interp.plotting.blocks import head_heatmap as head_heatmap
from interp.plotting.blocks import lag_names as lag_names
from interp.plotting.blocks import pair_heatmap as pair_heatmap
from interp.plotting.blocks import share_heatmap as share_heatmap
from interp.plotting.estimates import bar_centre as bar_centre
from interp.plotting.estimates import control_bars as control_bars
from interp.plotting.estimates import curve as curve
from interp.plotting.estimates import estimate_points as estimate_points
from interp.plotting.estimates import grouped_bars as grouped_bars
from interp.plotting.estimates import parameter_points as parameter_points
from interp.plotting.estimates import signed_log as signed_log
from interp.plotting.panel import CONTROL_COLOUR as CONTROL_COLOUR
from interp.plotting.panel import INTERVAL_NAME as INTERVAL_NAME
from interp.plotting.panel import LAG_COLOURS as LAG_COLOURS
from interp.plotting.panel import MAIN_COLOUR as MAIN_COLOUR
from interp.plotting.panel import OVERLAP_COLOURS as OVERLAP_COLOURS
from interp.plotting.panel import OVERLAP_NAMES as OVERLAP_NAMES
from interp.plotting.panel import QUIET as QUIET
from interp.plotting.panel import SHUT_OUT as SHUT_OUT
from interp.plotting.panel import SOURCE_COLOURS as SOURCE_COLOURS
from interp.plotting.panel import SOURCE_NAMES as SOURCE_NAMES
from interp.plotting.panel import area as area
from interp.plotting.panel import beside as beside
from interp.plotting.panel import heading as heading
from interp.plotting.panel import lag_colour as lag_colour
from interp.plotting.panel import legend_beside as legend_beside
from interp.plotting.panel import mark as mark
from interp.plotting.panel import overlap_kind as overlap_kind
from interp.plotting.panel import panel as panel
from interp.plotting.panel import whisker as whisker
