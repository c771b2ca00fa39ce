"""`/v1/chat/completions`: answers to conversations, whole or as a stream of events.

The model's chat template makes the prompt; a model without one is refused by name.
"""

import time
from collections import defaultdict
from uuid import uuid4

import msgspec

from service.calls.generation import GenerateChunk, GeneratedText, GenerationUsage
from service.http.openai.chat_fields import ChatRequest
from service.http.openai.chat_plan import ChatOutput, ChatPlan, Thought
from service.http.openai.tool_calls import Call
from service.http.request import Reply, Request
from service.http.routes import Route
from service.http.shared.answers import CONTINUES, Values, counts_of, end_of, usage_of
from service.http.shared.logprobs import OutputTokens, in_chat
from service.http.shared.models import BASES
from service.http.shared.names import Names
from service.http.shared.paths import GENERATE
from service.http.stream import Stream

ASSISTANT = "assistant"


def chat_routes() -> tuple[Route, ...]:
    return tuple(
        Route("POST", f"{base}/chat/completions", chat, GENERATE, (ChatRequest,)) for base in BASES
    )


async def chat(request: Request) -> Reply | None:
    asked = await request.json(ChatRequest)
    request.named = Names(asked.field_names)
    plan = await ChatPlan.of(request, asked)
    head: Values = {
        "id": f"chatcmpl-{uuid4().hex}",
        "object": "chat.completion.chunk" if asked.stream else "chat.completion",
        "created": int(time.time()),
        "model": plan.call.model,
    }
    if asked.stream:
        await _Streaming(request, plan, head).run()
        return None
    answer = await plan.whole(request)
    choices = [_choice(index, each, plan) for index, each in enumerate(answer.results)]
    if asked.tells_prompt_ids:
        head["prompt_token_ids"] = list(answer.prompt_token_ids)
    return Reply.json({**head, "choices": choices, "usage": usage_of([answer.usage])})


def _choice(index: int, result: GeneratedText, plan: ChatPlan) -> Values:
    asked, output = plan.asked, plan.output()
    pieces = output.read(result)
    calls = [each for each in pieces if isinstance(each, Call)]
    text = "".join(each for each in pieces if isinstance(each, str))
    message: Values = {"role": ASSISTANT, "content": text, "refusal": None}
    if result.reasoning:
        message |= {"content": text or None} | asked.told(result.reasoning)
    if calls:
        message |= {"content": text or None, "tool_calls": [call.fields for call in calls]}
    choice = {
        "index": index,
        "message": message,
        "logprobs": _logprobs(result, OutputTokens(), asked),
        **_end(result, output),
    }
    if asked.return_token_ids:
        choice["token_ids"] = list(result.token_ids)
    return choice


def _end(result: GeneratedText, output: ChatOutput) -> Values:
    """Why an output ended: for its calls, unless it was cut."""
    end = end_of(result)
    if end["finish_reason"] == "stop" and output.ends_with_calls:
        return end | {"finish_reason": "tool_calls"}
    return end


def _logprobs(output: GeneratedText, tokens: OutputTokens, asked: ChatRequest) -> Values | None:
    if not asked.logprobs:
        return None
    as_ids = bool(asked.return_tokens_as_token_ids)
    return in_chat([part.token for part in tokens.read(output)], as_ids=as_ids)


class _Streaming:
    """The events of one request."""

    def __init__(self, request: Request, plan: ChatPlan, head: Values) -> None:
        self._request, self._plan, self._head = request, plan, head
        self._stream = Stream(request, "events", says_done=True)
        self._num_prompt_tokens = self._num_output_tokens = 0
        self._usage = GenerationUsage()
        self._outputs: dict[int, ChatOutput] = {}  # by sample whose role was sent
        self._tokens: defaultdict[int, OutputTokens] = defaultdict(OutputTokens)

    async def run(self) -> None:
        await self._plan.stream(self._request, self._write)
        if self._plan.asked.has_usage:
            await self._send([], usage_of([self._usage]))
        await self._stream.end()

    async def _write(self, chunk: GenerateChunk) -> None:
        asked, index = self._plan.asked, chunk.sample_index
        self._num_output_tokens += len(chunk.token_ids)
        self._usage = chunk.usage or self._usage
        self._num_prompt_tokens = chunk.num_prompt_tokens or self._num_prompt_tokens
        if index not in self._outputs:
            first = {} if self._outputs or not asked.tells_prompt_ids else _prompt_ids(chunk)
            self._outputs[index] = self._plan.output()
            await self._send([_delta(index, {"role": ASSISTANT, "content": ""})], more=first)
        output = self._outputs[index]
        num_before = output.num_calls
        pieces = output.read(chunk)
        logprobs = _logprobs(chunk, self._tokens[index], asked)
        logprobs = logprobs if logprobs and logprobs["content"] else None
        thoughts = "".join(each.text for each in pieces if isinstance(each, Thought))
        text = "".join(each for each in pieces if isinstance(each, str))
        told = asked.told(thoughts) if thoughts else {}
        if told:  # in a delta of its own, with what else there is where no text follows
            await self._send_new(index, chunk, told, None if text else logprobs, is_last=not text)
        if text or (not told and (logprobs or (asked.return_token_ids and chunk.token_ids))):
            await self._send_new(index, chunk, {"content": text}, logprobs, is_last=True)
        calls = [each for each in pieces if isinstance(each, Call)]
        for place, call in enumerate(calls, num_before):
            await self._send([_delta(index, {"tool_calls": [{"index": place, **call.fields}]})])
        if chunk.finish_reason:
            await self._send([{**_delta(index, {}), **_end(chunk, output)}])

    async def _send_new(
        self,
        index: int,
        chunk: GenerateChunk,
        delta: Values,
        logprobs: Values | None,
        *,
        is_last: bool,
    ) -> None:
        """A delta; the last one of a chunk has its tokens."""
        choice = _delta(index, delta, logprobs)
        if self._plan.asked.return_token_ids:
            choice["token_ids"] = list(chunk.token_ids) if is_last else []
        await self._send([choice])

    async def _send(
        self, choices: list[Values], usage: Values | None = None, more: Values | None = None
    ) -> None:
        event = {**self._head, "choices": choices, **(more or {})}
        asked = self._plan.asked
        if usage is None and asked.has_running_usage:
            usage = counts_of(self._num_prompt_tokens, self._num_output_tokens)
        if asked.has_usage or usage is not None:
            event["usage"] = usage
        await self._stream.send(msgspec.json.encode(event))


def _delta(index: int, delta: Values, logprobs: Values | None = None) -> Values:
    return {"index": index, "delta": delta, "logprobs": logprobs, **CONTINUES}


def _prompt_ids(chunk: GenerateChunk) -> Values:
    """The prompt's tokens in an answer's first event, as in vLLM."""
    return {"prompt_token_ids": list(chunk.prompt_token_ids)}
