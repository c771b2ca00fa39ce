"""The answers of embedders: a vector per text, weights of words, and a vector per token.

Sparse weights come as a number for each token of a text, of which a word has the largest, or as a
row over the vocabulary; special tokens that the manifest names have none. Pure.
"""
# ruff: noqa: N803 - suffixes are array layouts: S tokens, V the vocabulary

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np

from service.calls import texts as records
from service.calls.answers import Row
from service.calls.texts import Embed
from service.contract.manifest import Manifest
from service.errors import InvalidArgument, LacksKind, invalid_field
from service.serving.tasks.task import (
    MAX_VALUES,
    Choice,
    Fields,
    GraphOutput,
    Reading,
    TextReply,
    TextTaskModel,
)
from service.text.tokenizer import EncodedText, TextTokenizer

DENSE, SPARSE, TOKEN_VECTORS = KINDS = "dense", "sparse", "token_vectors"
OUTPUTS = (
    GraphOutput(
        "embedding",
        lambda manifest: (manifest.embedding_size,),
        is_given=lambda manifest: manifest.embedding_size > 0,
    ),
    GraphOutput(
        "term_weights",
        lambda manifest: (manifest.sparse_size,),
        is_given=lambda manifest: manifest.sparse_rows == "text",
    ),
    GraphOutput(
        "token_weights", lambda _: (1,), "token", lambda manifest: manifest.sparse_rows == "token"
    ),
    GraphOutput(
        "token_vectors",
        lambda manifest: (manifest.token_vector_size,),
        "vector",
        lambda manifest: manifest.token_vector_size > 0,
    ),
)
# Of the token vectors of one answer, 32 MiB: the longest text of BGE-M3 has them, 8,192 x 1,024.
MAX_VECTOR_VALUES = 2**23


@dataclass(frozen=True, slots=True)
class TokenWeights:
    """Weights by token id, in the order of the ids."""

    ids: np.ndarray
    weights: np.ndarray

    def heaviest(self, count: int) -> "TokenWeights":
        """The `count` largest weights, the first of equal ones."""
        if len(self.ids) <= count:
            return self
        kept = np.sort(np.argsort(-self.weights, kind="stable")[:count])
        return TokenWeights(self.ids[kept], self.weights[kept])


@dataclass(frozen=True, slots=True)
class KindsAsked:
    """The checked choice of a request."""

    kinds: tuple[str, ...]
    top_k: int = 0  # 0: all weights
    has_pieces: bool = False

    @classmethod
    def of(cls, call: Embed, manifest: Manifest) -> "KindsAsked":
        """Raises `InvalidArgument` for kinds that the model does not have."""
        known, top_k, has_pieces = kinds_of(manifest), call.top_k, call.with_pieces
        kinds = tuple(dict.fromkeys(_kind(each) or known[0] for each in call.kinds))
        for kind in kinds:
            if kind not in known:
                raise LacksKind(kind, known)
        kinds = kinds or known[:1]
        for name, value in (("top_k", top_k), ("with_pieces", has_pieces)):
            if value and SPARSE not in kinds:
                raise invalid_field(name, f"is {value}, but it is for sparse, which kinds lacks")
        return cls(kinds, top_k, has_pieces)

    def check_dense(self, dimensions: int, encodings: Sequence[str]) -> None:
        """Raise `InvalidArgument` for choices of a dense vector that is not asked for."""
        for name, is_chosen in (
            ("dimensions", dimensions),
            ("encodings", set(encodings) - {"float"}),
        ):
            if is_chosen and DENSE not in self.kinds:
                raise invalid_field(name, "is for dense, which kinds lacks")

    def reading(self, manifest: Manifest) -> Reading:
        """Outputs that are computed for it, and the bound of its texts."""
        if TOKEN_VECTORS not in self.kinds:
            return Reading()
        size = manifest.token_vector_size

        def check(rows: Sequence[EncodedText]) -> None:
            num_tokens = sum(row.num_tokens for row in rows)
            if num_tokens * size > MAX_VECTOR_VALUES:
                raise InvalidArgument(
                    f"the texts have {num_tokens} tokens in all, but an answer with token vectors "
                    f"may have {MAX_VECTOR_VALUES // size}: send fewer texts in a request",
                    "kinds",
                )

        return Reading(has_vectors=True, check=check)

    def further(self, model: TextTaskModel, reply: TextReply) -> Iterator[Fields]:
        """Each text's fields of an answer beside the dense vector; `InvalidArgument` at once."""
        sparse: Iterable[Fields] = repeat({})
        vectors: Iterable[Fields] = repeat({})
        if SPARSE in self.kinds:
            pieces_of = model.tokenizer if self.has_pieces else None
            sparse = [_sparse_fields(each, pieces_of) for each in self._sparse(model, reply)]
        if TOKEN_VECTORS in self.kinds:
            vectors = map(_vector_fields, reply.outputs["token_vectors"].per_text())
        parts = zip(reply.rows, sparse, vectors, strict=False)
        return ({**weights, **of_tokens} for _, weights, of_tokens in parts)

    def _sparse(self, model: TextTaskModel, reply: TextReply) -> list[TokenWeights]:
        vectors = sparse_vectors(model.manifest, reply)
        if self.top_k:
            vectors = [vector.heaviest(self.top_k) for vector in vectors]
        if (num_weights := sum(len(vector.ids) for vector in vectors)) > MAX_VALUES:
            raise invalid_field(
                "top_k",
                f"is {self.top_k}, and these texts have {num_weights} weights, an answer has at "
                f"most {MAX_VALUES}: set a lower top_k, or send fewer texts in a request",
            )
        return vectors


def kinds_of(manifest: Manifest) -> tuple[str, ...]:
    """The kinds of answer that an embedder has, the default first."""
    sizes = manifest.embedding_size, manifest.sparse_size, manifest.token_vector_size
    return tuple(kind for kind, size in zip(KINDS, sizes, strict=True) if size)


def sparse_vectors(manifest: Manifest, reply: TextReply) -> list[TokenWeights]:
    """Sparse vector of each text, from whichever output the model has for them."""
    if manifest.sparse_rows == "text":
        return [of_terms(row_V) for row_V in reply.outputs["term_weights"].values]
    unweighted = np.array(manifest.unweighted_token_ids, np.int64)
    weights = reply.outputs["token_weights"].per_text()
    return [
        of_tokens(row.input_ids[0], weights_S1[:, 0], unweighted)
        for row, weights_S1 in zip(reply.rows, weights, strict=True)
    ]


def of_terms(weights_V: np.ndarray) -> TokenWeights:
    ids = np.flatnonzero(weights_V > 0)
    return TokenWeights(ids, weights_V[ids])


def of_tokens(ids_S: np.ndarray, weights_S: np.ndarray, unweighted: np.ndarray) -> TokenWeights:
    """The largest weight of each token; tokens without one are left out."""
    kept = (weights_S > 0) & ~np.isin(ids_S, unweighted)
    ids, places = np.unique(ids_S[kept], return_inverse=True)
    weights = np.zeros(len(ids), np.float32)
    np.maximum.at(weights, places, weights_S[kept])
    return TokenWeights(ids, weights)


def _sparse_fields(vector: TokenWeights, tokenizer: TextTokenizer | None) -> Fields:
    ids = vector.ids.tolist()
    pieces = [tokenizer.spelling(token_id) for token_id in ids] if tokenizer is not None else []
    return {"sparse": records.SparseVector(ids, vector.weights, pieces)}


def _vector_fields(vectors: np.ndarray) -> Fields:
    return {"token_vectors": list(map(Row, vectors))}


def _kind(choice: Choice) -> str:
    if isinstance(choice, int):
        raise invalid_field("kinds", f"has {choice}, expected 0 to {len(KINDS)}")
    return choice
