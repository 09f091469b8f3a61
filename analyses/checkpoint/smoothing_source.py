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
    "off": "which sources are switched off; change: the rise with these off and the others on",
    "contribution": "Shapley value: the mean rise over all orders in which the sources can be "
    "switched off. These add up to the rise with all off",
    "floored": "share of sequences where a symbol needs the KL's least probability; the rise then depends on it",
    "readout_uniform": "share of the uniform law that the readout mixes into the prediction",
}
ASK = Ask(select=not_long(near(64)), cost=0.2)


def analyse(subject: Subject, options: CheckpointOptions) -> Result:
    return ip.smoothing_source(
        subject.model,
        subject.chains.tokens,
        next_law=subject.chains.next_law,
    )
