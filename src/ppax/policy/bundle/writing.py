"""Export of a policy as one file with several formats, each compared with the policy before anything is written."""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
import safetensors.numpy

from ppax.agents.precision import acting_dtypes
from ppax.core.options import nearest
from ppax.core.types import ConfigError
from ppax.loggers.files import finite_or_none
from ppax.policy.bundle import archive, numpy_format, onnx_format, stablehlo_format
from ppax.policy.bundle.interface import Arrays, Interface, InterfaceArray
from ppax.policy.bundle.numpy_policy import NumpyPolicy
from ppax.policy.bundle.rebuilding import is_rebuilt
from ppax.storage import safe_files
from ppax.storage.paths import require_place, to_path
from ppax.storage.state_arrays import named_leaves

if TYPE_CHECKING:
    from ppax.policy.policy import Policy

SUFFIX = ".zip"
FORMATS = ("numpy", "stablehlo", "onnx")
OF_FLOAT32 = ("numpy", "onnx")  # NumPy has no bfloat16, and few ONNX runtimes multiply in it; StableHLO does
ROWS, STEPS = 64, 3  # size of the comparison of every format with the policy
TOLERANCE = 1e-4  # relative error of numbers above 1; float32 rounds to about 1e-6, less exactly where logits are large
TIES = 0.02  # largest share of rows in which rounding may choose another of two equally likely actions


class Exported(NamedTuple):
    """Result of an export: the bundle's path, which formats are in it, and how much they differ from the policy.

    `in_float32` names the formats that compute in float32 although the policy computes in bfloat16. Their differences
    are those from the policy in float32.
    """

    path: Path
    differences: dict[str, float]  # of each format written: its largest difference from the policy
    left_out: dict[str, str]  # of each format that the policy does not have: the reason
    # formats that compute in float32 what the policy computes in bfloat16: their difference is that from it in float32
    in_float32: tuple[str, ...] = ()


class Format(NamedTuple):
    """Policy in one format: its files by name, its entries in the bundle's description, constants of its program.

    The constants are arrays, stored by name in the bundle's file of weights.
    """

    files: dict[str, bytes]
    about: dict[str, Any]
    constants: Mapping[str, np.ndarray] = {}


def write_bundle(
    policy: Policy,
    path: str | Path,
    formats: Sequence[str] | None = None,
    scores: Mapping[str, Any] | None = None,
    *,
    return_value: bool = False,
) -> Exported:
    """Write `policy` as a bundle to the file `path`, and return what was written; see `Policy.export`."""
    path = to_path(path, "path")
    require_place(path, f"policy{SUFFIX}")
    if path.suffix != SUFFIX:
        raise ConfigError(f"{path}: a bundle is a zip file; nearest valid name: {path.with_suffix(SUFFIX)}")
    own = in_float32 = Interface(policy, return_value=return_value)
    if acting_dtypes(policy.agent, policy.spec.num_agents) != {"float32"}:
        in_float32 = Interface(policy.in_float32(), return_value=return_value)  # with the same inputs and outputs
    scores = None if scores is None else {name: _number(name, x) for name, x in scores.items()}
    made: dict[str, Format] = {}
    left_out: dict[str, str] = {}
    for name in _checked(formats):
        try:
            made[name] = MAKERS[name](in_float32 if name in OF_FLOAT32 else own, policy.learner)
        except (ConfigError, ImportError) as error:
            if formats is not None:
                raise
            left_out[name] = str(error)
    arrays = {name: np.asarray(x, order="C") for name, x in named_leaves(policy.learner).items()}
    files = {archive.WEIGHTS: safetensors.numpy.save(arrays)}
    for one in made.values():
        files |= one.files
        if one.constants:
            files[archive.WEIGHTS] = safetensors.numpy.save(arrays | dict(one.constants))
    description = _description(policy, own, made, scores)
    changed = tuple(name for name in made if name in OF_FLOAT32 and in_float32 is not own)
    for name in changed:
        description["formats"][name]["products"] = "float32"
    data = archive.archive_bytes(description | {"value": return_value}, files)
    differences = compared(own, policy.learner, data, files, [name for name in made if name not in changed])
    differences |= compared(in_float32, policy.learner, data, files, changed)
    safe_files.write(path, data)
    return Exported(path, {name: differences[name] for name in made}, left_out, changed)


def compared(
    interface: Interface, learner: Any, data: bytes, files: Mapping[str, bytes], formats: Collection[str]
) -> dict[str, float]:
    """Return each format's largest difference from the policy's outputs; ConfigError where it exceeds rounding.

    The policy is the inference function `interface` with the parameters `learner`. `data` is the whole bundle, `files`
    are the files in it; `formats` are the names of those to compare.
    """
    run: dict[str, Callable[[Arrays], Arrays]] = {}
    if "numpy" in formats:
        run["numpy"] = NumpyPolicy(io.BytesIO(data))
    if "stablehlo" in formats:
        run["stablehlo"] = stablehlo_format.stablehlo_runner(files[archive.STABLEHLO])
    if "onnx" in formats:
        run["onnx"] = onnx_format.onnx_runner(files[archive.ONNX], interface)
    differences = dict.fromkeys(run, 0.0)
    for inputs, wanted in _steps(interface, learner) if run else ():
        for name, function in run.items():
            differences[name] = max(differences[name], _difference(name, function(inputs), wanted))
    return differences


def _steps(interface: Interface, learner: Any) -> Iterator[tuple[Arrays, Arrays]]:
    """Yield inputs and outputs of the policy itself over STEPS steps, the first of which begins an episode."""
    function = jax.jit(interface)
    carry: Arrays = {}
    for i in range(STEPS):
        inputs = interface.examples(ROWS, seed=i) | carry
        inputs["first"] = inputs["first"] | (np.arange(ROWS).reshape(-1, *[1] * (inputs["first"].ndim - 1)) % 4 < 4 - i)
        with jax.default_matmul_precision("highest"):
            wanted = jax.device_get(function(learner, inputs))
        yield inputs, wanted
        carry = {name.removeprefix("next_"): x for name, x in wanted.items() if name.startswith("next_carry")}


def _difference(name: str, found: Arrays, wanted: Arrays) -> float:
    """Return the largest difference between outputs of the format `name`, `found`, and those of the policy, `wanted`.

    Both are outputs for equal inputs. A difference is divided by max(1, |x|), where x is the policy's number. Actions
    of whole numbers may differ in a few rows (at most the share TIES), where two actions are equally likely. Raises
    ConfigError where a difference exceeds rounding.
    """
    largest, ties = 0.0, np.zeros(ROWS, bool)
    for key, x in wanted.items():
        got = np.asarray(found[key])
        if got.shape != x.shape or got.dtype != x.dtype:
            raise _wrong(name, f"{key} is {got.dtype}{list(got.shape)} in place of {x.dtype}{list(x.shape)}")
        if x.dtype.kind != "f":
            ties |= (got != x).reshape(ROWS, -1).any(axis=1)
            continue
        error = np.abs(got.astype(np.float64) - x) / np.maximum(1.0, np.abs(x.astype(np.float64)))
        # equal infinities and NaN are no difference
        error = np.where((got == x) | (np.isnan(got) & np.isnan(x)), 0.0, error)
        worst = float(np.max(error, initial=0.0))
        if not worst <= TOLERANCE:
            raise _wrong(name, f"{key} differs from the policy's by {worst:.3g}")
        largest = max(largest, worst)
    if ties.mean() > TIES:
        raise _wrong(name, f"{int(ties.sum())} of {ROWS} actions differ from the policy's")
    return largest


def _wrong(name: str, fault: str) -> ConfigError:
    others = ",".join(other for other in FORMATS if other != name)
    return ConfigError(f"format {name!r}: {fault}; nothing is written. Leave the format out: formats {others}")


def _checked(formats: Sequence[str] | None) -> Sequence[str]:
    for name in formats or ():
        if name not in FORMATS:
            raise ConfigError(
                f"format {name!r}: must be one of {', '.join(FORMATS)}; nearest: {nearest(name, FORMATS)}"
            )
    return FORMATS if formats is None else list(dict.fromkeys(formats))


def _numpy(interface: Interface, learner: Any) -> Format:
    made = numpy_format.to_program(interface, learner)
    files = {archive.PROGRAM: numpy_format.as_json(made.data), archive.READER: numpy_format.reader_text().encode()}
    return Format(files, {"needs": "numpy"}, made.constants)


def _stablehlo(interface: Interface, learner: Any) -> Format:
    data = stablehlo_format.to_stablehlo(interface, learner)
    return Format(
        {archive.STABLEHLO: data}, {"needs": f"jax {jax.__version__}", "platforms": [*stablehlo_format.PLATFORMS]}
    )


def _onnx(interface: Interface, learner: Any) -> Format:
    onnx_format.require_onnx()
    return Format({archive.ONNX: onnx_format.to_onnx(interface, learner)}, {"needs": "an ONNX runtime"})


MAKERS = {"numpy": _numpy, "stablehlo": _stablehlo, "onnx": _onnx}


def _description(
    policy: Policy, interface: Interface, made: Mapping[str, Format], scores: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the metadata that a bundle holds as JSON: versions, inputs, outputs, formats, scores and specification.

    Sizes and checksums of its files are added where the archive is written. `made` are the bundle's formats by name.
    """
    formats = {name: {"files": sorted(one.files), **one.about} for name, one in made.items()}
    return {
        "ppax": policy.spec.version,
        "jax": jax.__version__,
        "inputs": list(map(_entry, interface.inputs)),
        "outputs": list(map(_entry, interface.outputs)),
        "normalized_observations": any(name.partition("obs_stats")[1] for name in named_leaves(policy.learner)),
        "own_parts": not is_rebuilt(policy),
        "formats": formats,
        "scores": None if scores is None else {name: finite_or_none(x) for name, x in scores.items()},
        "spec": archive.to_json(policy.spec.to_data()),
    }


def _number(name: str, given: Any) -> int | float | None:
    """Return a score, a number of Python, NumPy or JAX, as a number of Python; None is no value. Else ConfigError."""
    x = given
    if isinstance(given, np.generic | np.ndarray | jax.Array) and np.size(given) == 1:
        x = given.item()
    if x is None or isinstance(x, int | float):
        return x
    raise ConfigError(f"scores[{name!r}] = {given!r}: must be a number, as 475.0")


def _entry(leaf: InterfaceArray) -> dict[str, Any]:
    return {"name": leaf.name, "shape": ["b", *leaf.shape], "dtype": leaf.dtype}
