"""`python -m ppax.cli`."""

from ppax.cli.main import main

if __name__ == "__main__":
    main()
