"""Numbers of 64 bits reach the network as they are, or are refused: no border casts 2^32 + 7 to 7 in silence."""

import re

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import ppax
from ppax.config import Log
from ppax.core.types import ConfigError, EnvReset, EnvStep, part
from ppax.envs import EnvError, VectorEnv, host
from ppax.envs.hosting.arrays import leaves_of, number_mismatches
from ppax.extensions.imitation import demonstrations
from ppax.networks import network

LARGE = 2**32 + 7  # 7 in 32 bits
WIDE = spaces.Box(-(2**40), 2**40, (2,), np.int64)
SMALL = spaces.Box(0, 9, (2,), np.int64)


@pytest.mark.parametrize(
    ("space", "dtype"),
    [
        (SMALL, np.int32),
        (WIDE, np.float32),
        (spaces.Box(-np.inf, np.inf, (2,), np.int64), np.float32),
        (spaces.Box(0, 2**32 - 1, (2,), np.uint64), np.uint32),
        (spaces.Box(0, 2**32, (2,), np.uint64), np.float32),
        (spaces.Box(-1.0, 1.0, (2,), np.float64), np.float32),
        (spaces.Box(0, 255, (2,), np.uint8), np.uint8),
        (spaces.Box(0, 1, (0,), np.int64), np.int32),
        (spaces.Discrete(3), np.int32),
    ],
)
def test_the_dtype_in_which_a_space_is_stored(space, dtype):
    (leaf,) = leaves_of(space)
    assert leaf.dtype == dtype


@pytest.mark.parametrize(
    ("space", "given", "words"),
    [
        (SMALL, np.array([1, LARGE]), r"obs\[1\] is 4294967303; must be from -2147483648 to 2147483647"),
        (spaces.Box(-9, 9, (2,), np.int8), np.array([1, 300]), r"obs\[1\] is 300; must be from -128 to 127"),
        (spaces.Box(-9, 9, (2,), np.int8), np.array([1, 200], np.uint8), r"obs\[1\] is 200"),
        (spaces.MultiBinary(2), np.array([256, 1]), r"obs\[0\] is 256"),
        (spaces.Discrete(5), 99, r"obs is 99; must be one of the categories 0 to 4"),
        (spaces.Discrete(5, start=2), np.int64(1), r"obs is 1; must be one of the categories 2 to 6"),
        (spaces.MultiDiscrete([3, 4]), np.array([1, -7]), r"obs\[1\] is -7; must be one of the categories 0 to 3"),
        (WIDE, np.array([1, LARGE]), None),
        (SMALL, np.array([-5, 300]), None),  # outside of the bounds, and no other number
        (spaces.Discrete(5, start=2), np.uint8(6), None),
        (spaces.Discrete(2), np.True_, None),
    ],
)
def test_numbers_that_a_cast_would_change_and_unknown_categories(space, given, words):
    (leaf,) = leaves_of(space)
    found = list(number_mismatches(leaf, np.asarray(given), "obs"))
    assert len(found) == (words is not None)
    assert words is None or re.match(words, found[0]), found


class Counting(gymnasium.Env):
    """Environment whose observation is LARGE in the given space, from the second step on."""

    action_space = spaces.Discrete(2)

    def __init__(self, space=WIDE, number=LARGE):
        self.observation_space, self.number, self.steps = space, number, 0

    def _obs(self):
        shape = self.observation_space.shape
        x = np.full(shape, self.number if self.steps > 1 else 1, np.int64)
        return x if shape else int(x)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._obs(), {}

    def step(self, action):
        self.steps += 1
        return self._obs(), 1.0, self.steps == 6, False, {}


def hosted(kind, **options):
    if kind == "vector":
        one = SyncVectorEnv([lambda: Counting(**options)] * 2, autoreset_mode=AutoresetMode.NEXT_STEP)
        return host(one)
    return host(lambda: Counting(**options), num_envs=2)


def observed(env):
    """Return the observations that training sees."""
    agent = ppax.PPO(network(env, hidden=(4,)), num_epochs=1)
    run = ppax.fit(agent, env, 8, num_steps=4, log=Log(console=False))
    return np.asarray(run.state.actor.obs)


@pytest.mark.parametrize("kind", ["single", "vector"])
def test_large_whole_numbers_are_trained_on_as_float32(kind):
    with hosted(kind) as env:
        assert (observed(env) == np.float32(LARGE)).any()


@pytest.mark.parametrize("kind", ["single", "vector"])
@pytest.mark.parametrize(
    ("space", "number", "words"),
    [
        (SMALL, LARGE, r"its observation.* is 4294967303; must be from"),
        (spaces.Discrete(5), 99, "its observation.* is 99; must be one of the categories 0 to 4"),
    ],
)
def test_training_refuses_numbers_that_do_not_fit(kind, space, number, words):
    with hosted(kind, space=space, number=number) as env, pytest.raises(EnvError, match=words):
        observed(env)


@part
class Compiled:
    """Compiled environment that declares 64 bits."""

    observation_space = WIDE
    action_space = spaces.Discrete(2)
    num_agents = None

    def reset(self, key):
        return EnvReset((), jax.numpy.ones(2, int))

    def step(self, state, action, key):
        never = jax.numpy.zeros((), bool)
        return EnvStep((), jax.numpy.ones(2, int), jax.numpy.float32(0), never, never)


def test_a_compiled_environment_of_64_bits_is_refused():
    env = VectorEnv(Compiled(), 2)
    with pytest.raises(ConfigError, match=r"bounds of observation_space, int64, exceed 32 bits.*nearest valid dtype"):
        ppax.start(ppax.PPO(network(env, hidden=(4,))), env, 4, jax.random.key(0))


@pytest.mark.parametrize("seen", [True, False])
def test_categories_beyond_32_bits_are_refused_by_name(seen):
    far = spaces.Discrete(3, start=2**40)
    env = {"observation_space": far if seen else SMALL, "action_space": spaces.Discrete(2) if seen else far}
    where = "observation space" if seen else "action space"
    with pytest.raises(ConfigError, match=rf"{where} Discrete\(3, start=.*nearest valid value: start = 0"):
        network(type("Spaces", (), env), hidden=(4,))


def test_demonstrations_keep_large_whole_numbers():
    ends = np.array([False, True])
    given = {
        "observations": np.array([[1, LARGE], [2, 3]]),
        "actions": np.array([0, 1]),
        "terminations": ends,
        "truncations": ~ends & False,
    }
    read = demonstrations.read(given, WIDE, spaces.Discrete(2))
    np.testing.assert_array_equal(read.obs, given["observations"].astype(np.float32))
