"""`python -m models`: see `models.cli`."""

import sys

from models.interrupt import one_line_on_interrupt

with one_line_on_interrupt():
    from models.cli import main

sys.exit(main())
