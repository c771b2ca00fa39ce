"""Adapters over HTTP: listed with their base, asked by name, loaded as vLLM's clients do."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.http import Answer, ask
from tests.fakes.serving import Served, serving, within_patience
from tests.fakes.sessions import (
    FakeSessions,
    generator_manifest,
    greedy_text,
    write_adapter,
    write_model,
)

LOAD, UNLOAD = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"


@asynccontextmanager
async def served_with(repository: Path, **settings: Any) -> AsyncIterator[Served]:
    write_model(repository, "tale", generator_manifest())
    write_adapter(repository, "a", 1)
    write_adapter(repository, "b", 2)
    named = {"model_control_mode": "explicit", "load_models": "tale,a", "http_port": 0}
    async with serving(repository, FakeSessions(), **named | settings) as served:
        yield served


async def post(served: Served, path: str, **fields: Any) -> Answer:
    return await within_patience(ask(served, "POST", path, fields))


async def parents(served: Served) -> dict[str, str | None]:
    listed = (await ask(served, "GET", "/v1/models")).json["data"]
    return {model["id"]: model["parent"] for model in listed}


async def completion(served: Served, model: str) -> str:
    fields = {"model": model, "prompt": "once", "max_tokens": 8, "temperature": 0}
    answer = await post(served, "/v1/completions", **fields)
    return str(answer.json["choices"][0]["text"])


async def test_adapters_come_and_go_as_vllm_s_clients_ask(repository: Path) -> None:
    async with served_with(repository, lora_endpoints=True) as served:
        assert await parents(served) == {"tale": None, "a": "tale"}
        for model, shift in (("tale", 0), ("a", 1)):
            assert await completion(served, model) == greedy_text("once", 8, shift)
        loaded = await post(served, LOAD, lora_name="b", lora_path=str(repository / "b"))
        assert (loaded.status, loaded.body) == (
            200,
            b"Success: LoRA adapter 'b' added successfully.",
        )
        assert await completion(served, "b") == greedy_text("once", 8, 2)
        again = await post(served, LOAD, lora_name="b", lora_path="b", load_inplace=True)
        assert again.status == 200
        removed = await post(served, UNLOAD, lora_name="a")
        assert removed.body == b"Success: LoRA adapter 'a' removed successfully."
        assert await parents(served) == {"tale": None, "b": "tale"}


@pytest.mark.parametrize(
    ("path", "fields", "status", "text"),
    [
        (LOAD, {"lora_name": "b", "lora_path": "/etc"}, 400, "lora_path is '/etc', expected 'b'"),
        (LOAD, {"lora_name": "../b", "lora_path": "../b"}, 400, "path traversal characters"),
        (LOAD, {"lora_name": "a", "lora_path": "a"}, 400, "served already: set load_inplace"),
        (LOAD, {"lora_name": "tale", "lora_path": "tale"}, 400, "is 'tale', which is no adapter"),
        (LOAD, {"lora_name": "nix", "lora_path": "nix"}, 400, "failed to poll from model"),
        (LOAD, {"lora_name": "b"}, 400, "lora_path"),
        (UNLOAD, {"lora_name": "tale"}, 404, "unknown adapter: 'tale'"),
        (UNLOAD, {"lora_name": "b"}, 404, "unknown adapter: 'b'"),
    ],
)
async def test_what_is_no_adapter_of_the_repository_is_refused(
    repository: Path, path: str, fields: dict[str, str], status: int, text: str
) -> None:
    async with served_with(repository, lora_endpoints=True) as served:
        answer = await post(served, path, **fields)
        assert (answer.status, text in answer.json["error"]["message"]) == (status, True)
        assert await parents(served) == {"tale": None, "a": "tale"}


async def test_the_paths_of_vllm_are_off_unless_they_are_set(repository: Path) -> None:
    async with served_with(repository) as served:
        for path in (LOAD, UNLOAD):
            assert (await post(served, path, lora_name="b", lora_path="b")).status == 404
