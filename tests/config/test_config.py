"""Runs as plain data: defaults, limits, names, and the round trip through TOML."""

import copy
import dataclasses
import difflib
import math
import re
import tomllib
from typing import Any

import jax
import numpy as np
import pytest

import ppax
from ppax import config, number, part, slot
from ppax.config import Log
from ppax.core import imports
from ppax.core.options import LISTS, SMALLEST, nearest
from ppax.core.types import ConfigError
from ppax.networks import mlp
from ppax.ppo.advantages import GAE, TDLambda


def at(path, value, base=None):
    """Return a configuration with one entry, at a dotted path."""
    plan = {} if base is None else base
    *sections, name = path.split(".")
    table = plan
    for section in sections:
        table = table.setdefault(section, {})
    table[name] = value
    return plan


def lookup(plan, path):
    for name in path.split("."):
        plan = plan[name]
    return plan


def same_program(one, other):
    """Assert equal static fields (tree structure) and equal numbers."""
    assert jax.tree.structure(one) == jax.tree.structure(other)
    assert all(map(np.array_equal, jax.tree.leaves(one), jax.tree.leaves(other)))


EXTENSIONS = {"agent": {"extensions": {"kl_control": {}, "entropy_target": {}, "reward_spreading": {}, "rnd": {}}}}
BASES = [{}, {"agent": {"schedule": {"part": "linear"}}}, {"agent": {"schedule": {"part": "cosine"}}}, EXTENSIONS]
OPTIONS = {option.path: (option, base) for base in BASES[::-1] for option in config.options(base)}
del OPTIONS["agent.extensions"]  # no value: tests/config/test_extensions.py


def base_of(path):
    """Return a configuration in which the option at `path` exists and has an effect."""
    if path.startswith("agent.network."):  # options of Box actions need a Box
        ball = {"agent": {"network": {"distribution": "ball"}}} if path.endswith("ball_radius") else {}
        memory = {"agent": {"network": {"memory": {"part": "gru"}}}} if path.endswith("remat") else {}
        return {"env": "Pendulum-v1", **ball, **memory}
    if path == "clip_actions":
        return {"env": "Pendulum-v1"}
    if path in ("agent_ids", "central_critic"):  # options of several agents
        return {"env": "Pursuit-2"}
    if path == "self_play.every":  # an option of groups
        return {"env": "Pursuit-2", "groups": {"prey": {"players": [0]}, "hunter": {"players": [1]}}}
    if path == "vectorization":  # an option of host environments
        return {"env": "gymnasium/CartPole-v1"}
    if path == "info_metrics":
        return {"env": "gymnasium/CartPole-v1"}
    if path == "timeout":  # of their worker processes
        return {"env": "gymnasium/CartPole-v1", "vectorization": "async"}
    if path.startswith("agent.extensions."):
        return copy.deepcopy(EXTENSIONS)
    schedule = OPTIONS[path][1].get("agent", {}).get("schedule")
    return {"agent": {"schedule": dict(schedule)}} if schedule and not path.endswith("schedule.part") else {}


# ---------------------------------------------------------------- defaults


def test_defaults_are_those_of_the_parts():
    plan = config.resolve({})
    env = ppax.make("CartPole-v1")
    agent = ppax.PPO(mlp(env))
    assert plan["env"] == "CartPole-v1"
    assert plan["agent"]["gamma"] == agent.gamma
    assert plan["agent"]["loss"]["clip_eps"] == agent.loss.clip_eps
    tower = {"encoder": {"part": "same"}, "memory": {"part": "same"}}
    tower |= dict.fromkeys(("hidden", "head_hidden", "activation", "layers", "layer_norm", "residual"))
    assert plan["agent"]["network"] == {
        "part": "composed",
        "encoder": {"part": "auto"},
        "memory": {"part": "none"},
        "hidden": [64, 64],
        "head_hidden": [],
        "activation": "tanh",
        "layers": "dense",
        "layer_norm": False,
        "residual": False,
        "hidden_gain": math.sqrt(2.0),
        "policy_gain": 0.01,
        "value_gain": 1.0,
        "remat": False,
        "actor": tower,
        "critic": tower,
        "shared": False,
        "log_std_init": 0.0,
        "distribution": "normal",
        "state_std": False,
        "std_min": None,
        "std_max": None,
        "ball_radius": None,
        "gsde": False,
        "actor_obs": [],
        "critic_obs": [],
    }
    built = config.build({})
    same_program(built.agent, agent)
    same_program(built.env, env)
    assert config.resolve(plan) == plan


def test_given_options_override_defaults():
    plan = config.resolve({"env": "Pendulum-v1", "agent": {"gamma": 0.9, "network": {"hidden": [3]}}})
    assert (plan["env"], plan["agent"]["gamma"], plan["agent"]["network"]["hidden"]) == ("Pendulum-v1", 0.9, [3])
    built = config.build(plan)
    assert built.env.name == "Pendulum-v1"
    assert built.agent.network.hidden == (3,)
    assert built.agent.network.head.size == 1


def test_integers_are_accepted_for_float_options():
    value = config.resolve({"agent": {"gamma": 1}})["agent"]["gamma"]
    assert value == 1.0
    assert type(value) is float


def given(option, path, value):
    """Return `value` as a run file has it: a list of values, or of tables where they are parts."""
    if path in LISTS:
        return [{"part": value}]
    return [value] if option.many and "bounds" not in option.limits else value


def test_every_option_reaches_the_agent_or_the_run():
    """With one option changed, the built objects differ from the default ones."""
    unusual = {int: 3, float: 0.25, bool: None, str: None}
    for path, (option, _) in OPTIONS.items():
        if path in ("env", "agent.network.part"):  # other networks need a module: tests/networks/test_modules.py
            continue
        if option.limits.get("choices") and len(option.limits["choices"]) == 1:
            continue
        base = base_of(path)
        if option.kind is bool:
            value = not option.default
        elif option.kind is str:
            free = "obs" if path.endswith("_obs") else "gamma"
            value = option.limits["choices"][-1] if "choices" in option.limits else free
            if path.endswith(".part") and path.startswith("agent.extensions."):
                value = "feature_norm"  # without further options
            value = "flat" if value == "equinox" else value
        elif "above" in option.limits:
            value = option.limits["above"] + 0.25
        else:
            value = unusual[option.kind] + (option.default == unusual[option.kind])
            value = min(value, option.limits.get("high", value))
        plain = config.build(base)
        with imports.trusting(["./gamma", "//gamma"]):  # the value of a path, and of an address
            changed = config.build(at(path, given(option, path, value), base_of(path)))
        before, after = ((jax.tree.leaves(x), jax.tree.structure(x)) for x in (plain, changed))
        assert before != after, f"{path} = {value} changes nothing"


# ---------------------------------------------------------------- unknown names


@pytest.mark.parametrize(
    ("path", "nearest"),
    [
        ("num_env", "num_envs"),
        ("seeds", "seed"),
        ("total_step", "total_steps"),
        ("log.evry", "log.every"),
        ("eval.episode", "eval.episodes"),
        ("agent.gama", "agent.gamma"),
        ("agent.lerning_rate", "agent.learning_rate"),
        ("agent.loss.clip_epsilon", "agent.loss.clip_eps"),
        ("agent.loss.ent_coef", "agent.ent_coef"),
        ("agent.loss.vf_coef", "agent.vf_coef"),
        ("agent.loss.entropy_coef", "agent.ent_coef"),
        ("agent.network.hiden", "agent.network.hidden"),
        ("agent.minibatch.num_minibatch", "agent.minibatch.num_minibatches"),
        ("agent.gamma.x", "agent.gamma"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest(path, nearest):
    with pytest.raises(ConfigError) as caught:
        config.resolve(at(path, 1))
    assert repr(path) in str(caught.value)
    assert repr(nearest) in str(caught.value)


def test_the_nearest_option_is_not_one_of_the_same_last_name_in_another_table():
    known = ("num_envs", "self_play.size", "agent.network.memory.part", "agent.network.memory.width")
    assert nearest("agent.network.memory.size", known) == "agent.network.memory.width"
    assert nearest("agent.num_envs", known) == "num_envs"


@pytest.mark.parametrize("path", [path for path in OPTIONS if path.endswith(".part")])
def test_an_unknown_part_is_refused_with_the_choices(path):
    for value in ("nothing", 3, None, ["composed"]):
        with pytest.raises(ConfigError) as caught:
            config.resolve(at(path, value))
        assert path in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        config.resolve(at(path, "nothing"))
    for choice in OPTIONS[path][0].limits["choices"]:
        assert choice in str(caught.value)


@pytest.mark.parametrize("section", ["log", "eval", "agent", "agent.loss", "agent.network"])
@pytest.mark.parametrize("value", [3, "x", None, [1]])
def test_a_section_must_be_a_table(section, value):
    with pytest.raises(ConfigError, match=re.escape(section)):
        config.resolve(at(section, value))


@pytest.mark.parametrize("section", ["agnet", "agent.los"])
def test_an_unknown_empty_section_is_refused(section):
    with pytest.raises(ConfigError, match=section.split(".")[-1]):
        config.resolve(at(section, {}))


@pytest.mark.parametrize("section", ["agent", "agent.network", "agent.network.actor", "agent.loss", "log", "schedule"])
def test_an_empty_table_changes_nothing(section):
    assert config.resolve(at(section, {})) == config.resolve({"env": "CartPole-v1"})


def test_an_unknown_environment_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match="CartPole-v1"):
        config.build({"env": "CartPole-v2"})


def test_an_option_of_another_part_is_refused():
    with pytest.raises(ConfigError, match=r"agent\.schedule\.end"):
        config.resolve({"agent": {"schedule": {"part": "constant", "end": 0.5}}})


# ---------------------------------------------------------------- values out of range


def bad_values(option):
    """Return invalid values of an option."""
    limits, number = option.limits, option.kind in (int, float)
    if "choices" in limits:
        yield from ("no such choice", "", 3)
    if number:
        yield from ("three", float("nan"), float("inf"), -float("inf"), [[1]])
        yield from () if limits.get("switch") else (True,)
    if option.kind is int:
        yield from (2.5, 1e3)
    if option.kind is bool:
        yield from (0, 1, "true", 1.0)
    if option.kind is str:
        yield from (7, True, 1.5)
    if "low" in limits:
        yield limits["low"] - 1
        yield -1e18 if option.kind is float else -(10**18)
        if option.kind is float:
            yield math.nextafter(limits["low"], -math.inf)
    if "above" in limits:
        yield from (limits["above"], limits["above"] - 1)
    if "high" in limits:
        yield limits["high"] + 1
        if option.kind is float:
            yield math.nextafter(limits["high"], math.inf)
    if not option.optional:
        yield None


@pytest.mark.parametrize("path", OPTIONS)
def test_a_bad_value_is_refused_by_name(path):
    option, _ = OPTIONS[path]
    bad = list(bad_values(option))
    assert bad
    for value in bad:
        with pytest.raises(ConfigError) as caught:
            config.resolve(at(path, given(option, path, value), base_of(path)))
        text = str(caught.value)
        assert path in text
        assert str(value) in text or repr(value) in text, text
    if option.many and "bounds" not in option.limits:  # for which one number may stand
        for value in (3, "x") if option.optional else (3, "x", None):
            with pytest.raises(ConfigError, match=re.escape(path)):
                config.resolve(at(path, value, base_of(path)))


@pytest.mark.parametrize("path", OPTIONS)
def test_the_limits_themselves_are_allowed(path):
    option, _ = OPTIONS[path]
    good = [option.limits[name] for name in ("low", "high") if name in option.limits]
    if option.kind is float:
        good = [float(value) for value in good]
    if "above" in option.limits:
        good.append(option.limits["above"] + max(abs(option.limits["above"]) * 1e-6, SMALLEST))
    good += list(option.limits.get("choices", ()))
    good += ["none", None] if option.optional else [option.default]
    for value in good:
        config.resolve(at(path, value if isinstance(value, tuple) else given(option, path, value), base_of(path)))


def test_every_number_of_an_agent_has_a_limit():
    """Every number has a bound or is explicitly unbounded (NaN and wrong types are always refused)."""
    unbounded = {path for path, (option, _) in OPTIONS.items() if option.kind in (int, float) and not option.limits}
    own = {"agent.extensions.entropy_target.target", "agent.normalization.mean"}
    assert unbounded == own


def test_every_option_is_documented():
    assert [path for path, (option, _) in OPTIONS.items() if len(option.doc) < 10] == []


@pytest.mark.parametrize("path", ["agent.gamma", "total_steps", "num_envs"])
def test_infinite_numbers_are_refused(path):
    with pytest.raises(ConfigError, match=path):
        config.resolve(at(path, 10**400))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"gamma": 1.5}, "gamma"),
        ({"gamma": float("nan")}, "gamma"),
        ({"learning_rate": -1.0}, "learning_rate"),
        ({"max_grad_norm": 0.0}, "max_grad_norm"),
        ({"num_epochs": 0}, "num_epochs"),
        ({"num_epochs": True}, "num_epochs"),
        ({"normalize_advantage": "sometimes"}, "normalize_advantage"),
        ({"loss": ppax.losses.ClippedSurrogate(clip_eps=0.0)}, "clip_eps"),
        ({"advantage": ppax.advantages.GAE(gae_lambda=1.1)}, "gae_lambda"),
        ({"schedule": ppax.schedules.Linear(end=-1.0)}, "end"),
    ],
)
def test_numbers_of_agents_from_python_are_checked(change, named, tmp_path):
    env = ppax.make("CartPole-v1", 4)
    with pytest.raises(ConfigError, match=named):
        ppax.fit(ppax.PPO(mlp(env), **change), env, 64, run_dir=tmp_path / "run", num_steps=8)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("change", [{"total_steps": 0}, {"seed": -1}, {"num_steps": 0}, {"log": Log(every=0)}])
def test_settings_of_runs_from_python_are_checked(change, tmp_path):
    env = ppax.make("CartPole-v1", 4)
    with pytest.raises(ConfigError, match="every" if "log" in change else next(iter(change))):
        ppax.fit(ppax.PPO(mlp(env)), env, run_dir=tmp_path / "run", **({"num_steps": 8} | change))
    assert not (tmp_path / "run").exists()


# ---------------------------------------------------------------- round trips

UNUSUAL = {
    "env": "Pendulum-v1",
    "num_envs": 6,
    "num_steps": 12,
    "seed": 2**40,
    "log": {"every": 3, "tensorboard": True},
    "eval": {"deterministic": False},
    "agent": {
        "learning_rate": 0.1 + 0.2,
        "max_grad_norm": "none",
        "seq_len": 4,
        "normalize_obs": True,
        "normalize_advantage": "off",
        "network": {"hidden": [5, 7, 9], "activation": "relu", "shared": True, "log_std_init": -0.5},
        "advantage": {"gae_lambda": 1 / 3},
        "ent_coef": 1e-9,
        "loss": {"clip_eps": 0.1},
        "minibatch": {"num_minibatches": 3},
        "optimizer": {"eps": 1e-8},
        "schedule": {"part": "cosine", "leaves": ["learning_rate", "loss.clip_eps"], "end": 0.1},
    },
}
# Warnings of gymnax while MinAtar is traced
SAID = ("scatter inputs have incompatible types:FutureWarning", "Explicitly requested dtype int64:UserWarning")
LIBRARIES = pytest.mark.filterwarnings(*(f"ignore:{text}" for text in SAID))
PLANS = {"defaults": {}, "unusual": UNUSUAL, "linear": {"agent": {"schedule": {"part": "linear"}}}}
PLANS |= {name: config.find(name) for name in config.presets()}


@pytest.fixture(autouse=True)
def rank_promotion(request):
    """JaxMARL's environments combine arrays of unlike ranks, which the tests otherwise forbid."""
    with jax.numpy_rank_promotion("allow" if "jaxmarl" in request.node.name else "raise"):
        yield


def built_from(plan):
    """Build; skip the test if the environment's library is not installed."""
    try:
        return config.build(plan)
    except ImportError as error:
        pytest.skip(str(error))


@LIBRARIES
@pytest.mark.parametrize("name", PLANS)
def test_describe_and_build_round_trip(name):
    plan = config.resolve(PLANS[name])
    built = built_from(plan)
    again = config.describe(built.agent)
    assert again == plan["agent"]
    same_program(config.build(plan | {"agent": again}).agent, built.agent)
    assert config.describe(built.run) == {key: value for key, value in plan.items() if key != "agent"}


@LIBRARIES
@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("resolved", [True, False])
def test_run_file_round_trip(name, resolved, tmp_path):
    plan = config.resolve(PLANS[name]) if resolved else PLANS[name]
    text = config.to_toml(plan)
    assert config.resolve(tomllib.loads(text)) == config.resolve(plan)
    file = tmp_path / "run.toml"
    file.write_text(text, encoding="utf-8")
    built, again = built_from(plan), config.build(config.read(file))
    same_program(built.agent, again.agent)
    if isinstance(built.env, ppax.envs.VectorEnv):  # host environments are different objects
        same_program(built.env, again.env)
    assert built.run == again.run
    assert config.find(str(file)) == tomllib.loads(text)


def test_none_survives_the_round_trip():
    plan = config.resolve(UNUSUAL)
    assert plan["agent"]["max_grad_norm"] is None
    again = tomllib.loads(config.to_toml(plan))
    assert again["agent"]["max_grad_norm"] == "none"
    assert config.build(again).agent.max_grad_norm is None
    assert config.describe(config.build(again).agent)["max_grad_norm"] is None
    assert config.build({"agent": {"max_grad_norm": 0.25}}).agent.max_grad_norm == 0.25


def test_json_run_files(tmp_path):
    file = tmp_path / "run.json"
    file.write_text('{"env": "Pendulum-v1", "agent": {"max_grad_norm": null, "gamma": 0.5}}')
    built = config.build(config.find(str(file)))
    assert (built.env.name, built.agent.max_grad_norm, built.agent.gamma) == ("Pendulum-v1", None, 0.5)


def test_a_json_key_given_twice_is_refused(tmp_path):
    file = tmp_path / "run.json"
    file.write_text('{"agent": {"gamma": 0.5, "gamma": 0.9}}')
    with pytest.raises(ConfigError, match=r"run\.json: the key 'gamma' is given twice"):
        config.find(str(file))


@pytest.mark.parametrize(("name", "text"), [("run.toml", "num_envs = 8"), ("run.json", '{"num_envs": 8}')])
def test_a_byte_order_mark_is_no_part_of_a_file(tmp_path, name, text):
    (tmp_path / name).write_text(text, encoding="utf-8-sig")
    assert config.find(str(tmp_path / name)) == {"num_envs": 8}


def test_numbers_from_arrays_are_described():
    env = ppax.make("CartPole-v1", 4)
    agent = ppax.PPO(mlp(env), gamma=np.float32(0.5), learning_rate=jax.numpy.float32(0.25))
    described = config.describe(agent)
    assert (described["gamma"], described["learning_rate"]) == (0.5, 0.25)


def test_own_parts_are_described_by_their_name():
    env = ppax.make("CartPole-v1", 4)

    @ppax.part
    class Mine:
        weight: float = ppax.number("mine", default=0.5, low=0.0)

        def __call__(self, agent, progress):
            return agent

    described = config.describe(ppax.PPO(mlp(env), schedule=Mine()))
    assert described["schedule"]["part"].endswith("Mine")
    assert described["schedule"]["weight"] == 0.5
    with pytest.raises(ConfigError, match="Mine"):
        config.resolve({"agent": described})
    with pytest.raises(ConfigError, match="weight"):
        config.describe(ppax.PPO(mlp(env), schedule=Mine(weight=-1.0)))


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.toml", "env = "), ("b.json", "{"), ("c.toml", None), ("d.json", "[" * 50), ("e.toml", b"\xff\xfe")],
)
def test_an_unreadable_file_is_named(tmp_path, name, text):
    file = tmp_path / name
    if text is not None:
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError, match=re.escape(name)):
        config.find(str(file))


@pytest.mark.parametrize("text", ["[1, 2]", "null", "3", '"CartPole-v1"'])
def test_json_must_be_a_table(tmp_path, text):
    file = tmp_path / "run.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"run\.json"):
        config.build(config.find(str(file)))


def test_flatten_and_unflatten_are_inverse():
    plan = config.resolve({})
    assert config.unflatten(dict(config.flatten(plan))) == plan


def test_tables_of_the_caller_stay_as_they_are():
    agent, params = {}, {}
    ppax.build("CartPole-v1", agent=agent, env_params=params, total_steps=10_000)
    config.resolve({"env": "CartPole-v1", "agent": agent, "env_params": params})
    assert (agent, params) == ({}, {})


# ---------------------------------------------------------------- presets


@LIBRARIES
@pytest.mark.parametrize("name", config.presets())
def test_every_preset_builds_with_valid_sizes(name):
    built = built_from(config.completed(config.find(name)).config)
    assert built.run.preset == name
    assert built.run.env == name or name.startswith("styles/")
    agent, env, run = built
    jax.eval_shape(lambda: ppax.start(agent, env, run.num_steps, jax.random.key(0)))  # valid sizes
    text = config.presets()[name].read_text(encoding="utf-8")
    assert text.startswith("#"), "a preset says where its numbers come from and what it reaches"


# ---------------------------------------------------------------- sizes


@pytest.mark.parametrize(
    ("num_envs", "num_steps", "minibatches", "seq_len", "nearest"),
    [
        (7, 13, 4, None, {1, 7, 13}),
        (4, 8, 5, None, {2, 4, 8}),
        (4, 8, 3, 8, {1, 2, 4}),
        (4, 8, 1000, None, {8, 16, 32}),
        (4, 12, 4, 5, {3, 4, 6}),
    ],
)
def test_sizes_that_do_not_divide_are_refused_with_sizes_that_do(
    num_envs, num_steps, minibatches, seq_len, nearest, tmp_path
):
    env = ppax.make("CartPole-v1", num_envs)
    agent = ppax.PPO(mlp(env, (4,)), minibatch=ppax.minibatches.Shuffle(minibatches), seq_len=seq_len)
    with pytest.raises(ConfigError) as caught:
        ppax.start(agent, env, num_steps, jax.random.key(0))
    named = {int(x) for x in re.findall(r"\d+", str(caught.value).split("nearest")[1])}
    assert named == nearest
    bad = "seq_len" if seq_len == 5 else "num_minibatches"
    assert f"{bad} = {seq_len if seq_len == 5 else minibatches}" in str(caught.value)
    for size in nearest:  # the suggested sizes are valid
        change = {"seq_len": size} if seq_len == 5 else {"minibatch": ppax.minibatches.Shuffle(size)}
        mended = dataclasses.replace(agent, **change)
        jax.eval_shape(lambda mended=mended: ppax.start(mended, env, num_steps, jax.random.key(0)))
    with pytest.raises(ConfigError, match=bad):
        ppax.fit(agent, env, 1000, run_dir=tmp_path / "run", num_steps=num_steps)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("total_steps", "rollouts"), [(1, 1), (100, 4)])
def test_total_steps_is_rounded_up_to_whole_rollouts(total_steps, rollouts):
    env = ppax.make("CartPole-v1", 4)
    rows = []
    run = ppax.fit(
        ppax.PPO(mlp(env, (4,)), num_epochs=1),
        env,
        total_steps,
        num_steps=8,
        log=Log(every=1, console=False),
        callbacks=[lambda state, row: rows.append(row)],
    )
    assert [row["iteration"] for row in rows] == list(range(1, rollouts + 1))
    assert rows == run.history
    assert int(run.state.iteration) == rollouts
    # env_steps counts valid steps only; valid_fraction is their share of a rollout
    valid = np.cumsum([round(row["valid_fraction"] * 32) for row in rows]).tolist()
    assert [row["env_steps"] for row in rows] == valid
    assert run.env_steps == valid[-1]
    assert run.env_steps <= rollouts * 32


def test_typos_are_refused_with_a_close_suggestion():
    """Suggestions come from difflib; a typo of one letter finds the option."""
    for path in OPTIONS:
        assert difflib.get_close_matches(path[:-1], OPTIONS, n=1, cutoff=0.0)[0]
        with pytest.raises(ConfigError, match=r"did you mean|must be"):
            config.resolve(at(path + "x", 1, base_of(path)))


# ---------------------------------------------------------------- slots


@part
class Blend:
    """Advantage estimator with two others inside, in fields of any name."""

    base: Any = slot("advantage", "estimator of most of it", default=GAE())
    critic: Any = slot("advantage", "estimator of the rest", default=GAE())
    weight: float = number("weight of the rest", default=0.5)


def test_fields_with_a_slot_hold_parts_whatever_their_names(monkeypatch):
    monkeypatch.setitem(config.PARTS, "advantage", config.PARTS["advantage"] | {"blend": Blend})
    given = {"part": "blend", "base": {"gae_lambda": 0.5}, "critic": {"part": "td_lambda"}}
    plan = {"agent": {"advantage": given}}
    assert {"agent.advantage.base.gae_lambda", "agent.advantage.critic.part"} <= {o.path for o in config.options(plan)}
    agent = config.build(plan).agent
    assert agent.advantage == Blend(GAE(0.5), TDLambda())
    described = config.describe(agent)
    assert config.build({"agent": described}).agent.advantage == agent.advantage
    with pytest.raises(ConfigError, match=r"write agent\.advantage\.base\.part = 'gae'"):
        config.resolve({"agent": {"advantage": {"part": "blend", "base": "gae"}}})


def test_an_unknown_part_and_an_unknown_suite_say_how_to_add_one():
    with pytest.raises(
        ConfigError, match=r"nearest: gae; for a part of your own see the page \"Write a part of your own\""
    ):
        config.build({"agent": {"advantage": {"part": "gea"}}})
    with pytest.raises(ConfigError, match=r"for your own see the page \"Your environment in JAX\""):
        config.build({"env": "walks/Walk-5"})


def test_the_settings_of_a_run_are_those_of_the_environment_that_is_passed():
    env = ppax.make("Pendulum-v1", 6, action_repeat=2)
    run = config.build({"num_envs": 16, "seed": 3}, env=env).run
    assert (run.env, run.num_envs, run.action_repeat, run.seed) == ("Pendulum-v1", 6, 2, 3)


@pytest.mark.parametrize(
    ("table", "text"),
    [
        (
            {"agent": {"loss": {"part": "dpo", "clip_eps": 0.2}}},
            "unknown option 'agent.loss.clip_eps': agent.loss.part must be 'clipped' or 'spo' or 'rollback' for it",
        ),
        (
            {"agent": {"network": {"memory": {"num_layers": 2}}}},
            "unknown option 'agent.network.memory.num_layers': agent.network.memory.part must be 'stack' for it",
        ),
        ({"agent": {"loss": {"clip_epss": 0.2}}}, "did you mean 'agent.loss.clip_eps'?"),
        ({"log": {"keep": "al"}}, "log.keep = 'al': must be of type int or 'all'"),
        ({"agent": {"seq_len": "al"}}, "agent.seq_len = 'al': must be of type int or 'none'"),
        ({"num_envs": "al"}, "num_envs = 'al': must be of type int"),
        ({"total_steps": 1e6}, "total_steps = 1000000.0: must be of type int; nearest valid value: 1000000"),
        ({"stagger": "true"}, "stagger = 'true': must be of type int or true or false"),
    ],
)
def test_what_is_said_of_an_option_that_is_not_there_or_of_another_type(table, text):
    with pytest.raises(ConfigError) as caught:
        config.resolve(table)
    assert str(caught.value).endswith(text)


@pytest.mark.parametrize(
    ("given", "nearest"),
    [(True, "minibatch"), ("true", "minibatch"), (False, "off"), ("rolout", "rollout"), (3, "minibatch")],
)
def test_a_wrong_value_of_an_option_with_choices_lists_them(given, nearest):
    with pytest.raises(ConfigError, match=rf"must be one of minibatch, rollout, off; nearest: {nearest}$"):
        config.resolve({"agent": {"normalize_advantage": given}})


def test_numbers_of_numpy_are_those_of_python():
    """Flat and in tables, alone and in lists."""
    given = {
        "agent": {"learning_rate": np.float64(1e-3), "network": {"hidden": [np.int64(8)]}},
        "num_envs": np.int32(4),
    }
    agent, _, run = ppax.build({"env": "CartPole-v1"} | given)
    hidden = config.describe_run(agent, ppax.make("CartPole-v1", num_envs=4), run)["agent"]["network"]["hidden"]
    assert (agent.learning_rate, list(hidden), run.num_envs) == (1e-3, [8], 4)
    agent, _, _ = ppax.build("CartPole-v1", **{"agent.learning_rate": np.float32(0.5), "agent.gamma": np.float64(0.5)})
    assert (agent.learning_rate, agent.gamma) == (0.5, 0.5)
    assert {type(x) for x in (agent.learning_rate, agent.gamma)} == {float}
