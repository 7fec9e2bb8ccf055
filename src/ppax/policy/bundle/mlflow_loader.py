"""Loader of a policy for MLflow: `mlflow.pyfunc.load_model` calls it with the bundle in the model.

    model = mlflow.pyfunc.load_model("models/pole")
    model.predict({"obs": obs})                          # {"action": [b, ...], "log_prob": [b]}

Inputs and outputs are those of the bundle (`policy.json`), without `first` for a policy without memory. It needs NumPy
alone; JAX where the bundle has no NumPy format. The file is copied into the model, and executes no code of the bundle.
"""

from __future__ import annotations

import json
import zipfile
from typing import Any

import numpy as np

from ppax.policy.bundle.numpy_policy import NumpyPolicy, stored


class MLflowPolicy:
    """Policy as MLflow calls it: `predict` from inputs to outputs by name, arrays [b, ...]."""

    def __init__(self, path: str):
        """Read the bundle `path`; ValueError if a file in it is damaged."""
        with zipfile.ZipFile(path) as bundle:
            self._inputs = json.loads(stored(bundle, "policy.json"))["inputs"]
            self._step = NumpyPolicy(path) if "program.json" in bundle.namelist() else with_jax(bundle)
        self._memory = any(x["name"].partition(".")[0] == "carry" for x in self._inputs)

    def predict(self, model_input: dict[str, Any], params: dict[str, Any] | None = None) -> dict[str, np.ndarray]:
        """Return the outputs for the inputs by name, [b, ...] each; MLflow's `params` are not used.

        Raises MlflowException, whose message alone a server passes on, where `NumpyPolicy` raises ValueError.
        """
        given = dict(model_input)
        if not self._memory and given:
            batch = len(next(iter(given.values())))
            lead = next(x["shape"][1:] for x in self._inputs if x["name"] == "first")
            given["first"] = np.ones((batch, *lead), bool)
        try:
            return self._step(given)
        except ValueError as error:
            from mlflow.exceptions import MlflowException

            raise MlflowException.invalid_parameter_value(str(error)) from error


def with_jax(bundle: zipfile.ZipFile) -> Any:
    """Return the step of a bundle in the StableHLO format, a function from inputs to outputs by name."""
    import jax
    from jax import export

    step = jax.jit(export.deserialize(bytearray(bundle.read("policy.stablehlo"))).call)
    return lambda inputs: jax.device_get(step(inputs))


def _load_pyfunc(path: str) -> MLflowPolicy:
    """Return the policy of the bundle `path`; MLflow calls this function by its name."""
    return MLflowPolicy(path)
