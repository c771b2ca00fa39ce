"""The cost of a grammar per step: outputs held to a JSON schema, and free ones, in turns.

    python -m loadtests.measure.grammars model_repository/gpt/1 --rows 1 --rows 8 --rows 32

Both sides are the same engine with the server's decoder, tokenizer and sampling; each row gives the
same number of tokens, because the free ones ignore their end, and the schema's array does not end
before. Drafts are off. Compiling is not counted, and is told first.
"""

# ruff: noqa: B006 - Typer copies defaults

import asyncio
import time
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from loadtests.load.turns import per_second, spread, take_turns, times_faster
from loadtests.measure.steps import open_decoder
from service.contract.manifest import Manifest
from service.contract.queue_policies import QueuePolicy
from service.generation.choosing.params import SamplingParams
from service.generation.engine import GenerationEngine
from service.generation.inbox import QueueLimits
from service.generation.sequence import GenerationRequest, Vocabulary
from service.generation.steps.scheduler import SchedulerLimits
from service.grammars.compiler import GrammarCompiler, GrammarMatcher, GrammarVocabulary
from service.grammars.form import Grammar
from service.text.tokenizer import PromptTokenizer

WARM_UP = 2  # rounds that are not counted
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
console = Console()


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
        started_s = time.perf_counter()
        self._compiled = self._compiler.compile(self._grammar)
        self.compile_s = time.perf_counter() - started_s

    def run(self, num_rows: int, *, has_grammar: bool) -> float:
        """Seconds in which `num_rows` give all their tokens."""
        started_s = time.perf_counter()
        self._loop.run_until_complete(self._run(num_rows, has_grammar=has_grammar))
        return time.perf_counter() - started_s

    async def _run(self, num_rows: int, *, has_grammar: bool) -> None:
        matchers = [(self._compiled.copy(),) if has_grammar else () for _ in range(num_rows)]
        await asyncio.gather(*map(self._generate, matchers))

    async def _generate(self, matchers: tuple[GrammarMatcher, ...]) -> None:
        params = SamplingParams(
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


def main(
    folder: Annotated[Path, typer.Argument(help="A version's folder of a generative model.")],
    rows: Annotated[list[int], typer.Option(min=1, help="Rows per step.")] = [1, 8, 32],
    tokens: Annotated[int, typer.Option(min=2, help="Tokens of each output.")] = 64,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 takes the likeliest.")] = 1.0,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds that count, after two.")] = 10,
) -> None:
    """Time steps with a grammar beside steps without."""
    bench = Bench(folder, max(rows), tokens, temperature)
    console.print(f"The schema was compiled in {bench.compile_s * 1e3:.0f} ms.")
    table = Table("rows", "output", "ms per step, median (range)", "tokens/s", "speed (range)")
    for num_rows in rows:
        ways = {
            "free": partial(bench.run, num_rows, has_grammar=False),
            "schema": partial(bench.run, num_rows, has_grammar=True),
        }
        seconds = take_turns(ways, rounds, WARM_UP)
        for name, own in seconds.items():
            per_step = spread([each / tokens * 1e3 for each in own])
            speed = f"{per_second(num_rows * tokens, own):.0f}"
            free = times_faster(own, seconds["free"])
            table.add_row(str(num_rows), name, str(per_step), speed, str(free))
        table.add_section()
    console.print(table)
    bench.close()


if __name__ == "__main__":
    typer.run(main)
