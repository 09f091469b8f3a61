"""Does the mechanism cause the prediction? Edits of the live circuit, each beside a matched random control.

Attention is edited at the last query, where the prediction is made, in all match heads at once. With s a match head's
own scores and M the mask of a candidate key:

    law            the pattern becomes e^{|beta|_M} / Z, BOS e^kappa / Z, early keys 0 (eq:transformer_estimator)
    pair_law       the same with a weight for every pair of blocks, not only the aligned ones (corollary:inductive)
    beta_zero      s - |beta|_M: matches have no effect; everything else in the scores stays
    beta_infinite  the limit of s - |beta|_M + C |M|: only the candidates with the largest overlap are left, the
                   full matches where there are any. At fixed kappa, BOS then has no weight.
    lag_r_only     s - |beta|_M + beta_r [r in M]: only lag r counts (for k > 1)
    no_partial     only full matches and BOS are left; where there is neither, the head attends to nothing
    no_bos         BOS gets no attention, the rest is renormalised
    copy_head_h    the output of copy head h (from 0) becomes its mean over sequences and positions; where copy heads
                   sit in several layers, copy_head_l.h names the layer, too. Heads that share a lag are ablated
                   together: copy_head_0+2
    uniform        even attention over all visible keys

The control of an edit of matches is the same edit with the masks shuffled among the candidates of each sequence: the
same weights or score changes, at random keys. The control of `no_bos` takes the same mass from random candidates. The
control of `copy_head_h` moves the head's output by the same distance in a random direction.

Loss is KL(truth || prediction), which differs from the cross-entropy by a constant. `uniform` sets the scale on which
loss is recovered: 1 - (L_law - L_model) / (L_uniform - L_model), cut to [0, 1]; `pair_loss_recovered` is the same of
the pair law. If the pair law recovers more than the law, the model also compares tokens of unequal lags.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Float

from interp.arguments import Number, Switch, Whole, keywords, real_array, switch
from interp.circuit.circuit import Head, Model, head_name, heads_in
from interp.circuit.edits import HeadMeans, layers_of, moved_at_random, together, write_output
from interp.circuit.experiment import Experiment
from interp.circuit.law import (
    even_pattern,
    full_matches,
    keep_keys,
    largest_overlaps,
    law_pattern,
    pair_scores,
    scores_by_mask,
)
from interp.circuit.runner import Hooks, law_of, run
from interp.divergence import KL_FLOOR, kl_between
from interp.instruments.given import HeadLaw, HeadLaws, Law, NextLaw, PairLaw, laws_of_heads
from interp.notation import Tokens, mask_bits
from interp.results import Axes, NamedRows, half_width, mean_stderr, nothing_to_recover, provenance, share_recovered

Edit: TypeAlias = Callable[[torch.Tensor], torch.Tensor]  # masks of the keys -> attention, [batch, match, query, key]

LINEAR_BELOW = 1e-3  # nats: the axis of a plot is linear up to here, then logarithmic


@dataclass(frozen=True, kw_only=True)
class CausalEdit:
    """The change of the predictions by one edit and by its random control.

    loss           mean loss of the edited model
    loss_change, loss_stderr   mean of L_edited - L_model, and its standard error over sequences
    kl, kl_stderr  mean of KL(model || edited model), and its standard error
    change         how much was edited: the mean total-variation distance between the edited and the model's own
                   attention; for a copy head the mean distance between its output and what took its place
    reached        whether the edit, or its control, changed the logits. An edit of attention that does not raises an
                   error, so that False occurs only for a copy head that nothing reads.
    floored        share of sequences where the edited prediction needed the floor of the loss
    control_loss_change, control_loss_stderr, control_kl, control_kl_stderr   the same for the control; None for
                   `uniform`, which is a control itself
    """

    edit: str
    loss: float
    loss_change: float
    loss_stderr: float
    kl: float
    kl_stderr: float
    change: float
    reached: bool
    floored: float
    control_loss_change: float | None = None
    control_loss_stderr: float | None = None
    control_kl: float | None = None
    control_kl_stderr: float | None = None


@dataclass(frozen=True, kw_only=True)
class CausalTests(NamedRows[CausalEdit]):
    """The edits, found by name (`tests["law"]`), and how much of the model the fitted law recovers.

    edits           a `CausalEdit` for each edit
    loss, loss_stderr   the unedited model's KL(truth || prediction)
    loss_recovered, loss_recovered_stderr   1 when the law's attention predicts as well as the model's own, 0 when no
                    better than even attention does
    kl_recovered, kl_recovered_stderr   1 - KL(model || law) / KL(model || uniform), cut to [0, 1]. It compares the
                    predictions themselves: an edit with the same loss but other predictions does not recover them
    pair_loss_recovered, pair_kl_recovered (and _stderr)   the same for the law of all pairs; NaN where none was given
    beta, kappa     of the law that was tested; a row for each match head where they differ
    floor, n        the floor of the KL, and the number of sequences
    success         False where no law was given to test, or where even attention raises the loss by less than two
                    standard errors, so that no share of the rise is defined
    """

    ROWS, NAME, NOUN = "edits", "edit", "edit"
    FIRST = (("change", "loss_change"),)
    SHOWN = ("edit", "loss_change", "control_loss_change", "kl", "control_kl")

    edits: tuple[CausalEdit, ...]
    loss: float
    loss_stderr: float
    loss_recovered: float
    loss_recovered_stderr: float
    kl_recovered: float
    kl_recovered_stderr: float
    pair_loss_recovered: float
    pair_loss_recovered_stderr: float
    pair_kl_recovered: float
    pair_kl_recovered_stderr: float
    beta: Float[np.ndarray, "*match lag"] | None
    kappa: float | Float[np.ndarray, " match"] | None
    floor: float
    n: int

    @property
    def title(self) -> str:
        """What the law recovers."""
        share = f"the law recovers {self.loss_recovered:.3f} of the loss, {self.kl_recovered:.3f} of the predictions"
        first = f"edits on {self.n} sequences, loss {self.loss:.4f} ± {self.loss_stderr:.4f}"
        return f"{first}: {share}" if self.success else first

    def plot(self, ax: Axes | None = None) -> Axes:
        """The change of the loss by each edit and its random control, with 95% intervals."""
        from interp.plotting import INTERVAL_NAME, control_bars, heading, panel, signed_log

        ax = panel(ax, width=6.4, height=1.2 + 0.36 * len(self.edits))
        rows = self.table()
        reach = (half_width(rows["loss_stderr"], n=self.n), half_width(rows["control_loss_stderr"], n=self.n))
        control_bars(ax, list(self), rows["loss_change"], rows["control_loss_change"], reach=reach, across=True)
        signed_log(ax, linear_below=LINEAR_BELOW)
        ax.set_xlabel(f"rise of KL(truth || prediction)\n(nats, {INTERVAL_NAME}; logarithmic beyond ±{LINEAR_BELOW:g})")
        return heading(ax, self.title, doubt=self.doubt)


OF_LAW = "law=fit, what fit_scores returns, or law=(beta, kappa)"


@keywords(
    beta=OF_LAW,
    kappa=OF_LAW,
    pairs="pair_law=pairs, what fit_score_pairs returns",
    pairs_kappa="pair_law=pairs, what fit_score_pairs returns",
)
def causal_tests(
    model: Model,
    tokens: Tokens,
    *,
    next_law: NextLaw,
    law: Law | None,
    pair_law: PairLaw | None = None,
    seed: Whole = 0,
    floor: Number = KL_FLOOR,
    only_laws: Switch = False,
) -> CausalTests:
    """Run every edit and its control on the live model; the module's docstring says what each one does.

    An edit of attention that does not change the logits raises an error; for a copy head that nothing reads, `reached`
    is False.

    Parameters
    ----------
    model       a model of this suite, or a `Circuit`
    tokens      [batch, length] symbols, without BOS
    next_law    [batch, vocab] the true law of the token after each sequence, or one-hot rows of the token that came
    law         the law to test, for all match heads or each its own: a fit, or (beta, kappa). With None, or a fit that
                is not to be trusted, only the edits that need no law are made
    pair_law    what `fit_score_pairs` returns, or (matrix, kappa): the law of all pairs is tested, too
    seed        of the random controls
    floor       of the probabilities in the KL
    only_laws   make only the edits by the laws and even attention, which is all that the recovered shares need

    Returns
    -------
    `CausalTests`, a row for each edit

    Examples
    --------
        tests = causal_tests(model, chains.tokens, next_law=chains.next_law, law=fit)
        tests.loss_recovered, tests.table()
    """
    only_laws = switch(only_laws, name="only_laws")
    trial = Experiment(model, tokens, next_law=next_law, floor=floor, seed=seed)
    circuit, given = trial.circuit, HeadLaws()
    if law is not None:
        given = laws_of_heads(law, order=circuit.order, bos=circuit.has_sink, heads=len(circuit.match_heads))
    edits = {name: edit for name, edit in match_edits(trial, given.heads).items() if name == "law" or not only_laws}
    measured = [
        _written(trial, name, edit(trial.masks), edit(trial.shuffled(trial.masks))) for name, edit in edits.items()
    ]
    by_law = measured[0] if given.heads else None
    by_pairs = None
    if isinstance(pair_law, tuple) or (pair_law is not None and pair_law.success):
        by_pairs = _written(trial, "pair_law", *_pair_patterns(trial, pair_law))
        measured.append(by_pairs)
    if not only_laws:
        measured += [_written(trial, "no_bos", *_without_bos(trial))] if circuit.has_sink else []
        measured += _ablated_copy_heads(trial)
    uniform = _written(trial, "uniform", even_pattern(trial.masks)[:, None].expand_as(trial.pattern))
    failure = ""
    if by_law is None:
        failure = f"no law to test: {given.note}" if given.note else "no law was given, so none was tested"
    elif math.isnan(share_recovered(by_law.lost, uniform.lost)[0]):
        failure = nothing_to_recover("even attention", *mean_stderr(uniform.lost))
    kappas = [one.kappa for one in given.heads if one.kappa is not None]
    betas = np.array([one.beta for one in given.heads])
    return CausalTests(
        edits=tuple(one.row for one in [*measured, uniform]),
        loss=trial.divergence.mean,
        loss_stderr=trial.divergence.stderr,
        **_recovered(by_law, uniform, prefix=""),
        **_recovered(by_pairs, uniform, prefix="pair_"),
        beta=None if not given.heads else betas[0] if len(betas) == 1 else betas,
        kappa=None if not kappas else kappas[0] if len(kappas) == 1 else np.array(kappas),
        floor=trial.floor,
        n=len(trial.tokens),
        success=not failure,
        message="; ".join(filter(None, (failure, given.note if given.heads else ""))),
        provenance=provenance(seed=int(seed), checkpoint=circuit.checkpoint),
    )


def match_edits(trial: Experiment, heads: Sequence[HeadLaw]) -> dict[str, Edit]:
    """The edits that depend on the masks, so that shuffled masks give their controls; the law, if any, first."""
    order, scores = trial.circuit.order, trial.scores

    def by_head(masks: torch.Tensor, betas: Sequence[Float[np.ndarray, " lag"]]) -> torch.Tensor:
        return torch.stack([scores_by_mask(masks, mask_bits(order) @ beta) for beta in betas], dim=1)

    def only(lags: Sequence[int]) -> Edit:
        """Each head's scores with its beta set to zero at all other lags."""
        taken = [np.where(np.isin(np.arange(order), lags), 0.0, -beta) for beta in betas]
        return lambda masks: torch.softmax(scores + by_head(masks, taken), dim=-1)

    def hardest(masks: torch.Tensor) -> torch.Tensor:
        return keep_keys(scores - by_head(masks, betas), largest_overlaps(masks, order=order)[:, None])

    edits: dict[str, Edit] = {}
    betas = [one.beta for one in heads if one.beta is not None]
    if len(betas) < len(heads):
        raise ValueError("the causal tests clamp beta: give a law with a weight for each lag")
    if heads:
        edits["law"] = lambda masks: torch.stack(
            [law_pattern(masks, by_mask=one.by_mask, kappa=one.kappa) for one in heads], dim=1
        )
        edits |= {"beta_zero": only([]), "beta_infinite": hardest}
        edits |= {f"lag_{lag + 1}_only": only([lag]) for lag in range(order if order > 1 else 0)}
    bos = trial.circuit.has_sink
    edits["no_partial"] = lambda masks: keep_keys(scores, full_matches(masks, order=order, bos=bos)[:, None])
    return edits


def _pair_patterns(trial: Experiment, pair_law: PairLaw) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of the law of all pairs; the control shuffles its scores among each sequence's candidates."""
    given, kappa = pair_law if isinstance(pair_law, tuple) else (pair_law.beta, pair_law.kappa)
    matrix, expected = real_array(given, name="pair_law"), [trial.circuit.order + 1] * 2
    if list(matrix.shape) != expected or not np.isfinite(matrix).all():
        raise ValueError(f"pair_law must have finite weights of shape {expected}, got {list(matrix.shape)}")
    if (kappa is None) == trial.circuit.has_sink:
        raise ValueError(f"pair_law needs a kappa exactly where the model has BOS, got {kappa}")
    scores = torch.full(trial.masks.shape, -torch.inf, dtype=torch.float64)
    scores[trial.masks >= 0] = pair_scores(trial.tokens, matrix).ravel()
    own, control = scores, trial.shuffled(scores)
    if kappa is not None:
        own[..., 0] = control[..., 0] = kappa
    own, control = (torch.softmax(one, dim=-1)[:, None].expand_as(trial.pattern) for one in (own, control))
    return own, control


def _without_bos(trial: Experiment) -> tuple[torch.Tensor, torch.Tensor]:
    """No attention on BOS; the control takes as much from random candidates, as far as they have it."""
    visible = torch.arange(trial.pattern.shape[-1]) > 0
    keys = torch.arange(trial.pattern.shape[-1]).expand_as(trial.masks)
    order = trial.shuffled(keys)[:, :, trial.masks[0, 0] >= 0][:, None].expand(-1, trial.pattern.shape[1], -1, -1)
    own = trial.pattern.gather(-1, order)
    before = own.cumsum(-1) - own
    taken = torch.minimum((trial.pattern[..., :1] - before).clamp(min=0.0), own)
    left = trial.pattern.scatter(-1, order, own - taken)
    return keep_keys(trial.scores, visible), left / left.sum(-1, keepdim=True)


@dataclass(frozen=True, kw_only=True)
class _Measured:
    """An edit with the rise of its loss and KL(model || edited model) for every sequence."""

    row: CausalEdit
    lost: torch.Tensor
    kls: torch.Tensor


def _written(trial: Experiment, name: str, pattern: torch.Tensor, control: torch.Tensor | None = None) -> _Measured:
    """Attention written at the last query."""
    logits = trial.write(pattern, edit=name)
    other = None if control is None else trial.write(control, edit=f"control of {name}")
    return _measured(trial, name, logits, other, change=float(trial.distance(pattern).mean()))


def _ablated_copy_heads(trial: Experiment) -> list[_Measured]:
    """The outputs of the copy heads of each lag replaced by their means; the control moves them as far in random
    directions.
    """
    circuit = trial.circuit
    layers = layers_of(circuit.known_copy_heads)
    means = HeadMeans(layers)

    def run_copy(hooks: Hooks) -> torch.Tensor:
        return run(circuit, trial.tokens, hooks=hooks, last_only=True)

    def ablated(heads: Sequence[Head]) -> _Measured:
        distances = list[torch.Tensor]()

        def to_mean(place: Head, z: torch.Tensor, rows: slice) -> torch.Tensor:
            distances.append((z.cpu().double() - means.of(place)).norm(dim=-1).flatten())
            return means.of(place).expand_as(z)

        def moved(place: Head, z: torch.Tensor, rows: slice) -> torch.Tensor:
            return moved_at_random(z, means.of(place), trial.generator)

        logits, control = (
            run_copy(together(write_output(at, partial(edit, at)) for at in heads)) for edit in (to_mean, moved)
        )
        name = "+".join(str(at[1]) if len(layers) == 1 else head_name(at) for at in heads)
        return _measured(trial, f"copy_head_{name}", logits, control, change=float(torch.cat(distances).mean()))

    run_copy(means.reading)
    return [ablated(heads) for heads in dict.fromkeys(map(heads_in, circuit.copy_heads)) if heads]


def _measured(
    trial: Experiment, name: str, logits: torch.Tensor, control: torch.Tensor | None, *, change: float
) -> _Measured:
    found: dict[str, Any] = {}
    for prefix, one in (("control_", control), ("", logits)):
        if one is not None:
            laws = law_of(one)
            edited = trial.kl(laws)
            lost, kls = edited.values - trial.divergence.values, kl_between(trial.base, laws, floor=trial.floor)
            found[f"{prefix}loss_change"], found[f"{prefix}loss_stderr"] = mean_stderr(lost)
            found[f"{prefix}kl"], found[f"{prefix}kl_stderr"] = mean_stderr(kls)
    reached = any(one is not None and not torch.equal(one, trial.logits) for one in (logits, control))
    row = CausalEdit(edit=name, loss=edited.mean, change=change, reached=reached, floored=edited.floored, **found)
    return _Measured(row=row, lost=lost, kls=kls)


def _recovered(law: _Measured | None, uniform: _Measured, *, prefix: str) -> dict[str, float]:
    """The shares of loss and of predictions that a law recovers, cut to [0, 1], with errors; NaN where none is."""
    shares = {"loss": (math.nan, math.nan), "kl": (math.nan, math.nan)}
    if law is not None:
        shares = {"loss": share_recovered(law.lost, uniform.lost), "kl": share_recovered(law.kls, uniform.kls)}
    found = {}
    for name, (share, stderr) in shares.items():
        found[f"{prefix}{name}_recovered"] = float(np.clip(share, 0.0, 1.0))
        found[f"{prefix}{name}_recovered_stderr"] = stderr
    return found
