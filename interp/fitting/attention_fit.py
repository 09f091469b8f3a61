"""The law that the attention itself shows: maximum likelihood of the match heads' attention, key by key.

    fit = fit_scores(cap, source="attention", law="additive")
    fit.beta, fit.kappa, fit.nats, fit.nats_explained

`fit_scores` on scores weighs all keys alike, whether they are attended to or not. Here every query's attention is a
distribution over keys, and the fit takes the parameters under which its cross-entropy is smallest
(`interp.fitting.likelihood`): what counts is where the attention is. A law gives a key of mask M the score

    additive   |beta|_M, the sum of beta_r over the lags in M (eq:transformer_estimator)
    suffix     beta_1 + ... + beta_i, where {1..i} is the longest suffix in M: a match further back counts only after
               an unbroken match, as in back-off
    free       a number of its own for every mask; beta_r is then that of {r} alone

and BOS the score kappa. With position=True every key gets a smooth function of its distance, too, centred over a
query's candidates, as in the fit of scores. With own=True a key whose own token is the query's (x_s = x_t, lag 0) gets
beta_0 more. A law does not include early keys: attention is renormalised over candidates and BOS, query by query, and
the mass on early keys is reported. Queries with less than `MIN_COVERED` on candidates and BOS are left out.

    nats             mean KL(attention || baseline). The baseline is the same law without matches: kappa and the
                     positional term, fitted again. The nats are what matches can explain.
    nats_explained   1 - KL(attention || law) / KL(attention || baseline), in [0, 1]
    mass_gap         total variation distance between mean observed and mean predicted mass over {overlap 0..k, BOS}

A fit is trusted if matches explain at least `MIN_EXPLAINED` of the nats and mass_gap is at most `MAX_MASS_GAP`. It
carries a warning if they explain less than `WARN_EXPLAINED`, or if mass_gap is above `WARN_MASS_GAP`.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from interp.arguments import Number
from interp.circuit.capture import Capture
from interp.digits import plus_minus
from interp.fitting.attention_rows import attention_rows
from interp.fitting.candidates import Array, candidate_rows, count_distances
from interp.fitting.laws import Law, group_sizes, into_sizes, law_design
from interp.fitting.likelihood import Likelihood, Maximum, influence, maximise
from interp.fitting.regression import clustered, lone_note
from interp.notation import mask_name
from interp.results import Result, half_width, interval, mean_stderr, provenance, share_explained

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

MIN_EXPLAINED = 0.5  # of the nats, for a fit to be trusted
MAX_MASS_GAP = 0.1
# A twentieth of the attention lies on other keys than the law predicts; trained models that follow it have at most
# 0.03.
WARN_MASS_GAP = 0.05
# Of nats_explained: more than a tenth of what there is to explain is not the law, as `agreement.WARN_MATCH` has it for
# the scores. In the zoo, disentangled models that follow the law have 0.94 and more; standard models, whose scores warn
# too, have 0.87 to 0.92.
WARN_EXPLAINED = 0.9
MIN_NATS = 1e-4  # with less, there is nothing to explain beyond the baseline
MIN_SEQUENCES = 10  # clusters; fewer cannot show how far estimates vary
MUCH_EARLY = 0.1  # attention on early keys above which the message mentions it


@dataclass(frozen=True, kw_only=True)
class AttentionFit(Result):
    """A law fitted to attention by maximum likelihood. Arrays over lags have lag 1 first.

    law                     "additive", "suffix" or "free"
    beta, stderr            match weight per lag as the law has it (see the module), and its standard error, clustered
                            by sequence
    kappa, kappa_stderr     BOS score relative to an empty match at an average position; None without BOS
    own, own_stderr         beta_0, the weight of the key's own token; None unless asked for
    parameters, estimates   all parameters of the law by name: more than beta and kappa where the law is free
    covariance              of the estimates
    mask_score              [mask] the law's score of every mask; NaN where a free mask was never seen
    position                [distance] the fitted positional term at distance 0, 1, ..., mean 0
    nats, nats_stderr       mean KL(attention || baseline), see the module
    nats_explained, nats_explained_stderr
    groups                  names of the groups of keys: "|M|=0" .. "|M|=k", and "bos" where there is BOS
    observed, predicted     mean mass of each group, renormalised over candidates and BOS
    mass_gap                total variation distance between these two
    early                   mean mass on early keys, before that
    n, queries, sequences   queries in the fit (over all sequences and heads), queries of a sequence, sequences
    left_out                queries left out, because nearly all of their attention is on early keys
    warning                 why a fit that succeeded is doubtful: nats_explained below WARN_EXPLAINED, mass_gap above
                            WARN_MASS_GAP; else empty
    heads                   where the capture has several match heads, the fit of each one alone; else empty
    """

    law: Law
    beta: Float[np.ndarray, " lag"]
    stderr: Float[np.ndarray, " lag"]
    kappa: float | None
    kappa_stderr: float | None
    own: float | None
    own_stderr: float | None
    parameters: tuple[str, ...]
    estimates: Float[np.ndarray, " parameter"]
    covariance: Float[np.ndarray, "parameter parameter"]
    mask_score: Float[np.ndarray, " mask"]
    position: Float[np.ndarray, " distance"]
    nats: float
    nats_stderr: float
    nats_explained: float
    nats_explained_stderr: float
    groups: tuple[str, ...]
    observed: Float[np.ndarray, " group"]
    predicted: Float[np.ndarray, " group"]
    mass_gap: float
    early: float
    n: int
    queries: int
    sequences: int
    left_out: int
    warning: str = ""
    heads: tuple[AttentionFit, ...] = ()

    def table(self) -> pd.DataFrame:
        """One row per parameter: parameter, estimate, stderr; and, where there is one, the warning."""
        import pandas as pd

        errors = np.sqrt(np.diag(self.covariance))
        table = pd.DataFrame({"parameter": self.parameters, "estimate": self.estimates, "stderr": errors})
        return table.assign(warning=self.warning) if self.warning else table

    def interval(self, level: Number = 0.95) -> tuple[Float[np.ndarray, " end"], Float[np.ndarray, " end"]]:
        """Lower and upper ends for beta_1, .., beta_k and, with BOS, kappa: `level` of such intervals hold the truth.

        Student's t with a degree of freedom less than there are sequences.
        """
        kappa = [] if self.kappa is None else [(self.kappa, self.kappa_stderr)]
        estimates, errors = zip(*zip(self.beta, self.stderr, strict=True), *kappa, strict=True)
        return interval(estimates, errors, n=self.sequences, level=level)

    def masses(self) -> pd.DataFrame:
        """One row per group of keys: group, observed, predicted."""
        import pandas as pd

        return pd.DataFrame({"group": self.groups, "observed": self.observed, "predicted": self.predicted})

    def record(self) -> dict[str, Any]:
        """All fields as JSON-able values; mask_score becomes a dict by the mask's name."""
        record = super().record()
        record["mask_score"] = {mask_name(mask): value for mask, value in enumerate(record["mask_score"])}
        del record["heads"]
        return record | ({"heads": [one.record() for one in self.heads]} if self.heads else {})

    def plot(self, ax: Axes | None = None) -> Axes:
        """The parameters of the law, with 95% intervals. A fit that failed has none to draw, and the title says why."""
        from interp.plotting import INTERVAL_NAME, heading, panel, parameter_points

        rows = self.table()
        ax = panel(ax, width=4.8)
        reach = half_width(rows["stderr"], n=self.sequences)
        parameter_points(ax, rows["parameter"].tolist(), rows["estimate"].to_numpy(np.float64), reach)
        ax.set_ylabel(f"score above an empty match\n(nats, {INTERVAL_NAME})")
        title = f"{self.law} law of the attention of {self.sequences} sequences"
        if self.success:
            title += f": it explains {self.nats_explained:.1%} of {self.nats:.2f} nats"
        return heading(ax, title, doubt=self.doubt)

    def __str__(self) -> str:
        pairs = zip(self.beta, self.stderr, strict=True)
        beta = ", ".join(plus_minus(value, error) for value, error in pairs)
        lines = [
            f"{self.law} law of the attention of {self.n} queries, {self.sequences} sequences: "
            f"{'FAILED' if not self.success else 'ok, with a warning' if self.warning else 'ok'}",
            f"  beta       {beta}"
            + (f"; lag 0: {plus_minus(self.own, self.own_stderr)}" if self.own is not None else ""),
        ]
        if self.kappa is not None:
            lines.append(f"  kappa      {plus_minus(self.kappa, self.kappa_stderr)}")
        masses = ", ".join(
            f"{name} {seen:.3f} ({law:.3f})"
            for name, seen, law in zip(self.groups, self.observed, self.predicted, strict=True)
        )
        lines += [
            f"  nats       {plus_minus(self.nats, self.nats_stderr)} beyond the baseline; the law explains "
            f"{self.nats_explained:.1%} ± {self.nats_explained_stderr:.1%}",
            f"  mass (law) {masses}; gap {self.mass_gap:.3f}",
            f"  early keys {self.early:.3f} of the attention, not in the law",
        ]
        return "\n".join([*lines, *self.remarks()])


def attention_warning(*, explained: float, gap: float) -> str:
    """Why a fit of attention that is not refused is doubtful; empty where it is not.

    >>> attention_warning(explained=0.83, gap=0.01)
    "the law explains 83.0% of the attention's nats, below 90%"
    """
    little = f"the law explains {explained:.1%} of the attention's nats, below {WARN_EXPLAINED:.0%}"
    return "; ".join(filter(None, (little if explained < WARN_EXPLAINED else "", mass_warning(gap))))


def mass_warning(gap: float) -> str:
    """Why masses that are not refused are doubtful; empty where they are within `WARN_MASS_GAP` of the law's."""
    return f"the law's masses are off by {gap:.3f}, above {WARN_MASS_GAP}" if gap > WARN_MASS_GAP else ""


def fit_attention(
    cap: Capture,
    *,
    law: Law = "additive",
    position: bool = True,
    own: bool = False,
    min_explained: float = MIN_EXPLAINED,
    min_sequences: int = MIN_SEQUENCES,
) -> AttentionFit:
    """The law under which the capture's attention is most likely. `fit_scores(source="attention")` is the way to it.

    Several match heads are fitted together: one set of parameters for all.
    """
    return AttentionFitter(cap, law=law, position=position, own=own).fit(
        min_explained=min_explained, min_sequences=min_sequences
    )


class AttentionFitter:
    """The fit, with what comparisons with other fits need besides its result. The search is made once."""

    def __init__(self, cap: Capture, *, law: Law, position: bool, own: bool) -> None:
        self.cap = cap
        self.law = law_design(law, order=cap.order, bos=cap.has_sink, own=own)
        self.sizes = into_sizes(group_sizes(order=cap.order, bos=cap.has_sink, own=own), order=cap.order)
        self.own = own
        self.rows = attention_rows(cap, position=position, own=own)
        self.likelihood: Likelihood = self.rows.likelihood(self.law)
        self.columns = len(self.law.parameters) + self.rows.basis.shape[1]
        self.seen = self.rows.counts.sum(axis=0) > 0
        # How far each sequence moves each parameter; NaN until the fit is made.
        self.influence = np.full((self.rows.sequences, len(self.law.parameters)), np.nan)

    def fit(self, *, min_explained: float, min_sequences: int) -> AttentionFit:
        """Baseline and law, standard errors, nats and masses."""
        if reason := self.trouble():
            return self.result(self.blank(), failure=reason)
        found, values = self.solved
        return self.result(dict(values), failure=self.distrust(values, found, min_explained, min_sequences))

    @functools.cached_property
    def solved(self) -> tuple[Maximum, dict[str, Any]]:
        """The maximum, and the numbers that describe it."""
        zero = np.zeros((1, self.columns))
        matches = self.law.matches
        baseline = maximise(self.likelihood, start=zero, columns=[c for c in range(self.columns) if c not in matches])
        # The parameter of a group that no query sees cannot be determined.
        known = [c for c in range(self.columns) if c not in self.unseen]
        found = maximise(self.likelihood, start=baseline.theta, columns=known)
        divergences = [self.rows.entropy - self.likelihood.logs(one.theta)[0] for one in (found, baseline)]
        return found, self.describe(found, law=divergences[0], baseline=divergences[1])

    @property
    def clusters(self) -> int:
        """How many sequences have a row."""
        return len(np.unique(self.rows.sequence))

    @property
    def unseen(self) -> list[int]:
        """Columns of a free law whose group was never seen."""
        return [column for column in self.law.matches if not self.law.design[self.seen, column].any()]

    def trouble(self) -> str | None:
        """Why there is nothing to fit, or None."""
        if count_distances(self.cap) < 2:
            return "a query needs at least two candidate keys: the sequences are too short"
        if not self.rows.entropy.size:
            return f"all attention is on early keys: {self.rows.left_out} queries were left out"
        if not np.isfinite(self.rows.entropy).all():
            return "the attention is not finite"
        if self.law.law != "free":
            bits = self.law.design[: 1 << self.cap.order, : self.cap.order]
            keys = self.rows.counts.sum(axis=0)[: len(bits)]
            for lag in range(1, self.cap.order + 1):
                matching = float(keys @ bits[:, lag - 1])
                if matching in (0.0, float(keys.sum())):
                    return f"lag {lag} never {'mis' if matching else ''}matches at a candidate key"
        return None

    def describe(self, found: Maximum, *, law: Array, baseline: Array) -> dict[str, Any]:
        """The numbers of a fit: estimates and their errors, the nats, and masses by group."""
        size = len(self.law.parameters)
        estimates = np.where(found.told[0, :size], found.theta[0, :size], np.nan)
        self.influence = influence(self.likelihood, found)[0, :, :size]
        covariance = clustered(self.influence)
        covariance[:, ~found.told[0, :size]] = covariance[~found.told[0, :size]] = np.nan
        nats, nats_stderr = mean_stderr(baseline, clusters=self.rows.sequence)
        explained, explained_stderr = share_explained(law, baseline, clusters=self.rows.sequence)
        observed = self.rows.shares.mean(axis=0) @ self.sizes
        predicted = self.likelihood.masses(found.theta)[0].mean(axis=0) @ self.sizes
        scores = self.law.design[: 1 << self.cap.order, :size] @ np.where(np.isnan(estimates), 0.0, estimates)
        visible = self.seen[: 1 << self.cap.order] | (self.law.law != "free")
        return {
            "estimates": estimates,
            "covariance": covariance,
            "mask_score": np.where(visible, scores, np.nan),
            "position": self.rows.basis @ found.theta[0, size:],
            "nats": nats,
            "nats_stderr": nats_stderr,
            "nats_explained": explained,
            "nats_explained_stderr": explained_stderr,
            "observed": observed,
            "predicted": predicted,
            "mass_gap": float(np.abs(observed - predicted).sum() / 2),
        }

    def distrust(self, values: dict[str, Any], found: Maximum, min_explained: float, min_sequences: int) -> str | None:
        """Why the numbers cannot be trusted, or None."""
        names = np.array(self.law.parameters)
        seen = [column for column in range(len(names)) if column not in self.unseen]
        hidden = names[seen][~found.told[0, seen]]
        if values["nats"] < MIN_NATS:
            return f"the attention has {values['nats']:.1g} nats beyond its baseline: there is nothing to explain"
        if not found.converged[0] or len(hidden):
            what = ", ".join(hidden.tolist()) or "the parameters"
            return f"the attention does not determine {what}: keys are collinear, or the attention is too sharp"
        if self.clusters < min_sequences:
            return f"{self.clusters} sequences; standard errors need at least {min_sequences}"
        if values["nats_explained"] < min_explained:
            return (
                f"the law explains {values['nats_explained']:.1%} of the attention's nats; "
                f"below {min_explained:.0%} no beta is trusted"
            )
        if values["mass_gap"] > MAX_MASS_GAP:
            return f"the law's masses are off by {values['mass_gap']:.3f}; above {MAX_MASS_GAP} no beta is trusted"
        return None

    def blank(self) -> dict[str, Any]:
        """The fields of a fit that found nothing."""
        size, order = len(self.law.parameters), self.cap.order
        groups = np.full(order + 1 + int(self.cap.has_sink), np.nan)
        numbers = ("nats", "nats_stderr", "nats_explained", "nats_explained_stderr", "mass_gap")
        return {
            "estimates": np.full(size, np.nan),
            "covariance": np.full((size, size), np.nan),
            "mask_score": np.full(1 << order, np.nan),
            "position": np.full(len(self.rows.basis), np.nan),
            "observed": groups,
            "predicted": groups,
            **dict.fromkeys(numbers, math.nan),
        }

    def result(self, values: dict[str, Any], *, failure: str | None) -> AttentionFit:
        """The fit with what is known about the data; if it failed, the estimates are NaN."""
        if failure is not None:
            gone = ("estimates", "covariance", "mask_score")
            values |= {name: value for name, value in self.blank().items() if name in gone}
        law, estimates = self.law, values["estimates"]
        errors = np.sqrt(np.diag(values["covariance"]))

        def one(column: int | None) -> tuple[float | None, float | None]:
            return (None, None) if column is None else (float(estimates[column]), float(errors[column]))

        kappa, own = one(law.kappa), one(law.own)
        notes = [failure] if failure else []
        doubt = ""
        if failure is None:
            doubt = attention_warning(explained=values["nats_explained"], gap=values["mass_gap"])
        notes += [f"warning: {doubt}"] if doubt else []
        notes += lone_note(law.parameters, estimates, errors) if self.clusters > 1 else []
        if failure is None and self.rows.left_out:
            notes.append(f"{self.rows.left_out} queries have all attention on early keys and were left out")
        if not self.cap.has_sink and self.rows.early > MUCH_EARLY:
            notes.append(early_note(self.rows.early))
        if self.cap.note:
            notes.append(self.cap.note)
        names = [f"|M|={size}" for size in range(self.cap.order + 1)] + ["bos"] * int(self.cap.has_sink)
        return AttentionFit(
            **values,
            warning=doubt,
            law=law.law,
            beta=estimates[list(law.beta)],
            stderr=errors[list(law.beta)],
            kappa=kappa[0],
            kappa_stderr=kappa[1],
            own=own[0],
            own_stderr=own[1],
            parameters=law.parameters,
            groups=tuple(names),
            early=self.rows.early,
            n=len(self.rows.sequence),
            queries=len(candidate_rows(self.cap)),
            sequences=self.clusters,
            left_out=self.rows.left_out,
            success=failure is None,
            message="; ".join(notes),
            provenance=provenance(checkpoint=self.cap.checkpoint),
        )


def early_note(early: float) -> str:
    """What to do about attention on early keys, which a law without BOS does not include."""
    return (
        f"{early:.2f} of the attention is on early keys, outside the law: bos='first' gives the first token a score, "
        "as BOS has one"
    )
