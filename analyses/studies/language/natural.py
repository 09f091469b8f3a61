"""(f) On natural text: does the in-context gain depend on the matching heads, and do these follow the law?

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

from functools import partial
from typing import TYPE_CHECKING, Any

from analyses.studies.language.means import HeadMeans, heads_beside
from analyses.studies.language.task import Options, Row, best_heads, circuit_of, opened, rounded, weights

if TYPE_CHECKING:
    import numpy as np
    import torch

    from analyses.running.cache import Cache
    from interp.circuit.capture import Capture
    from interp.language.prompts import Prompts

HALF = 96  # tokens of half a window
ORDERS = (1, 2, 3, 4)
STEP = 6  # of the queries whose attention is fitted


def rows(options: Options, cache: Cache) -> list[Row]:
    """Gain rows, then laws."""
    key = {"what": "language-text", "options": options.shaping(), "weights": weights(options)}
    heads = best_heads(options, cache)
    losses = cache.arrays(key, partial(_losses, options, [list(at) for at in heads]))
    return _gains(losses) + _laws(options, cache)


def windows(options: Options) -> Prompts:
    """Windows of two halves, spread over the text."""
    from interp.language.prompts import natural_text

    language = opened(options.model)
    return natural_text(language, batch=options.batch // 2, length=2 * HALF, bos=language.bos is not None)


def with_other_beginning(tokens: torch.Tensor) -> torch.Tensor:
    """Every second half after the first half of another window (shifted by half the number of windows)."""
    import torch

    first, second = tokens.chunk(2, dim=1)
    return torch.cat([first.roll(len(tokens) // 2, dims=0), second], dim=1)


def repeated_contexts(tokens: torch.Tensor) -> torch.Tensor:
    """[batch, half - 1]: whether tokens t - 1 and t of the second half stood together in the first, and not since."""
    import torch

    half = tokens.shape[1] // 2
    pairs = [[tuple(row[place : place + 2]) for place in range(len(row) - 1)] for row in tokens.tolist()]
    found = torch.zeros(len(tokens), half - 1, dtype=torch.bool)
    for index, row in enumerate(pairs):
        first = set(row[: half - 1])
        for place in range(half, 2 * half - 1):  # the query; its context is pair place - 1
            found[index, place - half] = row[place - 1] in first and row[place - 1] not in row[half - 1 : place - 1]
    return found


def _losses(options: Options, heads: list[Any]) -> dict[str, np.ndarray]:
    """Losses of the second half's tokens, by condition and beginning."""
    import torch

    from interp.circuit.runner import next_losses

    given = windows(options)
    own = given.tokens
    circuit = circuit_of(options, given, [tuple(at) for at in heads])
    positions = torch.arange(HALF, 2 * HALF - 1)
    layers = sorted({layer for layer, _ in circuit.match_heads})
    beside = heads_beside(circuit, circuit.match_heads, seed=options.seed)
    found: dict[str, np.ndarray] = {"repeated": repeated_contexts(own).numpy()}
    for name, tokens in (("own", own), ("other", with_other_beginning(own))):
        means = HeadMeans(circuit, tokens, layers=layers, positions=positions)
        edits = {
            "model": means.reading,
            "heads": means.writing(circuit.match_heads),
            "control": means.writing(beside),
        }
        for edit, hooks in edits.items():
            found[f"{edit}_{name}"] = next_losses(circuit, tokens, hooks=hooks)[:, HALF:].numpy()
    return found


def _gains(losses: dict[str, np.ndarray]) -> list[Row]:
    """The gain at repeated and new contexts, with the heads, without them, and without others."""
    import numpy as np

    from interp.results import mean_stderr

    repeated = losses["repeated"].astype(bool)
    found = []
    for kind, chosen in (("repeated", repeated), ("new", ~repeated)):
        sequence = np.broadcast_to(np.arange(len(chosen))[:, None], chosen.shape)[chosen]
        gains = {
            edit: (losses[f"{edit}_other"] - losses[f"{edit}_own"])[chosen] for edit in ("model", "heads", "control")
        }
        whole = float(gains["model"].mean())
        for edit, values in gains.items():
            gain, stderr = mean_stderr(values, clusters=sequence)
            share = 1.0 - float(values.mean()) / whole
            off = (values - (1.0 - share) * gains["model"]) / whole
            rise, rise_stderr = mean_stderr((losses[f"{edit}_own"] - losses["model_own"])[chosen], clusters=sequence)
            found.append(
                {
                    "part": "text",
                    "kind": "gain",
                    "positions": kind,
                    "without": {"model": "nothing", "heads": "matching heads", "control": "other heads"}[edit],
                    "gain": gain,
                    "gain_stderr": stderr,
                    "carried": share,
                    "carried_stderr": mean_stderr(off, clusters=sequence)[1],
                    "loss": float(losses[f"{edit}_own"][chosen].mean()),
                    "rise": rise,
                    "rise_stderr": rise_stderr,
                    "tokens": int(chosen.sum()),
                    "n": len(chosen),
                }
            )
    return found


def _laws(options: Options, cache: Cache) -> list[Row]:
    """The law of each head's attention on the text, by order."""
    import dataclasses

    from analyses.studies.language.heads import only_head
    from interp.circuit.capture import capture
    from interp.circuit.circuit import head_name

    heads, given = best_heads(options, cache), windows(options)
    cap = capture(
        circuit_of(options, given, heads, order=max(ORDERS)),
        given.tokens,
        query=range(HALF, 2 * HALF, STEP),
        copies=False,
    )
    found = []
    for place, head in enumerate(heads):
        for order in ORDERS:
            one = dataclasses.replace(only_head(cap, place), order=order)
            control = dataclasses.replace(one, tokens=one.tokens.roll(1, dims=0))
            found.append({"part": "text", "kind": "law", "name": head_name(head), "order": order, **_law(one, control)})
    return found


def _law(cap: Capture, control: Capture) -> Row:
    from interp.fitting.attention_fit import fit_attention

    fit, other = (fit_attention(one, min_explained=0.0) for one in (cap, control))
    return {
        "beta": rounded(fit.beta),
        "beta_stderr": rounded(fit.stderr),
        "kappa": fit.kappa,
        "kappa_stderr": fit.kappa_stderr,
        "nats": fit.nats,
        "nats_explained": fit.nats_explained,
        "nats_explained_stderr": fit.nats_explained_stderr,
        "control_nats_explained": other.nats_explained,
        "mass_gap": fit.mass_gap,
        "observed": rounded(fit.observed),
        "predicted": rounded(fit.predicted),
        "message": fit.message,
        "n": fit.sequences,
    }
