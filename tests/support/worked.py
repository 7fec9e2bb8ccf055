"""The worked parts of docs/extending.md as a package of modules, one for each."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"
MODULES = {  # heading, number of the block below it
    "adv": ("Advantage estimator", 0),
    "memory": ("Memory", 0),
    "differences": ("Memory", 1),
    "loss": ("Loss", 0),
    "extension": ("An extension", 0),
    "worlds": ("Environment suite", 0),
    "minibatch": ("Minibatches", 0),
    "log": ("Logger", 1),
    "laplace": ("Distribution with its head", 0),
}
EXTRA = '''

from ppax.envs import TimeLimit as _Limit
from ppax.protocols import ConditionState


def short():
    """A walk of 6 places, with a picture of it."""
    return _Limit(Seen(6), 12)


@part
class Seen(Walk):
    """A walk that can be drawn."""

    def render(self, state):
        import numpy as np

        picture = np.zeros((8, 8 * self.length, 3), np.uint8)
        picture[:, 8 * int(state.place) : 8 * int(state.place) + 8] = 255
        return picture


class Late:
    """A condition that is met after a million rows."""

    metrics = ()

    def update(self, before, state, row):
        return ConditionState(before.rows > 10**6, "late", rows=before.rows + 1)
'''


def block(heading: str, place: int) -> str:
    """A block of the page, without the lines that train."""
    text = PAGE.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].partition("\n## ")[0]
    code = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[place]
    return code.split("\n\n\nenv = ")[0].split("\n\n\nprint(")[0] + "\n"


def write(folder: Path, name: str = "my_parts") -> Path:
    """Write the package into `folder`."""
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").write_text('"""Parts of a user."""\n')
    for module, where in MODULES.items():
        text = block(*where) + (EXTRA if module == "worlds" else "")
        (folder / name / f"{module}.py").write_text(text, encoding="utf-8")
    return folder
