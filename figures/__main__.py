"""`python -m figures`: see `figures.cli`."""

import sys

from models.interrupt import one_line_on_interrupt

with one_line_on_interrupt():
    from figures.cli import main

sys.exit(main())
