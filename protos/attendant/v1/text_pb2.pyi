from attendant.v1 import generation_pb2 as _generation_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Timings(_message.Message):
    __slots__ = ("queue_seconds", "compute_seconds", "total_seconds")
    QUEUE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    queue_seconds: float
    compute_seconds: float
    total_seconds: float
    def __init__(self, queue_seconds: _Optional[float] = ..., compute_seconds: _Optional[float] = ..., total_seconds: _Optional[float] = ...) -> None: ...

class ClassifyRequest(_message.Message):
    __slots__ = ("model", "version", "texts", "truncate", "top_k", "all_scores", "text_pairs")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    TRUNCATE_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    ALL_SCORES_FIELD_NUMBER: _ClassVar[int]
    TEXT_PAIRS_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: str
    texts: _containers.RepeatedScalarFieldContainer[str]
    truncate: bool
    top_k: int
    all_scores: bool
    text_pairs: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, model: _Optional[str] = ..., version: _Optional[str] = ..., texts: _Optional[_Iterable[str]] = ..., truncate: _Optional[bool] = ..., top_k: _Optional[int] = ..., all_scores: _Optional[bool] = ..., text_pairs: _Optional[_Iterable[str]] = ...) -> None: ...

class ClassifyResponse(_message.Message):
    __slots__ = ("model", "version", "num_tokens", "timings", "results")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: str
    num_tokens: int
    timings: Timings
    results: _containers.RepeatedCompositeFieldContainer[Classification]
    def __init__(self, model: _Optional[str] = ..., version: _Optional[str] = ..., num_tokens: _Optional[int] = ..., timings: _Optional[_Union[Timings, _Mapping]] = ..., results: _Optional[_Iterable[_Union[Classification, _Mapping]]] = ...) -> None: ...

class Classification(_message.Message):
    __slots__ = ("labels", "num_tokens", "is_truncated")
    LABELS_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    IS_TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    labels: _containers.RepeatedCompositeFieldContainer[LabelScore]
    num_tokens: int
    is_truncated: bool
    def __init__(self, labels: _Optional[_Iterable[_Union[LabelScore, _Mapping]]] = ..., num_tokens: _Optional[int] = ..., is_truncated: _Optional[bool] = ...) -> None: ...

class LabelScore(_message.Message):
    __slots__ = ("label", "score")
    LABEL_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    label: str
    score: float
    def __init__(self, label: _Optional[str] = ..., score: _Optional[float] = ...) -> None: ...

class EmbedRequest(_message.Message):
    __slots__ = ("model", "version", "texts", "truncate", "token_ids")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    TRUNCATE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: str
    texts: _containers.RepeatedScalarFieldContainer[str]
    truncate: bool
    token_ids: _containers.RepeatedCompositeFieldContainer[_generation_pb2.TokenIds]
    def __init__(self, model: _Optional[str] = ..., version: _Optional[str] = ..., texts: _Optional[_Iterable[str]] = ..., truncate: _Optional[bool] = ..., token_ids: _Optional[_Iterable[_Union[_generation_pb2.TokenIds, _Mapping]]] = ...) -> None: ...

class EmbedResponse(_message.Message):
    __slots__ = ("model", "version", "num_tokens", "timings", "results")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: str
    num_tokens: int
    timings: Timings
    results: _containers.RepeatedCompositeFieldContainer[Embedding]
    def __init__(self, model: _Optional[str] = ..., version: _Optional[str] = ..., num_tokens: _Optional[int] = ..., timings: _Optional[_Union[Timings, _Mapping]] = ..., results: _Optional[_Iterable[_Union[Embedding, _Mapping]]] = ...) -> None: ...

class Embedding(_message.Message):
    __slots__ = ("values", "num_tokens", "is_truncated")
    VALUES_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    IS_TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[float]
    num_tokens: int
    is_truncated: bool
    def __init__(self, values: _Optional[_Iterable[float]] = ..., num_tokens: _Optional[int] = ..., is_truncated: _Optional[bool] = ...) -> None: ...

class ScorePairsRequest(_message.Message):
    __slots__ = ("model", "version", "texts", "truncate", "text_pairs")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    TRUNCATE_FIELD_NUMBER: _ClassVar[int]
    TEXT_PAIRS_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: str
    texts: _containers.RepeatedScalarFieldContainer[str]
    truncate: bool
    text_pairs: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, model: _Optional[str] = ..., version: _Optional[str] = ..., texts: _Optional[_Iterable[str]] = ..., truncate: _Optional[bool] = ..., text_pairs: _Optional[_Iterable[str]] = ...) -> None: ...

class ScorePairsResponse(_message.Message):
    __slots__ = ("model", "version", "num_tokens", "timings", "results")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: str
    num_tokens: int
    timings: Timings
    results: _containers.RepeatedCompositeFieldContainer[PairScore]
    def __init__(self, model: _Optional[str] = ..., version: _Optional[str] = ..., num_tokens: _Optional[int] = ..., timings: _Optional[_Union[Timings, _Mapping]] = ..., results: _Optional[_Iterable[_Union[PairScore, _Mapping]]] = ...) -> None: ...

class PairScore(_message.Message):
    __slots__ = ("score", "num_tokens", "is_truncated")
    SCORE_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    IS_TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    score: float
    num_tokens: int
    is_truncated: bool
    def __init__(self, score: _Optional[float] = ..., num_tokens: _Optional[int] = ..., is_truncated: _Optional[bool] = ...) -> None: ...

class TokenizeRequest(_message.Message):
    __slots__ = ("model", "version", "texts", "omit_special_tokens", "conversation")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    OMIT_SPECIAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CONVERSATION_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: str
    texts: _containers.RepeatedScalarFieldContainer[str]
    omit_special_tokens: bool
    conversation: _generation_pb2.Conversation
    def __init__(self, model: _Optional[str] = ..., version: _Optional[str] = ..., texts: _Optional[_Iterable[str]] = ..., omit_special_tokens: _Optional[bool] = ..., conversation: _Optional[_Union[_generation_pb2.Conversation, _Mapping]] = ...) -> None: ...

class TokenizeResponse(_message.Message):
    __slots__ = ("model", "version", "num_tokens", "timings", "results")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: str
    num_tokens: int
    timings: Timings
    results: _containers.RepeatedCompositeFieldContainer[TokenizedText]
    def __init__(self, model: _Optional[str] = ..., version: _Optional[str] = ..., num_tokens: _Optional[int] = ..., timings: _Optional[_Union[Timings, _Mapping]] = ..., results: _Optional[_Iterable[_Union[TokenizedText, _Mapping]]] = ...) -> None: ...

class TokenizedText(_message.Message):
    __slots__ = ("tokens", "num_tokens", "is_too_long")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    IS_TOO_LONG_FIELD_NUMBER: _ClassVar[int]
    tokens: _containers.RepeatedCompositeFieldContainer[Token]
    num_tokens: int
    is_too_long: bool
    def __init__(self, tokens: _Optional[_Iterable[_Union[Token, _Mapping]]] = ..., num_tokens: _Optional[int] = ..., is_too_long: _Optional[bool] = ...) -> None: ...

class Token(_message.Message):
    __slots__ = ("id", "piece", "start", "end", "is_special", "is_unknown", "token_bytes")
    ID_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    IS_SPECIAL_FIELD_NUMBER: _ClassVar[int]
    IS_UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    TOKEN_BYTES_FIELD_NUMBER: _ClassVar[int]
    id: int
    piece: str
    start: int
    end: int
    is_special: bool
    is_unknown: bool
    token_bytes: bytes
    def __init__(self, id: _Optional[int] = ..., piece: _Optional[str] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., is_special: _Optional[bool] = ..., is_unknown: _Optional[bool] = ..., token_bytes: _Optional[bytes] = ...) -> None: ...

class DetokenizeRequest(_message.Message):
    __slots__ = ("model", "version", "token_ids")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: str
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, model: _Optional[str] = ..., version: _Optional[str] = ..., token_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class DetokenizeResponse(_message.Message):
    __slots__ = ("model", "version", "text")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: str
    text: str
    def __init__(self, model: _Optional[str] = ..., version: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class ListModelsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListModelsResponse(_message.Message):
    __slots__ = ("models", "max_texts")
    MODELS_FIELD_NUMBER: _ClassVar[int]
    MAX_TEXTS_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[Model]
    max_texts: int
    def __init__(self, models: _Optional[_Iterable[_Union[Model, _Mapping]]] = ..., max_texts: _Optional[int] = ...) -> None: ...

class Model(_message.Message):
    __slots__ = ("name", "version", "task", "precision", "max_tokens", "labels", "embedding_size", "pooling", "example", "origin", "max_batch_size", "symbols", "graph_device", "layout", "layout_reason", "eos_token_ids", "examples", "has_source", "image_height", "image_width", "image_channels", "num_layers", "num_heads", "vocabulary_size", "has_words", "mask_token", "has_chat_template", "tool_call_form", "sampling_defaults")
    class SamplingDefaultsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    EMBEDDING_SIZE_FIELD_NUMBER: _ClassVar[int]
    POOLING_FIELD_NUMBER: _ClassVar[int]
    EXAMPLE_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    SYMBOLS_FIELD_NUMBER: _ClassVar[int]
    GRAPH_DEVICE_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_REASON_FIELD_NUMBER: _ClassVar[int]
    EOS_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    EXAMPLES_FIELD_NUMBER: _ClassVar[int]
    HAS_SOURCE_FIELD_NUMBER: _ClassVar[int]
    IMAGE_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    IMAGE_WIDTH_FIELD_NUMBER: _ClassVar[int]
    IMAGE_CHANNELS_FIELD_NUMBER: _ClassVar[int]
    NUM_LAYERS_FIELD_NUMBER: _ClassVar[int]
    NUM_HEADS_FIELD_NUMBER: _ClassVar[int]
    VOCABULARY_SIZE_FIELD_NUMBER: _ClassVar[int]
    HAS_WORDS_FIELD_NUMBER: _ClassVar[int]
    MASK_TOKEN_FIELD_NUMBER: _ClassVar[int]
    HAS_CHAT_TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALL_FORM_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_DEFAULTS_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: str
    task: str
    precision: str
    max_tokens: int
    labels: _containers.RepeatedScalarFieldContainer[str]
    embedding_size: int
    pooling: str
    example: str
    origin: str
    max_batch_size: int
    symbols: _containers.RepeatedScalarFieldContainer[str]
    graph_device: str
    layout: str
    layout_reason: str
    eos_token_ids: _containers.RepeatedScalarFieldContainer[int]
    examples: _containers.RepeatedCompositeFieldContainer[Example]
    has_source: bool
    image_height: int
    image_width: int
    image_channels: int
    num_layers: int
    num_heads: int
    vocabulary_size: int
    has_words: bool
    mask_token: str
    has_chat_template: bool
    tool_call_form: str
    sampling_defaults: _containers.ScalarMap[str, float]
    def __init__(self, name: _Optional[str] = ..., version: _Optional[str] = ..., task: _Optional[str] = ..., precision: _Optional[str] = ..., max_tokens: _Optional[int] = ..., labels: _Optional[_Iterable[str]] = ..., embedding_size: _Optional[int] = ..., pooling: _Optional[str] = ..., example: _Optional[str] = ..., origin: _Optional[str] = ..., max_batch_size: _Optional[int] = ..., symbols: _Optional[_Iterable[str]] = ..., graph_device: _Optional[str] = ..., layout: _Optional[str] = ..., layout_reason: _Optional[str] = ..., eos_token_ids: _Optional[_Iterable[int]] = ..., examples: _Optional[_Iterable[_Union[Example, _Mapping]]] = ..., has_source: _Optional[bool] = ..., image_height: _Optional[int] = ..., image_width: _Optional[int] = ..., image_channels: _Optional[int] = ..., num_layers: _Optional[int] = ..., num_heads: _Optional[int] = ..., vocabulary_size: _Optional[int] = ..., has_words: _Optional[bool] = ..., mask_token: _Optional[str] = ..., has_chat_template: _Optional[bool] = ..., tool_call_form: _Optional[str] = ..., sampling_defaults: _Optional[_Mapping[str, float]] = ...) -> None: ...

class Example(_message.Message):
    __slots__ = ("text", "text_pair", "context", "image")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TEXT_PAIR_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    text: str
    text_pair: str
    context: str
    image: bytes
    def __init__(self, text: _Optional[str] = ..., text_pair: _Optional[str] = ..., context: _Optional[str] = ..., image: _Optional[bytes] = ...) -> None: ...
