"""tritonclient's requests over HTTP, as the scripts for it make them."""

import tritonclient.http as triton
from tritonclient.utils import InferenceServerException as KIND  # noqa: F401

import tensors
from checks import equal


def status(*wanted):
    return wanted, lambda error: error.status()


class Client(triton.InferenceServerClient):
    """Remembers the last answer, for its headers; changes nothing of what is sent."""

    def _post(self, request_uri, request_body, headers, query_params):
        self.last = super()._post(request_uri, request_body, headers, query_params)
        return self.last


def client(address, **options):
    return Client(address, **options)


def tensor(name, array, datatype, binary=True):
    made = triton.InferInput(name, list(array.shape), datatype)
    return made.set_data_from_numpy(array, binary_data=binary)


def simple_inputs(binary=(True, True)):
    left, right, _, _ = tensors.rows()
    return [
        tensor("INPUT0", left, "INT32", binary[0]),
        tensor("INPUT1", right, "INT32", binary[1]),
    ]


def simple_outputs(binary=(True, True)):
    return [triton.InferRequestedOutput(f"OUTPUT{i}", binary_data=binary[i]) for i in (0, 1)]


def right(result):
    _, _, total, difference = tensors.rows()
    equal(result.as_numpy("OUTPUT0"), total, "OUTPUT0")
    equal(result.as_numpy("OUTPUT1"), difference, "OUTPUT1")
