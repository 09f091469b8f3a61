"""A scan of every head against one `run_with_cache` of the same patterns: CPU time and memory, as ratios in one run.

    python -m benchmarks.scan                       GPT-2-small's shape, random weights, 16 sequences of 254 tokens
    python -m benchmarks.scan --layers 4 --heads 4 --width 64 --vocab 100      a smaller model
    python -m benchmarks.scan --ways patterns last                             some of the ways
    python -m benchmarks.scan --model smollm2 --batch 64 --length 128          a language model

Each way runs in a process of its own, on one thread, first on short sequences, which do not count. `patterns` is
`run_with_cache` of the attention patterns of all layers, without readout and logits. `scores` also caches the scores,
which a scan reads, too. `last` and `all` are `scan_heads` at the last query and at every query. `head by head` is what
the scan replaces: a capture and a fit for each head, measured on `--sampled` heads and scaled up. Seconds are of the
process. `memory` is what the process holds at its peak beyond the model and the libraries (`nothing`). Ratios are to
`patterns`. `peak` is all that the process holds.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

from benchmarks.measure import alone, options_of, show, spent

ORDER, VOCAB = 2, 6
WARM_UP = 8  # tokens
WAYS = ("nothing", "patterns", "scores", "last", "all", "head by head")


def make(options: argparse.Namespace) -> tuple[Any, Any, dict[str, Any]]:
    """The model, the tokens, and the task: six symbols of a large vocabulary, and BOS."""
    import torch

    import interp as ip
    from interp.lens import HookedTransformer, HookedTransformerConfig

    prior = ip.HierarchicalDirichlet(order=ORDER, vocab=VOCAB, eta=(5.0,) * ORDER)
    chains = prior.sample(batch=options.batch, length=options.length, seed=0)
    if options.model:
        language = ip.load_language_model(options.model)
        given = ip.prompts(language, chains, alphabet="words", fresh=False)
        return language.model, given.tokens, {"order": ORDER, **given.place}
    torch.manual_seed(0)
    config = HookedTransformerConfig(
        n_layers=options.layers,
        n_heads=options.heads,
        d_model=options.width,
        d_head=options.width // options.heads,
        d_mlp=4 * options.width,
        act_fn="gelu_new",
        normalization_type="LN",
        n_ctx=1024,
        d_vocab=options.vocab,
        device="cpu",
    )
    task = {"order": ORDER, "vocab": VOCAB, "symbols": list(range(10, 10 + VOCAB)), "bos": options.vocab - 1}
    return HookedTransformer(config), chains.tokens, task


def cached(model: Any, tokens: Any, task: dict[str, Any], *, names: tuple[str, ...]) -> None:
    """The attention of all layers in one cache."""
    import torch

    import interp as ip

    with torch.no_grad():
        model.run_with_cache(
            ip.Circuit(model, **task).ids(tokens),
            prepend_bos=False,
            return_type=None,
            stop_at_layer=len(model.blocks),
            names_filter=lambda name: name.endswith(names),
        )


def head_by_head(model: Any, tokens: Any, task: dict[str, Any], *, sampled: int) -> None:
    """A capture and a fit for some of the heads."""
    import interp as ip

    places = [(layer, head) for layer in range(len(model.blocks)) for head in range(model.cfg.n_heads)]
    for place in places[:: max(1, len(places) // sampled)][:sampled]:
        ip.fit_scores(ip.capture(ip.Circuit(model, **task, match_heads=(place,)), tokens, copies=False))


def measure(way: str, options: argparse.Namespace) -> dict[str, Any]:
    """One way, in this process."""
    import interp as ip

    model, tokens, task = make(options)
    heads = len(model.blocks) * model.cfg.n_heads
    sampled = min(options.sampled, heads)
    ways: dict[str, Callable[[Any], object]] = {
        "nothing": lambda given: None,
        "patterns": lambda given: cached(model, given, task, names=("hook_pattern",)),
        "scores": lambda given: cached(model, given, task, names=("hook_pattern", "hook_attn_scores")),
        "last": lambda given: ip.scan_heads(model, given, **task, query="last"),
        "all": lambda given: ip.scan_heads(model, given, **task, query="all"),
        "head by head": lambda given: head_by_head(model, given, task, sampled=sampled),
    }
    ways[way](tokens[:, :WARM_UP])
    seconds, peak = spent(lambda: ways[way](tokens))
    return {"way": way, "seconds": seconds * heads / sampled if way == "head by head" else seconds, "peak MiB": peak}


def main() -> None:
    options = options_of(
        __doc__, layers=12, heads=12, width=768, vocab=50_257, batch=16, length=254, sampled=6, model="", ways=WAYS[2:]
    )
    rows = []
    for way in ("nothing", "patterns", *options.ways):
        rows.append(alone(measure, way, options))
        print(f"{way}: {rows[-1]['seconds']:.1f} s", file=sys.stderr, flush=True)
    nothing, patterns = rows[0]["peak MiB"], rows[1]
    for row in rows:
        row["time ratio"] = row["seconds"] / patterns["seconds"]
        row["memory ratio"] = (row["peak MiB"] - nothing) / (patterns["peak MiB"] - nothing)
    show("scan", rows[1:], as_json=options.json)


if __name__ == "__main__":
    main()
