"""How well the texts of pairs match, 0 to 1: of a query and a document, how relevant that is."""

from collections.abc import Sequence

import numpy as np

from service.contract.tensors import Signature, TensorSpec
from service.errors import invalid_field
from service.runtime.tokenizer import Text
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
    row_fields,
)


def _scores(logits: np.ndarray) -> np.ndarray:
    """The sigmoid of logits [N, 1]; large ones of either sign do not overflow."""
    scores: np.ndarray = np.float32(0.5) * (np.tanh(logits * np.float32(0.5)) + 1)
    return scores


def _ask(fields: Fields, _: TextTaskModel) -> Ask:
    texts, seconds = fields["texts"], fields["text_pairs"]
    if len(seconds) != len(texts):
        raise invalid_field(
            "text_pairs", f"has {len(seconds)} elements, expected {len(texts)} as texts has"
        )

    def answer(reply: TextReply) -> Fields:
        pairs = zip(reply.rows, _scores(reply.values)[:, 0].tolist(), strict=True)
        return {"results": [{"score": score, **row_fields(row)} for row, score in pairs]}

    return Ask(list(zip(texts, seconds, strict=True)), answer)


def _tensors(_: Sequence[Text], reply: TextReply) -> Outputs:
    return {"score": _scores(reply.values)}


PAIR_SCORING = TextTask(
    name="pair-scoring",
    verb="score pairs",
    output="logits",
    dims=lambda _: (1,),
    signature=lambda _: Signature(
        (*TEXT, TensorSpec("text_pair", BYTES, (1,))), (TensorSpec("score", FP32, (1,)),)
    ),
    tensors=lambda _model, _parameters: _tensors,
)
METHODS = (Method("ScorePairs", PAIR_SCORING, _ask, needs_pairs=True),)
