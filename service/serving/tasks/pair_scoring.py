"""Pair scoring: how well two texts match, or how relevant a document is to a query.

From 0 to 1, unless the manifest or the request says that a score is the logit.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from service.calls.texts import PairScore, RankedDocument, Rerank, ScorePairs
from service.contract.tensors import Signature, TensorSpec
from service.errors import invalid_field
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
    TextReply,
    TextTask,
    TextTaskModel,
    row_fields,
)
from service.text.pair_tokenizer import PairTokenizer, QueriedDocuments
from service.text.tokenizer import Text


def _scores_of(
    call: ScorePairs | Rerank, model: TextTaskModel
) -> Callable[[np.ndarray], np.ndarray]:
    """Function that makes scores of logits [N, 1]: the request's choice, or the model's own."""
    is_raw = call.raw_scores
    if is_raw is None:
        return SCORES[model.manifest.scores_by]
    return SCORES["identity" if is_raw else "sigmoid"]


def _score(call: ScorePairs, model: TextTaskModel) -> Ask:
    texts, seconds = call.texts, call.text_pairs
    if len(seconds) != len(texts):
        raise invalid_field(
            "text_pairs", f"has {len(seconds)} elements, expected {len(texts)} as texts has"
        )

    scores_of = _scores_of(call, model)

    def answer(reply: TextReply) -> Fields:
        pairs = zip(reply.rows, scores_of(reply.values)[:, 0].tolist(), strict=True)
        return {"results": [PairScore(score, **row_fields(row)) for row, score in pairs]}

    return Ask(list(zip(texts, seconds, strict=True)), answer)


def _rerank(call: Rerank, model: TextTaskModel) -> Ask:
    count, scores_of = call.top_n, _scores_of(call, model)
    pairs = QueriedDocuments(call.query, call.documents, call.max_document_tokens)

    def answer(reply: TextReply) -> Fields:
        scores = scores_of(reply.values)[:, 0].tolist()
        # By logits: the sigmoids of large ones are equal.
        order = np.argsort(-reply.values[:, 0], kind="stable").tolist()
        best = order[:count] if count else order
        return {
            "results": [
                RankedDocument(index, scores[index], **row_fields(reply.rows[index]))
                for index in best
            ]
        }

    return Ask(pairs, answer)


def _tensors(model: TextTaskModel, _: Sequence[Text], reply: TextReply) -> Outputs:
    return {"score": SCORES[model.manifest.scores_by](reply.values)}


PAIR_SCORING = TextTask(
    name="pair-scoring",
    verb="score pairs",
    outputs=(GraphOutput("logits", lambda _: (1,)),),
    tokenizer=PairTokenizer,
    signature=lambda _: Signature(
        (*TEXT, TensorSpec("text_pair", BYTES, (1,))), (TensorSpec("score", FP32, (1,)),)
    ),
    tensors=lambda model, _: partial(_tensors, model),
)
METHODS = (
    Method(PAIR_SCORING, ScorePairs, _score),
    Method(PAIR_SCORING, Rerank, _rerank),
)
