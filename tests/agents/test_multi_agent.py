"""Independent players: equal to solo runs; one agent equals no agent axis; absent players have weight 0."""

import dataclasses
import importlib
import sys
import tomllib
import warnings
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax import config
from ppax.agents.metrics import NAMED, of_players, player_names
from ppax.arrays.metrics import reduced
from ppax.config import Log
from ppax.core.types import ConfigError
from ppax.envs import TimeLimit, VectorEnv, builtin
from ppax.extensions import EntropyTarget, KLControl
from ppax.networks import memories, mlp, network
from ppax.networks.memories import GRU
from ppax.ppo.critics import TwoHot
from ppax.ppo.minibatches import Shuffle
from ppax.ppo.schedules import Steps
from ppax.training.collection import start_actor, stream_keys
from ppax.training.loop import finish_iteration, iteration_inputs, start, train
from support.players import Axis, Copies, One, Poisoned
from support.worlds import QUICK, Team

NUM_ENVS, NUM_STEPS = 4, 8
PENDULUM = TimeLimit(builtin.Pendulum(), 12)
EACH = {"learning_rate": np.array([1e-3, 3e-4, 1e-4], np.float32), "gamma": np.array([0.9, 0.95, 0.99], np.float32)}


def ppo(env, **options):
    network = mlp(env, hidden=(8,), **({"memory": options.pop("memory")} if "memory" in options else {}))
    return ppax.PPO(network, minibatch=Shuffle(2), num_epochs=2, **options)


def trained(agent, env, iterations=3, key=0):
    """A run from its start, compiled as one program."""
    run = jax.jit(
        lambda agent, env, key: train(agent, env, start(agent, env, NUM_STEPS, key), iterations),
        compiler_options=QUICK,
    )
    return run(agent, env, jax.random.key(key))


def arrays(tree):
    return [np.asarray(x) for x in jax.tree.leaves(tree)]


def assert_same(one, other, **tolerance):
    for x, y in zip(arrays(one), arrays(other), strict=True):
        if tolerance:
            np.testing.assert_allclose(x, y, **tolerance)
        else:
            assert x.tobytes() == y.tobytes()


@pytest.mark.parametrize("memory", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_each_independent_player_learns_as_in_a_solo_run(memory, monkeypatch):
    """Three players in environments of their own, with numbers of their own: each as in a run of its own."""
    players, iterations = 3, 10
    options = (
        {"memory": GRU(), "seq_len": 4}
        if memory
        else {"normalize_reward": True, "extensions": (KLControl(target_kl=0.01),)}
    )
    alone = VectorEnv(One(PENDULUM), NUM_ENVS)
    together = VectorEnv(Copies(PENDULUM, players), NUM_ENVS)
    agent = ppo(alone, normalize_obs=True, **options)
    joint = ppax.Independent(dataclasses.replace(agent, **EACH), players)
    begin = start(joint, together, NUM_STEPS, jax.random.key(0))
    after = jax.jit(lambda state: train(joint, together, state, iterations), compiler_options=QUICK)(begin)

    def solo(player):
        env = VectorEnv(One(PENDULUM, player), NUM_ENVS)
        own = dataclasses.replace(agent, **{name: jnp.asarray(x)[player] for name, x in EACH.items()})
        keys = lambda key, steps, _: stream_keys(key, steps, together)[:, :, jnp.stack([0 * player, 1 + player])]  # noqa: E731
        monkeypatch.setattr(sys.modules["ppax.training.collection"], "stream_keys", keys)
        first = start(own, env, NUM_STEPS, jax.random.key(0))
        actor = start_actor(own, env, jax.random.split(jax.random.key(0), 3)[1])
        first = dataclasses.replace(first, actor=actor, learner=jax.tree.map(lambda x: x[player], begin.learner))

        def iterate(state, _):
            now = iteration_inputs(own, state, iterations)
            fold = jax.vmap(jax.random.fold_in, (0, None))
            now = now._replace(update_keys=fold(now.update_keys, player))
            seen = ppax.collect(now.agent, env, state.learner, state.actor, NUM_STEPS, now.collect_key)
            return tuple(finish_iteration(now, env, state, seen))

        return jax.lax.scan(iterate, first, None, length=iterations)[0].learner

    with jax.debug_key_reuse(False):
        run = jax.jit(solo, compiler_options=QUICK)
        for player in range(players):
            mine = jax.tree.map(lambda x, player=player: x[player], after.state.learner)
            own = run(jnp.int32(player))
            assert_same(own.params, mine.params, rtol=0, atol=1e-6)
            assert_same(own.opt_state, mine.opt_state, rtol=1e-4, atol=1e-6)
            assert_same(own.obs_stats.mean.high, mine.obs_stats.mean.high, rtol=1e-6)
    moved = jax.tree.map(lambda x, y: np.abs(np.asarray(x - y)).max(), begin.learner.params, after.state.learner.params)
    assert min(jax.tree.leaves(moved)) > 1e-4


def test_one_agent_equals_an_environment_without_an_agent_axis():
    """The same parameters, bit for bit, with an agent axis and without."""
    without, axis = (VectorEnv(env, NUM_ENVS) for env in (PENDULUM, Axis(PENDULUM)))
    agent = ppo(without, normalize_obs=True)
    one, other = (trained(agent, env) for env in (without, axis))
    assert_same(one.state.learner, other.state.learner)
    assert one.metrics.names == other.metrics.names


def test_rows_of_absent_agents_have_no_influence():
    team = Team()
    env = VectorEnv(Poisoned(team), NUM_ENVS)
    agent = ppax.Independent(ppo(env, normalize_obs=True), 3)
    run = jax.jit(lambda env, key: train(agent, env, start(agent, env, NUM_STEPS, key), 3), compiler_options=QUICK)
    clean, poisoned = (run(VectorEnv(Poisoned(team, x), NUM_ENVS), jax.random.key(0)) for x in (0.0, np.nan))
    assert_same(clean.state.learner, poisoned.state.learner)
    assert_same(dict(clean.metrics), dict(poisoned.metrics))
    # agent i lives 2 + i steps, and waits for the last one
    assert [float(clean.metrics[f"episode_length/agent_{i}"]) for i in range(3)] == [2.0, 3.0, 4.0]
    assert [float(clean.metrics[f"episode_return/agent_{i}"]) for i in range(3)] == [2.0, 3.0, 4.0]
    assert float(clean.metrics["episode_return"]) == 3.0


@pytest.mark.nightly
def test_permuted_players_permute_the_results():
    env = VectorEnv(Copies(PENDULUM, 3), NUM_ENVS)
    agent = ppax.Independent(dataclasses.replace(ppo(env, **EACH), minibatch=Shuffle(1)), 3)
    state = start(agent, env, NUM_STEPS, jax.random.key(0))
    rollout = jax.jit(lambda s: ppax.collect(agent, env, s.learner, s.actor, NUM_STEPS, jax.random.key(1)).rollout)
    order = np.array([2, 0, 1])

    def permuted(x, axis):
        return jnp.take(x.reshape(*x.shape[:axis], NUM_ENVS, 3, *x.shape[axis + 1 :]), order, axis + 1).reshape(x.shape)

    seen = rollout(state)
    axes = {"steps": 1, "last_value": 0, "reward_trace": 1, "last_obs": 0}  # that of the streams; the others are empty
    fields = {name: jax.tree.map(partial(permuted, axis=axis), getattr(seen, name)) for name, axis in axes.items()}
    shuffled = seen._replace(**fields)
    numbers = {name: x[order] for name, x in EACH.items()}
    other = dataclasses.replace(agent, agent=dataclasses.replace(agent.agent, **numbers))
    run = jax.jit(lambda agent, learner, rollout: agent.update(learner, rollout, jax.random.key(2)))
    before = run(agent, state.learner, seen)
    after = run(other, jax.tree.map(lambda x: x[order], state.learner), shuffled)
    assert_same(jax.tree.map(lambda x: x[order], before.learner), after.learner, rtol=1e-4, atol=1e-6)
    for name in ("entropy", "grad_norm", "value_loss"):
        mine, theirs = ([float(out.metrics[f"{name}/agent_{i}"]) for i in range(3)] for out in (before, after))
        np.testing.assert_allclose(np.array(mine)[order], theirs, rtol=1e-4)
        assert len(set(mine)) == 3


@pytest.mark.nightly
def test_two_devices_compute_what_one_does():
    env = VectorEnv(Copies(PENDULUM, 2), NUM_ENVS)
    one, two = (
        trained(ppax.Independent(ppo(env, normalize_obs=True, program=ppax.Program(devices=n)), 2), env) for n in (1, 2)
    )
    assert_same(one.state.learner, two.state.learner, rtol=1e-4, atol=1e-5)


def test_metrics_of_players_are_named_and_joined():
    extremes = reduced("max", {"ratio_max": jnp.arange(2.0)}) | reduced("min", {"ratio_min": jnp.arange(2.0)})
    metrics = of_players({"loss": jnp.arange(2.0)} | extremes, 2)
    assert {name: float(x) for name, x in metrics.items()} == {
        "loss": 0.5,
        "loss/agent_0": 0.0,
        "loss/agent_1": 1.0,
        "ratio_max": 1.0,
        "ratio_max/agent_0": 0.0,
        "ratio_max/agent_1": 1.0,
        "ratio_min": 0.0,
        "ratio_min/agent_0": 0.0,
        "ratio_min/agent_1": 1.0,
    }
    assert player_names(None) == player_names(1) == player_names(NAMED + 1) == ()
    assert len(player_names(NAMED)) == NAMED


# ---------------------------------------------------------------- runs


PLAN = {
    "env": "Pursuit-2",
    "num_envs": NUM_ENVS,
    "num_steps": NUM_STEPS,
    "total_steps": 2 * NUM_ENVS * NUM_STEPS * 4,
    "agents": "independent",
    "agent": {"learning_rate": [1e-3, 1e-4], "num_epochs": 1, "network": {"hidden": [4]}, "ent_coef": 0.01},
    "log": {"every": 1, "console": False},
}


def test_a_run_file_and_a_command_line_say_it():
    built = config.build(PLAN)
    assert isinstance(built.agent, ppax.Independent)
    assert built.agent.num_agents == 2
    np.testing.assert_array_equal(built.agent.agent.learning_rate, np.array([1e-3, 1e-4], np.float32))
    assert built.agent.agent.ent_coef == 0.01
    text = config.to_toml(config.describe(built.run) | {"agent": config.describe(built.agent)})
    again = config.build(tomllib.loads(text))
    assert jax.tree.structure(again.agent) == jax.tree.structure(built.agent)
    assert_same(again.agent, built.agent)

    from ppax.cli.options import add_train, parse_run

    given = ["Pursuit-2", "--agents", "independent", "--agent.learning-rate", "1e-3,1e-4", "--agent.gamma", "0.9"]
    _, plan = parse_run("train", given, add_train)
    assert plan["agents"] == "independent"
    assert plan["agent"]["learning_rate"] == [1e-3, 1e-4]
    assert plan["agent"]["gamma"] == 0.9


@pytest.mark.parametrize("agents", ["independent", "shared"])
def test_independent_with_one_agent_is_said_to_change_nothing(agents, monkeypatch):
    fits = importlib.import_module("ppax.run.fit")
    monkeypatch.setattr(fits, "record_start", lambda *_: pytest.fail("far enough"))
    agent, env, run = config.build({"env": "CartPole-v1", "num_envs": 4, "agents": agents})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(pytest.fail.Exception, match="far enough"):
            fits.fit_run(agent, env, run)
    text = 'agents = "independent" changes nothing: CartPole-v1 has one agent; leave it out'
    assert [str(one.message) for one in caught] == ([text] if agents == "independent" else [])


@pytest.mark.nightly
def test_resumed_players_go_on_as_if_never_stopped(tmp_path):
    agent, env, run = config.build(PLAN)
    whole = ppax.fit(agent, env, run.total_steps, 0, tmp_path / "whole", NUM_STEPS, run.log)
    half = ppax.fit(
        agent, env, run.total_steps, 0, tmp_path / "half", NUM_STEPS, run.log, [lambda _, row: row["iteration"] == 2]
    )
    assert len(half.history) == 2
    resumed = ppax.resume(tmp_path / "half", console=False)
    assert isinstance(resumed.agent, ppax.Independent)
    assert_same(whole.state.learner, resumed.state.learner)
    names = set(whole.history[-1])
    assert {"loss", "loss/agent_0", "loss/agent_1", "episode_return/agent_1"} <= names
    evaluation = resumed.evaluate(8)
    assert list(evaluation.by_agent) == ["agent_0", "agent_1"]
    # what the prey gains the predator loses
    assert evaluation.by_agent["agent_0"].mean_return == pytest.approx(-evaluation.by_agent["agent_1"].mean_return)


@pytest.mark.nightly
def test_a_sweep_trains_players_too(vmapped_keys):
    env = VectorEnv(Copies(PENDULUM, 2), NUM_ENVS)
    agent = ppax.Independent(ppo(env), 2)
    keys = jax.random.split(jax.random.key(0), 2)
    states = ppax.start_sweep(agent, env, NUM_STEPS, keys)
    swept = jax.jit(lambda states: ppax.sweep(agent, env, states, 2), compiler_options=QUICK)(states)
    assert swept.metrics["loss/agent_1"].shape == (2,)
    alone = dataclasses.replace(agent, agent=dataclasses.replace(agent.agent, program=ppax.Program(devices=1)))
    state = start(alone, env, NUM_STEPS, keys[1])
    one = jax.jit(lambda state: train(alone, env, state, 2), compiler_options=QUICK)(state)
    assert_same(one.state.learner, jax.tree.map(lambda x: x[1], swept.state.learner), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (lambda: config.build(PLAN | {"agents": "shared"}), 'one for each player, which takes agents = "independent"'),
        (lambda: config.build(PLAN | {"agents": "alone"}), "must be one of shared, independent"),
        (lambda: fit(PLAN | {"env": "Pursuit-3"}), r"agent.learning_rate has shape \(2,\): must be one number, or 3"),
        (lambda: fit(PLAN | {"agent": {"gamma": [0.9, 1.5]}}), r"agent.gamma = 1.5: must be at most 1"),
        (lambda: players(3), r"Independent has 3 players, Pursuit-2 has 2 agents; write Independent\(agent, 2\)"),
    ],
)
def test_what_cannot_be_is_refused_by_name(wrong, text):
    with pytest.raises(ConfigError, match=text):
        wrong()


def fit(plan):
    agent, env, _ = config.build(plan)
    ppax.fit(agent, env, 64, num_steps=8, log=Log(console=False))


def players(count):
    env = ppax.make("Pursuit-2", 4)
    start(ppax.Independent(ppo(env), count), env, NUM_STEPS, jax.random.key(0))


REFUSED = {
    "ent_coef": ({"ent_coef": 0.0, "extensions": (EntropyTarget(0.3),)}, "ent_coef = 0: entropy_target multiplies it"),
    "order": ({"schedule": Steps(("gamma",), at=(0.0, 0.9, 0.2), values=(0.9, 0.8, 0.7))}, "must rise"),
    "progress": ({"schedule": Steps(("gamma",), at=(0.0, 5e3), values=(0.9, 0.8))}, "progress ends at 1"),
    "critic": ({"critic": TwoHot(5.0, -5.0)}, "low"),
}


@pytest.mark.parametrize("sharing", [lambda agent: agent, lambda agent: ppax.Independent(agent, 2)])
@pytest.mark.parametrize(("options", "message"), REFUSED.values(), ids=REFUSED)
def test_contradictory_numbers_are_refused_with_one_policy_and_with_several(options, message, sharing):
    env = ppax.make("Pursuit-2", 4)
    agent = sharing(ppax.PPO(network(env, hidden=(4,)), **options))
    with pytest.raises(ppax.ConfigError, match=message):
        ppax.start(agent, env, 8, jax.random.key(0))
    with pytest.raises(ppax.ConfigError, match=message):
        ppax.fit(agent, env, 64, num_steps=8)


@pytest.mark.parametrize("memory", [memories.Window(steps=1), memories.Attention(steps=1)], ids=["window", "attention"])
def test_independent_players_with_a_window_of_one_step(memory):
    env = ppax.make("Pursuit-2", 4)
    agent = ppax.Independent(ppax.PPO(network(env, hidden=(4,), memory=memory)), 2)
    trained = ppax.train(agent, env, ppax.start(agent, env, 8, jax.random.key(0)), 1)
    assert int(trained.state.iteration) == 1
