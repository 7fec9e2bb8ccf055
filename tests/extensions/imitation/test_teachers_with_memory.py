"""Teachers with memory: targets as if they were stepped row by row, memory over rollouts, resume, learning."""

import dataclasses
import functools
import itertools
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax import config
from ppax.agents.self_play import Pool
from ppax.cli.main import main
from ppax.core.types import ConfigError
from ppax.envs import VectorEnv, grouped, host
from ppax.extensions.imitation import distill
from ppax.extensions.imitation.distillation import Teacher, initial_memory
from ppax.networks import network
from ppax.networks.memories import GRU, LRU, LSTM, Attention, MinGRU, Window
from ppax.ppo.losses import NoPolicyLoss
from ppax.ppo.minibatches import Shuffle
from ppax.training.collection import collect
from ppax.training.loop import iteration_inputs
from support.host_worlds import Maze as HostMaze
from support.host_worlds import NativeMaze
from support.teachers import Recall, latch_of
from support.trained import policy_of
from support.turn_games import Scripted, Turn
from support.worlds import QUICK, SGD, Counter

QUIET = ppax.Log(console=False)
STEPS = 8
MAZE = VectorEnv(NativeMaze(), 4)
STILL = {"loss": NoPolicyLoss(), "optimizer": SGD(), "learning_rate": 0.0, "num_epochs": 1}
MEMORIES = {
    "gru": GRU(3),
    "lstm": LSTM(3),
    "mingru": MinGRU(3),
    "window": Window(3, (4,)),
    "attention": Attention(4, 3, 2),
    "lru": LRU(4),
}


def teacher_with(memory, env=MAZE):
    policy = policy_of(ppax.PPO(network(env, hidden=(4,), memory=memory)), env)
    return ppax.Policy(policy.agent, jax.tree.map(jnp.asarray, policy.learner), policy.spec)


def pupil(env, teacher, memory=None, **options):
    net = network(env, hidden=(5,), **({"memory": memory} if memory else {}))
    given = STILL | {"minibatch": Shuffle(1)} | options
    return ppax.PPO(net, extensions=(distill(env, teacher),), **given)


def memory_of(actor, group=None):
    """Teacher's memory of each stream between rollouts."""
    return (actor.extensions if group is None else actor.extensions[group])["distillation"]


def two_iterations(agent, env):
    """State before, rollout, state after and metrics of two iterations."""

    def once(state):
        same = dataclasses.replace(state, key=jax.random.clone(state.key))
        inputs = iteration_inputs(agent, same, 4)
        rollout = collect(inputs.agent, env, state.learner, state.actor, STEPS, inputs.collect_key).rollout
        return rollout, *ppax.train(agent, env, state, 1, 4)

    program = jax.jit(once, compiler_options=QUICK)
    state = jax.jit(ppax.start, static_argnums=2, compiler_options=QUICK)(agent, env, STEPS, jax.random.key(0))
    for _ in range(2):
        before = state
        rollout, state, metrics = program(before)
        yield before, rollout, state, metrics


@functools.cache
def step_of(teacher):
    """Compiled step of a teacher: next memory (its critic's too), log-probability of the mode, and distribution."""

    def step(carry, obs, first):
        out = teacher.agent.policy(teacher.learner, carry, obs, first, None)
        acted = teacher.step(teacher.actor.memory.reduced(carry), obs, first)
        return out.carry, acted.log_prob, out.distribution

    return jax.jit(step, compiler_options=QUICK)


def stepped(teacher, carry, obs, first):
    """Distributions [T, B] of a teacher that acts row by row, and its memory afterwards."""
    rows = []
    for at, begins in zip(obs, first, strict=True):
        carry, log_prob, distribution = step_of(teacher)(carry, at, begins)
        np.testing.assert_allclose(distribution.log_prob(distribution.mode()), log_prob, rtol=1e-5)
        rows.append(distribution)
    return jax.tree.map(lambda *x: np.stack(x), *rows), carry


def kept(memory):
    """Arrays of a memory, with zeros for steps of a window that a flag beside them calls padding."""
    leaves = [*map(np.asarray, jax.tree.leaves(memory))]
    pairs = zip(leaves, [*leaves[1:], leaves[0]], strict=True)
    return [x * flags[..., None] if x.dtype != bool and flags.dtype == bool else x for x, flags in pairs]


def own_log_probs(agent, learner, obs):
    flat = obs.reshape(-1, obs.shape[-1])
    out = agent.policy(learner, agent.initial_carry(len(flat)), flat, jnp.ones(len(flat), bool), None)
    return np.asarray(out.distribution.log_probs).reshape(*obs.shape[:-1], -1)


def divergence(wanted, own, valid):
    """Mean of KL(wanted || own) over rows where `valid`."""
    wanted, own = np.float64(wanted.log_probs)[valid], np.float64(own)[valid]
    return (np.exp(wanted) * (wanted - own)).sum(-1).mean()


@pytest.mark.parametrize(
    "name", [*list(MEMORIES)[:4], *(pytest.param(name, marks=pytest.mark.nightly) for name in list(MEMORIES)[4:])]
)
def test_targets_are_those_of_a_teacher_that_is_stepped_row_by_row(name):
    """Over two rollouts, in which episodes end and go on from one to the other."""
    teacher = teacher_with(MEMORIES[name])
    agent = pupil(MAZE, teacher)
    carry = teacher.agent.initial_carry(4)
    went_on = False
    for before, rollout, after, metrics in two_iterations(agent, MAZE):
        steps = rollout.steps
        wanted, carry = stepped(teacher, carry, steps.obs, steps.first)
        own, valid = own_log_probs(agent, before.learner, steps.obs), np.asarray(steps.valid)
        np.testing.assert_allclose(float(metrics["teacher_kl"]), divergence(wanted, own, valid), rtol=2e-5)
        assert steps.first[1:].any()
        goes_on = valid[-1]  # else the next step begins an episode, with an empty memory
        assert goes_on.any()
        for x, y in zip(kept(memory_of(after.actor)), kept(carry), strict=True):
            np.testing.assert_allclose(x[goes_on], y[goes_on], atol=1e-5)
        forgot, _ = stepped(teacher, teacher.agent.initial_carry(4), steps.obs, jnp.ones_like(steps.first))
        assert abs(divergence(forgot, own, valid) / divergence(wanted, own, valid) - 1.0) > 1e-4  # memory matters
        went_on |= bool((~np.asarray(steps.first[0])).any()) and any(np.any(x) for x in memory_of(before.actor))
    assert went_on


def test_minibatches_of_short_sequences_have_the_targets_of_the_whole_rollout():
    """A student with memory, four minibatches of two sequences of four steps, three of them valid in each."""
    env = VectorEnv(Counter(), 4)
    teacher = teacher_with(GRU(3), env)
    agent = pupil(env, teacher, memory=GRU(2), seq_len=4, minibatch=Shuffle(4))
    (before, rollout, _, metrics), _ = two_iterations(agent, env)
    steps = rollout.steps
    wanted, _ = stepped(teacher, teacher.agent.initial_carry(4), steps.obs, steps.first)
    me = ppax.Policy(agent, before.learner, teacher.spec)
    own, _ = stepped(me, agent.initial_carry(4), steps.obs, steps.first)
    assert (np.asarray(steps.valid).reshape(2, 4, 4).sum(1) == 3).all()
    expected = divergence(wanted, own.log_probs, np.asarray(steps.valid))
    np.testing.assert_allclose(float(metrics["teacher_kl"]), expected, rtol=2e-5)


def many_agents(kind):
    """Agent, environment and teacher with memory; with groups the teacher is that of the hunters."""
    env = ppax.make("Pursuit-2", 4)
    teacher = teacher_with(GRU(3), env)
    if kind == "Independent":
        return ppax.Independent(pupil(env, teacher), 2), env, teacher
    env = grouped(env, {"prey": [0], "hunters": [1]})
    one = env.groups["hunters"]
    prey = ppax.PPO(network(env.groups["prey"], hidden=(4,)), minibatch=Shuffle(1), **STILL)
    groups = ppax.Groups({"prey": prey, "hunters": pupil(one, teacher)}, env.sizes)
    pool = Pool(every=1, size=2, share=0.5, opponents=1)
    return (groups if kind == "Groups" else ppax.SelfPlay(groups, pool, 4)), env, teacher


@pytest.mark.parametrize(
    "kind", ["Independent", *(pytest.param(kind, marks=pytest.mark.nightly) for kind in ("Groups", "SelfPlay"))]
)
def test_each_stream_of_many_agents_has_the_memory_of_its_own(kind, vmapped_keys):
    agent, env, teacher = many_agents(kind)
    carry = teacher.agent.initial_carry(8 if kind == "Independent" else 4)
    for _, rollout, after, _ in two_iterations(agent, env):
        obs, first = rollout.steps.obs, rollout.steps.first
        if kind != "Independent":
            obs, first = obs["hunters"], first.reshape(STEPS, 4, 2)[..., 1]
        found = memory_of(after.actor, None if kind == "Independent" else "hunters")
        _, carry = stepped(teacher, carry, obs, first)
        learned = slice(0, 3) if kind == "SelfPlay" else slice(None)  # a past self hunts in the last environment
        for x, y in zip(found, jax.tree.leaves(carry), strict=True):
            np.testing.assert_allclose(x[learned], y[learned], atol=1e-5)
            assert np.any(x)


def test_on_the_host_the_memory_goes_on_from_rollout_to_rollout(monkeypatch):
    """What is recorded of three updates is one long sequence, in which episodes end and go on."""
    env, seen, follow = host(HostMaze, 2), [], Teacher.follow

    def recorded(self, memory, obs, first, mask):
        out = follow(self, memory, obs, first, mask)
        row = {"before": memory, "obs": obs, "first": first, "log_probs": out.distribution.log_probs}
        jax.debug.callback(seen.append, row | {"after": out.memory})
        return out

    monkeypatch.setattr(Teacher, "follow", recorded)
    teacher = teacher_with(GRU(3), env)
    ppax.fit(pupil(env, teacher), env, 3 * 10, num_steps=5, log=QUIET)
    jax.effects_barrier()
    rows = jax.tree.map(np.asarray, seen)
    assert len(rows) == 3
    for before, after in itertools.pairwise(rows):
        jax.tree.map(np.testing.assert_array_equal, before["after"], after["before"])
    obs, first, found = (np.concatenate([row[name] for row in rows]) for name in ("obs", "first", "log_probs"))
    assert not first[5].all() or not first[10].all()
    assert first[1:].any()
    wanted, _ = stepped(teacher, teacher.agent.initial_carry(2), obs, first)
    np.testing.assert_allclose(found, wanted.log_probs, atol=1e-5)


@pytest.mark.parametrize("kind", ["shared", "independent", "groups"])
def test_a_teacher_with_memory_is_refused_where_agents_act_in_turns(kind):
    """Rows of a stream that waits would advance its memory."""
    script = [Turn("ab"[i % 2], {"a": 1.0}) for i in range(40)]
    env = host(lambda: Scripted([script], agents=("a", "b"), masks=False), 1)
    teacher = teacher_with(GRU(3), env)
    if kind == "groups":
        env = grouped(env, {"one": ("a",), "other": ("b",)})
        agent = ppax.Groups({name: pupil(group, teacher) for name, group in env.groups.items()}, env.sizes)
    else:
        agent = pupil(env, teacher)
        agent = agent if kind == "shared" else ppax.Independent(agent, 2)
    with pytest.raises(ConfigError, match=r"distillation\.teacher: has a memory, .* turns, .* teacher without memory"):
        ppax.fit(agent, env, 16, num_steps=8, log=QUIET)


@pytest.mark.parametrize("beta", ["none", 0.5])
def test_a_resumed_run_is_the_same_bit_for_bit(tmp_path, beta):
    """Also: neither acting nor evaluating needs the teacher, a resume does."""
    plan = {"env": "CartPole-v1", "num_envs": 4, "num_steps": 8, "agent": {"network": {"hidden": [4]}}}
    memory = {"network": {"hidden": [4], "memory": {"part": "gru", "width": 3}}}
    agent, env, _ = config.build(plan | {"agent": memory})
    ppax.fit(agent, env, 64, num_steps=8, run_dir=tmp_path / "teacher", log=QUIET)
    ppax.trust(f"{tmp_path}/teacher")
    table = {"part": "distillation", "teacher": str(tmp_path / "teacher"), "beta": beta}
    student, env, _ = config.build(
        plan | {"agent": plan["agent"] | {"extensions": {"distillation": table}, "loss": {"part": "none"}}}
    )
    assert student.extensions[0].memory == ("float32[3]", "float32[3]")
    described = config.describe(student)["extensions"]["distillation"]
    assert list(described["memory"]) == ["float32[3]", "float32[3]"]

    whole = ppax.fit(student, env, 96, num_steps=8, run_dir=tmp_path / "whole", log=QUIET)
    stop = {"callbacks": [lambda state, row: row["iteration"] >= 1]}
    half = ppax.fit(student, env, 96, num_steps=8, run_dir=tmp_path / "half", log=QUIET, **stop)
    assert any(np.any(x) for x in memory_of(half.state.actor))
    assert not half.state.actor.first.all()
    resumed = ppax.resume(tmp_path / "half")
    assert int(resumed.state.iteration) == int(whole.state.iteration) == 3
    for (path, x), y in zip(
        jax.tree_util.tree_leaves_with_path(whole.state), jax.tree.leaves(resumed.state), strict=True
    ):
        data = [jax.random.key_data(z) if jnp.issubdtype(z.dtype, jax.dtypes.prng_key) else z for z in (x, y)]
        np.testing.assert_array_equal(*data, err_msg=jax.tree_util.keystr(path))

    shutil.move(tmp_path / "teacher", tmp_path / "gone")
    jax.clear_caches()  # as in another process: a program in memory has its teacher
    assert ppax.load(tmp_path / "half").act(np.zeros(4, np.float32)) in (0, 1)
    assert main(["evaluate", str(tmp_path / "half"), "--episodes", "2"]) == 0
    with pytest.raises(ConfigError, match=r"distillation.teacher = .*does not exist"):
        ppax.resume(tmp_path / "half", total_steps=128)


def test_a_recorded_memory_has_to_be_the_teachers(tmp_path):
    assert [x.shape for x in initial_memory(("float32[2,3]", "bool[]"), 5)] == [(5, 2, 3), (5,)]
    for text in ("float32[-1]", "object[3]", "float32[3", "3"):
        with pytest.raises(ConfigError, match=r"distillation\.memory: .*must be as 'float32\[64\]'"):
            initial_memory((text,), 2)
    env = ppax.make("CartPole-v1", 4)
    ppax.fit(ppax.PPO(network(env, memory=GRU(3))), env, 32, num_steps=8, run_dir=tmp_path / "teacher", log=QUIET)
    known = distill(env, tmp_path / "teacher").checksum
    other = distill(env, tmp_path / "teacher", checksum=known, memory=("float32[4]",))
    agent = ppax.PPO(network(env), extensions=(other,), minibatch=Shuffle(1))
    state = ppax.start(agent, env, 8, jax.random.key(0))
    with pytest.raises(
        ConfigError, match=r"distillation\.memory = \['float32\[4\]'\]: the teacher .* has \['float32\[3\]"
    ):
        jax.eval_shape(lambda state: ppax.train(agent, env, state, 1), state)


def recalled(env, teacher):
    """Mean return of a student with memory after 30 iterations of 16 x 16 steps."""
    net, options = network(env, hidden=(8,), memory=GRU(8)), {"loss": NoPolicyLoss(), "learning_rate": 1e-2}
    agent = ppax.PPO(net, extensions=(distill(env, teacher),), seq_len=4, **options)
    state = ppax.start(agent, env, 16, jax.random.key(4))
    state, _ = jax.jit(ppax.train, compiler_options=QUICK)(agent, env, state, 30)
    return ppax.evaluate(agent, env, state.learner, jax.random.key(5), 64).mean_return


def test_a_student_learns_what_its_teacher_remembers(monkeypatch):
    """Negative control: a teacher that forgets at every step says nothing after the cue."""
    env = VectorEnv(Recall(), 16)
    teacher = latch_of(env)
    best, student = teacher.evaluate(env, 64).mean_return, recalled(env, teacher)
    follow = Teacher.follow
    monkeypatch.setattr(
        Teacher, "follow", lambda self, memory, obs, first, mask: follow(self, memory, obs, first | True, mask)
    )
    jax.clear_caches()
    forgetful = recalled(env, teacher)
    print(best, student, forgetful)
    assert best == 4.0
    assert student >= 3.9
    assert forgetful <= 3.5
