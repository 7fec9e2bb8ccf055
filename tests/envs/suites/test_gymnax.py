"""Adapter of gymnax, for the installed release."""

import collections
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import ppax
from ppax.envs import VectorEnv
from ppax.envs.builtin import CartPole
from ppax.envs.builtin.cartpole import CartPoleState

pytest.importorskip("gymnax")

import gymnax
from gymnax.environments import spaces as gymnax_spaces

from ppax.checks import environment
from ppax.core.types import ConfigError
from ppax.envs.suites.gymnax import Gymnax, _make, load

# warnings of gymnax 0.0.9 itself: 64-bit integers, floats scattered into integers
pytestmark = [
    pytest.mark.filterwarnings("ignore:Explicitly requested dtype:UserWarning"),
    pytest.mark.filterwarnings("ignore:scatter inputs have incompatible types:FutureWarning"),
]

IDS = [
    "CartPole-v1",
    "Acrobot-v1",
    "MountainCar-v0",
    "MountainCarContinuous-v0",
    "Pendulum-v1",
    "Breakout-MinAtar",
    "MemoryChain-bsuite",
    "FourRooms-misc",
    "Catch-bsuite",
    "DiscountingChain-bsuite",
]


@jax.jit
def step(env, state, action, key):
    return env.step(state, action, key)


def rollout(env, action, limit):
    """Return the steps of one episode with a constant action, up to its end or `limit` steps."""
    state, steps = jax.jit(env.reset)(jax.random.key(0)).state, []
    for i in range(limit):
        steps.append(step(env, state, action, jax.random.key(i)))
        state = steps[-1].state
        if steps[-1].terminated | steps[-1].truncated:
            break
    return steps


@pytest.mark.parametrize("env_id", IDS)
def test_conforms(env_id):
    env, key = load(env_id), jax.random.key(0)
    env.action_space.seed(0)
    action = np.asarray(env.action_space.sample())
    start = jax.eval_shape(env.reset, key)
    after = jax.eval_shape(env.step, start.state, action, key)
    avals = jax.tree.map(lambda x: (x.shape, x.dtype, x.weak_type), [(x.state, x.obs) for x in (start, after)])
    assert avals[0] == avals[1]
    assert not any(x.weak_type for x in jax.tree.leaves((start, after)))
    assert (after.reward.shape, after.reward.dtype) == ((), jnp.float32)
    for flag in (after.terminated, after.truncated):
        assert (flag.shape, flag.dtype) == ((), jnp.bool_)
    assert env.num_agents is None


@pytest.mark.parametrize("env_id", IDS)
def test_runs_in_a_scan_within_its_spaces(env_id):
    env = load(env_id)
    env.action_space.seed(0)
    actions = np.stack([np.stack([env.action_space.sample() for _ in range(4)]) for _ in range(30)])

    def scan(state, action):
        after = jax.vmap(env.step)(state, action, jax.random.split(jax.random.key(1), 4))
        return after.state, after.obs

    starts = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), 4))
    _, obs = jax.jit(lambda state: jax.lax.scan(scan, state, actions))(starts.state)
    for one in [*np.asarray(starts.obs), *np.asarray(obs).reshape(-1, *obs.shape[2:])]:
        assert one.dtype == env.observation_space.dtype
        assert env.observation_space.contains(one), one


def test_resets_differ():
    env = load("CartPole-v1")
    obs = jax.jit(jax.vmap(lambda key: env.reset(key).obs))(jax.random.split(jax.random.key(2), 64))
    assert len(np.unique(obs, axis=0)) == 64


def test_actions_have_gymnax_bounds():
    assert load("Acrobot-v1").action_space.n == 3
    box = load("Pendulum-v1").action_space
    assert (box.low, box.high, box.shape, box.dtype) == (-2, 2, (1,), np.float32)


def test_time_limit_is_a_truncation():
    steps = rollout(load("MountainCar-v0"), 1, 300)  # without force the car stays in the valley
    assert len(steps) == 200
    assert not steps[-1].terminated
    assert steps[-1].truncated


def test_end_on_the_last_allowed_step_is_a_termination():
    env = load("CartPole-v1")
    fall = rollout(env, 1, 500)
    assert len(fall) < 20
    last = rollout(type(env)(env.env, len(fall)), 1, 500)[-1]
    assert last.terminated
    assert last.truncated
    cut = rollout(type(env)(env.env, len(fall) - 1), 1, 500)[-1]
    assert not cut.terminated
    assert cut.truncated


def test_final_observation_is_not_that_of_the_reset():
    fall = rollout(load("CartPole-v1"), 1, 500)
    # pushed to one side throughout, the pole falls to the other
    assert fall[-1].obs[2] < -12 * 2 * np.pi / 360
    inner = fall[-1].state.inner
    np.testing.assert_array_equal(fall[-1].obs, [inner.x, inner.x_dot, inner.theta, inner.theta_dot])


def test_builtin_cartpole_equals_that_of_gymnax():
    env = load("CartPole-v1")
    theirs = env.reset(jax.random.key(3)).state
    inner = theirs.inner
    ours = CartPoleState(inner.x, inner.x_dot, inner.theta, inner.theta_dot)
    for action in (0, 1, 1, 0, 1):
        a = step(env, theirs, action, jax.random.key(0))
        b = step(CartPole(), ours, action, jax.random.key(0))
        theirs, ours = a.state, b.state
        np.testing.assert_allclose(a.obs, b.obs, atol=1e-6)
        assert (a.reward, a.terminated) == (b.reward, b.terminated)


def test_observed_time_is_a_fraction_of_the_actual_limit():
    steps = rollout(load("DiscountingChain-bsuite"), 0, 200)
    assert len(steps) == 100
    np.testing.assert_allclose([s.obs[1] for s in steps], np.arange(1, 101) / 100, rtol=1e-6)
    assert not steps[-1].terminated


def test_two_loads_share_one_compilation():
    traces = []

    @jax.jit
    def first_obs(env):
        traces.append(env)
        return env.reset(jax.random.key(0)).obs

    for _ in range(2):
        first_obs(load("CartPole-v1"))
    assert len(traces) == 1
    assert load("DeepSea-bsuite", size=4).env.env is not load("DeepSea-bsuite", size=5).env.env


def test_numbers_are_leaves_that_vmap_sweeps():
    env = load("CartPole-v1").env

    def speed(force):
        swept = Gymnax(env.params.replace(force_mag=force), env.env)
        return swept.step(swept.reset(jax.random.key(0)).state, 1, jax.random.key(0)).obs[1]

    assert (jnp.diff(jax.vmap(speed)(jnp.array([1.0, 5.0, 20.0]))) > 0).all()


def test_spaces_are_known_while_tracing():
    @jax.jit
    def size(env):
        return jnp.array([env.observation_space.shape[0], env.action_space.n])

    assert size(load("CartPole-v1")).tolist() == [4, 2]


def test_missing_gymnax_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnax", None)
    with pytest.raises(ImportError, match=r"ppax\[gymnax\]"):
        _make.__wrapped__("CartPole-v1")


def test_unknown_id_is_refused():
    with pytest.raises(ConfigError, match="did you mean 'gymnax/CartPole-v1'"):
        load("Kartpole-v1")


class Nested:
    """gymnax environment with nested spaces."""

    @property
    def default_params(self):
        return {"bonus": 1.0}

    def observation_space(self, params):
        box = gymnax_spaces.Box(0.0, 1.0, (2,), jnp.float32)
        return gymnax_spaces.Dict({"eyes": gymnax_spaces.Tuple((box, gymnax_spaces.Discrete(5))), "ears": box})

    def action_space(self, params):
        box = gymnax_spaces.Box(-1.0, 1.0, (1,), jnp.float32)
        return gymnax_spaces.Dict({"walk": gymnax_spaces.Discrete(3), "turn": box})

    def _obs(self, time):
        return collections.OrderedDict(eyes=(jnp.zeros(2), time % 5), ears=jnp.full(2, 0.5))

    def reset_env(self, key, params):
        return self._obs(jnp.int32(0)), jnp.int32(0)

    def step_env(self, key, state, action, params):
        reward = params["bonus"] * action["walk"] + action["turn"][0]
        return self._obs(state + 1), state + 1, reward, state >= 3, {}


@pytest.mark.usefixtures("vmapped_keys")
def test_spaces_within_spaces_are_converted_and_trained_on():
    env = VectorEnv(Gymnax(Nested().default_params, Nested()), 4)
    box = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    assert env.observation_space == spaces.Dict({"eyes": spaces.Tuple((box, spaces.Discrete(5))), "ears": box})
    assert env.action_space == spaces.Dict({"walk": spaces.Discrete(3), "turn": spaces.Box(-1.0, 1.0, (1,))})
    found = environment.check_shapes(env, jax.random.key(0))
    assert found.passed, found.text
    agent = ppax.PPO(ppax.networks.mlp(env, hidden=(8,)), minibatch=ppax.minibatches.Shuffle(1))
    state = ppax.start(agent, env, 8, jax.random.key(0))
    out = jax.jit(ppax.train, static_argnames="num_iterations")(agent, env, state, num_iterations=1)
    assert out.metrics["episode_length"] == 4


def action_bounds(name, **options):
    space = ppax.make(name, 2, **options).action_space
    return space.low.tolist(), space.high.tolist()


@pytest.mark.parametrize(
    ("name", "params", "low", "high"),
    [
        ("gymnax/Pendulum-v1", {"max_torque": 8.0}, [-8.0], [8.0]),
        ("gymnax/Pendulum-v1", {"max_torque": {"low": 1.0, "high": 4.0}, "g": 9.0}, [-4.0], [4.0]),
        ("gymnax/MountainCarContinuous-v0", {"min_action": -3.0}, [-3.0], [1.0]),
        ("gymnax/PointRobot-misc", {"max_force": 0.5}, [-0.5, -0.5], [0.5, 0.5]),
        ("gymnax/Pendulum-v1", {"g": 9.0}, [-2.0], [2.0]),
    ],
)
def test_action_spaces_follow_the_parameters(name, params, low, high):
    assert action_bounds(name, env_params=params) == (low, high)
    env, _ = gymnax.make(name.partition("/")[2])
    if not any(isinstance(x, dict) for x in params.values()):  # gymnax itself says the same
        space = env.action_space(env.default_params.replace(**params))
        np.testing.assert_array_equal(np.broadcast_to(space.high, space.shape), high)


def test_action_spaces_hold_what_a_schedule_reaches():
    schedule = ppax.schedules.Linear(("env.max_torque",), end=3.0)
    assert action_bounds("gymnax/Pendulum-v1", schedule=schedule) == ([-6.0], [6.0])


def test_a_trained_policy_keeps_its_actions_where_another_value_is_tried():
    env = ppax.make("gymnax/Pendulum-v1", 2, env_params={"max_torque": {"low": 1.0, "high": 4.0}})
    from ppax.envs import other_params

    weaker = other_params(env, {"max_torque": 1.0})
    assert weaker.action_space == env.action_space
    assert float(weaker.env.env.params.max_torque) == 1.0


def test_spaces_with_parameters_are_known_while_tracing():
    env = ppax.make("gymnax/Pendulum-v1", 2, env_params={"max_torque": 8.0})
    found = []
    jax.jit(lambda env: found.append(env.action_space.high[0]) or 0)(env)
    assert found == [8.0]


def test_other_parameters_compile_no_program_of_their_own():
    one, other = (ppax.make("gymnax/Pendulum-v1", 2, env_params={"g": g}) for g in (9.0, 10.0))
    assert jax.tree.structure(one) == jax.tree.structure(other)


@pytest.mark.parametrize("kind", [list, tuple])
def test_lists_among_options_are_tuples_for_the_library(kind):
    """Environments are kept by their options, which must be hashable; a run file has lists."""
    ice = ppax.make("gymnax/FrozenLake-misc", 2, env_params={"desc": kind(("SFF", "FFF", "FFG"))})
    assert ice.observation_space == spaces.Discrete(9)
    assert env_object(ice) is env_object(
        ppax.make("gymnax/FrozenLake-misc", 2, env_params={"desc": ("SFF", "FFF", "FFG")})
    )


def env_object(env):
    return env.env.env.env


def test_the_error_of_a_constructor_has_its_own_cause():
    with pytest.raises(ConfigError, match=r"^unknown option 'env_params\.slipery'; did you mean"):
        ppax.make("gymnax/FrozenLake-misc", 2, env_params={"is_slippery": False, "slipery": True})
    with pytest.raises(ConfigError, match=r"^env_params of gymnax/FrozenLake-misc: unhashable type: 'dict'"):
        ppax.make("gymnax/FrozenLake-misc", 2, env_params={"desc": {"a": "SFG"}})


def test_parameters_without_a_time_limit():
    class Limitless(gymnax.environments.classic_control.cartpole.CartPole):
        @property
        def default_params(self):
            return types.SimpleNamespace(gravity=9.8)

        def is_terminal(self, state, params):
            return jnp.abs(state.x) > params.gravity

    gymnax.register("Limitless-v0", Limitless)
    made = _make("Limitless-v0")
    state = types.SimpleNamespace(x=jnp.array(9.9), time=0)
    assert made.is_terminal(state, made.default_params)
