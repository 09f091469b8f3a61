"""What an analysis is given and gives back: a `Subject` (one loaded checkpoint), a `Study` (a table of rows).

    def analyse(subject: Subject, options: argparse.Namespace) -> Result      KIND = "checkpoint"
    def survey(subjects: list[Subject], options) -> Study                     KIND = "zoo"
    def study(options) -> Study                                               KIND = "study"

Opening a subject reads `config.json` only. Its model and its held-out chains are made when first asked for,
so that a bad path fails at once and without torch.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from interp.chains.priors import ChainBatch, Prior
    from interp.hooked.checkpoint import CheckpointInfo
    from interp.hooked.transformer import InductionTransformer

DEFAULT_BATCH = 512
DEFAULT_ETA = 5.0  # both levels of the paper's hierarchical task


@dataclass(frozen=True, kw_only=True)
class Subject:
    """One checkpoint under study, with held-out sequences from the prior it was trained on.

    path      the directory, as the user wrote it
    info      its `config.json`
    options   batch and seed of the held-out sequences, and `prior` where the user gave one
    """

    path: Path
    info: CheckpointInfo
    options: argparse.Namespace

    @classmethod
    def open(cls, path: str | Path, options: argparse.Namespace) -> Subject:
        """Read the checkpoint's description; a `ValueError` names what is wrong with it."""
        from interp.hooked.checkpoint import read_info

        info = read_info(path)
        if not isinstance(info.model, dict):
            raise ValueError(f"{path}: the model config must be a JSON object")
        # `load` checks the config in full, but needs torch; these are what `applies` and the chains rely on.
        for key, kind in (("family", str), ("order", int), ("vocab", int), ("length", int), ("bos", bool)):
            if not isinstance(info.model.get(key), kind):
                raise ValueError(
                    f"{path}: {key} in the model config must be {kind.__name__}, got {info.model.get(key)!r}"
                )
        if info.training is not None and not isinstance(info.training, dict):
            raise ValueError(f"{path}: the training record must be a JSON object or null")
        return cls(path=Path(path), info=info, options=options)

    @property
    def name(self) -> str:
        """The directory's own name, short enough for tables."""
        return self.path.resolve().name

    def summary(self) -> dict[str, Any]:
        """What it is, for the rows of a table: see `summary_of`."""
        return summary_of(self.info.model, self.info.training, prior=self.prior)

    @cached_property
    def model(self) -> InductionTransformer:
        """The model, loaded on first use."""
        from interp.hooked.checkpoint import load

        return load(self.path)

    @cached_property
    def prior(self) -> Prior:
        """What --prior says, else the prior of the training record, else the paper's hierarchical one."""
        from interp.chains.priors import parse_prior, prior_from_dict

        order, vocab = self.info.model["order"], self.info.model["vocab"]
        chosen = getattr(self.options, "prior", None)
        recorded = (self.info.training or {}).get("prior")
        if chosen is not None:
            prior = parse_prior(chosen, order=order, vocab=vocab)
        elif recorded is not None:
            prior = prior_from_dict(recorded)
        else:
            prior = parse_prior("hierarchical", order=order, vocab=vocab)
        if (prior.order, prior.vocab) != (order, vocab):
            raise ValueError(
                f"{self.path}: the model has order {order} and vocabulary {vocab}, "
                f"its data order {prior.order} and vocabulary {prior.vocab}"
            )
        return prior

    @cached_property
    def chains(self) -> ChainBatch:
        """Held-out sequences at the model's length, with every true law known."""
        return self.prior.sample(
            batch=self.options.batch,
            length=self.info.model["length"],
            seed=self.options.seed,
            method="explicit",
        )


def summary_of(model: dict[str, Any], training: dict[str, Any] | None, *, prior: Prior) -> dict[str, Any]:
    """The few words by which figures and readers tell checkpoints apart; None where there is no training record."""
    record = training or {}
    return {
        "family": model["family"],
        "prior": "independent" if prior.independent else "hierarchical",
        "bos": model["bos"],
        "length": model["length"],
        "order": model["order"],
        "vocab": model["vocab"],
        "seed": record.get("seed"),
        "protocol": record.get("protocol"),
        "init": record.get("init"),
    }


@dataclass(frozen=True, kw_only=True)
class Study:
    """A table with its origin.

    rows        JSON-able dicts with the same keys
    provenance  where the numbers come from, as `interp.provenance` makes it
    shown       the columns to print in a terminal, in this order; all that fit, if empty
    notes       lines to print below the table: what was found
    failures    what makes the command exit with 1, one line each; empty if all is well
    """

    rows: Sequence[dict[str, Any]]
    provenance: dict[str, Any] = field(repr=False)
    shown: Sequence[str] = ()
    notes: Sequence[str] = ()
    failures: Sequence[str] = ()

    def table(self) -> pd.DataFrame:
        """The rows as a DataFrame; vectors become columns, larger arrays are left to the JSON."""
        import pandas as pd

        return pd.DataFrame(flat_rows(self.rows))


MAX_VECTOR = 16


def flat_rows(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of scalars: `beta: [x, y]` becomes beta_1, beta_2, `a: {b: x}` becomes a.b; bigger arrays go."""
    return [_flat(row) for row in rows]


def _flat(row: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in row.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            if key != "provenance":
                flat.update(_flat(value, f"{name}."))
        elif isinstance(value, (list, tuple)):
            scalars = not any(isinstance(item, (list, tuple, dict)) for item in value)
            if scalars and 0 < len(value) <= MAX_VECTOR:
                flat.update({f"{name}_{place}": item for place, item in enumerate(value, start=1)})
        else:
            flat[name] = value
    return flat
