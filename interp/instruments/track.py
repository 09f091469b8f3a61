"""Every head along training: one scan of each model of a series, and its loss.

A model is an object, or the path of one: a checkpoint of `save`, a language model's directory or GGUF file. Paths are
read one at a time, so that a series of large models takes the memory of one. Its step is the one that is given, else
that of the training record, else the last number in its name (`step1000`, `checkpoint-500`), else its place.

Heads are the same ones in all models, whatever role they have there; the picture follows those that have a role at the
end. beta and kappa are the scan's: NaN where the attention is no law of matches. Where the scan's baseline has nearly
all of the attention (fewer nats are left than a match head needs), there is little for a law to explain, and beta is
that of the scores by least squares: for such attention both are the same. Where nothing is left beta is 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float, Int64

from interp.arguments import Whole, keywords, whole_number
from interp.circuit.checkpoint import load
from interp.circuit.circuit import Bos, Circuit, Head, Model, Symbols
from interp.circuit.queries import Query, query_positions
from interp.circuit.runner import next_losses
from interp.hooked.checkpoint import CONFIG_FILE, read_info
from interp.instruments.roles import RoleRules
from interp.instruments.scan_heads import HeadScan, as_scanned, scan_heads
from interp.notation import Tokens
from interp.outside import read_object
from interp.results import Axes, DataFrame, Result, counted, half_width, mean_stderr, provenance

Place: TypeAlias = str | Path

EVEN = 1e-9  # nats that are rounding
PANELS = (
    ("loss", "loss (nats)"),
    ("copy_mass", "copy mass"),
    ("beta", r"$\beta$"),
    ("kappa", r"$\kappa$"),
    ("nats_explained", "explained"),
)


@dataclass(frozen=True, kw_only=True)
class Track(Result):
    """A scan of each model of a series, in order of the steps.

    steps               [model] the step of each model
    loss, loss_stderr   [model] cross-entropy of the next token at the queries, mean over sequences; NaN where none of
                        them has a next token
    scans               the `HeadScan` of each model
    success             some head matches at the end
    """

    DOUBT = "incomplete"  # the measured numbers are valid all the same
    SHOWN = ("step", "loss", "layer", "head", "role", "beta_1", "nats_explained")

    steps: Int64[np.ndarray, " model"]
    loss: Float[np.ndarray, " model"]
    loss_stderr: Float[np.ndarray, " model"]
    scans: tuple[HeadScan, ...]

    @property
    def match_heads(self) -> tuple[Head, ...]:
        """The heads that match in the last model."""
        return self.scans[-1].match_heads

    def copying(self, lag: int) -> list[Head]:
        """The heads that copy a lag in the last model."""
        return self.scans[-1].copying(lag)

    @cached_property
    def copy_mass(self) -> Float[np.ndarray, "model layer head lag"]:
        """Mean attention on each lag."""
        return np.stack([scan.copy_mass for scan in self.scans])

    @cached_property
    def beta(self) -> Float[np.ndarray, "model layer head order"]:
        """beta of every head; NaN where its attention is no law of matches."""
        return np.stack([_beta(scan) for scan in self.scans])

    @cached_property
    def kappa(self) -> Float[np.ndarray, "model layer head"]:
        """kappa of every head; NaN without BOS, and where its attention is no law of matches."""
        return np.stack([scan.kappa for scan in self.scans])

    @cached_property
    def nats_explained(self) -> Float[np.ndarray, "model layer head"]:
        """The share of each head's nats that the law explains; 0 where there is little to explain."""
        return np.stack([np.where(_even(scan), 0.0, scan.nats_explained) for scan in self.scans])

    def table(self) -> DataFrame:
        """One row per model and head: step, loss, loss_stderr, and the columns of `HeadScan.table`."""
        import pandas as pd

        tables = []
        for place, scan in enumerate(self.scans):
            numbers = {name: getattr(self, name)[place] for name in ("loss", "loss_stderr")}
            each = tuple(np.transpose(scan.heads))
            beta = {f"beta_{lag + 1}": values for lag, values in enumerate(self.beta[place][each].T)}
            shares = {"nats_explained": self.nats_explained[place][each]}
            table = scan.table().assign(**beta, **shares, step=self.steps[place], **numbers)
            tables.append(table[["step", *numbers, *table.columns.drop(["step", *numbers])]])
        return pd.concat(tables, ignore_index=True)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Loss, copy mass, beta, kappa and explained share against the step, one above the other in the panel's place.

        Heads are those that have the role in the last model; colours are lags, and bars 95% intervals.
        """
        from interp.plotting import curve, heading, lag_colour, panel

        ax = panel(ax, width=6.0, height=8.0)
        ax.spines[:].set_visible(False)
        ax.set_xticks([])
        ax.set_yticks([])
        last = self.scans[-1]
        lags = range(1, last.order + 1)
        shown = [one for one in PANELS if one[0] != "kappa" or last.bos]
        parts: list[Axes] = []
        for place, (what, words) in enumerate(shown):
            part = ax.inset_axes((0.0, 1.0 - (place + 1) / len(shown), 1.0, 0.8 / len(shown)))
            if parts:
                part.sharex(parts[0])
            parts.append(part)
            part.set_ylabel(words)
            part.tick_params(labelbottom=place == len(shown) - 1)
            if what == "loss":
                curve(part, self.steps, self.loss, reach=half_width(self.loss_stderr, n=last.n), marker=".")
                continue
            values = getattr(self, what)
            for lag in lags if values.ndim == 4 else (1,):
                for at in self.copying(lag) if what == "copy_mass" else self.match_heads:
                    y = values[:, *at] if values.ndim == 3 else values[:, *at, lag - 1]
                    curve(part, self.steps, y, color=lag_colour(lag), marker=".")
        ax.set_xlabel("step", labelpad=16)
        ax.set_ylabel(f"means over {last.n} sequences", labelpad=36)
        return heading(ax, self.title, doubt=self.doubt)

    @property
    def title(self) -> str:
        """The series, and the heads with a role at its end."""
        ends = f"steps {self.steps[0]:,} to {self.steps[-1]:,}" if len(self.steps) > 1 else f"step {self.steps[0]:,}"
        return f"{counted(len(self.steps), 'model')}, {ends}; at the end {self.scans[-1].title}"


@keywords()
def track(
    models: Iterable[Model | Place],
    tokens: Tokens,
    *,
    order: Whole | None = None,
    vocab: Whole | None = None,
    bos: Bos = None,
    symbols: Symbols = None,
    query: Query = "trained",
    rules: RoleRules | None = None,
    steps: Sequence[Whole] | None = None,
) -> Track:
    """Scan every model of a series; the module's docstring says which step each has.

    Parameters
    ----------
    models    HookedTransformers, circuits, or paths, such as `sorted(Path("runs/a").glob("step_*"))`
    tokens    [batch, length] symbols, without BOS, the same for all models
    order     k, how many tokens back contexts are matched; a `Circuit` and a checkpoint contain it and the next three
    vocab     |V|, by default the model's output size
    bos       the id of BOS; True for the id |V|, "first" where the first token serves as one; None without
    symbols   the ids that stand for the symbols, where the model's vocabulary is larger
    query     "last", "all", "trained" or token indices, as in `capture`
    rules     the thresholds of the roles, by default `RoleRules()`
    steps     the step of each model

    Returns
    -------
    `Track`, a scan and a loss for each model

    Examples
    --------
        series = track([foreign, foreign], tokens, order=2, vocab=5, bos=5, steps=(0, 100))
        series.table(), series.beta, series.plot()
    """
    given = None if steps is None else [whole_number(one, name="steps", least=0) for one in steps]
    found = []
    for place, model in enumerate(models):
        circuit = as_scanned(_opened(model), order=order, vocab=vocab, bos=bos, symbols=symbols)
        if given is None:
            step = _step_of(circuit.checkpoint, place)
        elif place < len(given):
            step = given[place]
        else:
            raise ValueError(f"{len(given)} steps for more models")
        scan = scan_heads(circuit, tokens, query=query, rules=rules)
        found.append((step, circuit.checkpoint, scan, _loss(circuit, tokens, query)))
    if not found or (given is not None and len(found) < len(given)):
        raise ValueError(f"{len(found)} models" + ("" if given is None else f" for {len(given)} steps"))
    found.sort(key=lambda one: one[0])
    numbers, places, scans, losses = zip(*found, strict=True)
    if len({scan.heads for scan in scans}) > 1:
        raise ValueError("the models of a series must have the same heads")
    last = scans[-1]
    return Track(
        steps=np.array(numbers),
        loss=np.array([mean for mean, _ in losses]),
        loss_stderr=np.array([error for _, error in losses]),
        scans=scans,
        success=bool(last.match_heads),
        message="" if last.match_heads else last.message,
        provenance=provenance(checkpoint=places[-1], checkpoints=list(places)),
    )


def _opened(model: Any) -> Any:
    """The model, read from its path where it is one."""
    if not isinstance(model, (str, Path)):
        return model
    path = Path(model)
    try:
        language = path.suffix == ".gguf" or "model_type" in read_object(path / CONFIG_FILE)
    except ValueError:
        language = False
    if not language:
        return load(path)
    from interp.language.load import load_language_model

    found = load_language_model(path).model
    found.checkpoint = str(model)
    return found


def _step_of(checkpoint: str | None, place: int) -> int:
    """The step that the training record says, or the name, or the place in the series."""
    if checkpoint is None:
        return place
    try:
        step = (read_info(checkpoint).training or {}).get("step")
    except ValueError:
        step = None
    numbers = re.findall(r"\d+", Path(checkpoint).stem)
    return int(step) if step is not None else int(numbers[-1]) if numbers else place


def _loss(circuit: Circuit, tokens: Tokens, query: Query) -> tuple[float, float]:
    """The loss at the queries that have a next token, and its standard error over sequences."""
    array = circuit.check(tokens)
    queries = query_positions(query, circuit, array.shape[1]) - int(circuit.has_bos)
    queries = queries[(queries >= 0) & (queries < array.shape[1] - 1)]
    if not len(queries):
        return float("nan"), float("nan")
    return mean_stderr(next_losses(circuit, array)[:, queries].mean(dim=1))


def _even(scan: HeadScan) -> Any:
    """[layer, head] whether there is little for a law to explain; False where there is no such head."""
    return scan.nats < scan.rules.min_nats


def _beta(scan: HeadScan) -> Any:
    """[layer, head, lag]"""
    nearly_even = np.where((scan.nats < EVEN)[..., None], 0.0, scan.beta_scores)
    return np.where(_even(scan)[..., None], nearly_even, scan.beta)
