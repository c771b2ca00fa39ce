"""Tables of what embedders answer beside one vector: weights of words, and vectors of tokens."""

from collections.abc import Callable, Sequence

from attendant.v1 import text_pb2 as pb

from commands.ask.shown.tables import SHOWN_VALUES, Table, _caption, _short

SHOWN_WEIGHTS = 16  # of a text, the heaviest
Draw = Callable[[Sequence[str], pb.EmbedResponse], Table]


def of_kind(dense: Draw) -> Draw:
    """Drawing of an answer by what it has, dense vectors as given."""

    def draw(texts: Sequence[str], response: pb.EmbedResponse) -> Table:
        if any(result.HasField("sparse") for result in response.results):
            return weights(texts, response)
        if any(result.token_vectors for result in response.results):
            return token_vectors(texts, response)
        return dense(texts, response)

    return draw


def weights(texts: Sequence[str], response: pb.EmbedResponse) -> Table:
    """One row per text: its heaviest words, or their ids where pieces were not asked for."""
    table = Table("text", "words by weight", "words", caption=_caption(response))
    for text, result in zip(texts, response.results, strict=True):
        sparse = result.sparse
        names = sparse.pieces or [f"#{token_id}" for token_id in sparse.token_ids]
        heaviest = sorted(zip(sparse.weights, names, strict=True), key=lambda pair: -pair[0])
        shown = "  ".join(f"{name} {weight:.3f}" for weight, name in heaviest[:SHOWN_WEIGHTS])
        more = " …" if len(heaviest) > SHOWN_WEIGHTS else ""
        table.add_row(_short(text), f"{shown}{more}", str(len(heaviest)))
    return table


def token_vectors(texts: Sequence[str], response: pb.EmbedResponse) -> Table:
    """One row per text: the beginning of its first token's vector, and how many there are."""
    table = Table("text", "first vector", "vectors", caption=_caption(response))
    for text, result in zip(texts, response.results, strict=True):
        values = result.token_vectors[0].values if result.token_vectors else ()
        start = " ".join(f"{value:+.3f}" for value in values[:SHOWN_VALUES])
        number = f"{len(result.token_vectors)} x {len(values)}"
        table.add_row(_short(text), f"{start} …", number)
    return table
