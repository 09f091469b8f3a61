"""Rows over positions, looked up or summed by the symbol that stands at each position."""

from __future__ import annotations

from typing import Any

from models.families.disentangled.kernels.memory import Work, kernel
from models.families.disentangled.kernels.simd import LANES, fill, load, look_up, store, total, where


@kernel
def enter(tokens: Any, work: Work) -> None:
    """Sort the sequence's positions by symbol."""
    for m in range(work.vocab):
        work.tallies[m] = 0
    for i in range(work.bos, work.n):
        m = tokens[i - work.bos]
        work.symbols[i] = m
        work.shifts[i] = m * work.row + i
        work.places[m * work.row + work.tallies[m]] = i
        work.tallies[m] += 1


@kernel
def per_symbol(table: Any, start: int, i: int, work: Work) -> Any:
    """table[start + symbol] at the eight positions from i."""
    # The first page is outside the loop; a small vocabulary has no other. It takes one instruction instead of thirty.
    value = look_up(table, start, work.symbols, i, 0, fill(table, 0.0))
    for page in range(1, work.table // LANES):
        value = look_up(table, start, work.symbols, i, page, value)
    return value


@kernel
def mean_of(source: Any, start: int, size: int) -> float:
    value = 0.0
    for c in range(start, start + size):
        value += source[c]
    return value / size


@kernel
def sum_by_symbol(source: Any, to: Any, start: int, work: Work) -> None:
    """to[start + a] = the sum of a row over the positions of symbol a, plus 1/|V| of its value at BOS."""
    zero = fill(source, 0.0)
    for a in range(work.vocab):
        value = zero
        for i in range(0, work.n, LANES):
            value = value + where(work.symbols, i, a, load(source, i), zero)
        to[start + a] = total(value)
        if work.bos:
            to[start + a] += source[0] / work.vocab


@kernel
def sum_copied(source: Any, to: Any, start: int, work: Work) -> None:
    """to[start + block] = the sum over positions of a row times each copied row."""
    for block in range(work.order * work.vocab):
        value = fill(source, 0.0)
        for i in range(0, work.n, LANES):
            value = value + load(source, i) * load(work.copied, block * work.row + i)
        to[start + block] = total(value)


@kernel
def add_by_symbol(source: Any, at: int, to: Any, start: int, work: Work) -> None:
    """Add a row, split by the symbol at each position, to one sum of eight lanes per symbol."""
    zero = fill(source, 0.0)
    for a in range(work.vocab):
        value = load(to, start + a * LANES)
        for i in range(0, work.n, LANES):
            value = value + where(work.symbols, i, a, load(source, at + i), zero)
        store(to, start + a * LANES, value)
