"""Pages for people from other libraries: both sides of a page have the same numbers, and the same value loss.

Oracles: the numbers in the other library's block or signature; its value loss, written down from its source.
"""

import ast
import functools
import re
import tomllib
from pathlib import Path

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import ppax
from ppax.core.parts import name_of
from ppax.core.unknown_names import TABLE

DOCS = Path(__file__).parents[2] / "docs"
OPTION = {name: row.option for row in TABLE for name in row.elsewhere}
OPTION |= {"lr": "agent.learning_rate", "num_epochs": "agent.num_epochs"}  # RLlib's, which the table does without


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / f"{page}.md").read_text(), re.DOTALL)


class Robot(gymnasium.Env):
    """Environment with the observations of the run file of from_rsl_rl.md; nobody steps it."""

    observation_space = spaces.Dict({name: spaces.Box(-1.0, 1.0, (2,)) for name in ("policy", "privileged")})
    action_space = spaces.Box(-1.0, 1.0, (3,))

    def reset(self, *, seed=None, options=None):
        return {name: np.zeros(2, np.float32) for name in ("policy", "privileged")}, {}


def sb3():
    """Numbers of PPO.__init__ in stable_baselines3/ppo/ppo.py, 2.9; those of the page's run file."""
    theirs = {"learning_rate": 3e-4, "n_steps": 2048, "batch_size": 64, "n_epochs": 10, "gamma": 0.99}
    theirs |= {"gae_lambda": 0.95, "clip_range": 0.2, "ent_coef": 0.0, "vf_coef": 0.5, "max_grad_norm": 0.5}
    theirs |= {"log_std_init": 0.0}
    return theirs, ppax.build(tomllib.loads(blocks("from_sb3", "toml")[0]))


def rsl_rl():
    (text,), (ours,) = blocks("from_rsl_rl", "yaml"), blocks("from_rsl_rl", "toml")
    theirs = {name: float(value) for name, value in re.findall(r"^ +(\w+): ([\d.]+)$", text, re.MULTILINE)}
    ours = tomllib.loads(ours)
    assert ours["total_steps"] == 1500 * ours["num_envs"] * theirs["num_steps_per_env"]
    return theirs, ppax.build(
        ppax.envs.host(Robot, 2, info_metrics=()), **{k: v for k, v in ours.items() if k not in ("env", "num_envs")}
    )


def keywords(code, name):
    """Return keyword arguments, those that are literals, of all calls; only of the function `name`, if it is given."""
    calls = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
    calls = [call for call in calls if not name or ast.unparse(call.func) == name]
    found = {}
    for call in calls:
        for argument in call.keywords:
            try:
                found[argument.arg] = ast.literal_eval(argument.value)
            except ValueError:  # a name
                continue
    return found


def rllib():
    theirs = keywords(blocks("from_rllib", "py")[0], "")
    ours = keywords(blocks("from_rllib", "python")[0], "ppax.build")
    assert ours["num_envs"] == theirs["num_env_runners"] * theirs["num_envs_per_env_runner"]
    assert ours["num_envs"] * ours["num_steps"] == theirs["train_batch_size_per_learner"]
    assert ours["total_steps"] == 50 * theirs["train_batch_size_per_learner"]
    return theirs, ppax.build("gymnasium/CartPole-v1", **ours)


def purejaxrl():
    """Numbers of the page's dictionary; the preset of the page, and the agent of its program."""
    text, code = blocks("from_cleanrl", "py")[0], blocks("from_cleanrl", "python")[1]
    theirs = {name: float(value) for name, value in re.findall(r'"([A-Z_]+)": ([\de.-]+),', text)}
    theirs |= {"VF_COEF": 0.5, "GAMMA": 0.99, "GAE_LAMBDA": 0.95, "UPDATE_EPOCHS": 4, "MAX_GRAD_NORM": 0.5}  # of ppo.py
    assert f"num_iterations={theirs['TOTAL_TIMESTEPS'] // (theirs['NUM_ENVS'] * theirs['NUM_STEPS']):.0f}" in code
    built = ppax.build("CartPole-v1", preset="styles/purejaxrl")
    names = {}
    exec(code.split("keys = ")[0], names)
    assert names["agent"] == built.agent
    return theirs, built


V, R, OLD = np.random.default_rng(0).normal(size=(3, 64))


def clipped(clip):
    """Return the larger squared error of V and of V clipped around the old V, [64]."""
    return np.maximum((V - R) ** 2, (OLD + np.clip(V - OLD, -clip, clip) - R) ** 2)


# value loss with its weight in the sum, from stable_baselines3/ppo/ppo.py; rsl_rl/algorithms/ppo.py (value_loss_coef
# 1.0, clip_param 0.2); ray/rllib/algorithms/ppo/torch/ppo_torch_learner.py; purejaxrl/ppo.py
LIBRARIES = {
    "sb3": (sb3, 0.5 * np.mean((R - V) ** 2)),
    "rsl_rl": (rsl_rl, 1.0 * np.mean(clipped(0.2))),
    "rllib": (rllib, 0.5 * np.mean(np.clip((V - R) ** 2, 0.0, None))),
    "purejaxrl": (purejaxrl, 0.5 * 0.5 * np.mean(clipped(0.2))),
}
ELSEWHERE = {  # other meanings, tested as the value loss, or options without a number
    "agent.vf_coef",
    "agent.critic.value_clip",
    "agent.minibatch.num_minibatches",
    "agent.schedule.part",
    "total_steps",
    "num_envs",
    "log.checkpoint_every",
    "eval.every",
}


def value_at(built, option):
    """Return the value of an option, such as agent.extensions.kl_control.rate_target."""
    first, *rest = option.split(".")
    if rest[:1] == ["extensions"]:
        extension = next(x for x in built.agent.extensions if name_of(x) == rest[1])
        return getattr(extension, rest[2])
    return functools.reduce(getattr, rest, built.agent) if first == "agent" else getattr(built.run, option)


@pytest.mark.parametrize("library", LIBRARIES)
def test_both_sides_of_a_page_have_the_same_numbers(library):
    theirs, built = LIBRARIES[library][0]()
    known = {name: OPTION[name] for name in theirs if OPTION.get(name, "") not in ELSEWHERE | {""}}
    assert len(known) >= 4
    for name, option in known.items():
        if not isinstance(theirs[name], str):
            np.testing.assert_allclose(value_at(built, option), theirs[name], rtol=1e-6, err_msg=f"{name}, {option}")
    rows = [theirs[name] for name in ("batch_size", "minibatch_size") if name in theirs]
    if rows:
        sizes = built.run.num_steps * built.run.num_envs / built.agent.minibatch.num_minibatches
        assert [sizes] == rows


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_value_loss_of_a_page_is_that_of_the_library(library):
    make, expected = LIBRARIES[library]
    agent = make()[1].agent
    errors = [agent.critic.error((), jnp.array([v]), r, old) for v, r, old in zip(V, R, OLD, strict=True)]
    np.testing.assert_allclose(agent.vf_coef * np.mean(errors), expected, rtol=1e-5)
