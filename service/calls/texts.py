"""Calls about whole texts: classes, vectors, how pairs match, and how alike texts are."""

from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias

import msgspec

from service.calls.answers import Answered, LabelScore, Row, Values, numbers_of
from service.calls.record import U32, Call, Texts, said

# A number of an enumeration that has no name stays one, for the task to refuse.
Kind: TypeAlias = Literal["", "dense", "sparse", "token_vectors"] | int
Encoding: TypeAlias = Literal["", "float", "int8", "uint8", "binary", "ubinary"] | int
ScoreFunction: TypeAlias = Literal["", "softmax", "sigmoid", "identity"] | int
Measure: TypeAlias = Literal["", "cosine", "dot", "scaled_dot", "euclidean", "manhattan"] | int
CUT = "Cut texts that are longer than the model takes."
LATER = "Run only while no other request waits for the model."
_RAW = "Scores as the model gives them, or as probabilities; by default as the model says."


class Classify(Call, frozen=True):
    """Texts, or pairs of them, whose class is asked for."""

    texts: Annotated[
        Texts,
        said("Texts to classify.", counted=True, also={"openai": "input", "huggingface": "inputs"}),
    ] = ()
    truncate: Annotated[bool, said(CUT)] = False
    top_k: Annotated[int, said("Labels of each text; 0 stands for 1.", low=0, high=U32)] = 0
    all_scores: Annotated[bool, said("Every label; not together with top_k.")] = False
    text_pairs: Annotated[
        Texts, said("The second text of each pair.", also={"huggingface": "inputs"})
    ] = ()
    score_function: Annotated[
        ScoreFunction, said("Function that makes scores of logits; by default the model's own.")
    ] = ""
    background: Annotated[bool, said(LATER)] = False


class ScorePairs(Call, frozen=True):
    """Pairs of texts whose match is asked for."""

    texts: Annotated[
        Texts,
        said("The first text of each pair.", counted=True, also={"huggingface": "source_sentence"}),
    ] = ()
    truncate: Annotated[bool, said(CUT)] = False
    text_pairs: Annotated[
        Texts, said("The second text of each pair.", paired=True, also={"huggingface": "sentences"})
    ] = ()
    raw_scores: Annotated[bool | None, said(_RAW)] = None
    background: Annotated[bool, said(LATER)] = False


class Rerank(Call, frozen=True):
    """Documents that are put in order by their relevance to a query."""

    query: Annotated[str, said("Query that the documents are ranked by.")] = ""
    documents: Annotated[
        Texts, said("Texts to rank.", counted=True, also={"huggingface": "texts"})
    ] = ()
    truncate: Annotated[bool, said(CUT)] = False
    max_document_tokens: Annotated[
        int, said("Tokens at which a document is cut; 0: the model's.", low=0, high=U32)
    ] = 0
    top_n: Annotated[int, said("Documents of the answer, best first; 0: all.", low=0, high=U32)] = 0
    raw_scores: Annotated[bool | None, said(_RAW)] = None
    background: Annotated[bool, said(LATER)] = False


class Similarity(Call, frozen=True):
    """Texts that are compared with others, or with each other."""

    texts: Annotated[
        Texts, said("Texts to compare.", counted=True, also={"huggingface": "source_sentence"})
    ] = ()
    others: Annotated[
        Texts,
        said(
            "Texts to compare them with; by default each other.",
            counted=True,
            also={"huggingface": "sentences"},
        ),
    ] = ()
    truncate: Annotated[bool, said(CUT)] = False
    measure: Annotated[
        Measure, said("Measure of similarity; by default the model's own, or cosine.")
    ] = ""
    prompt_name: Annotated[str, said("Name of the model's prompt to put in front of texts.")] = ""
    others_prompt_name: Annotated[
        str, said("Name of the model's prompt to put in front of the others.")
    ] = ""
    dimensions: Annotated[int, said("Values of each vector; 0 takes all.", low=0, high=U32)] = 0


class Embed(Call, frozen=True):
    """Texts, or token ids, whose vectors are asked for."""

    texts: Annotated[
        Texts,
        said("Texts to embed.", counted=True, also={"openai": "input", "huggingface": "inputs"}),
    ] = ()
    truncate: Annotated[bool, said(CUT)] = False
    token_ids: Annotated[
        Sequence[Sequence[int]],
        said(
            "In place of texts: the tokens of each.", instead_of="texts", also={"openai": "input"}
        ),
    ] = ()
    prompt_name: Annotated[str, said("Name of the model's prompt to put in front of texts.")] = ""
    prompt: Annotated[str | None, said("Text to put in front of each text.")] = None
    dimensions: Annotated[
        int,
        said(
            "Values of each vector; 0 takes all.",
            low=0,
            high=U32,
            also={"cohere": "output_dimension"},
        ),
    ] = 0
    encodings: Annotated[
        Sequence[Encoding],
        said(
            "Encodings of vectors; by default float.",
            also={"openai": "embedding_type", "cohere": "embedding_types"},
        ),
    ] = ()
    kinds: Annotated[Sequence[Kind], said("Kinds of vectors; by default the model's first.")] = ()
    top_k: Annotated[int, said("Most weights of a sparse vector; 0: all.", low=0, high=U32)] = 0
    with_pieces: Annotated[bool, said("Spell the tokens of sparse vectors.")] = False
    background: Annotated[bool, said(LATER)] = False


class EncodedVector(msgspec.Struct, frozen=True):
    """A vector in whole numbers, or in bits."""

    encoding: str
    values: bytes


class SparseVector(msgspec.Struct, frozen=True):
    """Weights by token id, in the order of the ids; pieces where they are asked for."""

    token_ids: Sequence[int]
    weights: Values
    pieces: Texts = ()

    @property
    def numbers(self) -> list[float]:
        """The weights."""
        return numbers_of(self.weights)


class Embedding(msgspec.Struct, frozen=True):
    """The answers for one text: those of the kinds and encodings that were asked for."""

    values: Values = ()
    num_tokens: int = 0
    is_truncated: bool = False
    encoded: Sequence[EncodedVector] = ()
    sparse: SparseVector | None = None
    token_vectors: Sequence[Row] = ()

    @property
    def numbers(self) -> list[float]:
        """The values of the dense vector."""
        return numbers_of(self.values)


class Embeddings(Answered, frozen=True, kw_only=True):
    """The answers for all texts, in their order."""

    num_tokens: int
    results: Sequence[Embedding]

    @property
    def num_values(self) -> int:
        """About how many numbers it has."""
        return sum(map(_num_values, self.results))


def _num_values(result: Embedding) -> int:
    count = len(result.values) + sum(len(each.values) for each in result.encoded)
    if result.sparse is not None:
        count += 2 * len(result.sparse.token_ids)
    if result.token_vectors:
        count += len(result.token_vectors) * len(result.token_vectors[0].values)
    return count


class Classification(msgspec.Struct, frozen=True):
    """The labels of one text, best first."""

    labels: Sequence[LabelScore]
    num_tokens: int
    is_truncated: bool


class Classifications(Answered, frozen=True, kw_only=True):
    """The labels of all texts, in their order."""

    num_tokens: int
    results: Sequence[Classification]


class PairScore(msgspec.Struct, frozen=True):
    """Score of how well the texts of a pair match."""

    score: float
    num_tokens: int
    is_truncated: bool


class PairScores(Answered, frozen=True, kw_only=True):
    """The scores of all pairs, in their order."""

    num_tokens: int
    results: Sequence[PairScore]


class RankedDocument(msgspec.Struct, frozen=True):
    """The place of a document in the request, and its relevance."""

    index: int
    score: float
    num_tokens: int
    is_truncated: bool


class Ranking(Answered, frozen=True, kw_only=True):
    """Documents, best first."""

    num_tokens: int
    results: Sequence[RankedDocument]


class Similarities(Answered, frozen=True, kw_only=True):
    """For each text a row with its similarity to each of the others."""

    num_tokens: int
    rows: Sequence[Row]
