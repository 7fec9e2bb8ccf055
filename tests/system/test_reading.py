"""The reading path in docs/reading.md: its names exist, and a default iteration enters them in its order."""

import importlib
import re
import sys
from pathlib import Path

import jax

import ppax

PAGE = Path(__file__).parents[2] / "docs" / "reading.md"
ROOT = Path(ppax.__file__).parent


def stations():
    """File and names of each row of the page's table."""
    rows = re.findall(r"^\| \d+ \| `([\w/]+\.py)` \| ([^|]+) \|", PAGE.read_text(), re.MULTILINE)
    return [(file, re.findall(r"`([\w.]+)`", names)) for file, names in rows]


def entered():
    """Functions of the package by their first entry while one default iteration is traced."""
    env = ppax.make("CartPole-v1", 16)
    agent = ppax.PPO(ppax.networks.mlp(env))
    state = ppax.start(agent, env, 8, jax.random.key(0))
    found = {}

    def note(frame, event, arg):
        if event == "call" and frame.f_code.co_filename.startswith(str(ROOT)):
            file = Path(frame.f_code.co_filename).relative_to(ROOT).as_posix()
            found.setdefault((file, frame.f_code.co_qualname), len(found))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        jax.make_jaxpr(lambda state: ppax.train(agent, env, state, 1, 1))(state)
    finally:
        sys.setprofile(before)
    return found


def test_the_names_of_the_reading_path_exist():
    assert len(stations()) > 20
    for file, names in stations():
        module = importlib.import_module("ppax." + file.removesuffix(".py").replace("/", "."))
        for name in names:
            found = module
            for part in name.split("."):
                found = getattr(found, part)


def test_an_iteration_enters_the_reading_path_in_its_order():
    order = entered()
    functions = [(file, name) for file, names in stations()[1:] for name in names]  # the first row has data
    assert [one for one in functions if one not in order] == []
    places = [order[one] for one in functions]
    assert places == sorted(places)
