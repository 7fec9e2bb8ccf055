"""One-line breaks of the package, each with the tests that must see it. Run them with `python tests/mutation.py`.

A break is found by its text alone, which must stand exactly once in the package (or in `file`, where it is given); so
code may move. `test_mutations.py` checks that every break still applies. Each module of `breaks/` has a list
`MUTATIONS`.
"""

import importlib
from pathlib import Path

from breaks.base import Mutation

_FILES = sorted(
    file.stem for file in (Path(__file__).parent / "breaks").glob("*.py") if file.stem not in ("__init__", "base")
)
MUTATIONS: list[Mutation] = [
    mutation for name in _FILES for mutation in importlib.import_module(f"breaks.{name}").MUTATIONS
]
