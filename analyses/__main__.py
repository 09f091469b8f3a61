"""`python -m analyses`: see `analyses.cli`."""

import sys

from models.interrupt import one_line_on_interrupt

with one_line_on_interrupt():
    from analyses.cli import main

sys.exit(main())
