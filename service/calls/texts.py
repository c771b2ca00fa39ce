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
CUT = "Truncate texts that are longer than the model accepts, instead of refusing them."
LATER = "Run only while nothing else waits."
_RAW = (
    "Show the model's logits, or if it is off their sigmoids, from 0 to 1; by default what the "
    "model is made for."
)
_PROMPT_NAME = (
    "Name of the model's prompt to put in front of each text, e.g. query or document; by default "
    "the model's default prompt, if it has one. The list of models has their prompts."
)
_WIDTH = "Values per vector, of those that the model was trained for; 0 is all of them."


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
        ScoreFunction, said("What makes scores; by default the model's own.")
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

    query: Annotated[str, said("What is searched for.", argument=True)] = ""
    documents: Annotated[
        Texts, said("Texts to rank.", counted=True, also={"huggingface": "texts"})
    ] = ()
    truncate: Annotated[bool, said(CUT)] = False
    max_document_tokens: Annotated[
        int, said("Cut documents to that many tokens; 0 cuts none.", low=0, high=U32)
    ] = 0
    top_n: Annotated[
        int, said("Number of documents to show, best first; 0 shows all of them.", low=0, high=U32)
    ] = 0
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
    measure: Annotated[Measure, said("By default the model's own, or cosine.")] = ""
    prompt_name: Annotated[str, said(_PROMPT_NAME)] = ""
    others_prompt_name: Annotated[
        str, said("Name of the prompt to put in front of each of the others.")
    ] = ""
    dimensions: Annotated[int, said(_WIDTH, low=0, high=U32)] = 0


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
    prompt_name: Annotated[str, said(_PROMPT_NAME)] = ""
    prompt: Annotated[
        str | None,
        said(
            "Text to put in front of each text, in place of a prompt of the model; '' for nothing."
        ),
    ] = None
    dimensions: Annotated[
        int, said(_WIDTH, low=0, high=U32, also={"cohere": "output_dimension"})
    ] = 0
    encodings: Annotated[
        Sequence[Encoding],
        said(
            "How vectors are written: int8 and uint8 in 256 steps of each value's range, binary "
            "and ubinary a bit per value. In JSON the bytes are base64.",
            flag="encoding",
            also={"openai": "embedding_type", "cohere": "embedding_types"},
        ),
    ] = ()
    kinds: Annotated[
        Sequence[Kind],
        said(
            "What is answered: dense, one vector; sparse, weights of words; or token vectors, one "
            "vector per token. By default the first that the model has.",
            flag="kind",
        ),
    ] = ()
    top_k: Annotated[
        int,
        said(
            "Of sparse vectors, number of weights per text, heaviest; 0 takes all of them.",
            low=0,
            high=U32,
        ),
    ] = 0
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
    """How well the texts of a pair match."""

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

    def at(self, index: int) -> "RankedDocument":
        """The document at another place."""
        return msgspec.structs.replace(self, index=index)


class Ranking(Answered, frozen=True, kw_only=True):
    """Documents, best first."""

    num_tokens: int
    results: Sequence[RankedDocument]


class Similarities(Answered, frozen=True, kw_only=True):
    """For each text a row with its similarity to each of the others."""

    num_tokens: int
    rows: Sequence[Row]
