"""Does the prediction depend on the names of the symbols? KL between a model and its relabelings (app:symmetry).

T^(sigma)(x) = sigma^{-1}(T(sigma(x))) renames the symbols, predicts, and renames back (eq:permuted_transformer). A
label-permutation invariant model has KL(T || T^(sigma)) = 0 for every sigma; by theorem:invariance gradient flow keeps
a symmetric start symmetric. Random starts and minibatches break the symmetry. The KL to models trained from other seeds
(`other_models`) is the scale for what is small.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int64

from interp.arguments import Whole, count, keywords, seed_number
from interp.circuit.circuit import Model, as_circuit
from interp.circuit.runner import laws
from interp.digits import plus_minus
from interp.divergence import kl_between
from interp.instruments.given import Models
from interp.notation import Tokens
from interp.results import Axes, DataFrame, Result, half_width, mean_stderr, provenance


@dataclass(frozen=True, kw_only=True)
class LabelSymmetry(Result):
    """KL(T || T^(sigma)) in nats over relabelings and sequences.

    kl, stderr      mean over both; relabelings of one sequence count as one cluster
    max             the largest over all relabelings and sequences
    relabelings     [relabeling, vocab] lists of new names, the identity not among them; `by_relabeling` is the mean KL
                    of each, `worst_kl` the largest of these
    exhaustive      all |V|! - 1 were tried
    seeds_kl, seeds_stderr   mean KL(T || other model), the scale; NaN where no other model was given
    other_models    number of these models
    ratio           kl / seeds_kl
    n               number of sequences
    """

    kl: float
    stderr: float
    max: float
    worst_kl: float
    relabelings: Int64[np.ndarray, "relabeling vocab"]
    by_relabeling: Float[np.ndarray, " relabeling"]
    exhaustive: bool
    seeds_kl: float
    seeds_stderr: float
    ratio: float
    other_models: int
    n: int

    SHOWN = ("between", "kl", "stderr", "max")

    @property
    def title(self) -> str:
        """The mean over the relabelings."""
        count = f"all {len(self.relabelings)}" if self.exhaustive else f"{len(self.relabelings)} sampled"
        kl = f"KL {plus_minus(self.kl, self.stderr)} nats"
        return f"label symmetry on {self.n} sequences, {count} relabelings: {kl}"

    def table(self) -> DataFrame:
        """One row for the relabelings, and one for the other models if any: between, kl, stderr, max, pairs, n."""
        import pandas as pd

        rows = [("relabelings", self.kl, self.stderr, self.max, len(self.relabelings), self.n)]
        if self.other_models:
            rows.append(("seeds", self.seeds_kl, self.seeds_stderr, math.nan, self.other_models, self.n))
        return pd.DataFrame(rows, columns=["between", "kl", "stderr", "max", "pairs", "n"])

    def plot(self, ax: Axes | None = None) -> Axes:
        """KL of every relabeling, largest first, with the mean, and the KL to other models where there are any."""
        from interp.plotting import INTERVAL_NAME, LAG_COLOURS, MAIN_COLOUR, SHUT_OUT, heading, panel

        ax = panel(ax, width=5.6)
        ax.bar(range(len(self.by_relabeling)), np.sort(self.by_relabeling)[::-1], color=LAG_COLOURS[1], linewidth=0)
        levels = [(f"mean {self.kl:.3g}", self.kl, self.stderr, MAIN_COLOUR)]
        if self.other_models:
            levels.append((f"other models {self.seeds_kl:.3g}", self.seeds_kl, self.seeds_stderr, SHUT_OUT))
        for label, level, stderr, colour in levels:
            ax.axhline(level, color=colour, label=label)
            reach = float(half_width(stderr, n=self.n))
            ax.axhspan(level - reach, level + reach, color=colour, alpha=0.15, linewidth=0)
        ax.set_xticks([])
        ax.set_xlabel(f"{len(self.by_relabeling)} relabelings of the symbols, largest KL first")
        ax.set_ylabel(f"KL to the relabeled model\n(nats, {INTERVAL_NAME} of the means)")
        ax.legend(frameon=False, loc="upper right")
        return heading(ax, self.title, doubt=self.doubt)


@keywords()
def label_symmetry(
    model: Model,
    tokens: Tokens,
    *,
    draws: Whole = 120,
    seed: Whole = 0,
    other_models: Models = (),
) -> LabelSymmetry:
    """Compare the model with its relabelings; BOS, where there is one, keeps its name.

    Parameters
    ----------
    model          a model of this suite, or a `Circuit`, of which only order, vocabulary, BOS and symbols are used
    tokens         [batch, length] symbols, without BOS
    draws          relabelings: all of them if there are no more, else this many random ones
    seed           draws the relabelings
    other_models   models of the same shape from other seeds

    Returns
    -------
    `LabelSymmetry`

    Examples
    --------
        symmetry = label_symmetry(model, chains.tokens)
        symmetry.kl, symmetry.stderr, symmetry.max
    """
    circuit = as_circuit(model)
    array = circuit.check(tokens)
    others = [as_circuit(other) for other in other_models]
    for other in others:
        if other.vocab != circuit.vocab:
            raise ValueError(f"other_models must share the vocabulary of {circuit.vocab} symbols, not {other.vocab}")
    draws, seed = count(draws, name="draws"), seed_number(seed)
    relabelings = draw_relabelings(circuit.vocab, draws=draws, rng=np.random.default_rng(seed))
    base = laws(circuit, array)
    values = torch.empty(len(relabelings), array.shape[0], dtype=torch.float64)
    for row, new_names in enumerate(torch.from_numpy(relabelings)):
        # T^(sigma)(x)(m) = T(sigma(x))(sigma(m)): the column of the new name holds the old name's probability.
        values[row] = kl_between(base, laws(circuit, new_names[array])[:, new_names])
    by_relabeling = values.mean(-1).numpy()
    sequences = np.broadcast_to(np.arange(array.shape[0]), values.shape)
    kl, stderr = mean_stderr(values, clusters=sequences)
    between = [kl_between(base, laws(other, other.check(tokens))) for other in others]
    seeds_kl, seeds_stderr = mean_stderr(torch.stack(between).mean(0) if between else [])
    return LabelSymmetry(
        kl=kl,
        stderr=stderr,
        max=float(values.max()),
        worst_kl=float(by_relabeling.max()),
        relabelings=relabelings,
        by_relabeling=by_relabeling,
        exhaustive=len(relabelings) == math.factorial(circuit.vocab) - 1,
        seeds_kl=seeds_kl,
        seeds_stderr=seeds_stderr,
        ratio=kl / seeds_kl if seeds_kl > 0 else math.nan,
        other_models=len(others),
        n=array.shape[0],
        provenance=provenance(seed=seed, checkpoint=circuit.checkpoint),
    )


def draw_relabelings(vocab: int, *, draws: int, rng: np.random.Generator) -> Int64[np.ndarray, "relabeling vocab"]:
    """Permutations other than the identity: all of them if there are no more than `draws`, else distinct random ones.

    >>> draw_relabelings(2, draws=5, rng=np.random.default_rng(0)).tolist()
    [[1, 0]]
    """
    if math.factorial(vocab) - 1 <= draws:
        return np.array(list(itertools.permutations(range(vocab)))[1:], dtype=np.int64)
    found: dict[tuple[int, ...], None] = {}
    while len(found) < draws:
        names = tuple(rng.permutation(vocab).tolist())
        if names != tuple(range(vocab)):
            found[names] = None
    return np.array(list(found), dtype=np.int64)
