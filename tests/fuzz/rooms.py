"""The rooms, and how many cases of each are run."""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import hypothesis

from tests.fuzz import captures, checkpoints, circuits, commands, files, language, library
from tests.fuzz.room import Finding, Sandbox, where
from tests.fuzz.world import build, light, shipped_files

ROOMS: dict[str, ModuleType] = {
    "commands": commands,
    "files": files,
    "checkpoints": checkpoints,
    "library": library,
    "captures": captures,
    "circuits": circuits,
    "language": language,
}
# Of a hundred cases: those of `captures` and `circuits` take 10 to 20 ms of processor time, the others 2 to 10.
SHARES = {
    "commands": 10,
    "files": 20,
    "checkpoints": 20,
    "library": 20,
    "captures": 10,
    "circuits": 10,
    "language": 10,
}
ROUND = 2000  # cases of all rooms between two looks at the clock
MOST_SHOWN_OF_CASE = 600


@dataclass
class Tally:
    """How the cases of each room ended, and the findings: how often, and one case of each."""

    ended: dict[str, Counter[str]] = field(default_factory=dict)
    findings: dict[str, tuple[int, str]] = field(default_factory=dict)
    seconds: float = 0.0  # of processor time

    def add(self, other: Tally) -> None:
        """Take in what another process found."""
        for name, counts in other.ended.items():
            self.ended.setdefault(name, Counter()).update(counts)
        for text, (number, case) in other.findings.items():
            self.found(text, case, number)
        self.seconds += other.seconds

    def found(self, text: str, case: str, number: int = 1) -> None:
        """Count a finding; the first case is kept."""
        before, first = self.findings.get(text, (0, case))
        self.findings[text] = before + number, first

    @property
    def total(self) -> int:
        """All cases."""
        return sum(counts.total() for counts in self.ended.values())


def explore(
    room: ModuleType, sandbox: Sandbox, *, number: int, seed: int
) -> tuple[Counter[str], list[tuple[str, Any]]]:
    """Run `number` cases of a room: how they ended, and the findings with their cases."""
    ended: Counter[str] = Counter()
    found: list[tuple[str, Any]] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=number,
        deadline=None,
        database=None,
        derandomize=False,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(room.cases())
    def run(case: Any) -> None:
        try:
            ended[room.run(case, sandbox)] += 1
        except Finding as finding:
            ended["FOUND"] += 1
            found.append((str(finding), case))
        except Exception as error:
            ended["FOUND"] += 1
            found.append((f"the room itself: {where(error)}", case))

    run()
    return ended, found


def run_rooms(names: list[str], number: int, seconds: float, seed: int) -> Tally:
    """The rooms in turn, each its share of a round, until all cases are run or the time is up."""
    start, worked = time.monotonic(), time.process_time()
    tally = Tally(ended={name: Counter() for name in names})
    shares = sum(SHARES[name] for name in names)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        sandbox = build(Path(folder) / "root")
        shipped = shipped_files()
        stack.enter_context(light(sandbox))
        while tally.total < number and time.monotonic() - start < seconds:
            left = min(ROUND, number - tally.total)
            for name in names:
                share = -(-left * SHARES[name] // shares)
                counts, found = explore(ROOMS[name], sandbox, number=share, seed=seed)
                tally.ended[name] += counts
                try:
                    sandbox.check(every_byte=True)
                except Finding as finding:
                    found.append((str(finding), f"seed {seed}"))
                if (now := shipped_files()) != shipped:
                    shipped = now
                    found.append(("file lost or changed: one that the repository ships", f"seed {seed}"))
                for text, case in found:
                    kind, instance = f"{name}: {text}", str(case)[:MOST_SHOWN_OF_CASE]
                    if kind not in tally.findings:
                        print(f"  FOUND {kind}\n    {instance}", file=sys.stderr, flush=True)
                    tally.found(kind, instance)
                seed += 1
            tally.seconds = time.process_time() - worked
            print(
                f"  {tally.total} cases, {time.monotonic() - start:.0f} s, {tally.seconds:.0f} s of processor time, "
                f"{len(tally.findings)} kinds of findings",
                file=sys.stderr,
                flush=True,
            )
    return tally
