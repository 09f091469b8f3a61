"""The shape of a model of this suite: a closed list of fields, each with its type and range. Needs no torch.

    config = InductionConfig(family="disentangled", order=2, vocab=5, length=64, bos=True, readout="probability")

`interp.hooked.transformer` makes the model of it, and every checkpoint holds it in its `config.json`.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from interp.arguments import NumberField, WholeField, count, finite_number, fits_memory, shown, switch, whole_number
from interp.notation import check_order, check_vocab
from interp.outside import check_keys

if TYPE_CHECKING:
    import torch

Readout: TypeAlias = Literal["probability", "logit"]
Dtype: TypeAlias = Literal["float32", "float64"]

ANALYTIC = "construction"
HAS_WIDTHS = {"construction": False, "disentangled": False, "standard": True}


@dataclass(frozen=True, kw_only=True)
class InductionConfig:
    """All that fixes the shape of a model. Saved with every checkpoint; unknown or missing keys are refused.

    family   construction (analytic weights), disentangled (one-hot blocks, trained), standard (embeddings, LayerNorm,
             MLP), or the name of another family that is shaped like one of them: see `one_hot`
    order    k: the number of copy heads, and the context length that is matched
    vocab    |V|, without BOS
    length   T: real tokens; the model sees length + 1 positions where it has BOS
    bos      whether a BOS token (id = vocab) stands before the tokens
    readout  probability: the non-negative part of W_O h plus `floor`, normalised; logit: softmax(W_O h)
    floor    keeps log-probabilities finite under the probability readout
    d_model, d_mlp   widths of the standard family; None where the width follows from order and vocab (`one_hot`)
    dtype    float32 or float64
    """

    family: str
    order: WholeField
    vocab: WholeField
    length: WholeField
    bos: bool
    readout: Readout
    floor: NumberField = 1e-7
    d_model: int | None = None
    d_mlp: int | None = None
    dtype: Dtype = "float32"

    def __post_init__(self) -> None:
        if not isinstance(self.family, str) or not re.fullmatch("[a-z][a-z0-9_]*", self.family):
            raise ValueError(f"family must be a name in small letters, got {shown(self.family)}")
        for name, kind in (("readout", Readout), ("dtype", Dtype)):
            if getattr(self, name) not in get_args(kind):
                raise ValueError(f"{name} must be one of {', '.join(get_args(kind))}, got {shown(getattr(self, name))}")
        # Plain numbers only, whatever kind was given: the config is written as JSON.
        plain = {
            "order": (order := check_order(self.order)),
            "vocab": check_vocab(self.vocab),
            "length": count(self.length, name="length", least=order + 1),
            "bos": switch(self.bos, name="bos"),
            "floor": finite_number(self.floor, name="floor", above=0),
        }
        for name, value in plain.items():
            object.__setattr__(self, name, value)
        widths = (self.d_model, self.d_mlp)
        if HAS_WIDTHS.get(self.family, widths != (None, None)):
            for name, width, least in (("d_model", self.d_model, order), ("d_mlp", self.d_mlp, 1)):
                if width is None:
                    raise ValueError(f"the {self.family} family needs {name}")
                whole_number(width, name=name, least=least)
        elif widths != (None, None):
            raise ValueError(f"d_model and d_mlp belong to the standard family only, not to {self.family}")
        # The causal mask of every layer is n_ctx x n_ctx; the match layer has four matrices of stream by head width.
        fits_memory(4 * self.n_ctx**2, what=f"the causal masks of a model of length {self.length}")
        widest = max(self.match_width, self.vocab, self.d_mlp or 0)
        fits_memory(8 * 4 * self.stream_width * widest, what=f"a model of order {self.order}, |V| {self.vocab}")

    @property
    def one_hot(self) -> bool:
        """Whether the stream is made of |V|-wide one-hot blocks: W_A and the votes can then be read block by block.

        Otherwise the model has learnt embeddings, LayerNorm and an MLP.
        """
        return self.d_model is None

    @property
    def analytic(self) -> bool:
        """Whether beta and kappa were written into the weights, which ties the model to its length."""
        return self.family == ANALYTIC

    @property
    def n_ctx(self) -> int:
        """Positions the model sees: the tokens, and BOS where there is one."""
        return self.length + self.bos

    @property
    def blocks(self) -> int:
        """k + 1: the blocks that the match layer compares."""
        return self.order + 1

    @property
    def stream_width(self) -> int:
        """Width of the residual stream."""
        return self.d_model if self.d_model is not None else 2 * self.blocks * self.vocab

    @property
    def copy_width(self) -> int:
        """d_head of the copy heads."""
        return self.vocab if self.d_model is None else self.d_model // self.order

    @property
    def match_width(self) -> int:
        """d_head of the match head."""
        return self.blocks * self.vocab if self.d_model is None else self.d_model

    @property
    def torch_dtype(self) -> torch.dtype:
        import torch

        return torch.float64 if self.dtype == "float64" else torch.float32

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> InductionConfig:
        """The strict inverse of `to_dict`: every field present, nothing else."""
        check_keys(values, {field.name for field in fields(cls)}, place="the model config")
        return cls(**values)
