"""The clients generated from the protocol's own documents: open-inference-openapi and -grpc.

    python open_inference_clients.py --node HOST:PORT --router HOST:PORT

The first sends every number as a float, also to INT32 inputs, and takes paths with and without a
version. The second sends typed contents.
"""

import grpc
import numpy as np
from open_inference.grpc import protocol as messages
from open_inference.grpc.service import GRPCInferenceServiceStub
from open_inference.openapi.client import AsyncOpenInferenceClient, OpenInferenceClient
from open_inference.openapi.core.api_error import ApiError
from open_inference.openapi.errors.bad_request_error import BadRequestError
from open_inference.openapi.errors.not_found_error import NotFoundError
from open_inference.openapi.types.inference_request import InferenceRequest
from open_inference.openapi.types.request_input import RequestInput
from open_inference.openapi.types.request_output import RequestOutput

import checks
import tensors
from checks import check, refused, same


def client(address):
    return OpenInferenceClient(base_url=f"http://{address}", timeout=30)


def flat(name, datatype, array):
    data = array.reshape(-1).tolist()
    return RequestInput(name=name, shape=list(array.shape), datatype=datatype, data=data)


def simple(**more):
    left, right, _, _ = tensors.rows()
    inputs = [flat("INPUT0", "INT32", left), flat("INPUT1", "INT32", right)]
    return InferenceRequest(inputs=inputs, **more)


def nested(data):
    """A list of values or of lists, out of the client's own wrapper."""
    return [nested(one) if hasattr(one, "__root__") else one for one in data.__root__]


def right(answer):
    _, _, total, difference = tensors.rows()
    same((answer.model_name, answer.model_version), ("simple", "1"), "model")
    for output, wanted in zip(answer.outputs, (total, difference), strict=True):
        same((output.datatype, output.shape), ("INT32", [2, 16]), output.name)
        same(
            np.array(nested(output.data)).astype(int).reshape(-1).tolist(),
            wanted.reshape(-1).tolist(),
            output.name,
        )


@check("rest: it sends integers as floats")
def _(_address):
    text = simple().inputs[0].json()
    assert "1.0" in text, text


@check("rest: health")
def _(address):
    client(address).check_server_liveness()
    client(address).check_server_readiness()
    client(address).check_model_readiness("simple")
    client(address).check_model_version_readiness("simple", "1")


@check("rest: metadata")
def _(address):
    told = client(address).read_server_metadata()
    assert told.name and told.version and "binary_tensor_data" in told.extensions, told
    for told in (
        client(address).read_model_metadata("simple"),
        client(address).read_model_version_metadata("simple", "1"),
    ):
        same((told.name, told.versions, told.platform), ("simple", ["1"], "onnx_onnxv1"), "model")
        same(
            [(t.name, t.shape) for t in told.inputs],
            [("INPUT0", [-1, 16]), ("INPUT1", [-1, 16])],
            "inputs",
        )


@check("rest: infer, with and without a version, an id, one output of two")
def _(address):
    answer = client(address).model_infer("simple", request=simple(id="42"))
    right(answer)
    same(answer.id, "42", "id")
    right(client(address).model_version_infer("simple", "1", request=simple()))
    only = client(address).model_infer(
        "simple", request=simple(outputs=[RequestOutput(name="OUTPUT1")])
    )
    same([output.name for output in only.outputs], ["OUTPUT1"], "outputs")


@check("rest: nested data, texts and booleans")
def _(address):
    left, other, _, _ = tensors.rows()
    inputs = [
        RequestInput(name=name, shape=[2, 16], datatype="INT32", data=array.tolist())
        for name, array in (("INPUT0", left), ("INPUT1", other))
    ]
    right(client(address).model_infer("simple", request=InferenceRequest(inputs=inputs)))
    texts = RequestInput(name="INPUT0", shape=[1, 2], datatype="BYTES", data=["aé", ""])
    answer = client(address).model_infer(
        "simple_identity", request=InferenceRequest(inputs=[texts])
    )
    same(nested(answer.outputs[0].data), ["aé", ""], "texts")


@check("rest: refusals arrive as the errors that the document names")
def _(address):
    server = client(address)
    for ask in (
        lambda: server.check_model_readiness("nope"),
        lambda: server.check_model_version_readiness("simple", "999"),
    ):
        with refused(NotFoundError, ([404], lambda error: error.status_code), ["error"]):
            ask()
    for ask in (
        lambda: server.read_model_metadata("nope"),
        lambda: server.model_infer("nope", request=simple()),
    ):
        with refused(
            ApiError, ([404], lambda error: error.status_code), ["Request for unknown model"]
        ):
            ask()
    half = InferenceRequest(inputs=simple().inputs[:1])
    with refused(BadRequestError, ([400], lambda error: error.status_code), ["INPUT1"]):
        server.model_infer("simple", request=half)
    fraction = [RequestInput(name="INPUT0", shape=[1], datatype="INT32", data=[1.5])]
    with refused(BadRequestError, ([400], lambda error: error.status_code), ["1.5"]):
        server.model_infer("identity_int32", request=InferenceRequest(inputs=fraction))


@check("rest: its asynchronous twin")
async def _(address):
    server = AsyncOpenInferenceClient(base_url=f"http://{address}", timeout=30)
    await server.check_server_readiness()
    right(await server.model_infer("simple", request=simple()))


@check("grpc: health, metadata, typed contents, a refusal")
def _(address):
    left, other, total, difference = tensors.rows()
    inputs = [
        {
            "name": name,
            "datatype": "INT32",
            "shape": [2, 16],
            "contents": {"int_contents": array.reshape(-1).tolist()},
        }
        for name, array in (("INPUT0", left), ("INPUT1", other))
    ]
    with grpc.insecure_channel(address) as channel:
        server = GRPCInferenceServiceStub(channel)
        same(server.ServerLive(messages.ServerLiveRequest(), timeout=30).live, True, "live")
        same(server.ServerReady(messages.ServerReadyRequest(), timeout=30).ready, True, "ready")
        named = messages.ModelReadyRequest(name="simple")
        same(server.ModelReady(named, timeout=30).ready, True, "model ready")
        told = server.ModelMetadata(messages.ModelMetadataRequest(name="simple"), timeout=30)
        same((told.platform, list(told.versions)), ("onnx_onnxv1", ["1"]), "metadata")
        request = messages.ModelInferRequest(model_name="simple", id="42", inputs=inputs)
        answer = server.ModelInfer(request, timeout=30)
        same(answer.id, "42", "id")
        for place, wanted in enumerate((total, difference)):
            # Either form of an answer is the protocol's.
            values = list(answer.outputs[place].contents.int_contents)
            if answer.raw_output_contents:
                values = np.frombuffer(answer.raw_output_contents[place], np.int32).tolist()
            same(values, wanted.reshape(-1).tolist(), answer.outputs[place].name)
        unknown = messages.ModelInferRequest(model_name="nope", inputs=inputs)
        not_found = (["NOT_FOUND"], lambda error: error.code().name)
        with refused(grpc.RpcError, not_found, ["Request for unknown model"]):
            server.ModelInfer(unknown, timeout=30)


if __name__ == "__main__":
    checks.run(checks.parser(__doc__.splitlines()[0]).parse_args())
