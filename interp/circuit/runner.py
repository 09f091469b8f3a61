"""The one runner of models: every prediction, capture and edit of the suite is a run from here.

    predict(model, tokens)                            [batch, vocab] the law of the token after the last one
    run(circuit, tokens, hooks=reader.hooks)          the symbols' logits after the last token, under hooks

Tokens come without BOS; it is prepended where the circuit has one. Sequences are run some at a time, so that memory is
bounded. Where only the last position of a model of this suite is wanted, `last_query` computes the same numbers in a
fraction of the time; this module decides that, and no other. What comes back lies on the CPU, in the model's precision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

import torch
from jaxtyping import Float, Int64

from interp.arguments import switch
from interp.circuit import last_query
from interp.circuit.circuit import Circuit, as_circuit, heads_of
from interp.circuit.last_query import Hook as Hook
from interp.notation import Tokens

Hooks: TypeAlias = Callable[[slice], list[Hook]]  # the hooks for one slice of the batch

BATCH_BYTES = 8 << 20  # of one layer's attention in memory at once
LOGIT_BYTES = 64 << 20  # of logits at every position in memory at once
STREAM_BYTES = 256 << 20  # of the stream before the match layer kept between edits


def predict(
    model: Any, tokens: Tokens, *, every_position: bool = False
) -> Float[torch.Tensor, "batch vocab"] | Float[torch.Tensor, "batch length vocab"]:
    """The law of the token after the last one, or after every token, by a model of this suite or a `Circuit`.

    With `symbols`, it is the law over these symbols, renormalised without the model's other tokens.
    """
    circuit = as_circuit(model)
    array = circuit.check(tokens)
    return every_law(circuit, array)[0] if switch(every_position, name="every_position") else laws(circuit, array)


def check_finite(found: torch.Tensor) -> torch.Tensor:
    """The predictions, or a `ValueError` where one is not finite: no result could be computed from it."""
    if not torch.isfinite(found).all():
        raise ValueError("the model's prediction is not finite: its weights are too large for its precision")
    return found


def no_hooks(rows: slice) -> list[Hook]:
    """The model as it is."""
    return []


def runs_short(circuit: Circuit) -> bool:
    """Whether the circuit's model can be run at the last query alone: copies in layer 0, matches in the last layer."""
    copies = {layer for layer, _ in circuit.known_copy_heads}
    matches = {layer for layer, _ in circuit.match_heads}
    return copies <= {0} and matches <= {1} and last_query.applies(circuit.model)


def stream_before_match(
    circuit: Circuit, tokens: Int64[torch.Tensor, "batch length"]
) -> Float[torch.Tensor, "batch key d_model"] | None:
    """What the match layer reads, for `run` to start from: edits of the match head leave it as it is.

    None where it would take too much memory, and where the model has to be run whole.
    """
    keys, width = tokens.shape[1] + circuit.has_bos, int(circuit.model.cfg.d_model)
    size = circuit.dtype.itemsize * tokens.shape[0] * keys * width
    if not runs_short(circuit) or size > STREAM_BYTES:
        return None
    kept = torch.empty(tokens.shape[0], keys, width, dtype=circuit.dtype)
    for rows in parts(circuit, tokens, queries=last_query.QUERIES):
        kept[rows] = last_query.before_match(circuit.model, circuit.ids(tokens[rows], rows)).cpu()
    return kept


def run(
    circuit: Circuit,
    tokens: Int64[torch.Tensor, "batch length"],
    *,
    hooks: Hooks = no_hooks,
    last_only: bool = False,
    stream: Float[torch.Tensor, "batch key d_model"] | None = None,
) -> Float[torch.Tensor, "batch vocab"]:
    """Logits of the symbols after the last token, under the given hooks.

    Hooks see whole activations, unless last_only=True says that they need the last position only, from the match layer
    on, and that hooks of the copy layer may come for some positions at a time: that is many times faster. Then `stream`
    also saves the computation of the copy layer, for edits that do not change it.
    """
    short = (last_only or hooks is no_hooks) and runs_short(circuit)
    logits = []
    with torch.no_grad():
        for rows in parts(circuit, tokens, queries=last_query.QUERIES if short else None):
            if short:
                last = _last_logits(circuit, tokens, rows, hooks(rows), stream)
            else:
                ids = circuit.ids(tokens[rows], rows)
                last = circuit.model.run_with_hooks(ids, prepend_bos=False, fwd_hooks=hooks(rows))[:, -1]
            logits.append(circuit.of_symbols(last, rows).clone())
    return torch.cat(logits)


def observe(
    circuit: Circuit, tokens: Int64[torch.Tensor, "batch length"], *, hooks: Hooks, last_only: bool = False
) -> None:
    """Run only to call the hooks, and stop after the last layer that the circuit uses; the arguments are `run`'s."""
    if last_only and runs_short(circuit):
        run(circuit, tokens, hooks=hooks, last_only=True)
        return
    end: dict[str, Any] = {"return_type": None, "stop_at_layer": circuit.last_layer + 1}
    with torch.no_grad():
        for rows in parts(circuit, tokens):
            ids = circuit.ids(tokens[rows], rows)
            circuit.model.run_with_hooks(ids, prepend_bos=False, fwd_hooks=hooks(rows), **end)


def _last_logits(
    circuit: Circuit, tokens: torch.Tensor, rows: slice, hooks: list[Hook], stream: torch.Tensor | None
) -> torch.Tensor:
    """The logits after the last token of one part of the batch, by `last_query`."""
    early = [hook for hook in hooks if hook[0].startswith("blocks.0.")]
    if any(name not in last_query.SHOWN for name, _ in early) or (early and stream is not None):
        raise ValueError(f"a run at the last query would not call these hooks: {', '.join(name for name, _ in early)}")
    if stream is None:
        before = last_query.before_match(circuit.model, circuit.ids(tokens[rows], rows), hooks=early)
    else:
        before = stream[rows].to(circuit.device)
    return last_query.from_match(circuit.model, before, hooks=[hook for hook in hooks if hook not in early])


def laws(
    circuit: Circuit,
    tokens: Int64[torch.Tensor, "batch length"],
    *,
    hooks: Hooks = no_hooks,
    last_only: bool = False,
    stream: Float[torch.Tensor, "batch key d_model"] | None = None,
) -> Float[torch.Tensor, "batch vocab"]:
    """The predicted law after the last token, under the given hooks; the arguments are those of `run`."""
    return law_of(run(circuit, tokens, hooks=hooks, last_only=last_only, stream=stream))


def law_of(logits: Float[torch.Tensor, "*rows vocab"]) -> Float[torch.Tensor, "*rows vocab"]:
    """Logits of the symbols as a law, in float64."""
    return check_finite(torch.softmax(logits.double(), dim=-1))


def last_activations(
    circuit: Circuit,
    tokens: Int64[torch.Tensor, "batch length"],
    *names: str,
    hooks: Hooks = no_hooks,
    last_only: bool = False,
    stream: Float[torch.Tensor, "batch key d_model"] | None = None,
) -> list[torch.Tensor]:
    """What each of these hooks shows at the last position, [batch, ...], in a run under the given hooks."""
    kept: dict[str, list[torch.Tensor]] = {name: [] for name in names}

    def keep(name: str, activation: torch.Tensor, hook: Any) -> None:
        kept[name].append(activation[:, -1].detach().cpu().clone())

    reading: list[Hook] = [(name, partial(keep, name)) for name in names]
    run(circuit, tokens, hooks=lambda rows: [*hooks(rows), *reading], last_only=last_only, stream=stream)
    if silent := [name for name in names if not kept[name]]:
        raise ValueError(f"this model has no hook {silent[0]}")
    return [torch.cat(kept[name]) for name in names]


def parts(
    circuit: Circuit, tokens: Int64[torch.Tensor, "batch length"], *, queries: int | None = None
) -> Iterator[slice]:
    """Slices of the batch, so small that one layer's attention for `queries` queries at a time stays bounded."""
    keys = tokens.shape[1] + circuit.has_bos
    rows = keys if queries is None else min(keys, queries)
    heads = max(heads_of(circuit.model, layer) for layer in range(len(circuit.model.blocks)))
    step = max(1, BATCH_BYTES // (8 * heads * rows * keys))
    for start in range(0, tokens.shape[0], step):
        yield slice(start, min(start + step, tokens.shape[0]))


def every_law(
    circuit: Circuit, tokens: Int64[torch.Tensor, "batch length"], *, hooks: Hooks = no_hooks
) -> tuple[Float[torch.Tensor, "batch length vocab"], Float[torch.Tensor, "batch length"]]:
    """The law over the symbols after every token, and the mass that the model gives to all symbols together."""
    laws, masses = [], []
    for rows, logits in _after_every_token(circuit, tokens, hooks):
        ours = circuit.of_symbols(logits, rows)
        laws.append(law_of(ours))
        masses.append(symbol_mass(ours, logits))
    return torch.cat(laws), torch.cat(masses)


def symbol_mass(
    ours: Float[torch.Tensor, "*rows vocab"], all_logits: Float[torch.Tensor, "*rows d_vocab_out"]
) -> Float[torch.Tensor, "*rows"]:
    """The probability of all symbols together, from their logits and those of the whole vocabulary."""
    return (ours.double().logsumexp(-1) - all_logits.logsumexp(-1).cpu().double()).exp()


def next_losses(
    circuit: Circuit, tokens: Int64[torch.Tensor, "batch length"], *, hooks: Hooks = no_hooks
) -> Float[torch.Tensor, "batch step"]:
    """Minus the log-probability of token t + 1 after token t, by the law over the symbols: [batch, length - 1]."""
    losses = []
    for rows, logits in _after_every_token(circuit, tokens, hooks):
        ours = circuit.of_symbols(logits[:, :-1], rows).double()
        losses.append(ours.logsumexp(-1) - ours.gather(-1, tokens[rows, 1:, None]).squeeze(-1))
    return check_finite(torch.cat(losses))


def _after_every_token(
    circuit: Circuit, tokens: Int64[torch.Tensor, "batch length"], hooks: Hooks
) -> Iterator[tuple[slice, Float[torch.Tensor, "batch length d_vocab_out"]]]:
    """Parts of the batch with the model's logits after every token; a large vocabulary makes the parts small."""
    most = max(1, LOGIT_BYTES // (8 * tokens.shape[1] * int(circuit.model.cfg.d_vocab_out)))
    with torch.no_grad():
        for part in parts(circuit, tokens):
            for start in range(part.start, part.stop, most):
                rows = slice(start, min(start + most, part.stop))
                ids = circuit.ids(tokens[rows], rows)
                logits = circuit.model.run_with_hooks(ids, prepend_bos=False, fwd_hooks=hooks(rows))
                yield rows, logits[:, int(circuit.has_bos) :]
