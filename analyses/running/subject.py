"""What an analysis is given: a `Subject`, which is one checkpoint; and how the checkpoints of a folder are found.

Opening a subject reads `config.json` only. Its model, its held-out chains and what was captured on them are made when
they are first used, so that a bad path fails at once and without torch. They are kept as long as the subject, so that
several instruments share them.
"""

from __future__ import annotations

import contextlib
import hashlib
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import interp as ip
from analyses.running.options import DEFAULT_BATCH, CheckpointOptions
from interp.outside import one_line
from models.running.command_line import BadInput
from models.running.terminal import say

if TYPE_CHECKING:
    from interp.chains.priors import ChainBatch
    from interp.fitting.fits import AttentionFit, MatchFit
    from interp.hooked.checkpoint import CheckpointInfo

DEFAULT_ETA = 5.0  # both levels of the paper's hierarchical task
TASK = ("order", "vocab", "bos", "length")  # options that say what a model from elsewhere is about
STARTS = ("hard", "soft", "copy8", "free", "kappa_fixed", "kappa_tied")  # that of the paper first


class DoesNotApply(ValueError):
    """An analysis does not apply to this checkpoint, which is known only after the model was loaded."""


class Unfinished(ValueError):
    """The checkpoint is of a run that is not finished, and --unfinished was not given."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """One checkpoint under study, with held-out sequences from the prior it was trained on.

    path          the directory, as the user wrote it
    name          what tables call it: the path below the zoo, or the directory's own name
    info          its `config.json`
    batch, seed   of the held-out sequences
    given_prior   what --prior says of them; None for the training record's prior
    """

    path: Path
    name: str
    info: CheckpointInfo
    batch: int = DEFAULT_BATCH
    seed: int = 0
    given_prior: str | None = None
    _made: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)  # captures, and their fits

    @classmethod
    def open(cls, path: str | Path, options: CheckpointOptions | None = None, *, name: str | None = None) -> Subject:
        """Read the checkpoint's description; a `ValueError` names what is wrong with it."""

        info = ip.read_info(path)
        if options is not None:
            for given in TASK:
                if getattr(options, given) is not None:
                    raise ValueError(
                        f"{path}: --{given} is for a model from file.py:function; a checkpoint already defines it"
                    )
        subject = cls(path=Path(path), name=Path(path).resolve().name if name is None else name, info=info)
        if options is None:
            return subject
        if subject.unfinished_at and not options.unfinished:
            raise Unfinished(refusal(subject))
        return subject.asked(options)

    def asked(self, options: CheckpointOptions) -> Self:
        """The same checkpoint on the sequences that the options ask for."""
        return replace(self, batch=options.batch, seed=options.seed, given_prior=options.prior, _made={})

    @property
    def model_config(self) -> dict[str, Any]:
        """family, order, vocab, length, bos and the rest of the model's description."""
        return self.info.model

    @property
    def training(self) -> dict[str, Any]:
        """The training record; empty where there is none."""
        return self.info.training or {}

    @property
    def unfinished_at(self) -> str:
        """How far its run came, where that is not finished; else empty."""
        from interp.hooked.checkpoint import unfinished_at

        return unfinished_at(self.info)

    def summary(self) -> dict[str, Any]:
        """The properties by which figures and readers distinguish checkpoints; None where no training record has them.

        An unfinished run also says how far it came.
        """
        from models.training.protocols import protocol_of

        model, record = self.info.model, self.training
        found = {
            "family": model["family"],
            "prior": self.prior.kind,
            **{name: model[name] for name in ("bos", "length", "order", "vocab")},
            "seed": record.get("seed"),
            "protocol": protocol_of(record),
            "init": record.get("init"),
            "start": self.start,
        }
        return {**found, "unfinished": self.unfinished_at} if self.unfinished_at else found

    @property
    def about(self) -> str:
        """What it is, in one line."""
        model = self.info.model
        words = [
            f"{model['family']}, k = {model['order']}, |V| = {model['vocab']}, T = {model['length']}",
            "the first token as BOS" if model.get("first_as_bos") else "BOS" if model["bos"] else "no BOS",
        ]
        if "protocol" in self.training:
            words.append(f"protocol {self.training['protocol']}")
        if "prior" in vars(self):
            words.append(f"on {self.prior.to_dict()['kind']} chains")
        if self.unfinished_at:
            words.append(f"not finished: {self.unfinished_at}")
        return ", ".join(words)

    @property
    def start(self) -> str | None:
        """How its training started: see `start_of`."""
        return start_of(self.info.model, self.info.training)

    @cached_property
    def digest(self) -> str:
        """A digest of its description and weights."""
        from interp.hooked.checkpoint import CONFIG_FILE, TENSOR_FILE

        content = (self.path / CONFIG_FILE).read_bytes() + (self.path / TENSOR_FILE).read_bytes()
        self._check_unchanged()
        return hashlib.sha256(content).hexdigest()

    @cached_property
    def model(self) -> Any:
        """The model, or the circuit of a model from elsewhere; loaded on first use."""

        with warnings.catch_warnings():  # whoever opened it knows: see `Unfinished`
            warnings.filterwarnings("ignore", message=".* of a run that is not finished")
            found = ip.load(self.path)
        self._check_unchanged()
        return found

    def _check_unchanged(self) -> None:
        """Refuse a checkpoint that was replaced since its description was read: its numbers would be mixed."""
        from interp.hooked.checkpoint import CheckpointError

        if ip.read_info(self.path) != self.info:
            raise CheckpointError(f"{self.path}: was replaced while it was analysed; run the analysis again")

    @property
    def scanned(self) -> Any:
        """The model, for a scan, which needs no head to be known."""
        return self.model

    @cached_property
    def prior(self) -> ip.Prior:
        """The prior that was given, else that of the training record, else the paper's hierarchical one."""

        order, vocab = self.info.model["order"], self.info.model["vocab"]
        if self.given_prior is not None:
            prior = ip.parse_prior(self.given_prior, order=order, vocab=vocab)
        elif self.training.get("prior") is not None:
            prior = self.info.prior
        else:
            prior = ip.parse_prior("hierarchical", order=order, vocab=vocab)
        if (prior.order, prior.vocab) != (order, vocab):
            raise ValueError(
                f"{self.path}: the model has order {order} and vocabulary {vocab}, "
                f"its data order {prior.order} and vocabulary {prior.vocab}"
            )
        return prior

    @cached_property
    def chains(self) -> ChainBatch:
        """Held-out sequences at the model's length, with every true law known."""
        return self.prior.sample(batch=self.batch, length=self.info.model["length"], seed=self.seed, method="explicit")

    def capture(self, *, query: Literal["last", "all", "trained"] = "last", copies: bool = False) -> ip.Capture:
        """`interp.capture` of the model on `chains`, made once."""
        if (query, copies) not in self._made:
            self._made[query, copies] = ip.capture(self.model, self.chains.tokens, query=query, copies=copies)
        found: ip.Capture = self._made[query, copies]
        return found

    @property
    def is_foreign(self) -> bool:
        """Whether the model comes from elsewhere."""
        return bool(self.info.model["family"] == "foreign")

    def fit(
        self, cap: ip.Capture, *, source: Literal["scores", "pattern"] = "scores", position: bool = True
    ) -> MatchFit:
        """`interp.fit_scores` of a capture, made once."""
        key = (id(cap), source, position)  # the capture is kept, so that its id is not reused
        if key not in self._made:
            self._made[key] = (cap, ip.fit_scores(cap, source=source, position=position))
        found: MatchFit = self._made[key][1]
        return found

    def law(self, cap: ip.Capture) -> MatchFit | AttentionFit:
        """The additive law of the capture's match heads, from their scores.

        The attention of a model from outside this suite may follow a law where its scores do not. Then the law is that
        of the attention, and its message says so.
        """
        scored = self.fit(cap)
        if scored.success or not self.is_foreign:
            return scored
        seen = ip.fit_scores(cap, source="attention", position=False)
        if not seen.success:
            return scored
        return replace(seen, message=f"the law is that of the attention; {seen.message}")

    def trained_on(self, prior: ip.Prior, *, length: int) -> bool:
        """Whether it was trained on this prior at this length."""
        return self.training.get("prior") == prior.to_dict() and self.info.model["length"] == length


Opened = dict[tuple[Any, ...], Subject]


def open_subject(text: str, options: CheckpointOptions, opened: Opened) -> Subject:
    """What a CKPT argument names, on the sequences that the options ask for; opened once."""
    from analyses.running import foreign

    place = (text, options.batch, options.seed, options.prior, *(getattr(options, name) for name in TASK))
    if place not in opened:
        opened[place] = foreign.opener(text, Subject.open)(text, options)
    return opened[place]


ZOOS = ("zoo", "runs")  # options of a study that name a directory of checkpoints


def checkpoints_at(paths: Sequence[str]) -> list[str]:
    """What arguments stand for: a folder for the finished checkpoints below it, anything else for itself.

    Of several arguments, as a shell makes them of DIR/*, those that hold no checkpoint are named and left out.
    """
    from interp.hooked.checkpoint import CONFIG_FILE
    from models.running.zoo import find_checkpoints, unfinished_runs

    found: list[str] = []
    for path in paths:
        place, why = Path(path), "no checkpoint"
        here = [path] if len(paths) == 1 or not place.is_file() or place.suffix == ".gguf" else []
        if place.is_dir() and not (place / CONFIG_FILE).exists():
            below = find_checkpoints(place)
            unfinished = unfinished_runs(below)
            here = [str(one) for one in below if one not in unfinished]
            why = f"none of the {len(below)} checkpoints below it is finished" if below else "no checkpoint below it"
        if not here and len(paths) == 1:
            raise BadInput(f"{path}: {why}")
        if not here:
            say(f"note: {one_line(path)} is left out: {why}")
        found += here
    if not found:
        raise BadInput(f"no finished checkpoint in {', '.join(paths)}")
    return list(dict.fromkeys(found))


def find_subjects(zoo: Path | None, *, unfinished: bool = False) -> list[Subject]:
    """The checkpoints below a directory that say which prior they were trained on; none if it is absent.

    unfinished   whether those of unfinished and diverged runs are among them
    """
    return [one for one in _trained(zoo) if unfinished or not one.unfinished_at]


def left_out(folders: Iterable[Path | None]) -> dict[str, str]:
    """The checkpoints below these directories that only `unfinished` would read, each with how far its run came."""
    return {str(one.path): refusal(one) for folder in folders for one in _trained(folder) if one.unfinished_at}


def _trained(zoo: Path | None) -> list[Subject]:
    from models.running.zoo import find_checkpoints

    if zoo is None or not zoo.is_dir():
        return []
    try:
        found = [Subject.open(path, name=str(path.relative_to(zoo))) for path in find_checkpoints(zoo)]
    except (ValueError, OSError) as error:
        raise BadInput(one_line(error)) from error
    return [one for one in found if one.training.get("prior")]


def refusal(subject: Subject) -> str:
    """Why a checkpoint of an unfinished run is not read, and how it would be."""
    return f"{subject.path}: {subject.unfinished_at}; --unfinished to read it all the same"


def start_of(model: dict[str, Any], training: dict[str, Any] | None) -> str | None:
    """The start of a run in a word (`models.families.registry.start_name`); None where no record tells it."""
    from models.families.registry import start_name

    record = training or {}
    try:
        return start_name(model["family"], init=record["init"], kappa=record.get("kappa", "free"))
    except (KeyError, ValueError, TypeError, AttributeError):  # the record may be of another program
        return None


def place_of_start(start: str | None) -> int:
    """How far a start stands from the paper's: its place in STARTS; what is not known comes last."""
    return STARTS.index(start) if start in STARTS else len(STARTS)


def prior_text(values: dict[str, Any]) -> str:
    """The shortest text of a prior that `to_dict` described, as `parse_prior` reads it; without torch if it can.

    >>> prior_text({"kind": "hierarchical", "order": 2, "vocab": 5, "eta": [5.0, 5.0], "eta0": 1.0})
    'hierarchical:5'
    """

    def listed(numbers: Any) -> str:
        return ",".join(f"{value:g}" for value in (numbers if isinstance(numbers, (list, tuple)) else [numbers]))

    with contextlib.suppress(KeyError, TypeError, ValueError):  # the record comes from a file: below it is refused
        if values["kind"] == "independent":
            return f"independent:{listed(values['alpha'])}"
        if values["kind"] == "hierarchical":
            eta = values["eta"] if len(set(values["eta"])) > 1 else values["eta"][:1]
            root = "" if values["eta0"] == 1 else f":{listed(values['eta0'])}"
            return f"hierarchical:{listed(eta)}{root}"
    return ip.prior_from_dict(values).text
