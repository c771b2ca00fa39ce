"""Generated texts, whole or as events of one token each, and outputs of encoder-decoders."""

from typing import TypeAlias

import msgspec

from service.calls.generation import (
    Generate,
    GenerateChunk,
    GeneratedText,
    GenerateResponse,
    TokenLogprob,
)
from service.http.huggingface.fields import Pipeline, Target, Values
from service.http.huggingface.sampling import GenerationParameters
from service.http.request import Reply, Request
from service.http.shared.fields import together
from service.http.shared.inputs import Inputs
from service.http.shared.logprobs import LOWEST
from service.http.shared.names import Names
from service.http.shared.paths import GENERATE, GENERATE_UNARY
from service.http.shared.token_parts import TokenParts
from service.http.status import invalid
from service.http.stream import Stream

Scored: TypeAlias = tuple[Values, list[Values]]  # a token, and the likeliest at its place


class GenerationRequest(msgspec.Struct):
    """The body of text generation and of translation."""

    inputs: msgspec.Raw
    parameters: GenerationParameters | None = None
    stream: bool | None = None


def generation(*names: str) -> Pipeline:
    """The pipeline that gives its text by these names; none: by those of the model's kind."""

    async def generate(request: Request, target: Target) -> Reply | None:
        asked = await request.json(GenerationRequest)
        parameters = await request.work((asked.parameters or GenerationParameters()).whole)
        parameters.check(is_stream=bool(asked.stream))
        request.named = Names(parameters.field_names)
        inputs = await Inputs.of(request, asked.inputs)
        if asked.stream:
            prompt = _only(inputs)
            await _Streaming(request, target, parameters, prompt).run()
            return None
        works = [_answer(request, target, parameters, prompt) for prompt in inputs.texts]
        answers = await together(works)
        has_source = target.manifest.has_source or target.manifest.is_recurrent
        keys = names or (("generated_text", "translation_text") if has_source else _GENERATED)
        written = [
            [
                _output(result, prompt, keys, parameters, prefill_of(answer))
                for result in _best(answer, parameters)
            ]
            for prompt, answer in zip(inputs.texts, answers, strict=True)
        ]
        return Reply.json(inputs.shaped(written))

    return generate


_GENERATED = ("generated_text",)


def _only(inputs: Inputs) -> str:
    """The prompt of a stream. Raises `HttpError` for several."""
    if len(inputs.texts) != 1:
        raise invalid(f"inputs has {len(inputs.texts)} texts, a stream is of 1", "inputs")
    return inputs.texts[0]


def _call(
    target: Target, parameters: GenerationParameters, prompt: str, *, has_logprobs: bool
) -> Generate:
    """Raises `HttpError` and `InvalidArgument`."""
    fits = not target.manifest.is_recurrent  # which takes nothing that samples
    return Generate(
        model=target.name,
        prompt=prompt,
        sampling_params=parameters.sampling(has_logprobs=has_logprobs, fit_max_tokens=fits),
        truncate_prompt_tokens=parameters.truncate,  # its end is kept, as there
    )


async def _answer(
    request: Request, target: Target, parameters: GenerationParameters, prompt: str
) -> GenerateResponse:
    has_logprobs = bool(parameters.details or parameters.best_of)
    call = _call(target, parameters, prompt, has_logprobs=has_logprobs)
    answer: GenerateResponse = await request.ask(GENERATE_UNARY, call)
    return answer


def _best(answer: GenerateResponse, parameters: GenerationParameters) -> list[GeneratedText]:
    """The likeliest outputs, by the mean of their tokens, where there are more than requested."""

    def mean_logprob(result: GeneratedText) -> float:
        return sum(token.logprob for token in result.logprobs) / max(1, len(result.logprobs))

    results = list(answer.results)
    if len(results) > parameters.num_outputs:
        results.sort(key=mean_logprob, reverse=True)
    return results[: parameters.num_outputs]


def _output(
    result: GeneratedText,
    prompt: str,
    names: tuple[str, ...],
    parameters: GenerationParameters,
    prefill: list[Values],
) -> Values:
    text = prompt + result.text if parameters.return_full_text else result.text
    output: Values = dict.fromkeys(names, text)
    if parameters.details:
        tokens = tokens_of(result, TokenParts())
        output["details"] = {
            "finish_reason": reason_of(result),
            "generated_tokens": len(result.token_ids),
            "seed": parameters.told_seed,
            "prefill": prefill,
            "tokens": [token for token, _ in tokens],
        }
        if parameters.top_n_tokens:
            output["details"]["top_tokens"] = [top for _, top in tokens]
    return output


def reason_of(result: GeneratedText) -> str:
    if result.finish_reason == "length":
        return "length"
    return "stop_sequence" if result.stop_reason else "eos_token"


def tokens_of(result: GeneratedText, parts: TokenParts[Scored]) -> list[Scored]:
    """The tokens of an output, or those of a part of it that are certain with it.

    Their texts together are its text: a token that is a part of a character has none, nor has what
    ended the output, a special token or one that a stop text cut off.
    """
    is_end = bool(result.finish_reason)
    ended = result.finish_reason == "stop" and not result.stop_reason
    tokens: list[tuple[Scored, bytes]] = []
    for place, token_id in enumerate(result.token_ids):
        special = ended and place == len(result.token_ids) - 1 and bool(result.logprobs)
        found = result.logprobs[place] if result.logprobs else None
        logprob = None if found is None else max(found.logprob, LOWEST)
        token: Values = {"id": token_id, "text": "", "logprob": logprob, "special": special}
        top = [] if found is None else top_tokens_of(found)
        tokens.append(((token, top), b"" if special or found is None else found.token))
    written = parts.read(tokens, result.text, is_end=is_end)
    return [(part.token[0] | {"text": part.text}, part.token[1]) for part in written]


def prefill_of(answer: GenerateResponse) -> list[Values]:
    """The tokens of the prompt, if they were requested; no token is before the first."""
    return [
        {
            "id": token.id,
            "text": token.token.decode(errors="replace"),
            "logprob": max(token.logprob, LOWEST) if place else None,
        }
        for place, token in enumerate(answer.prompt_logprobs)
    ]


def top_tokens_of(token: TokenLogprob) -> list[Values]:
    """The likeliest tokens at the place of a token."""
    return [
        {
            "id": top.id,
            "text": top.token.decode(errors="replace"),
            "logprob": max(top.logprob, LOWEST),
            "special": False,
        }
        for top in token.top
    ]


class _Streaming:
    """The events of one request: one for each token, the last with the whole text."""

    def __init__(
        self, request: Request, target: Target, parameters: GenerationParameters, prompt: str
    ) -> None:
        self._request, self._parameters = request, parameters
        has_logprobs = not target.manifest.is_recurrent
        self._call = _call(target, parameters, prompt, has_logprobs=has_logprobs)
        self._stream = Stream(request, "events")
        self._text = prompt if parameters.return_full_text else ""
        self._parts: TokenParts[Scored] = TokenParts()
        self._num_tokens = 0

    async def run(self) -> None:
        await self._request.ask(GENERATE, self._call, self._write)
        await self._stream.end()

    async def _write(self, chunk: GenerateChunk) -> None:
        self._text += chunk.text
        tokens = tokens_of(chunk, self._parts)
        num_ids = len(tokens)
        if not tokens and chunk.finish_reason:  # the last event has the text, and is of a token
            tokens = [({"id": 0, "text": "", "logprob": None, "special": True}, [])]
        for place, (token, top) in enumerate(tokens):
            self._num_tokens += place < num_ids
            event: Values = {"index": self._num_tokens, "token": token}
            if self._parameters.top_n_tokens:
                event["top_tokens"] = top
            is_last = bool(chunk.finish_reason) and place == len(tokens) - 1
            event["generated_text"] = self._text if is_last else None
            event["details"] = self._details(chunk) if is_last else None
            await self._stream.send(msgspec.json.encode(event))

    def _details(self, chunk: GenerateChunk) -> Values:
        return {
            "finish_reason": reason_of(chunk),
            "generated_tokens": self._num_tokens,
            "input_length": chunk.usage.prompt_tokens if chunk.usage else 0,
            "seed": self._parameters.told_seed,
        }
