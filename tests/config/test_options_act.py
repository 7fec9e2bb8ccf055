"""Every option has an effect: a change of it changes the numbers of a run or is refused.

Options come from `ppax train --help`, for every part of every slot. Values that cannot be derived from an option's
limits are in VALUES; other options that an option needs are in BESIDE and named in its help. A new option is covered
automatically, or fails until it has an entry here.
"""

import dataclasses
import functools
import json
import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import ppax
from ppax import config
from ppax.cli.main import main
from ppax.core import imports
from ppax.core.options import unflatten
from ppax.core.parts import slot_tables, slots
from ppax.core.types import ConfigError, EnvReset, EnvStep, part, static
from ppax.envs import VectorEnv
from ppax.training.loop import MEASURED, STAGES
from support.worlds import QUICK

# Options that cannot change the numbers of a training run
SILENT = {
    "log.every",  # the number of iterations in a row; tests/training/test_training.py
    "log.checkpoint_seconds",
    "log.checkpoint_every",
    "log.keep",
    "log.tensorboard",
    "log.console",
    "log.to",  # loggers: tests/loggers/
    "film.every",  # tests/run/films/test_recorder.py
    "film.max_steps",
    "vectorization",  # equal results: tests/envs/hosting/test_handle.py
    "info_metrics",  # of host environments: tests/system/test_episode_metrics.py
    # of another run: tests/run/warm_start/test_start.py
    "init_from.run",
    "init_from.keep",
    "init_from.best",
    "init_from.partial",
    # tests/run/warm_start/test_changed_spaces.py
    "init_from.observations",
    "init_from.actions",
    "init_from.new_action_probability",
    "timeout",  # of worker processes; refused without them: tests/envs/test_settings.py
    # layout of the program: results are equal up to rounding, tests/system/test_reference.py
    "agent.extensions",  # the list; tests/config/test_extensions.py
    "agent.program.devices",
    "agent.program.chunk_rows",
    "agent.program.unroll",
}
CHAIN = "agent.extensions"
TINY = {"num_envs": 4, "num_steps": 8, "total_steps": 64}
BASE = {
    "agent.network.hidden": [8],
    "agent.num_epochs": 2,
    "agent.learning_rate": 0.03,
    "agent.minibatch.num_minibatches": 2,
}
# Changed values by option: its path, or the end of its path
VALUES = {
    "network.actor_obs": ["a"],
    # refused without normalize_obs and normalize_reward: tests/ppo/test_normalization_options.py
    "normalization.skip": ["0"],
    "normalization.mean": [0.0],
    "normalization.std": [1.0],
    "network.critic_obs": ["b"],
    "network.std_min": 2.0,
    "network.std_max": 0.5,
    "ball_radius": 0.5,
    "loss.dual_clip": 1.0001,
    "critic.value_clip": 1e-3,
    "critic.huber_delta": 1e-3,
    "critic.min_std": 1e3,
    "kl_control.target_kl": 1e-6,
    "kl_control.rate_target": 1e-6,
    "kl_control.coef_target": 1e-6,
    "kl_control.rate_min": 0.029,
    "kl_control.rate_max": 0.031,
    "seq_len": 2,
    "max_grad_norm": 1e-3,
    "minibatch_size": 3,
    "minibatch.rows": 8,
    "heads": 2,
    # refused: tests/extensions/imitation/
    "distillation.teacher": "runs/none",
    "behaviour_cloning.demonstrations": "none.npz",
    "motion_prior.demonstrations": "none.npz",
    "motion_prior.entries": ["0"],
    "memory.entries": ["a"],  # refused for an observation without entries
    "distillation.checksum": "0" * 64,
    "behaviour_cloning.checksum": "0" * 64,
    "motion_prior.checksum": "0" * 64,
    "distillation.memory": ["float32[3]"],
    "distillation.teachers": ["runs/none", "runs/other"],
    "distillation.teacher_obs": ["privileged"],
    "select.entry": "none",
    "select.columns": [0],
    "select.scales": [1.0],
    "critic_warmup.steps": 9.0,
    "actor_keys": ["actor"],
    "num_epochs": 3,
    "num_minibatches": 4,
    "ppg.every": 1,
    "ppg.rollouts": 2,
    "rnd.num_minibatches": 2,
    "own_critic.num_minibatches": 2,
    "reward.num_minibatches": 2,
    "rnd.obs_clip": 0.5,
    "reward.obs_clip": 0.5,
    "critic_keys": ["critic"],
    "leaves": ["gamma"],
    "schedule.at": [0.0, 0.6],  # progress is 0 and 0.5
    "schedule.values": [0.01],
    "actor_max_grad_norm": 1e-4,
    "critic_max_grad_norm": 1e-4,
    "critic.low": -2.0,
    "critic.high": 30.0,
    "module": "support.modules:Nothing",  # refused
    "arguments": {"width": 3},
}
# Modules of networks and encoders of other libraries, by the name of the part
MODULES = {"nnx": "NNXTorso", "linen": "LinenTorso", "equinox": "EquinoxTorso"}
# Other options that must be set for an option to have an effect
BESIDE = {
    **{f"ppg.{name}": {"extensions.ppg.every": 2} for name in ("beta_clone", "learning_rate", "num_epochs")},
    "ppg.rollouts": {"extensions.ppg.every": 2, "extensions.ppg.rollouts": 1},
    "kl_control.rate_min": {"extensions.kl_control.rate_target": 1e-6},
    "kl_control.rate_max": {"extensions.kl_control.rate_target": 1e3},
    "network.ball_radius": {"network.distribution": "ball"},
    "minibatch.rows": {"minibatch.rows": 16},
    "minibatch.shuffle": {"minibatch.rows": 16},
    "minibatch.remainder": {"minibatch.num_minibatches": 3},
    "schedule.by": {"schedule.at": [0.0, 0.6], "schedule.values": [0.03, 0.01]},
    "schedule.at": {"schedule.values": [0.03, 0.01], "schedule.at": [0.0, 0.1]},
    "rho_clip": {"recompute.part": "epoch"},
    "c_clip": {"recompute.part": "epoch"},
    "trace_lambda": {"recompute.part": "epoch"},
    "entropy_target.target": {"ent_coef": 0.01},
    "entropy_target.rate": {"ent_coef": 0.01, "extensions.entropy_target.target": 0.5},
    "compute_dtype": {"network.hidden": [32, 32]},  # narrower layers are not rounded
    "optimizer.nesterov": {"optimizer.momentum": 0.5},
    "critic_warmup.steps": {"optimizer.part": "actor_critic"},
}


@part
class Colours:
    """Random observations; the reward is the closeness of the action to their first entry; three steps an episode."""

    kind: str = static()

    num_agents = None

    @property
    def observation_space(self):
        boxes = {"a": spaces.Box(-1.0, 1.0, (2,)), "b": spaces.Box(-1.0, 1.0, (3,))}
        return {"dict": spaces.Dict(boxes), "image": spaces.Box(-1.0, 1.0, (40, 40, 3))}.get(self.kind, boxes["a"])

    @property
    def action_space(self):
        return spaces.Discrete(3) if self.kind != "box" else spaces.Box(-1.0, 1.0, (2,))

    def _obs(self, key):
        space = self.observation_space
        inner = space.spaces if self.kind == "dict" else {"": space}
        seen = {
            name: jax.random.normal(jax.random.fold_in(key, i), x.shape) for i, (name, x) in enumerate(inner.items())
        }
        return seen if self.kind == "dict" else seen[""]

    def reset(self, key):
        return EnvReset(jnp.int32(0), self._obs(key))

    def step(self, time, action, key):
        obs = self._obs(key)
        reward = 2.0 - jnp.abs(jnp.sum(action) - jax.tree.leaves(obs)[0].ravel()[0]) + 3.0 * (time == 2)
        return EnvStep(time + 1, obs, reward.astype(jnp.float32), time >= 2, jnp.zeros((), bool))


WORLDS = {kind: VectorEnv(Colours(kind), 4) for kind in ("discrete", "box", "dict", "image")}


# ---------------------------------------------------------------- cases


pytestmark = pytest.mark.usefixtures("forget_each_program")


def walked(world, given, prefix="agent."):
    """Yield (configuration, option) for every option below `prefix` and every choice of part, one slot at a time."""
    for option in config.options(unflatten(given)):
        if not option.path.startswith(prefix):
            continue
        if option.path == CHAIN:
            yield given, option
            for name in option.limits["choices"]:
                yield from walked(world, given | {f"{CHAIN}.{name}.part": name}, f"{CHAIN}.{name}.")
        elif option.path.endswith(".part"):
            slot = option.path.removesuffix("part")
            inner = any(slot.startswith(path.removesuffix("part")) for path in given)  # an option of a chosen part
            if option.path not in given:
                yield given, option
            for name in () if inner else option.limits["choices"]:
                if name != option.default and not (world != "image" and name.endswith("cnn")):
                    module = {f"{slot}module": f"support.modules:{MODULES[name]}"} if name in MODULES else {}
                    yield from walked(world, given | {option.path: name} | module, slot)
        else:
            yield given, option


def changes(option):
    """Return values of an option other than its default."""
    ends = [end for end in VALUES if option.path.endswith(f".{end}") or option.path == end]
    if ends:
        return [VALUES[max(ends, key=len)]]
    if "choices" in option.limits:
        return [choice for choice in option.limits["choices"] if choice != option.default]
    if option.kind is bool:
        return [not option.default]
    if option.many:
        return [[4, *(option.default or ())[1:]]] if option.kind is int else []
    if option.kind is int:
        return [1 if option.default is None else max(option.limits.get("low", 0), option.default // 2) or 2]
    if option.default is None:
        return [0.5]
    low, high = option.limits.get("low", option.limits.get("above", -np.inf)), option.limits.get("high", np.inf)
    return [x for x in (option.default * 0.5, 0.5, 1.0) if low < x < high and x != option.default][:1]


def beside(given, path):
    with imports.trusting(["support"]):
        there = {option.path for option in config.options(unflatten(given))}
    found = [extra for end, extra in BESIDE.items() if path.endswith(f".{end}")]
    return {f"agent.{name}": value for extra in found for name, value in extra.items() if f"agent.{name}" in there}


def cases():
    """Return (world, configuration, option) for each option of each part, once."""
    found = {}
    for world in ("discrete", "box", "dict", "image"):
        for given, option in walked(world, {}):
            parts = tuple(sorted((path, name) for path, name in given.items() if option.path.startswith(path[:-4])))
            about = {
                "dict": option.path.endswith("r_obs") or "c_obs" in option.path,
                "image": ".encoder." in option.path,
            }
            about["box"] = option.path.startswith("agent.network.") and option.path.count(".") == 2
            if option.path not in SILENT and about.get(world, True):
                found.setdefault((world, option.path, parts), (world, given, option))
    return list(found.values())


# ---------------------------------------------------------------- numbers of a run


@functools.partial(jax.jit, compiler_options=QUICK, static_argnums=2)
def two_iterations(agent, env, num_steps, key):
    return ppax.train(agent, env, ppax.start(agent, env, num_steps, key), 2)


@functools.cache
def numbers(world, text):
    """Return metrics and parameters after two iterations, or the error message."""
    own = json.loads(text)
    base = {path: x for path, x in BASE.items() if path != "agent.network.hidden" or "agent.network.part" not in own}
    if own.get("agent.minibatch.part") == "shuffle_rows":
        base.pop("agent.minibatch.num_minibatches")
    given = unflatten({"num_steps": 8} | base | own)
    try:
        with imports.trusting(["support"]):
            agent = config.build(given, WORLDS[world]).agent
        agent.check()
        state, metrics = two_iterations(agent, WORLDS[world], 8, jax.random.key(3))
    except ConfigError as error:
        return str(error)
    params = np.concatenate([np.ravel(x) for x in jax.tree.leaves(state.learner.params)])
    return tuple(metrics), params.tobytes(), np.asarray([*metrics.values()]).tobytes()


def acts(world, given, option):
    extra = given | beside(given, option.path)
    before = numbers(world, json.dumps(extra))
    tried = {str(value): numbers(world, json.dumps(extra | {option.path: value})) for value in changes(option)}
    if option.path.endswith(".part") and len(option.limits["choices"]) == 1:
        return
    assert tried, f"{option.path}: no change is known; add one to VALUES"
    assert any(after != before or isinstance(after, str) for after in tried.values()), (
        f"{option.path} = {list(tried)}: changes nothing"
    )


def named(case):
    world, given, option = case
    return " ".join([world, *(f"{path[6:-5]}={name}" for path, name in given.items()), option.path])


with imports.trusting(["support"]):
    ALL = cases()
DRAWN = random.Random(1).sample(ALL, 1)
# Options that once had no effect
ALWAYS = [case for case in ALL if case[0] == "discrete" and not case[1] and case[2].path.endswith("log_std_init")]


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", ALL, ids=named)
def test_a_change_of_an_option_changes_numbers_or_is_refused(case):
    acts(*case)


@pytest.mark.parametrize("case", DRAWN + ALWAYS, ids=named)
def test_a_change_of_an_option_changes_numbers_or_is_refused_sample(case):
    acts(*case)


# ---------------------------------------------------------------- options of the run

PLAYERS = ["env=Pursuit-2", "groups.prey.players=0", "groups.hunter.players=1", "self_play.every=1"]
PLAYERS += ["num_envs=16", "total_steps=1024"]
BEST = ["log.every=1", "total_steps=512", "best.metric=grad_norm"]
# Changed value of each option, and settings that the run needs in addition to TINY
OF_RUNS = {
    "preset": ("styles/rl8", []),  # another discount factor
    "env": ("Acrobot-v1", []),
    "num_envs": (2, []),
    "num_steps": (4, []),
    "total_steps": (96, []),
    "seed": (1, []),
    "action_repeat": (2, []),
    "iterations_per_env_reset": (1, []),
    "clip_actions": ([-0.1, 0.2], ["env=Pendulum-v1"]),
    "stagger": (True, ["env=Pendulum-v1"]),
    "schedule.part": ("linear", []),  # refused: it names no number; tests/envs/test_curriculum.py
    "agent_ids": (True, ["env=Pursuit-2"]),
    "central_critic": (True, ["env=Pursuit-2"]),
    "overlap": (1, ["env=gymnasium/CartPole-v1"]),
    "agents": ("independent", ["env=Pursuit-2"]),
    "stop": ("iteration >= 1", ["log.every=1"]),
    "best.metric": ("value_mean", BEST),
    "best.mode": ("min", BEST),
    "eval.every": (1, []),
    "eval.episodes": (3, []),
    "eval.deterministic": (False, []),
    "eval.max_steps": (2, []),
    "self_play.every": (2, PLAYERS),
    "self_play.size": (1, PLAYERS),
    "self_play.share": (1.0, PLAYERS),
    "self_play.opponents": (1, PLAYERS),
    "self_play.sampling": ("recent", PLAYERS),
    "self_play.elo_step": (1.0, PLAYERS),
}
TIMES = {*MEASURED, *STAGES, "train_seconds", "started_at", "run_dir"}


def arguments(settings):
    """Yield command-line arguments."""
    for path, value in settings.items():
        flag = "--" + path.replace("_", "-")
        values = map(str, value if isinstance(value, list) else [value])
        yield from [flag if value else f"--no-{flag[2:]}"] if isinstance(value, bool) else [flag, *values]


def recorded(settings, directory, capsys):
    """Return the numbers of `ppax train`: log rows, evaluation, best policy; or its error message."""
    target = settings.pop("env", "CartPole-v1")
    code = main(["train", target, "--run-dir", str(directory), "--json", "--no-log.console", *arguments(settings)])
    said = capsys.readouterr()
    if code == 2:
        return said.err
    assert code == 0, said.err
    rows = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    kept = sorted((directory / "best").glob("*/manifest.json"))
    best = [json.loads(path.read_text())["notes"]["row"] for path in kept]
    found = [json.loads(said.out.splitlines()[-1]), *rows, *best]
    return [{name: x for name, x in row.items() if name not in TIMES} for row in found]


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("path", OF_RUNS)
def test_every_option_of_a_run_changes_its_numbers(path, tmp_path, capsys, cached_programs):
    value, extra = OF_RUNS[path]
    plan = {"agent.num_epochs": 1, "agent.network.hidden": 8} | TINY | {"eval.episodes": 2}
    plan |= dict(setting.split("=") for setting in extra)
    before = recorded(dict(plan), tmp_path / "before", capsys)
    assert not isinstance(before, str), before
    assert recorded(plan | {path: value}, tmp_path / "after", capsys) != before


def test_every_option_of_a_run_is_covered():
    known = {option.path for option in config.options({}) if not option.path.startswith("agent.")}
    assert known == set(OF_RUNS) | {path for path in SILENT if not path.startswith("agent.")}


def test_every_option_of_every_part_is_covered():
    """Each field of each part of the catalogue is in exactly one case."""
    seen = {(option.path.rpartition(".")[2]) for _, _, option in ALL}
    for slot, choices in config.PARTS.items():
        for cls in choices.values() if slot != "logger" else ():
            fields = [field for field in dataclasses.fields(cls) if field.metadata and "named" not in field.metadata]
            names = {field.name for field in fields}
            names -= {"name", "policy", "data"}  # no options: of the table, and what imitation reads from a path
            names -= {"scales"}  # of a part inside of an extension: tests/extensions/imitation/test_several_teachers.py
            names -= {
                "actor",
                "critic",
                "actor_readers",
                "critic_readers",
                "reader",
                "head",
                *slots(cls),
                *slot_tables(cls),
            }
            assert names <= seen, (slot, cls, names - seen)
    assert len({named(case) for case in ALL}) == len(ALL)
    known = {option.path for option in config.options({})}
    assert known >= SILENT, SILENT - known
