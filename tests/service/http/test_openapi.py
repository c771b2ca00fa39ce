"""`/openapi.json`: what it says, that docs/reference has the same, and requests made from it."""

import json
from typing import Any

import jsonschema
import pytest
from google.protobuf.json_format import MessageToDict
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as some

import service
from deploy.generate.openapi import PATH, page_of
from service.http.page import page_routes
from service.http.routes import Route, Router
from tests.fakes.every_task import VALID, message
from tests.fakes.http import ask
from tests.fakes.schema_values import values_of
from tests.fakes.serving import Served, within_patience

DOCUMENT: dict[str, Any] = json.loads(PATH.read_text())
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]
MODELS = ("spam", "mini", "tale", "fills", "tags", "asks", "match", "deep", "light", "writes")
# What changes the server for the tests after it.
CONTROL = ("/v2/repository", "/v2/trace", "/v2/logging", "sharedmemory", "/trace/setting")
POSTS = [
    (path, item["post"])
    for path, item in DOCUMENT["paths"].items()
    if "application/json" in item.get("post", {}).get("requestBody", {}).get("content", {})
    and not any(word in path for word in CONTROL)
]


def check(value: Any, schema: dict[str, Any]) -> None:
    jsonschema.validate(value, {**schema, "components": DOCUMENT["components"]})


@pytest.mark.asyncio(loop_scope="module")
async def test_the_file_in_docs_is_what_a_server_answers(served: Served) -> None:
    answer = await ask(served, "GET", "/openapi.json")
    assert answer.status == 200
    assert page_of(answer.body) == PATH.read_text(), "stale: run `make openapi`"
    assert json.loads(answer.body)["info"]["version"] == service.__version__


@pytest.mark.asyncio(loop_scope="module")
async def test_every_route_is_described(served: Served) -> None:
    http = served.app._http
    assert http is not None
    router: Router = http.front._router
    described = {
        (method.upper(), path) for path, item in DOCUMENT["paths"].items() for method in item
    }
    found: set[Route] = {router.find(method, path)[0] for method, path in described}
    pages = {("GET", route.path) for route in page_routes()}  # which are no API
    assert {(route.method, route.path) for route in found} == _all_of(router) - pages


def _all_of(router: Router) -> set[tuple[str, str]]:
    waiting, routes = [router._root], set()
    while waiting:
        node = waiting.pop()
        routes |= {(route.method, route.path) for route in node.routes.values()}
        waiting += [*node.fixed.values(), *([node.named[1]] if node.named else ())]
    return routes


def test_every_schema_is_one_and_every_reference_leads_to_one() -> None:
    for schema in SCHEMAS.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    text = PATH.read_text()
    references = {part.partition('"')[0] for part in text.split('"#/components/schemas/')[1:]}
    assert references <= {*SCHEMAS}
    ids = [each["operationId"] for item in DOCUMENT["paths"].values() for each in item.values()]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("method", VALID)
@pytest.mark.asyncio(loop_scope="module")
async def test_requests_and_answers_of_the_typed_api_are_as_described(
    served: Served, method: str
) -> None:
    described = DOCUMENT["paths"][f"/api/{method}"]["post"]
    body = MessageToDict(message(method, **VALID[method]), preserving_proto_field_name=True)
    check(body, described["requestBody"]["content"]["application/json"]["schema"])
    answer = await within_patience(ask(served, "POST", f"/api/{method}", body))
    assert answer.status == 200
    check(answer.json, described["responses"]["200"]["content"]["application/json"]["schema"])


def test_what_is_wrong_is_not_as_described() -> None:
    described = DOCUMENT["paths"]["/api/Classify"]["post"]["requestBody"]["content"]
    with pytest.raises(jsonschema.ValidationError):
        check({"texts": "a"}, described["application/json"]["schema"])


def test_routes_that_take_files_and_streams_say_so() -> None:
    image = DOCUMENT["paths"]["/models/{model}"]["post"]
    assert "application/octet-stream" in image["requestBody"]["content"]
    for path in ("/v1/completions", "/api/Generate", "/models/{model}"):
        answers = DOCUMENT["paths"][path]["post"]["responses"]["200"]["content"]
        assert "text/event-stream" in answers


@some.composite
def requests(draw: some.DrawFn) -> tuple[str, Any, dict[str, Any]]:
    """A path, a body that its schema describes for the most part, and the schema of errors."""
    path, described = draw(some.sampled_from(POSTS))
    schema = described["requestBody"]["content"]["application/json"]["schema"]
    body = draw(values_of(schema, SCHEMAS))
    for parameter in described.get("parameters", ()):
        words = MODELS if parameter["name"] == "model" else ("1", "fill-mask", "translation")
        path = path.replace(f"{{{parameter['name']}}}", draw(some.sampled_from(words)))
    return path, body, described["responses"]["default"]["content"]["application/json"]["schema"]


@pytest.mark.asyncio(loop_scope="module")
@hypothesis_settings(
    max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)
@given(request=requests())
async def test_made_up_requests_are_answered_or_refused_as_described(
    server: Served, request: tuple[str, Any, dict[str, Any]]
) -> None:
    """No answer is a failure of the server's: 501 is what it does not offer."""
    path, body, of_errors = request
    answer = await within_patience(ask(server, "POST", path, json.dumps(body).encode()))
    assert answer.status < 500 or answer.status == 501, (path, body, answer.body)
    if answer.status >= 400:
        check(answer.json, of_errors)
