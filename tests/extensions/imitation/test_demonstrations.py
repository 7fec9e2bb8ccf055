"""Demonstrations: Minari's lengths, refusals with the array's name, and files that are data."""

import os

import numpy as np
import pytest
from gymnasium import spaces

from ppax.core.types import ConfigError
from ppax.extensions.imitation import demonstrations
from ppax.extensions.imitation.demonstrations import read

OBS, ACTION = spaces.Box(-np.inf, np.inf, (3,), np.float32), spaces.Discrete(4, start=2)


def arrays(**changed):
    """Two episodes of two and three steps; the observation of step t of episode e is 10 e + t."""
    rows = np.array([0.0, 1.0, 10.0, 11.0, 12.0])[:, None] + np.zeros(3)
    return {
        "observations": rows,
        "actions": np.array([2, 3, 4, 5, 2]),
        "terminations": np.array([0, 1, 0, 0, 0], bool),
        "truncations": np.array([0, 0, 0, 0, 1], bool),
    } | changed


def test_last_observations_of_episodes_have_no_action():
    longer = np.array([0.0, 1.0, 2.0, 10.0, 11.0, 12.0, 13.0])[:, None] + np.zeros(3)
    one, other = read(arrays(), OBS, ACTION), read(arrays(observations=longer), OBS, ACTION)
    np.testing.assert_array_equal(other.obs[:, 0], [0.0, 1.0, 10.0, 11.0, 12.0])
    assert one == other
    assert (one.size, one.obs.dtype, one.actions.dtype) == (5, np.float32, np.int32)


def test_an_episode_that_the_file_cuts_has_a_last_observation_too():
    open_end = {"truncations": np.zeros(5, bool)}
    longer = np.arange(7.0)[:, None] + np.zeros(3)
    np.testing.assert_array_equal(
        read(arrays(observations=longer, **open_end), OBS, ACTION).obs[:, 0], [0.0, 1.0, 3.0, 4.0, 5.0]
    )


def test_other_numbers_are_other_demonstrations():
    changed = arrays()["observations"].copy()
    changed[0, 0] = 0.5
    assert read(arrays(observations=changed), OBS, ACTION) != read(arrays(), OBS, ACTION)


def test_dict_spaces_are_arrays_by_name(tmp_path):
    space = spaces.Dict({"near": OBS, "far": spaces.Box(0, 255, (2, 2), np.uint8)})
    plain = arrays()
    near, far = plain.pop("observations"), np.arange(20, dtype=np.uint8).reshape(5, 2, 2)
    path = tmp_path / "demos.npz"
    np.savez(path, **plain, **{"observations/near": near, "observations/far": far})
    found = read(str(path), space, ACTION)
    assert found == read(plain | {"observations": {"near": near, "far": far}}, space, ACTION)
    np.testing.assert_array_equal(found.obs["far"], far)
    assert found.obs["far"].dtype == np.uint8


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"observations": np.zeros((5, 4))}, r"observations has shape \[5, 4\]; must be \[5, 3\]"),
        ({"observations": np.zeros((6, 3))}, "6 observations for 5 actions of 2 episodes; must be 5.* or 7"),
        ({"observations": np.full((5, 3), np.nan)}, "observations has a number that is not finite"),
        ({"observations": np.full((5, 3), 1e300)}, "observations has a number that is not finite in float32"),
        ({"observations": np.array(["a"] * 5)}, "observations is an array of <U1; must be one of numbers"),
        ({"actions": np.array([2, 3, 4, 5, 6])}, r"actions has the number 6; must be of Discrete\(4, start=2\)"),
        ({"actions": np.array([2.0, 3.0, 4.0, 5.0, 2.0])}, "actions is an array of float64; must be whole numbers"),
        ({"actions": np.zeros((5, 1), int)}, r"actions has shape \[5, 1\]; must be \[5\]"),
        ({"truncations": np.zeros(4, bool)}, "terminations has 5 rows, truncations 4"),
        ({"truncations": np.zeros((5, 1), bool)}, "truncations is bool .*must be one boolean a step"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(changed, said):
    with pytest.raises(ConfigError, match=said):
        read(arrays(**changed), OBS, ACTION)


def test_a_missing_array_is_named():
    with pytest.raises(ConfigError, match="has no terminations; must have observations, actions, termin"):
        read({name: x for name, x in arrays().items() if name != "terminations"}, OBS, ACTION)
    with pytest.raises(ConfigError, match=r"a list; must be the path of an .npz file, or a mapping"):
        read([arrays()], OBS, ACTION)


class Canary:
    """Object whose unpickling makes a folder."""

    def __reduce__(self):
        return os.mkdir, ("canary",)


def test_a_file_is_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("bad.npz", **arrays(observations=np.array([Canary()] * 5, object)))
    with pytest.raises(ConfigError, match=r"bad.npz': is no readable .npz file of plain arrays"):
        read("bad.npz", OBS, ACTION)
    assert not (tmp_path / "canary").exists()
    (tmp_path / "text.npz").write_text("no archive")
    with pytest.raises(ConfigError, match=r"text.npz': is no readable"):
        read("text.npz", OBS, ACTION)
    np.save("one.npy", np.zeros(3))
    with pytest.raises(ConfigError, match=r"one array; must be an .npz file"):
        read("one.npy", OBS, ACTION)
    with pytest.raises(ConfigError, match=r"none.npz': is no file"):
        read("none.npz", OBS, ACTION)


def test_a_file_may_not_unpack_to_far_more_than_it_has(tmp_path, monkeypatch):
    """Compressed arrays, refused by the sizes in the directory of the archive before one is read."""
    path = tmp_path / "demos.npz"
    np.savez_compressed(path, **arrays(observations=np.zeros((10**6, 3))))
    monkeypatch.setattr(demonstrations, "SMALL", 2**20)
    with pytest.raises(ConfigError, match=r"bytes unpack to 24,\d{3},\d{3}; must be at most 100 times .* by np.savez"):
        read(str(path), OBS, ACTION)
    np.savez(path, **arrays(observations=np.zeros((10**6, 3))))  # of a size that anyone sees
    with pytest.raises(ConfigError, match="1000000 observations for 5 actions"):
        read(str(path), OBS, ACTION)


def test_arrays_that_do_not_fit_into_memory_are_not_read(tmp_path, monkeypatch):
    path = tmp_path / "demos.npz"
    np.savez(path, **arrays())
    monkeypatch.setattr(demonstrations, "available_bytes", lambda: 1000)
    with pytest.raises(ConfigError, match=r"bytes of arrays, .* and 1,000 are free: must be at most 333"):
        read(str(path), OBS, ACTION)
    monkeypatch.setattr(demonstrations, "available_bytes", lambda: None)
    assert read(str(path), OBS, ACTION).size == 5


def test_other_arrays_of_a_file_are_not_read(tmp_path):
    np.savez(tmp_path / "demos.npz", **arrays(), infos=np.array([Canary()], object))
    assert read(str(tmp_path / "demos.npz"), OBS, ACTION) == read(arrays(), OBS, ACTION)
    np.savez(tmp_path / "demos.npz", infos=np.zeros(2))
    with pytest.raises(ConfigError, match=r"has no observations; must have .*; it has infos"):
        read(str(tmp_path / "demos.npz"), OBS, ACTION)
