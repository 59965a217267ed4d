"""Compares an exported ONNX model and PyTorch script with the answers of `stepgraph predict`.

    python exports.py FOLDER NAME...

Each NAME has NAME.onnx, NAME.py and NAME.csv in FOLDER; where the data were standardised, NAME.raw.csv has the samples
as they stand in their file. Prints a line for each: its name, then the largest difference of the ONNX model and of the
script, as a share of the largest answer.
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
    """The numbers of the samples, each once, and the answers for each of them or for each of their positions."""
    with open(path, newline="") as file:
        head, *rows = csv.reader(file)
    columns = [i for i, name in enumerate(head) if name.startswith("p_")]
    columns = columns or [i for i, name in enumerate(head) if name.startswith("predicted_")]
    samples = list(dict.fromkeys(int(row[0]) for row in rows))
    return samples, np.array([[float(row[i]) for i in columns] for row in rows]), "position" in head, head


def module(path):
    spec = importlib.util.spec_from_file_location("exported", path)
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def probabilities(outputs, script, head):
    if script.CLASSES is not None:
        raised = np.exp(outputs - outputs.max(axis=-1, keepdims=True))
        return raised / raised.sum(axis=-1, keepdims=True)
    return 1 / (1 + np.exp(-outputs)) if "p_0" in head else outputs


def taken(value, node):
    """A sample as an input of an ONNX model takes it; tokens are int64."""
    assert node.type in ("tensor(float)", "tensor(int64)"), node.type
    return value.astype(np.float32 if node.type == "tensor(float)" else np.int64)


def main(folder, *names):
    folder = pathlib.Path(folder)
    for name in names:
        script = module(folder / f"{name}.py")
        samples, wanted, by_position, head = answers(folder / f"{name}.csv")
        raw = folder / f"{name}.raw.csv"
        assert bool(script.MEAN) == raw.exists(), name
        session = onnxruntime.InferenceSession(folder / f"{name}.onnx", providers=["CPUExecutionProvider"])
        nodes = session.get_inputs()
        if raw.exists():
            with open(raw, newline="") as file:
                rows = list(csv.reader(file))[1:]
            whole = np.array([[float(cell) for cell in rows[i][:-1]] for i in samples], np.float32)
            # The columns are divided among the inputs, in their order.
            widths = [int(np.prod(node.shape[1:])) for node in nodes]
            x = dict(zip((node.name for node in nodes), np.split(whole, np.cumsum(widths)[:-1], axis=1)))
        else:
            data = load_file(folder / f"{name}.data.safetensors")
            key = {"input": "x"} if "x" in data else {}
            x = {node.name: data[key.get(node.name, f"x.{node.name}")][samples] for node in nodes}
        (by_onnx,) = session.run(None, {node.name: taken(x[node.name], node) for node in nodes})
        net = script.build()
        script.load_weights(net, folder / f"{name}.weights.safetensors")
        net.eval()
        rows = {name: torch.from_numpy(value) for name, value in x.items()}
        with torch.no_grad():
            by_torch = net(script.prepare(rows if hasattr(script, "INPUTS") else next(iter(rows.values())))).numpy()
        answered = script.answer(net, rows if hasattr(script, "INPUTS") else next(iter(rows.values())))
        assert len(answered) == len(samples), name
        scale = max(1.0, np.abs(wanted).max())
        found = [probabilities(o.astype(np.float64), script, head).reshape(wanted.shape) for o in (by_onnx, by_torch)]
        print(name, *[np.abs(each - wanted).max() / scale for each in found])


main(*sys.argv[1:])
