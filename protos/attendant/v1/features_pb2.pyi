from attendant.v1 import text_pb2 as _text_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Layers(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LAYERS_UNSPECIFIED: _ClassVar[Layers]
    LAYERS_FIRST: _ClassVar[Layers]
    LAYERS_LAST: _ClassVar[Layers]
    LAYERS_SECOND_TO_LAST: _ClassVar[Layers]
    LAYERS_SUM_LAST_FOUR: _ClassVar[Layers]
    LAYERS_CONCAT_LAST_FOUR: _ClassVar[Layers]
    LAYERS_SUM_ALL: _ClassVar[Layers]
    LAYERS_MIX: _ClassVar[Layers]

class Pooling(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    POOLING_UNSPECIFIED: _ClassVar[Pooling]
    POOLING_MEAN: _ClassVar[Pooling]
    POOLING_CLS: _ClassVar[Pooling]
    POOLING_NONE: _ClassVar[Pooling]

class SimilarityMeasure(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SIMILARITY_MEASURE_UNSPECIFIED: _ClassVar[SimilarityMeasure]
    SIMILARITY_MEASURE_COSINE: _ClassVar[SimilarityMeasure]
    SIMILARITY_MEASURE_DOT: _ClassVar[SimilarityMeasure]
    SIMILARITY_MEASURE_SCALED_DOT: _ClassVar[SimilarityMeasure]
    SIMILARITY_MEASURE_EUCLIDEAN: _ClassVar[SimilarityMeasure]
    SIMILARITY_MEASURE_MANHATTAN: _ClassVar[SimilarityMeasure]
LAYERS_UNSPECIFIED: Layers
LAYERS_FIRST: Layers
LAYERS_LAST: Layers
LAYERS_SECOND_TO_LAST: Layers
LAYERS_SUM_LAST_FOUR: Layers
LAYERS_CONCAT_LAST_FOUR: Layers
LAYERS_SUM_ALL: Layers
LAYERS_MIX: Layers
POOLING_UNSPECIFIED: Pooling
POOLING_MEAN: Pooling
POOLING_CLS: Pooling
POOLING_NONE: Pooling
SIMILARITY_MEASURE_UNSPECIFIED: SimilarityMeasure
SIMILARITY_MEASURE_COSINE: SimilarityMeasure
SIMILARITY_MEASURE_DOT: SimilarityMeasure
SIMILARITY_MEASURE_SCALED_DOT: SimilarityMeasure
SIMILARITY_MEASURE_EUCLIDEAN: SimilarityMeasure
SIMILARITY_MEASURE_MANHATTAN: SimilarityMeasure

class ExtractFeaturesRequest(_message.Message):
    __slots__ = ("model", "version", "texts", "truncate", "layers", "pooling", "weights")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    TRUNCATE_FIELD_NUMBER: _ClassVar[int]
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    POOLING_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: str
    texts: _containers.RepeatedScalarFieldContainer[str]
    truncate: bool
    layers: Layers
    pooling: Pooling
    weights: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, model: _Optional[str] = ..., version: _Optional[str] = ..., texts: _Optional[_Iterable[str]] = ..., truncate: _Optional[bool] = ..., layers: _Optional[_Union[Layers, str]] = ..., pooling: _Optional[_Union[Pooling, str]] = ..., weights: _Optional[_Iterable[float]] = ...) -> None: ...

class ExtractFeaturesResponse(_message.Message):
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
    results: _containers.RepeatedCompositeFieldContainer[TextFeatures]
    def __init__(self, model: _Optional[str] = ..., version: _Optional[str] = ..., num_tokens: _Optional[int] = ..., timings: _Optional[_Union[_text_pb2.Timings, _Mapping]] = ..., results: _Optional[_Iterable[_Union[TextFeatures, _Mapping]]] = ...) -> None: ...

class TextFeatures(_message.Message):
    __slots__ = ("vectors", "tokens", "num_tokens", "is_truncated")
    VECTORS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    IS_TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    vectors: _containers.RepeatedCompositeFieldContainer[FeatureVector]
    tokens: _containers.RepeatedCompositeFieldContainer[_text_pb2.Token]
    num_tokens: int
    is_truncated: bool
    def __init__(self, vectors: _Optional[_Iterable[_Union[FeatureVector, _Mapping]]] = ..., tokens: _Optional[_Iterable[_Union[_text_pb2.Token, _Mapping]]] = ..., num_tokens: _Optional[int] = ..., is_truncated: _Optional[bool] = ...) -> None: ...

class FeatureVector(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, values: _Optional[_Iterable[float]] = ...) -> None: ...

class SimilarityRequest(_message.Message):
    __slots__ = ("model", "version", "texts", "others", "truncate", "measure", "prompt_name", "others_prompt_name", "dimensions")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    OTHERS_FIELD_NUMBER: _ClassVar[int]
    TRUNCATE_FIELD_NUMBER: _ClassVar[int]
    MEASURE_FIELD_NUMBER: _ClassVar[int]
    PROMPT_NAME_FIELD_NUMBER: _ClassVar[int]
    OTHERS_PROMPT_NAME_FIELD_NUMBER: _ClassVar[int]
    DIMENSIONS_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: str
    texts: _containers.RepeatedScalarFieldContainer[str]
    others: _containers.RepeatedScalarFieldContainer[str]
    truncate: bool
    measure: SimilarityMeasure
    prompt_name: str
    others_prompt_name: str
    dimensions: int
    def __init__(self, model: _Optional[str] = ..., version: _Optional[str] = ..., texts: _Optional[_Iterable[str]] = ..., others: _Optional[_Iterable[str]] = ..., truncate: _Optional[bool] = ..., measure: _Optional[_Union[SimilarityMeasure, str]] = ..., prompt_name: _Optional[str] = ..., others_prompt_name: _Optional[str] = ..., dimensions: _Optional[int] = ...) -> None: ...

class SimilarityResponse(_message.Message):
    __slots__ = ("model", "version", "num_tokens", "timings", "rows")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: str
    num_tokens: int
    timings: _text_pb2.Timings
    rows: _containers.RepeatedCompositeFieldContainer[SimilarityRow]
    def __init__(self, model: _Optional[str] = ..., version: _Optional[str] = ..., num_tokens: _Optional[int] = ..., timings: _Optional[_Union[_text_pb2.Timings, _Mapping]] = ..., rows: _Optional[_Iterable[_Union[SimilarityRow, _Mapping]]] = ...) -> None: ...

class SimilarityRow(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, values: _Optional[_Iterable[float]] = ...) -> None: ...

class AttendRequest(_message.Message):
    __slots__ = ("model", "version", "text", "target", "layers", "heads")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    HEADS_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: str
    text: str
    target: str
    layers: _containers.RepeatedScalarFieldContainer[int]
    heads: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, model: _Optional[str] = ..., version: _Optional[str] = ..., text: _Optional[str] = ..., target: _Optional[str] = ..., layers: _Optional[_Iterable[int]] = ..., heads: _Optional[_Iterable[int]] = ...) -> None: ...

class AttendResponse(_message.Message):
    __slots__ = ("model", "version", "num_tokens", "timings", "queries", "keys", "matrices")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    MATRICES_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: str
    num_tokens: int
    timings: _text_pb2.Timings
    queries: _containers.RepeatedCompositeFieldContainer[_text_pb2.Token]
    keys: _containers.RepeatedCompositeFieldContainer[_text_pb2.Token]
    matrices: _containers.RepeatedCompositeFieldContainer[AttentionMatrix]
    def __init__(self, model: _Optional[str] = ..., version: _Optional[str] = ..., num_tokens: _Optional[int] = ..., timings: _Optional[_Union[_text_pb2.Timings, _Mapping]] = ..., queries: _Optional[_Iterable[_Union[_text_pb2.Token, _Mapping]]] = ..., keys: _Optional[_Iterable[_Union[_text_pb2.Token, _Mapping]]] = ..., matrices: _Optional[_Iterable[_Union[AttentionMatrix, _Mapping]]] = ...) -> None: ...

class AttentionMatrix(_message.Message):
    __slots__ = ("layer", "head", "weights")
    LAYER_FIELD_NUMBER: _ClassVar[int]
    HEAD_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    layer: int
    head: int
    weights: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, layer: _Optional[int] = ..., head: _Optional[int] = ..., weights: _Optional[_Iterable[float]] = ...) -> None: ...
