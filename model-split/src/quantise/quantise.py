"""Makes a model of 8-bit integers (static QDQ) of an ONNX model, with ONNX Runtime's own tools.

Invocation: python -I quantise.py FOLDER. Reads from the folder `model.onnx`, `samples.npz` (arrays
named "<sample>.<number of the input>") and `request.json`:

    {"inputs": [names], "samples": count, "method": "minmax", "reduce_range": false}

Writes `quantised.onnx` and `result.json` beside them. Every calibration sample is a line
"sample <number>" on standard output, so that whoever started this can show how far it is.
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnx
from onnxruntime.quantization import (
    CalibrationDataReader,
    CalibrationMethod,
    QuantFormat,
    QuantType,
    quant_pre_process,
    quantize_static,
)

# Scales of a weight per channel need DequantizeLinear with an axis.
PER_CHANNEL_OPSET = 13


class Samples(CalibrationDataReader):
    """The samples one after the other, each read when it is asked for."""

    def __init__(self, path, inputs, count):
        self.file = np.load(path, allow_pickle=False)
        self.inputs, self.count, self.next = inputs, count, 0

    def get_next(self):
        if self.next == self.count:
            return None
        sample, self.next = self.next, self.next + 1
        print("sample", self.next, flush=True)
        return {name: self.file[f"{sample}.{index}"] for index, name in enumerate(self.inputs)}


def domains(graph):
    """The domains of all operators of a graph and of the graphs inside of it; ONNX's own always."""
    found = {""}
    for node in graph.node:
        found.add("" if node.domain == "ai.onnx" else node.domain)
        for attribute in node.attribute:
            for inner in [attribute.g, *attribute.graphs]:
                if inner.node:
                    found |= domains(inner)
    return found


def main(folder):
    request = json.loads((folder / "request.json").read_text())
    source, prepared, out = (folder / name for name in ("model.onnx", "prepared.onnx", "quantised.onnx"))
    try:
        # Folds batch norms and infers shapes; a model that it cannot take is quantised as it is.
        quant_pre_process(source, prepared, skip_symbolic_shape=True)
    except Exception as error:  # noqa: BLE001
        print("not prepared:", error, file=sys.stderr)
        prepared = source
    imports = {found.domain: found.version for found in onnx.load(prepared, load_external_data=False).opset_import}
    per_channel = imports.get("", 0) >= PER_CHANNEL_OPSET
    method = {
        "minmax": CalibrationMethod.MinMax,
        "percentile": CalibrationMethod.Percentile,
        "entropy": CalibrationMethod.Entropy,
    }[request["method"]]
    quantize_static(
        prepared,
        out,
        Samples(folder / "samples.npz", request["inputs"], request["samples"]),
        quant_format=QuantFormat.QDQ,
        per_channel=per_channel,
        reduce_range=request["reduce_range"],
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        calibrate_method=method,
    )
    model = onnx.load(out)
    # The tools import every domain that they know of; a runtime that lacks one would refuse.
    used = domains(model.graph) | {function.domain for function in model.functions}
    kept = [found for found in model.opset_import if found.domain in used]
    del model.opset_import[:]
    model.opset_import.extend(kept)
    onnx.save(model, out)
    kinds = [node.op_type for node in model.graph.node]
    result = {"per_channel": per_channel, "quantised": kinds.count("QuantizeLinear")}
    (folder / "result.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
