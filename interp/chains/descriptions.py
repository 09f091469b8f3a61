"""Priors as texts, which every command takes, and as dicts, which checkpoints keep.

    parse_prior("hierarchical:5,5", order=2, vocab=5)
    prior_from_dict({"kind": "independent", "order": 2, "vocab": 5, "alpha": 1.0})

`prior.text` and `prior.to_dict()` give the text and the dict of a prior.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeAlias

from interp.arguments import Whole, shown
from interp.chains import repeats as _repeats  # noqa: F401  registers its prior
from interp.chains.priors import PRIORS, Prior
from interp.notation import check_order, check_vocab
from interp.outside import check_keys

if TYPE_CHECKING:
    Description: TypeAlias = Mapping[str, object]
else:
    Description = Any  # what a file says is checked here, and refused in one line


def prior_from_dict(values: Description) -> Prior:
    """The prior that `to_dict` described; unknown or missing keys are refused.

    Parameters
    ----------
    values
        The kind and every field.

    Returns
    -------
    Prior
        Of the class that is registered for the kind.

    Examples
    --------
    >>> prior_from_dict({"kind": "independent", "order": 1, "vocab": 2, "alpha": 1.0})
    IndependentDirichlet(order=1, vocab=2, alpha=1.0)
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"a prior's description must be a dict, got {type(values).__name__}")
    kind = values.get("kind")
    if not isinstance(kind, str) or kind not in PRIORS:
        raise ValueError(f"prior kind must be one of {', '.join(PRIORS)}, got {shown(kind)}")
    place = f"the description of a prior of kind {kind}"
    check_keys(dict(values), ("kind", *(field.name for field in fields(PRIORS[kind]))), place=place)
    given: dict[str, Any] = {name: value for name, value in values.items() if name != "kind"}
    try:
        return PRIORS[kind](**given)
    except TypeError as error:
        raise ValueError(f"{place} is wrong: {error}") from error


def parse_prior(text: str, *, order: Whole, vocab: Whole) -> Prior:
    """The prior that a text names, as every command takes it: KIND, or KIND with numbers behind colons.

    Parameters
    ----------
    text
        KIND or KIND:NUMBERS, such as "hierarchical:5,5".
    order
        k, the number of tokens of a context.
    vocab
        |V|, the number of symbols.

    Returns
    -------
    Prior
        Of the class that is registered for the kind.

    Examples
    --------
    >>> parse_prior("hierarchical:5,5", order=2, vocab=5)
    HierarchicalDirichlet(order=2, vocab=5, eta=(5.0, 5.0), eta0=1.0)
    >>> parse_prior("independent:0.5", order=2, vocab=5).alpha
    0.5
    >>> parse_prior("independent:1,2", order=2, vocab=2).alpha
    (1.0, 2.0)
    """
    forms = " or ".join(prior.form for prior in PRIORS.values())
    if not isinstance(text, str):
        raise ValueError(f"bad prior {shown(text)}: expected a text, {forms}")
    order, vocab = check_order(order), check_vocab(vocab)
    kind, *parts = text.split(":")
    if kind not in PRIORS:
        raise ValueError(f"bad prior {shown(text)}: expected {forms}")
    try:
        numbers = [tuple(float(number) for number in part.split(",")) for part in parts]
    except ValueError:
        raise ValueError(f"bad prior {shown(text)}: expected numbers, as in {PRIORS[kind].form}") from None
    try:
        return PRIORS[kind].from_numbers(numbers, order=order, vocab=vocab)
    except ValueError as error:
        raise ValueError(f"bad prior {shown(text)}: {error} (expected {PRIORS[kind].form})") from None
