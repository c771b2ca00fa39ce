"""Attention made visible: by hand, in a graph, and over the wire."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import onnx
import pytest
import pytest_asyncio
import torch
from attendant.v1 import features_pb2 as pb
from attendant.v1 import features_pb2_grpc
from torch import Tensor
from tritonclient.grpc import service_pb2
from typer.testing import CliRunner, Result

from commands.main import app
from export.errors import ExportError
from export.exporter import export_any
from export.graphs.attention import longest_text
from export.recipes.attention import check_attention
from export.settings import ExportSettings
from models.checkpoints.checkpoint import Checkpoint
from models.errors import SettingError
from models.networks.attending import AttendingToSource, attending
from models.networks.attention import attention_reference, causal_mask
from models.networks.gpt import GPT
from models.networks.heads import SequenceClassifier
from models.networks.recurrent import RecurrentConfig, RecurrentSeq2Seq
from models.networks.transformer import Transformer
from service.contract.manifest import Example, Manifest
from service.contract.model_config import parse_config
from service.errors import LoadError
from service.serving.tasks import attention as attention_task
from service.serving.tasks.table import complete_config
from tests.fakes.looking import cross_weights
from tests.fakes.serving import Served, refusal, serving
from tests.fakes.sessions import RealSessions, embedder_manifest, text_session, write_model
from tests.fakes.tiny import (
    SPECIAL,
    tiny_classifier,
    tiny_embedder,
    tiny_tokenizer,
)
from tests.fakes.tiny_gpt import tiny_generator
from tests.fakes.tiny_transformer import tiny_transformer, tiny_writer

TEXT = "free lunch tomorrow"


def tiny_recurrent(attention: str = "additive", form: str = "luong") -> Checkpoint:
    torch.manual_seed(5)
    tokenizer = tiny_tokenizer()
    config = RecurrentConfig(
        tokenizer.get_vocab_size(),
        16,
        attention,
        start_token_id=SPECIAL.index("[CLS]"),
        end_token_id=SPECIAL.index("[SEP]"),
        form=form,
    )
    network = RecurrentSeq2Seq(config).eval()
    return Checkpoint(network, "sequence-to-sequence", (), tokenizer, 32, "random weights")


NETWORKS: dict[str, Callable[[], Checkpoint]] = {
    "classifier": cache(tiny_classifier),
    "embedder": cache(tiny_embedder),
    "gpt": cache(tiny_generator),
    "transformer": cache(lambda: tiny_writer(tiny_transformer(num_layers=1))),
    "recurrent": cache(tiny_recurrent),
}

SHOWN = ("classifier", "gpt", "transformer", "recurrent")


def ids_of(checkpoint: Checkpoint, *lengths: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [
        torch.randint(4, checkpoint.config.vocab_size, (1, length), generator=generator)
        for length in lengths
    ]


def weights_of(checkpoint: Checkpoint) -> Tensor:
    """Of a text of 6 tokens, and of a target of 5."""
    shown = attending(checkpoint.model)
    ids, target = ids_of(checkpoint, 6, 5)
    known = {"input_ids": ids, "target_ids": target}
    with torch.inference_mode():
        weights: Tensor = shown(*(known.get(name, torch.ones_like(ids)) for name in shown.inputs))[
            0
        ]
    return weights


@pytest.mark.parametrize("name", NETWORKS)
def test_what_a_token_looks_at_sums_to_one(name: str) -> None:
    weights = weights_of(NETWORKS[name]())
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(weights.shape[:-1]))
    assert weights.shape[3:] == ((5, 6) if name in ("transformer", "recurrent") else (6, 6))


def test_an_encoders_weights_are_those_of_the_reference() -> None:
    checkpoint = NETWORKS["classifier"]()
    network = checkpoint.model
    assert isinstance(network, SequenceClassifier)
    ids, mask = ids_of(checkpoint, 6)[0], torch.tensor([[1, 1, 1, 1, 0, 0]])
    with torch.no_grad():
        shown, _ = attending(network)(ids, mask, torch.zeros_like(ids))
        states = network.encoder(ids, mask)
    for index, layer in enumerate(network.encoder.layers):
        attention: Any = layer.attention
        query, key = (
            project(states[index]).unflatten(-1, (4, 8)).transpose(1, 2)
            for project in (attention.query, attention.key)
        )
        _, expected = attention_reference(query, key, key, (mask != 0)[:, None, None])
        torch.testing.assert_close(shown[:, index], expected)
    assert not shown[..., 4:].any(), "nobody looks at padding"


def test_no_token_of_a_gpt_looks_ahead() -> None:
    weights = weights_of(NETWORKS["gpt"]())
    assert not weights[..., ~causal_mask(6)].any()
    assert (weights[..., 0, 0] == 1.0).all()


def test_a_transformers_weights_are_those_of_its_teacher_forced_pass() -> None:
    checkpoint = NETWORKS["transformer"]()
    network = checkpoint.model
    assert isinstance(network, Transformer)
    ids, target = ids_of(checkpoint, 6, 5)
    mask = torch.ones_like(ids)
    with torch.inference_mode():
        found, logits = AttendingToSource(network)(ids, mask, target)
        expected = cross_weights(network, ids, mask, target)
        start = torch.full_like(target[:, :1], network.config.start_token_id)
        plain = network(ids, mask, torch.cat([start, target[:, :-1]], dim=1))
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(logits, plain)


def test_the_network_itself_is_left_as_it_was() -> None:
    network = NETWORKS["gpt"]().model
    assert isinstance(network, GPT)
    before = [type(module) for module in network.modules()]
    attending(network)
    assert [type(module) for module in network.modules()] == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"precision": "int8"}, "precision is int8"), ({"precision": "fp16"}, "precision is fp16")],
)
def test_other_precisions_are_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    settings = replace(ExportSettings("a", tmp_path, "fp32"), **changes)
    with pytest.raises(ExportError, match=message):
        export_any(NETWORKS["gpt"](), settings, task="attention")
    assert not list(tmp_path.iterdir())


def test_a_network_that_looks_nowhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="no attention of tokens to show"):
        export_any(tiny_recurrent("none"), ExportSettings("a", tmp_path, "fp32"), task="attention")
    with pytest.raises(SettingError, match="Bahdanau's form answers with its attention"):
        export_any(
            tiny_recurrent(form="bahdanau"), ExportSettings("a", tmp_path, "fp32"), task="attention"
        )


def test_long_texts_are_bounded_by_what_their_matrices_take() -> None:
    """BERT-base: 12 layers x 12 heads x 341^2 tokens are 16,744,464 values of 2^24."""
    assert longest_text(12, 12) == 341
    assert 12 * 12 * 342**2 > 2**24


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("model_repository")


def exported(repository: Path, name: str) -> Path:
    """A network's version folder, written when it is first asked for."""
    folder = repository / name / "1"
    if not folder.exists():
        export_any(NETWORKS[name](), ExportSettings(name, repository, "auto"), task="attention")
    return folder


@pytest.mark.parametrize("name", SHOWN)
def test_the_graph_gives_the_networks_weights_and_its_own_output(
    repository: Path, name: str
) -> None:
    """As PyTorch gives them, and where there is a fused graph of texts, as that does."""
    manifest = json.loads((exported(repository, name) / "manifest.json").read_text())
    is_text_network = name == "classifier"
    figures = ("attention", "row_sum", "output", *(("fused_output",) * is_text_network))
    assert manifest["parity"].keys() == {f"max_{figure}_error" for figure in figures}
    assert max(manifest["parity"].values()) < 1e-4


@pytest.mark.parametrize("name", ["transformer", "recurrent"])
def test_an_example_of_a_source_has_what_the_network_writes_of_it(
    repository: Path, name: str, tmp_path: Path
) -> None:
    """A recurrent network has examples by itself; an output that is given is kept."""
    manifest = Manifest.from_json((exported(repository, name) / "manifest.json").read_text())
    assert all(example.text_pair for example in manifest.examples)
    assert bool(manifest.examples) == (name == "recurrent")
    given = Example("free lunch"), Example("prize", "now")
    settings = ExportSettings(name, tmp_path, "auto", examples=given)
    first, second = export_any(NETWORKS[name](), settings, task="attention").manifest.examples
    assert first.text == "free lunch"
    assert first.text_pair
    assert second == given[1]


def test_a_graph_that_shows_other_weights_is_refused(repository: Path) -> None:
    graph = onnx.load(exported(repository, "gpt") / "model.onnx")
    checkpoint = NETWORKS["gpt"]()
    other = attending(checkpoint.model)
    for parameter in other.parameters():
        with torch.no_grad():
            parameter.mul_(1.5)
    with pytest.raises(ExportError, match="attention is off by up to"):
        check_attention(checkpoint, other, graph, 16)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(repository: Path) -> AsyncIterator[Served]:
    for name in SHOWN:
        exported(repository, name)
    write_model(repository, "embedder", embedder_manifest())
    async with serving(
        repository, RealSessions(embedder=lambda: text_session("embedding", 4))
    ) as running:
        yield running


def attend(served: Served, **fields: Any) -> Any:
    stub = features_pb2_grpc.FeatureServiceStub(served.channel)
    return stub.Attend(pb.AttendRequest(**fields))


@pytest.mark.asyncio(loop_scope="module")
async def test_a_text_is_answered_with_its_tokens_and_every_matrix(served: Served) -> None:
    response = await attend(served, model="classifier", text=TEXT)
    pieces = ["[CLS]", "free", "lunch", "tomorrow", "[SEP]"]
    assert [token.piece for token in response.keys] == pieces
    assert list(response.queries) == list(response.keys)
    assert (response.keys[2].start, response.keys[2].end) == (5, 10)
    assert response.num_tokens == 5
    found = [(matrix.layer, matrix.head) for matrix in response.matrices]
    assert found == [(layer, head) for layer in range(2) for head in range(4)]
    checkpoint = NETWORKS["classifier"]()
    ids = torch.tensor([[token.id for token in response.keys]])
    with torch.inference_mode():
        shown, _ = attending(checkpoint.model)(ids, torch.ones_like(ids), torch.zeros_like(ids))
    for matrix in response.matrices:
        weights = np.array(matrix.weights).reshape(5, 5)
        np.testing.assert_allclose(weights, shown[0, matrix.layer, matrix.head], atol=1e-5)


@pytest.mark.asyncio(loop_scope="module")
async def test_layers_and_heads_can_be_chosen(served: Served) -> None:
    response = await attend(served, model="gpt", text="ab", layers=[1], heads=[3, 0])
    assert [(matrix.layer, matrix.head) for matrix in response.matrices] == [(1, 3), (1, 0)]
    for matrix in response.matrices:
        assert matrix.weights[:2] == [1.0, 0.0]
        assert sum(matrix.weights[2:]) == pytest.approx(1.0)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("model", "num_matrices"), [("transformer", 4), ("recurrent", 1)])
async def test_a_target_says_where_it_was_looked_for(
    served: Served, model: str, num_matrices: int
) -> None:
    response = await attend(served, model=model, text="prize", target="now we")
    assert len(response.matrices) == num_matrices
    num_queries, num_keys = len(response.queries), len(response.keys)
    assert num_queries != num_keys
    assert response.num_tokens == num_queries + num_keys
    for matrix in response.matrices:
        weights = np.array(matrix.weights).reshape(num_queries, num_keys)
        np.testing.assert_allclose(weights.sum(axis=1), 1.0, atol=1e-5)


@pytest.mark.asyncio(loop_scope="module")
async def test_matrices_come_as_a_tensor_too(served: Served) -> None:
    request = service_pb2.ModelInferRequest(model_name="classifier")
    tensor = request.inputs.add(name="text", datatype="BYTES", shape=[1, 1])
    tensor.contents.bytes_contents.append(TEXT.encode())
    response = await served.inference.ModelInfer(request)
    assert list(response.outputs[0].shape) == [1, 2, 4, 5, 5]
    tensor.shape[:] = [0, 1]
    tensor.contents.bytes_contents.clear()
    response = await served.inference.ModelInfer(request)
    assert list(response.outputs[0].shape) == [0, 2, 4, 0, 0]


INVALID = grpc.StatusCode.INVALID_ARGUMENT
REFUSED: dict[str, tuple[dict[str, Any], grpc.StatusCode, str]] = {
    "no such layer": ({"layers": [0, 2]}, INVALID, "layers has 2, the model has 2, from 0"),
    "no such head": ({"heads": [4]}, INVALID, "heads has 4, the model has 4, from 0"),
    "many": ({"layers": [0] * 99}, INVALID, "layers has 99 elements, the model has 2"),
    "twice": ({"heads": [1, 1]}, INVALID, "heads repeats one of [1, 1]"),
    "a target for nobody": (
        {"target": "x"},
        INVALID,
        "target has 1 characters, model 'classifier' expects none",
    ),
    "no target": (
        {"model": "transformer"},
        INVALID,
        "target has 0 characters, model 'transformer' expects what it wrote of the text",
    ),
    "too long": (
        {"text": "a b " * 40},
        INVALID,
        "text 0 has 82 tokens, the model takes at most 64",
    ),
    "nothing": ({"model": "gpt", "text": ""}, INVALID, "text 0 has no tokens"),
    "another task": (
        {"model": "embedder"},
        grpc.StatusCode.FAILED_PRECONDITION,
        "model 'embedder' does embedding, it cannot show its attention",
    ),
    "no such model": ({"model": "x"}, grpc.StatusCode.NOT_FOUND, "x"),
}


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("case", REFUSED)
async def test_what_cannot_be_shown_is_refused(served: Served, case: str) -> None:
    fields, code, message = REFUSED[case]
    found = await refusal(attend(served, **{"model": "classifier", "text": TEXT, **fields}))
    assert found[0] == code
    assert message in found[1]


@pytest.mark.asyncio(loop_scope="module")
async def test_an_answer_has_a_bound(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_task, "MAX_VALUES", 99)
    assert len((await attend(served, model="classifier", text=TEXT, heads=[0])).matrices) == 2
    code, message = await refusal(attend(served, model="classifier", text=TEXT))
    assert code == INVALID
    assert "2 layers x 4 heads x 5 x 5 tokens are 200 values, an answer has at most 99" in message


def test_a_configuration_that_batches_texts_is_refused(repository: Path) -> None:
    folder = exported(repository, "classifier")
    manifest = Manifest.from_json((folder / "manifest.json").read_text())
    config = parse_config((folder.parent / "config.pbtxt").read_text(), "classifier")
    assert config.max_batch_size == 1
    config.max_batch_size = 2
    with pytest.raises(LoadError, match="max_batch_size is 2, expected 1"):
        complete_config(config, manifest, default_rows=8)


async def run(served: Served, *arguments: str) -> Result:
    """The command inside this process; it blocks, so on another thread."""
    command = ["attention", *arguments, "--address", served.address]
    environment = {"COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb"}
    return await asyncio.to_thread(CliRunner().invoke, app, command, env=environment)


@pytest.mark.asyncio(loop_scope="module")
async def test_the_command_draws_a_heat_map(served: Served, tmp_path: Path) -> None:
    plot = tmp_path / "heat.png"
    result = await run(
        served, "classifier", TEXT, "--layer", "1", "--head", "0", "--plot", f"{plot}"
    )
    assert result.exit_code == 0, result.output
    assert "tomorrow" in result.stdout
    assert "layer 1, head 0; classifier version 1" in result.stdout
    assert plot.read_bytes().startswith(b"\x89PNG")
    result = await run(served, "transformer", "prize", "--target", "now", "--json")
    assert len(json.loads(result.stdout)["matrices"]) == 4
