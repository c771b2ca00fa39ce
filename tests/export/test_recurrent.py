"""A recurrent network as one graph: it says what PyTorch says, exported, refused and served."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import onnx
import pytest
import torch
from onnx import numpy_helper
from tokenizers import Tokenizer
from tritonclient.grpc import service_pb2 as pb

from export.errors import ExportError
from export.exporter import ExportSettings
from export.exporters import export_any
from export.recurrent import trace_greedy
from export.recurrent_exporter import check_decoding
from models.seq2seq.command import checkpoint_of
from models.seq2seq.recurrent import RecurrentConfig, RecurrentSeq2Seq
from models.seq2seq.registry import NETWORKS, prepare
from models.seq2seq.settings import Seq2SeqSettings
from models.seq2seq.training import Trained, train
from service.request import Arrays
from service.runtime import OnnxSession, SessionOptions
from tests.export.tiny import one_torch_thread
from tests.fakes import PATIENCE_S, RealSessions
from tests.service.serving import refusal, serving

NUM_STEPS = 2
DTYPES = {"INT64": "<i8", "FP32": "<f4"}
SOURCE = np.array([[4, 5, 6, 7], [8, 4, 0, 0]])


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    with one_torch_thread():
        yield


def network_of(attention: str, form: str = "luong") -> RecurrentSeq2Seq:
    torch.manual_seed(5)
    config = RecurrentConfig(12, 8, attention, max_positions=8, form=form)
    return RecurrentSeq2Seq(config).eval()


@cache
def graph_of(attention: str, form: str = "luong") -> onnx.ModelProto:
    return trace_greedy(network_of(attention, form), NUM_STEPS)


@cache
def learnt(form: str = "luong") -> Trained:
    """Reverses two of six symbols: the pairs it was shown, after a second or two."""
    settings = Seq2SeqSettings(
        attention="additive",
        form=form,
        length=2,
        symbols=6,
        samples=14,
        test_samples=4,
        hidden_size=16,
        epochs=120,
        learning_rate=2e-2,
    )
    pairs, completed = prepare("reversal", settings)
    return train(pairs, NETWORKS["lstm"].load(), completed)


@pytest.mark.parametrize(
    ("attention", "form"),
    [
        *((attention, "luong") for attention in ("none", "dot", "multiplicative", "additive")),
        *((attention, "bahdanau") for attention in ("dot", "multiplicative", "additive")),
    ],
)
def test_the_graph_says_what_the_network_says(attention: str, form: str) -> None:
    """Every token, and attention to 1e-4, of rows of 4 and 2 tokens; a node for each of 2 steps."""
    graph, network = graph_of(attention, form), network_of(attention, form)
    outputs = ["target", "attention"][: 1 if attention == "none" else 2]
    assert [output.name for output in graph.graph.output] == outputs
    assert sum(node.op_type == "LSTM" for node in graph.graph.node) == 1 + NUM_STEPS
    weights_held = [numpy_helper.to_array(tensor).tobytes() for tensor in graph.graph.initializer]
    sizes = sum(parameter.nbytes for parameter in network.parameters())
    assert sum(map(len, weights_held)) < sizes + 200, "steps have weights of their own"
    found = OnnxSession(graph.SerializeToString(), SessionOptions(num_threads=1)).run(
        {"source": SOURCE}, outputs
    )
    tokens = torch.from_numpy(SOURCE)
    said, weights = network.greedy(tokens, (tokens != 0).long(), NUM_STEPS)
    assert found[0].tolist() == said.tolist()
    assert found[0].dtype == np.int64
    if weights is not None:
        np.testing.assert_allclose(found[1], weights.detach().numpy(), atol=1e-4)
        assert not found[1][1, :, 2:].any(), "it looked at padding"


def test_a_graph_of_another_network_is_refused() -> None:
    check_decoding(network_of("dot"), graph_of("dot"), NUM_STEPS)
    other = network_of("dot")
    with torch.no_grad():
        other.output.bias.add_(torch.arange(12.0))
    with pytest.raises(ExportError, match=r"\d+ of 32 tokens differ from PyTorch's"):
        check_decoding(other, graph_of("dot"), NUM_STEPS)
    other = network_of("dot")
    with torch.no_grad():
        next(other.encoder.parameters()).mul_(1.2)  # it says the same, but looks elsewhere
    with pytest.raises(ExportError, match=r"attention differs from PyTorch's by up to .*1e-04"):
        check_decoding(other, graph_of("dot"), NUM_STEPS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"precision": "int8"}, "precision is int8, a recurrent network's is fp32"),
        ({"with_fp16": True}, "precision is fp16, a recurrent network's is fp32"),
        ({"name": "a/b"}, "name is 'a/b', expected a folder name"),
    ],
)
def test_wrong_settings_leave_the_repository_as_it_was(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    settings = replace(ExportSettings("reversal", tmp_path), **change)
    with pytest.raises(ExportError, match=message):
        export_any(checkpoint_of(learnt()), settings)
    assert not list(tmp_path.iterdir())


def test_a_network_of_too_many_steps_is_refused(tmp_path: Path) -> None:
    checkpoint = checkpoint_of(learnt())
    config = replace(checkpoint.config, max_positions=200)
    long = replace(checkpoint, model=RecurrentSeq2Seq(config), max_tokens=129)
    with pytest.raises(ExportError, match=r"max_tokens is 129, a graph .* has at most 128 steps"):
        export_any(long, ExportSettings("reversal", tmp_path))


@pytest.mark.parametrize("form", ["luong", "bahdanau"])
async def test_from_pairs_to_an_answered_request(form: str, tmp_path: Path) -> None:
    """Train, export twice, serve, call: symbols come back reversed, alone and among others."""
    settings = ExportSettings("reversal", tmp_path, max_batch_size=8)
    checkpoint = checkpoint_of(learnt(form))
    exported = export_any(checkpoint, settings)
    assert exported.measured["LSTM nodes"] == 1 + 3
    assert exported.measured["max abs error"] <= 1e-4
    assert export_any(checkpoint, settings).folder == tmp_path / "reversal" / "2"
    tokenizer = Tokenizer.from_file(str(exported.folder / "tokenizer.json"))
    sources = [pair.source for pair in learnt(form).pairs.train]
    rows = [tokenizer.encode(source).ids for source in sources]
    async with serving(tmp_path, RealSessions()) as served:

        async def infer(*rows: list[int], datatype: str = "INT64") -> Arrays:
            request = infer_request(*rows, datatype=datatype)
            return arrays_of(await served.inference.ModelInfer(request, timeout=PATIENCE_S))

        asked = pb.ModelConfigRequest(name="reversal")
        config = (await served.inference.ModelConfig(asked, timeout=PATIENCE_S)).config
        together = await infer(*rows[:8])
        alone = await asyncio.gather(*(infer(row) for row in rows))
        wrong = await refusal(infer(rows[0], datatype="INT32"))
        too_many = await refusal(infer(*rows[:9]))
    assert config.HasField("dynamic_batching")
    for source, answer in zip(sources, alone, strict=True):
        assert answer["attention"].shape == (1, 3, 2)
        assert tokenizer.decode(answer["target"][0].tolist()).split() == source.split()[::-1]
    for row, answer in enumerate(alone[:8]):
        assert together["target"][row].tolist() == answer["target"][0].tolist()
        np.testing.assert_allclose(together["attention"][row], answer["attention"][0], atol=1e-5)
    assert wrong[0] is too_many[0] is grpc.StatusCode.INVALID_ARGUMENT
    assert "source" in wrong[1]


def infer_request(*rows: list[int], datatype: str) -> pb.ModelInferRequest:
    request = pb.ModelInferRequest(model_name="reversal")
    request.inputs.add(name="source", datatype=datatype, shape=[len(rows), len(rows[0])])
    request.raw_input_contents.append(np.array(rows, "<i8").tobytes())
    return request


def arrays_of(response: pb.ModelInferResponse) -> Arrays:
    return {
        tensor.name: np.frombuffer(content, DTYPES[tensor.datatype]).reshape(tensor.shape)
        for tensor, content in zip(response.outputs, response.raw_output_contents, strict=True)
    }
