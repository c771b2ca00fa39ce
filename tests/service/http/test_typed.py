"""Every method of the typed API by both doors: the same answer, or the same refusal."""

import json
from typing import Any

import grpc
import pytest
from google.protobuf.json_format import MessageToJson, ParseDict
from google.protobuf.message import Message

from service.errors import AttendantError
from service.http.status import STATUSES
from service.rpc.status import ATTENDANT_CODES
from tests.fakes.every_task import SERVICES, VALID, message, response_type
from tests.fakes.http import ask
from tests.fakes.serving import Served, within_patience
from tests.service.rpc.test_typed_wire import PATH, cases

pytestmark = pytest.mark.asyncio(loop_scope="module")
CASES = {name: case for name, case in cases().items() if case[0] != PATH}
# Several errors have the same code of gRPC's, and other statuses.
ALIKE: dict[str, set[int]] = {}
for kind, code in ATTENDANT_CODES.items():
    ALIKE.setdefault(code.name, set()).add(STATUSES[kind].number)


async def _by_grpc(served: Served, path: str, sent: Message) -> tuple[str, Any]:
    call: Any = served.channel.unary_unary(
        path, request_serializer=lambda each: each.SerializeToString()
    )
    try:
        raw = await within_patience(call(sent))
    except grpc.aio.AioRpcError as error:
        return error.code().name, error.details()
    return "OK", response_type(path).FromString(raw)


def _untimed(reply: Any) -> Any:
    if "timings" in reply.DESCRIPTOR.fields_by_name:
        reply.ClearField("timings")
    return reply


@pytest.mark.parametrize("name", CASES)
async def test_both_doors_answer_alike(served: Served, name: str) -> None:
    path, sent = CASES[name]
    status, expected = await _by_grpc(served, path, sent)
    method = path.rpartition("/")[2]
    answer = await ask(served, "POST", f"/api/{method}", MessageToJson(sent).encode())
    if status == "OK":
        assert answer.status == 200
        got = ParseDict(answer.json, response_type(path)())
        assert _untimed(got) == _untimed(expected)
    else:
        assert answer.status in ALIKE[status]
        said = answer.json
        field = said.pop("field", None)
        assert said == {"error": expected, "status": status}
        if status == "INVALID_ARGUMENT" and expected.startswith("top_k is "):
            assert field == "top_k"


async def test_every_method_is_among_the_cases() -> None:
    assert {path.rpartition("/")[2] for path, _ in CASES.values()} == {*SERVICES} - {"Generate"}


async def test_every_error_of_the_domain_has_a_status() -> None:
    def below(kind: type[AttendantError]) -> set[type[AttendantError]]:
        return {kind}.union(*map(below, kind.__subclasses__()))

    ours = {kind for kind in below(AttendantError) if kind.__module__ == "service.errors"}
    assert ours - {*STATUSES} == ours - {*ATTENDANT_CODES}


@pytest.mark.parametrize("accept", ["*/*", "text/event-stream"])
async def test_a_generation_is_lines_or_events(served: Served, accept: str) -> None:
    whole = await ask(served, "POST", "/api/GenerateUnary", _generation())
    answer = await ask(served, "POST", "/api/Generate", _generation(), [("accept", accept)])
    assert answer.status == 200
    is_events = accept != "*/*"
    assert ("event-stream" in answer.headers["content-type"]) == is_events
    end = b"\n\n" if is_events else b"\n"
    assert answer.body.endswith(end)
    pieces = answer.body.split(end)[:-1]
    prefix = "data: " if is_events else ""
    chunks = [json.loads(piece.decode().removeprefix(prefix)) for piece in pieces]
    assert "".join(chunk.get("text", "") for chunk in chunks) == whole.json["results"][0]["text"]
    assert chunks[-1]["usage"].items() <= whole.json["usage"].items()
    assert chunks[-1]["finish_reason"] == whole.json["results"][0]["finish_reason"]


def _generation() -> dict[str, Any]:
    sent: dict[str, Any] = json.loads(MessageToJson(message("Generate", **VALID["GenerateUnary"])))
    return sent


async def test_what_is_refused_before_the_first_chunk_has_a_status(served: Served) -> None:
    answer = await ask(served, "POST", "/api/Generate", {**_generation(), "text": "x" * 2_000})
    assert answer.status == 400
    assert "characters" in answer.json["error"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"[]", "not an object"),
        (b"3", "not an object"),
        (b"{", "is not JSON: expecting property name"),
        (b'{"nix": 1}', "nix is not known, expected one of model, version, texts, truncate"),
        (b'{"texts": [1]}', "texts[0] is 1, expected a text"),
        (b'{"texts": ["\\ud800"]}', "texts[0] has a half of a surrogate pair"),
        (b'{"texts": ["\xff"]}', "the body is not UTF-8: byte 12 is 0xff"),
        (b'{"model": "a", "model": "b"}', "model is given twice, expected once"),
        (b"[" * 10_000, "nested 10000 deep, expected at most 64"),
        (b'{"a": "' + b"[" * 10_000 + b'"}', "a is not known, expected one of"),
        (b'{"texts": [' + b'"",' * 131_072 + b'""]}', "more than 131072 parts"),
    ],
)
async def test_a_body_that_is_no_message_is_refused(served: Served, body: bytes, said: str) -> None:
    answer = await ask(served, "POST", "/api/Classify", body)
    assert answer.status == 400
    assert said in answer.json["error"]
    assert answer.json["status"] == "INVALID_ARGUMENT"


async def test_a_body_that_is_no_message_has_the_field_at_fault(served: Served) -> None:
    answer = await ask(served, "POST", "/api/Classify", {"texts": ["a", 1]})
    assert answer.json["field"] == "texts[1]"


async def test_an_empty_body_is_a_message_without_fields(served: Served) -> None:
    listed = await ask(served, "POST", "/api/ListModels", b"")
    assert "spam" in [model["name"] for model in listed.json["models"]]


async def test_an_unknown_method_is_not_found_and_another_verb_is_refused(served: Served) -> None:
    unknown = await ask(served, "POST", "/api/Nix", {})
    assert unknown.status == 404
    assert "Classify" in unknown.json["error"]
    read = await ask(served, "GET", "/api/Classify")
    assert (read.status, read.headers["allow"]) == (405, "post")


async def test_texts_beside_files_keep_to_the_bound_of_texts(served: Served) -> None:
    """A file may be longer than texts may be; a field beside it may not."""
    long = "ab" * 2**20
    answer = await ask(served, "POST", "/api/ClassifyImage", {"model": "spam", "version": long})
    assert answer.status == 400
    assert answer.json["error"].startswith("version: the body has a text of 2097152 characters")
    answer = await ask(served, "POST", "/api/ClassifyImage", {"model": "spam", "images": [long]})
    assert "cannot classify images" in answer.json["error"]
