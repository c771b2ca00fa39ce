"""A network that fills masks, exported: rows of masks only, in float32 and int8."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from export.checks.parity import GraphRunner, pad, run_network
from export.exporter import export_any
from export.settings import ExportSettings
from models.checkpoints.checkpoint import Checkpoint
from models.data.word_pieces import train_word_pieces
from models.networks.encoder import Encoder, EncoderConfig
from models.networks.masked import MaskedLanguageModel
from service.contract.manifest import Manifest

MASK_ID = 4
TEXTS = ["the cat sat on the mat.", "a dog ran home."] * 4


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    tokenizer = train_word_pieces(TEXTS, 60)
    config = EncoderConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=32,
        num_layers=2,
        num_heads=2,
        intermediate_size=48,
        max_positions=24,
    )
    torch.manual_seed(1)
    model = MaskedLanguageModel(Encoder(config), MASK_ID)
    for parameter in model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    return Checkpoint(model.eval(), "fill-mask", (), tokenizer, 24, "tiny")


@pytest.fixture(scope="module")
def exported(checkpoint: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    settings = ExportSettings("fills", tmp_path_factory.mktemp("repository"), "auto")
    folder, _ = export_any(checkpoint, settings)
    return folder


def test_the_manifest_tells_the_mask_and_has_it_in_its_example(exported: Path) -> None:
    manifest = Manifest.from_json((exported / "manifest.json").read_text())
    assert (manifest.task, manifest.mask_token_id) == ("fill-mask", MASK_ID)
    assert manifest.example == "What a wonderful [MASK]."
    assert len(manifest.examples) >= 5
    assert all("[MASK]" in example.text for example in manifest.examples)
    assert manifest.fused["Attention"] == 2
    assert manifest.parity["max_abs_error"] < 1e-4
    assert manifest.parity["max_neighbour_effect"] < 1e-5
    assert [variant.precision for variant in manifest.variants] == ["int8"], manifest.left_out


def test_attention_of_a_network_that_fills_masks_is_compared_by_texts_with_masks(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    """A text without any has no logits to compare."""
    settings = ExportSettings("seen", tmp_path, "auto")
    folder, _ = export_any(checkpoint, settings, task="attention")
    manifest = Manifest.from_json((folder / "manifest.json").read_text())
    assert manifest.task == "attention"
    assert 0 < manifest.parity["max_output_error"] < 1e-4


@pytest.mark.parametrize(
    "rows",
    [
        [[2, 9, MASK_ID, 11, 3], [2, MASK_ID, 3], [2, MASK_ID, MASK_ID, 7, 8, MASK_ID, 9, 3]],
        [[2, 9, 8, 3], [2, MASK_ID, 3]],
        [[2, 9, 8, 3], [2, 3]],
    ],
    ids=["masks in all rows", "in one", "in none"],
)
def test_the_graph_gives_a_row_per_mask_and_no_other(
    checkpoint: Checkpoint, exported: Path, rows: list[list[int]]
) -> None:
    """In the order of the rows; none where there is no mask, as in a warm-up."""
    graph = GraphRunner(onnx.load(exported / "model.onnx"))
    batch = pad(rows, 0)
    found = graph(batch)
    assert found.shape == (sum(row.count(MASK_ID) for row in rows), checkpoint.config.vocab_size)
    expected = run_network(checkpoint.text_network, batch)["logits"]
    assert np.allclose(found, expected, atol=1e-4)


def test_the_graph_has_the_words_once_and_no_next_sentence(exported: Path) -> None:
    """The output layer is the table of words; what pretraining alone needs is left out."""
    weights = onnx.load(exported / "model.onnx").graph.initializer
    names = [tensor.name for tensor in weights]
    assert not [name for name in names if "next_sentence" in name]
    of_words = [tensor.name for tensor in weights if set(tensor.dims) == {32, vocab_size(exported)}]
    assert len(of_words) == 1, of_words


def vocab_size(folder: Path) -> int:
    graph = onnx.load(folder / "model.onnx").graph
    return int(graph.output[0].type.tensor_type.shape.dim[1].dim_value)
