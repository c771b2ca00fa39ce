from attendant.v1 import generation_pb2 as _generation_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ScoreFunction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SCORE_FUNCTION_UNSPECIFIED: _ClassVar[ScoreFunction]
    SCORE_FUNCTION_SOFTMAX: _ClassVar[ScoreFunction]
    SCORE_FUNCTION_SIGMOID: _ClassVar[ScoreFunction]
    SCORE_FUNCTION_IDENTITY: _ClassVar[ScoreFunction]

class EmbeddingKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EMBEDDING_KIND_UNSPECIFIED: _ClassVar[EmbeddingKind]
    EMBEDDING_KIND_DENSE: _ClassVar[EmbeddingKind]
    EMBEDDING_KIND_SPARSE: _ClassVar[EmbeddingKind]
    EMBEDDING_KIND_TOKEN_VECTORS: _ClassVar[EmbeddingKind]

class EmbeddingEncoding(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EMBEDDING_ENCODING_UNSPECIFIED: _ClassVar[EmbeddingEncoding]
    EMBEDDING_ENCODING_FLOAT: _ClassVar[EmbeddingEncoding]
    EMBEDDING_ENCODING_INT8: _ClassVar[EmbeddingEncoding]
    EMBEDDING_ENCODING_UINT8: _ClassVar[EmbeddingEncoding]
    EMBEDDING_ENCODING_BINARY: _ClassVar[EmbeddingEncoding]
    EMBEDDING_ENCODING_UBINARY: _ClassVar[EmbeddingEncoding]
SCORE_FUNCTION_UNSPECIFIED: ScoreFunction
SCORE_FUNCTION_SOFTMAX: ScoreFunction
SCORE_FUNCTION_SIGMOID: ScoreFunction
SCORE_FUNCTION_IDENTITY: ScoreFunction
EMBEDDING_KIND_UNSPECIFIED: EmbeddingKind
EMBEDDING_KIND_DENSE: EmbeddingKind
EMBEDDING_KIND_SPARSE: EmbeddingKind
EMBEDDING_KIND_TOKEN_VECTORS: EmbeddingKind
EMBEDDING_ENCODING_UNSPECIFIED: EmbeddingEncoding
EMBEDDING_ENCODING_FLOAT: EmbeddingEncoding
EMBEDDING_ENCODING_INT8: EmbeddingEncoding
EMBEDDING_ENCODING_UINT8: EmbeddingEncoding
EMBEDDING_ENCODING_BINARY: EmbeddingEncoding
EMBEDDING_ENCODING_UBINARY: EmbeddingEncoding

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
    __slots__ = ("model", "version", "texts", "truncate", "top_k", "all_scores", "text_pairs", "score_function", "background")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    TRUNCATE_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    ALL_SCORES_FIELD_NUMBER: _ClassVar[int]
    TEXT_PAIRS_FIELD_NUMBER: _ClassVar[int]
    SCORE_FUNCTION_FIELD_NUMBER: _ClassVar[int]
    BACKGROUND_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: str
    texts: _containers.RepeatedScalarFieldContainer[str]
    truncate: bool
    top_k: int
    all_scores: bool
    text_pairs: _containers.RepeatedScalarFieldContainer[str]
    score_function: ScoreFunction
    background: bool
    def __init__(self, model: _Optional[str] = ..., version: _Optional[str] = ..., texts: _Optional[_Iterable[str]] = ..., truncate: _Optional[bool] = ..., top_k: _Optional[int] = ..., all_scores: _Optional[bool] = ..., text_pairs: _Optional[_Iterable[str]] = ..., score_function: _Optional[_Union[ScoreFunction, str]] = ..., background: _Optional[bool] = ...) -> None: ...

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
    __slots__ = ("model", "version", "texts", "truncate", "token_ids", "prompt_name", "prompt", "dimensions", "encodings", "kinds", "top_k", "with_pieces", "background")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    TRUNCATE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_NAME_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    DIMENSIONS_FIELD_NUMBER: _ClassVar[int]
    ENCODINGS_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    WITH_PIECES_FIELD_NUMBER: _ClassVar[int]
    BACKGROUND_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: str
    texts: _containers.RepeatedScalarFieldContainer[str]
    truncate: bool
    token_ids: _containers.RepeatedCompositeFieldContainer[_generation_pb2.TokenIds]
    prompt_name: str
    prompt: str
    dimensions: int
    encodings: _containers.RepeatedScalarFieldContainer[EmbeddingEncoding]
    kinds: _containers.RepeatedScalarFieldContainer[EmbeddingKind]
    top_k: int
    with_pieces: bool
    background: bool
    def __init__(self, model: _Optional[str] = ..., version: _Optional[str] = ..., texts: _Optional[_Iterable[str]] = ..., truncate: _Optional[bool] = ..., token_ids: _Optional[_Iterable[_Union[_generation_pb2.TokenIds, _Mapping]]] = ..., prompt_name: _Optional[str] = ..., prompt: _Optional[str] = ..., dimensions: _Optional[int] = ..., encodings: _Optional[_Iterable[_Union[EmbeddingEncoding, str]]] = ..., kinds: _Optional[_Iterable[_Union[EmbeddingKind, str]]] = ..., top_k: _Optional[int] = ..., with_pieces: _Optional[bool] = ..., background: _Optional[bool] = ...) -> None: ...

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
    __slots__ = ("values", "num_tokens", "is_truncated", "encoded", "sparse", "token_vectors")
    VALUES_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    IS_TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    ENCODED_FIELD_NUMBER: _ClassVar[int]
    SPARSE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_VECTORS_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[float]
    num_tokens: int
    is_truncated: bool
    encoded: _containers.RepeatedCompositeFieldContainer[EncodedVector]
    sparse: SparseVector
    token_vectors: _containers.RepeatedCompositeFieldContainer[TokenVector]
    def __init__(self, values: _Optional[_Iterable[float]] = ..., num_tokens: _Optional[int] = ..., is_truncated: _Optional[bool] = ..., encoded: _Optional[_Iterable[_Union[EncodedVector, _Mapping]]] = ..., sparse: _Optional[_Union[SparseVector, _Mapping]] = ..., token_vectors: _Optional[_Iterable[_Union[TokenVector, _Mapping]]] = ...) -> None: ...

class SparseVector(_message.Message):
    __slots__ = ("token_ids", "weights", "pieces")
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    PIECES_FIELD_NUMBER: _ClassVar[int]
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    weights: _containers.RepeatedScalarFieldContainer[float]
    pieces: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, token_ids: _Optional[_Iterable[int]] = ..., weights: _Optional[_Iterable[float]] = ..., pieces: _Optional[_Iterable[str]] = ...) -> None: ...

class TokenVector(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, values: _Optional[_Iterable[float]] = ...) -> None: ...

class EncodedVector(_message.Message):
    __slots__ = ("encoding", "values")
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    encoding: EmbeddingEncoding
    values: bytes
    def __init__(self, encoding: _Optional[_Union[EmbeddingEncoding, str]] = ..., values: _Optional[bytes] = ...) -> None: ...

class ScorePairsRequest(_message.Message):
    __slots__ = ("model", "version", "texts", "truncate", "text_pairs", "raw_scores", "background")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    TRUNCATE_FIELD_NUMBER: _ClassVar[int]
    TEXT_PAIRS_FIELD_NUMBER: _ClassVar[int]
    RAW_SCORES_FIELD_NUMBER: _ClassVar[int]
    BACKGROUND_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: str
    texts: _containers.RepeatedScalarFieldContainer[str]
    truncate: bool
    text_pairs: _containers.RepeatedScalarFieldContainer[str]
    raw_scores: bool
    background: bool
    def __init__(self, model: _Optional[str] = ..., version: _Optional[str] = ..., texts: _Optional[_Iterable[str]] = ..., truncate: _Optional[bool] = ..., text_pairs: _Optional[_Iterable[str]] = ..., raw_scores: _Optional[bool] = ..., background: _Optional[bool] = ...) -> None: ...

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

class RerankRequest(_message.Message):
    __slots__ = ("model", "version", "query", "documents", "truncate", "max_document_tokens", "top_n", "raw_scores", "background")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    DOCUMENTS_FIELD_NUMBER: _ClassVar[int]
    TRUNCATE_FIELD_NUMBER: _ClassVar[int]
    MAX_DOCUMENT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOP_N_FIELD_NUMBER: _ClassVar[int]
    RAW_SCORES_FIELD_NUMBER: _ClassVar[int]
    BACKGROUND_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: str
    query: str
    documents: _containers.RepeatedScalarFieldContainer[str]
    truncate: bool
    max_document_tokens: int
    top_n: int
    raw_scores: bool
    background: bool
    def __init__(self, model: _Optional[str] = ..., version: _Optional[str] = ..., query: _Optional[str] = ..., documents: _Optional[_Iterable[str]] = ..., truncate: _Optional[bool] = ..., max_document_tokens: _Optional[int] = ..., top_n: _Optional[int] = ..., raw_scores: _Optional[bool] = ..., background: _Optional[bool] = ...) -> None: ...

class RerankResponse(_message.Message):
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
    results: _containers.RepeatedCompositeFieldContainer[RankedDocument]
    def __init__(self, model: _Optional[str] = ..., version: _Optional[str] = ..., num_tokens: _Optional[int] = ..., timings: _Optional[_Union[Timings, _Mapping]] = ..., results: _Optional[_Iterable[_Union[RankedDocument, _Mapping]]] = ...) -> None: ...

class RankedDocument(_message.Message):
    __slots__ = ("index", "score", "num_tokens", "is_truncated")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    IS_TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    index: int
    score: float
    num_tokens: int
    is_truncated: bool
    def __init__(self, index: _Optional[int] = ..., score: _Optional[float] = ..., num_tokens: _Optional[int] = ..., is_truncated: _Optional[bool] = ...) -> None: ...

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
    __slots__ = ("name", "version", "task", "precision", "max_tokens", "labels", "embedding_size", "pooling", "example", "origin", "max_batch_size", "symbols", "graph_device", "parent", "layout", "layout_reason", "eos_token_ids", "examples", "has_source", "image_height", "image_width", "image_channels", "num_layers", "num_heads", "vocabulary_size", "has_words", "mask_token", "has_chat_template", "tool_call_form", "reasoning_form", "sampling_defaults", "score_function", "prompts", "default_prompt", "dimensions", "embedding_kinds", "sparse_size", "token_vector_size", "grammar_kinds")
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
    PARENT_FIELD_NUMBER: _ClassVar[int]
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
    REASONING_FORM_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_DEFAULTS_FIELD_NUMBER: _ClassVar[int]
    SCORE_FUNCTION_FIELD_NUMBER: _ClassVar[int]
    PROMPTS_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_PROMPT_FIELD_NUMBER: _ClassVar[int]
    DIMENSIONS_FIELD_NUMBER: _ClassVar[int]
    EMBEDDING_KINDS_FIELD_NUMBER: _ClassVar[int]
    SPARSE_SIZE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_VECTOR_SIZE_FIELD_NUMBER: _ClassVar[int]
    GRAMMAR_KINDS_FIELD_NUMBER: _ClassVar[int]
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
    parent: str
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
    reasoning_form: str
    sampling_defaults: _containers.ScalarMap[str, float]
    score_function: str
    prompts: _containers.RepeatedCompositeFieldContainer[Prompt]
    default_prompt: str
    dimensions: _containers.RepeatedScalarFieldContainer[int]
    embedding_kinds: _containers.RepeatedScalarFieldContainer[str]
    sparse_size: int
    token_vector_size: int
    grammar_kinds: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., version: _Optional[str] = ..., task: _Optional[str] = ..., precision: _Optional[str] = ..., max_tokens: _Optional[int] = ..., labels: _Optional[_Iterable[str]] = ..., embedding_size: _Optional[int] = ..., pooling: _Optional[str] = ..., example: _Optional[str] = ..., origin: _Optional[str] = ..., max_batch_size: _Optional[int] = ..., symbols: _Optional[_Iterable[str]] = ..., graph_device: _Optional[str] = ..., parent: _Optional[str] = ..., layout: _Optional[str] = ..., layout_reason: _Optional[str] = ..., eos_token_ids: _Optional[_Iterable[int]] = ..., examples: _Optional[_Iterable[_Union[Example, _Mapping]]] = ..., has_source: _Optional[bool] = ..., image_height: _Optional[int] = ..., image_width: _Optional[int] = ..., image_channels: _Optional[int] = ..., num_layers: _Optional[int] = ..., num_heads: _Optional[int] = ..., vocabulary_size: _Optional[int] = ..., has_words: _Optional[bool] = ..., mask_token: _Optional[str] = ..., has_chat_template: _Optional[bool] = ..., tool_call_form: _Optional[str] = ..., reasoning_form: _Optional[str] = ..., sampling_defaults: _Optional[_Mapping[str, float]] = ..., score_function: _Optional[str] = ..., prompts: _Optional[_Iterable[_Union[Prompt, _Mapping]]] = ..., default_prompt: _Optional[str] = ..., dimensions: _Optional[_Iterable[int]] = ..., embedding_kinds: _Optional[_Iterable[str]] = ..., sparse_size: _Optional[int] = ..., token_vector_size: _Optional[int] = ..., grammar_kinds: _Optional[_Iterable[str]] = ...) -> None: ...

class Prompt(_message.Message):
    __slots__ = ("name", "text")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    name: str
    text: str
    def __init__(self, name: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

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
