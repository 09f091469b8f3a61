"""The description of one training run: a record of everything that determines its weights."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from interp.arguments import count, finite_number, fits_memory, seed_number
from interp.outside import MAX_TEXT, shown
from models.families.kappa import KappaRule
from models.families.registry import Family, find_family
from models.training.protocols import Protocol, find_protocol

if TYPE_CHECKING:
    from interp.chains.priors import Prior

OLD_BOS_VECTOR = "constant"  # of runs whose description does not name one
SAVE_SECONDS = 60.0  # between two saves of a run; a kill loses at most so much work


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One run. Two runs with equal specs end in the same weights, bit for bit, on one kind of machine.

    prior       the prior's description (`Prior.to_dict`), which also fixes order and vocab; or text, order and vocab
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
        find_protocol(self.protocol)
        if self.target not in ("token", "law"):
            raise ValueError(f"target must be token or law, got {self.target!r}")
        _check_factors(self)
        if isinstance(self.prior, dict) and "text" in self.prior:  # last, since it imports torch, which takes a second
            from interp.chains.descriptions import parse_prior

            object.__setattr__(self, "prior", parse_prior(**self.prior).to_dict())
        prior = self.build_prior()  # refuses a bad description
        prior.require_symmetry("Training draws its chains from an urn with a uniform base law")
        prior.concentrations()  # refuses a prior that has no urn
        if self.length <= self.prior["order"]:
            raise ValueError(f"length must exceed the order {self.prior['order']}, got {self.length}")
        positions = self.length + self.bos
        width = positions if not find_family(self.family).blocks else self.prior["vocab"] * (self.prior["order"] + 1)
        fits_memory(8 * self.batch * positions * width, what=f"a batch of {self.batch} sequences of {self.length}")
        fits_memory(8 * positions**2, what=f"a model of length {self.length}")

    @property
    def frozen(self) -> tuple[str, ...]:
        """The parts that do not train."""
        return tuple(part for part in self.freeze.split(",") if part)

    @property
    def schedule(self) -> Protocol:
        """The protocol with this run's numbers in it."""
        return replace(
            find_protocol(self.protocol),
            steps=self.steps,
            learning_rate=self.learning_rate,
            batch=self.batch,
            target="token" if self.target == "token" else "law",
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
    for name, kind in (one for one in RunSpec.__annotations__.items() if one[1] in ("str", "bool")):
        value = getattr(spec, name)
        if kind == "bool" and not isinstance(value, bool):
            raise ValueError(f"{name} must be true or false, got {shown(value)}")
        if kind == "str" and (not isinstance(value, str) or len(value) > MAX_TEXT):
            raise ValueError(f"{name} must be a text of at most {MAX_TEXT} characters, got {shown(value)}")
    for name in ("steps", "batch", "length"):
        object.__setattr__(spec, name, count(getattr(spec, name), name=name))
    object.__setattr__(spec, "seed", seed_number(spec.seed))
    object.__setattr__(spec, "learning_rate", finite_number(spec.learning_rate, name="learning_rate", above=0))


def _check_factors(spec: RunSpec) -> None:
    """Refuse factors that the family does not have or that contradict each other; sort the frozen parts."""
    family = find_family(spec.family)
    asked = [part.strip() for part in spec.freeze.split(",") if part.strip()]
    object.__setattr__(spec, "freeze", ",".join(part for part in family.freezable if part in asked))
    object.__setattr__(spec, "bos_vector", spec.bos_vector or family.bos_vectors[0])
    for name, given, known in (
        ("readout", [spec.readout], family.readouts),
        ("freeze", asked, family.freezable),
        ("bos_vector", [spec.bos_vector], family.bos_vectors),
    ):
        for one in given:
            if one not in known:
                words = " or ".join(known) or "nothing"
                raise ValueError(f"{name} of the {family.name} family must be {words}, got {one!r}")
    if spec.bos_vector != family.bos_vectors[0] and not spec.bos:
        raise ValueError(f"bos_vector {spec.bos_vector} needs a BOS token")
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


def make_spec(*, prior: dict[str, Any] | str = "", order: int = 2, vocab: int = 5, **settings: Any) -> RunSpec:
    """A spec; settings that are not given, or None, come from the protocol and the family.

    `prior` is a description, or a text such as hierarchical:5,5, which needs `order` and `vocab`. `family`, `length`
    and `bos` have to be given.
    """
    if unknown := sorted(set(settings) - {field.name for field in fields(RunSpec)}):
        raise TypeError(f"a run has no setting {shown(unknown[0])}")
    given = {"protocol": "annealed", **{name: value for name, value in settings.items() if value is not None}}
    family, protocol = find_family(given.get("family")), find_protocol(given["protocol"])
    if "init" not in given:
        _check_frozen_start(given.get("freeze"), family)
    defaults = {
        "seed": 0,
        "steps": protocol.steps,
        "learning_rate": protocol.learning_rate,
        "batch": protocol.batch,
        "target": protocol.target,
        "init": family.init,
        "snapshots": False,
        "readout": family.readouts[0],
    }
    described = {"text": prior, "order": order, "vocab": vocab} if isinstance(prior, str) else prior
    return RunSpec(**{**defaults, **given, "prior": described})


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
