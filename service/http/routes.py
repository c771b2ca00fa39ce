"""Finds the handler of a path. Pure: no sockets.

Paths are compared segment by segment before they are unquoted, so that a name may have a slash.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import unquote

import msgspec

from service.http.request import Reply, Request
from service.http.status import HttpError

Parameters: TypeAlias = dict[str, str]
# None where it has answered by a stream.
Handler: TypeAlias = Callable[[Request], Awaitable[Reply | None]]
PAGE_PATH = "/"  # of the playground
OPEN = "/grpc.health.v1.Health/Check"  # for probes: they need no token, only the key of `health`


@dataclass(frozen=True, slots=True)
class Route:
    """One method and path, `{name}` being any one segment, and what answers it."""

    method: str
    path: str
    handler: Handler
    # The path of the operation that it performs, by which access is decided; or a function of the
    # path's parameters that gives it.
    operation: str | Callable[[Parameters], str]
    # For the description of the port: the records of msgspec's that a body of JSON can be, whether
    # it can be other bytes, too; the type of the answer, and whether that of status 503 is alike.
    bodies: tuple[type[msgspec.Struct], ...] = ()
    takes_bytes: bool = False
    gives: str = "application/json"
    answers_503: bool = False
    takes_files: bool = False  # in JSON, so that it may be as long as other bytes
    # The schema of a body that is a form in place of JSON.
    form: Mapping[str, Any] | None = field(default=None, hash=False)
    is_scrape: bool = False  # it reads the server's own numbers, and is not counted in them

    def operation_path(self, parameters: Parameters) -> str:
        chosen = self.operation
        return chosen if isinstance(chosen, str) else chosen(parameters)

    @property
    def is_json(self) -> bool:
        """Whether its bodies are JSON of the ordinary length, and nothing else."""
        return not (self.takes_bytes or self.takes_files or self.form)

    @property
    def is_probe(self) -> bool:
        """Whether it is answered beside the bound of calls in flight."""
        return self.operation == OPEN


@dataclass(slots=True, eq=False)
class _Node:
    fixed: "dict[str, _Node]" = field(default_factory=dict)
    named: "tuple[str, _Node] | None" = None
    routes: dict[str, Route] = field(default_factory=dict)  # by method


_KSERVE_V1_VERBS = ("predict", "explain")


class Router:
    """The routes of a server; fixed segments go before named ones."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._root = _Node()
        for route in routes:
            node = self._root
            for segment in _segments(route.path):
                node = _below(node, segment)
            assert route.method not in node.routes, f"{route.method} {route.path} is there twice"
            node.routes[route.method] = route

    def find(self, method: str, raw_path: str) -> tuple[Route, Parameters]:
        """The route and the unquoted parameters of a path. Raises `HttpError`: 404 or 405."""
        parameters: Parameters = {}
        node = _walk(self._root, _of_azure(_segments(raw_path)), 0, parameters)
        if node is None:
            text = f"there is nothing at '{raw_path[:256]}'{self._hint(_segments(raw_path))}"
            raise HttpError(404, text, code="not_found")
        route = node.routes.get(method) or (node.routes.get("GET") if method == "HEAD" else None)
        if route is None and (hint := _of_kserve_v1(_segments(raw_path))):
            text = f"there is nothing at '{raw_path[:256]}': {hint}"
            raise HttpError(404, text, code="not_found")
        if route is None:
            allowed = ", ".join(sorted(node.routes))
            raise HttpError(
                405,
                f"'{raw_path[:256]}' takes {allowed}, not {method}",
                code="method_not_allowed",
                headers=((b"allow", allowed.encode()),),
            )
        return route, parameters

    def _hint(self, segments: list[str]) -> str:
        """Where a path leads with `/v1` before it, or with one less: clients add one or none.

        Or what does the work of a path that other servers have.
        """
        if "" in segments:  # two slashes together
            segments = [segment for segment in segments if segment]
            is_there = _walk(self._root, segments, 0, {}) is not None
            return f", expected '/{'/'.join(segments)[:256]}'" if is_there else ""
        is_twice = segments[:2] == ["v1", "v1"]
        other = segments[1:] if is_twice else ["v1", *segments]
        if not segments or _walk(self._root, other, 0, {}) is None:
            return ""
        return f", expected '/{'/'.join(other)[:256]}'"


def _segments(path: str) -> list[str]:
    """The parts of a path; a slash at its end means nothing, and two together are an empty part."""
    inner = path.removeprefix("/").removesuffix("/")
    return inner.split("/") if inner or path.startswith("//") else []


def _of_azure(segments: list[str]) -> list[str]:
    """A path of Azure's as the one here that it means: a deployment is a model."""
    match segments:
        case ["openai", "deployments", model, _, *_]:
            return ["models", model, "v1", *segments[3:]]
        case ["openai", first, *_] if first not in ("v1", "deployments"):
            return ["openai", "v1", *segments[1:]]
    return segments


def _of_kserve_v1(segments: list[str]) -> str:
    """Path in place of a verb of KServe's first protocol; empty for other paths."""
    name, colon, verb = segments[-1].rpartition(":") if segments else ("", "", "")
    if segments[:2] != ["v1", "models"] or not colon or verb not in _KSERVE_V1_VERBS:
        return ""
    return (
        f"KServe's V1 protocol is not spoken here, but its V2: POST '/v2/models/{name[:128]}/infer'"
        " with 'inputs'; '/openapi.json' has every path"
    )


def _below(node: _Node, segment: str) -> _Node:
    if not segment.startswith("{"):
        return node.fixed.setdefault(segment, _Node())
    name = segment[1:-1]
    if node.named is None:
        node.named = name, _Node()
    assert node.named[0] == name, f"'{name}' has another name on another path"
    return node.named[1]


def _walk(node: _Node, segments: list[str], index: int, parameters: Parameters) -> _Node | None:
    """The node of the segments from `index` on; where a fixed one leads nowhere, a named one."""
    if index == len(segments):
        return node if node.routes else None
    if (child := node.fixed.get(segments[index])) is not None:
        found = _walk(child, segments, index + 1, parameters)
        if found is not None:
            return found
    if node.named is None or not segments[index]:
        return None
    name, child = node.named
    found = _walk(child, segments, index + 1, parameters)
    if found is not None:
        parameters[name] = unquote(segments[index])
    return found
