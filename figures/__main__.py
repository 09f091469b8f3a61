"""`python -m figures`: see `figures.running.cli`."""

import sys

from models.running.interrupt import one_line_on_interrupt

with one_line_on_interrupt():
    from figures.running.cli import main

sys.exit(main())
