"""Conformance of every adapter: declared spaces equal actual observations, compiled, batched, at resets and ends.

`pytest -m "nightly or not nightly" tests/envs/suites/test_conformance_suites.py` runs
all of it, with what is installed.
"""

import dataclasses
import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax.checks import environment
from ppax.envs import TimeLimit
from ppax.envs.suites import registry
from ppax.envs.vector import VectorEnv
from ppax.envs.wrappers.wrapper import render

NIGHTLY = pytest.mark.nightly
# Suites reuse keys, promote ranks and warn themselves
pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.usefixtures("lenient"),
]

# One of each kind: vectors, pixels, dicts, masks, several agents. Those that run in CI come first.
NAMES = [
    "gymnax/Breakout-MinAtar",
    "jumanji/Snake-v1",
    "jumanji/Tetris-v0",  # a joint mask of several components
    "jumanji/Connector-v3",  # masks and rewards of several agents
    "navix/Navix-Empty-5x5-v0",
    "jaxmarl/MPE_simple_spread_v3",
    "pgx/tic_tac_toe",  # players in turn, with masks
    pytest.param("jaxmarl/MPE_simple_tag_v3", marks=NIGHTLY),  # agents with different spaces
    pytest.param("jaxmarl/MPE_simple_speaker_listener_v4", marks=NIGHTLY),  # and different action spaces
    pytest.param("brax/spring/inverted_pendulum", marks=NIGHTLY),
    pytest.param("brax/ant", marks=NIGHTLY),
    pytest.param("playground/CartpoleBalance", marks=NIGHTLY),
    pytest.param("craftax/Craftax-Classic-Symbolic-v1", marks=NIGHTLY),
    pytest.param("jumanji/MultiCVRP-v0", marks=NIGHTLY),  # a nested observation
    pytest.param("jumanji/SearchAndRescue-v0", marks=NIGHTLY),  # Box actions
    pytest.param("jumanji/RubiksCube-v0", marks=NIGHTLY),  # MultiDiscrete without a mask
    pytest.param("navix/Navix-DoorKey-Random-6x6-v0", marks=NIGHTLY),
    pytest.param("pgx/backgammon", marks=NIGHTLY),  # chance in steps, a player may move twice
    pytest.param("pgx/minatar-breakout", marks=NIGHTLY),
    pytest.param("xminigrid/MiniGrid-DoorKey-5x5", marks=NIGHTLY),
    pytest.param("popgym_arcade/CartPoleEasy", marks=NIGHTLY),  # pictures
    pytest.param("jaxmarl/HeuristicEnemySMAX", marks=NIGHTLY),  # masks, agents that terminate early
    pytest.param("jaxmarl/hanabi", marks=NIGHTLY),  # another name for masks, a shape given as a number
]


@pytest.fixture
def lenient():
    with jax.debug_key_reuse(False), jax.numpy_rank_promotion("allow"):
        yield


def make(name, num_envs=4):
    suite = name.split("/")[0]
    if not registry.installed(suite):
        pytest.skip(f'{suite} is not installed: pip install "ppax[{suite}]"')
    return ppax.make(name, num_envs)


def some_action(env, rng):
    """Return a sampled action for every stream, [B, ...], or for each group of agents."""

    def some(space, rows):
        space.seed(int(rng.integers(2**31)))
        return jax.tree.map(lambda *x: np.stack(x), *(space.sample() for _ in range(rows)))

    groups = {name: some(one.action_space, env.num_envs * one.num_agents) for name, one in env.groups.items()}
    return groups or some(env.action_space, env.num_streams)


def assert_inside(space, obs, rows):
    """Assert that observations [T, rows, ...] are in `space`."""
    for t in range(jax.tree.leaves(obs)[0].shape[0]):
        for row in range(rows):
            one = jax.tree.map(lambda x, t=t, b=row: np.asarray(x[t, b]), obs)
            assert space.contains(one), one


@pytest.mark.parametrize("name", NAMES)
def test_conforms(name):
    env, key = make(name), jax.random.key(0)
    for check in (
        environment.check_protocol,
        environment.check_types,
        environment.check_shapes,
        environment.check_repeats,
    ):
        found = check(env, key)
        assert found.passed, found.text
    assert environment.check_declared(env).passed
    resets = environment.check_resets(env, key)
    assert resets.passed is not False, resets.text


@pytest.mark.parametrize("name", NAMES)
def test_a_compiled_rollout_stays_in_its_spaces(name):
    env, steps = make(name), 40
    actions = [some_action(env, np.random.default_rng(t)) for t in range(steps)]
    actions = jax.tree.map(lambda *x: np.stack(x), *actions)

    def scan(state, now):
        action, key = now
        out = env.step(state, action, key)
        return out.state, out._replace(state=())

    def play(key):
        state, obs, mask = env.reset(key)
        return obs, mask, jax.lax.scan(scan, state, (actions, jax.random.split(key, steps)))[1]

    first, mask, seen = jax.jit(play)(jax.random.key(1))
    structure = jax.tree.structure(first)
    assert jax.tree.structure(seen.obs) == structure
    for name, one in env.groups.items():
        assert_inside(one.observation_space, seen.obs[name], env.num_envs * one.num_agents)
    if not env.groups:
        assert_inside(env.observation_space, seen.obs, env.num_streams)
    assert np.isfinite(seen.reward).all()
    assert seen.reward.dtype == jnp.float32
    if mask is not None:
        assert mask.dtype == bool
        own = mask.reshape(env.num_envs, -1)  # of the players of a game those who wait have none
        assert (own if name.startswith("pgx") else mask).any(axis=-1).all()  # the first allows an action


@pytest.mark.parametrize("name", NAMES)
def test_a_policy_trains(name):
    """One iteration compiles and runs: networks, heads and masks fit the spaces."""
    env = make(name, 2)

    def ppo(part):
        return ppax.PPO(ppax.networks.mlp(part, hidden=(8,)), minibatch=ppax.minibatches.Shuffle(1), num_epochs=1)

    groups = {name: ppo(part) for name, part in env.groups.items()}
    agent = ppax.Groups(groups, env.sizes) if groups else ppo(env)
    state = ppax.start(agent, env, 4, jax.random.key(0))
    out = jax.jit(ppax.train, static_argnames="num_iterations")(agent, env, state, num_iterations=1)
    floats = [x for x in jax.tree.leaves(out.state.learner) if jnp.issubdtype(x.dtype, jnp.floating)]
    assert floats
    assert all(np.isfinite(x).all() for x in floats)


# ---------------------------------------------------------------- ends


def play_on(env, act, key, limit=64):
    """Step one environment to its end or for `limit` steps; return all steps."""
    begin = jax.jit(env.reset)(key)
    step, state, seen = jax.jit(env.step), begin.state, []
    for t in range(limit):
        out = step(state, act(t), jax.random.fold_in(key, t))
        seen.append(out)
        state = out.state
        if np.any(out.terminated | out.truncated):
            break
    return seen


def limited(env, steps):
    return dataclasses.replace(env, max_steps=steps)


def test_brax_fall_terminates_and_limit_truncates():
    env = make("brax/spring/inverted_pendulum").env
    fall = play_on(env, lambda t: np.ones(1, np.float32), jax.random.key(0))
    assert 1 < len(fall) < 64
    assert fall[-1].terminated
    assert not fall[-1].truncated
    assert abs(fall[-1].obs[1]) > 0.2  # fallen, where resets give +- 0.01
    cut = play_on(limited(env, 3), lambda t: np.zeros(1, np.float32), jax.random.key(0))
    assert [bool(x.truncated) for x in cut] == [False, False, True]
    assert not cut[-1].terminated


def test_brax_timeout_is_a_truncation_if_configured():
    make("brax/spring/inverted_pendulum")
    env = importlib.import_module("ppax.envs.suites.brax").load("spring/inverted_pendulum", time_out_truncates=True)
    fall = play_on(env, lambda t: np.ones(1, np.float32), jax.random.key(0))
    assert fall[-1].truncated
    assert not fall[-1].terminated


@pytest.mark.nightly
def test_brax_step_does_not_change_its_input_state():
    env = make("brax/ant").env
    begin = jax.jit(env.reset)(jax.random.key(0)).state
    before = dict(begin.inner.metrics)
    jax.eval_shape(env.step, begin, np.zeros(8, np.float32), jax.random.key(0))
    assert all(begin.inner.metrics[name] is x for name, x in before.items())


def test_jumanji_terminates_with_the_final_observation():
    env = make("jumanji/Snake-v1").env
    crash = play_on(env, lambda t: 0, jax.random.key(0))  # up, into the wall
    assert crash[-1].terminated
    assert not crash[-1].truncated
    assert crash[-1].obs["step_count"] == len(crash)  # a first observation has 0


def test_jumanji_time_limit_is_a_truncation():
    make("jumanji/Snake-v1")
    env = importlib.import_module("ppax.envs.suites.jumanji").load("LevelBasedForaging-v0", time_limit=3)
    cut = play_on(env, lambda t: np.zeros(2, np.int32), jax.random.key(0))
    assert [bool(x.truncated) for x in cut] == [False, False, True]
    assert not cut[-1].terminated


def test_jumanji_joint_mask_allows_legal_actions_only():
    env = make("jumanji/Minesweeper-v0").env
    begin = env.reset(jax.random.key(0))
    assert begin.action_mask.shape == (100,)
    assert begin.action_mask.all()
    after = jax.jit(env.step)(begin.state, 37, jax.random.key(0))
    assert not after.action_mask[37]  # row 3, column 7 has been opened
    assert after.action_mask.sum() == 99
    assert after.obs["board"][3, 7] != begin.obs["board"][3, 7]


def test_navix_goal_terminates_and_limit_truncates():
    make("navix/Navix-Empty-5x5-v0")
    load = importlib.import_module("ppax.envs.suites.navix").load
    forward, right = 2, 1
    way = [forward, forward, right, forward, forward]
    goal = play_on(load("Navix-Empty-5x5-v0"), lambda t: way[t], jax.random.key(0), len(way))
    assert len(goal) == 5
    assert goal[-1].terminated
    assert not goal[-1].truncated
    assert goal[-1].reward > 0
    assert goal[-1].state.t == 5  # not reset inside
    cut = play_on(load("Navix-Empty-5x5-v0", max_steps=3), lambda t: 0, jax.random.key(0))
    assert [bool(x.truncated) for x in cut] == [False, False, True]
    assert not cut[-1].terminated


def test_jaxmarl_limit_is_a_truncation_for_every_agent():
    env = make("jaxmarl/MPE_simple_spread_v3").env
    assert isinstance(env, TimeLimit)
    cut = play_on(env, lambda t: np.zeros(3, np.int32), jax.random.key(0))
    assert len(cut) == env.max_steps == 25
    assert not cut[-1].terminated.any()
    steps = VectorEnv(limited(env, 2), 2)
    state, _, _ = steps.reset(jax.random.key(0))
    for _ in range(2):
        out = steps.step(state, np.zeros(6, np.int32), jax.random.key(1))
        state = out.state
    assert out.truncated.tolist() == [True] * 6


@pytest.mark.nightly
def test_jaxmarl_world_state_is_the_central_critics_input():
    env = ppax.make("jaxmarl/HeuristicEnemySMAX", 2, central_critic=True) if registry.installed("jaxmarl") else None
    if env is None:
        pytest.skip('jaxmarl is not installed: pip install "ppax[jaxmarl]"')
    _, obs, _ = env.reset(jax.random.key(0))
    state = env.env.env.env.env.reset(jax.random.split(jax.random.key(0), 2)[1])[0]["world_state"]
    size = env.observation_space["joint"].shape[0]
    assert obs["joint"].shape == (env.num_streams, size)
    assert size == state.size
    np.testing.assert_array_equal(obs["joint"][-1], state)


def test_jaxmarl_agents_with_different_spaces_are_groups():
    env = make("jaxmarl/MPE_simple_speaker_listener_v4")
    assert env.sizes == (("speaker", 1), ("listener", 1))
    assert [int(group.action_space.n) for group in env.groups.values()] == [3, 5]
    assert [group.observation_space.shape for group in env.groups.values()] == [(3,), (11,)]


@pytest.mark.nightly
def test_craftax_death_terminates_and_limit_truncates():
    env = make("craftax/Craftax-Classic-Symbolic-v1").env
    assert env.max_steps == 10_000
    begin = jax.jit(env.reset)(jax.random.key(0))
    step = jax.jit(env.step)
    dying = begin.state._replace(inner=begin.state.inner.replace(player_health=0))
    dead = step(dying, 0, jax.random.key(0))
    assert dead.terminated
    assert not dead.truncated
    assert dead.state.inner.timestep == 1  # not reset by the environment
    late = begin.state.inner.replace(timestep=begin.state.inner.timestep + 10_000)
    assert not step(begin.state._replace(inner=late), 0, jax.random.key(0)).terminated  # its own limit is lifted
    cut = step(begin.state._replace(elapsed=jnp.int32(9_999)), 0, jax.random.key(0))
    assert cut.truncated
    assert not cut.terminated


@pytest.mark.parametrize(
    "name", ["navix/Navix-Empty-5x5-v0", pytest.param("craftax/Craftax-Classic-Symbolic-v1", marks=NIGHTLY)]
)
def test_suites_with_rendering_can_be_rendered(name):
    env = make(name).env
    begin = jax.jit(env.reset)(jax.random.key(0)).state
    picture = render(env, begin)
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 3
    turned = jax.jit(env.step)(begin, 1, jax.random.key(0)).state
    assert (render(env, turned) != picture).any()


# ---------------------------------------------------------------- all environments

UNLIKE = {
    "downloads": ("MNISTBandit-bsuite", "Sokoban-v0"),
    "needs what we lack": ("LearnedPolicyEnemySMAX", "ant_4x2", "fast"),
    "fails in brax itself with this JAX": ("swimmer",),
    "agents without names, or observations of several arrays": ("storm", "storm_2p", "storm_np"),
}
DOWNLOADS = "XLand-"  # rooms whose rules are downloaded
NEEDS = ("JaxRobotarium", "downloads the files")  # in errors about a missing library or missing files


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("suite", sorted(registry.SUITES))
def test_every_environment_of_the_suite_conforms(suite):
    if not registry.installed(suite):
        pytest.skip(f'{suite} is not installed: pip install "ppax[{suite}]"')
    left_out = {name for names in UNLIKE.values() for name in names}
    wrong = {}
    for env_id in sorted(set(registry.ids(suite)) - left_out):
        if env_id.startswith(DOWNLOADS):
            continue
        try:
            env = ppax.make(f"{suite}/{env_id}", 2)
            for check in (environment.check_types, environment.check_shapes):
                found = check(env, jax.random.key(0))
                if not found.passed:
                    wrong[env_id] = found.text
        except Exception as error:  # check the remaining environments, too
            if not any(text in str(error) for text in NEEDS):
                wrong[env_id] = repr(error)
        jax.clear_caches()
    assert wrong == {}


@pytest.mark.parametrize("suite", [name for name in registry.SUITES if name != "gymnax"])
def test_a_missing_suite_names_its_extra(suite, monkeypatch):
    monkeypatch.setitem(importlib.import_module("sys").modules, registry.SUITES[suite].library, None)
    monkeypatch.setitem(importlib.import_module("sys").modules, "brax.envs", None)
    with pytest.raises(ImportError, match=rf"ppax\[{suite}\]|{suite} needs Python"):
        ppax.make(f"{suite}/whatever")


@pytest.mark.parametrize("suite", [name for name in registry.SUITES])
def test_an_unknown_id_is_refused_with_the_nearest(suite):
    if not registry.installed(suite):
        pytest.skip(f'{suite} is not installed: pip install "ppax[{suite}]"')
    near = registry.ids(suite)[0]
    with pytest.raises(ppax.ConfigError, match="did you mean"):
        ppax.make(f"{suite}/{near}x")


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "error", "text"),
    [("storm", ppax.ConfigError, "not one array for each agent"), ("JaxRobotarium_rware", ImportError, "package")],
)
def test_unsupported_jaxmarl_environments_are_refused_with_the_reason(name, error, text):
    pytest.importorskip("jaxmarl")
    with pytest.raises(error, match=f"jaxmarl/{name}: .*{text}"):
        ppax.make(f"jaxmarl/{name}")


@pytest.mark.nightly
def test_hanabi_masks_follow_its_rules():
    """One player moves at a time: the other has only the no-op action."""
    pytest.importorskip("jaxmarl")
    env = ppax.make("jaxmarl/hanabi", 3)
    mask = np.asarray(env.reset(jax.random.key(0))[2]).reshape(3, 2, 21)
    assert (mask[:, 1].sum(-1) == 1).all()
    assert mask[:, 1, -1].all()
    assert (mask[:, 0].sum(-1) > 5).all()
    assert not mask[:, 0, -1].any()
    allowed = np.where(mask.reshape(6, 21).any(-1), mask.reshape(6, 21).argmax(-1), 0)
    out = env.step(env.reset(jax.random.key(0))[0], allowed, jax.random.key(1))
    mask = np.asarray(out.action_mask).reshape(3, 2, 21)
    assert (mask[:, 0].sum(-1) == 1).all()  # the other player's turn
    assert (mask[:, 1].sum(-1) > 5).all()


@pytest.mark.nightly
def test_overcooked_shaping_rewards():
    """Compare with JaxMARL's own step for random actions: reward + `shaping` * shaped reward."""
    pytest.importorskip("jaxmarl")
    env = ppax.make("jaxmarl/overcooked", 1, env_params={"shaping": 0.5}).env
    step, inner = jax.jit(env.step), jax.jit(env.env.step_env)
    state, earned = env.reset(jax.random.key(0)).state, 0.0
    for t in range(300):
        key = jax.random.key(t)
        action = jax.random.randint(jax.random.fold_in(key, 1), (2,), 0, 6)
        _, _, reward, _, info = inner(key, state, {"agent_0": action[0], "agent_1": action[1]})
        out = step(state, action, key)
        told = [float(info["shaped_reward"][name]) for name in ("agent_0", "agent_1")]
        np.testing.assert_allclose(out.reward, [float(reward["agent_0"]) + 0.5 * x for x in told], atol=1e-6)
        state, earned = out.state, earned + sum(told)
    assert earned > 0.0
