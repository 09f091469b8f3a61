"""The annotations of `interp` are checked while the tests run: with shapes and without, arguments, results, fields."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from jaxtyping import TypeCheckError

from interp import arguments, notation
from interp.chains.batch import ChainBatch
from interp.chains.priors import IndependentDirichlet

CHAINS = {
    **{"tokens": torch.zeros(2, 5, dtype=torch.int64), "next_law": torch.ones(2, 2, dtype=torch.float64) / 2},
    **{"kernel": None, "prior": IndependentDirichlet(order=2, vocab=2, alpha=1.0), "seed": 0, "method": "collapsed"},
}
WRONG: dict[str, Callable[[], object]] = {
    "class of an argument": lambda: arguments.whole_number(3, name=4),
    "axes of an argument": lambda: notation.key_kinds(np.zeros((2, 2), np.int64), order=1, bos=True),
    "kind of an array": lambda: notation.kind_masses(np.zeros(2, np.int64), ["full", "full"]),
    "field": lambda: ChainBatch(**{**CHAINS, "seed": "2"}),
    "axes of fields": lambda: ChainBatch(**{**CHAINS, "next_law": torch.ones(3, 2, dtype=torch.float64)}),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_an_annotation_forbids_is_refused(kind: str) -> None:
    with pytest.raises(TypeCheckError):
        WRONG[kind]()


def test_what_annotations_allow_passes() -> None:
    assert notation.key_kinds(np.array([-1, 0]), order=1, bos=False) == ["early", "none"]
    assert ChainBatch(**CHAINS).order == 2
