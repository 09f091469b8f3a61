"""What claims are judged by: each quantity with its one threshold, the reason for it, and how tables show it."""

from __future__ import annotations

from analyses.claims import readers
from analyses.claims.readers import Column, Extreme, has
from analyses.claims.records import YES, Quantity, Reader

SHARP = 0.8  # of a copy head's attention, on its lag
REAL_SHARE = 0.05  # of the attention: less is lost among some sixty keys
EFFECT = 0.01  # nats of KL: a change of the loss that matters
LAGS = 0.1  # nats: a difference of two betas that a picture of the weights shows
CLOSE = 0.05  # of a KL: the curves of the paper's log axis that a reader calls near


def at_least(
    bound: float, words: str, reason: str, *, form: str = ".2f", after_data: bool = False, **read: Reader
) -> Quantity:
    """A quantity with a lower bound; `read` says by the name of a table how it is read."""
    return Quantity(words=words, bound=bound, side=">=", reason=reason, after_data=after_data, read=read, form=form)


def at_most(
    bound: float, words: str, reason: str, *, form: str = ".2f", after_data: bool = False, **read: Reader
) -> Quantity:
    return Quantity(words=words, bound=bound, side="<=", reason=reason, after_data=after_data, read=read, form=form)


def equal(bound: float, words: str, reason: str, *, form: str = ".0f", **read: Reader) -> Quantity:
    return Quantity(words=words, bound=bound, side="==", reason=reason, read=read, form=form)


def measured(words: str, *, form: str = ".2f", **read: Reader) -> Quantity:
    return Quantity(words=words, read=read, form=form)


# A condition is met in nine of ten runs with it and in at most half of those without.
LEAST_WITH, MOST_WITHOUT = 0.9, 0.5

QUANTITIES = {
    # what the paper sets
    "order": equal(2, "k", "the paper's", copy_heads=Column("subject.order"), form=".0f"),
    "vocab": equal(5, "|V|", "the paper's", copy_heads=Column("subject.vocab"), form=".0f"),
    "d_model": equal(64, "d_model", "the paper's", explorer=Column("config.d_model"), form=".0f"),
    "seeds": at_least(3, "seeds", "the paper's", copy_heads=readers.seeds, form=".0f"),
    "paper_protocol": at_least(1, "by the paper's protocol", "1e6 steps of Adam at 1e-3, batch 32",
        copy_heads=has("protocol", "paper"), form=YES),
    "hard_start": at_least(1, "from hard copies", "no BOS: layer 1 starts at hard copies",
        copy_heads=has("start", "hard"), form=YES),
    # theory
    "theory_error": at_most(1, "error over tolerance", "rounding of float64, on random cases with controls",
        theory=readers.theory_error, form=".1g"),
    "circuit_error": at_most(1e-06, "largest difference", "an identity, but for rounding",
        circuit=Extreme(("model_to_estimator", "to_estimator", "largest_ratio_error"), most=True), form=".0e"),
    "doublings": at_most(0.5, "doublings between mean and alpha",
        "approximately: nearer to alpha than to 2 alpha or alpha / 2", pseudo_counts=readers.log_ratio,
        after_data=True),
    "pseudo_mean": at_most(0.25, "|mean / alpha - 1|", "a quarter of alpha", pseudo_counts=readers.off_alpha),
    "pseudo_spread": at_most(0.5, "sd / mean", "most sequences within a factor of 2 or so",
        pseudo_counts=Column("variation")),
    # priors
    "correlation": at_least(0.1, "correlation of sibling contexts", "contexts that share a suffix inform each other",
        prior_trees=Column("correlation", "stderr"), form=".3f"),
    "no_correlation": at_most(0.01, "correlation of contexts", "none, but for sampling",
        prior_trees=Extreme(("correlation",)), form=".4f"),
    # predictions
    "nearer_mle": at_most(1, "distance to MLE / to Bayes", "tracks: nearer to maximum likelihood than to Bayes",
        kl_curves=readers.nearer("maximum likelihood", "bayes"), form=".3f", after_data=True),
    "nearer_bayes": at_most(1, "distance to Bayes / to MLE", "smooths: nearer to Bayes than to maximum likelihood",
        kl_curves=readers.nearer("bayes", "maximum likelihood"), form=".3f", after_data=True),
    "excess_kept": at_most(0.5, "excess over Bayes, of T = 32's", "approaches: at least half of the excess is gone",
        kl_curves=readers.excess_kept, after_data=True),
    "excess": at_most(CLOSE, "KL over Bayes",
        "near-Bayes has no number in the paper; 5% is hardly seen on its log axis",
        kl_curves=Column("excess_share", "excess_share_stderr"), form="+.1%"),
    "apart": at_most(1, "families apart / add-alpha's gap",
        "match each other: nearer to each other than to any fixed add-alpha", kl_curves=readers.apart, after_data=True),
    "below_add_alpha": at_least(CLOSE, "KL below best fixed add-alpha",
        "substantially: more than curves called near differ by", kl_curves=readers.below_add_alpha, form=".1%",
        after_data=True),
    "below_tuned": at_least(0, "KL below a tuned add-alpha", "a question of ours: a tuned alpha is not a fixed one",
        kl_curves=Column("below_add_alpha", "below_add_alpha_stderr"),
        open_choices=Column("below_add_alpha", "below_add_alpha_stderr"), form=".4f"),
    "over_trained": at_most(0.5, "KL over trained / add-alpha's gap",
        "matches: nearer to the trained models than to any fixed add-alpha", kl_curves=readers.over_trained,
        open_choices=readers.over_trained, after_data=True),
    # copies
    "copy_mass": at_least(SHARP, "copy mass, the lesser lag",
        "sharp: a mean over queries, as in a picture of the whole pattern", copy_heads=readers.copy_mass,
        construction_attention=Extreme(("copies.0.share", "copies.1.share")), circuit=Column("least_copy")),
    "copy_mass_last": at_least(SHARP, "copy mass at the last query",
        "sharp where the loss is; of the lags that the last query needs", copy_heads=readers.copy_mass_last,
        conditions=Column("copy_1")),
    # matching
    "aligned_weights": at_least(0.8, "aligned blocks, of squared W_A",
        "block-diagonal: what lies elsewhere is not seen in a picture", attention=readers.aligned_weights,
        construction_attention=Column("aligned_share")),
    "block_lead": at_least(LAGS, "lag-1 less lag-2 block (nats)", "larger by what a picture of the weights shows",
        lag_asymmetry=Column("raw_1", less="raw_2"), conditions=Column("block_1", less="block_2"), after_data=True),
    "score_lead": at_least(LAGS, "beta_1 - beta_2 in the scores", "as for the weight blocks",
        lag_asymmetry=Column("difference", "stderr"), conditions=Column("beta_1", less="beta_2"),
        open_choices=Column("beta.0", less="beta.1"), after_data=True),
    "full": at_least(0.999, "mass on full matches", "all of it, but for rounding",
        construction_attention=readers.mass_on("full"), form=".3f"),
    "full_lead": at_least(0, "full matches less the next kind", "most: more than on any other kind of key",
        overlap_mass=readers.full_lead),
    "partial": at_least(REAL_SHARE, "mass on partial matches", "non-negligible: a twentieth of the attention",
        overlap_mass=readers.mass_on("partial"), construction_attention=readers.mass_on("partial")),
    "off_full_bos": at_most(REAL_SHARE, "mass off full matches and BOS", "only: less than what is non-negligible",
        overlap_mass=readers.mass_off, construction_attention=readers.mass_off, form=".3f"),
    "bos_error": at_most(0.1, "BOS share off add-alpha's",
        "reproduces: a tenth of the attention elsewhere, as a total variation", attention=readers.bos_error,
        construction_attention=readers.bos_error, form=".3f", after_data=True),
    "key_ratio": at_least(1.5, "key's weight over the next kind's",
        "ordered: the lemma's beta gives 7.7, attention without structure 1", attention=readers.key_ratio,
        construction_attention=readers.key_ratio, form=".1f"),
    "on_full": at_least(0.9, "queries led by a full match", "each query, but for one in ten",
        attention=readers.on_full),
    "residual": at_most(0.1, "share outside a I + b J", "identity: nine tenths of the comparison",
        identity_blocks=Extreme(("scores.residual", "weights.residual", "circuit.residual"), most=True), form=".3f"),
    "aligned_pairs": at_least(0.5, "aligned pairs, of the score",
        "concentrate on: more than on all other pairs together",
        lag_pairs=Column("aligned_share", "aligned_share_stderr"), conditions=Column("aligned_share"), after_data=True),
    "law_gap": at_most(0.03, "mass off the law, kinds of key", "three hundredths of the attention",
        overlap_mass=Column("largest_gap"), form=".3f"),
    "r2": at_least(0.9, "R2 of the law in the scores", "the law is nearly all that the scores show",
        beta_kappa=Column("r2"), conditions=Column("r2"), after_data=True),
    # cause
    "partial_cost": at_least(EFFECT, "partial matches' lead in cost", "largest by a change of KL that matters",
        smoothing_source=readers.source_lead("partial"), conditions=readers.partial_lead, form="+.3f"),
    "bos_cost": at_least(EFFECT, "cost of BOS less others (nats)", "largest by a change of KL that matters",
        smoothing_source=readers.source_lead("bos"), form="+.3f"),
    "recovered": at_least(0.95, "loss recovered by soft matching", "nearly all of the loss",
        causal=Column("loss_recovered", "loss_recovered_stderr"), conditions=Column("law", "law_stderr")),
    "direct": at_most(EFFECT, "nats beside the match head", "a change of KL that matters; significance alone is none",
        direct_path=Column("gain", "gain_stderr"), conditions=Column("direct", "direct_stderr"), form="+.3f",
        after_data=True),
    "beta_gap": at_most(0.15, "beta off the optimum's (nats)", "a tolerance of ours",
        optimal=Extreme(("gap_beta",), most=True), conditions=Column("gap")),
    "dependence": at_most(EFFECT, "KL to the relabeled model", "a change of KL that matters",
        label_symmetry=Column("kl", "stderr"), conditions=Column("dependence"), form=".4f"),
    "keys_lead": at_least(EFFECT, "harm of shuffled over own keys", "a change of KL that matters",
        causal=readers.keys_lead, form=".3f", after_data=True),
    "kappa_gap": at_most(0.15, "kappa off the optimum's (nats)", "as for beta",
        optimal=Extreme(("gap_kappa", "gap_combination"), most=True), after_data=True),
    # beyond the paper
    "world_cost": at_most(0.02, "KL over the searched optimum's", "two hundredths of the KL",
        worlds=Column("over_predicted"), form="+.1%"),
    "world_share": measured("best soft matching over Bayes", worlds=Column("share", "share_stderr"), form="+.1%"),
    "edit_recovered": at_least(0.9, "loss that the law recovers", "nine tenths of what ablation costs",
        four_heads=Column("recovered", "recovered_stderr"), language_model=Column("recovered", "recovered_stderr")),
    "ablation": at_least(EFFECT, "nats lost without the heads", "a change of the loss that matters",
        language_model=Column("change", "change_stderr"), form=".3f"),
    "mean_gap": at_most(0.03, "mean mass off the law", "as for the suite's models", language_model=Column("mass_gap"),
        form=".3f"),
    "lead": measured("steps from copying to the loss", formation=Column("copied_leads", "copied_leads_stderr"),
        form="+.0f"),
    "growth": measured("growth of beta at flat loss", formation=Column("beta_grows", "beta_grows_stderr"), form="+.2f"),
    "model_kl": measured("KL on chains (nats)", language_model=Column("late_kl", "late_kl_stderr")),
    "sink_kappa": measured("kappa", language_model=Column("kappa", "kappa_stderr")),
    "excess_measured": measured("KL over Bayes", kl_curves=Column("excess_share", "excess_share_stderr"),
        worlds=Column("excess_share", "excess_share_stderr"), form="+.1%"),
    "nearest_kl": measured("KL to nearest estimator (nats)", nearest_estimator=Column("estimators.0.kl"), form=".4f"),
    "formed": measured("steps until lag 1 is copied", dynamics=Column("formed.copy lag 1"), form=".0f"),
    "over_hard": measured("KL over the hard start (nats)", flat_direction=Column("over_hard", "over_hard_stderr"),
        form="+.4f"),
}  # fmt: skip
