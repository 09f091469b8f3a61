"""One draw of each task prior, node by node, and the correlation of sibling contexts.

    python -m analyses prior_trees
    python -m analyses prior_trees --vocab 4 --eta 20 --seed 1

Two kinds of rows (fig:task_priors). `node`: the law of one node of the context tree, in the first of --draws draws from
the sampler that makes the training data; the independent prior has laws for contexts of length k only. `pair`: the
correlation between the laws of two nodes over all draws, with its standard error, beside its exact value: contexts that
share their k-1 most recent tokens (siblings), contexts that do not (others), and a context and its suffix (parent).
The correlation of laws p and q is E[(p - 1/|V|).(q - 1/|V|)] over the root of the same products of p and of q with
themselves; 1/|V| is the mean of every law, by symmetry. Draws are independent of each other, pairs of one draw are not,
so the standard error is over draws.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

import interp as ip
from analyses.running.ask import Ask
from analyses.running.cache import Cache
from analyses.running.options import ChainOptions, option
from analyses.running.subject import DEFAULT_ETA
from analyses.running.table import Table

COLUMNS = (
    "prior", "parameters", "what", "name", "context", "depth", "parent", "law", "correlation", "stderr", "exact", "n",
)  # fmt: skip
Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Options(ChainOptions):
    vocab: int = option(3, "vocabulary size (default: %(default)s)", metavar="V", least=2)
    alpha: float = option(1.0, "of the independent prior (default: %(default)s)")
    eta: float = option(DEFAULT_ETA, "of the hierarchical prior, at every level (default: %(default)s)")
    draws: int = option(20_000, "trees for the correlations (default: %(default)s)", metavar="N", least=2)


ASK = Ask()


def study(options: Options, cache: Cache) -> Table:
    """The nodes of one tree of each prior, and the correlations over many."""
    shape = {"order": options.order, "vocab": options.vocab}
    priors: dict[str, ip.Prior] = {
        "independent": ip.IndependentDirichlet(**shape, alpha=options.alpha),
        "hierarchical": ip.HierarchicalDirichlet(**shape, eta=(options.eta,) * options.order),
    }
    rows: list[Row] = []
    for name, prior in priors.items():
        tree = prior.draw_tree(options.draws, np.random.default_rng(options.seed))
        found = [{"what": "node", **row} for row in nodes(tree, prior)]
        found += [{"what": "pair", **row} for row in pairs(tree, prior)]
        rows += [{"prior": name, "parameters": prior.to_dict(), **row} for row in found]
    laws = [f"law_{symbol}" for symbol in range(1, options.vocab + 1)]
    return Table(
        rows=[{column: row.get(column) for column in COLUMNS} for row in rows],
        provenance={"priors": {name: prior.to_dict() for name, prior in priors.items()}},
        shown=("prior", "what", "name", "parent", *laws, "correlation", "stderr", "exact"),
        notes=["A context is written older to recent, (x_{t-2}, x_{t-1}); its parent is its suffix."],
    )


def nodes(tree: dict[int, np.ndarray], prior: ip.Prior) -> list[Row]:
    """The first draw, a row for each node; siblings, which share a suffix, stand together."""
    found = []
    for depth, laws in tree.items():
        contexts = {code: context_of(code, depth=depth, vocab=prior.vocab) for code in range(laws.shape[1])}
        for code, context in sorted(contexts.items(), key=lambda one: one[1][::-1]):
            parent = written(context[1:]) if depth - 1 in tree else None
            place = {"name": written(context), "context": context, "depth": depth, "parent": parent}
            found.append({**place, "law": laws[0, code].tolist()})
    return found


def context_of(code: int, *, depth: int, vocab: int) -> list[int]:
    """The context of a code, older to recent.

    >>> context_of(5, depth=2, vocab=3)  # lag 1 is the lowest digit: 5 = 1 * 3 + 2
    [1, 2]
    """
    return [code // vocab**lag % vocab for lag in reversed(range(depth))]


def written(context: list[int]) -> str:
    """A context as the paper writes it, e.g. (1,2), and () for the empty one."""
    return f"({','.join(map(str, context))})"


def pairs(tree: dict[int, np.ndarray], prior: ip.Prior) -> list[Row]:
    """Correlations of the laws of pairs of nodes, over the draws."""
    order, vocab = prior.order, prior.vocab
    leaves = tree[order] - 1.0 / vocab
    codes = np.arange(vocab**order)
    shared = sum((codes[:, None] - codes) % vocab**length == 0 for length in range(1, order + 1))  # recent tokens
    moments = exact_moments(prior)
    products = np.einsum("dam,dbm->dab", leaves, leaves)
    own, siblings = (products[:, shared == length].mean(-1) for length in (order, order - 1))
    exact = moments[order - 1] / moments[order]
    found = [correlation("siblings", siblings, own, own, exact=exact)]
    if order > 1:  # at order 1 all contexts are siblings: the empty suffix is theirs
        far = shared < order - 1
        others = products[:, far].mean(-1)
        exact_others = float(np.mean([moments[length] for length in shared[far]])) / moments[order]
        found.append(correlation("others", others, own, own, exact=exact_others))
    if order - 1 in tree:
        parents = tree[order - 1] - 1.0 / vocab
        theirs = np.tile(parents, (1, vocab, 1))  # code c has suffix code c mod |V|^(k-1)
        across, above = ((one * other).sum(-1).mean(-1) for one, other in ((leaves, theirs), (parents, parents)))
        found.append(correlation("parent", across, own, above, exact=math.sqrt(exact)))
    return found


def exact_moments(prior: ip.Prior) -> list[float]:
    """E[(p - 1/|V|).(q - 1/|V|)] of two contexts of length k that share exactly 0, 1, ..., k most recent tokens.

    Given the law p of their longest common suffix both have mean p, so it is E|p|^2 - 1/|V|; and a Dirichlet of
    concentration c around p has E|q|^2 = (1 + c |p|^2) / (1 + c).
    """
    square = 1.0 / prior.vocab
    squares = []
    for depth, concentration in enumerate(prior.concentrations().tolist()):
        if not prior.independent or depth == prior.order:
            square = (1.0 + concentration * square) / (1.0 + concentration)
        squares.append(square - 1.0 / prior.vocab)
    return squares


def correlation(name: str, product: np.ndarray, first: np.ndarray, second: np.ndarray, *, exact: float) -> Row:
    """mean(product) / root(mean(first) mean(second)) over draws, and its standard error to first order."""
    scale = math.sqrt(first.mean() * second.mean())
    found = float(product.mean()) / scale
    pull = np.asarray(product / scale - found / 2 * (first / first.mean() + second / second.mean()))
    stderr = ip.mean_stderr(pull)[1]
    return {"name": name, "correlation": found, "stderr": stderr, "exact": exact, "n": len(product)}
