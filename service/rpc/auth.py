"""Access control: bearer tokens for all calls, and keys for groups of calls.

Both are checked before a message is read. Secrets are kept as digests and compared in constant
time, each with all that are known, so that timing reveals nothing. Lives on the event loop.
"""

import hashlib
import hmac
import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import grpc
from grpc import StatusCode

from service.errors import SettingError
from service.rpc.reflection import METHOD as REFLECT
from service.rpc.reflection import REFLECTION_SERVICES
from service.rpc.status import Context, keeping_nothing
from service.rpc.typed import OWN_METHODS
from service.server_metrics import Bound
from service.settings import Settings
from service.watched_files import WatchedFiles, read_bytes

MIN_TOKEN_CHARACTERS = 16  # fewer can be tried out
MAX_TOKEN_CHARACTERS = 1_024  # metadata of a call is 8 KiB in all
MAX_TOKENS = 64  # each costs a comparison per call
MAX_SECRET_BYTES = 2**17
HEALTH_SERVICE = "/grpc.health.v1.Health/"  # of probes, which have no tokens
_TOKEN = re.compile(rf"[!-~]{{{MIN_TOKEN_CHARACTERS},{MAX_TOKEN_CHARACTERS}}}")
_KEY = re.compile(r"[a-z0-9._-]+")
_KEY_VALUE = re.compile(r"[!-~]+")
_INFERENCE = "/inference.GRPCInferenceService/"
LIST_MODELS = "/attendant.v1.TextService/ListModels"
# Triton's groups and what is in them; attendant.v1 and reflection beside what they resemble.
PROTOCOLS: dict[str, tuple[str, ...]] = {
    "health": (
        *(f"{_INFERENCE}{name}" for name in ("ServerLive", "ServerReady", "ModelReady")),
        *(f"{HEALTH_SERVICE}{name}" for name in ("Check", "Watch")),
    ),
    "metadata": (
        *(f"{_INFERENCE}{name}" for name in ("ServerMetadata", "ModelMetadata")),
        LIST_MODELS,
        *(f"/{name}/{REFLECT}" for name in REFLECTION_SERVICES),
    ),
    "inference": (
        *(f"{_INFERENCE}{name}" for name in ("ModelInfer", "ModelStreamInfer")),
        *(method for method in OWN_METHODS if method != LIST_MODELS),
    ),
    "shared-memory": tuple(
        f"{_INFERENCE}{kind}SharedMemory{name}"
        for kind in ("System", "Cuda")
        for name in ("Status", "Register", "Unregister")
    ),
    "model-config": (f"{_INFERENCE}ModelConfig",),
    "model-repository": tuple(
        f"{_INFERENCE}Repository{name}" for name in ("Index", "ModelLoad", "ModelUnload")
    ),
    "statistics": (f"{_INFERENCE}ModelStatistics",),
    "trace": (f"{_INFERENCE}TraceSetting",),
    "logging": (f"{_INFERENCE}LogSettings",),
}
# What changes the server for all its clients, and can have a port of its own.
ADMIN_METHODS = frozenset(
    method for name in ("model-repository", "trace", "logging") for method in PROTOCOLS[name]
)
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any] | None"  # None: no such method
Continuation: TypeAlias = "Callable[[grpc.HandlerCallDetails], Awaitable[Handler]]"
Metadata: TypeAlias = Sequence[tuple[str, str | bytes]]
_Check: TypeAlias = "Callable[[str, Metadata], tuple[StatusCode, str] | None]"
_Digests: TypeAlias = tuple[bytes, ...]
logger = logging.getLogger(__name__)


class Guard(grpc.aio.ServerInterceptor):
    """Refuses calls without a token, and calls of a restricted group without its key."""

    def __init__(self, settings: Settings, refusals: Counter[Bound] | None = None) -> None:
        self._refusals: Counter[Bound] = Counter() if refusals is None else refusals
        self._tokens: WatchedFiles[_Digests] | None = None
        if settings.token_file:
            path = Path(settings.token_file)
            self._tokens = WatchedFiles([path], lambda: _digests(read_tokens(path)))
        self._keys = _keys(settings.restricted_protocols)

    @property
    def has_rules(self) -> bool:
        """Whether any call could be refused; otherwise no check is needed."""
        return bool(self._tokens or self._keys)

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> Handler:
        method, metadata = handler_call_details.method, handler_call_details.invocation_metadata
        checks: tuple[tuple[Bound, _Check], ...] = (
            ("token", self._without_token),
            ("key", self._without_key),
        )
        for bound, check in checks:
            refusal = check(method, metadata)
            if refusal is not None:
                self._refusals[bound] += 1
                return refusing(*refusal)
        return await continuation(handler_call_details)

    def _without_token(self, method: str, metadata: Metadata) -> tuple[StatusCode, str] | None:
        if self._tokens is None or method.startswith(HEALTH_SERVICE):
            return None
        given = _value_of("authorization", metadata)
        scheme, _, token = given.partition(" ")
        if not token or scheme.lower() != "bearer":
            text = "a token is missing, expected metadata 'authorization: Bearer <token>'"
            return StatusCode.UNAUTHENTICATED, text
        if not _is_one_of(token.strip(), self._tokens.value):
            return StatusCode.UNAUTHENTICATED, "the token is not known to this server"
        return None

    def _without_key(self, method: str, metadata: Metadata) -> tuple[StatusCode, str] | None:
        restriction = self._keys.get(method)
        if restriction is None:
            return None
        header, digests = restriction
        if _is_one_of(_value_of(header, metadata), digests.value):
            return None
        return StatusCode.UNAVAILABLE, f"This protocol is restricted, expecting header '{header}'"


def refusing(code: StatusCode, text: str, trailers: Sequence[tuple[str, str]] = ()) -> Handler:
    """Ends a call of any kind at once, whatever it sends, which is not read."""

    async def refuse(requests: object, context: Context) -> None:
        await context.abort(code, text, tuple(trailers))

    return grpc.stream_stream_rpc_method_handler(keeping_nothing(refuse))


def read_tokens(path: Path) -> list[str]:
    """One token a line; raises `SettingError` where it holds none, or one that is too short."""
    flag = "--token-file"
    _warn_if_others_may_read(path)
    lines = read_bytes(flag, path, MAX_SECRET_BYTES).decode("utf-8", "replace").splitlines()
    stripped = ((number, line.strip()) for number, line in enumerate(lines, start=1))
    numbered = [(number, line) for number, line in stripped if line and line[0] != "#"]
    for number, token in numbered:
        if not _TOKEN.fullmatch(token):
            raise SettingError(
                f"{flag} '{path}' line {number} has {len(token)} characters, expected "
                f"{MIN_TOKEN_CHARACTERS} to {MAX_TOKEN_CHARACTERS}, visible ASCII without spaces"
            )
    if not 1 <= len(numbered) <= MAX_TOKENS:
        raise SettingError(
            f"{flag} '{path}' has {len(numbered)} tokens, expected 1 to {MAX_TOKENS}"
        )
    return [token for _, token in numbered]


def _warn_if_others_may_read(path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except OSError:
        return  # reading it says so
    if mode & 0o004:
        logger.warning("'%s' holds secrets, and every user of this machine may read it", path)


_Restriction: TypeAlias = tuple[str, WatchedFiles[_Digests]]


def _keys(text: str) -> dict[str, _Restriction]:
    """The required header of each method, and its value.

    `text` is `<protocol>,<protocol>:<key>=<value>`, several of them separated by `;`, where a value
    `@<path>` is in that file.
    """
    found: dict[str, _Restriction] = {}
    for group in filter(None, map(str.strip, text.split(";"))):
        protocols, colon, pair = group.partition(":")
        key, equals, value = pair.partition("=")
        if not (colon and equals and _KEY.fullmatch(key.strip()) and value.strip()):
            raise _wrong(f"has '{protocols}'", "<protocol>,...:<key>=<value>, the key in lowercase")
        header = f"triton-grpc-protocol-{key.strip()}"
        restriction = header, _watched_value(value.strip())
        for name in map(str.strip, protocols.split(",")):
            if name not in PROTOCOLS:
                raise _wrong(f"has the protocol '{name}'", f"one of {', '.join(PROTOCOLS)}")
            if PROTOCOLS[name][0] in found:
                raise _wrong(f"has the protocol '{name}' twice", "it once")
            found |= dict.fromkeys(PROTOCOLS[name], restriction)
    return found


def _watched_value(text: str) -> WatchedFiles[_Digests]:
    if not text.startswith("@"):
        return WatchedFiles([], lambda: _digests([_checked(text, "a value")]))
    path = Path(text[1:])

    def read() -> _Digests:
        content = read_bytes("--restricted-protocols", path, MAX_SECRET_BYTES)
        return _digests([_checked(content.decode("utf-8", "replace").strip(), f"in '{path}'")])

    return WatchedFiles([path], read)


def _checked(value: str, where: str) -> str:
    if not _KEY_VALUE.fullmatch(value):
        raise _wrong(f"has {where} of {len(value)} characters", "visible ASCII without spaces")
    return value


def _wrong(what: str, expected: str) -> SettingError:
    return SettingError(f"--restricted-protocols {what}, expected {expected}")


def _digests(secrets: Sequence[str]) -> _Digests:
    return tuple(hashlib.sha256(secret.encode()).digest() for secret in secrets)


def _is_one_of(given: str, digests: _Digests) -> bool:
    """Compares with every one, however early it is found."""
    digest = hashlib.sha256(given.encode()).digest()
    return sum([hmac.compare_digest(digest, known) for known in digests]) > 0


def _value_of(name: str, metadata: Metadata) -> str:
    """The first value of that name, or nothing."""
    for key, value in metadata:
        if key == name:
            return value if isinstance(value, str) else ""
    return ""
