"""MLflow model of a policy: a directory for `mlflow.pyfunc.load_model` and `mlflow models serve` (extra `mlflow`).

It holds a bundle, which is data, and a copy of ppax's source file bundle/mlflow_loader.py, which loads the bundle.
Where the model is loaded ppax need not be installed.
"""

from __future__ import annotations

import importlib.util
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from ppax.core.types import ConfigError
from ppax.policy.bundle.interface import Interface, InterfaceArray
from ppax.policy.bundle.numpy_format import loader_text
from ppax.policy.bundle.writing import Exported, write_bundle
from ppax.storage.paths import to_path

if TYPE_CHECKING:
    from ppax.policy.policy import Policy

BUNDLE, LOADER = "policy.zip", "ppax_policy"  # names in the model
NUMPY = "numpy>=2.0"  # with which the reader is tested


def write_mlflow_model(
    policy: Policy, path: str | Path, scores: Mapping[str, Any] | None = None, *, return_value: bool = False
) -> Exported:
    """Write `policy` as an MLflow model to the new directory `path`, and return what was written.

    See `Policy.export_mlflow`.
    """
    if importlib.util.find_spec("mlflow") is None:
        raise ImportError('an MLflow model needs mlflow: pip install "ppax[mlflow]"')
    path = to_path(path, "path")
    if path.exists():
        raise ConfigError(f"{path}: exists; must be a new directory; nearest valid value: {_unused(path)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".mlflow-", dir=path.parent) as name:
        folder = Path(name)
        try:
            written = write_bundle(policy, folder / BUNDLE, ["numpy"], scores, return_value=return_value)
            needs = NUMPY
        except ConfigError:  # an operation that has no NumPy version
            written = write_bundle(policy, folder / BUNDLE, ["stablehlo"], scores, return_value=return_value)
            needs = f"jax=={jax.__version__}"
        (folder / f"{LOADER}.py").write_text(loader_text(), encoding="utf-8")
        _save(Interface(policy, return_value=return_value), folder, needs)
        (folder / "model").rename(path)  # a model is complete or not there
    return written._replace(path=path)


def _save(interface: Interface, folder: Path, needs: str) -> None:
    """Write the MLflow model `folder/model` from bundle and loader in `folder`; `needs` is its requirement for pip."""
    import mlflow.pyfunc
    from mlflow.models import ModelSignature
    from mlflow.types import Schema, TensorSpec

    def schema(leaves: tuple[InterfaceArray, ...]) -> Any:
        return Schema([TensorSpec(np.dtype(leaf.dtype), (-1, *leaf.shape), leaf.name) for leaf in leaves])

    memory = any(leaf.name.partition(".")[0] == "carry" for leaf in interface.inputs)
    inputs = tuple(leaf for leaf in interface.inputs if memory or leaf.name != "first")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MLflow's, of an input example that the signature makes superfluous
        mlflow.pyfunc.save_model(
            folder / "model",
            loader_module=LOADER,
            data_path=str(folder / BUNDLE),
            code_paths=[str(folder / f"{LOADER}.py")],
            signature=ModelSignature(schema(inputs), schema(interface.outputs)),
            pip_requirements=[needs],
        )


def _unused(path: Path) -> Path:
    """Return the first path that does not exist among `path`-2, `path`-3 and so on, for an error that suggests one."""
    return next(p for i in range(2, 10**6) if not (p := path.with_name(f"{path.name}-{i}")).exists())
