"""What one training run is: a plain record that names everything that decides its weights."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from models.protocols import PROTOCOLS, Protocol

if TYPE_CHECKING:
    from interp.chains.priors import Prior

FAMILIES = {
    "construction": "analytic weights; only beta and kappa are free",
    "disentangled": "one-hot blocks; every W_A, relative bias and W_O is free",
    "standard": "d_model 64, LayerNorm, MLP, learned embeddings and relative biases",
}
SAVE_SECONDS = 60.0  # between two saves of a run: what a kill can cost
DEFAULT_INIT = {"construction": "beta(1)", "disentangled": "random(0.3)", "standard": "random(0)"}


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One run. Two runs with equal specs end in the same weights, bit for bit, on one kind of machine.

    prior      the prior's description (`Prior.to_dict`), which also fixes order and vocab
    init       random(STD), copy(STRENGTH); the construction always starts at beta(1)
    snapshots  whether intermediate checkpoints are kept at log-spaced steps
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

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise ValueError(f"family must be one of {', '.join(FAMILIES)}, got {self.family!r}")
        if self.protocol not in PROTOCOLS:
            raise ValueError(f"protocol must be one of {', '.join(PROTOCOLS)}, got {self.protocol!r}")
        if self.target not in ("token", "law"):
            raise ValueError(f"target must be token or law, got {self.target!r}")
        for name in ("steps", "batch"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 0 < self.learning_rate < float("inf"):
            raise ValueError(f"learning_rate must be a finite number > 0, got {self.learning_rate}")
        if self.length <= self.prior["order"]:
            raise ValueError(f"length must exceed the order {self.prior['order']}, got {self.length}")
        if self.seed < 0:
            raise ValueError(f"seed must be >= 0, got {self.seed}")

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
        from interp.chains.priors import prior_from_dict

        return prior_from_dict(self.prior)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> RunSpec:
        """The strict inverse of `to_dict`."""
        known = {field.name for field in fields(cls)}
        if set(values) != known:
            odd = sorted(set(values) ^ known)
            raise ValueError(f"a run's description has an unknown or missing key: {', '.join(odd)}")
        return cls(**values)


def make_spec(
    *,
    family: str,
    prior: dict[str, Any],
    length: int,
    bos: bool,
    seed: int = 0,
    protocol: str = "annealed",
    steps: int | None = None,
    learning_rate: float | None = None,
    batch: int | None = None,
    target: str | None = None,
    init: str | None = None,
    snapshots: bool = False,
) -> RunSpec:
    """A spec whose unnamed numbers come from its protocol and family."""
    if protocol not in PROTOCOLS:
        raise ValueError(f"protocol must be one of {', '.join(PROTOCOLS)}, got {protocol!r}")
    base = PROTOCOLS[protocol]
    return RunSpec(
        family=family,
        prior=prior,
        length=length,
        bos=bos,
        seed=seed,
        protocol=protocol,
        steps=base.steps if steps is None else steps,
        learning_rate=base.learning_rate if learning_rate is None else learning_rate,
        batch=base.batch if batch is None else batch,
        target=base.target if target is None else target,
        init=DEFAULT_INIT.get(family, "") if init is None else init,
        snapshots=snapshots,
    )
