"""The paper's definitions, written out as loops over its own indices, slowly and exactly.

Nothing here imports `interp`. Sequences are plain lists; positions t, s and lags r are 1-based, as in the paper, and
`at(x, i)` is its x_i. Masks are frozensets of lags. Exponentials are 40-digit decimals, so that a weight of e^40000 is
a number like any other; prior probabilities are fractions, so that they are exact.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from decimal import Context, Decimal, localcontext
from fractions import Fraction

import numpy as np

DIGITS = Context(prec=40, Emax=10**12, Emin=-(10**12))
Mask = frozenset[int]
Polynomial = dict[tuple[int, ...], Fraction]  # exponents of p(0), p(1), ... -> coefficient


def at(x: Sequence[int], i: int) -> int:
    """x_i."""
    assert 1 <= i <= len(x)
    return x[i - 1]


# ---- masks and counts: def:match_mask, def:occurrences


def candidates(t: int, k: int) -> range:
    """[k', t] in token positions: those with k tokens before them. BOS, which is no token, shifts both ends alike."""
    return range(k + 1, t + 1)


def match_mask(x: Sequence[int], *, t: int, s: int, k: int) -> Mask:
    """M_s^(t) = {r in [k] : x_{t-r+1} = x_{s-r}}."""
    return frozenset(r for r in range(1, k + 1) if at(x, t - r + 1) == at(x, s - r))


def all_masks(k: int) -> Iterator[Mask]:
    """Every subset of [k]."""
    for size in range(k + 1):
        for lags in itertools.combinations(range(1, k + 1), size):
            yield frozenset(lags)


def mask_index(mask: Mask) -> int:
    """The integer by which the suite calls a mask: bit r-1 for lag r."""
    return sum(2 ** (r - 1) for r in mask)


def mask_count(x: Sequence[int], *, t: int, k: int, mask: Mask, m: int) -> int:
    """N_M^(t)(m)."""
    return sum(match_mask(x, t=t, s=s, k=k) == mask and at(x, s) == m for s in candidates(t, k))


def cumulative_count(x: Sequence[int], *, t: int, k: int, mask: Mask, m: int) -> int:
    """K_M^(t)(m)."""
    return sum(match_mask(x, t=t, s=s, k=k) >= mask and at(x, s) == m for s in candidates(t, k))


# ---- estimators


def normalised(votes: Sequence[Decimal]) -> list[float]:
    """Votes as a law; uniform where there are none."""
    with localcontext(DIGITS):
        total = sum(votes, Decimal(0))
        return [float(vote / total) if total else 1.0 / len(votes) for vote in votes]


def soft_matching(
    x: Sequence[int], *, vocab: int, beta: Sequence[float], kappa: float | None, t: int | None = None
) -> list[float]:
    """eq:transformer_estimator at query t (default: the last); kappa = None is the paper's -infinity."""
    k, t = len(beta), len(x) if t is None else t
    with localcontext(DIGITS):
        votes = [Decimal(0) if kappa is None else Decimal(kappa).exp() / vocab for _ in range(vocab)]
        for s in candidates(t, k):
            mask = match_mask(x, t=t, s=s, k=k)
            votes[at(x, s)] += sum((Decimal(beta[r - 1]) for r in mask), Decimal(0)).exp()
        return normalised(votes)


def soft_matching_pairs(
    x: Sequence[int],
    *,
    vocab: int,
    beta: Sequence[Sequence[float]],
    kappa: float | None = None,
    t: int | None = None,
) -> list[float]:
    """corollary:inductive with the alignment of def:match_mask: (r1, r2) is in M where x_{t-r1+1} = x_{s-r2}."""
    k, t = len(beta), len(x) if t is None else t
    with localcontext(DIGITS):
        votes = [Decimal(0) if kappa is None else Decimal(kappa).exp() / vocab for _ in range(vocab)]
        for s in candidates(t, k):
            score = Decimal(0)
            for r1, r2 in itertools.product(range(1, k + 1), repeat=2):
                if at(x, t - r1 + 1) == at(x, s - r2):
                    score += Decimal(beta[r1 - 1][r2 - 1])
            votes[at(x, s)] += score.exp()
        return normalised(votes)


def law_score(
    x: Sequence[int], *, t: int, s: int, beta: Sequence[float], law: str = "additive", own: float = 0.0
) -> float:
    """The score of key s at query t: |beta|_M, or the sum of beta over the longest suffix {1..i} in M, or, for a free
    law, the number that `beta` has for the mask's index; plus `own` where x_s = x_t.
    """
    k = (len(beta) - 1).bit_length() if law == "free" else len(beta)
    mask = match_mask(x, t=t, s=s, k=k)
    score = own if at(x, s) == at(x, t) else 0.0
    if law == "free":
        return score + beta[mask_index(mask)]
    for r in range(1, k + 1):
        if r in mask:
            score += beta[r - 1]
        elif law == "suffix":
            break
    return score


def attention_cross_entropy(
    x: Sequence[int],
    attention: Sequence[float],
    *,
    k: int,
    t: int,
    beta: Sequence[float],
    kappa: float | None,
    law: str = "additive",
    own: float = 0.0,
    place: Sequence[float] | None = None,
) -> float:
    """- sum_s p_s log law_s of one query: its attention over BOS, x_1..x_t, renormalised over BOS and candidates.

    `place` is the positional term by the distance t - s; it is centred over the candidates of the query.
    """
    bos = int(kappa is not None)
    mean = 0.0 if place is None else sum(place[t - s] for s in candidates(t, k)) / len(candidates(t, k))
    scores = {s: law_score(x, t=t, s=s, beta=beta, law=law, own=own) for s in candidates(t, k)}
    if place is not None:
        scores = {s: score + place[t - s] - mean for s, score in scores.items()}
    observed = {s: attention[s - 1 + bos] for s in scores}
    if kappa is not None:
        scores[0], observed[0] = kappa, attention[0]
    total = sum(np.exp(score) for score in scores.values())
    covered = sum(observed.values())
    return -sum(observed[s] / covered * (scores[s] - np.log(total)) for s in scores)


def transition_count(x: Sequence[int], *, context: Sequence[int], m: int) -> int:
    """N_u(m), eq:transcount: how often m followed the context u = (older, ..., most recent)."""
    k = len(context)
    return sum(
        [at(x, s - k + i) for i in range(k)] == list(context) and at(x, s) == m for s in range(k + 1, len(x) + 1)
    )


def maximum_likelihood(x: Sequence[int], *, k: int, vocab: int) -> list[float]:
    """N_{u_T}(m) / N_{u_T}; uniform where u_T is new."""
    return normalised([Decimal(transition_count(x, context=x[-k:], m=m)) for m in range(vocab)])


def add_alpha(x: Sequence[int], *, k: int, vocab: int, alpha: float | Sequence[float]) -> list[float]:
    """eq:bayes_optimal_markov; one alpha stands for all symbols."""
    added = [alpha] * vocab if isinstance(alpha, (int, float)) else list(alpha)
    assert len(added) == vocab
    return normalised([Decimal(transition_count(x, context=x[-k:], m=m)) + Decimal(added[m]) for m in range(vocab)])


def order_weights(x: Sequence[int], *, k: int, vocab: int, beta: float) -> list[float]:
    """lambda_0 .. lambda_k of eq:transformer_mixture, with gamma = e^beta - 1 and 0^0 = 1."""
    with localcontext(DIGITS):
        gamma = Decimal(beta).exp() - 1
        terms = [(gamma**i if i else Decimal(1)) * sum(order_votes(x, k=k, vocab=vocab, order=i)) for i in range(k + 1)]
        return [float(term / sum(terms)) for term in terms]


def order_votes(x: Sequence[int], *, k: int, vocab: int, order: int) -> list[int]:
    """The sum of K_M(m) over the masks of one size, for each symbol m."""
    return [
        sum(cumulative_count(x, t=len(x), k=k, mask=mask, m=m) for mask in all_masks(k) if len(mask) == order)
        for m in range(vocab)
    ]


def pseudo_counts(x: Sequence[int], *, k: int, vocab: int, beta: float) -> list[float]:
    """eq:pseudo_count: gamma^-k times the sum of gamma^|M| K_M(m) over the partial masks."""
    with localcontext(DIGITS):
        gamma = Decimal(beta).exp() - 1
        return [
            float(
                sum(
                    gamma ** (len(mask) - k) * cumulative_count(x, t=len(x), k=k, mask=mask, m=m)
                    for mask in all_masks(k)
                    if len(mask) < k
                )
            )
            for m in range(vocab)
        ]


# ---- the disentangled transformer, sec:models


def attention(stream: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One head: scores e_ij (eq:disentangled_attention_score), its pattern, and its output sum_j A_ij h_j."""
    n = len(stream)
    scores, pattern = np.full((n, n), -np.inf), np.zeros((n, n))
    for i in range(n):
        for j in range(i + 1):
            scores[i, j] = stream[i] @ weight @ stream[j] + bias[i - j]
        shares = np.exp(scores[i, : i + 1] - scores[i, : i + 1].max())
        pattern[i, : i + 1] = shares / shares.sum()
    return scores, pattern, pattern @ stream


def disentangled_forward(
    x: Sequence[int],
    *,
    vocab: int,
    bos: bool,
    copy_weights: np.ndarray,  # [head, vocab, vocab]
    copy_biases: np.ndarray,  # [head, position]
    match_weight: np.ndarray,  # [(k+1) vocab, (k+1) vocab]
    match_bias: np.ndarray,  # [position]
    readout: np.ndarray,  # [vocab, 2 (k+1) vocab], the paper's W_O
) -> dict[str, np.ndarray]:
    """The two layers by concatenation, nothing shared with TransformerLens; `votes` is W_O h at every position."""
    stream = np.eye(vocab)[list(x)]
    if bos:
        stream = np.concatenate([np.full((1, vocab), 1.0 / vocab), stream])
    heads = [attention(stream, weight, bias) for weight, bias in zip(copy_weights, copy_biases, strict=True)]
    stream = np.concatenate([stream, *(output for _, _, output in heads)], axis=-1)
    scores, pattern, output = attention(stream, match_weight, match_bias)
    stream = np.concatenate([stream, output], axis=-1)
    return {
        "copy_pattern": np.stack([pattern for _, pattern, _ in heads]),
        "match_scores": scores,
        "match_pattern": pattern,
        "votes": stream @ readout.T,
    }


# ---- the priors, sec:in-context: exact probabilities of short sequences


def rising(start: Fraction, steps: int) -> Fraction:
    """start (start + 1) ... (start + steps - 1)."""
    product = Fraction(1)
    for i in range(steps):
        product *= start + i
    return product


def multiply(a: Polynomial, b: Polynomial) -> Polynomial:
    product: Polynomial = {}
    for (left, x), (right, y) in itertools.product(a.items(), b.items()):
        exponents = tuple(i + j for i, j in zip(left, right, strict=True))
        product[exponents] = product.get(exponents, Fraction(0)) + x * y
    return product


def dirichlet_moment(exponents: Sequence[int], concentration: Sequence[Fraction]) -> Fraction:
    """E[prod_m pi(m)^n_m] for pi ~ Dirichlet(concentration)."""
    moment = Fraction(1)
    for n, a in zip(exponents, concentration, strict=True):
        moment *= rising(a, n)
    return moment / rising(sum(concentration, Fraction(0)), sum(exponents))


def child_moment(polynomial: Polynomial, eta: Fraction) -> Polynomial:
    """E[f(pi) | p] for pi ~ Dirichlet(eta p), as a polynomial in p."""
    result: Polynomial = {}
    for exponents, coefficient in polynomial.items():
        term: Polynomial = {(0,) * len(exponents): coefficient / rising(eta, sum(exponents))}
        for m, n in enumerate(exponents):
            for i in range(n):  # the factor (eta p(m) + i)
                one = tuple(int(j == m) for j in range(len(exponents)))
                term = multiply(term, {one: eta, (0,) * len(exponents): Fraction(i)})
        for key, value in term.items():
            result[key] = result.get(key, Fraction(0)) + value
    return result


def kernel_moment(
    powers: Mapping[tuple[int, ...], Sequence[int]],
    *,
    vocab: int,
    alpha: Fraction | Sequence[Fraction] | None = None,
    eta: Sequence[Fraction] = (),
    eta0: Fraction | Sequence[Fraction] = Fraction(1),
) -> Fraction:
    """E[prod_{u, m} pi_u(m)^{n_u(m)}] for contexts u = (older, ..., recent); independent where alpha is given.

    For the hierarchy the expectation is taken from the leaves up: a child's moments are polynomials in its parent's
    law, and siblings multiply.
    """
    if alpha is not None:
        moment = Fraction(1)
        for exponents in powers.values():
            moment *= dirichlet_moment(exponents, [alpha] * vocab if isinstance(alpha, Fraction) else list(alpha))
        return moment
    level: dict[tuple[int, ...], Polynomial] = {u: {tuple(n): Fraction(1)} for u, n in powers.items()}
    for concentration in reversed(eta):
        parents: dict[tuple[int, ...], Polynomial] = {}
        for context, polynomial in level.items():
            suffix = context[1:]
            mean = child_moment(polynomial, concentration)
            parents[suffix] = multiply(parents[suffix], mean) if suffix in parents else mean
        level = parents
    root = level.get((), {(0,) * vocab: Fraction(1)})  # no context at all: an empty product
    base = [eta0] * vocab if isinstance(eta0, Fraction) else list(eta0)
    return sum(
        (coefficient * dirichlet_moment(exponents, base) for exponents, coefficient in root.items()),
        Fraction(0),
    )


def sequence_powers(x: Sequence[int], *, k: int, vocab: int) -> dict[tuple[int, ...], list[int]]:
    """How often each context was followed by each symbol."""
    powers: dict[tuple[int, ...], list[int]] = {}
    for s in range(k + 1, len(x) + 1):
        context = tuple(at(x, s - k + i) for i in range(k))
        powers.setdefault(context, [0] * vocab)[at(x, s)] += 1
    return powers


def next_law_moment(x: Sequence[int], *, k: int, vocab: int, m: int, power: int, **prior: object) -> Fraction:
    """E[pi_{u_T}(m)^power ; x_1..x_T = x]: with power 0 the probability of the sequence, k uniform tokens first."""
    powers = sequence_powers(x, k=k, vocab=vocab)
    powers.setdefault(tuple(x[-k:]), [0] * vocab)[m] += power
    return kernel_moment(powers, vocab=vocab, **prior) / vocab**k  # type: ignore[arg-type]


def equality_pattern(x: Sequence[int]) -> tuple[int, ...]:
    """Which tokens are equal, whatever their labels: symbols renamed in order of first appearance."""
    names: dict[int, int] = {}
    return tuple(names.setdefault(token, len(names)) for token in x)


def readout_level(
    tokens: list[int], attention: list[float], readout: list[list[float]], *, order: int, vocab: int
) -> tuple[float, list[float], int]:
    """Level, votes and number of full matches of a model without BOS whose heads copy lags 1..k exactly.

    The final stream holds the query's tokens x_t, ..., x_{t-k}, then what attention brings of the keys' own.
    """
    stream = [0.0] * (2 * (order + 1) * vocab)
    for lag in range(order + 1):
        stream[lag * vocab + tokens[-1 - lag]] += 1.0
        for key, weight in enumerate(attention):
            if key >= lag:
                stream[(order + 1 + lag) * vocab + tokens[key - lag]] += weight
    sums = [sum(stream[row] * readout[row][symbol] for row in range(len(stream))) for symbol in range(vocab)]
    matches = 0
    for key in range(order, len(tokens)):
        matches += all(tokens[key - lag] == tokens[len(tokens) - lag] for lag in range(1, order + 1))
    start = (order + 1) * vocab
    return sum(sums) / vocab, stream[start : start + vocab], matches


def mask_chain(agree: Sequence[float], *, k: int, steps: int) -> list[float]:
    """The law of the mask of two positions after `steps` moves; `agree[j]`: a match after j recent ones."""
    law = {tuple([0] * k): 1.0}  # bits of lags 1..k
    for _ in range(steps):
        moved: dict[tuple[int, ...], float] = {}
        for bits, share in law.items():
            run = 0
            while run < k and bits[run]:
                run += 1
            for match in (0, 1):
                key = (match, *bits[:-1])
                moved[key] = moved.get(key, 0.0) + share * (agree[run] if match else 1.0 - agree[run])
        law = moved
    masks = [0.0] * 2**k
    for bits, share in law.items():
        masks[sum(bit << lag for lag, bit in enumerate(bits))] += share
    return masks


def poisson_tree(
    rng: np.random.Generator,
    *,
    k: int,
    eta: Sequence[float],
    root: tuple[float, float],
    siblings: int,
    rates: Sequence[float],
    keep: Sequence[float],
) -> float:
    """One draw of pi(m) prod_keys keep(mask): laws down the tree, then Poisson votes for m in every context."""

    def below(depth: int, mask: int, law: float) -> tuple[float, float]:
        """The product over the keys below a node, and the law at the end of its all-matching path."""
        if depth == k:
            return keep[mask] ** rng.poisson(rates[mask] * law), law
        product, last = 1.0, math.nan
        for child in range(siblings + 1):
            matches = child == siblings
            drawn = law if law in (0.0, 1.0) else rng.beta(max(eta[depth] * law, 1e-300), eta[depth] * (1.0 - law))
            factor, end = below(depth + 1, mask | (1 << depth if matches else 0), drawn)
            product *= factor
            if matches:
                last = end
        return product, last

    product, law = below(0, 0, rng.beta(*root))
    return law * product


def exact_predictor_weights(eta: Sequence[float], *, vocab: int, keys: float) -> list[float]:
    """Weights of BOS and of keys with a common suffix of 0..k, by following each vote through the shrinkage."""
    k = len(eta) - 1
    seen = [0.0] * (k + 1)
    seen[k] = keys / vocab**k
    for depth in range(k, 0, -1):
        seen[depth - 1] = vocab * seen[depth] * eta[depth] / (eta[depth] + seen[depth])
    weights = []
    for suffix in range(-1, k + 1):  # -1 stands for BOS
        prediction = eta[0] / (seen[0] + eta[0]) if suffix < 0 else 0.0
        for depth in range(k + 1):
            vote = 0.0
            if depth <= suffix:
                vote = 1.0
                for above in range(depth + 1, k + 1):
                    vote *= eta[above] / (eta[above] + seen[above])
            if depth > 0:
                prediction *= eta[depth] / (seen[depth] + eta[depth])
            prediction += vote / (seen[depth] + eta[depth])
        weights.append(prediction)
    return weights
