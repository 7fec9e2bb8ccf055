"""Staggered first episodes of compiled environments, against an unstaggered run, a loop by hand and separate runs."""

import dataclasses
import tomllib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax import config
from ppax.cli.main import main
from ppax.core.types import ConfigError
from ppax.devices.layout import Program
from ppax.envs import ActionRepeat, TimeLimit, VectorEnv, builtin, ended
from ppax.envs.stagger import longest_episode
from ppax.networks import mlp
from ppax.ppo.batches import next_values
from ppax.ppo.minibatches import Shuffle
from support.host_worlds import LIMIT, NativeMaze
from support.worlds import QUICK

ENVS, STEPS = 32, 20
start = jax.jit(ppax.start, static_argnames=("num_steps", "iterations_per_env_reset"), compiler_options=QUICK)
collect = jax.jit(ppax.collect, static_argnames="num_steps", compiler_options=QUICK)
train = jax.jit(ppax.train, compiler_options=QUICK)


def make(env, stagger, num_envs=ENVS, **options):
    env = env if isinstance(env, VectorEnv) else VectorEnv(env, num_envs)
    env = dataclasses.replace(env, stagger=stagger)
    return ppax.PPO(mlp(env, hidden=(4,)), minibatch=Shuffle(2), num_epochs=1, **options), env


def rollout(env, stagger, num_steps=STEPS):
    agent, env = make(env, stagger)
    state = start(agent, env, num_steps, jax.random.key(0))
    return state, collect(agent, env, state.learner, state.actor, num_steps, jax.random.key(1))


@pytest.fixture(scope="module")
def mazes():
    """Lengths [E], and rollouts of the same environments with and without `stagger`; a maze also ends by itself."""
    state, staggered = rollout(NativeMaze(), LIMIT)
    _, whole = rollout(NativeMaze(), False)
    return tuple(jax.tree.map(np.asarray, x) for x in (state.actor.env_state.left, staggered, whole))


def test_first_episodes_are_those_without_stagger_up_to_their_length(mazes):
    """Same observations, actions and rewards up to the cut; the row after it has the true final observation."""
    lengths, staggered, whole = mazes
    mine, other, cuts = staggered.rollout.steps, whole.rollout.steps, 0
    for i, length in enumerate(lengths):
        natural = 1 + int(other.ended[:, i].argmax())
        last = min(length, natural)
        for name in ("action", "reward", "terminated", "first", "valid"):
            np.testing.assert_array_equal(getattr(mine, name)[:last, i], getattr(other, name)[:last, i], name)
        np.testing.assert_array_equal(mine.obs[: last + 1, i], other.obs[: last + 1, i])
        np.testing.assert_array_equal(mine.truncated[: last - 1, i], False)
        assert mine.ended[last - 1, i]
        assert mine.truncated[last - 1, i] == (length < natural or other.truncated[last - 1, i])
        assert (mine.valid[last, i], mine.first[last, i], mine.first[last + 1, i]) == (False, False, True)
        cuts += length < natural
    assert 0 < cuts < ENVS, "both kinds of ends are tested"


def test_later_episodes_are_whole_and_cut_ones_are_not_logged(mazes):
    """Statistics of episodes by a loop over all steps: those that `stagger` has cut are left out."""
    lengths, staggered, _ = mazes
    steps, found = jax.tree.map(np.asarray, staggered.rollout.steps), staggered.episodes
    for i, length in enumerate(lengths):
        returns, sizes, total, size, first = [], [], 0.0, 0, True
        for t in range(STEPS):
            total, size = total + steps.reward[t, i], size + steps.valid[t, i]
            if steps.ended[t, i]:
                by_itself = steps.terminated[t, i] or size == LIMIT
                assert by_itself or (first and size == length), "only a first episode is cut"
                if by_itself:
                    returns.append(total)
                    sizes.append(size)
                total, size, first = 0.0, 0, False
        assert found.count[i] == len(returns)
        np.testing.assert_allclose(found.return_sum[i], sum(returns), rtol=1e-5, atol=1e-5)
        assert found.length_sum[i] == sum(sizes)


def test_a_cut_episode_is_bootstrapped_from_its_final_observation():
    """With a reward of 1 and gamma 0.5, V = 2 everywhere is a fixed point; a cut at any length must keep it."""
    _, collected = rollout(TimeLimit(builtin.InfiniteProbe(), 8), True)
    steps = collected.rollout.steps
    steps = dataclasses.replace(steps, value=jnp.full_like(steps.value, 2.0), reward=1.0 * steps.valid, carry=())

    def targets(stream):
        return ppax.advantages.GAE(0.9)(stream, next_values(stream, jnp.float32(2.0)), 0.5)

    advantage = jax.vmap(targets, 1, 1)(steps).advantage
    np.testing.assert_allclose(np.asarray(advantage)[np.asarray(steps.valid)], 0.0, atol=1e-6)
    assert np.asarray(steps.truncated)[:7].any(axis=1).all()


def test_lengths_are_uniform_and_the_first_states_unchanged():
    agent, env = make(TimeLimit(builtin.CartPole(), 10), True, num_envs=4000)
    one, other = (start(agent, env, 1, jax.random.key(seed)).actor for seed in (0, 1))
    counts = np.bincount(np.asarray(one.env_state.left), minlength=11)
    assert counts[0] == 0
    assert len(counts) == 11
    expected = 400  # chi-square of 9 degrees of freedom: above 27.9 once in a thousand
    assert ((counts[1:] - expected) ** 2 / expected).sum() < 27.9
    assert (np.asarray(one.env_state.left) != np.asarray(other.env_state.left)).mean() > 0.8
    _, plain = make(TimeLimit(builtin.CartPole(), 10), False, num_envs=4000)
    np.testing.assert_array_equal(start(agent, plain, 1, jax.random.key(0)).actor.obs, one.obs)


@pytest.mark.parametrize("grouped", [False, True])
def test_all_agents_of_an_environment_are_cut_together(grouped):
    env = ppax.make("Pursuit-2", ENVS)
    if grouped:
        env = dataclasses.replace(ppax.envs.grouped(env, {"one": [0], "two": [1]}), stagger=6)
        ones = {name: ppax.PPO(mlp(own, hidden=(4,)), num_epochs=1) for name, own in env.groups.items()}
        agent = ppax.Groups(ones, env.sizes)
    else:
        agent, env = make(env, 6)
    state = start(agent, env, 8, jax.random.key(0))
    steps = collect(agent, env, state.learner, state.actor, 8, jax.random.key(1)).rollout.steps
    cut, caught = (np.asarray(x).reshape(8, ENVS, 2) for x in (steps.truncated, steps.terminated))
    np.testing.assert_array_equal(cut[..., 0], cut[..., 1])
    lengths, whole = np.asarray(state.actor.env_state.left), cut[..., 0].any(axis=0)
    np.testing.assert_array_equal(cut[:, whole, 0].argmax(axis=0) + 1, lengths[whole])
    assert caught[:, ~whole, 0].any(axis=0).all(), "else a prey was caught before"
    assert whole.sum() > ENVS // 2


def test_evaluation_plays_whole_first_episodes():
    agent, env = make(TimeLimit(builtin.Pendulum(), 7), True, num_envs=4)
    state = start(agent, env, 4, jax.random.key(0))
    played = ppax.evaluate(agent, env, state.learner, jax.random.key(0), episodes=6)
    np.testing.assert_array_equal(played.lengths, 7)
    assert ended(env).stagger is False
    assert env.settings.stagger is True
    walk = ppax.trajectory(agent, env, state.learner, 7, jax.random.key(0))
    np.testing.assert_array_equal(np.asarray(walk.truncated).argmax(axis=0), 6)


def test_a_forced_reset_staggers_again():
    """The period of 4 steps is shorter than most lengths: those episodes are whole periods, and logged."""
    agent, env = make(TimeLimit(builtin.InfiniteProbe(), 50), 5, num_envs=8)
    state = start(agent, env, 4, jax.random.key(0), iterations_per_env_reset=1)
    before = np.asarray(state.actor.env_state.left)
    state, metrics = train(agent, env, state, 1)
    after = np.asarray(state.actor.env_state.left)
    assert after.min() >= 1
    assert (after != before).any()
    # cut before the end of the period, one step is spent on a reset, and the next episode runs until the forced one
    sizes = [4 if length > 4 else 4 - length - 1 for length in before if length < 3 or length > 4]
    assert metrics["episodes"] == len(sizes)
    np.testing.assert_allclose(metrics["episode_length"], np.mean(sizes), rtol=1e-6)


def test_a_resumed_run_equals_an_uninterrupted_one_and_does_not_stagger_again(tmp_path):
    def fit(total, directory):
        env = ppax.make("Pendulum-v1", 8, stagger=40)
        agent = ppax.PPO(mlp(env, hidden=(4,)), minibatch=Shuffle(2), num_epochs=1)
        log = ppax.Log(every=1, console=False)
        return ppax.fit(agent, env, total_steps=total, num_steps=8, seed=3, run_dir=directory, log=log)

    whole = fit(8 * 8 * 8, tmp_path / "whole")
    fit(8 * 8 * 2, tmp_path / "parts")
    resumed = ppax.resume(tmp_path / "parts", total_steps=8 * 8 * 8)
    for x, y in zip(jax.tree.leaves(whole.state.actor), jax.tree.leaves(resumed.state.actor), strict=True):
        np.testing.assert_array_equal(x, y)
    assert resumed.env.stagger == 40
    assert tomllib.loads((tmp_path / "parts/run.toml").read_text())["stagger"] == 40


def test_members_of_a_sweep_have_lengths_of_their_own(vmapped_keys):
    agent, env = make(TimeLimit(builtin.Pendulum(), 9), True, num_envs=8)
    keys = jax.random.split(jax.random.key(0), 2)
    states = ppax.start_sweep(agent, env, 4, keys)
    left = np.asarray(states.actor.env_state.left)
    for i, key in enumerate(keys):
        np.testing.assert_array_equal(left[i], start(agent, env, 4, key).actor.env_state.left)
    assert (left[0] != left[1]).any()


def test_lengths_do_not_depend_on_the_number_of_devices():
    results = []
    for devices in (1, 2):
        agent, env = make(TimeLimit(builtin.Pendulum(), 6), True, num_envs=8, program=Program(devices=devices))
        state = start(agent, env, 8, jax.random.key(0))
        state, metrics = train(agent, env, state, 2)
        results.append((np.asarray(state.actor.env_state.left), float(metrics["episodes"]), float(state.env_steps[1])))
    np.testing.assert_array_equal(results[0][0], results[1][0])
    assert results[0][1:] == results[1][1:]


# ---------------------------------------------------------------- the option


def test_off_adds_nothing_to_the_program():
    agent, env = make(NativeMaze(), False)
    state = start(agent, env, 4, jax.random.key(0))
    assert state.actor.env_state.left is None
    step = jax.eval_shape(env.step, state.actor.env_state, jnp.zeros(ENVS, jnp.int32), jax.random.key(0))
    assert step.logged is None


@pytest.mark.parametrize(
    ("env", "limit"),
    [
        (TimeLimit(builtin.Pendulum(), 200), 200),
        (ActionRepeat(TimeLimit(builtin.Pendulum(), 200), 3), 67),  # of single steps
        (TimeLimit(ActionRepeat(builtin.Pendulum(), 3), 200), 200),  # of steps of the agent
        (TimeLimit(TimeLimit(builtin.Pendulum(), 30), 50), 30),
        (builtin.Pendulum(), None),
    ],
)
def test_the_limit_is_read_from_the_time_limits(env, limit):
    assert longest_episode(env) == limit


def test_a_limit_that_is_drawn_counts_with_its_high_end():
    env = ppax.make("Pendulum-v1", 2, env_params={"max_steps": {"low": 10, "high": 40}}, stagger=True)
    assert longest_episode(env.env) == 40


def test_the_limit_follows_another_time_limit_without_recompilation():
    traces = []

    @jax.jit
    def lengths(env, key):
        traces.append(1)
        return env.reset(key)[0].left

    for limit in (3, 30):
        env = VectorEnv(TimeLimit(builtin.Pendulum(), limit), 200, stagger=True)
        assert lengths(env, jax.random.key(0)).max() == limit
    assert len(traces) == 1


@pytest.mark.parametrize("wrong", [1, 0, -3, 2.5, "yes", None, 2**31])
def test_wrong_values_are_refused(wrong):
    with pytest.raises(ConfigError, match="stagger") as caught:
        ppax.make("Pendulum-v1", 2, stagger=wrong)
    assert str(wrong) in str(caught.value)
    if isinstance(wrong, int) and wrong < 2:
        assert "nearest valid value: 2" in str(caught.value)


def test_an_environment_without_a_limit_needs_a_number():
    with pytest.raises(ConfigError, match=r"CueCorridor-10 has no time limit.*stagger = 500"):
        ppax.make("CueCorridor-10", 2, stagger=True)
    with pytest.raises(ConfigError, match=r"NativeMaze has no time limit"):
        VectorEnv(NativeMaze(), 2, stagger=True).reset(jax.random.key(0))
    assert ppax.make("CueCorridor-10", 2, stagger=12).stagger == 12


@pytest.mark.parametrize(("text", "value"), [("true", True), ("false", False), ("30", 30)])
def test_run_files_name_it(text, value):
    plan = config.resolve(tomllib.loads(f'env = "Pendulum-v1"\nstagger = {text}\n'))
    built = config.build(plan)
    assert (built.env.stagger, built.run.stagger, type(built.run.stagger)) == (value, value, type(value))
    assert f"stagger = {text}" in config.to_toml(plan)


@pytest.mark.parametrize(
    ("words", "value"), [(["--stagger"], "true"), (["--stagger", "30"], "30"), (["--stagger", "false"], "false")]
)
def test_the_command_line_names_it(words, value, capsys):
    assert main(["train", "Pendulum-v1", "--dry-run", *words]) == 0
    assert f"\nstagger = {value}\n" in capsys.readouterr().out
