"""Programs traced anew: changes that JAX does not see in the arguments, and compiled programs that are used again."""

import dataclasses

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from jax.experimental.compilation_cache import compilation_cache

import ppax
from ppax.core.types import EnvReset, EnvStep, part
from ppax.devices.tracing import renewed
from ppax.ppo.losses import ClippedSurrogate
from ppax.training.host.numpy_program import NumpyProgram
from ppax.training.sweeps import MembersTraining
from support.worlds import QUICK

GLOBAL = 1.0


@part
class Paying:
    """Three steps, each with the reward that a class attribute, a global variable, a method and a part say."""

    BONUS = 1.0
    START = 1.0
    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = spaces.Discrete(2)
    num_agents = None

    def more(self):
        return 1.0

    def reset(self, key):
        return EnvReset(jnp.int32(0), jnp.full(1, self.START, jnp.float32))

    def step(self, state, action, key):
        over = state + 1 >= 3
        reward = jnp.float32(self.BONUS * GLOBAL * self.more())
        return EnvStep(state + 1, jnp.zeros(1), reward, over, jnp.zeros((), bool))


def change_attribute(patch):
    patch.setattr(Paying, "BONUS", 10.0)


def change_global(patch):
    patch.setitem(globals(), "GLOBAL", 10.0)


def change_method(patch):
    patch.setattr(Paying, "more", lambda self: 10.0)


CHANGES = pytest.mark.parametrize("change", [change_attribute, change_global, change_method])


@pytest.fixture(autouse=True)
def quick(quick_programs):
    """Compile without optimisation."""


@pytest.fixture
def made():
    env = ppax.envs.VectorEnv(Paying(), 2)
    return ppax.PPO(ppax.networks.mlp(env, hidden=(4,)), num_epochs=1), env


@pytest.fixture
def compiled_programs():
    """Count the programs that XLA compiles and does not read from the cache on disk, which is none that tests share."""
    jax.config.update("jax_compilation_cache_dir", None)
    compilation_cache.reset_cache()
    jax.clear_caches()  # programs that other tests of this file have compiled in this process
    missed = []

    def note(name, **_):
        if name == "/jax/compilation_cache/cache_misses":
            missed.append(name)

    jax.monitoring.register_event_listener(note)
    yield missed
    jax.monitoring.unregister_event_listener(note)


def trained(agent, env):
    return ppax.fit(agent, env, total_steps=16, num_steps=8, log=ppax.Log(console=False))


@CHANGES
def test_a_new_fit_sees_a_changed_attribute_global_or_method(made, monkeypatch, change):
    assert trained(*made).history[-1]["episode_return"] == 3.0
    change(monkeypatch)
    run = trained(*made)
    assert run.history[-1]["episode_return"] == 30.0
    assert run.evaluate(episodes=2).mean_return == 30.0


@CHANGES
def test_a_new_evaluation_sees_it(made, monkeypatch, change):
    agent, env = made
    learner = ppax.start(agent, env, 8, jax.random.key(0)).learner
    assert ppax.evaluate(agent, env, learner, jax.random.key(0), 2).mean_return == 3.0
    change(monkeypatch)
    assert ppax.evaluate(agent, env, learner, jax.random.key(0), 2).mean_return == 30.0
    monkeypatch.undo()
    assert ppax.evaluate(agent, env, learner, jax.random.key(0), 2).mean_return == 3.0


def test_sweeps_and_their_members_see_it(made, monkeypatch):
    agent, env = made

    def start():
        return ppax.start_sweep(agent, env, 8, jax.random.split(jax.random.key(0), 1))

    def one_sweep():
        return ppax.sweep(agent, env, start(), 1).metrics["episode_return"]

    states = jax.jit(start, compiler_options=QUICK)()
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), states)

    def returns():
        yield jax.jit(renewed(one_sweep), compiler_options=QUICK)()[0]
        copies = jax.tree.map(jnp.copy, dataclasses.replace(states, key=jax.random.clone(states.key)))
        yield MembersTraining([agent], [env], shapes)(copies, 1, 1).metrics["episode_return"][0]

    assert [float(x) for x in returns()] == [3.0, 3.0]
    change_attribute(monkeypatch)
    assert [float(x) for x in returns()] == [30.0, 30.0]


def test_the_first_state_of_a_run_sees_it(made, monkeypatch):
    assert trained(*made).state.actor.obs.shape == (2, 1)
    monkeypatch.setattr(Paying, "START", 7.0)
    from ppax.run.restore import fresh_state

    run = ppax.config.Run(num_steps=8, total_steps=16)
    np.testing.assert_array_equal(fresh_state(*made, run).actor.obs, 7.0)


def test_played_frames_and_scenes_see_it(made, monkeypatch):
    from ppax.training.backends import backend_of

    agent, env = made
    learner = ppax.start(agent, env, 8, jax.random.key(0)).learner

    def reward():
        with backend_of(env).scene(agent, learner, jax.random.key(0), True) as scene:
            return float(scene.move(0).reward[0])

    assert reward() == 1.0
    change_attribute(monkeypatch)
    assert reward() == 10.0


@part
class Weighed:
    """Clipped objective, times a class attribute."""

    FACTOR = 1.0
    loss: ClippedSurrogate = dataclasses.field(default_factory=ClippedSurrogate)

    def __call__(self, distribution, batch):
        terms = self.loss(distribution, batch)
        return terms._replace(loss=terms.loss * self.FACTOR)


def test_training_on_the_host_sees_a_changed_loss(monkeypatch):
    def weights():
        with ppax.envs.host(lambda: gymnasium.make("CartPole-v1"), 2) as env:
            network = ppax.networks.mlp(env, hidden=(4,))
            agent = ppax.PPO(network, loss=Weighed(), num_epochs=1, ent_coef=0.0, vf_coef=0.0)
            leaves = jax.tree.leaves(trained(agent, env).state.learner.params)
            return np.concatenate([np.ravel(x) for x in leaves])

    before = weights()
    np.testing.assert_array_equal(weights(), before)
    monkeypatch.setattr(Weighed, "FACTOR", 0.0)
    assert not np.array_equal(weights(), before)


def scaled(parameters, x):
    return parameters * x * GLOBAL


def test_programs_in_numpy_see_it(monkeypatch):
    def result():
        program = NumpyProgram(scaled, np.float32(2.0), np.ones(3, np.float32))
        program.bind(np.float32(2.0))
        return program(np.ones(3, np.float32))[0].tolist()

    assert result() == [2.0] * 3
    change_global(monkeypatch)
    assert result() == [20.0] * 3


def test_nothing_is_compiled_again_where_nothing_changed(made, compiled_programs, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    agent, env = made

    def again():
        run = trained(agent, env)
        run.evaluate(episodes=2)
        ppax.compile(agent, env, run.state)
        ppax.evaluate(agent, env, run.state.learner, jax.random.key(0), 2)
        return jax.tree.leaves(run.state.learner)

    first = again()
    assert compiled_programs
    compiled_programs.clear()
    second = again()
    assert compiled_programs == []
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)
