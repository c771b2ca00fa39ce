"""Which handler answers a path, and the parameters that it takes from it."""

import pytest

from service.http.request import Reply, Request
from service.http.routes import OPEN, Route, Router
from service.http.status import HttpError


async def _handler(_: Request) -> Reply:
    return Reply()


def _router(*paths: str) -> Router:
    split = (path.split(" ") for path in paths)
    return Router([Route(method, path, _handler, OPEN) for method, path in split])


ROUTER = _router(
    "GET /v2",
    "GET /v2/models/stats",
    "GET /v2/models/{model}",
    "GET /v2/models/{model}/versions/{version}",
    "POST /v2/models/{model}/infer",
    "GET /v2/models/stats/config",
    "POST /tokenize",
)


@pytest.mark.parametrize(
    ("method", "path", "found", "parameters"),
    [
        ("GET", "/v2", "/v2", {}),
        ("GET", "/v2/", "/v2", {}),
        ("HEAD", "/v2", "/v2", {}),
        ("GET", "/v2/models/stats", "/v2/models/stats", {}),
        ("GET", "/v2/models/spam", "/v2/models/{model}", {"model": "spam"}),
        ("GET", "/v2/models/a%2Fb", "/v2/models/{model}", {"model": "a/b"}),
        ("GET", "/v2/models/%73tats", "/v2/models/{model}", {"model": "stats"}),
        ("GET", "/v2/models/stats%20", "/v2/models/{model}", {"model": "stats "}),
        # A model that is called as a fixed segment is found where that leads nowhere.
        ("POST", "/v2/models/stats/infer", "/v2/models/{model}/infer", {"model": "stats"}),
        (
            "GET",
            "/v2/models/spam/versions/7",
            "/v2/models/{model}/versions/{version}",
            {"model": "spam", "version": "7"},
        ),
    ],
)
def test_a_path_is_found_by_its_segments(
    method: str, path: str, found: str, parameters: dict[str, str]
) -> None:
    route, taken = ROUTER.find(method, path)
    assert (route.path, taken) == (found, parameters)


NOWHERE = ["/", "/v3", "/v2/models", "/v2/models/a/b", "/tokenize/x", "//v2", "/v2//", "//v2//"]
EMPTY_PARTS = ["/v2//models/spam", "/v2/models//spam", "/v2/models//versions/7", "/v2/models//"]


@pytest.mark.parametrize("path", [*NOWHERE, *EMPTY_PARTS])
def test_what_leads_nowhere_is_not_found(path: str) -> None:
    with pytest.raises(HttpError) as caught:
        ROUTER.find("GET", path)
    assert (caught.value.status, caught.value.code) == (404, "not_found")


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/completions", ", expected '/v1/completions'"),
        ("/models/a/", ", expected '/v1/models/a'"),
        ("/v1/v1/completions", ", expected '/v1/completions'"),
        ("/v1/nothing", ""),
        ("/nothing", ""),
        ("/v1/v1", ""),
        ("/", ""),
        ("//v1/completions", ", expected '/v1/completions'"),
        ("/v1//completions//", ", expected '/v1/completions'"),
        ("/v1/models//", ""),
        ("//", ""),
        ("//nothing", ""),
    ],
)
def test_a_path_without_v1_or_with_it_twice_is_told_the_one_to_take(path: str, hint: str) -> None:
    chat = "POST /v1/chat/completions"
    router = _router(chat, "POST /v1/completions", "GET /v1/models/{model}", "GET /v2")
    with pytest.raises(HttpError) as caught:
        router.find("POST", path)
    assert str(caught.value) == f"there is nothing at '{path}'{hint}"


@pytest.mark.parametrize("verb", ["predict", "explain"])
def test_a_call_of_kserves_first_protocol_hears_that_the_second_is_spoken(verb: str) -> None:
    router = _router("GET /v1/models/{model}")
    with pytest.raises(HttpError) as caught:
        router.find("POST", f"/v1/models/minilm:{verb}")
    assert caught.value.status == 404
    expected = "KServe's V1 protocol is not spoken here, but its V2: POST '/v2/models/minilm/infer'"
    assert expected in str(caught.value)
    with pytest.raises(HttpError) as other:
        router.find("POST", "/v1/models/minilm")
    assert other.value.status == 405


def test_another_method_hears_which_are_taken() -> None:
    with pytest.raises(HttpError) as caught:
        ROUTER.find("GET", "/tokenize")
    assert caught.value.status == 405
    assert caught.value.headers == ((b"allow", b"POST"),)


def test_no_route_is_there_twice() -> None:
    with pytest.raises(AssertionError, match="is there twice"):
        _router("GET /a/{b}", "GET /a/{b}")
