"""From texts and tensors to the session and back, around an engine that really runs."""

import asyncio
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from service.batching.collate import concatenate_rows, pad_rows
from service.batching.engine import BatchEngine
from service.batching.limits import BatchLimits
from service.contract.config_completion import complete_from_graph, signature_of
from service.contract.interface import ModelInterface
from service.contract.manifest import Manifest
from service.contract.model_config import parse_config
from service.errors import InvalidArgument, ModelFailed, Overloaded
from service.observe.metrics import ModelMetrics
from service.observe.observers import Observers
from service.serving.model import Caller, Host, InferRequest
from service.serving.tasks.table import text_signature
from service.serving.tasks.task import softmax
from service.serving.tensor_model import TensorModel
from service.serving.text_model import TextModel
from service.serving.workers import INLINE_CHARACTERS
from service.settings import Settings
from service.text.tokenizer import TextTokenizer
from tests.fakes.sessions import (
    LABELS,
    WORDS,
    FakeSession,
    classifier_manifest,
    embedder_manifest,
    simple_session,
    strings_session,
    text_session,
    text_values,
    token_ids,
    up_to,
    write_tokenizer,
)


def test_softmax_gives_probabilities_also_for_large_logits() -> None:
    """Differences of 2 give 0.88 and 0.12 at any height."""
    for offset in (0.0, 1e4, -1e4):
        found = softmax(np.array([[14.0, 12.0]], np.float32) + np.float32(offset))
        assert found.dtype == np.float32
        assert found[0].tolist() == pytest.approx([0.8808, 0.1192], abs=1e-4)
    assert softmax(np.empty((0, 3), np.float32)).shape == (0, 3)


@asynccontextmanager
async def text_model(
    folder: Path,
    manifest: Manifest,
    session: FakeSession,
    max_texts: int = 512,
    limits: BatchLimits | None = None,
) -> AsyncIterator[TextModel]:
    write_tokenizer(folder / "tokenizer.json")
    interface = ModelInterface("m", 1, text_signature(manifest), 64, manifest=manifest)
    observers = Observers()
    collate = pad_rows(manifest.pad_token_id, [spec.name for spec in session.signature.inputs])
    limits = limits or BatchLimits(queue=up_to(max_texts))
    outputs = [session.signature.outputs[0].name]
    engine = BatchEngine("m", [session], outputs, collate, limits, observers.for_model("m", 1))
    tokenizer = TextTokenizer(folder / "tokenizer.json", manifest.max_tokens, 100_000)
    with ThreadPoolExecutor(1) as executor:
        try:
            yield TextModel(Host(Settings(), observers, executor), interface, engine, tokenizer)
        finally:
            session.release()
            await asyncio.to_thread(engine.close, 10)


@asynccontextmanager
async def tensor_model(session: FakeSession) -> AsyncIterator[tuple[TensorModel, ModelMetrics]]:
    config = complete_from_graph(parse_config("", "m"), session.signature, 64)
    signature = signature_of(config)
    observers = Observers()
    own = observers.for_model("m", 1)
    interface = ModelInterface("m", 1, signature, config.max_batch_size)
    outputs = [spec.name for spec in signature.outputs]
    engine = BatchEngine("m", [session], outputs, concatenate_rows, BatchLimits(), own)
    with ThreadPoolExecutor(1) as executor:
        host = Host(Settings(), observers, executor)
        try:
            yield TensorModel(host, interface, engine), observers.metrics.for_model("m", 1)
        finally:
            session.release()
            await asyncio.to_thread(engine.close, 10)


def texts_request(*texts: str, can_truncate: bool = False) -> InferRequest:
    array = np.empty((len(texts), 1), object)
    array[:, 0] = [text.encode() for text in texts]
    return InferRequest({"text": array}, len(texts), Caller(time.monotonic()), can_truncate)


TEXTS = ("win a prize", "lunch", "", "sorry the cash now later")


async def test_a_text_with_a_token_that_the_model_does_not_know_is_refused(
    tmp_path: Path,
) -> None:
    """As one that was added without a row of the network's table; the others are answered."""
    num_rows = token_ids(WORDS[-1])[1]
    manifest = replace(classifier_manifest(), vocab_size=num_rows)
    async with text_model(tmp_path, manifest, text_session("logits", 3)) as model:
        assert await model.infer(texts_request("win the prize"))
        with pytest.raises(InvalidArgument, match=rf"text 1 has the token '.*' \(id {num_rows}"):
            await model.infer(texts_request("win", f"sorry {WORDS[-1]}"))


async def test_a_classifier_answers_labels_scores_and_logits(tmp_path: Path) -> None:
    session = text_session("logits", 3)
    async with text_model(tmp_path, classifier_manifest(), session) as model:
        reply = await model.infer(texts_request(*TEXTS))
    logits = np.stack([text_values(token_ids(text), 3) for text in TEXTS])
    scores = softmax(logits)
    assert reply.outputs["logits"].tolist() == logits.tolist()
    assert reply.outputs["score"].tolist() == scores.max(axis=1, keepdims=True).tolist()
    labels = [[LABELS[index].encode()] for index in logits.argmax(axis=1)]
    assert reply.outputs["label"].tolist() == labels
    assert {array.shape[0] for array in reply.outputs.values()} == {len(TEXTS)}
    assert reply.outputs["logits"].dtype == reply.outputs["score"].dtype == np.float32


async def test_an_embedder_answers_embeddings(tmp_path: Path) -> None:
    session = text_session("embedding", 4)
    async with text_model(tmp_path, embedder_manifest(), session) as model:
        reply = await model.infer(texts_request(*TEXTS))
    expected = [text_values(token_ids(text), 4).tolist() for text in TEXTS]
    assert reply.outputs["embedding"].tolist() == expected
    assert set(reply.outputs) == {"embedding"}


async def test_a_request_in_parts_is_reported_as_one(tmp_path: Path) -> None:
    """Texts of 2 to 7 tokens; 10 may wait, so that two parts of 5 fill the queue."""
    session = text_session("embedding", 4)
    limits = BatchLimits(queue=up_to(512), max_waiting_tokens=10)
    async with text_model(tmp_path, embedder_manifest(), session, limits=limits) as model:
        reply = await model.infer(texts_request(*TEXTS[1:3] * 20))
        assert model._metrics.count("nv_inference_request_success") == 1
        assert model._metrics.count("nv_inference_count") == 40
    expected = [text_values(token_ids(text), 4).tolist() for text in TEXTS[1:3] * 20]
    assert reply.outputs["embedding"].tolist() == expected
    assert len(session.batches) == 20
    assert 0 < reply.timings.started_s <= reply.timings.finished_s


async def test_an_empty_batch_is_answered_without_running(tmp_path: Path) -> None:
    session = text_session("logits", 3)
    async with text_model(tmp_path, classifier_manifest(), session) as model:
        reply = await model.infer(texts_request())
        assert model._metrics.count("nv_inference_request_success") == 1
        assert model._metrics.count("nv_inference_count") == 0
    shapes = {name: array.shape for name, array in reply.outputs.items()}
    assert shapes == {"label": (0, 1), "score": (0, 1), "logits": (0, 3)}
    assert session.batches == []


async def test_half_precision_results_become_float32(tmp_path: Path) -> None:
    session = text_session("embedding", 4)
    full = session.compute
    session.compute = lambda inputs: {"embedding": full(inputs)["embedding"].astype(np.float16)}
    async with text_model(tmp_path, embedder_manifest(), session) as model:
        reply = await model.infer(texts_request("lunch"))
    assert reply.outputs["embedding"].dtype == np.float32


async def test_a_text_that_is_too_long_is_cut_only_when_asked(tmp_path: Path) -> None:
    manifest = classifier_manifest(max_tokens=4)
    async with text_model(tmp_path, manifest, text_session("logits", 3)) as model:
        with pytest.raises(InvalidArgument, match="text 0 has 5 tokens, the model takes at most 4"):
            await model.infer(texts_request("win a prize"))
        reply = await model.infer(texts_request("win a prize", can_truncate=True))
        assert model._metrics.failures("OTHER") == 1
    assert reply.outputs["logits"].tolist() == [text_values(token_ids("win a"), 3).tolist()]


@pytest.mark.parametrize("short", ["", "a", "win a prize"])
async def test_many_short_texts_do_not_make_long_ones_look_larger(
    tmp_path: Path, short: str
) -> None:
    """After 100 texts of two to five tokens, 600 characters are no more than 600 tokens."""
    long = ["win a prize " * 50]
    async with text_model(tmp_path, classifier_manifest(), text_session("logits", 3)) as model:
        for _ in range(100):
            await model.infer(texts_request(short))
        assert model._size_of(long, can_truncate=False).num_tokens <= 300
        cut = model._size_of(long * 3, can_truncate=True).num_tokens
        assert cut <= 3 * model.manifest.max_tokens


async def test_the_size_of_texts_is_expected_from_those_before(tmp_path: Path) -> None:
    """Of 19 texts of 1,440 characters and 362 tokens each: 0.9 of the tokens of the next."""
    manifest = classifier_manifest(max_tokens=400)
    async with text_model(tmp_path, manifest, text_session("logits", 3)) as model:
        for _ in range(19):
            await model.infer(texts_request("win a prize " * 120))
        expected = model._size_of(["win a prize " * 120], can_truncate=False)
    assert expected.num_rows == 1
    assert expected.num_tokens == pytest.approx(0.9 * 362, rel=0.15)


async def test_long_texts_are_tokenized_beside_the_event_loop(tmp_path: Path) -> None:
    """More than 4,096 characters: same answer, through the executor."""
    text = "prize " * (INLINE_CHARACTERS // 6 + 1)
    manifest = embedder_manifest(max_tokens=2_000)
    async with text_model(tmp_path, manifest, text_session("embedding", 4)) as model:
        reply = await model.infer(texts_request(text))
    assert reply.outputs["embedding"].tolist() == [text_values(token_ids(text), 4).tolist()]


async def test_text_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    request = texts_request("lunch")
    request.inputs["text"][0, 0] = b"\xff\xfe"
    async with text_model(tmp_path, classifier_manifest(), text_session("logits", 3)) as model:
        with pytest.raises(InvalidArgument, match="a BYTES element is not UTF-8"):
            await model.infer(request)
        assert model._metrics.failures("OTHER") == 1


async def test_requests_are_counted_by_how_they_end(tmp_path: Path) -> None:
    session = text_session("logits", 3)
    async with text_model(tmp_path, classifier_manifest(), session, max_texts=1) as model:
        await model.infer(texts_request("win", "lunch"))
        good = session.compute
        session.compute = lambda _: {}
        with pytest.raises(ModelFailed):
            await model.infer(texts_request("win"))
        session.compute = good
        session.hold()
        running = asyncio.create_task(model.infer(texts_request("win")))
        await asyncio.to_thread(session.wait_for_runs, 3)
        waiting = asyncio.create_task(model.infer(texts_request("win")))
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await model.infer(texts_request("win"))
        waiting.cancel()
        await asyncio.wait([waiting])
        session.release()
        await running
        metrics = model._metrics
    assert metrics.count("nv_inference_request_success") == 2
    assert metrics.count("nv_inference_count") == 3
    assert metrics.count("nv_inference_exec_count") == 2
    assert [metrics.failures(reason) for reason in ("REJECTED", "CANCELED", "BACKEND")] == [1, 1, 1]


async def test_a_tensor_model_gives_each_caller_its_rows() -> None:
    async with tensor_model(simple_session()) as (model, metrics):
        arrays = [np.full((rows, 16), rows, np.int32) for rows in (1, 2, 3)]
        requests = [
            InferRequest({"INPUT0": array, "INPUT1": array}, len(array), Caller(time.monotonic()))
            for array in arrays
        ]
        replies = await asyncio.gather(*map(model.infer, requests))
        assert metrics.count("nv_inference_count") == 6
    for array, reply in zip(arrays, replies, strict=True):
        assert reply.outputs["OUTPUT0"].tolist() == (array * 2).tolist()
        assert reply.outputs["OUTPUT1"].tolist() == (array * 0).tolist()
        assert list(reply.outputs) == ["OUTPUT0", "OUTPUT1"]


async def test_tensor_requests_of_different_shapes_do_not_meet() -> None:
    session = strings_session()
    session.hold()
    async with tensor_model(session) as (model, _):
        opener = asyncio.create_task(model.infer(strings(["open"])))
        await asyncio.to_thread(session.wait_for_runs, 1)
        tasks = [
            asyncio.create_task(model.infer(strings(row)))
            for row in (["a"], ["b", "c"], ["d"], ["e", "f"])
        ]
        await asyncio.sleep(0)
        session.release()
        replies = await asyncio.gather(opener, *tasks)
    assert [batch["IN"].tolist() for batch in session.batches[1:]] == [
        [["a"], ["d"]],
        [["b", "c"], ["e", "f"]],
    ]
    assert replies[2].outputs["OUT"].tolist() == [["b", "c"]]


def strings(row: list[str]) -> InferRequest:
    array = np.array([[text.encode() for text in row]], object)
    return InferRequest({"IN": array}, 1, Caller(time.monotonic()))


async def test_strings_reach_the_session_as_text_with_their_nul_bytes() -> None:
    """ONNX Runtime's Python API takes `str`; bytes would come back as "b'...'"."""
    session = strings_session()
    async with tensor_model(session) as (model, _):
        await model.infer(strings(["a\0b\0", "\N{SNOWMAN}"]))
    assert session.batches[0]["IN"].tolist() == [["a\0b\0", "\N{SNOWMAN}"]]


async def test_strings_that_are_not_utf_8_are_refused_and_counted() -> None:
    request = InferRequest({"IN": np.array([[b"\xff"]], object)}, 1, Caller(time.monotonic()))
    async with tensor_model(strings_session()) as (model, metrics):
        with pytest.raises(InvalidArgument, match="not UTF-8"):
            await model.infer(request)
        assert metrics.failures("OTHER") == 1
