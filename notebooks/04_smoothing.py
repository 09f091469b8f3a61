# ---
# jupyter:
#   jupytext:
#     cell_metadata_filter: -all
#     notebook_metadata_filter: kernelspec,-jupytext.text_representation.jupytext_version
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Smoothing: one formula, a family of estimators
#
# The estimator that an induction head computes (`eq:transformer_estimator`) has a weight $\beta_r$ for each lag and a
# score $\kappa$ for BOS. At their extremes they give estimators that are much older than transformers; in between they
# mix them. No model here, only estimators: tokens in, law of the next token out.
#
# $$
# T(x)(m) = \frac{e^{\kappa}/|V| + \sum_M e^{|\beta|_M} N_M(m)}{e^{\kappa} + \sum_M e^{|\beta|_M} N_M}
# $$

# %%
import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns
import torch

import interp as ip
from interp import plotting
from interp.results import half_width

sns.set_theme(style="ticks")
prior = ip.HierarchicalDirichlet(order=2, vocab=5, eta=(5.0, 5.0))
chains = prior.sample(batch=512, length=64, seed=0, method="explicit")


def kl(law: torch.Tensor) -> float:
    """Mean KL(truth || law) in nats."""
    return ip.kl_divergence(chains.next_law, law).mean


# %% [markdown]
# ## Sliders
#
# One sequence, and two pictures of it. On the left, where the votes come from: the share of BOS, of empty matches, of
# each single lag, and of full matches. On the right, the prediction beside the truth and beside the Bayes predictor,
# which knows the prior and is the best that anyone can do on average. The title gives the KL over all 512 sequences.
#
# Things to try: turn both betas to 0 (every position votes alike), to 10 (only full matches vote), and kappa from -5
# (BOS has next to no weight) to 10 (BOS has nearly all of it).

# %%
SHOWN = 0
bayes = ip.bayes_predictive(chains.tokens[:64], prior=prior, draws=200, seed=0)
assert bayes.success, bayes.message
counts = ip.mask_counts(chains.tokens, order=2, vocab=5)[SHOWN].sum(-1).double().numpy()  # N_M


def votes(beta: tuple[float, float], kappa: float) -> np.ndarray:
    """Shares of BOS and of the masks {}, {2}, {1}, {1,2}."""
    weights = [np.exp(kappa)]
    for mask in (0b00, 0b10, 0b01, 0b11):
        weights.append(counts[mask] * np.exp(sum(beta[lag] for lag in range(2) if mask >> lag & 1)))
    return np.array(weights) / sum(weights)


def draw(beta_1: float = 3.4, beta_2: float = 1.7, kappa: float = 4.4, axes=None) -> None:
    """The two pictures at these parameters."""
    if axes is None:
        _, axes = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
    law = ip.soft_matching(chains.tokens, vocab=5, beta=(beta_1, beta_2), kappa=kappa)
    colours = [plotting.OVERLAP_COLOURS[kind] for kind in ("bos", "none", "partial", "partial", "full")]
    axes[0].bar(["BOS", "{}", "{2}", "{1}", "{1,2}"], votes((beta_1, beta_2), kappa), color=colours)
    axes[0].set_ylim(0, 1)
    axes[0].set_ylabel("share of the votes")
    laws = {"truth": chains.next_law[SHOWN], "Bayes": bayes.mean[SHOWN], "soft matching": law[SHOWN]}
    for place, (name, values) in enumerate(laws.items()):
        shade = ("black", "#a6a6a6", "#5b99c2")[place]
        axes[1].bar(np.arange(5) + 0.27 * (place - 1), values.numpy(), 0.25, label=name, color=shade)
    axes[1].set_ylim(0, 1)
    axes[1].set_xlabel("next symbol")
    axes[1].set_title(f"$\\beta$ = ({beta_1:g}, {beta_2:g}), $\\kappa$ = {kappa:g}: KL {kl(law):.3f}", fontsize=11)
    axes[1].legend(frameon=False, fontsize=9)
    sns.despine(ax=axes[0])
    sns.despine(ax=axes[1])


try:
    import ipywidgets
except ImportError:
    print("ipywidgets is not installed: no sliders, but the pictures below show the same")
else:
    ranges = {"beta_1": (0.0, 10.0, 0.1), "beta_2": (0.0, 10.0, 0.1), "kappa": (-5.0, 10.0, 0.1)}
    ipywidgets.interact(draw, **ranges, axes=ipywidgets.fixed(None))

# %% [markdown]
# The same without sliders, at four settings. What to see: in row 1 every position votes alike, and the prediction is
# how often each symbol occurs. In row 2 only full matches vote. In row 3 BOS has nearly all, and the prediction is
# flat. Row 4 is near the best mixture, and has the lowest KL of the four.
#
# In this sequence the most likely next symbol, 2, has never yet followed the present context. So row 2 gives it
# nothing. Not even Bayes can know how likely it is; but soft matching and Bayes give it a share, because it often
# follows contexts that agree in part.

# %%
settings = [(0.0, 0.0, -5.0), (10.0, 10.0, -5.0), (0.0, 0.0, 10.0), (3.4, 1.7, 4.4)]
fig, axes = plt.subplots(4, 2, figsize=(9, 11), layout="constrained")
for row, (beta_1, beta_2, kappa) in zip(axes, settings, strict=True):
    draw(beta_1, beta_2, kappa, axes=row)
losses = [kl(ip.soft_matching(chains.tokens, vocab=5, beta=setting[:2], kappa=setting[2])) for setting in settings]
assert int(np.argmin(losses)) == 3
assert chains.next_law[SHOWN].argmax() == 2
assert ip.mask_counts(chains.tokens, order=2, vocab=5)[SHOWN, 0b11, 2] == 0
assert votes((10.0, 10.0), -5.0)[-1] > 0.99
assert votes((0.0, 0.0), 10.0)[0] > 0.99

# %% [markdown]
# ## The whole landscape
#
# KL over the overall size of beta (at the best ratio of the two lags) and kappa. What to see: one valley. The cross
# marks the lowest point of the population, of which these 512 sequences are a sample; it lies inside the picture, so
# both kinds of smoothing are worth having under this prior.

# %%
best = ip.optimal_parameters(prior, length=64, bos=True, draws=20_000)
factors, kappas = np.linspace(0, 2.5, 26), np.linspace(-3, 10, 27)
mask_counts = ip.mask_counts(chains.tokens, order=2, vocab=5)
direction = torch.tensor(best.beta, dtype=torch.float64)
grid = np.array(
    [
        [kl(ip.soft_matching_from_counts(mask_counts, beta=factor * direction, kappa=kappa)) for factor in factors]
        for kappa in torch.from_numpy(kappas)
    ]
)
fig, ax = plt.subplots(figsize=(6, 4), layout="constrained")
image = ax.contourf(factors, kappas, grid, levels=np.linspace(0.13, 0.9, 23), cmap="viridis", extend="max")
ax.plot(1, best.kappa, "x", color="white", markersize=9, markeredgewidth=2)
ax.set_xlabel("factor on the best beta")
ax.set_ylabel("$\\kappa$")
fig.colorbar(image, ax=ax, label="KL to the truth (nats)", format="%.2f")
row, column = np.unravel_index(grid.argmin(), grid.shape)
print(best)
print(f"lowest on the grid: factor {factors[column]:.1f}, kappa {kappas[row]:.1f}, KL {grid.min():.4f}")
assert 0 < row < len(kappas) - 1
assert 0 < column < len(factors) - 1
assert abs(factors[column] - 1) <= 0.2

# %% [markdown]
# ## The limits
#
# **beta to infinity, no BOS: maximum likelihood** where the full context has been seen before. Only full matches vote.

# %%
BIG = 60.0
hard = ip.soft_matching(chains.tokens, vocab=5, beta=(BIG, BIG), kappa=None)
seen = mask_counts[:, 0b11].sum(-1) > 0
likelihood = ip.maximum_likelihood(chains.tokens, order=2, vocab=5)
print(f"the full context was seen before in {seen.double().mean():.1%} of the sequences")
assert torch.allclose(hard[seen], likelihood[seen])

# %% [markdown]
# **Katz back-off?** Back-off uses the longest suffix of the context that was seen. Hard attention uses the keys with
# the *largest overlap*. Where the full context was seen (and at $k = 1$) the two are the same thing.

# %%
katz = ip.katz(chains.tokens, order=2, vocab=5)
assert torch.allclose(hard[seen], katz[seen])

# %% [markdown]
# They part where the full context is new. Take the sequence `0 0 1 1 0`. The context is (1, 0). It has not
# occurred before. Two keys agree at exactly one lag:
#
# - token 3 (a 1) follows 0 0: it agrees at lag 1. That is the suffix that back-off uses.
# - token 5 (a 0) follows 1 1: it agrees at lag 2 only. No back-off would look at it, but its overlap is as large.
#
# So with equal betas, hard attention gives each half of the vote, and Katz gives all to the first.

# %%
tokens = [[0, 0, 1, 1, 0]]
print([ip.mask_name(mask) for mask in ip.match_masks(tokens, order=2)[0].tolist()[2:]], "for tokens 3, 4, 5")
hard_law = ip.soft_matching(tokens, vocab=2, beta=(BIG, BIG), kappa=None)[0]
katz_law = ip.katz(tokens, order=2, vocab=2)[0]
print("hard attention", hard_law.numpy().round(3), " Katz", katz_law.numpy().round(3))
assert torch.allclose(hard_law, torch.tensor([0.5, 0.5], dtype=torch.float64))
assert torch.allclose(katz_law, torch.tensor([0.0, 1.0], dtype=torch.float64))

# %% [markdown]
# **Add-alpha.** Let beta grow, and kappa with it: $\kappa = \sum_r \beta_r + \ln(\alpha|V|)$. Then a full match
# and BOS keep their ratio: BOS is worth $\alpha$ pseudo-counts of each symbol, and the weight of partial matches
# vanishes. What to see: a straight fall on the logarithmic axis.

# %%
target = ip.add_alpha(chains.tokens, order=2, vocab=5, alpha=1.0)
sizes = np.arange(1, 21)
errors = [
    float((ip.soft_matching(chains.tokens, vocab=5, beta=(b, b), kappa=2 * b + np.log(5)) - target).abs().max())
    for b in sizes
]
fig, ax = plt.subplots(figsize=(6, 3), layout="constrained")
ax.semilogy(sizes, errors, "o-")
ax.set_xlabel("$\\beta_1 = \\beta_2$")
ax.set_ylabel("largest difference to add-1")
sns.despine()
assert errors[-1] < 1e-6
assert (np.diff(errors) < 0).all()

# %% [markdown]
# **Jelinek-Mercer.** In between, with equal betas and no BOS, the estimator is exactly a mixture $\sum_i \lambda_i q_i$
# of models of order $0..k$ (`corollary:mixture`). Classical Jelinek-Mercer fixes the $\lambda_i$; here each sequence
# has its own, by its counts. What to see: at small beta order 0 has all the weight, at large beta order 2, and at every
# beta the weights differ from sequence to sequence (bands: the middle 80 percent).

# %%
sizes = np.linspace(0.05, 6, 40)
mixtures = [ip.order_mixture(chains.tokens, order=2, vocab=5, beta=size) for size in sizes]
weights = np.stack([mixture.order_weights.numpy() for mixture in mixtures])  # [beta, batch, order]
fig, ax = plt.subplots(figsize=(6, 3.2), layout="constrained")
for order, colour in enumerate(("#a6a6a6", "#008080", "#f2b701")):
    low, high = np.quantile(weights[:, :, order], [0.1, 0.9], axis=1)
    ax.fill_between(sizes, low, high, color=colour, alpha=0.3, linewidth=0)
    ax.plot(sizes, weights[:, :, order].mean(1), color=colour, label=f"order {order}")
ax.set_xlabel("$\\beta_1 = \\beta_2$")
ax.set_ylabel("weight $\\lambda_i$ of the order")
ax.legend(frameon=False)
sns.despine()
middle = mixtures[20]
soft = ip.soft_matching(chains.tokens, vocab=5, beta=(sizes[20], sizes[20]), kappa=None)
assert torch.allclose(middle.prediction(), soft)
assert weights[0].mean(0).argmax() == 0
assert weights[-1].mean(0).argmax() == 2

# %% [markdown]
# ## Beside Bayes, over length
#
# How much is smoothing worth, and how far is the formula from the best possible? For each length the formula has its
# own best parameters. Add-1 is the Bayes predictor of *another* prior, one where contexts tell nothing about each
# other. What to see: soft matching runs close above Bayes at every length. Add-1 stays above both, because it cannot
# borrow from shorter contexts. Without BOS the formula is worst on short sequences, where symbols are still missing,
# and catches up.

# %%
lengths = np.array([16, 32, 64, 128])
names = ("add 1", "soft matching without BOS", "soft matching", "Bayes")
divergences = {name: [] for name in names}
for length in lengths.tolist():
    sample = prior.sample(batch=200, length=length, seed=length, method="explicit")
    with_bos = ip.optimal_parameters(prior, length=length, bos=True, draws=20_000)
    without = ip.optimal_parameters(prior, length=length, bos=False, draws=20_000)
    posterior = ip.bayes_predictive(sample.tokens, prior=prior, draws=100, seed=0)
    assert posterior.success, posterior.message
    laws = (
        ip.add_alpha(sample.tokens, order=2, vocab=5, alpha=1.0),
        without.predict(sample.tokens),
        with_bos.predict(sample.tokens),
        posterior.mean,
    )
    for name, law in zip(names, laws, strict=True):
        divergences[name].append(ip.kl_divergence(sample.next_law, law))
means = {name: np.array([row.mean for row in rows]) for name, rows in divergences.items()}
reach = {name: np.array([half_width(row.stderr, n=row.n) for row in rows]) for name, rows in divergences.items()}
fig, ax = plt.subplots(figsize=(7, 3.8), layout="constrained")
for name, values in means.items():
    plotting.curve(ax, lengths, values, reach=reach[name], band=True, marker="o", markersize=3.5, label=name)
ax.set_xscale("log", base=2)
ax.set_xticks(lengths, lengths)
ax.set(yscale="log", xlabel="length $T$", ylabel="KL to the true law (nats)")
ax.legend(frameon=False)
sns.despine()
for name, values in means.items():
    print(f"{name:26}", values.round(4))
assert (means["Bayes"] < means["soft matching"]).all()
assert (means["soft matching"] < means["add 1"]).all()
assert (means["soft matching"] < 1.2 * means["Bayes"]).all()
assert max(means, key=lambda name: means[name][0]) == "soft matching without BOS"
assert means["soft matching without BOS"][-1] < 1.2 * means["soft matching"][-1]
