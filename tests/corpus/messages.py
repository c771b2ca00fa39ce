"""Messages for every method of the typed API, right ones and odd values of each field. Pure."""

from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from tests.corpus.bodies import GREEDY, ONE, U32
from tests.fakes.every_task import SERVICES, VALID, message

NUM_TEXTS = 6  # one more than the server takes
TALK = {"messages": [{"role": "user", "content": "hi"}]}
MORE: dict[str, dict[str, Any]] = {
    "Generate": {"model": "tale", "text": "once", "sampling_params": GREEDY | ONE},
    "GenerateUnary": {"model": "tale", "text": "once", "sampling_params": GREEDY},
    "Detokenize": {"model": "spam", "token_ids": [4, 5]},
    "ListModels": {},
}
SEVERAL: tuple[tuple[str, dict[str, Any]], ...] = (
    *(("Embed", {"model": "three", "kinds": kinds}) for kinds in ([1, 2], [3], [2, 3, 1], [1, 1])),
    ("Embed", {"model": "three", "kinds": [2], "top_k": 2, "with_pieces": True}),
    ("Embed", {"model": "terms"}),
    ("Embed", {"texts": [], "token_ids": [{"ids": [4, 5]}], "encodings": [1, 2, 3, 4, 5]}),
    ("Embed", {"token_ids": [{"ids": [4]}]}),
    ("Embed", {"texts": [], "token_ids": [{"ids": [4]}, {"ids": [99]}]}),
    ("GenerateUnary", {"model": "talks", "conversation": TALK}),
    ("GenerateUnary", {"token_ids": {"ids": [104, 105]}}),
    ("GenerateUnary", {"token_ids": {"ids": [99999]}}),
    ("GenerateUnary", {"conversation": TALK}),
    ("Generate", {"text": "on", "sampling_params": GREEDY | ONE | {"logprobs": 2}}),
    ("Generate", {"text": "on", "sampling_params": ONE | {"beam_width": 2, "temperature": 0.0}}),
    ("Generate", {"text": "on", "sampling_params": {"beam_width": 2, "top_p": 0.5}}),
    ("GenerateUnary", {"text": "on", "sampling_params": GREEDY | {"n": 2, "logprobs": 2}}),
)
FAULTY = (b"\xff", b"\x0a\x02\xff\xfe", b"\x0a\x04spam\xba\x1f\x03abc", b"\x1a\x05a")


def messages() -> Iterator[tuple[str, bytes]]:
    """The path of each method with a message's bytes."""
    for method, fields in (VALID | MORE).items():
        path = SERVICES[method][0]
        right = message(method, **fields)
        for each in (right, message(method), *_varied(right)):
            yield path, each.SerializeToString(deterministic=True)
        for faulty in FAULTY:
            yield path, faulty
    for method, changes in SEVERAL:
        fields = {key: each for key, each in (VALID | MORE)[method].items() if key != "text"}
        path = SERVICES[method][0]
        yield path, message(method, **fields | changes).SerializeToString(deterministic=True)


def _varied(right: Message) -> Iterator[Message]:
    """The same with one field changed, or a field of a message in it."""
    for field in right.DESCRIPTOR.fields:
        for change in _changes(field):
            each = type(right)()
            each.CopyFrom(right)
            each.ClearField(field.name)
            try:
                change(each)
            except (ValueError, TypeError):  # a value that no message can have
                continue
            yield each
        if field.message_type is not None and not field.is_repeated:
            for inner in _varied(getattr(right, field.name)):
                each = type(right)()
                each.CopyFrom(right)
                getattr(each, field.name).CopyFrom(inner)
                yield each


def _changes(field: FieldDescriptor) -> Iterator[Any]:
    """What sets a field, in several ways."""
    if field.message_type is not None:
        if field.is_repeated and not field.message_type.GetOptions().map_entry:
            yield lambda each: getattr(each, field.name).add()
        return
    for value in _values(field):
        if field.is_repeated:
            yield lambda each, value=value: getattr(each, field.name).append(value)
        else:
            yield lambda each, value=value: setattr(each, field.name, value)
    if field.is_repeated:
        values = _values(field)[:1] * NUM_TEXTS
        yield lambda each: getattr(each, field.name).extend(values)


def _values(field: FieldDescriptor) -> tuple[Any, ...]:
    if field.type == FieldDescriptor.TYPE_STRING:
        return ("now", "", "nobody", "x" * 1_001)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return (b"", b"a text")
    if field.type == FieldDescriptor.TYPE_BOOL:
        return (True, False)
    if field.type == FieldDescriptor.TYPE_ENUM:
        return (*range(len(field.enum_type.values)), 99)
    if field.type in (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE):
        return (-1.0, 0.0, 0.5, 1e30, float("nan"), float("inf"))
    return (0, 1, 2, 50, U32, 2**63 - 1)
