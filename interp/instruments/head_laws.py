"""The additive law of every match head of a circuit, by maximum likelihood of its attention, in bounded memory.

    laws = attention_laws(circuit, tokens, queries=torch.arange(40, 60))   # positions of the model
    laws.beta, laws.kappa, laws.doubts

These are the numbers of a scan without its verdict: the parameters under which the attention is most likely, also where
the law does not describe it. A test of the law, such as a replacement, uses them and reports which are in doubt
(`doubts`). To read beta use `scan_heads` or `fit_scores`, which give NaN in that case.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int64

from interp.circuit.circuit import Circuit, head_name
from interp.circuit.runner import Hooks
from interp.fitting.scan_statistics import ScanStatistics
from interp.instruments.scan_heads import LayerFitter
from interp.notation import mask_bits


@dataclass(frozen=True, kw_only=True)
class AttentionLaws:
    """The law of each match head, in the circuit's order.

    beta      [match, lag]
    kappa     [match]; None without BOS
    doubts    for each head whose law cannot be trusted: its name and the reason, as in a scan
    """

    beta: Float[np.ndarray, "match lag"]
    kappa: Float[np.ndarray, " match"] | None
    doubts: tuple[str, ...]

    @property
    def by_mask(self) -> Float[np.ndarray, "match mask"]:
        """|beta|_M of every mask."""
        return np.asarray(self.beta @ mask_bits(self.beta.shape[1]).T)


def attention_laws(
    circuit: Circuit,
    tokens: Int64[torch.Tensor, "batch length"],
    *,
    queries: Int64[torch.Tensor, " query"],
    edits: Hooks | None = None,
) -> AttentionLaws:
    """The laws at these queries (positions of the model, BOS counted), under hooks that edit the model."""
    layers = sorted({layer for layer, _ in circuit.match_heads})
    statistics = ScanStatistics(circuit, tokens, queries, lags=1, layers=layers)
    statistics.gather(edits)
    fitter = LayerFitter(statistics)
    found = {layer: fitter.attention(layer) for layer in layers}
    beta = np.stack([found[layer]["beta"][head] for layer, head in circuit.match_heads])
    kappa = np.array([found[layer]["kappa"][head] for layer, head in circuit.match_heads])
    doubts = [(head_name(at), fitter.distrust(found[at[0]], at[1])) for at in circuit.match_heads]
    return AttentionLaws(
        beta=beta,
        kappa=kappa if circuit.has_sink else None,
        doubts=tuple(f"{name}: {doubt}" for name, doubt in doubts if doubt),
    )
