"""`python -m analyses`: see `analyses.cli`."""

import sys

from analyses.cli import main

sys.exit(main())
