"""What the page of `make reproduce` shows first: how many claims hold, which, and under which condition."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from figures.claims import claim_of
from figures.drawing import Drawn
from figures.known_conditions import LEAST_WITH, MOST_WITHOUT
from figures.verdict import sentence
from models.protocols import PROTOCOLS

WORD_CLASSES = {
    "holds": "good",
    "holds where": "part",
    "does not hold": "bad",
    "cannot tell": "none",
    "beyond the paper": "ours",
}
GIVEN_TOPIC = "task and circuit"  # what is set by hand, and does what it was made for
IN_PLURAL = {
    "holds": "hold",
    "holds where": "hold under a condition",
    "does not hold": "do not hold, at least in one part",
    "cannot tell": "cannot be told",
    "beyond the paper": "beyond the paper",
}
RULE = (
    "Amber: a part of the claim fails in some models, and a condition tells which. With the condition, "
    f"{LEAST_WITH:.0%} of the runs or more meet the claim; without it, {MOST_WITHOUT:.0%} or fewer. Within a bound "
    "such as T >= 64 all runs do. Runs in brackets: how many have the condition. Red: the named part of the claim "
    "fails, and no such condition was found."
)
CONDITIONS_USED = (
    "'With BOS' and 'without BOS' mean models of the independent task; on the hierarchical task every model has BOS. "
    "Standard models were trained on the hierarchical task only, and their readout adds logits; that of the others "
    "adds votes. 'Frozen' and 'fixed' parts are set by hand and not trained: such runs were made for the study of "
    "conditions."
)
MODELS_JUDGED = (
    f"The models were trained with a rate that falls to zero ({PROTOCOLS['annealed'].steps:,} steps, fewer for "
    f"standard models), not by the paper's {PROTOCOLS['paper'].steps:,} steps at a constant rate: what that changes is "
    "in 'What each claim needs', and what longer training without BOS changes in 'Longer training leaves soft "
    "matching'."
)
WORDS_USED = (
    (
        "the law",
        "soft matching: a key's attention is in proportion to exp of the betas of the lags that match, BOS's to "
        "exp(kappa). The law of a next token, and a predicted law, are probability distributions over the symbols",
    ),
    (
        "copy head",
        "an attention head of the first layer that fetches the token a fixed number of positions back: its lag",
    ),
    (
        "match head",
        "the attention head of the second layer: it compares the query's context with the one before each key",
    ),
    ("full, partial match", "all, or some, of the k last tokens agree"),
    ("beta, kappa", "what an agreement at a lag adds to a key's score, and the score of BOS"),
    ("T, |V|, k", "the length of a sequence, the number of symbols, the number of tokens that the next one depends on"),
    ("lag", "the place of a token in a context, 1 for the most recent; a copy head of lag r fetches r positions back"),
    ("alpha, add-alpha", "a pseudo-count for each symbol, and the estimator that adds it to the counts of the context"),
    ("Bayes", "the best possible predictor: it knows the prior from which chains are drawn"),
    ("BOS", "a token before the sequence; attention on it adds the same pseudo-count to every symbol"),
    (
        "readout",
        "the last weights. They add the votes of the keys as probabilities (construction, disentangled), or add "
        "evidence in the logits and take a softmax (standard). Fixed: not trained, so that votes are the prediction",
    ),
    ("frozen copy heads", "copy heads that are set on their lags by hand and not trained"),
    ("construction", "the paper's weights, written by hand; only beta and kappa are trained"),
    ("disentangled", "a trained model with one block of its stream for each token and head; all attention is trained"),
    ("standard", "an ordinary trained transformer: embeddings, LayerNorm, MLP, softmax readout"),
    ("KL", "how far a predicted law is from the true one, in nats; 0 is perfect"),
)


def answer(records: Sequence[Mapping[str, Any]]) -> str:
    """How many claims hold, how many under a condition, how many do not: a sentence."""
    counts = Counter(record["verdict"]["word"] for record in records)
    given = sum(record["verdict"]["word"] == "holds" and claim_of(record).topic == GIVEN_TOPIC for record in records)
    parts = [f"{counts[word]} {counted(word, counts[word])}" for word in IN_PLURAL if counts[word]]
    if given:
        parts[0] += (
            f" ({given} about hand-written weights or the sampler, {counts['holds'] - given} about trained models)"
        )
    return f"Of {len(records)} claims, {'; '.join(parts)}."


def counted(word: str, count: int) -> str:
    """The verdict as the verb of so many claims: `2 hold`, `1 holds`."""
    said = IN_PLURAL[word]
    return said.replace("hold", "holds", 1).replace("do not holds", "does not hold") if count == 1 else said


def board(claims: Sequence[Drawn]) -> str:
    """All claims on one screen: a column for each verdict, and in it each claim with what its verdict says."""
    columns = []
    for word in IN_PLURAL:
        mine = [one for one in claims if one.record["verdict"]["word"] == word]
        if mine:
            said = counted(word, len(mine))
            parts = halves(mine) if word == "holds" else {"": mine}
            listed = "".join(
                (f"<p>{title}</p>" if title else "") + f"<ul>{links(part, verdicts=True)}</ul>"
                for title, part in parts.items()
                if part
            )
            columns.append(
                f'<section class="column {WORD_CLASSES[word]}" aria-label="{said}"><p class="count"><b>{len(mine)}</b> '
                f"{said}</p>{listed}</section>"
            )
    notes = "".join(f'<p class="soft">{html.escape(note)}</p>' for note in (RULE, CONDITIONS_USED, MODELS_JUDGED))
    return f'<div class="board">{"".join(columns)}</div>{notes}'


def halves(claims: Sequence[Drawn]) -> dict[str, list[Drawn]]:
    """Claims about what is set by hand, and about trained models."""
    given = [one for one in claims if claim_of(one.record).topic == GIVEN_TOPIC]
    rest = [one for one in claims if claim_of(one.record).topic != GIVEN_TOPIC]
    return {"about hand-written weights or the sampler": given, "about trained models": rest}


def aside(verdict: Mapping[str, Any]) -> str:
    """What a claim's line adds to its title: the verdict's sentence, without the word that heads the column."""
    if verdict["word"] in ("holds", "beyond the paper"):
        return ""
    words = sentence(verdict)
    if words.startswith("holds where"):
        return words.removeprefix("holds ")
    return "" if words == verdict["word"] else words.removeprefix("cannot tell: ").replace("does not hold", "not", 1)


def links(group: Iterable[Drawn], *, verdicts: bool = False) -> str:
    """The titles of claims, each a link to its figure; on request with what the verdict says."""
    return "".join(
        f'<li class="{WORD_CLASSES[one.record["verdict"]["word"]]}-item"><a href="#{one.record["figure"]}">'
        f"{html.escape(claim_of(one.record).title)}</a>{_small(aside(one.record['verdict'])) if verdicts else ''}</li>"
        for one in group
    )


def _small(words: str) -> str:
    return f"<small>{html.escape(words)}</small>" if words else ""


def glossary() -> str:
    lines = "".join(f"<dt>{html.escape(word)}</dt><dd>{html.escape(text)}</dd>" for word, text in WORDS_USED)
    return f'<details><summary>The words used on this page</summary><dl class="facts">{lines}</dl></details>'
