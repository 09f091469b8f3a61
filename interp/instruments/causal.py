"""Does the mechanism cause the prediction? Edits of the live circuit, each beside a matched random control.

    tests = causal_tests(model, chains.tokens, next_law=chains.next_law, beta=fit.beta, kappa=fit.kappa)
    tests.loss_recovered, tests.table()

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
                   sit in several layers, copy_head_l.h names the layer, too
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
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from interp.arguments import Number, Switch, Whole, real_array, seed_number, shown, switch
from interp.circuit.circuit import Circuit, as_circuit
from interp.circuit.law import check_next_law, check_parameters, check_parameters_by_head
from interp.divergence import KL_FLOOR, check_floor
from interp.instruments.causal_bench import CausalBench, CausalEdit
from interp.notation import Tokens
from interp.results import NamedRows, half_width, mean_stderr, nothing_to_recover, provenance

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LINEAR_BELOW = 1e-3  # nats: the axis of a plot is linear up to here, then logarithmic


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
    beta, kappa     of the law that was tested
    floor, n        the floor of the KL, and the number of sequences
    success         False where no law was given to test, or where even attention raises the loss by less than two
                    standard errors, so that no share of the rise is defined
    """

    ROWS, NAME, NOUN = "edits", "edit", "edit"

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
    kappa: Any
    floor: float
    n: int

    def record(self) -> dict[str, Any]:
        """The fields, after the change of loss that each edit made."""
        return {"change": {row.edit: row.loss_change for row in self.edits}, **super().record()}

    def plot(self, ax: Axes | None = None, *, measure: str = "loss") -> Axes:
        """The change of the loss or of the predictions ("kl") by each edit and its random control; 95% intervals."""
        from interp.plotting import (
            CONTROL_COLOUR,
            INTERVAL_NAME,
            MAIN_COLOUR,
            grouped_bars,
            heading,
            legend_beside,
            panel,
            signed_log,
        )

        if measure not in ("loss", "kl"):
            raise ValueError(f"measure must be 'loss' or 'kl', got {shown(measure)}")
        rows = self.table()
        value = {"loss": "loss_change", "kl": "kl"}[measure]
        columns = {"edit": "", "control": "control_"}
        ax = panel(ax, width=6.4, height=1.2 + 0.36 * len(rows))
        grouped_bars(
            ax,
            list(self),
            {name: rows[f"{prefix}{value}"].to_numpy(np.float64) for name, prefix in columns.items()},
            reach={name: half_width(rows[f"{prefix}{measure}_stderr"], n=self.n) for name, prefix in columns.items()},
            colours={"edit": MAIN_COLOUR, "control": CONTROL_COLOUR},
            across=True,
        )
        signed_log(ax, linear_below=LINEAR_BELOW)
        what = {"loss": "rise of KL(truth || prediction)", "kl": "KL(model || edited model)"}[measure]
        ax.set_xlabel(f"{what}\n(nats, {INTERVAL_NAME}; logarithmic beyond ±{LINEAR_BELOW:g})")
        legend_beside(ax)
        share = {"loss": ("loss", self.loss_recovered), "kl": ("predictions", self.kl_recovered)}[measure]
        title = f"edits of the live model, {self.n} sequences"
        if self.success:
            title += f": the law recovers {share[1]:.3f} of the {share[0]}"
        return heading(ax, title, doubt=self.doubt)

    def __str__(self) -> str:
        others = [row for row in self.edits if row.edit not in ("law", "pair_law", "uniform")]
        worst = sorted(others, key=lambda row: -row.loss_change)[:3]
        lines = [f"Causal tests on {self.n} sequences, loss {self.loss:.4f} ± {self.loss_stderr:.4f} nats"]
        if self.beta is not None:
            law = self["law"]
            lines += [
                f"  attention replaced by the law: loss {law.loss_change:+.5f} ± {law.loss_stderr:.5f}, "
                f"KL {law.kl:.5f}",
                f"  the law at shuffled keys: loss {law.control_loss_change:+.5f}, KL {law.control_kl:.5f}",
                f"  loss recovered {self.loss_recovered:.3f} ± {self.loss_recovered_stderr:.3f}, "
                f"predictions recovered {self.kl_recovered:.3f} ± {self.kl_recovered_stderr:.3f}",
            ]
        if not math.isnan(self.pair_kl_recovered):
            lines.append(
                f"  by the law of all lag pairs: loss {self.pair_loss_recovered:.3f} ± "
                f"{self.pair_loss_recovered_stderr:.3f}, predictions {self.pair_kl_recovered:.3f} ± "
                f"{self.pair_kl_recovered_stderr:.3f}"
            )
        lines.append("  worst edits: " + ", ".join(f"{row.edit} {row.loss_change:+.4f}" for row in worst))
        return "\n".join([*lines, *self.remarks()])


def causal_tests(
    model: Any,
    tokens: Tokens,
    *,
    next_law: Any,
    beta: Any,
    kappa: Any,
    pairs: Any | None = None,
    pairs_kappa: Any = None,
    seed: Whole = 0,
    floor: Number = KL_FLOOR,
    only_laws: Switch = False,
    checkpoint: str | None = None,
) -> CausalTests:
    """Run every edit and its control on the live model; the module's docstring says what each one does.

    `next_law` is the true law of the token after each sequence, or a one-hot row of the token that came. beta and kappa
    are the fitted law's (`fit_scores`), for all match heads or a row for each. pairs [k+1, k+1] and pairs_kappa are
    those of the law of all pairs (`fit_score_pairs`). `seed` draws the controls. With beta=None, only the edits that
    need no law are made, and with pairs=None no pair law; `only_laws` makes these two edits and even attention, which
    is all that the recovered shares need. An edit of attention that does not change the logits raises an error; for a
    copy head that nothing reads, `reached` is False.
    """
    circuit = as_circuit(model)
    array = circuit.check(tokens)
    truth = check_next_law(next_law, array, vocab=circuit.vocab)
    heads = None if beta is None else check_parameters_by_head(circuit, beta=beta, kappa=kappa)
    floor, seed = check_floor(floor, vocab=circuit.vocab), seed_number(seed)
    only_laws = switch(only_laws, name="only_laws")
    bench = CausalBench(circuit, array, truth, floor=floor, seed=seed)
    asked = {name: edit for name, edit in bench.match_edits(heads).items() if name == "law" or not only_laws}
    measured = [bench.edit_matches(name, edit) for name, edit in asked.items()]
    pair_law = None if pairs is None else bench.write_pairs(*_checked_pairs(circuit, pairs, pairs_kappa))
    measured += [] if pair_law is None else [pair_law]
    if circuit.has_sink and not only_laws:
        measured.append(bench.remove_bos())
    measured += [] if only_laws else [bench.ablate_copy_head(place) for place in circuit.known_copy_heads]
    uniform = bench.spread_evenly()
    loss, loss_stderr = mean_stderr(bench.losses)
    recovered = bench.recovered(None if heads is None else measured[0], uniform)
    by_pairs = bench.recovered(pair_law, uniform)
    message = "no law was given, so none was tested" if heads is None else ""
    if heads is not None and math.isnan(recovered["loss_recovered"]):
        message = nothing_to_recover("even attention", *mean_stderr(uniform.losses - bench.losses))
    weights, pseudo = _as_given(heads)
    return CausalTests(
        edits=tuple(row.summary(bench.losses) for row in [*measured, uniform]),
        loss=loss,
        loss_stderr=loss_stderr,
        **recovered,
        **{f"pair_{name}": value for name, value in by_pairs.items()},
        beta=weights,
        kappa=pseudo,
        floor=floor,
        n=array.shape[0],
        success=not message,
        message=message,
        provenance=provenance(seed=seed, checkpoint=checkpoint),
    )


def _as_given(
    heads: Sequence[tuple[Float[np.ndarray, " lag"], float | None]] | None,
) -> tuple[Float[np.ndarray, "*match lag"] | None, Any]:
    """beta and kappa as the result shows them: of the one match head, or a row for each."""
    if heads is None:
        return None, None
    if len(heads) == 1:
        return heads[0]
    kappas = [kappa for _, kappa in heads if kappa is not None]
    return np.stack([beta for beta, _ in heads]), np.array(kappas) if kappas else None


def _checked_pairs(circuit: Circuit, pairs: Any, kappa: Any) -> tuple[Float[np.ndarray, "block block"], float | None]:
    """The matrix and kappa of a pair law that belongs to this model."""
    matrix = real_array(pairs, name="pairs")
    if matrix.shape != (circuit.order + 1,) * 2 or not np.isfinite(matrix).all():
        raise ValueError(f"pairs must be finite numbers of shape {[circuit.order + 1] * 2}, got {list(matrix.shape)}")
    _, pseudo = check_parameters(circuit, beta=np.zeros(circuit.order), kappa=kappa)
    return matrix, pseudo
