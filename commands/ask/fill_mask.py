"""The `fill-mask` command: words for the masks of texts, or a comparison of several prompts.

Prompts that differ in a word are compared as in the lectures: for every word that is likely in one
of the prompts, by how much its log-probability differs between them. A word that is equally likely
in all prompts says nothing about their difference.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from commands.ask.asked import Asked
from commands.ask.client.client import Client
from commands.ask.options import console, given_texts, write_plot
from commands.ask.shown import tables
from commands.ask.texts import answer_texts
from service.calls.reading import FilledTexts, FillMask
from service.errors import SettingError

if TYPE_CHECKING:
    from commands.ask.shown.comparison import ComparedWord  # numpy, which few commands need

COMPARED_WORDS = 20  # of each prompt, by default
MAX_PROMPTS = 8  # to compare: a column each


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


def fill_mask(
    asked: Asked, against: Against = "", is_compared: IsCompared = False, plot: Plot = None
) -> None:
    has_comparison = bool(against) or is_compared
    if plot is not None and not has_comparison:
        raise SettingError(
            "--plot is set, expected --against or --compare with it: it shows compared prompts"
        )
    if not has_comparison:
        answer_texts(asked)
        return
    prompts = _prompts(
        given_texts(asked.given), against, is_compared=is_compared, as_json=asked.is_json
    )
    with asked.client() as client:
        found = compare(client, asked.call(texts=prompts))
    console.print(tables.comparison(prompts, found))
    if plot is not None:
        from commands.ask.shown.fill_picture import picture

        write_plot(plot, picture(prompts, found))


def _prompts(
    texts: Sequence[str], against: str, *, is_compared: bool, as_json: bool
) -> Sequence[str]:
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


def compare(client: Client, call: FillMask) -> "list[ComparedWord]":
    """The likely words of all prompts, or the candidates, sorted by how much the prompts differ."""
    if not call.candidates:
        likely = _by_prompt(client, call.also(top_k=call.top_k or COMPARED_WORDS))
        words = dict.fromkeys(word for found in likely for word in found)
        call = call.also(top_k=0, candidates=list(words))
    from commands.ask.shown.comparison import compared, crossing_of  # heavy

    found = compared(_by_prompt(client, call))
    crossing = crossing_of(call.texts)
    return sorted(found, key=lambda word: -crossing.change(word)) if crossing else found


def _by_prompt(client: Client, call: FillMask) -> list[dict[str, float]]:
    """Log-probabilities by word, for each prompt."""
    answer: FilledTexts = client.ask(call)
    for text, result in zip(call.texts, answer.results, strict=True):
        if len(result.masks) != 1:
            raise SettingError(
                f"'{text}' has {len(result.masks)} masks, a prompt to compare has one"
            )
    return [
        {fill.token: fill.logprob for fill in result.masks[0].fills} for result in answer.results
    ]
