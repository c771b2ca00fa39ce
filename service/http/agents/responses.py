"""`/v1/responses`, as OpenAI's API has it, without a memory of earlier responses.

docs/reference/http.md says what of the API is taken, and what is refused.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from uuid import uuid4

from service.calls.generation import GenerateChunk, GeneratedText, GenerationUsage
from service.http.agents.responses_fields import ResponsesRequest
from service.http.agents.turns import Turns, event, in_words_of, leave_out, names_in
from service.http.openai.chat_plan import ChatOutput, ChatPlan, Thought
from service.http.openai.tool_calls import Call
from service.http.request import Reply, Request
from service.http.routes import Route
from service.http.shared.answers import Values
from service.http.shared.logprobs import OutputTokens, in_chat
from service.http.shared.models import BASES
from service.http.shared.paths import GENERATE
from service.http.status import HttpError
from service.http.stream import Stream

DONE, OPEN, CUT = "completed", "in_progress", "incomplete"


def response_routes() -> tuple[Route, ...]:
    return tuple(
        Route("POST", f"{base}/responses", respond, GENERATE, (ResponsesRequest,)) for base in BASES
    )


async def respond(request: Request) -> Reply | None:
    asked = await request.json(ResponsesRequest)
    turns = Turns()
    try:
        chat = asked.chat(turns)
        leave_out(request, asked.left_out)
        request.named = names_in(turns.paths, chat)
        plan = await ChatPlan.of(request, chat)
    except HttpError as error:
        raise in_words_of(turns.paths, error) from error
    response = _Response(asked, plan)
    if asked.stream:
        await _Streaming(request, response).run()
        return None
    answer = await plan.whole(request)
    (result,) = answer.results
    for _ in response.read(result):
        pass
    return Reply.json(response.whole(answer.usage))


@dataclass(slots=True)
class _Response:
    """The response in the making: its items, each opened, filled and ended."""

    asked: ResponsesRequest
    plan: ChatPlan
    items: list[Values] = field(default_factory=list)
    created_s: int = field(default_factory=lambda: int(time.time()))
    id: str = field(default_factory=lambda: f"resp_{uuid4().hex}")
    reason: str = ""  # why it is incomplete
    _output: ChatOutput | None = None
    _tokens: OutputTokens = field(default_factory=OutputTokens)
    _logprobs: list[Values] = field(default_factory=list)  # of text that is to come

    def whole(self, usage: GenerationUsage | None = None, error: HttpError | None = None) -> Values:
        """The response as it is now."""
        asked, is_over = self.asked, usage is not None or error is not None
        status = OPEN if not is_over else "failed" if error else CUT if self.reason else DONE
        form = asked.text.format if asked.text else None
        effort = asked.reasoning.effort if asked.reasoning else None
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created_s,
            "completed_at": int(time.time()) if status == DONE else None,
            "status": status,
            "background": False,
            "error": {"code": "server_error", "message": str(error)} if error else None,
            "incomplete_details": {"reason": self.reason} if self.reason else None,
            "instructions": asked.instructions,
            "max_output_tokens": asked.max_output_tokens and int(asked.max_output_tokens),
            "model": asked.model or self.plan.call.model,
            "output": self.items,
            "parallel_tool_calls": asked.parallel_tool_calls is not False,
            "previous_response_id": None,
            "reasoning": {"effort": effort, "summary": None},
            "store": False,
            "temperature": self.plan.call.sampling_params.temperature,
            "text": {"format": form or {"type": "text"}},
            "tool_choice": asked.tool_choice or "auto",
            "tools": asked.tools or [],
            "top_p": self.plan.call.sampling_params.top_p,
            "truncation": "disabled",
            "metadata": asked.metadata or {},
            "usage": _usage(usage) if usage is not None else None,
        }

    def read(self, part: GeneratedText) -> Iterator[tuple[str, Values]]:
        """Events of a part of the output, by which the items grow."""
        self._output = self._output or self.plan.output()
        self._logprobs += self._read_logprobs(part)
        for piece in self._output.read(part):
            if isinstance(piece, Call):
                if not piece.is_cut:
                    for each in self._called(piece):
                        yield each
                continue
            kind = "reasoning" if isinstance(piece, Thought) else "message"
            if not self._is_open(kind):
                for each in (*self._end(DONE), *self._begin(kind)):
                    yield each
            item, text = self.items[-1], piece.text if isinstance(piece, Thought) else piece
            item["content"][0]["text"] += text
            new: Values = {"item_id": item["id"], "content_index": 0, "delta": text}
            if kind == "message":
                new["logprobs"], self._logprobs = self._logprobs, []
                item["content"][0]["logprobs"] += new["logprobs"]
            yield f"response.{_NAMES[kind]}.delta", self._placed(new)
        if part.finish_reason:
            self.reason = "max_output_tokens" if part.finish_reason == "length" else ""
            for each in self._end(CUT if self.reason else DONE):
                yield each

    def _is_open(self, kind: str) -> bool:
        last = self.items[-1] if self.items else {}
        return bool(last) and (last["type"], last["status"]) == (kind, OPEN)

    def _placed(self, values: Values) -> Values:
        return {"output_index": len(self.items) - 1, **values}

    def _begin(self, kind: str) -> list[tuple[str, Values]]:
        """Events of a new item of text."""
        is_thought = kind == "reasoning"
        item: Values = {"id": f"{'rs' if is_thought else 'msg'}_{uuid4().hex}", "type": kind}
        more: Values = {"summary": []} if is_thought else {"role": "assistant"}
        item |= more | {"status": OPEN, "content": []}
        self.items.append(item)
        added = ("response.output_item.added", self._placed({"item": _copy(item)}))
        part: Values = {"type": _NAMES[kind], "text": ""}
        item["content"] = [part if is_thought else part | {"annotations": [], "logprobs": []}]
        new = {"item_id": item["id"], "content_index": 0, "part": dict(item["content"][0])}
        return [added, ("response.content_part.added", self._placed(new))]

    def _end(self, status: str) -> list[tuple[str, Values]]:
        """Events of the end of the item that is open, if there is one."""
        if not self.items or self.items[-1]["status"] != OPEN:
            return []
        item = self.items[-1]
        item["status"], kind = status, item["type"]
        (part,) = item["content"]
        if kind == "reasoning" and self.asked.tells_encrypted:
            item["encrypted_content"] = part["text"]
        place: Values = {"item_id": item["id"], "content_index": 0}
        more = {"logprobs": part["logprobs"]} if kind == "message" else {}
        return [
            (
                f"response.{_NAMES[kind]}.done",
                self._placed({**place, "text": part["text"], **more}),
            ),
            ("response.content_part.done", self._placed({**place, "part": part})),
            ("response.output_item.done", self._placed({"item": item})),
        ]

    def _called(self, call: Call) -> list[tuple[str, Values]]:
        """Events of a call, which comes whole."""
        events = self._end(DONE)
        item: Values = {
            "id": f"fc_{uuid4().hex}",
            "type": "function_call",
            "status": DONE,
            "call_id": call.id,
            "name": call.name,
            "arguments": call.arguments,
        }
        self.items.append(item)
        begun, place = {**item, "status": OPEN, "arguments": ""}, {"item_id": item["id"]}
        of_arguments = "response.function_call_arguments"
        whole = {"arguments": call.arguments, "name": call.name}
        return [
            *events,
            ("response.output_item.added", self._placed({"item": begun})),
            (f"{of_arguments}.delta", self._placed({**place, "delta": call.arguments})),
            (f"{of_arguments}.done", self._placed({**place, **whole})),
            ("response.output_item.done", self._placed({"item": item})),
        ]

    def _read_logprobs(self, part: GeneratedText) -> list[Values]:
        if not self.plan.asked.logprobs:
            return []
        told = in_chat([each.token for each in self._tokens.read(part)], as_ids=False)
        found: list[Values] = told["content"]
        return found


_NAMES = {"message": "output_text", "reasoning": "reasoning_text"}  # of parts, in events


def _copy(item: Values) -> Values:
    return {**item, "content": list(item["content"])}


def _usage(usage: GenerationUsage) -> Values:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.reused_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.output_tokens,
    }


class _Streaming:
    """The events of one response, numbered without gaps."""

    def __init__(self, request: Request, response: _Response) -> None:
        self._request, self._response = request, response
        self._stream = Stream(request, "named events", failing=self._failed)
        self._num_sent = 0
        self._usage = GenerationUsage()

    async def run(self) -> None:
        await self._response.plan.stream(self._request, self._write)
        whole = self._response.whole(self._usage)
        await self._send(f"response.{whole['status']}", {"response": whole})
        await self._stream.end()

    async def _write(self, chunk: GenerateChunk) -> None:
        self._usage = chunk.usage or self._usage
        if not self._num_sent:
            for name in ("created", OPEN):
                await self._send(f"response.{name}", {"response": self._response.whole()})
        for name, values in self._response.read(chunk):
            await self._send(name, values)

    async def _send(self, name: str, values: Values) -> None:
        await self._stream.send(self._numbered(name, values))

    def _numbered(self, name: str, values: Values) -> bytes:
        numbered = {"type": name, "sequence_number": self._num_sent, **values}
        self._num_sent += 1
        return event(name, numbered)

    def _failed(self, error: HttpError) -> bytes:
        """The last event of a response that fails, which clients read where they read no other."""
        return self._numbered("response.failed", {"response": self._response.whole(error=error)})
