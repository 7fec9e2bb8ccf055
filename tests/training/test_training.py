"""Pure training: one program for every number, a sweep is its members' solo runs, counts are right."""

import dataclasses
import math
import re
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import ppax
from ppax.arrays import counter
from ppax.core.types import ConfigError
from ppax.envs import VectorEnv
from ppax.networks import mlp, network
from ppax.ppo.advantages import GAE
from ppax.ppo.minibatches import Shuffle
from ppax.ppo.normalization import Normalization
from ppax.ppo.optimizers import ActorCritic
from ppax.ppo.schedules import Linear, Steps
from support.worlds import QUICK, Counter

start = jax.jit(ppax.start, static_argnames="num_steps")
train = jax.jit(ppax.train, compiler_options=QUICK)


def make(num_envs=4, **options):
    env = ppax.make("CartPole-v1", num_envs)
    return ppax.PPO(mlp(env, hidden=(16, 16)), **{"learning_rate": 1e-3} | options), env


def test_one_program_for_all_iterations_and_numbers(monkeypatch):
    traced = []
    update = ppax.PPO.update
    monkeypatch.setattr(ppax.PPO, "update", lambda *args: traced.append(1) or update(*args))
    agent, env = make(schedule=Linear())
    state = start(agent, env, 8, jax.random.key(0))
    train = jax.jit(ppax.train, compiler_options=QUICK)
    state, _ = train(agent, env, state, 1, 10)
    first = len(traced)
    assert first >= 1
    for i in range(10):
        changed = dataclasses.replace(
            agent,
            learning_rate=1e-4 * (i + 1),
            gamma=0.9 + 0.01 * i,
            max_grad_norm=0.1 * (i + 1),
            ent_coef=0.001 * i,
            loss=dataclasses.replace(agent.loss, clip_eps=0.1 + 0.01 * i),
        )
        state, _ = train(changed, env, state, 1 + i, 10)
    assert len(traced) == first
    train.lower(dataclasses.replace(agent, num_epochs=3), env, state, 1, 10)
    assert len(traced) > first  # a size does recompile: the count can move


@pytest.mark.usefixtures("vmapped_keys")
def test_a_member_of_a_sweep_equals_its_solo_run():
    agent, env = make()
    rates = jnp.array([1e-4, 1e-3, 1e-2])
    keys = jax.random.split(jax.random.key(7), 3)

    def run(rate, key):
        swept = dataclasses.replace(agent, learning_rate=rate)
        return ppax.train(swept, env, ppax.start(swept, env, 16, key), 10)

    together = jax.jit(jax.vmap(run), compiler_options=QUICK)(rates, keys)
    alone = jax.jit(run, compiler_options=QUICK)
    for i in range(3):
        solo = alone(rates[i], keys[i])
        for one, all_ in zip(jax.tree.leaves(solo.state.learner), jax.tree.leaves(together.state.learner), strict=True):
            np.testing.assert_allclose(one, all_[i], atol=1e-5)
        np.testing.assert_allclose(solo.metrics["loss"], together.metrics["loss"][i], rtol=1e-4)


@pytest.mark.usefixtures("vmapped_keys")
def test_chunks_do_not_matter():
    agent, env = make(schedule=Linear())
    state = start(agent, env, 8, jax.random.key(0))
    whole, _ = train(agent, env, state, 6, 6)
    for count in (1, 2, 3):
        state, _ = train(agent, env, state, count, 6)
    for one, other in zip(jax.tree.leaves(whole), jax.tree.leaves(state), strict=True):
        if jnp.issubdtype(one.dtype, jax.dtypes.prng_key):
            one, other = jax.random.key_data(one), jax.random.key_data(other)
        np.testing.assert_array_equal(one, other)


def test_learning_rates_of_a_schedule():
    agent, env = make(schedule=Linear(), learning_rate=1.0)
    state = start(agent, env, 8, jax.random.key(0))
    rates = []
    for _ in range(5):
        state, metrics = train(agent, env, state, 1, 5)
        rates.append(float(metrics["learning_rate"]))
    # update u of 5 uses 1 - u/5: the first is full, the last is above zero
    np.testing.assert_allclose(rates, [1.0, 0.8, 0.6, 0.4, 0.2], rtol=1e-6)


def test_episodes_and_steps_are_counted_exactly():
    env = VectorEnv(Counter(3), 2)
    agent = ppax.PPO(mlp(env), minibatch=Shuffle(1))
    state = start(agent, env, 10, jax.random.key(0))
    state, metrics = train(agent, env, state, 2)
    # 20 rows of one environment: 3 steps and a reset row, five times over
    assert float(metrics["episodes"]) == 2 * 5
    assert float(metrics["episode_length"]) == 3.0
    assert float(metrics["episode_return"]) == 1 + 2 + 3
    assert counter.to_int(state.env_steps) == 2 * 15
    assert float(metrics["valid_fraction"]) == 0.75


def test_no_finished_episode_is_nan_and_not_zero():
    env = VectorEnv(Counter(1000), 2)
    agent = ppax.PPO(mlp(env), minibatch=Shuffle(1))
    state = start(agent, env, 4, jax.random.key(0))
    metrics = train(agent, env, state, 1).metrics
    assert np.isnan(float(metrics["episode_return"]))
    assert float(metrics["episodes"]) == 0


def test_the_step_counter_goes_on_beyond_2_to_the_31():
    agent, env = make()
    state = start(agent, env, 8, jax.random.key(0))
    begin = 2**32 - 40
    state = dataclasses.replace(state, env_steps=jnp.array([begin, 0], jnp.uint32))
    counts = []
    for _ in range(3):
        state, _ = train(agent, env, state, 1)
        counts.append(counter.to_int(state.env_steps))
    assert begin < counts[0] < counts[1] < counts[2] <= begin + 3 * 32
    assert counts[-1] > 2**32


def test_sizes_that_do_not_divide_are_refused_with_the_nearest_that_do():
    agent, env = make(num_envs=7, minibatch=Shuffle(4))
    with pytest.raises(ppax.ConfigError, match=r"num_minibatches = 4 .* 91 sequences .* nearest that do: 1, 7, 13"):
        ppax.start(agent, env, 13, jax.random.key(0))
    agent, env = make(seq_len=5)
    with pytest.raises(ppax.ConfigError, match=r"seq_len = 5 does not divide num_steps = 8; nearest that do: 2, 4, 8"):
        ppax.start(agent, env, 8, jax.random.key(0))


def test_a_state_has_no_weak_types():
    agent, env = make(normalize_obs=True, normalize_reward=True)
    state = jax.eval_shape(lambda key: ppax.start(agent, env, 8, key), jax.random.key(0))
    after = jax.eval_shape(lambda s: ppax.train(agent, env, s, 1).state, state)
    assert [x.weak_type for x in jax.tree.leaves(state)] == [False] * len(jax.tree.leaves(state))
    assert jax.tree.map(lambda x: (x.shape, x.dtype), state) == jax.tree.map(lambda x: (x.shape, x.dtype), after)


def test_no_two_iterations_share_a_key():
    agent, env = make()
    state = start(agent, env, 8, jax.random.key(0))
    keys = [jax.random.key_data(jax.random.clone(state.key)).tolist()]
    for _ in range(3):
        state, _ = train(agent, env, state, 1)
        keys.append(jax.random.key_data(jax.random.clone(state.key)).tolist())
    assert len({tuple(key) for key in keys}) == 4


def test_the_same_seed_gives_the_same_bits_and_another_does_not():
    agent, env = make()

    def params(seed):
        state = start(agent, env, 8, jax.random.key(seed))
        return [np.asarray(x).tobytes() for x in jax.tree.leaves(train(agent, env, state, 2).state.learner.params)]

    assert params(0) == params(0) != params(1)


@pytest.mark.parametrize(
    ("env", "observations", "actions"),
    [
        ("CartPole-v1", None, spaces.Discrete(3)),
        ("CartPole-v1", None, spaces.Discrete(2, start=1)),
        ("CartPole-v1", None, spaces.Box(-1.0, 1.0, (2,))),
        ("CartPole-v1", spaces.Discrete(4), None),
        ("CartPole-v1", spaces.Box(-1.0, 1.0, (2, 2)), None),
        ("Pendulum-v1", None, spaces.Box(-1.0, 1.0, (1,))),
    ],
)
def test_a_network_of_another_environment_is_refused(env, observations, actions):
    """Sizes are the same: such a run trained, with actions or observations taken for others."""
    env = ppax.make(env, 2)
    other = SimpleNamespace(
        observation_space=observations or env.observation_space, action_space=actions or env.action_space
    )
    with pytest.raises(ConfigError, match=r"made for another environment .*ppax.networks.network\(env\)"):
        ppax.start(ppax.PPO(network(other)), env, 8, jax.random.key(0))
    ppax.start(ppax.PPO(network(env, distribution="normal")), env, 8, jax.random.key(0))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"gamma": 2.0}, "agent.gamma = 2.0: must be at most 1"),
        ({"gamma": np.float32([0.9, 1.5])}, "agent.gamma = 1.5"),
        ({"learning_rate": jnp.float32(-1.0)}, "agent.learning_rate = -1.0: must be at least 0"),
        ({"learning_rate": math.nan}, "must be a finite number"),
        ({"learning_rate": 1e39}, "must be a finite number: 0, or 1.2e-38 to 3.4e+38 in size"),
        ({"learning_rate": 1e-46}, "agent.learning_rate = 1e-46: must be a finite number: 0, or 1.2e-38"),
        ({"advantage": GAE(1.5)}, "agent.advantage.gae_lambda = 1.5"),
        ({"num_epochs": 0}, "agent.num_epochs = 0"),
        ({"compute_dtype": "float16"}, "agent.compute_dtype = 'float16'"),
        # texts in place of tuples, which would be read letter by letter, and other types
        ({"normalization": Normalization(skip="12")}, "skip = '12': must be a tuple; nearest valid value: ('12',)"),
        ({"schedule": Linear(leaves="gamma")}, "leaves = 'gamma': must be a tuple; nearest valid value: ('gamma',)"),
        ({"optimizer": ActorCritic(critic_keys="critic")}, "critic_keys = 'critic': must be a tuple"),
        (
            {"schedule": Steps(at=0.0, values=1e-4)},
            "agent.schedule.at = 0.0: must be a tuple; nearest valid value: (0.0",
        ),
        ({"learning_rate": "3e-4"}, "agent.learning_rate = '3e-4': must be a number"),
        ({"num_epochs": 2.0}, "agent.num_epochs = 2.0: must be of type int; nearest valid value: 2"),
        ({"num_epochs": True}, "agent.num_epochs = True: must be of type int"),
        ({"seq_len": 1.5}, "agent.seq_len = 1.5: must be of type int"),
        ({"normalize_obs": "no"}, "agent.normalize_obs = 'no': must be of type bool"),
        ({"minibatch": Shuffle(num_minibatches=4.0)}, "agent.minibatch.num_minibatches = 4.0: must be of type int"),
    ],
)
def test_numbers_out_of_range_are_refused_by_hand_too(change, text):
    """`fit` and run files refuse them; `ppax.start` of an agent made in Python did not."""
    env = ppax.make("CartPole-v1", 2)
    with pytest.raises(ConfigError, match=re.escape(text)):
        ppax.start(ppax.PPO(mlp(env), **change), env, 8, jax.random.key(0))


def test_lists_and_numbers_of_numpy_pass():
    env = ppax.make("CartPole-v1", 2)
    steps = Steps(at=[0.0, 0.5], values=[1e-3, np.float32(1e-4)])
    agent = ppax.PPO(mlp(env), schedule=steps, num_epochs=np.int64(2), gamma=1, normalization=Normalization(skip=["3"]))
    ppax.start(dataclasses.replace(agent, normalize_obs=True), env, 8, jax.random.key(0))


def test_traced_numbers_pass():
    """A program cannot look at numbers that it gets as arguments."""
    env = ppax.make("CartPole-v1", 2)
    jax.eval_shape(lambda gamma: ppax.start(ppax.PPO(mlp(env), gamma=gamma), env, 8, jax.random.key(0)), 2.0)
