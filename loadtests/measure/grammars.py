"""The cost of a grammar per step: outputs held to a JSON schema, and free ones, in turns.

    python -m loadtests.measure grammars --model gpt --rows 1 --rows 8

Both sides are the same engine with the server's decoder, tokenizer and sampling; each row gives the
same number of tokens, because the free ones ignore their end, and the schema's array does not end
before. Drafts are off. Compiling is a way of its own, each time of another schema.
"""

import itertools
import json
import time
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from loadtests.load.engine import Prompt, run_all, serving
from loadtests.measure.generation import GenerativeOptions, Loop
from loadtests.measure.records import CASE, Column, Measure, Turn, Way, by_columns, counted, option
from service.grammars.form import Grammar

FREE = "free"
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
class GrammarOptions(GenerativeOptions):
    """The outputs of the model's rows."""

    rows: list[int] = option([1, 8, 32], "Rows per step.", min=1)
    tokens: int = option(64, "Tokens of each output.", min=2)
    temperature: float = option(1.0, "0 takes the likeliest.", min=0.0)
    rounds: int = option(10, "Rounds that count.", min=1)
    warm_up: int = option(2, "Rounds before them.", min=0)


def ways(options: GrammarOptions, stack: ExitStack) -> dict[str, Way]:
    """Steps with a grammar and without, at each number of rows; and compiling."""
    loop = Loop(stack)
    model = loop.enter(serving(options.repository, options.model, max_draft_tokens=0))
    prompt = Prompt(model.tokenizer.encode("A list:").tolist(), options.tokens)
    numbers = itertools.count(SCHEMA["minItems"] + 1)
    forms: dict[str, dict[str, Any]] = {
        FREE: {},
        "schema": {"json_schema": json.dumps(SCHEMA), "ignore_eos": False},
    }

    def compiled() -> Turn:
        grammar = Grammar.of("json_schema", {**SCHEMA, "minItems": next(numbers)})
        started_s = time.perf_counter()
        loop.run(model.grammars.matchers(grammar, 1))
        return {"compile_s": time.perf_counter() - started_s}

    def generated(num_rows: int, form: dict[str, Any]) -> Turn:
        params = {"temperature": options.temperature, **form}
        seconds = loop.run(run_all(model, [prompt] * num_rows, num_rows, **params))
        return {"seconds": seconds, "steps": options.tokens, "tokens": num_rows * options.tokens}

    return {"compiling the schema": compiled} | {
        f"{counted(num_rows, 'row')}{CASE}{name}": partial(generated, num_rows, form)
        for num_rows in options.rows
        for name, form in forms.items()
    }


GRAMMARS = Measure(
    "grammars",
    "A step whose outputs keep to a JSON schema, beside a step without one",
    "Generation",
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
