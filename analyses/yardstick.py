"""What the statistical studies share: common sequences, predictors by name, the zoo's checkpoints, and a cache.

A predictor is a name, a group, a key that says everything its numbers depend on, and a function from
sequences to laws. What is kept of it (`analyses.cache`) is the KL of each sequence, so that differences between
predictors are paired.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analyses.cache import ROOT, Cache
from analyses.command import whole_number
from analyses.subject import summary_of

if TYPE_CHECKING:
    import numpy as np
    import torch

    from interp.chains.priors import ChainBatch, Prior
    from interp.estimators.optimal import OptimalParameters

ZOO = ROOT / "models" / "checkpoints"
CACHE = Path("results") / "cache"
PAPER_LENGTHS = (32, 64, 128, 192, 256, 384, 512, 768, 1024)
HARD = 100.0  # the beta of the paper's hard construction


def remembered(name: str, options: argparse.Namespace, make: Callable[[], dict[str, Any]], **more: Any) -> Any:
    """The rows of a whole study, so that the second run needs neither torch nor time."""
    from interp.results import jsonable

    aside = {"json", "csv", "out", "overwrite", "cache", "no_cache", "zoo"}  # these do not shape the numbers
    asked = {key: value for key, value in sorted(vars(options).items()) if key not in aside}
    key = {"what": name, "options": jsonable(asked), **more}
    return open_cache(options).value(key, lambda: jsonable(make()), using=(make,))


@dataclass(frozen=True, kw_only=True)
class Sequences:
    """A held-out set, described at once and sampled when first looked at."""

    prior: Prior
    batch: int
    length: int
    seed: int

    def key(self) -> dict[str, Any]:
        return {"prior": self.prior.to_dict(), "batch": self.batch, "length": self.length, "seed": self.seed}

    @cached_property
    def chains(self) -> ChainBatch:
        return self.prior.sample(batch=self.batch, length=self.length, seed=self.seed, method="collapsed")

    @property
    def tokens(self) -> torch.Tensor:
        return self.chains.tokens


@dataclass(frozen=True, kw_only=True)
class Predictor:
    """name and group for the table; key: all that the law depends on beside the sequences; subject: the checkpoint."""

    name: str
    group: str
    key: dict[str, Any]
    law: Callable[[torch.Tensor], torch.Tensor]
    subject: dict[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Measured:
    """KL per sequence, the share of sequences where its floor was needed, and the Monte Carlo error of the law."""

    values: np.ndarray
    floored: float
    monte_carlo: float = 0.0
    converged: bool = True


def measure(sequences: Sequences, predictor: Predictor, cache: Cache) -> Measured:
    """KL(truth || prediction) of every sequence."""
    import numpy as np

    def compute() -> dict[str, np.ndarray]:
        from interp.divergence import kl_divergence

        divergence = kl_divergence(sequences.chains.next_law, predictor.law(sequences.tokens))
        return {"values": divergence.values.numpy(), "floored": np.array(divergence.floored)}

    key = {"what": "kl", "predictor": predictor.key, "sequences": sequences.key()}
    stored = cache.arrays(key, compute, using=(predictor.law,))
    return Measured(values=stored["values"], floored=float(stored["floored"]))


def measure_bayes(sequences: Sequences, cache: Cache, *, draws: int) -> Measured:
    """The Bayes predictor's KL, with the Monte Carlo error of its law."""
    import numpy as np

    def compute() -> dict[str, np.ndarray]:
        from interp.divergence import kl_divergence
        from interp.estimators.bayes import bayes_predictive

        bayes = bayes_predictive(sequences.tokens, prior=sequences.prior, draws=draws, seed=sequences.seed)
        divergence = kl_divergence(sequences.chains.next_law, bayes.mean)
        return {
            "values": divergence.values.numpy(),
            "floored": np.array(divergence.floored),
            "error": np.array(bayes.error),
            "success": np.array(bayes.success),
        }

    stored = cache.arrays({"what": "bayes", "draws": draws, "sequences": sequences.key()}, compute)
    return Measured(
        values=stored["values"],
        floored=float(stored["floored"]),
        monte_carlo=float(stored["error"]),
        converged=bool(stored["success"]),
    )


def optimum(prior: Prior, *, length: int, bos: bool, draws: int, seed: int, cache: Cache) -> OptimalParameters:
    """`interp.optimal_parameters`, cached."""
    from interp.estimators.optimal import OptimalParameters, optimal_parameters

    def compute() -> dict[str, Any]:
        return vars(optimal_parameters(prior, length=length, bos=bos, draws=draws, seed=seed))

    key = {"what": "optimal", "prior": prior.to_dict(), "length": length, "bos": bos, "draws": draws, "seed": seed}
    values = cache.value(key, compute)
    # Python's JSON keeps infinities and NaN; tuples come back as lists.
    lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
    return OptimalParameters(**{**values, **lists})


def prior_text(prior: Prior) -> str:
    """The prior as the command line writes it."""
    values = prior.to_dict()
    if prior.independent:
        return f"independent:{values['alpha']:g}"
    eta = values["eta"] if len(set(values["eta"])) > 1 else values["eta"][:1]
    root = "" if values["eta0"] == 1 else f":{values['eta0']:g}"
    return f"hierarchical:{','.join(f'{value:g}' for value in eta)}{root}"


def alpha_of(prior: Prior) -> float:
    """The alpha that additive smoothing is given: the prior's own if independent, 1 otherwise, as in the paper."""
    return float(prior.concentrations()[-1]) / prior.vocab if prior.independent else 1.0


def estimators(
    prior: Prior, *, length: int, alphas: Sequence[float], draws: int, seed: int, cache: Cache
) -> Iterator[Predictor]:
    """Every estimator that needs no model: classical ones, then the constructions by their closed form."""
    from interp.estimators import classical
    from interp.estimators import soft_matching as basic

    order, vocab = prior.order, prior.vocab
    shape = {"order": order, "vocab": vocab}

    def plain(name: str, function: Callable[..., Any], **options: Any) -> Predictor:
        key = {"name": name, **shape, **options}
        return Predictor(name=name, group="classical", key=key, law=lambda tokens: function(tokens, **shape, **options))

    yield plain("maximum likelihood", basic.maximum_likelihood)
    for alpha in alphas:
        yield plain(f"add-{alpha:g}", basic.add_alpha, alpha=alpha)
    weights = tuned_weights(prior, length=length, draws=draws, seed=seed, cache=cache)
    yield Predictor(
        name="jelinek-mercer",
        group="classical",
        key={"name": "jelinek-mercer", "weights": weights, **shape},
        law=lambda tokens: classical.jelinek_mercer(tokens, vocab=vocab, weights=weights),
    )
    yield plain("katz", classical.katz)
    yield plain("katz, absolute", classical.katz, discount="absolute")
    yield plain("katz, good-turing", classical.katz, discount="good_turing")
    yield plain("witten-bell", classical.witten_bell)
    yield plain("kneser-ney", classical.kneser_ney)
    yield plain("context tree weighting", classical.context_tree_weighting)
    yield from constructions(prior, length=length, draws=draws, seed=seed, cache=cache)


def tuned_weights(prior: Prior, *, length: int, draws: int, seed: int, cache: Cache) -> list[float]:
    """Jelinek-Mercer weights tuned on other sequences of the prior."""
    from interp.estimators.classical import tune_jelinek_mercer

    key = {"what": "weights", "prior": prior.to_dict(), "length": length, "draws": draws, "seed": seed}
    weights: list[float] = cache.value(
        key, lambda: list(tune_jelinek_mercer(prior, length=length, draws=draws, seed=seed + 1).weights)
    )
    return weights


def constructions(prior: Prior, *, length: int, draws: int, seed: int, cache: Cache) -> Iterator[Predictor]:
    """beta = 100 with and without BOS, beta(t) of lemma:optimal_beta, and the population optimum with and without BOS.

    They are computed by eq:transformer_estimator, which the models equal to rounding (`python -m analyses
    theory`).
    """
    import math

    from interp.estimators.soft_matching import beta_for_add_alpha, soft_matching

    order, vocab, alpha = prior.order, prior.vocab, alpha_of(prior)

    def soft(name: str, beta: Sequence[float], kappa: float | None) -> Predictor:
        key = {"name": "soft matching", "vocab": vocab, "beta": list(beta), "kappa": kappa}
        return Predictor(
            name=name,
            group="construction",
            key=key,
            law=lambda tokens: soft_matching(tokens, vocab=vocab, beta=beta, kappa=kappa),
        )

    yield soft("hard, no BOS", (HARD,) * order, None)
    yield soft("hard, BOS", (HARD,) * order, order * HARD + math.log(alpha * vocab))
    if length >= order + 2:
        adaptive = beta_for_add_alpha(length=length, order=order, vocab=vocab, alpha=alpha)
        yield soft("beta(t), no BOS", (adaptive,) * order, None)
    for bos in (False, True):
        best = optimum(prior, length=length, bos=bos, draws=draws, seed=seed + 1, cache=cache)
        yield soft(f"optimal, {'BOS' if bos else 'no BOS'}", *best.usable())


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A checkpoint of the zoo, by its config alone."""

    path: Path
    name: str
    model: dict[str, Any]
    training: dict[str, Any]
    digest: str

    def fits(self, prior: Prior, *, length: int) -> bool:
        """Whether it was trained on this prior at this length."""
        return self.training["prior"] == prior.to_dict() and self.model["length"] == length

    def predictor(self) -> Predictor:
        """Its prediction, through the family's fast forward."""

        def law(tokens: torch.Tensor) -> torch.Tensor:
            from interp.hooked.checkpoint import load
            from models.zoo import fast_predict

            return fast_predict(load(self.path), tokens)

        key = {"name": "checkpoint", "digest": self.digest}
        return Predictor(name=self.name, group="trained", key=key, law=law, subject=self.summary())

    def summary(self) -> dict[str, Any]:
        """What it is, for the rows of a table."""
        from interp.chains.priors import prior_from_dict

        return summary_of(self.model, self.training, prior=prior_from_dict(self.training["prior"]))


def trained_checkpoints(zoo: Path | None) -> list[Trained]:
    """The finished checkpoints below a directory that say which prior they were trained on; none if it is absent."""
    from interp.hooked.checkpoint import CONFIG_FILE, TENSOR_FILE, read_info
    from models.zoo import find_checkpoints

    found: list[Trained] = []
    if zoo is None or not zoo.is_dir():
        return found
    for path in find_checkpoints(zoo):
        info = read_info(path)
        training = info.training or {}
        if "prior" not in training or training.get("status", "finished") != "finished":
            continue
        digest = hashlib.sha256((path / CONFIG_FILE).read_bytes() + (path / TENSOR_FILE).read_bytes()).hexdigest()
        found.append(
            Trained(
                path=path,
                name=str(path.relative_to(zoo)),
                model=info.model,
                training=training,
                digest=digest,
            )
        )
    return found


def excess_columns(values: np.ndarray, bayes: np.ndarray) -> dict[str, float]:
    """KL with its error, and what it is above Bayes on the same sequences: in nats (paired error) and as a share."""
    from interp.results import mean_stderr

    kl, stderr = mean_stderr(values)
    best, _ = mean_stderr(bayes)
    excess, excess_stderr = mean_stderr(values - bayes)
    share = excess / best if best > 0 else float("nan")
    # A ratio of means over the same sequences: its error comes from the paired residuals.
    _, share_stderr = mean_stderr((values - (1 + share) * bayes) / best) if best > 0 else (0.0, float("nan"))
    return {
        "kl": kl,
        "stderr": stderr,
        "excess": excess,
        "excess_stderr": excess_stderr,
        "excess_share": share,
        "excess_share_stderr": share_stderr,
    }


def add_common_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of every study that reads the cache."""
    parser.add_argument(
        "--cache", metavar="DIR", type=Path, default=CACHE, help="where results are kept (default: %(default)s)"
    )
    parser.add_argument("--no-cache", action="store_true", help="compute everything anew and keep nothing")


def add_zoo_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--zoo",
        metavar="DIR",
        type=Path,
        default=ZOO,
        help="directory of trained checkpoints; may be absent (default: models/checkpoints)",
    )


def add_shape_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--order", metavar="K", type=whole_number(1), default=2, help="order of the chain (default: 2)")
    parser.add_argument("--vocab", metavar="V", type=whole_number(2), default=5, help="vocabulary size (default: 5)")


def open_cache(options: argparse.Namespace) -> Cache:
    """The cache that the options ask for."""
    return Cache(None if options.no_cache else options.cache)


def progress(items: Sequence[Any], what: str) -> Any:
    """The items, with a bar on stderr where someone watches."""
    from tqdm import tqdm

    return tqdm(items, desc=what, file=sys.stderr, leave=False, disable=not sys.stderr.isatty())
