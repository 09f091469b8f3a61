"""Do the matching heads cause the predictions, and do they follow the law? Edits on repeated tokens and on chains.

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

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch

from analyses.running.cache import Cache
from analyses.studies.language.scanning import best_heads, chain_scan
from analyses.studies.language.task import COPY, FIRST_QUERY, Row, chains, circuit_of, part_of, repeats
from analyses.studies.language_model import Options
from interp.circuit.capture import Capture, capture
from interp.circuit.circuit import Circuit, Head, head_name, heads_of
from interp.circuit.law import key_masks_at
from interp.circuit.runner import Hook, Hooks, observe
from interp.fitting.attention_fit import fit_attention
from interp.instruments.replacement import replace_heads
from interp.language.prompts import Prompts
from interp.results import jsonable, mean_stderr

CHAIN_LENGTH = 64
FIT = 4  # times the batch: sequences of repeated tokens that the law is fitted on; other sequences are edited
CHAIN_QUERIES = 32  # the last ones
COPYING = 5  # previous-token heads that are ablated together
DRAWS = 3

Laws: TypeAlias = tuple[np.ndarray, np.ndarray | None]  # of each head the scores by mask, and kappa


def chain_laws(options: Options, heads: Sequence[Head], *, order: int = 2) -> Laws:
    """The additive law of each head, fitted on chains."""
    _, given = chains(options, batch=options.batch, length=CHAIN_LENGTH, stream=6)
    circuit = circuit_of(options, given, heads, order=order)
    return head_laws(capture(circuit, given.tokens, query=range(FIRST_QUERY, CHAIN_LENGTH, 2), copies=False))


def repeat_laws(options: Options, heads: Sequence[Head], *, batch: int) -> dict[str, Laws]:
    """The law of each head of order 1, fitted on repeats in several ways; `law` is the main one."""
    given = repeats(options, batch=batch, stream=7)
    circuit = circuit_of(options, given, heads, order=1)
    cap = capture(circuit, given.tokens, query=range(COPY, 2 * COPY - 1), copies=False)
    return {
        "law": head_laws(cap),
        "fitted with position": head_laws(cap, position=True),
        "one law for all": head_laws(cap, together=True),
    }


def head_laws(cap: Capture, *, position: bool = False, together: bool = False) -> Laws:
    """The additive law of each head, or one for all of them."""
    heads = cap.match_pattern.shape[1]
    caps = [cap] if together else [part_of(cap, head=place) for place in range(heads)]
    fits = [fit_attention(one, position=position, min_explained=0.0) for one in caps] * (heads if together else 1)
    kappa = None if fits[0].kappa is None else np.array([one.kappa for one in fits], dtype=np.float64)
    return np.stack([one.mask_score for one in fits]), kappa


def repeat_rows(options: Options, cache: Cache) -> list[Row]:
    """On the second copy of repeated tokens."""
    heads = best_heads(options, cache)
    given = repeats(options, batch=options.batch, stream=8)
    laws = repeat_laws(options, heads, batch=FIT * options.batch)
    more = {**laws, "law of chains": chain_laws(options, heads, order=1)}
    circuit = circuit_of(options, given, heads, order=1)
    return _replaced("repeats", circuit, given, queries=range(COPY, 2 * COPY - 1), laws=more, seed=options.seed)


def chain_rows(options: Options, cache: Cache) -> list[Row]:
    """On chains."""
    heads = best_heads(options, cache)
    _, given = chains(options, batch=options.batch // 2, length=CHAIN_LENGTH, stream=9)
    laws = {"law": chain_laws(options, heads)}
    queries = range(CHAIN_LENGTH - 1 - CHAIN_QUERIES, CHAIN_LENGTH - 1)
    return _replaced("chains", circuit_of(options, given, heads), given, queries=queries, laws=laws, seed=options.seed)


def _replaced(
    on: str, circuit: Circuit, given: Prompts, *, queries: range, laws: Mapping[str, Laws], seed: int
) -> list[Row]:
    others = {name: law for name, law in laws.items() if name != "law"}
    tests = replace_heads(
        circuit, given.tokens, query=queries, law=laws["law"], other_laws=others, draws=DRAWS, seed=seed
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
    control = np.mean([_followed(circuit, given, means.writing(one)) for one in others], axis=0)
    rows = []
    for place, head in enumerate(heads):
        row: Row = {
            "part": "causal",
            "on": "path",
            "name": head_name(head),
            "copy_heads": list(map(head_name, copying)),
        }
        for name, mass in (("mass", before), ("without_copies", cut), ("control", control)):
            row[name], row[f"{name}_stderr"] = mean_stderr(mass[place])
        rows.append({**row, "n": len(given.tokens)})
    return rows


def _followed(circuit: Circuit, given: Prompts, hooks: Hooks) -> np.ndarray:
    """Attention of each matching head on the key after the query's earlier occurrence, [match, sequence]."""
    tokens, bos = given.tokens, int(circuit.has_bos)
    queries = torch.arange(COPY, 2 * COPY - 1) + bos
    masks = key_masks_at(tokens, order=1, bos=bool(bos), queries=queries)
    found = np.zeros((len(circuit.match_heads), len(tokens)))

    def keep(rows: slice, layer: int, pattern: torch.Tensor, hook: object) -> None:
        for place, (own, head) in enumerate(circuit.match_heads):
            if own == layer:
                mass = (pattern[:, head, queries].detach().cpu() * (masks[rows] == 1)).sum(-1)
                found[place, rows] = mass.mean(dim=-1).double().numpy()

    def watched(rows: slice) -> list[Hook]:
        layers = sorted({layer for layer, _ in circuit.match_heads})
        watch = [(f"blocks.{layer}.attn.hook_pattern", partial(keep, rows, layer)) for layer in layers]
        return [*hooks(rows), *watch]

    observe(circuit, tokens, hooks=watched)
    return found


class HeadMeans:
    """The mean output of every head of some layers over sequences and positions; `reading` gathers it in a run.

    positions   token indices at which outputs are read and written; all by default
    """

    def __init__(
        self, circuit: Circuit, tokens: torch.Tensor, *, layers: Sequence[int], positions: torch.Tensor | None = None
    ) -> None:
        own = torch.arange(tokens.shape[1]) if positions is None else positions
        self.positions = own + int(circuit.has_bos)
        self.layers, self.count = list(layers), tokens.shape[0] * len(own)
        self.sums: dict[int, torch.Tensor] = {}

    def reading(self, rows: slice) -> list[Hook]:
        """Hooks that change nothing."""

        def add(layer: int, z: torch.Tensor, hook: Any) -> None:
            self.sums[layer] = self.sums.get(layer, 0.0) + z[:, self.positions].double().sum((0, 1)).cpu()

        return [(f"blocks.{layer}.attn.hook_z", partial(add, layer)) for layer in self.layers]

    def writing(self, heads: Sequence[Head]) -> Hooks:
        """Hooks that replace these heads' outputs by their means."""

        def write(layer: int, z: torch.Tensor, hook: Any) -> torch.Tensor:
            edited = z.clone()
            for own, head in heads:
                if own == layer:
                    edited[:, self.positions, head] = (self.sums[own][head] / self.count).to(z)
            return edited

        layers = sorted({layer for layer, _ in heads})
        return lambda rows: [(f"blocks.{layer}.attn.hook_z", partial(write, layer)) for layer in layers]


def heads_beside(circuit: Circuit, heads: Sequence[Head], *, seed: int) -> list[Head]:
    """As many other heads of each layer, drawn at random; neither these nor the match heads."""
    generator = torch.Generator().manual_seed(seed)
    drawn: list[Head] = []
    for layer in sorted({layer for layer, _ in heads}):
        every = [(layer, head) for head in range(heads_of(circuit.model, layer))]
        free = [head for head in every if head not in heads and head not in circuit.match_heads]
        wanted = sum(own == layer for own, _ in heads)
        drawn += [free[place] for place in torch.randperm(len(free), generator=generator).tolist()[:wanted]]
    return drawn
