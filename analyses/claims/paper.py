"""Every statement of the paper that can be checked, in its order.

A need of a claim of the paper asks what the paper says, in the paper's terms. What is stricter is in `ours`. Statements
that the paper makes of its own settings are here too, so that what we set otherwise is seen.
"""

from __future__ import annotations

from typing import Any

from analyses.claims.records import Claim, Need, Quantifier

HIERARCHICAL: dict[str, Any] = {"prior": "hierarchical", "bos": True}
WITH_BOS: dict[str, Any] = {"prior": "independent", "bos": True}
NO_BOS: dict[str, Any] = {"prior": "independent", "bos": False}
PAPER = ("construction", "disentangled", "standard")
TRAINED = ("disentangled", "standard")
DISENTANGLED = ("construction", "disentangled")  # whose weights show blocks
SHAPE = {"order": 2, "vocab": 5}
NINE = (32, 64, 128, 192, 256, 384, 512, 768, 1024)
COPIES, BLOCKS, MATCHING = "for the copies", "for the weight blocks", "for the matching"
CONSTRUCTIONS = "for the constructions"


def theory(label: str, *, part: str = "") -> Need:
    """A statement of the theory, measured by `python -m analyses theory`."""
    return Need(table="theory", quantity="theory_error", rows={"label": label}, quantifier="every", part=part)


def proved(number: int, id: str, label: str, sentence: str, *, where: str = "", note: str = "") -> Claim:
    """A claim of the theory that rests on the checks of its label alone."""
    return Claim(
        id=id, number=number, label=label, topic="theory", sentence=sentence, needs=(theory(label),), where=where,
        note=note,
    )  # fmt: skip


def copied(length: int, **rows: Any) -> Need:
    return Need(table="copy_heads", quantity="copy_mass", rows={**rows, "length": length}, part=COPIES)


def blocks(length: int, **rows: Any) -> Need:
    return Need(table="attention", quantity="aligned_weights", rows={**rows, "length": length}, part=BLOCKS)


def matched(quantity: str, table: str = "overlap_mass", *, part: str = MATCHING, **rows: Any) -> Need:
    return Need(table=table, quantity=quantity, rows=rows, part=part, quantifier="most" if rows else "every")


def constructed(quantity: str, name: str, *, part: str = CONSTRUCTIONS) -> Need:
    return Need(
        table="construction_attention", quantity=quantity, rows={"construction": name}, part=part, quantifier="every"
    )


def predicted(quantity: str, *, part: str = "", quantifier: Quantifier = "mean", **rows: Any) -> Need:
    return Need(table="kl_curves", quantity=quantity, rows=rows, part=part, quantifier=quantifier)


def setting(quantity: str, *, table: str = "copy_heads", part: str = "", **rows: Any) -> Need:
    return Need(table=table, quantity=quantity, rows=rows, part=part, quantifier="every")


def chosen(number: int, id: str, label: str, sentence: str, *, note: str) -> Claim:
    """A setting that no table shows, with what was chosen here."""
    return Claim(id=id, number=number, label=label, topic="setting", sentence=sentence, note=note)


SETTINGS = (
    Claim(
        id="task", number=1, label="sec:experiments", topic="setting",
        sentence="Chains of order k = 2 over |V| = 5 symbols; alpha = 1, eta = (5, 5).",
        needs=(setting("order", family=PAPER), setting("vocab", family=PAPER)),
    ),
    chosen(2, "eta_0", "sec:in-context", "The root of the hierarchical prior, eta_0, is not given.",
           note="eta_0 = 1 here; open_choices measures 0.2 to 5"),
    Claim(
        id="protocol", number=3, label="sec:experiments", topic="setting",
        sentence="Disentangled models: 10^6 steps of Adam, rate 10^-3, batch 32, sampled next tokens.",
        needs=(setting("paper_protocol", family="disentangled", **HIERARCHICAL),),
        note="other runs are annealed: 40,000 steps from 10^-2, the exact next-token distribution as target",
    ),
    Claim(
        id="protocol_standard", number=4, label="sec:experiments", topic="setting",
        sentence="Standard models: the same protocol.",
        needs=(setting("paper_protocol", family="standard", **HIERARCHICAL),),
        note="other runs are annealed: 6,000 to 12,000 steps from 3e-3",
    ),
    Claim(
        id="standard_shape", number=5, label="sec:experiments", topic="setting",
        sentence="Standard models: width 64, LayerNorm, an MLP block, learned relative biases.",
        needs=(setting("d_model", table="explorer", family="standard"),),
        note="ours: an MLP of width 256 in both layers",
    ),
    chosen(
        6, "scalars", "sec:experiments",
        "The construction trains beta alone; how kappa is set under the hierarchical prior is not said.",
        note="here kappa is free, tied or fixed: see its start",
    ),
    chosen(7, "readout", "sec:preliminaries", "W_O gives logits in the text, probabilities in the proof.",
           note="disentangled: probabilities; standard: logits"),
    chosen(
        8, "initialisation", "sec:experiments",
        "All parameters of the trained models are optimised from initialisation.",
        note="W_O starts at the construction's, and trains",
    ),
    Claim(
        id="hard_start", number=9, label="app:nobos_trained_visualizations", topic="setting",
        sentence="Without BOS, layer 1 starts at hard copies and stays trainable.",
        needs=(setting("hard_start", family="disentangled", **NO_BOS),),
        note="a hard copy is a bias of 40 nats: trainable in name only, as its gradient vanishes",
    ),
    chosen(10, "bos_vector", "sec:experiments", "BOS is embedded as a fixed neutral vector.",
           note="the same; standard: the mean embedding"),
    Claim(
        id="lengths", number=11, label="app:hierarchical_experiments", topic="setting",
        sentence="Nine lengths from 32 to 1024, three seeds.",
        needs=(setting("seeds", family=PAPER, length=NINE, **HIERARCHICAL),),
    ),
    chosen(
        12, "one_sequence", "app:experiments_app",
        "Pictures show one sequence (T = 64; hierarchical: 32 and 128) and the converged seed.",
        note="verdicts: means over sequences, most seeds",
    ),
)  # fmt: skip

THEORY = (
    proved(13, "estimator", "prop:transformer_estimator",
           "A two-layer disentangled transformer is a soft context-matching estimator."),
    proved(14, "add_constant", "prop:add_constant",
           "With BOS and kappa = k beta + ln(alpha |V|), a large beta is add-alpha."),
    proved(15, "sub_ngrams", "lemma:transformer_estimator",
           "The estimator is a sum of gamma^|M| over cumulative counts."),
    proved(16, "mixture", "corollary:mixture",
           "The estimator is a mixture of n-gram models.", where="beta >= 0", note="for beta < 0 a weight is negative"),
    proved(17, "jelinek_mercer", "eq:jelinek_mercer",
           "At k = 1 the mixture is Jelinek-Mercer's, with weights for each sequence."),
    Claim(
        id="pseudo_count", number=18, label="eq:pseudo_count", topic="theory",
        sentence="At the lemma's beta the mean pseudo-count is approximately alpha.",
        needs=(Need(table="pseudo_counts", quantity="doublings", quantifier="every", rows={**SHAPE, "alpha": 1.0}),),
    ),
    proved(19, "optimal_beta", "lemma:optimal_beta", "The lemma's beta(t) solves its approximate equation."),
    Claim(
        id="first_order", number=20, label="lemma:first_order", topic="theory",
        sentence="The first-order expansion and the gradient conditions of the loss.",
        needs=tuple(map(theory, ("lemma:first_order", "eq:transformer_gradient", "eq:approx_gradient_condition"))),
    ),
    Claim(
        id="katz", number=21, label="sec:interpretation", topic="theory", where="k = 1 or the full context was seen",
        sentence="As beta grows, the estimator becomes Katz back-off.",
        needs=(theory("sec:interpretation"),),
        note="elsewhere it averages the matches of largest overlap, contiguous or not: theory gives counterexamples",
    ),
    proved(22, "label_symmetry", "eq:label_symmetry", "Both priors are invariant under relabeling of the symbols."),
    proved(23, "invariance", "theorem:invariance",
           "Training from a symmetric start stays symmetric.", note="30 discrete steps stand for the gradient flow"),
    proved(24, "invariant_matrix", "lemma:permutation_invariant_matrix",
           "A matrix that all relabelings leave alone is a I + b J."),
    proved(25, "inductive", "corollary:inductive", "A symmetric match layer compares pairs of lags."),
    Claim(
        id="aligned_pairs", number=26, label="app:symmetry", topic="matching",
        sentence="Of all pairs of lags, trained models concentrate on equal lags (a heuristic remark).",
        needs=(matched("aligned_pairs", "lag_pairs", part="", family=TRAINED),),
    ),
)  # fmt: skip

PREDICTIONS = (
    Claim(
        id="task_priors", number=27, label="fig:task_priors", topic="task and circuit",
        sentence="Only under the hierarchical prior do contexts that share recent tokens inform each other.",
        needs=tuple(
            Need(table="prior_trees", quantity=quantity, quantifier="every",
                 rows={"prior": prior, "what": "pair", "name": "siblings"})
            for quantity, prior in (("correlation", "hierarchical"), ("no_correlation", "independent"))
        ),
    ),
    Claim(
        id="circuit", number=28, label="fig:two_layer_circuit", topic="task and circuit",
        sentence="Two attention layers, copy then match, compute the estimator.",
        needs=(matched("circuit_error", "circuit", part=""), matched("copy_mass", "circuit", part="")),
    ),
    Claim(
        id="hard_beta", number=29, label="fig:kl_vs_position", topic="prediction",
        sentence="Without BOS, beta = 100 tracks maximum likelihood.",
        needs=(predicted("nearer_mle", prior="independent", predictor="hard, no BOS"),),
    ),
    Claim(
        id="adaptive_beta", number=30, label="fig:kl_vs_position", topic="prediction",
        sentence="Without BOS, beta(t) approaches the Bayes predictor.",
        needs=(
            predicted("nearer_bayes", prior="independent", predictor="beta(t), no BOS"),
            predicted("excess_kept", prior="independent", predictor="beta(t), no BOS", length=NINE[-1]),
        ),
    ),
    Claim(
        id="trained_smooths", number=31, label="fig:kl_vs_position", topic="prediction",
        sentence="Models trained without BOS recover the smoothing.",
        needs=(predicted("nearer_bayes", family="disentangled", **NO_BOS),),
        note="in the shipped models a free readout does part of it: see `smoothing_source`",
    ),
    Claim(
        id="bos_construction_bayes", number=32, label="fig:kl_vs_position", topic="prediction",
        sentence="With BOS the construction is near Bayes even at beta = 100.",
        needs=(predicted("excess", prior="independent", predictor="hard, BOS"),),
    ),
    Claim(
        id="bos_trained_bayes", number=33, label="fig:kl_vs_position", topic="prediction",
        sentence="Models trained with BOS are near Bayes.",
        needs=(predicted("excess", quantifier="most", family="disentangled", **WITH_BOS),),
    ),
    Claim(
        id="families_match", number=34, label="fig:kl_vs_position", topic="prediction",
        sentence="Hierarchical task: construction, disentangled and standard models track each other closely.",
        needs=(predicted("apart", family=TRAINED, **HIERARCHICAL),),
    ),
    Claim(
        id="beat_add_alpha", number=35, label="fig:kl_vs_position", topic="prediction",
        sentence="Hierarchical task: all three outperform every fixed add-alpha substantially.",
        needs=(predicted("below_add_alpha", family=PAPER, **HIERARCHICAL),),
    ),
    Claim(
        id="two_scalars", number=36, label="sec:experiments", topic="prediction",
        sentence="With beta_1 and beta_2 alone the construction matches the trained models.",
        needs=(
            Need(
                table="kl_curves", quantity="over_trained", by="rule", part="for trained betas",
                rows={"family": "construction", "start": ("free", "kappa_tied", "kappa_fixed"), **HIERARCHICAL},
            ),
            Need(
                table="open_choices", quantity="over_trained", quantifier="every", by="reading",
                part="for the best betas", rows={"question": "kappa", "reading": ("free", "tied(1)", "fixed(0)")},
            ),
        ),
        note="the paper does not say how kappa is set under this prior",
    ),
)  # fmt: skip

MECHANISM = (
    Claim(
        id="sharp_copies", number=37, label="fig:mech_main", topic="copying",
        sentence="T = 32: sharp, lag-specific copies in all three families.",
        needs=(copied(32, family=PAPER, **HIERARCHICAL),),
    ),
    Claim(
        id="blocks", number=38, label="fig:mech_main", topic="matching",
        sentence="T = 32: W_A of the two disentangled models lies in the shifted blocks.",
        needs=(blocks(32, family=DISENTANGLED, **HIERARCHICAL),),
    ),
    Claim(
        id="full_and_partial", number=39, label="fig:mech_main", topic="matching",
        sentence="T = 32: the last query spreads its mass over full and partial matches, even with BOS.",
        needs=(
            matched("partial", family=PAPER, length=32, **HIERARCHICAL),
            matched("key_ratio", "attention", family=PAPER, length=32, **HIERARCHICAL),
        ),
    ),
    Claim(
        id="three_constructions", number=40, label="fig:mech_indep", topic="task and circuit",
        sentence="Constructions: hard beta attends to exact matches, finite beta to partial ones, BOS gets a share.",
        needs=(
            constructed("full", "hard"), constructed("partial", "adaptive"),
            constructed("off_full_bos", "bos"), constructed("bos_error", "bos"),
        ),
    ),
    Claim(
        id="bos_pattern", number=41, label="fig:mech_indep", topic="matching",
        sentence="Trained with BOS, a model attends as the construction: exact matches, and a fixed share to BOS.",
        needs=(
            matched("off_full_bos", part="", family="disentangled", length=64, **WITH_BOS),
            matched("bos_error", "attention", part="", family="disentangled", length=64, **WITH_BOS),
        ),
    ),
    Claim(
        id="nobos_pattern", number=42, label="fig:mech_indep", topic="matching",
        sentence="Trained without BOS, a model attends as the construction: to full and partial matches, in order.",
        needs=(
            matched("partial", part="", family="disentangled", length=64, **NO_BOS),
            matched("key_ratio", "attention", part="", family="disentangled", length=64, **NO_BOS),
        ),
    ),
    Claim(
        id="appendix_constructions", number=43, label="fig:app2_nobos_con, fig:app2_bos_con", topic="task and circuit",
        sentence="Appendix: copies, blocks and attention of the fixed, the adaptive and the BOS construction.",
        needs=tuple(
            constructed(quantity, name)
            for name, last in (("hard", "full"), ("adaptive", "partial"), ("bos", "bos_error"))
            for quantity in ("copy_mass", "aligned_weights", last)
        ),
    ),
    Claim(
        id="nobos_trained", number=44, label="fig:app2_nobos_tr", topic="matching",
        sentence="Trained without BOS: lag-specific copies, shifted blocks, mass on full and partial matches.",
        needs=(
            copied(64, family="disentangled", **NO_BOS),
            blocks(64, family="disentangled", **NO_BOS),
            matched("partial", family="disentangled", length=64, **NO_BOS),
        ),
    ),
    Claim(
        id="bos_trained", number=45, label="fig:app2_bos_tr", topic="matching",
        sentence="Trained with BOS: the construction's copies and blocks; exact matches and BOS (main text).",
        needs=(
            copied(64, family="disentangled", **WITH_BOS),
            blocks(64, family="disentangled", **WITH_BOS),
            matched("off_full_bos", family="disentangled", length=64, **WITH_BOS),
        ),
        note="the appendix' caption says soft matching, against the main text: partial matches get almost nothing",
    ),
    Claim(
        id="sharp_copies_long", number=46, label="fig:hier_layer1_attn", topic="copying",
        sentence="T = 128: all three families recover the same sharp copies.",
        needs=(copied(128, family=PAPER, **HIERARCHICAL),),
    ),
    Claim(
        id="blocks_long", number=47, label="fig:hier_layer2_wa", topic="matching",
        sentence="T = 128: W_A of both disentangled models has the block-diagonal shift structure.",
        needs=(blocks(128, family=DISENTANGLED, **HIERARCHICAL),),
    ),
    Claim(
        id="queries_match", number=48, label="fig:hier_layer2_attn", topic="matching",
        sentence="T = 128: each query attends to keys with a matching context.",
        needs=(matched("on_full", "attention", part="", family=PAPER, length=128, **HIERARCHICAL),),
    ),
    Claim(
        id="hier_induction", number=49, label="fig:hier_induction", topic="matching",
        sentence="T = 128: most mass on full matches, a non-negligible share on partial ones.",
        needs=(
            *(matched(name, part="", family=PAPER, length=128, **HIERARCHICAL) for name in ("full_lead", "partial")),
            matched("key_ratio", "attention", part="", family=PAPER, length=128, **HIERARCHICAL),
        ),
    ),
    Claim(
        id="lag_1_leads", number=50, label="sec:experiments", topic="matching",
        sentence="Hierarchical task: the lag-1 block is larger than the lag-2 block, beta_1 > beta_2.",
        needs=(matched("block_lead", "lag_asymmetry", part="", family=DISENTANGLED, **HIERARCHICAL),),
    ),
    Claim(
        id="identity", number=51, label="app:symmetry", topic="matching",
        sentence="Trained models compare tokens by identity, whichever symbols they are.",
        needs=(matched("residual", "identity_blocks", part="", family=TRAINED),),
    ),
    Claim(
        id="follows_law", number=52, label="sec:experiments", topic="matching",
        sentence="Attention goes to each kind of match as soft matching says: exp of the betas that match.",
        needs=(
            matched("law_gap", part="on the hierarchical task", family=TRAINED, **HIERARCHICAL),
            matched("law_gap", part="with BOS", family="disentangled", **WITH_BOS),
            matched("law_gap", part="without BOS", family="disentangled", **NO_BOS),
        ),
    ),
    Claim(
        id="partial_smooths", number=53, label="sec:experiments", topic="cause", ours=True,
        sentence="Without BOS, soft matching does the smoothing: partial matches cost most when switched off.",
        needs=(matched("partial_cost", "smoothing_source", part="", family="disentangled", **NO_BOS),),
        note="a readout that trains does half of it; one that is fixed cannot, so that then it holds by definition",
    ),
    Claim(
        id="partial_with_bos", number=54, label="sec:experiments", topic="matching",
        sentence="Hierarchical task: partial matches get mass even with BOS, unlike on the independent task.",
        needs=(
            *(
                matched("partial", part="on the hierarchical task", family=PAPER, length=length, **HIERARCHICAL)
                for length in (32, 64, 128)
            ),
            matched("off_full_bos", part="on the independent task", family="disentangled", **WITH_BOS),
        ),
        note="judged up to T = 128, the longest that the paper shows attention of",
    ),
    Claim(
        id="law_recovers", number=55, label="sec:experiments", topic="cause", ours=True,
        sentence="Models implement soft matching: in place of the attention it recovers nearly all of the loss.",
        needs=(
            matched("recovered", "causal", part="on the hierarchical task", family=TRAINED, **HIERARCHICAL),
            matched("recovered", "causal", part="with BOS", family="disentangled", **WITH_BOS),
            matched("recovered", "causal", part="without BOS", family="disentangled", **NO_BOS),
        ),
    ),
    Claim(
        id="nothing_beside", number=56, label="sec:experiments", topic="cause", ours=True,
        sentence="All that a model knows of the next token comes through its match head.",
        needs=(Need(table="direct_path", quantity="direct", rows={"family": PAPER}),),
    ),
    Claim(
        id="optimum", number=57, label="sec:experiments", topic="training", ours=True,
        sentence="Training arrives at the beta that minimises the population loss (the paper: an open question).",
        needs=(
            matched("beta_gap", "optimal", part="on the hierarchical task", source="trained", family=PAPER,
                    **HIERARCHICAL),
            matched("beta_gap", "optimal", part="without BOS", source="trained", **NO_BOS),
        ),
    ),
    Claim(
        id="beyond", number=58, label="app:limitations_impact", topic="language models", ours=True,
        sentence="Deeper stacks, large models and natural text are left for future work.",
        note="see below: four heads, and a language model",
    ),
)  # fmt: skip

CLAIMS = (*SETTINGS, *THEORY, *PREDICTIONS, *MECHANISM)
