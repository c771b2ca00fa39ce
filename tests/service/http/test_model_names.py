"""Names of models: further ones, any name for the only model, and Azure's paths and header."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from attendant.v1 import text_pb2
from tritonclient.grpc import service_pb2 as pb

from service.calls.models import ModelFacts
from service.http.shared.models import own_names
from service.settings import Settings
from tests.fakes.chats import write_chat_model
from tests.fakes.every_task import every_session, write_every_model
from tests.fakes.http import ask
from tests.fakes.serving import Served, serving, within_patience

pytestmark = pytest.mark.asyncio(loop_scope="module")
CHAT = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
ALIASES = "gpt-4o=talks,text-embedding-3-small=mini,nobody=nowhere,spam=mini"
BODIES: dict[str, dict[str, Any]] = {
    "chat/completions": CHAT,
    "completions": {"prompt": "a", "max_tokens": 2},
    "embeddings": {"input": "a"},
    "responses": {"input": "hi", "max_output_tokens": 2},
}
NAME_OF = {"embeddings": "text-embedding-3-small"}


@asynccontextmanager
async def named(repository: Path, **settings: Any) -> AsyncIterator[Served]:
    write_every_model(repository)
    write_chat_model(repository)
    async with serving(repository, every_session(), model_alias=ALIASES, **settings) as served:
        yield served


@asynccontextmanager
async def alone(repository: Path, **settings: Any) -> AsyncIterator[Served]:
    write_chat_model(repository)
    async with serving(repository, **{"http_port": 0, "any_model_name": True} | settings) as served:
        yield served


SERVE = named


@pytest.mark.parametrize("path", BODIES)
async def test_a_further_name_is_taken_and_told(served: Served, path: str) -> None:
    name = NAME_OF.get(path, "gpt-4o")
    answer = await ask(served, "POST", f"/v1/{path}", {**BODIES[path], "model": name})
    assert (answer.status, answer.json["model"]) == (200, name)


async def test_further_names_are_listed_at_every_door(served: Served) -> None:
    """Those that have a model, and no model is called so."""
    listed = (await ask(served, "GET", "/v1/models")).json["data"]
    assert {"gpt-4o", "text-embedding-3-small", "talks"} <= {each["id"] for each in listed}
    assert "nobody" not in {each["id"] for each in listed}
    assert [each["task"] for each in listed if each["id"] == "spam"] == ["text-classification"]
    assert (await ask(served, "GET", "/v1/models/gpt-4o")).json["id"] == "gpt-4o"
    assert (await ask(served, "GET", "/v2/models/gpt-4o/ready")).status == 200
    models = await served.text.ListModels(text_pb2.ListModelsRequest())
    assert "gpt-4o" in {each.name for each in models.models}


async def test_further_names_are_taken_over_grpc(served: Served) -> None:
    request = text_pb2.EmbedRequest(model="text-embedding-3-small", texts=["a"])
    assert (await within_patience(served.text.Embed(request))).model == "mini"
    reply = await served.infer_text("text-embedding-3-small", "a")
    assert reply.outputs[0].name == "embedding"
    ready = pb.ModelReadyRequest(name="gpt-4o")
    assert (await served.inference.ModelReady(ready)).ready


async def test_a_name_whose_model_is_absent_is_not_found(served: Served) -> None:
    answer = await ask(served, "POST", "/v1/chat/completions", {**CHAT, "model": "nobody"})
    assert (answer.status, answer.json["error"]["code"]) == (404, "model_not_found")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await served.text.Embed(text_pb2.EmbedRequest(model="nobody", texts=["a"]))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize("path", BODIES)
async def test_paths_of_azure_lead_to_the_deployment(served: Served, path: str) -> None:
    """The model of the path goes before the body's."""
    name = NAME_OF.get(path, "talks")
    query = "?api-version=2024-10-21"
    url = f"/openai/deployments/{name}/{path}{query}"
    answer = await ask(served, "POST", url, {**BODIES[path], "model": "gpt-35"})
    assert answer.status == 200, answer.body
    answer = await ask(served, "POST", f"/openai/{path}{query}", {**BODIES[path], "model": name})
    assert (answer.status, answer.json["model"]) == (200, name)
    absent = await ask(served, "POST", f"/openai/deployments/none/{path}{query}", BODIES[path])
    assert (absent.status, absent.json["error"]["code"]) == (404, "model_not_found")


async def test_azures_lists_are_those_of_its_newer_paths(served: Served) -> None:
    for path in ("/openai/models?api-version=x", "/openai/v1/models"):
        assert (await ask(served, "GET", path)).json["object"] == "list"
    for path in ("/openai", "/openai/deployments", "/openai/deployments/talks", "/openai/none"):
        assert (await ask(served, "GET", path)).status == 404


async def test_the_only_model_takes_any_name(tmp_path: Path) -> None:
    async with alone(tmp_path) as served:
        for name in ("gpt-4o", "talks", "claude-opus-4-8"):
            answer = await ask(served, "POST", "/v1/chat/completions", {**CHAT, "model": name})
            assert (answer.status, answer.json["model"]) == (200, name)
        tools = {"type": "function", "function": {"name": "f"}}
        wanted = {**CHAT, "model": "other", "tools": [tools], "tool_choice": "auto"}
        answer = await ask(served, "POST", "/v1/chat/completions", wanted)
        assert answer.status == 400  # of the model's form of calls, so it was found


async def test_a_model_that_is_called_as_a_further_name_is_a_model_of_its_own() -> None:
    first, second = (ModelFacts(name=name, version="1", task=name) for name in ("a", "b"))
    models = {"a": first, "b": second, "c": second.also(name="c")}
    settings = Settings(model_alias="a=b,c=b")
    request: Any = SimpleNamespace(front=SimpleNamespace(settings=settings))
    assert own_names(request, models) == ["a", "b"]


async def test_any_name_is_unknown_where_several_models_are_served(tmp_path: Path) -> None:
    async with named(tmp_path, http_port=0, any_model_name=True) as served:
        answer = await ask(served, "POST", "/v1/chat/completions", {**CHAT, "model": "other"})
        assert answer.status == 404


async def test_azures_header_has_the_token(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("a-token-of-the-tests\n")
    tokens.chmod(0o600)
    async with alone(tmp_path / "models", token_file=str(tokens)) as served:
        for name, token, status in (
            ("api-key", "a-token-of-the-tests", 200),
            ("x-api-key", "a-token-of-the-tests", 200),
            ("api-key", "another-token-of-it", 401),
            ("x-none", "a-token-of-the-tests", 401),
        ):
            answer = await ask(served, "GET", "/openai/models", headers=[(name, token)])
            assert answer.status == status
