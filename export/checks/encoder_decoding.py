"""An encoder-decoder's two graphs, run as the server runs them, must compute what PyTorch does.

Checked before anything is written, in the server's own decoder: ragged sources are read together,
alone, and into slots that others used before, then written from, greedily, to the last place.
PyTorch computes every target as a whole, without a cache.
"""
# ruff: noqa: N806 - suffixes are array layouts: B rows, S tokens, D hidden size, T targets, V

from collections.abc import Sequence
from functools import partial

import numpy as np
import onnx
import torch

from export.checks.decoding import (
    NUM_STEPS,
    DecoderParity,
    Recompute,
    Row,
    compare_decoding,
    random_rows,
)
from export.checks.parity import Arrays, pad
from export.checks.rounding import rounding_of
from export.errors import ExportError
from export.graphs.encoder_decoder import cross_names
from export.graphs.graph import open_session
from models.networks.transformer import DecoderLayer, Transformer
from service.generation.decoders.encoder_decoder import EncoderDecoder, SourceLimits

SOURCE_TOKENS = (1, 7, 40, 1_024)  # fewer where the model takes fewer
MAX_ENCODER_ERROR = 1e-3  # of keys and values, which are about as large as logits


def measure_parity(
    network: Transformer, encoder: onnx.ModelProto, decoder: onnx.ModelProto
) -> DecoderParity:
    """Compare both graphs with PyTorch; raise `ExportError` where the encoder's is further off."""
    config = network.config
    sources = random_rows(config.vocab_size, SOURCE_TOKENS, config.max_positions)
    opened = open_graphs(network, encoder, decoder, num_slots=len(sources) + 1)
    _check_encoder(network, encoder, sources)
    return compare_decoding(opened, sources, _with_network(network))


def logits_rounding(network: Transformer) -> float:
    """The largest error of PyTorch's own logits in float32.

    Of T5, with its scores that nothing divides, it is large.
    """
    errors = []
    for source in random_rows(
        network.config.vocab_size, SOURCE_TOKENS, network.config.max_positions
    ):
        source_1S = torch.tensor([source])
        inputs = source_1S, torch.ones_like(source_1S), source_1S[:, :NUM_STEPS]
        errors.append(rounding_of(partial(network, *inputs)))
    return max(errors)


def measure_texts(
    network: Transformer,
    encoder: onnx.ModelProto,
    decoder: onnx.ModelProto,
    sources: Sequence[Row],
) -> DecoderParity:
    """Texts that rounding graphs write, beside what PyTorch would choose at each place."""
    longest = max(map(len, sources))
    opened = open_graphs(network, encoder, decoder, len(sources) + 1, longest)
    return compare_decoding(opened, sources, _with_network(network))


def open_graphs(
    network: Transformer,
    encoder: onnx.ModelProto,
    decoder: onnx.ModelProto,
    num_slots: int,
    max_source_tokens: int | None = None,
) -> EncoderDecoder:
    """The server's encoder-decoder over graphs held in memory."""
    config = network.config
    most = max_source_tokens or config.max_positions
    return EncoderDecoder(
        open_session(encoder),
        open_session(decoder),
        SourceLimits(most, config.pad_token_id, config.start_token_id),
        num_slots=num_slots,
        max_tokens=most + config.max_positions,
        max_rows=num_slots,
    )


def _check_encoder(network: Transformer, encoder: onnx.ModelProto, sources: Sequence[Row]) -> None:
    """Keys and values of a ragged batch, row by row, are what PyTorch has for the row alone."""
    batch = pad(sources, network.config.pad_token_id)
    inputs: Arrays = {name: batch[name] for name in ("input_ids", "attention_mask")}
    by_graph = open_session(encoder).run(inputs, cross_names(network.config.decoder_layers))
    for index, source in enumerate(sources):
        by_network = _cross_keys_and_values(network, source)
        error = max(
            float(np.abs(one[index, :, : len(source)] - other).max())
            for one, other in zip(by_graph, by_network, strict=True)
        )
        if not error <= MAX_ENCODER_ERROR:  # also where it is not a number
            raise ExportError(
                f"the encoder's keys and values differ from PyTorch's by up to {error:.2e} in a "
                f"source of {len(source)} tokens, the limit is {MAX_ENCODER_ERROR:.0e}"
            )


def _cross_keys_and_values(network: Transformer, source: Row) -> list[np.ndarray]:
    """The keys and values of each decoder layer, [H, S, Dh]."""
    source_1S = torch.tensor([source])
    with torch.inference_mode():
        memory_1SD = network.encode(source_1S, torch.ones_like(source_1S))
        return [
            layer.cross_attention.split_heads(project(memory_1SD))[0].numpy()
            for layer in network.decoder
            if isinstance(layer, DecoderLayer)
            for project in (layer.cross_attention.key, layer.cross_attention.value)
        ]


def _with_network(network: Transformer) -> Recompute:
    def recompute(num_source_tokens: int, row: Row) -> np.ndarray:
        source_1S = torch.tensor([row[:num_source_tokens]])
        target_1T = torch.tensor([[network.config.start_token_id, *row[num_source_tokens:-1]]])
        with torch.inference_mode():
            logits_TV: np.ndarray = network(source_1S, torch.ones_like(source_1S), target_1T)[0]
        return np.asarray(logits_TV)

    return recompute
