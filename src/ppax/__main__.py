"""`python -m ppax` is the command `ppax`."""

import sys

from ppax.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
