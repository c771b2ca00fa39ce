"""A model with a response cache over a real port: what it answers, counts and forgets."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb

from service.contract.tensors import Arrays
from tests.fakes.serving import (
    Served,
    eventually,
    num_runs,
    refusal,
    serving,
    simple_request,
    text_request,
    write_models,
)
from tests.fakes.sessions import PATIENCE_S, generator_manifest, write_model

CACHED = "response_cache { enable: true }"
ROOM = 10**6


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """`simple` and `spam` with a cache, `strings` with none."""
    folder = tmp_path / "models"
    write_models(folder)
    (folder / "simple" / "config.pbtxt").write_text(f"max_batch_size: 8 {CACHED}")
    (folder / "spam" / "config.pbtxt").write_text(CACHED)
    return folder


async def statistics(served: Served, model: str = "simple") -> Any:
    asked = pb.ModelStatisticsRequest(name=model)
    return (await served.inference.ModelStatistics(asked)).model_stats[0]


async def ask(served: Served, num_rows: int = 1) -> pb.ModelInferResponse:
    return await served.inference.ModelInfer(simple_request(num_rows), timeout=PATIENCE_S)


async def test_what_was_asked_before_is_answered_without_a_run(repository: Path) -> None:
    """Twice the same and once another: two runs, one hit, three answers."""
    async with serving(repository, response_cache_bytes=ROOM) as served:
        first, second = await ask(served), await ask(served)
        await ask(served, 2)
        assert first == second
        assert len(served.sessions["simple"].batches) == 2
        await eventually(lambda: num_runs(served, "simple") == 2)  # counted after the answer
        stats = await statistics(served)
    found = stats.inference_stats
    assert (found.cache_hit.count, found.cache_miss.count) == (1, 2)
    assert found.cache_hit.ns > 0
    assert found.cache_miss.ns > 0
    assert (found.success.count, found.queue.count, found.compute_infer.count) == (3, 3, 2)
    assert (stats.inference_count, stats.execution_count) == (3, 2)


async def test_the_time_of_a_hit_counts(repository: Path) -> None:
    async with serving(repository, response_cache_bytes=ROOM) as served:
        await ask(served)
        await eventually(lambda: num_runs(served, "simple") == 1)
        before = (await statistics(served)).inference_stats.success
        await ask(served)
        after = (await statistics(served)).inference_stats.success
    assert after.count == before.count + 1
    assert after.ns > before.ns


async def test_a_hit_waits_for_no_run(repository: Path) -> None:
    """The model's only session is held by another request."""
    async with serving(repository, response_cache_bytes=ROOM) as served:
        before = await served.infer_text("spam", "dinner")
        held = await served.hold("spam")
        assert await served.infer_text("spam", "dinner") == before
        assert not held.done()
        served.release("spam")
        await held


async def test_whether_a_text_may_be_cut_is_part_of_the_question(repository: Path) -> None:
    """A long text is refused, and computed where it may be cut; then it is still refused."""
    long = "lunch " * 40
    async with serving(repository, response_cache_bytes=ROOM) as served:
        request = text_request("spam", long)
        request.parameters["truncate"].bool_param = True
        await served.inference.ModelInfer(request, timeout=PATIENCE_S)
        _, details = await refusal(served.infer_text("spam", long))
        assert "tokens" in details


async def test_a_failure_is_not_kept(repository: Path) -> None:
    async with serving(repository, response_cache_bytes=ROOM) as served:
        compute = served.sessions["simple"].compute
        served.sessions["simple"].compute = fail
        await refusal(served.inference.ModelInfer(simple_request()))
        served.sessions["simple"].compute = compute
        response = await ask(served)
        assert np.frombuffer(response.raw_output_contents[0], "<i4")[0] == 5


async def test_a_model_loaded_anew_forgets_its_answers(repository: Path) -> None:
    settings: dict[str, Any] = {"model_control_mode": "explicit", "load_models": "*"}
    async with serving(repository, response_cache_bytes=ROOM, **settings) as served:
        await ask(served)
        (repository / "simple" / "1" / "model.onnx").write_bytes(b"another")
        await served.inference.RepositoryModelLoad(
            pb.RepositoryModelLoadRequest(model_name="simple")
        )
        await ask(served)
        stats = await statistics(served)
    assert stats.inference_stats.cache_hit.count == 0
    assert stats.inference_stats.cache_miss.count == 2


async def test_a_model_without_a_cache_and_a_server_without_room_keep_nothing(
    repository: Path,
) -> None:
    async with serving(repository) as served:
        await ask(served)
        await ask(served)
        found = (await statistics(served)).inference_stats
        assert (found.cache_hit.count, found.cache_miss.count) == (0, 0)
    (repository / "simple" / "config.pbtxt").write_text("max_batch_size: 8")
    async with serving(repository, response_cache_bytes=ROOM) as served:
        await ask(served)
        await ask(served)
        assert (await statistics(served)).inference_stats.success.count == 2
        assert len(served.sessions["simple"].batches) == 2


async def test_a_generative_model_with_a_response_cache_is_refused_by_name(tmp_path: Path) -> None:
    write_model(tmp_path, "tale", generator_manifest(), config=CACHED)
    async with serving(tmp_path, strict_readiness=False) as served:
        assert "response_cache is not supported" in served.app.repository.failures["tale"]


def fail(arrays: Arrays) -> dict[str, np.ndarray]:
    raise RuntimeError(f"no {sorted(arrays)}")
