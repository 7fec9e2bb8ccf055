"""Names of settings in other libraries: refused wherever they are written, with the setting of ppax that they mean.

The oracle is a list by hand, after the documentation of each library, not the table of the package.
"""

import inspect

import pytest

import ppax
from ppax import config
from ppax.cli.arguments import renamed_option
from ppax.cli.main import main
from ppax.core import unknown_names
from ppax.core.types import ConfigError
from ppax.ppo.schedules import replace_at

# name -> last name of the option, path in a run file
EXPECTED = {
    # Stable-Baselines3, and its Zoo
    "total_timesteps": "total_steps",
    "n_timesteps": "total_steps",
    "n_envs": "num_envs",
    "n_steps": "num_steps",
    "n_epochs": "agent.num_epochs",
    "batch_size": "agent.minibatch.num_minibatches",
    "clip_range": "agent.loss.clip_eps",
    "clip_range_vf": "agent.critic.value_clip",
    "tensorboard_log": "log.tensorboard",
    "policy_kwargs": "agent.network.hidden",
    "use_sde": "agent.extensions.held_noise.steps",
    "eval_freq": "eval.every",
    "n_eval_episodes": "eval.episodes",
    # CleanRL
    "update_epochs": "agent.num_epochs",
    "clip_coef": "agent.loss.clip_eps",
    "anneal_lr": "agent.schedule.part",
    "norm_adv": "agent.normalize_advantage",
    # PureJaxRL
    "LR": "agent.learning_rate",
    "TOTAL_TIMESTEPS": "total_steps",
    "NUM_ENVS": "num_envs",
    "NUM_STEPS": "num_steps",
    "UPDATE_EPOCHS": "agent.num_epochs",
    "NUM_MINIBATCHES": "agent.minibatch.num_minibatches",
    "GAMMA": "agent.gamma",
    "GAE_LAMBDA": "agent.advantage.gae_lambda",
    "CLIP_EPS": "agent.loss.clip_eps",
    "ENT_COEF": "agent.ent_coef",
    "VF_COEF": "agent.vf_coef",
    "MAX_GRAD_NORM": "agent.max_grad_norm",
    "ANNEAL_LR": "agent.schedule.part",
    "ACTIVATION": "agent.network.activation",
    "NORMALIZE_ENV": "agent.normalize_obs",
    # rl_games
    "horizon_length": "num_steps",
    "mini_epochs": "agent.num_epochs",
    "minibatch_size": "agent.minibatch.num_minibatches",
    "e_clip": "agent.loss.clip_eps",
    "tau": "agent.advantage.gae_lambda",
    "critic_coef": "agent.vf_coef",
    "normalize_input": "agent.normalize_obs",
    # rsl_rl
    "num_steps_per_env": "num_steps",
    "num_learning_epochs": "agent.num_epochs",
    "num_mini_batches": "agent.minibatch.num_minibatches",
    "clip_param": "agent.loss.clip_eps",
    "desired_kl": "agent.extensions.kl_control.rate_target",
    "max_iterations": "total_steps",
    # Brax
    "num_timesteps": "total_steps",
    "unroll_length": "num_steps",
    "discounting": "agent.gamma",
    "entropy_cost": "agent.ent_coef",
    "clipping_epsilon": "agent.loss.clip_eps",
}
VALUES = {"agent.schedule.part": "linear"}
NO_OPTION = {"callback": "callbacks=[...]", "eval_env": "evaluation=ppax.EvalSettings(every=10)"}


@pytest.fixture(scope="module")
def agent_and_env():
    env = ppax.make("CartPole-v1", 2)
    return ppax.PPO(ppax.networks.mlp(env)), env


@pytest.mark.parametrize("name", EXPECTED)
def test_in_run_files_and_on_the_command_line(name, capsys):
    path = EXPECTED[name]
    for given in ({name: 1}, {"agent": {name: 1}}):
        with pytest.raises(ConfigError) as caught:
            config.resolve(given)
        assert f"did you mean {path!r}" in str(caught.value)
    flag = "--" + renamed_option(path, "_", "-") + (f" {VALUES[path]}" if path in VALUES else "")
    assert main(["train", "CartPole-v1", f"--{name.replace('_', '-')}", "1"]) == 2
    error = capsys.readouterr().err
    assert f"did you mean {flag}?" in error or f"did you mean {flag}, " in error


@pytest.mark.parametrize("name", EXPECTED)
def test_in_calls(name, agent_and_env):
    """The call that a message suggests has the keyword, and exists."""
    agent, env = agent_and_env
    keyword = {"agent.schedule.part": "schedule"}.get(EXPECTED[name], EXPECTED[name].rpartition(".")[2]) + "="
    calls = [
        lambda **given: ppax.PPO(agent.network, **given),
        lambda **given: ppax.fit(agent, env, **given),
        lambda **given: ppax.make("CartPole-v1", **given),
        lambda **given: ppax.envs.host(list, **given),
        lambda **given: ppax.networks.network(env, **given),
        lambda **given: ppax.networks.mlp(env, **given),
    ]
    for call in calls:
        with pytest.raises(TypeError) as caught:
            call(**{name: 1})
        assert ": write " in str(caught.value)
        assert keyword in str(caught.value)


@pytest.mark.parametrize("name", NO_OPTION)
def test_names_of_arguments_that_no_option_is(name, agent_and_env, capsys):
    with pytest.raises(TypeError, match="fit has no argument") as caught:
        ppax.fit(*agent_and_env, **{name: 1})
    assert NO_OPTION[name] in str(caught.value)
    assert main(["train", "CartPole-v1", f"--{name.replace('_', '-')}", "1"]) == 2
    assert NO_OPTION[name] in capsys.readouterr().err


@pytest.mark.parametrize("row", [row for row in unknown_names.TABLE if "..." in row.python], ids=lambda row: row.python)
def test_suggested_calls_take_what_they_suggest(row, agent_and_env):
    """Every suggested call has arguments that the called functions and parts take."""
    seen = {}

    class Recorder:
        def __getattr__(self, name):
            return self

        def __call__(self, *values, **given):
            seen.update(given)
            return self

    names_in_call = {"ppax": Recorder(), "network": 0, "env": 0, "agent": 0, "name": 0, "num_envs": 0}
    eval(row.python, names_in_call)  # our own table
    assert seen or row.python.startswith("ppax.networks")
    extensions = {"agent": {"extensions": {"kl_control": {}, "held_noise": {}}}}
    known = {field for option in config.options(extensions) for field in option.path.split(".")}
    known |= set(inspect.signature(ppax.fit).parameters) | set(inspect.signature(ppax.make).parameters)
    assert set(seen) <= known


def test_calls_of_public_functions_say_where_an_argument_belongs():
    functions = (ppax.fit, ppax.resume, ppax.make, ppax.evaluate, ppax.start, ppax.train, ppax.collect, ppax.selftest)
    functions += (ppax.sweep_runs, ppax.start_sweep, ppax.sweep, ppax.score, ppax.check_env, ppax.envs.host)
    for function in functions:
        with pytest.raises(
            TypeError, match=f"^{function.__name__} has no argument ENT_COEF: write ppax.PPO.network, ent_"
        ):
            function(ENT_COEF=0.1)


def test_names_of_classes_of_other_libraries():
    for name, meant in {"VecNormalize": "normalize_obs=True", "RecurrentPPO": "LSTM", "MaskablePPO": "masks"}.items():
        with pytest.raises(AttributeError, match=rf"^module 'ppax' has no attribute '{name}': write .*{meant}"):
            getattr(ppax, name)


def test_commands_without_run_options(capsys):
    assert main(["evaluate", "runs/none", "--n-eval-episodes", "3"]) == 2
    assert "unknown option '--n-eval-episodes'; did you mean --episodes?" in capsys.readouterr().err
    assert main(["resume", "runs/none", "--total_timesteps", "3"]) == 2
    assert "unknown option '--total_timesteps'; did you mean --total-steps?" in capsys.readouterr().err
    assert main(["resume", "runs/none", "--zzz"]) == 2
    assert (
        "'--zzz': `ppax resume` has no such argument; `ppax resume --help` lists its options" in capsys.readouterr().err
    )


def test_in_tables_of_groups_and_of_leaves(agent_and_env):
    """The option meant is that of the same group; the leaves of a schedule have the table, too."""
    with pytest.raises(ConfigError, match=r"did you mean 'groups\.prey\.agent\.num_epochs'\?"):
        config.resolve({"groups": {"prey": {"players": [0], "agent": {"n_epochs": 2}}, "other": {"players": [1]}}})
    agent, _ = agent_and_env
    for leaf, meant in {"lr": "learning_rate", "loss.clip_range": "loss.clip_eps", "GAMMA": "gamma"}.items():
        with pytest.raises(ConfigError, match=f"did you mean '{meant}'"):
            replace_at(agent, leaf, lambda value: value)


def test_a_part_that_lacks_the_option_is_named():
    with pytest.raises(ConfigError, match=r"agent\.loss\.part must be 'clipped'"):
        config.resolve({"agent": {"loss": {"part": "kl_penalty", "clip_range": 0.2}}})


def test_names_in_any_case():
    for name in ("n_steps", "N_STEPS", "N-Steps"):
        assert unknown_names.own_name(name) == "num_steps"
    assert unknown_names.own_name("Anneal_LR") == "part"


def test_suggestions_for_names_of_no_library_are_as_before():
    assert unknown_names.meaning("zzz") is None
    assert unknown_names.meaning("part") is None
    with pytest.raises(TypeError, match=r"^fit has no argument total_step: write total_steps=\.\.\.$"):
        ppax.fit(total_step=3)
    with pytest.raises(TypeError, match=r"^fit has no argument zzz: it has agent, env, total_steps"):
        ppax.fit(zzz=3)
