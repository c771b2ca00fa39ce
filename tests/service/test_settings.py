"""Settings are checked where they are made, and each explains itself."""

from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest

from service.errors import SettingError
from service.settings import Settings, aliases_of, is_loopback, join_address


def test_the_defaults_are_valid_and_frozen() -> None:
    settings = Settings()
    assert (settings.grpc_port, settings.metrics_port) == (8001, 8002)
    assert settings.host == "127.0.0.1"
    with pytest.raises(FrozenInstanceError):
        settings.grpc_port = 1  # type: ignore[misc]


@pytest.mark.parametrize("setting", fields(Settings), ids=lambda setting: setting.name)
def test_every_setting_has_help_and_numbers_have_a_lower_bound(setting: Any) -> None:
    assert setting.metadata["help"].endswith(".")
    if type(setting.default) in (int, float):
        assert setting.metadata["low"] is not None


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"device": "tpu"}, "--device is 'tpu', expected auto, cpu or cuda"),
        ({"grpc_port": -1}, "--grpc-port is -1, expected at least 0"),
        ({"grpc_port": 65536}, "--grpc-port is 65536, expected at most 65535"),
        ({"max_batch_tokens": 0}, "--max-batch-tokens is 0, expected at least 1"),
        ({"drain_timeout_s": -0.5}, "--drain-timeout-s is -0.5, expected at least 0"),
        *(
            ({"http_allowed_hosts": f"x.example,{host}"}, f"--http-allowed-hosts has '{host}', ")
            for host in ("http://x.example", "x.example:8000", "x.example/", "a b")
        ),
        *(
            ({"http_allowed_origins": origin}, f"--http-allowed-origins has '{origin}', expected")
            for origin in ("x.example", "https://x.example/", "https://a b", "//x.example")
        ),
        ({"max_message_bytes": 2**31}, "--max-message-bytes is 2147483648, expected at most"),
    ],
)
def test_a_value_out_of_bounds_is_refused_with_its_bound(values: dict[str, Any], text: str) -> None:
    with pytest.raises(SettingError) as caught:
        Settings(**values)
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a", "has 'a', expected NAME=MODEL"),
        ("a=", "has 'a=', expected"),
        ("=b", "has '=b', expected"),
        ("a=b,a=c", "has the name 'a' twice"),
        ("a=b,b=c", "has 'a=b', expected a model"),
        ("a=a", "has 'a=a', expected a model"),
    ],
)
def test_further_names_that_lead_nowhere_are_refused(text: str, fault: str) -> None:
    with pytest.raises(SettingError, match=f"^--model-alias {fault}"):
        Settings(model_alias=text)


def test_further_names_are_read() -> None:
    assert aliases_of(Settings(model_alias=" a = b, c/d=b ,")) == {"a": "b", "c/d": "b"}


def test_hosts_and_origins_of_browsers_are_taken() -> None:
    Settings(http_allowed_hosts="*", http_allowed_origins="*")
    Settings(
        http_allowed_hosts="X.example, y.example,",
        http_allowed_origins="https://X.example, http://[::1]:3000, null, vscode-webview://1",
    )


@pytest.mark.parametrize(
    "setting",
    [s for s in fields(Settings) if s.metadata["low"] is not None],
    ids=lambda setting: setting.name,
)
def test_the_bounds_themselves_are_allowed(setting: Any) -> None:
    for bound in (setting.metadata["low"], setting.metadata["high"]):
        if bound is not None:
            assert getattr(Settings(**{setting.name: bound}), setting.name) == bound


@pytest.mark.parametrize(
    ("host", "address", "is_local"),
    [
        ("127.0.0.1", "127.0.0.1:1", True),
        ("127.8.0.1", "127.8.0.1:1", True),
        ("localhost", "localhost:1", True),
        ("::1", "[::1]:1", True),
        ("[::1]", "[::1]:1", True),
        ("::", "[::]:1", False),
        ("0.0.0.0", "0.0.0.0:1", False),  # noqa: S104
        ("10.0.0.1", "10.0.0.1:1", False),
        ("example.org", "example.org:1", False),
    ],
)
def test_hosts_are_written_as_urls_have_them_and_loopback_is_known(
    host: str, address: str, is_local: bool
) -> None:
    assert join_address(host, 1) == address
    assert is_loopback(host) is is_local
