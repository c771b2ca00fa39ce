"""`attendant embed`, `features` and `similarity`: vectors of texts, and how alike texts are."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

import typer

from commands.ask.asked import Asked
from commands.ask.client.client import Client
from commands.ask.in_flight import Answered
from commands.ask.options import console
from commands.ask.shown import tables
from commands.ask.shown.outputs import output_of
from commands.ask.texts import Ask, answer_texts, answers, texts_of
from service.calls.answers import Row
from service.calls.texts import Embeddings, Similarities
from service.errors import InvalidArgument

MAX_COMPARED_TEXTS = 16_384  # each with each: 2^28 values, of which a request's rows are held


def embed(asked: Asked) -> None:
    has_pieces = asked.fields["with_pieces"]

    def ask(client: Client, part: Sequence[str]) -> Embeddings:
        nonlocal has_pieces
        answer: Embeddings = client.ask(asked.call(texts=part, with_pieces=has_pieces))
        is_sparse = any(result.sparse is not None for result in answer.results)
        if is_sparse and not has_pieces:  # by default: the first answer alone is asked for again
            has_pieces = True
            return ask(client, part)
        return answer

    answer_texts(asked, ask)


def features(
    asked: Asked,
    word: Annotated[
        str,
        typer.Option(
            envvar="ATTENDANT_WORD",
            help="Instead of vectors, show the cosine similarity of this word's vectors in the "
            "texts: the same word has different vectors in different contexts.",
        ),
    ] = "",
) -> None:
    if word:
        asked = replace(asked, fields={**asked.fields, "pooling": "none"})
    if not word or asked.is_json:
        answer_texts(asked)
        return
    with asked.client() as client:
        console.print(_word_in_texts(asked, word, lambda part: client.ask(asked.call(texts=part))))


def _word_in_texts(asked: Asked, word: str, ask: Ask) -> tables.Table:
    """Cosine similarities of a word's first occurrences in the texts."""
    import numpy as np  # imported late: few commands need it

    from service.serving.tasks.texts import similarity as likeness_of

    texts: list[str] = []
    vectors: list[np.ndarray] = []
    for answered in _gathered(asked, ask):
        part = [line.text for line in answered.lines]
        texts += part
        vectors += tables.word_vectors(part, word, answered.response)
    matrix = np.stack(vectors)
    return tables.likeness(texts, likeness_of("cosine", matrix, matrix).tolist())


def similarity(
    asked: Asked,
    measure: Annotated[
        Literal["cosine", "dot", "scaled_dot", "euclidean", "manhattan"],
        typer.Option(
            envvar="ATTENDANT_MEASURE",
            help="How to compare vectors: cosine compares directions; dot is the dot product; "
            "scaled_dot divides it by the square root of the vector size, as attention does; "
            "euclidean and manhattan are distances, negative.",
        ),
    ] = "cosine",
) -> None:
    with asked.client() as client:
        embedded = list(_gathered(asked, lambda part: client.ask(asked.call(texts=part))))
    likeness = Likeness(embedded, measure)
    drawn = replace(asked, draw=tables.similarities, draw_rows=likeness.draw)
    with output_of(drawn, asked.given, "rows") as output:
        for part in likeness:
            output.write(part.lines, part.response, is_only=len(embedded) == 1)


def _gathered(asked: Asked, ask: Ask) -> Iterator[Answered[Any]]:
    """The answers to all texts. Raises `InvalidArgument` if there are none or too many."""
    texts, count = texts_of(asked.given), 0
    for answered, _ in answers(texts, asked.server.timeout_s, ask):
        count += len(answered.lines)
        if count > MAX_COMPARED_TEXTS:
            raise InvalidArgument(
                f"there are more than {MAX_COMPARED_TEXTS} {texts.noun}s, which is the limit if "
                "each is compared with every other"
            )
        yield answered
    if not count:
        raise InvalidArgument("there are no texts, expected at least one")


class Likeness:
    """Rows of the similarity matrix, in parts; the server embeds each text once."""

    def __init__(self, embedded: Sequence[Answered[Embeddings]], measure: str) -> None:
        import numpy as np  # imported late: few commands need it

        self._embedded = embedded
        self._measure = measure
        self._vectors = [
            np.array([result.values for result in part.response.results]) for part in embedded
        ]
        self._all = np.concatenate(self._vectors)
        self._numbers = [line.number for part in embedded for line in part.lines]
        self._num_drawn = 0

    def __iter__(self) -> Iterator[Answered[Similarities]]:
        from service.serving.tasks.texts import similarity as likeness_of

        for part, vectors in zip(self._embedded, self._vectors, strict=True):
            answered = part.response
            rows = likeness_of(self._measure, vectors, self._all)
            response = Similarities(
                model=answered.model,
                version=answered.version,
                num_tokens=answered.num_tokens,
                timings=answered.timings,
                rows=list(map(Row, rows)),
            )
            yield Answered(part.lines, response)

    def draw(self, texts: Sequence[str], response: Similarities) -> tables.Table:
        """A part's rows: the most similar texts of each text."""
        rows = [row.values for row in response.rows]
        first, self._num_drawn = self._num_drawn, self._num_drawn + len(texts)
        return tables.most_alike(texts, rows, self._numbers, first)
