"""RepositoryIndex, RepositoryModelLoad and RepositoryModelUnload, Triton's and KServe's."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tritonclient import grpc as triton
from tritonclient.grpc import service_pb2 as pb

from tests.conformance.messages import LIMIT_S, Stub, call_raw, refusal, refused, simple
from tests.conformance.models import write_add_sub

NAME = "comes_and_goes"


def index(client: triton.InferenceServerClient, name: str) -> list[tuple[str, str, str]]:
    models = client.get_model_repository_index().models
    return [(m.version, m.state, m.reason) for m in models if m.name == name]


@pytest.fixture
def model(client: triton.InferenceServerClient, repository: Path) -> Iterator[str]:
    """In the repository; a test loads it."""
    if not (repository / NAME).exists():
        write_add_sub(repository, NAME, "INT32")
    yield NAME
    client.unload_model(NAME)


def test_a_model_comes_and_goes(
    client: triton.InferenceServerClient, stub: Stub, model: str
) -> None:
    client.load_model(model)
    assert client.is_model_ready(model)
    assert index(client, model) == [("1", "READY", "")]
    assert stub.ModelInfer(simple(model=model), timeout=LIMIT_S).model_version == "1"
    client.unload_model(model)
    assert not client.is_model_ready(model)
    assert index(client, model) == [("1", "UNAVAILABLE", "unloaded")]
    assert refusal(stub, simple(model=model)) == (
        "NOT_FOUND",
        f"Request for unknown model: '{model}' has no available versions",
    )
    named = simple(model=model)
    named.model_version = "1"
    assert refusal(stub, named) == (
        "UNAVAILABLE",
        f"Request for unknown model: '{model}' version 1 is not at ready state",
    )
    client.load_model(model)
    assert client.is_model_ready(model)
    assert client.is_server_ready()


def test_the_index_names_what_was_never_loaded(
    client: triton.InferenceServerClient, repository: Path
) -> None:
    write_add_sub(repository, "never_loaded", "INT32")
    assert index(client, "never_loaded") == [("", "", "")]
    assert index(client, "simple") == [("1", "READY", "")]
    assert [row[:2] for row in index(client, "versions")] == [("1", "READY"), ("2", "READY")]


def test_the_index_can_be_of_ready_models_only(stub: Stub) -> None:
    models = stub.RepositoryIndex(pb.RepositoryIndexRequest(ready=True), timeout=LIMIT_S).models
    assert {model.state for model in models} == {"READY"}


def test_an_index_of_one_repository_is_unimplemented(stub: Stub) -> None:
    text = "'repository_name' specification is not supported"
    with pytest.raises(grpc.RpcError, match=text) as caught:
        stub.RepositoryIndex(pb.RepositoryIndexRequest(repository_name="a"), timeout=LIMIT_S)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_configuration_can_be_sent_and_replaces_the_files_one(
    client: triton.InferenceServerClient, model: str
) -> None:
    client.load_model(model, config=json.dumps({"max_batch_size": "16"}))
    assert client.get_model_config(model).config.max_batch_size == 16
    client.load_model(model)  # keeps it
    assert client.get_model_config(model).config.max_batch_size == 16
    client.unload_model(model)
    client.load_model(model)
    assert client.get_model_config(model).config.max_batch_size == 8


def test_files_can_be_sent(
    client: triton.InferenceServerClient, stub: Stub, repository: Path
) -> None:
    graph = (repository / "simple/1/model.onnx").read_bytes()
    files = {"file:3/model.onnx": graph}
    client.load_model("sent", config=json.dumps({"backend": "onnxruntime"}), files=files)
    assert index(client, "sent")[-1] == ("3", "READY", "")
    assert stub.ModelInfer(simple(model="sent"), timeout=LIMIT_S).model_version == "3"
    client.unload_model("sent")
    assert not (repository / "sent").exists()


def test_a_load_that_fails_leaves_what_was_served(
    client: triton.InferenceServerClient, stub: Stub, model: str
) -> None:
    client.load_model(model)
    tensor = {"name": "NOPE", "data_type": "TYPE_INT32", "dims": [16]}
    config = json.dumps({"max_batch_size": 8, "input": [tensor]})
    with refused("INVALID_ARGUMENT", f"load failed for model '{model}'"):
        client.load_model(model, config=config)
    assert stub.ModelInfer(simple(model=model), timeout=LIMIT_S).model_version == "1"


def test_a_model_that_is_no_model_is_refused(
    client: triton.InferenceServerClient, repository: Path
) -> None:
    (repository / "broken/1").mkdir(parents=True, exist_ok=True)
    (repository / "broken/1/model.onnx").write_bytes(b"no model")
    text = "load failed for model 'broken': version 1 is at UNAVAILABLE state: "
    with refused("INVALID_ARGUMENT", text):
        client.load_model("broken")
    (version,) = index(client, "broken")
    assert version[1] == "UNAVAILABLE"
    assert version[2]
    client.unload_model("broken")


EMPTY = "Model name cannot be empty. Please enter a valid name to deploy."
TRAVERSAL = "model name must not contain path traversal characters"
TYPE = "invalid value type for load parameter"
ESCAPE = "is not a plain path inside the model's"
# A name, parameters, the status and a part of the message.
REFUSED: list[tuple[str, dict[str, Any], str, str]] = [
    ("nobody", {}, "INTERNAL", "failed to load 'nobody', failed to poll from model repository"),
    (
        "",
        {},
        "INVALID_ARGUMENT",
        "Model name cannot be empty. Please enter a valid name to deploy.",
    ),
    ("  ", {}, "INVALID_ARGUMENT", "Model name cannot be empty"),
    ("../simple", {}, "INVALID_ARGUMENT", f"failed to load '../simple', {TRAVERSAL}"),
    ("simple/1", {}, "INVALID_ARGUMENT", f"failed to load 'simple/1', {TRAVERSAL}"),
    ("simple", {"config": "{"}, "INTERNAL", "failed to load 'simple', config: "),
    (
        "simple",
        {"config": '{"sequence_batching": {}}'},
        "INTERNAL",
        "failed to load 'simple', config.pbtxt: sequence_batching",
    ),
    (
        "simple",
        {"config": '{"name": "other"}'},
        "INTERNAL",
        "config.pbtxt: name is 'other', but the model's folder is 'simple'",
    ),
    ("simple", {"k": "v"}, "INVALID_ARGUMENT", "unrecognized load parameter 'k'."),
    ("simple", {"k": True}, "INVALID_ARGUMENT", "unrecognized load parameter 'k'."),
    ("simple", {"config": b"{}"}, "INVALID_ARGUMENT", f"{TYPE} 'config', expected string_param."),
    ("simple", {"config": True}, "INVALID_ARGUMENT", f"{TYPE} 'config', expected string_param."),
    (
        "simple",
        {"config": "{}", "file:1/model.onnx": "text"},
        "INVALID_ARGUMENT",
        f"{TYPE} 'file:1/model.onnx', expected bytes_param.",
    ),
    ("escapes", {"config": "{}", "file:../../a": b"a"}, "INVALID_ARGUMENT", ESCAPE),
    (
        "escapes",
        {"config": "{}", "file:" + "A" * 256: b"a"},
        "INTERNAL",
        "failed to poll from model repository",
    ),
]


@pytest.mark.parametrize(("name", "parameters", "code", "text"), REFUSED)
def test_wrong_loads_are_refused(
    stub: Stub, name: str, parameters: dict[str, Any], code: str, text: str
) -> None:
    request = pb.RepositoryModelLoadRequest(model_name=name)
    for key, value in parameters.items():
        kind = {bool: "bool_param", bytes: "bytes_param", str: "string_param"}[type(value)]
        setattr(request.parameters[key], kind, value)
    with pytest.raises(grpc.RpcError) as caught:
        stub.RepositoryModelLoad(request, timeout=LIMIT_S)
    assert caught.value.code().name == code
    assert text in (caught.value.details() or "")
    assert stub.ModelInfer(simple(), timeout=LIMIT_S).model_version == "1"


def test_unloading_what_there_is_not_is_well(client: triton.InferenceServerClient) -> None:
    client.unload_model("nobody")


def test_the_messages_of_kserve_are_understood(
    client: triton.InferenceServerClient, channel: grpc.Channel, model: str
) -> None:
    """Its load and unload have the model's name in field 1, and want it back with field 2 true.

    Fields 1 and 2 of a message are written by hand: the two definitions share one name.
    """
    named = b"\x0a" + bytes([len(model)]) + model.encode()
    assert call_raw(channel, "RepositoryModelLoad", named) == named + b"\x10\x01"
    assert client.is_model_ready(model)
    assert call_raw(channel, "RepositoryModelUnload", named) == named + b"\x10\x01"
    assert not client.is_model_ready(model)
