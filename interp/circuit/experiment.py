"""A model at its last query as it is and edited: the one runner behind the instruments that edit match heads there.

    trial = Experiment(model, tokens, next_law=chains.next_law)
    trial.divergence.mean                             KL(truth || prediction) of the model as it is
    edited = trial.write(trial.pattern, edit="own")   logits with this attention in the match heads

Weights stay as they are: hooks write attention in the live model. An edit that should be seen in the logits and is not
raises an error.
"""

from __future__ import annotations

import torch
from jaxtyping import Float

from interp.arguments import Number, Numbers, Whole, seed_number
from interp.circuit.circuit import Model, as_circuit, head_name
from interp.circuit.edits import NOTICEABLE, MatchReader, write_pattern
from interp.circuit.law import check_next_law, key_masks_at, shuffled
from interp.circuit.runner import Hooks, law_of, run, stream_before_match
from interp.divergence import KL_FLOOR, Divergence, check_floor, kl_divergence
from interp.notation import Tokens


class Experiment:
    """The model as it is, and functions that edit it.

    circuit, tokens, truth, floor   what was given, checked
    masks                [batch, query, key] as the last query sees them
    scores, pattern      [batch, match, query, key] of the match heads at the last query
    logits, base         the model's own, and its predictions; `divergence` is their KL from the truth
    stream               what the match layer reads, for edits that do not change the copy layer
    generator            draws the controls
    """

    def __init__(
        self, model: Model, tokens: Tokens, *, next_law: Numbers, floor: Number = KL_FLOOR, seed: Whole = 0
    ) -> None:
        self.circuit = circuit = as_circuit(model)
        self.tokens = circuit.check(tokens)
        self.truth = check_next_law(next_law, self.tokens, vocab=circuit.vocab)
        self.floor = check_floor(floor, vocab=circuit.vocab)
        self.generator = torch.Generator().manual_seed(seed_number(seed))
        last = torch.tensor([self.tokens.shape[1] - 1 + circuit.has_bos])
        self.masks = key_masks_at(self.tokens, order=circuit.order, bos=circuit.has_bos, queries=last)
        self.stream = stream_before_match(circuit, self.tokens)
        reader = MatchReader(circuit, self.tokens)
        self.logits = self.run(reader.hooks)
        self.base = law_of(self.logits)
        self.divergence = self.kl(self.base)
        self.scores, self.pattern = reader.scores.double(), reader.pattern.double()

    def run(self, hooks: Hooks) -> Float[torch.Tensor, "batch vocab"]:
        """Logits under hooks that do not change the copy layer."""
        return run(self.circuit, self.tokens, hooks=hooks, last_only=True, stream=self.stream)

    def write(
        self, pattern: Float[torch.Tensor, "batch match query key"], *, edit: str
    ) -> Float[torch.Tensor, "batch vocab"]:
        """Logits with this attention in the match heads at the last query."""
        logits = self.run(write_pattern(self.circuit, pattern))
        if float(self.distance(pattern).max()) > NOTICEABLE and torch.equal(logits, self.logits):
            raise ValueError(
                f"the edit {edit!r} changed the attention of {', '.join(map(head_name, self.circuit.match_heads))} "
                f"(layer.head) but did not reach the logits: nothing reads that head"
            )
        return logits

    def distance(
        self, pattern: Float[torch.Tensor, "batch match query key"]
    ) -> Float[torch.Tensor, "batch match query"]:
        """Total variation between this attention and the model's own."""
        return (pattern - self.pattern).abs().sum(-1) / 2

    def shuffled(self, values: torch.Tensor) -> torch.Tensor:
        """Values of keys, such as masks or scores, in random order among each sequence's candidates."""
        return shuffled(values, self.masks, generator=self.generator)

    def kl(self, laws: Float[torch.Tensor, "batch vocab"]) -> Divergence:
        """KL(truth || predictions)."""
        return kl_divergence(self.truth, laws, floor=self.floor)
