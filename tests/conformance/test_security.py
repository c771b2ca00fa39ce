"""An unmodified tritonclient and a server that both show certificates, and a token."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tritonclient import grpc as triton
from tritonclient.grpc import InferenceServerClientPlugin, aio

from tests.conformance.messages import LIMIT_S, refused
from tests.conformance.models import write_add_sub
from tests.e2e.server import ServerProcess
from tests.fakes.certificates import Authority

pytestmark = pytest.mark.skipif(not shutil.which("openssl"), reason="makes the certificates")
TOKEN = "conformance-0123456789abcdef"

KEY = "conformance"


@dataclass(frozen=True, slots=True)
class Secured:
    """A server, and what its clients need."""

    address: str
    certificates: dict[str, Any]  # as tritonclient names them
    credentials: grpc.ChannelCredentials


class Bearer(InferenceServerClientPlugin):  # type: ignore[misc]
    """Adds the token to each call."""

    def __call__(self, request: Any) -> None:
        request.headers["authorization"] = f"Bearer {TOKEN}"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    authority = Authority(folder, "authority")
    ours, theirs = (authority.sign(name) for name in ("server", "client"))
    tokens = folder / "tokens"
    tokens.write_text(TOKEN + "\n", encoding="utf-8")
    tokens.chmod(0o600)
    write_add_sub(folder / "repository", "simple", "INT32")
    files = {
        "--tls-cert": ours.cert,
        "--tls-key": ours.key,
        "--tls-client-ca": authority.cert,
        "--token-file": tokens,
        "--restricted-protocols": f"model-repository:admin={KEY}",
    }
    flags = [str(word) for pair in files.items() for word in pair]
    with ServerProcess(folder / "repository", *flags) as server:
        certificates = {
            "ssl": True,
            "root_certificates": str(authority.cert),
            "private_key": str(theirs.key),
            "certificate_chain": str(theirs.cert),
        }
        pem = (path.read_bytes() for path in (authority.cert, theirs.key, theirs.cert))
        yield Secured(server.address, certificates, grpc.ssl_channel_credentials(*pem))


def test_a_client_with_certificate_and_token_is_served(secured: Secured) -> None:
    with triton.InferenceServerClient(secured.address, **secured.certificates) as client:
        client.register_plugin(Bearer())
        assert client.is_server_ready(client_timeout=LIMIT_S)
        assert client.get_model_metadata("simple").name == "simple"


async def test_so_is_one_of_asyncio(secured: Secured) -> None:
    async with aio.InferenceServerClient(secured.address, **secured.certificates) as client:
        headers = {"authorization": f"Bearer {TOKEN}"}
        assert await client.is_model_ready("simple", headers=headers)


@pytest.mark.parametrize("header", [{}, {"authorization": "Bearer nothing-like-it"}])
def test_without_the_token_only_health_is_told(secured: Secured, header: dict[str, str]) -> None:
    with (
        triton.InferenceServerClient(secured.address, **secured.certificates) as client,
        refused("UNAUTHENTICATED"),
    ):
        client.get_model_metadata("simple", headers=header, client_timeout=LIMIT_S)
    with grpc.secure_channel(secured.address, secured.credentials) as channel:
        request = health_pb2.HealthCheckRequest()
        answer = health_pb2_grpc.HealthStub(channel).Check(request, timeout=LIMIT_S)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_without_a_certificate_nothing_is_told(secured: Secured) -> None:
    root = secured.certificates["root_certificates"]
    for certificates in ({}, {"ssl": True, "root_certificates": root}):
        with (
            triton.InferenceServerClient(secured.address, **certificates) as client,
            refused("UNAVAILABLE"),
        ):
            client.is_server_live(client_timeout=LIMIT_S)


def test_a_restricted_call_needs_its_own_key(secured: Secured) -> None:
    token = {"authorization": f"Bearer {TOKEN}"}
    with triton.InferenceServerClient(secured.address, **secured.certificates) as client:
        with refused("UNAVAILABLE", "expecting header 'triton-grpc-protocol-admin'"):
            client.get_model_repository_index(headers=token, client_timeout=LIMIT_S)
        key = {"triton-grpc-protocol-admin": KEY}
        index = client.get_model_repository_index(headers=token | key, client_timeout=LIMIT_S)
        assert [model.name for model in index.models] == ["simple"]
