"""On natural text: does the in-context gain depend on the match heads?

Windows of the shipped text in two halves. The in-context gain is the difference between two losses on the second half:
after the first half of another window, and after the window's own first half. It is measured at two kinds of positions
of the second half: `repeated`, whose last two tokens have occurred together in the window's own first half and not yet
in the second, and `new`, all others. The outputs of the match heads are then set to their means at the second half's
positions, and the gain is measured again: the part that is lost depends on these heads. Control: as many other heads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from analyses.studies.language.case import Case, Row, others
from interp.circuit.circuit import Head
from interp.circuit.edits import HeadMeans, layers_of
from interp.circuit.runner import next_losses
from interp.results import is_clear, mean_stderr


def rows(case: Case, heads: Sequence[Head]) -> list[Row]:
    """The gain at repeated and new contexts, with the heads, without them, and without others."""
    windows = case.windows().tokens[::2]  # six runs of the whole model are enough with half of them
    losses = {
        beginning: losses_without(case, heads, tokens)
        for beginning, tokens in (("own", windows), ("other", with_other_beginning(windows)))
    }
    repeated = repeated_contexts(windows).numpy()
    window = np.broadcast_to(np.arange(len(repeated))[:, None], repeated.shape)
    found = []
    for positions, chosen in (("repeated", repeated), ("new", ~repeated)):
        gains = {without: (losses["other"][without] - own)[chosen] for without, own in losses["own"].items()}
        whole, whole_stderr = mean_stderr(gains["nothing"], clusters=window[chosen])
        known = whole if is_clear(whole, whole_stderr) else math.nan  # of a gain that is not there no share is lost
        for without, values in gains.items():
            gain, stderr = mean_stderr(values, clusters=window[chosen])
            share = 1.0 - gain / known
            off = (values - (1.0 - share) * gains["nothing"]) / known
            rise, rise_stderr = mean_stderr(
                (losses["own"][without] - losses["own"]["nothing"])[chosen], clusters=window[chosen]
            )
            found.append(
                {
                    "kind": "gain",
                    "positions": positions,
                    "without": without,
                    "gain": gain,
                    "gain_stderr": stderr,
                    "carried": share,
                    "carried_stderr": mean_stderr(off, clusters=window[chosen])[1],
                    "rise": rise,
                    "rise_stderr": rise_stderr,
                    "tokens": len(values),
                    "n": len(repeated),
                }
            )
    return found


def losses_without(case: Case, heads: Sequence[Head], tokens: torch.Tensor) -> dict[str, np.ndarray]:
    """Losses of the second half's tokens: of the model, without the heads, and without others."""
    given, half = case.windows(), tokens.shape[1] // 2
    circuit = case.circuit(given, heads, order=1)
    beside = case.others(heads, draw=12)
    positions = torch.arange(half, 2 * half - 1) + int(circuit.has_bos)
    means = HeadMeans(layers_of([*heads, *beside]), positions=positions)
    edits = {"nothing": means.reading, "match heads": means.writing(heads), "other heads": means.writing(beside)}
    return {
        name: next_losses(circuit, tokens, hooks=hooks)[:, half:].numpy()  # the means are those of the first run
        for name, hooks in edits.items()
    }


def with_other_beginning(tokens: torch.Tensor) -> torch.Tensor:
    """Every second half after the first half of another window."""
    first, second = tokens.chunk(2, dim=1)
    return torch.cat([others(first), second], dim=1)


def repeated_contexts(tokens: torch.Tensor) -> torch.Tensor:
    """[batch, half - 1]: whether tokens t - 1 and t of the second half stood together in the first, and not since."""
    half = tokens.shape[1] // 2
    pairs = [[tuple(row[place : place + 2]) for place in range(len(row) - 1)] for row in tokens.tolist()]
    return torch.tensor(
        [
            [
                row[t - 1] in row[: half - 1] and row[t - 1] not in row[half - 1 : t - 1]
                for t in range(half, 2 * half - 1)
            ]
            for row in pairs
        ]
    )
