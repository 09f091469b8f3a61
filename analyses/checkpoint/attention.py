"""What does each head attend to, on one sequence?

The attention behind the mechanistic figures (fig:mech_main, fig:mech_indep and the appendix): copy patterns at every
query, match scores and pattern, the last query's weights with what each key is to it, the relative biases and the match
weights. Of --batch sequences the first is taken whose last context has occurred at least twice before, so that there
are matches to see. Checkpoints of the same prior and length get the same sequence.

    python -m analyses attention CKPT
    python -m analyses attention CKPT --seed 3 --json
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import interp as ip
from analyses.running.ask import Ask, near, not_long
from analyses.running.options import CheckpointOptions
from analyses.running.subject import Subject
from analyses.running.table import Table

if TYPE_CHECKING:
    import torch

COLUMNS = ("mass.full", "mass.partial", "mass.none", "mass.bos", "mass.early", "sequence")
LEGEND = {
    "full, partial, none": "the last query's attention on keys that match at all, some or none of the lags, in this "
    "one sequence; `overlap_mass` gives means over sequences",
    "early": "attention on keys with fewer than k tokens before them",
}
ASK = Ask(select=not_long(near(32, 64, 128, seeds=1)), cost=0.2)
LEAST_MATCHES = 2
DIGITS = 6  # more than the pictures can show


def applies(subject: Subject) -> str | None:
    return "it draws the layout of the suite's own models" if subject.is_foreign else None


def analyse(subject: Subject, options: CheckpointOptions) -> Table:
    """One sequence through one model. Positions count BOS, where there is one, as position 0.

    tokens         [length] without BOS
    kinds          what each key is to the last query: bos, early, full, partial or none
    weights        [key] match attention of the last query
    mass           kind -> its share of `weights`
    law            [vocab] the predicted law of the next token
    copy_scores    [head, query, key] before the softmax; None where a key is masked
    copy_pattern   [head, query, key] after it
    match_scores   [query, key] before the softmax; None where a key is masked
    match_pattern  [query, key] after it
    copy_bias      [head, distance] r_{i-j} of the copy heads
    match_bias     [distance] r_{i-j} of the match head
    match_weight   [(k+1)|V|, (k+1)|V|] the paper's W_A^(2); None for the standard family, which has LayerNorm
    copies         per copy head what `interp.copy_heads` reads: head, lag, share (mean weight there), last and bos (of
                   the last query), verdict
    per_key        kind -> the mean of `weights` over its keys
    on_full        of all queries with a full match before them: at how many the heaviest candidate is one, and how many
                   there are
    aligned_share  share of the squared `match_weight` in the aligned blocks, of the part that the softmax sees (see
                   `interp.identity_blocks`); None where heads copy no distinct lags, or without that matrix
    sequence       which of the batch it is
    """
    from interp.results import provenance

    tokens = subject.chains.tokens
    place = first_with_matches(tokens, order=subject.model_config["order"])
    seen = one_sequence(subject.model, tokens[place : place + 1])
    row = {
        **seen,
        "sequence": place,
        "provenance": provenance(seed=options.seed, checkpoint=str(subject.path)),
    }
    shares = ", ".join(f"{kind} {share:.3f}" for kind, share in seen["mass"].items() if share > 0)
    law = " ".join(f"{value:.3f}" for value in seen["law"])
    text = f"sequence {place}: the last query's attention is {shares}\n  predicted law {law}"
    return Table(rows=[row], tidy=keys_of_last_query(seen), text=text)


def keys_of_last_query(seen: dict[str, Any]) -> list[dict[str, Any]]:
    """One row per key of the last query."""
    bos = seen["kinds"][0] == "bos"
    tokens = [*(["BOS"] if bos else []), *map(str, seen["tokens"])]
    columns = zip(tokens, seen["kinds"], seen["weights"], seen["match_scores"][-1], strict=True)
    names = ("token", "kind", "weight", "score")
    return [
        {"position": place, **dict(zip(names, one, strict=True))} for place, one in enumerate(columns, int(not bos))
    ]


def first_with_matches(tokens: torch.Tensor, *, order: int) -> int:
    """The first sequence whose last context has occurred often enough before."""
    exact = (ip.match_masks(tokens, order=order) == (1 << order) - 1).sum(-1)
    if not (exact >= LEAST_MATCHES).any():
        raise ValueError(
            f"none of {len(tokens)} sequences of length {tokens.shape[1]} has met its last context {LEAST_MATCHES} "
            "times; expected a larger --batch or --length"
        )
    return int((exact >= LEAST_MATCHES).nonzero()[0])


def one_sequence(model: ip.InductionTransformer, tokens: torch.Tensor) -> dict[str, Any]:
    """The fields of `Attention` that come from one sequence [1, length] and the model's weights."""
    from interp.notation import key_kinds, kind_masses

    config = model.config
    cap = ip.capture(model, tokens, query="all")
    kinds = key_kinds(ip.match_masks(tokens, order=config.order)[0].numpy(), order=config.order, bos=config.bos)
    weights = cap.match_pattern[0, 0, -1].numpy()
    half = config.blocks * config.vocab
    match_weight = None if not config.one_hot else shortened(model.match_attention.W_Q[0, :half])
    seen = {
        "tokens": tokens[0].tolist(),
        "kinds": kinds,
        "weights": shortened(weights),
        "mass": kind_masses(weights, kinds),
        "law": ip.predict(model, tokens)[0].tolist(),
        "copy_scores": shortened(copy_scores(model, tokens)),
        "copy_pattern": shortened(cap.copy_pattern[0]),
        "match_scores": shortened(cap.match_scores[0, 0]),
        "match_pattern": shortened(cap.match_pattern[0, 0]),
        "copy_bias": shortened(model.copy_attention.rel_bias),
        "match_bias": shortened(model.match_attention.rel_bias[0]),
        "match_weight": match_weight,
    }
    return {**seen, **readings(seen, order=config.order, vocab=config.vocab)}


def copy_scores(model: ip.InductionTransformer, tokens: torch.Tensor) -> torch.Tensor:
    """[head, query, key]: the copy heads' scores before the softmax, on the first of the sequences."""
    name = "blocks.0.attn.hook_attn_scores"
    _, cache = model.run_with_cache(ip.Circuit(model).ids(tokens[:1]), names_filter=name, stop_at_layer=1)
    scores: torch.Tensor = cache[name][0]
    return scores


def readings(seen: dict[str, Any], *, order: int, vocab: int) -> dict[str, Any]:
    """The fields of `Attention` that are computed from the others."""
    import torch

    offset = int(seen["kinds"][0] == "bos")
    tokens = torch.tensor([seen["tokens"]])
    pattern = torch.tensor(seen["match_pattern"])[None, None]
    cap = ip.Capture(
        tokens=tokens,
        copy_pattern=torch.tensor(seen["copy_pattern"])[None],
        match_scores=pattern.log(),
        match_pattern=pattern,
        queries=torch.arange(pattern.shape[-1]),
        order=order,
        vocab=vocab,
        bos=bool(offset),
    )
    heads = ip.copy_heads(cap)
    names = ("lag", "share", "last", "bos", "verdict")
    read = (each.tolist() for each in (heads.lag, heads.mass, heads.last_mass, heads.last_bos))
    copies = [
        {"head": head, **dict(zip(names, one, strict=True))}
        for head, one in enumerate(zip(*read, heads.verdict, strict=True))
    ]
    masks = ip.match_masks(tokens, order=order, every_position=True)[0]
    full = masks == (1 << order) - 1
    candidates = pattern[0, 0, offset:, offset:].masked_fill(masks < 0, -1.0)
    with_full = full.any(-1)
    hits = full.gather(-1, candidates.argmax(-1, keepdim=True))[:, 0] & with_full
    weights, kinds = np.array(seen["weights"]), np.array(seen["kinds"])
    return {
        "copies": copies,
        "per_key": {kind: float(weights[kinds == kind].mean()) for kind in dict.fromkeys(seen["kinds"])},
        "on_full": [int(hits.sum()), int(with_full.sum())],
        "aligned_share": _aligned_share(seen["match_weight"], copies, vocab=vocab),
    }


def _aligned_share(weight: Any, copies: list[dict[str, Any]], *, vocab: int) -> float | None:
    """aligned_share: lag r compares x_{i-r+1} with x_{j-r}, in the blocks that their heads write."""
    from interp.instruments.block_routes import in_lag_order
    from interp.instruments.identity_blocks import aligned_parts

    if weight is None or any(copy["verdict"] != f"copies lag {copy['lag']}" for copy in copies):
        return None
    _, share = aligned_parts(in_lag_order(np.array(weight), [copy["lag"] for copy in copies], vocab=vocab))
    return float(share)


def shortened(values: Any) -> Any:
    """Nested lists of numbers with `DIGITS` significant digits; None for what is not finite."""
    array = np.asarray(values.detach() if hasattr(values, "detach") else values, dtype=np.float64)
    if array.ndim:
        return [shortened(part) for part in array]
    return float(f"{array:.{DIGITS}g}") if np.isfinite(array) else None
