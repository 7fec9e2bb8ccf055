"""Strict mode for all tests: rank promotion, reuse of keys and warnings are errors; caches of compiled programs."""

import importlib.metadata
import os

# Tests spend more time on compilation than on running, so compile with fewer optimisations; `ppax.compile` has its own
# options. Set before JAX is imported, also for child processes
QUICKLY = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
if importlib.metadata.version("jaxlib").startswith("0.10."):
    # the older emitters compile twice as fast and run slower (benchmarks/NOTES.md); later versions do not have them
    QUICKLY += " --xla_cpu_use_fusion_emitters=false"
os.environ["XLA_FLAGS"] = f"{QUICKLY} {os.environ.get('XLA_FLAGS', '')}"

import hypothesis  # noqa: E402
import jax  # noqa: E402
import pytest  # noqa: E402

# The same examples in every run; `--hypothesis-profile=default` searches for new ones
hypothesis.settings.register_profile("same", derandomize=True)
hypothesis.settings.load_profile("same")

jax.config.update("jax_num_cpu_devices", 2)  # on any machine
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_debug_key_reuse", True)


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


@pytest.fixture(autouse=True, scope="module")
def _forget_programs():
    """Clear JAX's caches after each file, to free memory."""
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
    before = {name: getattr(jax.config, name) for name in options}
    for name, value in options.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


@pytest.fixture
def quick_programs(monkeypatch):
    """Compile training programs without optimisation: faster where a test runs them only for a moment."""
    from ppax.program import layout

    monkeypatch.setattr(layout, "CPU_OPTIONS", layout.CPU_OPTIONS | {"xla_backend_optimization_level": 0})


@pytest.fixture(scope="module")
def _compiled():
    return {}


@pytest.fixture
def shared_programs(_compiled, monkeypatch):
    """Runs of one file whose agent, environment and state have the same structure share one compiled program."""
    from ppax.envs import HostEnv
    from ppax.program import compilation
    from ppax.training import num_devices

    compile_ = compilation.compile

    def compile_once(agent, env, state, stop=None):
        if isinstance(env, HostEnv):
            return compile_(agent, env, state, stop)
        leaves, structure = jax.tree.flatten((agent, env, state))
        shapes = tuple(jax.numpy.shape(leaf) for leaf in leaves)
        key = structure, shapes, num_devices(agent, env, state.num_steps)
        if key not in _compiled:
            _compiled[key] = compile_(agent, env, state, stop)
        return _compiled[key]

    monkeypatch.setattr(compilation, "compile", compile_once)


# Families of dear cases of which one in so many runs daily, the others nightly; 0: all nightly
DAILY_SHARE = {
    "test_reference.py::test_a_changed_option_does_not_agree": 3,
    "test_reference.py::test_a_changed_number_does_not_agree": 3,
    "test_reference.py::test_a_changed_rollout_does_not_agree": 2,
    "test_reference.py::test_update_agrees_with_the_reference": 2,
    "test_reference.py::test_every_layout_of_the_program_agrees_with_the_reference": 2,
    "test_product.py::test_three_updates": 3,
    "test_spaces.py::test_three_updates": 3,
    "test_episode_metrics.py::test_means_over_episodes_equal_the_lengths_that_ppax_counts": 3,
    "test_examples.py::test_example_reaches_its_result": 2,
    "test_memories.py::test_single_steps_equal_the_sequence": 2,
    "test_memories.py::test_sequences_equal_float64_equations": 2,
    "test_gymnax.py::test_runs_in_a_scan_within_its_spaces": 2,
    "test_gymnax.py::test_conforms": 2,
    "test_probes.py::test_probe_values_equal_the_returns_of_rollouts": 2,
    "test_probes.py::test_probe_actions_matter_only_where_values_differ": 2,
    "test_auxiliary.py::test_gradient_accumulation_does_not_change_it": 2,
    "test_sharding.py::test_training_on_two_devices_equals_one": 2,
    "test_gradient.py::test_an_update_does_not_depend_on_gradient_accumulation": 2,
    "test_resume.py::test_a_run_stopped_by_a_signal_and_resumed_equals_an_uninterrupted_one": 2,
    "test_resume.py::test_a_resumed_run_equals_an_uninterrupted_one": 2,
    "test_sweeps.py::test_members_equal_their_separate_runs": 2,
    "test_multi_agent.py::test_each_independent_player_learns_as_in_a_solo_run": 2,
    "test_composed.py::test_every_kind_of_observation_trains": 2,
    "test_learning.py::test_cartpole_is_solved_by_every_seed": 0,  # `.ci/run` trains CartPole, as the README does
    "test_compositions.py::test_on_the_host": 0,
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark as nightly what `DAILY_SHARE` leaves out; a test that is named on the command line keeps its number."""
    count = dict.fromkeys(DAILY_SHARE, 0)
    for item in items:
        family = f"{item.path.name}::{getattr(item, 'originalname', item.name)}"
        if family in count:
            share, number = DAILY_SHARE[family], count[family]
            count[family] += 1
            if not share or number % share:
                item.add_marker(pytest.mark.nightly)
