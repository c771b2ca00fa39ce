"""One path for every method of the typed API: find the model, count, admit, check, compute, answer.

Records come in and go out, so that any front can use it: gRPC makes messages of them. Lives on the
event loop.
"""

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from service.api.admission import Admission
from service.calls.answers import Timings, Token
from service.calls.record import Call, counted, instead
from service.calls.tokens import (
    Detokenize,
    Detokenized,
    Tokenize,
    Tokenized,
    TokenizedText,
)
from service.contract.queue_policies import BACKGROUND
from service.errors import InvalidArgument, invalid_field
from service.repository.repository import ModelRepository
from service.serving.generative_model import GenerativeModel
from service.serving.kinds import doing, reader
from service.serving.model import Caller
from service.serving.occupancy import Occupancy
from service.serving.tasks.task import Ask, Method, Reading, Task
from service.serving.text_model import TextModel
from service.text.tokenizer import TokenPieces

T = TypeVar("T")


def _itself(answer: Any) -> Any:
    return answer


class TypedModel(Protocol):
    """A model that answers methods of the typed API."""

    name: str
    version: int
    users: Occupancy

    async def compute(
        self, inputs: Any, caller: Caller, can_truncate: bool, reading: Reading, /
    ) -> Any: ...

    async def interpreted(self, reply: Any, read: Callable[[], T], /) -> T: ...


class TypedCalls:
    """Answers for the models of the repository; one request has at most `max_items` texts."""

    def __init__(self, repository: ModelRepository, admission: Admission, max_items: int) -> None:
        self._repository = repository
        self._admission = admission
        self.max_items = max_items

    def of_task(self, method: Method) -> Callable[..., Any]:
        """A call that answers as a method of a task does, by what `build` makes of the answer."""

        async def answer(call: Call, caller: Caller, build: Callable[[Any], Any] = _itself) -> Any:
            return await self.answer(method, call, caller, build)

        return answer

    async def answer(
        self, method: Method, call: Call, caller: Caller, build: Callable[[Any], T]
    ) -> T:
        """The result of `build` from the answer, on another thread if that is large."""
        model = self._find(method.task, call)
        self._check_counts(call)
        ask = method.ask(call, model)
        self._admission.admit(ask.num_bytes)
        if getattr(call, "background", False):
            caller = replace(caller, priority=BACKGROUND)
        with model.users:
            can_truncate = getattr(call, "truncate", False)
            try:
                reply = await model.compute(ask.inputs, caller, can_truncate, ask.reading)
            except InvalidArgument as error:
                raise error.at(ask.paths()) from error
        return await model.interpreted(reply, lambda: build(_answer(method, model, reply, ask)))

    async def Tokenize(
        self, call: Tokenize, caller: Caller, build: Callable[[Any], Any] = _itself
    ) -> Any:
        """Tokens as a model would see them, by `build`; they wait behind no run."""
        model = self._find_reader(call)

        def answer(tokenized: list[TokenPieces]) -> Any:
            return build(
                Tokenized(
                    model=model.name,
                    version=str(model.version),
                    num_tokens=sum(len(text.ids) for text in tokenized),
                    timings=Timings(total_seconds=time.monotonic() - caller.received_s),
                    results=[_tokenized(text, model.manifest.max_tokens) for text in tokenized],
                )
            )

        if call.conversation is not None:
            if call.texts:
                raise invalid_field(
                    "conversation", "stands in place of texts, expected one of them"
                )
            self._admission.admit()
            prompt = (await model.prompt_of(call.conversation)).tolist()
            return await model.tokenizing.run(
                lambda: answer([model.tokenizer.pieces_of(prompt)]), len(prompt)
            )
        self._check_counts(call)
        self._admission.admit()
        omits_special = call.omit_special_tokens
        return await model.tokenizing.run(
            lambda: answer(
                [model.tokenizer.pieces(text, omits_special=omits_special) for text in call.texts]
            ),
            model.tokenizer.check_sizes(call.texts),
        )

    async def Detokenize(
        self, call: Detokenize, _: Caller, build: Callable[[Any], Any] = _itself
    ) -> Any:
        """The text that tokens stand for, by `build`."""
        model = self._find_reader(call)
        self._admission.admit()

        def read() -> Any:
            text = model.tokenizer.text_of(call.token_ids)
            return build(Detokenized(model=model.name, version=str(model.version), text=text))

        return await model.tokenizing.run(read, len(call.token_ids))

    def _find(self, task: Task, call: Call) -> TypedModel:
        """The model that a request names, which does the task."""
        return doing(self._repository.find(call.model, call.version), task)

    def _find_reader(self, call: Call) -> TextModel | GenerativeModel:
        return reader(self._repository.find(call.model, call.version))

    def _check_counts(self, call: Call) -> None:
        """Raise `InvalidArgument` for more texts than the server takes, or none."""
        kind = type(call)
        if (other := instead(kind)) and (num_instead := len(getattr(call, other))):
            first = counted(kind)[0]
            if getattr(call, first):
                raise invalid_field(other, f"stands in place of {first}, expected one of them")
            self._check_count(num_instead, other)
            return
        total, names = 0, ""
        for name in counted(kind):
            total += len(getattr(call, name))
            names = f"{names} and {name}" if names else name
            self._check_count(total, names)

    def _check_count(self, count: int, name: str) -> None:
        if not 1 <= count <= self.max_items:
            setting = " (--max-texts)" if count else ""
            text = f"has {count} elements, expected 1 to {self.max_items}{setting}"
            raise invalid_field(name, text)


def _answer(method: Method, model: TypedModel, reply: Any, ask: Ask) -> Any:
    """The record of an answer."""
    timings = Timings(reply.timings.queue_s, reply.timings.compute_s, reply.timings.total_s)
    fields = {"model": model.name, "version": str(model.version), **reply.totals}
    return method.answer(timings=timings, **{**fields, **ask.answer(reply)})


class _Tokens(Collection[Token]):
    """The tokens of a text, each made as it is read: others have the interpreter in between."""

    def __init__(self, text: TokenPieces) -> None:
        self._text = text

    def __len__(self) -> int:
        return len(self._text.ids)

    def __contains__(self, token: object) -> bool:
        return any(token == each for each in self)

    def __iter__(self) -> Iterator[Token]:
        text = self._text
        places = zip(text.ids, text.pieces, text.offsets, strict=True)
        kinds = zip(text.are_special, text.are_unknown, text.token_bytes, strict=True)
        for (token_id, piece, (start, end)), kind in zip(places, kinds, strict=True):
            yield Token(token_id, piece, start, end, *kind)


def _tokenized(text: TokenPieces, max_tokens: int) -> TokenizedText:
    return TokenizedText(_Tokens(text), len(text.ids), len(text.ids) > max_tokens)
