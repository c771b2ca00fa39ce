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

from service.contract.manifest import Variant
from service.contract.tensors import Arrays
from service.errors import LoadError
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
from tests.fakes.sessions import (
    PATIENCE_S,
    WORDS,
    FakeSessions,
    classifier_manifest,
    text_session,
    write_model,
)

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


async def test_rows_that_lack_memory_together_are_run_in_halves(models: Path) -> None:
    """A batch of five fails, and runs as two, two and one; all are answered."""
    async with serving(models) as served:
        session = served.sessions["spam"]
        compute = session.compute

        def fail_for_three(inputs: Arrays) -> dict[str, np.ndarray]:
            if len(inputs["input_ids"]) > 2:
                raise failure_of_run(NO_MEMORY, "cuda")
            return compute(inputs)

        session.compute = fail_for_three
        running = await served.hold("spam")
        waiting = [asyncio.ensure_future(served.infer_text("spam", text)) for text in WORDS[:5]]
        await eventually(lambda: served.num_waiting("spam") == 5)
        served.release("spam")
        for answer in await within_patience(asyncio.gather(running, *waiting)):
            assert answer.outputs
        assert [len(batch["input_ids"]) for batch in session.batches] == [1, 5, 2, 2, 1]


def no_gpu(device: str) -> str:
    if device == "cuda":
        raise LoadError("device cuda is requested, but CUDA cannot be used: no GPU is visible")
    return "cpu"


async def test_without_cuda_no_model_is_served_on_a_device_that_is_set(models: Path) -> None:
    """Neither tensors, texts nor generation: each says why, and the server is not ready."""
    async with serving(models, None, no_gpu, device="cuda") as served:
        failures = served.app.repository.failures
        assert sorted(failures) == ["mini", "simple", "spam", "strings", "tale"]
        reason = "device cuda is requested, but CUDA cannot be used: no GPU is visible"
        assert failures["simple"] == reason
        assert failures["tale"].startswith("no graph is for cuda") or failures["tale"] == reason
        assert await check_health(served.channel) == NOT_SERVING
    async with serving(models, None, no_gpu) as served:
        assert not served.app.repository.failures


async def test_clients_read_which_layout_is_served_and_why(repository: Path) -> None:
    padded = Variant("fp32", device="cuda", layout="padded")
    folder = write_model(repository, "spam", classifier_manifest(variants=(padded,)))
    (folder / "1" / padded.filename).touch()
    sessions = FakeSessions(spam=lambda: text_session("logits", 3))
    async with serving(repository, sessions, lambda _: "cuda", measure_cost_s=60.0) as served:
        listed = await served.text.ListModels(text_pb2.ListModelsRequest(), timeout=PATIENCE_S)
        (model,) = listed.models
        layouts = ["packed", "padded"]
        layouts.remove(model.layout or "packed")
        assert model.layout_reason.endswith(f" times as fast as {layouts[0]}")
        assert len(sessions.opened["spam"]) == 2


async def test_the_log_says_which_device_auto_has_become_and_why(
    models: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with serving(models):
        (line,) = [text for text in caplog.messages if text.startswith("--device auto")]
        obstacle = cuda_obstacle()
        device = f"cpu, as CUDA cannot be used: {obstacle}" if obstacle else "cuda"
        assert line == f"--device auto: models run on {device}"
