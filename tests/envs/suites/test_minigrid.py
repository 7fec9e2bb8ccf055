"""MiniGrid and BabyAI against the library's own observations; needs the extra minigrid."""

import importlib
import json

import gymnasium
import numpy as np
import pytest

import ppax
from ppax.cli import main
from ppax.envs.suites import minigrid, minigrid_room, registry
from ppax.envs.suites.minigrid_room import WORDS, MiniGridRoom, longest_mission, numbers

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # the library's own
    pytest.mark.skipif(not registry.installed("minigrid"), reason='pip install "ppax[minigrid]"'),
]
LEFT, RIGHT, FORWARD = range(3)


def decoded(planes):
    """Grid [H, W, 3] of object, colour and state, from planes of 0 and 1."""
    return np.stack([one.argmax(-1) for one in np.split(planes, np.cumsum(minigrid_room.KINDS)[:-1], axis=-1)], axis=-1)


def text(mission):
    return " ".join(WORDS[number - 1] for number in mission if number)


@pytest.mark.parametrize("view", ["partial", "full"])
def test_observations_are_those_of_minigrid(view):
    minigrid.ids()  # registers them
    room, own = MiniGridRoom("MiniGrid-GoToDoor-5x5-v0", view), gymnasium.make("MiniGrid-GoToDoor-5x5-v0")
    if view == "full":
        own = importlib.import_module("minigrid.wrappers").FullyObsWrapper(own)
    rng = np.random.default_rng(0)
    for seed in range(3):
        (obs, _), (expected, _) = room.reset(seed=seed), own.reset(seed=seed)
        for _ in range(20):
            assert room.observation_space.contains(obs)
            np.testing.assert_array_equal(decoded(obs["image"]), expected["image"])
            assert (obs["image"].sum(-1) == 3).all()
            assert obs["direction"] == expected["direction"]
            assert text(obs["mission"]) == expected["mission"]
            action = rng.integers(3)
            obs, *mine = room.step(action)
            expected, *theirs = own.step(action)
            assert mine[:3] == theirs[:3]


def test_the_goal_terminates_and_the_limit_truncates():
    room = MiniGridRoom("MiniGrid-Empty-5x5-v0")
    room.reset(seed=0)
    *_, (_, reward, terminated, truncated, _) = [room.step(a) for a in (FORWARD, FORWARD, RIGHT, FORWARD, FORWARD)]
    assert (terminated, truncated) == (True, False)
    assert reward == pytest.approx(1.0 - 0.9 * 5 / 100)
    room = MiniGridRoom("MiniGrid-Empty-5x5-v0", max_steps=3)
    room.reset(seed=0)
    assert [room.step(LEFT)[2:4] for _ in range(3)] == [(False, False), (False, False), (False, True)]


def test_a_mission_that_never_changes_is_left_out():
    assert set(MiniGridRoom("MiniGrid-DoorKey-5x5-v0").observation_space.spaces) == {"image", "direction"}
    assert set(MiniGridRoom("MiniGrid-Fetch-5x5-N2-v0").observation_space.spaces) == {"image", "direction", "mission"}


def test_missions_as_numbers():
    assert [WORDS[i - 1] for i in numbers("open the red door, then go", 6)] == [
        "open",
        "the",
        "red",
        "door",
        "then",
        "go",
    ]
    assert numbers("go to", 4).tolist()[2:] == [0, 0]
    assert numbers("go xyzzy", 2)[1] == len(WORDS) + 1
    with pytest.raises(ValueError, match=r"mission_words = 1: .* has 2 words; nearest valid value: 2"):
        numbers("go to", 1)


def test_pictures_are_bytes():
    room = MiniGridRoom("MiniGrid-Empty-5x5-v0", "pixels")
    picture = room.reset(seed=0)[0]["image"]
    assert room.observation_space["image"] == gymnasium.spaces.Box(0, 255, (56, 56, 3), np.uint8)
    assert picture.dtype == np.uint8
    assert picture.max() > 1
    assert MiniGridRoom("MiniGrid-Empty-5x5-v0", "full_pixels").observation_space["image"].shape == (40, 40, 3)


def test_wrong_options_are_refused():
    with pytest.raises(ppax.ConfigError, match=r"view = 'all': must be one of partial, full, pixels, full_pixels"):
        ppax.make("minigrid/MiniGrid-Empty-5x5-v0", 1, env_params={"view": "all"})
    with pytest.raises(ppax.ConfigError, match=r"unexpected keyword argument 'foo'"):
        ppax.make("minigrid/MiniGrid-Empty-5x5-v0", 1, env_params={"foo": 1})
    with pytest.raises(ppax.ConfigError, match=r"mission_words = 2: .*nearest valid value"):
        ppax.make("minigrid/BabyAI-GoToRedBall-v0", 1, env_params={"mission_words": 2})


def test_worker_processes_give_the_same_observations():
    """The classes are sent by value: a worker does not import ppax."""
    seen = []
    for how in ("sync", "async"):
        with ppax.make("minigrid/MiniGrid-GoToDoor-5x5-v0", 2, vectorization=how) as env:
            env.host.reset([3, 4])
            for number, rows in enumerate(env.host.batches):
                env.host.send(number, [np.full(rows.stop - rows.start, FORWARD)])
                env.host.receive(number)
            seen.append([np.concatenate(each) for each in zip(*(one.obs for one in env.host.last), strict=True)])
    for one, other in zip(*seen, strict=True):
        assert one.any()
        np.testing.assert_array_equal(one, other)


@pytest.mark.nightly
def test_a_room_trains_in_worker_processes_from_the_command_line(tmp_path, capsys):
    options = ["--num-envs", "2", "--num-steps", "64", "--total-steps", "256", "--eval.episodes", "1", "--json"]
    options += ["--vectorization", "async", "--run-dir", str(tmp_path)]
    assert main.main(["train", "minigrid/MiniGrid-GoToDoor-5x5-v0", *options]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["episodes"] == 1


@pytest.mark.nightly
def test_words_and_lengths_of_all_missions():
    """Every word of every mission has a number, and no mission is longer than declared."""
    for env_id in minigrid.ids():
        try:
            env = gymnasium.make(env_id)
        except gymnasium.error.DependencyNotInstalled:
            continue
        length = longest_mission(env.unwrapped)
        for seed in range(10):
            words = env.reset(seed=seed)[0]["mission"].replace(",", " ").split()
            assert set(words) <= set(WORDS), env_id
            assert length == 0 or len(words) <= length, env_id
