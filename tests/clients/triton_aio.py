"""tritonclient's asyncio clients, over HTTP (aiohttp) and gRPC.

python triton_aio.py --node HOST:PORT --router HOST:PORT
"""

import asyncio

import numpy as np
import tritonclient.grpc as grpc_kinds
import tritonclient.grpc.aio as grpc_client
import tritonclient.http as http_kinds
import tritonclient.http.aio as http_client
from tritonclient.utils import InferenceServerException

import checks
import tensors
from checks import check, equal, holds, refused, same

KIND = InferenceServerException


def status(*wanted):
    return wanted, lambda error: error.status()


def simple_inputs(kinds):
    left, right, _, _ = tensors.rows()
    return [
        kinds.InferInput(name, [2, 16], "INT32").set_data_from_numpy(values)
        for name, values in (("INPUT0", left), ("INPUT1", right))
    ]


def right(result):
    _, _, total, difference = tensors.rows()
    equal(result.as_numpy("OUTPUT0"), total, "OUTPUT0")
    equal(result.as_numpy("OUTPUT1"), difference, "OUTPUT1")


async def asked(server, kinds, not_found):
    """What both clients have in common."""
    holds(await server.is_server_live(), "live")
    holds(await server.is_server_ready(), "ready")
    holds(await server.is_model_ready("simple"), "model ready")
    results = await asyncio.gather(
        *(server.infer("simple", simple_inputs(kinds), request_id=str(i)) for i in range(40))
    )
    for i, result in enumerate(results):
        right(result)
        told = result.get_response()
        same(told["id"] if isinstance(told, dict) else told.id, str(i), "id")
    with refused(KIND, status(not_found), ["Request for unknown model"]):
        await server.infer("nope", simple_inputs(kinds))
    right(await server.infer("simple", simple_inputs(kinds)))


@check("http: health, infer many at once, unknown model")
async def _(address):
    async with http_client.InferenceServerClient(address) as server:
        await asked(server, http_kinds, "404")


@check("http: metadata, configuration, statistics, index")
async def _(address):
    async with http_client.InferenceServerClient(address) as server:
        holds((await server.get_server_metadata())["extensions"], "extensions")
        same((await server.get_model_metadata("simple"))["platform"], "onnx_onnxv1", "platform")
        same((await server.get_model_config("simple"))["name"], "simple", "configuration")
        told = await server.get_inference_statistics("simple")
        same([entry["name"] for entry in told["model_stats"]], ["simple"], "statistics")
        names = {entry["name"] for entry in await server.get_model_repository_index()}
        holds("simple" in names, "index")
        same(await server.get_system_shared_memory_status(), [], "system regions")


@check("http: gzip and deflate, either way")
async def _(address):
    ways = (None, "gzip", "deflate")
    async with http_client.InferenceServerClient(address) as server:
        for sent in ways:
            for wanted in ways:
                right(
                    await server.infer(
                        "simple",
                        simple_inputs(http_kinds),
                        request_compression_algorithm=sent,
                        response_compression_algorithm=wanted,
                    )
                )


@check("http: a client that gives up, and one that stays")
async def _(address):
    steps = http_kinds.InferInput("INPUT0", [1], "INT64")
    steps.set_data_from_numpy(np.array([2_000_000]))
    async with http_client.InferenceServerClient(address) as server:
        with refused(TimeoutError):
            async with asyncio.timeout(0.2):
                await server.infer("slow", [steps])
        right(await server.infer("simple", simple_inputs(http_kinds)))


@check("grpc: health, infer many at once, unknown model")
async def _(address):
    async with grpc_client.InferenceServerClient(address) as server:
        await asked(server, grpc_kinds, "StatusCode.NOT_FOUND")


@check("grpc: metadata, configuration, statistics, index, compression")
async def _(address):
    async with grpc_client.InferenceServerClient(address) as server:
        holds((await server.get_server_metadata()).extensions, "extensions")
        same((await server.get_model_metadata("simple")).platform, "onnx_onnxv1", "platform")
        same((await server.get_model_config("simple")).config.name, "simple", "configuration")
        told = await server.get_inference_statistics("simple")
        same([entry.name for entry in told.model_stats], ["simple"], "statistics")
        index = await server.get_model_repository_index()
        holds("simple" in {model.name for model in index.models}, "index")
        inputs = simple_inputs(grpc_kinds)
        right(await server.infer("simple", inputs, compression_algorithm="gzip"))


@check("grpc: a stream: good, bad, good")
async def _(address):
    async def requests():
        for model, identifier in (("simple", "1"), ("identity_fp32", "2"), ("simple", "3")):
            yield {
                "model_name": model,
                "inputs": simple_inputs(grpc_kinds),
                "request_id": identifier,
            }

    seen = []
    async with grpc_client.InferenceServerClient(address) as server:
        async for result, error in server.stream_infer(requests(), stream_timeout=30):
            seen.append("error" if error else result.get_response().id)
            if not error:
                right(result)
    same(seen, ["1", "error", "3"], "answers")


@check("grpc: a stream that the client leaves")
async def _(address):
    async def requests():
        yield {"model_name": "simple", "inputs": simple_inputs(grpc_kinds)}
        await asyncio.sleep(3600)

    async with grpc_client.InferenceServerClient(address) as server:
        stream = server.stream_infer(requests(), stream_timeout=30)
        result, error = await anext(aiter(stream))
        same(error, None, "error")
        right(result)
        stream.cancel()
        right(await server.infer("simple", simple_inputs(grpc_kinds)))


if __name__ == "__main__":
    checks.run(checks.parser(__doc__.splitlines()[0]).parse_args())
