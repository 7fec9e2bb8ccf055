"""Strict mode for all tests: rank promotion, reuse of keys and warnings are errors; caches of compiled programs."""

import collections
import importlib.metadata
import json
import os
import sys
from pathlib import Path

# Tests spend more time on compilation than on running, so compile with fewer optimisations; `ppax.compile` has its own
# options. Set before JAX is imported, also for child processes
QUICKLY = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
if importlib.metadata.version("jaxlib").startswith("0.10."):
    # the older emitters compile twice as fast and run slower (benchmarks/NOTES.md); later versions do not have them
    QUICKLY += " --xla_cpu_use_fusion_emitters=false"
os.environ["XLA_FLAGS"] = f"{QUICKLY} {os.environ.get('XLA_FLAGS', '')}"
# `compute_dtype = "auto"` means float32 on every machine, also in child processes: most tests compare with float64
os.environ["JAX_DEFAULT_MATMUL_PRECISION"] = "float32"

import hypothesis  # noqa: E402
import jax  # noqa: E402
import pytest  # noqa: E402

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(Path(__file__).parent))
import tiers  # noqa: E402

# `python -m pytest` makes the current directory importable, `pytest` does not: the tests run without
sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != ROOT]

# The same examples in every run; `--hypothesis-profile=default` searches for new ones
hypothesis.settings.register_profile("same", derandomize=True)
hypothesis.settings.load_profile("same")

jax.config.update("jax_num_cpu_devices", 2)  # on any machine
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_debug_key_reuse", True)


_CACHE = ("jax_enable_compilation_cache", "jax_compilation_cache_dir")
_CACHE += ("jax_persistent_cache_min_compile_time_secs", "jax_persistent_cache_min_entry_size_bytes")
CACHE_SETTINGS = {name: getattr(jax.config, name) for name in _CACHE}


@pytest.fixture
def vmapped_keys():
    """Switch off JAX's key-reuse checker, which does not support slices of batched keys in vmapped runs."""
    with jax.debug_key_reuse(False):
        yield


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory):
    """Use a temporary cache of compiled programs instead of the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("home_cache")))
        yield


@pytest.fixture(autouse=True)
def _own_cache_settings():
    """Restore JAX's settings of the cache on disk, which commands of a test change for the whole process."""
    from jax.experimental.compilation_cache import compilation_cache

    yield
    if {name: getattr(jax.config, name) for name in CACHE_SETTINGS} != CACHE_SETTINGS:
        for name, value in CACHE_SETTINGS.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()


@pytest.fixture(autouse=True)
def _own_trust():
    """Forget what a test has trusted, as a command does at its end."""
    from ppax.core import imports

    search = list(sys.path)  # a command that trusts a package beside it appends the current directory, for good
    with imports.trusting():
        yield
    sys.path[:] = search


@pytest.fixture(autouse=True, scope="module")
def _forget_programs():
    """Clear JAX's caches after each file, to free memory."""
    yield
    jax.clear_caches()


@pytest.fixture
def forget_each_program():
    """Clear JAX's caches after each test of a file that compiles hundreds of programs.

    Every program holds memory maps, whose number is limited to 65,530: more end in a crash.
    """
    yield
    jax.clear_caches()


@pytest.fixture(scope="module")
def program_cache(tmp_path_factory):
    """Cache directory of compiled programs, shared by the tests of one file."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def cached_programs(program_cache, monkeypatch):
    """Share compiled programs between the tests of a file, also in child processes."""
    from jax.experimental.compilation_cache import compilation_cache

    monkeypatch.setenv("XDG_CACHE_HOME", str(program_cache))
    options = {
        "jax_compilation_cache_dir": str(program_cache / "ppax" / "jax"),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    for name, value in options.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


@pytest.fixture
def quick_programs(monkeypatch):
    """Compile training programs without optimisation: faster where a test runs them only for a moment."""
    from ppax.devices import platforms

    own = platforms.RULES["cpu"]
    monkeypatch.setitem(platforms.RULES, "cpu", own._replace(compiler_options=own.run_once_options))


@pytest.fixture(scope="module")
def _compiled():
    return {}


@pytest.fixture
def shared_programs(_compiled, monkeypatch):
    """Runs of one file whose agent, environment and state have the same structure share one compiled program."""
    from ppax.envs import HostEnv
    from ppax.training import backends
    from ppax.training.loop import num_devices

    compile_ = backends.compile

    def compile_once(agent, env, state, stop=None):
        if isinstance(env, HostEnv):
            return compile_(agent, env, state, stop)
        leaves, structure = jax.tree.flatten((agent, env, state))
        shapes = tuple(jax.numpy.shape(leaf) for leaf in leaves)
        key = structure, shapes, num_devices(agent, env, state.num_steps)
        if key not in _compiled:
            _compiled[key] = compile_(agent, env, state, stop)
        return _compiled[key]

    monkeypatch.setattr(backends, "compile", compile_once)


NIGHTLY_CASES, SLOW_TESTS = (json.loads(path.read_text()) for path in (tiers.NIGHTLY_CASES, tiers.SLOW_TESTS))


@pytest.hookimpl(tryfirst=True)
@pytest.fixture(scope="module")
def _compiled_sweeps():
    from ppax.sweeps import training
    from support.sweeping import compiled_once

    return compiled_once(training.MembersTraining)


@pytest.fixture
def shared_sweeps(_compiled_sweeps, monkeypatch):
    """Compile each program of a sweep once in a file."""
    from ppax.sweeps import training

    monkeypatch.setattr(training, "MembersTraining", _compiled_sweeps)


def pytest_collection_modifyitems(items):
    """Mark the slow tests, and as nightly the cases that `nightly_cases.json` leaves out."""
    families = collections.defaultdict(list)
    for item in items:
        families[f"{item.path.relative_to(ROOT).as_posix()}::{getattr(item, 'originalname', item.name)}"].append(item)
    for name in families.keys() & set(SLOW_TESTS):
        for item in families[name]:
            item.add_marker(pytest.mark.slow)
    for name in families.keys() & NIGHTLY_CASES.keys():
        kept = tiers.spaced(NIGHTLY_CASES[name], len(families[name]))
        for place, item in enumerate(families[name]):
            if place not in kept:
                item.add_marker(pytest.mark.nightly)
