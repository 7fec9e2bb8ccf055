"""docs/api.md has every public name of ppax."""

import re
from pathlib import Path

import ppax

PAGE = Path(__file__).parents[2] / "docs" / "api.md"


def test_every_public_name_is_on_the_page():
    listed = set(re.findall(r"^### ppax\.(\w+)$", PAGE.read_text(), re.MULTILINE))
    public = set(ppax.__all__)
    assert public - listed == set()
