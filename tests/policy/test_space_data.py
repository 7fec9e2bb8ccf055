"""Spaces as JSON and back: every number, dtype and order is kept; other data is refused before memory is taken."""

import json

import numpy as np
import pytest
from gymnasium import spaces

from ppax.core.types import ConfigError
from ppax.policy import spec
from support.compositions import OBSERVATIONS
from support.worlds import SPACES

OTHERS = {
    "empty": spaces.Dict({"none": spaces.Box(0.0, 1.0, (0,)), "scalar": spaces.Box(-np.inf, 3.5, ())}),
    "order": spaces.Dict([("z", spaces.Discrete(2)), ("a", spaces.Discrete(3))]),
    "tenths": spaces.Box(np.array([0.1, -np.inf, 0.3], np.float32), np.array([0.7, 0.2, np.inf], np.float32)),
    "doubles": spaces.Box(-1e300, 0.1, (2,), np.float64),
    "longs": spaces.Box(-(2**63), 2**63 - 1, (2,), np.int64),
    "bytes": spaces.Box(np.array([[0, 255], [1, 2]], np.uint8), np.array([[0, 255], [3, 4]], np.uint8)),
    "small": spaces.Discrete(4, start=-2, dtype=np.int32),
}
EVERY = SPACES | OBSERVATIONS | OTHERS


def facts(space):
    """All numbers of a space, and its entries in order."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        inner = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        return type(space), [(name, facts(one)) for name, one in inner]
    numbers = [getattr(space, name, None) for name in ("n", "start", "nvec", "low", "high")]
    lists = [x.tolist() if isinstance(x, np.ndarray | np.generic) else x for x in numbers]
    return type(space), space.shape, space.dtype, lists


@pytest.mark.parametrize("space", EVERY.values(), ids=EVERY)
def test_a_space_is_the_same_after_json(space):
    text = json.dumps(spec.space_to_data(space), allow_nan=False)
    again = spec.space_from_data(json.loads(text))
    assert facts(again) == facts(space)
    assert again == space


def test_equal_bounds_are_one_number():
    assert len(json.dumps(spec.space_to_data(spaces.Box(0, 255, (84, 84, 4), np.uint8)))) < 120


BOX = {"space": "Box", "shape": [2], "dtype": "float32", "low": 0.0, "high": 1.0}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (None, "must be a table"),
        ([], "must be a table"),
        ({}, "must be Box, Discrete"),
        ({"space": "os.system"}, "must be Box, Discrete"),
        (BOX | {"shape": [2**40, 2**40]}, "at most"),
        (BOX | {"shape": [-1]}, "at most"),
        (BOX | {"shape": "ab"}, "not a space"),
        (BOX | {"dtype": "object"}, "must be one of"),
        (BOX | {"dtype": ["float32"]}, "must be one of"),
        (BOX | {"low": [0.0, 1.0, 2.0]}, "not a space"),
        (BOX | {"low": "__import__('os')"}, "not a space"),
        (BOX | {"low": 2.0}, "not a space"),
        ({"space": "Discrete", "n": 0, "start": 0, "dtype": "int64"}, "not a space"),
        ({"space": "Discrete", "start": 0, "dtype": "int64"}, "not a space"),
        ({"space": "MultiDiscrete", "nvec": [2**80], "start": [0], "dtype": "int64"}, "not a space"),
        ({"space": "MultiBinary", "n": [2**62]}, "at most"),
        ({"space": "Dict", "spaces": [1]}, "not a space"),
        ({"space": "Dict", "spaces": {"a": {"space": "Nothing"}}}, r"space\['a'\]"),
        ({"space": "Tuple", "spaces": 3}, "not a space"),
    ],
)
def test_other_data_is_refused(data, words):
    with pytest.raises(ConfigError, match=words):
        spec.space_from_data(data)


def test_deep_nesting_is_refused():
    data = BOX
    for _ in range(2000):
        data = {"space": "Tuple", "spaces": [data]}
    with pytest.raises(ConfigError, match="at most 16 deep"):
        spec.space_from_data(data)


def test_unknown_spaces_have_no_data():
    with pytest.raises(ConfigError, match="Text"):
        spec.space_to_data(spaces.Text(3))


def test_all_spaces_together_are_small():
    """Each of them fits, and all together would take gigabytes."""
    one = BOX | {"shape": [2**22]}
    with pytest.raises(ConfigError, match=r"at most 4,096 spaces, of together at most 16,777,216 numbers"):
        spec.space_from_data({"space": "Tuple", "spaces": [one] * 8})
    with pytest.raises(ConfigError, match=r"at most 4,096 spaces"):
        spec.space_from_data({"space": "Dict", "spaces": {str(i): {"space": "Discrete"} for i in range(5000)}})
