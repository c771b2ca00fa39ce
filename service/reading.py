"""Served models that read a text token by token: for entities, and for answers to questions."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from service.answers import Answers, Window, answers_of
from service.entities import Entity, entities_of, words_of
from service.models import InferRequest, TextModel, TextReply, decode, softmax
from service.request import Arrays
from service.tokenizer import EncodedText, Text, WindowTokenizer

MAX_ANSWER_TOKENS = 30  # where a request does not say, as in SQuAD's baselines


class TokenClassifier(TextModel):
    """Finds the entities of texts."""

    def entities(self, texts: Sequence[str], reply: TextReply) -> list[list[Entity]]:
        """Of each text, in their order."""
        return [
            self._entities(text, row, logits)
            for text, row, logits in zip(texts, reply.rows, reply.per_text(), strict=True)
        ]

    def _entities(self, text: str, row: EncodedText, logits: np.ndarray) -> list[Entity]:
        assert row.encoding is not None, "its task's rows are of tokens"
        words = words_of(row.encoding.word_ids, row.encoding.offsets, text)
        return entities_of(softmax(logits), self.manifest.labels, words)

    def _outputs_of(self, reply: TextReply, request: InferRequest) -> dict[str, np.ndarray]:
        """`entities`: a JSON list for each text."""
        texts = decode(request.inputs["text"])
        found = [
            json.dumps([entity_fields(text, entity) for entity in entities]).encode()
            for text, entities in zip(texts, self.entities(texts, reply), strict=True)
        ]
        return {"entities": np.array(found, object)[:, None]}


def entity_fields(text: str, entity: Entity) -> dict[str, Any]:
    return {
        "label": entity.label,
        "text": text[entity.start : entity.end],
        "start": entity.start,
        "end": entity.end,
        "score": round(entity.score, 6),
    }


class QuestionAnswerer(TextModel):
    """Finds answers in contexts, which are read in windows where they are long.

    Every window is an item of its own in batching, and a row of the reply.
    """

    tokenizer_type = WindowTokenizer

    def answers(
        self, reply: TextReply, max_answer_tokens: int = MAX_ANSWER_TOKENS, count: int = 1
    ) -> list[Answers]:
        """Of each question, in their order."""
        windows: dict[int, list[Window]] = {}
        for row, logits in zip(reply.rows, reply.per_text(), strict=True):
            assert row.encoding is not None, "its task's rows are of tokens"
            is_context = np.array([part == 1 for part in row.encoding.sequence_ids])
            window = Window(logits, np.array(row.encoding.offsets), is_context)
            windows.setdefault(row.text_index, []).append(window)
        return [answers_of(found, max_answer_tokens, count) for found in windows.values()]

    @staticmethod
    def texts_of(inputs: Arrays) -> Sequence[Text]:
        questions, contexts = (decode(inputs[name]) for name in ("question", "context"))
        return list(zip(questions, contexts, strict=True))

    def _outputs_of(self, reply: TextReply, request: InferRequest) -> dict[str, np.ndarray]:
        """The best answer to each question; empty, with the score of there being none."""
        contexts = decode(request.inputs["context"])
        best = [
            (found.spans[0].start, found.spans[0].end, found.spans[0].score)
            if found.is_answered
            else (0, 0, found.no_answer_score)
            for found in self.answers(reply)
        ]
        texts = [
            context[start:end].encode()
            for context, (start, end, _) in zip(contexts, best, strict=True)
        ]
        return {
            "answer": np.array(texts, object)[:, None],
            "score": np.array([score for _, _, score in best], np.float32)[:, None],
            "start": np.array([start for start, _, _ in best], np.int32)[:, None],
            "end": np.array([end for _, end, _ in best], np.int32)[:, None],
        }
