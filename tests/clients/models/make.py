"""Makes the small ONNX files beside it: one node or two each, so that a right answer is plain.

Needs only `onnx` (1.23.2 made the committed files), which the clients themselves do not need:

    python3 -m venv /tmp/models-venv && /tmp/models-venv/bin/pip install onnx==1.23.2
    /tmp/models-venv/bin/python tests/clients/models/make.py
"""

from pathlib import Path

import onnx
from onnx import TensorProto, helper

FOLDER = Path(__file__).parent
TENSOR = helper.make_tensor_value_info
# Read by every ONNX Runtime since 1.14.
OPSET, IR = 18, 8

# Identity of one datatype: the elements must come back bit for bit.
IDENTITIES = {
    "bool": TensorProto.BOOL,
    "uint8": TensorProto.UINT8,
    "uint16": TensorProto.UINT16,
    "uint32": TensorProto.UINT32,
    "uint64": TensorProto.UINT64,
    "int8": TensorProto.INT8,
    "int16": TensorProto.INT16,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
    "fp16": TensorProto.FLOAT16,
    "bf16": TensorProto.BFLOAT16,
    "fp32": TensorProto.FLOAT,
    "fp64": TensorProto.DOUBLE,
}


def write(name, nodes, inputs, outputs, initializers=()):
    graph = helper.make_graph(nodes, name, inputs, outputs, list(initializers))
    opset = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=IR, producer_name="make.py")
    onnx.checker.check_model(model, full_check=True)
    (FOLDER / f"{name}.onnx").write_bytes(model.SerializeToString(deterministic=True))


def simple():
    """Sum and difference of two rows of 16 integers: names and shapes of Triton's examples."""
    shape = ["batch", 16]
    write(
        "simple",
        [
            helper.make_node("Add", ["INPUT0", "INPUT1"], ["OUTPUT0"]),
            helper.make_node("Sub", ["INPUT0", "INPUT1"], ["OUTPUT1"]),
        ],
        [TENSOR(f"INPUT{i}", TensorProto.INT32, shape) for i in (0, 1)],
        [TENSOR(f"OUTPUT{i}", TensorProto.INT32, shape) for i in (0, 1)],
    )


def simple_string():
    """The same on integers written as texts."""
    shape = ["batch", 16]
    cast = helper.make_node
    write(
        "simple_string",
        [
            cast("Cast", ["INPUT0"], ["left"], to=TensorProto.INT32),
            cast("Cast", ["INPUT1"], ["right"], to=TensorProto.INT32),
            helper.make_node("Add", ["left", "right"], ["sum"]),
            helper.make_node("Sub", ["left", "right"], ["difference"]),
            cast("Cast", ["sum"], ["OUTPUT0"], to=TensorProto.STRING),
            cast("Cast", ["difference"], ["OUTPUT1"], to=TensorProto.STRING),
        ],
        [TENSOR(f"INPUT{i}", TensorProto.STRING, shape) for i in (0, 1)],
        [TENSOR(f"OUTPUT{i}", TensorProto.STRING, shape) for i in (0, 1)],
    )


def identity(name, datatype, shape):
    write(
        name,
        [helper.make_node("Identity", ["INPUT0"], ["OUTPUT0"])],
        [TENSOR("INPUT0", datatype, shape)],
        [TENSOR("OUTPUT0", datatype, shape)],
    )


def slow():
    """Counts up one by one to INPUT0: a request that takes as long as the client wants."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["count_in", "step"], ["count_out"]),
            helper.make_node("Identity", ["go_in"], ["go_out"]),
        ],
        "count",
        [
            TENSOR("trip", TensorProto.INT64, []),
            TENSOR("go_in", TensorProto.BOOL, []),
            TENSOR("count_in", TensorProto.INT64, [1]),
        ],
        [TENSOR("go_out", TensorProto.BOOL, []), TENSOR("count_out", TensorProto.INT64, [1])],
    )
    write(
        "slow",
        [helper.make_node("Loop", ["INPUT0", "", "zero"], ["OUTPUT0"], body=body)],
        [TENSOR("INPUT0", TensorProto.INT64, [1])],
        [TENSOR("OUTPUT0", TensorProto.INT64, [1])],
        [
            helper.make_tensor("zero", TensorProto.INT64, [1], [0]),
            helper.make_tensor("step", TensorProto.INT64, [1], [1]),
        ],
    )


def main():
    simple()
    simple_string()
    slow()
    for name, datatype in IDENTITIES.items():
        identity(f"identity_{name}", datatype, ["batch"])
    # Two variable dimensions, as Triton's example of texts has it.
    identity("simple_identity", TensorProto.STRING, ["batch", "width"])
    # A row of class scores, for the classification extension.
    identity("scores", TensorProto.FLOAT, ["batch", 4])
    # Taken out of service and put back; no other check needs it.
    identity("spare", TensorProto.FLOAT, ["batch"])
    # Bound to no size at all: the largest bodies go here.
    identity("blob", TensorProto.UINT8, ["batch", "size"])


if __name__ == "__main__":
    main()
