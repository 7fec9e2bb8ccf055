"""Extensions in a run file: a table each, in the order of their calls."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

import ppax
from ppax import config
from ppax.config import group_tables
from ppax.core import imports
from ppax.core.options import check_numbers, laid_over
from ppax.core.parts import name_of
from ppax.extensions import RND, FeatureNorm

HEAD = 'env = "CartPole-v1"\nnum_envs = 2\nnum_steps = 8\n[agent.network]\nhidden = [4]\n'
SEVERAL = HEAD + "[agent.extensions.rnd]\ncoef = 0.5\n[agent.extensions.feature_norm]\n[agent.extensions.kl_control]\n"


def parsed(text):
    return config.parse(text, Path("run.toml"))


def names(agent):
    return [name_of(one) for one in agent.extensions]


def test_the_order_of_the_file_is_that_of_the_chain_and_survives_its_record():
    """Written, described and read again: neither alphabetical nor the order of the catalogue."""
    plan = config.resolve(parsed(SEVERAL))
    built = config.build(plan)
    assert names(built.agent) == ["rnd", "feature_norm", "kl_control"]
    assert float(built.agent.extensions[0].coef) == 0.5
    described = config.describe_run(*built)
    for again in (parsed(config.to_toml(plan)), described, parsed(config.to_toml(described))):
        assert list(again["agent"]["extensions"]) == names(built.agent)
        assert names(config.build(again).agent) == names(built.agent)
    assert config.resolve(described)["agent"]["extensions"] == plan["agent"]["extensions"]


@pytest.mark.parametrize("text", [HEAD, HEAD.replace("[agent.network]", "[agent]\nextensions = []\n[agent.network]")])
def test_no_extensions(text):
    built = config.build(parsed(text))
    assert built.agent.extensions == ()
    described = config.describe_run(*built)
    assert described["agent"]["extensions"] == []
    assert config.build(parsed(config.to_toml(described))).agent.extensions == ()


def test_one_class_twice_under_two_names():
    text = HEAD + '[agent.extensions.rnd]\n[agent.extensions.second]\npart = "rnd"\ncoef = 0.7\n'
    built = config.build(parsed(text))
    assert [type(one) for one in built.agent.extensions] == [RND, RND]
    assert names(built.agent) == ["rnd", "second"]
    again = config.build(parsed(config.to_toml(config.describe_run(*built)))).agent
    assert names(again) == ["rnd", "second"]
    assert [float(one.coef) for one in again.extensions] == pytest.approx([0.2, 0.7])


MODULE = '''
from ppax.extensions import Extension, Terms
from ppax.core.types import Scalar, number, part


@part
class Smooth(Extension):
    """Penalty on something."""

    coef: Scalar = number("weight", default=0.25, low=0.0)

    def terms(self, rows):
        return Terms({"smooth_loss": self.coef * rows.policy.value**2})
'''


def test_an_import_path_takes_trust(tmp_path, monkeypatch):
    (tmp_path / "smooth_part.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    text = HEAD + '[agent.extensions.rnd]\n[agent.extensions.smooth]\npart = "smooth_part:Smooth"\ncoef = 0.5\n'
    with pytest.raises(imports.Untrusted, match=r"agent\.extensions\.smooth\.part"):
        config.build(parsed(text))
    assert "smooth_part" not in sys.modules
    with imports.trusting(["smooth_part"]):
        built = config.build(parsed(text))
        assert names(built.agent) == ["rnd", "smooth"]
        assert float(built.agent.extensions[1].coef) == 0.5
        table = config.describe_run(*built)["agent"]["extensions"]["smooth"]
        assert table == {"part": "smooth_part:Smooth", "coef": 0.5}
    # without its code: enough to act
    assert list(config.plain(parsed(text))["agent"]["extensions"]) == ["rnd"]


WRONG = {
    "[agent.extensions.rnd]\ncoef = 'x'": r"agent\.extensions\.rnd\.coef = 'x'",
    "[agent.extensions.rnd]\ncoef = -1": r"agent\.extensions\.rnd\.coef = -1",
    "[agent.extensions.rnd]\ncoeff = 1": r"extensions\.rnd\.coeff'; did you mean 'agent\.extensions\.rnd\.coef'",
    "[agent.extensions.rnd]\ntarget_kl = 1": r"agent\.extensions\.rnd\.part must be 'kl_control' for it",
    "[agent.extensions.rnb]": r"agent\.extensions\.rnb\.part = 'rnb': must be one of kl_control, .*nearest: rnd",
    "[agent.extensions.second]\npart = 'rn'": r"agent\.extensions\.second\.part = 'rn': must be one of",
    "[agent.extensions.'a.b']\npart = 'rnd'": r"agent\.extensions\.'a\.b': the name must be letters, digits",
    "[agent.extensions.'a b']\npart = 'rnd'": r"agent\.extensions\.'a b': the name must be letters, digits",
    "[agent.extensions]\nrnd = 3": r"agent\.extensions\.rnd = 3: must be a table, \[agent\.extensions\.rnd\]",
    "[agent]\nextensions = 'rnd,ppg'": r"for each, \[agent\.extensions\.rnd\] and \[agent\.extensions\.ppg\]",
    "[agent]\nextensions = ['rnd']": r"\['rnd'\]: must be a table for each, \[agent\.extensions\.rnd\]",
    "[agent]\nextensions = 3": r"agent\.extensions = 3",
    "[[agent.extensions]]\npart = 'rnd'": r"agent\.extensions",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_is_refused_with_its_path(text):
    with pytest.raises(ppax.ConfigError, match=WRONG[text]):
        config.resolve(parsed(f'env = "CartPole-v1"\n{text}\n'))


# ---------------------------------------------------------------- unknown options


def test_recompute_is_a_part():
    with pytest.raises(ppax.ConfigError, match=r"write agent\.recompute\.part = 'minibatch'"):
        config.resolve(parsed('[agent]\nrecompute = "minibatch"\n'))


def test_a_name_of_recompute_in_python():
    env = ppax.make("CartPole-v1", 2)
    agent = ppax.PPO(ppax.networks.mlp(env, hidden=(4,)), recompute="minibatch")
    with pytest.raises(
        ppax.ConfigError, match=r"'minibatch' is no part: write recompute=ppax\.recompute\.Minibatch\(\)"
    ):
        ppax.fit(agent, env, 64)


# ---------------------------------------------------------------- presets, groups, independent agents


def test_tables_laid_over_others():
    below = {"extensions": [], "lr": 1}
    assert laid_over(below, {"extensions.rnd.coef": 2}) == {"lr": 1, "extensions.rnd.coef": 2}
    above = {"extensions.rnd.coef": 2, "extensions.ppg": {}}
    assert laid_over(above, {"extensions": []}) == {"extensions": []}
    assert laid_over(above, {"extensions.rnd": {}}) == above
    assert laid_over(above, {"extensions.ppg.every": 3}) == {"extensions.rnd.coef": 2, "extensions.ppg.every": 3}


def test_options_over_those_of_a_file():
    base = parsed(SEVERAL)
    more = config.overridden(base, {"agent": {"extensions": {"kl_control": {"target_kl": 0.5}, "ppg": {}}}})
    assert list(more["agent"]["extensions"]) == ["rnd", "feature_norm", "kl_control", "ppg"]
    assert config.resolve(more)["agent"]["extensions"]["kl_control"]["target_kl"] == 0.5
    assert config.overridden(base, {"agent": {"extensions": []}})["agent"]["extensions"] == []
    none = config.resolve(parsed(HEAD))  # complete, as run.toml is
    added = config.overridden(none, {"agent": {"extensions": {"rnd": {"coef": 0.1}}}})
    assert config.resolve(added)["agent"]["extensions"]["rnd"]["coef"] == 0.1


def group_of(run, group):
    plan = {"env": "Pursuit-3", "agent": {"extensions": run}, "groups": {"prey": {"agent": {"extensions": group}}}}
    return config.resolve(plan)["groups"]["prey"]["agent"]["extensions"]


def test_a_group_has_extensions_of_its_own():
    run = {"rnd": {"coef": 0.5}, "kl_control": {"target_kl": 0.1}}
    found = group_of(run, {"rnd": {"obs_clip": 2.0}, "ppg": {}})
    assert list(found) == ["rnd", "kl_control", "ppg"]
    assert (found["rnd"]["coef"], found["rnd"]["obs_clip"], found["kl_control"]["target_kl"]) == (0.5, 2.0, 0.1)
    assert list(group_of(run, {"kl_control": {}, "ppg": {}, "rnd": {}})) == ["kl_control", "ppg", "rnd"]
    assert group_of(run, []) == []
    assert list(group_of([], {"ppg": {}})) == ["ppg"]


def test_an_extension_of_another_class_in_a_group_starts_from_its_own_defaults():
    found = group_of({"x": {"part": "rnd", "coef": 0.7}}, {"x": {"part": "self_prediction"}})
    assert (
        found["x"]["coef"]
        == config.resolve(parsed("[agent.extensions.self_prediction]"))["agent"]["extensions"]["self_prediction"][
            "coef"
        ]
    )
    named = group_of({"rnd": {"coef": 0.5}}, {"rnd": {"part": "rnd", "obs_clip": 2.0}})
    assert (named["rnd"]["coef"], named["rnd"]["obs_clip"]) == (0.5, 2.0)
    inner = group_of(
        {"own_critic": {"reward": {"coef": 0.5}}}, {"own_critic": {"reward": {"part": "rnd"}, "gamma": 0.5}}
    )
    assert (inner["own_critic"]["reward"]["coef"], inner["own_critic"]["gamma"]) == (0.5, 0.5)


def test_independent_agents_have_numbers_of_extensions_of_their_own():
    text = (
        'env = "Pursuit-2"\nnum_envs = 2\nagents = "independent"\n[agent.extensions.feature_norm]\ncoef = [0.1, 0.3]\n'
    )
    built = config.build(parsed(text))
    assert isinstance(built.agent.agent.extensions[0], FeatureNorm)
    np.testing.assert_allclose([float(built.agent.player(i).extensions[0].coef) for i in range(2)], [0.1, 0.3])
    again = parsed(config.to_toml(config.describe_run(*built)))
    assert again["agent"]["extensions"]["feature_norm"]["coef"] == [0.1, 0.3]
    with pytest.raises(ppax.ConfigError, match=r"agent\.extensions\.feature_norm\.coef"):
        config.build(parsed(text.replace('agents = "independent"\n', "")))


def test_groups_keep_their_extensions_in_the_record_of_a_run():
    text = """
env = "Pursuit-3"
num_envs = 2
[agent.extensions.kl_control]
target_kl = 0.1
[groups.prey]
players = [0]
[groups.prey.agent.extensions.rnd]
[groups.hunters]
players = [1, 2]
[groups.hunters.agent]
extensions = []
"""
    built = config.build(parsed(text))
    assert {name: names(one) for name, one in built.agent.agents.items()} == {
        "prey": ["kl_control", "rnd"],
        "hunters": [],
    }
    again = config.build(parsed(config.to_toml(config.describe_run(*built))))
    assert {name: names(one) for name, one in again.agent.agents.items()} == {
        "prey": ["kl_control", "rnd"],
        "hunters": [],
    }
    assert group_tables.tables(config.describe_run(*built))["hunters"]["agent"]["extensions"] == []


def test_names_of_extensions_in_python():
    env = ppax.make("CartPole-v1", 2)
    network = ppax.networks.mlp(env, hidden=(4,))
    with pytest.raises(ppax.ConfigError, match=r'two are named rnd; give one another name, RND\(name="rnd_2"\)'):
        ppax.fit(ppax.PPO(network, extensions=(RND(), RND())), env, 64)
    with pytest.raises(ppax.ConfigError, match="the name 'a b' must be letters, digits and underscores"):
        ppax.fit(ppax.PPO(network, extensions=(RND(name="a b"),)), env, 64)
    with pytest.raises(ppax.ConfigError, match=r"agent\.extensions\.second\.coef"):
        check_numbers(ppax.PPO(network, extensions=(RND(), RND(name="second", coef=-1.0))))


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("[agent.kl]\ntarget_kl = 0.02", "[agent.extensions.kl_control]"),
        ("[agent.entropy]\ntarget = 1.0", "[agent.extensions.entropy_target]"),
        ('[agent.intrinsic]\npart = "rnd"', "[agent.extensions.rnd]"),
        ("[agent.phase]\nevery = 16", "[agent.extensions.ppg]"),
        (
            "[groups.prey]\nplayers = [0]\n[groups.prey.agent.kl]\ntarget_kl = 1",
            "[groups.prey.agent.extensions.kl_control]",
        ),
    ],
)
def test_a_former_table_of_the_agent_has_one_sentence_with_its_extension(text, table):
    with pytest.raises(ppax.ConfigError, match=re.escape(f"it is an extension, write {table}")):
        config.build(parsed(f'env = "Pursuit-2"\n{text}'))
    with pytest.raises(TypeError, match=r"write extensions=\(ppax\.extensions\.KLControl\(\.\.\.\),\)"):
        ppax.PPO(None, kl=1)
