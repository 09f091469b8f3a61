"""(d) Do the matching heads cause the predictions, and do they follow the law? Edits on repeated tokens and on chains.

`ip.replace_heads` on the best heads together: their outputs set to the mean (control: as many other heads of the same
layers), even attention, the law in place of the attention (control: the same weights on shuffled keys), hard matching.
The law is fitted on other sequences than those that are edited, without a positional term. On repeats such a term would
be harmful: there the match is always at the same distance, so that the term would take a part of beta.

On repeated tokens the law is of order 1. Within a copy each token occurs once, so that lag 2 matches wherever lag 1
does and order 2 adds no information; and the match of the second copy's first token has no lag 2. Besides the law of
each head, other laws are tested, to see what its success depends on: fitted with a positional term, one law for all
heads, and the law of chains. On chains it is the additive law of order 2.

Rows of kind `path`: the heads that look at the previous token most, below the matching heads, are set to their mean;
what is left of the matching heads' attention on the key after the query's earlier occurrence, against as many other
heads of the same layers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from analyses.studies.language.heads import only_head
from analyses.studies.language.means import HeadMeans, heads_beside
from analyses.studies.language.scanning import chain_scan
from analyses.studies.language.task import COPY, FIRST_QUERY, Options, Row, best_heads, chains, circuit_of, repeats

if TYPE_CHECKING:
    import numpy as np

    from analyses.running.cache import Cache
    from interp.circuit.capture import Capture
    from interp.circuit.circuit import Circuit, Head
    from interp.language.prompts import Prompts

CHAIN_LENGTH = 64
FIT = 4  # times the batch: sequences of repeated tokens that the law is fitted on; other sequences are edited
CHAIN_QUERIES = 32  # the last ones
COPYING = 5  # previous-token heads that are ablated together
DRAWS = 3

Laws = tuple["np.ndarray", "np.ndarray | None"]


def chain_laws(options: Options, heads: list[Head], *, order: int = 2) -> Laws:
    """The additive law of each head, fitted on chains: scores by mask, and kappa."""
    _, given = chains(options, batch=options.batch, length=CHAIN_LENGTH, stream=6)
    return head_laws(_attention(options, given, heads, queries=range(FIRST_QUERY, CHAIN_LENGTH, 2), order=order))


def repeat_laws(options: Options, heads: list[Head], *, batch: int) -> dict[str, Laws]:
    """The law of each head of order 1, fitted on repeats in several ways; `law` is the main one."""
    given = repeats(options, batch=batch, stream=7)
    cap = _attention(options, given, heads, queries=range(COPY, 2 * COPY - 1), order=1)
    return {
        "law": head_laws(cap),
        "fitted with position": head_laws(cap, position=True),
        "one law for all": head_laws(cap, together=True),
    }


def _attention(options: Options, given: Prompts, heads: list[Head], *, queries: Any, order: int) -> Capture:
    from interp.circuit.capture import capture

    return capture(circuit_of(options, given, heads, order=order), given.tokens, query=queries, copies=False)


def head_laws(cap: Capture, *, position: bool = False, together: bool = False) -> Laws:
    """The additive law of each head, or one for all of them, as scores by mask and kappa."""
    import numpy as np

    from interp.fitting.attention_fit import fit_attention

    heads = cap.match_pattern.shape[1]
    caps = [cap] if together else [only_head(cap, place) for place in range(heads)]
    fits = [fit_attention(one, position=position, min_explained=0.0) for one in caps] * (heads if together else 1)
    kappa = None if fits[0].kappa is None else np.array([one.kappa for one in fits], dtype=np.float64)
    return np.stack([one.mask_score for one in fits]), kappa


def repeat_rows(options: Options, cache: Cache) -> list[Row]:
    """On the second copy of repeated tokens."""
    heads = best_heads(options, cache)
    given = repeats(options, batch=options.batch, stream=8)
    laws = repeat_laws(options, heads, batch=FIT * options.batch)
    return _replaced(
        "repeats",
        circuit_of(options, given, heads, order=1),
        given,
        queries=range(COPY, 2 * COPY - 1),
        law=laws.pop("law"),
        other={**laws, "law of chains": chain_laws(options, heads, order=1)},
        seed=options.seed,
    )


def chain_rows(options: Options, cache: Cache) -> list[Row]:
    """On chains."""
    heads = best_heads(options, cache)
    _, given = chains(options, batch=options.batch // 2, length=CHAIN_LENGTH, stream=9)
    queries = range(CHAIN_LENGTH - 1 - CHAIN_QUERIES, CHAIN_LENGTH - 1)
    law = chain_laws(options, heads)
    return _replaced(
        "chains", circuit_of(options, given, heads), given, queries=queries, law=law, other={}, seed=options.seed
    )


def _replaced(
    on: str, circuit: Circuit, given: Prompts, *, queries: Any, law: Laws, other: dict[str, Laws], seed: int
) -> list[Row]:
    from interp.circuit.circuit import head_name
    from interp.instruments.replacement import replace_heads
    from interp.results import jsonable

    tests = replace_heads(
        circuit,
        given.tokens,
        queries=queries,
        by_mask=law[0],
        kappa=law[1],
        other_laws=other,
        draws=DRAWS,
        seed=seed,
    )
    place = {
        "part": "causal",
        "on": on,
        "loss_before": tests.loss,
        "loss_before_stderr": tests.loss_stderr,
        "worst_control": tests.worst_control,
        "heads": [head_name(at) for at in tests.heads],
        "queries": tests.queries,
        "n": tests.n,
    }
    return [jsonable({**place, **row}) for row in tests.table().to_dict("records")]


def path_rows(options: Options, cache: Cache) -> list[Row]:
    """From the heads that look at the previous token to the matching heads, on repeated tokens."""
    heads = best_heads(options, cache)
    first = min(layer for layer, _ in heads)
    looking = [row for row in chain_scan(options, cache) if row["copy_lag"] == 1 and row["layer"] < first]
    looking = sorted(looking, key=lambda row: -row["copy_mass"])[:COPYING]
    copying = [(row["layer"], row["head"]) for row in looking]
    given = repeats(options, batch=options.batch // 2, stream=10)
    circuit = circuit_of(options, given, heads, order=1)
    means = HeadMeans(circuit, given.tokens, layers=sorted({layer for layer, _ in copying}))
    before = _followed(circuit, given, means.reading)
    cut = _followed(circuit, given, means.writing(copying))
    others = [heads_beside(circuit, copying, seed=options.seed + draw) for draw in range(DRAWS)]
    controls = [_followed(circuit, given, means.writing(one)) for one in others]
    return [_path_row(heads[place], place, copying, before, cut, controls) for place in range(len(heads))]


def _followed(circuit: Circuit, given: Prompts, hooks: Any) -> np.ndarray:
    """Attention of each matching head on the key after the query's earlier occurrence, [match, sequence]."""
    import numpy as np
    import torch

    from interp.circuit.law import key_masks_at
    from interp.circuit.runner import parts

    tokens, bos = given.tokens, int(circuit.has_bos)
    queries = torch.arange(COPY, 2 * COPY - 1) + bos
    masks = key_masks_at(tokens, order=1, bos=bool(bos), queries=queries)
    found = np.zeros((len(circuit.match_heads), len(tokens)))

    def keep(rows: slice, layer: int, pattern: torch.Tensor) -> None:
        for place, (own, head) in enumerate(circuit.match_heads):
            if own == layer:
                mass = (pattern[:, head, queries].detach().cpu() * (masks[rows] == 1)).sum(-1)
                found[place, rows] = mass.mean(dim=-1).double().numpy()

    with torch.no_grad():
        for rows in parts(circuit, tokens):
            watch = [
                (f"blocks.{layer}.attn.hook_pattern", lambda z, hook, layer=layer, rows=rows: keep(rows, layer, z))
                for layer in sorted({layer for layer, _ in circuit.match_heads})
            ]
            circuit.model.run_with_hooks(
                circuit.ids(tokens[rows], rows),
                prepend_bos=False,
                return_type=None,
                stop_at_layer=circuit.last_layer + 1,
                fwd_hooks=[*hooks(rows), *watch],
            )
    return found


def _path_row(head: Head, place: int, copying: list[Head], before: Any, cut: Any, controls: list[Any]) -> Row:
    import numpy as np

    from interp.circuit.circuit import head_name
    from interp.results import mean_stderr

    whole, whole_stderr = mean_stderr(before[place])
    left, left_stderr = mean_stderr(cut[place])
    control, control_stderr = mean_stderr(np.mean([one[place] for one in controls], axis=0))
    return {
        "part": "causal",
        "on": "path",
        "name": head_name(head),
        "copy_heads": [head_name(at) for at in copying],
        "mass": whole,
        "mass_stderr": whole_stderr,
        "without_copies": left,
        "without_copies_stderr": left_stderr,
        "control": control,
        "control_stderr": control_stderr,
        "n": int(before.shape[1]),
    }
