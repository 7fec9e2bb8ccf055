"""List of breaks: each applies to the current source, compiles, and names tests that exist."""

import ast
import functools
from pathlib import Path

import pytest

from mutation import ROOT, broken, place, sources
from mutations import MUTATIONS, Mutation


@functools.cache
def names_of(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


SOURCES = sources(ROOT)


def test_the_text_of_each_break_stands_once_in_the_source():
    for mutation in MUTATIONS:
        place(mutation, SOURCES)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_break_applies_and_compiles(mutation):
    _, text = place(mutation, SOURCES)
    changed = broken(mutation, text)
    assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(text))
    for test in mutation.tests:
        file, _, name = test.partition("::")
        assert (ROOT / file).exists()
        assert not name or name.split("[")[0] in names_of(ROOT / file), test


def test_a_missing_or_ambiguous_text_is_an_error():
    for old in ("there is no such line", "import"):
        with pytest.raises(ValueError, match="must stand once"):
            place(Mutation("", old, "", ()), SOURCES)


def test_breaks_are_many_and_distinct():
    assert len(MUTATIONS) >= 50
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS)
    assert len({(mutation.old, mutation.new, mutation.file) for mutation in MUTATIONS}) == len(MUTATIONS)
