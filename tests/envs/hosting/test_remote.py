"""Host environments in actors of a Ray cluster: the bits of worker processes, faults, actors that die."""

import os
import re
import signal
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest
from host_worlds import Maze, Picky, Quits, Spaces, Trouble

import ppax
from ppax.config import Log
from ppax.envs import EnvError, host
from ppax.training import MEASURED, STAGES

ray = pytest.importorskip("ray")
pytestmark = [pytest.mark.nightly, pytest.mark.usefixtures("cached_programs", "cluster")]


@pytest.fixture(scope="module")
def cluster():
    """Local cluster of two CPUs, of this file alone."""
    ray.init(num_cpus=2, object_store_memory=200_000_000, include_dashboard=False, logging_level="warning")
    yield ray
    ray.shutdown()


@pytest.fixture
def _own_modules():
    """Environments of the tests are not installed on the cluster's nodes: they are pickled whole."""
