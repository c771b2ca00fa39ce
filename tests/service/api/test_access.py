"""Rules, tokens and files of secrets by themselves; over the wire: `service/rpc/test_auth.py`."""

import logging
import time
from pathlib import Path
from typing import Any

import grpc
import pytest
from attendant.v1 import features_pb2, generation_pb2, reading_pb2, text_pb2, vision_pb2
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from tritonclient.grpc import service_pb2 as pb

from service.api.access import HEALTH_SERVICE, MAX_TOKENS, PROTOCOLS, read_tokens
from service.api.secrets import LOOK_INTERVAL_S, WatchedFiles
from service.errors import SettingError
from service.rpc.authentication import Authentication
from service.settings import Settings

FIRST, SECOND, THIRD = "first-token-of-all", "second-token-of-all", "third-token-of-all"


WRONG_RULES = {
    "inference": "has 'inference', expected <protocol>,...:<key>=<value>",
    "inference:key": "has 'inference', expected <protocol>,...:<key>=<value>",
    "inference:key=": "has 'inference', expected <protocol>,...:<key>=<value>",
    "inference:Key=v": "has 'inference', expected <protocol>,...:<key>=<value>",
    "inference:a b=v": "has 'inference', expected <protocol>,...:<key>=<value>",
    "inference:key=a b": "has a value of 3 characters, expected visible ASCII",
    "infer:key=v": "has the protocol 'infer', expected one of health, metadata, inference, ",
    "health:a=v;health:b=v": "has the protocol 'health' twice, expected it once",
    "health:a=@/no/such": "'/no/such' cannot be read: No such file or directory",
}


@pytest.mark.parametrize("rules", WRONG_RULES)
def test_rules_that_make_no_sense_are_refused(rules: str) -> None:
    with pytest.raises(SettingError) as caught:
        Authentication(Settings(restricted_protocols=rules))
    assert str(caught.value).startswith("--restricted-protocols ")
    assert WRONG_RULES[rules] in str(caught.value)


def test_every_method_of_every_service_is_in_one_group() -> None:
    """But for what Triton's protocol has no call for here."""
    own = (text_pb2, generation_pb2, reading_pb2, features_pb2, vision_pb2)
    modules = (pb, *own, health_pb2, reflection_pb2)
    services = [s for module in modules for s in module.DESCRIPTOR.services_by_name.values()]
    methods = {f"/{s.full_name}/{method.name}" for s in services for method in s.methods}
    grouped = [method for group in PROTOCOLS.values() for method in group]
    methods |= {method.replace("reflection.v1alpha", "reflection.v1") for method in methods}
    health_lists = {f"{HEALTH_SERVICE}List"}  # of newer stubs; not served
    assert len(grouped) == len(set(grouped))
    assert methods - health_lists == set(grouped)


TOKEN_FILES: dict[str, tuple[str, str]] = {
    "short": (f"{FIRST}\nshort\n", "line 2 has 5 characters, expected 16 to 1024"),
    "long": ("x" * 1_025, "line 1 has 1025 characters, expected 16 to 1024"),
    "with a space": (f"{FIRST} {SECOND}", "visible ASCII without spaces"),
    "not ASCII": ("ü" * 20, "visible ASCII without spaces"),
    "none": ("# nobody\n\n", f"has 0 tokens, expected 1 to {MAX_TOKENS}"),
    "many": (
        "\n".join(f"{FIRST}{number}" for number in range(MAX_TOKENS + 1)),
        f"has {MAX_TOKENS + 1} tokens, expected 1 to {MAX_TOKENS}",
    ),
    "large": ("#" * 2**18, "is too large, expected at most 131072 bytes"),
}


@pytest.mark.parametrize("case", TOKEN_FILES)
def test_a_file_without_good_tokens_is_refused_by_name(case: str, tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    content, text = TOKEN_FILES[case]
    path.write_text(content)
    with pytest.raises(SettingError) as caught:
        read_tokens(path)
    assert f"--token-file '{path}'" in str(caught.value)
    assert text in str(caught.value)
    assert content.strip() not in str(caught.value)  # no secret in a log


def test_a_token_file_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="cannot be read: No such file"):
        read_tokens(tmp_path / "tokens")


def test_a_token_file_that_others_may_read_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "tokens"
    path.write_text(FIRST)
    for mode, num_warnings in ((0o640, 0), (0o644, 1)):
        path.chmod(mode)
        caplog.clear()
        assert read_tokens(path) == [FIRST]
        assert len(caplog.records) == num_warnings


class Clock:
    """Stands still."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def watched(tmp_path: Path) -> tuple[Path, Clock, WatchedFiles[list[str]]]:
    path, clock = tmp_path / "tokens", Clock()
    path.write_text(FIRST)
    return path, clock, WatchedFiles([path], lambda: read_tokens(path), clock)


def test_tokens_are_read_again_when_their_file_changes(
    watched: tuple[Path, Clock, WatchedFiles[list[str]]],
) -> None:
    """At the next look, one second after the last; a link that is turned is a change."""
    path, clock, files = watched
    path.write_text(SECOND)
    assert files.value == [FIRST]
    clock.now_s += LOOK_INTERVAL_S
    assert files.value == [SECOND]
    (path.parent / "new").write_text(THIRD)
    path.unlink()
    path.symlink_to(path.parent / "new")
    clock.now_s += LOOK_INTERVAL_S
    assert files.value == [THIRD]


@pytest.mark.parametrize("content", ["", "short", None])
def test_a_change_that_is_no_good_leaves_what_was(
    content: str | None,
    watched: tuple[Path, Clock, WatchedFiles[list[str]]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is logged once, not at every look, and mended by the next change."""
    path, clock, files = watched
    path.chmod(0o600)
    path.unlink() if content is None else path.write_text(content)
    for _ in range(3):
        clock.now_s += LOOK_INTERVAL_S
        assert files.value == [FIRST]
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [error.message.split(":")[0] for error in errors] == [
        "the previous contents stay in use"
    ]
    path.write_text(SECOND)
    clock.now_s += LOOK_INTERVAL_S
    assert files.value == [SECOND]


async def test_guarding_a_call_takes_microseconds(tmp_path: Path) -> None:
    """64 tokens and a key: under 1 ms by far, also where other processes have the cores."""
    path = tmp_path / "tokens"
    path.write_text("\n".join(f"{FIRST}{number}" for number in range(MAX_TOKENS)))
    rules = {"token_file": str(path), "restricted_protocols": "inference:key=value"}
    guard = Authentication(Settings(**rules))  # type: ignore[arg-type] # both are strings

    class Details:
        method = "/inference.GRPCInferenceService/ModelInfer"
        invocation_metadata: tuple[tuple[str, str | bytes], ...] = (
            ("authorization", f"Bearer {FIRST}{MAX_TOKENS - 1}"),
            ("triton-grpc-protocol-key", "value"),
        )

    passed: Any = grpc.unary_unary_rpc_method_handler(print)

    async def continuation(details: object) -> Any:
        return passed

    took_s = []
    for _ in range(20):
        started_s = time.perf_counter()
        assert await guard.intercept_service(continuation, Details()) is passed
        took_s.append(time.perf_counter() - started_s)
    assert min(took_s) < 1e-3


def test_without_rules_nothing_is_asked() -> None:
    assert not Authentication(Settings()).has_rules
