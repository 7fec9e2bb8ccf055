"""Persistent cache of compiled programs in `fit`, `evaluate` and commands."""

import os

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

import ppax
from ppax.cli import main
from ppax.config import Log
from ppax.storage import cache

OPTION = "jax_compilation_cache_dir"
SETTINGS = (OPTION, "jax_enable_compilation_cache", *cache.THRESHOLDS)


@pytest.fixture(autouse=True)
def _settings(monkeypatch, tmp_path):
    """Default settings of JAX, and an empty cache directory."""
    jax.config.update(OPTION, None)
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    compilation_cache.reset_cache()


def trained():
    env = ppax.make("probe/Constant", 2)
    agent = ppax.PPO(ppax.networks.mlp(env, (2,)), num_epochs=1, minibatch=ppax.minibatches.Shuffle(1))
    jax.clear_caches()
    return ppax.fit(agent, env, 8, num_steps=4, log=Log(console=False))


def names(folder):
    return {path.name.rpartition("-")[0].partition("-")[0] for path in folder.glob("*") if "atime" not in path.name}


def test_fit_and_evaluate_cache_their_programs_after_an_earlier_compilation(tmp_path):
    jax.jit(lambda x: x + 1)(1.0)  # JAX reads the settings of the cache at its first compilation
    run = trained()
    assert "jit_train" in names(tmp_path / "cache" / "ppax" / "jax")
    run.evaluate(2)
    assert "jit_run_episodes" in names(tmp_path / "cache" / "ppax" / "jax")


def test_programs_compiled_ahead_of_time_are_cached(tmp_path):
    env = ppax.make("probe/Constant", 2)
    agent = ppax.PPO(ppax.networks.mlp(env, (2,)), num_epochs=1, minibatch=ppax.minibatches.Shuffle(1))
    jax.clear_caches()
    ppax.compile(agent, env, ppax.start(agent, env, 4, jax.random.key(0)))
    assert "jit_train" in names(tmp_path / "cache" / "ppax" / "jax")


def test_another_directory_is_used_from_the_next_run_on(tmp_path, monkeypatch):
    trained()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    trained()
    assert "jit_train" in names(tmp_path / "other" / "ppax" / "jax")


def test_settings_of_jax_are_restored(tmp_path):
    before = [getattr(jax.config, name) for name in SETTINGS]
    trained()
    assert [getattr(jax.config, name) for name in SETTINGS] == before
    files = set((tmp_path / "cache").rglob("*"))
    jax.jit(lambda x: x * 3 + 1)(1.0)
    assert set((tmp_path / "cache").rglob("*")) == files, "programs of the user are not cached"


def test_a_cache_directory_set_by_the_user_is_used(tmp_path):
    jax.config.update(OPTION, str(tmp_path / "mine"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    compilation_cache.reset_cache()  # another test of this process may have compiled before
    trained()
    assert "jit_train" in names(tmp_path / "mine")
    assert not (tmp_path / "cache").exists()


def test_a_cache_turned_off_by_the_user_stays_off(tmp_path):
    jax.config.update("jax_enable_compilation_cache", False)
    trained()
    assert not (tmp_path / "cache").exists()


def test_no_cache_turns_the_cache_off_for_the_whole_command(tmp_path):
    sizes = ["--num-envs", "2", "--num-steps", "4", "--total-steps", "8", "--agent.network.hidden", "2"]
    sizes += ["--eval.episodes", "2", "--agent.minibatch.num-minibatches", "1", "--run-dir", str(tmp_path / "run")]
    assert main.main(["train", "probe/Constant", *sizes, "--no-cache"]) == 0
    assert not (tmp_path / "cache").exists()


def test_a_home_directory_that_cannot_be_written_is_no_error(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert cache.keep_programs() == {}
    assert trained().env_steps > 0


def test_a_user_without_a_home_directory_has_no_cache(monkeypatch):
    def nowhere():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(cache.Path, "home", nowhere)
    assert cache.keep_programs() == {}


def test_a_cache_directory_whose_name_is_no_text_is_not_used(monkeypatch, tmp_path):
    """JAX fails at it: a name that the locale could not decode, as of a folder with an accent under LANG=C."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "h\udcffme"))
    assert cache.keep_programs() == {}


@pytest.mark.skipif(os.name != "posix", reason="file modes")
def test_an_existing_cache_directory_that_cannot_be_written_is_not_used(monkeypatch, tmp_path):
    folder = tmp_path / "cache" / "ppax" / "jax"
    folder.mkdir(parents=True)
    asked = []

    def refused(path, mode):  # tests may run as root, who may write everywhere
        asked.append((str(path), mode))
        return False

    monkeypatch.setattr(cache.os, "access", refused)
    assert cache.keep_programs() == {}
    assert asked == [(str(folder), os.W_OK | os.X_OK)]
