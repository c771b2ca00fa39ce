"""Random messages for every method, and random damage to their bytes; the same for the same seed.

Fields get values that have made servers fail: bounds of their types, names that exist and names
that lead elsewhere, lengths that lie, numbers that are none.
"""

import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from attendant.v1 import features_pb2, generation_pb2, reading_pb2, text_pb2, vision_pb2
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2
from tritonclient.grpc import service_pb2

from tests.fakes.tasks import file_of

CORPUS = Path(__file__).parent / "corpus"
MAX_DEPTH = 5
MAX_ITEMS = 3
MODELS = ("simple", "spam", "mini", "strings", "tale", "deep", "tags", "asks", "fills", "light")
TENSORS = ("INPUT0", "INPUT1", "OUTPUT0", "OUTPUT1", "IN", "OUT", "text", "logits", "label")
DATATYPES = ("INT32", "BYTES", "FP32", "FP16", "BF16", "BOOL", "UINT64", "INT8")
PARAMETERS = (
    *("classification", "shared_memory_region", "shared_memory_byte_size", "shared_memory_offset"),
    *("priority", "timeout", "sequence_id", "sequence_start", "truncate", "triton_x", "config"),
    *("triton_enable_empty_final_response", "temperature", "max_tokens", "stream", "file:1/m"),
    *("trace_level", "trace_rate", "trace_count", "log_frequency", "trace_file", "trace_mode"),
    *("log_info", "log_verbose_level", "log_format", "log_file", "unload_dependents"),
)
STRINGS = (
    *MODELS,
    *TENSORS,
    *DATATYPES,
    *PARAMETERS,
    *("", " ", "1", "0", "-1", "99999999999999999999", "text_input", "text_output", "region"),
    *("../../etc/passwd", "/etc/passwd", "a/b", "\0", "é", "𝄞", "%s%n", "x" * 5_000, "/region"),
    *("{}", '{"max_tokens": 1}', "[" * 2_000, '{"a":' * 500, "nan", "OFF", "TIMESTAMPS"),
    '{"stop": ["' + "a" * 3_000 + '"], "logit_bias": {"99999999999": 1e308}}',
)
INTEGERS = (0, 1, 2, 8, 16, 100, 2**31 - 1, -1, -2, -(2**31), 2**32 - 1, 2**63 - 1, -(2**63))
FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-45, 1e38, float("inf"), float("-inf"), float("nan"))
PIXELS = (255 * np.eye(8)).astype(np.uint8)
BYTES = (
    *(file_of(PIXELS, kind) for kind in ("PNG", "JPEG")),
    *(file_of(np.zeros((64, 3, 3), np.uint8), "PNG"), file_of(PIXELS, "PNG")[:40]),
    *(b"", b"\0", b"\xff\xfe", b"a" * 100, b"\0" * 64, b"\1" * 128),
    *(struct.pack("<I", 3) + b"abc", struct.pack("<I", 2**32 - 1) + b"abc", b"\1\0"),
)


@dataclass(frozen=True, slots=True)
class Method:
    """One method of one service, as a channel names it."""

    descriptor: MethodDescriptor

    @property
    def path(self) -> str:
        return f"/{self.descriptor.containing_service.full_name}/{self.descriptor.name}"

    @property
    def name(self) -> str:
        return self.path.strip("/").replace("/", ".")

    @property
    def message_class(self) -> Any:
        return GetMessageClass(self.descriptor.input_type)

    def request(self, generator: random.Random) -> bytes:
        """A message that is well formed, whatever it says."""
        message = self.message_class()
        _fill(message, generator, 0)
        return bytes(message.SerializeToString())

    def corpus(self) -> Iterator[bytes]:
        """Messages that are kept because they did harm once, or reach deep."""
        for path in sorted(CORPUS.glob(f"{self.name}-*.bin")):
            yield path.read_bytes()


def all_methods() -> list[Method]:
    own = text_pb2, generation_pb2, features_pb2, reading_pb2, vision_pb2
    files = service_pb2, *own, health_pb2
    services = [service for file in files for service in file.DESCRIPTOR.services_by_name.values()]
    return [Method(method) for service in services for method in service.methods]


def damaged(message: bytes, generator: random.Random) -> bytes:
    """The message with a few bytes changed, cut, doubled or made up."""
    content = bytearray(message)
    for _ in range(generator.randint(1, 4)):
        place = generator.randint(0, len(content))
        kind = generator.randrange(4)
        if kind == 0:
            content[place:place] = generator.randbytes(generator.randint(1, 8))
        elif kind == 1:
            del content[place : place + generator.randint(1, 16)]
        elif kind == 2 and place < len(content):
            content[place] ^= 1 << generator.randrange(8)
        else:
            content += content[place : place + 64]
    return bytes(content)


def _fill(message: Message, generator: random.Random, depth: int) -> None:
    for field in message.DESCRIPTOR.fields:
        if generator.random() < 0.3:
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            _fill_map(message, field, generator, depth)
        elif field.is_repeated:
            for _ in range(generator.randint(0, MAX_ITEMS)):
                _add(getattr(message, field.name), field, generator, depth)
        elif field.message_type is not None:
            if depth < MAX_DEPTH:
                _fill(getattr(message, field.name), generator, depth + 1)
                getattr(message, field.name).SetInParent()
        else:
            setattr(message, field.name, _scalar(field, generator))


def _fill_map(
    message: Message, field: FieldDescriptor, generator: random.Random, depth: int
) -> None:
    entries = getattr(message, field.name)
    key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
    for _ in range(generator.randint(0, MAX_ITEMS)):
        chosen = (
            generator.choice(PARAMETERS)
            if key.type == FieldDescriptor.TYPE_STRING
            else _scalar(key, generator)
        )
        if value.message_type is None:
            entries[chosen] = _scalar(value, generator)
        elif depth < MAX_DEPTH:
            _fill(entries[chosen], generator, depth + 1)


def _add(items: Any, field: FieldDescriptor, generator: random.Random, depth: int) -> None:
    if field.message_type is None:
        items.append(_scalar(field, generator))
    elif depth < MAX_DEPTH:
        _fill(items.add(), generator, depth + 1)


def _scalar(field: FieldDescriptor, generator: random.Random) -> Any:
    kinds = FieldDescriptor
    if field.type == kinds.TYPE_STRING:
        likely = {"model_name": MODELS, "model": MODELS, "datatype": DATATYPES, "name": TENSORS}
        pool = likely.get(field.name, STRINGS)
        return generator.choice(pool if generator.random() < 0.8 else STRINGS)
    if field.type == kinds.TYPE_BYTES:
        return generator.choice(BYTES)
    if field.type == kinds.TYPE_BOOL:
        return generator.random() < 0.5
    if field.type in (kinds.TYPE_FLOAT, kinds.TYPE_DOUBLE):
        return generator.choice(FLOATS)
    if field.type == kinds.TYPE_ENUM:
        return generator.choice(field.enum_type.values).number
    low, high = {
        kinds.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
        kinds.CPPTYPE_UINT32: (0, 2**32 - 1),
        kinds.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
        kinds.CPPTYPE_UINT64: (0, 2**64 - 1),
    }[field.cpp_type]
    return min(high, max(low, generator.choice(INTEGERS)))
