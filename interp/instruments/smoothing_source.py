"""Where does a model's smoothing come from: partial matches, BOS, or the readout?

    source = smoothing_source(model, chains.tokens, next_law=chains.next_law)
    source.table(), source.shares

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
import textwrap
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float

from interp.arguments import Number
from interp.circuit.circuit import Circuit, as_circuit
from interp.circuit.edits import MatchReader, write_pattern
from interp.circuit.law import check_next_law, full_matches, keep_keys, key_masks
from interp.circuit.runner import Hook, Hooks, run, stream_before_match
from interp.circuit.runner import laws as laws_of
from interp.divergence import KL_FLOOR, check_floor, kl_divergence
from interp.fitting.regression import slope_through_origin
from interp.hooked.transformer import MATCH, InductionTransformer, not_linear
from interp.notation import Tokens
from interp.results import NamedRows, half_width, jsonable, mean_stderr, provenance, row_named

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

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
    floor, n         the floor of the KL, and the number of sequences
    """

    ROWS, NAME, NOUN = "switched", "off", "combination"

    switched: tuple[Switched, ...]
    shares: tuple[SourceShare, ...]
    readout_uniform: float
    readout_uniform_stderr: float
    readout_r2: float
    floor: float
    n: int

    def share(self, source: str) -> SourceShare:
        """The part of one source."""
        return row_named(self.shares, source, by="source", noun="source")

    def record(self) -> dict[str, Any]:
        """The fields, after the contribution of each source and the change of KL in each combination."""
        contribution = {part.source: jsonable(part.contribution) for part in self.shares}
        change = {row.off: row.change for row in self.switched}
        return {"contribution": contribution, "change": change, **super().record()}

    def table(self) -> pd.DataFrame:
        """One row per combination of sources that are off; the columns are the fields of `Switched`.

        A source switched off alone also has its `contribution` and `share`. A source that does not apply has a row
        of its own, without numbers, and with the `reason`.
        """
        import pandas as pd

        names = [field.name for field in fields(Switched)]
        rows: list[dict[str, Any]] = []
        by_source = {row.source: row for row in self.shares}
        for row in self.switched:
            values = {name: getattr(row, name) for name in names}
            part = by_source.get(row.off)
            values |= {
                "contribution": part.contribution if part else math.nan,
                "share": part.share if part else math.nan,
                "reason": "",
            }
            rows.append(values)
        rows += [{"off": part.source, "reason": part.reason} for part in self.shares if not part.applies]
        return pd.DataFrame(rows, columns=[*names, "contribution", "share", "reason"])

    def plot(self, ax: Axes | None = None) -> Axes:
        """Rise of KL when each source is switched off alone, and its part in the whole rise, with 95% intervals."""
        from matplotlib.patches import Patch

        from interp.plotting import (
            INTERVAL_NAME,
            SOURCE_COLOURS,
            SOURCE_NAMES,
            grouped_bars,
            heading,
            legend_beside,
            panel,
            signed_log,
        )

        alone = [self[part.source] if part.applies else None for part in self.shares]
        shades = [SOURCE_COLOURS[part.source] for part in self.shares]
        ax = panel(ax, width=6.4)
        grouped_bars(
            ax,
            [SOURCE_NAMES[part.source] for part in self.shares],
            {
                "alone": np.array([math.nan if row is None else row.change for row in alone]),
                "part": np.array([part.contribution for part in self.shares]),
            },
            reach={
                "alone": half_width([math.nan if row is None else row.change_stderr for row in alone], n=self.n),
                "part": half_width([part.stderr for part in self.shares], n=self.n),
            },
            colours={"alone": shades, "part": [f"{shade}70" for shade in shades]},
            across=True,
        )
        for place, part in enumerate(self.shares):
            if not part.applies:
                words = textwrap.fill(f"does not apply: {part.reason}", 44)
                ax.annotate(
                    words, (0.02, place), xycoords=("axes fraction", "data"), va="center", color="#7f7f7f",
                    bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0},
                )  # fmt: skip
        signed_log(ax, linear_below=LINEAR_BELOW)
        ax.set_xlabel(f"rise of KL(truth || prediction)\n(nats, {INTERVAL_NAME}; logarithmic beyond ±{LINEAR_BELOW:g})")
        looks = {"switched off\nalone": "", "part in the whole\n(Shapley value)": "70"}  # a colour's end is its opacity
        legend_beside(ax, handles=[Patch(facecolor=f"#555555{end}", label=name) for name, end in looks.items()])
        whole = self.switched[-1]
        title = f"sources of smoothing: KL {whole.change:+.3f} nats with all off (floor needed in {whole.floored:.0%})"
        return heading(ax, title, doubt=self.doubt)

    def __str__(self) -> str:
        base, bare = self.switched[0], self.switched[-1]
        lines = [
            f"Sources of smoothing on {self.n} sequences: KL {base.kl:.4f} ± {base.kl_stderr:.4f} nats, "
            f"{bare.change:+.4f} with all off (floor needed in {bare.floored:.0%})"
        ]
        for part in self.shares:
            if part.applies:
                alone = self[part.source]
                lines.append(
                    f"  {part.source:8} off alone {alone.change:+.4f} ± {alone.change_stderr:.4f}; "
                    f"part in the whole (Shapley value) {part.contribution:+.4f} ± {part.stderr:.4f}"
                )
            else:
                lines.append(f"  {part.source:8} not applicable: {part.reason}")
        if math.isfinite(self.readout_uniform):
            lines.append(
                f"  the readout mixes in {self.readout_uniform:.4f} ± {self.readout_uniform_stderr:.4f} of the "
                f"uniform law (R2 {self.readout_r2:.3f})"
            )
        return "\n".join([*lines, *self.remarks()])


def smoothing_source(
    model: Any,
    tokens: Tokens,
    *,
    next_law: Any,
    floor: Number = KL_FLOOR,
    checkpoint: str | None = None,
) -> SmoothingSource:
    """Switch the sources of smoothing off, alone and together; the module's docstring says how.

    The mask of a key decides what is a partial match, not beta: no fit is needed.
    """
    circuit = as_circuit(model)
    array = circuit.check(tokens)
    truth = check_next_law(next_law, array, vocab=circuit.vocab)
    floor = check_floor(floor, vocab=circuit.vocab)
    reasons = _reasons_against(circuit)
    sources = [source for source in SOURCES if not reasons[source]]
    reader = MatchReader(circuit)
    base = laws_of(circuit, array, hooks=reader.hooks, last_only=True)
    scores = reader.scores
    masks = key_masks(array, order=circuit.order, bos=circuit.has_bos)
    stream = stream_before_match(circuit, array)
    values: dict[frozenset[str], torch.Tensor] = {}
    switched = []
    for size in range(len(sources) + 1):
        for off in itertools.combinations(sources, size):
            kept = _visible(masks, order=circuit.order, bos=circuit.has_sink, off=off)
            rows = keep_keys(scores, kept[:, None])
            laws = base if not off else _laws(circuit, array, rows, off=off, stream=stream)
            divergence = kl_divergence(truth, laws, floor=floor)
            values[frozenset(off)] = divergence.values
            change, change_stderr = mean_stderr(divergence.values - values[frozenset()])
            switched.append(
                Switched(
                    off="+".join(off) or "none",
                    kl=divergence.mean,
                    kl_stderr=divergence.stderr,
                    change=change,
                    change_stderr=change_stderr,
                    floored=divergence.floored,
                    empty=float((rows.sum(-1) == 0).all(-1).double().mean()),
                )
            )
    uniform, uniform_stderr, r2 = _readout_line(circuit, array, base, applies=not reasons["readout"])
    return SmoothingSource(
        switched=tuple(switched),
        shares=tuple(_share(source, sources, values, reason=reasons[source]) for source in SOURCES),
        readout_uniform=uniform,
        readout_uniform_stderr=uniform_stderr,
        readout_r2=r2,
        floor=floor,
        n=array.shape[0],
        success=True,
        message="",
        provenance=provenance(checkpoint=checkpoint),
    )


def _reasons_against(circuit: Circuit) -> dict[str, str]:
    """Why a source cannot be switched off in this model; empty where it can."""
    model = circuit.model
    reasons = dict.fromkeys(SOURCES, "")
    if not circuit.has_sink:
        reasons["bos"] = "the model has no BOS"
    reasons["readout"] = not_linear(model)
    return reasons


def _visible(masks: torch.Tensor, *, order: int, bos: bool, off: tuple[str, ...]) -> torch.Tensor:
    """Which keys the match head may still attend to. Early keys are switched off together with partial matches."""
    if "partial" in off:
        return full_matches(masks, order=order, bos=bos and "bos" not in off)
    kept = torch.ones_like(masks, dtype=torch.bool)
    if "bos" in off:
        kept[:, 0] = False
    return kept


def _laws(
    circuit: Circuit,
    tokens: torch.Tensor,
    rows: torch.Tensor,
    *,
    off: tuple[str, ...],
    stream: torch.Tensor | None,
) -> Float[torch.Tensor, "batch vocab"]:
    """Predictions with the match head's attention overwritten, through the model's own or the pure readout."""
    attention = write_pattern(circuit, rows)
    pure = _read_votes(circuit) if "readout" in off else None

    def hooks(part: slice) -> list[Hook]:
        return attention(part) + ([] if pure is None else pure(part))

    return laws_of(circuit, tokens, hooks=hooks, last_only=True, stream=stream)


def _read_votes(circuit: Circuit, kept: list[torch.Tensor] | None = None) -> Hooks:
    """Hooks that read block 0 of the match head's output and predict it; with `kept` they only collect it."""
    model = circuit.model
    assert isinstance(model, InductionTransformer)
    start, vocab = model.config.blocks * model.config.vocab, model.config.vocab
    votes: list[torch.Tensor] = [] if kept is None else kept

    def read(stream: torch.Tensor, hook: Any) -> None:
        votes.append(stream[:, -1, start : start + vocab].detach().clone())

    def predict(logits: torch.Tensor, hook: Any) -> torch.Tensor:
        shares = torch.relu(votes.pop()) + model.config.floor
        edited = logits.clone()
        edited[:, -1] = torch.log(shares / shares.sum(-1, keepdim=True))
        return edited

    reading: Hook = (f"{MATCH}.hook_resid_post", read)
    return lambda part: [reading] if kept is not None else [reading, ("unembed.hook_out", predict)]


def _readout_line(
    circuit: Circuit, tokens: torch.Tensor, laws: torch.Tensor, *, applies: bool
) -> tuple[float, float, float]:
    """1 - a with its standard error, and R2, for the line p - 1/|V| = a (z - 1/|V|) through the readout."""
    if not applies:
        return math.nan, math.nan, math.nan
    kept: list[torch.Tensor] = []
    run(circuit, tokens, hooks=_read_votes(circuit, kept), last_only=True)
    votes = torch.cat(kept).cpu().double() - 1 / circuit.vocab
    target = laws - 1 / circuit.vocab
    line = slope_through_origin(votes.numpy(), target.numpy())
    return (1 - line.slope, line.stderr, line.r2) if math.isfinite(line.r2) else (math.nan, math.nan, math.nan)


def _share(source: str, sources: list[str], values: dict[frozenset[str], torch.Tensor], *, reason: str) -> SourceShare:
    if reason:
        return SourceShare(
            source=source,
            contribution=math.nan,
            stderr=math.nan,
            share=math.nan,
            applies=False,
            reason=reason,
        )
    others = [other for other in sources if other != source]
    per_sequence = torch.zeros_like(values[frozenset()])
    for size in range(len(others) + 1):
        weight = math.factorial(size) * math.factorial(len(others) - size) / math.factorial(len(sources))
        for already in itertools.combinations(others, size):
            off = frozenset(already)
            per_sequence += weight * (values[off | {source}] - values[off])
    contribution, stderr = mean_stderr(per_sequence)
    whole = float((values[frozenset(sources)] - values[frozenset()]).mean())
    return SourceShare(
        source=source,
        contribution=contribution,
        stderr=stderr,
        share=contribution / whole if whole > 0 else math.nan,
        applies=True,
        reason="",
    )
