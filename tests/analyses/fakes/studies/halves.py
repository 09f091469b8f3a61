"""In pieces."""

from dataclasses import dataclass

from analyses.running.cache import Cache
from analyses.running.options import Options
from analyses.running.table import Table


@dataclass(frozen=True, kw_only=True)
class Half:
    which: int


def pieces(options: Options) -> list[Half]:
    return [Half(which=1), Half(which=2)]


def study_piece(options: Options, piece: Half, cache: Cache) -> Table:
    return Table(rows=[{"half": piece.which, "seed": options.seed}], provenance={"seed": options.seed})


def join(options: Options, tables: list[Table]) -> Table:
    rows = [row for table in tables for row in table.rows]
    return Table(rows=rows, provenance=tables[0].provenance, notes=[f"{len(rows)} halves"])
