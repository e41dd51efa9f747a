"""KServe's inference clients, REST and gRPC.

    python kserve_sdk.py --node HOST:PORT --router HOST:PORT

`import kserve` loads KServe's server too, with Kubernetes and a web server. The clients need none
of that, so the package's own opening is passed over; its modules are as they are published.
"""

import importlib.util
import logging
import sys
import types


def _without_the_server():
    spec = importlib.util.find_spec("kserve")
    package = types.ModuleType("kserve")
    package.__path__ = list(spec.submodule_search_locations)
    sys.modules["kserve"] = package


_without_the_server()

import grpc  # noqa: E402
import httpx  # noqa: E402
import numpy as np  # noqa: E402
from kserve.inference_client import (  # noqa: E402
    InferenceGRPCClient,
    InferenceRESTClient,
    RESTConfig,
)
from kserve.protocol.infer_type import InferInput, InferRequest, RequestedOutput  # noqa: E402

import checks  # noqa: E402
import tensors  # noqa: E402
from checks import check, equal, holds, refused, same  # noqa: E402

# It logs every refusal with its trace before raising it.
logging.getLogger("kserve.trace").setLevel(logging.CRITICAL)


def http_status(*wanted):
    return wanted, lambda error: error.response.status_code


def grpc_status(*wanted):
    return wanted, lambda error: error.code().name


def rest():
    return InferenceRESTClient(RESTConfig(protocol="v2", timeout=30))


def base(address):
    return f"http://{address}"


def tensor(name, array, datatype, binary=True):
    made = InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array, binary_data=binary)
    return made


def simple(binary=True, **more):
    left, right, _, _ = tensors.rows()
    inputs = [tensor("INPUT0", left, "INT32", binary), tensor("INPUT1", right, "INT32", binary)]
    return InferRequest("simple", inputs, **more)


def right(answer):
    _, _, total, difference = tensors.rows()
    named = {output.name: output for output in answer.outputs}
    equal(named["OUTPUT0"].as_numpy(), total, "OUTPUT0")
    equal(named["OUTPUT1"].as_numpy(), difference, "OUTPUT1")


@check("rest: live, ready, model ready")
async def _(address):
    client = rest()
    same(await client.is_server_live(base(address)), True, "live")
    same(await client.is_server_ready(base(address)), True, "ready")
    same(await client.is_model_ready(base(address), "simple"), True, "model ready")
    same(await client.is_model_ready(base(address), "nope"), False, "unknown model ready")
    await client.close()


@check("rest: infer, binary and JSON, in and out")
async def _(address):
    client = rest()
    for binary in (True, False):
        for wanted in (None, True, False):
            outputs = wanted is not None and [
                RequestedOutput(f"OUTPUT{i}", {"binary_data": wanted}) for i in (0, 1)
            ]
            seen = {}
            answer = await client.infer(
                base(address),
                simple(binary, request_id="42", request_outputs=outputs or None),
                model_name="simple",
                response_headers=seen,
            )
            right(answer)
            same((answer.id, answer.model_name), ("42", "simple"), "names")
            holds(bool(wanted) == ("inference-header-content-length" in seen), "binary as asked")
    parameters = {"binary_data_output": True}
    right(await client.infer(base(address), simple(parameters=parameters), model_name="simple"))
    await client.close()


@check("rest: every datatype, binary and JSON, and texts")
async def _(address):
    client = rest()
    cases = [(*case, True) for case in tensors.raw()] + [(*case, False) for case in tensors.plain()]
    texts = np.array([["aé\u2028".encode(), b""]], dtype=object)
    cases += [("simple_identity", "BYTES", texts, binary) for binary in (True, False)]
    for model, datatype, values, binary in cases:
        asked = [RequestedOutput("OUTPUT0", {"binary_data": binary})]
        request = InferRequest(
            model, [tensor("INPUT0", values, datatype, binary)], request_outputs=asked
        )
        answer = await client.infer(base(address), request, model_name=model)
        got = answer.outputs[0].as_numpy()
        if datatype == "BYTES":
            got = np.vectorize(
                lambda t: t if isinstance(t, bytes) else t.encode(), otypes=[object]
            )(got)
        if binary and datatype.startswith("FP"):
            # This client turns what it read into JSON numbers and back; a NaN keeps no bits.
            np.testing.assert_array_equal(got, values)
        else:
            equal(got, values, f"{model}, binary={binary}")
    await client.close()


@check("rest: refusals name what is wrong")
async def _(address):
    client = rest()
    with refused(httpx.HTTPStatusError, http_status(404), ["Request for unknown model"]):
        await client.infer(base(address), simple(), model_name="nope")
    short = InferRequest("simple", [tensor("INPUT0", np.zeros((1, 15), np.int32), "INT32")])
    with refused(httpx.HTTPStatusError, http_status(400), ["INPUT0"]):
        await client.infer(base(address), short, model_name="simple")
    right(await client.infer(base(address), simple(), model_name="simple"))
    await client.close()


@check("grpc: live, ready, model ready")
async def _(address):
    async with InferenceGRPCClient(address) as client:
        same(await client.is_server_live(), True, "live")
        same(await client.is_server_ready(), True, "ready")
        same(await client.is_model_ready("simple"), True, "model ready")
        with refused(grpc.RpcError, grpc_status("NOT_FOUND")):
            await client.is_model_ready("nope")


@check("grpc: infer, raw and typed contents, and texts")
async def _(address):
    async with InferenceGRPCClient(address) as client:
        for binary in (True, False):
            answer = await client.infer(
                simple(binary, request_id="42"), headers=(("x-request-id", "7"),)
            )
            right(answer)
            same((answer.id, answer.model_name), ("42", "simple"), "names")
            texts = np.array([[b"a", b""]], dtype=object)
            request = InferRequest("simple_identity", [tensor("INPUT0", texts, "BYTES", binary)])
            got = (await client.infer(request)).outputs[0].as_numpy()
            same([bytes(text) for text in got.reshape(-1)], [b"a", b""], f"texts, raw={binary}")
        for model, datatype, values in tensors.plain():
            request = InferRequest(model, [tensor("INPUT0", values, datatype, False)])
            equal((await client.infer(request)).outputs[0].as_numpy(), values, model)


@check("grpc: refusals, and a time limit")
async def _(address):
    async with InferenceGRPCClient(address) as client:
        unknown = simple()
        unknown.model_name = "nope"
        with refused(grpc.RpcError, grpc_status("NOT_FOUND"), ["Request for unknown model"]):
            await client.infer(unknown)
        short = InferRequest("simple", [tensor("INPUT0", np.zeros((1, 15), np.int32), "INT32")])
        with refused(grpc.RpcError, grpc_status("INVALID_ARGUMENT"), ["INPUT0"]):
            await client.infer(short)
        slow = InferRequest("slow", [tensor("INPUT0", np.array([2_000_000]), "INT64")])
        with refused(grpc.RpcError, grpc_status("DEADLINE_EXCEEDED")):
            await client.infer(slow, timeout=0.2)
        right(await client.infer(simple()))


if __name__ == "__main__":
    checks.run(checks.parser(__doc__.splitlines()[0]).parse_args())
