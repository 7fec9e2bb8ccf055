"""Training on the device of a simulator's tensors is that through NumPy arrays; on a GPU where there is one.

With PyTorch and JAX for it: `JAX_PLATFORMS=cuda,cpu pytest -n 0 tests/training/host/test_tensors.py`.
"""

import jax
import numpy as np
import pytest

import ppax
from ppax.config import Log
from ppax.core.types import ConfigError
from ppax.devices import platforms
from ppax.envs import EnvError, TensorBatch, host
from ppax.networks import memories, network
from ppax.training.host import Clock, Rollouts
from ppax.training.host.training import HostTraining

torch = pytest.importorskip("torch")
from support.simulators import LIMIT, NUM_ENVS, Carts  # noqa: E402

DEVICE = "cuda" if torch.cuda.is_available() and jax.default_backend() == "gpu" else "cpu"
NUM_STEPS = 16
QUIET = Log(every=1, checkpoint_seconds=0.0, console=False)
pytestmark = pytest.mark.usefixtures("cached_programs", "quick_programs")


@pytest.fixture(autouse=True)
def _compiled_policies(monkeypatch):
    """Choose the policy that draws the same samples on the host: small ones run in NumPy, with another generator."""
    monkeypatch.setitem(platforms.RULES, "cpu", platforms.RULES["cpu"]._replace(numpy_work=0))


def batch(exchange="dlpack", final_obs="info", metrics=(), **options):
    env = TensorBatch(Carts(DEVICE, **options), final_obs=final_obs, info_metrics=metrics, exchange=exchange)
    return host(env, info_metrics=metrics)


def agent_for(env, memory=None, **options):
    net = network(env, hidden=(8,), memory=memory or memories.NoMemory())
    return ppax.PPO(net, num_epochs=2, gamma=0.9, **options)


def trained(env, iterations=2, memory=None, run_dir=None, **options):
    agent, total = agent_for(env, memory, **options), NUM_STEPS * NUM_ENVS * iterations
    return ppax.fit(agent, env, total, seed=3, num_steps=NUM_STEPS, log=QUIET, run_dir=run_dir)


def assert_equal(one, other):
    """Require equal learners and actors: on the CPU bit for bit, on a GPU to rounding."""
    pairs = ((x.learner, x.actor, x.env_steps) for x in (one, other))
    for a, b in zip(*map(jax.tree.leaves, pairs), strict=True):
        np.testing.assert_allclose(a, b, rtol=0.0, atol=0.0 if DEVICE == "cpu" else 1e-4)


CASES = {
    "plain": {},
    "one_flag": {"one_flag": True},
    "another_name": {"final": "final_observation"},
    "previous": {"final": None, "final_obs": "previous"},
    "memory_and_masks": {"memory": memories.GRU(), "seq_len": 8, "masks": True},
    "method_with_masks": {"masks": True, "method": True},
    "normalised_views": {"normalize_obs": True, "normalize_reward": True, "dicts": True},
}
OF_AGENT = ("memory", "seq_len", "normalize_obs", "normalize_reward")


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_training_is_that_through_numpy_arrays(case):
    of_agent = {name: x for name, x in case.items() if name in OF_AGENT}
    of_env = {name: x for name, x in case.items() if name not in OF_AGENT}
    one, other = (trained(batch(exchange, **of_env), **of_agent) for exchange in ("dlpack", "numpy"))
    assert_equal(one.state, other.state)
    assert 1.0 < one.history[-1]["episode_length"] == other.history[-1]["episode_length"] < LIMIT  # ends of both kinds


def test_simulator_that_overwrites_its_tensors_and_actions_trains_as_one_that_does_not():
    assert_equal(trained(batch(fresh=False)).state, trained(batch(fresh=True)).state)


def collector(env):
    agent = agent_for(env)
    state = ppax.start(agent, env, NUM_STEPS, jax.random.key(0))
    return Rollouts(agent, env, state), state


def collected(env):
    rollouts, state = collector(env)
    return rollouts(state.learner, state.actor, jax.random.key(1))


def test_arrays_and_tensors_share_their_memory():
    simulator = Carts(DEVICE, fresh=True)
    tensors = TensorBatch(simulator, exchange="dlpack")
    tensors.reset()
    action = jax.numpy.full((NUM_ENVS, 1), 0.5)
    step = tensors.exchange([action], ())
    assert simulator.actions == [action.unsafe_buffer_pointer()]
    for name in ("obs", "reward", "terminated", "truncated"):
        assert getattr(step, name).unsafe_buffer_pointer() == simulator.returned[name].data_ptr()
    assert step.obs.devices() == action.devices()


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU, and PyTorch and JAX for it")
def test_rollout_stays_on_the_gpu():
    env = batch("auto")
    rollout = collected(env).collected.rollout
    assert {x.platform for leaf in jax.tree.leaves(rollout) for x in leaf.devices()} == {"gpu"}


def test_rollout_passes_nothing_through_the_host(monkeypatch):
    env = batch()
    rollouts, state = collector(env)
    gathered = rollouts(state.learner, state.actor, jax.random.key(1))  # compiles, and resets the environments
    passed, begin = [], env.host.step_on_device

    def step(action):
        passed.append(type(action[0]))
        with jax.transfer_guard("allow"):  # of the simulator alone
            return begin(action)

    monkeypatch.setattr(env.host, "step_on_device", step)
    collection, check = rollouts._collect, rollouts._collect._check
    monkeypatch.setattr(collection, "_check", lambda *x: [jax.config.update("jax_transfer_guard", "allow"), check(*x)])
    rollouts._policy.begin(rollouts._agent, state.learner, NUM_STEPS, jax.random.key(2))
    try:
        jax.config.update("jax_transfer_guard", "disallow")
        collection(
            rollouts._policy,
            None,
            env,
            gathered.collected.actor,
            NUM_STEPS,
            NUM_STEPS,
            (rollouts._agent, state.learner),
        )
    finally:
        jax.config.update("jax_transfer_guard", "allow")
    assert len(passed) == NUM_STEPS


def test_rollouts_go_on_where_the_last_one_ended():
    env = batch()
    rollouts, state = collector(env)
    one = rollouts(state.learner, state.actor, jax.random.key(1))
    starts = env.host.stepper.vector._env.starts.clone()
    two = rollouts(state.learner, one.collected.actor, jax.random.key(2))
    assert (env.host.stepper.vector._env.starts >= starts).all()  # not reset
    np.testing.assert_array_equal(one.collected.actor.obs, two.collected.rollout.steps.obs[0])
    again = rollouts(state.learner, state.actor, jax.random.key(1))  # from position 0: reset
    assert_equal_trees(again.collected.rollout, one.collected.rollout)


def assert_equal_trees(one, other):
    jax.tree.map(np.testing.assert_array_equal, one, other)


def test_final_values_are_those_of_final_observations():
    """A rollout's numbers against the simulator's own, stepped with the same actions by PyTorch alone."""
    env = batch()
    steps = collected(env).collected.rollout.steps
    simulator, rewards = Carts(DEVICE, fresh=True), []
    simulator.reset()
    agent, cut = agent_for(env), 0
    learner = ppax.start(agent, env, NUM_STEPS, jax.random.key(0)).learner
    for t in range(NUM_STEPS):
        np.testing.assert_allclose(steps.obs[t], simulator.state.cpu(), rtol=0, atol=1e-6)
        action = torch.tensor(np.clip(np.asarray(steps.action[t]), -1, 1), device=DEVICE)
        _, reward, terminated, truncated, info = simulator.step(action)
        rewards.append(reward.cpu())
        only = (truncated & ~terminated).cpu().numpy()
        np.testing.assert_array_equal(steps.truncated[t], only)
        np.testing.assert_array_equal(steps.terminated[t], terminated.cpu())
        expected = np.zeros(NUM_ENVS)
        if only.any():
            obs = info["final_obs"].cpu().numpy()
            first = np.zeros(NUM_ENVS, bool)
            expected = np.where(only, agent.policy(learner, (), obs, first, None).value, 0.0)
            cut += only.sum()
        np.testing.assert_allclose(steps.final_value[t], expected, rtol=0, atol=1e-5)
    np.testing.assert_allclose(steps.reward, np.stack(rewards), rtol=0, atol=1e-6)
    assert cut > 5


def test_resumed_run_is_that_through_numpy_arrays(tmp_path):
    """A resume begins new episodes."""
    states = []
    for exchange in ("dlpack", "numpy"):
        agent = agent_for(batch(exchange))
        trained(batch(exchange), 2, run_dir=tmp_path / exchange)
        total = NUM_STEPS * NUM_ENVS * 4
        run = ppax.resume(tmp_path / exchange, agent, batch(exchange), console=False, total_steps=total)
        assert int(run.state.iteration) == 4
        states.append(run.state)
    assert_equal(*states)


def test_metrics_are_those_of_the_last_steps():
    histories = []
    for exchange in ("dlpack", "numpy"):
        run = trained(batch(exchange, metrics=("distance",)))
        histories.append([row["distance"] for row in run.history])
    assert histories[0] == histories[1]
    assert 0.0 < histories[0][-1] < 2.0


def test_evaluation_steps_the_same_simulator():
    results = []
    for exchange in ("dlpack", "numpy"):
        run = trained(batch(exchange), 2)
        results.append(run.evaluate(16, seed=1).returns)
        assert len(results[-1]) == 16
    np.testing.assert_array_equal(*results)


class Faulty(Carts):
    """Simulator with a fault in its fifth step."""

    def __init__(self, fault, **options):
        super().__init__(DEVICE, **options)
        self.fault = fault

    def step(self, action):
        obs, reward, terminated, truncated, info = super().step(action)
        return (
            self.fault(obs, reward, terminated, truncated, info)
            if len(self.actions) == 5
            else (obs, reward, terminated, truncated, info)
        )


def spoil(name, row=3):
    def fault(*out):
        (out[-1] if name in out[-1] else dict(zip(("obs", "reward"), out, strict=False)))[name][row] = float("nan")
        return out

    return fault


def without(name):
    return lambda *out: (*out[:4], {key: x for key, x in out[4].items() if key != name})


def forbid(*out):
    out[4]["action_mask"][3] = False
    return out


def additive(*out):
    return *out[:4], out[4] | {"action_mask": torch.where(out[4]["action_mask"], 0.0, -np.inf)}


FAULTS = {
    "reward": (spoil("reward"), {}, r"environment 3, step 4: its reward is not finite"),
    "obs": (spoil("obs"), {}, r"environment 3, step 4: its observation is not finite"),
    "last obs": (lambda *x: spoil("final_obs", slice(None))(*x), {}, r"step 4: its last observation is not finite"),
    "no last obs": (without("final_obs"), {}, r'step 4 .*: an episode is truncated without .*final_obs="previous"'),
    "empty mask": (forbid, {"masks": True}, r"environment 3, step 5 .*: its action mask allows no action"),
    "additive mask": (additive, {"masks": True}, r"environment 2, step 4 .*: its action mask has entries .* 0 and 1"),
    "mask missing": (without("action_mask"), {"masks": True}, 'info."action_mask".* is missing here'),
    "mask size": (
        lambda *x: (*x[:4], {"action_mask": x[4]["action_mask"][:, :2]}),
        {"masks": True},
        r"has shape \(2,\) in one stream, Discrete\(3\) needs \(3,\)",
    ),
    "shape": (lambda obs, *x: (obs[:, :1], *x), {}, r"its observation has the shape \[8, 1\], its space \[8, 2\]"),
    "rewards": (lambda obs, reward, *x: (obs, reward[:, None], *x), {}, r"its reward is float32\[8, 1\]"),
    "exception": (lambda *x: 1 / 0, {}, "ZeroDivisionError"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_fault_ends_the_rollout_with_its_place(name):
    fault, options, message = FAULTS[name]
    env = host(TensorBatch(Faulty(fault, **options), exchange="dlpack"))
    with pytest.raises(EnvError, match=message):
        collected(env)
    assert env.host.position == 0  # closed


def test_metric_that_is_missing_at_an_end_is_an_error():
    env = batch(metrics=("speed",))
    with pytest.raises(EnvError, match=r'info."speed".* is missing at the end of an episode'):
        collected(env)


def test_clock_times_the_simulator():
    env = batch()
    agent = agent_for(env)
    state = ppax.start(agent, env, NUM_STEPS, jax.random.key(0))
    training = HostTraining(agent, env, state)
    clock = Clock(training, env)
    training(agent, env, state, 1)
    assert min(clock.seconds.values()) > 0.0
    env.close()


def test_tensors_of_the_cpu_pass_through_numpy_unless_asked_for():
    assert TensorBatch(Carts(DEVICE)).on_device == (DEVICE != "cpu")
    assert TensorBatch(Carts("cpu"), exchange="numpy").on_device is False


def test_tensors_of_another_device_are_refused(monkeypatch):
    with pytest.raises(ConfigError, match="must be one of 'auto', 'dlpack', 'numpy'"):
        TensorBatch(Carts(), exchange="copy")
    monkeypatch.setattr(jax, "local_devices", lambda: [jax.devices()[-1]])
    with pytest.raises(ConfigError, match="exchange = 'dlpack': the tensors are on cpu and JAX computes on"):
        TensorBatch(Carts(), exchange="dlpack")
