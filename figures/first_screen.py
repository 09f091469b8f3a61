"""What the page of `make reproduce` shows first: how many claims hold, which, and under which condition."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from figures.claims import claim_of
from figures.drawing import Drawn

WORD_CLASSES = {
    "holds": "good",
    "holds where": "part",
    "does not hold, condition not known": "bad",
    "does not hold here": "bad",
    "cannot tell": "none",
    "beyond the paper": "ours",
}
IN_PLURAL = {
    "holds": "hold",
    "holds where": "hold under a condition and fail without it",
    "does not hold, condition not known": "do not hold, condition not known",
    "does not hold here": "do not hold here",
    "cannot tell": "cannot be told",
    "beyond the paper": "beyond the paper",
}
WORDS_USED = (
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
    ("BOS", "a token before the sequence; attention on it adds the same pseudo-count to every symbol"),
    ("readout", "the last weights: they add the votes of the keys, or add evidence in the logits and take a softmax"),
    ("construction", "the paper's weights, written by hand; only beta and kappa are trained"),
    ("disentangled", "a trained model with one block of its stream for each token and head; all attention is trained"),
    ("standard", "an ordinary trained transformer: embeddings, LayerNorm, MLP, softmax readout"),
    ("KL", "how far a predicted law is from the true one, in nats; 0 is perfect"),
)


def answer(records: Sequence[Mapping[str, Any]]) -> str:
    """How many claims hold, how many under a condition, how many do not: a sentence."""
    counts = Counter(record["verdict"]["word"] for record in records)
    parts = [f"{counts[word]} {said}" for word, said in IN_PLURAL.items() if counts[word]]
    if not any(counts[word] for word in IN_PLURAL if word.startswith("does not hold")):
        parts.append("none fails everywhere")
    return f"Of {len(records)} claims, {'; '.join(parts)}."


def board(claims: Sequence[Drawn]) -> str:
    """All claims on one screen: a column for each verdict, and in it a list for each condition."""
    columns = []
    for word, said in IN_PLURAL.items():
        mine = [one for one in claims if one.record["verdict"]["word"] == word]
        if not mine:
            continue
        by_condition: dict[str, list[Drawn]] = {}
        for one in mine:
            by_condition.setdefault(conditions_in_words(one.record["verdict"]), []).append(one)
        lists = "".join(
            f"<div>{f'<p>{html.escape(condition)}</p>' if condition else ''}<ul>{links(group)}</ul></div>"
            for condition, group in sorted(by_condition.items(), key=lambda item: -len(item[1]))
        )
        columns.append(
            f'<section class="column {WORD_CLASSES[word]}" aria-label="{said}">'
            f'<p class="count"><b>{len(mine)}</b> {said}</p><div class="lists">{lists}</div></section>'
        )
    return f'<div class="board">{"".join(columns)}</div>'


def links(group: Iterable[Drawn]) -> str:
    return "".join(
        f'<li class="{WORD_CLASSES[one.record["verdict"]["word"]]}-item"><a href="#{one.record["figure"]}">'
        f"{html.escape(claim_of(one.record).title)}</a></li>"
        for one in group
    )


def conditions_in_words(verdict: Mapping[str, Any]) -> str:
    """The conditions of a verdict as the head of a list; empty where it has none."""
    if verdict["word"] != "holds where":
        return ""
    return f"where {' and '.join(conditions_of(verdict))}"


def conditions_of(verdict: Mapping[str, Any]) -> list[str]:
    """The conditions that a verdict names, one by one: those of its failed checks, or else the verdict's own."""
    failed = [check["where"] for check in verdict.get("checks", ()) if not check["met"]]
    return list(dict.fromkeys(failed)) if failed and all(failed) else [verdict["condition"]]


def glossary() -> str:
    lines = "".join(f"<dt>{html.escape(word)}</dt><dd>{html.escape(text)}</dd>" for word, text in WORDS_USED)
    return f'<details><summary>The words used on this page</summary><dl class="facts">{lines}</dl></details>'
