"""`python -m models`: see `models.running.cli`."""

import sys

from models.running.interrupt import one_line_on_interrupt

with one_line_on_interrupt():
    from models.running.cli import main

sys.exit(main())
