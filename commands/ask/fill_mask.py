"""The `fill-mask` command: words for the masks of texts, or a comparison of several prompts.

Prompts that differ in a word are compared as in the lectures: for every word that is likely in one
of the prompts, by how much its log-probability differs between them. A word that is equally likely
in all prompts says nothing about their difference.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from attendant.v1 import reading_pb2 as pb

from commands.ask.client.client import Client
from commands.ask.options import (
    MAX_UINT32,
    SERVER,
    AsJson,
    Model,
    Server,
    Texts,
    Truncate,
    Version,
    asks,
    console,
    given_texts,
    write_plot,
)
from commands.ask.shown import tables
from commands.ask.texts import AsNdjson, answer_texts
from service.errors import SettingError

if TYPE_CHECKING:
    from commands.ask.shown.comparison import ComparedWord  # numpy, which few commands need

COMPARED_WORDS = 20  # of each prompt, by default
MAX_PROMPTS = 8  # to compare: a column each


TopK = Annotated[
    int,
    typer.Option(
        min=0,
        max=MAX_UINT32,
        envvar="ATTENDANT_FILL_MASK_TOP_K",
        help="Number of words per mask, most likely first; 0 prints 5, or compares the 20 most "
        "likely words of each prompt.",
    ),
]
Candidates = Annotated[
    list[str] | None,
    typer.Option(
        envvar="ATTENDANT_CANDIDATES",
        help="Score only this word, which must be a single token; may be given more than once.",
    ),
]
Against = Annotated[
    str,
    typer.Option(
        envvar="ATTENDANT_AGAINST",
        help="Second prompt with one mask, to show which words the first makes more likely.",
    ),
]
IsCompared = Annotated[
    bool,
    typer.Option(
        "--compare",
        envvar="ATTENDANT_COMPARE",
        help="Compare 2 to 8 prompts with one mask each, one column per prompt. Four prompts "
        "that combine two alternatives at two places (1908 or 2018, he or she) are shown as a "
        "difference of differences.",
    ),
]
Plot = Annotated[
    Path | None,
    typer.Option(
        envvar="ATTENDANT_FILL_MASK_PLOT",
        help="PNG file for a picture of the comparison; needs matplotlib.",
    ),
]


@asks
def fill_mask(
    model: Model,
    texts: Texts,
    top_k: TopK = 0,
    candidate: Candidates = None,
    against: Against = "",
    is_compared: IsCompared = False,
    plot: Plot = None,
    version: Version = "",
    truncate: Truncate = False,
    as_json: AsJson = False,
    as_ndjson: AsNdjson = False,
    server: Server = SERVER,
) -> None:
    has_comparison = bool(against) or is_compared
    if plot is not None and not has_comparison:
        raise SettingError(
            "--plot is set, expected --against or --compare with it: it shows compared prompts"
        )

    def request_for(texts: Sequence[str]) -> pb.FillMaskRequest:
        return pb.FillMaskRequest(
            model=model,
            version=version,
            texts=texts,
            truncate=truncate,
            top_k=top_k,
            candidates=candidate or (),
        )

    if has_comparison:
        prompts = _prompts(
            given_texts(texts), against, is_compared=is_compared, as_json=as_json or as_ndjson
        )
        _show_comparison(request_for(prompts), server, plot)
        return
    with Client(*server) as client:
        answer_texts(
            texts,
            server.timeout_s,
            lambda part: client.ask(request_for(part)),
            tables.fills,
            as_json=as_json,
            as_ndjson=as_ndjson,
        )


def _show_comparison(request: pb.FillMaskRequest, server: Server, plot: Path | None) -> None:
    """Print how the prompts of a request differ, and draw it where a file is named."""
    with Client(*server) as client:
        found = compare(client, request)
    console.print(tables.comparison(request.texts, found))
    if plot is not None:
        from commands.ask.shown.fill_picture import picture

        write_plot(plot, picture(request.texts, found))


def _prompts(texts: list[str], against: str, *, is_compared: bool, as_json: bool) -> list[str]:
    """The prompts to compare. Raises `SettingError`."""
    if as_json:
        raise SettingError("--json is set, expected it without --against and --compare")
    if against and (is_compared or len(texts) != 1):
        raise SettingError(
            "--against is set, expected one text beside it; several are compared with --compare"
        )
    prompts = [*texts, against] if against else texts
    if not 2 <= len(prompts) <= MAX_PROMPTS:
        raise SettingError(
            f"--compare is set with {len(prompts)} texts, expected 2 to {MAX_PROMPTS}"
        )
    return prompts


def compare(client: Client, request: pb.FillMaskRequest) -> "list[ComparedWord]":
    """The likely words of all prompts, or the candidates, sorted by how much the prompts differ."""
    if not request.candidates:
        request.top_k = request.top_k or COMPARED_WORDS
        words = [word for found in _by_prompt(client, request) for word in found]
        request.top_k = 0
        request.candidates.extend(dict.fromkeys(words))
    from commands.ask.shown.comparison import compared, crossing_of  # heavy

    found = compared(_by_prompt(client, request))
    crossing = crossing_of(request.texts)
    return sorted(found, key=lambda word: -crossing.change(word)) if crossing else found


def _by_prompt(client: Client, request: pb.FillMaskRequest) -> list[dict[str, float]]:
    """Log-probabilities by word, for each prompt."""
    results = client.ask(request).results
    for text, result in zip(request.texts, results, strict=True):
        if len(result.masks) != 1:
            raise SettingError(
                f"'{text}' has {len(result.masks)} masks, a prompt to compare has one"
            )
    return [{fill.token: fill.logprob for fill in result.masks[0].fills} for result in results]
