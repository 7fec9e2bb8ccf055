"""Type of a break: one replaced text, and the tests that must fail because of it."""

from typing import NamedTuple


class Mutation(NamedTuple):
    name: str
    old: str
    new: str
    tests: tuple[str, ...]  # node ids
    file: str = ""  # end of the path; "": anywhere in the package
