"""PPG's auxiliary phase: loss and gradient in float64 by differences, its course, resume, value errors with it."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax import config
from ppax.cli.options import add_train, parse_run
from ppax.config import Log
from ppax.envs import TimeLimit, VectorEnv, builtin
from ppax.extensions import PPG, ExtensionState
from ppax.extensions.ppg import METRICS
from ppax.networks import network
from ppax.networks.memories import GRU
from ppax.ppo.critics import PopArt, Quantile, TwoHot
from ppax.ppo.minibatches import Prioritised, Shuffle
from ppax.training.collection import collect
from support.learned import learned as learned_from
from support.worlds import QUICK

SHORT = VectorEnv(TimeLimit(builtin.CartPole(), 5), 3)


def agent_of(env, *extensions, **options):
    net = network(env, hidden=(5,), **({"memory": options.pop("memory")} if "memory" in options else {}))
    own = {"minibatch": Shuffle(2), "num_epochs": 2, "learning_rate": 3e-3}
    return ppax.PPO(net, extensions=extensions, **(own | options))


def state_of(learner):
    """PPG's state."""
    return learner.extensions["ppg"].state


def double(tree):
    return jax.tree.map(lambda x: np.asarray(x, np.float64), tree)


def moved(tree):
    """Other parameters, so that the policy is not the one of before."""
    return jax.tree.map(lambda x: x + 0.3 * jnp.cos(jnp.arange(x.size) + 1.0).reshape(x.shape), tree)


def in_float64(params, before, batch, beta):
    """L_aux + beta KL(before || now) + L_value in NumPy: one hidden layer of tanh, linear heads."""
    obs, target = (np.asarray(x, np.float64) for x in (batch.steps.obs, batch.targets.value))

    def hidden(params, name):
        return np.tanh(obs @ params[name]["0"]["kernel"] + params[name]["0"]["bias"])

    def linear(head, x):
        return x @ head["kernel"] + head["bias"]

    def log_probs(params):
        logits = linear(params["policy"], hidden(params, "actor"))
        return logits - np.log(np.exp(logits).sum(-1, keepdims=True))

    now, old = params["network"], log_probs(before)
    auxiliary = 0.5 * (linear(params["head"], hidden(now, "actor"))[..., 0] - target) ** 2
    value = 0.5 * (linear(now["value"], hidden(now, "critic"))[..., 0] - target) ** 2
    divergence = (np.exp(old) * (old - log_probs(now))).sum(-1)
    valid = np.asarray(batch.steps.valid)
    parts = [x[valid].mean() for x in (auxiliary, divergence, value)]
    return parts[0] + beta * parts[1] + parts[2], parts


def test_loss_and_gradient_are_those_of_float64():
    phase = PPG(beta_clone=0.7)
    agent = agent_of(SHORT, phase)
    state = ppax.start(agent, SHORT, 8, jax.random.key(0))
    gather = jax.jit(collect, static_argnums=4, compiler_options=QUICK)
    rollout = gather(agent, SHORT, state.learner, state.actor, 8, jax.random.key(1)).rollout
    learner, batch = state.learner, learned_from(agent, state.learner, rollout).batch
    steps = batch.steps
    assert not steps.valid.all()
    params = moved({"network": learner.params, "head": state_of(learner).head})
    index = jnp.arange(len(steps.valid))
    loss = lambda params: phase._loss(agent, learner, batch, params, (index, None), steps.valid)  # noqa: E731
    (got, metrics), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True), compiler_options=QUICK)(params)
    of = lambda params: in_float64(params, double(learner.params), batch, 0.7)  # noqa: E731
    wanted, parts = of(double(params))
    np.testing.assert_allclose(got, wanted, rtol=1e-5)
    np.testing.assert_allclose([metrics[name] for name in METRICS], parts, rtol=1e-4)
    assert parts[1] > 1e-3
    leaves, structure = jax.tree.flatten(double(params))
    for i, (leaf, slope) in enumerate(zip(leaves, jax.tree.leaves(gradient), strict=True)):
        for place in np.ndindex(leaf.shape):
            ends = []
            for change in (1e-5, -1e-5):
                other = [x.copy() for x in leaves]
                other[i][place] += change
                ends.append(of(jax.tree.unflatten(structure, other))[0])
            np.testing.assert_allclose(slope[place], (ends[0] - ends[1]) / 2e-5, rtol=1e-3, atol=2e-4)


def auxiliary_values(agent, learner, obs):
    """V of the auxiliary head in float64, from value outputs of one hidden layer and a linear head."""
    tower, head = double(learner.params["actor"]["0"]), double(state_of(learner).head)
    outputs = np.tanh(obs @ tower["kernel"] + tower["bias"]) @ head["kernel"] + head["bias"]
    return np.array([agent.critic.value(learner.critic, jnp.asarray(row, jnp.float32)) for row in outputs], np.float64)


def test_the_auxiliary_head_keeps_its_values_when_popart_moves():
    """Returns a hundred times as large: the statistics move, and without gradient steps no V does, of either head."""
    agent = agent_of(SHORT, PPG(every=8), critic=PopArt(), learning_rate=0.0)
    state = ppax.start(agent, SHORT, 8, jax.random.key(0))
    gather = jax.jit(collect, static_argnums=4, compiler_options=QUICK)
    rollout = gather(agent, SHORT, state.learner, state.actor, 8, jax.random.key(1)).rollout
    own = state_of(state.learner)
    own = {"ppg": ExtensionState(own._replace(head=moved(own.head)))}
    learner = state.learner._replace(extensions=own)
    obs = np.random.default_rng(0).normal(size=(4, 4))
    for scale in (1.0, 100.0):
        before = auxiliary_values(agent, learner, obs)
        scaled = rollout._replace(steps=dataclasses.replace(rollout.steps, reward=scale * rollout.steps.reward))
        after = jax.jit(agent.update, compiler_options=QUICK)(learner, scaled, jax.random.key(2)).learner
        assert abs(after.critic.mean - learner.critic.mean) > 1.0
        np.testing.assert_allclose(auxiliary_values(agent, after, obs), before, rtol=1e-4, atol=1e-4)
        learner = after


def test_the_auxiliary_head_of_two_hot_begins_as_the_critics():
    """From random logits over bins up to a million V would begin at tens of thousands."""
    agent = agent_of(SHORT, PPG(), critic=TwoHot())
    learner = ppax.start(agent, SHORT, 8, jax.random.key(0)).learner
    obs = jax.random.normal(jax.random.key(1), (4, 4))
    own = agent.policy(learner, (), obs, jnp.zeros(4, bool), None).value
    np.testing.assert_allclose(auxiliary_values(agent, learner, np.float64(obs)), own, rtol=1e-4, atol=1e-3)


def test_a_phase_comes_once_in_some_iterations():
    states, metrics = {}, {}
    for name, phases in (("plain", ()), ("ppg", (PPG(every=2, num_epochs=2),))):
        agent = agent_of(SHORT, *phases)
        state = ppax.start(agent, SHORT, 8, jax.random.key(0))
        train = jax.jit(ppax.train, compiler_options=QUICK)
        states[name], metrics[name] = [], []
        for _ in range(4):
            state, row = train(agent, SHORT, state, 1, 4)
            states[name].append(state.learner)
            metrics[name].append(row)
    assert [int(state_of(x).iterations) for x in states["ppg"]] == [1, 0, 1, 0]
    rows = np.array([[row[name] for name in METRICS] for row in metrics["ppg"]])
    assert (rows[0] == 0.0).all()
    assert (rows[1] > 0.0).all()
    np.testing.assert_array_equal(rows[2], rows[1])
    assert (rows[3] != rows[2]).all()
    same = [
        all(
            np.allclose(x, y, atol=1e-6) for x, y in zip(*map(jax.tree.leaves, (one.params, other.params)), strict=True)
        )
        for one, other in zip(states["plain"], states["ppg"], strict=True)
    ]
    assert same == [True, False, False, False]
    assert max(float(row["ratio_first_max_dev"]) for row in metrics["ppg"]) < 1e-6
    assert not set(METRICS) & set(metrics["plain"][0])
    assert states["plain"][0].extensions == {}


@pytest.mark.parametrize(
    "options",
    [
        {"memory": GRU(3), "seq_len": 4, "critic": PopArt(value_clip=0.2)},
        pytest.param({"critic": Quantile(5), "minibatch": Prioritised(num_minibatches=2)}, marks=pytest.mark.nightly),
    ],
    ids=["memory", "quantile"],
)
def test_it_works_with_memories_and_critics(options):
    agent = agent_of(SHORT, PPG(every=1, num_epochs=2), normalize_obs=True, **options)
    state = ppax.start(agent, SHORT, 8, jax.random.key(0))
    after, metrics = jax.jit(ppax.train, compiler_options=QUICK)(agent, SHORT, state, 2)
    assert int(after.iteration) == 2
    assert float(metrics["ratio_first_max_dev"]) < 1e-6
    for x, y in zip(*(jax.tree.leaves(state_of(one.learner).head) for one in (state, after)), strict=True):
        assert (x != y).any()
        assert np.isfinite(y).all()


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path):
    agent, log = agent_of(SHORT, PPG(every=3, num_epochs=2)), Log(every=1, checkpoint_seconds=0.0, console=False)
    stop = {"callbacks": [lambda state, row: row["iteration"] >= 2]}
    whole = ppax.fit(agent, SHORT, 4 * 24, num_steps=8, log=log, run_dir=tmp_path / "whole")
    ppax.fit(agent, SHORT, 4 * 24, num_steps=8, log=log, run_dir=tmp_path / "half", **stop)
    resumed = ppax.resume(tmp_path / "half", agent, SHORT, console=False)
    as_bytes = lambda x: np.asarray(jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x)  # noqa: E731
    for x, y in zip(*(jax.tree.leaves(run.state.learner) for run in (whole, resumed)), strict=True):
        assert as_bytes(x).tobytes() == as_bytes(y).tobytes()
    assert float(whole.history[-1]["phase_value_loss"]) > 0.0
    assert ppax.load(tmp_path / "whole").learner.extensions == {}


def test_values_of_held_rollouts_are_nearer_with_it_and_the_policy_stays():
    """Value error on rollouts that no agent has seen, from equal numbers of environment steps; three seeds."""
    env = VectorEnv(TimeLimit(builtin.CartPole(), 50), 8)
    errors = {}
    for name, phases in (("plain", ()), ("ppg", (PPG(every=1, num_epochs=6, learning_rate=1e-3),))):
        agent = ppax.PPO(network(env, hidden=(16,)), extensions=phases, learning_rate=3e-4, num_epochs=1)
        errors[name] = []
        for seed in range(3):
            state = ppax.start(agent, env, 32, jax.random.key(seed))
            state, metrics = jax.jit(ppax.train)(agent, env, state, 24)
            held = collect(agent, env, state.learner, state.actor, 32, jax.random.key(99)).rollout
            steps, targets, _ = learned_from(agent, state.learner, held).batch
            squares = (steps.value - targets.value) ** 2
            scale = np.var(np.asarray(targets.value)[np.asarray(steps.valid)])
            errors[name].append(float(squares[steps.valid].mean() / scale))
        if name == "ppg":
            assert 0.0 < float(metrics["phase_policy_kl"]) < 1e-2
    print(errors)
    assert max(errors["ppg"]) < min(errors["plain"])


def test_run_files_and_the_command_line_choose_it():
    agent = config.build({"agent": {"extensions": {"ppg": {"every": 8, "beta_clone": 2.0}}}}).agent
    assert agent.extensions == (PPG(beta_clone=2.0, every=8),)
    assert config.describe(agent)["extensions"]["ppg"]["part"] == "ppg"
    line = ["CartPole-v1", "--agent.extensions", "ppg", "--agent.extensions.ppg.num-epochs", "3"]
    assert config.build(parse_run("train", line, add_train)[1]).agent.extensions == (PPG(num_epochs=3),)
    assert dataclasses.replace(agent, extensions=()) == config.build({}).agent
