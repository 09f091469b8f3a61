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
# # A tour: which estimator does an induction head compute?
#
# You know TransformerLens and induction heads: one layer copies the previous token, the next layer looks for earlier
# places with the same previous token and copies what came after. This notebook asks a more exact question about a small
# trained model: **what probability law does its attention put on the next token?**
#
# The answer of the paper (*Induction Heads Interpolate N-Grams*) is one formula, `eq:transformer_estimator`:
#
# $$
# T(x)(m) = \frac{e^{\kappa}/|V| + \sum_M e^{|\beta|_M} N_M(m)}{e^{\kappa} + \sum_M e^{|\beta|_M} N_M}
# $$
#
# Every earlier position votes for its token. The vote weighs more, the more of its context agrees with the context of
# the query. $M$ is the set of lags that agree (lag 1 is the query's own token, lag 2 the one before it), $N_M(m)$
# counts the votes for symbol $m$ with that set and $N_M$ all of them, $\beta_r$ is what agreement at lag $r$ adds to
# the attention score, $|\beta|_M$ is the sum of these over $M$, and $\kappa$ is the score of the BOS token, which votes
# for all symbols alike.
#
# First the story in ten lines, then what each line means.

# %%
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns
import torch

import interp as ip
from interp import plotting
from interp.lens import HookedTransformer

sns.set_theme(style="ticks")
HERE = Path.cwd()
CHECKPOINTS = next(path for root in (HERE, *HERE.parents) if (path := root / "models" / "checkpoints").is_dir())

# %% [markdown]
# ## Ten lines

# %%
prior = ip.HierarchicalDirichlet(order=2, vocab=5, eta=(5.0, 5.0))
chains = prior.sample(batch=512, length=64, seed=0, method="explicit")
model = ip.load(CHECKPOINTS / "hierarchical_bos" / "disentangled" / "soft" / "T64_seed0")
cap = ip.capture(model, chains.tokens)
fit = ip.fit_scores(cap)
mass = ip.overlap_mass(cap, fit)
print(fit, mass, sep="\n\n")
ax = cap.plot(sequence=0)
# %% [markdown]
# Now line by line.
#
# ## 1. The prior: a task for every sequence
#
# A *task* is a Markov chain of order $k = 2$ over 5 symbols: one law of the next symbol for each pair of last symbols.
# The prior draws a new task for every sequence, so nothing about it can be memorised; it has to be read off the
# sequence.
#
# Under this hierarchical prior, the laws of contexts that end in the same symbol resemble each other. So a context that
# was seen rarely can borrow from shorter contexts, as n-gram language models do when they *smooth*.
#
# ## 2. The chains
#
# `tokens` never contain BOS. `next_law` is the true law of the token after the last one: sampled data with the answer
# attached.

# %%
print(chains)
print("tokens  ", chains.tokens[0].tolist())
print("next law", chains.next_law[0].numpy().round(3))
assert chains.tokens.shape == (512, 64)
assert chains.next_law.shape == (512, 5)

# %% [markdown]
# ## 3. The model
#
# A checkpoint is a plain `HookedTransformer`: two attention layers, no MLP, $k = 2$ heads in the first layer (they
# should *copy* the last tokens) and one head in the second (it should *match* contexts). It is *disentangled*: tokens
# are one-hot, and each head writes to its own block of the residual stream, so weights can be read. There are no
# position embeddings: each head adds a learnt number for each distance to its scores, the *relative bias*. BOS is
# embedded as one fifth of every symbol. All its attention was learnt.

# %%
assert isinstance(model, HookedTransformer)
for name, parameter in model.named_parameters():
    if parameter.requires_grad:
        print(f"{name:24} {tuple(parameter.shape)}")

# %% [markdown]
# How well does it predict? The measure is KL(truth || prediction) in nats, averaged over the sequences. For comparison:
# the uniform law, maximum likelihood (count what followed the same two tokens), the same with 1 added to every count,
# and the paper's formula with the two betas and the kappa that we are about to measure.

# %%
law = ip.predict(model, chains.tokens)
rivals = {
    "uniform": torch.full_like(law, 1 / 5),
    "maximum likelihood": ip.maximum_likelihood(chains.tokens, order=2, vocab=5),
    "add 1": ip.add_alpha(chains.tokens, order=2, vocab=5, alpha=1.0),
    "the formula, fitted": ip.soft_matching(chains.tokens, vocab=5, beta=fit.beta, kappa=fit.kappa),
    "the model": law,
}
kl = {name: ip.kl_divergence(chains.next_law, prediction) for name, prediction in rivals.items()}
for name, divergence in kl.items():
    print(f"{name:20} {divergence}")

# %% [markdown]
# Maximum likelihood is the worst: it gives nothing to what it has not seen, and its KL is finite only because of the
# floor that the line states. The model is far better than adding 1, and as good as the formula. These sentences are
# checked:

# %%
assert max(kl, key=lambda name: kl[name].mean) == "maximum likelihood"
assert kl["the model"].mean < 0.7 * kl["add 1"].mean
assert abs(kl["the model"].mean - kl["the formula, fitted"].mean) < 0.005

# %% [markdown]
# ## 4. The capture
#
# `capture` runs the model once and keeps three things through hooks: the copy layer's pattern, and the match head's
# scores (before the softmax) and pattern (after it). The match arrays hold the last query only, because that is where
# the model predicts and where it was trained.

# %%
print(cap)
assert cap.copy_pattern.shape == (512, 2, 65, 65)  # batch, head, query, key; BOS is position 0
assert cap.match_scores.shape == (512, 1, 1, 65)

# %% [markdown]
# What to see: two copy heads, each with a single dark diagonal. One looks one token back, the other two. (The first
# rows have nowhere to look back to and attend to what there is. The last row, which is not drawn, differs: there more
# than half of the attention goes to BOS, as the printed line says.)

# %%
copy = ip.copy_heads(cap)
fig, axes = plt.subplots(1, 2, figsize=(9, 4.3), layout="constrained")
for head, ax in enumerate(axes):
    plotting.attention_heatmap(ax, cap.copy_pattern[0, head, :24, :24].numpy())
    ax.set_title(f"copy head {head}: {copy.verdict[head]}", fontsize=11)
print(copy)
assert sorted(copy.lag) == [1, 2]
assert copy.success

# %% [markdown]
# The same patterns to play with, if CircuitsVis is installed. `local_src` is the bundled source, which needs no
# network.

# %%
try:
    from circuitsvis.attention import attention_patterns
    from IPython.display import HTML, display
except ImportError:
    print("CircuitsVis is not installed: see the picture above instead")
else:
    names = ["BOS", *map(str, cap.tokens[0, :23].tolist())]
    view = attention_patterns(tokens=names, attention=cap.copy_pattern[0, :, :24, :24])
    display(HTML(view.local_src))

# %% [markdown]
# ## 5. Masks: how much of a context agrees
#
# After the copy layer, position $s$ knows its own token $x_s$ and the two before it. The last query $t$ asks: *who came
# after a context like mine?* Key $s$ agrees at lag 1 if $x_{s-1} = x_t$, and at lag 2 if $x_{s-2} = x_{t-1}$. The set
# of lags that agree is the key's *mask*. A toy sequence shows all four masks:

# %%
toy = [[0, 1, 2, 1, 4, 3, 1, 0, 3, 0, 1]]
masks = ip.match_masks(toy, order=2)[0].tolist()
print(f"the query's context: {toy[0][-2]} {toy[0][-1]}")
for s in range(2, len(toy[0])):
    print(f"after {toy[0][s - 2]} {toy[0][s - 1]} came {toy[0][s]}: agrees at lags {ip.mask_name(masks[s])}")
assert masks[:2] == [-1, -1]  # the first two tokens have no context of two: they are no candidates
assert set(masks[2:]) == {0b00, 0b01, 0b10, 0b11}

# %% [markdown]
# ## 6. The fit: beta and kappa from the scores
#
# If the formula holds, a key's score is $\beta_1$ [lag 1 agrees] + $\beta_2$ [lag 2 agrees], up to a constant of the
# query. So `fit_scores` regresses scores on agreement. What to see: four distributions, each around its predicted level
# (black line). The levels come from the two betas alone: $0$, $\beta_2$, $\beta_1$ and $\beta_1 + \beta_2$. The thin
# tails above the two left ones are one key, the last position itself, which this model raises by its relative bias. The
# formula has no positions; this is where the model departs from it.

# %%
every_mask = ip.match_masks(chains.tokens, order=2)[:, 2:]  # candidates only
scores = cap.match_scores[:, 0, 0, 3:]  # the same keys: BOS comes first
relative = scores - scores.masked_fill(every_mask != 0, torch.nan).nanmean(-1, keepdim=True)
levels = {0b00: 0.0, 0b10: fit.beta[1], 0b01: fit.beta[0], 0b11: fit.beta.sum()}
itself = relative[:, -1][every_mask[:, -1] == 0].mean()
print(f"the last position itself, where no lag agrees: {itself:.2f} above the others")
assert itself > 1
fig, ax = plt.subplots(figsize=(7, 3.4), layout="constrained")
for place, (mask, level) in enumerate(levels.items()):
    ax.violinplot(relative[every_mask == mask].numpy(), [place], showextrema=False, widths=0.8)
    ax.hlines(level, place - 0.4, place + 0.4, color="black")
ax.set_xticks(range(4), [ip.mask_name(mask) for mask in levels])
ax.set_xlabel("lags that agree")
ax.set_ylabel("score above an empty match")
sns.despine()

# %% [markdown]
# A result prints as text, and a notebook shows it as a table. Every result also draws itself, with `.plot()`.

# %%
fit

# %% [markdown]
# Both betas are positive, the nearer lag counts for more, and agreement explains nearly all the variation of the
# scores. These are also close to the best parameters that the formula can have on this task (right):

# %%
best = ip.optimal_parameters(prior, length=64, bos=True, draws=20_000)
fig, axes = plt.subplots(1, 2, figsize=(9, 3.2), sharey=True, layout="constrained")
fit.plot(axes[0])
best.plot(axes[1])
sns.despine()
assert fit.success
assert fit.beta[0] > fit.beta[1] > 0
assert fit.r2 > 0.95
assert np.allclose(fit.beta, best.beta, atol=0.15)
assert abs(fit.kappa - best.kappa) < 0.25

# %% [markdown]
# ## 7. The mass: where the attention goes
#
# A softmax turns scores into attention, and attention is what votes. `overlap_mass` sums it by how many lags agree, and
# puts beside it what the formula predicts from each sequence's own counts. What to see: a ring (predicted) at the end
# of every bar (observed).

# %%
ax = mass.plot()
# %% [markdown]
# Most attention is on full matches. About a fifth goes to positions of which only one lag agrees: a hard "find the same
# context" head would give them nothing. That is the smoothing. Rings and bars differ by less than one hundredth.

# %%
assert mass.by_overlap[2] > 0.5
assert 0.15 < mass.by_overlap[1] < 0.3
assert mass.largest_gap < 0.01

# %% [markdown]
# ## 8. The bars: one prediction, taken apart
#
# Back to the picture of the ten lines. Each bar is one key of sequence 0, with its token below, coloured by its
# overlap; the legend has the share of each kind. What to see: yellow bars (both lags agree) are the highest. Teal bars
# (one lag agrees) are lower, and have two heights, one for each lag. Grey keys (no lag agrees) hardly show, except the
# last, which is the query itself. BOS comes first.

# %%
ax = cap.plot(sequence=0)
# %% [markdown]
# The bars are votes: give each bar's weight to its token, and BOS's weight to all five alike, and you have the
# prediction, nearly. The trained readout does a little more than sum the votes ([02_hooks](02_hooks.ipynb) looks
# at it), so a probability differs by one or two hundredths on average, and by more in this sequence.

# %%
attention = cap.match_pattern[:, 0, 0].double()
one_hot = torch.nn.functional.one_hot(chains.tokens, 5).double()
votes = torch.einsum("bk,bkv->bv", attention[:, 1:], one_hot) + attention[:, :1] / 5
print("votes", votes[0].numpy().round(3))
print("model", law[0].numpy().round(3))
print("truth", chains.next_law[0].numpy().round(3))
apart = (votes - law).abs().mean()
print(f"a probability differs by {apart:.3f} on average over all sequences")
assert apart < 0.02
assert (votes - law)[0].abs().mean() > apart

# %% [markdown]
# **Where to go next.** [02_hooks](02_hooks.ipynb) edits this attention and watches the predictions change.
# [03_from_scratch](03_from_scratch.ipynb) trains such a model and watches beta form. [04_smoothing](04_smoothing.ipynb)
# is about the formula as a family of estimators. [05_your_model](05_your_model.ipynb) asks these questions of a model
# that is not from this suite.
