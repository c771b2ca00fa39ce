"""`attendant.v1.FeatureService`: the typed API for what models make of texts on the way."""

import numpy as np
from attendant.v1 import features_pb2 as pb
from attendant.v1 import features_pb2_grpc, text_pb2
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper

from service.attention_model import MAX_VALUES, AttentionModel, WantedMatrices
from service.errors import InvalidArgument
from service.feature_model import FeatureModel
from service.features import DEFAULT_LAYERS, DEFAULT_MEASURE, DEFAULT_POOLING, Features, similarity
from service.models import TextModel, TextReply
from service.rpc.status import ATTENDANT_CODES, Context, answers_errors, caller_of
from service.rpc.text_calls import TextCalls, answered_by
from service.tokenizer import EncodedText


class FeatureService(TextCalls, features_pb2_grpc.FeatureServiceServicer):
    """Answers for the text models of the repository."""

    @answers_errors(ATTENDANT_CODES)
    async def ExtractFeatures(
        self, request: pb.ExtractFeaturesRequest, context: Context
    ) -> pb.ExtractFeaturesResponse:
        caller = caller_of(context)
        model = self._find(request, "features", FeatureModel)
        self._check_count(len(request.texts))
        features = Features(
            _name_of(pb.Layers, request.layers, DEFAULT_LAYERS),
            _name_of(pb.Pooling, request.pooling, DEFAULT_POOLING),
            request.weights,
        )
        features.check(model.manifest.num_layers)
        reply = await self._compute(model, request.texts, caller, can_truncate=request.truncate)
        results = await model.interpreted(reply, lambda: _features_of(reply, features))
        return pb.ExtractFeaturesResponse(**answered_by(model, reply), results=results)

    @answers_errors(ATTENDANT_CODES)
    async def Similarity(
        self, request: pb.SimilarityRequest, context: Context
    ) -> pb.SimilarityResponse:
        caller = caller_of(context)
        model = self._find(request, "embedding", TextModel)
        self._check_count(len(request.texts))
        self._check_count(len(request.texts) + len(request.others), "texts and others")
        measure = _name_of(pb.SimilarityMeasure, request.measure, DEFAULT_MEASURE)
        reply = await self._compute(
            model,
            [*request.texts, *request.others],
            caller,
            can_truncate=request.truncate,
        )
        texts, others = np.split(reply.values, [len(request.texts)])
        found = similarity(measure, texts, others if request.others else texts)
        rows = [pb.SimilarityRow(values=values) for values in found.tolist()]
        return pb.SimilarityResponse(**answered_by(model, reply), rows=rows)

    @answers_errors(ATTENDANT_CODES)
    async def Attend(self, request: pb.AttendRequest, context: Context) -> pb.AttendResponse:
        caller = caller_of(context)
        model = self._find(request, "attention", AttentionModel)
        wanted = model.wanted(request.layers, request.heads)
        text = model.text_of(request.text, request.target)
        reply = await self._compute(model, [text], caller)
        matrices = await model.interpreted(reply, lambda: _matrices_of(reply, wanted))
        (keys,) = reply.rows
        queries = keys.target or keys
        fields = answered_by(model, reply)
        if keys.target is not None:
            fields["num_tokens"] += keys.target.num_tokens
        return pb.AttendResponse(
            **fields,
            queries=tokens_of(queries),
            keys=tokens_of(keys),
            matrices=matrices,
        )


def _matrices_of(reply: TextReply, wanted: WantedMatrices) -> list[pb.AttentionMatrix]:
    return [
        pb.AttentionMatrix(layer=layer, head=head, weights=weights.ravel().tolist())
        for layer, of_heads in zip(wanted.layers, wanted.of(reply.values[0]), strict=True)
        for head, weights in zip(wanted.heads, of_heads, strict=True)
    ]


def _features_of(reply: TextReply, features: Features) -> list[pb.TextFeatures]:
    """Of each text, or `InvalidArgument` where they are too many for one answer."""
    found = [features.of(states) for states in reply.per_text()]
    if (num_values := sum(vectors.size for vectors in found)) > MAX_VALUES:
        raise InvalidArgument(
            f"the features of these texts are {num_values} values, an answer has at most "
            f"{MAX_VALUES}: ask for fewer texts, fewer layers or pooling"
        )
    return [
        pb.TextFeatures(
            vectors=[pb.FeatureVector(values=values) for values in vectors.tolist()],
            tokens=tokens_of(row) if features.pooling == "none" else (),
            num_tokens=row.num_tokens,
            is_truncated=row.is_truncated,
        )
        for row, vectors in zip(reply.rows, found, strict=True)
    ]


def tokens_of(row: EncodedText) -> list[text_pb2.Token]:
    """The tokens of a text, and where in it they are."""
    encoding = row.encoding
    assert encoding is not None, "the tokenizer of such a model keeps them"
    return [
        text_pb2.Token(id=token_id, piece=piece, start=start, end=end)
        for token_id, piece, (start, end) in zip(
            encoding.ids, encoding.tokens, encoding.offsets, strict=True
        )
    ]


def _name_of(choices: EnumTypeWrapper, number: int, default: str) -> str:
    """What a choice is called in `features.py`; the first one, 0, stands for the default."""
    if number == 0:
        return default
    if number not in choices.values():
        raise InvalidArgument(
            f"{choices.DESCRIPTOR.name} is {number}, expected 0 to {max(choices.values())}"
        )
    prefix = choices.Name(0).removesuffix("UNSPECIFIED")
    return choices.Name(number).removeprefix(prefix).lower()
