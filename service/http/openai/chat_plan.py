"""A checked request of a chat, and its outputs as thoughts, text and calls: what dialects share."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from service.calls.generation import Generate, GenerateChunk, GeneratedText, GenerateResponse
from service.errors import InvalidArgument
from service.http.openai.chat_fields import ChatRequest
from service.http.openai.tool_calls import Call, CallReader
from service.http.openai.tool_grammars import at_function
from service.http.request import Request
from service.http.shared.models import find_model, name_of
from service.http.shared.output_form import unenforced
from service.http.shared.paths import GENERATE, GENERATE_UNARY
from service.http.shared.peer_fields import unsupported


@dataclass(frozen=True, slots=True)
class Thought:
    """A part of what the model writes before its answer."""

    text: str


Piece: TypeAlias = Thought | str | Call


@dataclass(frozen=True, slots=True)
class ChatPlan:
    """One checked request."""

    asked: ChatRequest
    call: Generate
    tool_form: str  # of calls; empty where none can be made

    @classmethod
    async def of(cls, request: Request, asked: ChatRequest) -> "ChatPlan":
        """Raises `HttpError`, `InvalidArgument` and `NotFound`."""
        await request.work(asked.check)
        name = await name_of(request, asked.model)
        form = ""
        if asked.callable_names:
            model = await find_model(request, name)
            form = model.tool_call_form
            if model.has_chat_template and not form:
                raise unsupported("tools", f"the chat template of model '{name}' declares none")
        call = await request.work(lambda: _call(asked, name, form))
        request.reply_headers += unenforced(call.sampling_params.grammar)
        return cls(asked, call, form)

    async def whole(self, request: Request) -> GenerateResponse:
        """The answer. Raises the errors of the domain."""
        try:
            answer: GenerateResponse = await request.ask(GENERATE_UNARY, self.call)
        except InvalidArgument as error:
            raise self._at_function(error) from error
        return answer

    async def stream(
        self, request: Request, write: Callable[[GenerateChunk], Awaitable[None]]
    ) -> None:
        """Write each chunk as it comes. Raises the errors of the domain."""
        try:
            await request.ask(GENERATE, self.call, write)
        except InvalidArgument as error:
            raise self._at_function(error) from error

    def output(self) -> "ChatOutput":
        """A reader of one output."""
        if not self.tool_form:
            return ChatOutput(None)
        return ChatOutput(
            CallReader(
                self.tool_form,
                [function.name for function in self.asked.callables],
                schemas={each.name: each.parameters or {} for each in self.asked.declared},
                is_single=self.asked.parallel_tool_calls is False,
                is_required=self.asked.tool_choice not in (None, "auto"),
            )
        )

    def _at_function(self, error: InvalidArgument) -> InvalidArgument:
        """The error of a grammar of calls, at the function whose schema it is of."""
        grammar = self.call.sampling_params.grammar
        if grammar is None or self.asked.form_field:  # the grammar is not one of calls
            return error
        return at_function(error, grammar.text, self.asked.callables)


class ChatOutput:
    """Reads one output, whole or part by part."""

    def __init__(self, reader: CallReader | None) -> None:
        self._reader = reader
        self._has_cut_call = False

    @property
    def num_calls(self) -> int:
        return self._reader.num_calls if self._reader else 0

    @property
    def ends_with_calls(self) -> bool:
        """Whether the output ended to have its calls answered."""
        return self.num_calls > 0 and not self._has_cut_call

    def read(self, part: GeneratedText) -> list[Piece]:
        """Pieces that are certain after this part; all that are left after the last one."""
        pieces: list[Piece] = [Thought(part.reasoning)] if part.reasoning else []
        if self._reader is None:
            return [*pieces, part.text] if part.text else pieces
        pieces += self._reader.read(part.text)
        if part.finish_reason:
            is_cut = part.finish_reason == "length" or bool(part.stop_reason)
            pieces += self._reader.end(is_cut=is_cut)
        self._has_cut_call |= any(isinstance(each, Call) and each.is_cut for each in pieces)
        return pieces


def _call(asked: ChatRequest, model: str, tool_form: str) -> Generate:
    """The record of the call. Raises `HttpError` and `InvalidArgument`."""
    grammar = asked.call_grammar(tool_form) if tool_form else None
    params = asked.sampling(
        grammar or asked.output_grammar(),
        max_tokens=asked.num_tokens,
        max_reasoning_tokens=asked.thought_budget[1],
        open_max_tokens=asked.num_tokens is None or None,
        logprobs=asked.num_logprobs,
    )
    return Generate(model=model, prompt=asked.conversation, sampling_params=params, **asked.reading)
