"""`python -m ppax` is the command `ppax`."""

import sys

from ppax.cli import main

if __name__ == "__main__":
    sys.exit(main())
