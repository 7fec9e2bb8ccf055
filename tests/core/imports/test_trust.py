"""Trust in packages: hostile names in run files import nothing, and what is imported must be of a trusted package."""

import importlib
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

import ppax
from ppax import config
from ppax.core import imports

# A package that writes a file when it is imported, and names of other modules among its own
CANARY = """
import pathlib
pathlib.Path(__file__).with_name("executed").write_text("")
import functools, os, subprocess
from os import system
from subprocess import run
shell = functools.partial(os.system, "true")
number = 3


def loss(): ...


class Loss:
    def __call__(self, distribution, batch): ...
"""


@pytest.fixture(autouse=True)
def no_trust(monkeypatch, tmp_path):
    """No packages trusted, by the settings of a user whose home is empty; all is as before at the end."""
    monkeypatch.setattr(imports, "_trusted", set())
    monkeypatch.setattr(imports, "_beside", set())
    monkeypatch.setenv("PPAX_SETTINGS", str(tmp_path / "settings.toml"))


def package(folder: Path, name: str, text: str = CANARY) -> Path:
    """A package that can be imported from `folder`; returns the file that its import writes."""
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").write_text(text)
    return folder / name / "executed"


@pytest.fixture
def canary(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path / "lib")
    yield package(tmp_path / "lib", "canary")
    for name in [name for name in sys.modules if name.partition(".")[0].startswith("canary")]:
        del sys.modules[name]


PLACES = [
    {"env": "canary:River"},
    {"agent": {"loss": {"part": "canary:Loss"}}},
    {"agent": {"network": {"part": "canary:Net"}}},
    {"agent": {"network": {"memory": {"part": "canary:Memory"}}}},
    {"agent": {"network": {"encoder": {"part": "canary.deep.er:Encoder"}}}},
    {"agent": {"network": {"distribution": "canary:head"}}},
    {"agent": {"optimizer": {"part": "actor_critic", "critic": {"part": "canary:Adam"}}}},
    {"agent": {"schedule": {"part": "both", "first": {"part": "canary:Schedule"}}}},
    {"log": {"to": [{"part": "tensorboard"}, {"part": "canary:Logger"}]}},
    {"stop": "episode_return >= 3 or (canary:After)"},
    {"env": "Pursuit-2", "groups": {"prey": {"players": [0], "agent": {"loss": {"part": "canary:Loss"}}}}},
]


@pytest.mark.parametrize("plan", PLACES, ids=str)
def test_a_name_in_a_configuration_imports_nothing(plan, canary):
    with pytest.raises(imports.Untrusted, match=r"canary.* --trust canary .*ppax\.trust\(\"canary\"\)") as raised:
        config.build(plan)
    assert raised.value.names == ("canary",)
    assert not canary.exists()
    assert "canary" not in sys.modules


def test_an_error_names_every_package_and_where_it_lies(canary, tmp_path):
    with pytest.raises(imports.Untrusted) as raised:
        config.build(PLACES[1] | {"env": "nowhere.to:Find"})
    assert raised.value.names == ("canary", "nowhere")
    assert f"canary ({tmp_path / 'lib' / 'canary' / '__init__.py'}), nowhere (not found)" in str(raised.value)
    assert not canary.exists()


@pytest.mark.parametrize("name", ["os", "builtins", "subprocess", "ppax", "__main__", "sys"])
def test_python_and_ppax_cannot_be_trusted(name):
    with pytest.raises(ppax.ConfigError, match="cannot be trusted"):
        ppax.trust(name)
    with pytest.raises(ppax.ConfigError, match=r"cannot be trusted|must be an import path"):
        imports.load(f"{name}:system", "env")


@pytest.mark.parametrize("name", ["my_package.worlds", "my_package:River", "x.db", "", "a b", "my-package"])
def test_only_names_of_packages_are_trusted(name):
    with pytest.raises(ppax.ConfigError, match=r"must be the name of a top-level package"):
        ppax.trust(name)


def test_trust_in_one_package_is_no_trust_in_another(canary, tmp_path):
    ppax.trust("canar", "canary2")
    with pytest.raises(imports.Untrusted):
        imports.load("canary:Loss", "agent.loss.part")
    assert not canary.exists()
    ppax.trust("canary")
    assert imports.load("canary:Loss", "agent.loss.part").__name__ == "Loss"
    assert canary.exists()


@pytest.mark.parametrize(
    "path", ["canary", "canary:", ":Loss", "canary:os.system", "canary..x:Loss", "canary:__class__"]
)
def test_paths_of_another_form_are_refused(path, canary):
    ppax.trust("canary")
    with pytest.raises(ppax.ConfigError, match=r'must be an import path, as "my_package.module:Name"'):
        imports.load(path, "env")
    assert not canary.exists()


@pytest.mark.parametrize(
    ("path", "nearest", "folder"),
    [
        (r"C:\x\env.py:Line", "env:Line", "C:\\x\\"),
        ("C:/x/env.py:Line", "env:Line", "C:/x/"),
        ("./env.py:Line", "env:Line", "./"),
        (r"gymnasium/C:\x\env.py:Line", "env:Line", "C:\\x\\"),
        ("env.py:Line", "env:Line", "this folder"),
    ],
)
def test_a_class_named_by_its_file_is_refused_with_its_module(path, nearest, folder, tmp_path, monkeypatch):
    (tmp_path / "env.py").write_text("raise SystemExit")
    monkeypatch.chdir(tmp_path)
    for place in ("env", "agent.loss.part"):
        if place == "env" or imports.is_path(path):
            options = {"env": path} if place == "env" else {"env": "CartPole-v1", "agent": {"loss": {"part": path}}}
            with pytest.raises(ppax.ConfigError) as caught:
                config.build(config.plain({}) | options)
            assert not isinstance(caught.value, imports.Untrusted)
            assert f"nearest valid value: {nearest} (from" in str(caught.value)
            assert folder in str(caught.value)


def test_a_path_is_cut_at_its_last_colon():
    assert config.package_of(r"C:\x\mine.losses:Loss") != "C"
    assert config.package_of("mine.losses:Loss") == "mine"
    assert config.package_of("gymnasium/mine.envs:my/Line-v0") == "mine"


@pytest.mark.parametrize("name", ["system", "run", "shell"])
def test_functions_of_other_modules_in_a_trusted_package_are_refused(name, canary):
    ppax.trust("canary")
    for place in ("env", "agent.loss.part"):
        with pytest.raises(
            ppax.ConfigError, match=r"it is defined in (posix|nt|subprocess); must be code of a package"
        ):
            imports.load(f"canary:{name}", place)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Loss", "must be a frozen dataclass: write Loss with the decorator @part"),
        ("loss", "a function; must be a class"),
        ("number", "a int; must be a class"),
        ("os", "a module; must be a class"),
        ("nothing", "AttributeError: .* no attribute 'nothing'"),
    ],
)
def test_what_is_no_part_is_refused(name, text, canary):
    ppax.trust("canary")
    with pytest.raises(ppax.ConfigError, match=text):
        config.build({"agent": {"loss": {"part": f"canary:{name}"}}})


@pytest.mark.parametrize("name", ["Loss", "loss", "number", "os"])
def test_what_is_no_environment_is_refused(name, canary):
    ppax.trust("canary")
    with pytest.raises(ppax.ConfigError, match="must be an environment"):
        ppax.make(f"canary:{name}", 2)


def test_a_class_of_another_door_is_refused(tmp_path, monkeypatch):
    text = (
        "from ppax.core.parts import part\n@part\nclass Adv:\n    def __call__(self, steps, next_value, gamma): ...\n"
    )
    package(tmp_path, "canary_adv", text)
    monkeypatch.syspath_prepend(tmp_path)
    ppax.trust("canary_adv")
    built = partial(config.build, {"agent": {"minibatch": {"part": "canary_adv:Adv"}}})
    with pytest.raises(ppax.ConfigError, match="must be a part for minibatch; Adv lacks size"):
        built()


def test_optax_is_open_for_optimisers_alone():
    with pytest.raises(imports.Untrusted):
        config.build({"agent": {"loss": {"part": "optax:lion"}}})
    with pytest.raises(imports.Untrusted):
        ppax.make("optax:lion", 2)
    for path in (
        "optax:inject_hyperparams",
        "optax._src.alias:lion",
        "optax:os",
        "optax.contrib:nothing",
        "optax:lyon",
    ):
        with pytest.raises(ppax.ConfigError, match=r"must be a factory of optax.*did you mean 'optax"):
            config.build({"agent": {"optimizer": {"part": path}}})


# ---------------------------------------------------------------- settings file


def test_a_settings_file_trusts_packages(canary, tmp_path):
    (tmp_path / "settings.toml").write_text('trust = ["other"]')
    with pytest.raises(imports.Untrusted):
        imports.load("canary:Loss", "x")
    (tmp_path / "settings.toml").write_text('trust = ["other", "canary"]')
    assert imports.load("canary:Loss", "x").__name__ == "Loss"


@pytest.mark.parametrize(
    "text", ["trust = 3", "trust = [3]", 'trust = ["os"]', 'trust = ["a.b"]', "trusted = []", "trust =", "\0"]
)
def test_a_settings_file_with_anything_else_is_refused(text, tmp_path):
    (tmp_path / "settings.toml").write_text(text)
    with pytest.raises(ppax.ConfigError, match=r"settings\.toml"):
        imports.load("canary:Loss", "x")


def test_place_of_the_settings_file(monkeypatch, tmp_path):
    monkeypatch.delenv("PPAX_SETTINGS")
    monkeypatch.setattr(imports.os, "name", "posix")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert imports.settings_file() == tmp_path / "ppax" / "settings.toml"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")  # would lie in the current directory
    assert imports.settings_file() == tmp_path / "home" / ".config" / "ppax" / "settings.toml"


# ---------------------------------------------------------------- short names of installed packages


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Metadata of two installed packages that register parts."""

    def install(name, *lines):
        folder = tmp_path / "lib" / f"{name}-1.0.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text("\n".join(["[ppax.parts]", *lines]))

    install(
        "canary", "loss.mine = canary:Loss", "env.River-v0 = canary:River", "loss.both = canary:Loss", "loss.dpo = x:y"
    )
    install("rival", "loss.both = rival:Loss")
    monkeypatch.syspath_prepend(tmp_path / "lib")


def test_a_short_name_is_no_permission(installed, canary):
    assert imports.registered("loss")["mine"] == "canary:Loss"
    for plan in ({"agent": {"loss": {"part": "mine"}}}, {"env": "River-v0"}):
        with pytest.raises(imports.Untrusted, match="canary"):
            config.build(plan)
    assert not canary.exists()


def test_a_short_name_means_its_path(installed, canary):
    ppax.trust("canary")
    with pytest.raises(ppax.ConfigError, match="write Loss with the decorator @part"):
        config.build({"agent": {"loss": {"part": "mine"}}})


def test_a_name_of_two_packages_belongs_to_neither_and_ppax_goes_first(installed):
    assert "both" not in imports.registered("loss")
    assert config.build({"agent": {"loss": {"part": "dpo"}}}).agent.loss == ppax.losses.DPO()
    with pytest.raises(ppax.ConfigError, match=r"must be one of clipped, .*, mine; nearest: mine"):
        config.build({"agent": {"loss": {"part": "mime"}}})


# ---------------------------------------------------------------- current directory

SCRIPT = """
import sys
from ppax.cli.main import main
assert "" not in sys.path
sys.exit(main(sys.argv[1:]))
"""


def command(*arguments, cwd, home):
    """Run the command as the console script does, whose path has no current directory."""
    return subprocess.run(
        [sys.executable, "-P", "-c", SCRIPT, *arguments],
        cwd=cwd,
        env={**__import__("os").environ, "PPAX_SETTINGS": str(home / "settings.toml")},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_current_directory_is_searched_for_packages_of_the_command_line_alone(tmp_path):
    """A module beside the run file is found; in a run directory, or by trust in a settings file, it is not."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    beside = [package(ours, "river"), package(theirs / "in" / "here", "river")]
    (theirs / "about.json").write_text("{}")
    (tmp_path / "settings.toml").write_text('trust = ["river"]')
    plan = ["check-env", "river:River"]
    assert "ModuleNotFoundError" in command(*plan, cwd=ours, home=tmp_path).stderr
    assert "ModuleNotFoundError" in command(*plan, "--trust", "river", cwd=theirs / "in" / "here", home=tmp_path).stderr
    assert not any(file.exists() for file in beside)
    done = command(*plan, "--trust", "river", cwd=ours, home=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "AttributeError" in done.stderr  # it is imported, and has no River
    assert [file.exists() for file in beside] == [True, False]


def test_an_installed_package_goes_before_the_current_directory(tmp_path, monkeypatch):
    installed, planted = package(tmp_path / "lib", "river"), package(tmp_path / "here", "river")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'lib'}:{Path(ppax.__file__).parents[1]}")
    command("check-env", "river:River", "--trust", "river", cwd=tmp_path / "here", home=tmp_path)
    assert installed.exists()
    assert not planted.exists()


def test_a_class_is_not_named_by_a_path_that_leads_to_another_package(tmp_path, monkeypatch):
    """Two packages `twins`, as `tests` of a library and of the user: the one that is loaded is no longer found."""
    for folder in ("mine", "theirs"):
        package(tmp_path / folder, "twins", "class Loss: ...")
        (tmp_path / folder / "twins" / "part.py").write_text("class Net: ...")
    with monkeypatch.context() as patch:
        patch.syspath_prepend(tmp_path / "mine")
        part = importlib.import_module("twins.part")
        own = [part.Net, sys.modules["twins"].Loss]
        assert [imports.import_path(one) for one in own] == ["twins.part:Net", "twins:Loss"]
    monkeypatch.syspath_prepend(tmp_path / "theirs")
    assert [imports.import_path(one) for one in own] == [None, None]
    for name in ("twins", "twins.part"):
        del sys.modules[name]


def test_a_package_beside_a_sweep_file_is_not_found_and_the_error_says_why(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine_beside_sweep.py").write_text("def make(): ...\n")
    (tmp_path / "sweep.toml").write_text("")
    refused = pytest.raises(ppax.ConfigError, match=r"is not searched: .* may be a stranger's; .* PYTHONPATH")
    with imports.trusting(["mine_beside_sweep"], beside=True), refused:
        imports.load("mine_beside_sweep:make", "env")


def test_a_module_that_exits_when_it_is_imported_is_an_error(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "exits_at_once.py").write_text("import sys\nsys.exit(0)\n")
    with (
        imports.trusting(["exits_at_once"]),
        pytest.raises(ppax.ConfigError, match=r"exits_at_once:make.*SystemExit: 0"),
    ):
        imports.load("exits_at_once:make", "env")
