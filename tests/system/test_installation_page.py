"""docs/installation.md: its tables have every extra, and options that exist."""

import re
import tomllib
from pathlib import Path

from ppax import config
from ppax.options import ALIASES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "installation.md").read_text()


def rows(heading):
    """Cells of the table below a heading, without its head."""
    table = re.findall(r"^\|(.*)\|$", PAGE.partition(heading)[2].partition("\n## ")[0], re.MULTILINE)
    return [[cell.strip() for cell in row.split("|")] for row in table[2:]]


def test_every_extra_has_a_row():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    listed = {name for row in rows("# Installation") for name in re.findall(r"`(\w+)`", row[0])}
    assert listed == set(extras)


def test_options_beside_names_of_other_libraries_exist():
    paths = {option.path for option in config.options({})}
    named = {name for row in rows("## Names from other libraries") for name in re.findall(r"`([a-z_.]+)`", row[-1])}
    options = {name for name in named if name.startswith("agent.") or name in ("total_steps", "num_steps", "num_envs")}
    assert len(options) > 10
    assert options <= paths


def test_aliases_of_error_messages_are_in_the_table():
    """The names that an unknown option suggests by meaning: those of Stable-Baselines3 and CleanRL."""
    cells = " ".join(cell for row in rows("## Names from other libraries") for cell in row)
    for other in ("total_timesteps", "n_steps", "n_envs", "n_epochs", "update_epochs", "clip_range", "clip_coef"):
        assert f"`{other}`" in cells
        assert ALIASES[other] in cells
