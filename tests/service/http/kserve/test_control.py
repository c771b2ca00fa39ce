"""Bodies of the calls that control the server, as messages, and what they answer."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from tritonclient.grpc import service_pb2 as pb

from service.errors import InvalidArgument
from service.http.kserve.control import (
    index_request,
    load_request,
    log_request,
    register_request,
    trace_request,
    unload_request,
    write_log_settings,
    write_regions,
    write_trace_settings,
)
from service.http.wire.plain import plain


def body(content: Any) -> bytes:
    return json.dumps(content).encode()


def test_an_index_lists_all_models_unless_the_body_says_otherwise() -> None:
    assert not index_request(b"", "").ready
    assert not index_request(b'{"ready": null}', "").ready
    assert index_request(b'{"ready": true}', "r") == pb.RepositoryIndexRequest(
        repository_name="r", ready=True
    )


def test_files_of_a_model_to_load_are_base64() -> None:
    request = load_request(body({"parameters": {"config": "{}", "file:1/a": "AP8=", "n": 1}}), "m")
    assert request.model_name == "m"
    assert {name: plain(value) for name, value in request.parameters.items()} == {
        "config": {"string_param": "{}"},
        "file:1/a": {"bytes_param": "AP8="},
        "n": {"int64_param": 1},
    }
    assert request.parameters["file:1/a"].bytes_param == b"\x00\xff"
    assert not load_request(b"", "m").parameters
    unload = unload_request(body({"parameters": {"unload_dependents": False}}), "m")
    assert plain(unload.parameters["unload_dependents"]) == {"bool_param": False}


def test_trace_settings_are_strings_or_lists_and_null_restores_one() -> None:
    settings = {"trace_level": ["TIMESTAMPS"], "trace_rate": "5", "trace_count": 7, "x": None}
    request = trace_request(body(settings), "m")
    assert {name: list(each.value) for name, each in request.settings.items()} == {
        "trace_level": ["TIMESTAMPS"],
        "trace_rate": ["5"],
        "trace_count": ["7"],
        "x": [],
    }
    assert not trace_request(b"", "m").settings
    response = pb.TraceSettingResponse()
    response.settings["trace_level"].value.append("OFF")
    response.settings["trace_rate"].value.append("1000")
    assert write_trace_settings(response) == {"trace_level": ["OFF"], "trace_rate": "1000"}


def test_log_settings_keep_their_types_and_null_changes_nothing() -> None:
    settings = {"log_info": True, "log_verbose_level": 2, "log_format": "default", "log_file": None}
    request = log_request(body(settings))
    assert {name: plain(each) for name, each in request.settings.items()} == {
        "log_info": {"bool_param": True},
        "log_verbose_level": {"uint32_param": 2},
        "log_format": {"string_param": "default"},
    }
    response = pb.LogSettingsResponse()
    response.settings["log_info"].bool_param = False
    assert write_log_settings(response) == {"log_info": False}


def test_a_region_has_a_key_and_a_size() -> None:
    request = register_request(body({"key": "/k", "byte_size": 8}), "r")
    assert (request.name, request.key, request.offset, request.byte_size) == ("r", "/k", 0, 8)
    response = pb.SystemSharedMemoryStatusResponse()
    status = response.regions["r"]
    status.name, status.key, status.byte_size = "r", "/k", 8
    assert write_regions(response) == [{"name": "r", "key": "/k", "offset": 0, "byte_size": 8}]


@pytest.mark.parametrize(
    ("read", "content"),
    [
        (lambda raw: index_request(raw, ""), {"ready": 1}),
        (lambda raw: load_request(raw, "m"), {"parameters": {"file:1/a": "not base64!"}}),
        (lambda raw: load_request(raw, "m"), {"parameters": {"config": {}}}),
        (lambda raw: unload_request(raw, "m"), {"parameters": 5}),
        (lambda raw: trace_request(raw, ""), {"trace_rate": 1.5}),
        (lambda raw: trace_request(raw, ""), {"trace_level": [True]}),
        (log_request, {"log_info": 0.5}),
        (log_request, {"log_verbose_level": 2**32}),
        (log_request, [1]),
        (lambda raw: register_request(raw, "r"), {"byte_size": 8}),
        (lambda raw: register_request(raw, "r"), {"key": "/k", "byte_size": -1}),
        (lambda raw: register_request(raw, "r"), {"key": "/k", "byte_size": 2**64}),
    ],
)
def test_bodies_of_a_wrong_form_are_refused(
    read: Callable[[bytes], object], content: object
) -> None:
    with pytest.raises(InvalidArgument):
        read(body(content))
