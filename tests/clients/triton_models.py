"""tritonclient over HTTP: server, models and repository, as its users ask for them.

    python triton_models.py --node HOST:PORT --router HOST:PORT [--locked HOST:PORT]

`--locked` is a server whose `model_control` is off.
"""

import numpy as np
import tritonclient.http as triton

import checks
from checks import check, equal, holds, refused, same
from triton_requests import KIND, client, simple_inputs, status, tensor


@check("health, and a query that means nothing")
def _(address):
    with client(address) as server:
        holds(server.is_server_live(query_params={"a": 1}), "live")
        holds(server.is_server_ready(), "ready")
        holds(server.is_model_ready("simple", query_params={"test_1": "1"}), "model ready")
        holds(server.is_model_ready("simple", "1"), "version ready")
        holds(not server.is_model_ready("simple", "999"), "an unknown version is not ready")
        holds(not server.is_model_ready("nope"), "an unknown model is not ready")


@check("server metadata lists what is offered")
def _(address):
    with client(address) as server:
        told = server.get_server_metadata()
    for member in ("name", "version"):
        holds(isinstance(told[member], str) and told[member], f"{member} is a text")
    for extension in (
        "binary_tensor_data",
        "classification",
        "model_configuration",
        "model_repository",
        "parameters",
        "statistics",
    ):
        holds(extension in told["extensions"], f"{extension} is listed: {told['extensions']}")


@check("model metadata")
def _(address):
    with client(address) as server:
        told = server.get_model_metadata("simple")
        same(server.get_model_metadata("simple", "1"), told, "by version")
    same(told["name"], "simple", "name")
    same(told["platform"], "onnx_onnxv1", "platform")
    same(told["versions"], ["1"], "versions")
    of = {"datatype": "INT32", "shape": [-1, 16]}
    same(told["inputs"], [{"name": f"INPUT{i}"} | of for i in (0, 1)], "inputs")
    same(told["outputs"], [{"name": f"OUTPUT{i}"} | of for i in (0, 1)], "outputs")


@check("an unknown model, in the words that Triton's examples wait for")
def _(address):
    with client(address) as server:
        for ask in (
            lambda: server.get_model_metadata("nope"),
            lambda: server.get_model_metadata("no pé"),
            lambda: server.get_model_metadata("simple", "999"),
            lambda: server.get_model_config("nope"),
            lambda: server.get_inference_statistics("nope"),
            lambda: server.infer("nope", simple_inputs()),
        ):
            with refused(KIND, status("404"), ["Request for unknown model"]):
                ask()


@check("model configuration")
def _(address):
    with client(address) as server:
        told = server.get_model_config("simple")
        same(server.get_model_config("simple", "1"), told, "by version")
    same(told["name"], "simple", "name")
    holds(isinstance(told["max_batch_size"], int), "max_batch_size is a number")


def counted(server, model):
    told = server.get_inference_statistics(model)["model_stats"]
    same([entry["name"] for entry in told], [model], "models")
    success = told[0]["inference_stats"]["success"]
    holds(success["ns"] >= 0, "time is counted")
    return told[0]["inference_count"], told[0]["execution_count"], success["count"]


@check("statistics count requests and rows")
def _(address):
    with client(address) as server:
        server.infer("simple", simple_inputs())
        rows, runs, requests = counted(server, "simple")
        server.infer("simple", simple_inputs())
        server.infer("simple", simple_inputs())
        after = counted(server, "simple")
        same(after[0] - rows, 4, "rows more, after two requests of two rows")
        holds(after[1] > runs, "runs more")
        same(after[2] - requests, 2, "requests more")
        everything = server.get_inference_statistics()["model_stats"]
        holds({"simple", "blob"} <= {entry["name"] for entry in everything}, "all models")


@check("repository index")
def _(address):
    with client(address) as server:
        told = {entry["name"]: entry for entry in server.get_model_repository_index()}
    same(told["simple"]["state"], "READY", "state")
    same(told["simple"]["version"], "1", "version")


@check("unload and load")
def _(address):
    values = np.array([1.5], np.float32)
    with client(address) as server:
        checks.until(lambda: server.is_model_ready("spare"), "spare is ready")
        try:
            server.unload_model("spare")
            holds(not server.is_model_ready("spare"), "no longer ready")
            index = {entry["name"]: entry for entry in server.get_model_repository_index()}
            same(index["spare"]["state"], "UNAVAILABLE", "its state")
            with refused(KIND, status("503")):
                server.infer("spare", [tensor("INPUT0", values, "FP32")])
            holds(server.is_model_ready("simple"), "others stay ready")
        finally:
            server.load_model("spare")
        checks.until(lambda: server.is_model_ready("spare"), "ready again")
        result = server.infer("spare", [tensor("INPUT0", values, "FP32")])
        equal(result.as_numpy("OUTPUT0"), values, "OUTPUT0")
        for act in (server.load_model, server.unload_model):
            with refused(KIND, status("400", "404"), ["nope"]):
                act("nope")


@check("shared memory cannot cross hosts: no region, none taken")
def _(address):
    with client(address) as server:
        same(server.get_system_shared_memory_status(), [], "system regions")
        same(server.get_cuda_shared_memory_status(), [], "cuda regions")
        with refused(KIND, status("400", "404", "501")):
            server.register_system_shared_memory("region", "/key", 64)
        # An input that lies in a region.
        inside = triton.InferInput("INPUT0", [4], "FP32")
        inside.set_shared_memory("region", 16)
        with refused(KIND, status("400")):
            server.infer("identity_fp32", [inside])


@check("trace and log settings are refused readably")
def _(address):
    with client(address) as server:
        for ask in (server.get_trace_settings, server.get_log_settings):
            with refused(KIND, status("404", "501")):
                ask()
        with refused(KIND, status("404", "405", "501")):
            server.update_log_settings({"log_verbose_level": 1})


def locked(address):
    """Of a server that leaves its models alone."""

    @check("model control is off: 403, and the key to set")
    def _(_address):
        with client(address) as server:
            for act in (server.load_model, server.unload_model):
                with refused(KIND, status("403"), ["model_control"]):
                    act("spare")
            holds(server.is_model_ready("spare"), "nothing happened to it")


if __name__ == "__main__":
    arguments = checks.parser(__doc__.splitlines()[0])
    arguments.add_argument("--locked", metavar="HOST:PORT", help="a node with model control off")
    options = arguments.parse_args()
    if options.locked:
        locked(options.locked)
    checks.run(options)
