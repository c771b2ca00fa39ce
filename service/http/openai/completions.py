"""`/v1/completions`: texts that continue prompts, whole or as a stream of events.

Each prompt is one Generate call; several run at the same time and share steps. Choice number `p * n
+ s` is sample `s` of prompt `p`.
"""

import asyncio
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar
from uuid import uuid4

import msgspec

from service.calls.generation import (
    Generate,
    GenerateChunk,
    GeneratedText,
    GenerateResponse,
    GenerationUsage,
    TokenLogprob,
)
from service.calls.sampling import Sampling
from service.calls.tokens import Detokenize, Detokenized, Tokenize, Tokenized
from service.http.numbers import Whole
from service.http.openai.sampling import MAX_LOGPROBS, NO_INFILLING, SamplingFields
from service.http.request import Reply, Request
from service.http.routes import Route
from service.http.shared.answers import Values, counts_of, end_of, usage_of
from service.http.shared.fields import Prompt, prompts_of, together
from service.http.shared.logprobs import TokenTexts, by_id
from service.http.shared.models import BASES, find_model, name_of
from service.http.shared.names import Names
from service.http.shared.output_form import unenforced
from service.http.shared.paths import DETOKENIZE, GENERATE, GENERATE_UNARY, TOKENIZE
from service.http.shared.peer_fields import Refusals, unsupported
from service.http.shared.peer_tables import REFUSALS
from service.http.status import invalid
from service.http.stream import Stream

DEFAULT_MAX_TOKENS = 16  # OpenAI's
MAX_BEST_OF = 64  # as the typed API's `n`


class CompletionRequest(SamplingFields, kw_only=True):
    """The body, as OpenAI has it and vLLM adds to it."""

    REFUSED: ClassVar[Refusals] = REFUSALS["completions"]

    prompt: msgspec.Raw
    best_of: Whole | None = None
    echo: bool | None = None
    suffix: str | None = None
    logprobs: Whole | None = None
    add_special_tokens: bool | None = None

    @property
    def field_names(self) -> dict[str, str]:
        """The body's names of what the record calls otherwise."""
        is_echo = self.echo and self.number_of("prompt_logprobs") is None
        return self.other_names | ({"prompt_logprobs": "logprobs"} if is_echo else {})


def completion_routes() -> tuple[Route, ...]:
    return tuple(
        Route("POST", f"{base}/completions", complete, GENERATE, (CompletionRequest,))
        for base in BASES
    )


async def complete(request: Request) -> Reply | None:
    asked = await request.json(CompletionRequest)
    request.named = Names(asked.field_names)
    plan = await Plan.of(request, asked)
    request.reply_headers += unenforced(plan.params.grammar)
    if asked.stream:
        await _Streaming(request, plan).run()
        return None
    answers = await together([_answer(request, plan, prompt) for prompt in plan.prompts])
    choices: list[Values] = []
    for answer, echoed in zip(answers, plan.echoed, strict=True):
        for result in plan.best(answer.results):
            choice = _choice(len(choices), result, echoed, answer, plan)
            choices.append(choice)
    usage = usage_of([answer.usage for answer in answers])
    return Reply.json({**plan.head, "choices": choices, "usage": usage})


@dataclass(frozen=True, slots=True)
class Plan:
    """One checked request."""

    asked: CompletionRequest
    model: str
    prompts: list[Prompt]
    echoed: list[str]  # before each output; empty texts unless asked for
    params: Sampling
    head: Values = field(default_factory=dict)  # of the answer, and of each event

    @classmethod
    async def of(cls, request: Request, asked: CompletionRequest) -> "Plan":
        asked.check()
        if asked.suffix:
            raise unsupported("suffix", NO_INFILLING)
        for name in ("logprobs", "prompt_logprobs"):
            value = getattr(asked, name)
            if value is not None and not 0 <= value <= MAX_LOGPROBS:
                raise invalid(f"{name} is {value}, expected 0 to {MAX_LOGPROBS}", name)
        if asked.number_of("prompt_logprobs") is not None and asked.stream:
            raise unsupported(
                "prompt_logprobs", "events have no place for it, echo and logprobs do"
            )
        if asked.echo and asked.truncate_prompt_tokens is not None:
            raise invalid(
                "truncate_prompt_tokens is set beside echo, expected one of them: the text of what "
                "is left of a prompt is not told",
                "truncate_prompt_tokens",
            )
        _check_best_of(asked)
        model = await name_of(request, asked.model)
        settings = request.front.settings
        prompts = await request.work(lambda: prompts_of(asked.prompt, "prompt", settings.max_texts))
        _check_queue(len(prompts), _num_best(asked), settings.max_queue_requests)
        max_tokens = asked.number_of("max_tokens")
        is_chat = max_tokens is None and (await find_model(request, model)).has_chat_template
        if max_tokens is None and not is_chat:
            max_tokens = DEFAULT_MAX_TOKENS
        own = {
            "max_tokens": max_tokens,
            "open_max_tokens": is_chat or None,
            "logprobs": asked.logprobs,
            "prompt_logprobs": _num_prompt_logprobs(asked),
        }
        if _num_best(asked) > asked.num_samples:
            own |= {"n": _num_best(asked), "logprobs": asked.logprobs or 0}
        params = await request.work(lambda: asked.sampling(asked.output_grammar(), **own))
        echoed = [""] * len(prompts)
        if asked.echo:
            echoed = await together([_text_of(request, model, prompt) for prompt in prompts])
        head = {
            "id": f"cmpl-{uuid4().hex}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": model,
        }
        return cls(asked, model, prompts, echoed, params, head)

    @property
    def num_samples(self) -> int:
        return self.asked.num_samples

    def call(self, prompt: Prompt) -> Generate:
        return Generate(
            model=self.model,
            prompt=prompt,
            sampling_params=self.params,
            omit_special_tokens=self.asked.add_special_tokens is False,
            **self.asked.reading,
        )

    def best(self, results: Iterable[GeneratedText]) -> list[GeneratedText]:
        """Likeliest results, by the mean of their tokens, where there are more than requested."""
        found = list(results)
        if len(found) <= self.num_samples:
            return found
        return sorted(found, key=_mean_logprob, reverse=True)[: self.num_samples]

    def writer(self, echoed: str) -> TokenTexts | None:
        """Writer of the log probabilities of one choice, if they are requested."""
        if self.asked.logprobs is None:
            return None
        as_ids = bool(self.asked.return_tokens_as_token_ids)
        return TokenTexts(as_ids=as_ids, echoed=echoed)


def _num_prompt_logprobs(asked: CompletionRequest) -> int | None:
    """How many likeliest tokens the prompt's scores need; None where it is not scored."""
    numbers = (asked.number_of("prompt_logprobs"), asked.logprobs if asked.echo else None)
    return max((number for number in numbers if number is not None), default=None)


def _check_best_of(asked: CompletionRequest) -> None:
    if asked.best_of is None:
        return
    num_samples = asked.num_samples
    if asked.best_of < num_samples:
        raise invalid(
            f"best_of is {asked.best_of}, expected at least n, which is {num_samples}", "best_of"
        )
    if asked.best_of > MAX_BEST_OF:
        raise invalid(f"best_of is {asked.best_of}, expected at most {MAX_BEST_OF}", "best_of")
    if asked.use_beam_search and asked.best_of > num_samples:
        raise invalid(
            f"best_of is {asked.best_of}, expected {num_samples} as n is: with use_beam_search n "
            "is also the number of beams",
            "best_of",
        )
    if asked.stream and asked.best_of > num_samples:
        raise invalid("best_of is larger than n, expected stream to be false", "best_of")


def _check_queue(num_prompts: int, num_samples: int, most: int) -> None:
    """Raise `HttpError` for more outputs than can wait: some of them would never be admitted."""
    if num_prompts > 1 and num_prompts * num_samples > most:
        outputs = f" for {num_samples} outputs each" if num_samples > 1 else ""
        raise invalid(
            f"prompt has {num_prompts} elements{outputs}, expected at most {most // num_samples}: "
            f"--max-queue-requests is {most}",
            "prompt",
        )


def _num_best(asked: CompletionRequest) -> int:
    return asked.best_of or asked.num_samples


def _mean_logprob(result: GeneratedText) -> float:
    return sum(token.logprob for token in result.logprobs) / max(1, len(result.logprobs))


async def _text_of(request: Request, model: str, prompt: Prompt) -> str:
    if isinstance(prompt, str):
        return prompt
    answer: Detokenized = await request.ask(DETOKENIZE, Detokenize(model=model, token_ids=prompt))
    return answer.text


async def _answer(request: Request, plan: Plan, prompt: Prompt) -> GenerateResponse:
    answer: GenerateResponse = await request.ask(GENERATE_UNARY, plan.call(prompt))
    return answer


def _choice(
    index: int,
    result: GeneratedText,
    echoed: str,
    answer: GenerateResponse,
    plan: Plan,
) -> Values:
    scores: Sequence[TokenLogprob] = answer.prompt_logprobs
    writer, asked = plan.writer(echoed), plan.asked
    choice = {
        "index": index,
        "text": echoed + result.text,
        "logprobs": writer
        and writer.written(
            result, prompt=scores if asked.echo else (), num_top=asked.logprobs or 0
        ),
        **end_of(result),
    }
    if (num_top := asked.number_of("prompt_logprobs")) is not None:
        choice["prompt_logprobs"] = by_id(scores, num_top)
    if plan.asked.return_token_ids:
        choice["token_ids"] = list(result.token_ids)
    if plan.asked.tells_prompt_ids:
        choice["prompt_token_ids"] = list(answer.prompt_token_ids)
    return choice


class _Streaming:
    """The events of one request."""

    def __init__(self, request: Request, plan: Plan) -> None:
        self._request, self._plan = request, plan
        self._stream = Stream(request, "events", says_done=True)
        self._sending = asyncio.Lock()  # prompts send at the same time, and an event is one write
        self._num_prompt_tokens: list[int] = []
        self._num_output_tokens = 0

    async def run(self) -> None:
        plan = self._plan
        self._num_prompt_tokens = [0] * len(plan.prompts)
        if plan.asked.has_running_usage and len(plan.prompts) > 1:  # of one, its first event tells
            counts = [self._count(prompt) for prompt in plan.prompts]
            self._num_prompt_tokens = await together(counts)
        works = [self._generate(place, prompt) for place, prompt in enumerate(plan.prompts)]
        usages = await together(works)
        if plan.asked.has_usage:
            await self._send([], usage_of(usages))
        await self._stream.end()

    async def _count(self, prompt: Prompt) -> int:
        if not isinstance(prompt, str):
            return len(prompt)
        omits_special = self._plan.asked.add_special_tokens is False
        call = Tokenize(model=self._plan.model, texts=[prompt], omit_special_tokens=omits_special)
        answer: Tokenized = await self._request.ask(TOKENIZE, call)
        return answer.num_tokens

    async def _generate(self, place: int, prompt: Prompt) -> GenerationUsage:
        plan, usage = self._plan, GenerationUsage()
        echoed = plan.echoed[place]
        unsaid = dict.fromkeys(range(plan.num_samples), echoed)
        writers = [plan.writer(echoed) for _ in unsaid]
        scores: list[TokenLogprob] = []
        prompt_ids: list[int] = []

        async def write(chunk: GenerateChunk) -> None:
            nonlocal usage
            sample, writer = chunk.sample_index, writers[chunk.sample_index]
            self._num_output_tokens += len(chunk.token_ids)
            usage = chunk.usage or usage
            if chunk.num_prompt_tokens:
                self._num_prompt_tokens[place] = chunk.num_prompt_tokens
            scores.extend(chunk.prompt_logprobs)  # of the first chunk; each sample begins with them
            is_first = sample in unsaid
            before = scores if is_first else []
            logprobs = None
            if writer is not None:
                num_top = plan.asked.logprobs or 0
                written = writer.written(chunk, prompt=before, num_top=num_top)
                logprobs = written if written["tokens"] else None
            choice = {
                "index": place * plan.num_samples + sample,
                "text": unsaid.pop(sample, "") + chunk.text,
                "logprobs": logprobs,
                **end_of(chunk),
            }
            if plan.asked.return_token_ids:
                choice["token_ids"] = list(chunk.token_ids)
            if plan.asked.tells_prompt_ids:  # as in vLLM: in the first of each choice
                prompt_ids.extend(chunk.prompt_token_ids)
                choice["prompt_token_ids"] = prompt_ids if is_first else None
            await self._send([choice])

        await self._request.ask(GENERATE, plan.call(prompt), write)
        return usage

    async def _send(self, choices: list[Values], usage: Values | None = None) -> None:
        event = {**self._plan.head, "choices": choices}
        if usage is None and self._plan.asked.has_running_usage:
            usage = counts_of(sum(self._num_prompt_tokens), self._num_output_tokens)
        if self._plan.asked.has_usage or usage is not None:
            event["usage"] = usage
        async with self._sending:
            await self._stream.send(msgspec.json.encode(event))
