"""`/v1/messages` and `/v1/messages/count_tokens`, as Anthropic's API has them.

Stateless: what a client wants remembered it sends again. docs/reference/http.md says what of the
API is taken, and what is refused.
"""

from typing import Any
from uuid import uuid4

from service.calls.generation import GenerateChunk, GeneratedText, GenerationUsage
from service.calls.tokens import Tokenize, Tokenized
from service.http.agents.messages_fields import CALL_ID, CountRequest, MessagesRequest
from service.http.agents.turns import Turns, event, in_words_of, leave_out, names_in
from service.http.openai.chat_plan import ChatOutput, ChatPlan, Thought
from service.http.openai.tool_calls import Call
from service.http.request import Reply, Request
from service.http.routes import Route
from service.http.shared.answers import Values
from service.http.shared.models import BASES, name_of
from service.http.shared.paths import GENERATE, TOKENIZE
from service.http.status import HttpError, anthropic_error
from service.http.stream import Stream

ANSWER = {"type": "message", "role": "assistant"}


def message_routes() -> tuple[Route, ...]:
    return tuple(
        route
        for base in BASES
        for route in (
            Route("POST", f"{base}/messages", answer, GENERATE, (MessagesRequest,)),
            Route("POST", f"{base}/messages/count_tokens", count, TOKENIZE, (CountRequest,)),
        )
    )


async def answer(request: Request) -> Reply | None:
    asked = await request.json(MessagesRequest)
    turns = Turns()
    chat = asked.chat(turns)
    leave_out(request, asked.left_out)
    request.named = names_in(turns.paths | {"stop": "stop_sequences"}, chat)
    try:
        plan = await ChatPlan.of(request, chat)
    except HttpError as error:
        raise in_words_of(turns.paths, error) from error
    head: Values = {"id": f"msg_{uuid4().hex}", **ANSWER, "model": asked.model or plan.call.model}
    if asked.stream:
        await _Streaming(request, plan, head).run()
        return None
    found = await plan.whole(request)
    (result,) = found.results
    output = plan.output()
    content = [_block(piece) for piece in _joined(output.read(result))]
    end = _end(result, output)
    return Reply.json({**head, "content": content, **end, "usage": _usage(found.usage)})


async def count(request: Request) -> Reply:
    """The tokens of the prompt that an answer to the same body would have."""
    asked = await request.json(CountRequest)
    turns = Turns()
    chat = asked.chat(turns)
    request.named = names_in(turns.paths, chat)
    try:
        chat.check()
        call = Tokenize(model=await name_of(request, asked.model), conversation=chat.conversation)
    except HttpError as error:
        raise in_words_of(turns.paths, error) from error
    found: Tokenized = await request.ask(TOKENIZE, call)
    return Reply.json({"input_tokens": found.num_tokens})


def _joined(pieces: list[Any]) -> list[Any]:
    """Pieces of a whole output, neighbours of a kind in one; a call that was cut is none."""
    joined: list[Any] = []
    for piece in pieces:
        last = joined[-1] if joined else None
        if isinstance(piece, str) and isinstance(last, str):
            joined[-1] = last + piece
        elif isinstance(piece, Thought) and isinstance(last, Thought):
            joined[-1] = Thought(last.text + piece.text)
        elif not (isinstance(piece, Call) and piece.is_cut):
            joined.append(piece)
    return joined


def _block(piece: Thought | str | Call) -> Values:
    """The whole block of a piece."""
    if isinstance(piece, Call):
        return {**_opened(piece), "input": piece.values}
    if isinstance(piece, Thought):
        return {**_opened(piece), "thinking": piece.text}
    return {**_opened(piece), "text": piece}


def _opened(piece: Thought | str | Call) -> Values:
    """A block at its beginning."""
    if isinstance(piece, Call):
        return {"type": "tool_use", "id": f"{CALL_ID}{piece.id}", "name": piece.name, "input": {}}
    if isinstance(piece, Thought):
        return {"type": "thinking", "thinking": "", "signature": ""}
    return {"type": "text", "text": ""}


def _end(result: GeneratedText, output: ChatOutput) -> Values:
    reason, sequence = "end_turn", None
    if result.finish_reason == "length":
        reason = "max_tokens"
    elif output.ends_with_calls:
        reason = "tool_use"
    elif result.stop_reason and result.stop_token_id is None:
        reason, sequence = "stop_sequence", result.stop_reason
    return {"stop_reason": reason, "stop_sequence": sequence}


def _usage(usage: GenerationUsage) -> Values:
    return {
        "input_tokens": usage.prompt_tokens - usage.reused_tokens,
        "cache_read_input_tokens": usage.reused_tokens,
        "cache_creation_input_tokens": 0,
        "output_tokens": usage.output_tokens,
    }


class _Streaming:
    """The events of one answer: blocks one after another, without gaps in their numbers."""

    def __init__(self, request: Request, plan: ChatPlan, head: Values) -> None:
        self._request, self._plan, self._head = request, plan, head
        self._stream = Stream(request, "named events", failing=_failed)
        self._output = plan.output()
        self._open: type | None = None  # kind of the block that is open
        self._num_blocks = 0
        self._has_begun = False

    async def run(self) -> None:
        await self._plan.stream(self._request, self._write)
        await self._send("message_stop", {})
        await self._stream.end()

    async def _write(self, chunk: GenerateChunk) -> None:
        if not self._has_begun:
            self._has_begun = True
            usage = _usage(GenerationUsage(prompt_tokens=chunk.num_prompt_tokens))
            message = {**self._head, "content": [], "stop_reason": None, "stop_sequence": None}
            await self._send("message_start", {"message": {**message, "usage": usage}})
            await self._send("ping", {})
        for piece in self._output.read(chunk):
            if isinstance(piece, Call) and piece.is_cut:
                continue
            await self._show(piece)
        if chunk.finish_reason:
            await self._close()
            usage = _usage(chunk.usage or GenerationUsage())
            await self._send("message_delta", {"delta": _end(chunk, self._output), "usage": usage})

    async def _show(self, piece: Thought | str | Call) -> None:
        if self._open is not type(piece) or isinstance(piece, Call):
            await self._close()
            self._open = type(piece)
            block = _opened(piece)
            await self._send(
                "content_block_start", {"index": self._num_blocks, "content_block": block}
            )
        delta: Values = {"type": "text_delta", "text": piece}
        if isinstance(piece, Call):
            delta = {"type": "input_json_delta", "partial_json": piece.arguments}
        elif isinstance(piece, Thought):
            delta = {"type": "thinking_delta", "thinking": piece.text}
        await self._send("content_block_delta", {"index": self._num_blocks, "delta": delta})

    async def _close(self) -> None:
        """End the block that is open."""
        if self._open is None:
            return
        if self._open is Thought:
            delta = {"type": "signature_delta", "signature": ""}
            await self._send("content_block_delta", {"index": self._num_blocks, "delta": delta})
        await self._send("content_block_stop", {"index": self._num_blocks})
        self._open, self._num_blocks = None, self._num_blocks + 1

    async def _send(self, name: str, fields: Values) -> None:
        await self._stream.send(event(name, {"type": name, **fields}))


def _failed(error: HttpError) -> bytes:
    """The last event of an answer that fails."""
    return event("error", anthropic_error(error))
