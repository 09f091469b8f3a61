"""One model of the study: its prompts, its heads by role, and the rows of its parts, which use each other's.

Chains are of the suite's hierarchical prior, with an alphabet of its own for every sequence. Repeated tokens are random
tokens, again and again, with a period of its own for every sequence: so the match stands at another distance in each,
and neither a term for the distance nor another sequence's masks explain it. Windows of natural text have two halves.
Lengths are cut to the model's context.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from analyses.running.cache import Cache
from analyses.studies.language_model import Options
from interp.chains.priors import ChainBatch, HierarchicalDirichlet
from interp.circuit.circuit import Circuit, Head, head_name, heads_of
from interp.language.load import LanguageModel, load_language_model
from interp.language.prompts import Prompts, first_alphabet, natural_text, prompts, repeated_tokens
from interp.language.weights import find
from interp.results import jsonable
from models.running.terminal import say

RANDOM = "random:"
VOCAB, ETA = 5, 5.0  # of the chains
LENGTH = 96  # tokens of a chain
FIRST_QUERY = 8  # earlier queries see too few keys to fit a law
PERIODS = (12, 24)  # the shortest and the longest of repeated tokens, which are twice the longest in all
HALF = 64  # tokens of half a window of text
BESIDE_WEIGHTS = 1.0  # GiB that the study takes: libraries, activations and what is kept of them
GIB = 2**30

Row = dict[str, Any]


@functools.lru_cache(maxsize=1)
def opened(model: str, seed: int) -> LanguageModel:
    """The model; parts that run in one process share it."""
    name = model.removeprefix(RANDOM)
    return load_language_model(name, random_seed=None if name == model else seed)


def digest(model: str) -> str:
    """Names the weights."""
    kind = RANDOM * model.startswith(RANDOM)
    return kind + find(model.removeprefix(RANDOM)).digest


def memory_rows(options: Options) -> list[Row]:
    """What each model needs, said before anything is loaded."""
    rows = []
    for model in dict.fromkeys(options.models):
        size = find(model.removeprefix(RANDOM)).parameters
        need = 4 * size / GIB + BESIDE_WEIGHTS
        say(f"memory: {model} has {size:,} parameters; its study takes about {need:.1f} GiB")
        rows.append({"model": model, "kind": "memory", "parameters": size, "gib": round(need, 2)})
    return rows


@dataclass(frozen=True)
class Case:
    """A model with the options of the study."""

    model: str
    options: Options
    cache: Cache

    def rows(self, part: str) -> list[Row]:
        """The rows of a part, from the cache where they are known."""
        module = {"scan": "scanning", "chains": "heads", "repeats": "heads", "text": "heads"}.get(part, part)

        def make() -> list[Row]:
            found = importlib.import_module(f"analyses.studies.language.{module}").rows(self, part)
            return [{"model": self.model, **jsonable(row)} for row in found]

        shaping = {**self.options.shaping(), "models": self.model}
        key = {"what": f"language-{part}", "options": shaping, "weights": digest(self.model)}
        found: list[Row] = self.cache.value(key, make)
        return found

    # ---- the model

    @property
    def language(self) -> LanguageModel:
        return opened(self.model, self.options.seed)

    @property
    def bos(self) -> bool:
        """Whether prompts begin with BOS."""
        return self.language.bos is not None

    def fits(self, length: int) -> int:
        """The length, or as much of it as the model's context holds."""
        return min(length, int(self.language.model.cfg.n_ctx) - self.bos)

    def circuit(self, given: Prompts, heads: Sequence[Head] = (), *, order: int) -> Circuit:
        """The match heads on these prompts."""
        return Circuit(self.language.model, order=order, match_heads=tuple(heads), **given.place)

    def seed(self, stream: int) -> int:
        """Each use of random numbers has its own."""
        return 1000 * self.options.seed + stream

    # ---- its heads

    def heads(self, role: str, *, lag: int | None = None) -> list[Head]:
        """The heads that have the role on chains or on repeated tokens, the one whose law explains most first."""
        found = [row for row in self.rows("scan") if row["role"] == role and lag in (None, row["copy_lag"])]
        found.sort(key=lambda row: -(row["nats_explained"] or 0.0))
        return list(dict.fromkeys((row["layer"], row["head"]) for row in found))

    def others(self, heads: Sequence[Head], *, draw: int) -> list[Head]:
        """As many heads without a role, of the same layers as far as these have some."""
        generator = torch.Generator().manual_seed(self.seed(draw))
        taken = {*heads, *self.heads("match"), *self.heads("copy")}
        model = self.language.model
        every = [(layer, head) for layer in range(len(model.blocks)) for head in range(heads_of(model, layer))]
        free = [every[at] for at in torch.randperm(len(every), generator=generator).tolist() if every[at] not in taken]
        layers = [layer for layer, _ in heads]
        chosen = [at for layer in set(layers) for at in [one for one in free if one[0] == layer][: layers.count(layer)]]
        return (chosen + [at for at in free if at not in chosen])[: len(heads)]

    # ---- its prompts

    @property
    def prior(self) -> HierarchicalDirichlet:
        """What chains are drawn from."""
        return HierarchicalDirichlet(order=self.options.order, vocab=VOCAB, eta=(ETA,) * self.options.order)

    def chains(
        self, *, batch: int, stream: int, length: int = LENGTH, alphabet: str = "", draw: int = 0, bos: bool = True
    ) -> tuple[ChainBatch, Prompts]:
        """Chains, and the same as prompts; another `draw` gives the same chains other words."""
        drawn = self.prior.sample(batch=batch, length=self.fits(length), seed=self.seed(stream), method="explicit")
        words: Any = alphabet or self.options.alphabet or first_alphabet(self.language, needed=VOCAB)
        seed = self.seed(stream) + 500 * draw
        return drawn, prompts(self.language, drawn, alphabet=words, fresh=True, bos=bos and self.bos, seed=seed)

    def repeats(self, *, batch: int, stream: int) -> tuple[Prompts, range]:
        """Random tokens with a period of its own for every sequence; the queries after the first of the longest."""
        longest = self.fits(2 * PERIODS[1]) // 2
        given = repeated_tokens(self.language, batch=batch, length=longest, bos=self.bos, seed=self.seed(stream))
        periods = torch.linspace(longest * PERIODS[0] // PERIODS[1], longest, batch).long()
        places = torch.arange(2 * longest) % periods[:, None]
        tokens = given.tokens.gather(1, places)
        return dataclasses.replace(given, tokens=tokens), range(longest, 2 * longest - 1)

    def windows(self) -> Prompts:
        """Windows of two halves, spread over the text."""
        length = self.fits(2 * HALF) // 2 * 2
        return natural_text(self.language, batch=self.options.batch, length=length, bos=self.bos)


def others(tokens: torch.Tensor) -> torch.Tensor:
    """Another sequence for each one, half a batch away: of repeated tokens its period is another."""
    return tokens.roll(len(tokens) // 2, dims=0)


def names(heads: Iterable[Head]) -> list[str]:
    return list(map(head_name, heads))


def rounded(values: Iterable[Any], digits: int = 5) -> list[float]:
    """A vector as JSON."""
    return [round(float(value), digits) for value in values]
