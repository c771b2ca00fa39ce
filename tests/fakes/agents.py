"""Models that think and call functions, whose outputs a test writes."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from service.grammars.form import Grammar
from service.http.openai.chat_fields import ChatRequest
from service.serving import generative_model
from tests.fakes.chats import TOOLS, write_chat_model
from tests.fakes.every_task import every_session
from tests.fakes.http import Answer, ask
from tests.fakes.serving import Served, serving, within_patience

THINKS = TOOLS.replace("[a]", "[a]<think>")
THOUGHT, SAID = "I see é", "Yes"
CALL = '<tool_call>\n{"name": "sum", "arguments": {"a": [1, 2]}}\n</tool_call>'
WRITTEN = f"\n{THOUGHT}\n</think>\n\n{SAID}\n{CALL}"
SCHEMA = {"type": "object", "properties": {"a": {"type": "array"}}}
FUNCTION = {"name": "sum", "description": "adds", "parameters": SCHEMA}
# A chat about it, up to the call: the tools, and the first messages.
CHAT_TOOLS = [{"type": "function", "function": FUNCTION}]
CHAT_BEGINNING = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "add"}]


@asynccontextmanager
async def agents(repository: Path, **settings: Any) -> AsyncIterator[Served]:
    """`talks` that calls functions, and `thinks` that does so after thoughts."""
    write_chat_model(repository, "talks", TOOLS, max_tokens=1_024)
    write_chat_model(repository, "thinks", THINKS, max_tokens=1_024)
    async with serving(repository, every_session(), **settings) as served:
        yield served


class Script:
    """What models write from now on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.text = SAID
        monkeypatch.setattr(ChatRequest, "output_grammar", self._grammar)
        say_as_it_is(monkeypatch)

    def _grammar(self, *_: object) -> Grammar:
        return Grammar.of("choice", [self.text])


def say_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a choice be what a model writes, thoughts and all."""
    monkeypatch.setattr(generative_model, "behind_thoughts", lambda grammar, *_, **__: grammar)
    monkeypatch.setattr(Grammar, "has_leading_space", False)


async def post(served: Served, path: str, **body: Any) -> Answer:
    return await within_patience(ask(served, "POST", path, body))


def events_of(answer: Answer) -> list[tuple[str, Any]]:
    """Names and values of the events of a stream."""
    assert answer.status == 200, answer.body
    found = []
    for each in answer.body.decode().split("\n\n"):
        lines = [line for line in each.splitlines() if not line.startswith(":")]
        if lines:
            name, data = lines
            found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found
