"""Action masks have True or 1 for allowed actions, False or 0 for others: all else is refused."""

import contextlib
from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

import ppax
from ppax.arrays import masks
from ppax.envs import EnvError, host
from ppax.envs.hosting.arrays import MaskForm
from ppax.networks import mlp
from support.host_worlds import BOX, Maze, Spaces
from support.team_worlds import Squad

WRONG = {
    "probabilities": ([0.3, 1.0, 0.0], "0.3"),
    "nan": ([np.nan, 1.0, 0.0], "nan"),
    "additive": ([0.0, -np.inf, 0.0], "-inf"),
    "logits": (np.array([-1, 0, 1], np.int8), "-1"),
    "two": (np.array([0, 2, 1]), "2"),
}
RIGHT = [np.array([0, 1, 1], kind) for kind in (bool, np.int8, np.uint8, np.int64, np.float32)]


FORMS = {  # space, mask, flat
    "flat": (spaces.MultiDiscrete([2, 3]), [1, 0, 0, 1, 1], [1, 0, 0, 1, 1]),
    "row": (spaces.MultiDiscrete([2, 3]), np.array([[1, 0, 0, 1, 1]]), [1, 0, 0, 1, 1]),
    "tuple": (spaces.MultiDiscrete([2, 3]), ([1, 0], np.array([0, 1, 1])), [1, 0, 0, 1, 1]),
    "list": (spaces.MultiDiscrete([2, 3]), [[1, 0], [0, 1, 1]], [1, 0, 0, 1, 1]),
    "padded": (spaces.MultiDiscrete([2, 3]), [[1, 0, 0], [0, 1, 1]], [1, 0, 0, 1, 1]),
    "padded with ones": (spaces.MultiDiscrete([2, 3]), np.array([[1, 0, 1], [0, 1, 1]], np.int8), [1, 0, 0, 1, 1]),
    "equal places": (spaces.MultiDiscrete([3, 3]), [[1, 0, 1], [0, 1, 1]], [1, 0, 1, 0, 1, 1]),
    "places in a table": (
        spaces.MultiDiscrete([[2, 1], [1, 3]]),
        np.array([[[1, 0, 1], [1, 0, 0]], [[0, 1, 1], [0, 0, 1]]]),
        [1, 0, 1, 0, 0, 0, 1],
    ),
    "bits": (spaces.MultiBinary(3), [[1, 0], [0, 1], [1, 1]], [1, 0, 0, 1, 1, 1]),
    "table of bits": (spaces.MultiBinary((1, 2)), [[[1, 0], [0, 1]]], [1, 0, 0, 1]),
    "discrete": (spaces.Discrete(3, start=5), [[1, 0, 1]], [1, 0, 1]),
}
MISSHAPEN = {  # space, mask, shape in the message
    "padded and flat": (spaces.MultiDiscrete([2, 3]), [1, 0, 0, 0, 1, 1], r"has the shape \[6\]"),
    "the other way round": (spaces.MultiDiscrete([3, 3]), np.ones((3, 2)), r"has the shape \[3, 2\]"),
    "bits the other way round": (spaces.MultiBinary(3), np.ones((2, 3)), r"has the shape \[2, 3\]"),
    "parts in another order": (spaces.MultiDiscrete([2, 3]), ([1, 0, 1], [1, 1]), r"is \[3, 2\]"),
    "one number": (spaces.MultiDiscrete([2, 3]), 1, r"has the shape \[\]"),
    "nothing": (spaces.Discrete(3), None, "is NoneType"),
    "words": (spaces.Discrete(3), ["yes", "no", "no"], "is "),
}


@pytest.mark.parametrize("name", FORMS)
def test_every_form_of_a_mask_is_flattened(name):
    """On the host, in compiled environments (a batch of two streams), and where a user gives it to a policy."""
    space, mask, flat = FORMS[name]
    np.testing.assert_array_equal(MaskForm(space)(mask), np.array(flat, bool))
    if name in ("row", "discrete"):  # an axis more is a batch
        return
    parts = isinstance(mask, tuple) or name == "list"
    two = tuple(jnp.stack([jnp.array(x)] * 2) for x in mask) if parts else jnp.stack([jnp.array(mask)] * 2)
    np.testing.assert_array_equal(masks.complete(space, two, 2), np.array([flat, flat], bool))


@pytest.mark.parametrize("name", MISSHAPEN)
def test_other_forms_are_refused_before_an_action_is_drawn(name):
    space, mask, said = MISSHAPEN[name]
    with pytest.raises(
        ValueError, match=rf'info\["action_mask"\] {said}.*; the masks of {type(space).__name__}.* are '
    ):
        MaskForm(space)(mask)
    if isinstance(mask, np.ndarray | tuple):
        parts = isinstance(mask, tuple)
        two = tuple(jnp.array([x, x]) for x in mask) if parts else jnp.stack([jnp.array(mask)] * 2)
        with pytest.raises(ppax.ConfigError, match="needs"):
            masks.complete(space, two, 2)
    world = lambda: Spaces(BOX, space, mask)  # noqa: E731  # it asserts that its actions are in the space
    if mask is not None:
        report = ppax.check_env(world)
        assert report["interface"].passed, report
        assert report["masks"].passed is False
        with pytest.raises(ppax.ConfigError, match="masks: info"):
            fit(host(world, 2))


def fit(env):
    return ppax.fit(ppax.PPO(mlp(env, hidden=(8,))), env, 64, num_steps=16, log=ppax.config.Log(console=False))


@pytest.mark.parametrize("mask", [*RIGHT, [0, 1, 1], (False, True, True), (np.zeros(1, np.int8), np.ones(2))])
def test_zeros_and_ones_of_any_type_are_masks(mask):
    space = spaces.MultiDiscrete([1, 2]) if isinstance(mask, tuple) and len(mask) == 2 else spaces.Discrete(3)
    flat = MaskForm(space)(mask)
    assert flat.dtype == bool
    np.testing.assert_array_equal(flat, [False, True, True])


@pytest.mark.parametrize("name", WRONG)
def test_other_numbers_are_no_masks(name):
    mask, entry = WRONG[name]
    said = rf'info\["action_mask"\] has the entry {entry}: must be 1 or True .* 0 or False'
    for given in (mask, np.asarray(mask), tuple(np.asarray([x]) for x in mask)):
        with pytest.raises(ValueError, match=said):
            MaskForm(spaces.MultiDiscrete([1, 1, 1]))(given)
    world = lambda: Spaces(BOX, spaces.Discrete(3), np.asarray(mask))  # noqa: E731
    report = ppax.check_env(world)
    assert report["interface"].passed
    assert report["masks"].passed is False
    assert f"has the entry {entry}" in report["masks"].text
    for env in (host(world, 2), host(SyncVectorEnv([world] * 2))):
        with pytest.raises(ppax.ConfigError, match=f"masks: {said}"):
            fit(env)


class Additive(Squad):
    """Squad whose masks are added to logits."""

    def _info(self, agents):
        return {agent: {"action_mask": np.array([0.0, -np.inf], np.float32)} for agent in agents}


def test_masks_of_several_agents_are_checked():
    for options in ({}, {"vectorization": "async"}):
        with pytest.raises(ppax.ConfigError, match=r'masks: info\["action_mask"\] has the entry -inf'):
            fit(host(Additive, 2, **options))
    env = host([lambda: Squad(masks=True)] * 2 + [Additive] * 2)
    with pytest.raises(EnvError, match=r'environment 2 .*(?s:.*)info\["action_mask"\] has the entry -inf'):
        env.host.reset([0] * 4)


class LateMask(Maze):
    """Maze whose masks are right at first and additive from the fifth step on."""

    steps = 0

    def reset(self, **options):
        obs, _ = super().reset(**options)
        return obs, {"action_mask": np.ones(3, np.float32)}

    def step(self, action):
        self.steps += 1
        mask = np.array([0.0, -np.inf, 0.0], np.float32) if self.steps >= 5 else np.ones(3, np.float32)
        return (*super().step(action)[:4], {"action_mask": mask})


@pytest.mark.parametrize("how", ["group", "vector"])
def test_a_wrong_mask_of_a_later_step_is_an_environment_error(how):
    env = host(SyncVectorEnv([LateMask] * 2)) if how == "vector" else host(LateMask, 2)
    with pytest.raises(EnvError, match=r'environment 0 .*(?s:.*)info\["action_mask"\] has the entry -inf'):
        fit(env)


def test_steps_of_errors_are_counted_from_the_reset():
    """Each environment fails in its fifth step, the third after a reset of all."""
    for env in (host(LateMask, 2), host(SyncVectorEnv([LateMask] * 2))):
        for t in range(2):
            env.host.reset([0, 1])
            with pytest.raises(EnvError, match=r"step 3[,: ]") if t else contextlib.nullcontext():
                steps(env, 3 if t else 2)


def steps(env, number):
    for _ in range(number):
        env.host.send(0, [np.zeros(2, np.int64)])


def test_worker_processes_check_masks():
    env = host(partial(Spaces, BOX, spaces.Discrete(3), np.array([0.3, 1.0, 1.0])), 2, vectorization="async")
    with pytest.raises(EnvError, match=r'environment [01] .*(?s:.*)info\["action_mask"\] has the entry 0\.3'):
        env.host.reset([0, 1])
