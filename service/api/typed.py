"""One path for every method of the typed API: find the model, count, admit, check, compute, answer.

Fields come in and go out, so that any front can use it: gRPC makes messages of them. Lives on the
event loop.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from service.api.admission import Admission
from service.calls.answers import Answered, Timings
from service.calls.record import Call, counted, instead
from service.contract.queue_policies import BACKGROUND
from service.errors import invalid_field
from service.repository.repository import ModelRepository
from service.serving.generative_model import GenerativeModel
from service.serving.kinds import doing, reader
from service.serving.model import Caller
from service.serving.occupancy import Occupancy
from service.serving.tasks.task import Ask, Fields, Method, Reading, Task
from service.serving.text_model import TextModel
from service.text.tokenizer import TokenPieces

T = TypeVar("T")


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
            reply = await model.compute(ask.inputs, caller, can_truncate, ask.reading)
        return await model.interpreted(reply, lambda: build(_answer(method, model, reply, ask)))

    async def tokens(self, fields: Fields, caller: Caller, build: Callable[[Fields], T]) -> T:
        """Tokens of texts, by `build`, as a model would see them; they wait behind no run."""
        model = self._find_reader(fields)
        texts, max_tokens = fields["texts"], model.manifest.max_tokens

        def answer(tokenized: list[TokenPieces]) -> T:
            return build(
                {
                    "model": model.name,
                    "version": str(model.version),
                    "num_tokens": sum(len(text.ids) for text in tokenized),
                    "timings": {"total_seconds": time.monotonic() - caller.received_s},
                    "results": [_tokenized(text, max_tokens) for text in tokenized],
                }
            )

        if (conversation := fields.get("conversation")) is not None:
            if texts:
                raise invalid_field(
                    "conversation", "stands in place of texts, expected one of them"
                )
            self._admission.admit()
            prompt = (await model.prompt_of(conversation)).tolist()
            return await model.tokenizing.run(
                lambda: answer([model.tokenizer.pieces_of(prompt)]), len(prompt)
            )
        self._check_count(len(texts), "texts")
        self._admission.admit()
        omits_special = fields["omit_special_tokens"]
        return await model.tokenizing.run(
            lambda: answer(
                [model.tokenizer.pieces(text, omits_special=omits_special) for text in texts]
            ),
            model.tokenizer.check_sizes(texts),
        )

    async def text(self, fields: Fields, build: Callable[[Fields], T]) -> T:
        """The text that tokens stand for, by `build`."""
        model = self._find_reader(fields)
        token_ids = fields["token_ids"]
        self._admission.admit()

        def read() -> T:
            text = model.tokenizer.text_of(token_ids)
            return build({"model": model.name, "version": str(model.version), "text": text})

        return await model.tokenizing.run(read, len(token_ids))

    def _find(self, task: Task, call: Call) -> TypedModel:
        """The model that a request names, which does the task."""
        return doing(self._repository.find(call.model, call.version), task)

    def _find_reader(self, fields: Fields) -> TextModel | GenerativeModel:
        return reader(self._repository.find(fields["model"], fields["version"]))

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


def _answer(method: Method, model: TypedModel, reply: Any, ask: Ask) -> Answered:
    """The record of an answer."""
    timings = Timings(reply.timings.queue_s, reply.timings.compute_s, reply.timings.total_s)
    fields = {"model": model.name, "version": str(model.version), **reply.totals}
    return method.answer(timings=timings, **{**fields, **ask.answer(reply)})


def _tokenized(text: TokenPieces, max_tokens: int) -> Fields:
    tokens = zip(text.ids, text.pieces, text.offsets, strict=True)
    kinds = zip(text.are_special, text.are_unknown, text.token_bytes, strict=True)
    return {
        "tokens": (
            {
                "id": token_id,
                "piece": piece,
                "start": start,
                "end": end,
                "is_special": special,
                "is_unknown": unknown,
                "token_bytes": token_bytes,
            }
            for (token_id, piece, (start, end)), (special, unknown, token_bytes) in zip(
                tokens, kinds, strict=True
            )
        ),
        "num_tokens": len(text.ids),
        "is_too_long": len(text.ids) > max_tokens,
    }
