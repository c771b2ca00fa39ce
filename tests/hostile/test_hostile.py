"""The short form of `python -m tests.hostile`: what must hold on a machine of any speed.

Bodies beyond a bound are refused before they are decoded, with the setting that would take them;
the event loop is never the one that reads a long body.
"""

import asyncio
import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from service.api.admission import Admission, Stay, current_stay
from service.errors import Overloaded
from service.http import body as bodies
from service.http.openai import chat_plan
from service.settings import Settings
from tests.fakes.chats import write_chat_model
from tests.fakes.http import ask
from tests.fakes.serving import Served, default_sessions, eventually, serving
from tests.fakes.serving import write_models as write_default_models
from tests.hostile.bodies import Description, Hole

pytestmark = pytest.mark.asyncio(loop_scope="module")
PARTS = 1_024
SETTINGS = {"max_message_parts": PARTS, "http_max_json_bytes": 2**18, "max_text_characters": 1_000}
DESCRIPTION = Description(json.loads(Path("docs/reference/openapi.json").read_text()))
HOLES = sorted(
    {(path, hole.field, hole.form): (path, hole) for path, hole in DESCRIPTION.bodies()}.values(),
    key=lambda found: (found[0], found[1].field, found[1].form),
)


def SERVE(repository: Path, **settings: Any) -> Any:  # noqa: N802 - the fixture's name
    write_default_models(repository)
    write_chat_model(repository)
    return serving(repository, default_sessions(), **settings)


def _looks_up_first(path: str) -> bool:
    """Whether a path's bodies have no record, one that its model decides, or are not read here.

    Files and batches are not kept without a folder for them, and are refused before they are read.
    """
    return (
        path.startswith(("/v2/", "/api/", "/pipeline/"))
        or "/v1/batches" in path
        or "/v1/files" in path
        or re.fullmatch(r"/models/[^/]+(/pipeline/.*)?", path) is not None
    )


def _served(text: bytes) -> bytes:
    """The same with the names of the models that are served here."""
    for name, ours in ((b"minilm", b"mini"), (b"gpt", b"talks")):
        text = text.replace(name, ours)
    return text


def _is_of_texts(hole: Hole) -> bool:
    return not hole.separator


async def test_every_list_and_object_beyond_the_bound_is_refused_before_it_is_decoded(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A third of the fields of every path that has records, alone, at twice the number of parts."""
    decoded: list[int] = []
    monkeypatch.setattr(
        "service.http.request.decode_json", lambda body, _: decoded.append(len(body))
    )
    tried = 0
    for path, hole in HOLES[::3]:
        if _looks_up_first(path) or _is_of_texts(hole):
            continue
        body = hole.body(2 * PARTS * 4 * len(hole.unit(0) + hole.separator))
        if len(body) > SETTINGS["http_max_json_bytes"]:
            continue
        answer = await ask(served, "POST", path, body)
        said = json.dumps(answer.json)
        assert answer.status == 400, (path, hole.field, hole.form, said)
        assert "--max-message-parts" in said, (path, hole.field, hole.form, said)
        tried += 1
    assert tried > 60
    assert not decoded


async def test_every_field_is_answered_or_refused_by_intent(served: Served) -> None:
    """A sample of all fields, of every path, around the bounds: no 500, and the server lives."""
    for path, hole in HOLES[::13]:
        for num_bytes in (2_000, 20_000, 300_000):
            body = _served(hole.body(num_bytes))
            answer = await ask(served, "POST", _served(path.encode()).decode(), body)
            assert answer.status != 500, (path, hole.field, hole.form, num_bytes, answer.body[:200])
    assert (await ask(served, "GET", "/v2/health/live")).status == 200
    assert served.app._admission.num_bytes == 0


async def test_a_long_body_is_read_on_another_thread(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decoding, checking and making the call: none on the event loop's thread."""
    threads: dict[str, set[bool]] = {}
    is_loop = threading.get_ident()

    def noting(name: str, call: Any) -> Any:
        def noted(*args: Any, **options: Any) -> Any:
            threads.setdefault(name, set()).add(threading.get_ident() == is_loop)
            return call(*args, **options)

        return noted

    monkeypatch.setattr("service.http.request.decode_json", noting("decode", bodies.decode_json))
    monkeypatch.setattr("service.http.request.check_json", noting("check", bodies.check_json))
    monkeypatch.setattr(chat_plan, "_call", noting("call", chat_plan._call))
    message = {"role": "user", "content": "a" * 500}
    long = {"model": "talks", "messages": [message] * 150, "max_tokens": 1}
    assert len(json.dumps(long)) > 2**16
    answer = await ask(served, "POST", "/v1/chat/completions", long)
    assert answer.status == 400  # more characters than the server takes
    assert threads == {"decode": {False}, "check": {False}, "call": {False}}


async def test_memory_beside_the_bytes_is_admitted_and_given_back() -> None:
    """A body alone is taken, whatever it needs; beside another it is refused."""
    admission = Admission(Settings(model_repository=Path("."), max_bytes_in_flight=10_000))
    first, second = Stay(), Stay()
    current_stay.set(first)
    admission.take(1_000)
    admission.take_memory(50_000)
    assert admission.num_bytes == 10_000
    current_stay.set(second)
    with pytest.raises(Overloaded, match="bytes in flight"):
        admission.take(1)
    admission.let_go(first)
    admission.take(1)
    admission.let_go(second)
    assert admission.num_bytes == 0


async def test_work_of_a_caller_who_left_is_not_begun_and_begun_work_holds_its_bytes() -> None:
    admission = Admission(Settings(model_repository=Path("."), max_bytes_in_flight=10_000))
    may_end, begun = threading.Event(), []

    def work(name: str) -> None:
        begun.append(name)
        may_end.wait(60)

    async def call(name: str, num_bytes: int) -> None:
        stay = Stay()
        current_stay.set(stay)
        admission.take(num_bytes)
        try:
            await admission.run_long(lambda: work(name))
        finally:
            admission.let_go(stay)

    running = asyncio.create_task(call("first", 100))
    waiting = asyncio.create_task(call("second", 1_000))
    await eventually(lambda: bool(begun))
    for task in (running, waiting):
        task.cancel()
    await asyncio.gather(running, waiting, return_exceptions=True)
    assert admission.num_bytes == 100  # the second's are given back at once
    may_end.set()
    await eventually(lambda: not admission.num_bytes)
    assert (admission.num_bytes, begun) == (0, ["first"])
