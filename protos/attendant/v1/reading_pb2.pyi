from attendant.v1 import text_pb2 as _text_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Aggregation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    AGGREGATION_UNSPECIFIED: _ClassVar[Aggregation]
    AGGREGATION_NONE: _ClassVar[Aggregation]
    AGGREGATION_SIMPLE: _ClassVar[Aggregation]
    AGGREGATION_FIRST: _ClassVar[Aggregation]
    AGGREGATION_AVERAGE: _ClassVar[Aggregation]
    AGGREGATION_MAX: _ClassVar[Aggregation]
AGGREGATION_UNSPECIFIED: Aggregation
AGGREGATION_NONE: Aggregation
AGGREGATION_SIMPLE: Aggregation
AGGREGATION_FIRST: Aggregation
AGGREGATION_AVERAGE: Aggregation
AGGREGATION_MAX: Aggregation

class FillMaskRequest(_message.Message):
    __slots__ = ("model", "version", "texts", "truncate", "top_k", "candidates")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    TRUNCATE_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: str
    texts: _containers.RepeatedScalarFieldContainer[str]
    truncate: bool
    top_k: int
    candidates: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, model: _Optional[str] = ..., version: _Optional[str] = ..., texts: _Optional[_Iterable[str]] = ..., truncate: _Optional[bool] = ..., top_k: _Optional[int] = ..., candidates: _Optional[_Iterable[str]] = ...) -> None: ...

class FillMaskResponse(_message.Message):
    __slots__ = ("model", "version", "num_tokens", "timings", "results")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: str
    num_tokens: int
    timings: _text_pb2.Timings
    results: _containers.RepeatedCompositeFieldContainer[FilledText]
    def __init__(self, model: _Optional[str] = ..., version: _Optional[str] = ..., num_tokens: _Optional[int] = ..., timings: _Optional[_Union[_text_pb2.Timings, _Mapping]] = ..., results: _Optional[_Iterable[_Union[FilledText, _Mapping]]] = ...) -> None: ...

class FilledText(_message.Message):
    __slots__ = ("masks", "num_tokens", "is_truncated")
    MASKS_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    IS_TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    masks: _containers.RepeatedCompositeFieldContainer[FilledMask]
    num_tokens: int
    is_truncated: bool
    def __init__(self, masks: _Optional[_Iterable[_Union[FilledMask, _Mapping]]] = ..., num_tokens: _Optional[int] = ..., is_truncated: _Optional[bool] = ...) -> None: ...

class FilledMask(_message.Message):
    __slots__ = ("start", "end", "fills")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    FILLS_FIELD_NUMBER: _ClassVar[int]
    start: int
    end: int
    fills: _containers.RepeatedCompositeFieldContainer[Fill]
    def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ..., fills: _Optional[_Iterable[_Union[Fill, _Mapping]]] = ...) -> None: ...

class Fill(_message.Message):
    __slots__ = ("token_id", "token", "score", "logprob")
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    LOGPROB_FIELD_NUMBER: _ClassVar[int]
    token_id: int
    token: str
    score: float
    logprob: float
    def __init__(self, token_id: _Optional[int] = ..., token: _Optional[str] = ..., score: _Optional[float] = ..., logprob: _Optional[float] = ...) -> None: ...

class ClassifyTokensRequest(_message.Message):
    __slots__ = ("model", "version", "texts", "truncate", "aggregation", "background")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    TRUNCATE_FIELD_NUMBER: _ClassVar[int]
    AGGREGATION_FIELD_NUMBER: _ClassVar[int]
    BACKGROUND_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: str
    texts: _containers.RepeatedScalarFieldContainer[str]
    truncate: bool
    aggregation: Aggregation
    background: bool
    def __init__(self, model: _Optional[str] = ..., version: _Optional[str] = ..., texts: _Optional[_Iterable[str]] = ..., truncate: _Optional[bool] = ..., aggregation: _Optional[_Union[Aggregation, str]] = ..., background: _Optional[bool] = ...) -> None: ...

class ClassifyTokensResponse(_message.Message):
    __slots__ = ("model", "version", "num_tokens", "timings", "results")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: str
    num_tokens: int
    timings: _text_pb2.Timings
    results: _containers.RepeatedCompositeFieldContainer[TextEntities]
    def __init__(self, model: _Optional[str] = ..., version: _Optional[str] = ..., num_tokens: _Optional[int] = ..., timings: _Optional[_Union[_text_pb2.Timings, _Mapping]] = ..., results: _Optional[_Iterable[_Union[TextEntities, _Mapping]]] = ...) -> None: ...

class TextEntities(_message.Message):
    __slots__ = ("entities", "num_tokens", "is_truncated")
    ENTITIES_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    IS_TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    entities: _containers.RepeatedCompositeFieldContainer[Entity]
    num_tokens: int
    is_truncated: bool
    def __init__(self, entities: _Optional[_Iterable[_Union[Entity, _Mapping]]] = ..., num_tokens: _Optional[int] = ..., is_truncated: _Optional[bool] = ...) -> None: ...

class Entity(_message.Message):
    __slots__ = ("label", "text", "start", "end", "score")
    LABEL_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    label: str
    text: str
    start: int
    end: int
    score: float
    def __init__(self, label: _Optional[str] = ..., text: _Optional[str] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., score: _Optional[float] = ...) -> None: ...

class AnswerRequest(_message.Message):
    __slots__ = ("model", "version", "question", "context", "top_k", "max_answer_tokens", "must_answer")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    MAX_ANSWER_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MUST_ANSWER_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: str
    question: str
    context: str
    top_k: int
    max_answer_tokens: int
    must_answer: bool
    def __init__(self, model: _Optional[str] = ..., version: _Optional[str] = ..., question: _Optional[str] = ..., context: _Optional[str] = ..., top_k: _Optional[int] = ..., max_answer_tokens: _Optional[int] = ..., must_answer: _Optional[bool] = ...) -> None: ...

class AnswerResponse(_message.Message):
    __slots__ = ("model", "version", "num_tokens", "timings", "answers", "no_answer_score", "num_windows", "windows")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    NO_ANSWER_SCORE_FIELD_NUMBER: _ClassVar[int]
    NUM_WINDOWS_FIELD_NUMBER: _ClassVar[int]
    WINDOWS_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: str
    num_tokens: int
    timings: _text_pb2.Timings
    answers: _containers.RepeatedCompositeFieldContainer[SpanAnswer]
    no_answer_score: float
    num_windows: int
    windows: _containers.RepeatedCompositeFieldContainer[ContextWindow]
    def __init__(self, model: _Optional[str] = ..., version: _Optional[str] = ..., num_tokens: _Optional[int] = ..., timings: _Optional[_Union[_text_pb2.Timings, _Mapping]] = ..., answers: _Optional[_Iterable[_Union[SpanAnswer, _Mapping]]] = ..., no_answer_score: _Optional[float] = ..., num_windows: _Optional[int] = ..., windows: _Optional[_Iterable[_Union[ContextWindow, _Mapping]]] = ...) -> None: ...

class ContextWindow(_message.Message):
    __slots__ = ("start", "end")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    start: int
    end: int
    def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class SpanAnswer(_message.Message):
    __slots__ = ("text", "start", "end", "score")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    text: str
    start: int
    end: int
    score: float
    def __init__(self, text: _Optional[str] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., score: _Optional[float] = ...) -> None: ...
