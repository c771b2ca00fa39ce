"""A recurrent network as one graph: it says what PyTorch says, exported, refused and served."""

import asyncio
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import onnx
import pytest
import torch
from attendant.v1 import generation_pb2
from onnx import numpy_helper
from tokenizers import Tokenizer
from tritonclient.grpc import service_pb2 as pb
from typer.testing import CliRunner, Result

from commands.ask.trials import try_models
from commands.main import app
from commands.train.seq2seq_runs import checkpoint_of
from export.errors import ExportError
from export.exporter import export_any
from export.graphs.recurrent import trace_greedy
from export.recipes.recurrent import check_decoding
from export.settings import ExportSettings
from models.networks.recurrent import RecurrentConfig, RecurrentSeq2Seq
from models.recipes.seq2seq import Trained, train
from models.recipes.seq2seq_settings import Seq2SeqSettings
from models.recipes.seq2seq_systems import NETWORKS, prepare
from service.contract.tensors import Arrays
from service.runtime.session import OnnxSession, SessionOptions
from tests.fakes.serving import Served, refusal, serving
from tests.fakes.sessions import PATIENCE_S, RealSessions

NUM_STEPS = 2
DTYPES = {"INT64": "<i8", "FP32": "<f4"}
SOURCE = np.array([[4, 5, 6, 7], [8, 4, 0, 0]])


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
        ({"precision": "fp16"}, "precision is fp16, a recurrent network's is fp32"),
        ({"name": "a/b"}, "name is 'a/b', expected a folder name"),
    ],
)
def test_wrong_settings_leave_the_repository_as_it_was(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    settings = replace(ExportSettings("reversal", tmp_path, "fp32"), **change)
    with pytest.raises(ExportError, match=message):
        export_any(checkpoint_of(learnt()), settings)
    assert not list(tmp_path.iterdir())


def test_a_network_of_too_many_steps_is_refused(tmp_path: Path) -> None:
    checkpoint = checkpoint_of(learnt())
    config = replace(checkpoint.config, max_positions=200)
    long = replace(checkpoint, model=RecurrentSeq2Seq(config), max_tokens=129)
    with pytest.raises(ExportError, match=r"max_tokens is 129, a graph .* has at most 128 steps"):
        export_any(long, ExportSettings("reversal", tmp_path, "fp32"))


@pytest.mark.parametrize("form", ["luong", "bahdanau"])
async def test_from_pairs_to_an_answered_request(form: str, tmp_path: Path) -> None:
    """Train, export twice, serve, call: symbols come back reversed, alone and among others."""
    settings = ExportSettings("reversal", tmp_path, "fp32", max_batch_size=8)
    checkpoint = checkpoint_of(learnt(form))
    exported = export_any(checkpoint, settings)
    assert exported.manifest.fused == {"LSTM": 1 + 3}
    assert exported.manifest.parity["max_abs_error"] <= 1e-4
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


@pytest.fixture(scope="module")
def reversal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with the network that reverses two of six symbols."""
    folder = tmp_path_factory.mktemp("repository")
    export_any(checkpoint_of(learnt()), ExportSettings("reversal", folder, "fp32"))
    return folder


async def run(served: Served, *arguments: str) -> Result:
    """The command inside this process; it blocks, so on another thread."""
    command = [*arguments, "--address", served.address]
    environment = {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}
    return await asyncio.to_thread(CliRunner().invoke, app, command, env=environment)


async def test_symbols_are_text_to_clients(reversal: Path) -> None:
    """Whole and as a stream, listed with its symbols, tried with its example."""
    sources = [pair.source for pair in learnt().pairs.train]
    async with serving(reversal, RealSessions()) as served:
        listed = (await run(served, "models")).stdout
        for source in sources[:3]:
            for flag in ("--stream", "--no-stream"):
                result = await run(served, "generate", "reversal", source, flag)
                assert result.stdout.split() == source.split()[::-1]
                assert "2 tokens in (0 reused), 2 out" in result.stderr
        ids = Tokenizer.from_file(str(reversal / "reversal/1/tokenizer.json")).encode(source).ids
        request = generation_pb2.GenerateRequest(
            model="reversal",
            token_ids=generation_pb2.TokenIds(ids=ids),
            sampling_params=generation_pb2.SamplingParams(max_tokens=1, temperature=0),
        )
        cut = await served.generation.GenerateUnary(request, timeout=PATIENCE_S)
        tried = await asyncio.to_thread(lambda: list(try_models(served.address, PATIENCE_S)))
    (row,) = (line for line in listed.splitlines() if line.startswith("│ reversal"))
    assert "symbols: s0, s1, s2, s3, s4, s5" in row
    assert cut.results[0].text == source.split()[-1]
    assert cut.results[0].finish_reason == generation_pb2.FINISH_REASON_LENGTH
    assert [trial.model.example for trial in tried] == ["s0 s1 s2"]
    assert not tried[0].answer.startswith("INVALID")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("s0 s9",), "unknown symbol 's9': the model knows s0, s1, s2, s3, s4, s5"),
        (("s0 [PAD]",), "source has id 0, which is no symbol"),
        (("s0 s1 s0 s1",), "has 4 tokens, the model takes at most 3"),
        (("s0 s1", "--top-k", "3"), "writes the likeliest symbol at each step"),
        (("s0 s1", "--n", "2"), "writes the likeliest symbol at each step"),
    ],
)
async def test_what_is_no_symbol_is_refused(
    reversal: Path, arguments: tuple[str, ...], message: str
) -> None:
    async with serving(reversal, RealSessions()) as served:
        result = await run(served, "generate", "reversal", *arguments)
    assert result.exit_code == 1
    assert message in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([4, 99], "source has id 99, which is no symbol: the model knows .* with ids 4 to 9"),
        ([1, 4], "source has id 1, which is no symbol"),
        ([-1, 4], "source has id -1, which is no symbol"),
        ([0, 4], "source has padding, 0, before a symbol"),
    ],
)
async def test_an_id_of_no_symbol_is_refused(reversal: Path, row: list[int], message: str) -> None:
    """Where it would be computed with; padding behind the symbols is none of them."""
    async with serving(reversal, RealSessions()) as served:
        code, details = await refusal(
            served.inference.ModelInfer(infer_request(row, datatype="INT64"), timeout=PATIENCE_S)
        )
        await served.inference.ModelInfer(
            infer_request([4, 0], datatype="INT64"), timeout=PATIENCE_S
        )
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert re.search(message, details)


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
