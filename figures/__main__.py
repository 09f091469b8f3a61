"""`python -m figures`: see `figures.door`."""

import sys

from figures.door import main

sys.exit(main())
