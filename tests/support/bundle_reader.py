"""Runs exported policies without ppax, in a process of its own: `python bundle_reader.py FORMAT FOLDER...`.

Each folder has bundle.zip and inputs.npz, arrays [steps, batch, ...] by name; the outputs are written to FORMAT.npz.
"""

import importlib.util
import sys
import zipfile
from pathlib import Path

import numpy as np


def numpy_format(folder, bundle):
    """The reader of the bundle itself, as a user copies it."""
    path = folder / "copied_reader.py"
    path.write_bytes(bundle.read("numpy_policy.py"))
    spec = importlib.util.spec_from_file_location(f"reader_of_{folder.name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.NumpyPolicy(folder / "bundle.zip")


def stablehlo_format(folder, bundle):
    import jax.export

    step = jax.export.deserialize(bytearray(bundle.read("policy.stablehlo")))
    assert step.platforms == ("cpu", "cuda")
    call = jax.jit(step.call)
    return lambda inputs: jax.device_get(call(inputs))


def onnx_format(folder, bundle):
    import onnxruntime

    session = onnxruntime.InferenceSession(bundle.read("policy.onnx"), providers=["CPUExecutionProvider"])
    names = [x.name for x in session.get_outputs()]
    return lambda inputs: dict(zip(names, session.run(None, inputs), strict=True))


def outputs(policy, inputs, carry):
    rows = []
    for t in range(len(inputs["first"])):
        out = policy({name: x[t] for name, x in inputs.items()} | carry)
        carry = {name.removeprefix("next_"): x for name, x in out.items() if name.startswith("next_carry")}
        rows.append(out)
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def main(kind, *folders):
    import json

    for folder in map(Path, folders):
        with zipfile.ZipFile(folder / "bundle.zip") as bundle:
            described = json.loads(bundle.read("policy.json"))
            policy = {"numpy": numpy_format, "stablehlo": stablehlo_format, "onnx": onnx_format}[kind](folder, bundle)
        inputs = dict(np.load(folder / "inputs.npz"))
        batch = inputs["first"].shape[1]
        carry = {
            x["name"]: np.zeros((batch, *x["shape"][1:]), x["dtype"])
            for x in described["inputs"]
            if x["name"].startswith("carry")
        }
        np.savez(folder / f"{kind}.npz", **outputs(policy, inputs, carry))
    assert "ppax" not in sys.modules
    assert kind == "stablehlo" or not {"jax", "jaxlib", "safetensors"} & set(sys.modules)


if __name__ == "__main__":
    main(*sys.argv[1:])
