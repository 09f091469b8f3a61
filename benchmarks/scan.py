"""A scan of every head against one `run_with_cache` of the same patterns: CPU time and memory, as ratios in one run.

    python -m benchmarks.scan                       GPT-2-small's shape, random weights, 16 sequences of 254 tokens
    python -m benchmarks.scan --json                one JSON object
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
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

ORDER, VOCAB = 2, 6
WARM_UP = 8  # tokens
WAYS = ("nothing", "patterns", "scores", "last", "all", "head by head")


def make(options: argparse.Namespace) -> tuple[Any, Any, dict[str, Any]]:
    """The model, the tokens, and the task: six symbols of a large vocabulary, and BOS."""
    import torch
    from transformer_lens import HookedTransformer, HookedTransformerConfig

    import interp as ip

    prior = ip.HierarchicalDirichlet(order=ORDER, vocab=VOCAB, eta=(5.0,) * ORDER)
    chains = prior.sample(batch=options.batch, length=options.length, seed=0)
    if options.model is not None:
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
    for given in (tokens[:, :WARM_UP], tokens):
        start = time.process_time()
        ways[way](given)
        seconds = time.process_time() - start
    if way == "head by head":
        seconds *= heads / sampled
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"way": way, "heads": heads, "seconds": seconds, "peak_megabytes": peak}


def measure_all(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Every way, each in a process of its own, and its ratios to `patterns`."""
    rows = []
    for way in ("nothing", "patterns", *(one for one in WAYS[2:] if one in options.ways)):
        command = [sys.executable, "-m", "benchmarks.scan", *sys.argv[1:], "--one", way]
        child = subprocess.run(
            command, check=True, stdout=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
        )
        rows.append(json.loads(child.stdout))
        print(f"{way}: {rows[-1]['seconds']:.1f} s", file=sys.stderr, flush=True)
    nothing, patterns = rows[0], rows[1]
    for row in rows:
        row["memory_megabytes"] = row["peak_megabytes"] - nothing["peak_megabytes"]
    for row in rows[1:]:
        row["time_ratio"] = row["seconds"] / patterns["seconds"]
        row["memory_ratio"] = row["memory_megabytes"] / patterns["memory_megabytes"]
    return rows[1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default, text in (
        ("layers", 12, "layers"),
        ("heads", 12, "heads of each"),
        ("width", 768, "of the residual stream"),
        ("vocab", 50_257, "the model's vocabulary"),
        ("batch", 16, "sequences"),
        ("length", 254, "tokens of each"),
        ("sampled", 6, "heads that are measured one by one"),
    ):
        parser.add_argument(f"--{name}", type=int, default=default, metavar="N", help=f"{text} (default: %(default)s)")
    parser.add_argument("--model", metavar="MODEL", help="a language model in place of random weights")
    parser.add_argument(
        "--ways", nargs="+", choices=WAYS[1:], default=WAYS[1:], help="what to measure beside patterns (default: all)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    parser.add_argument("--one", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(measure(options.one, options)))
        return
    rows = measure_all(options)
    if options.json:
        from interp.results import provenance

        print(json.dumps({"benchmark": "scan", "rows": rows, "provenance": provenance(seed=0)}, indent=2))
        return
    print(f"{rows[0]['heads']} heads, {options.batch} sequences of {options.length} tokens")
    print(f"{'way':<14} {'seconds':>8} {'time x':>7} {'memory MB':>10} {'memory x':>9} {'peak MB':>8}")
    for row in rows:
        print(
            f"{row['way']:<14} {row['seconds']:>8.1f} {row['time_ratio']:>7.2f} {row['memory_megabytes']:>10.0f} "
            f"{row['memory_ratio']:>9.2f} {row['peak_megabytes']:>8.0f}"
        )


if __name__ == "__main__":
    main()
