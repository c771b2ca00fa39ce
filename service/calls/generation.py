"""Calls that generate text: a prompt and its parameters, and the answer whole or in pieces."""

from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias

import msgspec

from service.calls.conversation import Conversation
from service.calls.record import U32, Call, said
from service.calls.sampling import Sampling

Prompt: TypeAlias = str | Sequence[int] | Conversation
Reason: TypeAlias = Literal["", "stop", "length"]  # why an output ended; empty while it continues


class Generate(Call, frozen=True):
    """A prompt to continue."""

    prompt: Annotated[
        Prompt | None, said("A text, token ids, or messages to answer.", flag=False)
    ] = None
    sampling_params: Annotated[Sampling, said("Sampling parameters.")] = Sampling()
    priority: Annotated[
        int,
        said(
            "0 goes first. Each higher number counts as an arrival the server's "
            "--priority-step-s later.",
            low=0,
            high=U32,
        ),
    ] = 0
    omit_special_tokens: Annotated[
        bool, said("Leave out the special tokens that are put around a text.")
    ] = False
    truncate_prompt_tokens: Annotated[
        int | None, said("Cut a longer prompt to this number of tokens.")
    ] = None
    truncate_prompt_end: Annotated[
        bool, said("Keep the beginning of a prompt that is cut, in place of its end.")
    ] = False
    return_prompt_token_ids: Annotated[bool, said("Answer the tokens of the prompt.")] = False
    reasoning_in_text: Annotated[
        bool, said("Leave a model's thoughts in the text, with their markers.")
    ] = False


class TokenLogprob(msgspec.Struct, frozen=True, omit_defaults=True):
    """A token, and the likeliest ones at its place, best first."""

    id: int
    logprob: float = 0.0  # as float32 has it
    top: "Sequence[TokenLogprob]" = ()
    token: bytes = b""
    logit: float | None = None


class GenerationUsage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Numbers of tokens of a request."""

    prompt_tokens: int = 0
    output_tokens: int = 0
    reused_tokens: int = 0  # of the prompt's
    reasoning_tokens: int = 0  # of the output's


class GenerationTimings(msgspec.Struct, frozen=True, omit_defaults=True):
    """Durations of the parts of a generation, in seconds."""

    queue_seconds: float = 0.0
    time_to_first_token_seconds: float = 0.0
    inter_token_seconds: float = 0.0
    total_seconds: float = 0.0


class GeneratedText(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One output. The fields are those of its message, which explains them."""

    text: str = ""
    token_ids: Sequence[int] = ()
    logprobs: Sequence[TokenLogprob] = ()
    finish_reason: Reason = ""
    stop_reason: str = ""
    score: float | None = None
    stop_token_id: int | None = None
    reasoning: str = ""


class GenerateChunk(GeneratedText, frozen=True, kw_only=True, omit_defaults=True):
    """A new part of one output, and in the last one the account of the request."""

    sample_index: int = 0
    model: str = ""
    version: str = ""
    usage: GenerationUsage | None = None
    timings: GenerationTimings | None = None
    prompt_logprobs: Sequence[TokenLogprob] = ()
    prompt_token_ids: Sequence[int] = ()
    num_prompt_tokens: int = 0

    @property
    def num_scores(self) -> int:
        """The tokens with log-probabilities in it, of the prompt and of the output."""
        return len(self.prompt_logprobs) + len(self.logprobs)


class GenerateResponse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All outputs of a request, and their account."""

    model: str = ""
    version: str = ""
    results: Sequence[GeneratedText] = ()
    usage: GenerationUsage = GenerationUsage()
    timings: GenerationTimings = GenerationTimings()
    prompt_logprobs: Sequence[TokenLogprob] = ()
    prompt_token_ids: Sequence[int] = ()

    @property
    def num_scores(self) -> int:
        """The tokens with log-probabilities in it, of the prompt and of the outputs."""
        return len(self.prompt_logprobs) + sum(len(each.logprobs) for each in self.results)
