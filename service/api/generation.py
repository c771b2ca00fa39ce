"""The calls of the typed API for text generation, whole or piece by piece.

Each finds the model, calls it, and makes records of what comes. A call that ends early leaves
`async with`, which ends its sequences within one step.
"""

import asyncio
import codecs
import copy
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, TypeAlias

import msgspec

from service.api.admission import Admission
from service.api.long_work import LONG_SCORES
from service.calls.answers import single
from service.calls.conversation import Conversation
from service.calls.generation import (
    Generate,
    GenerateChunk,
    GeneratedText,
    GenerateResponse,
    GenerationTimings,
    GenerationUsage,
    Prompt,
    Reason,
    TokenLogprob,
)
from service.contract.prompt_reading import PromptReading
from service.errors import NoChatTemplate, invalid_field
from service.families.thoughts import Split, ThoughtReader
from service.generation.choosing.sampling import TokenLogprobs
from service.generation.stream import Chunk, Generation
from service.records import FinishReason
from service.repository.repository import ModelRepository
from service.serving.generative_model import GenerativeModel
from service.serving.kinds import generator, writer
from service.serving.model import Caller

_REASONS: dict[FinishReason, Reason] = {
    FinishReason.STOP: "stop",
    FinishReason.LENGTH: "length",
}
Call: TypeAlias = Generate  # which, within the class, is the name of a method
Write: TypeAlias = Callable[[GenerateChunk], Awaitable[None]]


def _itself(answer: GenerateResponse) -> GenerateResponse:
    return answer


class GenerationCalls:
    """Answers for the generative models of the repository."""

    def __init__(self, repository: ModelRepository, admission: Admission) -> None:
        self._repository = repository
        self._admission = admission

    async def Generate(self, call: Call, caller: Caller, write: Write) -> None:
        """Writes chunks; `write` raises `DeadlineExceeded` where a client does not read."""
        caller = replace(caller, priority=call.priority)
        if (written := await self._written(call, caller)) is not None:
            (result,) = written.results
            of_result = msgspec.structs.asdict(result)
            account = {name: getattr(written, name) for name in _ACCOUNT}
            await write(GenerateChunk(**of_result, **account))
            return
        async with self._started(call, caller) as (model, generation):
            num_unfinished = len(generation.sequences)
            outputs = _Outputs(model, call, generation)
            bytes_of = outputs.bytes_of
            more: dict[str, Any] = {"num_prompt_tokens": generation.request.num_prompt_tokens}
            is_first = True
            async for chunk in generation:
                if is_first:
                    more |= await _of_prompt(call, generation, bytes_of)
                num_unfinished -= chunk.is_last
                fields = outputs.read(chunk)
                if not num_unfinished:
                    more |= outputs.account()
                await write(
                    GenerateChunk(sample_index=chunk.sequence.sample_index, **fields, **more)
                )
                is_first, more = False, {}

    async def GenerateUnary(
        self, call: Call, caller: Caller, build: Callable[[GenerateResponse], object] = _itself
    ) -> object:
        """The whole answer, by `build`, on another thread where it is large."""
        caller = replace(caller, priority=call.priority)
        if (written := await self._written(call, caller)) is not None:
            return build(written)
        async with self._started(call, caller) as (model, generation):
            outputs = _Outputs(model, call, generation)
            pieces: list[list[GeneratedText]] = [[] for _ in generation.sequences]
            async for chunk in generation:
                pieces[chunk.sequence.sample_index].append(GeneratedText(**outputs.read(chunk)))
        answer = GenerateResponse(
            results=[_joined(each) for each in pieces],
            **await _of_prompt(call, generation, outputs.bytes_of),
            **outputs.account(),
        )
        if answer.num_scores <= LONG_SCORES:
            return build(answer)
        return await self._admission.run_long(lambda: build(answer))

    async def _written(self, call: Call, caller: Caller) -> GenerateResponse | None:
        """The answer of a network that writes it in one run; None for other models."""
        model = writer(self._repository.find(call.model, call.version))
        if model is None:
            return None
        with model.users:
            prompt = _prompt(call)
            if isinstance(prompt, Conversation):
                raise NoChatTemplate(
                    f"model '{model.name}' takes no conversation, but a text", "conversation"
                )
            _check_plain(call, model.name)
            self._admission.admit()
            written = await model.write(prompt, call.sampling_params, caller)
        reason = FinishReason.STOP if written.has_ended else FinishReason.LENGTH
        result = GeneratedText(
            text=written.text, token_ids=written.token_ids, finish_reason=_REASONS[reason]
        )
        timings = written.timings
        return GenerateResponse(
            model=model.name,
            version=str(model.version),
            results=[result],
            usage=GenerationUsage(written.num_source_tokens, len(written.token_ids)),
            timings=GenerationTimings(
                queue_seconds=timings.queue_s,
                time_to_first_token_seconds=timings.total_s,
                total_seconds=timings.total_s,
            ),
        )

    @asynccontextmanager
    async def _started(
        self, call: Call, caller: Caller
    ) -> AsyncIterator[tuple[GenerativeModel, Generation]]:
        """The model that a request names, and what it generates inside the block."""
        model = generator(self._repository.find(call.model, call.version))
        with model.users:
            prompt, params = _prompt(call), call.sampling_params.over(model.sampling_defaults)
            reading = _reading(call)
            self._admission.admit()
            tells = not call.reasoning_in_text
            async with model.generate(
                prompt, params, caller, reading=reading, tells_thoughts=tells
            ) as generation:
                yield model, generation


_ACCOUNT = ("model", "version", "usage", "timings")
_OF_READING = (
    *("omit_special_tokens", "truncate_prompt_tokens"),
    *("truncate_prompt_end", "return_prompt_token_ids"),
)


def _prompt(call: Call) -> Prompt:
    """Token ids as they came: they are looked at once it is known that they are not too many."""
    if call.prompt is None:
        raise invalid_field("prompt", "is missing, expected text, token_ids or conversation")
    return call.prompt


def _check_plain(call: Call, model: str) -> None:
    """Raise `InvalidArgument` for fields that a network of symbols does not take."""
    given = [name for name in _OF_READING if getattr(call, name) not in (None, False)]
    if given:
        raise invalid_field(given[0], f"is set, and model '{model}' reads symbols as they are")


def _reading(call: Call) -> PromptReading:
    """How the prompt is read. Raises `InvalidArgument`."""
    if call.truncate_prompt_tokens == 0:
        raise invalid_field("truncate_prompt_tokens", "is 0, expected 1 or more")
    return PromptReading(
        omits_special=call.omit_special_tokens,
        num_kept=call.truncate_prompt_tokens,
        keeps_beginning=call.truncate_prompt_end,
    )


class _Outputs:
    """The outputs of one request, as their fields are told; thoughts apart from the answers."""

    def __init__(self, model: GenerativeModel, call: Call, generation: Generation) -> None:
        self._model, self._generation = model, generation
        self.bytes_of = model.tokenizer.bytes_of
        self._readers: list[ThoughtReader] = []
        self._num_thought_tokens = 0
        thoughts = generation.request.thoughts
        if thoughts is not None and not call.reasoning_in_text:
            self._readers = [ThoughtReader(thoughts) for _ in generation.sequences]

    def read(self, chunk: Chunk) -> dict[str, Any]:
        """Fields of an output: those that are new, and how the sample ended if it did."""
        fields = _of_chunk(chunk, self.bytes_of)
        if not self._readers:
            return fields
        reader = self._readers[chunk.sequence.sample_index]
        before, split = copy.copy(reader), reader.read(chunk.text)
        if chunk.is_last:
            last = reader.end()
            split = Split(split.thoughts + last.thoughts, split.text + last.text)
        self._num_thought_tokens += self._num_inside(before, reader, chunk.token_ids)
        return fields | {"reasoning": split.thoughts, "text": split.text}

    def _num_inside(
        self, before: ThoughtReader, after: ThoughtReader, token_ids: Sequence[int]
    ) -> int:
        """The tokens of a chunk within thoughts, those that begin and end them among them."""
        if before.is_over:
            return 0
        if len(token_ids) == 1 or (before.is_inside and after.is_inside):
            return len(token_ids) if before.is_inside or after.is_inside else 0
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        num_inside = 0
        for token_id in token_ids:
            was_inside = before.is_inside
            before.read(decoder.decode(self.bytes_of(token_id)))
            num_inside += was_inside or before.is_inside
        return num_inside

    def account(self) -> dict[str, Any]:
        """The fields that the end of every answer has."""
        return {
            "model": self._model.name,
            "version": str(self._model.version),
            "usage": _usage(self._generation, self._num_thought_tokens),
            "timings": _timings(self._generation),
        }


def _of_chunk(chunk: Chunk, bytes_of: Callable[[int], bytes]) -> dict[str, Any]:
    fields: dict[str, Any] = {"text": chunk.text, "token_ids": chunk.token_ids}
    if chunk.logprobs:
        fields["logprobs"] = [_logprob(each, bytes_of) for each in chunk.logprobs]
    sequence = chunk.sequence
    if chunk.is_last and sequence.finish_reason is not None:
        fields |= {
            "finish_reason": _REASONS[sequence.finish_reason],
            "stop_reason": sequence.stop_reason,
            "stop_token_id": sequence.stop_token_id,
            "score": sequence.score,
        }
    return fields


def _joined(pieces: Sequence[GeneratedText]) -> GeneratedText:
    """One output of its pieces."""
    if len(pieces) == 1:
        return pieces[0]
    return msgspec.structs.replace(
        pieces[-1] if pieces else GeneratedText(),
        text="".join(piece.text for piece in pieces),
        reasoning="".join(piece.reasoning for piece in pieces),
        token_ids=[token_id for piece in pieces for token_id in piece.token_ids],
        logprobs=[token for piece in pieces for token in piece.logprobs],
    )


async def _of_prompt(
    call: Call, generation: Generation, bytes_of: Callable[[int], bytes]
) -> dict[str, Any]:
    """The tokens of the prompt, and an entry for each with its probability, if requested."""
    request, fields = generation.request, {}
    if call.return_prompt_token_ids:
        fields["prompt_token_ids"] = request.prompt_ids.tolist()
    if request.params.prompt_logprobs is not None:
        first_id = int(request.prompt_ids[0])
        tokens = [TokenLogprob(first_id, token=bytes_of(first_id))]
        for place, each in enumerate(generation.sequences[0].prompt_logprobs, 1):
            tokens.append(_logprob(each, bytes_of))
            if place % LONG_SCORES == 0:  # others have the event loop in between
                await asyncio.sleep(0)
        fields["prompt_logprobs"] = tokens
    return fields


def _logprob(chosen: TokenLogprobs, bytes_of: Callable[[int], bytes]) -> TokenLogprob:
    top = [TokenLogprob(each, single(value), (), bytes_of(each)) for each, value in chosen.top]
    token = bytes_of(chosen.token_id)
    return TokenLogprob(chosen.token_id, single(chosen.logprob), top, token, single(chosen.logit))


def _usage(generation: Generation, num_thought_tokens: int) -> GenerationUsage:
    first = generation.sequences[0]
    return GenerationUsage(
        prompt_tokens=first.num_prompt_tokens,
        output_tokens=sum(sequence.num_output_tokens for sequence in generation.sequences),
        reused_tokens=first.num_reused_tokens,
        reasoning_tokens=num_thought_tokens,
    )


def _timings(generation: Generation) -> GenerationTimings:
    all_timings = [sequence.timings for sequence in generation.sequences]
    num_gaps = sum(sequence.num_output_tokens - 1 for sequence in generation.sequences)
    return GenerationTimings(
        queue_seconds=all_timings[0].queue_s,
        time_to_first_token_seconds=min(t.time_to_first_token_s for t in all_timings),
        inter_token_seconds=sum(t.decode_s for t in all_timings) / max(1, num_gaps),
        total_seconds=max(t.total_s for t in all_timings),
    )
