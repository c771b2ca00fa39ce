"""Generated texts, whole or as events of one token each, and outputs of encoder-decoders."""

import msgspec
from attendant.v1 import generation_pb2 as pb

from service.http.huggingface.fields import Inputs, Pipeline, Target, Values
from service.http.huggingface.sampling import GenerationParameters
from service.http.openai.fields import together
from service.http.openai.logprobs import LOWEST
from service.http.request import Reply, Request
from service.http.status import invalid
from service.http.stream import Stream

GENERATE = "/attendant.v1.GenerationService/Generate"
GENERATE_UNARY = "/attendant.v1.GenerationService/GenerateUnary"


class GenerationRequest(msgspec.Struct):
    """The body of text generation and of translation."""

    inputs: msgspec.Raw
    parameters: GenerationParameters | None = None
    stream: bool | None = None


def generation(*names: str) -> Pipeline:
    """The pipeline that gives its text by these names; none: by those of the model's kind."""

    async def generate(request: Request, target: Target) -> Reply | None:
        asked = await request.json(GenerationRequest)
        parameters = (asked.parameters or GenerationParameters()).whole()
        parameters.check(is_stream=bool(asked.stream))
        request.field_names = parameters.field_names
        inputs = Inputs.of(request, asked.inputs)
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


def _message(
    target: Target, parameters: GenerationParameters, prompt: str, *, has_logprobs: bool
) -> pb.GenerateRequest:
    params = parameters.message(has_logprobs=has_logprobs)
    if not target.manifest.is_recurrent:  # which takes nothing that samples
        params.fit_max_tokens = True
    return pb.GenerateRequest(model=target.name, text=prompt, sampling_params=params)


async def _answer(
    request: Request, target: Target, parameters: GenerationParameters, prompt: str
) -> pb.GenerateResponse:
    has_logprobs = bool(parameters.details or parameters.best_of)
    message = _message(target, parameters, prompt, has_logprobs=has_logprobs)
    answer: pb.GenerateResponse = await request.ask(GENERATE_UNARY, message)
    return answer


def _best(answer: pb.GenerateResponse, parameters: GenerationParameters) -> list[pb.GeneratedText]:
    """Of more outputs than requested, those whose tokens are the likeliest on average."""

    def mean_logprob(result: pb.GeneratedText) -> float:
        return sum(token.logprob for token in result.logprobs) / max(1, len(result.logprobs))

    results = list(answer.results)
    if len(results) > parameters.num_outputs:
        results.sort(key=mean_logprob, reverse=True)
    return results[: parameters.num_outputs]


def _output(
    result: pb.GeneratedText,
    prompt: str,
    names: tuple[str, ...],
    parameters: GenerationParameters,
    prefill: list[Values],
) -> Values:
    text = prompt + result.text if parameters.return_full_text else result.text
    output: Values = dict.fromkeys(names, text)
    if parameters.details:
        tokens = tokens_of(result)
        output["details"] = {
            "finish_reason": reason_of(result),
            "generated_tokens": len(result.token_ids),
            "seed": parameters.told_seed,
            "prefill": prefill,
            "tokens": tokens,
        }
        if parameters.top_n_tokens:
            output["details"]["top_tokens"] = top_tokens_of(result)
    return output


def reason_of(result: pb.GeneratedText | pb.GenerateChunk) -> str:
    if result.finish_reason == pb.FINISH_REASON_LENGTH:
        return "length"
    return "stop_sequence" if result.stop_reason else "eos_token"


def tokens_of(result: pb.GeneratedText | pb.GenerateChunk) -> list[Values]:
    """The tokens of an output or of a part of it; their texts together are its text.

    A token that is a part of a character has no text, and the last has what the others leave:
    nothing if it ended the output, as a special token or by a stop text.
    """
    left, tokens = result.text, []
    ended = result.finish_reason == pb.FINISH_REASON_STOP and not result.stop_reason
    for place, token_id in enumerate(result.token_ids):
        is_last = place == len(result.token_ids) - 1
        found = result.logprobs[place] if result.logprobs else None
        text = left if is_last else _spelled(found, left)
        left = left[len(text) :]
        logprob = None if found is None else max(found.logprob, LOWEST)
        special = is_last and ended
        tokens.append({"id": token_id, "text": text, "logprob": logprob, "special": special})
    return tokens


def prefill_of(answer: pb.GenerateResponse) -> list[Values]:
    """The tokens of the prompt, if they were requested; no token is before the first."""
    return [
        {
            "id": token.id,
            "text": token.token.decode(errors="replace"),
            "logprob": max(token.logprob, LOWEST) if place else None,
        }
        for place, token in enumerate(answer.prompt_logprobs)
    ]


def top_tokens_of(result: pb.GeneratedText | pb.GenerateChunk) -> list[list[Values]]:
    """The likeliest tokens at the place of each token."""
    return [
        [
            {
                "id": top.id,
                "text": top.token.decode(errors="replace"),
                "logprob": max(top.logprob, LOWEST),
                "special": False,
            }
            for top in token.top
        ]
        for token in result.logprobs
    ]


def _spelled(token: pb.TokenLogprob | None, left: str) -> str:
    """The text of a token where what is left of the output begins with it."""
    text = "" if token is None else token.token.decode(errors="ignore")
    for spelled in (text, text.removeprefix(" ")):  # an output's first may have lost its space
        if left.startswith(spelled):
            return spelled
    return ""


class _Streaming:
    """The events of one request: one for each token, the last with the whole text."""

    def __init__(
        self, request: Request, target: Target, parameters: GenerationParameters, prompt: str
    ) -> None:
        self._request, self._parameters = request, parameters
        has_logprobs = not target.manifest.is_recurrent
        self._message = _message(target, parameters, prompt, has_logprobs=has_logprobs)
        self._stream = Stream(request, "events")
        self._text = prompt if parameters.return_full_text else ""
        self._num_tokens = 0

    async def run(self) -> None:
        await self._request.ask(GENERATE, self._message, self._write)
        await self._stream.end()

    async def _write(self, chunk: pb.GenerateChunk) -> None:
        self._text += chunk.text
        tokens = tokens_of(chunk)
        tops = top_tokens_of(chunk) if self._parameters.top_n_tokens else None
        if not tokens and (chunk.text or chunk.finish_reason):  # text that was held back
            tokens = [{"id": 0, "text": chunk.text, "logprob": None, "special": True}]
        for place, token in enumerate(tokens):
            self._num_tokens += bool(chunk.token_ids)
            event: Values = {"index": self._num_tokens, "token": token}
            if tops is not None and place < len(tops):
                event["top_tokens"] = tops[place]
            is_last = bool(chunk.finish_reason) and place == len(tokens) - 1
            event["generated_text"] = self._text if is_last else None
            event["details"] = self._details(chunk) if is_last else None
            await self._stream.send(msgspec.json.encode(event))

    def _details(self, chunk: pb.GenerateChunk) -> Values:
        return {
            "finish_reason": reason_of(chunk),
            "generated_tokens": self._num_tokens,
            "input_length": chunk.usage.prompt_tokens,
            "seed": self._parameters.told_seed,
        }
