"""Rollouts that PPG's phase keeps: a ring by hand in NumPy, minibatches, room for every agent, resume, the host."""

from types import SimpleNamespace
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import ppax
from ppax.agents.self_play import Pool
from ppax.arrays.sequences import to_rows
from ppax.config import Log
from ppax.core.types import Batch, ConfigError, EnvReset, EnvStep, MinibatchIndices, part
from ppax.devices.layout import Program
from ppax.envs import TimeLimit, VectorEnv, builtin, grouped, host
from ppax.extensions import PPG, ppg
from ppax.networks import network
from ppax.networks.memories import GRU
from ppax.ppo.minibatches import Prioritised, Shuffle
from ppax.ppo.recompute import Epoch
from ppax.training.collection import collect
from support.host_worlds import Maze as HostMaze
from support.learned import learned as learned_from
from support.worlds import QUICK, RANDOM_MASKS, SGD, Spaced

T, B, LENGTH = 8, 3, 4
SHORT = VectorEnv(TimeLimit(builtin.CartPole(), 5), B)
ALIKE = ppax.make("Pursuit-2", 4)
GROUPED = grouped(ALIKE, {"prey": [0], "hunters": [1]})


@part
class Beads:
    """Three or four steps, by a number drawn at reset; Dict observations, and one action forbidden in each step."""

    observation_space = spaces.Dict({"kind": spaces.Discrete(3), "time": spaces.Box(-9.0, 9.0, (2,), np.float32)})
    action_space = spaces.Discrete(3)
    num_agents = None

    def _seen(self, state):
        time, long = state
        return {"kind": time % 3, "time": jnp.stack([time, long]).astype(jnp.float32)}, jnp.arange(3) != time % 3

    def reset(self, key):
        state = jnp.int32(0), jax.random.bernoulli(key).astype(jnp.int32)
        return EnvReset(state, *self._seen(state))

    def step(self, state, action, key):
        state = state[0] + 1, state[1]
        over = state[0] >= 3 + state[1]
        obs, mask = self._seen(state)
        return EnvStep(state, obs, action.astype(jnp.float32), over & (state[1] == 0), over & (state[1] == 1), mask)


BEADS = VectorEnv(Beads(), B)
SEEN = []


@part
class Recorder:
    """Shuffled minibatches that note each batch from which they are drawn."""

    num_minibatches: ClassVar[int] = 2

    def size(self, sequences, length):
        return Shuffle(2).size(sequences)

    def __call__(self, batch, key):
        jax.debug.callback(lambda batch: SEEN.append(jax.tree.map(np.asarray, batch)), batch)
        return Shuffle(2)(batch, key)


def agent_of(env, phase, memory=None, **options):
    net = network(env, hidden=(5,), **({"memory": memory} if memory else {}))
    own = {"minibatch": Shuffle(2), "num_epochs": 1, "learning_rate": 3e-3}
    return ppax.PPO(net, extensions=(phase,), **(own | options))


def state_of(learner):
    """PPG's state."""
    return learner.extensions["ppg"].state


def by_hand(rollout, gamma=0.99, decay=0.95):
    """Sequences of a rollout, one stream and one step at a time: observations, masks, carries, targets by GAE."""
    steps = jax.tree.map(np.asarray, rollout.steps)
    sequences = []
    for b in range(B):
        target, later, value = np.zeros(T), 0.0, float(rollout.last_value[b])
        for t in reversed(range(T)):
            ended = steps.terminated[t, b] or steps.truncated[t, b]
            own = float(steps.value[t, b])
            delta = steps.reward[t, b] + gamma * (0.0 if steps.terminated[t, b] else value) - own
            later = delta + (0.0 if ended else gamma * decay * later)
            target[t], value = later + own, own
        for start in range(0, T, LENGTH):
            rows = np.array([t for t in range(start, start + LENGTH) if steps.valid[t, b]], int)
            sequences.append(
                {
                    "valid": steps.valid[start : start + LENGTH, b],
                    "obs": [x[rows, b] for x in jax.tree.leaves(steps.obs)],
                    "first": steps.first[rows, b],
                    "mask": steps.action_mask[rows, b],
                    "action": steps.action[rows, b],
                    "target": target[rows],
                    # the memory before an invalid row is never read: the next one is the first of an episode
                    "carry": [x[start // LENGTH, b] * steps.valid[start, b] for x in jax.tree.leaves(steps.carry)],
                }
            )
    return sequences


def as_sequences(batch):
    """Sequences of a batch in the same form."""
    steps, sequences = batch.steps, []
    for i, valid in enumerate(steps.valid):
        sequences.append(
            {
                "valid": valid,
                "obs": [x[i][valid] for x in jax.tree.leaves(steps.obs)],
                "first": steps.first[i][valid],
                "mask": steps.action_mask[i][valid],
                "action": steps.action[i][valid],
                "target": batch.targets.value[i][valid],
                "carry": [x[i, 0] for x in jax.tree.leaves(steps.carry)],
            }
        )
    return sequences


def alike(one, other):
    """Whether two sequences are the same; targets up to rounding."""
    exact = all(
        np.array_equal(x, y)
        for name in one
        if name != "target"
        for x, y in zip(jax.tree.leaves(one[name]), jax.tree.leaves(other[name]), strict=True)
    )
    return exact and np.allclose(one["target"], other["target"], rtol=1e-5, atol=1e-5)


def test_a_phase_sees_the_last_rollouts_as_a_ring_by_hand_has_them():
    agent = agent_of(BEADS, PPG(every=3, num_epochs=1, rollouts=2), GRU(3), seq_len=LENGTH, minibatch=Recorder())
    state = ppax.start(agent, BEADS, T, jax.random.key(0))
    gather = jax.jit(collect, static_argnums=4, compiler_options=QUICK)
    update = jax.jit(ppax.PPO.update, compiler_options=QUICK)
    learner, actor, last = state.learner, state.actor, []
    for i in range(6):
        SEEN.clear()
        collected = gather(agent, BEADS, learner, actor, T, jax.random.fold_in(jax.random.key(1), i))
        actor, last = collected.actor, [*last, by_hand(collected.rollout)][-2:]
        learner = update(agent, learner, collected.rollout, jax.random.fold_in(jax.random.key(2), i)).learner
        jax.effects_barrier()
        phases = [batch for batch in SEEN if len(batch.steps.valid) == 2 * B * T // LENGTH]
        assert len(phases) == (1 if i in (2, 5) else 0)
        for batch in phases:
            seen = as_sequences(batch)
            assert not all(one["valid"].all() for one in seen)
            for rollout in last:  # each in one piece, and in its order
                places = [
                    p for p in range(0, len(seen), len(rollout)) if all(map(alike, rollout, seen[p : p + len(rollout)]))
                ]
                assert len(places) == 1


def test_the_ring_of_one_rollout_is_that_rollout_and_gives_the_same_phase_bit_for_bit():
    phase = PPG(every=2, num_epochs=2)
    agent = agent_of(BEADS, phase, GRU(3), seq_len=LENGTH)
    state = ppax.start(agent, BEADS, T, jax.random.key(0))
    gather = jax.jit(collect, static_argnums=4, compiler_options=QUICK)
    rollout = gather(agent, BEADS, state.learner, state.actor, T, jax.random.key(1)).rollout
    learner, batch = state.learner, learned_from(agent, state.learner, rollout).batch
    ring = ppg.with_rollout((), jax.tree.map(jnp.zeros_like, batch), 1, jnp.int32(0))
    ring = ppg.with_rollout(ring, batch, 1, jnp.int32(1))
    before = state_of(learner)._replace(key=())
    run = jax.jit(lambda batch, key: phase._phase(agent, learner, before, batch, key), compiler_options=QUICK)
    one, other = (run(x, jax.random.key(2)) for x in (batch, to_rows(ring)))
    for x, y in zip(*(jax.tree.leaves(result._replace(key=())) for result in (one[1], other[1])), strict=True):
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()
    for x, y in zip(*map(jax.tree.leaves, (one[0], other[0])), strict=True):
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes()
    assert state_of(state.learner).kept == ()


def test_the_policy_before_the_phase_is_that_of_its_start_for_old_rollouts_too():
    """Without a step no divergence, and the value losses of each rollout are those of float64."""
    phase = PPG(learning_rate=0.0, every=3, num_epochs=1, rollouts=3)
    agent = agent_of(SHORT, phase, minibatch=Shuffle(1, shuffle=False), learning_rate=3e-2)
    state = ppax.start(agent, SHORT, T, jax.random.key(0))
    gather = jax.jit(collect, static_argnums=4, compiler_options=QUICK)
    update = jax.jit(ppax.PPO.update, compiler_options=QUICK)
    learner, actor, old = state.learner, state.actor, []
    for i in range(3):
        actor, rollout, _ = gather(agent, SHORT, learner, actor, T, jax.random.key(i))
        targets = learned_from(agent, learner, rollout).batch.targets.value
        by_stream = (np.swapaxes(np.asarray(x), 0, 1) for x in (rollout.steps.obs, rollout.steps.valid))
        old.append((*by_stream, np.asarray(targets).reshape(B, T)))
        result = update(agent, learner, rollout, jax.random.key(10 + i))
        learner = result.learner
    params, head = (
        jax.tree.map(lambda x: np.asarray(x, np.float64), tree) for tree in (learner.params, state_of(learner).head)
    )
    losses = []
    for obs, valid, target in old:
        layers = [params[name]["0"] for name in ("actor", "critic")]
        features = [np.tanh(obs @ layer["kernel"] + layer["bias"]) for layer in layers]
        heads = zip(features, (head, params["value"]), strict=True)
        losses.append([(0.5 * ((x @ p["kernel"] + p["bias"])[..., 0] - target) ** 2)[valid].mean() for x, p in heads])
    metrics = result.metrics
    assert abs(float(metrics["phase_policy_kl"])) < 1e-7
    got = [float(metrics[name]) for name in ("phase_auxiliary_value_loss", "phase_value_loss")]
    np.testing.assert_allclose(got, np.mean(losses, axis=0), rtol=1e-4)


@pytest.mark.parametrize(("sequences", "parts"), [(12, 4), (13, 4)])
def test_minibatches_are_as_large_as_those_of_one_rollout_and_have_each_sequence_once(sequences, parts):
    shuffle = Shuffle(parts, remainder="pad")
    batch = Batch(SimpleNamespace(valid=jnp.ones((3 * sequences, 1), bool)), None)
    drawn = ppg.split_minibatches(shuffle(batch, jax.random.key(0)), shuffle.size(sequences), 3 * sequences)
    assert drawn.index.shape[1] == -(-sequences // parts)
    assert drawn.index.shape[0] == 3 * parts
    index = np.asarray(drawn.index).reshape(-1)
    np.testing.assert_array_equal(np.sort(index[index < 3 * sequences]), np.arange(3 * sequences))


def test_weights_stay_with_their_sequences():
    index = jnp.array([[4, 1, 7, 0, 2]])
    drawn = ppg.split_minibatches(MinibatchIndices(index, 0.5 * index), 2, 8)
    np.testing.assert_array_equal(drawn.index, [[4, 1], [7, 0], [2, 8]])
    np.testing.assert_array_equal(drawn.weight, [[2.0, 0.5], [3.5, 0.0], [1.0, 0.0]])
    whole = ppg.split_minibatches(MinibatchIndices(index), 5, 8)
    np.testing.assert_array_equal(whole.index, index)
    assert whole.weight is None


# ---------------------------------------------------------------- in training


PHASE = PPG(every=3, num_epochs=1, rollouts=2)


def kinds():
    alone, pairs = agent_of(ALIKE, PHASE), {name: agent_of(one, PHASE) for name, one in GROUPED.groups.items()}
    groups = ppax.Groups(pairs, GROUPED.sizes)
    spaced = VectorEnv(Spaced("nested", RANDOM_MASKS["nested"]), 4)
    yield "PPO", agent_of(SHORT, PHASE), SHORT
    yield "memory", agent_of(BEADS, PHASE, GRU(3), seq_len=4, minibatch=Prioritised(num_minibatches=2)), BEADS
    yield "masks", agent_of(spaced, PHASE, recompute=Epoch()), spaced
    yield "Independent", ppax.Independent(alone, 2), ALIKE
    yield "Groups", groups, GROUPED
    yield "SelfPlay", ppax.SelfPlay(groups, Pool(every=1, size=2, share=0.5, opponents=1), 4), GROUPED


@pytest.mark.parametrize("kind", ["PPO", "memory", "masks", "Independent", "Groups", "SelfPlay"])
def test_a_start_has_room_for_the_rollouts_of_every_agent(kind, vmapped_keys):
    _, agent, env = next(one for one in kinds() if one[0] == kind)
    state = jax.eval_shape(lambda key: ppax.start(agent, env, T, key), jax.random.key(0))
    is_learner = lambda node: isinstance(node, ppax.core.types.LearnerState)  # noqa: E731
    learners = [x for x in jax.tree.leaves(state.learner, is_leaf=is_learner) if is_learner(x) and x.extensions]
    rows = {state_of(x).kept.steps.valid.size for x in learners}
    shares = {streams * T * PHASE.rollouts for _, streams in agent.learners(env.num_streams)}
    assert rows == ({2 * one for one in shares} if kind == "Independent" else shares)  # of all players together
    after = jax.eval_shape(lambda state: ppax.train(agent, env, state, 3), state).state
    assert jax.tree.structure(after) == jax.tree.structure(state)
    assert jax.tree.map(lambda x: (x.shape, x.dtype), after) == jax.tree.map(lambda x: (x.shape, x.dtype), state)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["memory", "masks", "Independent", "Groups", "SelfPlay"])
def test_every_agent_trains_with_it(kind):
    _, agent, env = next(one for one in kinds() if one[0] == kind)
    with jax.debug_key_reuse(False):
        state = jax.jit(ppax.start, static_argnums=2, compiler_options=QUICK)(agent, env, T, jax.random.key(0))
        after, metrics = jax.jit(ppax.train, compiler_options=QUICK)(agent, env, state, 3)
    assert int(after.iteration) == 3
    assert float(metrics["ratio_first_max_dev"]) < 1e-6
    assert float(metrics["phase_value_loss"]) > 0.0


def test_a_sweep_has_room_for_each_member():
    keys = jnp.stack([jax.random.key(0)] * 2)
    agent = agent_of(SHORT, PHASE)
    states = jax.eval_shape(lambda keys: ppax.start_sweep(agent, SHORT, T, keys), keys)
    assert state_of(states.learner).kept.steps.valid.shape == (2, 2, B * T, 1)


def test_a_run_resumed_between_two_phases_equals_an_uninterrupted_one(tmp_path):
    agent = agent_of(SHORT, PPG(every=3, num_epochs=1, rollouts=3))
    log = Log(every=1, checkpoint_seconds=0.0, console=False)
    stop = {"callbacks": [lambda state, row: row["iteration"] >= 2]}
    whole = ppax.fit(agent, SHORT, 4 * B * T, num_steps=T, log=log, run_dir=tmp_path / "whole")
    ppax.fit(agent, SHORT, 4 * B * T, num_steps=T, log=log, run_dir=tmp_path / "half", **stop)
    resumed = ppax.resume(tmp_path / "half", agent, SHORT, console=False)
    as_bytes = lambda x: np.asarray(jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x)  # noqa: E731
    for x, y in zip(*(jax.tree.leaves(run.state.learner) for run in (whole, resumed)), strict=True):
        assert as_bytes(x).tobytes() == as_bytes(y).tobytes()
    phase = state_of(whole.state.learner)
    assert np.asarray(phase.kept.steps.valid).any(axis=(1, 2)).all()
    # one epoch over three rollouts of two minibatches each
    assert [int(x) for x in jax.tree.leaves(phase.opt_state) if x.dtype == jnp.int32] == [6]
    assert float(whole.history[-1]["phase_value_loss"]) > 0.0
    assert ppax.load(tmp_path / "whole").learner.extensions == {}


@pytest.mark.nightly
@pytest.mark.parametrize("memory", [None, GRU(3)])
def test_environments_on_the_host(memory):
    env = host(HostMaze, 4)
    agent = agent_of(env, PHASE, memory, normalize_obs=True)
    run = ppax.fit(agent, env, 3 * 4 * T, num_steps=T, log=Log(every=1, console=False))
    assert [row["phase_value_loss"] > 0.0 for row in run.history] == [False, False, True]
    assert run.history[-1]["ratio_first_max_dev"] < 1e-6
    valid = state_of(run.state.learner).kept.steps.valid
    assert int(valid.sum()) == run.history[2]["env_steps"] - run.history[0]["env_steps"]


@pytest.mark.nightly
def test_two_devices_learn_what_one_learns():
    """Rollouts and losses; parameters after Adam's steps would differ by more than rounding where gradients are 0."""
    learned = []
    for devices in (1, 2):
        env = VectorEnv(TimeLimit(builtin.CartPole(), 5), 4)
        phase = PPG(learning_rate=0.0, every=2, num_epochs=1, rollouts=2)
        agent = agent_of(env, phase, program=Program(devices=devices), optimizer=SGD())
        state = ppax.start(agent, env, T, jax.random.key(0))
        learned.append(jax.jit(ppax.train, compiler_options=QUICK)(agent, env, state, 2).state.learner)
    one, two = ((x.params, state_of(x).kept, state_of(x).metrics) for x in learned)
    for x, y in zip(*map(jax.tree.leaves, (one, two)), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5, rtol=1e-3)
    assert float(state_of(learned[0]).metrics[2]) > 0.0


def test_more_rollouts_than_iterations_are_refused():
    with pytest.raises(ConfigError, match=r"ppg\.rollouts = 5: must be at most ppg\.every = 4"):
        ppax.start(agent_of(SHORT, PPG(every=4, rollouts=5)), SHORT, T, jax.random.key(0))
