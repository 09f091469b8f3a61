"""Every statement of the paper that can be checked, in its order.

A need of a claim of the paper asks what the paper says, in the paper's terms. What is stricter is in `ours`. Statements
that the paper makes of its own settings are here too, so that what we set otherwise is seen.
"""

from __future__ import annotations

from typing import Any

from analyses.claims.quantities import QUANTITIES
from analyses.claims.records import Claim, Need, Quantifier

HIERARCHICAL: dict[str, Any] = {"prior": "hierarchical", "bos": True}
WITH_BOS: dict[str, Any] = {"prior": "independent", "bos": True}
NO_BOS: dict[str, Any] = {"prior": "independent", "bos": False}
PAPER = ("construction", "disentangled", "standard")
TRAINED = ("disentangled", "standard")
DISENTANGLED = ("construction", "disentangled")  # whose weights show blocks
ALL_FAMILIES: dict[str, Any] = {"family": PAPER, **HIERARCHICAL}
BOTH_TRAINED: dict[str, Any] = {"family": TRAINED, **HIERARCHICAL}
BOTH_DISENTANGLED: dict[str, Any] = {"family": DISENTANGLED, **HIERARCHICAL}
MODEL_WITH_BOS: dict[str, Any] = {"family": "disentangled", **WITH_BOS}
MODEL_NO_BOS: dict[str, Any] = {"family": "disentangled", **NO_BOS}
NINE = (32, 64, 128, 192, 256, 384, 512, 768, 1024)
COPIES, BLOCKS, MATCHING = "for the copies", "for the weight blocks", "for the matching"
HIERARCHICAL_PART, BOS_PART, NO_BOS_PART = "on the hierarchical task", "with BOS", "without BOS"


def need(
    quantity: str, table: str = "", *, part: str = "", of: Quantifier = "most", by: str = "start", **rows: Any
) -> Need:
    """One comparison; of the table that the quantity is read from first, unless another one is named."""
    table = table or next(iter(QUANTITIES[quantity].read))
    return Need(table=table, quantity=quantity, rows=rows, quantifier=of, part=part, by=by)


def claim(number: int | None, id: str, label: str, topic: str, sentence: str, *needs: Need, **more: Any) -> Claim:
    return Claim(id=id, number=number, label=label, topic=topic, sentence=sentence, needs=needs, **more)


def proved(number: int, id: str, label: str, sentence: str, **more: Any) -> Claim:
    """A claim of the theory that rests on the checks of its label alone: `python -m analyses theory`."""
    return claim(number, id, label, "theory", sentence, theory(label), **more)


def theory(label: str) -> Need:
    return need("theory_error", of="every", label=label)


def constructed(quantity: str, name: str) -> Need:
    return need(quantity, "construction_attention", of="every", construction=name)


def partial_mass(length: int) -> Need:
    return need("partial", part=HIERARCHICAL_PART, length=length, **ALL_FAMILIES)


SETTINGS = (
    claim(1, "task", "sec:experiments", "setting",
          "Chains of order k = 2 over |V| = 5 symbols; alpha = 1, eta = (5, 5).",
          need("order", of="every", family=PAPER), need("vocab", of="every", family=PAPER)),
    claim(2, "eta_0", "sec:in-context", "setting", "The root of the hierarchical prior, eta_0, is not given.",
          note="eta_0 = 1 here; open_choices measures 0.2 to 5"),
    claim(3, "protocol", "sec:experiments", "setting",
          "Disentangled models: 10^6 steps of Adam, rate 10^-3, batch 32, sampled next tokens.",
          need("paper_protocol", of="every", family="disentangled", **HIERARCHICAL),
          note="other runs are annealed: 40,000 steps from 10^-2, the exact next-token distribution as target"),
    claim(4, "protocol_standard", "sec:experiments", "setting", "Standard models: the same protocol.",
          need("paper_protocol", of="every", family="standard", **HIERARCHICAL),
          note="other runs are annealed: 6,000 to 12,000 steps from 3e-3"),
    claim(5, "standard_shape", "sec:experiments", "setting",
          "Standard models: width 64, LayerNorm, an MLP block, learned relative biases.",
          need("d_model", of="every", family="standard"), note="ours: an MLP of width 256 in both layers"),
    claim(6, "scalars", "sec:experiments", "setting",
          "The construction trains beta alone; how kappa is set under the hierarchical prior is not said.",
          note="here kappa is free, tied or fixed: see its start"),
    claim(7, "readout", "sec:preliminaries", "setting", "W_O gives logits in the text, probabilities in the proof.",
          note="disentangled: probabilities; standard: logits"),
    claim(8, "initialisation", "sec:experiments", "setting",
          "All parameters of the trained models are optimised from initialisation.",
          note="W_O starts at the construction's, and trains"),
    claim(9, "hard_start", "app:nobos_trained_visualizations", "setting",
          "Without BOS, layer 1 starts at hard copies and stays trainable.",
          need("hard_start", of="every", **MODEL_NO_BOS),
          note="a hard copy is a bias of 40 nats: trainable in name only, as its gradient vanishes"),
    claim(10, "bos_vector", "sec:experiments", "setting", "BOS is embedded as a fixed neutral vector.",
          note="the same; standard: the mean embedding"),
    claim(11, "lengths", "app:hierarchical_experiments", "setting", "Nine lengths from 32 to 1024, three seeds.",
          need("seeds", of="every", length=NINE, **ALL_FAMILIES)),
    claim(12, "one_sequence", "app:experiments_app", "setting",
          "Pictures show one sequence (T = 64; hierarchical: 32 and 128) and the converged seed.",
          note="verdicts: means over sequences, most seeds"),
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
    claim(18, "pseudo_count", "eq:pseudo_count", "theory",
          "At the lemma's beta the mean pseudo-count is approximately alpha.",
          need("doublings", of="every", order=2, vocab=5, alpha=1.0)),
    proved(19, "optimal_beta", "lemma:optimal_beta", "The lemma's beta(t) solves its approximate equation."),
    claim(20, "first_order", "lemma:first_order", "theory",
          "The first-order expansion and the gradient conditions of the loss.",
          *map(theory, ("lemma:first_order", "eq:transformer_gradient", "eq:approx_gradient_condition"))),
    proved(21, "katz", "sec:interpretation", "As beta grows, the estimator becomes Katz back-off.",
           where="k = 1 or the full context was seen",
           note="elsewhere it averages the matches of largest overlap, contiguous or not: see `theory`"),
    proved(22, "label_symmetry", "eq:label_symmetry", "Both priors are invariant under relabeling of the symbols."),
    proved(23, "invariance", "theorem:invariance",
           "Training from a symmetric start stays symmetric.", note="30 discrete steps stand for the gradient flow"),
    proved(24, "invariant_matrix", "lemma:permutation_invariant_matrix",
           "A matrix that all relabelings leave alone is a I + b J."),
    proved(25, "inductive", "corollary:inductive", "A symmetric match layer compares pairs of lags."),
    claim(26, "aligned_pairs", "app:symmetry", "matching",
          "Of all pairs of lags, trained models concentrate on equal lags (a heuristic remark).",
          need("aligned_pairs", family=TRAINED)),
)  # fmt: skip

PREDICTIONS = (
    claim(27, "task_priors", "fig:task_priors", "task and circuit",
          "Only under the hierarchical prior do contexts that share recent tokens inform each other.",
          need("correlation", of="every", prior="hierarchical", what="pair", name="siblings"),
          need("no_correlation", of="every", prior="independent", what="pair", name="siblings")),
    claim(28, "circuit", "fig:two_layer_circuit", "task and circuit",
          "Two attention layers, copy then match, compute the estimator.",
          need("circuit_error", of="every"), need("copy_mass", "circuit", of="every")),
    claim(29, "hard_beta", "fig:kl_vs_position", "prediction", "Without BOS, beta = 100 tracks maximum likelihood.",
          need("nearer_mle", of="mean", prior="independent", predictor="hard, no BOS")),
    claim(30, "adaptive_beta", "fig:kl_vs_position", "prediction",
          "Without BOS, beta(t) approaches the Bayes predictor.",
          need("nearer_bayes", of="mean", prior="independent", predictor="beta(t), no BOS"),
          need("excess_kept", of="mean", prior="independent", predictor="beta(t), no BOS", length=NINE[-1])),
    claim(31, "trained_smooths", "fig:kl_vs_position", "prediction",
          "Models trained without BOS recover the smoothing.", need("nearer_bayes", of="mean", **MODEL_NO_BOS),
          note="in the shipped models a free readout does part of it: see `smoothing_source`"),
    claim(32, "bos_construction_bayes", "fig:kl_vs_position", "prediction",
          "With BOS the construction is near Bayes even at beta = 100.",
          need("excess", of="mean", prior="independent", predictor="hard, BOS")),
    claim(33, "bos_trained_bayes", "fig:kl_vs_position", "prediction", "Models trained with BOS are near Bayes.",
          need("excess", **MODEL_WITH_BOS)),
    claim(34, "families_match", "fig:kl_vs_position", "prediction",
          "Hierarchical task: construction, disentangled and standard models track each other closely.",
          need("apart", of="mean", **BOTH_TRAINED)),
    claim(35, "beat_add_alpha", "fig:kl_vs_position", "prediction",
          "Hierarchical task: all three outperform every fixed add-alpha substantially.",
          need("below_add_alpha", of="mean", **ALL_FAMILIES)),
    claim(36, "two_scalars", "sec:experiments", "prediction",
          "With beta_1 and beta_2 alone the construction matches the trained models.",
          need("over_trained", by="rule", part="for trained betas", family="construction",
               start=("free", "kappa_tied", "kappa_fixed"), **HIERARCHICAL),
          need("over_trained", "open_choices", of="every", by="reading", part="for the best betas", question="kappa",
               reading=("free", "tied(1)", "fixed(0)")),
          note="the paper does not say how kappa is set under this prior"),
)  # fmt: skip

MECHANISM = (
    claim(37, "sharp_copies", "fig:mech_main", "copying",
          "T = 32: sharp, lag-specific copies in all three families.", need("copy_mass", length=32, **ALL_FAMILIES)),
    claim(38, "blocks", "fig:mech_main", "matching",
          "T = 32: W_A of the two disentangled models lies in the shifted blocks.",
          need("aligned_weights", length=32, **BOTH_DISENTANGLED)),
    claim(39, "full_and_partial", "fig:mech_main", "matching",
          "T = 32: the last query spreads its mass over full and partial matches, even with BOS.",
          need("partial", length=32, **ALL_FAMILIES), need("key_ratio", length=32, **ALL_FAMILIES)),
    claim(40, "three_constructions", "fig:mech_indep", "task and circuit",
          "Constructions: hard beta attends to exact matches, finite beta to partial ones, BOS gets a share.",
          constructed("full", "hard"), constructed("partial", "adaptive"),
          constructed("off_full_bos", "bos"), constructed("bos_error", "bos")),
    claim(41, "bos_pattern", "fig:mech_indep", "matching",
          "Trained with BOS, a model attends as the construction: exact matches, and a fixed share to BOS.",
          need("off_full_bos", length=64, **MODEL_WITH_BOS), need("bos_error", length=64, **MODEL_WITH_BOS)),
    claim(42, "nobos_pattern", "fig:mech_indep", "matching",
          "Trained without BOS, a model attends as the construction: to full and partial matches, in order.",
          need("partial", length=64, **MODEL_NO_BOS), need("key_ratio", length=64, **MODEL_NO_BOS)),
    claim(43, "appendix_constructions", "fig:app2_nobos_con, fig:app2_bos_con", "task and circuit",
          "Appendix: copies, blocks and attention of the fixed, the adaptive and the BOS construction.",
          *(constructed(quantity, name)
            for name, last in (("hard", "full"), ("adaptive", "partial"), ("bos", "bos_error"))
            for quantity in ("copy_mass", "aligned_weights", last))),
    claim(44, "nobos_trained", "fig:app2_nobos_tr", "matching",
          "Trained without BOS: lag-specific copies, shifted blocks, mass on full and partial matches.",
          need("copy_mass", part=COPIES, length=64, **MODEL_NO_BOS),
          need("aligned_weights", part=BLOCKS, length=64, **MODEL_NO_BOS),
          need("partial", part=MATCHING, length=64, **MODEL_NO_BOS)),
    claim(45, "bos_trained", "fig:app2_bos_tr", "matching",
          "Trained with BOS: the construction's copies and blocks; exact matches and BOS (main text).",
          need("copy_mass", part=COPIES, length=64, **MODEL_WITH_BOS),
          need("aligned_weights", part=BLOCKS, length=64, **MODEL_WITH_BOS),
          need("off_full_bos", part=MATCHING, length=64, **MODEL_WITH_BOS),
          note="the appendix' caption says soft matching, against the main text: partial matches get almost nothing"),
    claim(46, "sharp_copies_long", "fig:hier_layer1_attn", "copying",
          "T = 128: all three families recover the same sharp copies.", need("copy_mass", length=128, **ALL_FAMILIES)),
    claim(47, "blocks_long", "fig:hier_layer2_wa", "matching",
          "T = 128: W_A of both disentangled models has the block-diagonal shift structure.",
          need("aligned_weights", length=128, **BOTH_DISENTANGLED)),
    claim(48, "queries_match", "fig:hier_layer2_attn", "matching",
          "T = 128: each query attends to keys with a matching context.", need("on_full", length=128, **ALL_FAMILIES)),
    claim(49, "hier_induction", "fig:hier_induction", "matching",
          "T = 128: most mass on full matches, a non-negligible share on partial ones.",
          need("full_lead", length=128, **ALL_FAMILIES), need("partial", length=128, **ALL_FAMILIES),
          need("key_ratio", length=128, **ALL_FAMILIES)),
    claim(50, "lag_1_leads", "sec:experiments", "matching",
          "Hierarchical task: the lag-1 block is larger than the lag-2 block, beta_1 > beta_2.",
          need("block_lead", **BOTH_DISENTANGLED)),
    claim(51, "identity", "app:symmetry", "matching",
          "Trained models compare tokens by identity, whichever symbols they are.", need("residual", family=TRAINED)),
    claim(52, "follows_law", "sec:experiments", "matching",
          "Attention goes to each kind of match as soft matching says: exp of the betas that match.",
          need("law_gap", part=HIERARCHICAL_PART, **BOTH_TRAINED), need("law_gap", part=BOS_PART, **MODEL_WITH_BOS),
          need("law_gap", part=NO_BOS_PART, **MODEL_NO_BOS)),
    claim(53, "partial_smooths", "sec:experiments", "cause",
          "Without BOS, soft matching does the smoothing: partial matches cost most when switched off.",
          need("partial_cost", **MODEL_NO_BOS), ours=True,
          note="a readout that trains does most of it; with a fixed one it holds by definition, and is not judged"),
    claim(54, "partial_with_bos", "sec:experiments", "matching",
          "Hierarchical task: partial matches get mass even with BOS, unlike on the independent task.",
          *map(partial_mass, (32, 64, 128)), need("off_full_bos", part="on the independent task", **MODEL_WITH_BOS),
          note="judged up to T = 128, the longest that the paper shows attention of"),
    claim(55, "law_recovers", "sec:experiments", "cause",
          "Models implement soft matching: in place of the attention it recovers nearly all of the loss.",
          need("recovered", part=HIERARCHICAL_PART, **BOTH_TRAINED),
          need("recovered", part=BOS_PART, **MODEL_WITH_BOS), need("recovered", part=NO_BOS_PART, **MODEL_NO_BOS),
          ours=True),
    claim(56, "nothing_beside", "sec:experiments", "cause",
          "All that a model knows of the next token comes through its match head.", need("direct", family=PAPER),
          ours=True),
    claim(57, "optimum", "sec:experiments", "training",
          "Training arrives at the beta that minimises the population loss (the paper: an open question).",
          need("beta_gap", part=HIERARCHICAL_PART, source="trained", **ALL_FAMILIES),
          need("beta_gap", part=NO_BOS_PART, source="trained", **NO_BOS), ours=True),
    claim(58, "beyond", "app:limitations_impact", "language models",
          "Deeper stacks, large models and natural text are left for future work.", ours=True,
          note="see below: four heads, and a language model"),
)  # fmt: skip

CLAIMS = (*SETTINGS, *THEORY, *PREDICTIONS, *MECHANISM)
