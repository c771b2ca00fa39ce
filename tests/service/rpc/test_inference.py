"""`inference.GRPCInferenceService` over the wire: tritonclient unmodified, and raw stubs."""

import asyncio
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from attendant.v1 import text_pb2 as text_pb
from grpc import StatusCode
from tritonclient.grpc import service_pb2 as pb

from service import __version__
from service.api.infer import to_infer_request
from service.batching.engine import BatchEngine
from service.contract.tensors import Signature
from service.serving.model import Caller
from tests.fakes.refusals import INVALID
from tests.fakes.serving import (
    NO_SHARING,
    Served,
    default_sessions,
    eventually,
    refusal,
    serving,
    simple_request,
    text_request,
    within_patience,
)
from tests.fakes.sessions import (
    LABELS,
    FakeSession,
    FakeSessions,
    spec,
    text_values,
    token_ids,
    write_model,
)

TEXTS = ("win a prize", "lunch", "sorry the cash now later")


pytestmark = pytest.mark.asyncio(loop_scope="module")


def text_input(module: Any, *texts: str) -> Any:
    tensor = module.InferInput("text", [len(texts), 1], "BYTES")
    tensor.set_data_from_numpy(np.array([[text.encode()] for text in texts], object))
    return tensor


def best_label(text: str) -> bytes:
    return LABELS[int(text_values(token_ids(text), 3).argmax())].encode()


async def test_the_synchronous_client_finds_and_asks_every_kind_of_model(served: Served) -> None:
    """What the upstream examples call, in their order; blocking, so on another thread."""

    def use() -> None:
        with triton.InferenceServerClient(served.address) as client:
            assert client.is_server_live()
            assert client.is_server_ready()
            assert client.is_model_ready("spam")
            assert client.is_model_ready("spam", "1")
            metadata = client.get_server_metadata()
            assert (metadata.name, metadata.version) == ("attendant", __version__)
            assert set(metadata.extensions) >= {"classification", "model_configuration"}
            assert "system_shared_memory" not in metadata.extensions
            assert client.get_model_metadata("simple").name == "simple"
            assert client.get_model_config("simple").config.max_batch_size == 8
            result = client.infer("spam", [text_input(triton, *TEXTS)], request_id="seven")
            assert result.get_response().id == "seven"
            labels = result.as_numpy("label")
            assert labels.tolist() == [[best_label(text)] for text in TEXTS]
            assert result.as_numpy("score").shape == (3, 1)
            assert result.as_numpy("logits").shape == (3, 3)
            inputs = [triton.InferInput(f"INPUT{index}", [2, 16], "INT32") for index in (0, 1)]
            for tensor, value in zip(inputs, (3, 2), strict=True):
                tensor.set_data_from_numpy(np.full((2, 16), value, np.int32))
            result = client.infer("simple", inputs, compression_algorithm="gzip")
            assert result.as_numpy("OUTPUT0").tolist() == [[5] * 16] * 2
            assert result.as_numpy("OUTPUT1").tolist() == [[1] * 16] * 2

    await within_patience(asyncio.to_thread(use))


async def test_the_asynchronous_client_asks_an_embedder(served: Served) -> None:
    async with triton_aio.InferenceServerClient(served.address) as client:
        assert await client.is_server_ready()
        result = await client.infer("mini", [text_input(triton_aio, *TEXTS)])
    expected = [text_values(token_ids(text), 4).tolist() for text in TEXTS]
    assert result.as_numpy("embedding").tolist() == expected


async def test_a_client_may_ask_for_some_outputs(served: Served) -> None:
    async with triton_aio.InferenceServerClient(served.address) as client:
        wanted = [triton_aio.InferRequestedOutput(name) for name in ("score", "label")]
        result = await client.infer("spam", [text_input(triton_aio, *TEXTS)], outputs=wanted)
    assert [output.name for output in result.get_response().outputs] == ["label", "score"]
    assert result.as_numpy("logits") is None
    assert result.as_numpy("label").shape == (3, 1)


async def test_a_text_too_long_is_cut_only_by_parameter(served: Served) -> None:
    """The model takes 12 tokens; 20 words make 22."""
    long = " ".join(["prize"] * 20)
    async with triton_aio.InferenceServerClient(served.address) as client:
        inputs = [text_input(triton_aio, "lunch", long)]
        with pytest.raises(triton_aio.InferenceServerException) as caught:
            await client.infer("spam", inputs)
        assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"
        assert caught.value.message() == (
            "text 1 has 22 tokens, the model takes at most 12: shorten it, or ask for truncation"
        )
        result = await client.infer("spam", inputs, parameters={"truncate": True})
    cut = text_values(token_ids(" ".join(["prize"] * 10)), 3).tolist()
    assert result.as_numpy("logits")[1].tolist() == cut


async def test_metadata_shows_the_batch_axis_and_the_versions(served: Served) -> None:
    found = await served.inference.ModelMetadata(pb.ModelMetadataRequest(name="spam"))
    assert (found.name, list(found.versions), found.platform) == ("spam", ["1"], "onnxruntime_onnx")
    tensors = [(t.name, t.datatype, list(t.shape)) for t in [*found.inputs, *found.outputs]]
    assert tensors == [
        ("text", "BYTES", [-1, 1]),
        ("text_pair", "BYTES", [-1, 1]),
        ("label", "BYTES", [-1, 1]),
        ("score", "FP32", [-1, 1]),
        ("logits", "FP32", [-1, 3]),
    ]


async def test_the_server_s_name_is_a_setting(repository: Path) -> None:
    async with serving(repository, server_name="triton") as served:
        found = await served.inference.ServerMetadata(pb.ServerMetadataRequest())
    assert found.name == "triton"


@pytest.mark.parametrize(
    ("timeout_us", "timeout_s"), [(0, None), (-5, None), (1, 1e-6), (2**63 - 1, (2**63 - 1) / 1e6)]
)
async def test_a_timeout_is_microseconds_and_nothing_above_0_is_none(
    served: Served, timeout_us: int, timeout_s: float | None
) -> None:
    request = simple_request()
    request.parameters["timeout"].int64_param = timeout_us
    model = served.app.repository.find("simple")
    asked = to_infer_request(request, model, NO_SHARING, Caller(1.0))
    assert asked.caller.timeout_s == timeout_s


async def test_outputs_may_be_asked_for_as_classes_with_the_model_s_labels(served: Served) -> None:
    """Two of three classes of each text; a stream says the same."""
    async with triton_aio.InferenceServerClient(served.address) as client:
        wanted = [triton_aio.InferRequestedOutput("logits", class_count=2)]
        result = await client.infer("spam", [text_input(triton_aio, *TEXTS)], outputs=wanted)
    values = np.stack([text_values(token_ids(text), 3) for text in TEXTS])
    best = np.argsort(-values, axis=1, kind="stable")[:, :2]
    expected = [
        [f"{row[index]:f}:{index}:{LABELS[index]}".encode() for index in indices]
        for row, indices in zip(values, best, strict=True)
    ]
    assert result.as_numpy("logits").tolist() == expected
    request = text_request("spam", *TEXTS)
    request.outputs.add(name="logits").parameters["classification"].int64_param = 2
    (response,) = [r async for r in served.inference.ModelStreamInfer(iter([request]))]
    raw = result.get_response().raw_output_contents
    assert response.infer_response.raw_output_contents == raw


async def test_an_empty_batch_of_tensors_is_answered_empty_without_a_run(served: Served) -> None:
    response = await served.inference.ModelInfer(simple_request(num_rows=0))
    assert [list(output.shape) for output in response.outputs] == [[0, 16], [0, 16]]
    assert list(response.raw_output_contents) == [b"", b""]
    request = pb.ModelInferRequest(model_name="strings", raw_input_contents=[b""])
    request.inputs.add(name="IN", datatype="BYTES", shape=[0, 3])
    response = await served.inference.ModelInfer(request)
    assert [list(output.shape) for output in response.outputs] == [[0, 0]]
    assert served.sessions["simple"].batches == served.sessions["strings"].batches == []


async def test_a_response_over_the_limit_says_so(repository: Path) -> None:
    """Strings of 40 KB that come back twice do not fit into 64 KiB; the next call does."""
    signature = Signature(
        (spec("IN", "BYTES", -1, 1),), (spec("A", "BYTES", -1, 1), spec("B", "BYTES", -1, 1))
    )
    write_model(repository, "twice")
    sessions = FakeSessions(
        twice=lambda: FakeSession(signature, lambda x: {"A": x["IN"], "B": x["IN"]})
    )
    async with (
        serving(repository, sessions, max_message_bytes=65_536) as served,
        triton_aio.InferenceServerClient(served.address) as client,
    ):
        tensor = triton_aio.InferInput("IN", [1, 1], "BYTES")
        tensor.set_data_from_numpy(np.array([[b"x" * 40_000]], object))
        with pytest.raises(triton_aio.InferenceServerException) as caught:
            await client.infer("twice", [tensor])
        assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"
        text = r"Response has byte size 80\d\d\d which exceeds gRPC's byte size limit 65536\."
        assert re.fullmatch(text, caught.value.message())
        wanted = [triton_aio.InferRequestedOutput("B")]
        assert (await client.infer("twice", [tensor], outputs=wanted)).as_numpy("B").size == 1


async def test_an_empty_batch_of_texts_is_answered_empty(served: Served) -> None:
    response = await served.infer_text("spam")
    assert [list(output.shape) for output in response.outputs] == [[0, 1], [0, 1], [0, 3]]
    assert list(response.raw_output_contents) == [b"", b"", b""]


@pytest.mark.parametrize("case", INVALID)
async def test_a_request_that_cannot_succeed_is_an_invalid_argument(
    served: Served, case: str
) -> None:
    change, text = INVALID[case]
    request = simple_request()
    change(request)
    expected = StatusCode.INVALID_ARGUMENT, text
    assert await refusal(served.inference.ModelInfer(request)) == expected
    assert served.sessions["simple"].batches == []


async def test_a_long_text_in_a_refusal_is_cut_rather_than_lost(served: Served) -> None:
    """Statuses travel in headers of 8 KiB; a name of 100,000 letters must not hide the code."""
    code, text = await refusal(served.infer_text("x" * 100_000, "lunch"))
    assert code is StatusCode.NOT_FOUND
    assert text.startswith("Request for unknown model: 'xxx")
    assert text.endswith("xxx...")


async def test_parameters_of_every_allowed_kind_are_taken(served: Served) -> None:
    request = simple_request()
    request.parameters["timeout"].int64_param = -5
    request.parameters["priority"].uint64_param = 1
    request.parameters["sequence_id"].string_param = ""
    request.parameters["sequence_start"].bool_param = False
    request.parameters["triton_enable_empty_final_response"].bool_param = False
    request.parameters["a"].double_param = 0.5
    request.parameters["b"].string_param = "x"
    response = await served.inference.ModelInfer(request)
    assert len(response.outputs) == 2


async def test_a_model_is_told_priority_and_the_parameters_that_are_its_own(served: Served) -> None:
    request = simple_request()
    request.parameters["timeout"].int64_param = 2_500_000
    request.parameters["priority"].uint64_param = 2**63
    request.parameters["truncate"].bool_param = True
    request.parameters["triton_enable_empty_final_response"].bool_param = True
    request.parameters["seed"].int64_param = 7
    request.parameters["temperature"].double_param = 0.5
    request.parameters["stop"].string_param = "x"
    request.parameters["ignore_eos"].bool_param = False
    model = served.app.repository.find("simple")
    asked = to_infer_request(request, model, NO_SHARING, Caller(1.0, 2.0))
    assert asked.caller == Caller(1.0, 2.0, priority=2**63, timeout_s=2.5, request_id=request.id)
    assert asked.can_truncate
    expected = {"seed": 7, "temperature": 0.5, "stop": "x", "ignore_eos": False}
    assert asked.parameters == expected


async def test_concurrent_clients_get_their_own_rows(served: Served) -> None:
    """200 calls at once, 1 to 3 texts each, over both text models."""
    words = ("win", "prize", "free", "cash", "lunch", "home", "later", "sorry", "now")
    asked = [
        (
            ("spam", "mini")[number % 2],
            [" ".join(words[: (number + index) % 9 + 1]) for index in range(number % 3 + 1)],
        )
        for number in range(200)
    ]
    calls = [served.infer_text(model, *texts) for model, texts in asked]
    responses = await within_patience(asyncio.gather(*calls))
    for (model, texts), response in zip(asked, responses, strict=True):
        size = 3 if model == "spam" else 4
        found = np.frombuffer(response.raw_output_contents[-1], np.float32).reshape(-1, size)
        expected = [text_values(token_ids(text), size).tolist() for text in texts]
        assert found.tolist() == expected


async def test_a_deadline_reaches_the_queue(served: Served) -> None:
    """The call behind a busy session ends after 0.2 s, and its text never runs."""
    running = await served.hold("spam")
    code, _ = await refusal(served.infer_text("spam", "now", timeout=0.2))
    assert code is StatusCode.DEADLINE_EXCEEDED
    await eventually(lambda: served.num_waiting("spam") == 0)
    served.release("spam")
    await within_patience(running)
    await served.infer_text("spam", "free")
    batches = [batch["input_ids"].tolist() for batch in served.sessions["spam"].batches]
    assert batches == [[token_ids("lunch")], [token_ids("free")]]


async def test_a_call_s_deadline_is_its_request_s(served: Served) -> None:
    """The queue knows it by itself; it does not depend on gRPC's cancelling in time."""
    running = await served.hold("spam")
    start_s = time.monotonic()
    waiting = asyncio.create_task(served.infer_text("spam", "now", timeout=15))
    classify = text_pb.ClassifyRequest(model="spam", texts=["free"])
    typed = asyncio.ensure_future(served.text.Classify(classify, timeout=15))
    await eventually(lambda: served.num_waiting("spam") == 2)
    engine = served.app.repository.find("spam")._engine
    assert isinstance(engine, BatchEngine)
    requests = list(engine._queue._places)
    for request in requests:
        assert request.deadline_s is not None
        assert 10 < request.deadline_s - start_s < 16
    served.release("spam")
    await within_patience(asyncio.gather(running, waiting, typed))


async def test_a_client_that_leaves_takes_its_request_out_of_the_queue(served: Served) -> None:
    running = await served.hold("spam")
    leaving = served.inference.ModelInfer(text_request("spam", "now"))
    await eventually(lambda: served.num_waiting("spam") == 1)
    leaving.cancel()
    await eventually(lambda: served.num_waiting("spam") == 0)
    served.release("spam")
    await within_patience(running)
    assert len(served.sessions["spam"].batches) == 1


async def test_a_client_that_leaves_a_running_batch_disturbs_no_other(served: Served) -> None:
    session = served.sessions["spam"]
    opener = await served.hold("spam")
    leaving = served.inference.ModelInfer(text_request("spam", "now"))
    staying = asyncio.create_task(served.infer_text("spam", "free"))
    await eventually(lambda: served.num_waiting("spam") == 2)
    session.hold()  # the opener ends, the next batch does not
    await asyncio.to_thread(session.wait_for_runs, 2)
    leaving.cancel()
    await eventually(lambda: served.num_running("spam") == 1)
    served.release("spam")
    response, _ = await within_patience(asyncio.gather(staying, opener))
    logits = np.frombuffer(response.raw_output_contents[-1], np.float32)
    assert logits.tolist() == text_values(token_ids("free"), 3).tolist()
    assert [len(batch["input_ids"]) for batch in session.batches] == [1, 2]


async def test_a_message_over_the_limit_is_refused(models: Path) -> None:
    """1,000 rows of 128 bytes against a limit of 64 KiB; a smaller one passes."""
    async with serving(models, max_message_bytes=65_536) as served:
        code, text = await refusal(served.inference.ModelInfer(simple_request(num_rows=1_000)))
        assert code is StatusCode.RESOURCE_EXHAUSTED
        assert "larger than max" in text
        await served.inference.ModelInfer(simple_request())


async def test_health_does_not_wait_behind_inference(served: Served) -> None:
    """With one session held and 100 calls waiting, the server still answers who it is."""
    running = await served.hold("spam")
    waiting = [asyncio.create_task(served.infer_text("spam", "now")) for _ in range(100)]
    await eventually(lambda: served.num_waiting("spam") == 100)
    ready = await served.inference.ServerReady(pb.ServerReadyRequest(), timeout=5)
    assert ready.ready
    found = await served.inference.ModelMetadata(pb.ModelMetadataRequest(name="spam"), timeout=5)
    assert found.name == "spam"
    served.release("spam")
    await within_patience(asyncio.gather(running, *waiting))


async def test_sessions_are_not_opened_twice(models: Path) -> None:
    sessions = default_sessions()
    async with serving(models, sessions):
        assert {name: len(opened) for name, opened in sessions.opened.items()} == {
            "mini": 1,
            "simple": 1,
            "spam": 1,
            "strings": 1,
        }
