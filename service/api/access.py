"""Access to calls: bearer tokens for all calls, and keys for groups of calls.

Secrets are kept as digests and compared in constant time, each with all that are known, so that
time tells nothing of them.
"""

import hashlib
import hmac
import logging
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from service.api.secrets import WatchedFiles, read_bytes
from service.api.services import OWN_METHODS, REFLECT, REFLECTION_SERVICES
from service.errors import SettingError
from service.observe.server import Bound
from service.settings import Settings

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
Digests: TypeAlias = tuple[bytes, ...]
logger = logging.getLogger(__name__)


API_KEYS = "x-api-key", "api-key"  # in which clients of Anthropic and of Azure send the token


@dataclass(frozen=True, slots=True)
class Denial:
    """Why a call may not be made."""

    bound: Literal["token", "key"]
    text: str


class Access:
    """The rules of one server as one front applies them; `header` is a key's name there."""

    def __init__(
        self,
        settings: Settings,
        refusals: Counter[Bound],
        header: str = "{}",
        expected: str = "header",
        restricted: str = "API",
    ) -> None:
        self._refusals = refusals
        self._expected, self._restricted = expected, restricted
        self._tokens: WatchedFiles[Digests] | None = None
        if settings.token_file:
            path = Path(settings.token_file)
            self._tokens = WatchedFiles([path], lambda: digests_of(read_tokens(path)))
        self._keys = {
            method: (header.format(key), digests)
            for method, (key, digests) in restrictions(settings.restricted_protocols).items()
        }

    @property
    def has_rules(self) -> bool:
        """Whether any call could be refused; otherwise no check is needed."""
        return bool(self._tokens or self._keys)

    def denial(self, method: str, value_of: Callable[[str], str]) -> Denial | None:
        """Why a call of a method is refused, which is counted; `value_of` has its headers."""
        denial = self._without_token(method, value_of) or self._without_key(method, value_of)
        if denial is not None:
            self._refusals[denial.bound] += 1
        return denial

    def _without_token(self, method: str, value_of: Callable[[str], str]) -> Denial | None:
        if self._tokens is None or method.startswith(HEALTH_SERVICE):
            return None
        scheme, _, token = value_of("authorization").partition(" ")
        if not scheme and (keys := [key for name in API_KEYS if (key := value_of(name))]):
            scheme, token = "bearer", keys[0]
        if not token or scheme.lower() != "bearer":
            expected = f"{self._expected} 'authorization: Bearer <token>'"
            return Denial("token", f"a token is missing, expected {expected}")
        if not is_one_of(token.strip(), self._tokens.value):
            return Denial("token", "the token is not known to this server")
        return None

    def _without_key(self, method: str, value_of: Callable[[str], str]) -> Denial | None:
        restriction = self._keys.get(method)
        if restriction is None:
            return None
        header, digests = restriction
        if is_one_of(value_of(header), digests.value):
            return None
        return Denial("key", f"This {self._restricted} is restricted, expecting header '{header}'")


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


_Restriction: TypeAlias = tuple[str, WatchedFiles[Digests]]


def restrictions(text: str) -> dict[str, _Restriction]:
    """The required key of each method, and its value.

    `text` is `<protocol>,<protocol>:<key>=<value>`, several of them separated by `;`, where a value
    `@<path>` is in that file.
    """
    restricted: dict[str, _Restriction] = {}
    for group in filter(None, map(str.strip, text.split(";"))):
        protocols, colon, pair = group.partition(":")
        key, equals, value = pair.partition("=")
        if not (colon and equals and _KEY.fullmatch(key.strip()) and value.strip()):
            raise _wrong(f"has '{protocols}'", "<protocol>,...:<key>=<value>, the key in lowercase")
        restriction = key.strip(), _watched_value(value.strip())
        for name in map(str.strip, protocols.split(",")):
            if name not in PROTOCOLS:
                raise _wrong(f"has the protocol '{name}'", f"one of {', '.join(PROTOCOLS)}")
            if PROTOCOLS[name][0] in restricted:
                raise _wrong(f"has the protocol '{name}' twice", "it once")
            restricted |= dict.fromkeys(PROTOCOLS[name], restriction)
    return restricted


def _watched_value(text: str) -> WatchedFiles[Digests]:
    if not text.startswith("@"):
        return WatchedFiles([], lambda: digests_of([_checked(text, "a value")]))
    path = Path(text[1:])

    def read() -> Digests:
        content = read_bytes("--restricted-protocols", path, MAX_SECRET_BYTES)
        return digests_of([_checked(content.decode("utf-8", "replace").strip(), f"in '{path}'")])

    return WatchedFiles([path], read)


def _checked(value: str, where: str) -> str:
    if not _KEY_VALUE.fullmatch(value):
        raise _wrong(f"has {where} of {len(value)} characters", "visible ASCII without spaces")
    return value


def _wrong(what: str, expected: str) -> SettingError:
    return SettingError(f"--restricted-protocols {what}, expected {expected}")


def digests_of(secrets: Sequence[str]) -> Digests:
    return tuple(hashlib.sha256(secret.encode()).digest() for secret in secrets)


def is_one_of(secret: str, digests: Digests) -> bool:
    """Compares with every one, however early it is found."""
    digest = hashlib.sha256(secret.encode()).digest()
    return sum([hmac.compare_digest(digest, known) for known in digests]) > 0
