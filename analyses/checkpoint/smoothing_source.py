"""Where does the smoothing come from: partial matches, BOS or the readout?

Each source is switched off, alone and together with the others, and the change in KL to the truth reported: partial
matches (finite beta), BOS (kappa), and the readout W_O, through which a constant can pass because every block of the
final stream sums to one.

    python -m analyses smoothing_source CKPT
"""

from __future__ import annotations

import interp as ip
from analyses.running.ask import Ask, near, not_long
from analyses.running.options import CheckpointOptions
from analyses.running.subject import Subject
from interp.results import Result

COLUMNS = ("change.partial", "change.bos", "change.readout", "readout_uniform", "contribution.readout")
LEGEND = {
    "KL": "KL(truth || prediction) at the last query in nats, mean over sequences; + is its rise",
    "off alone": "(change) the rise with this source switched off and the others on",
    "part in the whole": "(contribution) Shapley value: the mean rise over all orders in which the sources can be "
    "switched off. These add up to the rise with all off",
    "floor": "least probability of a symbol in the KL; where it is needed often, the rise depends on it",
}
ASK = Ask(select=not_long(near(64)), cost=0.2)


def analyse(subject: Subject, options: CheckpointOptions) -> Result:
    return ip.smoothing_source(
        subject.model,
        subject.chains.tokens,
        next_law=subject.chains.next_law,
    )
