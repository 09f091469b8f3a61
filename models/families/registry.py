"""The families of models, each described once: its starts, its colours in figures, and what its weights show.

    family = find_family("disentangled")
    family.label, family.colour, family.blocks

All other code reads these descriptions; none compares names of families. The code that trains and runs a family is
named as text, and imported when it is needed: whoever only needs a colour does not load torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from interp.outside import shown
from models.families.kappa import KappaRule
from models.training.starts import HARD, SOFT, Start, StartRules

if TYPE_CHECKING:
    from torch import Tensor

    from interp.hooked.transformer import InductionTransformer
    from models.training.spec import RunSpec
    from models.training.trainers import Trainer


@dataclass(frozen=True, kw_only=True)
class Family:
    """One family of models.

    name, summary   as `python -m models` lists them
    label, short    its name in legends, and in narrow places
    trained_label   its name among curves of estimators, where it matters that it was trained
    colour, marker  how figures draw it
    analytic        its weights are written from beta and kappa, so that it has no start
    blocks          its streams are made of |V|-wide blocks, so that beta and the votes can be read from the weights
    readouts        the readouts it can have, its own first
    bos_vectors     what can stand for BOS in the stream, its own first:
                    block      1/|V| in the first |V| coordinates, zero elsewhere: the construction's neutral vector
                    constant   1/|V| in every coordinate, which LayerNorm maps to zero
                    mean       the mean of the token embeddings at the start; for one-hot tokens this is the
                               construction's vector
    starts, init    the starts it supports, and its default start
    freezable       the parts that can be kept from training; a part may be a part of another
    tied_kappa      whether kappa can be tied to beta
    symmetrised     whether it can train on batches averaged over all relabelings
    trainer         makes the trainer of a run, at step 0: a function or class, or where it is, as "module:name"
    predict         (model, tokens) to laws, in the same form: `interp.predict` by the family's own forward
    contradiction   a function: why factors of a run contradict each other, or None
    """

    name: str
    summary: str
    label: str
    short: str
    trained_label: str
    colour: str
    marker: str
    analytic: bool
    blocks: bool
    readouts: tuple[str, ...]
    starts: StartRules
    init: str
    trainer: Callable[[RunSpec], Trainer] | str
    predict: Callable[[InductionTransformer, Tensor], Tensor] | str
    freezable: tuple[str, ...] = ()
    tied_kappa: bool = False
    symmetrised: bool = False
    bos_vectors: tuple[str, ...] = ("block",)
    contradiction: Callable[[RunSpec, Mapping[str, Start]], str | None] = lambda spec, starts: None


FAMILIES: dict[str, Family] = {}


def register_family(family: Family) -> Family:
    """Add a family."""
    if FAMILIES.get(family.name, family) != family:
        raise ValueError(f"there is a family {family.name} already")
    FAMILIES[family.name] = family
    return family


def drawing_order() -> list[str]:
    """The names of all families as legends list them: trained ones first."""
    return sorted(FAMILIES, key=lambda name: FAMILIES[name].analytic)


def find_family(name: Any) -> Family:
    """The family of that name."""
    if not isinstance(name, str) or name not in FAMILIES:
        raise ValueError(f"family must be one of {', '.join(FAMILIES)}, got {shown(name)}")
    return FAMILIES[name]


def start_name(family: str, *, init: str, kappa: str = "free") -> str:
    """The start of a run in a word: its folder in the zoo, and `start` in tables.

    hard              copy heads on their lags alone, and too saturated to move
    copy8             copy(8), and other biases between: copy heads that start sharp, and can drift
    soft              copy heads that training has to sharpen: every other start
    free, kappa_tied, kappa_fixed
                      the rule of kappa in a family of analytic weights, which has no start
    """
    kind = find_family(family)
    if kind.analytic:
        rule = KappaRule.parse(kappa)
        return "free" if rule.free else f"kappa_{rule.word}"
    copies = kind.starts.parse(init).get("copies", Start("zero"))
    strength = (copies.size or 0.0) if copies.word == "copy" else 0.0
    if copies.word == "hard" or strength >= HARD:
        return "hard"
    return "soft" if strength <= SOFT else f"copy{strength:g}"


PAPER = ("construction", "disentangled", "standard")  # those of the paper, in its order


# --- The construction: analytic weights -------------------------------------------------------------------------


CONSTRUCTION = register_family(
    Family(
        name="construction",
        summary="analytic weights; only beta and kappa are free",
        label="construction",
        short="constr.",
        trained_label=r"trained construction ($\beta_1, \beta_2, \kappa$)",
        colour="#003566",
        marker="D",
        analytic=True,
        blocks=True,
        readouts=("probability",),
        starts=StartRules(whole={"beta(VALUE)": "beta=beta(VALUE)"}, parts={"beta": ("beta(VALUE)",)}),
        init="beta(1)",
        trainer="models.families.construction:ConstructionTrainer",
        predict="models.families.disentangled.training:predict_hooked",
        tied_kappa=True,
    )
)


# --- The disentangled transformer: one-hot blocks, trained ------------------------------------------------------

# Starts that no relabeling of the symbols changes (theorem:invariance); relative biases are free.
SYMMETRIC = ("zero", "hard", "symmetric", "bias", "construction")
# What the readout can read beside the votes: the query's own stream, past the match head, and the copied tokens that
# the match head brings from the keys. In the construction's readout this part is zero, so that freezing it removes it.
READ_BESIDE_VOTES = ("direct", "carried")
# The copy heads' relative bias at one distance: the largest, at which the last query sees BOS and no other query sees
# anything, and the one before it, at which the last query sees the first token.
AT_ONE_DISTANCE = ("copies_bos", "copies_first")


def _disentangled_contradiction(spec: RunSpec, starts: Mapping[str, Start]) -> str | None:
    frozen = spec.frozen
    if starts["readout"].word == "zero" and "readout" in frozen:
        return "a readout frozen at zero predicts the uniform law whatever it reads"
    cut = [part for part in READ_BESIDE_VOTES if part in frozen]
    if cut and starts["readout"].word not in ("construction", "zero"):
        return f"freezing {', '.join(cut)} cuts it only where the readout starts at construction or zero"
    if starts["readout"].word == "zero" and spec.readout == "probability":
        return "a readout of zero has no gradient under the probability readout: use the logit readout"
    if spec.symmetrise:
        for part in ("copies", "match", "readout"):
            if starts[part].word not in SYMMETRIC:
                return f"symmetrised batches need a start that no relabeling changes, and {part}={starts[part]} is none"
    return None


DISENTANGLED = register_family(
    Family(
        name="disentangled",
        summary="one-hot blocks; every W_A, relative bias and W_O is free",
        label="disentangled, trained",
        short="disent.",
        trained_label="trained, disentangled",
        colour="#52796f",
        marker="^",
        analytic=False,
        blocks=True,
        readouts=("probability", "logit"),
        starts=StartRules(
            whole={
                "random(STD)": "copies=random(STD),match=random(STD),match_bias=random(STD),readout=construction",
                "copy(STRENGTH)": "copies=copy(STRENGTH),match=random(0.02),match_bias=random(0.02),"
                "readout=construction",
                "hard": "copies=hard,match=zero,match_bias=zero,readout=construction",
                "symmetric(STD)": "copies=symmetric(STD),match=symmetric(STD),match_bias=random(STD),"
                "readout=construction",
                "bias(STD)": "copies=bias(STD),match=zero,match_bias=random(STD),readout=zero",
                "zero": "copies=zero,match=zero,match_bias=zero,readout=zero",
            },
            parts={
                "copies": ("random(STD)", "copy(STRENGTH)", "hard", "symmetric(STD)", "bias(STD)", "zero"),
                "match": ("random(STD)", "symmetric(STD)", "zero"),
                "match_bias": ("random(STD)", "zero"),
                "readout": ("construction", "random(STD)", "symmetric(STD)", "zero"),
            },
        ),
        init="random(0.3)",
        trainer="models.families.disentangled.training:DisentangledTrainer",
        predict="models.families.disentangled.training:predict_hooked",
        freezable=("copies", "match_bias", "readout", *READ_BESIDE_VOTES, *AT_ONE_DISTANCE),
        symmetrised=True,
        contradiction=_disentangled_contradiction,
    )
)


# --- The standard transformer ------------------------------------------------------------------------------------


STANDARD = register_family(
    Family(
        name="standard",
        summary="d_model 64, LayerNorm, MLP, learned embeddings and relative biases",
        label="standard, trained",
        short="standard",
        trained_label="trained, standard",
        colour="#c1121f",
        marker="s",
        analytic=False,
        blocks=False,
        readouts=("logit",),
        bos_vectors=("constant", "block", "mean"),
        starts=StartRules(
            whole={
                "random(STD)": "matrices=random(STD),copies=zero",
                "copy(STRENGTH)": "matrices=random(0),copies=copy(STRENGTH)",
            },
            parts={"matrices": ("random(STD)",), "copies": ("zero", "copy(STRENGTH)")},
        ),
        init="random(0)",
        trainer="models.families.standard.trainer:StandardTrainer",
        predict="models.families.standard.loss:predict_hooked",
    )
)
