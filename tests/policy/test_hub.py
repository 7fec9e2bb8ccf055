"""Hugging Face Hub with the real package, against a server on this machine: upload, model card, download."""

import io
import json
import re
import shutil
import sys
import tomllib

import jax
import numpy as np
import pytest
from PIL import Image

import ppax
from ppax import ConfigError
from ppax.cli.main import main
from ppax.core import imports
from ppax.policy.bundle import NumpyPolicy
from ppax.policy.hub import Address, address_of
from ppax.reports import upload
from ppax.run import records
from ppax.run.directory import read_evaluation
from support.hub_server import running_hub

constants = pytest.importorskip("huggingface_hub.constants")
errors = pytest.importorskip("huggingface_hub.errors")
NUMPY = {"token": "hf_test", "formats": ("numpy",)}


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    """A run of the command line, with its evaluation."""
    path = tmp_path_factory.mktemp("runs") / "mine"
    sizes = ["--total-steps", "256", "--num-envs", "4", "--num-steps", "16", "--agent.network.hidden", "8"]
    assert main(["train", "CartPole-v1", *sizes, "--eval.episodes", "4", "--no-cache", "--run-dir", str(path)]) == 0
    return path


@pytest.fixture
def hub(monkeypatch, tmp_path):
    with running_hub() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield server


def test_a_policy_goes_to_the_hub_and_comes_back(hub, run_dir):
    policy = ppax.load(run_dir)
    address = ppax.push_to_hub(policy, "me/poles", private=True, message="first", **NUMPY)
    assert address == f"{hub.url}/me/poles"
    assert (hub.private["me/poles"], hub.messages) == ("private", ["first"])
    assert hub.repos["me/poles"].keys() == {"policy.zip", "README.md", "curve.png"}
    again = ppax.load("hf://me/poles")
    obs = np.random.default_rng(0).normal(size=(100, 4)).astype(np.float32)
    np.testing.assert_array_equal(again.act(obs), policy.act(obs))
    assert again.spec.env == "CartPole-v1"
    asked = [path for path, _ in hub.requests if "resolve" in path]
    assert set(asked) == {"/me/poles/resolve/main/policy.zip"}


def test_the_command_export_uploads(hub, run_dir, monkeypatch, capsys):
    monkeypatch.setenv("HF_TOKEN", "hf_test")
    options = ["--formats", "numpy", "--return-value", "--json", "--no-cache"]
    assert main(["export", str(run_dir), "--out", "hf://me/other", *options]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {"address": f"{hub.url}/me/other"}
    assert hub.repos["me/other"].keys() == {"policy.zip", "README.md", "curve.png"}
    outputs = NumpyPolicy(io.BytesIO(hub.repos["me/other"]["policy.zip"])).outputs
    assert [x["name"] for x in outputs] == ["action", "log_prob", "value"]


def test_commands_of_policies_take_addresses(hub, run_dir, monkeypatch, tmp_path, capsys):
    ppax.push_to_hub(ppax.load(run_dir), "hf://me/pole-v1.0", **NUMPY)
    bundle = tmp_path / "policy.zip"
    bundle.write_bytes(hub.repos["me/pole-v1.0"]["policy.zip"])
    results = {}
    for source in (str(bundle), "hf://me/pole-v1.0"):
        assert main(["evaluate", source, "--episodes", "4", "--json", "--no-cache"]) == 0
        results[source] = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert results[source].pop("bundle") == source
    assert results[str(bundle)] == results["hf://me/pole-v1.0"]
    monkeypatch.chdir(tmp_path)  # a film of an address is written here
    assert main(["play", "hf://me/pole-v1.0", "--max-steps", "8", "--no-cache"]) == 0
    assert (tmp_path / "pole-v1.0.gif").is_file()
    assert main(["export", "hf://me/pole-v1.0", "--out", "again.zip", "--formats", "numpy", "--no-cache"]) == 0
    obs = np.random.default_rng(0).normal(size=(10, 4)).astype(np.float32)
    np.testing.assert_array_equal(ppax.load("again.zip").act(obs), ppax.load(run_dir).act(obs))
    film = ppax.film("hf://me/pole-v1.0", tmp_path / "python.gif", max_steps=8)  # in the environment of the bundle
    assert film.path.read_bytes() == (tmp_path / "pole-v1.0.gif").read_bytes()
    capsys.readouterr()
    assert main(["export", "hf://me/pole-v1.0", "--no-cache"]) == 2
    assert "hf://me/pole-v1.0 is a bundle already" in capsys.readouterr().err
    assert main(["evaluate", "hf://me/none", "--no-cache"]) == 2
    assert "there is no repository me/none" in capsys.readouterr().err


def test_a_run_starts_from_an_address(hub, run_dir, tmp_path, capsys):
    ppax.push_to_hub(ppax.load(run_dir), "hf://me/poles", **NUMPY)
    sizes = ["--total-steps", "64", "--num-envs", "4", "--num-steps", "16", "--agent.network.hidden", "8"]
    begin = ["train", "CartPole-v1", *sizes, "--agent.learning-rate", "1e-12", "--no-cache"]
    assert main([*begin, "--init-from", "hf://me/poles", "--run-dir", str(tmp_path / "on")]) == 0
    leaves = (jax.tree.leaves(ppax.load(path).learner.params) for path in (tmp_path / "on", run_dir))
    for mine, other in zip(*leaves, strict=True):  # a learning rate of 1e-12 changes nothing
        np.testing.assert_allclose(mine, other, atol=1e-9)
    (start,) = json.loads((tmp_path / "on/about.json").read_text())["starts"]
    assert start["init_from"]["run"] == "hf://me/poles"
    assert main([*begin, "--init-from", "hf://me/none", "--run-dir", str(tmp_path / "no")]) == 2
    assert "there is no repository me/none" in capsys.readouterr().err
    assert not (tmp_path / "no").exists()


def test_the_model_card_tells_the_run(hub, run_dir):
    ppax.push_to_hub(ppax.load(run_dir), "hf://me/poles", **NUMPY)
    files = hub.repos["me/poles"]
    _, metadata, text = files["README.md"].decode().split("---\n", 2)
    assert "library_name: ppax" in metadata
    evaluation = json.loads((run_dir / "evaluation.json").read_text())
    result = f"{evaluation['mean_return']:.2f} +/- {evaluation['std_return']:.2f}"
    assert f"value: {result}" in metadata
    assert f"| mean return | {evaluation['mean_return']:.6g} |" in text
    assert "| episodes | 4 |" in text
    (usage,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert 'ppax.load("hf://me/poles")' in usage
    (options,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    assert tomllib.loads(options) == ppax.config.read(run_dir / "run.toml")
    assert "](curve.png)" in text
    with Image.open(io.BytesIO(files["curve.png"])) as picture:
        assert picture.size == (1050, 600)


def test_scores_of_the_last_policy_are_not_those_of_the_best(run_dir):
    record = ppax.run.records.read(run_dir)
    assert upload.card_scores(record).keys() == set(upload.SCORES)
    last = ppax.load(run_dir).source.iteration
    assert read_evaluation(run_dir, last) == read_evaluation(run_dir) == record.evaluation
    assert read_evaluation(run_dir, last - 1) == {}


def test_the_card_of_an_older_policy_has_no_scores(hub, run_dir, tmp_path):
    older = shutil.copytree(run_dir, tmp_path / "older")
    evaluation = json.loads((older / "evaluation.json").read_text())
    policy = ppax.load(older)
    (older / "stopped.json").write_text(json.dumps({"iteration": evaluation["iterations"] + 1}))
    (older / "evaluation.json").write_text(json.dumps(evaluation | {"iterations": evaluation["iterations"] + 1}))
    assert records.read(older).evaluation  # of the newest policy, which is not this one
    ppax.push_to_hub(policy, "me/older", **NUMPY)
    text = hub.repos["me/older"]["README.md"].decode()
    assert "## Scores" not in text
    assert f"trained for {policy.source.env_steps:,} steps" in text


def test_a_policy_without_a_run_directory_has_a_card_without_scores(hub):
    env = ppax.make("CartPole-v1", 2)
    agent = ppax.PPO(ppax.networks.mlp(env, (4,)), num_epochs=1)
    run = ppax.fit(agent, env, 32, num_steps=8, log=ppax.Log(console=False))
    ppax.push_to_hub(run.policy(), "me/fresh", **NUMPY)
    assert hub.repos["me/fresh"].keys() == {"policy.zip", "README.md"}
    text = hub.repos["me/fresh"]["README.md"].decode()
    assert "## Scores" not in text
    assert "model-index" not in text


def test_text_of_a_run_is_code_in_the_card():
    assert upload.code("a`b``c") == "``` a`b``c ```"
    assert upload.code("two\nlines # <img>") == "` two lines # <img> `"
    text = upload.block("x = '''\n````\n<script>\n````\n'''", "toml")
    assert text.startswith("`````toml\n")
    assert text.endswith("\n`````")


@pytest.mark.parametrize(
    ("source", "address"),
    [
        ("hf://me/poles", Address("me/poles", None)),
        ("hf://me/poles-2.0@v1.0/x", Address("me/poles-2.0", "v1.0/x")),
    ],
)
def test_addresses(source, address):
    assert address_of(source) == address


@pytest.mark.parametrize("source", ["hf://poles", "hf://me/poles/x", "hf://me/../x", "hf://me/poles@", "hf://"])
def test_other_addresses_are_refused(source):
    with pytest.raises(ConfigError, match=r"must be hf://OWNER/NAME"):
        ppax.load(source)


def test_a_name_that_the_hub_does_not_allow_is_an_error(hub):
    with pytest.raises(ConfigError, match=r"hf://a--b/c: .*a--b"):
        ppax.load("hf://a--b/c")


def test_a_repository_that_is_not_there_is_an_error_with_its_name(hub):
    with pytest.raises(ConfigError, match="there is no repository me/none, or it is private: `hf auth login`"):
        ppax.load("hf://me/none")


def test_a_repository_without_a_bundle_is_an_error_that_says_who_writes_it(hub):
    hub.repos["me/empty"] = {"README.md": b"nothing"}
    with pytest.raises(ConfigError, match=r"me/empty has no file policy\.zip"):
        ppax.load("hf://me/empty")


def test_a_hub_that_cannot_be_reached_is_an_error_with_what_works_without(hub, monkeypatch, capsys):
    def unreached(*_, **__):
        raise errors.LocalEntryNotFoundError("An error happened while trying to locate the file on the Hub")

    monkeypatch.setattr("huggingface_hub.hf_hub_download", unreached)
    with pytest.raises(ConfigError, match=r"cannot be reached, and no copy .* ppax\.load\('policy\.zip'\)"):
        ppax.load("hf://me/poles")


@pytest.mark.parametrize("place", ["work/hub", "work", "./work/hub/deeper"])
def test_a_place_on_the_disk_is_not_taken_for_a_repository(hub, run_dir, place, tmp_path, monkeypatch):
    (tmp_path / "work" / "hub").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"is a place on this disk: .* for the repository of the Hub write hf://"):
        ppax.push_to_hub(ppax.load(run_dir), place, **NUMPY)
    assert hub.requests == []


def test_a_download_that_is_no_bundle_is_refused(hub):
    hub.repos["me/bad"] = {"policy.zip": b"not a bundle"}
    with pytest.raises(ppax.CheckpointError):
        ppax.load("hf://me/bad")


def test_a_wrong_token_uploads_nothing(hub, run_dir):
    with pytest.raises(errors.HfHubHTTPError, match="401"):
        ppax.push_to_hub(ppax.load(run_dir), "me/poles", token="hf_wrong", formats=("numpy",))
    assert hub.repos == {}


def test_a_missing_package_is_reported_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ImportError, match=r'pip install "ppax\[hub\]"'):
        ppax.load("hf://me/poles")


def test_a_resume_downloads_a_teacher_only_with_trust(hub, run_dir, tmp_path):
    ppax.push_to_hub(ppax.load(run_dir), "me/poles", **NUMPY)
    env = ppax.make("CartPole-v1", 2)
    network = ppax.networks.mlp(env, (4,))
    agent = ppax.PPO(network, num_epochs=1, extensions=(ppax.imitation.distill(env, "hf://me/poles"),))
    path, options = tmp_path / "student", {"num_steps": 8, "log": ppax.Log(every=1, console=False)}

    def after_one(state, row):
        return row["iteration"] == 1

    ppax.fit(agent, env, 64, run_dir=path, callbacks=[after_one], **options)
    hub.requests.clear()
    jax.clear_caches()  # a program with this teacher needs no other copy
    with pytest.raises(
        imports.Untrusted, match=r"extensions\.distillation\.teacher = 'hf://me/poles': .* --trust hf://me/poles"
    ):
        ppax.resume(path, console=False)
    assert main(["resume", str(path), "--no-cache"]) == 2
    assert hub.requests == []
    text = (path / "run.toml").read_text()
    checksum = tomllib.loads(text)["agent"]["extensions"]["distillation"]["checksum"]
    (path / "run.toml").write_text(text.replace(checksum, "0" * 64))
    trust = imports.trusting(["hf://me/poles"])
    changed = pytest.warns(UserWarning, match="agent.extensions.distillation.checksum was")
    with trust, changed, pytest.raises(ConfigError, match="another policy than that of the run's start"):
        ppax.resume(path, console=False)
    (path / "run.toml").write_text(text)
    with imports.trusting(["hf://me/poles"]):
        assert int(ppax.resume(path, console=False).state.iteration) == 4
