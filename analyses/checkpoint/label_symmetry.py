"""Does the prediction depend on the names of the symbols?

KL between the model and its relabelings, over all |V|! of them or a random sample (eq:permuted_transformer,
theorem:invariance). Models of other seeds, given with --against, are the scale: the KL between two models of the same
training. --siblings takes the other seeds in the checkpoint's directory, if they are finished.

    python -m analyses label_symmetry CKPT
    python -m analyses label_symmetry models/checkpoints/hierarchical_bos/disentangled/soft/T64_seed0 --siblings
    python -m analyses label_symmetry CKPT --against OTHER_SEED_1 OTHER_SEED_2
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import interp as ip
from analyses.running.ask import Ask, near, not_long
from analyses.running.options import CheckpointOptions, option
from analyses.running.subject import Subject
from interp.results import Result

COLUMNS = ("kl", "stderr", "max", "worst_kl", "seeds_kl", "ratio", "exhaustive", "n")
LEGEND = {
    "kl": "KL(model || relabeled model) at the last query in nats, mean over sequences and relabelings of the symbols",
    "max": "the largest of these KLs over single sequences and relabelings",
    "worst_kl": "mean over sequences for the worst relabeling",
    "seeds_kl": "KL(model || model of another seed), mean over sequences and models (--siblings, --against)",
    "ratio": "kl / seeds_kl",
}


@dataclass(frozen=True, kw_only=True)
class Options(CheckpointOptions):
    draws: int = option(
        120, "try all relabelings up to this number, else this many (default: %(default)s)", metavar="N", least=1
    )
    against: tuple[str, ...] = option((), "models of other seeds, as the scale", metavar="CKPT")
    siblings: bool = option(False, "compare with the other seeds beside the checkpoint")


ASK = Ask(select=not_long(near(64, seeds=1)), options=Options(siblings=True, batch=128), cost=1.2)


def siblings_of(path: Path, *, unfinished: bool = False) -> list[Path]:
    """The finished checkpoints beside this one whose names differ in the seed alone, or also the `unfinished` ones."""
    from interp.hooked.checkpoint import unfinished_at

    whole = path.resolve()
    alike = re.compile(r"_seed\d+".join(map(re.escape, re.split(r"_seed\d+", whole.name))))
    beside = [other for other in whole.parent.iterdir() if other != whole and alike.fullmatch(other.name)]
    found = sorted(other for other in beside if (other / "config.json").is_file())
    return [other for other in found if unfinished or not unfinished_at(ip.read_info(other))]


def reads(path: Path, options: Options) -> list[Path]:
    """The models of other seeds."""
    siblings = siblings_of(path, unfinished=options.unfinished) if options.siblings else []
    return [*map(Path, options.against), *siblings]


def analyse(subject: Subject, options: Options) -> Result:
    return ip.label_symmetry(
        subject.model,
        subject.chains.tokens,
        draws=options.draws,
        seed=options.seed,
        other_models=[Subject.open(path, options).model for path in reads(subject.path, options)],
    )
