"""docs/metrics.md documents exactly the metrics that runs log."""

import dataclasses
import re
from pathlib import Path

import jax
import numpy as np
import pytest

import ppax
from ppax import config
from ppax.run.monitor import OWN_ROWS
from ppax.training.backends import backend_of
from ppax.training.evaluation import COLUMNS
from ppax.training.loop import STAGES
from support.trained import policy_of

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"
SYMMETRY = {"observation": [1, -2, -3], "action": [-1], "mirror_coef": 0.5}
AGENTS = [
    {"loss": {"part": "kl_penalty"}, "extensions": {"kl_control": {"coef_target": 0.1}, "symmetry": SYMMETRY}},
    {"loss": {"part": "dpo"}, "normalize_obs": True, "normalize_reward": True},
    {
        "critic": {"part": "two_hot"},
        "minibatch": {"part": "prioritised"},
        "extensions": {"feature_norm": {}, "own_critic": {"reward": {"part": "rnd"}}},
    },
    {
        "critic": {"part": "popart"},
        "advantage": {"part": "vtrace"},
        "recompute": {"part": "epoch"},
        "extensions": {"kl_control": {"target_kl": 0.1}, "self_prediction": {}, "ppg": {}},
    },
    {
        "optimizer": {"part": "actor_critic"},
        "loss": {"dual_clip": 3.0},
        "extensions": {"kl_control": {"rate_target": 0.1}, "next_observation": {}, "critic_warmup": {"steps": 9}},
    },
    {
        "ent_coef": 0.01,
        "critic": {"part": "quantile"},
        "extensions": {"entropy_target": {"target": 0.1}, "caps": {}, "l2c2": {"value_coef": 0.1}, "action_rate": {}},
    },
]


def distilled(env):
    return ppax.imitation.distill(env, policy_of(ppax.PPO(ppax.networks.mlp(env, hidden=(2,))), env))


def cloned(env):
    names = ("observations", "actions", "terminations", "truncations")
    shapes = ((1, 3), (1, 1), 1, 1)
    return ppax.imitation.clone(env, {name: np.zeros(n, bool) for name, n in zip(names, shapes, strict=True)})


def styled(env):
    demos = {"observations": np.zeros((2, 3)), "terminations": np.zeros(2, bool)}
    return ppax.imitation.motion_prior(env, demos | {"truncations": np.array([False, True])})


def explained():
    return re.findall(r"(?m)^\| `(\w+)` \| \S", DOCS.read_text(encoding="utf-8"))


def logged(plan, extension=None):
    agent, env, run = config.build(plan)
    agent = agent if extension is None else dataclasses.replace(agent, extensions=(extension(env),))
    state = jax.eval_shape(lambda key: ppax.start(agent, env, run.num_steps, key), jax.random.key(0))
    names = {name.partition("/")[0] for name in backend_of(env).metric_names(agent, state)}
    annealed = {name for name in names if "." in name}  # numbers of the agent, in one row of the table
    return names - annealed | {*OWN_ROWS, *STAGES, *COLUMNS}


@pytest.fixture(scope="module")
def names():
    small = {"num_envs": 4, "num_steps": 8}
    found = set()
    for agent in AGENTS:
        found |= logged({"env": "Pendulum-v1", "agent": agent | {"network": {"hidden": [4]}}} | small)
    for extension in (distilled, cloned, styled):
        found |= logged({"env": "Pendulum-v1", "agent": {"network": {"hidden": [4]}}} | small, extension)
    for world in ("Navigator-8", "rl8/MountainCar"):
        found |= logged({"env": world, "agent": {"network": {"hidden": [4]}}} | small)
    groups = {"prey": {"players": [0]}, "hunter": {"players": [1]}}
    pool = {"every": 1, "size": 1}
    return found | logged({"env": "Pursuit-2", "groups": groups, "self_play": pool} | small | {"num_envs": 8})


def test_every_metric_is_documented_once(names):
    assert len(explained()) == len(set(explained()))
    assert names - set(explained()) == set()


def test_every_documented_metric_is_logged(names):
    assert set(explained()) - names == set()
