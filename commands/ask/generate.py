"""The `generate` command: a prompt in, text out as the model writes it.

Only flags that are given are sent: the server knows the defaults, and refuses what is out of range.
Text goes to stdout as it is, for pipes, but no control characters to a terminal; what it took goes
to stderr.
"""

import sys
from collections.abc import Iterable
from typing import Annotated, Any
from unicodedata import category

import typer
from attendant.v1 import generation_pb2 as pb

from commands.ask import tables
from commands.ask.client import Client
from commands.ask.options import AsJson, Model, Server, Version, asks, errors, show

Prompt = Annotated[str, typer.Argument(help="What to continue; '-' reads all of stdin.")]

PATIENT = Server(timeout_s=300.0)  # for text as it is written


def _option(name: str, text: str, low: float | None = None) -> Any:
    return typer.Option(help=text, envvar=f"ATTENDANT_SAMPLING_{name}", min=low)


MaxTokens = Annotated[int | None, _option("MAX_TOKENS", "Tokens of output at most.", 1)]
Temperature = Annotated[
    float | None, _option("TEMPERATURE", "0 always takes the most likely token; default 1.", 0)
]
TopK = Annotated[int | None, _option("TOP_K", "Choose among so many tokens; 0: among all.", 0)]
TopP = Annotated[
    float | None, _option("TOP_P", "Choose among tokens with this probability together.")
]
MinP = Annotated[
    float | None, _option("MIN_P", "Choose among tokens with this part of the best one's.")
]
Seed = Annotated[int | None, _option("SEED", "The same seed gives the same text.", 0)]
Stop = Annotated[
    list[str] | None, _option("STOP", "Text that ends the output; may be given more than once.")
]
N = Annotated[int | None, _option("N", "So many samples, shown as a table.", 1)]
BeamWidth = Annotated[
    int | None, _option("BEAM_WIDTH", "Search on from so many beginnings at once; shows N best.", 0)
]
LengthPenalty = Annotated[
    float | None, _option("LENGTH_PENALTY", "Of a search: above 0 for longer texts; default 1.", 0)
]
RepetitionPenalty = Annotated[
    float | None, _option("REPETITION_PENALTY", "Above 1: less of what prompt and output have.")
]
PresencePenalty = Annotated[
    float | None, _option("PRESENCE_PENALTY", "Above 0: less of what the output has.")
]
FrequencyPenalty = Annotated[
    float | None, _option("FREQUENCY_PENALTY", "The same, times how often.")
]
CanStream = Annotated[
    bool,
    typer.Option(
        "--stream/--no-stream", envvar="ATTENDANT_STREAM", help="Show text as it comes, or whole."
    ),
]


@asks
def generate(
    model: Model,
    prompt: Prompt,
    max_tokens: MaxTokens = None,
    temperature: Temperature = None,
    top_k: TopK = None,
    top_p: TopP = None,
    min_p: MinP = None,
    seed: Seed = None,
    stop: Stop = None,
    n: N = None,
    beam_width: BeamWidth = None,
    length_penalty: LengthPenalty = None,
    repetition_penalty: RepetitionPenalty = None,
    presence_penalty: PresencePenalty = None,
    frequency_penalty: FrequencyPenalty = None,
    version: Version = "",
    can_stream: CanStream = True,
    as_json: AsJson = False,
    server: Server = PATIENT,
) -> None:
    """Ask a served generative model to continue a prompt."""
    given: dict[str, Any] = {
        "max_tokens": max_tokens,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "seed": seed,
        "stop": stop,
        "n": n,
        "beam_width": beam_width,
        "length_penalty": length_penalty,
        "repetition_penalty": repetition_penalty,
        "presence_penalty": presence_penalty,
        "frequency_penalty": frequency_penalty,
    }
    params = {name: value for name, value in given.items() if value is not None}
    request = pb.GenerateRequest(
        model=model,
        version=version,
        text=sys.stdin.read() if prompt == "-" else prompt,
        sampling_params=pb.SamplingParams(**params),
    )
    with Client(*server) as client:
        if can_stream and not as_json and n in (None, 1):
            _write(client.stream(request))
        else:
            _show_whole(client.ask(request), as_json)


def _write(chunks: Iterable[pb.GenerateChunk]) -> None:
    """Text to stdout as it comes; of the last chunk, what it all took."""
    last = pb.GenerateChunk()
    try:
        for last in chunks:
            sys.stdout.write(_shown(last.text))
            sys.stdout.flush()
    finally:
        sys.stdout.write("\n")  # an error, too, starts a line
    errors.print(tables.account(last.usage, last.timings))


def _show_whole(response: pb.GenerateResponse, as_json: bool) -> None:
    if as_json or len(response.results) > 1:
        show(response, tables.generated, as_json)
    else:
        sys.stdout.write(_shown(response.results[0].text) + "\n")
    if not as_json:
        errors.print(tables.account(response.usage, response.timings))


def _shown(text: str) -> str:
    """A terminal would obey control characters that a model writes; a pipe gets them all."""
    if not sys.stdout.isatty():
        return text
    return "".join(c if c in "\n\t" or category(c) != "Cc" else "\ufffd" for c in text)
