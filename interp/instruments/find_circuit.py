"""From a scan to a circuit: the match heads, their copy heads, and evidence that the match depends on these.

    circuit = find_circuit(foreign, tokens, order=2, vocab=5, bos=5)
    circuit.copy_heads, circuit.match_heads, circuit.success, circuit.message
    print(circuit)                              with a reason for every choice
    circuit.evidence()                          one row for each head that was tried

Match heads are all heads with the role "match" in the scan. A copy head is chosen for each lag by its effect, not only
by its attention: the output of every head that copies lag r, in a layer below a match head, is replaced by its mean
over sequences and positions, and beta_r of the match heads is measured again. The share of beta_r that is lost (`lost`,
of the sum over match heads) says how much of the match at that lag depends on the head. The control moves the head's
output by the same distance in a random direction (`control_lost`).

    chosen      the head that loses most, if that is at least FEEDS and more than its control
    together    several heads may copy one lag, so that no single one is needed: then all of them are replaced at once,
                and the one with the most mass is chosen if together they pass
    no head     where no head copies a lag, or the match heads depend on none that does, `copy_heads` has None for that
                lag and the message says so

A lag is copied for the key. The query's side of lag r needs x_{t-r+1}, so that beta_r also depends on the head of lag r
- 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from types import NoneType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int64

from interp.arguments import Whole, seed_number
from interp.circuit.circuit import Circuit, Head, head_name
from interp.circuit.edits import write_output
from interp.circuit.runner import Hook, Hooks
from interp.fitting.regression import Array
from interp.fitting.scan_statistics import ScanStatistics
from interp.instruments.scan_heads import HeadScan, as_scanned, attention_laws, scan_heads
from interp.notation import Tokens

if TYPE_CHECKING:
    import pandas as pd

FEEDS = 0.5  # share of beta_r that must be lost without its copy head
TRIED = 4  # heads tried for each lag, those with the most mass on it


@dataclass(frozen=True, kw_only=True)
class Trial:
    """The match heads without one head (or several at once) that copies a lag.

    lag            the lag
    heads          the heads whose output was replaced by its mean
    mass           mean attention on the lag of the heaviest of them
    beta           [match] beta at this lag of every match head, as it is
    without        [match] the same without the heads
    lost           share of the sum of beta that is lost
    control_lost   the same where their output was moved by the same distance in a random direction
    """

    lag: int
    heads: tuple[Head, ...]
    mass: float
    beta: Float[np.ndarray, " match"]
    without: Float[np.ndarray, " match"]
    lost: float
    control_lost: float

    @property
    def feeds(self) -> bool:
        """Whether the match at this lag depends on these heads."""
        return self.lost >= FEEDS and self.lost > self.control_lost


class FoundCircuit(Circuit):
    """A `Circuit` that was found, with the scan, the trials behind it, and the reason for every choice.

    scan       the `HeadScan`
    trials     one `Trial` for each head that was tried
    reasons    a line for every lag and for the match heads
    success    every lag has a copy head on which the match heads depend
    message    what is missing, and which heads are just below the thresholds of a match head; empty where none are
    """

    scan: HeadScan
    trials: tuple[Trial, ...]
    reasons: tuple[str, ...]
    success: bool
    message: str

    def evidence(self) -> pd.DataFrame:
        """One row per trial: lag, heads, mass, beta (mean over match heads), without, lost, control_lost, feeds."""
        import pandas as pd

        rows = [
            {field.name: getattr(one, field.name) for field in fields(Trial)}
            | {
                "heads": ", ".join(map(head_name, one.heads)),
                "beta": float(one.beta.mean()),
                "without": float(one.without.mean()),
                "feeds": one.feeds,
            }
            for one in self.trials
        ]
        return pd.DataFrame(rows, columns=[*(field.name for field in fields(Trial)), "feeds"])

    def __repr__(self) -> str:
        return "\n".join([super().__repr__(), *(f"  {reason}" for reason in self.reasons)])


def find_circuit(
    model: Any,
    tokens: Tokens,
    *,
    order: Any = None,
    vocab: Any = None,
    bos: Any = None,
    symbols: Any = None,
    query: Any = "last",
    seed: Whole = 0,
    scan: Any = None,
) -> FoundCircuit:
    """The circuit that a scan shows, with evidence; the module's docstring says how it is chosen.

    The arguments are those of `scan_heads`; Give `scan` where it was made on these tokens already. `seed` draws the
    controls.
    """
    task = as_scanned(model, order=order, vocab=vocab, bos=bos, symbols=symbols)
    array, seed = task.check(tokens), seed_number(seed)
    if not isinstance(scan, (HeadScan, NoneType)):
        raise ValueError(f"scan must be a HeadScan, as scan_heads returns it, got {type(scan).__name__}")
    scan = scan_heads(task, array, query=query) if scan is None else scan
    if scan.order != task.order:
        raise ValueError(f"the scan is of order {scan.order}, the circuit of order {task.order}")
    workbench = _Workbench(task, array, scan, seed=seed)
    chosen: list[Head | None] = []
    reasons, missing, trials = [], [], []
    for lag in range(1, task.order + 1):
        head, reason, tried = workbench.choose(lag)
        chosen.append(head)
        reasons.append(reason)
        trials += tried
        missing += [] if head is not None else [reason]
    if scan.match_heads:
        names = [
            f"{head_name(at)} ({scan.nats_explained[at]:.0%} of {scan.nats[at]:.2f} nats)" for at in scan.match_heads
        ]
        reasons.append(f"match: the law explains the attention of {', '.join(names)}")
    else:
        best = max(scan.heads, key=lambda at: float(np.nan_to_num(scan.nats_explained[at])))
        reasons.append(
            f"no head matches: the best, {head_name(best)}, has {max(0.0, scan.nats_explained[best]):.1%} of "
            f"{max(0.0, scan.nats[best]):.2g} nats explained"
        )
        missing.append(reasons[-1])
    if scan.success and scan.message:
        reasons.append(f"note: {scan.message}")
    near = [scan.near] if scan.near else []
    found = FoundCircuit(
        task.model,
        order=task.order,
        vocab=task.vocab,
        bos=task.declared_bos,
        symbols=task.symbols,
        copy_heads=chosen,
        match_heads=scan.match_heads,
    )
    found.scan, found.trials, found.reasons = scan, tuple(trials), (*reasons, *near)
    found.success, found.message = not missing, "; ".join([*missing, *near])
    return found


class _Workbench:
    """Runs the model without some heads and measures beta of the match heads."""

    def __init__(self, circuit: Circuit, tokens: Int64[torch.Tensor, "batch length"], scan: HeadScan, *, seed: int):
        self.circuit, self.tokens, self.scan = circuit, tokens, scan
        self.generator = torch.Generator().manual_seed(seed)
        self.queries = torch.from_numpy(scan.queries) + int(circuit.has_bos)
        self.layers = sorted({layer for layer, _ in scan.match_heads})
        self.beta = self.betas(None) if scan.match_heads else np.zeros((0, circuit.order))
        self.means: dict[Head, torch.Tensor] = {}

    def choose(self, lag: int) -> tuple[Head | None, str, list[Trial]]:
        """The copy head of a lag, the reason, and what was tried."""
        scan, last = self.scan, max(self.layers, default=len(self.scan.role))
        looking = [at for at in scan.heads if scan.role[at[0]][at[1]] == "copy" and scan.copy_lag[at] == lag]
        heads = sorted((at for at in looking if at[0] < last), key=lambda at: -float(scan.copy_mass[at][lag - 1]))
        if not heads:
            late = [head_name(at) for at in looking]
            above = f" below the match heads ({', '.join(late)} would, but in too late a layer)" if late else ""
            return None, f"no head copies lag {lag}{above}", []
        if not self.layers:
            names = ", ".join(f"{head_name(at)} (mass {scan.copy_mass[at][lag - 1]:.2f})" for at in heads)
            return heads[0], f"lag {lag}: copied by {names}; no head matches, so that its effect cannot be tested", []
        trials = [self.attempt(lag, (at,)) for at in heads[:TRIED]]
        best = max(trials, key=lambda one: one.lost)
        if not best.feeds and len(heads) > 1:
            trials.append(self.attempt(lag, tuple(heads[:TRIED])))
            best = trials[-1] if trials[-1].feeds else best
        name = " and ".join(map(head_name, best.heads))
        result = (
            f"without {'it' if len(best.heads) == 1 else 'them'} the match heads lose {best.lost:.0%} of beta_{lag} "
            f"(control: {best.control_lost:.0%})"
        )
        if not best.feeds:
            return None, f"no head copies lag {lag} for the match heads: {name} would, but {result}", trials
        others = [head_name(at) for at in heads if at not in best.heads]
        also = f"; {', '.join(others)} would copy it, too" if others else ""
        return best.heads[0], f"lag {lag}: {name} (mass {best.mass:.2f}); {result}{also}", trials

    def attempt(self, lag: int, heads: tuple[Head, ...]) -> Trial:
        """Replace these heads' output by its mean; as a control, move it by the same distance in a random direction."""
        before = self.beta[:, lag - 1]
        after = self.betas(_all_of([self.to_mean(at) for at in heads]))[:, lag - 1]
        control = self.betas(_all_of([self.to_random(at) for at in heads]))[:, lag - 1]
        total = float(np.abs(before).sum())

        def lost(left: Array) -> float:
            """The share of |beta| that is gone; a beta may be negative."""
            kept = float((np.sign(before) * left).sum())
            return float(np.clip(1.0 - kept / total, 0.0, 1.0)) if total > 0 else 0.0

        return Trial(
            lag=lag,
            heads=heads,
            mass=float(self.scan.copy_mass[heads[0]][lag - 1]),
            beta=before,
            without=after,
            lost=lost(after),
            control_lost=lost(control),
        )

    def betas(self, edits: Hooks | None) -> Float[np.ndarray, "match lag"]:
        """beta of every match head, by maximum likelihood of its attention, under hooks that edit the model."""
        matching = self.circuit.with_match_heads(*self.scan.match_heads)
        return attention_laws(matching, self.tokens, queries=self.queries, edits=edits).beta

    def mean(self, place: Head) -> torch.Tensor:
        """The mean of a head's output over sequences and positions."""
        if place not in self.means:
            sums: list[torch.Tensor] = []

            def read(z: torch.Tensor, rows: slice) -> torch.Tensor:
                sums.append(z.cpu().double().mean(dim=1).sum(dim=0))
                return z

            statistics = ScanStatistics(self.circuit, self.tokens, self.queries, lags=1, layers=[place[0]])
            statistics.gather(write_output(place, read))
            self.means[place] = torch.stack(sums).sum(0) / len(self.tokens)
        return self.means[place]

    def to_mean(self, place: Head) -> Hooks:
        mean = self.mean(place)
        return write_output(place, lambda z, rows: mean.expand_as(z))

    def to_random(self, place: Head) -> Hooks:
        mean = self.mean(place)

        def move(z: torch.Tensor, rows: slice) -> torch.Tensor:
            own = z.cpu().double()
            direction = torch.randn(own.shape, generator=self.generator, dtype=torch.float64)
            step = (own - mean).norm(dim=-1, keepdim=True)
            moved: torch.Tensor = own + step * direction / direction.norm(dim=-1, keepdim=True)
            return moved

        return write_output(place, move)


def _all_of(edits: Sequence[Hooks]) -> Hooks:
    """Several edits at once."""

    def hooks(rows: slice) -> list[Hook]:
        return [hook for edit in edits for hook in edit(rows)]

    return hooks
