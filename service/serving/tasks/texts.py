"""Whole texts: their class by a classifier, their vector by an embedder, and vectors' similarity.

A model of word vectors embeds the mean of a text's known words. A text without any would be zeros,
and is refused with its unknown words named.
"""
# ruff: noqa: N803, N806 - suffixes are array layouts: D values, N and M vectors

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from service.contract.tensors import Signature, TensorSpec
from service.errors import InvalidArgument, invalid_field
from service.runtime.tokenizer import EncodedText, Text, TokenRows
from service.serving.tasks.task import (
    BYTES,
    FP32,
    TEXT,
    Ask,
    Fields,
    Method,
    Outputs,
    TextReply,
    TextTask,
    TextTaskModel,
    chosen,
    column,
    label_count,
    ranked,
    row_fields,
    softmax,
)

DEFAULT_MEASURE = "cosine"
MEASURES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "cosine": lambda texts_ND, others_MD: unit(texts_ND) @ unit(others_MD).T,
    "dot": lambda texts_ND, others_MD: texts_ND @ others_MD.T,
    "scaled_dot": lambda texts_ND, others_MD: (
        texts_ND @ others_MD.T / np.float32(math.sqrt(texts_ND.shape[1]))
    ),
}
SMALLEST_LENGTH = 1e-12  # of a vector that has a direction
MAX_NAMED_WORDS = 8  # in one error
MAX_WORD_CHARACTERS = 64


def _classify(fields: Fields, model: TextTaskModel) -> Ask:
    labels = model.manifest.labels
    count = label_count(fields, len(labels))

    def answer(reply: TextReply) -> Fields:
        best = ranked(reply.values, labels, count)
        pairs = zip(reply.rows, best, strict=True)
        return {"results": [{"labels": each, **row_fields(row)} for row, each in pairs]}

    return Ask(_texts_or_pairs(fields), answer)


def _texts_or_pairs(fields: Fields) -> Sequence[Text]:
    texts, seconds = fields["texts"], fields["text_pairs"]
    if not seconds:
        return texts  # type: ignore[no-any-return]
    if len(seconds) != len(texts):
        raise invalid_field(
            "text_pairs",
            f"has {len(seconds)} elements, expected none, or {len(texts)} as texts has",
        )
    return list(zip(texts, seconds, strict=True))


def _class_tensors(model: TextTaskModel, _: Sequence[Text], reply: TextReply) -> Outputs:
    labels = [label.encode() for label in model.manifest.labels]
    scores = softmax(reply.values)
    return {
        "label": column([labels[index] for index in scores.argmax(axis=1).tolist()], object),
        "score": scores.max(axis=1, keepdims=True),
        "logits": reply.values,
    }


def _embed(fields: Fields, _: TextTaskModel) -> Ask:
    def answer(reply: TextReply) -> Fields:
        pairs = zip(reply.rows, reply.values, strict=True)
        return {
            "results": ({"values": vector.tolist(), **row_fields(row)} for row, vector in pairs)
        }

    rows = TokenRows(row.ids for row in fields["token_ids"])
    return Ask(rows or fields["texts"], answer)


def _compare(fields: Fields, _: TextTaskModel) -> Ask:
    texts, others = fields["texts"], fields["others"]
    measure = chosen("SimilarityMeasure", fields["measure"], tuple(MEASURES), DEFAULT_MEASURE)

    def answer(reply: TextReply) -> Fields:
        vectors, compared_with = np.split(reply.values, [len(texts)])
        similarities = similarity(measure, vectors, compared_with if len(others) else vectors)
        return {"rows": ({"values": row.tolist()} for row in similarities)}

    return Ask([*texts, *others], answer)


def similarity(measure: str, texts_ND: np.ndarray, others_MD: np.ndarray) -> np.ndarray:
    """[N, M]: how alike each text is to each of the others."""
    return MEASURES[measure](texts_ND, others_MD)


def unit(vectors_ND: np.ndarray) -> np.ndarray:
    """[N, D] of length 1; a vector without direction stays what it is."""
    lengths_N1 = np.linalg.norm(vectors_ND, axis=1, keepdims=True)
    units_ND: np.ndarray = vectors_ND / np.maximum(lengths_N1, SMALLEST_LENGTH)
    return units_ND


def _check_words(model: TextTaskModel, texts: Sequence[Text], rows: Sequence[EncodedText]) -> None:
    """Raise `InvalidArgument` for a text without any known word."""
    meaningless = model.tokenizer.meaningless_ids
    for index, (text, row) in enumerate(zip(texts, rows, strict=True)):
        if meaningless.issuperset(row.input_ids[0].tolist()):
            assert isinstance(text, str), "an embedder takes no pairs"
            words = list(dict.fromkeys(model.tokenizer.unknown_words(text)))
            raise InvalidArgument(f"text {index} {_without_vector(words)}")


def _without_vector(unknown: Sequence[str]) -> str:
    """The reason for which a text of these unknown words has no vector."""
    if not unknown:
        return "has no words, and the model has vectors of words"
    named = ", ".join(f"'{word[:MAX_WORD_CHARACTERS]}'" for word in unknown[:MAX_NAMED_WORDS])
    num_more = len(unknown) - MAX_NAMED_WORDS
    more = f" and {num_more} more" if num_more > 0 else ""
    noun = "unknown word" if len(unknown) == 1 else "unknown words"
    return f"has no word that the model knows: {noun} {named}{more}"


CLASSIFICATION = TextTask(
    name="text-classification",
    verb="classify",
    output="logits",
    dims=lambda manifest: (len(manifest.labels),),
    signature=lambda manifest: Signature(
        (*TEXT, TensorSpec("text_pair", BYTES, (1,), is_optional=True)),
        (
            TensorSpec("label", BYTES, (1,)),
            TensorSpec("score", FP32, (1,)),
            TensorSpec("logits", FP32, (len(manifest.labels),)),
        ),
    ),
    tensors=lambda model, _: partial(_class_tensors, model),
)
EMBEDDING = TextTask(
    name="embedding",
    verb="embed",
    output="embedding",
    dims=lambda manifest: (manifest.embedding_size,),
    signature=lambda manifest: Signature(
        TEXT, (TensorSpec("embedding", FP32, (manifest.embedding_size,)),)
    ),
    tensors=lambda _model, _parameters: lambda _texts, reply: {"embedding": reply.values},
)
WORD_VECTORS = replace(EMBEDDING, check=_check_words)
METHODS = (
    Method("Classify", CLASSIFICATION, _classify),
    Method("Embed", EMBEDDING, _embed, instead="token_ids"),
    Method("Similarity", EMBEDDING, _compare, counted=("texts", "others")),
)
