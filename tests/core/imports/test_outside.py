"""Trust in paths and addresses: which a user has given, by what text, and for how long."""

import pytest

import ppax
from ppax.core import imports
from ppax.core.imports import TEXT, Outside
from ppax.core.parts import ADDRESS, PATH


@pytest.fixture(autouse=True)
def no_trust(monkeypatch, tmp_path):
    monkeypatch.setattr(imports, "_trusted", set())
    monkeypatch.setattr(imports, "_beside", set())
    monkeypatch.setattr(imports, "_holding", set())
    monkeypatch.setenv("PPAX_SETTINGS", str(tmp_path / "settings.toml"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("one", "names"),
    [
        (Outside(PATH, "data"), ["./data"]),
        (Outside(PATH, "runs/one"), ["runs/one", "./runs", "./runs/../runs/"]),
        (Outside(PATH, "hf://me/poles"), ["hf://me/poles"]),
        (Outside(ADDRESS, "head:6379"), ["//head:6379"]),
        (Outside(ADDRESS, "postgresql://me:pw@host/x"), ["postgresql://me@host/x", "postgresql://me:other@host/x"]),
        (Outside(TEXT, "world.xml"), ["./world.xml", "./"]),
        (Outside(TEXT, "human/agent"), ["human/agent"]),
    ],
    ids=str,
)
def test_names_by_which_a_path_or_an_address_is_trusted(one, names):
    assert not one.trusted
    assert one.name == names[0]
    for name in names:
        with imports.trusting([name]):
            assert one.trusted, name
    assert not one.trusted


@pytest.mark.parametrize(
    ("one", "name"),
    [
        (Outside(PATH, "runs/one"), "runs/on"),
        (Outside(PATH, "runs/../secret"), "runs/"),
        (Outside(PATH, "hf://me/poles"), "hf://me"),
        (Outside(PATH, "//server/share"), "/server"),
        (Outside(ADDRESS, "postgresql://me@host/x"), "postgresql://me@host"),
        (Outside(ADDRESS, "postgresql://me@host/x?sslkey=/a"), "postgresql://me@host/x"),
        (Outside(ADDRESS, "postgresql://me:pw@evil/@host/x"), "postgresql://me@host/x"),
        (Outside(ADDRESS, "river"), "river"),
        (Outside(TEXT, "http://host/x"), "http://host"),
    ],
    ids=str,
)
def test_other_names_trust_nothing(one, name):
    with imports.trusting([name]):
        assert not one.trusted


def test_a_link_out_of_a_trusted_directory_is_not_trusted(tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "link").symlink_to(tmp_path / "secret")
    with imports.trusting(["./runs"], within=[tmp_path / "runs"]):
        assert Outside(PATH, "runs/inside").trusted
        assert not Outside(PATH, "runs/link").trusted


def test_a_file_beside_the_one_that_names_it_needs_no_trust(tmp_path):
    theirs = tmp_path / "theirs"
    with imports.trusting(within=[theirs]):
        assert Outside(PATH, str(theirs / "demos.npz")).trusted
        assert not Outside(PATH, str(tmp_path / "demos.npz")).trusted
        assert not Outside(ADDRESS, f"sqlite:///{theirs}/x.db").trusted
        assert not Outside(TEXT, str(theirs / "world.xml")).trusted
    for folder in (tmp_path / "home", tmp_path):  # of many hands
        with imports.trusting(within=[folder]):
            assert not Outside(PATH, str(tmp_path / "home" / "secret")).trusted


def test_a_settings_file_trusts_directories_and_addresses(tmp_path):
    (tmp_path / "settings.toml").write_text('trust = ["~/projects", "http://mlflow.lab:5000", "my_package"]')
    assert Outside(PATH, str(tmp_path / "home" / "projects" / "x")).trusted
    assert Outside(ADDRESS, "http://mlflow.lab:5000").trusted
    assert not Outside(PATH, str(tmp_path / "home" / "x")).trusted
    (tmp_path / "settings.toml").write_text('trust = ["./data"]')
    with pytest.raises(ppax.ConfigError, match="must be an absolute path, or one that begins with ~/"):
        assert Outside(PATH, "data").trusted


def test_an_error_names_everything_once_and_how_to_trust_it(tmp_path):
    found = {"a.run": Outside(PATH, "my runs"), "b.uri": Outside(ADDRESS, "x:1"), "c.uri": Outside(ADDRESS, "x:1")}
    with pytest.raises(imports.Untrusted) as raised:
        imports.require_asked(found)
    assert raised.value.names == ("./my runs", "//x:1")
    text = str(raised.value)
    assert text.startswith("a.run = 'my runs', b.uri = 'x:1', c.uri = 'x:1': ")
    assert "--trust './my runs' --trust //x:1; " in text
    assert 'ppax.trust("./my runs", "//x:1") in Python' in text
    ppax.trust(*raised.value.names)
    imports.require_asked(found)


def test_what_is_typed_is_trusted_until_the_command_ends():
    with imports.trusting(["river"], beside=True):
        imports.typed(["//x:1", "./my runs"])
        assert Outside(ADDRESS, "x:1").trusted
        assert imports.flags() == " --trust './my runs' --trust //x:1 --trust river"
    assert not Outside(ADDRESS, "x:1").trusted


def test_directories_that_may_be_a_strangers(tmp_path):
    for name in ("about.json", "policy.json", "sweep.toml", "sweep.json"):
        theirs = tmp_path / f"with {name}"
        (theirs / "deep").mkdir(parents=True)
        (theirs / name).write_text("{}")
        assert imports.handed_over(theirs / "deep") == theirs
    (tmp_path / "mine" / "deep").mkdir(parents=True)
    assert imports.handed_over(tmp_path / "mine" / "deep") is None
    for arguments in (["resume", "mine"], ["train", "--run-dir=mine"], ["train", "--run-dir", "mine"]):
        with imports.naming(arguments):
            assert imports.handed_over(tmp_path / "mine" / "deep") == tmp_path / "mine"
            assert imports.handed_over(tmp_path) is None
    assert imports.handed_over(tmp_path / "mine") is None
