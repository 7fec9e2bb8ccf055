"""`ppax.build`: the run of `ppax train` in Python, with options and parts as objects."""

import dataclasses
import importlib
import sys
import textwrap

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import ppax
from ppax import config
from ppax.core import imports
from ppax.core.types import EnvReset, EnvStep

TINY = {"num_envs": 2, "num_steps": 4, "total_steps": 16, "log": {"console": False}}
INDEPENDENT = {"agents": "independent", "agent": {"loss": ppax.losses.SPO()}}
TINY_AGENT = {"network": {"hidden": [4]}, "num_epochs": 1}


@ppax.part
class Doubled(ppax.losses.ClippedSurrogate):
    """Loss of a user's notebook, whose class no run file can name."""

    def __call__(self, *arguments):
        out = super().__call__(*arguments)
        return out._replace(loss=2.0 * out.loss)


Doubled.__module__ = "__main__"


class Line:
    """Single environment of a user, written in JAX: walk to the right."""

    observation_space = spaces.Box(-10.0, 10.0, (1,), np.float32)
    action_space = spaces.Discrete(2)
    num_agents = None
    max_steps = 20

    def reset(self, key):
        return EnvReset(jnp.zeros(()), jnp.zeros((1,)))

    def step(self, state, action, key):
        state = state + 2.0 * action - 1.0
        done = jnp.abs(state) > 5
        return EnvStep(state, state[None], jnp.float32(state > 5), done, jnp.bool_(False))


def test_a_preset_equals_its_run_file():
    agent, env, run = ppax.build("Pendulum-v1")
    described = config.describe_run(agent, env, run)
    assert described == config.resolve(config.read(config.presets()["Pendulum-v1"]) | {"preset": "Pendulum-v1"})


def test_options_override_single_settings():
    tuned = ppax.build("Pendulum-v1", seed=7, agent={"learning_rate": 0.5, "network": {"hidden": [8]}})
    assert (tuned.run.seed, float(tuned.agent.learning_rate), tuned.agent.network.hidden) == (7, 0.5, (8,))
    assert tuned.agent.schedule == ppax.build("Pendulum-v1").agent.schedule
    by_kind = ppax.build("Pendulum-v1", preset="none")
    assert (by_kind.run.preset, by_kind.run.num_envs) == (None, 64)


def test_options_of_a_part_leave_with_it():
    assert (
        ppax.build("Pendulum-v1", agent={"schedule": {"part": "constant"}}).agent.schedule == ppax.schedules.Constant()
    )


def test_it_trains():
    run = ppax.build("CartPole-v1", **TINY, agent=TINY_AGENT).fit()
    assert run.history[-1]["iteration"] == 2


def test_another_length_than_that_of_a_preset_is_told():
    with pytest.warns(UserWarning, match=r"tuned for 500,000 steps, this run has 1,000; preset = \"none\""):
        ppax.build("Pendulum-v1", total_steps=1000)


def test_parts_may_be_objects():
    given = {"loss": ppax.losses.SPO(), "extensions": (ppax.extensions.KLControl(target_kl=0.1),)}
    given |= {"gamma": 0.9}
    built = ppax.build("CartPole-v1", agent=given, log=ppax.Log(console=False, keep=9))
    assert (type(built.agent.loss), float(built.agent.gamma), built.run.log.keep) == (ppax.losses.SPO, 0.9, 9)
    assert float(built.agent.extensions[0].target_kl) == pytest.approx(0.1)
    table = {"loss": {"part": "spo"}, "extensions": {"kl_control": {"target_kl": 0.1}}, "gamma": 0.9}
    same = ppax.build("CartPole-v1", agent=table, log={"console": False, "keep": 9})
    assert config.describe_run(*built) == config.describe_run(*same)


def test_evaluation_is_that_of_fit():
    settings = ppax.EvalSettings(every=10, episodes=3)
    by_object, by_table = ppax.build("CartPole-v1", evaluation=settings), ppax.build("CartPole-v1", eval={"every": 10})
    assert (by_object.run.eval, by_table.run.eval.every) == (settings, 10)


def test_evaluate_has_the_settings_of_the_run():
    """As after `ppax train`: sampled actions where the settings say so, and their number of episodes."""
    run = ppax.build("CartPole-v1", **TINY, agent=TINY_AGENT, eval={"episodes": 3, "deterministic": False}).fit()
    own, sampled, modes = run.evaluate(), run.evaluate(3, deterministic=False), run.evaluate(3, deterministic=True)
    assert own.returns.tolist() == sampled.returns.tolist()
    assert own.returns.tolist() != modes.returns.tolist()


def test_a_run_to_start_from_is_named_as_in_fit():
    assert ppax.build("CartPole-v1", init_from="runs/a").run.init_from.run == "runs/a"


def test_other_settings_follow_from_objects():
    """With a memory minibatches are of whole sequences: 16 environments give at most 16, rows would give 32."""
    env = ppax.make("CartPole-v1-masked", 16)
    network = ppax.networks.network(env, memory=ppax.networks.memories.GRU(8))
    built = ppax.build(env, preset="none", num_steps=1024, agent={"network": network})
    assert built.agent.network is network
    assert 16 % built.agent.minibatch.num_minibatches == 0
    jax.eval_shape(lambda: ppax.start(built.agent, env, built.run.num_steps, jax.random.key(0)))


def test_objects_of_classes_that_no_file_can_name():
    built = ppax.build("CartPole-v1", **TINY, agent={**TINY_AGENT, "loss": Doubled(clip_eps=0.3)})
    assert isinstance(built.agent.loss, Doubled)
    assert built.agent.ent_coef == pytest.approx(0.01)  # of the kind, as before
    assert built.fit().history[-1]["iteration"] == 2


def test_an_environment_of_make_keeps_its_settings():
    env = ppax.make("CartPole-v1", 24, env_params={"gravity": 12.0})
    built = ppax.build(env, total_steps=1000)
    assert built.env is env
    assert (built.run.num_envs, built.run.num_steps, built.run.env_params) == (24, 32, {"gravity": 12.0})
    with pytest.raises(ppax.ConfigError, match="num_envs = 8: the environment was made with 24"):
        ppax.build(env, num_envs=8)
    preset = ppax.build(ppax.make("Pendulum-v1", 24), total_steps=500_000)
    assert (preset.run.preset, preset.run.num_envs, preset.run.num_steps) == ("Pendulum-v1", 24, 128)


@pytest.mark.parametrize(("options", "num_envs"), [({}, 64), ({"num_envs": 3}, 3), ({"preset": "styles/rl8"}, 64)])
def test_a_single_environment_in_jax_is_copied(options, num_envs):
    if options.get("preset"):
        options = options | {"total_steps": 1_000_000}
    built = ppax.build(Line(), **options)
    assert built.env.num_envs == built.run.num_envs == num_envs
    jax.eval_shape(lambda: ppax.start(built.agent, built.env, built.run.num_steps, jax.random.key(0)))


def test_files_directories_and_configurations(tmp_path):
    (tmp_path / "mine.toml").write_text('env = "CartPole-v1"\nnum_envs = 5')
    built = ppax.build(tmp_path / "mine.toml", **(TINY | {"num_envs": 2}), agent=TINY_AGENT)
    assert (built.run.num_envs, built.run.num_steps) == (2, 4)
    built.fit(tmp_path / "run")
    again = config.describe_run(*ppax.build(str(tmp_path / "run")))
    decided = again["agent"]["compute_dtype"]  # recorded when the run began
    assert again == config.describe_run(*ppax.build(tmp_path / "run" / "run.toml", agent={"compute_dtype": decided}))
    assert again["num_steps"] == 4
    of_table = ppax.build({"env": "CartPole-v1", "num_envs": 5})
    assert config.describe_run(*of_table) == config.describe_run(*ppax.build(tmp_path / "mine.toml"))


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        ("CartPole", {}, "did you mean 'CartPole-v1'"),
        ("CartPole-v1", {"num_env": 3}, "num_envs"),
        ("CartPole-v1", {"agent": {"lss": ppax.losses.SPO()}}, r"agent.lss: unknown option; did you mean agent.loss\?"),
        ("CartPole-v1", {"agent": 3}, "agent: must be a table of options"),
        ("CartPole-v1", {"preset": "rl8"}, "did you mean 'styles/rl8'"),
        (3, {}, "env: a int is no environment"),
        (gymnasium.Env, {}, r"write ppax.envs.host\(Env, 8\)"),
        (Line, {}, r"env: Line is a class: write ppax.envs.VectorEnv\(Line\(\), num_envs=64\)"),
        (
            "Pursuit-3",
            {"agents": "independent", "agent": {"loss": ppax.losses.SPO()}},
            "agent.loss: objects are parts of one policy",
        ),
    ],
)
def test_what_cannot_work_is_refused(target, options, message):
    with pytest.raises(ppax.ConfigError, match=message):
        ppax.build(target, **options)


def test_code_that_an_option_names_takes_trust(tmp_path, monkeypatch):
    """Options may come from a file of somebody else: ppax.build(env, **read)."""
    (tmp_path / "corp_losses.py").write_text("from ppax.losses import SPO as Loss")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(imports.Untrusted, match="corp_losses"):
        ppax.build("CartPole-v1", agent={"loss": {"part": "corp_losses:Loss"}})
    assert "corp_losses" not in sys.modules


@pytest.mark.parametrize("wrapped", [ppax.InitFrom, lambda run: run], ids=["in InitFrom", "alone"])
def test_a_run_in_memory_to_start_from_is_refused_with_the_function_that_takes_it(wrapped):
    run = ppax.build("probe/Constant", num_envs=2, num_steps=4, total_steps=8).fit()
    with pytest.raises(ppax.ConfigError, match=r"a TrainedRun in memory.*ppax\.fit\(agent, env, init_from"):
        ppax.build("probe/Constant", init_from=wrapped(run))


def test_an_object_of_a_class_that_can_be_imported_takes_no_trust(tmp_path, monkeypatch):
    text = "import ppax\n@ppax.part\nclass Own(ppax.networks.memories.GRU):\n    pass\n"
    (tmp_path / "corp_memories.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    env = ppax.make("CartPole-v1", 4)
    network = ppax.networks.network(env, memory=importlib.import_module("corp_memories").Own(8))
    assert ppax.build(env, agent={"network": network}).agent.network is network


def test_an_agent_in_place_of_its_options_is_refused():
    env = ppax.make("CartPole-v1", 4)
    with pytest.raises(ppax.ConfigError, match=r"trains with ppax.fit\(agent, env\)"):
        ppax.build(env, agent=ppax.PPO(ppax.networks.mlp(env)))


def test_every_field_of_the_result_has_a_name():
    built = ppax.build("CartPole-v1")
    assert built._fields == ("agent", "env", "run")
    assert dataclasses.is_dataclass(built.run)


def test_parts_of_the_network_may_be_objects():
    built = ppax.build(
        "CartPole-v1", agent={"network": {"hidden": [4], "memory": ppax.networks.memories.GRU(3)}}, **TINY
    )
    assert built.agent.network.memory == ppax.networks.memories.GRU(3)
    whole = ppax.networks.network(built.env, hidden=(4,), memory=ppax.networks.memories.GRU(3))
    assert built.agent.network == whole
    assert built.agent == ppax.build("CartPole-v1", agent={"network": whole}, **TINY).agent  # with the same defaults


def test_objects_of_importable_classes_inside_of_tables_take_no_trust(tmp_path, monkeypatch):
    text = """
        import dataclasses
        from ppax.networks.memories import GRU
        from ppax.loggers import TensorBoard
        from ppax.types import part

        @part
        class Own(GRU): ...

        @dataclasses.dataclass(frozen=True)
        class Board(TensorBoard): ...
    """
    (tmp_path / "inner_parts.py").write_text(textwrap.dedent(text))
    monkeypatch.syspath_prepend(tmp_path)
    own = importlib.import_module("inner_parts")
    built = ppax.build("CartPole-v1", **TINY | {"log": ppax.Log(console=False, to=(own.Board(),))})
    assert type(built.run.log.to[0]) is own.Board
    built = ppax.build("CartPole-v1", agent={"network": {"hidden": [4], "memory": own.Own(3)}}, **TINY)
    assert type(built.agent.network.memory) is own.Own
    with pytest.raises(imports.Untrusted):  # named by a text it does
        ppax.build("CartPole-v1", agent={"network": {"memory": {"part": "inner_parts:Own"}}}, **TINY)


@ppax.part
class Notebook(ppax.networks.memories.GRU):
    """Memory of a user's notebook, whose class no run file can name."""


Notebook.__module__ = "__main__"


def test_a_part_of_the_network_that_no_file_can_name_is_refused_with_the_remedy():
    with pytest.raises(ppax.ConfigError, match=r"agent.network.memory: a Notebook .*network\(env, memory=...\)"):
        ppax.build("CartPole-v1", agent={"network": {"memory": Notebook(3)}}, **TINY)


@pytest.mark.parametrize(
    ("part", "text"),
    [
        (ppax.advantages.GAE(gae_lambda=1.5), "agent.advantage.gae_lambda = 1.5: must be at most 1"),
        (ppax.advantages.GAE(gae_lambda="x"), "agent.advantage.gae_lambda = 'x': must be a number"),
    ],
)
def test_numbers_of_objects_are_checked_at_once(part, text):
    with pytest.raises(ppax.ConfigError, match=text):
        ppax.build("CartPole-v1", agent={"advantage": part}, **TINY)


def test_a_part_that_is_called_with_other_arguments_is_refused():
    text = r"agent.advantage: must be a part for advantage; SPO.__call__ takes .* and is called with \(self, steps, "
    with pytest.raises(ppax.ConfigError, match=text):
        ppax.build("CartPole-v1", agent={"advantage": ppax.losses.SPO()}, **TINY).fit()
