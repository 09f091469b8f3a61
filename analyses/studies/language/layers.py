"""(c) Where does the prediction form? What the readout reads of the stream after each layer, on chains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analyses.studies.language.task import Options, Row, chains, circuit_of

if TYPE_CHECKING:
    from analyses.running.cache import Cache

LENGTH = 64


def rows(options: Options, cache: Cache) -> list[Row]:
    """One row for the stream before the first layer (-1) and after each one."""
    from interp.instruments.layers import law_by_layer

    drawn, given = chains(options, batch=options.batch, length=LENGTH, stream=5)
    found = law_by_layer(circuit_of(options, given, ()), given.tokens, next_law=drawn.next_law)
    more = {"part": "layers", "uniform": found.uniform, "n": found.n}
    return [{str(name): value for name, value in row.items()} | more for row in found.table().to_dict("records")]
