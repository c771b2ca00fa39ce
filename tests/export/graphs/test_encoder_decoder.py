"""An encoder-decoder's graphs, run by the server's decoder, compute what PyTorch computes."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto
from torch import Tensor, nn

from export.checks.decoding import DecoderParity
from export.checks.encoder_decoding import logits_rounding, measure_parity, open_graphs
from export.errors import ExportError
from export.exporter import export_any
from export.recipes.encoder_decoders import LIMITS, check_parity
from export.settings import ExportSettings, HeldOut
from models.checkpoints.checkpoint import load_checkpoint, save_checkpoint
from models.networks.transformer import DecoderLayer, Transformer
from service.contract.manifest import Manifest
from service.generation.decoders.encoder_decoder import EncoderDecoder
from service.runtime.session import OnnxSession, SessionOptions
from tests.export.conftest import contents
from tests.fakes.tiny_transformer import (
    HEAD_SIZE,
    MAX_POSITIONS,
    NUM_HEADS,
    NUM_LAYERS,
    VOCAB_SIZE,
    greedy,
    random_sources,
    tiny_graphs,
    tiny_transformer,
    tiny_writer,
    torch_logits,
)

# Sums here have up to 128 terms near 1, logits are near 10, and float32 rounds at 6e-8 of a value.
TOLERANCE = 1e-4
RAGGED = (1, 7, 20, MAX_POSITIONS)
NUM_SLOTS = 6
PARTS = [f"{layer}.{part}" for layer in range(NUM_LAYERS) for part in ("key", "value")]


@pytest.fixture
def decoder() -> EncoderDecoder:
    return open_graphs(tiny_transformer(), *tiny_graphs(), num_slots=NUM_SLOTS)


def run(
    decoder: EncoderDecoder, first_slot: int, rows: list[list[int]], num_past: list[int]
) -> np.ndarray:
    return decoder.run(first_slot, [np.array(row) for row in rows], num_past).whole().copy()


def decoded(
    decoder: EncoderDecoder, sources: list[list[int]], said: list[list[int]], first_slot: int = 0
) -> np.ndarray:
    """Logits [B, T + 1, V] of what follows each source, and each token said after it."""
    logits = [run(decoder, first_slot, sources, [0] * len(sources))]
    for step in range(len(said[0])):
        past = [len(source) + step for source in sources]
        logits.append(run(decoder, first_slot, [row[step : step + 1] for row in said], past))
    return np.stack(logits, axis=1)


# --- the graphs -----------------------------------------------------------------------------------


def shapes_of(values: list[onnx.ValueInfoProto]) -> dict[str, tuple[int, list[str | int]]]:
    return {
        value.name: (
            value.type.tensor_type.elem_type,
            [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim],
        )
        for value in values
    }


def test_encoder_takes_a_source_and_gives_keys_and_values_of_each_decoder_layer() -> None:
    graph = tiny_graphs()[0].graph
    assert shapes_of(list(graph.input)) == {
        "input_ids": (TensorProto.INT64, ["batch", "source"]),
        "attention_mask": (TensorProto.INT64, ["batch", "source"]),
    }
    cross = (TensorProto.FLOAT, ["batch", NUM_HEADS, "source", HEAD_SIZE])
    assert shapes_of(list(graph.output)) == {f"cross.{part}": cross for part in PARTS}


def test_decoder_takes_and_gives_what_it_promises() -> None:
    """A cached decoder's tensors, and with them the source's lengths, keys and values."""
    graph = tiny_graphs()[1].graph
    sizes = {"cache": ["batch", NUM_HEADS, "cache", HEAD_SIZE]}
    sizes["cross"] = ["batch", NUM_HEADS, "source", HEAD_SIZE]
    assert shapes_of(list(graph.input)) == {
        "input_ids": (TensorProto.INT64, ["batch", "sequence"]),
        "position_ids": (TensorProto.INT64, ["batch", "sequence"]),
        "seqlens_k": (TensorProto.INT32, ["batch"]),
        "total_sequence_length": (TensorProto.INT32, []),
        "logit_positions": (TensorProto.INT64, ["positions"]),
        "source_lengths": (TensorProto.INT64, ["batch"]),
        **{f"past_key_values.{part}": (TensorProto.FLOAT, sizes["cache"]) for part in PARTS},
        **{f"cross.{part}": (TensorProto.FLOAT, sizes["cross"]) for part in PARTS},
    }
    assert shapes_of(list(graph.output)) == {
        "logits": (TensorProto.FLOAT, ["positions", VOCAB_SIZE]),
        **{f"present.{part}": (TensorProto.FLOAT, sizes["cache"]) for part in PARTS},
    }


def test_each_attention_is_one_node() -> None:
    """One per layer of the encoder, two per layer of the decoder; no softmax is left."""
    reads, writes = (Counter(node.op_type for node in graph.graph.node) for graph in tiny_graphs())
    assert (reads["Attention"], reads["GroupQueryAttention"]) == (NUM_LAYERS, 0)
    assert (writes["Attention"], writes["GroupQueryAttention"]) == (NUM_LAYERS, NUM_LAYERS)
    assert not {"Softmax", "Where", "Trilu", "Dropout"} & (reads.keys() | writes.keys())


def test_keys_and_values_of_a_ragged_batch_are_those_of_each_source_alone() -> None:
    """Within 1e-4 of PyTorch's projections of what its encoder makes of the row alone."""
    network, sources = tiny_transformer(), random_sources(RAGGED)
    mask = np.arange(MAX_POSITIONS) < np.array(RAGGED)[:, None]
    ids = np.zeros(mask.shape, np.int64)
    ids[mask] = np.concatenate(sources)
    session = OnnxSession(tiny_graphs()[0].SerializeToString(), SessionOptions(num_threads=1))
    names = [f"cross.{part}" for part in PARTS]
    found = session.run({"input_ids": ids, "attention_mask": mask.astype(np.int64)}, names)
    for row, source in enumerate(sources):
        for layer, one in enumerate(network.decoder):
            assert isinstance(one, DecoderLayer)
            for place, project in enumerate((one.cross_attention.key, one.cross_attention.value)):
                with torch.inference_mode():
                    memory = network.encode(torch.tensor([source]), torch.ones(1, len(source)))
                    wanted = one.cross_attention.split_heads(project(memory))[0].numpy()
                here = found[2 * layer + place][row, :, : len(source)]
                np.testing.assert_allclose(here, wanted, rtol=0, atol=TOLERANCE)


# --- cached decoding equals recomputing -----------------------------------------------------------


@pytest.mark.parametrize("first_slot", [0, NUM_SLOTS - len(RAGGED)])
def test_cached_decoding_equals_recomputing(first_slot: int, decoder: EncoderDecoder) -> None:
    """4 ragged sources and 39 tokens said after each, to the last place: within 1e-4."""
    sources = random_sources(RAGGED)
    said = random_sources((MAX_POSITIONS - 1,) * len(RAGGED), seed=1)
    found = decoded(decoder, sources, said, first_slot)
    for source, tokens, logits in zip(sources, said, found, strict=True):
        wanted = torch_logits(tiny_transformer(), source, tokens)
        assert np.ptp(wanted, axis=1).min() > 1, "logits must differ, or nothing is compared"
        np.testing.assert_allclose(logits, wanted, rtol=0, atol=TOLERANCE)


def test_greedy_tokens_are_the_slow_reference_s(decoder: EncoderDecoder) -> None:
    """Each fed what it said itself, up to its end."""
    for source in random_sources(RAGGED):
        wanted = greedy(tiny_transformer(), source, MAX_POSITIONS)
        (logits,) = decoded(decoder, [source], [wanted[:-1]])
        assert logits.argmax(axis=1).tolist() == wanted
        assert len(set(wanted)) > 2, "the same token again proves little"


def test_batched_row_equals_the_row_alone(decoder: EncoderDecoder) -> None:
    """Beside 3 others of other lengths, in slots that longer sources used: within 1e-4."""
    before = random_sources((MAX_POSITIONS,) * 4, seed=5)
    decoded(decoder, before, [row[:20] for row in before])
    sources, said = random_sources(RAGGED), random_sources((12,) * 4, seed=6)
    together = decoded(decoder, sources, said)
    for place, source in enumerate(sources):
        (alone,) = decoded(decoder, [source], [said[place]], first_slot=5)
        np.testing.assert_allclose(together[place], alone, rtol=0, atol=TOLERANCE)


# --- what an export writes and refuses ------------------------------------------------------------


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With version 1 of `dates`, from a checkpoint that was saved and read; not to be changed."""
    folder = tmp_path_factory.mktemp("exported")
    save_checkpoint(tiny_writer(), folder / "checkpoint")
    checkpoint = load_checkpoint(folder / "checkpoint")
    settings = ExportSettings("dates", folder / "models", "auto", example="3rd of March '21")
    exported = export_any(checkpoint, settings)
    assert exported.folder == folder / "models/dates/1"
    return folder / "models"


def test_a_version_has_two_graphs_of_the_same_bytes_each_time(repository: Path) -> None:
    files = ["encoder.onnx", "manifest.json", "model.onnx", "tokenizer.json"]
    wanted = ["dates", "dates/1", *(f"dates/1/{name}" for name in files), "dates/config.pbtxt"]
    assert sorted(contents(repository)) == wanted
    written = contents(repository)
    for graph, name in zip(tiny_graphs(), ("encoder", "model"), strict=True):
        assert written[f"dates/1/{name}.onnx"] == graph.SerializeToString()


def test_manifest_says_how_source_and_output_are_counted(repository: Path) -> None:
    """40 tokens of source and 40 of output; in all 4 + 2 nodes of attention."""
    manifest = Manifest.from_json((repository / "dates/1/manifest.json").read_text())
    assert (manifest.task, manifest.network) == ("text-generation", "encoder-decoder")
    assert (manifest.max_tokens, manifest.max_source_tokens) == (80, 40)
    assert (manifest.pad_token_id, manifest.decoder_start_token_id) == (0, 1)
    assert (manifest.eos_token_ids, manifest.precision) == ((2,), "fp32")
    assert manifest.example == "3rd of March '21"
    assert manifest.fused["Attention"] == 2 * NUM_LAYERS
    assert manifest.fused["GroupQueryAttention"] == NUM_LAYERS
    assert 0 < manifest.parity["max_abs_error"] < TOLERANCE
    assert manifest.parity["changed_tokens"] == manifest.parity["network_changed_tokens"] == 0.0
    assert manifest.left_out == {}


def refused(network: Transformer, settings: ExportSettings, why: str) -> None:
    before = contents(settings.repository)
    with pytest.raises(ExportError, match=why):
        export_any(tiny_writer(network), settings)
    assert contents(settings.repository) == before


@pytest.mark.parametrize("precision", ["fp16", "int4-weights"])
def test_other_precisions_are_refused_by_name(precision: str, tmp_path: Path) -> None:
    settings = ExportSettings("dates", tmp_path, precision)  # type: ignore[arg-type]
    refused(tiny_transformer(), settings, f"precision is {precision}, .* is fp32 or int8 or int8-w")


def test_held_out_text_is_of_no_use_to_it(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="needs pairs"):
        export_any(tiny_writer(), ExportSettings("dates", tmp_path, "fp32"), HeldOut(text="once"))


class _OnePlaceOff(nn.Module):
    """Positions that differ by one between the network's pass and its graph, which asks for one."""

    def __init__(self, positions: nn.Module) -> None:
        super().__init__()
        self.positions = positions

    def at(self, position_ids: Tensor) -> Tensor:
        shifted = position_ids + 1 if position_ids.dim() == 2 else position_ids
        found: Tensor = self.positions.at(shifted % MAX_POSITIONS)  # type: ignore[operator]
        return found


def test_a_network_of_large_logits_is_compared_by_what_float32_costs_it() -> None:
    """An error of 0.002 is a fault, or rounding where logits are in thousands; 2 is a fault."""
    network, steep = tiny_transformer(num_layers=1), tiny_transformer(num_layers=1)
    with torch.no_grad():
        for layer in steep.decoder:
            assert isinstance(layer, DecoderLayer)
            assert isinstance(layer.output_norm, nn.LayerNorm)
            layer.output_norm.weight.mul_(1_000.0)
    assert logits_rounding(network) < 2e-5 < 1e-3 < logits_rounding(steep) < 0.1
    rounded = DecoderParity(2e-3, 0.0, 0.0, 0.0, 0.0)
    check_parity(rounded, steep)
    with pytest.raises(ExportError, match=r"max_abs_error is 2.00e-03, the limit is .*e-05"):
        check_parity(rounded, network)
    with pytest.raises(ExportError, match=r"max_abs_error is 2.00e\+00"):
        check_parity(replace(rounded, max_abs_error=2.0), steep)


def test_a_decoder_that_computes_something_else_is_refused(tmp_path: Path) -> None:
    network = tiny_transformer(num_layers=1)
    network.target_positions = _OnePlaceOff(network.target_positions)
    why = "differs from recomputing from scratch: max_abs_error is .*, the limit is [0-9.]+e-05"
    refused(network, ExportSettings("dates", tmp_path, "fp32"), why)


def test_an_encoder_of_other_weights_is_refused() -> None:
    """Before the decoder is asked: which of the two graphs is wrong is in the message."""
    with pytest.raises(ExportError, match="the encoder's keys and values differ"):
        measure_parity(tiny_transformer(seed=1), *tiny_graphs())


def test_values_that_are_no_numbers_are_refused() -> None:
    """NaN is not below any limit, in what the encoder gives nor in logits."""
    network = tiny_transformer()
    with torch.no_grad():
        network.decoder[0].output_norm.bias[3] = torch.nan  # type: ignore[union-attr, operator]
    with pytest.raises(ExportError, match="max_abs_error is nan"):
        LIMITS.check(measure_parity(network, *tiny_graphs()))
    with torch.no_grad():
        network.encoder[0].output_norm.bias[3] = torch.nan  # type: ignore[union-attr, operator]
    with pytest.raises(ExportError, match="differ from PyTorch's by up to nan"):
        measure_parity(network, *tiny_graphs())


def test_limits_are_those_of_float32() -> None:
    assert (LIMITS.max_abs_error, LIMITS.changed_tokens) == (1e-5, 0.0)
    assert (LIMITS.max_neighbour_effect, LIMITS.network_changed_tokens) == (1e-4, 0.0)
