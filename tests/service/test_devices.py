"""A server and its devices: one that cannot be used, one that is lost, one without memory left."""

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from attendant.v1 import text_pb2
from grpc import StatusCode
from grpc_health.v1 import health_pb2
from tritonclient.grpc import service_pb2 as pb

from service.contract.tensors import Arrays
from service.runtime.device_errors import failure_of_run
from service.runtime.session import cuda_obstacle
from tests.fakes.serving import (
    check_health,
    eventually,
    metrics_page,
    refusal,
    serving,
    within_patience,
)
from tests.fakes.sessions import PATIENCE_S

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
ILLEGAL_ACCESS = (
    "[ONNXRuntimeError] : 1 : FAIL : Non-zero status code returned while running MatMul node. "
    "Name:'/layer0/mlp' Status Message: CUDA failure 700: an illegal memory access was encountered "
    "; GPU=0 ; hostname=vm ; file=matmul.cc ; line=1 ; expr=cudaGetLastError();"
)
NO_MEMORY = (
    "Non-zero status code returned while running Mul node. Name:'m' Status Message: "
    "bfc_arena.cc:376 Failed to allocate memory for requested buffer of size 2830172160"
)


def failing(text: str) -> Callable[[Arrays], dict[str, np.ndarray]]:
    """The work of a session on CUDA whose runs fail with ONNX Runtime's text."""

    def fail(_: Arrays) -> dict[str, np.ndarray]:
        raise failure_of_run(text, "cuda")

    return fail


async def test_a_lost_device_takes_its_model_and_liveness_and_other_models_answer(
    models: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One line says which model, and what the device said; the gauge and health follow."""
    async with serving(models) as served:
        served.sessions["spam"].compute = failing(ILLEGAL_ACCESS)
        caplog.clear()
        code, text = await refusal(served.infer_text("spam", "now"))
        assert code is StatusCode.INTERNAL
        assert text == ILLEGAL_ACCESS
        await eventually(lambda: not served.app.repository.has("spam"))
        served.app._watchdog.check(time.monotonic())
        lines = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
        assert lines == [
            "not live: 'spam' stops serving, because its device is lost until this process ends: "
            + ILLEGAL_ACCESS
        ]
        for name, status in (("spam", NOT_SERVING), ("liveness", NOT_SERVING), ("mini", SERVING)):
            assert await check_health(served.channel, name) == status
        live = await served.inference.ServerLive(pb.ServerLiveRequest(), timeout=PATIENCE_S)
        ready = pb.ModelReadyRequest(name="spam")
        assert not live.live
        assert not (await served.inference.ModelReady(ready)).ready
        assert "attendant_live 0.0" in (await metrics_page(served.app)).splitlines()
        assert (await served.infer_text("mini", "now")).outputs
        assert "is lost until the server is restarted" in served.app.repository.failures["spam"]


async def test_a_run_without_memory_fails_alone_and_its_model_answers_the_next(
    models: Path,
) -> None:
    """INTERNAL in Triton's service, RESOURCE_EXHAUSTED in ours: the same text may succeed later."""
    async with serving(models) as served:
        session = served.sessions["spam"]
        compute, session.compute = session.compute, failing(NO_MEMORY)
        assert await refusal(served.infer_text("spam", "now")) == (StatusCode.INTERNAL, NO_MEMORY)
        request = text_pb2.ClassifyRequest(model="spam", texts=["now"])
        code, text = await refusal(served.text.Classify(request, timeout=PATIENCE_S))
        assert (code, text) == (StatusCode.RESOURCE_EXHAUSTED, NO_MEMORY)
        session.compute = compute
        assert (await served.infer_text("spam", "now")).outputs
        assert await check_health(served.channel, "liveness") == SERVING


async def test_rows_that_lack_memory_together_are_run_alone(models: Path) -> None:
    """A batch of two fails, then each runs by itself, and both are answered."""
    async with serving(models) as served:
        session = served.sessions["spam"]
        compute = session.compute

        def fail_for_two(inputs: Arrays) -> dict[str, np.ndarray]:
            if len(inputs["input_ids"]) > 1:
                raise failure_of_run(NO_MEMORY, "cuda")
            return compute(inputs)

        session.compute = fail_for_two
        running = await served.hold("spam")
        waiting = [asyncio.ensure_future(served.infer_text("spam", text)) for text in ("win", "a")]
        await eventually(lambda: served.num_waiting("spam") == 2)
        served.release("spam")
        for answer in await within_patience(asyncio.gather(running, *waiting)):
            assert answer.outputs
        assert [len(batch["input_ids"]) for batch in session.batches] == [1, 2, 1, 1]


@pytest.mark.skipif(not cuda_obstacle(), reason="CUDA can be used here")
async def test_without_cuda_no_model_is_served_on_a_device_that_was_asked_for(
    models: Path,
) -> None:
    """Neither tensors, texts nor generation: each says why, and the server is not ready."""
    async with serving(models, device="cuda") as served:
        failures = served.app.repository.failures
        assert sorted(failures) == ["mini", "simple", "spam", "strings", "tale"]
        assert set(failures.values()) == {
            f"device cuda is requested, but CUDA cannot be used: {cuda_obstacle()}"
        }
        assert await check_health(served.channel) == NOT_SERVING


async def test_the_log_says_which_device_auto_has_become_and_why(
    models: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with serving(models):
        (line,) = [text for text in caplog.messages if text.startswith("--device auto")]
        obstacle = cuda_obstacle()
        device = f"cpu, as CUDA cannot be used: {obstacle}" if obstacle else "cuda"
        assert line == f"--device auto: models run on {device}"
