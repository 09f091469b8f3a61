"""`python -m analyses`: see `analyses.running.cli`."""

import sys

from models.running.interrupt import one_line_on_interrupt

with one_line_on_interrupt():
    from analyses.running.cli import main

sys.exit(main())
