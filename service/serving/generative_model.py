"""A served generative model: prompts in, text out, whole or streamed.

The typed API calls `generate`. The Open Inference Protocol's tensors, which are those of Triton's
generative backends, go through `infer` and `infer_stream`. All methods run on the event loop.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol, Self, TypeAlias, TypeVar

import numpy as np

from service.calls.conversation import Conversation
from service.calls.models import ModelFacts
from service.calls.sampling import Sampling
from service.calls.sampling_values import sampling_in, sampling_of
from service.contract.adapter import Adapter
from service.contract.interface import ModelInterface
from service.contract.prompt_reading import PromptReading
from service.errors import InvalidArgument, NoChatTemplate, invalid_field
from service.families.call_forms import CALL_FORMS
from service.families.marks import marks_in
from service.families.thoughts import FORMS, PROMPT_END, Thoughts
from service.generation.choosing.vocabulary import check_vocabulary
from service.generation.decoders.adapter_buffers import AdapterShape
from service.generation.sequence import GenerationRequest
from service.generation.stream import Generation
from service.grammars.behind import behind_thoughts
from service.grammars.cache import GrammarLimits, Grammars
from service.grammars.checks import CheckedCompiler
from service.grammars.compiler import (
    GrammarCompiler,
    GrammarMatcher,
    GrammarVocabulary,
    tokens_of,
)
from service.grammars.marks import with_tokens
from service.records import EndedRequest, Timings, current_call
from service.serving.chat import Chat
from service.serving.facts import facts_with
from service.serving.model import Caller, Engine, Host, InferReply, InferRequest, ServedModel
from service.serving.tasks.task import decode
from service.serving.workers import Tokenizing
from service.text.tokenizer import PromptTokenizer, check_num_tokens

T = TypeVar("T")
Prompt: TypeAlias = str | Sequence[int] | Conversation
DEFAULT_MAX_TOKENS = 128  # where neither a request, nor the model, nor the server has a number
MESSAGE_PER_TOKEN = "message_per_token"  # noqa: S105 - a request parameter of streams


@dataclass(frozen=True, slots=True)
class Room:
    """The bounds on the tokens of a prompt and its output."""

    max_tokens: int  # both together
    max_prompt_tokens: int
    max_output_tokens: int


class TextEngine(Engine, Protocol):
    """The engine of one decoder, or the part of it that an adapter uses."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def adapters(self) -> AdapterShape | None: ...

    def check_room(self, priority: int = 0, deadline_s: float | None = None) -> None: ...

    def generate(self, request: GenerationRequest) -> Generation: ...


class GenerativeModel(ServedModel):
    """A decoder with its engine."""

    is_decoupled = True

    adapter: Adapter | None = None  # what its requests have

    def __init__(
        self,
        host: Host,
        interface: ModelInterface,
        engine: TextEngine,
        tokenizer: PromptTokenizer,
        room: Room,
        chat: Chat | None = None,  # None: it has no chat template
        sampling: Mapping[str, float] = {},  # the model's own, in place of the server's defaults
        grammars: Grammars | None = None,  # of a model with the same vocabulary, which it shares
    ) -> None:
        assert interface.manifest is not None, "a generative model has one"
        super().__init__(host, interface, engine)
        self.manifest = interface.manifest
        self.task_name = self.manifest.task
        self.tokenizer = tokenizer
        self.engine = engine
        self.chat = chat
        self.tokenizing = Tokenizing(host.executor, has_known_time=tokenizer.has_known_time)
        self._vocab_size = engine.vocab_size
        self._vocabulary = GrammarVocabulary(
            tokenizer.token_bytes,
            self.manifest.eos_token_ids,
            engine.vocab_size,
            tokenizer.encode_part,
        )
        self.grammars = grammars or Grammars(
            CheckedCompiler(GrammarCompiler(self._vocabulary), host.settings.grammar_timeout_s),
            GrammarLimits(
                host.settings.max_cached_grammars,
                host.settings.max_grammar_bytes,
                host.settings.grammar_timeout_s,
            ),
        )
        self.room = room
        self.own_sampling = sampling
        self.sampling_defaults = {n: v for n, v in sampling.items() if n != "max_tokens"}
        own = sampling.get("max_tokens", host.settings.default_max_tokens)
        self._default_max_tokens = int(own)  # 0: what the request's kind has

    @asynccontextmanager
    async def generate(
        self,
        prompt: Prompt,
        params: Sampling,
        caller: Caller,
        *,
        reading: PromptReading = PromptReading(),
        chunk_per_token: bool = False,
        tells_thoughts: bool = False,
    ) -> AsyncIterator[Generation]:
        """Start a request: iterate over the chunks of what comes, inside `async with`.

        `prompt` is text, token ids or messages. Leaving the block ends the request within one step.
        Raises `InvalidArgument`, `Overloaded`, `Unavailable`, and what `Generation` raises.
        """
        with self.counted_failures(caller.received_s):
            manifest = self.manifest
            check_vocabulary(
                params, self._vocab_size, manifest.eos_token_ids, manifest.banned_token_ids
            )
            # Before any work, so that refusing is cheap.
            self.engine.check_room(caller.priority, caller.deadline_s)
            prompt_ids = await self._encode(prompt, self._reading(reading, params))
            thoughts = self._thoughts_after(prompt, prompt_ids, params)
            matchers = await self._matchers(params, thoughts)
            request = GenerationRequest(
                prompt_ids=prompt_ids,
                params=params,
                max_tokens=self._max_tokens(params, len(prompt_ids)),
                received_s=caller.received_s,
                deadline_s=caller.deadline_s,
                priority=caller.priority,
                timeout_s=caller.timeout_s,
                chunk_per_token=chunk_per_token,
                matchers=matchers,
                bad_words=await self._bad_words(params),
                namespace=self._namespace_of(params),
                adapter=self.adapter,
                observers=self._observers if self.adapter else (),
                spelled_ids=self._spelled_ids(prompt, thoughts if tells_thoughts else None),
                thoughts=thoughts,
                thought_end_ids=self._end_ids if thoughts is not None else (),
            )
            async with self.engine.generate(request) as generation:
                if (call := current_call.get()) is not None:
                    call.sequences, call.version = generation.sequences, str(self.version)
                yield generation
            if generation.is_complete:
                self._report(EndedRequest(_timings(generation), 1, caller.request_id))

    async def infer(self, request: InferRequest) -> InferReply:
        """The whole answer in one reply, after the prompt unless that is excluded."""
        with self.counted_failures(request.caller.received_s):
            text_request = self._read(request)
            if text_request.can_stream:
                raise invalid_field(
                    "stream", "is true, and only ModelStreamInfer and generate_stream stream"
                )
        return await self._infer_whole(text_request, request)

    async def infer_stream(self, request: InferRequest) -> AsyncGenerator[InferReply, None]:
        """A reply per piece of new text where `stream` is set; else one, as `infer` gives it.

        The last one may be without text, and any where the request wants one per token.
        """
        with self.counted_failures(request.caller.received_s):
            text_request = self._read(request)
        if not text_request.can_stream:
            yield await self._infer_whole(text_request, request)
            return
        num_unfinished = text_request.params.n
        async with self._start(text_request, request) as generation:
            async for chunk in generation:
                num_unfinished -= chunk.is_last
                if chunk.text or text_request.message_per_token or not num_unfinished:
                    texts = [""] * text_request.params.n
                    texts[chunk.sequence.sample_index] = chunk.text
                    outputs, is_last = _text_output(texts), not num_unfinished
                    yield InferReply(outputs, _timings(generation), is_last)

    def _read(self, request: InferRequest) -> "TextRequest":
        return TextRequest.of(
            request, has_source=self.manifest.has_source, defaults=self.sampling_defaults
        )

    def _start(
        self, text_request: "TextRequest", request: InferRequest
    ) -> AbstractAsyncContextManager[Generation]:
        return self.generate(
            text_request.prompt,
            text_request.params,
            request.caller,
            chunk_per_token=text_request.message_per_token,
        )

    async def _infer_whole(self, text_request: "TextRequest", request: InferRequest) -> InferReply:
        texts = [
            text_request.prompt if text_request.has_prompt_in_output else ""
        ] * text_request.params.n
        async with self._start(text_request, request) as generation:
            async for chunk in generation:
                texts[chunk.sequence.sample_index] += chunk.text
        return InferReply(_text_output(texts), _timings(generation))

    def facts(self) -> ModelFacts:
        return facts_with(self.manifest, self.interface).also(
            vocabulary_size=self.tokenizer.num_tokens,
            has_chat_template=self.chat is not None,
            sampling_defaults=self.own_sampling,
            grammar_kinds=self.grammars.kinds,
            tool_call_form=self.chat.templates.tool_form if self.chat is not None else "",
            reasoning_form=self.chat.templates.thought_form if self.chat is not None else "",
        )

    def close(self, timeout_s: float) -> None:
        if self.chat is not None:
            self.chat.close()
        self.grammars.close()
        self.tokenizing.close()
        super().close(timeout_s)

    def _thoughts_after(
        self, prompt: Prompt, prompt_ids: np.ndarray, params: Sampling
    ) -> Thoughts | None:
        """Thoughts that an output may begin with; None where the prompt is no conversation.

        Raises `InvalidArgument`.
        """
        if not isinstance(prompt, Conversation) and params.max_reasoning_tokens is not None:
            raise invalid_field(
                "max_reasoning_tokens",
                f"is {params.max_reasoning_tokens}, expected none beside a prompt that is no "
                "conversation: its outputs have no thoughts that are told apart",
            )
        if self.chat is None or not isinstance(prompt, Conversation):
            return None
        if (form := self.chat.templates.thought_form) == "":
            return None
        end = self.tokenizer.text_of(prompt_ids[-PROMPT_END:].tolist())
        continued = str(prompt.messages[-1].get("content")) if prompt.continues_last else ""
        marks = self.chat.templates.call_marks(prompt)
        thoughts = Thoughts.after(FORMS[form], end, continued, marks)
        keeps_spaces = params.grammar is not None and params.grammar.has_leading_space
        return replace(thoughts, keeps_spaces=keeps_spaces)

    @cached_property
    def _special_tokens(self) -> dict[str, int]:
        """The ids of special tokens by their spellings."""
        special = self.tokenizer.special_bytes.items()
        return {spelled.decode(errors="replace"): token_id for token_id, spelled in special}

    def _parts(self, text: str) -> list[str | int]:
        return marks_in(text, self._special_tokens)

    @cached_property
    def _end_ids(self) -> tuple[int, ...]:
        """The tokens of the marker that ends thoughts."""
        assert self.chat is not None, "the model has thoughts"
        parts = self._parts(FORMS[self.chat.templates.thought_form].end)
        ids = [(p,) if isinstance(p, int) else tokens_of(self._vocabulary, p) for p in parts]
        return tuple(token_id for each in ids for token_id in each)

    def _spelled_ids(self, prompt: Prompt, thoughts: Thoughts | None) -> frozenset[int]:
        """The special tokens in the marks of thoughts and of calls."""
        marks = thoughts.form.marks if thoughts is not None else ()
        if self.chat is not None and isinstance(prompt, Conversation) and prompt.tools:
            form = CALL_FORMS.get(self.chat.templates.tool_form)
            marks += form.marks if form is not None else ()
        parts = [part for mark in marks for part in self._parts(mark)]
        return frozenset(part for part in parts if isinstance(part, int))

    async def _matchers(
        self, params: Sampling, thoughts: Thoughts | None
    ) -> tuple[GrammarMatcher, ...]:
        """One per sample where a grammar bounds the output. Raises `InvalidArgument`."""
        if params.grammar is None:
            return ()
        if params.has_beams and not self.manifest.eos_token_ids:
            raise invalid_field(
                "beam_width",
                f"is {params.beam_width}, expected 0 beside {params.grammar.kind}: the model has "
                "no token that ends a text",
            )
        grammar = with_tokens(params.grammar, self._parts)
        if thoughts is None or thoughts.is_closed:
            return await self.grammars.matchers(grammar, params.n)
        form = thoughts.form
        is_called = grammar.has_marks and form.turn != ""
        behind = behind_thoughts(
            grammar,
            form.begin,
            form.turn if is_called else form.end,
            is_open=thoughts.is_open,
            without=() if is_called else form.without,
            spell=self._parts,
        )
        try:
            return await self.grammars.matchers(behind, params.n)
        except InvalidArgument as error:
            raise error.named({"lark": grammar.kind}, {}) from error

    async def _bad_words(self, params: Sampling) -> tuple[tuple[int, ...], ...]:
        """The tokens of texts that no output has, and of those behind a space, as in vLLM."""
        words = params.bad_words
        if not words:
            return ()
        encoded = await self.tokenizing.run(
            lambda: [
                [self.tokenizer.encode_part(text) for text in _spelled(each)] for each in words
            ],
            sum(map(len, words)),
        )
        found = {tuple(ids) for spellings in encoded for ids in spellings if ids}
        return tuple(sorted(found))

    async def prompt_of(
        self, conversation: Conversation, reading: PromptReading | None = None
    ) -> np.ndarray:
        """Token ids int64 [S] of the prompt that the chat template makes.

        Raises `InvalidArgument`, `Overloaded`, and `ModelFailed`.
        """
        if self.chat is None:
            raise NoChatTemplate(
                f"model '{self.name}' has no chat template: send the conversation as one text "
                "(/v1/completions), or put chat_template.jinja into the model's version folder",
                "conversation",
            )
        return await self.chat.encode(conversation, reading)

    def _namespace_of(self, params: Sampling) -> str:
        """Namespace of a prompt, outside of which it shares nothing: adapter and tenant's salt."""
        return f"{self.adapter.number if self.adapter else ''}\0{params.cache_salt}"

    def _reading(self, reading: PromptReading, params: Sampling) -> PromptReading:
        """Reading of a request's prompt, with the model's bounds: they leave room for an output.

        A prompt that is only scored needs none; one that is cut leaves what the request says.
        """
        room, num_output = self.room, params.max_tokens
        most = room.max_prompt_tokens
        has_own_room = room.max_prompt_tokens < room.max_tokens - 1  # that of a source
        if num_output == 0 and not has_own_room:
            most = room.max_tokens
        kept = reading.num_kept
        if kept is not None and not has_own_room:
            kept = max(1, min(kept, room.max_tokens - (1 if num_output is None else num_output)))
        return replace(reading, num_kept=kept, max_tokens=most)

    async def _encode(self, prompt: Prompt, reading: PromptReading) -> np.ndarray:
        """Token ids int32 [S], at least one, that leave room for the output."""
        if isinstance(prompt, Conversation):
            return (await self.prompt_of(prompt, reading)).astype(np.int32)
        if isinstance(prompt, str):
            ids = await self.tokenizing.run(
                lambda: self.tokenizer.encode(prompt, reading), len(prompt)
            )
            return ids.astype(np.int32)
        kept = reading.cut(prompt)
        check_num_tokens(len(kept), reading.max_tokens)
        unknown = [token_id for token_id in kept if not 0 <= token_id < self._vocab_size]
        if unknown:
            raise InvalidArgument(
                f"the prompt has token id {unknown[0]}, expected 0 to {self._vocab_size - 1}",
                "prompt",
            )
        return np.array(kept, np.int32)

    def _max_tokens(self, params: Sampling, num_prompt_tokens: int) -> int:
        """The output's number of tokens: as requested, or as many of the default as fit."""
        room = min(self.room.max_tokens - num_prompt_tokens, self.room.max_output_tokens)
        is_open = params.max_tokens is None
        name = "min_tokens" if is_open else "max_tokens"
        least = params.min_tokens if params.max_tokens is None else params.max_tokens
        if params.fit_max_tokens and least > room:
            name, least = "min_tokens", max(room, params.min_tokens)
        if least > room:
            reason = (
                f"the prompt has {num_prompt_tokens} tokens, "
                f"and the model takes {self.room.max_tokens} in all"
            )
            if room < self.room.max_tokens - num_prompt_tokens:
                reason = f"outputs of this model have at most {room} tokens"
            raise invalid_field(name, f"is {least}, expected at most {room}: {reason}")
        if not is_open:
            return least
        usual = room if params.open_max_tokens else DEFAULT_MAX_TOKENS
        return max(least, min(room, self._default_max_tokens or usual))


@dataclass(frozen=True, slots=True)
class TextRequest:
    """The tensors of one request, as Triton's generative backends read them."""

    prompt: str
    params: Sampling
    can_stream: bool
    has_prompt_in_output: bool
    message_per_token: bool

    @classmethod
    def of(
        cls,
        request: InferRequest,
        *,
        has_source: bool = False,
        defaults: Mapping[str, float] = {},
    ) -> Self:
        """Read the tensors; without `sampling_parameters`, the request's own parameters count.

        An output follows its prompt, but not a source, unless the request says otherwise.
        """
        inputs = request.inputs
        (prompt,) = decode(inputs["text_input"])
        can_stream = bool(inputs["stream"][0]) if "stream" in inputs else False
        has_prompt = not can_stream and not has_source
        if "exclude_input_in_output" in inputs:
            has_prompt = not inputs["exclude_input_in_output"][0]
        if has_prompt and can_stream:
            raise invalid_field(
                "exclude_input_in_output", "is false and stream is true: a stream has new text only"
            )
        parameters = dict(request.parameters)
        message_per_token = parameters.pop(MESSAGE_PER_TOKEN, False)
        if not isinstance(message_per_token, bool):
            raise InvalidArgument(f"{MESSAGE_PER_TOKEN} is {message_per_token}, expected a bool")
        if message_per_token and not can_stream:
            raise InvalidArgument(
                f"{MESSAGE_PER_TOKEN} is true, expected the input 'stream' to be true with it"
            )
        if "sampling_parameters" in inputs:
            (text,) = decode(inputs["sampling_parameters"])
            params = sampling_in(text).over(defaults)
        else:
            params = sampling_of(parameters).over(defaults)
        for name in ("logprobs", "prompt_logprobs"):
            if (value := getattr(params, name)) is not None:
                raise invalid_field(
                    name, f"is {value}, and text_output has no place for them: the typed API has"
                )
        return cls(prompt, params, can_stream, has_prompt, message_per_token)


def _spelled(word: str) -> tuple[str, str]:
    """A word at the beginning of a text, and behind another."""
    return word.lstrip() or word, f" {word.lstrip()}"


def _text_output(texts: Sequence[str]) -> dict[str, np.ndarray]:
    return {"text_output": np.array([text.encode() for text in texts], object)}


def _timings(generation: Generation) -> Timings:
    """The timings of the whole request: from the first sample's start to the last one's end."""
    all_timings = [sequence.timings for sequence in generation.sequences]
    started_s = min(timings.scheduled_s for timings in all_timings)
    finished_s = max(timings.finished_s for timings in all_timings)
    first = all_timings[0]
    return Timings(
        first.received_s,
        queued_s=first.queued_s,
        started_s=started_s,
        finished_s=finished_s,
        run_s=finished_s - started_s,
    )
