"""The description of one training run: a record of everything that determines its weights."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from interp.arguments import count, finite_number, fits_memory, seed_number
from interp.outside import MAX_TEXT, shown
from models.families.kappa import KappaRule
from models.families.registry import Family, find_family
from models.training.protocols import PROTOCOLS, Protocol

if TYPE_CHECKING:
    from interp.chains.priors import Prior

OLD_BOS_VECTOR = "constant"  # of runs whose description does not name one
SAVE_SECONDS = 60.0  # between two saves of a run; a kill loses at most so much work


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One run. Two runs with equal specs end in the same weights, bit for bit, on one kind of machine.

    prior       the prior's description (`Prior.to_dict`), which also fixes order and vocab
    init        the start, e.g. random(0.3), copy(5), hard, or hard,readout=random(0.3) (`models.training.starts`)
    snapshots   whether intermediate checkpoints are kept at log-spaced steps
    readout     probability (votes, normalised) or logit (softmax)
    freeze      the parts that do not train, e.g. copies,readout (`models.families.registry`)
    kappa       free, tied(ALPHA) or fixed(DELTA): see `models.families.kappa`; only the construction can tie it
    symmetrise  whether each batch stands for all relabelings of its symbols (theorem:invariance's population loss)
    bos_vector  the fixed vector of BOS in the stream: see `models.families.registry`

    Factors that contradict each other are refused with one line.
    """

    family: str
    prior: dict[str, Any]
    length: int
    bos: bool
    seed: int
    protocol: str
    steps: int
    learning_rate: float
    batch: int
    target: str
    init: str
    snapshots: bool
    readout: str
    freeze: str = ""
    kappa: str = "free"
    symmetrise: bool = False
    bos_vector: str = ""

    def __post_init__(self) -> None:
        _check_types(self)
        find_family(self.family)
        if self.protocol not in PROTOCOLS:
            raise ValueError(f"protocol must be one of {', '.join(PROTOCOLS)}, got {self.protocol!r}")
        if self.target not in ("token", "law"):
            raise ValueError(f"target must be token or law, got {self.target!r}")
        prior = self.build_prior()  # refuses a bad description
        prior.require_symmetry("Training draws its chains from an urn with a uniform base law")
        prior.concentrations()  # refuses a prior that has no urn
        if self.length <= self.prior["order"]:
            raise ValueError(f"length must exceed the order {self.prior['order']}, got {self.length}")
        positions = self.length + self.bos
        width = positions if not find_family(self.family).blocks else self.prior["vocab"] * (self.prior["order"] + 1)
        fits_memory(8 * self.batch * positions * width, what=f"a batch of {self.batch} sequences of {self.length}")
        fits_memory(8 * positions**2, what=f"a model of length {self.length}")
        _check_factors(self)

    @property
    def frozen(self) -> tuple[str, ...]:
        """The parts that do not train."""
        return tuple(part for part in self.freeze.split(",") if part)

    @property
    def schedule(self) -> Protocol:
        """The protocol with this run's numbers in it."""
        base = PROTOCOLS[self.protocol]
        return Protocol(
            name=base.name,
            steps=self.steps,
            learning_rate=self.learning_rate,
            batch=self.batch,
            target="token" if self.target == "token" else "law",
            hold=base.hold,
            warmup=base.warmup,
        )

    def build_prior(self) -> Prior:
        from interp.chains.descriptions import prior_from_dict

        return prior_from_dict(self.prior)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> RunSpec:
        """The strict inverse of `to_dict`. A factor that older runs do not name has its value from that time."""
        if not isinstance(values, dict):
            raise ValueError(f"a run's description must be an object, got {shown(values)}")
        known = {field.name for field in fields(cls)}
        old = {"freeze": "", "kappa": "free", "symmetrise": False}
        if isinstance(values.get("family"), str):
            family = find_family(values["family"])
            old["readout"] = family.readouts[0]
            old["bos_vector"] = OLD_BOS_VECTOR if OLD_BOS_VECTOR in family.bos_vectors else family.bos_vectors[0]
        values = {**old, **values}
        if set(values) != known:
            odd = sorted(set(values) ^ known)
            raise ValueError(f"a run's description has an unknown or missing key: {', '.join(odd)}")
        return cls(**values)


def _check_types(spec: RunSpec) -> None:
    """Each field of its own type, and numbers within their limits; a whole number may stand for a rate."""
    for name in ("family", "protocol", "target", "init", "readout", "freeze", "kappa", "bos_vector"):
        if not isinstance(value := getattr(spec, name), str) or len(value) > MAX_TEXT:
            raise ValueError(f"{name} must be a text of at most {MAX_TEXT} characters, got {shown(value)}")
    for name in ("bos", "snapshots", "symmetrise"):
        if not isinstance(getattr(spec, name), bool):
            raise ValueError(f"{name} must be true or false, got {shown(getattr(spec, name))}")
    for name in ("steps", "batch", "length"):
        object.__setattr__(spec, name, count(getattr(spec, name), name=name))
    object.__setattr__(spec, "seed", seed_number(spec.seed))
    object.__setattr__(spec, "learning_rate", finite_number(spec.learning_rate, name="learning_rate", above=0))


def _check_factors(spec: RunSpec) -> None:
    """Refuse factors that the family does not have or that contradict each other; sort the frozen parts."""
    family = find_family(spec.family)
    if spec.readout not in family.readouts:
        raise ValueError(f"the {family.name} family reads out by {' or '.join(family.readouts)}, got {spec.readout!r}")
    _check_frozen(spec, family)
    _check_bos_vector(spec, family)
    starts = family.starts.parse(spec.init)
    rule = KappaRule.parse(spec.kappa)
    if not rule.free and not family.tied_kappa:
        raise ValueError(f"kappa {rule}: in the {family.name} family kappa is one of many weights, and is not tied")
    if not rule.free and not spec.bos:
        raise ValueError(f"kappa {rule} needs a BOS token: without one there is no kappa")
    if spec.symmetrise and not family.symmetrised:
        raise ValueError(f"the {family.name} family cannot train on symmetrised batches")
    if reason := family.contradiction(spec, starts):
        raise ValueError(reason)


def _check_frozen(spec: RunSpec, family: Family) -> None:
    asked = [part.strip() for part in spec.freeze.split(",") if part.strip()]
    for part in asked:
        if not family.freezable:
            raise ValueError(f"the {family.name} family has no parts to freeze, got {part!r}")
        if part not in family.freezable:
            raise ValueError(f"freeze must list parts among {', '.join(family.freezable)}, got {part!r}")
    object.__setattr__(spec, "freeze", ",".join(part for part in family.freezable if part in asked))


def _check_frozen_start(freeze: Any, family: Family) -> None:
    """Refuse to freeze a part at random weights by default; an explicit `init` is accepted."""
    asked = [part.strip() for part in freeze.split(",")] if isinstance(freeze, str) else []
    starts = family.starts.parse(family.init)
    for part in (part for part in family.freezable if part in asked and part in starts):
        if starts[part].word == "random":
            start = "hard" if "hard" in family.starts.parts[part] else f"{family.init},{part}=zero"
            raise ValueError(
                f"freeze {part}: it would stay at its random start, {family.init}; add --init {shown(start)}, or "
                f"--init {shown(family.init)} if that is meant"
            )


def _check_bos_vector(spec: RunSpec, family: Family) -> None:
    object.__setattr__(spec, "bos_vector", spec.bos_vector or family.bos_vectors[0])
    if spec.bos_vector not in family.bos_vectors:
        known = " or ".join(family.bos_vectors)
        raise ValueError(f"bos_vector of the {family.name} family must be {known}, got {spec.bos_vector!r}")
    if spec.bos_vector != family.bos_vectors[0] and not spec.bos:
        raise ValueError(f"bos_vector {spec.bos_vector} needs a BOS token")


def make_spec(
    *,
    family: str,
    prior: dict[str, Any] | str,
    length: int,
    bos: bool,
    order: int = 2,
    vocab: int = 5,
    seed: int = 0,
    protocol: str = "annealed",
    steps: int | None = None,
    learning_rate: float | None = None,
    batch: int | None = None,
    target: str | None = None,
    init: str | None = None,
    snapshots: bool = False,
    readout: str | None = None,
    freeze: str = "",
    kappa: str = "free",
    symmetrise: bool = False,
    bos_vector: str = "",
) -> RunSpec:
    """A spec; numbers that are not given come from its protocol and family.

    `prior` is a description, or a text such as hierarchical:5,5, which needs `order` and `vocab`.
    """
    for name, text in (("protocol", protocol), ("family", family)):
        if not isinstance(text, str):
            raise ValueError(f"{name} must be a text, got {shown(text)}")
    if protocol not in PROTOCOLS:
        raise ValueError(f"protocol must be one of {', '.join(PROTOCOLS)}, got {shown(protocol)}")
    base = PROTOCOLS[protocol]
    kind = find_family(family)
    if init is None:
        _check_frozen_start(freeze, kind)
    return RunSpec(
        family=family,
        prior=describe_prior(prior, order=order, vocab=vocab),
        length=length,
        bos=bos,
        seed=seed,
        protocol=protocol,
        steps=base.steps if steps is None else steps,
        learning_rate=base.learning_rate if learning_rate is None else learning_rate,
        batch=base.batch if batch is None else batch,
        target=base.target if target is None else target,
        init=kind.init if init is None else init,
        snapshots=snapshots,
        readout=kind.readouts[0] if readout is None else readout,
        freeze=freeze,
        kappa=kappa,
        symmetrise=symmetrise,
        bos_vector=bos_vector,
    )


def describe_prior(prior: dict[str, Any] | str, *, order: int, vocab: int) -> dict[str, Any]:
    """The description of a prior that is given as such or as text."""
    if not isinstance(prior, str):
        return prior
    from interp.chains.descriptions import parse_prior

    return parse_prior(prior, order=order, vocab=vocab).to_dict()
