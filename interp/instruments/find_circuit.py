"""From a scan to a circuit: the match heads, their copy heads, and evidence that the match depends on these.

Match heads are all heads with the role "match" in the scan. A copy head is chosen for each lag by its effect, not only
by its attention: the output of every head that copies lag r, in a layer below a match head, is replaced by its mean
over sequences and positions, and beta_r of the match heads is measured again. The share of beta_r that is lost (`lost`,
of the sum over match heads) says how much of the match at that lag depends on the head. The control moves the head's
output by the same distance in a random direction (`control_lost`).

    chosen      every head that loses its part: FEEDS divided by the number of heads that copy the lag, and more than
                its control. Several such heads are then replaced together
    together    several heads may stand in for each other, so that no single one is needed: then all of them are
                replaced at once, and chosen if that passes
    no head     where no head copies a lag, or the chosen heads together do not lose FEEDS and more than their control,
                `copy_heads` has None for that lag and the message says so

A lag is copied for the key. The query's side of lag r needs x_{t-r+1}, so that beta_r also depends on the head of lag r
- 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int64

from interp.arguments import Whole, keywords, seed_number
from interp.circuit.circuit import Bos, Circuit, Copies, Head, Model, Symbols, head_name, one_or_all
from interp.circuit.edits import moved_at_random, together, write_output
from interp.circuit.queries import Query
from interp.circuit.runner import observe
from interp.fitting.regression import Array
from interp.fitting.scan_statistics import ScanStatistics
from interp.instruments.roles import RoleRules
from interp.instruments.scan_heads import HeadScan, as_scanned, laws_of, scan_heads
from interp.notation import Tokens
from interp.results import DataFrame, rows_table

Edit: TypeAlias = Callable[[torch.Tensor, torch.Tensor, slice], torch.Tensor]  # of a head's output, given its mean

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

    def evidence(self) -> DataFrame:
        """One row per trial: lag, heads, mass, beta (mean over match heads), without, lost, control_lost, feeds."""
        table = rows_table(self.trials, Trial)
        table = table.assign(**{name: table[name].map(np.mean) for name in ("beta", "without")})
        heads = table["heads"].map(lambda heads: ", ".join(map(head_name, heads)))
        return table.assign(heads=heads, feeds=[one.feeds for one in self.trials])

    def __repr__(self) -> str:
        return "\n".join([super().__repr__(), *(f"  {reason}" for reason in self.reasons)])


@keywords()
def find_circuit(
    model: Model,
    tokens: Tokens,
    *,
    order: Whole | None = None,
    vocab: Whole | None = None,
    bos: Bos = None,
    symbols: Symbols = None,
    query: Query = "last",
    seed: Whole = 0,
    rules: RoleRules | None = None,
    scan: HeadScan | None = None,
) -> FoundCircuit:
    """The circuit that a scan shows, with evidence; the module's docstring says how it is chosen.

    Parameters
    ----------
    model     any HookedTransformer, or a `Circuit`, which contains the four arguments below
    tokens    [batch, length] symbols, without BOS
    order     k, how many tokens back contexts are matched
    vocab     |V|, by default the model's output size
    bos       the id of BOS; True for the id |V|, "first" where the first token serves as one; None without
    symbols   the ids that stand for the symbols, where the model's vocabulary is larger
    query     "last", "all", "trained" or token indices, as in `capture`
    seed      of the controls
    rules     the thresholds of the roles, by default `RoleRules()`
    scan      what `scan_heads` returned for these tokens, where it was made already

    Returns
    -------
    `FoundCircuit`, which every instrument takes

    Examples
    --------
        circuit = find_circuit(foreign, tokens, order=2, vocab=5, bos=5)
        circuit.copy_heads, circuit.match_heads, circuit.success, circuit.message
        print(circuit)                              with a reason for every choice
        circuit.evidence()                          one row for each head that was tried
    """
    task = as_scanned(model, order=order, vocab=vocab, bos=bos, symbols=symbols)
    array, seed = task.check(tokens), seed_number(seed)
    scan = scan_heads(task, array, query=query, rules=rules) if scan is None else scan
    if scan.order != task.order:
        raise ValueError(f"the scan is of order {scan.order}, the circuit of order {task.order}")
    workbench = _Workbench(task, array, scan, seed=seed)
    chosen, reasons, trials = zip(*(workbench.choose(lag) for lag in range(1, task.order + 1)), strict=True)
    missing = [reason for heads, reason in zip(chosen, reasons, strict=True) if heads is None]
    names = [f"{head_name(at)} ({scan.nats_explained[at]:.0%} of {scan.nats[at]:.2f} nats)" for at in scan.match_heads]
    matching = f"match: the law explains the attention of {', '.join(names)}" if names else scan.missing["match"]
    missing += [] if names else [matching]
    note = f"note: {scan.message}" if scan.success and scan.message else ""
    found = FoundCircuit(
        task.model,
        order=task.order,
        vocab=task.vocab,
        bos=task.declared_bos,
        symbols=task.symbols,
        copy_heads=chosen,
        match_heads=scan.match_heads,
    )
    found.checkpoint = task.checkpoint
    found.scan, found.trials = scan, tuple(trial for tried in trials for trial in tried)
    found.reasons = tuple(filter(None, [*reasons, matching, note, scan.near]))
    found.success, found.message = not missing, "; ".join(filter(None, [*missing, scan.near]))
    return found


class _Workbench:
    """Runs the model without some heads and measures beta of the match heads."""

    def __init__(self, circuit: Circuit, tokens: Int64[torch.Tensor, "batch length"], scan: HeadScan, *, seed: int):
        self.circuit, self.tokens, self.scan = circuit, tokens, scan
        self.generator = torch.Generator().manual_seed(seed)
        self.queries = torch.from_numpy(scan.queries) + int(circuit.has_bos)
        self.beta = self.betas(None) if scan.match_heads else np.zeros((0, circuit.order))
        self.means: dict[Head, torch.Tensor] = {}

    def choose(self, lag: int) -> tuple[Copies, str, list[Trial]]:
        """The copy heads of a lag, the reason, and what was tried."""
        scan = self.scan
        last = max((layer for layer, _ in scan.match_heads), default=len(scan.role))
        heads = [at for at in scan.copying(lag) if at[0] < last]
        named = {at: f"{head_name(at)} (mass {scan.copy_mass[at][lag - 1]:.2f})" for at in heads}
        if not heads:
            return None, scan.missing[f"lag {lag}"], []
        if not scan.match_heads:
            copied = f"lag {lag}: copied by {', '.join(named.values())}"
            return one_or_all(heads), f"{copied}; no head matches, so that its effect cannot be tested", []
        trials = [self.attempt(lag, (at,)) for at in heads[:TRIED]]
        best = max(trials, key=lambda one: one.lost)
        parts = [one for one in trials if one.lost >= FEEDS / len(trials) and one.lost > one.control_lost] or trials
        if len(parts) > 1:
            trials.append(self.attempt(lag, tuple(head for one in parts for head in one.heads)))
            best = trials[-1] if trials[-1].feeds else best
        elif parts[0].feeds:
            best = parts[0]
        result = (
            f"without {'it' if len(best.heads) == 1 else 'them'} the match heads lose {best.lost:.0%} of beta_{lag} "
            f"(control: {best.control_lost:.0%})"
        )
        if not best.feeds:
            would = head_name(one_or_all(best.heads))
            return None, f"no head copies lag {lag} for the match heads: {would} would, but {result}", trials
        others = [head_name(at) for at in heads if at not in best.heads]
        also = f"; {', '.join(others)} would copy it, too" if others else ""
        chosen = " and ".join(named[at] for at in best.heads)
        return one_or_all(best.heads), f"lag {lag}: {chosen}; {result}{also}", trials

    def attempt(self, lag: int, heads: tuple[Head, ...]) -> Trial:
        """Replace these heads' output by its mean; as a control, move it by the same distance in a random direction."""
        before = self.beta[:, lag - 1]
        after, control = (self.betas([(at, edit) for at in heads])[:, lag - 1] for edit in (self.to_mean, self.moved))
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

    def betas(self, edits: Sequence[tuple[Head, Edit]] | None) -> Float[np.ndarray, "match lag"]:
        """beta of every match head, by maximum likelihood of its attention, with the output of some heads edited."""
        written = together(write_output(at, partial(edit, self.mean(at))) for at, edit in edits or [])
        heads = self.scan.match_heads
        layers = [layer for layer, _ in heads]
        statistics = ScanStatistics(
            self.circuit, self.tokens, self.queries, lags=1, layers=layers, position=False, scores=False
        )
        statistics.gather(written)
        return np.stack([one["beta"] for one in laws_of(statistics, heads)])

    def mean(self, place: Head) -> torch.Tensor:
        """The mean of a head's output over sequences and positions."""
        if place not in self.means:
            sums: list[torch.Tensor] = []

            def read(z: torch.Tensor, rows: slice) -> torch.Tensor:
                sums.append(z.cpu().double().mean(dim=1).sum(dim=0))
                return z

            observe(self.circuit, self.tokens, hooks=write_output(place, read), last_layer=place[0])
            self.means[place] = torch.stack(sums).sum(0) / len(self.tokens)
        return self.means[place]

    def to_mean(self, mean: torch.Tensor, z: torch.Tensor, rows: slice) -> torch.Tensor:
        """The mean in place of the output."""
        return mean.expand_as(z)

    def moved(self, mean: torch.Tensor, z: torch.Tensor, rows: slice) -> torch.Tensor:
        """The output, moved by its distance from the mean in a random direction."""
        return moved_at_random(z, mean, self.generator)
