"""`attendant.v1.ReadingService`: the typed API for models that read texts word by word."""

from collections.abc import Callable

from attendant.v1 import reading_pb2 as pb
from attendant.v1 import reading_pb2_grpc

from service.answers import NUM_BEST
from service.errors import InvalidArgument
from service.fill_model import FilledMask, FillMaskModel
from service.reading import MAX_ANSWER_TOKENS, QuestionAnswerer, TokenClassifier
from service.rpc.status import ATTENDANT_CODES, Context, answers_errors, caller_of
from service.rpc.text_calls import TextCalls, answered_by


class ReadingService(TextCalls, reading_pb2_grpc.ReadingServiceServicer):
    """Answers for the text models of the repository."""

    @answers_errors(ATTENDANT_CODES)
    async def FillMask(self, request: pb.FillMaskRequest, context: Context) -> pb.FillMaskResponse:
        caller = caller_of(context)
        model = self._find(request, "fill-mask", FillMaskModel)
        self._check_count(len(request.texts))
        wanted = model.wanted(request.top_k, request.candidates)
        reply = await self._compute(model, request.texts, caller, can_truncate=request.truncate)
        spelling = model.tokenizer.spelling
        results = [
            pb.FilledText(
                masks=[_mask_message(mask, spelling) for mask in masks],
                num_tokens=row.num_tokens,
                is_truncated=row.is_truncated,
            )
            for row, masks in zip(reply.rows, model.filled(reply, wanted), strict=True)
        ]
        return pb.FillMaskResponse(**answered_by(model, reply), results=results)

    @answers_errors(ATTENDANT_CODES)
    async def ClassifyTokens(
        self, request: pb.ClassifyTokensRequest, context: Context
    ) -> pb.ClassifyTokensResponse:
        caller = caller_of(context)
        model = self._find(request, "token-classification", TokenClassifier)
        self._check_count(len(request.texts))
        reply = await self._compute(model, request.texts, caller, can_truncate=request.truncate)
        found = await model.interpreted(reply, lambda: model.entities(request.texts, reply))
        results = [
            pb.TextEntities(
                entities=[
                    pb.Entity(
                        label=entity.label,
                        text=text[entity.start : entity.end],
                        start=entity.start,
                        end=entity.end,
                        score=entity.score,
                    )
                    for entity in entities
                ],
                num_tokens=row.num_tokens,
                is_truncated=row.is_truncated,
            )
            for text, row, entities in zip(request.texts, reply.rows, found, strict=True)
        ]
        return pb.ClassifyTokensResponse(**answered_by(model, reply), results=results)

    @answers_errors(ATTENDANT_CODES)
    async def Answer(self, request: pb.AnswerRequest, context: Context) -> pb.AnswerResponse:
        caller = caller_of(context)
        model = self._find(request, "question-answering", QuestionAnswerer)
        max_tokens = model.manifest.max_tokens
        if request.max_answer_tokens > max_tokens:
            raise InvalidArgument(
                f"max_answer_tokens is {request.max_answer_tokens}, the model takes {max_tokens}"
            )
        if request.top_k > NUM_BEST:
            raise InvalidArgument(f"top_k is {request.top_k}, expected at most {NUM_BEST}")
        pairs = [(request.question, request.context)]
        reply = await self._compute(model, pairs, caller)
        longest, count = request.max_answer_tokens or MAX_ANSWER_TOKENS, request.top_k or 1
        (found,) = await model.interpreted(reply, lambda: model.answers(reply, longest, count))
        spans = found.spans if request.must_answer or found.is_answered else []
        return pb.AnswerResponse(
            **answered_by(model, reply),
            answers=[
                pb.SpanAnswer(
                    text=request.context[span.start : span.end],
                    start=span.start,
                    end=span.end,
                    score=span.score,
                )
                for span in spans
            ],
            no_answer_score=found.no_answer_score,
            num_windows=len(reply.rows),
        )


def _mask_message(mask: FilledMask, spelling: Callable[[int], str]) -> pb.FilledMask:
    fills = [
        pb.Fill(
            token_id=fill.token_id,
            token=spelling(fill.token_id),
            score=fill.score,
            logprob=fill.logprob,
        )
        for fill in mask.fills
    ]
    return pb.FilledMask(start=mask.start, end=mask.end, fills=fills)
