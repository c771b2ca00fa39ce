"""RepositoryIndex, RepositoryModelLoad and RepositoryModelUnload on the wire."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest_asyncio
from tritonclient.grpc import service_pb2 as pb

from tests.fakes.serving import (
    Served,
    add_strings,
    eventually,
    refusal,
    serving,
    strings_of,
)

INVALID = grpc.StatusCode.INVALID_ARGUMENT


@pytest_asyncio.fixture
async def served(models: Path) -> AsyncIterator[Served]:
    async with serving(models, model_control_mode="explicit", load_models="simple,tale") as server:
        yield server


async def states(served: Served, **request: Any) -> dict[str, str]:
    index = await served.inference.RepositoryIndex(pb.RepositoryIndexRequest(**request))
    return {f"{model.name}/{model.version}": model.state for model in index.models}


async def test_a_generation_under_way_ends_though_its_model_is_unloaded(served: Served) -> None:
    decoder = served.decoders["tale"]
    decoder.hold()
    request = pb.ModelInferRequest(model_name="tale")
    add_strings(request, "text_input", "once")
    call = served.inference.ModelInfer(request)
    await eventually(lambda: bool(decoder.calls))
    await served.inference.RepositoryModelUnload(pb.RepositoryModelUnloadRequest(model_name="tale"))
    assert (await states(served))["tale/1"] == "UNLOADING"
    decoder.release()
    assert strings_of(await call)[0].startswith("once")
    assert (await refusal(served.inference.ModelInfer(request)))[0] is grpc.StatusCode.NOT_FOUND


async def test_unload_parameters_are_checked(served: Served) -> None:
    request = pb.RepositoryModelUnloadRequest(model_name="simple")
    request.parameters["unload_dependents"].string_param = "yes"
    assert await refusal(served.inference.RepositoryModelUnload(request)) == (
        INVALID,
        "invalid value type for unload parameter 'unload_dependents', expected bool_param.",
    )
    assert served.app.repository.has("simple")


async def test_models_are_not_changed_unless_control_is_explicit(models: Path) -> None:
    expected = (
        grpc.StatusCode.UNAVAILABLE,
        "explicit model load / unload is not allowed if polling is enabled",
    )
    load = pb.RepositoryModelLoadRequest(model_name="simple")
    async with serving(models) as served:
        assert await refusal(served.inference.RepositoryModelLoad(load)) == expected
        unload = pb.RepositoryModelUnloadRequest(model_name="simple")
        assert await refusal(served.inference.RepositoryModelUnload(unload)) == expected


async def test_what_was_sent_counts_until_its_load_is_over_though_the_client_left(
    served: Served,
) -> None:
    request = pb.RepositoryModelLoadRequest(model_name="simple")
    request.parameters["config"].string_param = '{"max_batch_size": 4}'
    admission = served.app._admission
    async with served.app.repository._models["simple"].turn:
        call = served.inference.RepositoryModelLoad(request)
        await eventually(lambda: served.app.repository._num_asked == 1)
        call.cancel()
        await eventually(lambda: not admission.num_inside)
        assert admission.num_bytes == request.ByteSize()
    await eventually(lambda: not admission.num_bytes)
