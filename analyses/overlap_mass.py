"""Where does the match head's attention go, and is it where the law says?

Attention mass by overlap |M|, by mask, on BOS and on early keys, beside N_M e^{|beta|_M} / Z with the fitted beta and
kappa; contiguous and other partial matches apart; and the effective order weights lambda_i (eq:transformer_mixture).

    python -m analyses overlap_mass CKPT
    python -m analyses overlap_mass CKPT --query all --batch 64      at every query, not only the last
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from analyses.ask import Ask
from analyses.options import CheckpointOptions, option

if TYPE_CHECKING:
    from analyses.subject import Subject
    from interp.instruments.overlap_mass import OverlapMass

KIND = "checkpoint"
COLUMNS = ("success", "by_overlap.0", "by_overlap.1", "by_overlap.2", "bos", "early", "distance", "largest_gap")
LEGEND = (
    "Attention of the match head (at the last query, unless --query says otherwise) by overlap |M|, mean over "
    "sequences. The law's masses are those of the beta and kappa that `beta_kappa` fits. distance: total variation "
    "between the mean masses; largest_gap: the largest difference of one of them."
)


@dataclass(frozen=True, kw_only=True)
class Options(CheckpointOptions):
    query: Literal["last", "all", "trained"] = option("last", "which queries to read (default: %(default)s)")


ASK = Ask(options=Options(batch=256), cost=0.03)


def analyse(subject: Subject, options: Options) -> OverlapMass:
    from interp.instruments.overlap_mass import overlap_mass

    seen = subject.capture(query=options.query)
    law = subject.law(seen)
    found = overlap_mass(seen, law)
    return dataclasses.replace(found, message=law.message) if found.success else found
