"""`python -m analyses`: see `analyses.door`."""

import sys

from analyses.door import main

sys.exit(main())
