"""Holds what `midspan split cut MODEL --all DIR` wrote against others' tools: every half passes the
ONNX checker with shape inference, and front and tail together answer as the model does in Python's
ONNX Runtime, nothing optimised, bit for bit. Prints a line for each cut; exit code 1 when one fails.

    python3 check_halves.py MODEL.onnx DIR [NAME=SIZE ...]
"""

import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort

TYPES = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(int8)": np.int8,
    "tensor(uint8)": np.uint8,
    "tensor(bool)": np.bool_,
}


def session(path):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def run(path, given):
    model = session(path)
    names = [output.name for output in model.get_outputs()]
    wanted = {read.name: given[read.name] for read in model.get_inputs()}
    return dict(zip(names, model.run(names, wanted), strict=True))


def inputs(path, sizes):
    """Seeded numbers for each input; dimensions that vary are 1 unless a size is given."""
    random = np.random.default_rng(7)
    given = {}
    for read in session(path).get_inputs():
        shape = [size if isinstance(size, int) else sizes.get(size, 1) for size in read.shape]
        kind = TYPES[read.type]
        given[read.name] = np.asarray(random.random(shape) * 2).astype(kind)
    return given


def main(model, folder, sizes):
    given = inputs(model, sizes)
    whole = run(model, given)
    fronts = sorted(Path(folder).glob("*.front.onnx"))
    failed = 0
    for front in fronts:
        tail = front.with_name(front.name.replace(".front.", ".tail."))
        try:
            for half in (front, tail):
                onnx.checker.check_model(str(half), full_check=True)
            parts = given | run(front, given)
            crossing = [read.name for read in session(tail).get_inputs()]
            parts |= run(tail, parts)
            differing = [
                name
                for name, tensor in whole.items()
                if parts[name].tobytes() != tensor.tobytes() or parts[name].shape != tensor.shape
            ]
            verdict = f"differs: {differing}" if differing else "same bits"
            failed += bool(differing)
        except Exception as error:
            crossing, verdict = [], f"FAILED: {error}"
            failed += 1
        print(f"{front.name.split('.')[0]}  {', '.join(crossing)}: {verdict}")
    print(f"{len(fronts)} cuts, {failed} failed")
    return 1 if failed or not fronts else 0


if __name__ == "__main__":
    pairs = dict(pair.rsplit("=", 1) for pair in sys.argv[3:])
    sys.exit(main(sys.argv[1], sys.argv[2], {name: int(size) for name, size in pairs.items()}))
