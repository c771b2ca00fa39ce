"""The status, body and headers of every error, in both forms."""

import json

import pytest

from service import errors
from service.http.status import (
    OPENAI,
    PLAIN,
    STATUSES,
    TRITON,
    TYPED,
    Writer,
    invalid,
    writer_of,
)

MADE: dict[type[errors.AttendantError], errors.AttendantError] = {
    errors.WaitTooLong: errors.WaitTooLong(2.6, 1.1),
    errors.TooEarly: errors.TooEarly(2.6, 1.1),
    errors.TooLate: errors.TooLate(2.0, 1.0),
    errors.LacksKind: errors.LacksKind("sparse", ["dense"]),
}
# Of an error: over OpenAI's API its status, type and code; on Triton's paths its status.
EXPECTED: dict[type[errors.AttendantError], tuple[int, str, str, int]] = {
    errors.InvalidArgument: (400, "invalid_request_error", "invalid_value", 400),
    errors.InputTooLong: (400, "invalid_request_error", "context_length_exceeded", 400),
    errors.LacksKind: (400, "invalid_request_error", "invalid_value", 400),
    errors.NoChatTemplate: (400, "invalid_request_error", "no_chat_template", 400),
    errors.NotFound: (404, "invalid_request_error", "model_not_found", 404),
    errors.AlreadyExists: (409, "invalid_request_error", "already_exists", 400),
    errors.WrongTask: (400, "invalid_request_error", "wrong_task", 400),
    errors.Unimplemented: (501, "invalid_request_error", "unsupported", 501),
    errors.Overloaded: (429, "rate_limit_error", "overloaded", 503),
    errors.WaitTooLong: (429, "rate_limit_error", "overloaded", 503),
    errors.TooEarly: (504, "server_error", "timeout", 504),
    errors.OutOfMemory: (429, "rate_limit_error", "out_of_memory", 500),
    errors.TimedOut: (503, "server_error", "unavailable", 503),
    errors.Unavailable: (503, "server_error", "unavailable", 503),
    errors.DeadlineExceeded: (504, "server_error", "timeout", 504),
    errors.TooLate: (504, "server_error", "timeout", 504),
    errors.ModelFailed: (500, "server_error", "model_failed", 500),
    errors.DeviceFailed: (500, "server_error", "model_failed", 500),
    errors.RegionFailed: (500, "server_error", "model_failed", 500),
    errors.LoadError: (500, "server_error", "model_failed", 500),
}


def test_every_error_is_expected_here() -> None:
    assert {*EXPECTED} == {*STATUSES}


@pytest.mark.parametrize("kind", EXPECTED, ids=lambda kind: kind.__name__)
def test_each_error_has_its_status_and_body(kind: type[errors.AttendantError]) -> None:
    error = MADE.get(kind) or kind("the text")
    status, type_, code, triton = EXPECTED[kind]
    number, body, headers = OPENAI.error(OPENAI.of_domain(error))
    assert number == status
    names_model = kind in (errors.NotFound, errors.WrongTask)
    param = "model" if names_model else getattr(error, "field", None)
    whole = {"message": str(error), "type": type_, "param": param, "code": code}
    assert json.loads(body) == {"error": whole}
    number, body, _ = TRITON.error(TRITON.of_domain(error))
    assert (number, json.loads(body)) == (triton, {"error": str(error)})
    assert PLAIN.error(PLAIN.of_domain(error))[0] == status
    names = {name for name, _ in headers}
    assert (b"retry-after" in names) == (status in (429, 503))
    assert (b"x-should-retry" in names) == (status in (501, 504))


def test_a_client_comes_again_when_the_wait_is_within_its_bound() -> None:
    """1.5 s beyond it: in whole seconds, and in milliseconds."""
    error = OPENAI.of_domain(errors.WaitTooLong(2.6, 1.1))
    assert error.headers == ((b"retry-after", b"2"), (b"retry-after-ms", b"1500"))
    busy = OPENAI.of_domain(errors.Overloaded("full"))
    assert busy.headers == ((b"retry-after", b"1"), (b"retry-after-ms", b"100"))


def test_a_field_is_named() -> None:
    _, body, _ = OPENAI.error(invalid("temperature is -1", "temperature"))
    assert json.loads(body)["error"]["param"] == "temperature"


@pytest.mark.parametrize(
    ("path", "writer"),
    [
        ("/v1/models", OPENAI),
        ("/v1/models?x=/v2", OPENAI),
        ("/openai/v1/completions", OPENAI),
        ("/models/gpt/v1/completions", OPENAI),
        ("/models/gpt/tokenize?x=1", OPENAI),
        ("/models/gpt/pipeline/fill-mask", PLAIN),
        ("/models/v1", PLAIN),
        ("/tokenize", OPENAI),
        ("/completions", OPENAI),
        ("/chat/completions", OPENAI),
        ("/embeddings", OPENAI),
        ("/models", OPENAI),
        ("/models/", OPENAI),
        ("/ranking", OPENAI),
        ("/rerank", OPENAI),
        ("/v2/rerank", OPENAI),
        ("/v2/models/v1", TRITON),
        ("/v2", TRITON),
        ("/models/gpt", PLAIN),
        ("/api/Classify", TYPED),
        ("/", PLAIN),
        ("", PLAIN),
    ],
)
def test_the_form_of_errors_is_that_of_the_path(path: str, writer: Writer) -> None:
    assert writer_of(path) is writer
