"""TraceSetting and LogSettings: what is set is told, and what is wrong is refused."""

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from tritonclient import grpc as triton
from tritonclient.grpc import service_pb2 as pb

from tests.conformance.messages import LIMIT_S, Stub

TRACE_KEYS = {"trace_level", "trace_rate", "trace_count", "log_frequency", "trace_file"}
LOG_KEYS = {"log_file", "log_info", "log_warning", "log_error", "log_verbose_level", "log_format"}


def trace(client: triton.InferenceServerClient, model: str | None = None) -> dict[str, list[str]]:
    settings = client.get_trace_settings(model).settings
    return {key: list(value.value) for key, value in settings.items()}


def log(client: triton.InferenceServerClient) -> dict[str, Any]:
    settings = client.get_log_settings().settings
    return {key: getattr(v, v.WhichOneof("parameter_choice")) for key, v in settings.items()}


@pytest.fixture
def restored(client: triton.InferenceServerClient) -> Iterator[None]:
    """Whatever a test sets, the next one finds the server as it began."""
    was = log(client)
    yield
    del was["log_file"]
    client.update_log_settings(was)
    clear: dict[str, Any] = dict.fromkeys(("trace_level", "trace_rate", "trace_count"))
    client.update_trace_settings("simple", clear)
    client.update_trace_settings(None, clear)


def test_trace_settings_are_all_told(client: triton.InferenceServerClient) -> None:
    settings = trace(client)
    assert settings.keys() >= TRACE_KEYS
    assert settings["trace_level"] == ["OFF"]


def test_trace_settings_of_a_model_follow_the_servers_until_it_has_its_own(
    client: triton.InferenceServerClient, restored: None
) -> None:
    client.update_trace_settings(settings={"trace_rate": "500"})
    assert trace(client, "simple")["trace_rate"] == ["500"]
    client.update_trace_settings("simple", {"trace_rate": "7"})
    assert trace(client, "simple")["trace_rate"] == ["7"]
    assert trace(client)["trace_rate"] == ["500"]
    client.update_trace_settings("simple", {"trace_rate": None})
    assert trace(client, "simple")["trace_rate"] == ["500"]


def test_tracing_an_unknown_model_is_refused(client: triton.InferenceServerClient) -> None:
    with pytest.raises(triton.InferenceServerException, match="unknown model : nobody") as caught:
        client.get_trace_settings("nobody")
    assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"


@pytest.mark.parametrize(
    "settings", [{"trace_level": ["LOUD"]}, {"trace_rate": "often"}, {"nothing": "1"}]
)
def test_wrong_trace_settings_are_refused(
    client: triton.InferenceServerClient, settings: dict[str, Any], restored: None
) -> None:
    before = trace(client)
    with pytest.raises(triton.InferenceServerException) as caught:
        client.update_trace_settings(settings=settings)
    assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"
    assert trace(client) == before


def test_log_settings_are_all_told_and_set(
    client: triton.InferenceServerClient, restored: None
) -> None:
    assert log(client).keys() >= LOG_KEYS
    client.update_log_settings({"log_info": False, "log_verbose_level": 1, "log_format": "ISO8601"})
    settings = log(client)
    assert settings["log_info"] is False
    assert settings["log_verbose_level"] == 1
    assert settings["log_format"] == "ISO8601"


LOG_FILE = "log file location can not be updated through network protocol"
WRONG = [
    ("log_info", "uint32_param", 1, "INVALID_ARGUMENT", "expect boolean for 'log_info'"),
    ("log_verbose_level", "bool_param", True, "INVALID_ARGUMENT", "'log_verbose_level'"),
    ("log_format", "string_param", "loud", "INVALID_ARGUMENT", "log_format"),
    ("log_format", "bool_param", True, "INVALID_ARGUMENT", "'log_format'"),
    ("log_file", "string_param", "/tmp/log", "UNIMPLEMENTED", LOG_FILE),
    ("nothing", "bool_param", True, "INVALID_ARGUMENT", "nothing"),
]


@pytest.mark.parametrize(("key", "kind", "value", "code", "text"), WRONG)
def test_wrong_log_settings_are_refused(
    client: triton.InferenceServerClient,
    stub: Stub,
    key: str,
    kind: str,
    value: object,
    code: str,
    text: str,
    restored: None,
) -> None:
    before = log(client)
    request = pb.LogSettingsRequest()
    setattr(request.settings[key], kind, value)
    with pytest.raises(grpc.RpcError) as caught:
        stub.LogSettings(request, timeout=LIMIT_S)
    assert caught.value.code().name == code
    assert text in (caught.value.details() or "")
    assert log(client) == before
