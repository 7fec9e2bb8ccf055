"""Export: what is in a bundle, what is refused, many agents, parts of a user's own."""

import dataclasses
import io
import json
import zipfile

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import ppax
from ppax.core.types import ConfigError
from ppax.networks import mlp, network
from ppax.policy import Policy, PolicySpec
from ppax.policy.bundle import archive, numpy_format, onnx_format, writing
from ppax.policy.bundle.interface import Interface
from ppax.policy.bundle.numpy_policy import NumpyPolicy, safetensors
from ppax.policy.bundle.onnx_format import replayed
from support import exported

pytestmark = pytest.mark.usefixtures("cached_programs")
NUMPY = ["numpy"]


def small():
    return exported.policy("shared", "discrete", True)


def contents(path):
    with zipfile.ZipFile(path) as bundle:
        return {name: bundle.read(name) for name in bundle.namelist()}


def test_the_description_says_what_the_policy_takes_and_gives(tmp_path):
    scores = {
        "mean_return": np.float32(4.5),
        "std": np.nan,
        "length": jnp.int32(3),
        "best": np.array(7.0),
        "none": None,
    }
    exported.policy("gru", "masked", True).export(tmp_path / "b.zip", NUMPY, scores)
    files = contents(tmp_path / "b.zip")
    description = json.loads(files["policy.json"])
    assert sorted(files) == ["numpy_policy.py", "policy.json", "program.json", "weights.safetensors"]
    assert description["inputs"] == [
        {"name": "carry.actor", "shape": ["b", 8], "dtype": "float32"},  # the critic's memory is not needed to act
        {"name": "first", "shape": ["b"], "dtype": "bool"},
        {"name": "mask", "shape": ["b", 5], "dtype": "bool"},
        {"name": "obs", "shape": ["b", 4], "dtype": "float32"},
    ]
    assert [x["name"] for x in description["outputs"]] == ["action", "log_prob", "next_carry.actor"]
    assert description["scores"] == {"mean_return": 4.5, "std": None, "length": 3, "best": 7.0, "none": None}
    assert description["normalized_observations"]
    assert description["formats"]["numpy"]["files"] == ["numpy_policy.py", "program.json"]
    assert description["spec"]["action_space"] == {"space": "Discrete", "n": 5, "start": -2, "dtype": "int64"}


@pytest.mark.parametrize("wrong", [np.ones(2), "good", [1.0], 1j])
def test_a_score_that_is_no_number_is_refused(wrong, tmp_path):
    with pytest.raises(ppax.ConfigError, match=r"scores\['mean'\] = .*: must be a number, as 475\.0"):
        exported.policy("gru", "masked", True).export(tmp_path / "b.zip", NUMPY, {"mean": wrong})
    assert list(tmp_path.iterdir()) == []


def test_numbers_of_a_configuration_that_are_not_finite_stay(tmp_path):
    spec = PolicySpec(exported.VECTOR, spaces.Discrete(3), config={"env_params": {"limit": np.inf}})
    exported.random_policy(spec).export(tmp_path / "b.zip", NUMPY)
    assert b"Infinity" not in contents(tmp_path / "b.zip")["policy.json"]
    assert ppax.load(tmp_path / "b.zip").spec.config == spec.config


def test_equal_policies_are_equal_files(tmp_path):
    for name in ("a.zip", "b.zip"):
        exported.policy("lstm", "beta", False).export(tmp_path / name, NUMPY)
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


@pytest.mark.parametrize("batch", [1, 3, 7])
def test_the_reader_takes_any_batch_size(batch, tmp_path):
    policy = exported.policy("attention", "several masked", True)
    policy.export(tmp_path / "b.zip", NUMPY)
    inputs = exported.observed(policy, 4, batch)
    wanted = exported.own_actions(policy, inputs)
    reader = NumpyPolicy(tmp_path / "b.zip")
    carry = reader.initial_carry(batch)
    for t in range(4):
        out = reader({name: x[t] for name, x in inputs.items()} | carry)
        carry = {name.removeprefix("next_"): x for name, x in out.items() if name.startswith("next_carry")}
        np.testing.assert_array_equal(out["action"], wanted["action"][t])
        np.testing.assert_allclose(out["log_prob"], wanted["log_prob"][t], rtol=1e-5, atol=1e-5)


def test_the_reader_refuses_unknown_and_missing_inputs(tmp_path):
    small().export(tmp_path / "b.zip", NUMPY)
    reader, inputs = NumpyPolicy(tmp_path / "b.zip"), {"obs": np.zeros((1, 4)), "first": [True]}
    assert reader(inputs)["action"].shape == (1,)
    for given, wrong in (
        ({"obs": inputs["obs"]}, "missing: first"),
        (inputs | {"mask": [[True, True]]}, "unknown: mask"),
        ({"observation": inputs["obs"], "first": [True]}, "missing: obs; unknown: observation"),
    ):
        with pytest.raises(ValueError, match=rf"^inputs {wrong}; this policy takes first, obs$"):
            reader(given)


def test_the_reader_refuses_wrong_shapes_and_damaged_files(tmp_path):
    small().export(tmp_path / "b.zip", NUMPY)
    with pytest.raises(ValueError, match=r"first has shape \(\), expected \(1,\)"):
        NumpyPolicy(tmp_path / "b.zip")({"obs": np.zeros((1, 4)), "first": True})
    with pytest.raises(ValueError, match=r"obs has shape \(1, 3\), expected \(1, 4\)"):
        NumpyPolicy(tmp_path / "b.zip")({"obs": np.zeros((1, 3)), "first": [True]})
    with pytest.raises(ValueError, match=r"obs has shape \(4,\), expected \(1, 4\)"):
        NumpyPolicy(tmp_path / "b.zip")({"obs": np.zeros(4), "first": True})
    data = (tmp_path / "b.zip").read_bytes()
    at = data.index(b'"operations"')
    with pytest.raises((ValueError, zipfile.BadZipFile), match=r"damaged|CRC"):
        NumpyPolicy(io.BytesIO(data[:at] + b"X" + data[at + 1 :]))
    with pytest.raises(ValueError, match="longer than the file"):
        safetensors((2**60).to_bytes(8, "little") + b"{}")


def test_the_reader_names_the_input_that_is_wrong_beside_a_memory(tmp_path):
    exported.policy("gru", "masked", True).export(tmp_path / "b.zip", NUMPY)
    reader = NumpyPolicy(tmp_path / "b.zip")
    given = {x["name"]: np.zeros((3, *x["shape"][1:]), x["dtype"]) for x in reader.inputs}
    given["mask"][:] = True
    assert reader(given)["action"].shape == (3,)
    with pytest.raises(ValueError, match=r"first has shape \(1,\), expected \(3,\)"):
        reader(given | {"first": [True]})
    with pytest.raises(ValueError, match=r"carry.actor has the number nan; must be a number"):
        reader(given | {"carry.actor": np.full_like(given["carry.actor"], np.nan)})


@pytest.mark.parametrize(("name", "wrong"), [("max", "min"), ("argmax", "argmin")])
def test_a_format_that_gives_something_else_is_not_written(name, wrong, tmp_path, monkeypatch):
    """One operation of the converted program is another one: other numbers, or other actions."""
    as_json = numpy_format.as_json

    def changed(data):
        index = min(i for i, x in enumerate(data["operations"]) if x[0] == name)
        data["operations"][index][0] = wrong
        return as_json(data)

    monkeypatch.setattr(numpy_format, "as_json", changed)
    with pytest.raises(ConfigError, match=r"format 'numpy': log_prob differs .* nothing is written"):
        small().export(tmp_path / "b.zip", NUMPY)
    assert list(tmp_path.iterdir()) == []


def test_ties_by_rounding_are_no_fault_and_wrong_actions_are(monkeypatch):
    wanted = {"action": np.arange(writing.ROWS, dtype=np.int32)}
    found = {"action": wanted["action"].copy()}
    found["action"][5] += 1
    assert writing._difference("onnx", found, wanted) == 0.0
    found["action"][6:8] += 1
    with pytest.raises(ConfigError, match="3 of 64 actions differ"):
        writing._difference("onnx", found, wanted)


def test_formats_that_are_not_installed_are_left_out_or_refused_with_the_extra(tmp_path, monkeypatch):
    def missing():
        raise ImportError('format "onnx" needs jax2onnx and onnxruntime: pip install "ppax[onnx]"')

    monkeypatch.setattr(onnx_format, "require_onnx", missing)
    monkeypatch.setitem(writing.MAKERS, "stablehlo", writing._numpy)
    monkeypatch.setattr(writing, "FORMATS", ("numpy", "onnx"))
    written = small().export(tmp_path / "b.zip")
    assert list(written.differences) == ["numpy"]
    assert "ppax[onnx]" in written.left_out["onnx"]
    with pytest.raises(ImportError, match=r"ppax\[onnx\]"):
        small().export(tmp_path / "c.zip", ["onnx"])
    assert not (tmp_path / "c.zip").exists()


def test_wrong_names_are_refused_with_the_nearest(tmp_path):
    with pytest.raises(ConfigError, match=r"nearest valid name: .*b\.zip"):
        small().export(tmp_path / "b.onnx", NUMPY)
    with pytest.raises(ConfigError, match="must be one of numpy, stablehlo, onnx; nearest: onnx"):
        small().export(tmp_path / "b.zip", ["onx"])
    clash = PolicySpec(spaces.Dict({"a.b": exported.VECTOR, "a": spaces.Dict(b=exported.VECTOR)}), spaces.Discrete(2))
    with pytest.raises(ConfigError, match=r"input 'obs.a.b': two entries have this name"):
        exported.random_policy(clash).export(tmp_path / "b.zip", NUMPY)
    assert list(tmp_path.iterdir()) == []


def test_parts_of_the_user_are_exported_and_needed_again_by_load(tmp_path):
    spec = PolicySpec(exported.VECTOR, spaces.Discrete(3), config={"env": "own"})
    agent = ppax.PPO(exported.Sorted(mlp(spec, hidden=(8,))), normalize_obs=True)
    policy = Policy(agent, agent.init(spec.observation_space, jax.random.key(0)), spec)
    monkey = writing.write_bundle(policy, tmp_path / "b.zip", ["stablehlo"])
    assert list(monkey.differences) == ["stablehlo"]
    with pytest.raises(ConfigError, match="no NumPy version of the operation sort"):
        policy.export(tmp_path / "c.zip", NUMPY)
    with pytest.raises(ConfigError, match=r"Pass the same agent: ppax.load\(.*, agent=agent\)"):
        ppax.load(tmp_path / "b.zip")
    obs = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)
    np.testing.assert_array_equal(ppax.load(tmp_path / "b.zip", agent=agent).act(obs), policy.act(obs))


def test_another_activation_is_not_the_agent_of_the_configuration(tmp_path):
    """All shapes are equal, so only the structure of the network tells."""
    spec = PolicySpec(exported.VECTOR, spaces.Discrete(3), config={"agent": {"network": {"hidden": [8]}}})
    for activation, own in (("tanh", False), ("relu", True)):
        agent = ppax.PPO(mlp(spec, hidden=(8,), activation=activation))
        policy = Policy(agent, agent.init(spec.observation_space, jax.random.key(0)), spec)
        policy.export(tmp_path / "b.zip", NUMPY)
        assert json.loads(contents(tmp_path / "b.zip")["policy.json"])["own_parts"] == own


def many(kind):
    """A policy of independent agents or of groups, with a memory."""
    agent = {"network": {"hidden": [8], "memory": {"part": "gru", "width": 4}}, "normalize_obs": True}
    if kind == "independent":
        config = {"agents": "independent", "agent": agent}
        spec = PolicySpec(exported.VECTOR, spaces.Discrete(3), num_agents=2, sharing="independent", config=config)
    else:
        seen = spaces.Dict(a=exported.VECTOR, b=spaces.Box(-1.0, 1.0, (2,)))
        sent = spaces.Dict(a=spaces.Discrete(3, start=1), b=exported.BOX)
        spec = PolicySpec(seen, sent, num_agents=3, sizes=(("a", 2), ("b", 1)), config={"agent": agent})
    return exported.random_policy(spec)


@pytest.mark.parametrize("kind", ["independent", "groups"])
def test_many_agents_have_an_axis_of_agents(kind, tmp_path):
    """Against the agent itself on streams, environment by environment."""
    policy, envs = many(kind), 5
    policy.export(tmp_path / "b.zip", NUMPY)
    agents, reader = policy.spec.num_agents, NumpyPolicy(tmp_path / "b.zip")
    interface = Interface(policy)
    inputs = interface.examples(envs, seed=3)
    inputs["first"][1] = True
    assert inputs["first"].shape == (envs, agents)
    rng = np.random.default_rng(0)
    for name in inputs:
        if name.startswith("carry"):
            inputs[name] = rng.normal(size=inputs[name].shape).astype(np.float32)
    out, loaded = reader(inputs), ppax.load(tmp_path / "b.zip")

    def streams(prefix):
        found = {n.partition(".")[2]: x.reshape(-1, *x.shape[2:]) for n, x in inputs.items() if n.startswith(prefix)}
        return found[""] if list(found) == [""] else found

    if kind == "groups":
        carry = {g: {"actor": streams(f"carry.{g}")[f"{g}.actor"]} for g in ("a", "b")}
        carry = {g: one | {"critic": one["actor"]} for g, one in carry.items()}  # any: the actions do not depend on it
    else:
        carry = dict.fromkeys(("actor", "critic"), streams("carry")["actor"])
    wanted = loaded.agent.policy(loaded.learner, carry, streams("obs"), streams("first"), None)
    mode = wanted.distribution.mode()
    action, log_prob = wanted.distribution.env_action(mode), wanted.distribution.log_prob(mode)
    np.testing.assert_allclose(out["log_prob"], np.reshape(log_prob, (envs, agents)), rtol=1e-5, atol=1e-5)
    given = {"action": action} if kind == "independent" else {f"action.{g}": action[g] for g in ("a", "b")}
    for name, x in given.items():
        assert out[name].shape[:2] == (envs, {"action.a": 2, "action.b": 1}.get(name, 2))
        np.testing.assert_allclose(out[name].reshape(np.shape(x)), x, rtol=1e-5, atol=1e-5)


def test_groups_without_memory_are_exported(tmp_path):
    """Their carry has no arrays and is a dict by group; the bundle acts as the policy does."""
    config = {"agent": {"network": {"hidden": [8]}, "normalize_obs": True}}
    spec = dataclasses.replace(many("groups").spec, config=config)
    policy = exported.random_policy(spec)
    policy.export(tmp_path / "b.zip", NUMPY)
    sizes = {name: (size, *spec.groups[name].observation_space.shape) for name, size in spec.sizes}
    obs = {
        name: np.linspace(-1.0, 1.0, np.prod(shape), dtype=np.float32).reshape(shape) for name, shape in sizes.items()
    }
    one, other = policy.act(obs), ppax.load(tmp_path / "b.zip").act(obs)
    for name in ("a", "b"):
        np.testing.assert_allclose(one[name], other[name], rtol=1e-5, atol=1e-6)


def test_the_replayed_step_has_no_loops_and_no_complex_numbers():
    """Plain operations for converters, and the same numbers, for two batch sizes."""
    policy = exported.policy("lru", "normal", True)
    interface, step = Interface(policy), replayed(Interface(policy), policy.learner)
    for rows in (2, 5):
        inputs, rng = interface.examples(rows, seed=1), np.random.default_rng(0)
        for name in inputs:
            if name.startswith("carry"):
                inputs[name] = rng.normal(size=inputs[name].shape).astype(np.float32)
        text = str(jax.make_jaxpr(step)(inputs))
        assert "scan" not in text
        assert "complex" not in text
        wanted = interface(jax.tree.map(jnp.asarray, policy.learner), inputs)
        for name, x in step(inputs).items():
            np.testing.assert_allclose(x, wanted[name], rtol=1e-5, atol=1e-6)


def test_the_reader_is_one_file_that_needs_numpy_alone():
    text = numpy_format.reader_text()
    imports = {line.split()[1].partition(".")[0] for line in text.splitlines() if line.startswith(("import ", "from "))}
    standard = {
        "__future__",
        "collections",
        "contextlib",
        "hashlib",
        "json",
        "math",
        "os",
        "struct",
        "typing",
        "zipfile",
    }
    assert imports == {"numpy", *standard}
    compile(text, "numpy_policy.py", "exec")


def test_everything_in_the_archive_is_stored(tmp_path):
    small().export(tmp_path / "b.zip", NUMPY)
    with zipfile.ZipFile(tmp_path / "b.zip") as bundle:
        assert {x.compress_type for x in bundle.infolist()} == {zipfile.ZIP_STORED}
        assert sum(x.file_size for x in bundle.infolist()) < (tmp_path / "b.zip").stat().st_size
    assert archive.read_archive(tmp_path / "b.zip")[0]["formats"].keys() == {"numpy"}


@pytest.mark.parametrize("obs", [np.zeros((1, 2), int), np.full((1, 1), 9), np.full((1, 3), 9), np.array(9)])
def test_wrong_shapes_and_numbers_of_categories_are_value_errors(obs, tmp_path):
    spec = PolicySpec(spaces.MultiDiscrete([3, 4, 5]), spaces.Discrete(2))
    exported.random_policy(spec).export(tmp_path / "b.zip", NUMPY)
    with pytest.raises(ValueError, match=r"^obs has (shape .*, expected \(1, 3\)|the number 9; must be from 0 to 4)$"):
        NumpyPolicy(tmp_path / "b.zip")({"obs": obs, "first": [True]})


def test_the_reader_refuses_numbers_that_the_policy_does_not_take(tmp_path):
    entries = {
        "far": spaces.Box(-(2**40), 2**40, (1,), np.int64),
        "few": spaces.Box(0, 9, (1,), np.int64),
        "kind": spaces.Tuple([spaces.Discrete(3, start=1), spaces.MultiDiscrete([2, 4])]),
        "place": spaces.Box(-1, 1, (2,)),
    }
    spec = PolicySpec(spaces.Dict(entries), spaces.Discrete(2), masked=True)
    agent = ppax.PPO(network(spec, hidden=(4,)))
    policy = ppax.Policy(agent, agent.init(spec.observation_space, jax.random.key(0)), spec)
    policy.export(tmp_path / "policy.zip", formats=["numpy"])
    reader = NumpyPolicy(tmp_path / "policy.zip")
    good = {
        "obs.far": [[2**32 + 7]],
        "obs.few": [[3]],
        "obs.kind.0": [3],
        "obs.kind.1": [[1, 3]],
        "obs.place": [[0.5, 0.0]],
        "first": [1],
        "mask": [[1, 0]],
    }
    obs = {"far": [2**32 + 7], "few": [3], "kind": (3, [1, 3]), "place": [0.5, 0.0]}
    assert reader(good)["action"][0] == policy.act(obs, mask=[1, 0])
    wrong = {
        "obs.few": ([[2**32 + 7]], "4294967303; must be from -2147483648 to 2147483647"),
        "obs.kind.0": ([0], "0; must be from 1 to 3"),
        "obs.kind.1": ([[1, 4]], "4; must be from 0 to 3"),
        "obs.place": ([[0.5, np.nan]], "nan; must be finite in float32"),
        "mask": ([[0.0, -np.inf]], "-inf; must be 0 or 1"),
    }
    for name, (number, words) in wrong.items():
        with pytest.raises(ValueError, match=f"{name} has the number {words}"):
            reader(good | {name: number})
    with pytest.raises(ValueError, match=r"obs\.few is float64, which cannot be cast to int32"):
        reader(good | {"obs.few": [[1.7]]})
