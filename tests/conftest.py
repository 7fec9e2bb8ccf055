"""Strict mode for every test: no silent rank promotion, typed keys that are used once, warnings are errors."""

import jax
import pytest

jax.config.update("jax_num_cpu_devices", 2)  # whatever the machine has
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_debug_key_reuse", True)


@pytest.fixture
def vmapped_keys():
    """For tests that vmap a whole run: JAX's key-reuse checker cannot follow slices of a batch of keys, and objects."""
    with jax.debug_key_reuse(False):
        yield


@pytest.fixture(autouse=True, scope="module")
def _forget_programs():
    """Compiled programs of one file are of no use to the next, and memory is finite."""
    yield
    jax.clear_caches()
