"""`openai`, synchronous and asynchronous: every call that this server answers, and its errors."""

import asyncio
import json
import os
import time
from typing import Any

import openai
from pydantic import BaseModel, Field

BASE = f"{os.environ['ATTENDANT_URL']}/v1"
GREEDY: dict[str, Any] = {"model": "tiny-gpt", "temperature": 0, "max_tokens": 12}
CHAT: dict[str, Any] = {
    "model": "tiny-chat",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hello"}]},
    ],
    "temperature": 0,
    "max_completion_tokens": 12,
}
NUM_STREAMS = 20
PATIENCE_S = 60.0


def check_models(client: openai.OpenAI) -> None:
    assert {model.id for model in client.models.list()} >= {"tiny-gpt", "tiny-embed"}
    assert client.models.retrieve("tiny-gpt").id == "tiny-gpt"


def check_completions(client: openai.OpenAI) -> None:
    answer = client.completions.create(prompt="The function", logprobs=2, **GREEDY)
    choice = answer.choices[0]
    assert choice.finish_reason in ("stop", "length")
    assert choice.logprobs is not None
    assert choice.logprobs.tokens is not None
    assert answer.usage is not None
    assert len(choice.logprobs.tokens) == answer.usage.completion_tokens
    by_ids = client.completions.create(prompt=list(b"The function"), **GREEDY)
    assert by_ids.usage is not None
    assert by_ids.usage.prompt_tokens == answer.usage.prompt_tokens
    raw = client.completions.with_raw_response.create(prompt="a", **GREEDY)
    assert raw.headers["x-request-id"]
    assert raw.parse().choices[0].text


def check_streams(client: openai.OpenAI) -> None:
    """A stream has the text of the whole answer; several choices come by index; usage is last."""
    whole = client.completions.create(prompt="The function", **GREEDY).choices[0].text
    with client.completions.create(prompt="The function", stream=True, **GREEDY) as events:
        assert "".join(event.choices[0].text for event in events) == whole
    many = client.completions.create(
        model="tiny-gpt",
        prompt=["The function", "A list"],
        n=2,
        seed=1,
        max_tokens=8,
        stream=True,
        stream_options={"include_usage": True},
    )
    *events, last = list(many)
    reasons = [choice for event in events for choice in event.choices if choice.finish_reason]
    assert sorted(choice.index for choice in reasons) == [0, 1, 2, 3]
    assert last.choices == []
    assert last.usage is not None
    assert 0 < last.usage.completion_tokens <= 4 * 8


def check_embeddings(client: openai.OpenAI) -> None:
    """What the client decodes of base64, its default, is what comes as numbers."""
    texts = ["win a prize", "lunch"]
    decoded = client.embeddings.create(model="tiny-embed", input=texts)
    plain = client.embeddings.create(model="tiny-embed", input=texts, encoding_format="float")
    assert [each.embedding for each in decoded.data] == [each.embedding for each in plain.data]
    assert decoded.usage.total_tokens == plain.usage.total_tokens > 0


def check_chats(client: openai.OpenAI) -> None:
    """Whole and as a stream, with log probabilities, several choices and usage."""
    answer = client.chat.completions.create(logprobs=True, top_logprobs=2, **CHAT)
    choice = answer.choices[0]
    assert choice.message.role == "assistant"
    assert choice.message.content is not None
    assert choice.finish_reason in ("stop", "length")
    assert answer.usage is not None
    assert choice.logprobs is not None
    assert choice.logprobs.content is not None
    assert len(choice.logprobs.content) == answer.usage.completion_tokens
    with client.chat.completions.create(
        stream=True, stream_options={"include_usage": True}, **CHAT
    ) as events:
        *chunks, last = list(events)
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == choice.message.content
    assert last.usage is not None
    assert last.usage.completion_tokens == answer.usage.completion_tokens
    several = client.chat.completions.create(n=2, seed=1, **CHAT | {"temperature": 1})
    assert [each.index for each in several.choices] == [0, 1]
    with client.chat.completions.stream(**CHAT) as helper:
        pieces = [event.delta for event in helper if event.type == "content.delta"]
    assert "".join(pieces) == text


class Person(BaseModel):
    """What an answer has to be; bounded, as random weights end no text by themselves."""

    name: str = Field(max_length=8)
    age: int = Field(ge=0, le=150)


def check_forms(client: openai.OpenAI) -> None:
    chat: dict[str, Any] = CHAT | {"model": "tiny-calls", "max_completion_tokens": 200}
    parsed = client.chat.completions.parse(response_format=Person, **chat)
    assert isinstance(parsed.choices[0].message.parsed, Person)
    with client.chat.completions.stream(response_format=Person, **chat) as helper:
        assert helper.get_final_completion().choices[0].message.parsed is not None
    tool: Any = openai.pydantic_function_tool(Person, name="person")
    choice: Any = {"type": "function", "function": {"name": "person"}}
    called = client.chat.completions.parse(tools=[tool], tool_choice=choice, **chat)
    calls = called.choices[0].message.tool_calls or []
    assert [type(call.function.parsed_arguments) for call in calls] == [Person]


def check_errors(client: openai.OpenAI) -> None:
    refusals: list[tuple[dict[str, Any], type[openai.APIStatusError], str | None]] = [
        ({"model": "absent", "prompt": "x"}, openai.NotFoundError, "model"),
        ({"model": "tiny-gpt", "prompt": "x", "suffix": "y"}, openai.BadRequestError, "suffix"),
        ({"model": "tiny-gpt", "prompt": ""}, openai.BadRequestError, "prompt"),
        (GREEDY | {"prompt": "x", "temperature": -1}, openai.BadRequestError, "temperature"),
    ]
    for fields, kind, param in refusals:
        try:
            client.completions.create(**fields)
        except kind as error:
            assert error.message, fields
            assert param is None or error.param == param, (fields, error.body)
        else:
            raise AssertionError(f"{fields} was answered")
    try:
        client.chat.completions.create(
            model="tiny-gpt", messages=[{"role": "user", "content": "x"}]
        )
    except openai.BadRequestError as error:
        assert error.code == "no_chat_template"
    else:
        raise AssertionError("a model without a chat template answered a chat")


def check_batches(client: openai.OpenAI) -> None:
    """The whole circle of files and batches, with a line that is refused, and a wrong file."""
    embedding = {"model": "tiny-embed", "input": "a text"}
    bodies: list[tuple[Any, list[dict[str, Any]]]] = [
        ("/v1/chat/completions", [CHAT, {**CHAT, "model": "absent"}]),
        ("/v1/completions", [{**GREEDY, "prompt": "The function"}]),
        ("/v1/embeddings", [embedding] * NUM_STREAMS),
        ("/v1/responses", [{"model": "tiny-chat", "input": "Hello", "max_output_tokens": 12}]),
    ]
    for endpoint, lines in bodies:
        content = b"".join(
            json.dumps(
                {"custom_id": f"line {i}", "method": "POST", "url": endpoint, "body": body}
            ).encode()
            + b"\n"
            for i, body in enumerate(lines)
        )
        file = client.files.create(file=("requests.jsonl", content), purpose="batch")
        assert client.files.retrieve(file.id).bytes == len(content)
        batch = client.batches.create(
            input_file_id=file.id, endpoint=endpoint, completion_window="24h"
        )
        batch = ended(client, batch.id)
        assert batch.status == "completed"
        assert batch.request_counts is not None
        assert batch.request_counts.total == len(lines)
        assert batch.output_file_id is not None
        answers = [
            json.loads(line)
            for line in client.files.content(batch.output_file_id).text.splitlines()
        ]
        assert {each["response"]["status_code"] for each in answers} == {200}
        assert len(answers) == batch.request_counts.completed
        if batch.error_file_id is not None:
            (refused,) = client.files.content(batch.error_file_id).text.splitlines()
            assert json.loads(refused)["response"]["status_code"] == 404
        assert batch.id in {each.id for each in client.batches.list(limit=1)}
        assert client.files.delete(file.id).deleted
    file = client.files.create(file=("wrong.jsonl", b"{}\n{"), purpose="batch")
    batch = client.batches.create(
        input_file_id=file.id, endpoint="/v1/embeddings", completion_window="24h"
    )
    batch = ended(client, batch.id)
    assert batch.status == "failed"
    assert batch.errors is not None
    assert [each.line for each in batch.errors.data or []] == [1, 2]
    try:
        client.batches.cancel(batch.id)
    except openai.ConflictError as error:
        assert error.code == "batch_has_ended"
    else:
        raise AssertionError("a batch that has ended was cancelled")


def ended(client: openai.OpenAI, batch_id: str) -> Any:
    """A batch, once it has ended."""
    until_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < until_s:
        batch = client.batches.retrieve(batch_id)
        if batch.status in ("completed", "failed", "expired", "cancelled"):
            return batch
        time.sleep(0.05)
    raise AssertionError(f"batch {batch_id} has not ended")


def check_azure() -> None:
    """`AzureOpenAI`, whose paths name deployments, and its newer paths."""
    url = os.environ["ATTENDANT_URL"]
    with openai.AzureOpenAI(
        azure_endpoint=url, api_key="none", api_version="2024-10-21", max_retries=0
    ) as client:
        assert client.chat.completions.create(**CHAT).choices[0].finish_reason
        assert client.completions.create(prompt="a", **GREEDY).choices[0].finish_reason
        vectors = client.embeddings.create(model="tiny-embed", input="a text").data
        assert len(vectors) == 1
        assert list(client.chat.completions.create(stream=True, **CHAT))
        assert {model.id for model in client.models.list()} >= {"tiny-gpt"}
        file = client.files.create(file=("requests.jsonl", b"{}"), purpose="batch")
        assert client.files.delete(file.id).deleted
    with openai.AzureOpenAI(
        azure_endpoint=url, azure_deployment="tiny-chat", api_key="none", api_version="2024-10-21"
    ) as client:
        fields = {**CHAT, "model": "gpt-35-turbo"}
        assert client.chat.completions.create(**fields).choices[0].finish_reason


async def check_asynchronous() -> None:
    """Streams side by side, and one that the client leaves."""
    async with openai.AsyncOpenAI(base_url=BASE, api_key="none") as client:
        answers = await asyncio.gather(
            *(client.completions.create(prompt=f"story {i}", **GREEDY) for i in range(NUM_STREAMS))
        )
        assert all(answer.choices[0].finish_reason for answer in answers)
        fields: dict[str, Any] = {"model": "tiny-gpt", "prompt": "story", "max_tokens": 400}
        async with await client.completions.create(stream=True, **fields) as left:
            async for event in left:
                assert event.choices
                break
        await client.completions.create(prompt="after it", **GREEDY)


def main() -> None:
    with openai.OpenAI(base_url=BASE, api_key="none", max_retries=0) as client:
        check_models(client)
        check_completions(client)
        check_streams(client)
        check_chats(client)
        check_forms(client)
        check_embeddings(client)
        check_errors(client)
        check_batches(client)
    check_azure()
    asyncio.run(check_asynchronous())


if __name__ == "__main__":
    main()
