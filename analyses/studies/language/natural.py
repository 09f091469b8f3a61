"""On natural text: does the in-context gain depend on the matching heads, and do these follow the law?

Windows of the shipped text in two halves. The in-context gain is the difference between two losses on the second half:
after the first half of another window, and after the window's own first half. It is measured at two kinds of positions
of the second half: `repeated`, whose last two tokens have occurred together in the window's own first half and not yet
in the second, and `new`, all others. The outputs of the matching heads are then set to their means at the second half's
positions, and the gain is measured again: the part that is lost depends on these heads. Control: as many other heads of
their layers.

Rows of kind `law`: the additive law of each head's attention on this text, with masks of orders 1 to 4 on its own
tokens: nats explained on held-out windows (tuned on one half of them), beta, and the control with another window's
masks.
"""

from __future__ import annotations

import dataclasses
from functools import partial

import numpy as np
import torch

from analyses.running.cache import Cache
from analyses.studies.language.causal import HeadMeans, heads_beside
from analyses.studies.language.scanning import best_heads
from analyses.studies.language.task import Row, circuit_of, fitted, law_columns, opened, part_of
from analyses.studies.language_model import Options, weights
from interp.circuit.capture import capture
from interp.circuit.circuit import Head, head_name
from interp.circuit.runner import next_losses
from interp.language.prompts import Prompts, natural_text
from interp.results import mean_stderr

HALF = 96  # tokens of half a window
ORDERS = (1, 2, 3, 4)
STEP = 6  # of the queries whose attention is fitted
WITHOUT = {"model": "nothing", "heads": "matching heads", "control": "other heads"}


def rows(options: Options, cache: Cache) -> list[Row]:
    """Gain rows, then laws."""
    key = {"what": "language-text", "options": options.shaping(), "weights": weights(options)}
    heads = best_heads(options, cache)
    return _gains(cache.arrays(key, partial(_losses, options, heads))) + _laws(options, heads)


def windows(options: Options) -> Prompts:
    """Windows of two halves, spread over the text."""
    language = opened(options.model)
    return natural_text(language, batch=options.batch // 2, length=2 * HALF, bos=language.bos is not None)


def with_other_beginning(tokens: torch.Tensor) -> torch.Tensor:
    """Every second half after the first half of another window (shifted by half the number of windows)."""
    first, second = tokens.chunk(2, dim=1)
    return torch.cat([first.roll(len(tokens) // 2, dims=0), second], dim=1)


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


def _losses(options: Options, heads: list[Head]) -> dict[str, np.ndarray]:
    """Losses of the second half's tokens, by condition and beginning."""
    given = windows(options)
    circuit = circuit_of(options, given, heads)
    positions = torch.arange(HALF, 2 * HALF - 1)
    layers = sorted({layer for layer, _ in heads})
    beside = heads_beside(circuit, heads, seed=options.seed)
    found: dict[str, np.ndarray] = {"repeated": repeated_contexts(given.tokens).numpy()}
    for name, tokens in (("own", given.tokens), ("other", with_other_beginning(given.tokens))):
        means = HeadMeans(circuit, tokens, layers=layers, positions=positions)
        for edit, hooks in (
            ("model", means.reading),
            ("heads", means.writing(heads)),
            ("control", means.writing(beside)),
        ):
            found[f"{edit}_{name}"] = next_losses(circuit, tokens, hooks=hooks)[:, HALF:].numpy()
    return found


def gains(own: np.ndarray, other: np.ndarray, repeated: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The in-context gain of every token at repeated contexts and at new ones, and the window of each."""
    window = np.broadcast_to(np.arange(len(own))[:, None], own.shape)
    return {
        kind: ((other - own)[chosen], window[chosen]) for kind, chosen in (("repeated", repeated), ("new", ~repeated))
    }


def _gains(losses: dict[str, np.ndarray]) -> list[Row]:
    """The gain at repeated and new contexts, with the heads, without them, and without others."""
    repeated = losses["repeated"].astype(bool)
    by_edit = {edit: gains(losses[f"{edit}_own"], losses[f"{edit}_other"], repeated) for edit in WITHOUT}
    found = []
    for kind, chosen in (("repeated", repeated), ("new", ~repeated)):
        plain, window = by_edit["model"][kind]
        whole = float(plain.mean())
        for edit, words in WITHOUT.items():
            values, _ = by_edit[edit][kind]
            gain, stderr = mean_stderr(values, clusters=window)
            share = 1.0 - float(values.mean()) / whole
            off = (values - (1.0 - share) * plain) / whole
            rise, rise_stderr = mean_stderr((losses[f"{edit}_own"] - losses["model_own"])[chosen], clusters=window)
            found.append(
                {
                    "part": "text",
                    "kind": "gain",
                    "positions": kind,
                    "without": words,
                    "gain": gain,
                    "gain_stderr": stderr,
                    "carried": share,
                    "carried_stderr": mean_stderr(off, clusters=window)[1],
                    "loss": float(losses[f"{edit}_own"][chosen].mean()),
                    "rise": rise,
                    "rise_stderr": rise_stderr,
                    "tokens": len(values),
                    "n": len(repeated),
                }
            )
    return found


def _laws(options: Options, heads: list[Head]) -> list[Row]:
    """The law of each head's attention on the text, by order."""
    given = windows(options)
    circuit = circuit_of(options, given, heads, order=max(ORDERS))
    cap = capture(circuit, given.tokens, query=range(HALF, 2 * HALF, STEP), copies=False)
    found = []
    for place, head in enumerate(heads):
        for order in ORDERS:
            one = dataclasses.replace(part_of(cap, head=place), order=order)
            control = fitted(dataclasses.replace(one, tokens=one.tokens.roll(1, dims=0))).nats_explained
            columns = {**law_columns(fitted(one)), "control_nats_explained": control}
            found.append({"part": "text", "kind": "law", "name": head_name(head), "order": order, **columns})
    return found
