"""Whole texts: their class by a classifier, their vector by an embedder, and vectors' similarity.

A model of word vectors embeds the mean of a text's known words. A text without any would be zeros,
and is refused with its unknown words named.
"""
# ruff: noqa: N803 - suffixes are array layouts: D values, N and M vectors

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import repeat

import numpy as np

from service.calls.answers import Row
from service.calls.texts import (
    Classification,
    Classify,
    Embed,
    Embedding,
    Similarity,
)
from service.contract.embedder_use import unit
from service.contract.manifest import Manifest
from service.contract.tensors import Signature, TensorSpec
from service.errors import invalid_field
from service.serving.tasks.embedding_kinds import DENSE, OUTPUTS, KindsAsked
from service.serving.tasks.embedding_options import (
    FLOAT,
    encodings_of,
    in_front,
    parameters_in_front,
    prompt_of,
    use_of,
    vector_fields,
    width_of,
)
from service.serving.tasks.task import (
    BYTES,
    FP32,
    SCORES,
    TEXT,
    Ask,
    Fields,
    GraphOutput,
    Method,
    Outputs,
    Parameters,
    TextReply,
    TextTask,
    TextTaskModel,
    chosen,
    column,
    label_count,
    ranked,
    row_fields,
)
from service.text.places import place_of
from service.text.tokenizer import EncodedText, Text, TokenRows

DEFAULT_MEASURE = "cosine"
MEASURES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "cosine": lambda texts_ND, others_MD: unit(texts_ND) @ unit(others_MD).T,
    "dot": lambda texts_ND, others_MD: texts_ND @ others_MD.T,
    "scaled_dot": lambda texts_ND, others_MD: (
        texts_ND @ others_MD.T / np.sqrt(np.float32(texts_ND.shape[1]))
    ),
    "euclidean": lambda texts_ND, others_MD: -_distances(texts_ND, others_MD, 2),
    "manhattan": lambda texts_ND, others_MD: -_distances(texts_ND, others_MD, 1),
}
MAX_NAMED_WORDS = 8  # in one error
MAX_WORD_CHARACTERS = 64


def _classify(call: Classify, model: TextTaskModel) -> Ask:
    labels = model.manifest.labels
    count = label_count(call.top_k, len(labels), all_scores=call.all_scores)
    own = model.manifest.scores_by
    scores_of = SCORES[chosen("score_function", call.score_function, tuple(SCORES), own)]

    def answer(reply: TextReply) -> Fields:
        best = ranked(scores_of(reply.values), labels, count)
        pairs = zip(reply.rows, best, strict=True)
        return {"results": [Classification(each, **row_fields(row)) for row, each in pairs]}

    return Ask(_texts_or_pairs(call), answer)


def _texts_or_pairs(call: Classify) -> Sequence[Text]:
    texts, seconds = call.texts, call.text_pairs
    if not seconds:
        return texts
    if len(seconds) != len(texts):
        raise invalid_field(
            "text_pairs",
            f"has {len(seconds)} elements, expected none, or {len(texts)} as texts has",
        )
    return list(zip(texts, seconds, strict=True))


def _class_tensors(model: TextTaskModel, _: Sequence[Text], reply: TextReply) -> Outputs:
    labels = [label.encode() for label in model.manifest.labels]
    scores = SCORES[model.manifest.scores_by](reply.values)
    return {
        "label": column([labels[index] for index in scores.argmax(axis=1).tolist()], object),
        "score": scores.max(axis=1, keepdims=True),
        "logits": reply.values,
    }


def _embed(call: Embed, model: TextTaskModel) -> Ask:
    asked, use = KindsAsked.of(call, model.manifest), use_of(model.manifest)
    rows = TokenRows(call.token_ids)
    prompt_name, prompt = call.prompt_name, call.prompt
    if rows and (prompt_name or prompt):
        name = "prompt_name" if prompt_name else "prompt"
        raise invalid_field(name, "is put in front of texts, expected none beside token_ids")
    in_use = "" if rows else prompt_of(model, prompt_name, prompt)
    asked.check_dense(call.dimensions, [str(each) or FLOAT for each in call.encodings])
    width = width_of(model.manifest, call.dimensions)
    encodings = encodings_of(model.manifest, call.encodings, width)

    def answer(reply: TextReply) -> Fields:
        vectors: Iterable[Fields] = repeat({})
        if DENSE in asked.kinds:
            vectors = vector_fields(use.cut(reply.values, width), encodings, use)
        parts = zip(reply.rows, vectors, asked.further(model, reply), strict=False)
        return {
            "results": [Embedding(**dense, **row_fields(row), **more) for row, dense, more in parts]
        }

    texts, reading = call.texts, asked.reading(model.manifest)
    num_bytes = len(in_use.encode()) * len(texts)
    return Ask(rows or in_front(in_use, texts), answer, num_bytes, reading)


def _compare(call: Similarity, model: TextTaskModel) -> Ask:
    texts, others, use = call.texts, call.others, use_of(model.manifest)
    default = use.similarity or DEFAULT_MEASURE
    measure = chosen("measure", call.measure, tuple(MEASURES), default)
    width = width_of(model.manifest, call.dimensions)
    prompt = prompt_of(model, call.prompt_name)
    prompt_of_others = prompt_of(model, call.others_prompt_name, field="others_prompt_name")

    def answer(reply: TextReply) -> Fields:
        values = use.cut(reply.values, width)
        vectors, compared_with = np.split(values, [len(texts)])
        similarities = similarity(measure, vectors, compared_with if len(others) else vectors)
        return {"rows": list(map(Row, similarities))}

    inputs = [*in_front(prompt, texts), *in_front(prompt_of_others, others)]
    num_bytes = len(prompt.encode()) * len(texts) + len(prompt_of_others.encode()) * len(others)

    def paths() -> dict[str, str]:
        return {f"texts[{len(texts) + place}]": f"others[{place}]" for place in range(len(others))}

    return Ask(inputs, answer, num_bytes, paths=paths)


def similarity(measure: str, texts_ND: np.ndarray, others_MD: np.ndarray) -> np.ndarray:
    """[N, M]: how alike each text is to each of the others."""
    return MEASURES[measure](texts_ND, others_MD)


def _distances(texts_ND: np.ndarray, others_MD: np.ndarray, order: int) -> np.ndarray:
    """[N, M]; one text at a time, so that no array has N x M x D values."""
    rows = [np.linalg.norm(others_MD - text_D, order, axis=1) for text_D in texts_ND]
    return np.stack(rows) if rows else np.empty((0, len(others_MD)), np.float32)


def _check_words(model: TextTaskModel, texts: Sequence[Text], rows: Sequence[EncodedText]) -> None:
    """Raise `InvalidArgument` for a text without any known word."""
    meaningless = model.tokenizer.meaningless_ids
    for index, (text, row) in enumerate(zip(texts, rows, strict=True)):
        if meaningless.issuperset(row.input_ids[0].tolist()):
            assert isinstance(text, str), "an embedder takes no pairs"
            words = list(dict.fromkeys(model.tokenizer.unknown_words(text)))
            raise place_of(index).refused(_without_vector(words))


def _without_vector(unknown: Sequence[str]) -> str:
    """The reason for which a text of these unknown words has no vector."""
    if not unknown:
        return "has no words, and the model has vectors of words"
    named = ", ".join(f"'{word[:MAX_WORD_CHARACTERS]}'" for word in unknown[:MAX_NAMED_WORDS])
    num_more = len(unknown) - MAX_NAMED_WORDS
    more = f" and {num_more} more" if num_more > 0 else ""
    noun = "unknown word" if len(unknown) == 1 else "unknown words"
    return f"has no word that the model knows: {noun} {named}{more}"


def _vector_tensors(
    model: TextTaskModel, parameters: Parameters
) -> Callable[[Sequence[Text], TextReply], Outputs]:
    use = use_of(model.manifest)
    width = width_of(model.manifest, parameters.get("dimensions", 0))
    return lambda _texts, reply: {_vector_spec(model.manifest).name: use.cut(reply.values, width)}


def _vector_spec(manifest: Manifest) -> TensorSpec:
    """The one vector of a text: weights of all words where an embedder has no other."""
    if manifest.embedding_size:
        return TensorSpec("embedding", FP32, (manifest.embedding_size,))
    return TensorSpec("term_weights", FP32, (manifest.sparse_size,))


CLASSIFICATION = TextTask(
    name="text-classification",
    verb="classify",
    outputs=(GraphOutput("logits", lambda manifest: (len(manifest.labels),)),),
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
    outputs=OUTPUTS,
    signature=lambda manifest: Signature(TEXT, (_vector_spec(manifest),)),
    prompted=parameters_in_front,
    tensors=_vector_tensors,
)
WORD_VECTORS = replace(EMBEDDING, check=_check_words)
METHODS = (
    Method(CLASSIFICATION, Classify, _classify),
    Method(EMBEDDING, Embed, _embed),
    Method(EMBEDDING, Similarity, _compare),
)
