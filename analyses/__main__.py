"""`python -m analyses`: see `analyses.running.cli`."""

import sys

from models.running.interrupt import enter

sys.exit(enter("analyses.running.cli"))
