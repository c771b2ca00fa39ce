"""`attendant.v1.TextService`: the typed API for text models."""

import time
from collections.abc import Sequence
from functools import partial
from typing import Protocol

import numpy as np
from attendant.v1 import text_pb2 as pb
from attendant.v1 import text_pb2_grpc

from service.errors import InvalidArgument
from service.generation.model import GenerativeModel
from service.image_model import ImageModel
from service.models import ServedModel, TextModel, softmax
from service.rpc.status import ATTENDANT_CODES, Context, answers_errors, caller_of
from service.rpc.text_calls import TextCalls, answered_by
from service.sequence_model import SequenceModel
from service.tokenizer import Text, TokenPieces

MAX_LISTED_SYMBOLS = 256  # of a model


class Ranked(Protocol):
    """A message that says how many labels it wants."""

    @property
    def top_k(self) -> int: ...

    @property
    def all_scores(self) -> bool: ...


class TextService(TextCalls, text_pb2_grpc.TextServiceServicer):
    """Answers for the text models of the repository."""

    @answers_errors(ATTENDANT_CODES)
    async def Classify(self, request: pb.ClassifyRequest, context: Context) -> pb.ClassifyResponse:
        caller = caller_of(context)
        model = self._find(request, "text-classification", TextModel)
        self._check_count(len(request.texts))
        count = label_count(request, len(model.manifest.labels))
        reply = await self._compute(
            model, _texts_or_pairs(request), caller, can_truncate=request.truncate
        )
        scores = softmax(reply.values)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :count]
        labels = model.manifest.labels
        results = [
            pb.Classification(
                labels=[
                    pb.LabelScore(label=labels[index], score=row_scores[index]) for index in best
                ],
                num_tokens=row.num_tokens,
                is_truncated=row.is_truncated,
            )
            for row, row_scores, best in zip(reply.rows, scores, order, strict=True)
        ]
        return pb.ClassifyResponse(**answered_by(model, reply), results=results)

    @answers_errors(ATTENDANT_CODES)
    async def Embed(self, request: pb.EmbedRequest, context: Context) -> pb.EmbedResponse:
        caller = caller_of(context)
        model = self._find(request, "embedding", TextModel)
        self._check_count(len(request.texts))
        reply = await self._compute(model, request.texts, caller, can_truncate=request.truncate)
        results = [
            pb.Embedding(values=values, num_tokens=row.num_tokens, is_truncated=row.is_truncated)
            for row, values in zip(reply.rows, reply.values.tolist(), strict=True)
        ]
        return pb.EmbedResponse(**answered_by(model, reply), results=results)

    @answers_errors(ATTENDANT_CODES)
    async def Tokenize(self, request: pb.TokenizeRequest, context: Context) -> pb.TokenizeResponse:
        received_s = time.monotonic()
        model = self._find_any(request)
        self._check_count(len(request.texts))
        self._admission.admit()
        told = partial(_tokenized, max_tokens=model.manifest.max_tokens)
        results = await model.pieces(request.texts, told)
        timings = pb.Timings(total_seconds=time.monotonic() - received_s)
        return pb.TokenizeResponse(
            model=model.name,
            version=str(model.version),
            num_tokens=sum(result.num_tokens for result in results),
            timings=timings,
            results=results,
        )

    @answers_errors(ATTENDANT_CODES)
    async def ListModels(
        self, request: pb.ListModelsRequest, context: Context
    ) -> pb.ListModelsResponse:
        return pb.ListModelsResponse(models=map(_describe, self._repository.models()))


def _texts_or_pairs(request: pb.ClassifyRequest) -> Sequence[Text]:
    num_texts, num_pairs = len(request.texts), len(request.text_pairs)
    if not num_pairs:
        return request.texts
    if num_pairs != num_texts:
        raise InvalidArgument(
            f"text_pairs has {num_pairs} elements, expected none, or {num_texts} as texts has"
        )
    return list(zip(request.texts, request.text_pairs, strict=True))


def _tokenized(text: TokenPieces, max_tokens: int) -> pb.TokenizedText:
    return pb.TokenizedText(
        tokens=[
            pb.Token(id=token_id, piece=piece, start=start, end=end)
            for token_id, piece, (start, end) in zip(
                text.ids, text.pieces, text.offsets, strict=True
            )
        ],
        num_tokens=len(text.ids),
        is_too_long=len(text.ids) > max_tokens,
    )


def label_count(request: Ranked, num_labels: int) -> int:
    """How many labels to return of each."""
    if request.all_scores and request.top_k:
        raise InvalidArgument(f"top_k is {request.top_k} and all_scores is set: give one of them")
    if request.top_k > num_labels:
        raise InvalidArgument(f"top_k is {request.top_k}, the model has {num_labels} labels")
    return num_labels if request.all_scores else request.top_k or 1


def _describe(model: ServedModel) -> pb.Model:
    message = pb.Model(
        name=model.name,
        version=str(model.version),
        task="tensors",
        max_batch_size=model.interface.max_batch_size,
    )
    if isinstance(model, TextModel | GenerativeModel | ImageModel | SequenceModel):
        manifest = model.manifest
        text_fields = pb.Model(
            task=manifest.task,
            precision=manifest.precision,
            max_tokens=manifest.max_tokens,
            labels=manifest.labels,
            embedding_size=manifest.embedding_size,
            pooling=manifest.pooling,
            example=manifest.example,
            origin=manifest.origin,
        )
        message.MergeFrom(text_fields)
    if isinstance(model, SequenceModel):
        message.symbols.extend(model.symbols[:MAX_LISTED_SYMBOLS])
    return message
