"""Records and messages say the same, name by name, and rows of numbers are those of a list."""

import json
from typing import Any

import msgspec
import numpy as np
import pytest
from attendant.v1 import text_pb2
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message_factory import GetMessageClass

from service.api.codec import packed, reader, writer
from service.api.generation_messages import own_fields
from service.api.services import OWN_DESCRIPTORS
from service.calls.answers import Row, Timings
from service.calls.methods import RECORDS
from service.calls.record import Call, abouts, counted
from service.calls.sampling import Sampling
from service.calls.texts import (
    Embed,
    Embedding,
    Embeddings,
    EncodedVector,
    SparseVector,
)
from service.errors import InvalidArgument
from service.serving.tasks.table import METHODS
from tests.fakes.every_task import message

ROWS = np.array([[0.1, -0.0, np.inf], [1e-45, 3.4e38, np.nan]], np.float32)
WRITE = writer(text_pb2.EmbedResponse, Embeddings)
READ = reader(text_pb2.EmbedRequest, Embed)
OBJECTS = ("arguments", "json_schema", "template_variables", "tools")  # texts of JSON
WITHOUT_BEAMS = tuple(each.name for each in abouts(Sampling) if each.says.get("off_with_beams"))
DESCRIPTORS = {method.name: method for each in OWN_DESCRIPTORS for method in each.methods}
CALLS = {name: (method.call, type(message(name))) for name, method in METHODS.items()}


def embeddings(*results: Embedding) -> Embeddings:
    timings = Timings(queue_seconds=0.5)
    return Embeddings(model="m", version="1", timings=timings, num_tokens=8, results=results)


@pytest.mark.parametrize("rows", [ROWS, ROWS[:, ::2], ROWS[:0], np.zeros((2, 0), np.float32)])
def test_arrays_and_lists_make_the_same_message(rows: np.ndarray) -> None:
    written = WRITE(embeddings(*(Embedding(row, 4, is_truncated=True) for row in rows)))
    expected = text_pb2.EmbedResponse(model="m", version="1", num_tokens=8)
    expected.timings.queue_seconds = 0.5
    for row in rows:
        expected.results.add(values=row.tolist(), num_tokens=4, is_truncated=True)
    assert written.SerializeToString() == expected.SerializeToString()


@pytest.mark.parametrize("count", [0, 1, 31, 32, 384, 5_000])
def test_values_go_into_a_message_as_they_are(count: int) -> None:
    """Sizes around those whose prefix is longer by a byte: 128 bytes are 32 values."""
    values = np.random.default_rng(count).standard_normal(count).astype(np.float32)
    assert list(text_pb2.Embedding.FromString(packed(1, values)).values) == values.tolist()


def test_records_in_records_are_messages_in_messages() -> None:
    """An empty one that is there is told from one that is not; encodings have their numbers."""
    vectors = [Row(row) for row in np.ones((2, 3), np.float32)]
    weights = SparseVector([4, 7], np.array([0.5, 2], np.float32), ["a", "b"])
    encoded = [EncodedVector("ubinary", b"\x01"), EncodedVector("float", b"")]
    written = WRITE(
        embeddings(
            Embedding(encoded=encoded, sparse=weights, token_vectors=vectors),
            Embedding(sparse=SparseVector([], ())),
            Embedding(),
        )
    )
    first, second, third = written.results
    assert [each.encoding for each in first.encoded] == [5, 1]
    assert (list(first.sparse.token_ids), list(first.sparse.weights)) == ([4, 7], [0.5, 2.0])
    assert list(first.sparse.pieces) == ["a", "b"]
    assert [list(each.values) for each in first.token_vectors] == [[1.0] * 3] * 2
    assert second.HasField("sparse")
    assert not third.HasField("sparse")


def test_names_of_values_and_absent_fields_are_told() -> None:
    numbers: dict[str, Any] = {"kinds": [0, 3], "encodings": [2, 9]}
    request = text_pb2.EmbedRequest(model="m", token_ids=[{"ids": [4, 5]}], **numbers)
    call = READ(request)
    assert (call.model, call.prompt, call.kinds) == ("m", None, ["", "token_vectors"])
    assert (call.encodings, [list(each) for each in call.token_ids]) == (["int8", 9], [[4, 5]])
    request.prompt = ""
    assert READ(request).prompt == ""


def filled(kind: Any, number: int = 1, *, is_in_itself: bool = False) -> Any:
    """A message with a value in each of its fields, other ones for other numbers.

    Of fields of which one is set it is another one for other numbers; parameters that refuse each
    other are left out.
    """
    message = kind()
    for field in kind.DESCRIPTOR.fields:
        group = field.containing_oneof
        if group is not None and field != group.fields[number % len(group.fields)]:
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            is_named = field.message_type.fields_by_name["key"].type == FieldDescriptor.TYPE_STRING
            getattr(message, field.name)["temperature" if is_named else number] = number / 8
            continue
        if field.message_type is not None:
            is_own = field.message_type == kind.DESCRIPTOR
            if is_own and is_in_itself:
                continue
            of = GetMessageClass(field.message_type)
            several = [filled(of, number + n, is_in_itself=is_own) for n in range(2)]
            if field.is_repeated:
                getattr(message, field.name).extend(several)
            else:
                getattr(message, field.name).CopyFrom(several[0])
            continue
        values = [_value_of(field, number + n) for n in range(2)]
        if field.is_repeated:
            getattr(message, field.name).extend(values)
        else:
            setattr(message, field.name, values[0])
    if kind.DESCRIPTOR.name == "SamplingParams":
        has_beams = number % 3 == 2
        for name in (*WITHOUT_BEAMS, "grammar") if has_beams else ("beam_width",):
            message.ClearField(name)
        if has_beams:
            message.temperature = number % 2
        elif number % 3:
            message.ClearField("grammar")
        else:
            message.ClearField("min_tokens")
            message.ClearField("ignore_eos")
    return message


def _value_of(field: FieldDescriptor, number: int) -> Any:
    if field.enum_type is not None:
        return field.enum_type.values[number % len(field.enum_type.values)].number
    if field.name in OBJECTS:
        return json.dumps({"title": f"\u00fc {number}"}, ensure_ascii=False)
    kinds: dict[Any, Any] = {
        field.CPPTYPE_STRING: f"{field.name} {number}",
        field.CPPTYPE_BOOL: True,
        field.CPPTYPE_FLOAT: number / 16,
        field.CPPTYPE_DOUBLE: number / 16,
    }
    value = kinds.get(field.cpp_type, number)
    return value.encode() if field.type == field.TYPE_BYTES else value


@pytest.mark.parametrize("number", range(1, 13))
@pytest.mark.parametrize("name", DESCRIPTORS)
def test_records_of_both_sides_are_the_messages_that_they_were_read_of(
    name: str, number: int
) -> None:
    """A client writes what a server reads, and reads what it writes, in every field."""
    method = DESCRIPTORS[name]
    for kind, record in zip((method.input_type, method.output_type), RECORDS[name], strict=True):
        message = filled(GetMessageClass(kind), number)
        own = own_fields(kind)
        read = reader(type(message), record, own)(message)
        again = writer(type(message), record, own)(read)
        assert again.SerializeToString(deterministic=True) == message.SerializeToString(
            deterministic=True
        )
        if not issubclass(record, Call):
            message.Clear()
            assert writer(type(again), record)(read) == again, "it holds nothing of the message"


def test_a_name_that_one_side_alone_has_stops_the_start() -> None:
    class More(Embed, frozen=True):
        unheard: int = 0

    class Fewer(msgspec.Struct, frozen=True):
        values: tuple[()] = ()

    with pytest.raises(TypeError, match=r"More and EmbedRequest differ in \['unheard'\]"):
        reader(text_pb2.EmbedRequest, More)
    with pytest.raises(TypeError, match=r"Embed and ClassifyRequest differ in \['all_scores'"):
        reader(text_pb2.ClassifyRequest, Embed)
    with pytest.raises(TypeError, match="Fewer and Embedding differ in"):
        writer(text_pb2.Embedding, Fewer)


@pytest.mark.parametrize("name", CALLS)
def test_an_empty_message_is_the_record_without_what_is_named(name: str) -> None:
    """So that a field left out means the same in a message and in a record, for every method."""
    record, kind = CALLS[name]
    read = reader(kind, record)(kind(model="m"))
    for each in msgspec.structs.fields(record):
        value: Any = getattr(read, each.name)
        expected = "m" if each.name == "model" else each.default
        assert (tuple(value) if isinstance(expected, tuple) else value) == expected, each.name


def test_numbers_outside_of_their_bounds_are_refused_by_the_record() -> None:
    with pytest.raises(InvalidArgument, match=r"^dimensions is -1, expected 0 to 4294967295$"):
        Embed(model="m", dimensions=-1)
    with pytest.raises(InvalidArgument, match=r"^top_k is nan, expected 0 to"):
        Embed(model="m", top_k=float("nan"))  # type: ignore[arg-type]


def test_every_field_of_a_call_says_what_it_is() -> None:
    for record, _ in CALLS.values():
        assert issubclass(record, Call)
        assert all(each.help for each in abouts(record)), record
    assert counted(Embed) == ("texts",)
