"""A generation request and the sequences that compute it, one per sample.

Knows nothing of sessions, threads or protocols. A `GenerationRequest` is frozen and may be
read anywhere; a `Sequence` is the engine thread's own.

The one idea: `num_computed_tokens` catches up with `num_tokens`. A prompt, a chunk of one, a
prompt whose beginning was copied, and a token just sampled differ only in how far it is behind:
exactly one token behind, with something in the cache, is what decoding means.

Clocks are `time.monotonic()` seconds throughout.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Many
from dataclasses import dataclass, field
from math import inf

import numpy as np

from service.calls.sampling import Sampling
from service.contract.adapter import Adapter
from service.families.thought_budget import ThoughtBudget
from service.families.thoughts import Thoughts
from service.generation.choosing.sampler_state import SamplerState
from service.generation.choosing.sampling import TokenLogprobs
from service.generation.text_stream import TextStream
from service.grammars.state import Matcher
from service.records import FinishReason, Observer, SequenceTimings

DRAFT_PRIOR = (2.0, 1.6)  # tried and agreed, of a sequence that nothing is known of
DRAFT_MEMORY = 0.97  # the weight of earlier drafts that is left after each token


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The part of a tokenizer that an engine needs."""

    token_bytes: Many[bytes]  # by id; empty for special tokens
    eos_token_ids: tuple[int, ...]
    first_token_ids: tuple[int, ...] = ()  # what every output begins with
    banned_token_ids: tuple[int, ...] = ()  # what no output has
    strips_space: bool = False  # an output's text begins behind its first space
    special_bytes: Mapping[int, bytes] = field(default_factory=dict)  # by id: their spellings


@dataclass(frozen=True, slots=True, eq=False)
class GenerationRequest:
    """A client's request after tokenizing; `max_tokens` and `prompt_ids` fit the context."""

    prompt_ids: np.ndarray  # int32 [prompt tokens], at least one
    params: Sampling
    max_tokens: int  # of output: the parameter, or the default where that is open
    received_s: float
    deadline_s: float | None = None
    priority: int = 0  # 0 goes first
    timeout_s: float | None = None  # how long it may wait in the queue; None leaves it to the model
    chunk_per_token: bool = False  # none are merged, however late their reader is
    matchers: tuple[Matcher, ...] = ()  # one per sample where a grammar bounds the output
    namespace: str = ""  # prompts share what was computed with those of the same one only
    adapter: Adapter | None = None  # None: the base model itself
    bad_words: tuple[tuple[int, ...], ...] = ()  # sequences of token ids that no output has
    observers: Many[Observer] = ()  # of what becomes of its sequences, in place of the engine's
    spelled_ids: frozenset[int] = frozenset()  # special tokens that its text spells
    thoughts: Thoughts | None = None  # with which outputs may begin
    thought_end_ids: tuple[int, ...] = ()  # the tokens of their end marker

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.prompt_ids)


@dataclass(slots=True)
class DraftRecord:
    """The share of drafted tokens that agreed with a sequence's output; older drafts weigh less."""

    tried: float = 0.0  # drafted tokens up to the first that it did not say
    agreed: float = 0.0
    num_tokens: int = 0  # of the sequence, when these were last counted

    def rate(self, num_tokens: int) -> float:
        """The share of drafted tokens to expect, below 1."""
        kept = DRAFT_MEMORY ** (num_tokens - self.num_tokens)
        return (kept * self.agreed + DRAFT_PRIOR[1]) / (kept * self.tried + DRAFT_PRIOR[0])

    def add(self, num_agreed: int, num_drafted: int, num_tokens: int) -> None:
        kept = DRAFT_MEMORY ** (num_tokens - self.num_tokens)
        self.agreed = kept * self.agreed + num_agreed
        self.tried = kept * self.tried + min(num_agreed + 1, num_drafted)
        self.num_tokens = num_tokens


@dataclass(slots=True, eq=False)
class Sequence:
    """One sample of a request, from the queue to its last token."""

    request: GenerationRequest
    sampler: SamplerState
    text: TextStream
    sample_index: int = 0
    leader: "Sequence | None" = None  # the request's first sample, whose prefill this one copies
    times_out_s: float = inf  # unless its request's first sample has begun by then
    timings: SequenceTimings = field(init=False)
    token_ids: np.ndarray = field(init=False)  # int32 [most tokens]: prompt, then output
    num_tokens: int = field(init=False)
    num_computed_tokens: int = 0
    num_reused_tokens: int = 0  # copied from another slot or a store instead of computed
    num_stored_tokens: int = 0  # of those, from a store
    slot: int | None = None
    finish_reason: FinishReason | None = None
    drafts: DraftRecord = field(default_factory=DraftRecord)
    stop_reason: str = ""  # the stop string, or the stop token's id; empty otherwise
    stop_token_id: int | None = None  # that of a stop token which ended it
    score: float | None = None  # log probability of the output, where that was searched for
    prompt_logprobs: list[TokenLogprobs] = field(default_factory=list)  # from the second token on

    def __post_init__(self) -> None:
        prompt = self.request.prompt_ids
        self.timings = SequenceTimings(self.request.received_s)
        self.token_ids = np.empty(len(prompt) + self.request.max_tokens, np.int32)
        self.token_ids[: len(prompt)] = prompt
        self.num_tokens = len(prompt)

    def __repr__(self) -> str:
        done = f"{self.num_computed_tokens}/{self.num_tokens} tokens"
        end = f", {self.finish_reason.value}" if self.finish_reason else ""
        return f"<Sequence {done}, slot {self.slot}{end}>"

    @property
    def num_prompt_tokens(self) -> int:
        return self.request.num_prompt_tokens

    @property
    def num_output_tokens(self) -> int:
        return self.num_tokens - self.num_prompt_tokens

    @property
    def num_output_tokens_left(self) -> int:
        """The number of further tokens that it may generate."""
        return self.request.max_tokens - self.num_output_tokens

    @property
    def due_s(self) -> float:
        """When it is late: its deadline, or its timeout while nothing of its request has begun."""
        deadline_s = self.request.deadline_s
        has_begun = (self.leader or self).timings.scheduled_s > 0
        return min(
            inf if deadline_s is None else deadline_s, inf if has_begun else self.times_out_s
        )

    @property
    def num_uncomputed_tokens(self) -> int:
        return self.num_tokens - self.num_computed_tokens

    @property
    def num_prompt_tokens_left(self) -> int:
        """The tokens of the prompt that are to be computed."""
        return max(0, self.num_prompt_tokens - self.num_computed_tokens)

    @property
    def scores_prompt(self) -> bool:
        """Whether it computes the log probabilities of its prompt: once for all samples."""
        return self.request.params.prompt_logprobs is not None and self.leader is None

    def num_scored(self, num_new_tokens: int) -> int:
        """Number of its next tokens whose logits score the prompt's token after them."""
        if not self.scores_prompt:
            return 0
        return max(0, min(num_new_tokens, self.num_prompt_tokens - 1 - self.num_computed_tokens))

    @property
    def num_slots(self) -> int:
        """The slots reserved for it: one, or one for each beam of a search."""
        return max(1, self.request.params.beam_width)

    @property
    def is_finished(self) -> bool:
        return self.finish_reason is not None

    def append(self, token_id: int) -> None:
        """Take a sampled token; it is computed by the next step."""
        self.token_ids[self.num_tokens] = token_id
        self.num_tokens += 1

    def follow(self, other: "Sequence") -> None:
        """Become what another of the same request was when its last token was computed."""
        self.num_tokens = other.num_computed_tokens
        self.token_ids[: self.num_tokens] = other.token_ids[: self.num_tokens]
        self.sampler = other.sampler.fork()
        self.timings.scheduled_s = other.timings.scheduled_s


def _budget_of(request: GenerationRequest, vocabulary: Vocabulary) -> ThoughtBudget | None:
    most, special = request.params.max_reasoning_tokens, vocabulary.special_bytes
    if most is None or request.thoughts is None:
        return None
    plain = vocabulary.token_bytes

    def bytes_of(token_id: int) -> bytes:
        return special.get(token_id) or (plain[token_id] if token_id < len(plain) else b"")

    return ThoughtBudget(request.thoughts, most, request.thought_end_ids, bytes_of)


def samples_of(
    request: GenerationRequest, vocabulary: Vocabulary, now_s: float, times_out_s: float
) -> list[Sequence]:
    """The sequences of a request, one per sample, as they enter the queue."""
    samples: list[Sequence] = []
    special_bytes = vocabulary.special_bytes
    if request.params.skip_special_tokens:
        special_bytes = {each: special_bytes[each] for each in request.spelled_ids}
    for index in range(request.params.n):
        samples.append(
            Sequence(
                request,
                SamplerState(
                    request.params,
                    request.prompt_ids,
                    vocabulary.eos_token_ids,
                    index,
                    first_token_ids=vocabulary.first_token_ids,
                    banned_token_ids=vocabulary.banned_token_ids,
                    matcher=request.matchers[index] if request.matchers else None,
                    bad_words=request.bad_words,
                    budget=_budget_of(request, vocabulary),
                ),
                TextStream(
                    vocabulary.token_bytes,
                    request.params.stop,
                    strips_space=vocabulary.strips_space,
                    special_bytes=special_bytes,
                    includes_stop=request.params.include_stop_str_in_output,
                ),
                index,
                samples[0] if index else None,
                times_out_s,
            )
        )
        samples[-1].timings.queued_s = now_s
    return samples
