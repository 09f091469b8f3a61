"""`python -m figures`: see `figures.cli`."""

import sys

from figures.cli import main

sys.exit(main())
