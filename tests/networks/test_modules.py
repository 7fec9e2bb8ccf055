"""Networks and encoders that are modules of Flax and Equinox: by name, by object, recorded, checked and exported."""

import json
import math
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import ppax
from ppax import config
from ppax.cli.main import main
from ppax.core import imports
from ppax.core.parts import Table
from ppax.envs import VectorEnv, builtin
from ppax.networks import adapters, memories, network
from ppax.ppo.critics import PopArt, Quantile, TwoHot
from ppax.training.arguments import warn_of_units
from support import modules
from support.worlds import QUICK

pytestmark = [pytest.mark.usefixtures("wide_ranks")]
CARTPOLE, PENDULUM = ppax.make("CartPole-v1", 4), ppax.make("Pendulum-v1", 4)
TORSOS = {"nnx": modules.NNXTorso, "linen": modules.LinenTorso, "equinox": modules.EquinoxTorso}
MADE = {"nnx": ppax.networks.nnx, "linen": ppax.networks.linen, "equinox": ppax.networks.equinox}
ADAPTERS = {"nnx": adapters.NNX, "linen": adapters.Linen, "equinox": adapters.Equinox}
KEY = jax.random.key(0)
SMALL = {"env": "CartPole-v1", "num_envs": 4, "num_steps": 8, "total_steps": 96}


class Wide(builtin.Pendulum):
    action_space = spaces.Box(-50.0, 50.0, (4,))


@pytest.fixture
def wide_ranks():
    """These libraries add biases of another rank."""
    with jax.numpy_rank_promotion("allow"):
        yield


@pytest.fixture(autouse=True)
def trust(monkeypatch, tmp_path):
    for name in ("_trusted", "_beside", "_holding"):
        monkeypatch.setattr(imports, name, set())
    monkeypatch.setenv("PPAX_SETTINGS", str(tmp_path / "settings.toml"))
    ppax.trust("support")


def table(library, name, **arguments):
    return {"part": library, "module": f"support.modules:{name}", "arguments": arguments}


def built(env=CARTPOLE, **network):
    return config.build({"env": env.name, "num_envs": 4, "agent": {"network": network}}, env).agent.network


def weights(params, library):
    """Kernel [in, out] and bias of the one layer of a torso, in float64."""
    if library == "equinox":
        return np.float64(params["layer.weight"]).T, np.float64(params["layer.bias"])
    return np.float64(params["layer"]["kernel"]), np.float64(params["layer"]["bias"])


# ---------------------------------------------------------------- what they compute


@pytest.mark.parametrize("library", TORSOS)
def test_heads_on_a_torso_are_those_computed_by_hand(library):
    """Logits and value in float64: tanh(s W + b), then the two linear heads; s is mean and largest entry."""
    net = built(**table(library, TORSOS[library].__name__, width=5))
    params = jax.jit(net.init, compiler_options=QUICK)(jax.random.key(0))
    params = jax.tree.map(lambda x: x + 0.1, params)  # no bias is 0
    obs = np.array([0.5, -1.0, 2.0, 0.25], np.float32)
    kernel, bias = weights(params["module"], library)
    assert kernel.shape == (2, 5)
    features = np.tanh(np.array([obs.mean(), obs.max()], np.float64) @ kernel + bias)
    wanted = [features @ np.float64(params[x]["kernel"]) + np.float64(params[x]["bias"]) for x in ("policy", "value")]
    out = net.decide(params, net.encode(params, jnp.asarray(obs)), None)
    logits = np.asarray(out.distribution.logits)
    np.testing.assert_allclose(logits - logits[0], wanted[0] - wanted[0][0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(out.value, wanted[1], rtol=1e-5, atol=1e-6)


def test_a_whole_module_gives_distribution_and_value():
    """NumPy, in float64, with the parameters of flax."""
    net = built(**table("nnx", "NNXActorCritic", actions=2))
    params = net.init(jax.random.key(1))
    assert set(params) == {"module"}
    layer = {name: (np.float64(x["kernel"]), np.float64(x["bias"])) for name, x in params["module"].items()}
    obs = np.array([0.5, -1.0, 2.0, 0.25])
    hidden = np.tanh(obs @ layer["torso"][0] + layer["torso"][1])
    logits, value = (hidden @ layer[name][0] + layer[name][1] for name in ("policy", "value"))
    out = net.decide(params, net.encode(params, jnp.float32(obs)), None)
    log_probs = [float(out.distribution.log_prob(jnp.int32(i))) for i in range(2)]
    np.testing.assert_allclose(log_probs, logits - np.log(np.exp(logits).sum()), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(out.value, value, rtol=1e-5, atol=1e-6)
    masked = net.decide(params, net.encode(params, jnp.float32(obs)), jnp.array([False, True]))
    assert float(masked.distribution.log_prob(jnp.int32(1))) == 0.0


def test_a_whole_module_has_standard_deviations_of_its_own():
    net = built(PENDULUM, distribution="squashed", **table("linen", "LinenActorCritic", widths=[4, 4]))
    params = net.init(jax.random.key(1))
    obs = jnp.array([0.5, -1.0, 2.0])
    mean, log_std, value = modules.LinenActorCritic(1, (4, 4)).apply({"params": params["module"]}, obs)
    out = net.decide(params, net.encode(params, obs), None)
    np.testing.assert_allclose(out.distribution.mean, mean, rtol=1e-6)
    np.testing.assert_allclose(out.distribution.log_std, log_std)
    assert float(log_std[0]) == -0.5
    np.testing.assert_allclose(out.value, value, rtol=1e-6)


def test_without_deviations_of_its_own_ppax_has_them_as_parameters():
    net = built(PENDULUM, log_std_init=-1.5, **table("linen", "Output", shapes=[[1], [1]]))
    params = net.init(jax.random.key(0))
    np.testing.assert_array_equal(params["log_std"], [-1.5])
    out = net.decide(params, net.encode(params, jnp.zeros(3)), None)
    np.testing.assert_array_equal(out.distribution.log_std, [-1.5])


def test_heads_on_features_are_rescaled_for_popart():
    net = built(**table("linen", "LinenTorso"))
    params, obs = net.init(jax.random.key(2)), jnp.array([0.5, -1.0, 2.0, 0.25])
    before = net.decide(params, net.encode(params, obs), None).value
    params = net.rescale_value(params, 3.0, -2.0)
    np.testing.assert_allclose(net.decide(params, net.encode(params, obs), None).value, 3.0 * before - 2.0, rtol=1e-5)


@pytest.mark.parametrize("library", TORSOS)
def test_seeds_have_other_parameters_unless_an_instance_has_them(library):
    def first(name, seed):
        return np.asarray(jax.tree.leaves(built(**table(library, name)).init(jax.random.key(seed))["module"])[-1])

    assert not np.array_equal(first(TORSOS[library].__name__, 0), first(TORSOS[library].__name__, 1))
    same = np.array_equal(first(f"{library}_instance", 0), first(f"{library}_instance", 1))
    assert same is (library != "linen")  # an instance of linen has no parameters


# ---------------------------------------------------------------- names and objects


CODE = [
    ("nnx", "NNXTorso", {"width": 4}),
    ("nnx", "nnx_function", {"width": 4}),
    ("nnx", "nnx_instance", {}),
    ("nnx", "NNXActorCritic", {}),
    ("linen", "LinenTorso", {"width": 4}),
    ("linen", "linen_function", {"width": 4}),
    ("linen", "linen_instance", {}),
    ("equinox", "EquinoxTorso", {"width": 4}),
    ("equinox", "equinox_instance", {}),
    ("equinox", "EquinoxActorCritic", {}),
]


@pytest.mark.parametrize(("library", "name", "arguments"), CODE)
def test_a_name_is_the_object_and_a_run_file_gives_it_back(library, name, arguments):
    by_name = built(**table(library, name, **arguments))
    by_object = MADE[library](CARTPOLE, getattr(modules, name), arguments)
    assert jax.tree.structure(by_name) == jax.tree.structure(by_object)
    assert hash(jax.tree.structure(by_name)) == hash(jax.tree.structure(by_object))
    agent = ppax.PPO(by_object)
    described = config.describe(agent)
    assert described["network"]["module"] == f"support.modules:{name}"
    assert described["network"]["arguments"] == arguments
    again = config.parse(config.to_toml({"agent": described}), ppax.run.fit.Path("run.toml"))
    assert jax.tree.structure(config.build_agent(again, CARTPOLE)) == jax.tree.structure(agent)


@pytest.mark.parametrize("library", TORSOS)
def test_a_module_is_an_encoder_before_a_memory(library):
    """In the tables of encoder, tower and entry; with the parameters of the library."""
    encoder = table(library, TORSOS[library].__name__, width=3)
    net = built(
        hidden=[], memory={"part": "gru", "width": 4}, critic={"encoder": encoder | {"arguments": {}}}, encoder=encoder
    )
    wanted = network(
        CARTPOLE,
        encoder=ADAPTERS[library](TORSOS[library], {"width": 3}),
        hidden=(),
        memory=memories.GRU(4),
        critic=ppax.networks.Tower(encoder=ADAPTERS[library](TORSOS[library])),
    )
    assert jax.tree.structure(net) == jax.tree.structure(wanted)
    params = net.init(jax.random.key(0))
    assert weights(params["actor"]["encoder"]["obs"], library)[0].shape == (2, 3)
    assert weights(params["critic"]["encoder"]["obs"], library)[0].shape == (2, 6)


def test_tables_that_differ_in_a_type_alone_are_different():
    assert Table({"x": 1}) == Table({"x": 1})
    assert Table({"x": [1, [2]]}) == Table({"x": (1, (2,))})
    assert not any(Table({"x": 1}) == Table({"x": other}) for other in (True, 1.0, 2))
    assert len({Table({"x": 1}), Table({"x": 1}), Table({"x": 1.0})}) == 2


def test_options_of_actions_depend_on_the_kind_of_environment_as_for_networks_of_ppax():
    """Four actions in units of 50: squashed, and each with half of the noise of one action."""
    env = VectorEnv(Wide(), 4)
    given = {"preset": "none", "agent": {"network": table("linen", "LinenTorso")}}
    found = config.completed(given, env).config["agent"]["network"]
    assert (found["distribution"], found["log_std_init"]) == ("squashed", round(math.log(0.5), 3))
    given["agent"]["network"]["log_std_init"] = -2.0
    net = config.build(config.completed(given, env).config, env).agent.network
    np.testing.assert_array_equal(net.init(jax.random.key(0))["log_std"], [-2.0] * 4)
    given["agent"]["network"]["distribution"] = "normal"
    agent = config.build(config.completed(given, env).config, env).agent
    with pytest.warns(UserWarning, match="the normal distribution, which begins around 0"):
        warn_of_units(agent, env)


# ---------------------------------------------------------------- refused at the start


REFUSED = {
    "norm": (table("linen", "LinenBatchNorm"), "LinenBatchNorm has state besides its parameters: batch_stats"),
    "nnx norm": (table("nnx", "nnx_batch_norm"), "nnx_batch_norm has state besides its parameters: BatchStat"),
    "equinox norm": (table("equinox", "equinox_batch_norm"), "has state besides its parameters: layers.1"),
    "noise": (table("linen", "LinenDropout"), 'needs PRNG for "dropout"'),
    "nnx noise": (table("nnx", "nnx_dropout"), "state besides its parameters: RngCount, RngKey"),
    "equinox noise": (table("equinox", "equinox_dropout"), "state besides its parameters: Dropout. Acting and"),
    "no name": (table("linen", "Nothing"), r"agent\.network\.module = 'support.modules:Nothing': AttributeError"),
    "no path": ({"part": "linen", "module": "support"}, r"agent\.network\.module = 'support': must be an import path"),
    "nothing": ({"part": "nnx"}, "module is missing"),
    "library": (table("nnx", "LinenTorso"), "must be or make a module of flax.nnx, not a LinenTorso"),
    "argument": (table("nnx", "NNXTorso", widht=3), "argument 'widht'; it takes width; nearest: width"),
    "lacking": (table("linen", "linen_function"), "missing a required argument: 'width'; it takes width"),
    "made": (table("nnx", "nnx_instance", width=3), "nnx_instance is an instance, made without width"),
    "inside": (table("nnx", "NNXTorso", width="x"), "module support.modules:NNXTorso: TypeError"),
    "no table": ({"part": "nnx", "arguments": 3}, r"agent\.network\.arguments = 3: must be a table"),
    "rank": (table("linen", "Output", shapes=[[1, 3]]), r"returns features of shape \[1, 3\]: must be a vector"),
    "four": (table("linen", "Output", shapes=[[2], [2], [2], [1]]), "must be a vector of features, or"),
    "policy": (table("linen", "Output", shapes=[[3], [1]]), r"returns an array \[3\]: the policy must be 2 numbers"),
    "log_std": (table("linen", "Output", shapes=[[2], [2], [1]]), r"returns a log_std, and these actions have no"),
    "value": (table("linen", "Output", shapes=[[2], [1, 1]]), r"returns the value as an array \[1, 1\]"),
    "hidden": (table("nnx", "NNXTorso") | {"hidden": [3]}, r"agent\.network\.part must be 'composed' for it"),
    "encoder": ({"encoder": table("linen", "LinenDropout")}, 'needs PRNG for "dropout"'),
    "of encoder": ({"encoder": table("nnx", "NNXTorso", widht=3)}, "nearest: width"),
    "shape of encoder": ({"encoder": table("linen", "Output", shapes=[[1, 3]])}, r"returns shape \[1, 3\] for a step"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_work_is_refused_before_anything_is_trained(case):
    network, text = REFUSED[case]
    with pytest.raises(ppax.ConfigError, match=text):
        config.build({"env": "CartPole-v1", "num_envs": 4, "agent": {"network": network}})


def test_an_encoder_that_cannot_read_is_refused_also_before_dense_layers():
    with pytest.raises(ppax.ConfigError, match=r"returns shape \[1, 3\] for a step: must be a vector"):
        built(hidden=[8], encoder=table("linen", "Output", shapes=[[1, 3]]))


def test_an_observation_that_the_module_cannot_read_is_in_the_error():
    with pytest.raises(
        ppax.ConfigError, match=r"NNXActorCritic for an observation float32\[3\]: TypeError: dot_general"
    ):
        config.build({"env": "Pendulum-v1", "num_envs": 4, "agent": {"network": table("nnx", "NNXActorCritic")}})


def test_critics_that_need_more_of_a_whole_module_are_refused():
    net = built(**table("nnx", "NNXActorCritic"))
    with pytest.raises(ppax.ConfigError, match=r"its value is \[1\], and this critic needs 11 numbers"):
        ppax.start(ppax.PPO(net, critic=Quantile(num_quantiles=11)), CARTPOLE, 8, jax.random.key(0))
    wide = built(**table("linen", "Output", shapes=[[2], [11]]))
    state = ppax.start(ppax.PPO(wide, critic=Quantile(num_quantiles=11)), CARTPOLE, 8, jax.random.key(0))
    assert state.learner.params == {"module": {}}
    with pytest.raises(ppax.ConfigError, match=r"its value is \[11\], and this critic needs 1 numbers"):
        ppax.start(ppax.PPO(wide), CARTPOLE, 8, jax.random.key(0))
    with pytest.raises(ppax.ConfigError, match="this critic rescales the last layer of the value"):
        ppax.start(ppax.PPO(built(**table("linen", "Output", shapes=[[2], [101]])), critic=TwoHot()), CARTPOLE, 8, KEY)
    agent = ppax.PPO(net, critic=PopArt())
    with pytest.raises(ppax.ConfigError, match="this critic rescales the last layer of the value"):
        ppax.train(agent, CARTPOLE, ppax.start(agent, CARTPOLE, 8, jax.random.key(0)), 1)


def test_observations_for_the_critic_alone_are_not_shown_to_the_actor():
    env = ppax.make("Pursuit-2", 4, central_critic=True)
    with pytest.raises(ppax.ConfigError, match=r"observations for the critic only.*network\.encoder"):
        ppax.networks.linen(env, modules.LinenTorso)


def test_a_network_for_other_spaces_is_refused():
    net = built(**table("nnx", "NNXActorCritic"))
    with pytest.raises(ppax.ConfigError, match=r"agent\.network: made for another environment than Pendulum-v1"):
        ppax.start(ppax.PPO(net), PENDULUM, 8, jax.random.key(0))


def test_code_of_a_package_that_is_not_trusted_is_not_imported(tmp_path, monkeypatch):
    (tmp_path / "strange_nets.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    for place in (
        {"part": "nnx", "module": "strange_nets:Torso"},
        {"encoder": {"part": "nnx", "module": "strange_nets:T"}},
    ):
        with pytest.raises(imports.Untrusted, match="strange_nets"):
            config.build({"env": "CartPole-v1", "agent": {"network": place}})
        with pytest.raises(imports.Untrusted, match="strange_nets"):
            config.resolve({"agent": {"network": place}})
    assert "strange_nets" not in sys.modules
    with pytest.raises(ppax.ConfigError, match="belongs to Python itself"):
        config.build({"env": "CartPole-v1", "agent": {"network": {"part": "nnx", "module": "os:system"}}})
    with pytest.raises(ppax.ConfigError, match=r"defined in flax.*must be code of a package that you trust"):
        built(**table("nnx", "nnx_layer"))


def test_arguments_that_may_name_a_file_are_asked_for():
    given = {"env": "CartPole-v1", "agent": {"network": table("nnx", "NNXTorso", width="../weights.npz")}}
    with pytest.raises(imports.Untrusted, match=r"agent\.network\.arguments\.width = '../weights.npz'"):
        config.build(given)


# ---------------------------------------------------------------- runs


def run_of(tmp_path, **network):
    return ppax.build(SMALL, agent={"network": network, "num_epochs": 1}).fit(tmp_path / "run")


@pytest.mark.usefixtures("cached_programs")
@pytest.mark.parametrize(
    "network",
    [
        table("nnx", "NNXActorCritic"),
        {"hidden": [], "shared": True, "encoder": table("linen", "LinenTorso", width=4)},
        table("equinox", "EquinoxTorso", width=4),
    ],
    ids=["nnx", "linen", "equinox"],
)
def test_a_run_is_loaded_resumed_and_exported(network, tmp_path):
    """Exports compare their actions with those of the policy before they are written."""
    run = run_of(tmp_path, **network)
    policy, obs = ppax.load(tmp_path / "run"), np.linspace(-1.0, 1.0, 40, dtype=np.float32).reshape(10, 4)
    np.testing.assert_array_equal(policy.act(obs), run.policy().act(obs))
    written = policy.export(tmp_path / "bundle.zip", ["numpy", "stablehlo", "onnx"])
    assert max(written.differences.values()) < 1e-5
    np.testing.assert_array_equal(ppax.load(tmp_path / "bundle.zip").act(obs), policy.act(obs))
    with pytest.warns(UserWarning, match="total_steps was 96 and is 192"):
        longer = ppax.resume(tmp_path / "run", total_steps=192)
    assert max(one.iteration for one in ppax.checkpoints(longer)) == 6
    assert np.isfinite(longer.evaluate(episodes=2).mean_return)
    imports._trusted.clear()
    with pytest.raises(imports.Untrusted, match="support"):
        ppax.load(tmp_path / "run")


@pytest.mark.usefixtures("cached_programs")
def test_the_command_line_trains_plays_and_sweeps(tmp_path, capsys, monkeypatch):
    imports._trusted.clear()
    run, sizes = str(tmp_path / "run"), ["--num-envs", "4", "--num-steps", "8", "--total-steps", "64"]
    chosen = ["--agent.network", "nnx", "--agent.network.module", "support.modules:NNXTorso"]
    trusted = ["--trust", "support", "--json"]
    width = ["--agent.network.arguments.width", "3"]
    assert main(["train", "CartPole-v1", *chosen, *width, *sizes, "--run-dir", run, *trusted]) == 0
    assert ppax.run.directory.read_run_config(tmp_path / "run")["agent"]["network"]["arguments"] == {"width": 3}
    assert main(["evaluate", run, "--episodes", "2", *trusted]) == 0
    assert main(["evaluate", run, "--episodes", "2"]) == 2
    assert "--trust support" in capsys.readouterr().err
    swept = str(tmp_path / "sweep")
    width = ["--agent.network.arguments.width", "3,5", "--seeds", "2"]
    assert main(["sweep", "CartPole-v1", *chosen, *width, *sizes, "--run-dir", swept, *trusted]) == 0
    with imports.trusting(["support"]):
        members = [ppax.load(tmp_path / "sweep" / "members" / f"{i:03}") for i in range(4)]
    shapes = [one.learner.params["module"]["layer"]["kernel"].shape for one in members]
    assert shapes == [(2, 3), (2, 3), (2, 5), (2, 5)]


def test_arguments_on_the_command_line_may_be_called_like_parts_or_be_one_table(capsys):
    imports._trusted.clear()
    words = ["train", "CartPole-v1", "--trust", "support", "--dry-run", "--agent.network", "linen"]
    named = [*words, "--agent.network.module", "support.modules:linen_memory", "--agent.network.arguments.memory", "3"]
    assert main(named) == 0
    assert "memory = 3" in capsys.readouterr().out
    words += ["--agent.network.module", "support.modules:LinenTorso"]
    assert main([*words, "--agent.network.arguments", json.dumps({"width": 7})]) == 0
    assert "width = 7" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main([*words, "--help", "agent.network"])
    assert "--agent.network.arguments.NAME VALUE" in capsys.readouterr().out


def test_a_sweep_of_a_module_that_no_file_can_name_says_what_to_do():
    """And what it says works: the class by name takes its place."""

    class Inside(modules.LinenTorso): ...

    for net, place in (
        (ppax.networks.linen(CARTPOLE, Inside), r"agent\.network \(LinenNetwork\); name"),
        (
            ppax.networks.linen(CARTPOLE, modules.LinenTorso, {"name": None}),
            r"agent\.network\.arguments \(Table\); name",
        ),
        (network(CARTPOLE, encoder=adapters.Linen(Inside), hidden=()), r"agent\.network\.encoder \(Linen\); name"),
    ):
        given = ppax.build(SMALL, agent={"network": net})
        with pytest.raises(ppax.ConfigError, match=place + " them by classes and functions of a module that can be"):
            ppax.sweeps.plan.config_of(given)
    given = ppax.build(SMALL, agent={"network": ppax.networks.linen(CARTPOLE, modules.LinenTorso, {"width": 3})})
    assert ppax.sweeps.plan.config_of(given)["agent"]["network"]["arguments"] == {"width": 3}


def test_groups_inherit_the_arguments_of_the_module():
    given = {
        "env": "Pursuit-2",
        "agent": {"network": table("linen", "LinenTorso", width=4)},
        "groups": {
            "prey": {"players": [0], "agent": {"network": {"arguments": {"width": 5}}}},
            "hunter": {"players": [1]},
        },
    }
    agents = config.build(given).agent.agents
    assert {name: one.network.arguments for name, one in agents.items()} == {
        "prey": Table({"width": 5}),
        "hunter": Table({"width": 4}),
    }


def test_the_selftest_finds_no_fault():
    agent = ppax.PPO(built(**table("nnx", "NNXActorCritic")))
    report = ppax.selftest(agent, CARTPOLE, 16, jax.random.key(0))
    assert report.passed, str(report)
