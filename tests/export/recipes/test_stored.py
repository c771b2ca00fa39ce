"""A decoder whose folder had rounded weights is exported with those numbers."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
import transformers
from onnx import numpy_helper
from typer.testing import CliRunner

from commands.main import app
from export.checks.decoding import measure_parity
from export.errors import ExportError
from export.exporter import export_any
from export.graphs.cached_decoder import trace_decoder
from export.graphs.traced.decoder import trace_traced
from export.precision.blockwise import is_product
from export.precision.kept import FLOAT_WEIGHTS, forms_of, keep_stored
from export.settings import ExportSettings
from models.checkpoints.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from models.checkpoints.gguf.blocks import BLOCKS
from models.checkpoints.gguf.files import KEPT_TYPES
from models.checkpoints.plan import recognise
from models.errors import CheckpointError
from models.networks.llama import Llama
from models.networks.traced import TracedDecoder
from service.contract.manifest import Precision
from tests.checkpoints.fields import network
from tests.commands.folders.test_explain import WIDE
from tests.fakes.processor import on_processors_of_blocks
from tests.fakes.tiny_llama import tiny_llama_generator
from tests.models.checkpoints.gguf.writing import write_gguf
from tests.models.checkpoints.rounded.test_folders import folders

pytestmark = pytest.mark.filterwarnings("ignore::models.remarks.DataWarning")
SIZES = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 32,
    "num_hidden_layers": 1,
    "max_position_embeddings": 128,
}
# Four products of a layer; attention's first has three weights and the gated layer's two.
NUM_WEIGHTS = 3 + 1 + 2 + 1
FORMS = {
    "gptq": {"GPTQ, 4 bits": NUM_WEIGHTS, FLOAT_WEIGHTS: 1},
    "awq": {"AWQ, 4 bits": NUM_WEIGHTS, FLOAT_WEIGHTS: 1},
    "mlx": {"MLX, 4 bits": NUM_WEIGHTS, FLOAT_WEIGHTS: 1},
    "Q4_K_M": {"GGUF Q4_K": 5, "GGUF Q6_K": 2 + 1},
}


def rounded(way: str, folder: Path, origin: str = "auto") -> Checkpoint:
    """A tiny Llama in a folder whose weights are rounded in a way; `origin` of its network."""
    classes = transformers.AutoModelForCausalLM
    if way.startswith("Q"):
        write_gguf(network("llama", classes, **SIZES).eval(), folder / "tiny.gguf", way)
        return load_checkpoint(folder / "tiny.gguf", network=origin)
    made = folders("llama", way, folder, classes, **SIZES)[0]
    return load_checkpoint(made, network=origin)


@pytest.mark.parametrize("origin", ["own", "transformers"])
@pytest.mark.parametrize("way", FORMS)
def test_tokens_are_those_of_the_float_network_of_the_stored_numbers(
    way: str, origin: str, tmp_path: Path
) -> None:
    """64 greedy steps of three prompts, where activations are floats too.

    Logits are up to 33, and those of the float graph are off by as much.
    """
    checkpoint = rounded(way, tmp_path, origin)
    network = checkpoint.model
    assert isinstance(network, Llama | TracedDecoder)
    graph = trace_decoder(network) if isinstance(network, Llama) else trace_traced(network)
    graph = keep_stored(graph, checkpoint.kept(), accuracy_level=0)
    assert forms_of(graph) == FORMS[way]
    parity = measure_parity(network, graph, is_exact=True)
    assert parity.network_changed_tokens == parity.changed_tokens == 0
    assert parity.max_abs_error < 2e-3


@on_processors_of_blocks
@pytest.mark.parametrize("origin", ["own", "transformers"])
def test_auto_keeps_the_numbers_and_the_manifest_says_of_which(origin: str, tmp_path: Path) -> None:
    """Also from Attendant's own checkpoint that was imported of the folder."""
    way = "Q4_K_M"
    save_checkpoint(rounded(way, tmp_path, origin), tmp_path / "checkpoint")
    checkpoint = load_checkpoint(tmp_path / "checkpoint")
    manifest = export_any(checkpoint, ExportSettings("tiny", tmp_path / "repository")).manifest
    assert manifest.precision == "stored"
    assert manifest.weights == FORMS[way]
    assert manifest.variants == ()
    assert manifest.parity["max_neighbour_effect"] == 0


@on_processors_of_blocks
@pytest.mark.parametrize("precision", ["int8", "int8-weights", "int4-weights"])
def test_what_a_folder_left_in_float_stays_float_in_any_precision(
    precision: Precision, tmp_path: Path
) -> None:
    """The output layer, with the network's own numbers; the manifest has their number."""
    checkpoint = rounded("gptq", tmp_path)
    settings = ExportSettings("tiny", tmp_path / "repository", precision)
    assert export_any(checkpoint, settings).manifest.weights == {FLOAT_WEIGHTS: 1}
    graph = onnx.load(tmp_path / "repository/tiny/1/model.onnx").graph
    floats = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    [weights] = [floats[node.input[1]] for node in graph.node if is_product(node, floats)]
    output = checkpoint.model.get_parameter("output.weight").detach().numpy()
    assert np.array_equal(weights, output.T)


def test_a_plan_names_the_forms_that_are_kept(tmp_path: Path) -> None:
    classes = transformers.AutoModelForCausalLM
    for way, kept in {"gptq": ("GPTQ",), "fp8": ()}.items():
        plan = recognise(folders("llama", way, tmp_path / way, classes, **SIZES)[0])
        assert plan.kept == kept
        assert plan.task == "text-generation"
    path = tmp_path / "tiny.gguf"
    write_gguf(network("llama", classes, **SIZES).eval(), path, "Q4_K_M")
    assert {*recognise(path).kept} == {"Q4_K", "Q6_K"}
    result = CliRunner().invoke(app, ["explain", str(path), "--precision", "stored"], env=WIDE)
    assert "not rounded again; F32 in float" in " ".join(result.stdout.split())


def test_types_of_blocks_that_a_plan_names_are_those_that_are_read() -> None:
    assert {*KEPT_TYPES} == {*BLOCKS}


def test_a_damaged_file_of_kept_weights_is_refused(tmp_path: Path) -> None:
    save_checkpoint(rounded("gptq", tmp_path), tmp_path / "checkpoint")
    path = tmp_path / "checkpoint" / "rounded.safetensors"
    contents = bytearray(path.read_bytes())
    contents[-1] ^= 1
    path.write_bytes(contents)
    with pytest.raises(CheckpointError, match=r"rounded\.safetensors has the SHA-256"):
        load_checkpoint(tmp_path / "checkpoint")
    path.unlink()
    with pytest.raises(CheckpointError, match=r"rounded\.safetensors is missing"):
        load_checkpoint(tmp_path / "checkpoint")


def test_stored_is_refused_where_nothing_was_rounded(tmp_path: Path) -> None:
    settings = ExportSettings("tiny", tmp_path / "repository", "stored")
    with pytest.raises(ExportError, match="precision is stored, which is for rounded weights"):
        export_any(tiny_llama_generator(), settings)


@on_processors_of_blocks
def test_weights_that_were_changed_are_not_taken_for_stored_ones(tmp_path: Path) -> None:
    checkpoint = rounded("gptq", tmp_path)
    model = checkpoint.model
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.01)
    settings = ExportSettings("tiny", tmp_path / "repository")
    with pytest.raises(ExportError, match="no product has the numbers"):
        export_any(replace(checkpoint, model=model), settings)
