"""Holds an exported ONNX model and PyTorch script against the answers of `stepgraph predict`.

    python exports.py FOLDER NAME...

Each NAME has NAME.onnx, NAME.py and NAME.csv in FOLDER; where the data were standardised, NAME.raw.csv has the samples as they stand in their file. Prints
a line for each: its name, then the largest difference of the ONNX model and of the script, as a share of the largest answer.
"""

import csv
import importlib.util
import pathlib
import sys

import numpy as np
import onnxruntime
import torch
from safetensors.numpy import load_file


def answers(path):
    with open(path, newline="") as file:
        head, *rows = csv.reader(file)
    columns = [i for i, name in enumerate(head) if name.startswith(("p_", "predicted_"))]
    return [int(row[0]) for row in rows], np.array([[float(row[i]) for i in columns] for row in rows])


def module(path):
    spec = importlib.util.spec_from_file_location("exported", path)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def probabilities(outputs, script):
    if script.CLASSES is None:
        return outputs
    raised = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


def main(folder, *names):
    folder = pathlib.Path(folder)
    for name in names:
        script = module(folder / f"{name}.py")
        samples, wanted = answers(folder / f"{name}.csv")
        raw = folder / f"{name}.raw.csv"
        assert (script.MEAN is not None) == raw.exists(), name
        if raw.exists():
            with open(raw, newline="") as file:
                rows = list(csv.reader(file))[1:]
            x = np.array([[float(cell) for cell in rows[i][:-1]] for i in samples], np.float32)
        else:
            x = load_file(folder / f"{name}.data.safetensors")["x"][samples].astype(np.float32)
        session = onnxruntime.InferenceSession(folder / f"{name}.onnx", providers=["CPUExecutionProvider"])
        (by_onnx,) = session.run(None, {session.get_inputs()[0].name: x})
        net = script.build()
        script.load_weights(net, folder / f"{name}.weights.safetensors")
        net.eval()
        with torch.no_grad():
            by_torch = net(script.prepare(x)).numpy()
        scale = max(1.0, np.abs(wanted).max())
        found = [np.abs(probabilities(o.astype(np.float64), script) - wanted).max() / scale for o in (by_onnx, by_torch)]
        print(name, *found)


main(*sys.argv[1:])
