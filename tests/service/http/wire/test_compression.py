"""Compressed bodies: what is inflated and how far, and which encoding an answer gets."""

import gzip
import zlib

import pytest

from service.api.wire import MAX_MEMBERS
from service.errors import InvalidArgument, Unimplemented
from service.http.wire.compression import best_encoding, compressed, inflated

BODY = b"a body of several words " * 50


def bare_deflate(body: bytes) -> bytes:
    stream = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return stream.compress(body) + stream.flush()


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("", BODY),
        ("identity", BODY),
        ("gzip", gzip.compress(BODY, mtime=0)),
        (" GZIP", gzip.compress(BODY, mtime=0)),
        ("x-gzip", gzip.compress(BODY, mtime=0)),
        ("deflate", zlib.compress(BODY)),
        ("deflate", bare_deflate(BODY)),
    ],
)
def test_a_body_is_inflated_as_its_header_says(encoding: str, body: bytes) -> None:
    assert bytes(inflated(body, encoding, len(BODY))) == BODY


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress, bare_deflate])
def test_a_body_that_inflates_beyond_the_bound_is_refused(compress: object) -> None:
    assert callable(compress)
    encoding = "gzip" if compress is gzip.compress else "deflate"
    with pytest.raises(InvalidArgument, match="more than 1000 bytes once it is inflated"):
        inflated(compress(bytes(2**24)), encoding, 1_000)


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
@pytest.mark.parametrize("body", [b"", b"not compressed", gzip.compress(BODY, mtime=0)[:-9]])
def test_a_body_that_is_not_as_its_header_says_is_refused(encoding: str, body: bytes) -> None:
    with pytest.raises(InvalidArgument, match="is not whole data of Content-Encoding"):
        inflated(body, encoding, 2**20)


MEMBERS = [BODY[start : start + 100] for start in range(0, len(BODY), 100)]


def test_the_members_of_a_gzip_body_follow_each_other() -> None:
    body = b"".join(gzip.compress(member, mtime=0) for member in [*MEMBERS, b""])
    assert bytes(inflated(body, "gzip", len(BODY))) == BODY
    with pytest.raises(InvalidArgument, match="more than 1000 bytes once it is inflated"):
        inflated(body, "gzip", 1_000)


@pytest.mark.parametrize("rest", [b"\0", b"{}", b"x" * 2**17, b"\x1f\x8b", zlib.compress(b"{}")])
@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress, bare_deflate])
def test_bytes_behind_the_end_of_a_compressed_body_are_refused(
    compress: object, rest: bytes
) -> None:
    assert callable(compress)
    encoding = "gzip" if compress is gzip.compress else "deflate"
    with pytest.raises(InvalidArgument, match="is not whole data of Content-Encoding"):
        inflated(compress(BODY) + rest, encoding, 2**20)


def test_a_body_of_countless_members_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="is not whole data"):
        inflated(gzip.compress(b"", mtime=0) * (MAX_MEMBERS + 1), "gzip", 2**20)


@pytest.mark.parametrize("encoding", ["br", "gzip, deflate", "zstd"])
def test_other_encodings_are_refused_as_triton_does(encoding: str) -> None:
    with pytest.raises(Unimplemented, match="Unsupported compression type"):
        inflated(BODY, encoding, 2**20)


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [
        ("", "identity"),
        ("gzip", "gzip"),
        ("GZip", "gzip"),
        ("gzip, deflate", "gzip"),
        ("deflate, gzip", "deflate"),
        ("gzip;q=0.5, deflate;q=0.8", "deflate"),
        ("gzip; q=0.5, identity; q=0.7", "identity"),
        ("gzip;q=0", "identity"),
        ("gzip;q=high", "identity"),
        ("gzip;q=2", "identity"),
        ("gzip;q=nan", "identity"),
        ("br, zstd", "identity"),
        ("br, *;q=0.1", "gzip"),
        ("identity;q=0, *;q=0", "identity"),
        (",,;", "identity"),
    ],
)
def test_the_encoding_with_the_largest_weight_is_chosen(accepted: str, encoding: str) -> None:
    assert best_encoding(accepted) == encoding


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_an_answer_in_several_buffers_is_compressed_as_one(encoding: str) -> None:
    large = bytes(3 * 2**20)
    pieces = compressed([BODY, b"", memoryview(large)], encoding)
    assert sum(map(len, pieces)) < 2**16
    assert inflated(b"".join(pieces), encoding, 2**23) == BODY + large
