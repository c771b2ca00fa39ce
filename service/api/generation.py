"""The calls of the typed API for text generation, whole or piece by piece.

Each converts the request, calls the model, and converts the answer. A call that ends early
leaves `async with`, which ends its sequences within one step.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from attendant.v1 import generation_pb2 as pb

from service.api.admission import Admission
from service.api.conversations import conversation_of
from service.api.long_work import LONG_BYTES
from service.calls.conversation import Conversation
from service.calls.sampling import Sampling
from service.contract.prompt_reading import PromptReading
from service.errors import NoChatTemplate, invalid_field
from service.generation.choosing.sampling import TokenLogprobs
from service.generation.stream import Chunk, Generation
from service.grammars.form import take_grammar
from service.records import FinishReason
from service.repository.repository import ModelRepository
from service.serving.generative_model import GenerativeModel, Prompt
from service.serving.kinds import generator, writer
from service.serving.model import Caller
from service.text.tokenizer import PromptTokenizer

_REASONS = {
    FinishReason.STOP: pb.FINISH_REASON_STOP,
    FinishReason.LENGTH: pb.FINISH_REASON_LENGTH,
}


LOGPROBS_PER_TURN = 256  # tokens converted before others have the event loop: some ms

Write: TypeAlias = Callable[[pb.GenerateChunk], Awaitable[None]]


class GenerationCalls:
    """Answers for the generative models of the repository."""

    def __init__(self, repository: ModelRepository, admission: Admission) -> None:
        self._repository = repository
        self._admission = admission

    async def Generate(self, request: pb.GenerateRequest, caller: Caller, write: Write) -> None:
        """Writes chunks; `write` raises `DeadlineExceeded` where a client does not read."""
        caller = Caller(caller.received_s, caller.deadline_s, request.priority)
        if (written := await self._written(request, caller)) is not None:
            result, summary = written
            whole = pb.GenerateChunk(
                text=result.text,
                token_ids=result.token_ids,
                finish_reason=result.finish_reason,
                **summary,
            )
            await write(whole)
            return
        async with self._started(request, caller) as (model, generation):
            num_unfinished = len(generation.sequences)
            is_first = True
            async for chunk in generation:
                message = pb.GenerateChunk(sample_index=chunk.sequence.sample_index)
                if is_first:
                    message.num_prompt_tokens = generation.request.num_prompt_tokens
                    _add_prompt_ids(message, generation, request)
                    await _add_prompt_logprobs(message, generation, model.tokenizer)
                is_first = False
                _add(message, chunk, model.tokenizer)
                num_unfinished -= chunk.is_last
                if not num_unfinished:
                    message.MergeFrom(pb.GenerateChunk(**_summary(model, generation)))
                await write(message)

    async def GenerateUnary(
        self, request: pb.GenerateRequest, caller: Caller
    ) -> pb.GenerateResponse:
        caller = Caller(caller.received_s, caller.deadline_s, request.priority)
        if (written := await self._written(request, caller)) is not None:
            result, summary = written
            return pb.GenerateResponse(**summary, results=[result])
        async with self._started(request, caller) as (model, generation):
            results = [pb.GeneratedText() for _ in generation.sequences]
            async for chunk in generation:
                _add(results[chunk.sequence.sample_index], chunk, model.tokenizer)
        response = pb.GenerateResponse(**_summary(model, generation), results=results)
        _add_prompt_ids(response, generation, request)
        await _add_prompt_logprobs(response, generation, model.tokenizer)
        return response

    async def _written(
        self, request: pb.GenerateRequest, caller: Caller
    ) -> tuple[pb.GeneratedText, dict[str, Any]] | None:
        """The whole answer of a network that writes it in one run; None for other models."""
        model = writer(self._repository.find(request.model, request.version))
        if model is None:
            return None
        with model.users:
            prompt, params = await self._read(request)
            if isinstance(prompt, Conversation):
                raise NoChatTemplate(
                    f"model '{model.name}' takes no conversation, but a text", "conversation"
                )
            _check_plain(request, model.name)
            self._admission.admit()
            written = await model.write(prompt, params, caller)
        reason = FinishReason.STOP if written.has_ended else FinishReason.LENGTH
        result = pb.GeneratedText(
            text=written.text, token_ids=written.token_ids, finish_reason=_REASONS[reason]
        )
        timings = written.timings
        summary = {
            "model": model.name,
            "version": str(model.version),
            "usage": pb.GenerationUsage(
                prompt_tokens=written.num_source_tokens, output_tokens=len(written.token_ids)
            ),
            "timings": pb.GenerationTimings(
                queue_seconds=timings.queue_s,
                time_to_first_token_seconds=timings.total_s,
                total_seconds=timings.total_s,
            ),
        }
        return result, summary

    @asynccontextmanager
    async def _started(
        self, request: pb.GenerateRequest, caller: Caller
    ) -> AsyncIterator[tuple[GenerativeModel, Generation]]:
        """The model that a request names, and what it generates inside the block."""
        model = generator(self._repository.find(request.model, request.version))
        with model.users:
            prompt, params = await self._read(request, model.sampling_defaults)
            reading = _reading(request)
            self._admission.admit()
            async with model.generate(prompt, params, caller, reading=reading) as generation:
                yield model, generation

    async def _read(
        self, request: pb.GenerateRequest, defaults: Mapping[str, float] = {}
    ) -> tuple[Prompt, Sampling]:
        """The prompt and its parameters, read on another thread where they are long."""

        def read() -> tuple[Prompt, Sampling]:
            return _prompt(request), _to_params(request.sampling_params, defaults)

        if request.ByteSize() <= LONG_BYTES:
            return read()
        return await self._admission.run_long(read)


def _prompt(request: pb.GenerateRequest) -> Prompt:
    """Token ids as they came: they are looked at once it is known that they are not too many."""
    kind = request.WhichOneof("prompt")
    if kind is None:
        raise invalid_field("prompt", "is missing, expected text, token_ids or conversation")
    if kind == "conversation":
        return conversation_of(request.conversation)
    return request.text if kind == "text" else request.token_ids.ids


_OF_READING = (
    *("omit_special_tokens", "truncate_prompt_tokens"),
    *("truncate_prompt_end", "return_prompt_token_ids"),
)


def _check_plain(request: pb.GenerateRequest, model: str) -> None:
    """Raise `InvalidArgument` for fields that a network of symbols does not take."""
    given = [field.name for field, _ in request.ListFields() if field.name in _OF_READING]
    if given:
        raise invalid_field(given[0], f"is set, and model '{model}' reads symbols as they are")


def _reading(request: pb.GenerateRequest) -> PromptReading:
    """How the prompt is read. Raises `InvalidArgument`."""
    kept = request.truncate_prompt_tokens if request.HasField("truncate_prompt_tokens") else None
    if kept == 0:
        raise invalid_field("truncate_prompt_tokens", "is 0, expected 1 or more")
    return PromptReading(
        omits_special=request.omit_special_tokens,
        num_kept=kept,
        keeps_beginning=request.truncate_prompt_end,
    )


def _to_params(message: pb.SamplingParams, defaults: Mapping[str, float] = {}) -> Sampling:
    """The set fields of a message and a model's defaults; the record has the others and bounds."""
    values = {field.name: _plain(value) for field, value in message.ListFields()}
    grammar = take_grammar(values)
    if grammar is not None:
        values["grammar"] = grammar
    return Sampling.of(values).over(defaults)


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever a field of the message holds
    if isinstance(value, float | int | bool | str):
        return value
    if isinstance(value, pb.Choice):
        return list(value.texts)
    return dict(value) if hasattr(value, "items") else tuple(value)


def _add(
    message: pb.GenerateChunk | pb.GeneratedText, chunk: Chunk, tokenizer: PromptTokenizer
) -> None:
    """Append what is new, and say how the sample ended if it did."""
    message.text += chunk.text
    message.token_ids.extend(chunk.token_ids)
    message.logprobs.extend(_to_logprob(each, tokenizer.bytes_of) for each in chunk.logprobs)
    if chunk.is_last and chunk.sequence.finish_reason is not None:
        message.finish_reason = _REASONS[chunk.sequence.finish_reason]
        message.stop_reason = chunk.sequence.stop_reason
        if chunk.sequence.stop_token_id is not None:
            message.stop_token_id = chunk.sequence.stop_token_id
        if chunk.sequence.score is not None:
            message.score = chunk.sequence.score


def _add_prompt_ids(
    message: pb.GenerateChunk | pb.GenerateResponse,
    generation: Generation,
    request: pb.GenerateRequest,
) -> None:
    """Append the tokens of the prompt, if they are requested."""
    if request.return_prompt_token_ids:
        message.prompt_token_ids.extend(generation.request.prompt_ids.tolist())


async def _add_prompt_logprobs(
    message: pb.GenerateChunk | pb.GenerateResponse,
    generation: Generation,
    tokenizer: PromptTokenizer,
) -> None:
    """Append an entry for each token of the prompt, if they are requested."""
    request, bytes_of = generation.request, tokenizer.bytes_of
    if request.params.prompt_logprobs is None:
        return
    first_id = int(request.prompt_ids[0])
    message.prompt_logprobs.add(id=first_id, token=bytes_of(first_id))
    scores = generation.sequences[0].prompt_logprobs
    for start in range(0, len(scores), LOGPROBS_PER_TURN):
        part = scores[start : start + LOGPROBS_PER_TURN]
        message.prompt_logprobs.extend(_to_logprob(each, bytes_of) for each in part)
        await asyncio.sleep(0)


def _to_logprob(chosen: TokenLogprobs, bytes_of: Callable[[int], bytes]) -> pb.TokenLogprob:
    def one(token_id: int, logprob: float) -> pb.TokenLogprob:
        return pb.TokenLogprob(id=token_id, logprob=logprob, token=bytes_of(token_id))

    message = one(chosen.token_id, chosen.logprob)
    message.logit = chosen.logit
    message.top.extend(one(*each) for each in chosen.top)
    return message


def _summary(model: GenerativeModel, generation: Generation) -> dict[str, Any]:
    """The fields that the end of every answer has."""
    return {
        "model": model.name,
        "version": str(model.version),
        "usage": _usage(generation),
        "timings": _timings(generation),
    }


def _usage(generation: Generation) -> pb.GenerationUsage:
    first = generation.sequences[0]
    return pb.GenerationUsage(
        prompt_tokens=first.num_prompt_tokens,
        output_tokens=sum(sequence.num_output_tokens for sequence in generation.sequences),
        reused_tokens=first.num_reused_tokens,
    )


def _timings(generation: Generation) -> pb.GenerationTimings:
    all_timings = [sequence.timings for sequence in generation.sequences]
    num_gaps = sum(sequence.num_output_tokens - 1 for sequence in generation.sequences)
    return pb.GenerationTimings(
        queue_seconds=all_timings[0].queue_s,
        time_to_first_token_seconds=min(t.time_to_first_token_s for t in all_timings),
        inter_token_seconds=sum(t.decode_s for t in all_timings) / max(1, num_gaps),
        total_seconds=max(t.total_s for t in all_timings),
    )
