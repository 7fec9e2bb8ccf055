"""Entries of observations by name, against lists written by hand."""

import numpy as np
import pytest

from ppax.arrays.entries import find_entries, names_of
from ppax.core.types import ConfigError

OBS = {
    "state": {"joints": np.zeros(5), "speed": np.zeros(())},
    "camera": np.zeros((4, 4)),
    "pair": (np.zeros(2), np.zeros(3)),
}
SHAPES = dict(zip(names_of(OBS), [x.shape for x in (OBS["camera"], *OBS["pair"], *OBS["state"].values())], strict=True))
EVERYTHING = slice(None)


def test_arrays_are_named_by_their_keys():
    assert names_of(OBS) == ["camera", "pair.0", "pair.1", "state.joints", "state.speed"]
    assert names_of(OBS, "/")[3] == "state/joints"
    assert names_of(np.zeros(3)) == [""]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("camera", {"camera": EVERYTHING}),
        ("state", {"state.joints": EVERYTHING, "state.speed": EVERYTHING}),
        ("pair.1", {"pair.1": EVERYTHING}),
        ("pair.1.2", {"pair.1": slice(2, 3)}),
        ("state.joints.1:4", {"state.joints": slice(1, 4)}),
    ],
)
def test_a_text_names_arrays_or_a_range_of_one(text, found):
    assert find_entries(text, SHAPES, "skip") == found


def test_a_vector_alone_has_no_name():
    assert find_entries("3", {"": (4,)}, "skip") == {"": slice(3, 4)}


@pytest.mark.parametrize(
    ("text", "shapes", "message"),
    [
        ("stat", SHAPES, "skip: no entry 'stat' in the observations; nearest: 'state.speed'"),
        ("state.joints.5", SHAPES, "skip = 'state.joints.5': there are 5 entries; nearest valid: 'state.joints.4'"),
        ("state.joints.3:2", SHAPES, "there are 5 entries"),
        ("camera.0", SHAPES, r"skip = 'camera.0': shape \(4, 4\) is no vector; name all of it, 'camera'"),
        ("x", {"": (4,)}, "no entry 'x' in the observations; nearest: '0'"),
        ("0", {"": (4, 4)}, r"shape \(4, 4\) is no vector; parts of it have no names"),
    ],
)
def test_other_texts_are_refused_with_the_nearest_valid_one(text, shapes, message):
    with pytest.raises(ConfigError, match=message):
        find_entries(text, shapes, "skip")
