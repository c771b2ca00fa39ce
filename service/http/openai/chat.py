"""`/v1/chat/completions`: answers to conversations, whole or as a stream of events.

The model's chat template makes the prompt; a model without one is refused by name.
"""

import time
from collections import defaultdict
from dataclasses import dataclass
from uuid import uuid4

import msgspec

from service.calls.generation import (
    Generate,
    GenerateChunk,
    GeneratedText,
    GenerateResponse,
    GenerationUsage,
)
from service.errors import InvalidArgument
from service.http.openai.chat_fields import ChatRequest
from service.http.openai.tool_calls import Call, CallReader, Piece
from service.http.openai.tool_grammars import at_function
from service.http.request import Reply, Request
from service.http.routes import Route
from service.http.shared.answers import CONTINUES, Values, counts_of, end_of, usage_of
from service.http.shared.logprobs import OutputTokens, in_chat
from service.http.shared.models import BASES, find_model, name_of
from service.http.shared.names import Names
from service.http.shared.output_form import unenforced
from service.http.shared.paths import GENERATE, GENERATE_UNARY
from service.http.shared.peer_fields import unsupported
from service.http.stream import Stream

ASSISTANT = "assistant"


def chat_routes() -> tuple[Route, ...]:
    return tuple(
        Route("POST", f"{base}/chat/completions", chat, GENERATE, (ChatRequest,)) for base in BASES
    )


async def chat(request: Request) -> Reply | None:
    asked = await request.json(ChatRequest)
    request.named = Names(asked.field_names)
    plan = await _Plan.of(request, asked)
    grammar = plan.call.sampling_params.grammar
    request.reply_headers += unenforced(grammar)
    try:
        return await _answer(request, plan)
    except InvalidArgument as error:
        if grammar is None or asked.form_field:  # the grammar is not one of calls
            raise
        raise at_function(error, grammar.text, asked.callables) from error


async def _answer(request: Request, plan: "_Plan") -> Reply | None:
    if plan.asked.stream:
        await _Streaming(request, plan).run()
        return None
    answer: GenerateResponse = await request.ask(GENERATE_UNARY, plan.call)
    choices = [_choice(index, each, plan) for index, each in enumerate(answer.results)]
    head = plan.head("chat.completion") | {"model": answer.model}
    if plan.asked.tells_prompt_ids:
        head["prompt_token_ids"] = list(answer.prompt_token_ids)
    return Reply.json({**head, "choices": choices, "usage": usage_of([answer.usage])})


@dataclass(frozen=True, slots=True)
class _Plan:
    """One checked request."""

    asked: ChatRequest
    call: Generate
    id: str
    created_s: int
    tool_form: str  # of calls; empty where none can be made

    @classmethod
    async def of(cls, request: Request, asked: ChatRequest) -> "_Plan":
        await request.work(asked.check)
        name = await name_of(request, asked.model)
        form = ""
        if asked.callable_names:
            model = await find_model(request, name)
            form = model.tool_call_form
            if model.has_chat_template and not form:
                raise unsupported("tools", f"the chat template of model '{name}' declares none")
        call = await request.work(lambda: _call(asked, name, form))
        return cls(asked, call, f"chatcmpl-{uuid4().hex}", int(time.time()), form)

    def reader(self) -> CallReader | None:
        """A reader of the calls in one output; None where none can be made."""
        if not self.tool_form:
            return None
        return CallReader(
            self.tool_form,
            [function.name for function in self.asked.callables],
            is_single=self.asked.parallel_tool_calls is False,
            is_required=self.asked.tool_choice not in (None, "auto"),
        )

    def head(self, kind: str) -> Values:
        """The first fields of the answer, or of each event."""
        return {
            "id": self.id,
            "object": kind,
            "created": self.created_s,
            "model": self.call.model,
        }


def _call(asked: ChatRequest, model: str, tool_form: str) -> Generate:
    """The record of the call. Raises `HttpError` and `InvalidArgument`."""
    grammar = asked.call_grammar(tool_form) if tool_form else None
    params = asked.sampling(
        grammar or asked.output_grammar(),
        max_tokens=asked.num_tokens,
        open_max_tokens=asked.num_tokens is None or None,
        logprobs=asked.num_logprobs,
    )
    return Generate(model=model, prompt=asked.conversation, sampling_params=params, **asked.reading)


def _choice(index: int, result: GeneratedText, plan: _Plan) -> Values:
    asked, reader = plan.asked, plan.reader()
    pieces: list[Piece] = [result.text]
    if reader:
        pieces = [*reader.read(result.text), *reader.end(is_cut=_is_cut(result))]
    calls = [each for each in pieces if isinstance(each, Call)]
    text = "".join(each for each in pieces if isinstance(each, str))
    message: Values = {"role": ASSISTANT, "content": text, "refusal": None}
    if result.reasoning:
        message |= {"content": text or None} | asked.told(result.reasoning)
    end = end_of(result)
    if calls:
        message |= {"content": text or None, "tool_calls": [call.fields for call in calls]}
        end = end if calls[-1].is_cut else _with_calls(end)
    choice = {
        "index": index,
        "message": message,
        "logprobs": _logprobs(result, OutputTokens(), asked),
        **end,
    }
    if asked.return_token_ids:
        choice["token_ids"] = list(result.token_ids)
    return choice


def _is_cut(output: GeneratedText) -> bool:
    """Whether an output ended by its number of tokens or by a stop, not by itself."""
    return output.finish_reason == "length" or bool(output.stop_reason)


def _with_calls(end: Values) -> Values:
    """Finish reason of an output with calls: the calls, unless it was cut."""
    return end | {"finish_reason": "tool_calls"} if end["finish_reason"] == "stop" else end


def _logprobs(output: GeneratedText, tokens: OutputTokens, asked: ChatRequest) -> Values | None:
    if not asked.logprobs:
        return None
    as_ids = bool(asked.return_tokens_as_token_ids)
    return in_chat([part.token for part in tokens.read(output)], as_ids=as_ids)


class _Streaming:
    """The events of one request."""

    def __init__(self, request: Request, plan: _Plan) -> None:
        self._request, self._plan = request, plan
        self._stream = Stream(request, "events", says_done=True)
        self._head = plan.head("chat.completion.chunk")
        self._num_prompt_tokens = self._num_output_tokens = 0
        self._usage = GenerationUsage()
        # By sample whose role was sent: what reads calls in it.
        self._readers: dict[int, CallReader | None] = {}
        self._tokens: defaultdict[int, OutputTokens] = defaultdict(OutputTokens)

    async def run(self) -> None:
        await self._request.ask(GENERATE, self._plan.call, self._write)
        if self._plan.asked.has_usage:
            await self._send([], usage_of([self._usage]))
        await self._stream.end()

    async def _write(self, chunk: GenerateChunk) -> None:
        asked, index = self._plan.asked, chunk.sample_index
        self._num_output_tokens += len(chunk.token_ids)
        self._usage = chunk.usage or self._usage
        self._num_prompt_tokens = chunk.num_prompt_tokens or self._num_prompt_tokens
        if index not in self._readers:
            first = {} if self._readers or not asked.tells_prompt_ids else _prompt_ids(chunk)
            self._readers[index] = self._plan.reader()
            await self._send([_delta(index, {"role": ASSISTANT, "content": ""})], more=first)
        reader = self._readers[index]
        num_before = reader.num_calls if reader else 0
        pieces: list[Piece] = reader.read(chunk.text) if reader else [chunk.text]
        if reader and chunk.finish_reason:
            pieces += reader.end(is_cut=_is_cut(chunk))
        logprobs = _logprobs(chunk, self._tokens[index], asked)
        logprobs = logprobs if logprobs and logprobs["content"] else None
        text = "".join(each for each in pieces if isinstance(each, str))
        if chunk.reasoning or text or logprobs or (asked.return_token_ids and chunk.token_ids):
            told = asked.told(chunk.reasoning) if chunk.reasoning else {}
            delta = {**told, **({"content": text} if text or not told else {})}
            choice = _delta(index, delta, logprobs)
            if asked.return_token_ids:
                choice["token_ids"] = list(chunk.token_ids)
            await self._send([choice])
        calls = [each for each in pieces if isinstance(each, Call)]
        for place, call in enumerate(calls, num_before):
            await self._send([_delta(index, {"tool_calls": [{"index": place, **call.fields}]})])
        if chunk.finish_reason:
            end = end_of(chunk)
            if reader and reader.num_calls and not any(call.is_cut for call in calls):
                end = _with_calls(end)
            await self._send([{**_delta(index, {}), **end}])

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
