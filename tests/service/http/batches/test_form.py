"""Bodies of forms: what urllib3 writes is read back, and what is no form is refused."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from urllib3 import encode_multipart_formdata

from service.http.batches.form import MAX_PARTS, SEARCHED_BYTES, Part, parts_of
from service.http.status import HttpError

NAMES = some.text(some.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=20)
TYPE = "multipart/form-data; boundary=b"


@given(
    content=some.binary(max_size=300)
    | some.lists(some.sampled_from([b"\r\n", b"--", b"b", b"x", b"--b"])).map(b"".join),
    name=NAMES.map(str.strip).filter(lambda name: name and not set(name) & set('"\\%<>')),
    boundary=some.sampled_from(["abc", "----WebKitFormBoundary7MA4YWxkTrZu0gW", "a'()+_,-./:=?b"]),
)
def test_a_form_is_read_as_it_was_written(content: bytes, name: str, boundary: str) -> None:
    kind = "application/octet-stream"
    fields: dict[str, Any] = {"file": (name, content, kind), "purpose": "batch"}
    body, _ = encode_multipart_formdata(fields, boundary)
    if b"\r\n--" + boundary.encode() in b"\r\n" + content:
        return  # a client takes another boundary
    parts = parts_of(body, f'multipart/form-data; boundary="{boundary}"')
    assert parts == {"file": Part(content, name), "purpose": Part(b"batch")}
    assert parts["purpose"].text == "batch"


def test_what_stands_before_and_behind_a_form_is_left_out() -> None:
    body = b'\r\n--b  \r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n--b--\r\nrest'
    assert parts_of(body, TYPE) == {"a": Part(b"1")}


HEAD = b'--b\r\ncontent-disposition: form-data; name="a"\r\n\r\n1\r\n'


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("", HEAD + b"--b--"),
        ("application/json", HEAD + b"--b--"),
        ("multipart/form-data", HEAD + b"--b--"),
        ("multipart/mixed; boundary=b", HEAD + b"--b--"),
        ("multipart/form-data; boundary=c", HEAD + b"--b--"),
        (TYPE, HEAD),  # cut off
        (TYPE, b""),
        (TYPE, b"x" + HEAD + b"--b--"),
        (TYPE, b" " * 5_000 + b"x\r\n" + HEAD + b"--b--"),
        (TYPE, HEAD + HEAD + b"--b--"),  # one name twice
        (TYPE, b"--b\r\n\r\n1\r\n--b--"),
        (TYPE, b"--b\r\ncontent-disposition: attachment; name=a\r\n\r\n1\r\n--b--"),
        (TYPE, b"--b\r\ncontent-disposition: form-data\r\n\r\n1\r\n--b--"),
        (TYPE, b"--b\r\ncontent-disposition: form-data; name=a\r\n--b--"),
        (TYPE, b"--b\r\nx: " + b"y" * 9_000 + b"\r\n\r\n1\r\n--b--"),
        (TYPE, HEAD * (MAX_PARTS + 1) + b"--b--"),
    ],
)
def test_what_is_no_form_is_refused(content_type: str, body: bytes) -> None:
    with pytest.raises(HttpError) as caught:
        parts_of(body, content_type)
    assert caught.value.status == 400


@given(some.integers(-8, 8), some.integers(1, 3))
def test_a_delimiter_is_found_wherever_a_piece_that_is_searched_ends(
    num_more: int, num_pieces: int
) -> None:
    content = b"\r" * (num_pieces * SEARCHED_BYTES + num_more)
    head = b'--b\r\ncontent-disposition: form-data; name="a"\r\n\r\n'
    parts = parts_of(head + content[len(head) :] + b"\r\n--b--", TYPE)
    assert parts["a"].content == content[len(head) :]


def test_a_body_of_delimiters_is_refused_without_reading_all_of_it() -> None:
    with pytest.raises(HttpError, match="more than 16 parts"):
        parts_of(b"\r\n--b" * 2**20, TYPE)


@given(some.binary(max_size=200))
def test_no_body_breaks_the_reader(body: bytes) -> None:
    with suppress(HttpError):
        parts_of(body, TYPE)
