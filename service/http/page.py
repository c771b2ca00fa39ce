"""The playground: the files of a page for browsers, read and compressed once, at the start.

The page names its files below `playground/{digest}/`, the digest being that of all files together,
so that a browser may keep them for good and never mixes those of two versions. They are as open as
probes: what is behind them, the API, asks for a token.
"""

import hashlib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

from service.http.request import Reply, Request
from service.http.routes import OPEN, PAGE_PATH, Route
from service.http.status import Headers
from service.http.wire.compression import best_encoding

PACKAGE = "playground"
DIGEST = "DIGEST"  # stands in the page for that of its files
PAGE = "index.html"
TYPES = {
    "html": b"text/html; charset=utf-8",
    "css": b"text/css; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "svg": b"image/svg+xml",
}
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' blob: data:",
        "connect-src 'self'",
        "font-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
SAFETY: Headers = (
    (b"content-security-policy", POLICY.encode()),
    (b"cross-origin-opener-policy", b"same-origin"),
)
REVALIDATED = (b"cache-control", b"no-cache")
KEPT = (b"cache-control", b"public, max-age=31536000, immutable")


@dataclass(frozen=True, slots=True)
class Asset:
    """One file, plain and compressed."""

    content_type: bytes
    content: bytes
    zipped: bytes
    tag: bytes

    @classmethod
    def of(cls, name: str, content: bytes) -> "Asset":
        zipped = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
        return cls(
            TYPES[name.rpartition(".")[2]],
            content,
            zipped.compress(content) + zipped.flush(),
            b'"%s"' % hashlib.sha256(content).hexdigest()[:32].encode(),
        )

    def reply(self, request: Request, caching: tuple[bytes, bytes]) -> Reply:
        """The file, or 304 where the browser has it."""
        headers: Headers = (*SAFETY, caching, (b"etag", self.tag), (b"vary", b"accept-encoding"))
        known = [each.strip() for each in request.header("if-none-match").split(",")]
        if self.tag.decode() in [each.removeprefix("W/") for each in known] or "*" in known:
            return Reply(status=304, content_type=self.content_type, headers=headers)
        if best_encoding(request.header("accept-encoding")) == "identity":
            return Reply(self.content, content_type=self.content_type, headers=headers)
        headers += ((b"content-encoding", b"gzip"),)
        return Reply(self.zipped, content_type=self.content_type, headers=headers)


def page_routes() -> tuple[Route, ...]:
    """The page's own route, and one for each of its files."""
    content_of = dict(sorted(_contents(files(PACKAGE))))
    page = content_of.pop(PAGE)
    digest = hashlib.sha256(repr(content_of).encode()).hexdigest()[:16]
    return (
        _route(PAGE_PATH, Asset.of(PAGE, page.replace(DIGEST.encode(), digest.encode())), None),
        *(
            _route(f"/{PACKAGE}/{{digest}}/{name}", Asset.of(name, content), digest)
            for name, content in content_of.items()
        ),
    )


def _route(path: str, asset: Asset, digest: str | None) -> Route:
    async def show(request: Request) -> Reply:
        # Another server's page may ask while versions are changed: it gets what there is.
        is_own = digest is not None and request.parameters["digest"] == digest
        return asset.reply(request, KEPT if is_own else REVALIDATED)

    return Route("GET", path, show, OPEN)


def _contents(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, bytes]]:
    """Names below the package, with slashes, and contents of its files for browsers."""
    for each in folder.iterdir():
        name = prefix + each.name
        if each.is_dir():
            yield from _contents(each, f"{name}/")
        elif each.name.rpartition(".")[2] in TYPES:
            yield name, each.read_bytes()
