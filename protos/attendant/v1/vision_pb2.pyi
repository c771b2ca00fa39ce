from attendant.v1 import features_pb2 as _features_pb2
from attendant.v1 import text_pb2 as _text_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ClassifyImageRequest(_message.Message):
    __slots__ = ("model", "version", "images", "top_k", "all_scores")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    IMAGES_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    ALL_SCORES_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: str
    images: _containers.RepeatedScalarFieldContainer[bytes]
    top_k: int
    all_scores: bool
    def __init__(self, model: _Optional[str] = ..., version: _Optional[str] = ..., images: _Optional[_Iterable[bytes]] = ..., top_k: _Optional[int] = ..., all_scores: _Optional[bool] = ...) -> None: ...

class ClassifyImageResponse(_message.Message):
    __slots__ = ("model", "version", "timings", "results")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: str
    timings: _text_pb2.Timings
    results: _containers.RepeatedCompositeFieldContainer[ImageClassification]
    def __init__(self, model: _Optional[str] = ..., version: _Optional[str] = ..., timings: _Optional[_Union[_text_pb2.Timings, _Mapping]] = ..., results: _Optional[_Iterable[_Union[ImageClassification, _Mapping]]] = ...) -> None: ...

class ImageClassification(_message.Message):
    __slots__ = ("labels", "width", "height")
    LABELS_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    labels: _containers.RepeatedCompositeFieldContainer[_text_pb2.LabelScore]
    width: int
    height: int
    def __init__(self, labels: _Optional[_Iterable[_Union[_text_pb2.LabelScore, _Mapping]]] = ..., width: _Optional[int] = ..., height: _Optional[int] = ...) -> None: ...

class AttendImageRequest(_message.Message):
    __slots__ = ("model", "version", "image", "layers", "heads")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FIELD_NUMBER: _ClassVar[int]
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    HEADS_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: str
    image: bytes
    layers: _containers.RepeatedScalarFieldContainer[int]
    heads: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, model: _Optional[str] = ..., version: _Optional[str] = ..., image: _Optional[bytes] = ..., layers: _Optional[_Iterable[int]] = ..., heads: _Optional[_Iterable[int]] = ...) -> None: ...

class AttendImageResponse(_message.Message):
    __slots__ = ("model", "version", "timings", "labels", "patch_rows", "patch_columns", "matrices", "width", "height")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    PATCH_ROWS_FIELD_NUMBER: _ClassVar[int]
    PATCH_COLUMNS_FIELD_NUMBER: _ClassVar[int]
    MATRICES_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    model: str
    version: str
    timings: _text_pb2.Timings
    labels: _containers.RepeatedCompositeFieldContainer[_text_pb2.LabelScore]
    patch_rows: int
    patch_columns: int
    matrices: _containers.RepeatedCompositeFieldContainer[_features_pb2.AttentionMatrix]
    width: int
    height: int
    def __init__(self, model: _Optional[str] = ..., version: _Optional[str] = ..., timings: _Optional[_Union[_text_pb2.Timings, _Mapping]] = ..., labels: _Optional[_Iterable[_Union[_text_pb2.LabelScore, _Mapping]]] = ..., patch_rows: _Optional[int] = ..., patch_columns: _Optional[int] = ..., matrices: _Optional[_Iterable[_Union[_features_pb2.AttentionMatrix, _Mapping]]] = ..., width: _Optional[int] = ..., height: _Optional[int] = ...) -> None: ...
