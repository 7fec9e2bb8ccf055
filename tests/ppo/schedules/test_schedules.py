"""Schedules: values used by N updates, numbers at any depth, refused options."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from ppax import PPO, ConfigError
from ppax.extensions import RND, KLControl
from ppax.networks import mlp
from ppax.ppo.schedules import Both, Constant, Cosine, Interpolated, Linear, Steps, changed_numbers


class Spaces:
    observation_space = spaces.Box(-1.0, 1.0, (2,))
    action_space = spaces.Discrete(2)


AGENT = PPO(mlp(Spaces), learning_rate=3e-4)


def used(schedule, updates, read=lambda agent: agent.learning_rate):
    """Return the value in each update u of N: progress u / N, as in `train`, and 1000 steps per update."""
    value = jax.jit(jax.vmap(lambda u: jnp.asarray(read(schedule(AGENT, u / updates, 1000.0 * u)), jnp.float32)))
    return np.asarray(value(jnp.arange(updates)), np.float64)


def test_linear_starts_at_the_full_value_and_its_last_update_is_above_the_end():
    # N = 4: 1, 3/4, 1/2, 1/4 of 3e-4
    np.testing.assert_allclose(used(Linear(), 4), 3e-4 * np.array([1.0, 0.75, 0.5, 0.25]), rtol=1e-6)
    for updates in (1, 7, 977):
        rates = used(Linear(), updates)
        np.testing.assert_allclose(rates, 3e-4 * (1 - np.arange(updates) / updates), rtol=2e-4)
        np.testing.assert_allclose([rates[0], rates[-1]], [3e-4, 3e-4 / updates], rtol=2e-4)
        assert (rates > 0.0).all()


def test_linear_to_a_fraction():
    # from 1 to .2 in 4: 1, .8, .6, .4
    np.testing.assert_allclose(used(Linear(end=0.2), 4), 3e-4 * np.array([1.0, 0.8, 0.6, 0.4]), rtol=1e-6)


def test_cosine():
    # .5 (1 + cos(pi u / 4)): 1, .853553, .5, .146447
    np.testing.assert_allclose(used(Cosine(), 4), 3e-4 * np.array([1.0, 0.853553, 0.5, 0.146447]), rtol=1e-5)
    # .1 + .9 of that
    shares = 0.1 + 0.9 * np.array([1.0, 0.853553, 0.5, 0.146447])
    np.testing.assert_allclose(used(Cosine(end=0.1), 4), 3e-4 * shares, rtol=1e-5)


def test_constant():
    np.testing.assert_allclose(used(Constant(), 5), 3e-4, rtol=1e-6)


@pytest.mark.parametrize("schedule", [Linear, Cosine])
def test_schedules_are_constant_after_the_end(schedule):
    """Training may continue after the planned end: a rate must not become negative or rise again."""
    for progress in (1.0, 1.25, 2.0):
        assert schedule()(AGENT, jnp.float32(progress)).learning_rate == 0.0
        late = schedule(end=0.5)(AGENT, jnp.float32(progress)).learning_rate
        np.testing.assert_allclose(late, 1.5e-4, rtol=1e-6)


@pytest.mark.parametrize("schedule", [Linear, Cosine])
def test_only_named_leaves_change_at_any_depth(schedule):
    agent = schedule(("loss.clip_eps", "advantage.gae_lambda"))(AGENT, jnp.float32(0.5))
    np.testing.assert_allclose([agent.loss.clip_eps, agent.advantage.gae_lambda], [0.1, 0.475], rtol=1e-6)
    assert agent.learning_rate == 3e-4
    assert agent.vf_coef == AGENT.vf_coef
    assert jax.tree.structure(agent) == jax.tree.structure(AGENT)


def test_schedules_apply_to_the_initial_agent_and_do_not_compound():
    """Each call anneals the configured agent, so two calls give the same result."""
    schedule = Linear()
    a, b = (schedule(AGENT, jnp.float32(0.5)).learning_rate for _ in range(2))
    assert a == b


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("learning_rat", ["'learning_rat'", "PPO", "learning_rate", "gamma"]),
        ("loss.clip", ["'loss.clip'", "ClippedSurrogate", "did you mean 'loss.clip_eps'", "it has loss.clip_eps"]),
        ("loss.dual_clip", ["'loss.dual_clip' is none (off): give it a number"]),
        ("critic.value_clip", ["'critic.value_clip' is none (off): give it a number"]),
        ("num_epochs", ["'num_epochs'", "learning_rate"]),  # a size, not a number
        ("", ["learning_rate"]),
        ("loss", ["clip_eps"]),  # a part, not one of its numbers
        ("gamma.x", ["gamma"]),  # a number has no fields
    ],
)
def test_an_unknown_leaf_is_refused_with_the_choices(path, words):
    with pytest.raises(ConfigError) as error:
        Linear((path,))(AGENT, jnp.float32(0.5))
    for word in words:
        assert word in str(error.value)
    assert f"did you mean '{path}'" not in str(error.value)


def test_cosine_with_a_power_and_a_floor():
    # (.1 + .9 * [1, .853553, .5, .146447]^2)
    shares = [1.0, 0.1 + 0.9 * 0.728553, 0.1 + 0.9 * 0.25, 0.1 + 0.9 * 0.0214467]
    np.testing.assert_allclose(used(Cosine(end=0.1, exponent=2.0), 4), 3e-4 * np.array(shares), rtol=1e-5)
    late = Cosine(end=0.1, exponent=2.0)(AGENT, jnp.float32(1.0)).learning_rate
    np.testing.assert_allclose(late, 3e-5, rtol=1e-6)


def test_steps_hold_each_value_until_the_next_knot():
    schedule = Steps(at=(0.0, 0.25, 0.75), values=(3.0, 2.0, 1.0))
    np.testing.assert_allclose(used(schedule, 8), [3, 3, 2, 2, 2, 2, 1, 1])
    for progress in (1.0, 7.0):  # after the end the last value stays
        assert schedule(AGENT, jnp.float32(progress), 0.0).learning_rate == 1.0


def test_steps_and_interpolation_over_env_steps():
    # 1000 steps an update: updates 0, 1, 2 come before 3000 steps, update 3 just at it
    points = {"at": (0.0, 3000.0), "values": (1.0, 0.25), "by": "env_steps"}
    np.testing.assert_allclose(used(Steps(**points), 5), [1, 1, 1, 0.25, 0.25])
    np.testing.assert_allclose(used(Interpolated(**points), 5), [1, 0.75, 0.5, 0.25, 0.25], rtol=1e-6)
    # independent of the planned length of the run
    np.testing.assert_allclose(used(Interpolated(**points), 50)[:5], [1, 0.75, 0.5, 0.25, 0.25], rtol=1e-6)
    # 5e9 steps, beyond 32 bits
    far = Interpolated(at=(0.0, 1e10), values=(1.0, 0.0), by="env_steps")(AGENT, 0.0, jnp.float32(5e9))
    np.testing.assert_allclose(far.learning_rate, 0.5, rtol=1e-6)


def test_interpolation_between_knots():
    # rises to 4 at a quarter, falls to 2 at the half and to 0.2 at the end
    schedule = Interpolated(at=(0.0, 0.25, 0.5, 1.0), values=(0.0, 4.0, 2.0, 0.2))
    np.testing.assert_allclose(used(schedule, 8), [0, 2, 4, 3, 2, 1.55, 1.1, 0.65], rtol=1e-5)
    np.testing.assert_allclose(schedule(AGENT, jnp.float32(1.5), 0.0).learning_rate, 0.2, rtol=1e-6)


@pytest.mark.parametrize("schedule", [Steps, Interpolated])
def test_knots_set_named_leaves_only(schedule):
    agent = schedule(("ent_coef", "gamma"), values=(0.25,))(AGENT, jnp.float32(0.5), 0.0)
    assert float(agent.ent_coef) == float(agent.gamma) == 0.25
    assert agent.learning_rate == 3e-4
    assert jax.tree.structure(agent) == jax.tree.structure(AGENT)
    with pytest.raises(ConfigError, match=r"'loss\.clip' is not a number"):
        schedule(("loss.clip",))(AGENT, jnp.float32(0.5), 0.0)


@pytest.mark.parametrize("schedule", [Steps, Interpolated])
def test_knot_values_and_positions_can_be_swept(schedule):
    def rate(place, value):
        return schedule(at=(0.0, place), values=(1.0, value))(AGENT, jnp.float32(0.5), 0.0).learning_rate

    got = jax.vmap(rate)(jnp.array([0.25, 0.5]), jnp.array([3.0, 5.0]))
    np.testing.assert_allclose(got, [3.0, 5.0])


@pytest.mark.parametrize("schedule", [Steps, Interpolated])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"at": (0.0, 0.5), "values": (1.0,)}, "at has 2 entries and values has 1"),
        ({"at": (), "values": ()}, "at has 0 entries"),
        ({"at": (0.1, 0.5), "values": (1.0, 2.0)}, "must begin at 0"),
        ({"at": (0.0, 0.5, 0.5), "values": (1.0, 2.0, 3.0)}, "must rise"),
        ({"at": (0.0, 1e6), "values": (1.0, 2.0)}, 'by = "env_steps"'),
    ],
)
def test_invalid_knots_are_refused(schedule, options, words):
    part = schedule(**options)
    with pytest.raises(ConfigError, match=words):  # as in `fit`, before it compiles
        jax.eval_shape(part, AGENT, jnp.float32(0.0), jnp.float32(0.0))


@pytest.mark.parametrize(
    ("schedule", "said"),
    [
        (Steps(("gamma",), (0.0, 0.5), (0.9, 1.5)), r"schedule: agent\.gamma = 1\.5: must be at most 1; nearest"),
        (Interpolated(("loss.clip_eps",), (0.0, 0.5), (0.2, 0.0)), r"agent\.loss\.clip_eps = 0\.0: must be above 0"),
        (Interpolated(("vf_coef",), (0.0, 1.0), (0.5, -1.0)), r"agent\.vf_coef = -.*: must be at least 0; nearest"),
        (Linear(("gamma",), end=1.1), r"agent\.gamma = 1\.0.*: must be at most 1"),
        (Cosine(("extensions.rnd.gamma",), end=1.1), r"agent\.extensions\.rnd\.gamma = 1\.0.*: must be at most 1"),
        (Both(Constant(), Both(Steps(("gamma",), values=(0.6,)), Linear(("gamma",), end=2.0))), r"gamma = 1\.1999"),
    ],
)
def test_a_value_out_of_a_numbers_limits_is_refused(schedule, said):
    agent = dataclasses.replace(AGENT, schedule=schedule, extensions=(RND(),))
    with pytest.raises(ConfigError, match=said):
        agent.check()


@pytest.mark.parametrize(
    "schedule",
    [
        Linear(("learning_rate", "loss.clip_eps")),  # 0, which is not allowed, would be reached after the last update
        Cosine(("loss.clip_eps",)),
        Interpolated(("loss.clip_eps",), (0.0, 1.0), (0.2, 0.0)),
        Steps(("gamma",), (0.0, 1e5), (0.0, 1.0), by="env_steps"),
        Both(Steps(("gamma",), values=(0.4,)), Linear(("gamma",), end=2.0)),
    ],
)
def test_values_within_the_limits_are_taken(schedule):
    dataclasses.replace(AGENT, schedule=schedule).check()


@pytest.mark.parametrize("schedule", [Steps, Interpolated])
def test_knots_may_be_numpy_arrays(schedule):
    lists, arrays = ((0.0, 0.5), (1e-3, 1e-4)), (np.array([0.0, 0.5]), np.array([1e-3, 1e-4]))
    np.testing.assert_array_equal(
        used(schedule(at=arrays[0], values=arrays[1]), 8), used(schedule(("learning_rate",), *lists), 8)
    )


def test_combined_schedules_apply_in_order():
    parts = Linear(("gamma",)), Steps(("ent_coef",), values=(0.5,))
    agent = Both(*parts)(AGENT, jnp.float32(0.5), jnp.float32(0.0))
    np.testing.assert_allclose([agent.gamma, agent.ent_coef], [0.495, 0.5], rtol=1e-6)
    # the second schedule uses the result of the first: set to 8, then half of it
    agent = Both(Steps(values=(8.0,)), Both(Constant(), Linear()))(AGENT, jnp.float32(0.5), jnp.float32(0.0))
    np.testing.assert_allclose(agent.learning_rate, 4.0)


def test_annealed_numbers_do_not_recompile():
    traces = []

    @jax.jit
    def rate(schedule, progress, env_steps):
        traces.append(1)
        return schedule(AGENT, progress, env_steps).learning_rate

    for end in (0.1, 0.2):
        both = Both(Cosine(end=end, exponent=1 + end), Interpolated(("gamma",), (0.0, end), (end, 1.0)))
        rate(both, jnp.float32(end), jnp.float32(end))
    assert len(traces) == 1


def test_numbers_of_extensions_by_their_names():
    extensions = RND(coef=0.4), KLControl(target_kl=0.1), RND(coef=0.2, name="second")
    agent = dataclasses.replace(AGENT, extensions=extensions)
    halved = Linear(leaves=("extensions.second.coef", "extensions.kl_control.target_kl"))(agent, jnp.float32(0.5))
    assert [type(one) for one in halved.extensions] == [RND, KLControl, RND]
    numbers = halved.extensions[0].coef, halved.extensions[1].target_kl, halved.extensions[2].coef
    np.testing.assert_allclose(numbers, [0.4, 0.05, 0.1], rtol=1e-6)
    changed = changed_numbers(agent, halved)
    assert list(changed) == ["extensions.kl_control.target_kl", "extensions.second.coef"]
    for leaf in ("extensions.rnx.coef", "extensions.rnd", "extensions.rnd.coeff", "extensions"):
        with pytest.raises(ConfigError, match=r"not a number of .* did you mean 'extensions\.(rnd\.coef|.*)'\?"):
            Linear(leaves=(leaf,))(agent, jnp.float32(0.5))
    with pytest.raises(ConfigError, match="the agent has no extensions"):
        Linear(leaves=("extensions.rnd.coef",))(AGENT, jnp.float32(0.5))
