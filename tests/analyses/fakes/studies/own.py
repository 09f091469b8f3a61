"""By itself."""

from analyses.running.cache import Cache
from analyses.running.options import Options
from analyses.running.table import Table


def study(options: Options, cache: Cache) -> Table:
    if options.batch == 13:
        raise ValueError("13 is unlucky")
    failures = ["it is wrong"] if options.batch == 14 else []
    return Table(rows=[{"claim": "x", "error": 1e-12, "holds": not failures}], failures=failures)
