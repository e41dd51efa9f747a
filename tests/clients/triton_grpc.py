"""tritonclient over gRPC, as its users call it, and its generated stubs for what it hides.

python triton_grpc.py --node HOST:PORT --router HOST:PORT
"""

import queue
import time

import grpc
import numpy as np
import tritonclient.grpc as triton
from tritonclient.grpc import service_pb2 as messages
from tritonclient.grpc import service_pb2_grpc as stubs
from tritonclient.utils import InferenceServerException

import checks
import tensors
from checks import check, equal, holds, refused, same

KIND = InferenceServerException
PATIENCE = 30


def status(*wanted):
    return [f"StatusCode.{name}" for name in wanted], lambda error: error.status()


def code(*wanted):
    return wanted, lambda error: error.code().name


def client(address, **options):
    return triton.InferenceServerClient(address, **options)


def tensor(name, array, datatype):
    return triton.InferInput(name, list(array.shape), datatype).set_data_from_numpy(array)


def simple_inputs():
    left, right, _, _ = tensors.rows()
    return [tensor("INPUT0", left, "INT32"), tensor("INPUT1", right, "INT32")]


def right(result):
    _, _, total, difference = tensors.rows()
    equal(result.as_numpy("OUTPUT0"), total, "OUTPUT0")
    equal(result.as_numpy("OUTPUT1"), difference, "OUTPUT1")


def counting(steps):
    return [tensor("INPUT0", np.array([steps], np.int64), "INT64")]


class Answers:
    """What a callback was called with, in order."""

    def __init__(self):
        self.given = queue.Queue()

    def __call__(self, result, error):
        self.given.put((result, error))

    def next(self):
        return self.given.get(timeout=PATIENCE)


@check("health of server, model, version; grpc.health.v1")
def _(address):
    with client(address) as server:
        holds(server.is_server_live(), "live")
        holds(server.is_server_ready(), "ready")
        holds(server.is_model_ready("simple"), "model ready")
        holds(server.is_model_ready("simple", "1"), "version ready")
    # CheckRequest without a service, CheckResponse with status SERVING.
    with grpc.insecure_channel(address) as channel:
        health = channel.unary_unary("/grpc.health.v1.Health/Check")
        same(health(b"", timeout=PATIENCE), b"\x08\x01", "Check")


@check("metadata and configuration")
def _(address):
    with client(address) as server:
        told = server.get_server_metadata()
        holds(told.name and told.version, "name and version")
        holds("binary_tensor_data" in told.extensions, "extensions")
        told = server.get_model_metadata("simple", "1", as_json=True)
        of = {"datatype": "INT32", "shape": ["-1", "16"]}
        same(
            (told["name"], told["platform"], told["versions"]),
            ("simple", "onnx_onnxv1", ["1"]),
            "model",
        )
        same(told["inputs"], [{"name": f"INPUT{i}"} | of for i in (0, 1)], "inputs")
        same(told["outputs"], [{"name": f"OUTPUT{i}"} | of for i in (0, 1)], "outputs")
        same(server.get_model_config("simple").config.name, "simple", "configuration")


@check("an unknown model or version: NOT_FOUND")
def _(address):
    with client(address) as server:
        for ask in (
            lambda: server.is_model_ready("nope"),
            lambda: server.is_model_ready("simple", "999"),
            lambda: server.get_model_metadata("nope"),
            lambda: server.get_model_config("nope"),
            lambda: server.get_inference_statistics("nope"),
            lambda: server.infer("nope", simple_inputs()),
            lambda: server.infer("simple", simple_inputs(), model_version="999"),
        ):
            with refused(KIND, status("NOT_FOUND"), ["Request for unknown model"]):
                ask()


@check("statistics")
def _(address):
    with client(address) as server:
        server.infer("simple", simple_inputs())

        def counted():
            [entry] = server.get_inference_statistics("simple").model_stats
            return entry.inference_count, entry.inference_stats.success.count

        rows, requests = counted()
        server.infer("simple", simple_inputs())
        after = counted()
        same((after[0] - rows, after[1] - requests), (2, 1), "rows and requests more")
        names = {entry.name for entry in server.get_inference_statistics().model_stats}
        holds({"simple", "blob"} <= names, "all models")


@check("repository: index, unload, load")
def _(address):
    values = np.array([1.5], np.float32)

    def state(server):
        return {m.name: m.state for m in server.get_model_repository_index().models}

    with client(address) as server:
        same(state(server)["simple"], "READY", "state")
        checks.until(lambda: server.is_model_ready("spare"), "spare is ready")
        try:
            server.unload_model("spare")
            holds(not server.is_model_ready("spare"), "no longer ready")
            same(state(server)["spare"], "UNAVAILABLE", "state")
            with refused(KIND, status("UNAVAILABLE")):
                server.infer("spare", [tensor("INPUT0", values, "FP32")])
        finally:
            server.load_model("spare")
        checks.until(lambda: server.is_model_ready("spare"), "ready again")
        result = server.infer("spare", [tensor("INPUT0", values, "FP32")])
        equal(result.as_numpy("OUTPUT0"), values, "OUTPUT0")


@check("shared memory, trace and log settings")
def _(address):
    with client(address) as server:
        same(len(server.get_system_shared_memory_status().regions), 0, "system regions")
        same(len(server.get_cuda_shared_memory_status().regions), 0, "cuda regions")
        for act in (
            lambda: server.register_system_shared_memory("region", "/key", 64),
            server.get_trace_settings,
            server.get_log_settings,
            lambda: server.update_log_settings({"log_verbose_level": 1}),
        ):
            with refused(KIND, status("UNIMPLEMENTED")):
                act()


@check("infer: id, version, one output of two")
def _(address):
    with client(address) as server:
        result = server.infer("simple", simple_inputs(), request_id="42", model_version="1")
        right(result)
        told = result.get_response()
        same((told.id, told.model_name, told.model_version), ("42", "simple", "1"), "names")
        asked = [triton.InferRequestedOutput("OUTPUT1")]
        told = server.infer("simple", simple_inputs(), outputs=asked).get_response()
        same([output.name for output in told.outputs], ["OUTPUT1"], "outputs")


@check("every datatype, bit for bit")
def _(address):
    with client(address) as server:
        for model, datatype, values in tensors.raw():
            result = server.infer(model, [tensor("INPUT0", values, datatype)])
            equal(result.as_numpy("OUTPUT0"), values, model)


@check("texts, no rows, and a message of 20 MB")
def _(address):
    with client(address) as server:
        texts = np.array([["aé\u2028".encode(), b""]], dtype=object)
        result = server.infer("simple_identity", [tensor("INPUT0", texts, "BYTES")])
        equal(result.as_numpy("OUTPUT0"), texts, "texts")
        none = np.zeros((0,), np.float32)
        result = server.infer("identity_fp32", [tensor("INPUT0", none, "FP32")])
        equal(result.as_numpy("OUTPUT0"), none, "no rows")
        large = np.arange(20 << 20, dtype=np.uint32).astype(np.uint8).reshape(20, -1)
        result = server.infer("blob", [tensor("INPUT0", large, "UINT8")])
        equal(result.as_numpy("OUTPUT0"), large, "20 MB")


FIELDS = {
    "BOOL": "bool_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
}


def typed(model, datatype, shape, **contents):
    request = messages.ModelInferRequest(model_name=model)
    told = request.inputs.add(name="INPUT0", datatype=datatype, shape=shape)
    told.contents.CopyFrom(messages.InferTensorContents(**contents))
    return request


@check("typed contents of every datatype")
def _(address):
    with grpc.insecure_channel(address) as channel:
        stub = stubs.GRPCInferenceServiceStub(channel)
        for model, datatype, values in tensors.plain():
            request = typed(model, datatype, values.shape, **{FIELDS[datatype]: values.tolist()})
            result = triton.InferResult(stub.ModelInfer(request, timeout=PATIENCE))
            equal(result.as_numpy("OUTPUT0"), values, model)
        request = typed("simple_identity", "BYTES", [1, 2], bytes_contents=[b"a", b""])
        result = triton.InferResult(stub.ModelInfer(request, timeout=PATIENCE))
        texts = [
            t.encode() if isinstance(t, str) else t for t in result.as_numpy("OUTPUT0").reshape(-1)
        ]
        same(texts, [b"a", b""], "texts")


@check("a malformed message: INVALID_ARGUMENT")
def _(address):
    both = typed("identity_fp32", "FP32", [1], fp32_contents=[1])
    both.raw_input_contents.append(bytes(4))
    more = typed("identity_fp32", "FP32", [1])
    more.inputs[0].ClearField("contents")
    more.raw_input_contents.extend([bytes(4), bytes(4)])
    short = typed("identity_fp32", "FP32", [2])
    short.inputs[0].ClearField("contents")
    short.raw_input_contents.append(bytes(4))
    nothing = messages.ModelInferRequest(model_name="identity_fp32")
    with grpc.insecure_channel(address) as channel:
        stub = stubs.GRPCInferenceServiceStub(channel)
        for what, request in {
            "raw and typed": both,
            "more raw than inputs": more,
            "raw too short": short,
            "no inputs": nothing,
            "typed too short": typed("identity_fp32", "FP32", [2], fp32_contents=[1]),
            "another type's field": typed("identity_fp32", "FP32", [1], int_contents=[1]),
            "out of range": typed("identity_int8", "INT8", [1], int_contents=[300]),
            "typed half floats": typed("identity_fp16", "FP16", [1], fp32_contents=[1]),
            "negative dimension": typed("identity_fp32", "FP32", [-1], fp32_contents=[1]),
            "unknown datatype": typed("identity_fp32", "FLOAT", [1], fp32_contents=[1]),
        }.items():
            try:
                stub.ModelInfer(request, timeout=PATIENCE)
            except grpc.RpcError as error:
                same(error.code().name, "INVALID_ARGUMENT", what)
                holds(error.details(), f"{what}: a reason")
            else:
                raise checks.Wrong(f"{what}: accepted")


@check("compression of messages")
def _(address):
    with client(address) as server:
        right(server.infer("simple", simple_inputs(), compression_algorithm="gzip"))
        large = np.zeros((4, 1 << 20), np.uint8)
        given = [tensor("INPUT0", large, "UINT8")]
        result = server.infer("blob", given, compression_algorithm="gzip")
        equal(result.as_numpy("OUTPUT0"), large, "4 MB")
        # A server need not know deflate, but must say so as gRPC has it.
        try:
            right(server.infer("simple", simple_inputs(), compression_algorithm="deflate"))
        except KIND as error:
            same(error.status(), "StatusCode.UNIMPLEMENTED", "deflate")


@check("async_infer, many at once, and one that is cancelled")
def _(address):
    with client(address) as server:
        answers = Answers()
        for i in range(40):
            server.async_infer("simple", simple_inputs(), answers, request_id=str(i))
        seen = set()
        for _ in range(40):
            result, error = answers.next()
            same(error, None, "error")
            right(result)
            seen.add(result.get_response().id)
        same(len(seen), 40, "ids")
        server.async_infer("nope", simple_inputs(), answers)
        same(answers.next()[1].status(), "StatusCode.NOT_FOUND", "unknown model")
        call = server.async_infer("slow", counting(2_000_000), answers)
        call.cancel()
        same(answers.next()[1].status(), "StatusCode.CANCELLED", "cancelled")
        right(server.infer("simple", simple_inputs()))


@check("time limits: the client's, and the request's own while the server is busy")
def _(address):
    with client(address) as server:
        with refused(KIND, status("DEADLINE_EXCEEDED")):
            server.infer("slow", counting(2_000_000), client_timeout=0.2)
        answers, late = Answers(), Answers()
        for _ in range(10):
            server.async_infer("slow", counting(300_000), answers)
        began = time.monotonic()
        server.async_infer("slow", counting(1), late, timeout=1)
        _, error = late.next()
        holds(error is not None, "refused")
        holds(error.status() in status("DEADLINE_EXCEEDED", "UNAVAILABLE")[0], str(error))
        holds(time.monotonic() - began < 5, "it ends soon")
        for _ in range(10):
            same(answers.next()[1], None, "error")


@check("classification")
def _(address):
    scores = np.array([[1, 5, 10, 4]], np.float32)
    with client(address) as server:
        asked = [triton.InferRequestedOutput("OUTPUT0", class_count=2)]
        result = server.infer("scores", [tensor("INPUT0", scores, "FP32")], outputs=asked)
        told = result.get_output("OUTPUT0")
        same((told.datatype, list(told.shape)), ("BYTES", [1, 2]), "output")
        texts = [text.decode().split(":") for text in result.as_numpy("OUTPUT0")[0]]
        same([(float(text[0]), int(text[1])) for text in texts], [(10, 2), (5, 1)], "classes")


@check("parameters, priority, sequence, headers")
def _(address):
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with client(address) as server:
        given = {"a": 1, "b": "x", "c": True}
        right(server.infer("simple", simple_inputs(), parameters=given))
        right(server.infer("simple", simple_inputs(), priority=1, timeout=9_000_000))
        right(server.infer("simple", simple_inputs(), sequence_id=7, sequence_start=True))
        for headers in ({"traceparent": parent}, {"x-request-id": "7"}):
            right(server.infer("simple", simple_inputs(), headers=headers))


@check("a stream: good, bad, good")
def _(address):
    with client(address) as server:
        answers = Answers()
        server.start_stream(answers)
        short = [tensor("INPUT0", np.zeros((1, 15), np.int32), "INT32"), simple_inputs()[1]]
        for identifier, inputs in (("1", simple_inputs()), ("2", short), ("3", simple_inputs())):
            server.async_stream_infer("simple", inputs, request_id=identifier)
        for identifier in ("1", "2", "3"):
            result, error = answers.next()
            if identifier == "2":
                holds(error is not None and "INPUT0" in str(error), f"refused: {error}")
                continue
            same(error, None, "error")
            right(result)
            told = result.get_response()
            same(told.id, identifier, "id")
            holds(told.parameters["triton_final_response"].bool_param, "the final answer")
        server.stop_stream()
        holds(answers.given.empty(), "no further answer")
        # The generated stub shows whose error it was.
    with grpc.insecure_channel(address) as channel:
        stub = stubs.GRPCInferenceServiceStub(channel)
        bad = messages.ModelInferRequest(model_name="simple", id="7")
        [answer] = stub.ModelStreamInfer(iter([bad]), timeout=PATIENCE)
        same((answer.infer_response.id, bool(answer.error_message)), ("7", True), "the bad one")


@check("a stream that ends with its first error, where the client asks for it")
def _(address):
    with client(address) as server:
        answers = Answers()
        server.start_stream(answers, headers={"triton_grpc_error": "true"})
        server.async_stream_infer("simple", simple_inputs())
        same(answers.next()[1], None, "error")
        server.async_stream_infer("simple", simple_inputs()[:1])
        same(answers.next()[1].status(), "StatusCode.INVALID_ARGUMENT", "status")
        server.stop_stream()


@check("a stream of 200, compressed")
def _(address):
    with client(address) as server:
        answers = Answers()
        server.start_stream(answers, compression_algorithm="gzip")
        for i in range(200):
            server.async_stream_infer("simple", simple_inputs(), request_id=str(i))
        for i in range(200):
            result, error = answers.next()
            same(error, None, "error")
            right(result)
            same(result.get_response().id, str(i), "id")
        server.stop_stream()


@check("a method that nobody offers: UNIMPLEMENTED")
def _(address):
    with grpc.insecure_channel(address) as channel:
        for method in ("/inference.GRPCInferenceService/Nope", "/nobody.Service/Nope"):
            with refused(grpc.RpcError, code("UNIMPLEMENTED")):
                channel.unary_unary(method)(b"", timeout=PATIENCE)


if __name__ == "__main__":
    checks.run(checks.parser(__doc__.splitlines()[0]).parse_args())
