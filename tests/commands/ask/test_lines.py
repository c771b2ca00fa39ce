"""Lines as commands take them: which are texts, which are skipped, and how much is held."""

import io
import os
import threading
from collections.abc import Iterator
from typing import BinaryIO

import pytest

from commands.ask.lines import BLOCK_BYTES, MAX_LINE_BYTES, GivenTexts, StreamedTexts


def lines_of(content: bytes) -> StreamedTexts:
    return StreamedTexts(io.BytesIO(content))


def test_lines_keep_their_numbers_where_empty_ones_are_skipped() -> None:
    """Line ends of either kind, a byte order mark, and no end after the last line."""
    texts = lines_of(b"\xef\xbb\xbfone\r\n\r\n \t\ntwo words \nlast")
    found = texts.take(10)
    assert [(line.number, line.text) for line in found] == [
        (1, "one"),
        (4, "two words "),
        (5, "last"),
    ]
    assert (texts.num_empty, texts.has_ended) == (2, True)
    assert texts.take(10) == []


def test_a_line_that_cannot_be_a_text_has_a_fault_and_the_next_one_is_read() -> None:
    """One that is not UTF-8, and one of 4 MiB and a byte."""
    texts = lines_of(b"a\n\xff\n" + b"x" * (MAX_LINE_BYTES + 1) + b"\n" + b"y" * 70_000 + b"\nb\n")
    found = []
    while taken := texts.take(2):
        found += taken
    faults = [(line.number, line.fault) for line in found]
    assert faults == [
        (1, ""),
        (2, "is not UTF-8: byte 0 is 0xff"),
        (3, f"has more than {MAX_LINE_BYTES} bytes, which is the limit"),
        (4, ""),
        (5, ""),
    ]
    assert found[3].text == "y" * 70_000


def test_lines_taken_together_are_bounded_in_number_and_in_characters() -> None:
    """At most 64 of 100; of half a million characters each, two."""
    assert len(lines_of(b"a\n" * 100).take(64)) == 64
    assert len(lines_of((b"x" * 2**19 + b"\n") * 4).take(64)) == 2


class CountingStream(io.RawIOBase):
    """A million lines, and how many bytes of them were read."""

    def __init__(self) -> None:
        self.num_read = 0

    def read(self, size: int = -1) -> bytes:
        self.num_read += size
        return b"a line\n" * (size // 7) if self.num_read < 7_000_000 else b""


def test_no_more_is_read_of_a_stream_than_is_taken() -> None:
    stream = CountingStream()
    texts = StreamedTexts(stream)  # type: ignore[arg-type]
    for _ in range(10):
        assert len(texts.take(64)) == 64
    assert stream.num_read <= 2 * BLOCK_BYTES


@pytest.fixture
def pipe() -> Iterator[tuple[StreamedTexts, BinaryIO]]:
    """A stream, and where to write what it reads."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stream, os.fdopen(writing, "wb", buffering=0) as other_end:
        yield StreamedTexts(stream), other_end


def test_what_has_come_through_a_pipe_is_taken_without_waiting_for_more(
    pipe: tuple[StreamedTexts, BinaryIO],
) -> None:
    texts, other_end = pipe
    other_end.write(b"one\ntwo\nthr")
    assert [line.text for line in texts.take(64)] == ["one", "two"]
    assert not texts.has_ended
    threading.Timer(0.1, lambda: other_end.write(b"ee\n")).start()
    assert [line.text for line in texts.take(64)] == ["three"]
    other_end.write(b"last")
    other_end.close()
    assert [line.text for line in texts.take(64)] == ["last"]
    assert texts.has_ended


def test_only_of_a_file_the_size_is_known_before(pipe: tuple[StreamedTexts, BinaryIO]) -> None:
    assert pipe[0].total is None
    with open(__file__, "rb") as file:
        texts = StreamedTexts(file)
        last = None
        while taken := texts.take(1_000):
            last = taken[-1]
    assert last is not None
    assert texts.total == last.place


def test_arguments_are_texts_as_they_are() -> None:
    """Also empty ones; Python reads an argument's byte that is not UTF-8 as a surrogate."""
    texts = GivenTexts(["a", "", "\udcff"])
    found = texts.take(64)
    assert [(line.number, line.text) for line in found] == [(1, "a"), (2, ""), (3, "\udcff")]
    assert [line.fault for line in found] == ["", "", "is not UTF-8"]
    assert texts.has_ended
