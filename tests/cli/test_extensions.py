"""Extensions on the command line: the list, options of one, help."""

import pytest

import ppax
from ppax import config
from ppax.cli.main import main
from ppax.cli.options import add_train, parse_run
from ppax.cli.sweep import parse_sweep
from ppax.sweeps import plan

FILE = 'env = "CartPole-v1"\n[agent.extensions.rnd]\ncoef = 0.5\n[agent.extensions.kl_control]\ntarget_kl = 0.1\n'
PLAYERS = ("--groups.prey.players", "0", "--groups.hunters.players", "1", "2")


@pytest.fixture
def the_file(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(FILE)
    return str(path)


def parsed(*arguments):
    return parse_run("train", list(arguments), add_train)[1]


def extensions(*arguments):
    return parsed(*arguments)["agent"]["extensions"]


LISTS = {
    "rnd,kl_control": ["rnd", "kl_control"],
    "kl-control,rnd": ["kl_control", "rnd"],
    "rnd kl_control": ["rnd", "kl_control"],
    "none": [],
    "ppg": ["ppg"],
}


@pytest.mark.parametrize("text", LISTS)
@pytest.mark.parametrize("equals", [True, False])
def test_a_list_sets_extensions_in_its_order(text, equals, the_file):
    if equals and " " in text:
        return
    given = [f"--agent.extensions={text}"] if equals else ["--agent.extensions", *text.split()]
    assert list(extensions("CartPole-v1", *given)) == LISTS[text]
    found = extensions(the_file, *given)
    assert list(found) == LISTS[text]
    if "rnd" in found:  # one of the file keeps its options
        assert found["rnd"]["coef"] == 0.5


def test_an_option_adds_its_extension(the_file):
    given = ["--agent.extensions.kl-control.target-kl", "0.2", "--agent.extensions.rnd.coef=0.3"]
    found = extensions("CartPole-v1", *given)
    assert list(found) == ["kl_control", "rnd"]
    assert (found["kl_control"]["target_kl"], found["rnd"]["coef"]) == (0.2, 0.3)
    found = extensions(the_file, "--agent.extensions.ppg.every", "3", "--agent.extensions.rnd.coef", "0.3")
    assert list(found) == ["rnd", "kl_control", "ppg"]
    assert (found["ppg"]["every"], found["rnd"]["coef"], found["kl_control"]["target_kl"]) == (3, 0.3, 0.1)


def test_an_extension_of_another_name():
    given = ["--agent.extensions.second", "rnd", "--agent.extensions.second.coef", "0.3"]
    found = extensions("CartPole-v1", *given)
    assert list(found) == ["second"]
    assert (found["second"]["part"], found["second"]["coef"]) == ("rnd", 0.3)
    assert list(extensions("CartPole-v1", "--agent.extensions", "rnd,second", *given)) == ["rnd", "second"]
    inner = extensions("CartPole-v1", "--agent.extensions.own_critic.reward", "rnd")
    assert inner["own_critic"]["reward"]["part"] == "rnd"


def test_groups_have_extensions_of_their_own():
    def groups(*given):
        found = parsed("Pursuit-3", *PLAYERS, *given)["groups"]
        return {name: list(table["agent"]["extensions"]) for name, table in found.items()}

    assert groups("--groups.prey.agent.extensions", "rnd") == {"prey": ["rnd"], "hunters": []}
    of_run = ["--agent.extensions", "kl_control"]
    assert groups(*of_run) == {"prey": ["kl_control"], "hunters": ["kl_control"]}
    both = groups(*of_run, "--groups.prey.agent.extensions", "rnd,kl_control")
    assert both == {"prey": ["rnd", "kl_control"], "hunters": ["kl_control"]}
    assert groups(*of_run, "--groups.prey.agent.extensions", "none") == {"prey": [], "hunters": ["kl_control"]}
    with pytest.raises(ppax.ConfigError, match=r"the group has kl_control of --agent\.extensions, too; name it here"):
        groups(*of_run, "--groups.prey.agent.extensions", "rnd")


WRONG = {
    "--agent.extensions rnd --agent.extensions.ppg.every 2": "--agent.extensions rnd leaves ppg out; add it there",
    "--agent.extensions none --agent.extensions.ppg.every 2": "--agent.extensions none leaves ppg out; add it there",
    "--agent.extensions": "needs the names of extensions, as --agent.extensions rnd,kl_control, or none",
    "--agent.extensions rnd,rnd": "rnd is there twice; give one of them another name, as --agent.extensions rnd,sec",
    "--agent.extensions rn": "agent.extensions.rn.part = 'rn': must be one of",
    "--agent.extensions my_parts:Smooth": "needs a name, as --agent.extensions.smooth my_parts:Smooth",
    "--agent.extensions.rnd.coeff 1": "did you mean --agent.extensions.rnd.coef?",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_is_refused_in_one_sentence(text, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "CartPole-v1", *text.split()]) == 2
    error = capsys.readouterr().err.strip()
    assert WRONG[text] in error
    assert "\n" not in error
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- help


def help_on(topic, capsys, *arguments):
    with pytest.raises(SystemExit):
        main(["train", "CartPole-v1", *arguments, "--help", topic])
    return capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["--agent.extensions", "rnd"]])
def test_help_lists_the_extensions_with_a_line_each(arguments, capsys):
    text = help_on("agent.extensions", capsys, *arguments)
    lines = text.splitlines()
    for name in config.PARTS["extension"]:
        (line,) = (line for line in lines if line.startswith(f"  {name} "))
        assert len(line.split()) > 3
        assert len(line) < 140
    assert "--agent.extensions rnd,kl_control" in text
    assert ("--agent.extensions.rnd.coef" in text) == bool(arguments)


@pytest.mark.parametrize("name", ["rnd", "kl-control", "own_critic"])
def test_help_on_an_extension_lists_its_options(name, capsys):
    text = help_on(f"agent.extensions.{name}", capsys)
    option = {"rnd": "rnd.coef", "kl-control": "kl_control.target-kl", "own_critic": "own_critic.reward.coef"}[name]
    assert f"--agent.extensions.{option} " in text
    assert "--agent.gamma" not in text


# ---------------------------------------------------------------- sweeps


def members(*arguments):
    _, run_config, table = parse_sweep(["CartPole-v1", *arguments])
    return [one.config["agent"]["extensions"] for one in plan.members_of(run_config, plan.read(table))]


def test_a_number_of_an_extension_is_swept():
    for given in ([], ["--agent.extensions", "kl_control,rnd"]):
        found = members(*given, "--agent.extensions.rnd.coef", "0.1,0.5")
        assert [one["rnd"]["coef"] for one in found] == [0.1, 0.5]
        assert [list(one) for one in found] == [["kl_control", "rnd"] if given else ["rnd"]] * 2


def test_a_list_is_no_sweep():
    assert [list(one) for one in members("--agent.extensions", "rnd,kl_control", "--agent.gamma", "0.9,0.8")] == [
        ["rnd", "kl_control"]
    ] * 2


def test_a_sweep_in_a_file(tmp_path):
    (tmp_path / "sweep.toml").write_text(FILE + '[sweep]\n"agent.extensions.rnd.coef" = [0.1, 0.5]\n')
    _, run_config, table = parse_sweep([str(tmp_path / "sweep.toml")])
    found = [one.config["agent"]["extensions"] for one in plan.members_of(run_config, plan.read(table))]
    assert [one["rnd"]["coef"] for one in found] == [0.1, 0.5]
    assert {tuple(one) for one in found} == {("rnd", "kl_control")}
