"""Runs MLflow models with a real MLflow, in a process of its own: `python mlflow_reader.py FOLDER...`.

Each folder has an MLflow model, `model`, and inputs.npz, arrays [steps, batch, ...] by name; the outputs are written to
mlflow.npz.
"""

import sys
from pathlib import Path

import mlflow.pyfunc
import numpy as np
from bundle_reader import outputs


def main(*folders):
    for folder in map(Path, folders):
        model = mlflow.pyfunc.load_model(str(folder / "model"))
        inputs = dict(np.load(folder / "inputs.npz"))
        batch = len(next(iter(inputs.values()))[0])
        leaves = model.metadata.signature.inputs.inputs
        carry = {x.name: np.zeros((batch, *x.shape[1:]), x.type) for x in leaves if x.name.startswith("carry")}
        np.savez(folder / "mlflow.npz", **outputs(model.predict, inputs, carry))
    assert not {"ppax", "jax", "jaxlib"} & set(sys.modules)


if __name__ == "__main__":
    main(*sys.argv[1:])
