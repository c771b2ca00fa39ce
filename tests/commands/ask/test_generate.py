"""`attendant generate`, and what the other commands say of generative models."""

import asyncio
import json
from pathlib import Path

import pytest
from rich.console import Console

from commands.ask.shown import generation_tables as tables
from commands.ask.shown.model_table import ModelTable
from commands.ask.trials import TRIAL_TOKENS, try_models
from service.calls.generation import GeneratedText, GenerateResponse
from service.calls.models import ModelFacts, Models
from service.calls.record import Bound, bounds_of
from service.calls.sampling import Sampling
from tests.fakes.command_line import run
from tests.fakes.serving import Served, within_patience
from tests.fakes.sessions import greedy_text

pytestmark = pytest.mark.asyncio(loop_scope="module")
GREEDY = ("--temperature", "0", "--max-tokens", "10")


@pytest.mark.parametrize("flag", ["--stream", "--no-stream"])
async def test_text_goes_to_stdout_and_what_it_took_to_stderr(served: Served, flag: str) -> None:
    result = await run(served, "generate", "tale", "once", *GREEDY, flag)
    assert result.exit_code == 0
    assert result.stdout == greedy_text("once", 10) + "\n"
    assert result.stderr.startswith("4 tokens in (")
    for expected in ("10 out", "tokens/s", "first after", "in all"):
        assert expected in result.stderr
    assert result.stderr.count("\n") == 1, (
        "a pipe gets the line whole, however narrow a terminal is"
    )


async def test_a_prompt_is_read_from_stdin_as_it_is(served: Served) -> None:
    prompt = "two\nlines\n"
    result = await run(served, "generate", "tale", "-", *GREEDY, stdin=prompt)
    assert result.stdout == greedy_text(prompt, 10) + "\n"


async def test_json_is_one_document(served: Served) -> None:
    result = await run(served, "generate", "tale", "once", *GREEDY, "--json")
    found = json.loads(result.stdout)
    (text,) = found["results"]
    assert text["text"] == greedy_text("once", 10)
    assert text["finish_reason"] == "FINISH_REASON_LENGTH"
    assert found["usage"]["output_tokens"] == 10
    assert found["timings"]["total_seconds"] > 0
    assert result.stderr == ""


async def test_samples_are_rows_of_a_table(served: Served) -> None:
    flags = ("--n", "3", "--seed", "1", "--max-tokens", "10")
    table = (await run(served, "generate", "tale", "once", *flags)).stdout
    found = json.loads((await run(served, "generate", "tale", "once", *flags, "--json")).stdout)
    assert len(found["results"]) == 3
    for result in found["results"]:
        (line,) = (line for line in table.splitlines() if result["text"] in line)
        assert "length" in line


async def test_every_flag_is_in_the_request(served: Served) -> None:
    """Each value is refused by its name, beside another one."""
    cases = {
        **dict.fromkeys(("top_k", "stop", "n"), ("3", "--beam-width", "2")),
        **dict.fromkeys(("top_p", "min_p", "temperature"), ("0.5", "--beam-width", "2")),
        "repetition_penalty": ("1.5", "--beam-width", "2"),
        "presence_penalty": ("1", "--beam-width", "2"),
        "frequency_penalty": ("1", "--beam-width", "2"),
        "max_tokens": ("0",),
        "min_tokens": ("5", "--max-tokens", "3"),
    }
    for name, (value, *others) in cases.items():
        flag = "--" + name.replace("_", "-")
        refused = await run(served, "generate", "tale", "once", flag, value, *others)
        assert f"INVALID_ARGUMENT: {name} is" in refused.stderr
        assert refused.stdout == ""  # no line is ended where none was begun


async def test_the_form_of_an_output_is_a_flag(served: Served, tmp_path: Path) -> None:
    pytest.importorskip("llguidance")
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps({"type": "integer", "minimum": 10, "maximum": 99}))
    for flags, allowed in (
        (("--json-schema", str(schema)), {str(number) for number in range(10, 100)}),
        (("--regex", "ab{2}"), {"abb"}),
        (("--choice", "yes", "--choice", "no"), {"yes", "no"}),
    ):
        result = await run(served, "generate", "tale", "once", *GREEDY, *flags)
        assert result.exit_code == 0, result.stderr
        assert result.stdout.removesuffix("\n") in allowed
    lacking = await run(served, "generate", "tale", "once", "--json-schema", str(tmp_path / "no"))
    assert lacking.exit_code == 2
    assert "--json-schema" in lacking.stderr
    assert "cannot be read" in lacking.stderr


async def test_an_output_has_one_form(served: Served) -> None:
    """Of two flags of forms none is left out unsaid."""
    forms = "--regex", "a", "--choice", "b"
    result = await run(served, "generate", "tale", "once", *forms)
    assert result.exit_code == 1
    assert "INVALID_ARGUMENT: choice is set beside regex, expected one of" in result.stderr


@pytest.mark.parametrize("command", ["generate", "chat"])
@pytest.mark.parametrize("flag", ["--stop", "--regex", "--choice"])
async def test_bytes_that_no_text_has_are_wrong_usage(
    served: Served, command: str, flag: str
) -> None:
    prompt = ["once"] * (command == "generate")
    with pytest.raises(UnicodeEncodeError):
        await run(served, command, "tale", *prompt, flag, "\udcff")


@pytest.mark.parametrize("bound", [each for each in bounds_of(Sampling) if each.name != "logprobs"])
async def test_numbers_outside_their_bounds_are_refused_by_their_flag(
    served: Served, bound: Bound
) -> None:
    flag = f"--{bound.name.replace('_', '-')}"
    result = await run(served, "generate", "tale", "once", flag, "9" * 23)
    assert result.exit_code == 2
    assert f"'{flag}'" in result.stderr
    assert f"equal to {int(bound.high)}" in result.stderr


async def test_the_tokens_of_a_prompt_are_scored(served: Served) -> None:
    """As the table that the text follows, and in JSON; alone where no text is wanted."""
    flags = "--temperature", "0", "--prompt-logprobs", "2"
    both = await run(served, "generate", "tale", "once", *flags, "--max-tokens", "10")
    assert both.stdout.endswith("\n" + greedy_text("once", 10) + "\n")
    alone = await run(served, "generate", "tale", "once", *flags, "--max-tokens", "0")
    assert both.stdout.startswith(alone.stdout)
    assert " 0 out, - tokens/s" in alone.stderr
    answer = await run(served, "generate", "tale", "once", *flags, "--max-tokens", "0", "--json")
    first, *scored = json.loads(answer.stdout)["prompt_logprobs"]
    rows = [line for line in alone.stdout.splitlines() if "│ '" in line]
    assert len(rows) == 4
    assert len(scored) == 3
    assert not first["top"]
    for row, token in zip(rows[1:], scored, strict=True):
        assert f"{token['logprob']:.3f}" in row
        assert f"{token['top'][1]['logprob']:.3f}" in row
    refused = await run(served, "generate", "tale", "once", "--max-tokens", "0")
    assert "max_tokens is 0, expected 1 to" in refused.stderr


async def test_a_text_that_is_empty_is_an_empty_line(served: Served) -> None:
    stop = greedy_text("once", 10)[0]
    result = await run(served, "generate", "tale", "once", *GREEDY, "--stop", stop)
    assert result.stdout == "\n"


async def test_a_stop_text_may_be_given_more_than_once(served: Served) -> None:
    text = greedy_text("once", 10)
    stops = ("--stop", "#", "--stop", text[3])
    result = await run(served, "generate", "tale", "once", *GREEDY, *stops)
    assert result.stdout == text[: text.index(text[3])] + "\n"


async def test_a_generative_model_is_listed_with_its_context(served: Served) -> None:
    lines = (await run(served, "models")).stdout.splitlines()
    (tale,) = (line for line in lines if "tale" in line)
    for expected in ("text-generation", "64", "text", "nowhere"):
        assert expected in tale


async def test_trying_models_shows_what_a_generative_one_writes(served: Served) -> None:
    found = await within_patience(
        asyncio.to_thread(lambda: list(try_models(served.address, timeout_s=20.0)))
    )
    answers = {trial.model.name: trial.answer for trial in found}
    assert answers["tale"] == "…" + greedy_text("once upon a time", TRIAL_TOKENS)
    assert set(answers) == {"deep", "mini", "spam", "tale"}


async def test_text_of_models_is_not_read_as_markup() -> None:
    """Rich would raise at a closing tag that nothing opened."""
    response = GenerateResponse(results=[GeneratedText(text="[/b]", stop_reason="[x]")])
    model = ModelFacts(name="[/m]", version="1", task="text-generation")
    console = Console(width=100)
    with console.capture() as captured:
        console.print(tables.generated(response))
        console.print(ModelTable(Models([model], 1)))
    assert "[/b]" in captured.get()
    assert "stop '[x]'" in captured.get()
