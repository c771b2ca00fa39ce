"""`litellm`: completions and chats, whole, streamed and asynchronous, embeddings, and errors."""

import asyncio
import os
from typing import Any

import litellm

BASE = f"{os.environ['ATTENDANT_URL']}/v1"
SERVER: dict[str, Any] = {"api_base": BASE, "api_key": "none"}
GREEDY: dict[str, Any] = {
    "model": "text-completion-openai/tiny-gpt",
    "prompt": "The function",
    "temperature": 0,
    "max_tokens": 12,
    **SERVER,
}
TEXTS = ["win a prize", "lunch"]


def check_completions() -> None:
    answer = litellm.text_completion(**GREEDY)
    whole = answer.choices[0].text
    assert whole
    assert answer.usage.completion_tokens > 0
    pieces = litellm.text_completion(stream=True, **GREEDY)
    assert "".join(piece.choices[0].text or "" for piece in pieces) == whole
    assert asyncio.run(litellm.atext_completion(**GREEDY)).choices[0].text == whole


def check_chats() -> None:
    fields: dict[str, Any] = {
        "model": "openai/tiny-chat",
        "messages": [{"role": "user", "content": "Hello"}],
        "temperature": 0,
        "max_tokens": 12,
        **SERVER,
    }
    answer = litellm.completion(**fields)
    whole = answer.choices[0].message.content
    assert answer.usage.completion_tokens > 0
    pieces = litellm.completion(stream=True, **fields)
    assert "".join(piece.choices[0].delta.content or "" for piece in pieces) == whole
    assert asyncio.run(litellm.acompletion(**fields)).choices[0].message.content == whole


def check_embeddings() -> None:
    answer = litellm.embedding(
        model="openai/tiny-embed", input=TEXTS, encoding_format="float", **SERVER
    )
    assert len(answer.data) == len(TEXTS)
    assert all(isinstance(number, float) for number in answer.data[0]["embedding"])


def check_errors() -> None:
    try:
        litellm.text_completion(**GREEDY | {"model": "text-completion-openai/absent"})
    except litellm.exceptions.NotFoundError:
        pass
    else:
        raise AssertionError("a model that is absent answered")


if __name__ == "__main__":
    check_completions()
    check_chats()
    check_embeddings()
    check_errors()
