"""The `fill-mask` command: words for the masks of texts, or what two prompts make of them.

Two prompts that differ in a word are compared as in the lectures: of all words that either makes
likely, how much likelier does the one make it than the other? What both make likely alike says
nothing of that word.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from attendant.v1 import reading_pb2 as pb

from service import tables
from service.cli_common import (
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
    show,
    write_plot,
)
from service.client import ReadingClient
from service.errors import SettingError

if TYPE_CHECKING:
    from service.fills import Difference  # numpy, which few commands need

COMPARED_WORDS = 20  # of each prompt, where nobody says


@asks
def fill_mask(
    model: Model,
    texts: Texts,
    top_k: Annotated[
        int,
        typer.Option(
            min=0,
            envvar="ATTENDANT_TOP_K",
            help="Words per mask, best first; 0, the default, gives 5, or compares the 20 best of "
            "each prompt.",
        ),
    ] = 0,
    candidate: Annotated[
        list[str] | None,
        typer.Option(
            envvar="ATTENDANT_CANDIDATES",
            help="Only this word, which must be one token; may be given more than once.",
        ),
    ] = None,
    against: Annotated[
        str,
        typer.Option(
            envvar="ATTENDANT_AGAINST",
            help="A second prompt with one mask: shows which words the first makes likelier.",
        ),
    ] = "",
    plot: Annotated[
        Path | None,
        typer.Option(
            envvar="ATTENDANT_PLOT",
            help="PNG file for a scatter plot of both prompts; needs matplotlib.",
        ),
    ] = None,
    version: Version = "",
    truncate: Truncate = False,
    as_json: AsJson = False,
    server: Server = SERVER,
) -> None:
    """Ask a served model what may stand at the masks of texts."""
    texts = given_texts(texts)
    request = pb.FillMaskRequest(
        model=model,
        version=version,
        texts=texts,
        truncate=truncate,
        top_k=top_k,
        candidates=candidate or (),
    )
    with ReadingClient(*server) as client:
        if not against:
            if plot is not None:
                raise SettingError(
                    "--plot is set, expected --against with it: it shows two prompts"
                )
            show(client.fill_mask(request), lambda found: tables.fills(texts, found), as_json)
            return
        if len(texts) != 1 or as_json:
            raise SettingError("--against is set, expected one text beside it, and no --json")
        found = compare(client, request, against)
    console.print(tables.differences(texts[0], against, found))
    if plot is not None:
        from service.fill_picture import scatter_plot

        write_plot(plot, scatter_plot(texts[0], against, found))


def compare(client: ReadingClient, request: pb.FillMaskRequest, against: str) -> "list[Difference]":
    """Words that either prompt makes likely, or the candidates, by their difference."""
    request.texts.append(against)
    if not request.candidates:
        request.top_k = request.top_k or COMPARED_WORDS
        words = [word for found in _by_prompt(client, request) for word in found]
        request.top_k = 0
        request.candidates.extend(dict.fromkeys(words))
    from service.fills import compared  # heavy

    return compared(*_by_prompt(client, request))


def _by_prompt(client: ReadingClient, request: pb.FillMaskRequest) -> list[dict[str, float]]:
    """The log-probabilities of words, of both prompts."""
    results = client.fill_mask(request).results
    for text, result in zip(request.texts, results, strict=True):
        if len(result.masks) != 1:
            raise SettingError(
                f"'{text}' has {len(result.masks)} masks, a prompt to compare has one"
            )
    return [{fill.token: fill.logprob for fill in result.masks[0].fills} for result in results]
