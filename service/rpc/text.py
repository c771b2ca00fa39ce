"""`attendant.v1.TextService`: the typed API for text models."""

import time
from functools import partial
from typing import Any

import numpy as np
from attendant.v1 import text_pb2 as pb
from attendant.v1 import text_pb2_grpc

from service.errors import InvalidArgument, WrongTask
from service.generation.model import GenerativeModel
from service.models import ServedModel, TextModel, TextReply, softmax
from service.repository import ModelRepository
from service.request import Timings
from service.rpc.admission import Admission
from service.rpc.status import ATTENDANT_CODES, Context, answers_errors, deadline_of
from service.tokenizer import TokenPieces

TextRequest = pb.ClassifyRequest | pb.EmbedRequest | pb.TokenizeRequest
VERBS = {
    "text-classification": "classify",
    "embedding": "embed",
    "text-generation": "generate",
}


class TextService(text_pb2_grpc.TextServiceServicer):
    """Answers for the text models of the repository."""

    def __init__(self, repository: ModelRepository, admission: Admission, max_texts: int) -> None:
        self._repository = repository
        self._admission = admission
        self._max_texts = max_texts

    @answers_errors(ATTENDANT_CODES)
    async def Classify(self, request: pb.ClassifyRequest, context: Context) -> pb.ClassifyResponse:
        received_s = time.monotonic()
        model = self._find(request, "text-classification")
        count = _label_count(request, len(model.manifest.labels))
        reply = await self._compute(model, request, received_s, context)
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
        return pb.ClassifyResponse(**_answered_by(model, reply), results=results)

    @answers_errors(ATTENDANT_CODES)
    async def Embed(self, request: pb.EmbedRequest, context: Context) -> pb.EmbedResponse:
        received_s = time.monotonic()
        model = self._find(request, "embedding")
        reply = await self._compute(model, request, received_s, context)
        results = [
            pb.Embedding(values=values, num_tokens=row.num_tokens, is_truncated=row.is_truncated)
            for row, values in zip(reply.rows, reply.values.tolist(), strict=True)
        ]
        return pb.EmbedResponse(**_answered_by(model, reply), results=results)

    @answers_errors(ATTENDANT_CODES)
    async def Tokenize(self, request: pb.TokenizeRequest, context: Context) -> pb.TokenizeResponse:
        received_s = time.monotonic()
        model = self._find_for_texts(request)
        self._admission.admit(context)
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

    def _find(self, request: TextRequest, task: str) -> TextModel:
        """The model a request names, which does the task."""
        model = self._find_for_texts(request)
        if not isinstance(model, TextModel) or model.manifest.task != task:
            raise wrong_task(model, task)
        return model

    def _find_for_texts(self, request: TextRequest) -> TextModel | GenerativeModel:
        """The model a request names, with the request's texts within bounds."""
        model = self._repository.find(request.model, request.version)
        if not isinstance(model, TextModel | GenerativeModel):
            raise WrongTask(f"model '{model.name}' takes tensors, not texts")
        if not 1 <= len(request.texts) <= self._max_texts:
            raise InvalidArgument(
                f"texts has {len(request.texts)} elements, expected 1 to {self._max_texts}"
            )
        return model

    async def _compute(
        self,
        model: TextModel,
        request: pb.ClassifyRequest | pb.EmbedRequest,
        received_s: float,
        context: Context,
    ) -> TextReply:
        deadline_s = deadline_of(context)
        self._admission.admit(context)
        with model.users:
            return await model.compute(request.texts, received_s, deadline_s, request.truncate)


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


def wrong_task(model: TextModel | GenerativeModel, task: str) -> WrongTask:
    """A model that takes texts was asked for another task than its own."""
    return WrongTask(f"model '{model.name}' does {model.manifest.task}, it cannot {VERBS[task]}")


def _label_count(request: pb.ClassifyRequest, num_labels: int) -> int:
    """How many labels to return per text."""
    if request.all_scores and request.top_k:
        raise InvalidArgument(f"top_k is {request.top_k} and all_scores is set: give one of them")
    if request.top_k > num_labels:
        raise InvalidArgument(f"top_k is {request.top_k}, the model has {num_labels} labels")
    return num_labels if request.all_scores else request.top_k or 1


def _answered_by(model: ServedModel, reply: TextReply) -> dict[str, Any]:
    """The fields that every response on computed texts starts with."""
    return {
        "model": model.name,
        "version": str(model.version),
        "num_tokens": sum(row.num_tokens for row in reply.rows),
        "timings": _timings(reply.timings),
    }


def _timings(timings: Timings) -> pb.Timings:
    return pb.Timings(
        queue_seconds=timings.queue_s,
        compute_seconds=timings.compute_s,
        total_seconds=timings.total_s,
    )


def _describe(model: ServedModel) -> pb.Model:
    message = pb.Model(
        name=model.name,
        version=str(model.version),
        task="tensors",
        max_batch_size=model.config.max_batch_size,
    )
    if isinstance(model, TextModel | GenerativeModel):
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
    return message
