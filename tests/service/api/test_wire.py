"""Parts are counted from bytes as protobuf counts them, and never for longer than the bound."""

import gzip
import random
import time
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.message import DecodeError, Message
from tritonclient.grpc import service_pb2 as pb

from service.api.long_message import parse_long
from service.api.wire import (
    DEFLATE,
    GZIP,
    PACKED_BYTES,
    SMALL_BYTES,
    GroupError,
    count_parts,
    cut_out,
    inflated,
    inner_messages,
)
from tests.fuzz.messages import all_methods

LIMIT = 10_000
INFER = inner_messages(pb.ModelInferRequest.DESCRIPTOR)
UNKNOWN = b"\xfa\x07\x80\x20" + bytes(SMALL_BYTES)  # field 127, of 4 KiB
PADDING = b"\x3a" + b"\x80\x20" + b"\0" * SMALL_BYTES  # raw_input_contents of 4 KiB


def packed_bytes(message: Message, name: str) -> int:
    """Of the numbers alone, without the field's tag and length."""
    alone = type(message)()
    getattr(alone, name).extend(getattr(message, name))
    raw = alone.SerializeToString()
    length_end = next(place for place, byte in enumerate(raw[1:], 2) if byte < 0x80)
    return len(raw) - length_end


def parts_of(message: Message) -> int:
    """The same by walking what was parsed."""
    count = 0
    for field, value in message.ListFields():
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            for item in value.values():
                has_value = isinstance(item, Message)
                count += 1 + 1 + 1 + (parts_of(item) if has_value else 0)
        elif field.message_type is not None:
            items: Any = value if field.is_repeated else [value]
            count += sum(1 + parts_of(item) for item in items)
        elif field.is_packed:
            count += 1 + packed_bytes(message, field.name) // PACKED_BYTES
        else:
            count += len(value) if field.is_repeated else 1
    return count


def test_a_request_s_parts_are_its_fields_and_those_inside() -> None:
    request = pb.ModelInferRequest(model_name="m", id="1")
    tensor = request.inputs.add(name="x", datatype="INT32", shape=[3, 1])
    tensor.contents.int_contents.extend(range(3_000))
    tensor.parameters["p"].int64_param = 7
    request.outputs.add(name="y")
    request.raw_input_contents.append(bytes(SMALL_BYTES))
    assert count_parts(request.SerializeToString(), INFER, LIMIT) == parts_of(request)


@pytest.mark.parametrize("method", all_methods(), ids=lambda method: method.name)
def test_every_message_is_counted_as_protobuf_reads_it(method: Any) -> None:
    """Behind one unknown field, so long that short messages are counted too."""
    message_class = method.message_class
    inner = inner_messages(message_class.DESCRIPTOR)
    for seed in range(20):
        content = method.request(random.Random(seed))  # noqa: S311 - the same each time
        expected = parts_of(message_class.FromString(content))
        assert count_parts(UNKNOWN + content, inner, LIMIT) == 1 + expected


def test_numbers_of_fixed_size_are_one_part_each() -> None:
    """Of eight bytes, and of four, each followed by parts that count for themselves."""
    request = pb.ModelInferRequest(model_name="m", raw_input_contents=[b"xy"] * 3)
    known = request.SerializeToString()
    for fixed in (b"\xf9\x07" + b"\xff" * 8, b"\xfd\x07" + b"\xff" * 4):
        content = UNKNOWN + (fixed + known) * 5
        pb.ModelInferRequest.FromString(content)  # it is one
        assert count_parts(content, INFER, LIMIT) == 1 + 5 * (1 + 4)
    request.parameters["p"].double_param = 0.5
    request.inputs.add().parameters["q"].double_param = 7.0
    content = UNKNOWN + request.SerializeToString()
    assert count_parts(content, INFER, LIMIT) == 1 + parts_of(request)


def test_what_is_cut_out_and_what_is_left_are_the_message() -> None:
    """Whatever fields come before, between and after, of each kind on the wire."""
    request = pb.ModelInferRequest(model_name="m", id="1")
    request.inputs.add(name="x", datatype="FP32", shape=[1, 5])
    between = request.SerializeToString() + b"\xf9\x07" + bytes(8) + b"\xfd\x07" + bytes(4)
    contents = [b"", b"x" * 300, b"y"]
    raws = [
        pb.ModelInferRequest(raw_input_contents=[each]).SerializeToString() for each in contents
    ]
    message = between + raws[0] + b"\x88\x3f\x96\x01" + raws[1] + between + raws[2] + b"\x08\x01"
    rest, found = cut_out(memoryview(message), 7)
    assert [bytes(each) for each in found] == contents
    whole, left = map(pb.ModelInferRequest.FromString, (message, rest))
    assert not left.raw_input_contents
    left.raw_input_contents.extend(contents)
    assert left == whole
    for end in range(len(message)):  # cut short, it is refused here or by protobuf
        try:
            rest, found = cut_out(memoryview(message[:end]), 7)
            left = pb.ModelInferRequest.FromString(rest)
        except (IndexError, DecodeError):
            with pytest.raises(DecodeError):
                pb.ModelInferRequest.FromString(message[:end])
        else:
            pb.ModelInferRequest.FromString(message[:end])
    with pytest.raises(GroupError):
        cut_out(memoryview(message + b"\x0b\x0c"), 7)


def test_a_long_request_is_read_as_protobuf_reads_it() -> None:
    """Its raw contents are views of the message; a group or another class is left to protobuf."""
    request = pb.ModelInferRequest(model_name="m", raw_input_contents=[b"x" * 1_000, b"y"])
    request.inputs.add(name="x")
    message = request.SerializeToString()
    found: Any = parse_long(pb.ModelInferRequest.FromString, bytearray(message))
    assert [bytes(each) for each in found.raw_input_contents] == [b"x" * 1_000, b"y"]
    assert (found.model_name, found.inputs[0].name, found.DESCRIPTOR) == (
        "m",
        "x",
        pb.ModelInferRequest.DESCRIPTOR,
    )
    assert parse_long(pb.ModelInferRequest.FromString, message + b"\x0b\x0c").id == ""
    with pytest.raises(DecodeError):
        parse_long(pb.ModelInferRequest.FromString, message[:-1])
    other = pb.ModelConfigRequest(name="m")
    assert parse_long(pb.ModelConfigRequest.FromString, other.SerializeToString()) == other


@pytest.mark.parametrize(
    "unit",
    [b"\x2a\0", b"\x32\0", b"\x3a\0", b"\x22\0", b"\x2a\x04\x2a\x02\x42\0", b"\x08\x01", b"\x0b"],
    ids=["inputs", "outputs", "raw", "parameters", "strings", "unknown", "groups"],
)
def test_counting_stops_at_the_bound(unit: bytes) -> None:
    """8 MiB of the smallest things there are, against a bound of 10,000: in a tenth of a second."""
    content = unit * (2**23 // len(unit))
    started_s = time.thread_time()
    assert LIMIT < count_parts(content, INFER, LIMIT) <= LIMIT + 3
    assert time.thread_time() - started_s < 1.0


def test_packed_numbers_count_by_their_bytes() -> None:
    """256 MiB of ones would be 2 GiB, and a quarter of a minute on the event loop."""
    for contents in ("bool_contents", "int_contents", "fp32_contents", "uint64_contents"):
        request = pb.ModelInferRequest()
        tensor = request.inputs.add()
        getattr(tensor.contents, contents).extend([1] * (LIMIT * PACKED_BYTES))
        assert count_parts(request.SerializeToString(), INFER, LIMIT) > LIMIT
    shape = pb.ModelInferRequest()
    shape.inputs.add(shape=[1] * (LIMIT * PACKED_BYTES))
    assert count_parts(shape.SerializeToString(), INFER, LIMIT) > LIMIT


def test_bytes_that_are_no_message_are_counted_without_harm() -> None:
    generator = random.Random(0)  # noqa: S311 - the same each time
    for _ in range(200):
        content = generator.randbytes(5_000)
        assert count_parts(content, INFER, LIMIT) >= 0
    assert count_parts(PADDING + b"\x3a", INFER, LIMIT) == 0
    assert count_parts(b"\xff" * 10_000, INFER, LIMIT) == 0


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress], ids=["gzip", "deflate"])
def test_what_was_compressed_is_inflated_to_the_bound_and_no_further(
    compress: Callable[[bytes], bytes],
) -> None:
    message = pb.ModelInferRequest(model_name="m", id="x" * 900).SerializeToString()
    assert inflated(compress(message), 1_000) == message
    assert len(inflated(compress(bytes(2**24)), 1_000)) == 1_001
    varied = random.Random(0).randbytes(2**17) * 40  # noqa: S311 - many pieces, both ways
    assert inflated(compress(varied), 2**23) == varied
    assert len(inflated(compress(varied), 2**22)) == 2**22 + 1
    for other in (compress(message)[:-9], compress(message) + b"\0"):
        assert inflated(other, 1_000) == other


@pytest.mark.parametrize("start", [b"", GZIP, DEFLATE, b"\x78\x01", b"\x78\x9c"])
def test_what_only_looks_compressed_is_left_as_it_is(start: bytes) -> None:
    message = start + pb.ModelInferRequest(model_name="m").SerializeToString()
    assert inflated(message, 1_000) == message


@pytest.mark.parametrize("method", all_methods(), ids=lambda method: method.name)
def test_no_request_begins_as_a_compressed_one_does(method: Any) -> None:
    assert DEFLATE[0] >> 3 not in method.message_class.DESCRIPTOR.fields_by_number
    assert GZIP[0] & 7 == 7
