"""Outputs that keep to a grammar, whatever the model says, in engines of models at random."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import jsonschema
import numpy as np
import pytest

from service.calls.sampling import Sampling
from service.errors import InvalidArgument
from service.generation.engine import GenerationEngine
from service.generation.inbox import QueueLimits
from service.generation.sequence import GenerationRequest
from service.generation.steps.scheduler import SchedulerLimits
from service.grammars.form import Grammar
from tests.fakes.generation import PATIENT, Answer, RecordingObserver, draft_eagerly, read
from tests.fakes.grammars import (
    BYTES,
    END,
    PIECE_VOCABULARY,
    Case,
    RandomDecoder,
    cases,
    choice_case,
    piece_compiler,
    regex_case,
    schema_case,
)

pytest.importorskip("llguidance")
NUM_CASES = 200
MAX_TOKENS = 160
PREFIX = b"A beginning that all prompts share, long enough to be copied between slots. "
PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 5}, "age": {"type": "integer"}},
    "required": ["name"],
    "additionalProperties": False,
}


@asynccontextmanager
async def engine_of(
    seed: int, *observers: RecordingObserver, drafts: bool = False
) -> AsyncIterator[GenerationEngine]:
    limits = SchedulerLimits(max_draft_tokens=7 if drafts else 0)
    queue = QueueLimits(64, 100_000, PATIENT)
    decoder = RandomDecoder(seed)
    engine = GenerationEngine("random", decoder, PIECE_VOCABULARY, limits, queue, observers)
    if drafts:
        draft_eagerly(engine)
    try:
        yield engine
    finally:
        await asyncio.to_thread(engine.close, 10.0)


async def outputs(
    engine: GenerationEngine,
    grammar: Grammar | None,
    *,
    prompt: bytes = b"say",
    max_tokens: int = MAX_TOKENS,
    **params: Any,
) -> list[tuple[Answer, str]]:
    """Each sample's answer, and why it ended."""
    sampling = Sampling(**{"temperature": 0.0} | params, grammar=grammar)
    matchers: Sequence[Any] = ()
    if grammar is not None:
        compiled = piece_compiler().compile(grammar)
        matchers = [compiled.copy() for _ in range(sampling.n)]
    ids = np.frombuffer(prompt, np.uint8).astype(np.int32)
    request = GenerationRequest(
        ids, sampling, max_tokens, time.monotonic(), matchers=tuple(matchers)
    )
    async with engine.generate(request) as generation:
        answers = await read(generation)
    reasons = [sequence.finish_reason for sequence in generation.sequences]
    return [
        (answer, reason.value) for answer, reason in zip(answers, reasons, strict=True) if reason
    ]


def check(case: Case, found: Sequence[tuple[Answer, str]]) -> int:
    """Assert that what is finished is in the language; the number of those."""
    for answer, reason in found:
        assert reason in ("stop", "length")
        if reason == "stop":
            assert case.is_in(answer.text), f"{answer.text!r} of {case.grammar}"
    return sum(reason == "stop" for _, reason in found)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("drafts", [False, True])
async def test_every_finished_answer_is_in_its_language(seed: int, drafts: bool) -> None:
    """Each of 200 grammars on three models, every other with drafts; greedy, and two samples.

    Several run at once, all behind one prefix, some with stop texts and log probabilities.
    """
    own = cases(NUM_CASES, seed=1)[(seed + drafts) % 2 :: 2]
    num_finished = 0
    async with engine_of(seed, drafts=drafts) as engine:

        async def run(place: int, case: Case) -> list[tuple[Answer, str]]:
            prompt = PREFIX + str(place).encode()
            greedy = outputs(engine, case.grammar, prompt=prompt, logprobs=1)
            drawn = outputs(
                engine, case.grammar, prompt=prompt, temperature=1.0, n=2, seed=place, top_p=0.95
            )
            return [*await greedy, *await drawn]

        for start in range(0, len(own), 4):
            part = own[start : start + 4]
            found = await asyncio.gather(*(run(*each) for each in enumerate(part, start)))
            num_finished += sum(map(check, part, found))
    assert num_finished > 2 * len(own), "most answers of three are finished"


async def test_beams_keep_to_a_grammar_and_differ() -> None:
    case = schema_case(PERSON)
    async with engine_of(0) as engine:
        found = await outputs(engine, case.grammar, beam_width=4, n=3)
        assert check(case, found) == len({answer.text for answer, _ in found}) == 3


async def test_a_search_for_more_than_there_is_names_the_grammar() -> None:
    case = choice_case(["y", "n"])
    async with engine_of(0) as engine:
        assert check(case, await outputs(engine, case.grammar, beam_width=3, n=2)) == 2
        with pytest.raises(InvalidArgument, match="n is 3, and the grammar has 2 outputs"):
            await outputs(engine, case.grammar, beam_width=3, n=3)


@pytest.mark.parametrize("seed", range(3))
async def test_drafts_change_no_token(seed: int) -> None:
    grammar = schema_case(PERSON).grammar
    plain, drafted = RecordingObserver(), RecordingObserver()
    async with engine_of(seed, plain) as engine:
        ((alone, _),) = await outputs(engine, grammar)
    async with engine_of(seed, drafted, drafts=True) as engine:
        ((checked, _),) = await outputs(engine, grammar)
    assert checked.token_ids == alone.token_ids
    assert len(drafted.steps) < len(plain.steps), "forced tokens are said several in a run"


async def test_forced_text_is_spelled_as_the_tokenizer_spells_it() -> None:
    async with engine_of(0) as engine:
        ((answer, reason),) = await outputs(engine, Grammar.of("regex", "abc name true!"))
    assert (answer.text, reason) == ("abc name true!", "stop")
    assert [BYTES[token_id] for token_id in answer.token_ids[:2]] == [b"abc", b" "]


async def test_logprobs_are_the_models_own() -> None:
    """Of all tokens, before the grammar bans some, as vLLM's are."""
    grammar = choice_case(["yes"]).grammar
    async with engine_of(0) as engine:
        ((answer, _),) = await outputs(engine, grammar, logprobs=2)
        ((free, _),) = await outputs(engine, None, logprobs=2, max_tokens=1)
    assert answer.logprobs[0].top == free.logprobs[0].top
    assert answer.logprobs[0].logprob < 0.0


async def test_an_output_ends_where_nothing_can_follow_without_an_end_token() -> None:
    async with engine_of(0) as engine:
        ((answer, reason),) = await outputs(engine, regex_case("[cd]{4}").grammar, max_tokens=4)
    assert (len(answer.text), reason) == (4, "stop")
    assert END not in answer.token_ids


async def test_an_output_that_is_cut_says_so() -> None:
    async with engine_of(0) as engine:
        ((answer, reason),) = await outputs(engine, regex_case("[cd]{9}").grammar, max_tokens=4)
    assert (len(answer.text), reason) == (4, "length")


async def test_a_stop_text_cuts_an_output() -> None:
    async with engine_of(0) as engine:
        ((answer, reason),) = await outputs(
            engine, Grammar.of("regex", "abc;name;true"), stop=(";n",)
        )
    assert (answer.text, reason) == ("abc", "stop")


async def test_where_bans_leave_no_token_an_error_says_so() -> None:
    """Forced text has one spelling, which is the tokenizer's."""
    grammar = Grammar.of("regex", "abc")
    async with engine_of(0) as engine:
        with pytest.raises(InvalidArgument, match="leave no token"):
            await outputs(engine, grammar, banned_token_ids=(BYTES.index(b"abc"),))
        ((answer, _),) = await outputs(engine, grammar)
        assert answer.text == "abc", "others go on"


async def test_samples_with_and_without_a_grammar_share_steps() -> None:
    """What has no grammar says what it says alone."""
    case = schema_case(PERSON)
    async with engine_of(1) as engine:
        ((alone, _),) = await outputs(engine, None, max_tokens=40)
        found, beside = await asyncio.gather(
            outputs(engine, case.grammar, temperature=1.0, n=4, seed=3),
            outputs(engine, None, max_tokens=40),
        )
    check(case, found)
    assert beside[0][0].token_ids == alone.token_ids


def test_strings_are_unicode_and_objects_are_as_python_writes_them() -> None:
    matcher = piece_compiler().compile(Grammar.of("json_schema", PERSON))
    for byte in json.dumps({"name": "a b", "age": 3}).encode():
        matcher.take(byte)
    assert matcher.is_complete
    jsonschema.validate({"name": "a b", "age": 3}, PERSON)
    spaced = piece_compiler().compile(Grammar.of("json_schema", PERSON))
    spaced.take(ord("{"))
    with pytest.raises(InvalidArgument, match="json_schema cannot be kept to"):
        spaced.take(ord(" "))
