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
# The instruments need only TransformerLens' hook names. So they take a model that this suite did not make:
#
# ```python
# scan = ip.scan_heads(model, tokens, order=2, vocab=5, bos=5)        # every head, in one forward pass
# circuit = ip.find_circuit(model, tokens, order=2, vocab=5, bos=5)   # the heads that belong together, with evidence
# tests = ip.replace_heads(circuit, tokens, query="trained", law="fitted")   # does their law do what they do?
# ```
#
# This notebook brings two such models. The first is a plain `HookedTransformer` with three layers of four heads,
# absolute positions, order 3 and a logit readout. Its circuit is written by hand, so we know the truth and can see
# whether the instruments find it. The second was trained, and nobody knows its circuit beforehand. At the end come
# random weights, where the right answer is "nothing".

# %%
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns
import torch

import interp as ip
from interp.lens import HookedTransformer, HookedTransformerConfig

sns.set_theme(style="ticks")
warnings.filterwarnings("ignore", message="HookedTransformer is deprecated")  # by TransformerLens 3.9

HERE = Path.cwd()
FOREIGN = next(path for root in (HERE, *HERE.parents) if (path := root / "models" / "foreign").is_dir())

# %% [markdown]
# ## A model from elsewhere
#
# Four symbols, a padding token (id 4) that is never used, and BOS (id 5). Learnt (here: one-hot) positions instead of
# the suite's relative bias. All layers have four heads; only four of the twelve do something.

# %%
VOCAB, ORDER, LENGTH, BOS = 4, 3, 32, 5
BETA, KAPPA = (2.5, 1.5, 0.8), 3.0
N_CTX = LENGTH + 2  # room for BOS and for one token more: the last position that we read has a next token
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
# ## Scan every head
#
# Without `order` the instruments do not start: they cannot guess what is to be matched.

# %%
try:
    ip.scan_heads(mine, chains.tokens)
except ValueError as error:
    print(error)
else:
    raise AssertionError("expected to be asked for the order")

# %% [markdown]
# A scan runs the model once and looks at all heads. What to see: three heads copy, one matches, and the others have no
# role. The map shows how much of each head's attention (in nats beyond even attention) matches explain; copy heads
# carry the number of their lag.

# %%
task = {"order": ORDER, "bos": BOS, "vocab": VOCAB}
scan = ip.scan_heads(mine, chains.tokens, **task)
print(scan)
ax = scan.plot()
assert scan.match_heads == ((MATCH_LAYER, MATCH_HEAD),)
assert scan.copy_heads == tuple((0, COPY_HEAD[lag]) for lag in (1, 2, 3))

# %% [markdown]
# Beside the map, the attention itself. CircuitsVis shows all heads of a layer on one sequence: choose a head, then a
# query. Layer 0 has three diagonals; in layer 2, head 3 jumps between positions with equal contexts.

# %%
names = ["BOS", *map(str, chains.tokens[0, :23].tolist())]
_, cache = mine.run_with_cache(ip.Circuit(mine, **task).ids(chains.tokens[:1]), prepend_bos=False)
try:
    from circuitsvis.attention import attention_patterns
    from IPython.display import HTML, display
except ImportError:
    print("CircuitsVis is not installed: see the map above instead")
else:
    for layer in (0, MATCH_LAYER):
        view = attention_patterns(tokens=names, attention=cache["pattern", layer][0, :, :24, :24])
        display(HTML(f"<b>layer {layer}</b>{view.local_src}"))

# %% [markdown]
# `table()` has a row for each head. A head whose law is not to be trusted has no beta, and says why.

# %%
table = scan.table().set_index(["layer", "head"])
columns = ["role", "copy_lag", "copy_mass", "nats_explained", "kappa"]
print(table.loc[[(0, 2), (MATCH_LAYER, MATCH_HEAD)], columns].round(3))
print(table.loc[(1, 0), "message"])
assert np.isnan(table.loc[(1, 0), "beta_1"])

# %% [markdown]
# ## Find the circuit
#
# Heads that look at the right keys need not belong together. `find_circuit` ablates each copy head and measures what is
# left of the match at its lag; the control moves the head's output just as far in a random direction. What to see: a
# reason for every choice.

# %%
circuit = ip.find_circuit(mine, chains.tokens, **task, scan=scan)
print(circuit)
assert circuit.success
assert (circuit.evidence()["lost"] > 0.9).all()
assert (circuit.evidence()["control_lost"] < 0.5).all()

# %% [markdown]
# ## Its law
#
# A circuit goes into every instrument. First beta and kappa, which we planted. They come back: the betas to three
# digits, kappa to within 0.03. What kappa is off by is more than its standard error, and yet no error of the fit: the
# other heads write a little into every position, BOS included, and so shift its score. The fit reads the score that the
# model really has. The fit of the scores weighs all keys alike, the fit of the attention only those that are attended
# to; where the two differ, both say so.

# %%
cap = ip.capture(circuit, chains.tokens)
fit, seen = ip.fit_scores(cap), ip.fit_scores(cap, source="attention")
print(fit)
print(seen)
print("planted: beta", BETA, "kappa", KAPPA)
assert np.allclose(fit.beta, BETA, atol=0.005)
assert np.allclose(seen.beta, BETA, atol=0.02)
assert abs(fit.kappa - KAPPA) < 0.03

# %% [markdown]
# Is it this law? A key could also count only if its match is unbroken (`suffix`, as in back-off), or every set of lags
# could have a weight of its own (`free`). `compare_laws` judges them on sequences that they were not fitted to.

# %%
laws = ip.compare_laws(cap)
print(laws)
assert laws.best == "additive"

# %% [markdown]
# What if you had the order wrong? Too large an order finds no head that copies the lags that are not there. Too small
# an order leaves a part of the attention unexplained. So increase the order until the scan says that no head copies
# the next lag.

# %%
for order in (1, 2, 3, 4):
    tried = ip.scan_heads(mine, chains.tokens, **{**task, "order": order})
    share = tried.nats_explained[MATCH_LAYER, MATCH_HEAD]
    print(f"order {order}: matches explain {share:.0%}; {tried.message or 'all lags have a copy head'}")
    assert tried.success == (order <= ORDER)

# %% [markdown]
# ## Does it matter for the predictions?
#
# `replace_heads` is for models that predict at every position. It ablates the match heads, or writes other attention
# into them, at all these positions at once, and measures the loss of the tokens that follow. `recovered` is 0 for no
# head at all and 1 for the head as it is. The law must come close to 1; its control, the same weights at random keys,
# must stay below even attention. (The attention is the formula's, the prediction is softmax of 4 times the votes: the
# tests do not ask for the formula's own readout.)

# %%
tests = ip.replace_heads(circuit, chains.tokens, query="trained", law="fitted")
print(tests)
ax = tests.plot()
assert tests["law"].recovered > 0.98
assert tests["law"].control_recovered < tests["even"].recovered < 0.9

# %% [markdown]
# ## A model that was trained
#
# Four layers of four heads, with MLPs and LayerNorm, trained for four minutes to predict the next token of order-1
# chains. It has no BOS. What to see: four heads of layer 1 match, all with much the same beta, and the scan's last line
# says that a third of their attention goes to the first token.

# %%
trained = ip.load(FOREIGN / "four_heads").model
prior = ip.IndependentDirichlet(order=1, vocab=12, alpha=0.3)
tokens = prior.sample(batch=64, length=63, seed=0).tokens
scan = ip.scan_heads(trained, tokens, order=1, query="trained")
print(scan)
ax = scan.plot()
assert scan.match_heads == ((1, 0), (1, 1), (1, 2), (1, 3))
assert "bos='first'" in scan.message

# %% [markdown]
# So the model uses its first token as BOS: whatever that token is, it gets the attention that matches do not get.
# `bos="first"` puts it into the law, with the score kappa.

# %%
circuit = ip.find_circuit(trained, tokens, order=1, bos="first", query="trained")
print(circuit)
assert circuit.success
assert circuit.copy_heads == ((0, 2),)

# %% [markdown]
# The law in all four heads recovers 0.9 of what ablating them costs. One head alone, the others ablated, recovers at
# most 0.4, and the law without the first token less than half. `grouped` keeps each head's own mass on matching and
# other keys and evens it out within each group: what it does not recover lies between keys that the law takes for
# equal.

# %%
tests = ip.replace_heads(circuit, tokens, query="trained", law="fitted", each=True)
without = ip.Circuit(trained, order=1, copy_heads=circuit.copy_heads, match_heads=circuit.match_heads)
bare = ip.replace_heads(without, tokens, query="trained", law="fitted")
print(tests)
print(f"without the first token the law recovers {bare['law'].recovered:.2f}")
fig, ax = plt.subplots(figsize=(11, 3.6), layout="constrained")
tests.plot(ax)
assert tests["law"].recovered > 0.85
assert max(tests[f"only 1.{head}"].recovered for head in range(4)) < 0.5
assert bare["law"].recovered < 0.5

# %% [markdown]
# ## When there is nothing to find
#
# The first model's config with TransformerLens' random initialisation. What to see: no head has a role, and no number
# is given that somebody might quote.

# %%
nothing = ip.find_circuit(random, chains.tokens, **task)
print(nothing)
assert not nothing.success
assert nothing.match_heads == ()
assert np.isnan(nothing.scan.beta).all()

# %% [markdown]
# To keep a circuit, or to ask from a terminal:
#
# ```python
# ip.save(circuit, "runs/mine")
# ```
#
# ```
# python -m analyses scan mine.py:build --order 1 --vocab 12 --bos first
# python -m analyses all runs/mine
# ```
#
# The page [Analyse a model of your own](../docs/howto/your_model.md) says more.
