"""The records of each method's requests and answers."""

from typing import TypeAlias

import msgspec

from service.calls.features import Attend, Attention, ExtractFeatures, Features
from service.calls.generation import Generate, GenerateChunk, GenerateResponse
from service.calls.images import AttendImage, ClassifyImage, ImageAttention, ImageClassifications
from service.calls.models import ListModels, Models
from service.calls.reading import (
    Answer,
    Answers,
    ClassifyTokens,
    Entities,
    FilledTexts,
    FillMask,
)
from service.calls.texts import (
    Classifications,
    Classify,
    Embed,
    Embeddings,
    PairScores,
    Ranking,
    Rerank,
    ScorePairs,
    Similarities,
    Similarity,
)
from service.calls.tokens import Detokenize, Detokenized, Tokenize, Tokenized

Record: TypeAlias = type[msgspec.Struct]

# The record of an answer by that of its request, whose name is the method's.
ANSWERS: dict[Record, Record] = {
    Classify: Classifications,
    Embed: Embeddings,
    ScorePairs: PairScores,
    Rerank: Ranking,
    Similarity: Similarities,
    Tokenize: Tokenized,
    Detokenize: Detokenized,
    ListModels: Models,
    FillMask: FilledTexts,
    ClassifyTokens: Entities,
    Answer: Answers,
    ExtractFeatures: Features,
    Attend: Attention,
    ClassifyImage: ImageClassifications,
    AttendImage: ImageAttention,
}
# Both by the method's name, also of the methods that generate, which have one request.
RECORDS: dict[str, tuple[Record, Record]] = {
    **{call.__name__: (call, answer) for call, answer in ANSWERS.items()},
    "Generate": (Generate, GenerateChunk),
    "GenerateUnary": (Generate, GenerateResponse),
}
