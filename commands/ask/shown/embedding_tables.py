"""Tables of what embedders answer beside one vector: weights of words, and vectors of tokens."""

from collections.abc import Callable, Sequence

from commands.ask.shown import tables
from commands.ask.shown.tables import SHOWN_VALUES, Table, _caption, short
from service.calls.texts import Embeddings

SHOWN_WEIGHTS = 16  # of a text, the heaviest
Draw = Callable[[Sequence[str], Embeddings], Table]


def embeddings(texts: Sequence[str], answer: Embeddings) -> Table:
    """A table by what the answer has; dense vectors with the cosines between them."""
    return _of_kind(answer, tables.embeddings)(texts, answer)


def vectors(texts: Sequence[str], answer: Embeddings) -> Table:
    """A table by what the answer has; dense vectors alone."""
    return _of_kind(answer, tables.vectors)(texts, answer)


def _of_kind(answer: Embeddings, dense: Draw) -> Draw:
    if any(result.sparse is not None for result in answer.results):
        return weights
    if any(result.token_vectors for result in answer.results):
        return token_vectors
    return tables.encoded_vectors if any(each.encoded for each in answer.results) else dense


def weights(texts: Sequence[str], response: Embeddings) -> Table:
    """One row per text: its heaviest words, or their ids where pieces were not asked for."""
    table = Table("text", "words by weight", "words", caption=_caption(response))
    for text, result in zip(texts, response.results, strict=True):
        sparse = result.sparse
        assert sparse is not None, "its answers are of one kind"
        names = sparse.pieces or [f"#{token_id}" for token_id in sparse.token_ids]
        heaviest = sorted(zip(sparse.weights, names, strict=True), key=lambda pair: -pair[0])
        shown = "  ".join(f"{name} {weight:.3f}" for weight, name in heaviest[:SHOWN_WEIGHTS])
        more = " …" if len(heaviest) > SHOWN_WEIGHTS else ""
        table.add_row(short(text), f"{shown}{more}", str(len(heaviest)))
    return table


def token_vectors(texts: Sequence[str], response: Embeddings) -> Table:
    """One row per text: the beginning of its first token's vector, and how many there are."""
    table = Table("text", "first vector", "vectors", caption=_caption(response))
    for text, result in zip(texts, response.results, strict=True):
        values = result.token_vectors[0].values if result.token_vectors else ()
        start = " ".join(f"{value:+.3f}" for value in values[:SHOWN_VALUES])
        number = f"{len(result.token_vectors)} x {len(values)}"
        table.add_row(short(text), f"{start} …", number)
    return table
