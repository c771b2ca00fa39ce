"""Rich tables of answers.

Texts of users and models go in as `Text`: rich would read "[/b]" in a string as markup.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table as PlainTable
from rich.text import Text

from service.calls.answers import Timings
from service.calls.features import Features
from service.calls.images import ImageClassifications
from service.calls.reading import Answers, Entities, FilledTexts
from service.calls.texts import (
    Classifications,
    Embeddings,
    PairScores,
    Ranking,
    Similarities,
)
from service.errors import InvalidArgument

if TYPE_CHECKING:
    import numpy as np

    from commands.ask.shown.comparison import ComparedWord  # numpy, which few commands need
Computed = (
    Classifications
    | Embeddings
    | PairScores
    | Ranking
    | FilledTexts
    | Entities
    | Answers
    | Features
    | Similarities
)
SHOWN_VALUES = 4  # of a token's or text's features
MAX_SIMILARITY_TEXTS = 12  # more columns than that fit no terminal
SHOWN_NEIGHBOURS = 3


class Table(PlainTable):
    """A table whose caption has lines of its own below it, and whose long words are not cut.

    Rich would wrap the caption to the table's width, which may be that of two short words.
    """

    def __init__(self, *headers: str, caption: str | Text = "", show_lines: bool = False) -> None:
        super().__init__(*headers, show_lines=show_lines)
        for column in self.columns:
            column.overflow = "fold"
        self.below = caption

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from super().__rich_console__(console, options)
        if self.below:
            yield Text(str(self.below), "table.caption")


def classifications(texts: Sequence[str], response: Classifications) -> Table:
    """One row per text, its labels best first."""
    table = Table("text", "label", "scores", "tokens", caption=_caption(response))
    for text, result in zip(texts, response.results, strict=True):
        scores = "  ".join(f"{found.label} {found.score:.4f}" for found in result.labels)
        best = Text(result.labels[0].label, "bold")
        table.add_row(short(text), best, Text(scores), str(result.num_tokens))
    return table


def scores(texts: Sequence[str], response: PairScores) -> Table:
    """One row per text, those that match best first."""
    table = Table("text", "score", "tokens", caption=_caption(response))
    pairs = zip(texts, response.results, strict=True)
    for text, result in sorted(pairs, key=lambda pair: -pair[1].score):
        table.add_row(short(text), f"{result.score:.4f}", str(result.num_tokens))
    return table


def ranking(texts: Sequence[str], response: Ranking) -> Table:
    """One row per document, best first, with its number among the documents given."""
    table = Table("", "text", "score", "tokens", caption=_caption(response))
    for text, result in zip(texts, response.results, strict=True):
        number = str(result.index + 1)
        table.add_row(number, short(text), f"{result.score:.4f}", str(result.num_tokens))
    return table


def found(query: str, results: Sequence[Any], model: Any) -> Table:
    """One row per text of a file, best first, with its line."""
    table = Table(
        "line", "text", "score", caption=f"'{short(query)}', in the order of {model.name}"
    )
    for result in results:
        table.add_row(str(result.line), short(result.text), f"{result.score:.4f}")
    return table


def images(names: Sequence[str], response: ImageClassifications) -> Table:
    """One row per image, its labels best first."""
    caption = f"{response.model} version {response.version}: {_took(response.timings)}"
    table = Table("image", "label", "scores", "pixels", caption=caption)
    for name, result in zip(names, response.results, strict=True):
        scores = "  ".join(f"{found.label} {found.score:.4f}" for found in result.labels)
        best = Text(result.labels[0].label, "bold")
        table.add_row(Text(name), best, Text(scores), f"{result.width} x {result.height}")
    return table


def entities(texts: Sequence[str], response: Entities) -> Table:
    """One row per entity, below the text that it is of."""
    table = Table("text", "entity", "label", "score", "characters", caption=_caption(response))
    for text, result in zip(texts, response.results, strict=True):
        table.add_section()
        for place, found in enumerate(result.entities):
            shown = Text("") if place else short(text)
            cells = (found.text, found.label, f"{found.score:.4f}", f"{found.start}-{found.end}")
            table.add_row(shown, *map(Text, cells))
        if not result.entities:
            table.add_row(short(text), Text("none", "dim"), "", "", "")
    return table


def fills(texts: Sequence[str], response: FilledTexts) -> Table:
    """One row per mask, its words best first."""
    table = Table("text", "mask", "fills", caption=_caption(response))
    for text, result in zip(texts, response.results, strict=True):
        table.add_section()
        for place, mask in enumerate(result.masks):
            found = "  ".join(f"{fill.token} {fill.score:.4f}" for fill in mask.fills)
            shown = Text("") if place else short(text)
            table.add_row(shown, f"{mask.start}-{mask.end}", Text(found))
    return table


def comparison(prompts: "Sequence[str]", found: "Sequence[ComparedWord]") -> Table:
    """One row per word, one column per prompt, and what the prompts differ in."""
    from commands.ask.shown.comparison import (  # heavy, and every command reads this file
        crossing_of,
        short_names,
    )

    names, crossing = short_names(prompts), crossing_of(prompts)
    legend = "".join(f"{name}: {prompt}\n" for name, prompt in zip(names, prompts, strict=True))
    caption = Text(f"{legend}natural logarithms of probabilities")
    if crossing:
        one, other = crossing.inner
        extra = [*(f"{one} - {other}, {outer}" for outer in crossing.outer), "change"]
    else:
        extra = ["difference" if len(prompts) == 2 else "spread"]
    table = Table("word", caption=caption)
    for header in map(Text, (*names, *extra)):
        table.add_column(header, justify="right")
    for word in found:
        if crossing:
            figures = [f"{value:+.3f}" for value in crossing.differences(word)]
            figures.append(f"{crossing.change(word):+.3f}")
        else:
            figures = [f"{word.difference:+.3f}" if len(prompts) == 2 else f"{word.spread:.3f}"]
        chances = (f"{logprob:.3f}" for logprob in word.logprobs)
        table.add_row(Text(word.token), *chances, *figures)
    return table


def answers(response: Answers) -> Table:
    """One row per answer, best first, and one for there being none."""
    table = Table("answer", "score", "characters", caption=_caption(response))
    for found in response.answers:
        cells = (found.text, f"{found.score:.4f}", f"{found.start}-{found.end}")
        table.add_row(*map(Text, cells))
    table.add_row(Text("no answer", "dim"), f"{response.no_answer_score:.4f}", "")
    return table


def embeddings(texts: Sequence[str], response: Embeddings) -> Table:
    """One row per text: the vector's beginning, and its cosine with every other text."""
    import numpy as np  # heavy, and every command reads this file

    vectors = np.array([result.values for result in response.results], np.float32)
    units = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    cosines = units @ units.T
    shown = min(len(texts), MAX_SIMILARITY_TEXTS)
    numbers = [str(index + 1) for index in range(shown)]
    table = Table("", "text", "vector", *(f"cos {n}" for n in numbers), caption=_caption(response))
    for index, text in enumerate(texts):
        start = " ".join(f"{value:+.3f}" for value in vectors[index, :3])
        similar = [f"{cosines[index, other]:.3f}" for other in range(shown)]
        table.add_row(str(index + 1), short(text), f"{start} … ({vectors.shape[1]})", *similar)
    return table


def vectors(texts: Sequence[str], response: Embeddings) -> Table:
    """One row per text, the vector's beginning."""
    table = Table("text", "vector", caption=_caption(response))
    for text, result in zip(texts, response.results, strict=True):
        start = " ".join(f"{value:+.3f}" for value in result.values[:SHOWN_VALUES])
        table.add_row(short(text), f"{start} … ({len(result.values)})")
    return table


def encoded_vectors(texts: Sequence[str], response: Embeddings) -> Table:
    """One row per text, the beginning of the vector's bytes as whole numbers."""
    table = Table("text", "encoding", "vector", caption=_caption(response))
    for text, result in zip(texts, response.results, strict=True):
        for each in result.encoded:
            is_unsigned = each.encoding.startswith("u")
            numbers = memoryview(each.values).cast("B" if is_unsigned else "b").tolist()
            start = " ".join(map(str, numbers[:SHOWN_VALUES]))
            table.add_row(short(text), each.encoding, f"{start} … ({len(numbers)} bytes)")
    return table


def features(texts: Sequence[str], response: Features) -> Table:
    """One row per text, or per token where tokens have vectors."""
    table = Table("text", "token", "vector", caption=_caption(response))
    for text, result in zip(texts, response.results, strict=True):
        tokens = [token.piece for token in result.tokens] or [""]
        for place, (piece, vector) in enumerate(zip(tokens, result.vectors, strict=True)):
            start = " ".join(f"{value:+.3f}" for value in vector.values[:SHOWN_VALUES])
            shown = Text("") if place else short(text)
            table.add_row(shown, Text(piece), f"{start} … ({len(vector.values)})")
    return table


def similarities(texts: Sequence[str], response: Similarities) -> Table:
    """One row and one column per text, or where those are too many, the most alike ones."""
    return likeness(texts, [row.values for row in response.rows], _caption(response))


def likeness(texts: Sequence[str], rows: Sequence[Any], caption: str = "") -> Table:
    """A value for every two texts, or where those are too many, the most alike ones of each."""
    if len(texts) > MAX_SIMILARITY_TEXTS:
        return most_alike(texts, rows, caption=caption)
    numbers = [str(number) for number in range(1, len(texts) + 1)]
    table = Table("", "text", *numbers, caption=caption)
    for number, text, row in zip(numbers, texts, rows, strict=True):
        table.add_row(number, short(text), *(f"{value:.3f}" for value in row))
    return table


def most_alike(
    texts: Sequence[str],
    rows: Sequence[Any],
    numbers: Sequence[int] = (),
    first: int = 0,
    caption: str = "",
) -> Table:
    """One row per text: which others are most like it, by number.

    `numbers` are those of all texts, which a row has values for, by default from 1; `first` is the
    place of the first row's text among them.
    """
    import numpy as np  # heavy, and every command reads this file

    table = Table("", "text", "most alike", caption=caption)
    numbers = numbers or range(1, len(rows[0]) + 1)
    for place, (text, row) in enumerate(zip(texts, rows, strict=True), first):
        nearest = [other for other in np.argsort(-np.array(row), kind="stable") if other != place]
        shown = "  ".join(f"{numbers[i]}: {row[i]:.3f}" for i in nearest[:SHOWN_NEIGHBOURS])
        table.add_row(f"{numbers[place]:>{len(str(numbers[-1]))}}", short(text), shown)
    return table


def word_vectors(texts: Sequence[str], word: str, response: Features) -> "list[np.ndarray]":
    """The mean vector of the tokens of a word's first occurrence in each text."""
    import numpy as np  # heavy, and every command reads this file

    vectors = []
    for text, result in zip(texts, response.results, strict=True):
        found = re.search(rf"\b{re.escape(word)}\b", text, re.IGNORECASE)
        parts = [
            vector.values
            for token, vector in zip(result.tokens, result.vectors, strict=True)
            if found and token.start < found.end() and found.start() < token.end
        ]
        if not parts:
            raise InvalidArgument(f"'{text}' has no word '{word}', expected it in every text")
        vectors.append(np.mean(parts, axis=0))
    return vectors


def _caption(response: Computed) -> str:
    answered_by = f"{response.model} version {response.version}"
    return f"{answered_by}, {response.num_tokens} tokens: {_took(response.timings)}"


def _took(timings: Timings) -> str:
    return (
        f"queue {timings.queue_seconds * 1e3:.1f} ms, "
        f"compute {timings.compute_seconds * 1e3:.1f} ms"
    )


def short(text: str, width: int = 60) -> Text:
    return Text(text if len(text) <= width else f"{text[: width - 1]}…")
