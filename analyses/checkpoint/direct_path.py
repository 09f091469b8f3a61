"""What does the model predict without its match head, and is that a count of tokens?

The match head is silenced at the last query. In the paper's circuit nothing is then left but the uniform law; a copy
head that spreads its attention can leave a count of tokens there, an estimate of order 0 that bypasses the matching.

    python -m analyses direct_path CKPT
"""

from __future__ import annotations

import interp as ip
from analyses.running.ask import Ask, near, not_long
from analyses.running.options import CheckpointOptions
from analyses.running.subject import Subject
from interp.results import Result

COLUMNS = ("verdict", "gain", "gain_stderr", "r2", "r2_frequency", "r2_recent", "r2_control")
LEGEND = {
    "gain": "KL(truth || uniform law) minus KL(truth || prediction) at the last query in nats, with the match head "
    "silenced; mean over sequences",
    "nothing": "the gain is below two standard errors: nothing is known without the match head",
    "counts tokens": "the gain is larger, and symbol frequencies and recent tokens explain at least half of the "
    "variance of the log-probabilities",
    "something else": "the gain is larger, and they explain less than half",
    "r2": "share of the variance of the log-probabilities that frequencies and recent tokens explain: together, "
    "alone (r2_frequency, r2_recent), and, as a control, those of another sequence (r2_control)",
    "kl": "KL(truth || prediction) without the match head, of the uniform law (kl_uniform) and of the model (kl_model)",
}
ASK = Ask(select=not_long(near(64)), options=CheckpointOptions(batch=2048), cost=0.35)


def analyse(subject: Subject, options: CheckpointOptions) -> Result:
    return ip.direct_path(
        subject.model,
        subject.chains.tokens,
        next_law=subject.chains.next_law,
    )
