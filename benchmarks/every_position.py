"""soft_matching at every position: successor counts against the pairwise form.

    python -m benchmarks.every_position
    python -m benchmarks.every_position --lengths 64 256 --batch 4 --json

The pairwise form is what attention does: all [query, key] scores as one matrix product, a causal softmax with BOS, a
weighted sum of tokens. It is written in torch, in the same precision, in place where it can be, and goes through the
batch in parts that stay in the cache. Both forms run in one process on one thread, in turn: the ratio is the claim,
the seconds are not. Memory is what one call adds to a process of its own that has made a small call before.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from benchmarks.measure import alone, in_turn, options_of, show, spent
from interp import HierarchicalDirichlet, soft_matching

CHUNK_BYTES = 1 << 20  # scores of the pairwise form held at once; larger chunks leave the cache and are slower


def pairwise(tokens: torch.Tensor, *, vocab: int, beta: tuple[float, ...], kappa: float) -> torch.Tensor:
    """eq:transformer_estimator at every position by scoring all pairs of positions."""
    batch, length = tokens.shape
    step = max(1, CHUNK_BYTES // (8 * length * length))
    visible = torch.ones(length, length, dtype=torch.bool).tril()
    visible[:, : len(beta)] = False  # keys without a full context
    hidden = torch.zeros(length, length, dtype=torch.float64).masked_fill(~visible, -torch.inf)
    laws = torch.empty(batch, length, vocab, dtype=torch.float64)
    for start in range(0, batch, step):
        part = torch.nn.functional.one_hot(tokens[start : start + step], vocab).double()
        query = torch.cat([weight * torch.roll(part, lag, dims=1) for lag, weight in enumerate(beta)], dim=-1)
        key = torch.cat([torch.roll(part, lag, dims=1) for lag in range(1, len(beta) + 1)], dim=-1)
        scores = torch.baddbmm(hidden.expand(len(part), -1, -1), query, key.mT)
        top = scores.amax(dim=-1, keepdim=True).clamp_(min=kappa)
        votes = scores.sub_(top).exp_() @ part + torch.exp(kappa - top) / vocab
        laws[start : start + step] = votes / votes.sum(dim=-1, keepdim=True)
    return laws


def contest(length: int, order: int, vocab: int, batch: int) -> tuple[dict[str, Callable[..., Any]], torch.Tensor]:
    """The two forms as functions of tokens, and the sequences."""
    setting: dict[str, Any] = {
        "vocab": vocab,
        "beta": tuple(2.0 - 0.5 * lag for lag in range(order)),
        "kappa": 1.0,
    }
    prior = HierarchicalDirichlet(order=order, vocab=vocab, eta=(5.0,) * order)
    return {
        "ours": lambda tokens: soft_matching(tokens, **setting, every_position=True),
        "pairwise": lambda tokens: pairwise(tokens, **setting),
    }, prior.sample(batch=batch, length=length, seed=0, method="collapsed").tokens


def memory(form: str, *sizes: int) -> float:
    """MiB that one call adds, in this process."""
    forms, tokens = contest(*sizes)
    _, before = spent(lambda: forms[form](tokens[:1, : 8 + sizes[1]]))
    return spent(lambda: forms[form](tokens))[1] - before


def main() -> None:
    options = options_of(__doc__, lengths=(64, 256, 1024), order=2, vocab=5, batch=16, seconds=2.0)
    torch.set_num_threads(1)
    rows = []
    for length in options.lengths:
        sizes = (length, options.order, options.vocab, options.batch)
        forms, tokens = contest(*sizes)
        results = {name: form(tokens) for name, form in forms.items()}
        torch.testing.assert_close(results["ours"], results["pairwise"], rtol=0, atol=1e-9)
        steps = {name: partial(form, tokens) for name, form in forms.items()}
        times = in_turn(steps, seconds=options.seconds)
        peaks = {f"{name} MiB": alone(memory, name, *sizes) for name in forms}
        rows.append({"length": length, **times, "ratio": times["pairwise"] / times["ours"], **peaks})
    show("every_position", rows, as_json=options.json)


if __name__ == "__main__":
    main()
