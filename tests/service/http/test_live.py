"""`GET /api/live`: a server's numbers in one small answer."""

from pathlib import Path
from typing import Any

import pytest

from tests.fakes.every_task import GENERATED, every_task
from tests.fakes.http import ask
from tests.fakes.serving import Served

pytestmark = pytest.mark.asyncio(loop_scope="module")
SENT = {"model": "spam", "texts": ["win", "lunch"]}


async def numbers(served: Served) -> dict[str, Any]:
    answer: dict[str, Any] = (await ask(served, "GET", "/api/live")).json
    return answer


async def test_the_numbers_are_those_of_the_calls(served: Served) -> None:
    """One call over each protocol that is answered, one that fails, four tokens of output."""
    before = await numbers(served)
    assert (await ask(served, "POST", "/api/Classify", SENT)).status == 200
    await served.infer_text("spam", "lunch")
    assert (await ask(served, "POST", "/api/GenerateUnary", GENERATED)).status == 200
    after = await numbers(served)
    assert after["calls"]["http"] - before["calls"]["http"] == 2
    assert after["calls"]["grpc"] - before["calls"]["grpc"] == 1
    assert after["requests"]["answered"] - before["requests"]["answered"] == 3
    assert _count(after["latency"]) - _count(before["latency"]) == 3
    assert after["generation"]["tokens"] - before["generation"]["tokens"] == 4
    assert _count(after["batches"]) > _count(before["batches"])
    assert after["generation"]["slots"] > 0
    assert after["is_ready"]
    assert "spam/1" in after["models"]
    assert after["time_seconds"] > before["time_seconds"]


def _count(parts: list[dict[str, Any]]) -> int:
    return sum(part["count"] for part in parts)


async def test_readers_and_probes_are_not_counted_as_calls(served: Served) -> None:
    before = await numbers(served)
    for path in ("/health", "/metrics", "/api/live", "/"):
        await ask(served, "GET", path)
    assert (await numbers(served))["calls"] == before["calls"]


async def test_failures_and_clients_that_left_are_apart(tmp_path: Path) -> None:
    async with every_task(tmp_path, http_port=0) as served:
        served.sessions["spam"].error = RuntimeError("broken")
        assert (await ask(served, "POST", "/api/Classify", SENT)).status == 500
        requests = (await numbers(served))["requests"]
        assert requests["failed"] >= 1
        assert requests["cancelled"] == 0
        assert requests["waiting"] == 0


async def test_its_access_is_that_of_the_metrics(tmp_path: Path) -> None:
    token = tmp_path / "tokens"
    token.write_text("a-token-of-the-tests\n")
    token.chmod(0o600)
    async with every_task(tmp_path / "models", http_port=0, token_file=str(token)) as served:
        assert (await ask(served, "GET", "/api/live")).status == 401
        assert (await ask(served, "GET", "/")).status == 200
