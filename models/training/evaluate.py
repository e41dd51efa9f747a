#!/usr/bin/env python3
"""The figures of the default model in models/README.md, measured on all 10,000 test images.

Invocation (numpy, onnx and onnxruntime; under a minute):

    apt install dataset-fashion-mnist
    python3 models/training/evaluate.py models/fashion.onnx

Prints the accuracy of every exit, then of serving with exit 1 and the cloud at several thresholds
and numbers of bits, and the calibration error of exit 1.
"""

import argparse

import numpy as np
import onnx.utils
import onnxruntime

import data

CUT = "/seg0/bott/Clip_output_0"
TEMPERATURE = 1.07


def run(model, inputs, outputs, values):
    """The outputs of a part of the model for all values."""
    part = onnx.utils.Extractor(model).extract_model([inputs], outputs)
    session = onnxruntime.InferenceSession(
        part.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    rows = range(0, len(values), 500)
    parts = [session.run(outputs, {inputs: values[row : row + 500]}) for row in rows]
    return [np.concatenate(part) for part in zip(*parts)]


def confidence(logits, temperature):
    """Probability of the best class."""
    powers = np.exp((logits - logits.max(1, keepdims=True)).astype(np.float64) / temperature)
    return 1 / powers.sum(1)


def quantised(activation, bits):
    """What arrives after crossing at these bits; None: as it is."""
    if bits is None:
        return activation
    step = np.float32(6) / np.float32(2**bits - 1)
    return (np.rint(np.clip(activation, 0, 6) / step) * step).astype(np.float32)


def calibration_error(sure, right, bins=15):
    """Mean distance of confidence and accuracy over bins of equal width."""
    error = 0.0
    for low in np.arange(bins) / bins:
        chosen = (sure > low) & (sure <= low + 1 / bins)
        if chosen.any():
            error += chosen.mean() * abs(right[chosen].mean() - sure[chosen].mean())
    return error


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--data", default=data.FOLDER)
    options = parser.parse_args()
    images, labels = data.read_set(options.data, "t10k")
    model = onnx.shape_inference.infer_shapes(onnx.load(options.model))
    exits = ["logits1", "logits2", "logits3"]
    *logits, activation = run(model, "image", [*exits, CUT], data.as_input(images))
    for name, rows in zip(exits, logits):
        print(f"{name}: {100 * (rows.argmax(1) == labels).mean():.2f} %")
    sure, early = confidence(logits[0], TEMPERATURE), logits[0].argmax(1)
    print(f"calibration error of exit 1: {100 * calibration_error(sure, early == labels):.2f} %")
    for bits in (None, 8, 4):
        (late,) = run(model, CUT, ["logits3"], quantised(activation, bits))
        late = late.argmax(1)
        wire = f"{bits} bit" if bits else "fp32"
        print(f"all in the cloud, {wire}: {100 * (late == labels).mean():.2f} %")
        for threshold in (0.785, 0.709):
            edge = sure >= threshold
            right = np.where(edge, early, late) == labels
            print(f"  threshold {threshold}: {100 * edge.mean():.1f} % at the edge,"
                  f" {100 * right.mean():.2f} % right")


if __name__ == "__main__":
    main()
