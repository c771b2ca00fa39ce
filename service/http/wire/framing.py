"""Framing of a request by its head: its body and its host. Pure.

httptools reads a head and frames its body. These functions judge what it has read where HTTP leaves
a server a choice, and make the head by which a second parser reads a body that the first one left.
"""

from collections.abc import Sequence

import httptools

from service.http.status import NO_RETRY, HttpError

Fields = Sequence[tuple[bytes, bytes]]  # names in lowercase
CHUNKED = b"chunked"
_SCHEMES = (b"http", b"https")


def check_transfer_coding(fields: Fields) -> None:
    """Raise `HttpError` for a body that is more than cut into chunks: it would be read wrongly.

    501 for a coding that is not spoken, 400 where the body would have no certain end.
    """
    values = [value for name, value in fields if name == b"transfer-encoding"]
    if not values:
        return
    codings = [coding.strip().lower() for coding in b",".join(values).split(b",")]
    if codings == [CHUNKED]:
        return
    is_framed = codings[-1] == CHUNKED and CHUNKED not in codings[:-1]
    raise HttpError(
        501 if is_framed else 400,
        f"Transfer-Encoding '{b', '.join(codings).decode('latin-1')[:256]}' is not read here, "
        "expected 'chunked'; a compressed body has a Content-Encoding",
        code="unsupported_encoding",
        headers=NO_RETRY,
    )


def with_target_host(url: bytes, fields: Fields) -> list[tuple[bytes, bytes]]:
    """The headers with the host of a target such as `http://host/path`, which counts.

    RFC 9112, 3.2.2: a server then ignores the header. Raises `HttpError` for another scheme, and
    for a user's name before the host, which is a way to hide it.
    """
    if url.startswith((b"/", b"*")):
        return list(fields)
    scheme, separator, rest = url.partition(b"://")
    authority = rest.partition(b"/")[0].partition(b"?")[0]
    if not separator or scheme.lower() not in _SCHEMES or not authority or b"@" in authority:
        text = url.decode("latin-1")[:256]
        raise HttpError(
            400, f"the request's target '{text}' is neither a path nor http://HOST/PATH"
        )
    return [(name, authority if name == b"host" else value) for name, value in fields]


def body_head(fields: Fields, *, is_last: bool) -> bytes:
    """A head that frames the body as these headers do, and says nothing else."""
    lines = [b"POST / HTTP/1.1"]
    for name, value in fields:
        if name in (b"content-length", b"transfer-encoding"):
            lines.append(b"%s: %s" % (name, value))
    if is_last:
        lines.append(b"connection: close")
    return b"\r\n".join([*lines, b"", b""])


def new_parser(protocol: object) -> httptools.HttpRequestParser:
    """A parser with uvicorn's leniency: a request behind the last one is not an error."""
    parser = httptools.HttpRequestParser(protocol)
    parser.set_dangerous_leniencies(lenient_data_after_close=True)
    return parser
