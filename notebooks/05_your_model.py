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
# # Your model: the same questions, asked of any HookedTransformer
#
# The instruments need only TransformerLens' hook names. So they take a model that this suite did not make, once you say
# where to look:
#
# ```python
# circuit = ip.Circuit(model, order=2, copy_heads=((0, 0), (0, 1)), match_heads=((1, 0),), bos=5, vocab=5)
# cap = ip.capture(circuit, tokens)
# ```
#
# This notebook brings such a model: a plain `HookedTransformer` with three layers of four heads, absolute positions,
# order 3 and a logit readout. Its circuit is written by hand, so we know the truth and can see whether the instruments
# find it. Then it asks the same of random weights, where the right answer is "cannot tell".

# %%
import warnings

import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns
import torch
from transformer_lens import HookedTransformer, HookedTransformerConfig

import interp as ip
from interp import plotting

sns.set_theme(style="ticks")
warnings.filterwarnings("ignore", message="HookedTransformer is deprecated")  # this suite stays below TransformerLens 4

# %% [markdown]
# ## A model from elsewhere
#
# Four symbols, a padding token (id 4) that is never used, and BOS (id 5). Learnt (here: one-hot) positions instead of
# the suite's relative bias. All layers have four heads; only four of the twelve do something.

# %%
VOCAB, ORDER, LENGTH, BOS = 4, 3, 32, 5
BETA, KAPPA = (2.5, 1.5, 0.8), 3.0
N_CTX = LENGTH + 1
# The residual stream: the position, the token, one slot for each copied lag, and the votes.
SLOTS = {"position": N_CTX, "token": 6, "lag 1": 6, "lag 2": 6, "lag 3": 6, "votes": VOCAB}
STARTS = dict(zip(SLOTS, np.cumsum([0, *SLOTS.values()]).tolist(), strict=False))


def slot(name: str, width: int | None = None) -> slice:
    """The place of a slot in the residual stream."""
    return slice(STARTS[name], STARTS[name] + (width or SLOTS[name]))


config = HookedTransformerConfig(
    n_layers=3,
    n_heads=4,
    d_model=sum(SLOTS.values()),
    d_head=40,
    n_ctx=N_CTX,
    d_vocab=6,
    d_vocab_out=VOCAB,
    attn_only=True,
    normalization_type=None,
    device="cpu",
)


def random_model(seed: int) -> HookedTransformer:
    """TransformerLens' own initialisation; the global generator is left as it was."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return HookedTransformer(config)


random = random_model(0)
for name in ("embed.W_E", "pos_embed.W_pos", "blocks.0.attn.W_Q", "unembed.W_U"):
    print(f"{name:20} {tuple(random.get_parameter(name).shape)}")

# %% [markdown]
# Now the circuit. Heads 2, 0 and 1 of layer 0 copy lags 1, 2 and 3; head 3 of layer 2 matches. All other heads keep
# their random weights, made small, so that the residual stream is not perfectly clean. You need not follow the code:
# any way of getting weights would do, training above all.

# %%
COPY_HEAD = {1: 2, 2: 0, 3: 1}  # lag: head
MATCH_LAYER, MATCH_HEAD = 2, 3
SCALE = config.d_head**0.5  # attention divides scores by it


@torch.no_grad()
def write_circuit(model: HookedTransformer) -> None:
    for weight in model.parameters():
        weight.mul_(0.03)
    model.embed.W_E.zero_()
    model.embed.W_E[:, slot("token")] = torch.eye(6)
    model.pos_embed.W_pos.zero_()
    model.pos_embed.W_pos[:, slot("position")] = torch.eye(N_CTX)
    copy = model.blocks[0].attn
    for lag, head in COPY_HEAD.items():
        for weight in (copy.W_Q, copy.W_K, copy.W_V, copy.W_O):
            weight[head] = 0.0
        # Query i asks for position i - lag, key j answers with j.
        copy.W_Q[head, slot("position"), :N_CTX] = 30 * SCALE * torch.diag(torch.ones(N_CTX - lag), -lag)
        copy.W_K[head, slot("position"), :N_CTX] = torch.eye(N_CTX)
        copy.W_V[head, slot("token"), :6] = torch.eye(6)
        copy.W_O[head, :6, slot(f"lag {lag}")] = torch.eye(6)
    match = model.blocks[MATCH_LAYER].attn
    for weight in (match.W_Q, match.W_K, match.W_V, match.W_O):
        weight[MATCH_HEAD] = 0.0
    for lag in range(1, ORDER + 1):
        own = "token" if lag == 1 else f"lag {lag - 1}"  # the query's x_{t-r+1} meets the key's x_{s-r}
        part = slice((lag - 1) * VOCAB, lag * VOCAB)
        match.W_Q[MATCH_HEAD, slot(own, VOCAB), part] = BETA[lag - 1] * SCALE * torch.eye(VOCAB)
        match.W_K[MATCH_HEAD, slot(f"lag {lag}", VOCAB), part] = torch.eye(VOCAB)
    # A constant in the query gives BOS its score, and keeps out the first three tokens, which have no full context.
    match.b_Q[MATCH_HEAD, -1] = SCALE
    match.W_K[MATCH_HEAD, STARTS["token"] + BOS, -1] = KAPPA
    match.W_K[MATCH_HEAD, STARTS["position"] + 1 : STARTS["position"] + 1 + ORDER, -1] = -12.0
    match.W_V[MATCH_HEAD, slot("token", VOCAB), :VOCAB] = torch.eye(VOCAB)
    match.W_V[MATCH_HEAD, STARTS["token"] + BOS, :VOCAB] = 1 / VOCAB
    match.W_O[MATCH_HEAD, :VOCAB, slot("votes")] = torch.eye(VOCAB)
    model.unembed.W_U.zero_()
    model.unembed.W_U[slot("votes")] = 4 * torch.eye(VOCAB)


mine = random_model(0)
write_circuit(mine)
prior = ip.HierarchicalDirichlet(order=ORDER, vocab=VOCAB, eta=(5.0, 5.0, 5.0))
chains = prior.sample(batch=150, length=LENGTH, seed=0)

# %% [markdown]
# ## Where is the circuit?
#
# Without `order` the instruments do not start: they cannot guess what is to be matched.

# %%
try:
    ip.capture(mine, chains.tokens)
except ValueError as error:
    print(error)
else:
    raise AssertionError("expected to be asked for the order")

# %% [markdown]
# If you do not know the place, ask every head. `fit_scores` regresses a head's scores on agreement of contexts, and its
# verdict `success` says whether agreement explains at least half of them. What to see: exactly one head of eight
# passes.

# %%
asked = {"order": ORDER, "bos": BOS, "vocab": VOCAB}
verdicts = {}
for layer in (1, 2):
    for head in range(4):
        fit = ip.fit_scores(ip.capture(mine, chains.tokens, **asked, match_layer=layer, match_head=head))
        verdicts[layer, head] = fit.success
        answer = "yes" if fit.success else "no "
        print(f"layer {layer} head {head}: {answer}  matches explain {fit.r2_match:6.1%} of the scores")
assert [place for place, passed in verdicts.items() if passed] == [(MATCH_LAYER, MATCH_HEAD)]

# %% [markdown]
# ## The same questions
#
# With the place known, every instrument works as on the suite's own models. First the copy layer. What to see: three
# diagonals, at distance 1, 2 and 3, and one head without any.

# %%
place = {**asked, "copy_layer": 0, "match_layer": MATCH_LAYER, "match_head": MATCH_HEAD}
cap = ip.capture(mine, chains.tokens, **place)
copy = ip.copy_heads(cap)
fig, axes = plt.subplots(1, 4, figsize=(12, 3.4), layout="constrained")
for head, ax in enumerate(axes):
    plotting.attention_heatmap(ax, cap.copy_pattern[0, head, :16, :16].double().numpy())
    ax.set_title(f"head {head}: {copy.verdict[head]}", fontsize=11)
print(copy)
assert copy.success
assert copy.lag.tolist() == [2, 3, 1, 0]  # 0: no lag is left for the fourth head
assert copy.verdict[3] == "none"

# %% [markdown]
# Then beta and kappa, which we planted. They come back: the betas to three digits, kappa to within 0.03. What kappa is
# off by is more than its standard error, and yet no error of the fit: the other heads write a little into every
# position, BOS included, and so shift its score. The fit reads the score that the model really has.

# %%
fit = ip.fit_scores(cap)
print(fit)
print("planted: beta", BETA, "kappa", KAPPA)
assert np.allclose(fit.beta, BETA, atol=0.005)
assert abs(fit.kappa - KAPPA) < 0.03

# %% [markdown]
# What if you had the order wrong? Too large an order finds nothing at the lags that are not there. Too small an order
# leaves a part of the scores unexplained. So increase the order until the last beta is zero and the fit stops getting
# better.

# %%
orders = {}
for order in (1, 2, 3, 4):
    orders[order] = ip.fit_scores(ip.capture(mine, chains.tokens, **{**place, "order": order}))
    told = orders[order].beta.round(2) if orders[order].success else "cannot tell"
    print(f"order {order}: beta {told}, matches explain {orders[order].r2_match:.1%} of the scores")
assert orders[1].r2_match < orders[2].r2_match < orders[3].r2_match
assert abs(orders[4].r2_match - orders[3].r2_match) < 0.01
assert abs(orders[4].beta[3]) < 0.05

# %% [markdown]
# Where the attention goes, by the number of lags that agree (bars), beside what the formula predicts (rings).

# %%
mass = ip.overlap_mass(cap, fit)
ax = mass.plot()
assert mass.largest_gap < 0.01

# %% [markdown]
# One query as bars. What to see: more lags, higher bars; teal bars stand at several heights, because three lags make
# six kinds of partial match.

# %%
masks = ip.match_masks(chains.tokens, order=ORDER).numpy()
shown = int(np.argmax([len(np.unique(row)) for row in masks]))  # the sequence with the most kinds of match
ax = cap.plot(sequence=shown)
# %% [markdown]
# ## Does it matter for the predictions?
#
# `causal_tests` writes the formula's attention in place of the head's own, and, as a control, the same weights at
# shuffled keys. Even attention sets the scale. What to see: writing the law costs next to nothing, its control a lot.

# %%
circuit = ip.Circuit(mine, **asked, match_heads=((MATCH_LAYER, MATCH_HEAD),))
causal = ip.causal_tests(circuit, chains.tokens, next_law=chains.next_law, beta=fit.beta, kappa=fit.kappa)
ax = causal.plot()
assert causal.loss_recovered > 0.95
assert causal["law"].loss_change < 0.1 * causal["law"].control_loss_change

# %% [markdown]
# Attention is not all of a model. This one reads its votes as *logits*: softmax of 4 times the votes. So its attention
# is that of the formula, and its predictions are not the formula's. Keep the two questions apart.

# %%
law = ip.predict(circuit, chains.tokens)
formula = ip.soft_matching(chains.tokens, vocab=VOCAB, beta=BETA, kappa=KAPPA)
print(f"model against the truth:   {ip.kl_divergence(chains.next_law, law)}")
print(f"formula against the truth: {ip.kl_divergence(chains.next_law, formula)}")
print(f"model against the formula: {ip.kl_divergence(formula, law)}")
through_readout = torch.softmax(4 * formula, dim=-1)
print(f"model against the formula, read as logits: {ip.kl_divergence(through_readout, law)}")
assert ip.kl_divergence(formula, law).mean > 0.02
assert ip.kl_divergence(through_readout, law).mean < 0.001

# %% [markdown]
# ## When there is nothing to find
#
# The same config with TransformerLens' random initialisation. No head copies, and none matches. What to see: every fit
# fails, says why, and gives NaN instead of a number that somebody might quote.

# %%
for head in range(4):
    fit = ip.fit_scores(ip.capture(random, chains.tokens, **asked, match_layer=2, match_head=head))
    print(f"layer 2 head {head}: {fit.message}")
    assert not fit.success
    assert np.isnan(fit.beta).all()
    assert np.isnan(fit.kappa)
print(fit)
print(ip.copy_heads(ip.capture(random, chains.tokens, **asked)))

# %% [markdown]
# The mass by overlap is still an observation, and is drawn. The prediction beside it is not, because there is no fit to
# make it from; the title says so.

# %%
nothing = ip.overlap_mass(ip.capture(random, chains.tokens, **asked, match_layer=2))
ax = nothing.plot()
assert not nothing.success
assert np.isfinite(nothing.by_overlap).all()
assert np.isnan(nothing.predicted_by_overlap).all()

# %% [markdown]
# And one last trap: too little data. With a handful of sequences the fit refuses even on the model that has the
# circuit, since it could not say how sure it is.

# %%
few = ip.fit_scores(ip.capture(mine, chains.tokens[:5], **place))
print(few.message)
assert not few.success
