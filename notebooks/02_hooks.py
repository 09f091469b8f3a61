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
# # Hooks: look inside, edit, and make sure that the edit took effect
#
# The models of this suite are `HookedTransformer`s, so everything you know from TransformerLens works on them. Here it
# is done by hand: caches, hooks on scores and patterns, and composed weights. The suite's own instruments
# (`ip.capture`, `ip.causal_tests`) do no more than this.
#
# [01_tour](01_tour.ipynb) tells what the model is. In short: two copy heads in layer 0, one match head in layer 1. The
# score of a key is $\beta_1$ if lag 1 of its context agrees with the query's, plus $\beta_2$ if lag 2 does; BOS scores
# $\kappa$.

# %%
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns
import torch
from transformer_lens import ActivationCache, FactoredMatrix

import interp as ip
from interp import plotting

sns.set_theme(style="ticks")
HERE = Path.cwd()
CHECKPOINTS = next(path for root in (HERE, *HERE.parents) if (path := root / "models" / "checkpoints").is_dir())

prior = ip.HierarchicalDirichlet(order=2, vocab=5, eta=(5.0, 5.0))
chains = prior.sample(batch=256, length=64, seed=0)
model = ip.load(CHECKPOINTS / "hierarchical_bos" / "disentangled" / "soft" / "T64_seed0")
fit = ip.fit_scores(ip.capture(model, chains.tokens))
print(fit)

# %% [markdown]
# ## `run_with_cache`
#
# Token arrays in this suite never hold BOS, so here we put it in front ourselves. Its id is the vocabulary size.

# %%
bos = torch.full((256, 1), model.config.vocab)
ids = torch.cat([bos, chains.tokens], dim=1)
with torch.no_grad():
    logits, cache = model.run_with_cache(ids)
assert isinstance(cache, ActivationCache)
for name in ("hook_embed", "blocks.0.attn.hook_pattern", "blocks.1.attn.hook_attn_scores", "blocks.1.attn.hook_z"):
    print(f"{name:32} {tuple(cache[name].shape)}")

# %% [markdown]
# The usual short names work (`cache["pattern", 1]`). Scores are before the softmax, with $-\infty$ for the future; the
# pattern is after it. The logits are log-probabilities already: this model's readout turns shares of votes into
# probabilities.

# %%
scores, pattern = cache["attn_scores", 1], cache["pattern", 1]
assert torch.allclose(scores.softmax(-1), pattern)
assert scores[0, 0, 3, 4] == -torch.inf
own = logits[:, -1].double().softmax(-1)
assert torch.allclose(own, logits[:, -1].double().exp(), atol=1e-5)
assert torch.allclose(own, ip.predict(model, chains.tokens))


def kl(law: torch.Tensor) -> float:
    """Mean KL(truth || law) in nats."""
    return ip.kl_divergence(chains.next_law, law).mean


print(f"KL of the unedited model: {kl(own):.4f}")

# %% [markdown]
# ## `ActivationCache`: who writes the prediction?
#
# `decompose_resid` splits the last residual stream into what the embedding and each layer wrote. The readout then takes
# `relu(resid @ W_U)`, adds a tiny floor and normalises, which is not linear. So TransformerLens' `logit_attrs` does not
# apply, but the votes before the relu do add up. What to see: the match layer (`1_attn_out`) makes nearly all of them.

# %%
parts, labels = cache.decompose_resid(layer=-1, pos_slice=-1, return_labels=True)
votes = parts @ model.W_U  # [component, batch, vocab]
total = torch.relu(votes.sum(0)) + model.config.floor
assert torch.allclose(total / total.sum(-1, keepdim=True), own.float(), atol=1e-4)
share = votes.sum((1, 2)) / votes.sum()
for label, value in zip(labels, share.tolist(), strict=True):
    print(f"{label:12} {value:+.3f} of the votes")
assert share[labels.index("1_attn_out")] > 0.9

# %% [markdown]
# ## `run_with_hooks`: edit the pattern
#
# A hook takes an activation and returns what shall take its place. First edit: even attention in the match head, at the
# last query. A good habit, kept through this notebook: **edit a clone, and return it**.

# %%
PATTERN, SCORES = "blocks.1.attn.hook_pattern", "blocks.1.attn.hook_attn_scores"


def law_under(*hooks) -> torch.Tensor:
    """The prediction after the last token while these (name, function) hooks are in place."""
    with torch.no_grad():
        return model.run_with_hooks(ids, fwd_hooks=list(hooks))[:, -1].double().softmax(-1)


def even(pattern, hook):
    edited = pattern.clone()
    edited[:, 0, -1] = 1 / pattern.shape[-1]
    return edited


uniform = law_under((PATTERN, even))
print(f"KL of the model {kl(own):.4f}, with even attention {kl(uniform):.4f}")
assert kl(uniform) > 2 * kl(own)

# %% [markdown]
# ## Did the edit take effect?
#
# A hook that runs without effect is a common bug in this field, and it looks like a finding: "the head does not
# matter". Three checks catch it.
#
# 1. **Read downstream.** The next activation must be what the edit implies: here $z$ = edited pattern times values.
# 2. **The output moves** by more than rounding.
# 3. **A null edit does not.** A hook that returns a plain copy must change nothing at all.

# %%
seen = {}


def read(z, hook):
    seen["z"] = z.detach().clone()


law_under((PATTERN, even), ("blocks.1.attn.hook_z", read))
assert torch.allclose(seen["z"][:, -1, 0], cache["v", 1][:, :, 0].mean(1), atol=1e-6)  # 1: the mean of all values
assert (uniform - own).abs().max() > 0.1  # 2
assert torch.equal(law_under((PATTERN, lambda pattern, hook: pattern.clone())), own)  # 3
print(f"largest change of a probability: {(uniform - own).abs().max():.3f}")

# %% [markdown]
# And here are three edits that do nothing, each of them easy to write. All run without a complaint.

# %%
calls = []


def forgets_to_return(pattern, hook):
    edited = pattern.clone()
    edited[:, 0, -1] = 1 / pattern.shape[-1]


def wrong_query(pattern, hook):
    edited = pattern.clone()
    edited[:, 0, 10] = 1 / pattern.shape[-1]  # no later layer reads position 10, so the last position never hears of it
    return edited


def never_called(result, hook):
    calls.append(hook.name)
    return torch.zeros_like(result)


assert torch.equal(law_under((PATTERN, forgets_to_return)), own)
assert torch.equal(law_under((PATTERN, wrong_query)), own)
assert torch.equal(law_under(("blocks.1.attn.hook_result", never_called)), own)
assert calls == []  # hook_result exists, but fires only after model.set_use_attn_result(True)
print("three hooks, no effect")

# %% [markdown]
# `ip.causal_tests` makes such checks itself: an attention edit that does not reach the logits raises an error.
#
# ## Force beta: edit the scores
#
# The fitted beta says how much agreement adds to a score. So we can turn it up or down in the live model: for every
# candidate key with mask $M$, add $(f - 1)\,|\beta|_M$ to the score, and the model acts as if its betas were $f\beta$.
# $f = 0$ switches matching off, $f = 1$ leaves the model alone.

# %%
masks = ip.match_masks(chains.tokens, order=2)  # [batch, key]; -1 for the first two keys, which are no candidates
agree = torch.stack([(masks >> lag) & 1 for lag in range(2)], dim=-1) * (masks >= 0)[..., None]
bonus = (agree.double() @ torch.from_numpy(fit.beta)).float()  # |beta|_M
bonus = torch.nn.functional.pad(bonus, (1, 0))  # BOS comes first and gets none


def scaled(factor: float):
    def edit(scores, hook):
        edited = scores.clone()
        edited[:, 0, -1] += (factor - 1) * bonus
        return edited

    return (SCORES, edit)


assert torch.allclose(law_under(scaled(1.0)), own)
factors = np.linspace(0, 2.5, 11)
edited = [kl(law_under(scaled(factor))) for factor in factors]
formula = [kl(ip.soft_matching(chains.tokens, vocab=5, beta=factor * fit.beta, kappa=fit.kappa)) for factor in factors]

# %% [markdown]
# What to see: two curves that lie on each other up to twice the beta and part by a few hundredths beyond, with their
# lowest point near $f = 1$. Turned to other betas, the model does what the formula does at those betas, and training
# has put it close to the best place.

# %%
fig, ax = plt.subplots(figsize=(6, 3.4), layout="constrained")
ax.plot(factors, edited, "o-", label="the model, scores edited")
ax.plot(factors, formula, "k--", label="the formula at $f\\beta$")
ax.axvline(1, color="grey", linewidth=0.8)
ax.set_xlabel("factor $f$ on beta")
ax.set_ylabel("KL to the truth (nats)")
ax.legend(frameon=False)
sns.despine()
lowest = factors[np.argmin(edited)]
print(f"lowest at f = {lowest:g}; largest gap between the curves {np.abs(np.subtract(edited, formula)).max():.4f} nats")
assert 0.75 <= lowest <= 1.25
assert np.abs(np.subtract(edited, formula)).max() < 0.1
assert np.abs(np.subtract(edited, formula))[factors <= 2].max() < 0.03

# %% [markdown]
# We can also throw the model's scores away and write the formula's in their place. If the formula is what the attention
# computes, predictions hardly change. The control is the same scores on shuffled keys: it must hurt.


# %%
def written(values: torch.Tensor):
    def edit(scores, hook):
        edited = scores.clone()
        edited[:, 0, -1] = values
        return edited

    return (SCORES, edit)


law_scores = bonus.clone()
law_scores[:, 0] = fit.kappa
law_scores[:, 1:3] = -torch.inf  # the early keys
shuffled = law_scores.clone()
order = torch.rand(256, 62, generator=torch.Generator().manual_seed(0)).argsort(-1)
shuffled[:, 3:] = law_scores[:, 3:].gather(1, order)
replaced, control = law_under(written(law_scores)), law_under(written(shuffled))
print(f"KL: model {kl(own):.4f}, even attention {kl(uniform):.4f}")
print(f"KL: the formula's scores {kl(replaced):.4f}, the same at shuffled keys {kl(control):.4f}")
recovered = 1 - (kl(replaced) - kl(own)) / (kl(uniform) - kl(own))
print(f"share of the loss recovered by the formula's scores: {recovered:.3f}")
assert recovered > 0.9
assert kl(control) > kl(own) + 0.1

# %% [markdown]
# ## Remove BOS
#
# Set the score of BOS to $-\infty$; the softmax then shares its attention among the others. Look at the pattern to see
# that it happened.


# %%
def without_bos(scores, hook):
    edited = scores.clone()
    edited[:, 0, -1, 0] = -torch.inf
    return edited


def read_pattern(pattern, hook):
    seen["pattern"] = pattern.detach().clone()


bare = law_under((SCORES, without_bos), (PATTERN, read_pattern))
assert (seen["pattern"][:, 0, -1, 0] == 0).all()
assert torch.allclose(seen["pattern"][:, 0, -1].sum(-1), torch.ones(256))
formula_bare = ip.soft_matching(chains.tokens, vocab=5, beta=fit.beta, kappa=None)
print(f"attention on BOS: {pattern[:, 0, -1, 0].mean():.3f} on average, now 0")
print(f"KL of the model {kl(own):.4f}, without BOS {kl(bare):.4f}; the formula without BOS {kl(formula_bare):.4f}")
before, after = ((law < 1e-4).any(-1).double().mean() for law in (own, bare))
print(f"predictions that give some symbol less than 1e-4: {before:.1%}, without BOS {after:.1%}")
assert kl(bare) > kl(own)
assert after > before

# %% [markdown]
# BOS holds little attention, and still the loss rises without it: it is what gives a share to symbols that have not
# occurred yet.
#
# `ip.causal_tests` makes these edits and more, each beside a random control. What to see: the law in place of the
# model's own attention costs least of all, and far less than the same weights at shuffled keys.

# %%
tests = ip.causal_tests(model, chains.tokens, next_law=chains.next_law, law=fit)
ax = tests.plot()
assert min(tests, key=lambda edit: tests[edit].loss_change) == "law"
assert tests["law"].loss_change < 0.1 * tests["law"].control_loss_change

# %% [markdown]
# ## `FactoredMatrix`: the weights themselves
#
# Each attention layer offers `QK` and `OV` as `FactoredMatrix` objects. (The layers have different head counts, so the
# stacked `model.QK` is not available: ask the block.) The residual stream has one block of 5 dimensions for the token
# and one for each copy head, so the match head's QK matrix has a block for every pair. What to see: two blocks are
# strong diagonals, *same symbol or not*. A block $aI$ adds $a$ to the score when the two symbols are equal. Rows
# are the query's blocks, columns the key's. Here head 1 copies lag 1 and head 0 lag 2, so the two are (token, head 1)
# for lag 1 and (head 1, head 0) for lag 2: the query's $x_{t-1}$ against the key's $x_{s-2}$.

# %%
match, copy = model.blocks[1].attn, model.blocks[0].attn
assert isinstance(match.QK, FactoredMatrix)
live = slice(0, 15)  # token, copy head 0, copy head 1; the other half of the stream is the match head's output
fig, ax = plt.subplots(figsize=(4.6, 4.2), layout="constrained")
plotting.block_heatmap(ax, match.QK.AB[0, live, live].detach().numpy(), vocab=5)
names = ["token", "head 0", "head 1"]
ax.set_xticks([2, 7, 12], names)
ax.set_yticks([2, 7, 12], names)
ax.set(xlabel="key block", ylabel="query block")
ax.set_title("the match head's QK", fontsize=11)
fig.colorbar(ax.images[0], ax=ax, shrink=0.8)
ax.tick_params(length=0)

# %% [markdown]
# The same thing in the idiom of circuits, *K-composition*: query token, against what copy head $h$ moved into the key.
# It is a product of weights from embedding to embedding, $W_E\,W_{QK}\,(W_E\,W_{OV}^h)^\top$, and needs no knowledge of
# the blocks. For the head that copies lag 1 it must be large on the diagonal. For the other it must not, since lag 2 is
# compared with the token that the query copied, not with its own.

# %%
heads = ip.copy_heads(ip.capture(model, chains.tokens))
embedding = model.W_E[:5]
contrast = {}
for head in range(2):
    moved = embedding @ copy.OV[head].AB  # what the head writes when it attends to each symbol
    scores_between = (embedding @ match.QK[0].AB @ moved.T).detach().numpy()
    off = scores_between[~np.eye(5, dtype=bool)].mean()
    contrast[int(heads.lag[head])] = np.diag(scores_between).mean() - off
    print(
        f"head {head} copies lag {heads.lag[head]}: diagonal minus off-diagonal {contrast[int(heads.lag[head])]:+.2f}"
    )
assert contrast[1] > 3 > abs(contrast[2])

# %% [markdown]
# And the OV side: what a key's token does to the votes. `eigenvalues` of the full circuit $W_E\,W_{OV}\,W_U$ tell
# whether it copies: if all are positive, attending to a symbol raises that same symbol.

# %%
circuit = FactoredMatrix(embedding @ match.W_V[0], match.W_O[0] @ model.W_U)
print("eigenvalues", circuit.eigenvalues.real.detach().numpy().round(2))
print("singular values", circuit.S[:5].detach().numpy().round(2))
copying = (circuit.eigenvalues.real.sum() / circuit.eigenvalues.abs().sum()).item()
print(f"copying score {copying:.3f} (1: copies every symbol, -1: suppresses it)")
assert copying > 0.99

# %% [markdown]
# A caution about reading weights: a block's size is not the beta that the model uses. Beta is what agreement adds to
# the *score*. Between block and score stand the copy heads. Lag 1 compares the query's own token with what head 1
# copied into the key, so one copy has to be right. Lag 2 compares what was copied into the query with what was copied
# into the key, so two have to be. At the last query the copy heads of this model put less than half of their attention
# on their lag, and most of the rest on BOS. What to see: the block of lag 2 is the larger one, and its beta in the
# scores the smaller.

# %%
lag_1, lag_2 = (int(np.flatnonzero(heads.lag == lag)[0]) for lag in (1, 2))
place = {
    "token": slice(0, 5),
    lag_1: slice(5 * (lag_1 + 1), 5 * (lag_1 + 2)),
    lag_2: slice(5 * (lag_2 + 1), 5 * (lag_2 + 2)),
}
blocks = {1: ("token", lag_1), 2: (lag_1, lag_2)}  # query block, key block
in_weights = {}
for lag, (query, key) in blocks.items():
    block = match.QK.AB[0][place[query], place[key]].detach().numpy()
    in_weights[lag] = np.diag(block).mean() - block[~np.eye(5, dtype=bool)].mean()
copied = {lag: heads.last_mass[head] for lag, head in ((1, lag_1), (2, lag_2))}
for lag in (1, 2):
    print(
        f"lag {lag}: the block says {in_weights[lag]:.2f}, the scores say {fit.beta[lag - 1]:.2f}; "
        f"its copy head at the last query: {copied[lag]:.2f} on the lag"
    )
assert abs(in_weights[1] - contrast[1]) < 1e-3
assert in_weights[2] > in_weights[1] > fit.beta[0] > fit.beta[1]
assert max(copied.values()) < 0.5
