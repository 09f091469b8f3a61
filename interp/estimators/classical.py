"""The classical smoothers that the transformer is compared with (sec:smoothing).

    jelinek_mercer(tokens, vocab=5, weights=(0.1, 0.3, 0.6))   a fixed mixture of orders, eq:jelinek_mercer
    katz(tokens, order=2, vocab=5)                             the longest suffix seen; discounts optional
    witten_bell, kneser_ney                                    interpolation with weights from the data

All read contiguous suffixes of the context, over the paper's candidates: positions with k tokens before them,
for every order. They never look past the query, always sum to one, and are uniform where there is no
candidate. Tokens are [batch, length]; the law of the token after the last one is [batch, vocab], with
`every_position=True` [batch, length, vocab].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Literal

import torch
from jaxtyping import Float

from interp.arguments import Number, Numbers, Switch, Whole, finite_number, real_array, shown
from interp.estimators.counts import CHUNK_BYTES, queries
from interp.estimators.soft_matching import Law
from interp.estimators.suffixes import MAX_TALLY, SuffixCounts, count_suffixes
from interp.notation import Tokens

FALLBACK_DISCOUNT = 0.5  # where the counts of counts do not determine it
GOOD_TURING_CUTOFF = MAX_TALLY - 1  # Katz: counts above 5 are not discounted


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

    def estimate(suffixes: SuffixCounts) -> torch.Tensor:
        return torch.einsum("...iv,i->...v", suffix_models(suffixes), mixture)

    return _from_suffixes(estimate, tokens, len(mixture) - 1, vocab, every_position)


def suffix_models(suffixes: SuffixCounts) -> Float[torch.Tensor, "*rows order vocab"]:
    """p_i for i = 0..k: each suffix's maximum likelihood, or the next shorter suffix's where it is new."""
    models = [_uniform(suffixes.counts)]
    for count, total, _ in _orders(suffixes.counts):
        models.append(torch.where(total > 0, count / total.clamp(min=1.0), models[-1]))
    return torch.stack(models[1:], dim=-2)


def katz(
    tokens: Tokens,
    *,
    order: Whole,
    vocab: Whole,
    discount: Literal["absolute", "good_turing"] | None = None,
    every_position: Switch = False,
) -> Law:
    """Back-off: the model of the longest suffix that was seen, as the paper describes it.

    With a discount it is Katz's method in full: from order 0 up, symbols seen after the suffix keep their discounted
    share, and what is left over goes to the others in proportion to the next shorter model (below order 0: the uniform
    law). If all symbols were seen, no symbol can receive it, and the shares are not discounted.

    absolute      a count r becomes r - D, with D = n_1 / (n_1 + 2 n_2) from that order's counts of counts
                  in the sequence, and D = 0.5 where n_1 or n_2 is zero
    good_turing   r becomes r* by Katz's formula, for r <= 5; where that gives no share between 0 and 1,
                  as on short sequences it often does, the absolute discount is used for that r

    Parameters
    ----------
    tokens
        Sequences [batch, length] without BOS, or chains of a prior.
    order
        k, the number of tokens of a context.
    vocab
        |V|, the number of symbols.
    discount
        What is taken off each count, as above; None takes nothing.
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
    if discount not in (None, "absolute", "good_turing"):
        raise ValueError(f"discount must be None, 'absolute' or 'good_turing', got {shown(discount)}")

    def estimate(suffixes: SuffixCounts) -> torch.Tensor:
        if discount is None:
            return suffix_models(suffixes)[..., -1, :]
        return _discounted_back_off(suffixes, good_turing=discount == "good_turing")

    return _from_suffixes(estimate, tokens, order, vocab, every_position)


def _discounted_back_off(suffixes: SuffixCounts, *, good_turing: bool) -> torch.Tensor:
    absolute = absolute_discounts(suffixes.tallies)
    law = _uniform(suffixes.counts)
    for i, (count, total, _) in enumerate(_orders(suffixes.counts)):
        kept = count - absolute[..., i, None]
        if good_turing:
            shares = _good_turing_shares(suffixes.tallies[..., i, :])
            share = torch.gather(shares, -1, (count - 1).clamp(min=0, max=GOOD_TURING_CUTOFF).long())
            kept = torch.where(torch.isnan(share), kept, count * share)
        kept = torch.where(count > 0, kept, 0.0)
        shorter = torch.where(count > 0, 0.0, law)
        given = shorter.sum(-1, keepdim=True)
        backed_off = (kept + (total - kept.sum(-1, keepdim=True)) * shorter / given.clamp(min=1e-300)) / total
        law = torch.where(total > 0, torch.where(given > 0, backed_off, count / total), law)
    return law


def absolute_discounts(tallies: torch.Tensor) -> Float[torch.Tensor, "*rows order"]:
    """D = n_1 / (n_1 + 2 n_2) for each order, between 0 and 1; 0.5 where n_1 or n_2 vanishes."""
    once, twice = tallies[..., 0].double(), tallies[..., 1].double()
    known = (once > 0) & (twice > 0)
    return torch.where(known, once / (once + 2 * twice).clamp(min=1.0), FALLBACK_DISCOUNT)


def _good_turing_shares(tallies: torch.Tensor) -> Float[torch.Tensor, "*rows tally"]:
    """d_r = (r*/r - A) / (1 - A), A = 6 n_6 / n_1, for r = 1..5, NaN where invalid; 1 above."""
    n = tallies.double()
    r = torch.arange(1, GOOD_TURING_CUTOFF + 1, dtype=torch.float64)
    adjusted = (r + 1) * n[..., 1:] / (r * n[..., :-1])
    tail = (GOOD_TURING_CUTOFF + 1) * n[..., -1:] / n[..., :1]
    share = (adjusted - tail) / (1 - tail)
    share = torch.where((share > 0) & (share < 1), share, torch.nan)
    return torch.cat([share, torch.ones_like(share[..., :1])], dim=-1)


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

    def estimate(suffixes: SuffixCounts) -> torch.Tensor:
        law = _uniform(suffixes.counts)
        for count, total, distinct in _orders(suffixes.counts):
            law = torch.where(total > 0, (count + distinct * law) / (total + distinct), law)
        return law

    return _from_suffixes(estimate, tokens, order, vocab, every_position)


def kneser_ney(
    tokens: Tokens,
    *,
    order: Whole,
    vocab: Whole,
    discount: Number | None = None,
    every_position: Switch = False,
) -> Law:
    """Interpolated Kneser-Ney: discounted counts at order k, discounted continuation counts below.

    The order-i model with i < k counts in how many distinct longer contexts a symbol followed the suffix, not
    how often. Each order discounts by D and gives D times its number of distinct successors to the next
    shorter model; the unigram gives to the uniform law. D = n_1 / (n_1 + 2 n_2) from that order's counts of
    counts in the sequence; on small alphabets these often vanish (every n-gram has been seen many times), and
    then D = 0.5. `discount` fixes D instead.

    Parameters
    ----------
    tokens
        Sequences [batch, length] without BOS, or chains of a prior.
    order
        k, the number of tokens of a context.
    vocab
        |V|, the number of symbols.
    discount
        D of all orders, above 0 and at most 1; None takes it from the sequence.
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
    fixed = None if discount is None else finite_number(discount, name="discount", above=0, most=1.0)

    def estimate(suffixes: SuffixCounts) -> torch.Tensor:
        discounts = absolute_discounts(suffixes.continuation_tallies)
        if fixed is not None:
            discounts = torch.full_like(discounts, fixed)
        law = _uniform(suffixes.continuations)
        for i, (count, total, distinct) in enumerate(_orders(suffixes.continuations)):
            step = discounts[..., i, None]
            mixed = ((count - step).clamp(min=0.0) + step * distinct * law) / total
            law = torch.where(total > 0, mixed, law)
        return law

    return _from_suffixes(estimate, tokens, order, vocab, every_position)


def _from_suffixes(
    estimate: Callable[[SuffixCounts], torch.Tensor],
    tokens: Tokens,
    order: Whole,
    vocab: Whole,
    every_position: Switch,
) -> Law:
    """Apply a function of the suffix counts at the last or at every position, in chunks of bounded memory."""

    asked = queries(tokens, order=order, vocab=vocab, every_position=every_position)
    laws = asked.empty_laws()
    step = max(1, CHUNK_BYTES // (32 * asked.shape[1] * (asked.order + 1) * (asked.vocab + MAX_TALLY)))
    for row in range(0, len(laws), step):
        rows = slice(row, row + step)
        laws[rows] = estimate(count_suffixes(replace(asked, tokens=asked.tokens[rows]))).reshape(laws[rows].shape)
    return asked.result(laws)


def _orders(counts: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """For each order 0..k: the counts of the suffix, their sum, and how many symbols were seen after it."""
    for count in counts.double().unbind(-2):
        yield count, count.sum(-1, keepdim=True), (count > 0).sum(-1, keepdim=True)


def _uniform(counts: torch.Tensor) -> torch.Tensor:
    return torch.full_like(counts[..., 0, :], 1.0 / counts.shape[-1], dtype=torch.float64)
