"""The `generate` command: continues a prompt, and prints the text while it is generated.

Only flags that are given are sent: the server knows the defaults, and refuses what is out of range.
A pipe gets the text as it is, a terminal without control characters; token counts and times go to
stderr.
"""

import inspect
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any
from unicodedata import category

import typer
from attendant.v1 import generation_pb2 as pb

from commands.ask.asked import Asked
from commands.ask.options import console
from commands.ask.shown import generation_tables as tables
from commands.errors import errors
from commands.flags import command_of, flag, own_parameters
from service.calls.record import U32

U64 = 2**64 - 1

Prompt = Annotated[str, typer.Argument(help="Text to continue; '-' reads it from stdin.")]
CanStream = Annotated[
    bool,
    typer.Option(
        "--stream/--no-stream",
        envvar="ATTENDANT_STREAM",
        help="Print text while it is generated, or only when it is complete.",
    ),
]


def _sampling(
    name: str, kind: object, text: str, low: float | None = None, high: float | None = None
) -> inspect.Parameter:
    variable = f"ATTENDANT_SAMPLING_{name.upper()}"
    return flag(name, kind, None, text, variable, panel="Sampling", low=low, high=high)


SAMPLING = (
    _sampling(
        "max_tokens",
        int | None,
        "Largest number of output tokens; 0 only scores the prompt, see --prompt-logprobs.",
        0,
        U32,
    ),
    _sampling(
        "min_tokens",
        int | None,
        "Smallest number of output tokens: the text does not end before.",
        0,
        U32,
    ),
    _sampling(
        "temperature",
        float | None,
        "Divisor of the logits: below 1 for more likely tokens, above 1 for more varied ones. 0 "
        "always takes the most likely token; the default is 1.",
        0,
    ),
    _sampling(
        "top_k",
        int | None,
        "Sample from the K most likely tokens; 0 means no limit.",
        0,
        U32,
    ),
    _sampling(
        "top_p",
        float | None,
        "Nucleus sampling: the smallest set of tokens whose probability sums to this.",
    ),
    _sampling("min_p", float | None, "Drop tokens less likely than this fraction of the best one."),
    _sampling(
        "seed",
        int | None,
        "Seed of the random numbers; the same seed gives the same text.",
        0,
        U64,
    ),
    _sampling("stop", list[str] | None, "Text that ends the output; may be given more than once."),
    _sampling("n", int | None, "Number of samples.", 1, U32),
    _sampling(
        "beam_width",
        int | None,
        "Number of beams of a beam search, in place of sampling; the --n best are printed.",
        0,
        U32,
    ),
    _sampling(
        "length_penalty",
        float | None,
        "Beam search: exponent of the length by which a beam's log-probability is divided; larger "
        "values prefer longer texts. The default is 1.",
        0,
    ),
    _sampling(
        "repetition_penalty",
        float | None,
        "Above 1, makes tokens that occur in the prompt or the output less likely.",
    ),
    _sampling(
        "no_repeat_ngram_size",
        int | None,
        "Never repeat a sequence of this number of tokens, the prompt included; 0 means off.",
        0,
        U32,
    ),
    _sampling(
        "prompt_logprobs",
        int | None,
        "Print the log-probability of each token of the prompt, and this number of most likely "
        "tokens at its place.",
        0,
        U32,
    ),
    _sampling(
        "presence_penalty",
        float | None,
        "Above 0, makes tokens that occur in the output less likely.",
    ),
    _sampling(
        "frequency_penalty",
        float | None,
        "Above 0, makes tokens less likely for each time that they occur in the output.",
    ),
    _sampling(
        "json_schema",
        Path | None,
        "File with a JSON schema that the output keeps to.",
    ),
    _sampling("regex", str | None, "Regular expression that the whole output matches."),
    _sampling(
        "choice",
        list[str] | None,
        "Text that the output may be; given once for each of the texts to choose from.",
    ),
)


def _generate(asked: Asked, prompt: Prompt, can_stream: CanStream = True, **sampling: Any) -> None:
    request = pb.GenerateRequest(
        text=sys.stdin.read() if prompt == "-" else prompt,
        sampling_params=params_of(sampling),
        **asked.fields,
    )
    with asked.client() as client:
        is_one_text = sampling["n"] in (None, 1) and sampling["prompt_logprobs"] is None
        if can_stream and not asked.as_json and is_one_text:
            _write(client.stream(request))
        else:
            _show_whole(asked, client.generate(request))


generate = command_of(_generate, [*own_parameters(_generate), *SAMPLING])


def params_of(sampling: dict[str, Any]) -> pb.SamplingParams:
    """The flags that are given, as a request has them. Raises `BadParameter` for a file."""
    given = {name: value for name, value in sampling.items() if value is not None}
    if (path := given.get("json_schema")) is not None:
        given["json_schema"] = _schema_in(path)
    if given.get("choice"):
        given["choice"] = pb.Choice(texts=given["choice"])
    return pb.SamplingParams(**given)


def _schema_in(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        text = f"{path} cannot be read: {reason}"
        raise typer.BadParameter(text, param_hint="'--json-schema'") from error


def _write(chunks: Iterable[pb.GenerateChunk]) -> None:
    """Print text as it arrives, then the token counts and times of the last chunk."""
    last = pb.GenerateChunk()
    has_line = False  # that must end, also so that an error message starts a line
    try:
        for last in chunks:
            has_line = has_line or bool(last.text)
            sys.stdout.write(shown(last.text))
            sys.stdout.flush()
        has_line = True  # an empty text is printed as an empty line
    finally:
        if has_line:
            sys.stdout.write("\n")
    _print_account(last)


def _show_whole(asked: Asked, response: pb.GenerateResponse) -> None:
    if asked.as_json:
        asked.show(response, tables.generated)
        return
    if response.prompt_logprobs:
        console.print(tables.scored(response.prompt_logprobs))
    if len(response.results) > 1:
        console.print(tables.generated(response))
    elif response.usage.output_tokens:
        sys.stdout.write(shown(response.results[0].text) + "\n")
    _print_account(response)


def _print_account(answer: pb.GenerateChunk | pb.GenerateResponse) -> None:
    errors.print(tables.account(answer.usage, answer.timings), soft_wrap=True)


def shown(text: str) -> str:
    """The text for stdout; a terminal would obey its control characters, so they are replaced."""
    if not sys.stdout.isatty():
        return text
    return "".join(c if c in "\n\t" or category(c) != "Cc" else "\ufffd" for c in text)
