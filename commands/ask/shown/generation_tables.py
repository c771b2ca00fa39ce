"""Rich tables of generated texts and of their tokens.

Texts go in as `Text`, as in `tables.py`.
"""

from collections.abc import Sequence

from rich.text import Text

from commands.ask.shown.tables import Table
from service.calls.generation import (
    GenerateChunk,
    GeneratedText,
    GenerateResponse,
    GenerationTimings,
    GenerationUsage,
    TokenLogprob,
)


def generated(response: GenerateResponse) -> Table:
    """One row per sample; of a search with the logarithms of their probabilities."""
    has_scores = any(result.score is not None for result in response.results)
    score = ("log probability",) if has_scores else ()
    table = Table("", "text", "tokens", "ended by", *score, show_lines=True)
    for index, result in enumerate(response.results, start=1):
        cells = [str(index), result.text, str(len(result.token_ids)), _ended_by(result)]
        if result.score is not None:
            cells.append(f"{result.score:.3f}")
        table.add_row(*map(Text, cells))
    return table


def scored(tokens: Sequence[TokenLogprob]) -> Table:
    """One row per token of a prompt; the first has no probability, as nothing is before it."""
    likeliest = ("most likely",) if any(token.top for token in tokens) else ()
    table = Table("token", "log probability", *likeliest, caption="natural logarithms")
    for place, token in enumerate(tokens):
        cells = [_spelt(token), f"{token.logprob:.3f}" if place else ""]
        if likeliest:
            cells.append("  ".join(f"{_spelt(top)} {top.logprob:.3f}" for top in token.top))
        table.add_row(*map(Text, cells))
    return table


def _spelt(token: TokenLogprob) -> str:
    """The text of a token, in quotes as it may begin with a space."""
    return repr(token.token.decode(errors="replace"))


def account(answer: GenerateChunk | GenerateResponse) -> Text:
    """The usage and times of a generation, in one line."""
    usage, timings = answer.usage or GenerationUsage(), answer.timings or GenerationTimings()
    generating_s = timings.total_seconds - timings.time_to_first_token_seconds
    # The first token is the prompt's: what follows it is what the rate is of.
    num_more = usage.output_tokens - 1
    rate = f"{num_more / generating_s:.1f}" if generating_s > 0 and num_more > 0 else "-"
    return Text(
        f"{usage.prompt_tokens} tokens in ({usage.reused_tokens} reused), "
        f"{usage.output_tokens} out, {rate} tokens/s, "
        f"first after {timings.time_to_first_token_seconds * 1e3:.1f} ms, "
        f"{timings.total_seconds:.2f} s in all",
        "dim",
    )


def _ended_by(result: GeneratedText) -> str:
    if result.finish_reason == "length":
        return "length"
    return f"stop {result.stop_reason!r}" if result.stop_reason else "end of text"
