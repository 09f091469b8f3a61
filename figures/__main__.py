"""`python -m figures`: see `figures.running.cli`."""

import sys

from models.running.interrupt import enter

sys.exit(enter("figures.running.cli"))
