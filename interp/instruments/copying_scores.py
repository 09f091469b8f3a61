"""Does each match head vote for the token that it attends to?

In the paper's circuit a key votes for its own token: the head copies what it attends to into the prediction. Here one
head at a time is made to attend to a single candidate key at the last query, drawn at random, and, for comparison, to
nothing. The difference of the logits, c(m), is what a unit of attention on that key does to the prediction, through all
that follows the head.

    vote       mean of c(x_s) minus the mean of c over the other symbols: positive where the head copies
    copying    of the variance of c over symbols, the part that "is it x_s?" explains
    control    the vote with the token of another candidate key, drawn at random, in place of x_s
    direct     the vote on the direct path alone: the head's value and output weights (its OV circuit), the last
               LayerNorm at its own scale, and the readout; NaN where the model does not show its weights

`weights` are the votes as shares, 0 where one is not positive: `cap.mean_head(scores.weights)` is the mean attention of
the heads, each weighted by what it writes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64

from interp.arguments import Whole, keywords, seed_number
from interp.circuit.circuit import Circuit, Head, Model, as_circuit, head_name, heads_of
from interp.circuit.edits import write_pattern
from interp.circuit.runner import Hook, run
from interp.notation import Tokens
from interp.results import Axes, NamedRows, counted, half_width, mean_stderr, provenance

DRAWS = 4  # keys for each sequence and head
MIN_SEQUENCES = 10
ERRORS = 3  # standard errors by which a vote must exceed its control


@dataclass(frozen=True, kw_only=True)
class HeadVote:
    """The vote of one head for the token that it attends to; see the module. Errors are over sequences.

    head                          layer.head
    vote, stderr                  rise of the attended token's logit above those of the other symbols
    copying                       share of the variance of the rises that "is it x_s?" explains
    control_vote, control_stderr  the same vote for the token of another key
    direct, direct_stderr         the vote through the OV circuit and the readout alone; NaN without the weights
    """

    head: str
    vote: float
    stderr: float
    copying: float
    control_vote: float
    control_stderr: float
    direct: float
    direct_stderr: float

    @property
    def copies(self) -> bool:
        """Whether the head votes for what it attends to, beyond its control."""
        spread = math.hypot(self.stderr, self.control_stderr)
        return self.vote > 0 and self.vote - self.control_vote > ERRORS * spread


@dataclass(frozen=True, kw_only=True)
class CopyingScores(NamedRows[HeadVote]):
    """The votes of every match head, found by its name (`scores["1.0"]`).

    votes      a `HeadVote` for each match head
    n          sequences
    success    every head copies
    """

    ROWS, NAME, NOUN = "votes", "head", "head"
    SHOWN = ("head", "vote", "stderr", "control_vote", "copying", "direct")
    DOUBT = "not all heads copy"

    votes: tuple[HeadVote, ...]
    n: int

    @property
    def weights(self) -> Float[np.ndarray, " match"]:
        """The votes as shares that sum to one, 0 where a head does not vote for its token; NaN where none does."""
        positive = np.array([max(0.0, one.vote) for one in self.votes])
        total = float(positive.sum())
        return np.asarray(positive / total if total > 0 else np.full(len(positive), np.nan))

    @property
    def title(self) -> str:
        """How many heads copy."""
        copying = sum(one.copies for one in self.votes)
        return f"votes for the attended token, {self.n} sequences: {copying} of {counted(len(self.votes), 'head')} copy"

    def plot(self, ax: Axes | None = None) -> Axes:
        """The vote of each head beside its control, with 95% intervals."""
        from interp.plotting import INTERVAL_NAME, control_bars, heading, panel

        rows, ax = self.table(), panel(ax)
        reach = (half_width(rows["stderr"], n=self.n), half_width(rows["control_stderr"], n=self.n))
        labels = ("own token", "another key's token")
        control_bars(ax, list(self), rows["vote"], rows["control_vote"], reach=reach, labels=labels)
        ax.set_ylabel(f"logit above other symbols\n({INTERVAL_NAME})")
        ax.set_xlabel("match head")
        return heading(ax, self.title, doubt=self.doubt)


@keywords()
def copying_scores(model: Model, tokens: Tokens, *, seed: Whole = 0) -> CopyingScores:
    """Make each match head attend to single keys at the last query and see which symbols gain.

    Parameters
    ----------
    model    a model of this suite, or a `Circuit`
    tokens   [batch, length] symbols, without BOS; for a next-token model shorter than the context, so that the last
             query is a trained one
    seed     draws the keys

    Returns
    -------
    `CopyingScores`, a row for each match head

    Examples
    --------
        scores = copying_scores(circuit, tokens)
        scores["1.0"].vote, scores["1.0"].copying, scores.weights
    """
    circuit = as_circuit(model)
    circuit.require_match()
    array = circuit.check(tokens)
    if len(array) < MIN_SEQUENCES:
        raise ValueError(f"{len(array)} sequences; votes need at least {MIN_SEQUENCES} for their standard errors")
    generator = torch.Generator().manual_seed(seed := seed_number(seed))
    votes = tuple(_vote(circuit, array, place, generator) for place in circuit.match_heads)
    silent = [one.head for one in votes if not one.copies]
    return CopyingScores(
        votes=votes,
        n=len(array),
        success=not silent,
        message=f"no vote for the attended token beyond its control: {', '.join(silent)}" if silent else "",
        provenance=provenance(seed=seed, checkpoint=circuit.checkpoint),
    )


def _vote(
    circuit: Circuit, tokens: Int64[torch.Tensor, "batch length"], place: Head, generator: torch.Generator
) -> HeadVote:
    """One head's votes over several draws of keys."""
    one = circuit.with_match_heads(place)
    batch, length = tokens.shape
    bos, size = int(circuit.has_bos), (DRAWS, batch)
    keys, others = (circuit.order + torch.randint(length - circuit.order, size, generator=generator) for _ in range(2))
    nothing = torch.zeros(batch, 1, 1, length + bos, dtype=torch.float64)
    base = run(one, tokens, hooks=write_pattern(one, nothing), last_only=True).double()
    effects = []
    for drawn in keys:
        pattern = nothing.scatter(-1, drawn[:, None, None, None] + bos, 1.0)
        effects.append(run(one, tokens, hooks=write_pattern(one, pattern), last_only=True).double() - base)
    moved = torch.stack(effects)
    above = _above_others(moved, tokens.gather(1, keys.T).T)
    vote, stderr = mean_stderr(above.mean(dim=0))
    control, control_stderr = mean_stderr(_above_others(moved, tokens.gather(1, others.T).T).mean(dim=0))
    # The centred indicator of x_s has length (V - 1) / V, and its product with the effects is that times the vote.
    explained = vote**2 * above.numel() * (circuit.vocab - 1) / circuit.vocab
    total = float(((moved - moved.mean(dim=-1, keepdim=True)) ** 2).sum())
    alone = _direct_votes(circuit, tokens, place, keys)
    direct, direct_stderr = mean_stderr([] if alone is None else alone)
    return HeadVote(
        head=head_name(place),
        vote=vote,
        stderr=stderr,
        copying=explained / total if total > 0 else math.nan,
        control_vote=control,
        control_stderr=control_stderr,
        direct=direct,
        direct_stderr=direct_stderr,
    )


def _above_others(
    effects: Float[torch.Tensor, "draw batch vocab"], symbols: Int64[torch.Tensor, "draw batch"]
) -> Float[torch.Tensor, "draw batch"]:
    """The effect on each symbol named, less the mean effect on all others."""
    vocab = effects.shape[-1]
    named = effects.gather(2, symbols[..., None]).squeeze(-1)
    return named - (effects.sum(dim=-1) - named) / (vocab - 1)


def _direct_votes(
    circuit: Circuit,
    tokens: Int64[torch.Tensor, "batch length"],
    place: Head,
    keys: Int64[torch.Tensor, "draw batch"],
) -> Float[np.ndarray, " batch"] | None:
    """Votes through the OV circuit and the readout alone, a mean for every sequence; None where weights are hidden."""
    model, (layer, head) = circuit.model, place
    values_at, scale_at = f"blocks.{layer}.attn.hook_v", "ln_final.hook_scale"
    output, readout = getattr(model.blocks[layer].attn, "W_O", None), _readout(circuit)
    if not isinstance(output, torch.Tensor) or readout is None or values_at not in model.hook_dict:
        return None
    values = torch.zeros(*keys.shape, output.shape[1], dtype=torch.float64)
    scales = torch.ones(len(tokens), 1, dtype=torch.float64)

    def hooks(rows: slice) -> list[Hook]:
        def keep_values(activation: torch.Tensor, hook: Any) -> None:
            share = activation.shape[2] * head // heads_of(model, layer)  # grouped values serve several heads
            drawn = (keys[:, rows] + int(circuit.has_bos)).to(activation.device)
            at = torch.arange(len(activation), device=activation.device)
            values[:, rows] = activation[at, drawn, share].detach().double().cpu()

        def keep_scale(activation: torch.Tensor, hook: Any) -> None:
            scales[rows] = activation[:, -1].detach().double().cpu()

        return [(values_at, keep_values), *([(scale_at, keep_scale)] if scale_at in model.hook_dict else [])]

    run(circuit, tokens, hooks=hooks)
    effects = values @ (output[head].detach().double().cpu() @ readout) / scales
    return np.asarray(_above_others(effects, tokens.gather(1, keys.T).T).mean(dim=0).numpy())


def _readout(circuit: Circuit) -> Float[torch.Tensor, "d_model vocab"] | None:
    """From the last stream to the logits of the symbols, but for the scale of the last LayerNorm."""
    model, symbols = circuit.model, circuit.symbols
    weights, gain = getattr(model, "W_U", None), getattr(getattr(model, "ln_final", None), "w", None)
    if not isinstance(weights, torch.Tensor) or (symbols is not None and symbols.ndim > 1):
        return None
    readout = circuit.of_symbols(weights.detach()).double()
    if isinstance(gain, torch.Tensor):
        readout = gain.detach().double().cpu()[:, None] * readout
    if str(model.cfg.normalization_type).startswith("LN"):  # it subtracts the mean of what is written
        readout = readout - readout.mean(dim=0)
    return readout
