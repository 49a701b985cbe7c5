"""``python -m bitlake``: the command line."""

import sys

from bitlake.cli.app import main

sys.exit(main())
