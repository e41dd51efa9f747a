"""tritonclient over HTTP: inference, as its users call it.

python triton_http.py --node HOST:PORT --router HOST:PORT
"""

import http.client
import time

import numpy as np
import tritonclient.http as triton

import checks
import tensors
from checks import check, equal, holds, refused, same
from triton_requests import KIND, client, right, simple_inputs, simple_outputs, status, tensor


@check("binary in and out, JSON in and out, and both mixed")
def _(address):
    either = (True, False)
    with client(address) as server:
        for given in ((a, b) for a in either for b in either):
            right(server.infer("simple", simple_inputs(given)))
            for asked in ((a, b) for a in either for b in either):
                result = server.infer("simple", simple_inputs(given), outputs=simple_outputs(asked))
                right(result)
                for i in (0, 1):
                    told = result.get_output(f"OUTPUT{i}")
                    same("data" not in told, asked[i], f"OUTPUT{i} is binary")


@check("id, version, one output of two")
def _(address):
    with client(address) as server:
        for identifier in ("42", 'h"é\u2028'):
            result = server.infer("simple", simple_inputs(), request_id=identifier)
            same(result.get_response().get("id"), identifier, "id")
        told = server.infer("simple", simple_inputs(), model_version="1").get_response()
        same(told["model_version"], "1", "model_version")
        holds("id" not in told, "no id where none was sent")
        only = server.infer("simple", simple_inputs(), outputs=simple_outputs()[1:])
        same([o["name"] for o in only.get_response()["outputs"]], ["OUTPUT1"], "outputs")


@check("every datatype as binary data, bit for bit")
def _(address):
    with client(address) as server:
        for model, datatype, values in tensors.raw():
            result = server.infer(model, [tensor("INPUT0", values, datatype)])
            equal(result.as_numpy("OUTPUT0"), values, model)
        import ml_dtypes  # comes with tritonclient

        values = np.array([0.1, -2, 3e38], ml_dtypes.bfloat16)
        result = server.infer("identity_bf16", [tensor("INPUT0", values, "BF16")])
        equal(result.as_numpy("OUTPUT0"), values, "identity_bf16")


@check("every datatype that JSON can carry, as JSON")
def _(address):
    output = [triton.InferRequestedOutput("OUTPUT0", binary_data=False)]
    with client(address) as server:
        for model, datatype, values in tensors.plain():
            given = [tensor("INPUT0", values, datatype, False)]
            equal(server.infer(model, given, outputs=output).as_numpy("OUTPUT0"), values, model)


@check("NaN and infinity, written bare in JSON as this client does")
def _(address):
    values = np.array([np.nan, np.inf, -np.inf, 1], np.float32)
    output = [triton.InferRequestedOutput("OUTPUT0", binary_data=False)]
    with client(address) as server:
        given = [tensor("INPUT0", values, "FP32", False)]
        result = server.infer("identity_fp32", given, outputs=output)
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), values)


@check("texts; sums of integers written as texts")
def _(address):
    left, other, total, difference = (tensors.as_texts(rows) for rows in tensors.rows())
    with client(address) as server:
        for binary in (True, False):
            values = np.array([["aé\u2028".encode(), b""]], dtype=object)
            output = [triton.InferRequestedOutput("OUTPUT0", binary_data=binary)]
            given = [tensor("INPUT0", values, "BYTES", binary)]
            result = server.infer("simple_identity", given, outputs=output).as_numpy("OUTPUT0")
            texts = [t.encode() if isinstance(t, str) else t for t in result.reshape(-1)]
            same((result.shape, texts), ((1, 2), list(values[0])), f"binary={binary}")
            inputs = [
                tensor("INPUT0", left, "BYTES", binary),
                tensor("INPUT1", other, "BYTES", binary),
            ]
            result = server.infer("simple_string", inputs)
            equal(result.as_numpy("OUTPUT0"), total, "OUTPUT0")
            equal(result.as_numpy("OUTPUT1"), difference, "OUTPUT1")


@check("texts that hold a NUL, and texts that are none")
def _(address):
    with client(address) as server:
        values = np.array([[b"a\0b", b"\0"]], dtype=object)
        given = [tensor("INPUT0", values, "BYTES")]
        equal(server.infer("simple_identity", given).as_numpy("OUTPUT0"), values, "NUL")
        values = np.array([[b"\xff\x00\xfe", b"a"]], dtype=object)
        given = [tensor("INPUT0", values, "BYTES")]
        equal(server.infer("simple_identity", given).as_numpy("OUTPUT0"), values, "no UTF-8")
        output = [triton.InferRequestedOutput("OUTPUT0", binary_data=False)]
        with refused(KIND, status("400"), ["OUTPUT0", "binary_data"]):
            server.infer("simple_identity", given, outputs=output)


@check("no rows, and a tensor of 3 MB")
def _(address):
    with client(address) as server:
        for binary in (True, False):
            none = np.zeros((0,), np.float32)
            result = server.infer("identity_fp32", [tensor("INPUT0", none, "FP32", binary)])
            equal(result.as_numpy("OUTPUT0"), none, f"no rows, binary={binary}")
        large = np.arange(3 << 20, dtype=np.uint32).astype(np.uint8).reshape(3, -1)
        equal(
            server.infer("blob", [tensor("INPUT0", large, "UINT8")]).as_numpy("OUTPUT0"),
            large,
            "3 MB",
        )


@check("gzip and deflate, either way, binary and JSON")
def _(address):
    large = np.zeros((1, 1 << 16), np.uint8)
    ways = (None, "gzip", "deflate")
    with client(address) as server:
        for sent in ways:
            for wanted in ways:
                for binary in (True, False):
                    result = server.infer(
                        "blob",
                        [tensor("INPUT0", large, "UINT8", binary)],
                        outputs=[triton.InferRequestedOutput("OUTPUT0", binary_data=binary)],
                        request_compression_algorithm=sent,
                        response_compression_algorithm=wanted,
                    )
                    what = f"sent {sent}, wanted {wanted}, binary={binary}"
                    equal(result.as_numpy("OUTPUT0"), large, what)
                    same(server.last.get("Content-Encoding"), wanted, f"answer's coding, {what}")
        right(server.infer("simple", simple_inputs(), request_compression_algorithm="gzip"))


@check("an error answer, its body readable where compression was asked for")
def _(address):
    with client(address) as server:
        short = [tensor("INPUT0", np.zeros((2, 15), np.int32), "INT32"), simple_inputs()[1]]
        with refused(KIND, status("400"), ["INPUT0"]):
            server.infer("simple", short, request_compression_algorithm="deflate")
        right(server.infer("simple", simple_inputs()))


@check("async_infer, many at once")
def _(address):
    with client(address, concurrency=4) as server:
        flying = [
            server.async_infer("simple", simple_inputs(), request_id=str(i)) for i in range(40)
        ]
        for i, one in enumerate(flying):
            result = one.get_result()
            right(result)
            same(result.get_response()["id"], str(i), "id")
        broken = server.async_infer("nope", simple_inputs())
        with refused(KIND, status("404"), ["Request for unknown model"]):
            broken.get_result()


@check("classification: the best of a row, first")
def _(address):
    scores = np.array([[1, 5, 10, 4], [7, 0, -1, 2]], np.float32)
    with client(address) as server:
        for binary in (True, False):
            for count, wanted in (
                (1, [[2], [0]]),
                (2, [[2, 1], [0, 3]]),
                (9, [[2, 1, 3, 0], [0, 3, 1, 2]]),
            ):
                asked = triton.InferRequestedOutput(
                    "OUTPUT0", binary_data=binary, class_count=count
                )
                result = server.infer("scores", [tensor("INPUT0", scores, "FP32")], outputs=[asked])
                told = result.get_output("OUTPUT0")
                same((told["datatype"], told["shape"]), ("BYTES", [2, len(wanted[0])]), "output")
                texts = result.as_numpy("OUTPUT0")
                for row, indices in enumerate(wanted):
                    for text, index in zip(texts[row], indices, strict=True):
                        text = text.decode() if isinstance(text, bytes) else text
                        value, place = text.split(":")[:2]
                        same((float(value), int(place)), (scores[row][index], index), text)
        asked = [triton.InferRequestedOutput("OUTPUT0", class_count=1)]
        texts = [tensor("INPUT0", np.array([[b"a"]], dtype=object), "BYTES")]
        with refused(KIND, status("400"), ["OUTPUT0"]):
            server.infer("simple_identity", texts, outputs=asked)


@check("a client's mistakes are its own: 400, and what is wrong")
def _(address):
    rows = tensors.rows()
    floats = tensor("INPUT0", rows[0].astype(np.float32), "FP32")
    short = tensor("INPUT0", rows[0][:, :15].copy(), "INT32")
    good = simple_inputs()
    unknown = triton.InferRequestedOutput("OUTPUT7")
    with client(address) as server:
        for inputs, outputs, word in (
            ([floats, good[1]], None, "INPUT0"),
            ([short, good[1]], None, "INPUT0"),
            (good[:1], None, "INPUT1"),
            ([*good, tensor("INPUT2", rows[0], "INT32")], None, "INPUT2"),
            ([good[0], good[0], good[1]], None, "INPUT0"),
            (good, [unknown], "OUTPUT7"),
            (good, [simple_outputs()[0]] * 2, "OUTPUT0"),
        ):
            with refused(KIND, status("400"), [word]):
                server.infer("simple", inputs, outputs=outputs)
            right(server.infer("simple", good))


@check("parameters, priority, sequence, headers and a query")
def _(address):
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with client(address) as server:
        right(
            server.infer(
                "simple", simple_inputs(), parameters={"a": 1, "b": "x", "c": True, "d": 0.5}
            )
        )
        right(server.infer("simple", simple_inputs(), priority=1, timeout=9_000_000))
        sequence = {"sequence_id": 7, "sequence_start": True, "sequence_end": True}
        right(server.infer("simple", simple_inputs(), **sequence))
        for headers in ({"traceparent": parent}, {"traceparent": "no"}, {"x-request-id": "7"}):
            right(server.infer("simple", simple_inputs(), headers=headers, query_params={"q": 1}))


@check("time limits: the client's, and the request's own while the server is busy")
def _(address):
    def counting(steps):
        return [tensor("INPUT0", np.array([steps], np.int64), "INT64")]

    with client(address, network_timeout=0.2) as server:
        with refused(TimeoutError):
            server.infer("slow", counting(2_000_000))
    with client(address, concurrency=12) as server:
        busy = [server.async_infer("slow", counting(300_000)) for _ in range(10)]
        late = server.async_infer("slow", counting(1), timeout=1)
        began = time.monotonic()
        with refused(KIND, status("503", "504")):
            late.get_result()
        holds(time.monotonic() - began < 5, "it ends soon")
        for one in busy:
            same(int(one.get_result().as_numpy("OUTPUT0")[0]), 300_000, "count")


@check("a body made and an answer read by the client's own helpers")
def _(address):
    body, length = triton.InferenceServerClient.generate_request_body(simple_inputs())
    line = http.client.HTTPConnection(address, timeout=10)
    line.request(
        "POST", "/v2/models/simple/infer", body, {"Inference-Header-Content-Length": str(length)}
    )
    answer = line.getresponse()
    content = answer.read()
    same(
        (answer.status, answer.getheader("Content-Type")), (200, "application/octet-stream"), "head"
    )
    header = int(answer.getheader("Inference-Header-Content-Length"))
    right(triton.InferenceServerClient.parse_response_body(content, header_length=header))
    # Raw: the body is the tensor of a model of one input.
    values = np.array([1, 2, 3], np.float32)
    line.request(
        "POST",
        "/v2/models/identity_fp32/infer",
        values.tobytes(),
        {"Inference-Header-Content-Length": "0"},
    )
    answer = line.getresponse()
    content = answer.read()
    same(answer.status, 200, f"raw request: {content[:200]}")
    header = int(answer.getheader("Inference-Header-Content-Length"))
    result = triton.InferenceServerClient.parse_response_body(content, header_length=header)
    equal(result.as_numpy("OUTPUT0"), values, "raw request")
    line.close()


if __name__ == "__main__":
    checks.run(checks.parser(__doc__.splitlines()[0]).parse_args())
