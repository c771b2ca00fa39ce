"""Tokens and restricted groups over the wire: which calls are accepted, and the errors."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio
from attendant.v1 import generation_pb2, text_pb2
from grpc import StatusCode
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from tritonclient.grpc import InferenceServerClient, service_pb2_grpc
from tritonclient.grpc import service_pb2 as pb

from commands.ask.client.access import Access
from commands.ask.client.client import Client
from service.api.access import ADMIN_METHODS
from service.calls.generation import Generate
from service.calls.sampling import Sampling
from service.calls.texts import Classify
from tests.fakes.serving import (
    Served,
    refusal,
    refused_calls,
    serving,
    simple_request,
    within_patience,
    write_models,
)
from tests.fakes.sessions import PATIENCE_S

pytestmark = pytest.mark.asyncio(loop_scope="module")
FIRST, SECOND, WRONG = "first-token-of-two", "second-token-of-two", "third-token-of-two"
KEYS = "model-config,statistics:admin-key=secret; shared-memory:shm-key=other"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """One server with two tokens and two restricted groups."""
    folder = tmp_path_factory.mktemp("server")
    (folder / "tokens").write_text(f"# of two people\n{FIRST}\n\n  {SECOND}\n")
    (folder / "tokens").chmod(0o600)
    (folder / "repository").mkdir()
    write_models(folder / "repository")
    rules: dict[str, Any] = {"token_file": str(folder / "tokens"), "restricted_protocols": KEYS}
    async with serving(folder / "repository", **rules) as running:
        yield running


def bearer(token: str) -> list[tuple[str, str]]:
    return [("authorization", f"Bearer {token}")]


@pytest.mark.parametrize("token", [FIRST, SECOND])
async def test_every_token_of_the_file_opens_the_server(served: Served, token: str) -> None:
    response = await served.infer_text("spam", "lunch", metadata=bearer(token))
    assert response.outputs


NO_TOKEN = "a token is missing, expected metadata 'authorization: Bearer <token>'"
REFUSED: dict[str, tuple[list[tuple[str, str]], str]] = {
    "nothing": ([], NO_TOKEN),
    "no scheme": ([("authorization", FIRST)], NO_TOKEN),
    "another scheme": ([("authorization", f"Basic {FIRST}")], NO_TOKEN),
    "no token": ([("authorization", "Bearer ")], NO_TOKEN),
    "a wrong one": (bearer(WRONG), "the token is not known to this server"),
    "a part of one": (bearer(FIRST[:-1]), "the token is not known to this server"),
    "more than one": (bearer(FIRST + "x"), "the token is not known to this server"),
    "a comment": (bearer("# of two people"), "the token is not known to this server"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_without_a_known_token_a_call_is_unauthenticated(served: Served, case: str) -> None:
    metadata, text = REFUSED[case]
    call = served.infer_text("spam", "lunch", metadata=metadata)
    assert await refusal(call) == (StatusCode.UNAUTHENTICATED, text)


async def test_every_service_and_kind_of_call_needs_a_token(served: Served) -> None:
    """Streams are refused without waiting for what they send."""
    reflect = reflection_pb2_grpc.ServerReflectionStub(served.channel).ServerReflectionInfo
    info = reflection_pb2.ServerReflectionRequest(list_services="")
    calls: list[Any] = [
        served.inference.ServerLive(pb.ServerLiveRequest(), timeout=PATIENCE_S),
        served.inference.ModelStreamInfer(timeout=PATIENCE_S).read(),
        served.inference.ModelStreamInfer(iter([simple_request()]), timeout=PATIENCE_S).read(),
        served.text.ListModels(text_pb2.ListModelsRequest(), timeout=PATIENCE_S),
        served.generation.Generate(generation_pb2.GenerateRequest(model="tale")).read(),
        served.generation.GenerateUnary(generation_pb2.GenerateRequest(model="tale")),
        reflect(iter([info]), timeout=PATIENCE_S).read(),
    ]
    for call in calls:
        code, _ = await refusal(call)
        assert code is StatusCode.UNAUTHENTICATED


async def test_probes_of_health_need_no_token(served: Served) -> None:
    stub = health_pb2_grpc.HealthStub(served.channel)
    response = await stub.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S)
    assert response.status == health_pb2.HealthCheckResponse.SERVING


async def test_triton_s_client_passes_with_a_header_and_ours_with_a_token(served: Served) -> None:
    def use() -> tuple[bool, int]:
        headers = {"authorization": f"Bearer {SECOND}"}
        with InferenceServerClient(served.address) as client:
            is_ready: bool = client.is_server_ready(headers=headers)
        access = Access(token=FIRST)
        with Client(served.address, PATIENCE_S, access) as client:
            assert client.ask(Classify(model="spam", texts=["lunch"])).results
            call = Generate(model="tale", prompt="once", sampling_params=Sampling(max_tokens=3))
            return is_ready, len(list(client.stream(call)))

    is_ready, num_chunks = await within_patience(asyncio.to_thread(use))
    assert is_ready
    assert num_chunks


async def test_a_restricted_group_needs_its_key_besides_the_token(served: Served) -> None:
    """Triton's text; a group's key opens that group only."""
    request = pb.ModelConfigRequest(name="spam")
    header, other = "triton-grpc-protocol-admin-key", "triton-grpc-protocol-shm-key"
    text = f"This protocol is restricted, expecting header '{header}'"
    for extra in ([], [(header, "wrong")], [(header, "")], [(other, "other")]):
        call = served.inference.ModelConfig(request, metadata=[*bearer(FIRST), *extra])
        assert await refusal(call) == (StatusCode.UNAVAILABLE, text)
    allowed = [*bearer(FIRST), (header, "secret")]
    assert (await served.inference.ModelConfig(request, metadata=allowed)).config.name == "spam"
    code, _ = await refusal(served.inference.ModelConfig(request, metadata=allowed[1:]))
    assert code is StatusCode.UNAUTHENTICATED
    assert (await served.infer_text("spam", "lunch", metadata=bearer(FIRST))).outputs


async def test_administration_can_have_a_port_of_its_own(models: Path) -> None:
    """There every call is answered; the other port refuses those that change the server."""
    async with serving(models, admin_port=0, model_control_mode="explicit") as served:
        assert served.app.admin_port not in (None, served.app.grpc_port)
        load = pb.RepositoryModelLoadRequest(model_name="simple")
        assert await refusal(served.inference.RepositoryModelLoad(load)) == (
            StatusCode.UNAVAILABLE,
            "This protocol is restricted to the port for administration",
        )
        async with grpc.aio.insecure_channel(f"127.0.0.1:{served.app.admin_port}") as channel:
            admin: Any = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            await admin.RepositoryModelLoad(load)
            assert (await admin.ServerLive(pb.ServerLiveRequest())).live
            await admin.ModelInfer(simple_request())
        await served.inference.ModelInfer(simple_request())
        for method in ADMIN_METHODS:
            call: Any = served.channel.unary_unary(method)
            assert (await refusal(call(b"")))[0] is StatusCode.UNAVAILABLE


async def test_keys_guard_a_server_that_has_no_tokens(models: Path) -> None:
    """The restricted calls need their key, and the others nothing."""
    async with serving(models, restricted_protocols=KEYS) as keyed:
        asked = pb.ModelConfigRequest(name="spam")
        expected = "This protocol is restricted, expecting header 'triton-grpc-protocol-admin-key'"
        call = keyed.inference.ModelConfig(asked, timeout=PATIENCE_S)
        assert await refusal(call) == (StatusCode.UNAVAILABLE, expected)
        key = [("triton-grpc-protocol-admin-key", "secret")]
        answer = await keyed.inference.ModelConfig(asked, metadata=key, timeout=PATIENCE_S)
        assert answer.config.name == "spam"
        assert (await keyed.infer_text("spam", "lunch")).outputs


async def test_refusals_for_want_of_a_token_or_key_are_counted(tmp_path: Path) -> None:
    """Three without a token, and two with one and without a key."""
    (tmp_path / "tokens").write_text(FIRST)
    (tmp_path / "tokens").chmod(0o600)
    (tmp_path / "repository").mkdir()
    write_models(tmp_path / "repository")
    rules: dict[str, Any] = {"token_file": str(tmp_path / "tokens"), "restricted_protocols": KEYS}
    async with serving(tmp_path / "repository", **rules) as guarded:
        for _ in range(3):
            await refusal(guarded.infer_text("spam", "lunch"))
        for _ in range(2):
            asked = pb.ModelConfigRequest(name="spam")
            await refusal(guarded.inference.ModelConfig(asked, metadata=bearer(FIRST)))
        assert await refused_calls(guarded) == {"token": 3, "key": 2}
