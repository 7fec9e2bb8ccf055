"""docs/api.md has every public class and function of ppax."""

import re
from pathlib import Path
from types import ModuleType

import ppax

PAGE = Path(__file__).parents[2] / "docs" / "api.md"
ELSEWHERE = {"TrainState"}  # by `ppax.core.types`


def test_every_public_class_and_function_is_on_the_page():
    listed = set(re.findall(r"^::: ppax\.(\w+)$", PAGE.read_text(), re.MULTILINE))
    public = {name for name in ppax.__all__ if not isinstance(getattr(ppax, name), ModuleType)}
    assert public - listed == ELSEWHERE
