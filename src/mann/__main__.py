"""`python -m mann` is `mann`."""

import sys

from mann.cli import main

sys.exit(main())
