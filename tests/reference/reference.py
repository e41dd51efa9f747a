#!/usr/bin/env python3
"""What a fleet with the default model must answer, computed without any of its code.

Runs the default model as two halves on every labelled image: the front half with its exit, and,
for images of which the exit is not sure, the tail half on an activation quantised to 4 bits. The
answers go to expected.json beside this file, as {index: [place, class, confidence]}, where place
is "edge" or "cloud". Tests written in Rust compare what nodes answer with that file.

Invocation, from the top folder of the repository:

    python3 -m venv /tmp/reference-venv
    /tmp/reference-venv/bin/pip install numpy onnx==1.23.2 onnxruntime==1.32.0
    /tmp/reference-venv/bin/python tests/reference/reference.py

With --check, nothing is written: the exit code says whether the file is up to date, confidences
compared to 1e-4. Reads models/fashion.onnx and models/fashion-labelled/ only.
"""

import argparse
import gzip
import json
import sys
from pathlib import Path

import numpy as np
import onnx.utils
import onnxruntime

ROOT = Path(__file__).resolve().parents[2]
EXPECTED = Path(__file__).resolve().parent / "expected.json"

CUT = "/seg0/bott/Clip_output_0"
EDGE_TEMPERATURE, CLOUD_TEMPERATURE = 1.07, 1.05
THRESHOLD = 0.785
LO, HI, BITS = np.float32(0.0), np.float32(6.0), 4


def read_idx(path):
    """The array in a gzipped idx file of unsigned bytes."""
    with gzip.open(path) as file:
        data = file.read()
    if data[:3] != b"\0\0\x08":
        raise SystemExit(f"{path}: not an idx file of unsigned bytes")
    rank = data[3]
    shape = [int.from_bytes(data[4 + 4 * i : 8 + 4 * i], "big") for i in range(rank)]
    return np.frombuffer(data, np.uint8, offset=4 + 4 * rank).reshape(shape)


def half(model, inputs, outputs):
    """A session for the part of the model between these tensors."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    part = onnx.utils.Extractor(model).extract_model(inputs, outputs)
    return onnxruntime.InferenceSession(
        part.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def answer(logits, temperature):
    """Class and confidence of one row of logits."""
    logits = logits.astype(np.float64)
    powers = np.exp((logits - logits.max()) / temperature)
    return int(logits.argmax()), float((powers / powers.sum()).max())


def across_the_wire(activation):
    """The activation as the other side sees it: quantised and back, in float32."""
    step = (HI - LO) / np.float32(2**BITS - 1)
    level = np.rint((np.clip(activation, LO, HI) - LO) / step)
    return LO + level.astype(np.float32) * step


def serve(images):
    """Place, class and confidence for each image."""
    model = onnx.shape_inference.infer_shapes(onnx.load(ROOT / "models/fashion.onnx"))
    front = half(model, ["image"], ["logits1", CUT])
    tail = half(model, [CUT], ["logits3"])
    for image in images:
        pixels = (image.astype(np.float32) / np.float32(255)).reshape(1, 1, 28, 28)
        logits, activation = front.run(["logits1", CUT], {"image": pixels})
        label, confidence = answer(logits[0], EDGE_TEMPERATURE)
        place = "edge"
        if confidence < THRESHOLD:
            (logits,) = tail.run(["logits3"], {CUT: across_the_wire(activation)})
            label, confidence = answer(logits[0], CLOUD_TEMPERATURE)
            place = "cloud"
        yield place, label, round(confidence, 6)


def same(old, new):
    """Whether two sets of answers agree, confidences to 1e-4."""
    return old.keys() == new.keys() and all(
        old[index][:2] == list(new[index][:2]) and abs(old[index][2] - new[index][2]) < 1e-4
        for index in old
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    arguments = parser.parse_args()
    images = read_idx(ROOT / "models/fashion-labelled/images-idx3-ubyte.gz")
    labels = read_idx(ROOT / "models/fashion-labelled/labels-idx1-ubyte.gz")
    answers = {str(index): row for index, row in enumerate(serve(images))}
    right = sum(row[1] == label for row, label in zip(answers.values(), labels))
    edge = sum(row[0] == "edge" for row in answers.values())
    print(f"{len(answers)} images: {100 * right / len(answers):.1f} % right,"
          f" {100 * edge / len(answers):.1f} % answered at the edge")
    if arguments.check:
        if not same(json.loads(EXPECTED.read_text()), answers):
            sys.exit(f"{EXPECTED} is out of date")
        return
    lines = [f"{json.dumps(key)}:{json.dumps(row, separators=(',', ':'))}" for key, row in answers.items()]
    EXPECTED.write_text("{" + ",\n".join(lines) + "}\n")


if __name__ == "__main__":
    main()
