"""`python -m models`: see `models.running.cli`."""

import sys

from models.running.interrupt import enter

sys.exit(enter("models.running.cli"))
