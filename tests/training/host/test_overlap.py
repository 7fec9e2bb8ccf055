"""With `overlap` = 1 a rollout is collected while the update before runs, by the policy before that update."""

import dataclasses
import itertools

import gymnasium
import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import ppax
from ppax.arrays import counter
from ppax.extensions import KLControl
from ppax.ppo.losses import ClippedSurrogate, KLPenalty
from ppax.training.arguments import require_overlap
from ppax.training.host.rollouts import collected_from, reset_if_needed, value_of
from ppax.training.host.tensor_collection import collector_of
from ppax.training.host.training import _inputs
from ppax.training.loop import finish_iteration

pytestmark = pytest.mark.usefixtures("cached_programs")
STEPS, ITERATIONS = 16, 4
CLOSE = {"rtol": 2e-4, "atol": 2e-5}


class Watched(gymnasium.Wrapper):
    """CartPole that notes its steps in a list, and fails at one of them."""

    def __init__(self, events, fail_at=None):
        super().__init__(gymnasium.make("CartPole-v1"))
        self.events, self.fail_at, self.count = events, fail_at, 0

    def step(self, action):
        self.events.append("step")
        self.count += 1
        if self.count == self.fail_at:
            raise RuntimeError("the environment is broken")
        return super().step(action)


def made(events=None, fail_at=None, num_envs=2, **options):
    env = ppax.envs.host(lambda: Watched([] if events is None else events, fail_at), num_envs)
    memory = options.pop("memory", ppax.networks.memories.NoMemory())
    agent = ppax.PPO(
        ppax.networks.network(env, hidden=(8,), memory=memory), **{"num_epochs": 2, "learning_rate": 1e-2, **options}
    )
    state = ppax.start(agent, env, STEPS, jax.random.key(0))
    return agent, env, state


def trained(agent, env, state, calls, overlap=1):
    program = ppax.compile(agent, env, state)
    program.overlap = overlap
    with env:
        for count in calls:
            state, metrics = program(agent, env, state, count, sum(calls))
    return state, metrics


def one_after_the_other(agent, env, state, iterations):
    """The same training without anything at once: each rollout is collected by the learner of the state before."""
    policy, collect = collector_of(agent, env, state.learner)
    acted = state.learner
    with env:
        for _ in range(iterations):
            inputs, reset_key = _inputs(agent, state, iterations)
            actor = reset_if_needed(agent, env, state.actor, reset_key)
            policy.begin(inputs.agent, acted, STEPS, inputs.collect_key)
            length, parameters = agent.sequence_length(STEPS), (inputs.agent, acted)
            rollout = collect(policy, jax.jit(value_of), env, actor, STEPS, length, parameters)
            before = dataclasses.replace(state, actor=actor)
            acted = state.learner  # of the next rollout: the one before this update
            state = finish_iteration(inputs, env, before, collected_from(*parameters, actor, rollout)).state
    return state


CASES = {
    "feedforward": {},
    "normalised": {"normalize_obs": True, "normalize_reward": True},
    "annealed": {"schedule": ppax.schedules.Linear()},
    "V-trace": {"advantage": ppax.advantages.VTrace(), "recompute": ppax.recompute.Epoch()},
    "memory": {"memory": ppax.networks.memories.GRU(4), "minibatch": ppax.minibatches.Shuffle(num_minibatches=2)},
}


@pytest.mark.parametrize("case", CASES)
def test_rollouts_come_from_the_policy_before_the_last_update(case):
    expected = one_after_the_other(*made(**CASES[case]), ITERATIONS)
    found, _ = trained(*made(**CASES[case]), [ITERATIONS])
    assert int(found.iteration) == ITERATIONS
    assert_array_equal(found.env_steps, expected.env_steps)
    assert_array_equal(jax.random.key_data(found.key), jax.random.key_data(expected.key))
    assert_array_equal(found.actor.obs, expected.actor.obs)
    for one, other in zip(jax.tree.leaves(found.learner), jax.tree.leaves(expected.learner), strict=True):
        assert_allclose(one, other, **CLOSE)
    apart, _ = trained(*made(**CASES[case]), [ITERATIONS], overlap=0)
    weights = zip(jax.tree.leaves(found.learner.params), jax.tree.leaves(apart.learner.params), strict=True)
    assert not all(np.allclose(one, other, **CLOSE) for one, other in weights)


@ppax.part
class AllCounts:
    """Schedule that shows what it is given: the learning rate is the progress, the clip range the number of steps."""

    def __call__(self, agent, progress, env_steps):
        loss = dataclasses.replace(agent.loss, clip_eps=env_steps)
        return dataclasses.replace(agent, learning_rate=progress, loss=loss)


@pytest.mark.parametrize("overlap", [0, 1])
def test_policies_act_at_the_progress_of_their_own_iteration(overlap):
    """Schedules count the iteration and the steps of an update that still runs."""
    agent, env, state = made(schedule=AllCounts(), num_envs=2)
    program = ppax.compile(agent, env, state)
    program.overlap, begun, begin = overlap, [], program.policy.begin
    program.policy.begin = lambda agent, *rest: (begun.append(agent), begin(agent, *rest))
    counts = [0]
    with env:
        for _ in range(ITERATIONS):
            state, _ = program(agent, env, state, 1, ITERATIONS)
            counts.append(counter.to_int(state.env_steps))
    assert counts[-1] > STEPS
    assert_allclose([one.learning_rate for one in begun], np.arange(ITERATIONS) / ITERATIONS, rtol=1e-6)
    assert_array_equal([one.loss.clip_eps for one in begun], counts[:-1])


def test_calls_of_one_iteration_each_give_the_bits_of_one_call():
    whole, _ = trained(*made(), [ITERATIONS])
    single, _ = trained(*made(), [1] * ITERATIONS)
    for one, other in zip(jax.tree.leaves(whole.learner), jax.tree.leaves(single.learner), strict=True):
        assert_array_equal(one, other)


@pytest.mark.parametrize("overlap", [0, 1])
def test_environments_are_stepped_while_the_update_runs(overlap):
    events = []
    agent, env, state = made(events, num_envs=1)
    program = ppax.compile(agent, env, state)
    program.overlap = overlap
    events.clear()  # of the step with which `host` looks at the environment
    update, reached = program.program, program.reached
    program.program = lambda *given: (events.append("update"), update(*given))[1]
    program.reached = lambda given: (events.append("wait"), reached(given))[1]
    with env:
        program(agent, env, state, 2, 2)
    between = ["step", "wait"] if overlap else ["wait", "step"]
    assert [event for event, _ in itertools.groupby(events)] == ["wait", "step", "update", *between, "update"]


def test_failure_of_an_environment_keeps_the_updates_before_it():
    agent, env, state = made(fail_at=2 * STEPS + 3, num_envs=1)  # in the third rollout, beside the second update
    program = ppax.compile(agent, env, state)
    program.overlap = 1
    with env, pytest.raises(ppax.EnvError) as failure:
        program(agent, env, state, ITERATIONS, ITERATIONS)
    found = failure.value.reached.state
    expected, metrics = trained(*made(num_envs=1), [2])
    assert int(found.iteration) == 2
    assert_array_equal(failure.value.reached.metrics["policy_loss"], metrics["policy_loss"])
    for one, other in zip(jax.tree.leaves(found.learner), jax.tree.leaves(expected.learner), strict=True):
        assert_array_equal(one, other)


@pytest.mark.parametrize("overlap", [0, 1])
def test_training_ends_at_an_update_that_is_not_finite(overlap):
    agent, env, state = made(learning_rate=1e38, max_grad_norm=None)
    found, _ = trained(agent, env, state, [ITERATIONS], overlap)
    assert int(found.iteration) < ITERATIONS
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(found.learner.params))


def test_a_rollout_beside_a_discarded_update_is_dropped():
    """A call after it resets the environments and begins anew, as without overlap."""
    agent, env, state = made(num_envs=2)
    program = ppax.compile(agent, env, state)
    program.overlap, keys, begin = 1, [], program.policy.begin
    program.policy.begin = lambda agent, learner, num_steps, key: (
        keys.append(jax.random.key_data(key).tolist()),
        begin(agent, learner, num_steps, key),
    )
    with env:
        bad = dataclasses.replace(agent, learning_rate=np.float32(np.nan))
        stopped, _ = program(bad, env, state, 2, ITERATIONS)
        assert int(stopped.iteration) == 0
        assert len(keys) == 2  # the second rollout was collected beside the update that was discarded
        position = env.host.position
        found, _ = program(agent, env, stopped, 1, ITERATIONS)
        assert env.host.position > position + STEPS  # a reset, and one rollout
    assert int(found.iteration) == 1
    assert keys[2] == keys[0]
    expected, _ = trained(*made(num_envs=2), [1], overlap=0)
    for one, other in zip(jax.tree.leaves(found.learner), jax.tree.leaves(expected.learner), strict=True):
        assert_allclose(one, other, **CLOSE)


def fitted(directory, every=None):
    with ppax.make("gymnasium/CartPole-v1", 2) as env:
        return ppax.fit(
            ppax.PPO(ppax.networks.mlp(env, hidden=(8,))),
            env,
            ITERATIONS * 2 * STEPS,
            run_dir=directory,
            num_steps=STEPS,
            overlap=1,
            log=ppax.config.Log(console=False, every=every),
        )


def test_rows_of_the_log_do_not_change_a_run_and_its_run_file_names_the_overlap(tmp_path):
    whole, rows = fitted(tmp_path / "whole", every=ITERATIONS), fitted(tmp_path / "rows", every=1)
    assert len(rows.history) == ITERATIONS
    for one, other in zip(jax.tree.leaves(whole.state.learner), jax.tree.leaves(rows.state.learner), strict=True):
        assert_array_equal(one, other)
    assert ppax.config.read(tmp_path / "rows" / "run.toml")["overlap"] == 1


@pytest.mark.parametrize("target", ["target_kl", "rate_target", "coef_target"])
@pytest.mark.parametrize("many", [False, True])
def test_controls_of_the_kl_are_refused(target, many):
    """The KL to the policy that acted is also that of the update before it."""
    control, loss = KLControl(**{target: 0.01}), KLPenalty() if target == "coef_target" else ClippedSurrogate()
    option = rf"extensions\.kl_control\.{target}"
    with ppax.make("gymnasium/CartPole-v1", 2) as env:
        agent = ppax.PPO(ppax.networks.mlp(env, hidden=(8,)), extensions=(control,), loss=loss)
        agent = ppax.Independent(agent, 1) if many else agent
        require_overlap(agent, env, 0, None)
        with pytest.raises(ppax.ConfigError, match=rf"overlap = 1: {option} .*leave out overlap or {option}"):
            require_overlap(agent, env, 1, None)
        plain = ppax.PPO(ppax.networks.mlp(env, hidden=(8,)))
        with pytest.raises(ppax.ConfigError, match=option):
            ppax.fit(dataclasses.replace(plain, extensions=(control,), loss=loss), env, 64, num_steps=STEPS, overlap=1)


@pytest.mark.parametrize(
    ("env", "options", "sentence"),
    [
        ("CartPole-v1", {}, "overlap = 1: CartPole-v1 is stepped inside the compiled program; leave it out"),
        (
            "gymnasium/CartPole-v1",
            {"iterations_per_env_reset": 2},
            "overlap = 1: iterations_per_env_reset changes environments or players",
        ),
    ],
)
def test_overlap_that_cannot_work_is_refused(env, options, sentence):
    made_env = ppax.make(env, 2)
    agent = ppax.PPO(ppax.networks.mlp(made_env, hidden=(8,)))
    with pytest.raises(ppax.ConfigError, match=sentence):
        ppax.fit(agent, made_env, 64, num_steps=STEPS, overlap=1, **options)
