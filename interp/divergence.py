"""The Kullback-Leibler divergence that the whole suite uses, with its floor.

    kl_divergence(chains.next_law, prediction).mean

KL(truth || prediction) is infinite where a prediction gives probability 0 to a possible symbol. Maximum likelihood does
so for every new successor, and soft matching without BOS for every symbol that has not occurred yet. Such probabilities
are raised to `KL_FLOOR` and the row is normalised again; other rows are not changed. Every result says how often this
was needed, because the mean then depends on the floor: each floored symbol of true probability p costs about p ln(p /
floor), and a floor ten times lower 2.3 p more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float

from interp.arguments import Number, Numbers, finite_number, real_array
from interp.results import Result, half_width, mean_stderr

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

KL_FLOOR = 1e-6


@dataclass(frozen=True, kw_only=True)
class Divergence(Result):
    """KL(truth || prediction) in nats.

    values   one number per law: [batch], or [batch, length] where laws at every position were given
    mean     over all of them
    stderr   of the mean; positions of one sequence count as one cluster
    floored  the share of laws where the floor was needed: a possible symbol had a probability below `floor`
    n        number of sequences
    """

    values: Float[torch.Tensor, "*rows"]
    mean: float
    stderr: float
    floored: float
    floor: float
    n: int

    def table(self) -> pd.DataFrame:
        """One row: mean, stderr, floored, floor, n."""
        import pandas as pd

        return pd.DataFrame([self.record()])

    def record(self) -> dict[str, Any]:
        """The summary; `values` stay in the object."""
        return {name: getattr(self, name) for name in ("mean", "stderr", "floored", "floor", "n")}

    def plot(self, ax: Axes | None = None) -> Axes:
        """How KL spreads over the sequences, and its mean with a 95% interval."""
        from interp.plotting import LAG_COLOURS, MAIN_COLOUR, heading, panel

        ax = panel(ax, width=4.8)
        ax.hist(self.values.ravel().numpy(), bins=40, color=LAG_COLOURS[1])
        reach = float(half_width(self.stderr, n=self.n))
        low, high = self.mean - reach, self.mean + reach
        ax.axvline(self.mean, color=MAIN_COLOUR, label=f"mean {self.mean:.4f}, 95% interval")
        ax.axvspan(low, high, color=MAIN_COLOUR, alpha=0.2, linewidth=0)
        ax.set_xlabel("KL(truth || prediction) (nats)")
        ax.set_ylabel("laws")
        ax.legend(frameon=False)
        return heading(ax, str(self), doubt=self.doubt)

    def __str__(self) -> str:
        needed = f", floor {self.floor:g} needed in {self.floored:.1%}" if self.floored else ""
        return f"KL {self.mean:.4f} ± {self.stderr:.4f} nats over {self.n} sequences{needed}"


def kl_divergence(
    truth: Numbers,
    prediction: Numbers,
    *,
    floor: Number = KL_FLOOR,
) -> Divergence:
    """KL(truth || prediction) per law, its mean and standard error, and how often the floor was needed.

    Parameters
    ----------
    truth
        Probabilities [batch, ..., vocab].
    prediction
        Probabilities of the same shape.
    floor
        What a prediction is raised to where it gives less to a possible symbol.

    Returns
    -------
    Divergence
        KL of each row in nats, the mean with its standard error, and how often the floor was needed.

    Examples
    --------
    >>> truth = torch.tensor([[0.5, 0.5], [0.5, 0.5]], dtype=torch.float64)
    >>> print(kl_divergence(truth, torch.tensor([[0.5, 0.5], [1.0, 0.0]], dtype=torch.float64)))
    KL 3.1073 ± 3.1073 nats over 2 sequences, floor 1e-06 needed in 50.0%
    """
    truth, prediction = as_laws(truth, name="truth"), as_laws(prediction, name="prediction")
    if truth.shape != prediction.shape or truth.ndim < 2 or truth.numel() == 0:
        raise ValueError(
            "truth and prediction must share a shape [batch, ..., vocab], "
            f"got {list(truth.shape)} and {list(prediction.shape)}"
        )
    floor = check_floor(floor, vocab=truth.shape[-1])
    needed = ((prediction < floor) & (truth > 0)).any(-1)
    lifted = torch.where(needed[..., None], raised(prediction, floor=floor), prediction)
    # 0 log 0 = 0 on the side of the truth; a prediction of exactly 0 is left only where the truth is 0 too.
    values = (torch.xlogy(truth, truth) - torch.xlogy(truth, lifted)).sum(-1)
    batch = truth.shape[0]
    clusters = torch.arange(batch).repeat_interleave(values.numel() // batch).numpy()
    mean, stderr = mean_stderr(values, clusters=clusters)
    return Divergence(
        values=values,
        mean=mean,
        stderr=stderr,
        floored=float(needed.double().mean()),
        floor=floor,
        n=batch,
    )


def as_laws(laws: Any, *, name: str) -> Float[torch.Tensor, "*rows vocab"]:
    """Laws, given as a tensor, an array or lists, in float64; what is no law is refused."""
    given = laws if isinstance(laws, torch.Tensor) else torch.from_numpy(real_array(laws, name=name))
    found = given.double()
    if not torch.isfinite(found).all() or (found < 0).any():
        raise ValueError(f"{name} must hold probabilities, but has a negative or non-finite entry")
    worst = float((found.detach().sum(-1) - 1).abs().max()) if found.numel() else 0.0
    if worst > 1e-4:
        raise ValueError(f"{name} must hold laws that sum to 1, but one is off by {worst:.2g}")
    return found


def check_floor(floor: Number, *, vocab: int) -> float:
    """The floor, checked: it must be far below 1/|V|."""
    number = finite_number(floor, name="floor", above=0)
    if number * vocab >= 1:
        raise ValueError(f"floor must be far below 1/|V| = {1 / vocab:.3g}, got {number:g}")
    return number


def raised(laws: Float[torch.Tensor, "*rows vocab"], *, floor: float) -> Float[torch.Tensor, "*rows vocab"]:
    """The laws with every probability at least `floor`, normalised again."""
    lifted = laws.clamp(min=floor)
    return lifted / lifted.sum(-1, keepdim=True)


def kl_between(
    first: Float[torch.Tensor, "*rows vocab"], second: Float[torch.Tensor, "*rows vocab"], *, floor: float = KL_FLOOR
) -> Float[torch.Tensor, "*rows"]:
    """KL(first || second) between two predictions, law by law; differentiable.

    `kl_divergence` compares with a truth, which is not changed. Here neither prediction is the ground truth, so both
    are raised to the floor. Equal predictions then have distance 0, also where they contain zeros.
    """
    one, other = raised(first.double(), floor=floor), raised(second.double(), floor=floor)
    return (one * (torch.log(one) - torch.log(other))).sum(-1).clamp(min=0.0)
