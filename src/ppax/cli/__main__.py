"""Command line of ppax as a module: `python -m ppax.cli`."""

import sys

from ppax.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
