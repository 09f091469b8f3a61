"""Where does a model's smoothing come from: partial matches, BOS, or the readout?

Counting exact matches gives probability 0 to a successor that has not been seen. Three sources of smoothing prevent
this, and each can be switched off in the live model, alone and together with the others:

    partial   finite beta: off, the match head keeps only full matches (and BOS), with the model's own scores
    bos       kappa: off, BOS gets no attention and the rest is renormalised
    readout   W_O: off, the law is block 0 of the match head's output, as in the construction. Every block of the final
              stream sums to one, so that a constant in W_O adds a uniform share to the law, without BOS; and W_O may
              read other blocks too.

Where no key is left, the head attends to nothing and has no votes (the floor of the probability readout makes the law
uniform). The readout can be separated only where it is linear in the votes: under the probability readout of a
construction or a disentangled model. Elsewhere that source is reported as not applicable.

KL(truth || prediction) is floored as everywhere (`divergence`). Without smoothing the floor is needed often, so that
the size of the changes depends on it; `floored` says how often.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float

from interp.arguments import keywords
from interp.circuit.circuit import Model
from interp.circuit.edits import write_pattern
from interp.circuit.experiment import Experiment
from interp.circuit.law import full_matches, keep_keys
from interp.circuit.runner import Hooks, last_activations, law_of, no_hooks
from interp.divergence import Divergence
from interp.fitting.regression import slope_through_origin
from interp.hooked.transformer import MATCH, not_linear
from interp.instruments.given import NextLaw
from interp.notation import Tokens
from interp.results import Axes, DataFrame, NamedRows, half_width, jsonable, mean_stderr, provenance, rows_table

SOURCES = ("partial", "bos", "readout")
LINEAR_BELOW = 1e-2  # nats: the axis of a plot is linear up to here, then logarithmic


@dataclass(frozen=True, kw_only=True)
class Switched:
    """The model with some sources off.

    off            which sources are off, joined by "+"; "none" is the model as it is
    kl, kl_stderr  mean KL(truth || prediction)
    change, change_stderr   mean increase over the model as it is; the error is paired by sequence
    floored        share of sequences where the floor was needed
    empty          share of sequences where the match head has nothing left to attend to
    """

    off: str
    kl: float
    kl_stderr: float
    change: float
    change_stderr: float
    floored: float
    empty: float


@dataclass(frozen=True, kw_only=True)
class SourceShare:
    """One source's part in the increase from everything on to everything off.

    source         its name: "partial", "bos" or "readout"
    contribution, stderr   its Shapley value in nats: the mean increase when it is switched off, over all orders of
                   switching; contributions add up to the whole increase. Sources can replace each other: one can have a
                   large part in the whole, although switching it off alone changes little.
    share          contribution over the whole increase; NaN where there is no increase
    applies        False where the model does not have this source, or it cannot be isolated; `reason` says why
    """

    source: str
    contribution: float
    stderr: float
    share: float
    applies: bool
    reason: str


@dataclass(frozen=True, kw_only=True)
class SmoothingSource(NamedRows[Switched]):
    """The part of each source in the smoothing; `source["partial+bos"]` is the model with these two off.

    switched         the model with every combination of applicable sources off
    shares           each source's part
    readout_uniform, readout_uniform_stderr   1 - a, where the law is regressed on block 0 of the match head's output:
                     p - 1/|V| = a (z - 1/|V|). It is the uniform share that the readout mixes in (0 for the
                     construction); NaN where the readout cannot be separated
    readout_r2       share of the law's variance that this one number explains
    n                sequences
    """

    ROWS, NAME, NOUN = "switched", "off", "combination"
    FIRST = (("change", "change"),)
    NUMBERS = ("readout_uniform", "readout_r2")
    SHOWN = ("off", "kl", "change", "change_stderr", "contribution", "share", "floored")

    switched: tuple[Switched, ...]
    shares: tuple[SourceShare, ...]
    readout_uniform: float
    readout_uniform_stderr: float
    readout_r2: float
    n: int

    @property
    def title(self) -> str:
        """What the sources cost together."""
        bare = self.switched[-1]
        whole = f"KL {bare.change:+.3f} nats with all off (floor needed in {bare.floored:.0%})"
        return f"sources of smoothing on {self.n} sequences: {whole}"

    def record(self) -> dict[str, Any]:
        """The fields, after the contribution of each source and the change of KL in each combination."""
        return {
            "contribution": {part.source: jsonable(part.contribution) for part in self.shares},
            **super().record(),
        }

    def table(self) -> DataFrame:
        """One row per combination of sources that are off; the columns are the fields of `Switched`.

        A source switched off alone also has its `contribution` and `share`. A source that does not apply has a row
        of its own, without numbers, and with the `reason`.
        """
        import pandas as pd

        parts = rows_table(self.shares, SourceShare).rename(columns={"source": "off"}).astype({"reason": str})
        shown = rows_table(self.switched).merge(parts[["off", "contribution", "share", "reason"]], how="left")
        absent = parts.loc[~parts["applies"], ["off", "reason"]]
        return pd.concat([shown.fillna({"reason": ""}), absent], ignore_index=True)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Rise of KL when each source is switched off alone, and its part in the whole rise, with 95% intervals."""
        from interp import plotting

        names = [one.source for one in self.shares]
        rows = self.table().set_index("off").loc[names]
        ax = plotting.control_bars(
            plotting.panel(ax, width=6.4),
            [plotting.SOURCE_NAMES[one.source] + ("" if one.applies else "\n(does not apply)") for one in self.shares],
            rows["change"],
            rows["contribution"],
            reach=(
                half_width(rows["change_stderr"], n=self.n),
                half_width([one.stderr for one in self.shares], n=self.n),
            ),
            labels=("switched off\nalone", "part in the whole\n(Shapley value)"),
            across=True,
        )
        plotting.signed_log(ax, linear_below=LINEAR_BELOW)
        scale = f"nats, {plotting.INTERVAL_NAME}; logarithmic beyond ±{LINEAR_BELOW:g}"
        ax.set_xlabel(f"rise of KL(truth || prediction)\n({scale})")
        return plotting.heading(ax, self.title, doubt=self.doubt)


@keywords()
def smoothing_source(model: Model, tokens: Tokens, *, next_law: NextLaw) -> SmoothingSource:
    """Switch the sources of smoothing off, alone and together; the module's docstring says how.

    The mask of a key decides what is a partial match, not beta: no fit is needed.

    Parameters
    ----------
    model      a model of this suite, or a `Circuit`
    tokens     [batch, length] symbols, without BOS
    next_law   [batch, vocab] the true law of the token after each sequence

    Returns
    -------
    `SmoothingSource`, a row for each combination of sources that are off

    Examples
    --------
        source = smoothing_source(model, chains.tokens, next_law=chains.next_law)
        source.table(), source.shares
    """
    trial = Experiment(model, tokens, next_law=next_law)
    circuit = trial.circuit
    reasons = {
        "partial": "",
        "bos": "" if circuit.has_sink else "the model has no BOS",
        "readout": not_linear(circuit.model),
    }
    sources = [source for source in SOURCES if not reasons[source]]
    sets = [off for size in range(len(sources) + 1) for off in itertools.combinations(sources, size)]
    losses: dict[frozenset[str], torch.Tensor] = {}
    switched = []
    for off in sets:
        divergence, empty = _switched_off(trial, off)
        losses[frozenset(off)] = divergence.values
        change, change_stderr = mean_stderr(divergence.values - trial.divergence.values)
        switched.append(
            Switched(
                off="+".join(off) or "none",
                kl=divergence.mean,
                kl_stderr=divergence.stderr,
                change=change,
                change_stderr=change_stderr,
                floored=divergence.floored,
                empty=empty,
            )
        )
    uniform, uniform_stderr, r2 = (math.nan,) * 3 if reasons["readout"] else _readout_line(trial)
    return SmoothingSource(
        switched=tuple(switched),
        shares=tuple(_share(source, sources, losses, reason=reasons[source]) for source in SOURCES),
        readout_uniform=uniform,
        readout_uniform_stderr=uniform_stderr,
        readout_r2=r2,
        n=len(trial.tokens),
        provenance=provenance(checkpoint=circuit.checkpoint),
    )


def _switched_off(trial: Experiment, off: tuple[str, ...]) -> tuple[Divergence, float]:
    """KL of the model with these sources off, and the share of sequences where no key is left."""
    kept = torch.ones_like(trial.masks, dtype=torch.bool)
    if "partial" in off:  # early keys go with the partial matches
        kept = full_matches(trial.masks, order=trial.circuit.order, bos=trial.circuit.has_sink)
    if "bos" in off:
        kept[..., 0] = False
    pattern = keep_keys(trial.scores, kept[:, None])
    laws = trial.base
    if "readout" in off:
        laws = law_of_shares(trial, token_votes(trial, final_stream(trial, write_pattern(trial.circuit, pattern))))
    elif off:
        laws = law_of(trial.write(pattern, edit="+".join(off)))
    return trial.kl(laws), float((pattern.sum(-1) == 0).all(1).double().mean())


def final_stream(trial: Experiment, hooks: Hooks = no_hooks) -> Float[torch.Tensor, "batch d_model"]:
    """What the readout reads at the last query."""
    end = f"{MATCH}.hook_resid_post"
    (final,) = last_activations(trial.circuit, trial.tokens, end, hooks=hooks, last_only=True, stream=trial.stream)
    return final


def token_votes(trial: Experiment, stream: Float[torch.Tensor, "batch d_model"]) -> Float[torch.Tensor, "batch vocab"]:
    """Block 0 of the match head's output."""
    start = trial.circuit.model.config.blocks * trial.circuit.vocab
    return stream[:, start : start + trial.circuit.vocab]


def law_of_shares(trial: Experiment, shares: Float[torch.Tensor, "batch vocab"]) -> Float[torch.Tensor, "batch vocab"]:
    """The probability readout: sums cut at zero, with its floor, normalised."""
    kept = torch.relu(shares) + trial.circuit.model.config.floor
    return law_of(torch.log(kept / kept.sum(-1, keepdim=True)).to(trial.logits))


def _readout_line(trial: Experiment) -> tuple[float, float, float]:
    """1 - a with its standard error, and R2, for the line p - 1/|V| = a (z - 1/|V|) through the readout."""
    even, votes = 1 / trial.circuit.vocab, token_votes(trial, final_stream(trial)).double()
    line = slope_through_origin((votes - even).numpy(), (trial.base - even).numpy())
    return (1 - line.slope, line.stderr, line.r2) if math.isfinite(line.r2) else (math.nan, math.nan, math.nan)


def _share(source: str, sources: list[str], values: dict[frozenset[str], torch.Tensor], *, reason: str) -> SourceShare:
    """The Shapley value of one source."""
    contribution = stderr = share = math.nan
    if not reason:
        others = [other for other in sources if other != source]
        per_sequence = torch.zeros_like(values[frozenset()])
        for size in range(len(others) + 1):
            weight = math.factorial(size) * math.factorial(len(others) - size) / math.factorial(len(sources))
            for already in map(frozenset, itertools.combinations(others, size)):
                per_sequence += weight * (values[already | {source}] - values[already])
        contribution, stderr = mean_stderr(per_sequence)
        whole = float((values[frozenset(sources)] - values[frozenset()]).mean())
        share = contribution / whole if whole > 0 else math.nan
    return SourceShare(
        source=source, contribution=contribution, stderr=stderr, share=share, applies=not reason, reason=reason
    )
