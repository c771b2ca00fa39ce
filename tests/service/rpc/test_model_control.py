"""RepositoryIndex, RepositoryModelLoad and RepositoryModelUnload on the wire."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio
from tritonclient.grpc import service_pb2 as pb

from tests.fakes.serving import (
    Served,
    add_strings,
    eventually,
    refusal,
    serving,
    strings_of,
    write_models,
)

INVALID = grpc.StatusCode.INVALID_ARGUMENT


@pytest_asyncio.fixture
async def served(repository: Path) -> AsyncIterator[Served]:
    write_models(repository)
    async with serving(
        repository, model_control_mode="explicit", load_models="simple,tale"
    ) as server:
        yield server


async def states(served: Served, **request: Any) -> dict[str, str]:
    index = await served.inference.RepositoryIndex(pb.RepositoryIndexRequest(**request))
    return {f"{model.name}/{model.version}": model.state for model in index.models}


async def test_the_index_lists_what_is_served_and_what_could_be(served: Served) -> None:
    assert await states(served) == {
        "mini/": "",
        "simple/1": "READY",
        "spam/": "",
        "strings/": "",
        "tale/1": "READY",
    }
    assert await states(served, ready=True) == {"simple/1": "READY", "tale/1": "READY"}
    request = pb.RepositoryIndexRequest(repository_name="there")
    assert await refusal(served.inference.RepositoryIndex(request)) == (
        grpc.StatusCode.UNIMPLEMENTED,
        "'repository_name' specification is not supported",
    )


async def test_a_model_is_loaded_asked_and_unloaded(served: Served) -> None:
    await served.inference.RepositoryModelLoad(pb.RepositoryModelLoadRequest(model_name="spam"))
    assert (await served.infer_text("spam", "lunch")).model_version == "1"
    unload = pb.RepositoryModelUnloadRequest(model_name="spam")
    unload.parameters["unload_dependents"].bool_param = True
    await served.inference.RepositoryModelUnload(unload)
    assert await refusal(served.infer_text("spam", "lunch")) == (
        grpc.StatusCode.NOT_FOUND,
        "Request for unknown model: 'spam' has no available versions",
    )
    await eventually(lambda: not served.app.repository._models["spam"].retiring)
    assert (await states(served))["spam/1"] == "UNAVAILABLE"


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


async def test_kserve_s_clients_name_the_model_in_field_1_and_are_answered_in_theirs(
    served: Served,
) -> None:
    load = pb.RepositoryModelLoadRequest(repository_name="spam")
    unload = pb.RepositoryModelUnloadRequest(repository_name="spam")
    for call, request, is_loaded in (
        (served.inference.RepositoryModelLoad, load, True),
        (served.inference.RepositoryModelUnload, unload, False),
    ):
        answer = (await call(request)).SerializeToString()
        assert answer == b"\x0a\x04spam\x10\x01"  # isLoaded and isUnloaded are one field
        assert served.app.repository.has("spam") is is_loaded


def _load(
    name: str = "simple", **parameters: Mapping[str, object]
) -> pb.RepositoryModelLoadRequest:
    request = pb.RepositoryModelLoadRequest(model_name=name)
    for key, value in parameters.items():
        ((kind, content),) = value.items()
        setattr(request.parameters[key], kind, content)
    return request


@pytest.mark.parametrize(
    ("request_", "code", "text"),
    [
        (
            _load("nope"),
            grpc.StatusCode.INTERNAL,
            "failed to load 'nope', failed to poll from model repository",
        ),
        (_load(""), INVALID, "Model name cannot be empty. Please enter a valid name to deploy."),
        (
            _load("../m"),
            INVALID,
            "failed to load '../m', model name must not contain path traversal characters",
        ),
        (_load(k={"bool_param": True}), INVALID, "unrecognized load parameter 'k'."),
        (
            _load(config={"bool_param": True}),
            INVALID,
            "invalid value type for load parameter 'config', expected string_param.",
        ),
        (
            _load("simple", **{"file:1/model.onnx": {"string_param": "x"}}),
            INVALID,
            "invalid value type for load parameter 'file:1/model.onnx', expected bytes_param.",
        ),
        (
            _load(config={"string_param": '{"name": "other"}'}),
            grpc.StatusCode.INTERNAL,
            "failed to load 'simple', config.pbtxt: name is 'other', "
            "but the model's folder is 'simple'",
        ),
    ],
)
async def test_what_cannot_be_loaded_is_refused_in_triton_s_words(
    served: Served, request_: pb.RepositoryModelLoadRequest, code: grpc.StatusCode, text: str
) -> None:
    assert await refusal(served.inference.RepositoryModelLoad(request_)) == (code, text)
    assert served.app.repository.failures == {}


async def test_a_corrupt_model_is_named_with_its_version(served: Served, repository: Path) -> None:
    (repository / "broken/3").mkdir(parents=True)
    (repository / "broken/3/model.onnx").write_text("no model")
    code, text = await refusal(served.inference.RepositoryModelLoad(_load("broken")))
    assert code is INVALID
    assert text.startswith("load failed for model 'broken': version 3 is at UNAVAILABLE state: ")


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
    async with serving(models) as served:
        assert await refusal(served.inference.RepositoryModelLoad(_load())) == expected
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
