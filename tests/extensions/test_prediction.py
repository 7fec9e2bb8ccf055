"""Model of the next step: the observation after each step by hand, actions as vectors, refusals."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from ppax.core.types import ConfigError, Memory, Outputs, Rollout, part
from ppax.distributions import Categorical
from ppax.extensions import NextObservation, SelfPrediction, predictions
from ppax.extensions.next_observations import following_in_episode
from ppax.extensions.predictions import Numbers, number_leaves
from ppax.networks.heads import head_for


def rollout_of(same_step):
    """Three streams of four steps; observations are 10 t + stream. Stream 1 ends in step 1, stream 2 in step 3."""
    obs = np.add.outer(10.0 * np.arange(5), np.arange(3)).astype(np.float32)[..., None]
    ended = np.zeros((4, 3), bool)
    ended[1, 1] = ended[3, 2] = True
    valid = np.ones((4, 3), bool)
    if not same_step:
        valid[2, 1] = False
    final_value = np.zeros((4, 3)) if same_step else None
    steps = SimpleNamespace(obs={"x": jnp.asarray(obs[:-1])}, valid=valid, ended=ended, final_value=final_value)
    return Rollout(steps, None, None, {"x": jnp.asarray(obs[-1])})


def test_the_observation_after_each_step_with_a_step_for_each_reset():
    """After the last step of an episode comes its final observation, which the invalid row after it has."""
    obs, known = following_in_episode(rollout_of(same_step=False))
    np.testing.assert_array_equal(known, [[1, 1, 1], [1, 1, 1], [1, 0, 1], [1, 1, 1]])
    np.testing.assert_array_equal(obs["x"][..., 0], [[10, 11, 12], [20, 21, 22], [30, 0, 32], [40, 41, 42]])


def test_nothing_is_predicted_across_a_reset_in_the_same_step():
    obs, known = following_in_episode(rollout_of(same_step=True))
    np.testing.assert_array_equal(known, [[1, 1, 1], [1, 0, 1], [1, 1, 1], [1, 1, 0]])
    np.testing.assert_array_equal(obs["x"][..., 0], [[10, 11, 12], [20, 0, 22], [30, 31, 32], [40, 41, 0]])


@pytest.mark.parametrize(
    ("space", "action", "vector"),
    [
        (spaces.Discrete(3, start=5), 1, [0, 1, 0]),
        (spaces.MultiDiscrete([2, 3]), [1, 2], [0, 1, 0, 0, 0, 1]),  # short rows are padded
        (spaces.Box(-1.0, 1.0, (2,)), [0.5, 7.0], [0.5, 1.0]),  # clipped, as the environment gets it
        (spaces.Tuple([spaces.Discrete(2), spaces.Box(-1.0, 1.0, (1,))]), (1, [-0.25]), [0, 1, -0.25]),
        (spaces.Dict({"b": spaces.Discrete(2), "a": spaces.MultiBinary(1)}), {"b": 0, "a": [1]}, [0, 1, 1, 0]),
    ],
    ids=str,
)
def test_actions_as_vectors(space, action, vector):
    head = head_for(space)
    distribution = head(jnp.zeros(head.size), jnp.zeros(head.log_std_size), None)
    action = jax.tree.map(jnp.asarray, action, is_leaf=lambda x: isinstance(x, list))
    np.testing.assert_allclose(predictions.action_vector(distribution, action), vector)


@part
class Strange:
    """Distribution of the user over whole numbers."""

    def env_action(self, action):
        return action


def test_choices_of_another_distribution_are_refused():
    with pytest.raises(ConfigError, match="the number of choices of a Strange is not known"):
        predictions.action_vector(Strange(), jnp.int32(1))


@part
class Plain:
    """Network whose features are the observation."""

    def init(self, key, num_values=1):
        return {"none": jnp.zeros(1)}

    def initial_carry(self):
        return ()

    def encode(self, params, obs):
        return {"actor": jnp.ravel(obs["x"])}

    def remember(self, params, carry, features, first):
        return Memory(carry, features)

    def decide(self, params, features, action_mask):
        return Outputs(Categorical(jnp.zeros(3)), jnp.zeros(1))


def test_sizes_of_the_models():
    space = spaces.Dict(
        {
            "x": spaces.Box(-1.0, 1.0, (2, 2)),
            "picture": spaces.Box(0, 255, (5,), np.uint8),
            "kind": spaces.Discrete(4),
        }
    )
    agent = SimpleNamespace(network=Plain())
    params = SelfPrediction(hidden=(7,)).init(agent, space, jax.random.key(0)).params
    assert params["0"]["kernel"].shape == (4 + 3, 7)
    assert params["kernel"].shape == (7, 4)
    # categories are left out
    params = NextObservation(hidden=(7,)).init(agent, space, jax.random.key(0)).params
    assert params["kernel"].shape == (7, 4 + 5)
    whole = spaces.Dict({"x": spaces.Box(-1.0, 1.0, (4,)), "count": spaces.Box(0, 10, (3,), np.int32)})
    assert NextObservation(hidden=(7,)).init(agent, whole, jax.random.key(0)).params["kernel"].shape == (7, 7)
    with pytest.raises(ConfigError, match=r"next_observation predicts numbers, and Discrete\(4\) has categories only"):
        NextObservation().init(agent, spaces.Discrete(4), jax.random.key(0))


def test_bytes_are_in_units_of_255():
    picture, kind, x = jnp.array([255, 51], jnp.uint8), jnp.int32(3), jnp.array([2.0])
    got = number_leaves(Numbers((0, 2)), {"a": picture, "b": kind, "c": x})
    np.testing.assert_allclose(jnp.concatenate(got), [1.0, 0.2, 2.0], rtol=1e-6)
