"""The disentangled family (sec:models): one-hot blocks, every W_A, every relative bias and W_O free.

weights     config, starts, and the way to and from a HookedTransformer
compiled    loss, gradient, predictions and training of a flat parameter vector
trainer     a run of it
kernels     the compiled code behind them
"""

from models.families.disentangled.weights import (
    config,
    from_hooked,
    initial,
    predict_hooked,
    read_weights,
    shape_of,
    to_hooked,
    training_mask,
)

__all__ = [
    "config",
    "from_hooked",
    "initial",
    "predict_hooked",
    "read_weights",
    "shape_of",
    "to_hooked",
    "training_mask",
]
