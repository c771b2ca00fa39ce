"""The cost of a grammar per step: outputs held to a JSON schema, and free ones, in turns.

    python -m loadtests.measure grammars --folder model_repository/gpt/1 --rows 1 --rows 8

Both sides are the same engine with the server's decoder, tokenizer and sampling; each row gives the
same number of tokens, because the free ones ignore their end, and the schema's array does not end
before. Drafts are off. Compiling is a way of its own.
"""

import asyncio
import time
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from loadtests.measure.records import (
    CASE,
    Column,
    Measure,
    Options,
    Turn,
    Way,
    by_columns,
    counted,
    option,
)
from loadtests.measure.steps import open_decoder
from service.calls.sampling import Sampling
from service.contract.manifest import Manifest
from service.contract.queue_policies import QueuePolicy
from service.generation.engine import GenerationEngine
from service.generation.inbox import QueueLimits
from service.generation.sequence import GenerationRequest, Vocabulary
from service.generation.steps.scheduler import SchedulerLimits
from service.grammars.compiler import GrammarCompiler, GrammarMatcher, GrammarVocabulary
from service.grammars.form import Grammar
from service.text.tokenizer import PromptTokenizer

FREE = "free"
MAX_CHARACTERS = 1_000_000
SCHEMA: dict[str, Any] = {
    "type": "array",
    "minItems": 1_000,
    "items": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 4, "maxLength": 30},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "maxItems": 3},
            "score": {"type": "number", "minimum": 0, "maximum": 1},
        },
        "required": ["name", "age", "tags", "score"],
        "additionalProperties": False,
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GrammarOptions(Options):
    """A model, and the outputs of its rows."""

    folder: Path = option(
        Path("model_repository/gpt/1"), "A version's folder of a generative model."
    )
    rows: list[int] = option([1, 8, 32], "Rows per step.", min=1)
    tokens: int = option(64, "Tokens of each output.", min=2)
    temperature: float = option(1.0, "0 takes the likeliest.", min=0.0)
    rounds: int = option(10, "Rounds that count.", min=1)
    warm_up: int = option(2, "Rounds before them.", min=0)


class Bench:
    """One engine, and requests with a grammar or without."""

    def __init__(self, folder: Path, most_rows: int, num_tokens: int, temperature: float) -> None:
        manifest = Manifest.from_json((folder / "manifest.json").read_text())
        self._tokenizer = PromptTokenizer(
            folder / "tokenizer.json", manifest.max_tokens, MAX_CHARACTERS
        )
        self._prompt = self._tokenizer.encode("A list:").astype(np.int32)
        self._num_tokens, self._temperature = num_tokens, temperature
        decoder = open_decoder(folder / "model.onnx", most_rows, num_tokens + len(self._prompt))
        vocabulary = Vocabulary(self._tokenizer.token_bytes, manifest.eos_token_ids)
        limits = SchedulerLimits(max_running=most_rows, pads_prompts=decoder.pads_prompts)
        queue = QueueLimits(most_rows, 1_000_000, QueuePolicy())
        self._loop = asyncio.new_event_loop()
        self._engine = self._loop.run_until_complete(
            _started(partial(GenerationEngine, "bench", decoder, vocabulary, limits, queue, []))
        )
        self._compiler = GrammarCompiler(
            GrammarVocabulary(
                self._tokenizer.token_bytes,
                manifest.eos_token_ids,
                decoder.vocab_size,
                self._tokenizer.encode_part,
            )
        )
        self._grammar = Grammar.of("json_schema", SCHEMA)
        self._compiler.compile(Grammar.of("regex", "a"))  # the vocabulary is read by the first one
        self._compiled = self._compiler.compile(self._grammar)

    def compile(self) -> Turn:
        """The time of compiling the schema."""
        started_s = time.perf_counter()
        self._compiler.compile(self._grammar)
        return {"compile_s": time.perf_counter() - started_s}

    def run(self, num_rows: int, *, has_grammar: bool) -> Turn:
        """The time in which `num_rows` give all their tokens."""
        started_s = time.perf_counter()
        self._loop.run_until_complete(self._run(num_rows, has_grammar=has_grammar))
        seconds = time.perf_counter() - started_s
        return {
            "seconds": seconds,
            "steps": self._num_tokens,
            "tokens": num_rows * self._num_tokens,
        }

    async def _run(self, num_rows: int, *, has_grammar: bool) -> None:
        matchers = [(self._compiled.copy(),) if has_grammar else () for _ in range(num_rows)]
        await asyncio.gather(*map(self._generate, matchers))

    async def _generate(self, matchers: tuple[GrammarMatcher, ...]) -> None:
        params = Sampling(
            temperature=self._temperature,
            ignore_eos=not matchers,
            grammar=self._grammar if matchers else None,
        )
        now_s = time.monotonic()
        request = GenerationRequest(
            self._prompt, params, self._num_tokens, now_s, matchers=matchers
        )
        async with self._engine.generate(request) as generation:
            async for _ in generation:
                pass
        assert generation.sequences[0].num_output_tokens == self._num_tokens, "it ended before"

    def close(self) -> None:
        self._engine.close(10.0)
        self._loop.close()


async def _started(make: "partial[GenerationEngine]") -> GenerationEngine:
    return make()


def ways(options: GrammarOptions, stack: ExitStack) -> dict[str, Way]:
    """Steps with a grammar and without, at each number of rows; and compiling."""
    bench = Bench(options.folder, max(options.rows), options.tokens, options.temperature)
    stack.callback(bench.close)
    found: dict[str, Way] = {"compiling the schema": bench.compile}
    for num_rows in options.rows:
        for name, has_grammar in ((FREE, False), ("schema", True)):
            found[f"{counted(num_rows, 'row')}{CASE}{name}"] = partial(
                bench.run, num_rows, has_grammar=has_grammar
            )
    return found


GRAMMARS = Measure(
    "grammars",
    "A step whose outputs keep to a JSON schema, beside a step without one",
    "Forms of outputs",
    GrammarOptions,
    ways,
    by_columns(
        Column("compiled in", "compile_s", "ms"),
        Column("a step", lambda turn: 1e3 * turn["seconds"] / turn["steps"], "ms"),
        Column("tokens/s", "tokens/seconds"),
        Column(
            "speed over free", "tokens/seconds", over=FREE, goals={f"32 rows{CASE}schema": 0.95}
        ),
    ),
)
