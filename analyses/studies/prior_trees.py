"""One draw of each task prior, node by node, and the correlation of sibling contexts.

    python -m analyses prior_trees
    python -m analyses prior_trees --vocab 4 --eta 20 --seed 1

Two kinds of rows (fig:task_priors). `node`: the law of one node of the context tree, in the first of --draws draws from
the sampler that makes the training data; the independent prior has laws for contexts of length k only. `pair`: the
correlation between the laws of two nodes over all draws, with its standard error, beside its exact value: contexts that
share their k-1 most recent tokens (siblings), contexts that do not (others), a context and its suffix (parent), and
siblings minus others. The correlation of laws p and q is E[(p - 1/|V|).(q - 1/|V|)] over the root of the same products
of p and of q with themselves; 1/|V| is the mean of every law, by symmetry. Draws are independent of each other, pairs
of one draw are not, so the standard error is over draws.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from analyses.running.ask import Ask
from analyses.running.options import ChainOptions, option
from analyses.running.subject import DEFAULT_ETA
from analyses.running.table import Table

if TYPE_CHECKING:
    import numpy as np

    from analyses.running.cache import Cache
    from interp.chains.priors import Prior


COLUMNS = ("prior", "what", "name", "parent", "law", "correlation", "stderr", "exact")


@dataclass(frozen=True, kw_only=True)
class Options(ChainOptions):
    vocab: int = option(3, "vocabulary size (default: %(default)s)", metavar="V", least=2)
    alpha: float = option(1.0, "of the independent prior (default: %(default)s)")
    eta: float = option(DEFAULT_ETA, "of the hierarchical prior, at every level (default: %(default)s)")
    draws: int = option(20_000, "trees for the correlations (default: %(default)s)", metavar="N", least=2)


ASK = Ask()


def study(options: Options, cache: Cache) -> Table:
    """The nodes of one tree of each prior, and the correlations over many."""
    import numpy as np

    from interp.chains.priors import HierarchicalDirichlet, IndependentDirichlet
    from interp.results import provenance

    order, vocab = options.order, options.vocab
    priors: dict[str, Prior] = {
        "independent": IndependentDirichlet(order=order, vocab=vocab, alpha=options.alpha),
        "hierarchical": HierarchicalDirichlet(order=order, vocab=vocab, eta=(options.eta,) * order),
    }
    rows: list[dict[str, Any]] = []
    for name, prior in priors.items():
        tree = prior.draw_tree(options.draws, np.random.default_rng(options.seed))
        common = {"prior": name, "parameters": prior.to_dict()}
        rows += [{**common, "what": "node", **fields} for fields in nodes(tree, prior)]
        rows += [{**common, "what": "pair", **fields} for fields in pairs(tree, prior)]
    columns = list(dict.fromkeys(key for row in rows for key in row))
    shown = [column for name in COLUMNS for column in (_places("law", vocab) if name == "law" else [name])]
    return Table(
        rows=[{column: row.get(column) for column in columns} for row in rows],
        provenance=provenance(seed=options.seed, priors={name: prior.to_dict() for name, prior in priors.items()}),
        shown=shown,
        notes=["A context is written older to recent, (x_{t-2}, x_{t-1}); its parent is its suffix."],
    )


def nodes(tree: dict[int, np.ndarray], prior: Prior) -> list[dict[str, Any]]:
    """The first draw, a row for each node; siblings, which share a suffix, stand together."""
    found = []
    for depth, laws in tree.items():
        contexts = [context_of(code, depth=depth, vocab=prior.vocab) for code in range(laws.shape[1])]
        for code in sorted(range(len(contexts)), key=lambda code: contexts[code][::-1]):
            context = contexts[code]
            parent = context[1:] if depth - 1 in tree else None
            found.append(
                {
                    "name": written(context),
                    "context": context,
                    "depth": depth,
                    "parent": None if parent is None else written(parent),
                    "law": laws[0, code].tolist(),
                }
            )
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


def pairs(tree: dict[int, np.ndarray], prior: Prior) -> list[dict[str, Any]]:
    """Correlations of the laws of pairs of nodes, over the draws."""
    import numpy as np

    order, vocab = prior.order, prior.vocab
    leaves = tree[order] - 1.0 / vocab
    shared = shared_suffixes(order=order, vocab=vocab)
    moments = exact_moments(prior)
    products = np.einsum("dam,dbm->dab", leaves, leaves)
    own = products[:, shared == order].mean(-1)
    siblings = products[:, shared == order - 1].mean(-1)
    exact_own = moments[order]
    exact_siblings = moments[order - 1] / exact_own
    found = [_pair("siblings", *_correlation(siblings, own, own), exact=exact_siblings)]
    if order > 1:  # at order 1 all contexts are siblings: the empty suffix is theirs
        others = products[:, shared < order - 1].mean(-1)
        exact_others = float(np.mean([moments[length] for length in shared[shared < order - 1]])) / exact_own
        found.append(_pair("others", *_correlation(others, own, own), exact=exact_others))
        found.append(
            _pair(
                "siblings less others", *_correlation(siblings - others, own, own), exact=exact_siblings - exact_others
            )
        )
    if order - 1 in tree:
        parents = tree[order - 1] - 1.0 / vocab
        theirs = np.tile(parents, (1, vocab, 1))  # code c has suffix code c mod |V|^(k-1)
        across = np.einsum("dam,dam->da", leaves, theirs).mean(-1)
        above = np.einsum("dam,dam->da", parents, parents).mean(-1)
        found.append(
            _pair("parent", *_correlation(across, own, above), exact=math.sqrt(moments[order - 1] / moments[order]))
        )
    return [{**fields, "n": leaves.shape[0]} for fields in found]


def shared_suffixes(*, order: int, vocab: int) -> np.ndarray:
    """[context, context]: how many most recent tokens two contexts share."""
    import numpy as np

    codes = np.arange(vocab**order)
    lengths = [codes[:, None] % vocab**length == codes[None, :] % vocab**length for length in range(1, order + 1)]
    return np.sum(lengths, axis=0)


def exact_moments(prior: Prior) -> list[float]:
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


def _correlation(product: np.ndarray, first: np.ndarray, second: np.ndarray) -> tuple[float, float]:
    """mean(product) / root(mean(first) mean(second)) over draws, and its standard error to first order."""
    import numpy as np

    from interp.results import mean_stderr

    scale = math.sqrt(first.mean() * second.mean())
    correlation = float(product.mean()) / scale
    pull = np.asarray(product / scale - correlation / 2 * (first / first.mean() + second / second.mean()))
    return correlation, mean_stderr(pull)[1]


def _pair(name: str, correlation: float, stderr: float, *, exact: float) -> dict[str, Any]:
    return {"name": name, "correlation": correlation, "stderr": stderr, "exact": exact}


def _places(name: str, count: int) -> list[str]:
    return [f"{name}_{place}" for place in range(1, count + 1)]
