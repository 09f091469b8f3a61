"""Does each match head vote for the token that it attends to?

One match head at a time is made to attend to a single key at the last query, and the rise of each symbol's logit is
measured. `vote` is the rise of that key's token above the other symbols. The control is the same for the token of
another key. `direct` is the part through the head's OV circuit and the readout alone.

    python -m analyses copying_scores CKPT
    python -m analyses copying_scores mine.py:build --order 1 --vocab 12
"""

from __future__ import annotations

import interp as ip
from analyses.running.options import CheckpointOptions
from analyses.running.subject import Subject
from interp.results import Result

COLUMNS = ("success", "votes.0.vote", "votes.0.stderr", "votes.0.copying", "votes.0.control_vote", "votes.0.direct")
LEGEND = {
    "vote": "the head attends to one key at the last query: how far the logit of that key's token then rises above "
    "the logits of the other symbols; mean over sequences and drawn keys",
    "control_vote": "the same for the token of another key",
    "copying": "share of the variance of the rises over symbols that the attended token explains",
    "direct": "the vote through the head's OV circuit and the readout alone",
}


def analyse(subject: Subject, options: CheckpointOptions) -> Result:
    return ip.copying_scores(subject.model, subject.chains.tokens, seed=options.seed)
