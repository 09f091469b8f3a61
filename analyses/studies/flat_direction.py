"""The start decides what the weights look like. Does the loss see it?

Models of one task (hierarchical prior with BOS, annealed protocol) whose copy heads started at random, or with a bias
of 3 to 40 on their lags: all below the zoo, and in the zoos inside it. Three questions:

start    each trained model, compared with the hard and with the random start of its seed on the same sequences
line     points between these two, copy heads in the order of lags. Two ways: `weights` is straight in every weight (and
         so in the heads' log-attention), `reads` in the copy heads' attention and in what the match head reads of it
         (`models.families.disentangled.between`)
frozen   trained with one entry of each copy head's relative bias kept at its start: copies_bos is the one at BOS's
         distance from the last query, which no other query uses; copies_first, its neighbour, is the control

    python -m analyses flat_direction
    python -m analyses flat_direction --lengths 64 --zoo runs/mine --json

point             the share of the hard end
kl                KL(truth || prediction) in nats; over_hard, over_random: less that of an end
copy, last        each lag's copy head: its attention on the lag, mean over queries; at the last query
bos               the same head's attention on BOS at the last query
bos_equal, bos_other   the same where the last two tokens are equal, and where they are not
block, aligned    identity coefficient of each lag's aligned block of W_A; share of W_A in the aligned blocks
beta, kappa, r2   soft matching fitted to the scores of the last query
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import interp as ip
from analyses.running.ask import Ask
from analyses.running.cache import Cache
from analyses.running.options import ZooOptions, option
from analyses.running.subject import Subject, find_subjects
from analyses.running.table import Table, gathered
from models.families.registry import find_family

HARD, RANDOM = "copy(40)", "random(0.3)"  # the ends of a line
POINTS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0)
SHOWN = (
    "question", "family", "init", "freeze", "way", "point", "length", "seed", "kl", "over_hard", "over_hard_stderr",
    "copy_1", "last_1", "block_1", "block_2", "beta_1", "beta_2",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Options(ZooOptions):
    batch: int = option(20_000, "sequences for the KL (default: %(default)s)", metavar="N", least=2)
    fitted: int = option(512, "of these, sequences that heads are read on (default: %(default)s)", metavar="N", least=2)
    lengths: tuple[int, ...] = option((32, 64), "lengths (default: %(default)s)", metavar="T", least=4)


ASK = Ask(cost=15.0)


class Run(NamedTuple):
    """What tells one run from another, as its training record says it: folders do not matter.

    Models are compared that share `size`.
    """

    length: int
    order: int
    vocab: int
    family: str
    init: str
    freeze: str
    seed: int

    @property
    def size(self) -> str:
        return f"T={self.length} k={self.order} |V|={self.vocab}"


def run_of(subject: Subject) -> Run | None:
    """The run; None unless it is an annealed one of the task, with its family's own readout and BOS vector."""
    model, record = subject.model_config, subject.training
    family = find_family(model["family"])
    vector = family.bos_vectors[0]
    if (
        family.analytic
        or record["prior"]["kind"] != "hierarchical"
        or not model["bos"]
        or record.get("protocol") != "annealed"
        or "init" not in record
        or model["readout"] != family.readouts[0]
        or record.get("bos_vector", vector) != vector
    ):
        return None
    size = (model["length"], model["order"], model["vocab"])
    return Run(*size, family.name, record["init"], record.get("freeze", ""), record["seed"])


def runs_of(options: Options) -> dict[Run, Subject]:
    """The runs below the zoo and in the zoos inside it; of equal ones the first."""
    from models.running.zoo import find_zoos

    zoos = [options.zoo, *find_zoos(options.zoo)] if options.zoo.is_dir() else []
    found: dict[Run, Subject] = {}
    for subject in (one for zoo in zoos for one in find_subjects(zoo)):
        run = run_of(subject)
        if run is not None and run.length in options.lengths:
            found.setdefault(run, subject)
    return dict(sorted(found.items()))


def weights(options: Options) -> dict[str, str]:
    """The runs that are read; a study is keyed by the zoo, but not by the zoos inside it."""
    return {str(run): subject.digest for run, subject in runs_of(options).items()}


def pieces(options: Options) -> list[str]:
    """Each size that runs have, shortest first."""
    return list(dict.fromkeys(run.size for run in runs_of(options)))


def study_piece(options: Options, piece: str, cache: Cache) -> Table:
    """All models of one size, and the points between them, on the same sequences."""
    subjects = {run: subject for run, subject in runs_of(options).items() if run.size == piece}
    prior = next(iter(subjects.values())).prior
    chains = prior.sample(
        batch=options.batch, length=next(iter(subjects)).length, seed=options.seed, method="collapsed"
    )
    seen = {run: look(subject.model, chains, options) for run, subject in subjects.items()}
    rows = []
    for run, found in seen.items():
        start = run._replace(init=RANDOM, freeze="")
        ends = {"over_hard": seen.get(run._replace(init=HARD, freeze="")), "over_random": seen.get(start)}
        place = {"question": "frozen" if run.freeze else "start", **run._asdict(), "way": None, "point": None}
        rows.append({**place, **found.columns(ends)})
        hard, random = ends.values()
        if found is hard and random is not None and find_family(run.family).blocks:
            for way, point, model in between(subjects[start].model, subjects[run].model, lags=(random.lags, hard.lags)):
                place = {**place, "question": "line", "init": None, "way": way, "point": point}
                rows.append({**place, **look(model, chains, options).columns(ends)})
    return Table(rows=rows, provenance={"priors": [prior.to_dict()]})


def between(start: Any, end: Any, *, lags: Sequence[Sequence[int]]) -> Iterator[tuple[str, float, Any]]:
    """Points of both ways from one model to the other: (way, share of the end, model); `lags` of their copy heads."""
    from models.families.disentangled import weights as disentangled
    from models.families.disentangled.between import by_reads, in_lag_order, straight

    first, last = (
        in_lag_order(start.config, disentangled.from_hooked(model), lags=mine)
        for model, mine in zip((start, end), lags, strict=True)
    )
    for way, point_at in (("weights", straight), ("reads", by_reads)):
        for point in POINTS:
            flat = point_at(start.config, first, last, point)
            yield way, point, disentangled.to_hooked(start.config, flat.astype(start.config.dtype))


@dataclass(frozen=True, kw_only=True)
class Look:
    """KL of each sequence, the lag of each copy head, and the columns of the table that need no other model."""

    losses: np.ndarray
    lags: tuple[int, ...]
    looks: dict[str, Any]

    def columns(self, ends: Mapping[str, Look | None]) -> dict[str, Any]:
        """The columns of its row: KL, and KL less that of each end there is, on the same sequences."""
        found: dict[str, Any] = {}
        found["kl"], found["kl_stderr"] = ip.mean_stderr(self.losses)
        for name, end in ends.items():
            over = (None, None) if end is None else ip.mean_stderr(self.losses - end.losses)
            found[name], found[f"{name}_stderr"] = over
        return {**found, **self.looks, "n": len(self.losses)}


def look(model: Any, chains: ip.ChainBatch, options: Options) -> Look:
    """KL on all sequences; copy heads, blocks and betas on the first of them."""
    from models.training.trainers import fast_predict

    tokens = chains.tokens[: options.fitted]
    cap = ip.capture(model, tokens, copies=True)
    heads, fit = ip.copy_heads(cap), ip.fit_scores(cap)
    by_lag = np.argsort(heads.lag)
    sink = cap.copy_pattern[:, :, -1, 0].double().numpy()[:, by_lag]
    equal = (tokens[:, -1] == tokens[:, -2]).numpy()[: len(sink)]
    blocks = ip.identity_blocks(model, tokens, routes=["weights"]).maps[0] if model.config.one_hot else None
    return Look(
        losses=ip.kl_divergence(chains.next_law, fast_predict(model, chains.tokens)).values.numpy(),
        lags=tuple(heads.lag.tolist()),
        looks={
            "copy": heads.mass[by_lag],
            "last": heads.last_mass[by_lag],
            "bos": sink.mean(axis=0),
            "bos_equal": sink[equal].mean(axis=0) if equal.any() else None,
            "bos_other": sink[~equal].mean(axis=0) if not equal.all() else None,
            "block": None if blocks is None else blocks.beta,
            "aligned": None if blocks is None else blocks.aligned_share,
            **{name: getattr(fit, name) for name in ("beta", "kappa", "r2")},
        },
    )


def join(options: Options, studies: Sequence[Table]) -> Table:
    """All sizes in one table, with the largest rise along each way."""
    whole = gathered(studies, shown=SHOWN)
    notes = (
        [] if whole.rows else ["no run of the task was found; `python -m models sweep disentangled_starts` trains some"]
    )
    lines = [row for row in whole.rows if row["way"]]
    for length, way in sorted({(row["length"], row["way"]) for row in lines}):
        mine = [row for row in lines if (row["length"], row["way"]) == (length, way)]
        top = max(mine, key=lambda row: row["over_hard"])
        notes.append(
            f"T = {length}, straight in {way}: KL rises by at most {top['over_hard']:.4f} ± "
            f"{top['over_hard_stderr']:.4f} nats over the hard end, at {top['point']:g}"
        )
    return gathered([whole], shown=SHOWN, notes=notes)
