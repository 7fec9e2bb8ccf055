"""The mistakes of a first day: each is a ConfigError whose text is what to write instead."""

import dataclasses
import os
import subprocess
import sys
from types import SimpleNamespace

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from gymnasium import spaces

import ppax
from ppax.core.parts import slots
from ppax.core.types import ConfigError, EnvReset, EnvStep, part
from ppax.envs import TimeLimit, VectorEnv
from ppax.networks.memories import GRU
from ppax.training import arguments
from ppax.training.loop import make_key


def cartpole():
    env = ppax.make("CartPole-v1", 4)
    return ppax.PPO(ppax.networks.mlp(env, (4,))), env


@part
class Line:
    """One environment inside a program; `plain` results are tuples."""

    plain: str = ppax.static(default="")
    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    num_agents = None

    def reset(self, key):
        place = jax.random.uniform(key, (1,))
        begin = EnvReset(place, place)
        return tuple(begin) if self.plain == "reset" else begin

    def step(self, state, action, key):
        place = state + action
        out = EnvStep(place, place, jnp.zeros(()), jnp.zeros((), bool), jnp.zeros((), bool))
        return tuple(out) if self.plain == "step" else out


def the_message(call):
    with pytest.raises(ConfigError) as caught:
        call()
    return str(caught.value)


ENVIRONMENTS = {
    "name": (lambda: "CartPole-v1", "ppax.make('CartPole-v1')"),
    "gymnasium": (lambda: gymnasium.make("CartPole-v1"), 'ppax.make("gymnasium/CartPole-v1")'),
    "vector": (lambda: gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")]), "ppax.envs.host(env)"),
    "native": (lambda: TimeLimit(Line(), 5), "ppax.envs.VectorEnv(env, num_envs=64)"),
    "nothing": (lambda: None, "ppax.make"),
}


@pytest.mark.parametrize("kind", ENVIRONMENTS)
def test_what_is_no_environment_of_ppax(kind):
    make, mend = ENVIRONMENTS[kind]
    agent, _ = cartpole()
    assert mend in the_message(lambda: ppax.fit(agent, make()))
    assert mend in the_message(lambda: ppax.start(agent, make(), 8, jax.random.key(0)))


AGENTS = {
    "the environment for the network": (lambda agent, env: ppax.PPO(env), "ppax.PPO(ppax.networks.mlp(env))"),
    "the network for the agent": (lambda agent, env: agent.network, "ppax.PPO(ppax.networks.mlp(env))"),
    "a class": (lambda agent, env: ppax.PPO, "ppax.PPO(ppax.networks.mlp(env))"),
    "optax": (lambda agent, env: with_field(agent, optimizer=optax.adam(1e-3)), "learning_rate=1e-3"),
    "a name": (lambda agent, env: with_field(agent, loss="clipped"), "loss=ppax.losses.ClippedSurrogate()"),
    "a class of parts": (lambda agent, env: with_field(agent, advantage=ppax.advantages.GAE), "advantage=ppax"),
    "an array for a size": (lambda agent, env: with_field(agent, num_epochs=jnp.array([1, 2])), "agent.num_epochs"),
}


def with_field(agent, **changes):
    return dataclasses.replace(agent, **changes)


def test_classes_without_the_decorator_part_are_refused():
    class Bare(ppax.PPO): ...

    class Loss(ppax.losses.ClippedSurrogate): ...

    agent, env = cartpole()
    for wrong, place in (
        (Bare(agent.network), "agent: JAX cannot trace a Bare"),
        (dataclasses.replace(agent, loss=Loss()), r"agent\.loss: JAX cannot trace a Loss"),
    ):
        with pytest.raises(ConfigError, match=f"{place}: write its class with the decorator @ppax.part"):
            ppax.fit(wrong, env, 64, num_steps=8)


@pytest.mark.parametrize("kind", AGENTS)
def test_what_is_no_agent_or_has_a_field_that_is_no_part(kind):
    change, mend = AGENTS[kind]
    agent, env = cartpole()
    wrong = change(agent, env)
    assert mend in the_message(lambda: ppax.fit(wrong, env))
    assert mend in the_message(lambda: ppax.start(wrong, env, 8, jax.random.key(0)))
    assert mend in the_message(lambda: ppax.start_sweep(wrong, env, 8, jax.random.split(jax.random.key(0), 2)))


@pytest.mark.parametrize("field", slots(ppax.PPO))
def test_every_part_of_ppo_is_checked_before_tracing(field):
    agent, env = cartpole()
    for wrong in (None, type(getattr(agent, field))):
        text = the_message(lambda wrong=wrong: ppax.fit(with_field(agent, **{field: wrong}), env))
        assert text.startswith(f"agent.{field}: ")
        assert "write " in text
        assert "JAX cannot trace" not in text


@pytest.mark.parametrize("field", slots(ppax.PPO))
def test_an_object_that_lacks_one_member_of_its_kind_is_refused(field):
    """The error names the member, before anything is traced."""
    agent, env = cartpole()
    members = arguments.NETWORK if field == "network" else arguments.PARTS[field][0]
    for lacked in members if len(members) > 1 else ():
        body = {name: lambda self, *arguments: () for name in members if name != lacked}
        own = ppax.types.part(type("Own", (), body))()
        text = the_message(lambda own=own: ppax.fit(with_field(agent, **{field: own}), env))
        assert text == f"agent.{field}: Own lacks {lacked}"


@pytest.mark.parametrize(
    ("other", "named"),
    [("Pendulum-v1", "observations"), ("MountainCar-v0", "observations"), ("probe/Constant", "observations")],
)
def test_an_agent_that_was_made_for_another_environment(other, named):
    agent, _ = cartpole()
    text = the_message(lambda: ppax.fit(agent, ppax.make(other, 4)))
    assert "made for another environment" in text
    assert named in text


def test_an_agent_for_other_actions_on_the_same_observations():
    discrete, continuous = (ppax.make(name, 4) for name in ("MountainCar-v0", "MountainCarContinuous-v0"))
    for made_for, given in ((discrete, continuous), (continuous, discrete)):
        agent = ppax.PPO(ppax.networks.mlp(made_for, (4,)))
        text = the_message(lambda agent=agent, given=given: ppax.fit(agent, given))
        assert "its actions" in text
        assert str(given.action_space) in text


def test_groups_are_looked_at_one_by_one():
    env = ppax.envs.grouped(ppax.make("Pursuit-2", 4), {"prey": [0], "hunter": [1]})
    fitting = ppax.PPO(ppax.networks.network(env.groups["prey"], hidden=(4,)))
    agents = ppax.Groups({"prey": fitting, "hunter": cartpole()[0]}, env.sizes)
    assert "agents['hunter'].network" in the_message(lambda: ppax.fit(agents, env))


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (("prey",), "agent: has no agent for the group 'hunters': must have one for each of ['prey', 'hunters']"),
        (("prey", "hunter"), "agent: has an agent for 'hunter', but the groups are prey, hunters; nearest: 'hunters'"),
        (("prey", "hunters", "x"), "agent: has an agent for 'x', but the groups are prey, hunters"),
    ],
)
def test_groups_have_one_agent_each(names, text):
    env = ppax.envs.grouped(ppax.make("Pursuit-2", 4), {"prey": [0], "hunters": [1]})
    one = ppax.PPO(ppax.networks.network(env.groups["prey"], hidden=(4,)))
    agent = ppax.Groups(dict.fromkeys(names, one), env.sizes)
    assert text in the_message(lambda: ppax.start(agent, env, 8, jax.random.key(0)))
    pool = ppax.SelfPlay(agent, ppax.Pool(every=1, opponents=1), 4)
    assert text.replace("agent: ", "agent.agent: ") in the_message(lambda: ppax.fit(pool, env))


@pytest.fixture(scope="module")
def begun():
    """Agent, environment, state, key and an old key for the calls below, and the same of a network with memory."""
    agent, env = cartpole()
    (key, other), memory = (
        jax.random.split(jax.random.key(0)),
        ppax.PPO(ppax.networks.network(env, memory=GRU(4)), seq_len=4),
    )
    state, recurrent = ppax.start(agent, env, 8, jax.random.clone(key)), ppax.start(memory, env, 8, other)
    parts = {"learner": state.learner, "actor": state.actor, "old": jax.random.PRNGKey(0), "memory": memory}
    return SimpleNamespace(agent=agent, env=env, state=state, key=key, recurrent=recurrent, **parts)


NO_STEP = "num_steps = 0: must be at least 1; nearest valid value: 1"
KEYS = "must be keys [S], one for each run: write jax.random.split(jax.random.key(0), 4)"
WRONG = {
    "no steps": (lambda x: ppax.start(x.agent, x.env, 0, x.key), NO_STEP),
    "steps below 0": (lambda x: ppax.start(x.agent, x.env, -4, x.key), "num_steps = -4: must be at least 1"),
    "float steps": (lambda x: ppax.start(x.agent, x.env, 16.0, x.key), "num_steps = 16.0: must be of type int"),
    "half a reset": (lambda x: ppax.start(x.agent, x.env, 8, x.key, 2.5), "iterations_per_env_reset = 2.5: must be"),
    "old key": (lambda x: ppax.start(x.agent, x.env, 8, x.old), "jax.random.key(0), in place of jax.random.PRNGKey(0)"),
    "seed": (
        lambda x: ppax.start(x.agent, x.env, 8, 0),
        "key: an int: must be one random key: write jax.random.key(0)",
    ),
    "one key": (lambda x: ppax.start_sweep(x.agent, x.env, 8, x.key), KEYS),
    "old keys": (lambda x: ppax.start_sweep(x.agent, x.env, 8, x.old), KEYS),
    "seeds": (lambda x: ppax.start_sweep(x.agent, x.env, 8, [0, 1]), f"keys: a list: {KEYS}"),
    "state": (lambda x: ppax.evaluate(x.agent, x.env, x.state, x.key, 2), "learner: a TrainState: must be its learner"),
    "params": (lambda x: ppax.evaluate(x.agent, x.env, x.learner.params, x.key, 2), "write state.learner"),
    "old key evaluated": (lambda x: ppax.evaluate(x.agent, x.env, x.learner, x.old, 2), "write jax.random.key(0)"),
    "swapped": (lambda x: ppax.evaluate(x.env, x.agent, x.learner, x.key, 2), "env: a PPO is no environment"),
    "state played": (lambda x: ppax.play_episodes(x.agent, x.env, x.state, x.key, 2), "write state.learner"),
    "other environments": (
        lambda x: ppax.collect(x.agent, ppax.make("CartPole-v1", 8), x.learner, x.actor, 8, x.key),
        "actor: has 4 streams, num_envs = 8 of env are 8: write the actor of a state of ppax.start",
    ),
    "no row": (lambda x: ppax.collect(x.agent, x.env, x.learner, x.actor, 0, x.key), NO_STEP),
    "sequences": (
        lambda x: ppax.collect(x.memory, x.env, x.recurrent.learner, x.recurrent.actor, 10, x.key),
        "seq_len = 4 does not divide num_steps = 10",
    ),
}


@pytest.mark.parametrize("kind", WRONG)
def test_arguments_of_the_pure_functions(kind, begun):
    call, text = WRONG[kind]
    assert text in the_message(lambda: call(begun))


def test_a_head_of_your_own_is_accepted():
    agent, env = cartpole()

    @ppax.part
    class Head(type(agent.network.head)):
        pass

    own = dataclasses.replace(agent.network, head=Head(2))
    ppax.start(ppax.PPO(own), env, 8, jax.random.key(0))


@pytest.mark.parametrize("verb", ["reset", "step"])
def test_a_plain_tuple_from_an_environment_in_a_time_limit(verb):
    env = VectorEnv(TimeLimit(Line(verb), 5), 4)
    agent = ppax.PPO(ppax.networks.mlp(env, (4,)))
    named = {"reset": "not an EnvReset", "step": "not an EnvStep"}[verb]
    assert named in the_message(lambda: ppax.fit(agent, env, 64, num_steps=8))


def test_the_old_reset_of_gym():
    class Old(gymnasium.Env):
        observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        action_space = spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            return np.zeros(2, np.float32)

    text = the_message(lambda: ppax.envs.host(Old, 2))
    assert "Old.reset" in text
    assert "return obs, {}" in text


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_out_of_range(seed):
    assert "nearest valid value" in the_message(lambda: make_key(seed))


def test_a_run_whose_gradient_steps_see_one_row_warns():
    env = ppax.make("probe/Constant", 1)
    agent = ppax.PPO(ppax.networks.mlp(env, (2,)), num_epochs=1, minibatch=ppax.minibatches.Shuffle(1))
    with pytest.warns(UserWarning, match="one row"):
        ppax.fit(agent, env, 1, num_steps=1, log=ppax.config.Log(console=False))


def test_options_that_gymnasium_refuses():
    text = the_message(lambda: ppax.make("gymnasium/CartPole-v1", 1, env_params={"max_episode_steps": -5}))
    assert "max_episode_steps = -5" in text


def test_an_extra_that_needs_a_newer_python(monkeypatch):
    from ppax.envs.suites import registry

    monkeypatch.setitem(registry.NEWER, "navix", (99, 1))
    with pytest.raises(ImportError, match=r"navix needs Python 99\.1 or newer; this is 3"):
        registry.library("no_such_module", "navix")


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_a_platform_that_jax_cannot_use_is_named_with_the_remedy(platform):
    code = "import ppax; env = ppax.make('CartPole-v1', 4); ppax.fit(ppax.PPO(ppax.networks.mlp(env)), env, 100)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, env=os.environ | {"JAX_PLATFORMS": platform}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert f"ppax.core.types.ConfigError: JAX_PLATFORMS = '{platform}'" in done.stderr
    assert "unset it" in done.stderr


@dataclasses.dataclass
class Settings:
    """Stand-in for settings of another library."""

    every: int = 1


FIT = {
    "best": ({"best": "episode_return"}, "best=ppax.BestSettings(metric='episode_return')"),
    "evaluation": ({"evaluation": 10}, "evaluation=ppax.EvalSettings(every=10)"),
    "film": ({"film": 5}, "film=ppax.FilmSettings(every=5)"),
    "log, a dict": ({"log": {"every": 1, "console": False}}, "log=ppax.Log(every=1, console=False)"),
    "log, a switch": ({"log": False}, "log=ppax.Log(every=...)"),
    "log, a class": ({"log": ppax.Log}, "log=ppax.Log(every=...)"),
    "log, another one's": ({"log": Settings()}, "log=ppax.Log(every=...)"),
    "callbacks": ({"callbacks": print}, "callbacks=[...]"),
    "run_dir": ({"run_dir": 3}, "run_dir = 3: must be a path"),
}


@pytest.mark.parametrize("kind", FIT)
def test_settings_of_another_kind_than_fit_takes(kind):
    options, mend = FIT[kind]
    text = the_message(lambda: ppax.fit(*cartpole(), **options))
    assert text.startswith(kind.partition(",")[0])
    assert mend in text


def test_settings_that_are_left_out_or_empty_are_the_defaults():
    run = ppax.fit(*cartpole(), 64, num_steps=8, log=None, best=None, callbacks=())
    assert run.env_steps > 0


@pytest.mark.parametrize("episodes", [0, -3, "a", 1.5, True])
def test_a_number_of_episodes_that_cannot_be_played(episodes):
    agent, env = cartpole()
    run = ppax.fit(agent, env, 64, num_steps=8, log=ppax.Log(console=False))
    for call in (run.evaluate, lambda **k: run.policy().evaluate(env, **k)):
        text = the_message(lambda call=call: call(episodes=episodes))
        assert text.startswith(f"episodes = {episodes!r}: must be ")
    assert "max_steps = 0" in the_message(lambda: run.policy().evaluate(env, 2, max_steps=0))


def test_a_number_of_episodes_from_numpy():
    agent, env = cartpole()
    run = ppax.fit(agent, env, 64, num_steps=8, log=ppax.Log(console=False))
    assert len(run.evaluate(episodes=np.int64(3)).returns) == 3


PATHS = {
    "load": (lambda: ppax.load(3), "source = 3"),
    "resume": (lambda: ppax.resume(3), "run_dir = 3"),
    "checkpoints": (lambda: ppax.checkpoints(None), "run = None"),
    "report": (lambda: ppax.report([3]), "run = 3"),
    "compare": (lambda: ppax.compare([3, 4]), "run = 3"),
    "doctor": (lambda: ppax.doctor(3.5), "run = 3.5"),
}


@pytest.mark.parametrize("kind", PATHS)
def test_a_run_that_is_no_path(kind):
    call, named = PATHS[kind]
    assert the_message(call).startswith(f"{named}: must be ")


@pytest.mark.parametrize("step", ["a", 1.5, True])
def test_a_step_that_is_no_number(step, tmp_path):
    ppax.fit(*cartpole(), 64, num_steps=8, log=ppax.Log(console=False), run_dir=tmp_path / "run")
    assert the_message(lambda: ppax.load(tmp_path / "run", step=step)).startswith(f"step = {step!r}: must be ")


def tower(**options):
    return lambda env: ppax.networks.network(env, actor=ppax.networks.Tower(**options))


NETWORKS = {
    "the name of an environment": (lambda env: ppax.networks.mlp("CartPole-v1"), "ppax.make('CartPole-v1')"),
    "no environment": (lambda env: ppax.networks.network(None), "ppax.make(NAME)"),
    "one width": (lambda env: ppax.networks.network(env, hidden=64), "hidden=(64,)"),
    "one width of a head": (lambda env: ppax.networks.network(env, head_hidden=32), "head_hidden=(32,)"),
    "one width of a tower": (tower(hidden=32), "network.actor.hidden = 32"),
    "a memory by name": (lambda env: ppax.networks.network(env, memory="gru"), "memory=ppax.networks.memories.GRU("),
    "the class of a memory": (lambda env: ppax.networks.network(env, memory=ppax.networks.memories.GRU), "GRU("),
    "a memory of a tower": (tower(memory="lstm"), "network.actor.memory = 'lstm'"),
    "an encoder by name": (lambda env: ppax.networks.network(env, encoder="flat"), "encoder=ppax.networks.encoders."),
}


@pytest.mark.parametrize("kind", NETWORKS)
def test_arguments_of_a_network(kind):
    make, mend = NETWORKS[kind]
    assert mend in the_message(lambda: make(cartpole()[1]))


OPTIONS = {
    "clip_eps": "loss=ppax.losses.ClippedSurrogate(clip_eps=...)",
    "clip_range": "loss=ppax.losses.ClippedSurrogate(clip_eps=...)",
    "num_minibatches": "minibatch=ppax.minibatches.Shuffle(num_minibatches=...)",
    "lam": "advantage=ppax.advantages.GAE(gae_lambda=...)",
    "target_kl": "extensions=(ppax.extensions.KLControl(target_kl=...),)",
    "lr": "learning_rate=...",
    "gama": "gamma=...",
}


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_that_the_agent_does_not_have(name):
    agent, _ = cartpole()
    for call in (lambda **k: ppax.PPO(agent.network, **k), lambda **k: with_field(agent, **k)):
        with pytest.raises(TypeError) as caught:
            call(**{name: 0.1})
        assert str(caught.value) == f"PPO has no option {name}: write {OPTIONS[name]}"


def test_an_option_that_no_part_of_the_agent_has():
    with pytest.raises(TypeError, match=r"^Shuffle has no option zzz: it has num_minibatches, \w+"):
        ppax.minibatches.Shuffle(zzz=3)


def test_other_errors_of_a_part_are_those_of_python():
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'network'"):
        ppax.PPO()
