"""What the explorer needs from a checkpoint: weights, a few sequences, their true laws and Bayes predictions.

`python -m figures explorer` puts these rows into one page, in which a model's forward pass and the estimators are
computed anew whenever a slider or a token changes. Only what the page cannot compute is stored: the true law after
every position, and the Bayes predictor after the last token. beta and kappa are those of `beta_kappa`, where the
sliders start.

    python -m analyses explorer CKPT
    python -m analyses explorer CKPT --sequences 4 --draws 1000
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import interp as ip
from analyses.running.ask import Ask, near
from analyses.running.options import CheckpointOptions, option
from analyses.running.subject import Subject
from analyses.running.table import Table, flat_rows

if TYPE_CHECKING:
    import torch

COLUMNS = ("beta_1", "beta_2", "kappa", "fit_success", "bayes_error", "weight_bytes")
LEGEND = {
    "beta, kappa": "as `beta_kappa` fits them to the match scores; the sliders of the page start there",
}
LENGTHS = (32, 64)  # those that fit on a screen
LAW_DIGITS = 7


@dataclass(frozen=True, kw_only=True)
class Options(CheckpointOptions):
    sequences: int = option(8, "sequences to keep (default: %(default)s)", metavar="N", least=1)
    draws: int = option(4000, "of the Bayes predictor (default: %(default)s)", metavar="N", least=16)


def shown(zoo: list[Subject]) -> list[Subject]:
    """At both lengths, every seed of the small one-hot models and the first of the standard ones; no `paper` runs."""
    zoo = [one for one in zoo if one.training.get("protocol") != "paper"]
    small = [one for one in zoo if one.info.one_hot]
    large = [one for one in zoo if not one.info.one_hot]
    return near(*LENGTHS)(small) + near(*LENGTHS, seeds=1)(large)


ASK = Ask(select=shown, options=Options(batch=256), cost=0.1)


def applies(subject: Subject) -> str | None:
    return "the page runs the suite's own models" if subject.is_foreign else None


def analyse(subject: Subject, options: Options) -> Table:
    """A model that can be run elsewhere, and sequences to run it on.

    config        its description, as `config.json` has it
    tensors       [{name, shape, dtype, data}]: every weight in base64, little-endian; data is empty for all zeros
    prior         what the sequences are drawn from
    sequences     [{tokens, laws, bayes}]: tokens without BOS, the true law after each position, and the Bayes predictor
                  after the last one
    bayes_error   typical Monte Carlo error of a probability in `bayes`; 0 in closed form
    copy_lag      the lag of each copy head, as `copy_heads` assigns them
    copy_mass     the attention that each puts on it at the last query, mean over sequences: the page opens on a model
                  where these are large
    beta, kappa   of the match scores, as `beta_kappa` fits them; None where that fit is not to be trusted
    fit_success, fit_message   whether it is, and why not
    weight_bytes  what the weights take
    """
    from interp.results import provenance

    chains, prior = subject.chains, subject.prior
    tokens = chains.tokens[: options.sequences]
    laws = chains.laws()[: options.sequences]
    bayes = ip.bayes_predictive(tokens, prior=prior, draws=options.draws, seed=options.seed)
    fit = subject.fit(subject.capture())
    copies = ip.copy_heads(subject.capture(copies=True))
    weights = [(name, value) for name, value in subject.model.named_parameters() if not name.startswith("pos_embed")]
    tensors = [packed(name, value) for name, value in weights]
    sequences = [
        {"tokens": row.tolist(), "laws": rounded(law), "bayes": rounded(mean)}
        for row, law, mean in zip(tokens, laws, bayes.mean, strict=True)
    ]
    row = {
        "config": dict(subject.model_config),
        "tensors": tensors,
        "prior": prior.to_dict(),
        "sequences": sequences,
        "bayes_error": bayes.error,
        "copy_lag": copies.lag.tolist(),
        "copy_mass": copies.last_mass.tolist(),
        "beta": fit.beta.tolist() if fit.success else None,
        "kappa": fit.kappa if fit.success else None,
        "fit_success": fit.success,
        "fit_message": fit.message,
        "weight_bytes": sum(len(one["data"]) for one in tensors),
        "success": bayes.success,
        "message": "" if bayes.success else f"Bayes predictor: {bayes.message}",
        "provenance": provenance(seed=options.seed, checkpoint=str(subject.path), prior=prior.to_dict()),
    }
    law = f"{len(sequences)} sequences, weights of {row['weight_bytes'] / 1024:.0f} kB; "
    law += f"beta {', '.join(f'{beta:.3f}' for beta in fit.beta)}" if fit.success else "no law to start from"
    law += f", kappa {fit.kappa:.3f}" if row["kappa"] is not None else ""
    tidy = [{"sequence": place, **one} for place, one in enumerate(flat_rows(sequences))]
    return Table(rows=[row], tidy=tidy, text=f"for the explorer: {law}")


def packed(name: str, value: torch.Tensor) -> dict[str, Any]:
    """A tensor as text."""
    array = value.detach().cpu().numpy()
    array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    data = base64.b64encode(array.tobytes()).decode() if array.any() else ""
    return {"name": name, "shape": list(array.shape), "dtype": str(value.dtype).removeprefix("torch."), "data": data}


def rounded(values: torch.Tensor) -> Any:
    """Nested lists with as many decimals as a page shows, and more."""
    if values.ndim:
        return [rounded(part) for part in values]
    return round(float(values), LAW_DIGITS)
