"""Every answer and every event of OpenAI's and Anthropic's routes, by the libraries' strict types.

The libraries themselves build their types from any JSON: here each body is validated as it came.
"""

import json
import os
import time
import urllib.error
import urllib.request
from typing import Any

from anthropic.types import (
    ErrorResponse,
    Message,
    MessageTokensCount,
    RawMessageStreamEvent,
)
from openai.types import (
    Batch,
    Completion,
    CreateEmbeddingResponse,
    FileDeleted,
    FileObject,
    Model,
)
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

URL = os.environ["ATTENDANT_URL"]
WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 4}},
    "required": ["city"],
    "additionalProperties": False,
}
NAMED = {"name": "weather", "description": "The weather.", "parameters": WEATHER}
JSON_SCHEMA = {"name": "w", "schema": WEATHER, "strict": True}
SAID = {"messages": [{"role": "user", "content": "Hello"}]}
CHAT: dict[str, Any] = {"model": "tiny-calls", "temperature": 0, "max_tokens": 16, **SAID}
TOOLS: dict[str, Any] = {"tools": [{"type": "function", "function": NAMED}], "max_tokens": 300}
CHATS: list[dict[str, Any]] = [
    {},
    {"n": 2, "logprobs": True, "top_logprobs": 2, "temperature": 1},
    {**TOOLS, "tool_choice": "required"},
    {**TOOLS, "model": "agent"},
    {"response_format": {"type": "json_schema", "json_schema": JSON_SCHEMA}, "max_tokens": 200},
    {"stream_options": {"include_usage": True}},
    {"stop": ["a"], "metadata": {"a": "b"}, "user": "u"},
]
PROMPT: dict[str, Any] = {"model": "tiny-gpt", "prompt": "Hello", "max_tokens": 8}
PROMPTS: list[dict[str, Any]] = [{}, {"n": 2, "best_of": 2, "logprobs": 2}, {"echo": True}]
INPUT: dict[str, Any] = {"model": "tiny-calls", "input": "Hello", "max_output_tokens": 16}
FUNCTIONS = {"tools": [{"type": "function", "strict": True, **NAMED}], "max_output_tokens": 300}
CALL = {"call_id": "c", "name": "weather", "arguments": '{"city": "a"}'}
INPUTS: list[dict[str, Any]] = [
    {},
    {"top_logprobs": 2, "include": ["message.output_text.logprobs"], "metadata": {"a": "b"}},
    {**FUNCTIONS, "tool_choice": "required"},
    {**FUNCTIONS, "model": "agent", "instructions": "Be brief.", "parallel_tool_calls": False},
    {"text": {"format": {"type": "json_schema", **JSON_SCHEMA}}, "max_output_tokens": 200},
    {"reasoning": {"effort": "low", "summary": "auto"}, "truncation": "disabled"},
    {
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Hello"}]},
            {"type": "function_call", **CALL},
            {"type": "function_call_output", "call_id": "c", "output": "fine"},
        ]
    },
]
MESSAGE: dict[str, Any] = {"model": "tiny-calls", "max_tokens": 16, **SAID}
USED = {"tools": [{"name": "weather", "input_schema": WEATHER}], "max_tokens": 300}
MESSAGES: list[dict[str, Any]] = [
    {},
    {"system": [{"type": "text", "text": "Be brief."}], "stop_sequences": ["a"]},
    {**USED, "tool_choice": {"type": "any"}},
    {**USED, "model": "agent"},
    {"thinking": {"type": "adaptive"}, "metadata": {"user_id": "u"}},
]
counts = {"answers": 0, "events": 0}


def asked(path: str, body: Any = None, method: str = "") -> tuple[int, bytes]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{URL}{path}", data, method=method or None)  # noqa: S310
    request.add_header("content-type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def whole(kind: Any, path: str, body: Any = None, method: str = "", status: int = 200) -> Any:
    got, content = asked(path, body, method)
    assert got == status, (path, body, got, content)
    counts["answers"] += 1
    return TypeAdapter(kind).validate_json(content, strict=True)


def streamed(kind: Any, path: str, body: dict[str, Any]) -> None:
    status, content = asked(path, {**body, "stream": True})
    assert status == 200, (path, body, content)
    adapter = TypeAdapter(kind)
    lines = [line.removeprefix("data: ") for line in content.decode().splitlines()]
    events = [line for line in lines if line.startswith("{")]
    assert events, content
    for event in events:
        if event == '{"type":"ping"}':  # the library has no type for it, and passes it over
            continue
        if kind is Completion:  # OpenAI's own service says null before the last event too
            event = event.replace('"finish_reason":null', '"finish_reason":"stop"')
        found = adapter.validate_json(event, strict=True)
        assert getattr(found, "type", None) in (None, json.loads(event).get("type"))
        counts["events"] += 1


def uploaded(lines: list[dict[str, Any]]) -> FileObject:
    content = "\n".join(map(json.dumps, lines)).encode()
    parts = [
        b'--x\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n',
        b'--x\r\ncontent-disposition: form-data; name="file"; filename="in.jsonl"\r\n\r\n',
        content + b"\r\n--x--\r\n",
    ]
    request = urllib.request.Request(f"{URL}/v1/files", b"".join(parts))  # noqa: S310
    request.add_header("content-type", "multipart/form-data; boundary=x")
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
        counts["answers"] += 1
        return TypeAdapter(FileObject).validate_json(answer.read(), strict=True)


def check_batches() -> None:
    body = {**CHAT, "max_tokens": 2}
    line = {"method": "POST", "url": "/v1/chat/completions", "body": body}
    file = uploaded([{"custom_id": "a", **line}, {"custom_id": "b", **line, "body": {}}])
    started = {"input_file_id": file.id, "endpoint": line["url"], "completion_window": "24h"}
    batch = whole(Batch, "/v1/batches", started)
    for _ in range(600):
        batch = whole(Batch, f"/v1/batches/{batch.id}")
        if batch.status in ("completed", "failed", "expired"):
            break
        time.sleep(0.1)
    assert (batch.status, batch.request_counts.failed) == ("completed", 1), batch
    for name in (batch.output_file_id, batch.error_file_id, file.id):
        whole(FileObject, f"/v1/files/{name}")
        whole(FileDeleted, f"/v1/files/{name}", method="DELETE")


def check_errors() -> None:
    """OpenAI's library has no type for a whole error; these are its four fields."""
    for path, body in (
        ("/v1/chat/completions", SAID),
        ("/v1/completions", {"prompt": "a"}),
        ("/v1/embeddings", {"input": "a"}),
        ("/v1/responses", {"input": "a"}),
    ):
        status, content = asked(path, {"model": "nowhere", **body})
        error = json.loads(content)["error"]
        assert status == 404, content
        assert set(error) == {"message", "type", "param", "code"}, content
        counts["answers"] += 1
    whole(ErrorResponse, "/v1/messages", {**MESSAGE, "model": "nowhere"}, status=404)
    whole(ErrorResponse, "/v1/messages", {**MESSAGE, "max_tokens": "a"}, status=400)


for each in CHATS:
    if "stream_options" not in each:
        whole(ChatCompletion, "/v1/chat/completions", {**CHAT, **each})
    streamed(ChatCompletionChunk, "/v1/chat/completions", {**CHAT, **each})
for each in PROMPTS:
    whole(Completion, "/v1/completions", {**PROMPT, **each})
    streamed(Completion, "/v1/completions", {**PROMPT, **each})
whole(CreateEmbeddingResponse, "/v1/embeddings", {"model": "tiny-embed", "input": ["a", "b"]})
for each in INPUTS:
    whole(Response, "/v1/responses", {**INPUT, **each})
    streamed(ResponseStreamEvent, "/v1/responses", {**INPUT, **each})
whole(Model, "/v1/models/agent")
for each in MESSAGES:
    whole(Message, "/v1/messages", {**MESSAGE, **each})
    streamed(RawMessageStreamEvent, "/v1/messages", {**MESSAGE, **each})
whole(MessageTokensCount, "/v1/messages/count_tokens", {"model": "agent", **SAID})
check_batches()
check_errors()
print(counts)  # noqa: T201 - the figures of the table
