"""The one runner of models: every prediction, capture and edit of the suite is a run from here.

    predict(model, tokens)                            [batch, vocab] the law of the token after the last one
    run(circuit, tokens, hooks=reader.hooks)          the symbols' logits after the last token, under hooks

Tokens come without BOS; it is prepended where the circuit has one. Sequences are run some at a time, so that memory is
bounded. Where only the last position of a model of this suite is wanted, `last_query` computes the same numbers in a
fraction of the time; this module decides that, and no other. What comes back lies on the CPU, in the model's precision.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

import torch
from jaxtyping import Float, Int64

from interp.arguments import switch
from interp.circuit import last_query
from interp.circuit.circuit import Circuit, Model, as_circuit, heads_of
from interp.circuit.last_query import Hook as Hook
from interp.notation import Tokens

Hooks: TypeAlias = Callable[[slice], list[Hook]]  # the hooks for one slice of the batch

BATCH_BYTES = 8 << 20  # of one layer's attention in memory at once
LOGIT_BYTES = 64 << 20  # of logits at every position in memory at once
STREAM_BYTES = 256 << 20  # of the stream before the match layer kept between edits


def predict(
    model: Model, tokens: Tokens, *, every_position: bool = False
) -> Float[torch.Tensor, "batch vocab"] | Float[torch.Tensor, "batch length vocab"]:
    """The model's distribution of the token after the last one, or after every token.

    Parameters
    ----------
    model : HookedTransformer or Circuit
        A model of this suite, or any other as a `Circuit`. With `symbols`, the distribution is over these symbols,
        renormalised without the model's other tokens.
    tokens : array of int [batch, length]
        The sequences, without BOS, which is prepended where the model has it.
    every_position : bool, default False
        Whether to predict after every token.

    Returns
    -------
    torch.Tensor
        float64, [batch, vocab], or [batch, length, vocab].

    Examples
    --------
    >>> import interp as ip
    >>> model = ip.construct(order=1, vocab=2, length=4, beta=(3.0,))
    >>> predict(model, [[0, 1, 0, 1]]).round(decimals=3).tolist()
    [[0.909, 0.091]]
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
    copies, matches = ({layer for layer, _ in heads} for heads in (circuit.known_copy_heads, circuit.match_heads))
    return copies <= {0} and matches <= {1} and last_query.applies(circuit.model)


def stream_before_match(
    circuit: Circuit, tokens: Int64[torch.Tensor, "batch length"]
) -> Float[torch.Tensor, "batch key d_model"] | None:
    """What the match layer reads, for `run` to start from: edits of the match head leave it as it is.

    None where it would take too much memory, and where the model has to be run whole.
    """
    size = (len(tokens), tokens.shape[1] + circuit.has_bos, int(circuit.model.cfg.d_model))
    if not runs_short(circuit) or circuit.dtype.itemsize * size[0] * size[1] * size[2] > STREAM_BYTES:
        return None
    kept = torch.empty(size, dtype=circuit.dtype)
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
    for rows in parts(circuit, tokens, queries=last_query.QUERIES if short else None):
        if short:
            last = _last_logits(circuit, tokens, rows, hooks(rows), stream)
        else:
            last = hooked(circuit, tokens, rows, hooks(rows))[:, -1]
        logits.append(circuit.of_symbols(last, rows).clone())
    return torch.cat(logits)


def observe(
    circuit: Circuit,
    tokens: Int64[torch.Tensor, "batch length"],
    *,
    hooks: Hooks,
    last_only: bool = False,
    last_layer: int | None = None,
) -> None:
    """Run only to call the hooks, and stop after the last layer that is read, by default that of the circuit."""
    if last_only and runs_short(circuit):
        run(circuit, tokens, hooks=hooks, last_only=True)
        return
    layer = circuit.last_layer if last_layer is None else last_layer
    # After its last block a bridge would go on to the logits, which may take most of the time and of the memory.
    output = f"blocks.{layer}.hook_out"
    last: list[Hook] = [(output, _stop)] if output in circuit.model.hook_dict else []
    for rows in parts(circuit, tokens):
        with contextlib.suppress(_Stopped):
            hooked(circuit, tokens, rows, [*hooks(rows), *last], return_type=None, stop_at_layer=layer + 1)


class _Stopped(Exception):
    """A run has come to its last layer."""


def _stop(activation: torch.Tensor, hook: Any) -> None:
    raise _Stopped


def score_hook(circuit: Circuit, layer: int, take: Callable[..., None]) -> Hook:
    """The hook that hands a layer's scores to `take`, each up to a constant of its query.

    TransformerLens' native bridges show the pattern where the scores should be: there it is the pattern's logarithm.
    """
    if layer in circuit.layers_without_scores:
        return f"blocks.{layer}.attn.hook_pattern", lambda pattern, hook: take(pattern.log(), hook)
    return f"blocks.{layer}.attn.hook_attn_scores", take


def hooked(
    circuit: Circuit, tokens: Int64[torch.Tensor, "batch length"], rows: slice, hooks: list[Hook], **options: Any
) -> Any:
    """One part of the batch through the whole model under hooks; every plain run of a model goes through here."""
    ids = circuit.ids(tokens[rows], rows)
    with torch.no_grad():
        return circuit.model.run_with_hooks(ids, prepend_bos=False, fwd_hooks=hooks, **options)


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
    circuit: Circuit, tokens: Int64[torch.Tensor, "batch length"], *, hooks: Hooks = no_hooks, last_only: bool = False
) -> Float[torch.Tensor, "batch vocab"]:
    """The predicted distribution after the last token, under the given hooks; the arguments are those of `run`."""
    return law_of(run(circuit, tokens, hooks=hooks, last_only=last_only))


def law_of(logits: Float[torch.Tensor, "*rows vocab"]) -> Float[torch.Tensor, "*rows vocab"]:
    """Logits of the symbols as a distribution, in float64."""
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
    """The distribution over the symbols after every token, and the mass of all symbols together."""
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
    """Minus the log-probability of token t + 1 after token t, among the symbols: [batch, length - 1]."""
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
    for part in parts(circuit, tokens):
        for start in range(part.start, part.stop, most):
            rows = slice(start, min(start + most, part.stop))
            yield rows, hooked(circuit, tokens, rows, hooks(rows))[:, int(circuit.has_bos) :]
