"""The classical smoothers that the transformer is compared with (sec:smoothing).

    jelinek_mercer(tokens, vocab=5, weights=(0.1, 0.3, 0.6))   a fixed mixture of orders, eq:jelinek_mercer
    katz(tokens, order=2, vocab=5)                             the longest suffix that was seen
    witten_bell, kneser_ney                                    interpolation with weights from the data

All read contiguous suffixes of the context, over the paper's candidates: positions with k tokens before them, for every
order. Successors of the order-i suffix, its i most recent tokens, are the paper's K_[i](m) with [i] = {1..i}. The laws
never look past the query, always sum to one, and are uniform where there is no candidate. Tokens are [batch, length];
the law of the token after the last one is [batch, vocab], with `every_position=True` [batch, length, vocab].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from jaxtyping import Float, Shaped

from interp.arguments import Numbers, Switch, Whole, real_array
from interp.estimators.counts import CHUNK_BYTES, queries
from interp.estimators.soft_matching import Law
from interp.estimators.suffixes import suffix_counts
from interp.notation import Tokens

FALLBACK_DISCOUNT = 0.5  # where the counts of counts do not determine it


def jelinek_mercer(tokens: Tokens, *, vocab: Whole, weights: Numbers, every_position: Switch = False) -> Law:
    """sum_i lambda_i p_i, a fixed mixture of the suffix models of order 0..k (eq:jelinek_mercer).

    `weights` are lambda_0..lambda_k; the order is their number less one. p_i is the maximum-likelihood model
    of the order-i suffix, K_[i](m) / K_[i]. Where that suffix is new, its share goes to the next shorter one
    (p_i = p_{i-1}), and where nothing has been seen p_0 is uniform; so the mixture always sums to one.

    Parameters
    ----------
    tokens
        Sequences [batch, length] without BOS, or chains of a prior.
    vocab
        |V|, the number of symbols.
    weights
        lambda_0..lambda_k, not negative, with sum one.
    every_position
        Answer after every token, from the tokens so far, rather than after the last one.

    Returns
    -------
    Law
        Probabilities of the next token, [batch, vocab]; with `every_position` [batch, length, vocab].

    Examples
    --------
    >>> jelinek_mercer([[0, 1, 0, 1]], vocab=2, weights=(0.2, 0.3, 0.5))[0].tolist()
    [0.9, 0.1]
    """
    mixture = torch.from_numpy(real_array(weights, name="weights"))
    if mixture.ndim != 1 or len(mixture) < 2:
        raise ValueError(f"weights must list lambda_0..lambda_k for an order k >= 1, got shape {list(mixture.shape)}")
    if not (mixture >= 0).all() or not abs(float(mixture.sum()) - 1) <= 1e-6:
        raise ValueError(f"weights must be finite, not negative and sum to one, got {mixture.tolist()}")
    mixture = mixture / mixture.sum()

    def estimate(counts: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        return torch.einsum("...iv,i->...v", suffix_models(counts), mixture)

    return _from_suffixes(estimate, tokens, len(mixture) - 1, vocab, every_position)


def suffix_models(counts: Shaped[torch.Tensor, "*rows order vocab"]) -> Float[torch.Tensor, "*rows order vocab"]:
    """p_i for i = 0..k: each suffix's maximum likelihood, or the next shorter suffix's where it is new."""
    models = [_uniform(counts)]
    for count, total, _ in _orders(counts):
        models.append(torch.where(total > 0, count / total.clamp(min=1.0), models[-1]))
    return torch.stack(models[1:], dim=-2)


def katz(tokens: Tokens, *, order: Whole, vocab: Whole, every_position: Switch = False) -> Law:
    """Back-off: the model of the longest suffix that was seen, as the paper describes it; counts are not discounted.

    Parameters
    ----------
    tokens
        Sequences [batch, length] without BOS, or chains of a prior.
    order
        k, the number of tokens of a context.
    vocab
        |V|, the number of symbols.
    every_position
        Answer after every token, from the tokens so far, rather than after the last one.

    Returns
    -------
    Law
        Probabilities of the next token, [batch, vocab]; with `every_position` [batch, length, vocab].

    Examples
    --------
    >>> katz([[0, 0, 1, 0, 0]], order=2, vocab=2)[0].tolist()
    [0.0, 1.0]
    """

    def estimate(counts: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        return suffix_models(counts)[..., -1, :]

    return _from_suffixes(estimate, tokens, order, vocab, every_position)


def witten_bell(tokens: Tokens, *, order: Whole, vocab: Whole, every_position: Switch = False) -> Law:
    """p_i = (K_[i](m) + d_i p_{i-1}(m)) / (K_[i] + d_i), d_i the number of distinct successors.

    p_{-1} is uniform, so that every symbol has some probability once the unigram has seen anything new; a
    suffix that is new leaves p_{i-1} as it is.

    Parameters
    ----------
    tokens
        Sequences [batch, length] without BOS, or chains of a prior.
    order
        k, the number of tokens of a context.
    vocab
        |V|, the number of symbols.
    every_position
        Answer after every token, from the tokens so far, rather than after the last one.

    Returns
    -------
    Law
        Probabilities of the next token, [batch, vocab]; with `every_position` [batch, length, vocab].

    Examples
    --------
    >>> witten_bell([[0, 1, 1, 0, 1]], order=1, vocab=2).numpy().round(3).tolist()
    [[0.417, 0.583]]
    """

    def estimate(counts: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
        law = _uniform(counts)
        for count, total, distinct in _orders(counts):
            law = torch.where(total > 0, (count + distinct * law) / (total + distinct), law)
        return law

    return _from_suffixes(estimate, tokens, order, vocab, every_position)


def kneser_ney(tokens: Tokens, *, order: Whole, vocab: Whole, every_position: Switch = False) -> Law:
    """Interpolated Kneser-Ney: discounted counts at order k, discounted continuation counts below.

    The order-i model with i < k counts in how many distinct longer contexts a symbol followed the suffix, not
    how often. Each order discounts by D and gives D times its number of distinct successors to the next
    shorter model; the unigram gives to the uniform law. D = n_1 / (n_1 + 2 n_2) from that order's counts of
    counts in the sequence; on small alphabets these often vanish (every n-gram has been seen many times), and
    then D = 0.5.

    Parameters
    ----------
    tokens
        Sequences [batch, length] without BOS, or chains of a prior.
    order
        k, the number of tokens of a context.
    vocab
        |V|, the number of symbols.
    every_position
        Answer after every token, from the tokens so far, rather than after the last one.

    Returns
    -------
    Law
        Probabilities of the next token, [batch, vocab]; with `every_position` [batch, length, vocab].

    Examples
    --------
    >>> kneser_ney([[0, 1, 1, 0, 1]], order=1, vocab=2).numpy().round(3).tolist()
    [[0.417, 0.583]]
    """

    def estimate(counts: torch.Tensor, tallies: torch.Tensor) -> torch.Tensor:
        discounts = absolute_discounts(tallies)
        law = _uniform(counts)
        for i, (count, total, distinct) in enumerate(_orders(counts)):
            step = discounts[..., i, None]
            mixed = ((count - step).clamp(min=0.0) + step * distinct * law) / total
            law = torch.where(total > 0, mixed, law)
        return law

    return _from_suffixes(estimate, tokens, order, vocab, every_position, continued=True)


def absolute_discounts(tallies: Shaped[torch.Tensor, "*rows order tally"]) -> Float[torch.Tensor, "*rows order"]:
    """D = n_1 / (n_1 + 2 n_2) for each order, between 0 and 1; 0.5 where n_1 or n_2 vanishes."""
    once, twice = tallies.double().unbind(-1)
    known = (once > 0) & (twice > 0)
    return torch.where(known, once / (once + 2 * twice).clamp(min=1.0), FALLBACK_DISCOUNT)


def _from_suffixes(
    estimate: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    tokens: Tokens,
    order: Whole,
    vocab: Whole,
    every_position: Switch,
    *,
    continued: bool = False,
) -> Law:
    """Apply a function of `suffix_counts` at the last or at every position, a few sequences at a time."""
    asked = queries(tokens, order=order, vocab=vocab, every_position=every_position)
    laws = asked.empty_laws()
    step = max(1, CHUNK_BYTES // (32 * asked.shape[1] * (asked.order + 1) * asked.vocab))
    for row in range(0, len(laws), step):
        rows = slice(row, row + step)
        laws[rows] = estimate(*suffix_counts(replace(asked, tokens=asked.tokens[rows]), continued=continued))
    return asked.result(laws)


def _orders(counts: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """For each order 0..k: the counts of the suffix, their sum, and how many symbols were seen after it."""
    for count in counts.double().unbind(-2):
        yield count, count.sum(-1, keepdim=True), (count > 0).sum(-1, keepdim=True)


def _uniform(counts: torch.Tensor) -> torch.Tensor:
    return torch.full_like(counts[..., 0, :], 1.0 / counts.shape[-1], dtype=torch.float64)
