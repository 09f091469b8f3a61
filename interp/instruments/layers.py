"""Where does the prediction form? The law that the readout reads from the residual stream after every layer.

The stream after each layer goes through the model's own final norm and unembedding, as if the layers that follow were
not there (the logit lens). `from_final` is KL(model || layer), which is 0 after the last layer; `kl` is KL(truth ||
layer), where the truth is known. Later layers may still change the stream: a large KL says that the readout cannot read
the prediction yet, not that the information is missing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float

from interp.arguments import keywords
from interp.circuit.circuit import Circuit, Model, as_circuit
from interp.circuit.law import check_next_law
from interp.circuit.runner import last_activations, law_of, symbol_mass
from interp.divergence import kl_between, kl_divergence
from interp.instruments.given import NextLaw
from interp.notation import Tokens
from interp.results import Axes, DataFrame, Result, frame, half_width, mean_stderr, provenance


@dataclass(frozen=True, kw_only=True)
class LawByLayer(Result):
    """Laws read from the stream at the last position. Index 0 is the stream before the first layer.

    from_final, from_final_stderr   [depth] mean KL(model || layer), and its standard error over sequences
    kl, stderr                      [depth] mean KL(truth || layer); NaN where no truth was given
    uniform                         mean KL(truth || uniform law), the scale of `kl`; NaN where no truth was given
    mass                            [depth] mean mass that all symbols get together
    formed                          the first layer (from 0) after which `from_final` is less than half of its value
                                    before the first layer; None if it is 0 from the start
    n                               sequences
    """

    from_final: Float[np.ndarray, " depth"]
    from_final_stderr: Float[np.ndarray, " depth"]
    kl: Float[np.ndarray, " depth"]
    stderr: Float[np.ndarray, " depth"]
    uniform: float
    mass: Float[np.ndarray, " depth"]
    formed: int | None
    n: int

    SHOWN = ("layer", "from_final", "kl", "mass")

    @property
    def title(self) -> str:
        """Where half of the prediction is there."""
        formed = "nowhere" if self.formed is None else f"after layer {self.formed}"
        return f"laws by layer of {self.n} sequences: half of the prediction is there {formed}"

    def table(self) -> DataFrame:
        """One row per depth: layer (-1 before the first), from_final, from_final_stderr, kl, stderr, mass."""
        names = ("from_final", "from_final_stderr", "kl", "stderr", "mass")
        layers = {"layer": np.arange(-1, len(self.kl) - 1)}
        return frame(layers | {name: getattr(self, name) for name in names})

    def plot(self, ax: Axes | None = None) -> Axes:
        """KL from the final law, and from the truth, over the layers."""
        from interp.plotting import CONTROL_COLOUR, MAIN_COLOUR, heading, legend_beside, panel

        ax, rows = panel(ax), self.table()
        for name, error, label, colour in (
            ("from_final", "from_final_stderr", "from the model's law", MAIN_COLOUR),
            ("kl", "stderr", "from the truth", CONTROL_COLOUR),
        ):
            if rows[name].notna().any():
                reach = half_width(rows[error], n=self.n)
                ax.errorbar(rows["layer"], rows[name], reach, label=label, color=colour, marker="o", markersize=3)
        ax.set_xlabel("layer")
        ax.set_ylabel("KL (nats)")
        return heading(legend_beside(ax), "what the readout reads after each layer", doubt=self.doubt)


@keywords()
def law_by_layer(model: Model, tokens: Tokens, *, next_law: NextLaw | None = None) -> LawByLayer:
    """The law that the final norm and the unembedding read from the stream after every layer, at the last position.

    Parameters
    ----------
    model      a model of this suite, or a `Circuit`
    tokens     [batch, length] symbols, without BOS
    next_law   [batch, vocab] the true law of the token that follows, where it is known

    Returns
    -------
    `LawByLayer`, a row for each depth

    Examples
    --------
        found = law_by_layer(circuit, tokens, next_law=truth)
        found.kl, found.from_final
    """
    circuit = as_circuit(model)
    array = circuit.check(tokens)
    truth = None if next_law is None else check_next_law(next_law, array, vocab=circuit.vocab)
    laws, mass = _laws(circuit, array)
    final = [mean_stderr(kl_between(laws[-1], law)) for law in laws]
    true = [(np.nan, np.nan)] * len(laws)
    uniform = np.nan
    if truth is not None:
        true = [mean_stderr(kl_divergence(truth, law).values) for law in laws]
        even = torch.full_like(truth, 1 / circuit.vocab)
        uniform = float(kl_divergence(truth, even).values.mean())
    from_final = np.array([one[0] for one in final])
    below = np.flatnonzero(from_final < from_final[0] / 2)
    return LawByLayer(
        from_final=from_final,
        from_final_stderr=np.array([one[1] for one in final]),
        kl=np.array([one[0] for one in true]),
        stderr=np.array([one[1] for one in true]),
        uniform=uniform,
        mass=mass,
        formed=int(below[0]) - 1 if len(below) else None,
        n=array.shape[0],
        provenance=provenance(checkpoint=circuit.checkpoint),
    )


def _laws(circuit: Circuit, tokens: torch.Tensor) -> tuple[list[torch.Tensor], Float[np.ndarray, " depth"]]:
    """The law after each layer, [depth][batch, vocab], and the mean mass of the symbols."""
    model, depth, laws, masses = circuit.model, len(circuit.model.blocks), [], []
    names = ["blocks.0.hook_resid_pre", *(f"blocks.{layer}.hook_resid_post" for layer in range(depth))]
    norm = getattr(model, "ln_final", torch.nn.Identity())  # a model without norms has none
    with torch.no_grad():
        for stream in last_activations(circuit, tokens, *names):
            logits = model.unembed(norm(stream[:, None].to(circuit.device)))[:, 0]
            ours = circuit.of_symbols(logits)
            laws.append(law_of(ours))
            masses.append(float(symbol_mass(ours, logits).mean()))
    return laws, np.array(masses)
