"""tritonclient at ports that speak TLS: HTTP/1.1, and gRPC, which asks for HTTP/2 by ALPN.

python triton_tls.py --node HOST:PORT --router HOST:PORT --root CERTIFICATE
"""

import tritonclient.grpc as grpc_client
import tritonclient.http as http_client
from tritonclient.utils import InferenceServerException

import checks
import tensors
from checks import check, equal, holds, refused

OPTIONS = None


def infer(client, kinds):
    left, right, total, _ = tensors.rows()
    inputs = [
        kinds.InferInput(name, [2, 16], "INT32").set_data_from_numpy(values)
        for name, values in (("INPUT0", left), ("INPUT1", right))
    ]
    equal(client.infer("simple", inputs).as_numpy("OUTPUT0"), total, "OUTPUT0")


def over_http(address, **tls):
    return http_client.InferenceServerClient(address, connection_timeout=5, **tls)


@check("http: health and an inference")
def _(address):
    with over_http(address, ssl=True, ssl_options={"ca_certs": OPTIONS.root}) as server:
        holds(server.is_server_ready(), "ready")
        infer(server, http_client)


@check("gRPC: health and an inference")
def _(address):
    client = grpc_client.InferenceServerClient(
        address, ssl=True, root_certificates=OPTIONS.root
    )
    with client as server:
        holds(server.is_server_ready(client_timeout=10), "ready")
        infer(server, grpc_client)


@check("a certificate without a known issuer is not believed")
def _(address):
    with grpc_client.InferenceServerClient(address, ssl=True) as server:
        with refused(InferenceServerException):
            server.is_server_live(client_timeout=2)


@check("plain text is turned away")
def _(address):
    with over_http(address) as server:
        try:
            live = server.is_server_live()
        except Exception:  # Whatever the library makes of a connection that is closed.
            return
        holds(not live, "a port with TLS answered plain text")


if __name__ == "__main__":
    arguments = checks.parser(__doc__.splitlines()[0])
    arguments.add_argument("--root", required=True, help="PEM file of the servers' certificate")
    OPTIONS = arguments.parse_args()
    checks.run(OPTIONS)
