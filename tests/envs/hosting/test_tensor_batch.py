"""Batches of PyTorch train as the same environments in NumPy do, bit for bit."""

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import ppax
from ppax.core.types import ConfigError
from ppax.envs import EnvError, TensorBatch, host
from support.host_worlds import Maze

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("cached_programs")
NUM_ENVS, NUM_STEPS = 4, 32


class Tensors:
    """Gymnasium's environments behind the interface of a simulator: tensors in one buffer, which every step reuses."""

    def __init__(self, one=Maze, final="final_obs"):
        self.own = SyncVectorEnv([one] * NUM_ENVS, autoreset_mode=AutoresetMode.SAME_STEP)
        self.num_envs, self.final = NUM_ENVS, final
        self.single_observation_space = self.own.single_observation_space
        self.single_action_space = self.own.single_action_space
        self.buffer = None
        self.device = torch.device("cpu")

    def reset(self, seed=None):
        obs, _ = self.own.reset(seed=seed)
        self.buffer = torch.tensor(obs)
        return self.buffer, {}

    def step(self, action):
        assert action.dtype == torch.int64
        obs, reward, terminated, truncated, info = self.own.step(action.numpy())
        self.buffer.copy_(torch.tensor(obs))
        extras = {}
        if "final_obs" in info and self.final is not None:
            rows = [obs[i] if x is None else x for i, x in enumerate(info["final_obs"])]
            extras[self.final] = torch.tensor(np.stack(rows))
        return self.buffer, torch.tensor(reward), torch.tensor(terminated), torch.tensor(truncated), extras


class OneFlag(Tensors):
    """One flag `done`, and time limits in `info`; no seeds; `reset` returns observations alone."""

    def reset(self):
        return super().reset(seed=7)[0]

    def step(self, action):
        obs, reward, terminated, truncated, extras = super().step(action)
        return obs, reward, terminated | truncated, extras | {"time_outs": truncated}


def trained(env, iterations=3):
    agent = ppax.PPO(ppax.networks.network(env, hidden=(8,)), num_epochs=2)
    total = NUM_STEPS * NUM_ENVS * iterations
    return ppax.fit(agent, env, total, seed=3, num_steps=NUM_STEPS, log=ppax.Log(console=False)).state


def assert_equal(one, other):
    for a, b in zip(jax.tree.leaves(one.learner), jax.tree.leaves(other.learner), strict=True):
        np.testing.assert_array_equal(a, b)


def in_numpy(one=Maze):
    return host(SyncVectorEnv([one] * NUM_ENVS, autoreset_mode=AutoresetMode.SAME_STEP))


@pytest.mark.parametrize("final", ["final_obs", "final_observation"])
def test_training_is_that_of_the_same_environments_in_numpy(final):
    assert_equal(trained(host(TensorBatch(Tensors(final=final)))), trained(in_numpy()))


class Seeded(Maze):
    """Starts that do not depend on the seed of the first reset."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=7 if seed is not None else None, options=options)


def test_one_flag_with_time_outs_is_terminated_and_truncated():
    """Both begin in the same states, and no other random number is drawn from the environment's seed."""
    one = trained(host(TensorBatch(OneFlag(Seeded))))
    assert_equal(one, trained(in_numpy(Seeded)))


def steps(batch, count=60):
    env, rng = host(batch), np.random.default_rng(0)
    env.host.reset(range(NUM_ENVS))
    before = [np.array(x) for x in env.host.receive(0).obs]
    for _ in range(count):
        env.host.send(0, [rng.integers(0, batch.single_action_space.n, NUM_ENVS)])
        step = env.host.receive(0)
        yield before, step
        before = [np.array(x) for x in step.obs]


def test_previous_observation_stands_in_where_there_is_no_final_one():
    found = 0
    for before, step in steps(TensorBatch(Tensors(final=None), final_obs="previous")):
        ended = step.terminated | step.truncated
        if ended.any():
            np.testing.assert_array_equal(step.final_obs[0][ended], before[0][ended])
            found += ended.sum()
    assert found > 10


def test_final_observations_are_not_those_before_the_last_action():
    differences = 0
    for before, step in steps(TensorBatch(Tensors())):
        ended = step.terminated | step.truncated
        if ended.any():
            differences += (step.final_obs[0][ended] != before[0][ended]).any()
    assert differences > 3


def test_truncation_without_final_observation_is_refused_with_the_remedy():
    with pytest.raises(EnvError, match='final_obs="previous"'):
        trained(host(TensorBatch(Tensors(final=None))))


class Silent(OneFlag):
    def step(self, action):
        obs, reward, done, _ = super().step(action)
        return obs, reward, done, {}


def test_one_flag_alone_is_refused():
    with pytest.raises(EnvError, match="time_outs"):
        trained(host(TensorBatch(Silent())))


class Pole(gymnasium.Env):
    """One step an episode: the reward is the bigger the nearer the action is to the observation; entries of `info`."""

    observation_space = spaces.Dict({"goal": spaces.Box(-1, 1, (2,), np.float32)})
    action_space = spaces.Box(-1, 1, (2,), np.float32)


class Simulator:
    """Continuous control in PyTorch alone: dict observations, steps that track gradients, masks of success."""

    num_envs, single_observation_space, device = 64, Pole.observation_space, "cpu"

    def __init__(self):
        self.rng = torch.Generator()

    def reset(self, seed=None, options=None):
        if seed is not None:
            self.rng.manual_seed(seed)
        self.goal = torch.rand((64, 2), generator=self.rng) * 2 - 1
        return {"goal": self.goal}, {}

    def step(self, action):
        distance = (action.requires_grad_() - self.goal).abs().sum(-1)
        ended, final = torch.ones(64, dtype=torch.bool), {"goal": self.goal}
        info = {"final_observation": final, "final_info": {"is_success": distance < 0.3}}
        obs, _ = self.reset()
        return obs, -distance, ended, torch.zeros(64, dtype=torch.bool), info

    def close(self):
        self.closed = True


def test_simulator_of_tensors_alone_is_learned():
    simulator = Simulator()
    with pytest.raises(ConfigError, match="action_space"):
        TensorBatch(simulator)
    batch = TensorBatch(simulator, action_space=Pole.action_space, info_metrics=("is_success",))
    env = host(batch, info_metrics=("is_success",))
    agent = ppax.PPO(ppax.networks.network(env, hidden=(32,)), learning_rate=3e-3, gamma=0.5)
    log = ppax.Log(console=False, every=10)
    run = ppax.fit(agent, env, 64 * 16 * 40, num_steps=16, log=log)
    first, last = run.history[0], run.history[-1]
    assert first["episode_return"] < -0.5
    assert last["episode_return"] > first["episode_return"] / 2
    assert last["is_success"] > first["is_success"]
    env.close()
    assert simulator.closed


def test_wrong_choice_is_refused():
    with pytest.raises(ConfigError, match="must be one of 'info', 'previous'"):
        TensorBatch(Tensors(), final_obs="none")
    with pytest.raises(ConfigError, match="info_metrics = 'is_success': must be a list of names"):
        TensorBatch(Tensors(), info_metrics="is_success")
