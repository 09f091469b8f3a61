"""The instruments against the sequence length: seconds of processor time, and the peak memory of the whole process.

    python -m benchmarks.instruments                       every instrument at every length
    python -m benchmarks.instruments --only beta_kappa causal --lengths 128 1024 --batch 512 --query all --json

Every instrument runs at every length in a process of its own, on one thread: from tokens to result on `--batch`
sequences, after a small round that compiles. The model is a construction with known beta and kappa. `nothing` is a
process that only loads the libraries and draws the sequences. `at once` is what the attention of all sequences would
take in one piece, which the instruments avoid. `plain` is `run_with_cache` on `PLAIN` of the sequences one by one, its
seconds scaled to the batch: what the attention costs without the short way of `interp.circuit.last_query`.
"""

from __future__ import annotations

import sys
from typing import Any

from benchmarks.measure import alone, options_of, show, spent

ORDER, VOCAB, BETA, KAPPA = 2, 5, (2.7, 1.2), 3.3
PLAIN = 16  # sequences
RELABELINGS = 4  # of 120: the cost of label symmetry is that of a prediction, times these
NAMES = (
    "nothing", "plain", "beta_kappa", "lag_pairs", "overlap_mass", "copy_heads", "identity_blocks", "label_symmetry",
    "causal", "smoothing_source", "nearest_estimator",
)  # fmt: skip


def run(name: str, model: Any, chains: Any, query: str) -> Any:
    """One instrument, from tokens to result."""
    import torch

    import interp as ip

    tokens = chains.tokens

    def matches() -> Any:
        return ip.capture(model, tokens, query=query, copies=False)

    def plain() -> None:
        for row in tokens[:PLAIN]:
            ids = torch.cat([torch.tensor([VOCAB]), row])[None]
            model.run_with_cache(ids, prepend_bos=False, return_type=None)

    law = {"next_law": chains.next_law}
    return {
        "nothing": lambda: None,
        "plain": plain,
        "beta_kappa": lambda: ip.fit_scores(matches()),
        "lag_pairs": lambda: ip.fit_score_pairs(matches()),
        "overlap_mass": lambda: ip.overlap_mass(matches()),
        "copy_heads": lambda: ip.copy_heads(ip.capture(model, tokens)),
        "identity_blocks": lambda: ip.identity_blocks(model, tokens),
        "label_symmetry": lambda: ip.label_symmetry(model, tokens, draws=RELABELINGS),
        "causal": lambda: ip.causal_tests(model, tokens, beta=BETA, kappa=KAPPA, **law),
        "smoothing_source": lambda: ip.smoothing_source(model, tokens, **law),
        "nearest_estimator": lambda: ip.nearest_estimator(model, tokens, beta=BETA, kappa=KAPPA),
    }[name]()


def measure(name: str, length: int, batch: int, query: str) -> dict[str, Any]:
    """One instrument at one length, in this process."""
    import interp as ip

    prior = ip.HierarchicalDirichlet(order=ORDER, vocab=VOCAB, eta=(5.0,) * ORDER)
    for size, sequences in ((12, 16), (length, batch)):
        chains = prior.sample(batch=sequences, length=size, seed=0)
        model = ip.construct(order=ORDER, vocab=VOCAB, length=size, beta=BETA, kappa=KAPPA, dtype="float32")
        seconds, peak = spent(lambda model=model, chains=chains: run(name, model, chains, query))
    return {
        "instrument": name,
        "length": length,
        "seconds": seconds * max(1.0, batch / PLAIN) if name == "plain" else seconds,
        "peak MiB": peak,
        "at once MiB": 2 * 4 * batch * (ORDER + 1) * (length + 1) ** 2 / 2**20,
    }


def main() -> None:
    options = options_of(__doc__, only=NAMES, lengths=(32, 64, 128, 256, 512, 1024), batch=512, query="last")
    rows = []
    for name in options.only:
        for length in options.lengths:
            rows.append(alone(measure, name, length, options.batch, options.query))
            print(f"{name} at T = {length}: {rows[-1]['seconds']:.2f} s", file=sys.stderr, flush=True)
    show("instruments", rows, as_json=options.json)


if __name__ == "__main__":
    main()
