"""The Open Inference Protocol through tritonclient, and the typed API: values are PyTorch's."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import grpc
import numpy as np
import pytest
from attendant.v1 import text_pb2, text_pb2_grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)
from tritonclient import grpc as triton
from tritonclient.grpc import aio

from models.checkpoints.checkpoint import Checkpoint
from tests.e2e.calls import LIMIT_S, TEXTS, code_of, tensor_inputs, text_inputs
from tests.e2e.server import ServerProcess
from tests.fakes.tiny import cosines, torch_outputs_of_texts

MODELS = ("add-sub", "lookup", "slow", "tiny-embed", "tiny-spam")
# float32 through other kernels and other batches than PyTorch's; logits here are near 1.
TOLERANCE = 1e-5


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares: np.ndarray = powers / powers.sum(axis=1, keepdims=True)
    return shares


def test_server_and_every_model_are_ready(client: triton.InferenceServerClient) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert all(client.is_model_ready(name) for name in MODELS)
    assert client.is_model_ready("tiny-spam", "1")
    assert not client.is_model_ready("tiny-spam", "2")
    assert not client.is_model_ready("nobody")


def test_metadata_names_server_and_tensors(client: triton.InferenceServerClient) -> None:
    assert client.get_server_metadata().name == "attendant"
    spam = client.get_model_metadata("tiny-spam")
    assert (spam.name, list(spam.versions), spam.platform) == (
        "tiny-spam",
        ["1"],
        "onnxruntime_onnx",
    )
    assert [(t.name, t.datatype, list(t.shape)) for t in spam.inputs] == [
        ("text", "BYTES", [-1, 1]),
        ("text_pair", "BYTES", [-1, 1]),  # optional
    ]
    assert [(t.name, t.datatype, list(t.shape)) for t in spam.outputs] == [
        ("label", "BYTES", [-1, 1]),
        ("score", "FP32", [-1, 1]),
        ("logits", "FP32", [-1, 2]),
    ]
    (embedding,) = client.get_model_metadata("tiny-embed").outputs
    assert (embedding.name, embedding.datatype, list(embedding.shape)) == (
        "embedding",
        "FP32",
        [-1, 32],
    )


def test_config_of_a_bare_graph_is_completed(client: triton.InferenceServerClient) -> None:
    """`add-sub` is nothing but 1/model.onnx: tensors, types and batch size come from the graph."""
    config = client.get_model_config("add-sub").config
    assert config.platform == "onnxruntime_onnx"
    assert config.max_batch_size == 64
    assert config.HasField("dynamic_batching")
    names = [(tensor.name, list(tensor.dims)) for tensor in (*config.input, *config.output)]
    assert names == [(name, [16]) for name in ("INPUT0", "INPUT1", "OUTPUT0", "OUTPUT1")]
    assert client.get_model_config("slow").config.max_batch_size == 0


def test_tensor_model_computes_what_numpy_does(client: triton.InferenceServerClient) -> None:
    left = np.arange(48, dtype=np.int32).reshape(3, 16)
    right = np.full_like(left, 7)
    reply = client.infer(
        "add-sub", tensor_inputs(INPUT0=left, INPUT1=right), client_timeout=LIMIT_S
    )
    np.testing.assert_array_equal(reply.as_numpy("OUTPUT0"), left + right)
    np.testing.assert_array_equal(reply.as_numpy("OUTPUT1"), left - right)


def test_only_the_outputs_asked_for_come_back(client: triton.InferenceServerClient) -> None:
    zeros = np.zeros((1, 16), np.int32)
    reply = client.infer(
        "add-sub",
        tensor_inputs(INPUT0=zeros, INPUT1=zeros),
        outputs=[triton.InferRequestedOutput("OUTPUT1")],
        request_id="mine",
        client_timeout=LIMIT_S,
    )
    assert reply.as_numpy("OUTPUT0") is None
    assert reply.get_response().id == "mine"


def test_classifier_answers_label_score_and_logits_of_pytorch(
    client: triton.InferenceServerClient, spam: Checkpoint
) -> None:
    """Eight texts of mixed length in one request, logits within 1e-5."""
    reply = client.infer("tiny-spam", text_inputs(TEXTS), client_timeout=LIMIT_S)
    wanted = torch_outputs_of_texts(spam, TEXTS)
    np.testing.assert_allclose(reply.as_numpy("logits"), wanted, rtol=0, atol=TOLERANCE)
    scores = softmax(wanted)
    np.testing.assert_allclose(reply.as_numpy("score")[:, 0], scores.max(axis=1), atol=TOLERANCE)
    labels = [label.decode() for label in reply.as_numpy("label")[:, 0]]
    assert labels == [spam.labels[best] for best in wanted.argmax(axis=1)]
    assert set(labels) == set(spam.labels), "or the test would pass with one label for all"


def test_embedder_answers_the_vectors_of_pytorch(
    client: triton.InferenceServerClient, embed: Checkpoint
) -> None:
    reply = client.infer("tiny-embed", text_inputs(TEXTS), client_timeout=LIMIT_S)
    wanted = torch_outputs_of_texts(embed, TEXTS)
    np.testing.assert_allclose(reply.as_numpy("embedding"), wanted, rtol=0, atol=TOLERANCE)


def test_concurrent_requests_of_mixed_length_keep_to_themselves(
    client: triton.InferenceServerClient, embed: Checkpoint
) -> None:
    """48 requests of 1 to 5 texts from 8 threads; cosine with PyTorch above 0.9999 for each."""
    asked = [[f"{TEXTS[(n + k) % 8]} {n}" for k in range(n % 5 + 1)] for n in range(48)]

    def ask(texts: list[str]) -> np.ndarray:
        reply = client.infer("tiny-embed", text_inputs(texts), client_timeout=LIMIT_S)
        vectors: np.ndarray = reply.as_numpy("embedding")
        return vectors

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(ask, asked))
    for texts, vectors in zip(asked, found, strict=True):
        assert cosines(vectors, torch_outputs_of_texts(embed, texts)).min() > 0.9999


async def test_asyncio_clients_share_batches_and_get_their_own(
    server: ServerProcess, spam: Checkpoint
) -> None:
    """64 texts and 64 tensors at once on one connection: each answer is its own."""
    texts = [f"{'claim ' * (n % 20)}{n}" for n in range(64)]
    async with aio.InferenceServerClient(server.address) as client:
        infer = partial(client.infer, client_timeout=LIMIT_S)
        rows = [np.full((1, 16), n, np.int32) for n in range(64)]
        *replies, metadata = await asyncio.gather(
            *(infer("tiny-spam", text_inputs([text])) for text in texts),
            *(infer("add-sub", tensor_inputs(INPUT0=row, INPUT1=row)) for row in rows),
            client.get_model_metadata("tiny-spam"),
        )
    assert metadata.name == "tiny-spam"
    logits = np.concatenate([reply.as_numpy("logits") for reply in replies[:64]])
    wanted = torch_outputs_of_texts(spam, texts)
    np.testing.assert_allclose(logits, wanted, rtol=0, atol=TOLERANCE)
    for reply, row in zip(replies[64:], rows, strict=True):
        np.testing.assert_array_equal(reply.as_numpy("OUTPUT0"), 2 * row)


def test_metrics_count_rows_requests_and_executions(
    client: triton.InferenceServerClient, server: ServerProcess
) -> None:
    """One request of 32 equal texts to an idle model: 32 rows, one request, one execution."""
    before = server.metrics()
    client.infer("tiny-spam", text_inputs(["free prize"] * 32), client_timeout=LIMIT_S)
    after = server.metrics()
    gained = {key[0]: after[key] - before.get(key, 0) for key in after if key[1] == "tiny-spam"}
    assert gained["nv_inference_count"] == 32
    assert gained["nv_inference_request_success"] == 1
    assert gained["nv_inference_exec_count"] == 1
    assert gained["nv_inference_request_failure"] == 0
    assert gained["nv_inference_compute_infer_duration_us"] > 0
    assert gained["nv_inference_request_duration_us"] >= gained["nv_inference_queue_duration_us"]
    assert gained["attendant_request_seconds_count"] == 1
    assert gained["attendant_batch_rows_sum"] == 32
    assert gained["attendant_batch_tokens_sum"] == 32 * 4  # [CLS] free prize [SEP]
    assert gained["attendant_batch_padding_ratio_sum"] == 0
    assert after["attendant_requests_waiting", "tiny-spam"] == 0


def test_text_that_is_too_long_is_refused_unless_it_may_be_cut(
    client: triton.InferenceServerClient, spam: Checkpoint
) -> None:
    """102 tokens for a model of 64; cut, the first 63 and the closing one remain."""
    text = "free " * 100
    with pytest.raises(triton.InferenceServerException, match=r"102 tokens.*at most 64") as refused:
        client.infer("tiny-spam", text_inputs([text]), client_timeout=LIMIT_S)
    assert code_of(refused.value) == "INVALID_ARGUMENT"
    reply = client.infer(
        "tiny-spam", text_inputs([text]), parameters={"truncate": True}, client_timeout=LIMIT_S
    )
    wanted = torch_outputs_of_texts(spam, ["free " * 62])
    np.testing.assert_allclose(reply.as_numpy("logits"), wanted, rtol=0, atol=TOLERANCE)


def test_wrong_requests_get_the_status_that_triton_gives(
    client: triton.InferenceServerClient,
) -> None:
    zeros, floats = np.zeros((1, 16), np.int32), np.zeros((1, 16), np.float32)
    cases = [
        ("nobody", text_inputs(["a"]), "NOT_FOUND", "unknown model: 'nobody' is not found"),
        ("add-sub", tensor_inputs(INPUT0=zeros), "INVALID_ARGUMENT", "expected 2 inputs but got 1"),
        (
            "add-sub",
            tensor_inputs(INPUT0=zeros, INPUT1=floats),
            "INVALID_ARGUMENT",
            "data-type is 'FP32', but model 'add-sub' expects 'INT32'",
        ),
        (
            "add-sub",
            tensor_inputs(INPUT0=zeros[:, :5], INPUT1=zeros),
            "INVALID_ARGUMENT",
            "unexpected shape for input 'INPUT0'",
        ),
        ("tiny-spam", text_inputs(["a"] * 65), "INVALID_ARGUMENT", "batch-size must be <= 64"),
    ]
    for name, inputs, code, message in cases:
        with pytest.raises(triton.InferenceServerException) as refused:
            client.infer(name, inputs, client_timeout=LIMIT_S)
        assert code_of(refused.value) == code
        assert message in str(refused.value.message())


def test_typed_api_gives_scores_vectors_tokens_and_timings(
    server: ServerProcess, spam: Checkpoint, embed: Checkpoint
) -> None:
    with grpc.insecure_channel(server.address) as channel:
        stub: Any = text_pb2_grpc.TextServiceStub(channel)
        classify = text_pb2.ClassifyRequest(model="tiny-spam", texts=TEXTS, all_scores=True)
        classified = stub.Classify(classify, timeout=LIMIT_S)
        one_text = text_pb2.ClassifyRequest(model="tiny-spam", texts=TEXTS[:1])
        alone = stub.Classify(one_text, timeout=LIMIT_S)
        embed_request = text_pb2.EmbedRequest(model="tiny-embed", texts=TEXTS)
        embedded = stub.Embed(embed_request, timeout=LIMIT_S)
        tokenize = text_pb2.TokenizeRequest(model="tiny-spam", texts=["free prize"])
        tokenized = stub.Tokenize(tokenize, timeout=LIMIT_S)
        listed = stub.ListModels(text_pb2.ListModelsRequest(), timeout=LIMIT_S)
    scores = softmax(torch_outputs_of_texts(spam, TEXTS))
    for result, row in zip(classified.results, scores, strict=True):
        found = {entry.label: entry.score for entry in result.labels}
        assert found == pytest.approx(dict(zip(spam.labels, row, strict=True)), abs=TOLERANCE)
        assert result.labels[0].score >= result.labels[1].score
    assert classified.num_tokens == sum(len(spam.tokenizer.encode(text).ids) for text in TEXTS)
    # Batches that ran at the same time count each, so only one text's are within the whole.
    assert classified.timings.compute_seconds > 0
    assert 0 < alone.timings.compute_seconds <= alone.timings.total_seconds
    vectors = np.array([result.values for result in embedded.results])
    wanted = torch_outputs_of_texts(embed, TEXTS)
    np.testing.assert_allclose(vectors, wanted, rtol=0, atol=TOLERANCE)
    pieces = [(token.piece, token.start, token.end) for token in tokenized.results[0].tokens]
    assert pieces == [("[CLS]", 0, 0), ("free", 0, 4), ("prize", 5, 10), ("[SEP]", 0, 0)]
    assert [model.name for model in listed.models] == list(MODELS)


def test_health_is_known_per_model(server: ServerProcess) -> None:
    with grpc.insecure_channel(server.address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for name in ("", *MODELS):
            request = health_pb2.HealthCheckRequest(service=name)
            status = health.Check(request, timeout=LIMIT_S).status
            assert status == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(grpc.RpcError) as refused:
            health.Check(health_pb2.HealthCheckRequest(service="nobody"), timeout=LIMIT_S)
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND


def test_reflection_lists_both_services(server: ServerProcess) -> None:
    with grpc.insecure_channel(server.address) as channel:
        services = set(ProtoReflectionDescriptorDatabase(channel).get_services())
    assert services >= {
        "inference.GRPCInferenceService",
        "attendant.v1.TextService",
        "grpc.health.v1.Health",
    }
