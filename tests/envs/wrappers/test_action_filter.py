"""Filtered actions: against a loop in NumPy, compiled and on the host, observations, draws, sweeps, runs, refusals."""

import dataclasses
import json

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import ppax
from ppax import config
from ppax.cli import main
from ppax.core.types import ConfigError, EnvReset, EnvStep
from ppax.envs import ActionFilter
from ppax.envs.hosting.rendering import with_rendering
from ppax.envs.wrappers.action_filter import action_filter
from ppax.run.restore import load_run

BOX = spaces.Box(np.array([-1.0, 0.5], np.float32), np.array([1.0, 4.0], np.float32))
REST = [0.0, 0.5]  # the action of BOX that is nearest to 0
ACTIONS = np.float32([[1.0, 4.0], [-1.0, 0.5], [0.5, 2.0], [1.0, 4.0]])


def filtered(actions, share):
    """The filtered actions by a loop."""
    y, found = np.array(REST), []
    for action in actions:
        y = y + share * (np.float64(action) - y)
        found.append(y)
    return np.array(found)


@ppax.part
class Echo:
    """Environment that observes the last action, as a vector or in a Dict, with one agent or two."""

    form: str = ppax.static(default="vector")
    num_agents: int | None = ppax.static(default=None)
    action_space = BOX

    @property
    def observation_space(self):
        seen = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        return seen if self.form == "vector" else spaces.Dict({"seen": seen})

    def _obs(self, x):
        return x if self.form == "vector" else {"seen": x}

    @property
    def shape(self):
        return (2,) if self.num_agents is None else (self.num_agents, 2)

    def reset(self, key):
        return EnvReset(jnp.zeros(()), self._obs(jnp.full(self.shape, 9.0)))

    def step(self, state, action, key):
        over = jnp.zeros(self.shape[:-1], bool)
        return EnvStep(state, self._obs(action), jnp.zeros(self.shape[:-1]), over, over)


class HostEcho(gymnasium.Env):
    """The same for Gymnasium; an episode has four steps."""

    action_space = BOX

    def __init__(self, form="vector"):
        self.form = form
        seen = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.observation_space = seen if form == "vector" else spaces.Dict({"seen": seen})

    def _obs(self, x):
        x = np.array(x, np.float32)
        return x if self.form == "vector" else {"seen": x}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._obs([9.0, 9.0]), {}

    def step(self, action):
        self.steps += 1
        seen = self._obs(action)
        action[:] = 77.0  # an environment may write into its action
        return seen, 0.0, False, self.steps == 4, {}


@pytest.mark.parametrize("agents", [None, 2])
@pytest.mark.parametrize("form", ["vector", "dict"])
def test_the_environment_gets_filtered_actions_and_the_policy_sees_them(form, agents):
    env = action_filter(Echo(form, agents), 0.25, "Echo")
    start, key = env.reset(jax.random.key(0)), jax.random.key(0)
    rows = [start.obs]
    state = start.state
    for action in ACTIONS:
        given = jnp.asarray(action) if agents is None else jnp.stack([action, action])
        step = env.step(state, given, key)
        state = step.state
        rows.append(step.obs)
    wanted = filtered(ACTIONS, 0.25)
    for obs, seen, last in zip(rows, [[9.0, 9.0], *wanted], [REST, *wanted], strict=True):
        parts = jnp.split(obs, 2, axis=-1) if form == "vector" else (obs["seen"], obs["filtered_action"])
        for x, y in zip(parts, (seen, last), strict=True):
            np.testing.assert_allclose(x, np.broadcast_to(np.float32(y), x.shape), rtol=1e-6)
    one = jax.tree.map(lambda x: np.asarray(x if agents is None else x[0]), rows[-1])
    assert env.observation_space.contains(one)


def test_the_space_of_observations():
    space = ActionFilter(Echo(), 0.5).observation_space
    np.testing.assert_array_equal(space.low, np.float32([-np.inf, -np.inf, -1.0, 0.5]))
    np.testing.assert_array_equal(space.high, np.float32([np.inf, np.inf, 1.0, 4.0]))
    assert ActionFilter(Echo("dict"), 0.5).observation_space["filtered_action"] == BOX


@pytest.mark.parametrize("form", ["vector", "dict"])
def test_an_environment_on_the_host_gets_filtered_actions(form):
    """A new episode begins at rest; the environments of both kinds observe the same."""
    env = ppax.envs.host(lambda: HostEcho(form), 1, env_params={"action_filter": 0.25}, info_metrics=())
    wanted = filtered(ACTIONS, 0.25)
    with env:
        handle = env.host
        for _ in range(2):
            rows = [copied(handle.reset([0])[0].obs)]
            for action in ACTIONS:
                handle.send(0, [action[None]])
                rows.append(copied(handle.receive(0).obs))
            for obs, seen, last in zip(rows, [[9.0, 9.0], *wanted], [REST, *wanted], strict=True):
                # the arrays of a Dict are in the order of its keys, "filtered_action" first
                parts = (obs[0][0, :2], obs[0][0, 2:]) if form == "vector" else (obs[1][0], obs[0][0])
                for x, y in zip(parts, (seen, last), strict=True):
                    np.testing.assert_allclose(x, np.float32(y), rtol=1e-6)


def test_a_filtered_environment_on_the_host_is_drawn():
    """The argument `render_mode` reaches the environment, also through the wrapper of drawn arguments."""

    class Drawn(HostEcho):
        metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

        def __init__(self, shade=7, render_mode=None):
            super().__init__()
            self.shade, self.render_mode = shade, render_mode

        def render(self):
            return None if self.render_mode is None else np.full((4, 4, 3), self.shade, np.uint8)

    for shade in (8, {"low": 8, "high": 8}):
        env = ppax.envs.host(Drawn, 2, env_params={"action_filter": 0.25, "shade": shade})
        one = with_rendering(env)
        one.env.host.reset([0])
        np.testing.assert_array_equal(one.picture(), 8)
        one.env.close()


def test_a_function_of_any_arguments_gets_no_filter_however_it_is_named(tmp_path, monkeypatch):
    """Where it passes them cannot be known; one that names the argument gets it."""
    (tmp_path / "filtered_envs.py").write_text(
        "import gymnasium\n"
        "def pendulum(**kwargs):\n    return gymnasium.make('Pendulum-v1', **kwargs)\n"
        "def own(action_filter=1.0):\n    return gymnasium.make('Pendulum-v1', g=action_filter)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    ppax.trust("filtered_envs")
    import filtered_envs

    given = {"action_filter": 0.5}
    for name, size, g in (("pendulum", 4, 10.0), ("own", 3, 0.5)):
        makes = [lambda name=name: ppax.envs.host(getattr(filtered_envs, name), 1, env_params=given)]
        makes += [lambda name=name: ppax.make(f"filtered_envs:{name}", 1, env_params=given)]
        for make in makes:
            with make() as env:
                assert env.observation_space.shape == (size,)
                assert env.host.factories[0]().unwrapped.g == g


def copied(arrays):
    """Return copies: the next step overwrites the arrays of host environments."""
    return [np.array(x) for x in arrays]


@pytest.mark.parametrize("name", ["Pendulum-v1", "gymnasium/Pendulum-v1"])
def test_a_run_file_and_a_command_line_choose_it(name, capsys):
    env = config.build({"env": name, "num_envs": 2, "env_params": {"action_filter": 0.25}}).env
    assert env.observation_space.shape == (4,)
    assert env.settings.env_params == {"action_filter": 0.25}
    assert main.main(["train", name, "--env-params.action-filter", "0.25", "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["config"]["env_params"] == {"action_filter": 0.25}
    with pytest.raises(ConfigError, match=r"action_filter = 0\.0: must be above 0"):
        ppax.make(name, 2, env_params={"action_filter": 0.0})
    with pytest.raises(ConfigError, match=r"action_filter = 1\.5: must be at most 1; nearest valid value: 1"):
        ppax.make(name, 2, env_params={"action_filter": 1.5})


def test_it_is_a_number_that_can_be_drawn_scheduled_and_changed():
    drawn = ppax.make("Pendulum-v1", 64, env_params={"action_filter": {"low": 0.2, "high": 0.8}})
    state = jax.vmap(drawn.env.reset)(jax.random.split(jax.random.key(0), 64)).state
    shares = np.asarray(state.numbers["action_filter"])
    assert 0.2 <= shares.min() < 0.3 < 0.7 < shares.max() <= 0.8
    schedule = ppax.schedules.Linear(("env.action_filter",), end=0.5)
    scheduled = ppax.make("Pendulum-v1", 2, env_params={"action_filter": 1.0, "gravity": 9.0}, schedule=schedule)
    assert ppax.envs.ended(scheduled).env.action_filter == 0.5
    other = ppax.envs.other_params(scheduled, {"action_filter": 0.3, "max_steps": 7})
    assert (other.env.action_filter, other.env.env.max_steps, other.env.env.env.gravity) == (0.3, 7, 9.0)


def test_members_of_a_sweep_have_filters_of_their_own():
    """A member's actions are those of a filter with its share; with 1 the observation ends with the action itself."""
    env = ppax.make("Pendulum-v1", 2, env_params={"action_filter": 1.0})
    several = dataclasses.replace(env, env=dataclasses.replace(env.env, action_filter=jnp.array([1.0, 1e-6])))
    agent = ppax.PPO(ppax.networks.mlp(env, hidden=(4,)), minibatch=ppax.minibatches.Shuffle(1), num_epochs=1)
    states = ppax.start_sweep(agent, several, 8, jax.random.split(jax.random.key(0), 2))
    states, _ = jax.jit(ppax.sweep, static_argnums=3)(agent, several, states, 1)
    last = np.abs(np.asarray(states.actor.obs)[..., -1])
    assert last[0].min() > 1e-3 > last[1].max()


def test_a_recorded_run_restores_it(tmp_path):
    env = ppax.make("Pendulum-v1", 2, env_params={"action_filter": 0.25})
    agent = ppax.PPO(ppax.networks.mlp(env, (4,)), num_epochs=1)
    run = ppax.fit(agent, env, 8, run_dir=tmp_path / "run", num_steps=4, log=ppax.Log(console=False))
    loaded = load_run(tmp_path / "run").env
    assert loaded.env.action_filter == 0.25
    assert jax.tree.structure(loaded) == jax.tree.structure(env)
    assert run.policy().act(np.float32([1.0, 0.0, 0.0, 0.5])).shape == (1,)
    more = ppax.resume(tmp_path / "run", total_steps=16, console=False)
    whole = ppax.fit(agent, env, 16, num_steps=4, log=ppax.Log(console=False))
    for one, other in zip(*(jax.tree.leaves(x.state.actor.env_state) for x in (more, whole)), strict=True):
        np.testing.assert_array_equal(*(jax.random.key_data(x) if is_key(x) else x for x in (one, other)))


def is_key(x):
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def test_what_cannot_be_filtered_is_refused():
    with pytest.raises(ConfigError, match=r"action_filter: filters continuous .*CartPole-v1 are Discrete\(2\)"):
        ppax.make("CartPole-v1", 2, env_params={"action_filter": 0.5})
    with pytest.raises(ConfigError, match=r"action_filter: filters continuous .* are Discrete\(2\); leave it out"):
        ppax.make("gymnasium/CartPole-v1", 2, env_params={"action_filter": 0.5})
    with pytest.raises(ConfigError, match=r"observations of Pixels are Box.*: make them a Dict"):
        action_filter(Pixels(), 0.5, "Pixels")
    for name in ("Pendulum-v1", "gymnasium/Pendulum-v1"):  # an evaluation of a policy that does not observe it
        with pytest.raises(ConfigError, match=r"was made without a filter .*; train with one: .* = 1\.0 changes no"):
            ppax.envs.other_params(ppax.make(name, 2), {"action_filter": 0.5})
    twice = ActionFilter(Echo("dict"), 0.5)
    with pytest.raises(ConfigError, match="observations of Twice have an entry 'filtered_action' already"):
        action_filter(twice, 0.5, "Twice")


@ppax.part
class Pixels:
    """Environment with images."""

    observation_space = spaces.Box(0, 255, (4, 4, 1), np.uint8)
    action_space = BOX
    num_agents = None

    def reset(self, key):
        return EnvReset(jnp.zeros(()), jnp.zeros((4, 4, 1), jnp.uint8))

    def step(self, state, action, key):
        raise NotImplementedError
