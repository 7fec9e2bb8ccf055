"""Reader of bundles for `ppax.load`: the agent is built from the configuration, with the bundle's weights.

Every file of the bundle is verified, also those that are not used here; none is executed, unpacked or written. Of the
StableHLO and ONNX files only the checksums are: they are for the libraries that read them.
"""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ppax.core import untrusted
from ppax.core.imports import Untrusted
from ppax.core.protocols import Agent
from ppax.core.types import ConfigError, printable
from ppax.devices.footprint import available_bytes
from ppax.policy.actor import acting_agent
from ppax.policy.bundle import archive, numpy_format
from ppax.policy.bundle.archive import DamagedBundle
from ppax.policy.bundle.interface import Interface
from ppax.policy.bundle.rebuilding import rebuilt
from ppax.policy.policy import Policy
from ppax.policy.spec import PolicySpec, installed_version
from ppax.storage import state_arrays


def read_bundle(path: Path, agent: Agent | None = None) -> Policy:
    """Return the policy of the bundle `path`; DamagedBundle where a file in it is not what ppax writes.

    For a policy with parts of the user's own, such as a network, `agent` must be the agent with these parts; without it
    ConfigError is raised.
    """
    free = available_bytes()
    description, files = archive.read_archive(path, archive.LIMIT if free is None else free // 2)  # and its arrays
    _require_reader(path, description, files)
    arrays = _arrays(path, files[archive.WEIGHTS])
    spec, built = _agent(path, description, agent)
    policy = Policy(built, _learner(path, built, spec, arrays), spec)
    _require_formats(path, policy, description, files, set(arrays))
    return policy


def _require_reader(path: Path, description: dict[str, Any], files: dict[str, bytes]) -> None:
    """Raise DamagedBundle if the bundle's NumPy reader, its one file that is code, is not that of ppax.

    A bundle that says that another version of ppax wrote it causes a warning instead, as that version's reader is not
    known. `ppax.load` does not need the reader.
    """
    if archive.READER not in files:
        return
    if files[archive.READER] == numpy_format.reader_text().encode():
        return
    version = printable(str(description.get("ppax")))[:20]
    if not re.fullmatch(r"\d{1,4}(\.\d{1,4}){2}.*", version) or version == installed_version():
        raise DamagedBundle(
            f"{path}: {archive.READER} is not the reader of ppax {version}, but other code: do not import it. "
            "If the bundle is yours, export the policy again"
        )
    warnings.warn(
        f"{path}: {archive.READER} cannot be checked, for the bundle says that another ppax, {version}, wrote it: do "
        "not import it; ppax.load and ppax.policy.bundle.NumpyPolicy read the bundle without it",
        stacklevel=4,
    )


def _agent(path: Path, description: dict[str, Any], agent: Agent | None) -> tuple[PolicySpec, Agent]:
    """Return specification and agent of a bundle: `agent` itself, or if that is None one built from the configuration.

    Raises ConfigError where the bundle's policy has parts of the user's own and no `agent` is given.
    """
    where = f"{path}: {archive.DESCRIPTION}"
    try:
        spec = PolicySpec.from_data(archive.undo_json(description.get("spec")), where)
    except ConfigError as error:
        raise DamagedBundle(str(error)) from error
    if agent is not None:
        return spec, agent
    if description.get("own_parts"):
        raise ConfigError(
            f"{path} is the policy of an agent with parts of your own, which a file cannot hold. Pass the same agent: "
            f"ppax.load({str(path)!r}, agent=agent), or use the formats of the bundle without ppax (page "
            '"Use a trained policy")'
        )
    try:
        return spec, rebuilt(spec)
    except Untrusted:
        raise
    except untrusted.MALFORMED as error:
        raise DamagedBundle(f"{where}: its configuration describes no agent: {error}") from error


def _arrays(path: Path, data: bytes) -> dict[str, np.ndarray]:
    try:
        return untrusted.arrays_of(data)
    except ValueError as error:
        raise DamagedBundle(f"{path}: {archive.WEIGHTS} is not a readable safetensors file: {error}") from error


def _learner(path: Path, agent: Any, spec: PolicySpec, arrays: dict[str, np.ndarray]) -> Any:
    """Return the parameters and statistics of a learner that acting reads, from a bundle's arrays by name.

    Raises DamagedBundle where they do not fit the agent or are not finite.
    """
    base = agent if agent.pool is None else agent.agent
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # JAX warns of sizes beyond 2^31, which no file has
            init = jax.eval_shape(lambda key: base.init(spec.observation_space, key), jax.random.key(0))
    except untrusted.MALFORMED as error:
        raise DamagedBundle(f"{path}: there is no network of the sizes in its configuration: {error}") from error
    like = acting_agent(base, init).learner
    own = {name: x for name, x in arrays.items() if not name.startswith(numpy_format.CONSTANT)}
    expected = state_arrays.named_leaves(like)
    problems = state_arrays.array_differences(expected, own)
    if problems:
        raise DamagedBundle(f"{path} does not fit the agent of its configuration:\n  " + "\n  ".join(problems))
    broken = [name for name, x in own.items() if x.dtype.kind == "f" and not np.isfinite(x).all()]
    if broken:
        raise DamagedBundle(f"{path} is not finite: {', '.join(broken)}")
    return jax.tree.unflatten(jax.tree.structure(like), [own[name] for name in expected])


def _require_formats(
    path: Path, policy: Policy, description: dict[str, Any], files: dict[str, bytes], weights: set[str]
) -> None:
    """Raise DamagedBundle where what a bundle has is not what ppax would write for the bundle's policy.

    Compared are inputs and outputs in the description; the NumPy program must consist of known operations on inputs and
    weights. `weights` are the names of the bundle's arrays. The StableHLO file is not parsed: JAX asks for trusted data
    there, and cannot read that of every other version of JAX.
    """
    interface = Interface(policy, return_value=description.get("value") is True)
    for key, leaves in (("inputs", interface.inputs), ("outputs", interface.outputs)):
        expected = [{"name": leaf.name, "shape": ["b", *leaf.shape], "dtype": leaf.dtype} for leaf in leaves]
        if description.get(key) != expected:
            raise DamagedBundle(f"{path}: {archive.DESCRIPTION} has other {key} than its policy")
    if archive.PROGRAM in files:
        data = archive.parse_json(path, archive.PROGRAM, files[archive.PROGRAM])
        try:
            numpy_format.check_program(data, weights)
        except untrusted.MALFORMED as error:
            raise DamagedBundle(f"{path}: {archive.PROGRAM} is no program of known operations: {error}") from error
