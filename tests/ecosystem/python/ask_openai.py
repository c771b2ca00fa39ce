"""`openai`, synchronous and asynchronous: every call that this server answers, and its errors."""

import asyncio
import os
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
    asyncio.run(check_asynchronous())


if __name__ == "__main__":
    main()
