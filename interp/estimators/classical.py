"""The classical smoothers that the transformer is compared with (sec:smoothing).

    jelinek_mercer(tokens, vocab=5, weights=(0.1, 0.3, 0.6))   a fixed mixture of orders, eq:jelinek_mercer
    tune_jelinek_mercer(prior, length=64)                      its weights, by EM on sequences from the prior
    katz(tokens, order=2, vocab=5)                             the longest suffix seen; discounts optional
    witten_bell, kneser_ney                                    interpolation with weights from the data

All read contiguous suffixes of the context, over the paper's candidates: positions with k tokens before them,
for every order. They never look past the query, always sum to one, and are uniform where there is no
candidate. Tokens are [batch, length]; the law of the token after the last one is [batch, vocab], with
`every_position=True` [batch, length, vocab].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray

from interp.arguments import Number, Numbers, Switch, Whole, count, finite_number, real_array, seed_number, shown
from interp.chains.priors import Prior, check_prior
from interp.divergence import kl_divergence
from interp.estimators.soft_matching import Law
from interp.estimators.suffixes import MAX_TALLY, SuffixCounts, from_suffixes, suffix_counts
from interp.notation import Tokens, check_order, check_vocab
from interp.results import Result, half_width, provenance

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

Array: TypeAlias = NDArray[Any]

FALLBACK_DISCOUNT = 0.5  # where the counts of counts do not determine it
GOOD_TURING_CUTOFF = MAX_TALLY - 1  # Katz: counts above 5 are not discounted


def jelinek_mercer(
    tokens: Tokens,
    *,
    vocab: Whole,
    weights: Numbers,
    every_position: Switch = False,
) -> Law:
    """sum_i lambda_i p_i, a fixed mixture of the suffix models of order 0..k (eq:jelinek_mercer).

    `weights` are lambda_0..lambda_k; the order is their number less one. p_i is the maximum-likelihood model
    of the order-i suffix, K_[i](m) / K_[i]. Where that suffix is new, its share goes to the next shorter one
    (p_i = p_{i-1}), and where nothing has been seen p_0 is uniform; so the mixture always sums to one.

    >>> jelinek_mercer([[0, 1, 0, 1]], vocab=2, weights=(0.2, 0.3, 0.5))[0].tolist()
    [0.9, 0.1]
    """
    mixture = _as_weights(weights)

    def estimate(suffixes: SuffixCounts) -> torch.Tensor:
        models = suffix_models(suffixes)
        return torch.einsum("...iv,i->...v", models, mixture)

    return from_suffixes(estimate, tokens, order=len(mixture) - 1, vocab=vocab, every_position=every_position)


def suffix_models(suffixes: SuffixCounts) -> Float[torch.Tensor, "*rows order vocab"]:
    """p_i for i = 0..k: each suffix's maximum likelihood, or the next shorter suffix's where it is new."""
    counts = suffixes.counts.double()
    totals = counts.sum(-1, keepdim=True)
    shorter = torch.full_like(counts[..., 0, :], 1.0 / counts.shape[-1])
    models = []
    for i in range(counts.shape[-2]):
        total = totals[..., i, :]
        shorter = torch.where(total > 0, counts[..., i, :] / total.clamp(min=1.0), shorter)
        models.append(shorter)
    return torch.stack(models, dim=-2)


@dataclass(frozen=True, kw_only=True)
class JelinekMercerFit(Result):
    """Mixture weights tuned on a prior.

    weights  lambda_0..lambda_k     stderr  of each weight (sandwich formula); NaN where a weight is at 0
    kl       mean KL(truth || mixture) at these weights, with `kl_stderr` and the share of laws `floored`
    length   tokens of a sequence; n: number of sequences
    """

    weights: tuple[float, ...]
    stderr: tuple[float, ...]
    kl: float
    kl_stderr: float
    floored: float
    length: int
    n: int

    def table(self) -> pd.DataFrame:
        """One row per order: order, weight, stderr."""
        import pandas as pd

        return pd.DataFrame({"order": range(len(self.weights)), "weight": self.weights, "stderr": self.stderr})

    def plot(self, ax: Axes | None = None) -> Axes:
        """The weight of each order, with 95% intervals."""
        from interp.plotting import INTERVAL_NAME, OVERLAP_COLOURS, grouped_bars, heading, overlap_kind, panel

        orders = range(len(self.weights))
        ax = panel(ax, width=4.8)
        grouped_bars(
            ax,
            [f"order {order}" for order in orders],
            {"weight": np.array(self.weights)},
            reach={"weight": half_width(self.stderr, n=self.n)},
            colours={"weight": [OVERLAP_COLOURS[overlap_kind(order, order=orders[-1])] for order in orders]},
        )
        ax.set_ylabel(rf"weight $\lambda_i$ ({INTERVAL_NAME})")
        return heading(ax, f"Jelinek-Mercer, length {self.length}: KL {self.kl:.4f} nats", doubt=self.doubt)

    def __str__(self) -> str:
        weights = ", ".join(f"{w:.4f} ± {e:.4f}" for w, e in zip(self.weights, self.stderr, strict=True))
        lines = [
            f"Jelinek-Mercer weights of order 0..{len(self.weights) - 1} at length {self.length}: {weights}",
            f"  KL {self.kl:.4f} ± {self.kl_stderr:.4f} nats, n = {self.n}",
        ]
        return "\n".join([*lines, *self.remarks()])


def tune_jelinek_mercer(
    prior: Prior,
    *,
    length: Whole,
    order: Whole | None = None,
    draws: Whole = 20_000,
    seed: Whole = 0,
    steps: Whole = 2000,
) -> JelinekMercerFit:
    """The weights with the least population cross-entropy, by EM on `draws` sequences of the prior.

    The true law of the next token is the target; it acts as held-out data of infinite size. A symbol that no order has
    seen has probability zero at any weights and is left out.
    """
    prior = check_prior(prior)
    order = check_order(prior.order if order is None else order)
    length, draws, seed = count(length, name="length"), count(draws, name="draws", least=2), seed_number(seed)
    steps = count(steps, name="steps")
    chains = prior.sample(batch=draws, length=length, seed=seed, method="collapsed")
    models = suffix_models(suffix_counts(chains.tokens, order=order, vocab=prior.vocab)).numpy()
    law = chains.next_law.numpy()
    weights = np.full(order + 1, 1.0 / (order + 1))
    converged = False
    for _ in range(steps):
        mixed = np.einsum("biv,i->bv", models, weights)
        ratio = np.divide(law, mixed, out=np.zeros_like(law), where=mixed > 0)
        updated = weights * np.einsum("bv,biv->i", ratio, models)
        updated /= updated.sum()
        change = np.abs(updated - weights).max()
        weights = updated
        if change < 1e-8:
            converged = True
            break
    prediction = torch.from_numpy(np.einsum("biv,i->bv", models, weights))
    divergence = kl_divergence(chains.next_law, prediction)
    return JelinekMercerFit(
        weights=tuple(weights.tolist()),
        stderr=tuple(_weight_errors(models, law, weights).tolist()),
        kl=divergence.mean,
        kl_stderr=divergence.stderr,
        floored=divergence.floored,
        length=length,
        n=draws,
        success=converged,
        message="converged" if converged else f"EM still moved by {change:.1e} after {steps} steps",
        provenance=provenance(seed=seed, prior=prior.to_dict()),
    )


def _weight_errors(models: Array, law: Array, weights: Array) -> Array:
    """Standard errors of the weights inside the simplex; NaN for all if one of them is at its edge."""
    if (weights < 1e-6).any():
        return np.full(weights.shape, np.nan)
    mixed = np.einsum("biv,i->bv", models, weights)
    ratio = np.divide(law, mixed, out=np.zeros_like(law), where=mixed > 0)
    gradients = np.einsum("bv,biv->bi", ratio, models)
    curvature = np.einsum("bv,biv,bjv->ij", np.divide(ratio, mixed, out=ratio, where=mixed > 0), models, models) / len(
        law
    )
    # Only directions that keep the sum at one are free: an orthonormal basis of them.
    basis = np.linalg.svd(np.ones((1, len(weights))))[2][1:].T
    bread = basis @ np.linalg.inv(basis.T @ curvature @ basis) @ basis.T
    spread = np.cov(gradients.T) / len(law)
    result: Array = np.sqrt(np.diag(bread @ spread @ bread))
    return result


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

    >>> katz([[0, 0, 1, 0, 0]], order=2, vocab=2)[0].tolist()
    [0.0, 1.0]
    """
    if discount not in (None, "absolute", "good_turing"):
        raise ValueError(f"discount must be None, 'absolute' or 'good_turing', got {shown(discount)}")

    def estimate(suffixes: SuffixCounts) -> torch.Tensor:
        if discount is None:
            return suffix_models(suffixes)[..., -1, :]
        return _discounted_back_off(suffixes, good_turing=discount == "good_turing")

    return from_suffixes(estimate, tokens, order=order, vocab=vocab, every_position=every_position)


def _discounted_back_off(suffixes: SuffixCounts, *, good_turing: bool) -> torch.Tensor:
    counts = suffixes.counts.double()
    absolute = absolute_discounts(suffixes.tallies)
    law = torch.full_like(counts[..., 0, :], 1.0 / counts.shape[-1])
    for i in range(counts.shape[-2]):
        count = counts[..., i, :]
        total = count.sum(-1, keepdim=True)
        kept = count - absolute[..., i, None]
        if good_turing:
            shares = _good_turing_shares(suffixes.tallies[..., i, :])
            index = (count - 1).clamp(min=0, max=GOOD_TURING_CUTOFF).long()
            share = torch.gather(shares, -1, index)
            kept = torch.where(torch.isnan(share), kept, count * share)
        kept = torch.where(count > 0, kept, 0.0)
        shorter = torch.where(count > 0, 0.0, law)
        given = shorter.sum(-1, keepdim=True)
        backed_off = (kept + (total - kept.sum(-1, keepdim=True)) * shorter / given.clamp(min=1e-300)) / total
        whole = count / total
        law = torch.where(total > 0, torch.where(given > 0, backed_off, whole), law)
    return law


def absolute_discounts(
    tallies: Float[torch.Tensor, "*rows order tally"] | torch.Tensor,
) -> Float[torch.Tensor, "*rows order"]:
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

    >>> witten_bell([[0, 1, 1, 0, 1]], order=1, vocab=2).numpy().round(3).tolist()
    [[0.417, 0.583]]
    """
    order, vocab = check_order(order), check_vocab(vocab)

    def estimate(suffixes: SuffixCounts) -> torch.Tensor:
        counts = suffixes.counts.double()
        law = torch.full_like(counts[..., 0, :], 1.0 / vocab)
        for i in range(order + 1):
            count = counts[..., i, :]
            total = count.sum(-1, keepdim=True)
            distinct = (count > 0).sum(-1, keepdim=True)
            law = torch.where(total > 0, (count + distinct * law) / (total + distinct), law)
        return law

    return from_suffixes(estimate, tokens, order=order, vocab=vocab, every_position=every_position)


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

    >>> kneser_ney([[0, 1, 1, 0, 1]], order=1, vocab=2).numpy().round(3).tolist()
    [[0.417, 0.583]]
    """
    order, vocab = check_order(order), check_vocab(vocab)
    fixed = None if discount is None else finite_number(discount, name="discount")
    if fixed is not None and not 0 < fixed <= 1:
        raise ValueError(f"discount must lie in (0, 1], got {shown(discount)}")

    def estimate(suffixes: SuffixCounts) -> torch.Tensor:
        counts = suffixes.continuations.double()
        discounts = absolute_discounts(suffixes.continuation_tallies)
        if fixed is not None:
            discounts = torch.full_like(discounts, fixed)
        law = torch.full_like(counts[..., 0, :], 1.0 / vocab)
        for i in range(order + 1):
            count, step = counts[..., i, :], discounts[..., i, None]
            total = count.sum(-1, keepdim=True)
            distinct = (count > 0).sum(-1, keepdim=True)
            mixed = ((count - step).clamp(min=0.0) + step * distinct * law) / total
            law = torch.where(total > 0, mixed, law)
        return law

    return from_suffixes(estimate, tokens, order=order, vocab=vocab, every_position=every_position)


def _as_weights(weights: Any) -> torch.Tensor:
    mixture = torch.from_numpy(real_array(weights, name="weights"))
    if mixture.ndim != 1 or len(mixture) < 2:
        raise ValueError(f"weights must list lambda_0..lambda_k for an order k >= 1, got shape {list(mixture.shape)}")
    if not torch.isfinite(mixture).all() or (mixture < 0).any():
        raise ValueError(f"weights must be finite and not negative, got {mixture.tolist()}")
    if abs(float(mixture.sum()) - 1) > 1e-6:
        raise ValueError(f"weights must sum to one, got {mixture.tolist()}: {float(mixture.sum()):.6g}")
    return mixture / mixture.sum()
