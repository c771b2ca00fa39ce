"""An encoder-decoder as two ONNX graphs: one reads the source once, the other writes step by step.

The keys and values of the source, which the decoder reads, do not change while the target grows:
the encoder's graph computes them for every layer, and the decoder's takes them beside its own
cache. So a step costs what it costs without a source, and one attention per layer more.

Encoder:
    input_ids, attention_mask [B, S]         int64, right-padded
    cross.{i}.key and .value [B, H, S, Dh]   float32, of decoder layer i; any values for padding
Decoder: what `export/graphs/cached_decoder.py` describes, where position 0 is the start token's,
and
    source_lengths [B]                       int64: tokens of each row's source
    cross.{i}.key and .value [B, H, T, Dh]   with room for T tokens

Self-attention of the decoder is com.microsoft.GroupQueryAttention, all others are ONNX's Attention.
Both take the numbers of relative positions as scores to add, made once for all layers.
"""
# ruff: noqa: N803, N806 - suffixes are array layouts: B rows, S tokens of this pass, T of a source,
# N wanted tokens, D hidden size, H heads of size Dh

import copy
from functools import partial

import onnx
import torch
from torch import Tensor, nn

from export.graphs.attention_nodes import attention_by_length
from export.graphs.cached_decoder import (
    FIRST_LENGTH,
    INPUTS,
    NUM_CACHED,
    NUM_ROWS,
    OPERATOR,
    CachedAttention,
    StepExample,
)
from export.graphs.fused_attention import fuse_attention
from export.graphs.gated_layers import PackedFeedForward
from export.graphs.graph import (
    DTYPES,
    LENGTHS_OPSET,
    OPSET,
    check_fused,
    clean,
    export_program,
    trace_texts,
)
from export.graphs.packing import Packing
from export.settings import Operator
from models.networks.attention import MultiHeadAttention, padding_mask
from models.networks.layers import GatedFeedForward
from models.networks.transformer import DecoderLayer, Transformer
from service.contract.manifest import Precision
from service.generation.decoders.decoder import TEXT_INPUTS
from service.generation.decoders.encoder_decoder import SOURCE_LENGTHS
from service.generation.decoders.shape import cache_names

CROSS_OPERATOR: Operator = "Attention"
NUM_SOURCE = 12  # tokens of the example's sources
ADDED_AT = 10  # the operator's input of scores to add


def trace_encoder(network: Transformer, precision: Precision = "fp32") -> onnx.ModelProto:
    """The graph that reads, or `ExportError` unless each of its attentions became one node."""
    by_length = precision in DTYPES  # as `trace` does, and why
    encoder = _SourceEncoder(copy.deepcopy(network).eval(), by_length).to(_dtype(precision))
    names = cross_names(network.config.decoder_layers)
    model = trace_texts(encoder, TEXT_INPUTS, names, "source", _opset(precision))
    check_fused(model, CROSS_OPERATOR, network.config.num_layers)
    return model


def trace_target_decoder(network: Transformer, precision: Precision = "fp32") -> onnx.ModelProto:
    """The graph that writes, or `ExportError` unless each of its attentions became one node."""
    config = network.config
    dtype = _dtype(precision)
    decoder = _TargetDecoder(copy.deepcopy(network).eval(), precision in DTYPES).to(dtype)
    step, cached, source = StepExample.made(), torch.export.Dim("cache"), torch.export.Dim("source")
    num_layers = config.decoder_layers
    num_tensors = 2 * num_layers  # keys and values

    def empty(num_keys: int) -> tuple[Tensor, ...]:
        sizes = (NUM_ROWS, config.num_heads, num_keys, config.head_size)
        return tuple(torch.zeros(sizes, dtype=dtype) for _ in range(num_tensors))

    lengths = torch.full((NUM_ROWS,), NUM_SOURCE)
    tensors = (*step.tensors, lengths, *empty(NUM_CACHED), *empty(NUM_SOURCE))
    per_key = ({0: step.rows, 2: cached},) * num_tensors + (
        {0: step.rows, 2: source},
    ) * num_tensors
    shapes = (*step.shapes, {0: step.rows}, per_key)
    pasts, presents = zip(*cache_names(num_layers), strict=True)
    inputs = (*INPUTS, SOURCE_LENGTHS, *pasts, *cross_names(num_layers))
    outputs = ("logits", *presents)
    traced = export_program(decoder, tensors, inputs, shapes, _opset(precision))
    model = clean(traced, inputs, outputs)
    check_fused(model, OPERATOR, num_layers)
    check_fused(model, CROSS_OPERATOR, num_layers)
    return model


def _dtype(precision: Precision) -> torch.dtype:
    return DTYPES.get(precision, torch.float32)


def _opset(precision: Precision) -> int:
    return LENGTHS_OPSET if precision in DTYPES else OPSET


def cross_names(num_layers: int) -> tuple[str, ...]:
    """The names of the encoder's outputs that the decoder takes, in order."""
    return tuple(
        f"cross.{layer}.{part}" for layer in range(num_layers) for part in ("key", "value")
    )


def _pack_gates(layers: nn.ModuleList) -> None:
    for layer in layers:
        if isinstance(layer.feed_forward, GatedFeedForward):
            layer.feed_forward = PackedFeedForward(layer.feed_forward)


class _SourceEncoder(nn.Module):
    """The network's encoder over packed tokens, and every decoder layer's keys and values of it."""

    def __init__(self, network: Transformer, by_length: bool) -> None:
        super().__init__()
        fuse_attention(network.encoder, CROSS_OPERATOR)
        self.network = network
        self.by_length = by_length

    def forward(self, input_ids_BS: Tensor, attention_mask_BS: Tensor) -> tuple[Tensor, ...]:
        network = self.network
        packing = Packing(attention_mask_BS, by_length=self.by_length)
        if network.config.has_relative_positions:
            packing.keys = network.source_mask(attention_mask_BS)
        hidden_1ND = packing.pack(network.embed(input_ids_BS))
        for layer in network.encoder:
            hidden_1ND = layer(hidden_1ND, packing)
        hidden_1ND = network.encoder_norm(hidden_1ND)
        projections = [
            (layer.cross_attention, project)
            for layer in network.decoder
            if isinstance(layer, DecoderLayer)
            for project in (layer.cross_attention.key, layer.cross_attention.value)
        ]
        return tuple(
            attention.split_heads(packing.unpack(project(hidden_1ND)))
            for attention, project in projections
        )


class _TargetDecoder(nn.Module):
    """The network's own weights and layers, but for attention, which is given keys and values."""

    def __init__(self, network: Transformer, by_length: bool) -> None:
        super().__init__()
        _pack_gates(network.decoder)
        self.network = network
        self.by_length = by_length
        layers = [layer for layer in network.decoder if isinstance(layer, DecoderLayer)]
        self.attentions = nn.ModuleList(CachedAttention(layer.attention) for layer in layers)
        self.crosses = nn.ModuleList(_CrossAttention(layer.cross_attention) for layer in layers)

    def forward(
        self,
        input_ids_BS: Tensor,
        position_ids_BS: Tensor,
        seqlens_k_B: Tensor,
        total_sequence_length: Tensor,
        logit_positions_N: Tensor,
        source_lengths_B: Tensor,
        *keys_and_values: Tensor,
    ) -> tuple[Tensor, ...]:
        network, num_layers = self.network, len(self.attentions)
        pasts, crosses = keys_and_values[: 2 * num_layers], keys_and_values[2 * num_layers :]
        keys = source_lengths_B
        if not self.by_length:
            keys = padding_mask(source_lengths_B, crosses[0].shape[2])
        lengths: tuple[Tensor | None, ...] = (seqlens_k_B, total_sequence_length)
        if network.config.has_relative_positions:
            added = self._added(position_ids_BS, total_sequence_length, pasts[0].shape[2])
            lengths = (*lengths, *[None] * (ADDED_AT - FIRST_LENGTH - len(lengths)), added)
        hidden_BSD = network.embed_target(input_ids_BS, position_ids_BS)
        presents: list[Tensor] = []
        for index, layer in enumerate(network.decoder):
            assert isinstance(layer, DecoderLayer)
            here = slice(2 * index, 2 * index + 2)
            key, value = pasts[here]
            attention, cross = self.attentions[index], self.crosses[index]
            assert isinstance(attention, CachedAttention)
            hidden_BSD = layer.around(
                partial(attention.extending, (key, value), lengths, presents),
                partial(cross, *crosses[here], keys),
                hidden_BSD,
            )
        wanted_ND = hidden_BSD.flatten(0, 1).index_select(0, logit_positions_N)
        return network.logits(network.decoder_norm(wanted_ND)).float(), *presents

    def _added(self, position_ids_BS: Tensor, num_keys: Tensor, num_cached: int) -> Tensor:
        """[B, H, S, T] of relative positions, T being the longest row's keys.

        The tracer knows T only as some length; it takes the cache's for it.
        """
        zero, one = torch.tensor(0), torch.tensor(1)
        keys_T = torch.onnx.ops.symbolic(
            "::Range",
            [zero, num_keys.to(torch.int64), one],
            {},
            dtype=torch.int64,
            shape=(num_cached,),
        )
        added: Tensor = self.network.target_positions(position_ids_BS, keys_T)
        return added


class _CrossAttention(nn.Module):
    """An attention around ONNX's operator, which is given the keys and values."""

    def __init__(self, attention: MultiHeadAttention) -> None:
        super().__init__()
        self.attention = attention

    def forward(
        self, key_BHTDh: Tensor, value_BHTDh: Tensor, keys: Tensor, hidden_BSD: Tensor
    ) -> Tensor:
        """[B, S, D]; `keys` is as in `Packing`."""
        query_BHSDh = self.attention.split_heads(self.attention.query(hidden_BSD))
        context_BHSDh = self._attend(query_BHSDh, key_BHTDh, value_BHTDh, keys)
        output_BSD: Tensor = self.attention.output(context_BHSDh.transpose(1, 2).flatten(2))
        return output_BSD

    def _attend(
        self, query_BHSDh: Tensor, key_BHTDh: Tensor, value_BHTDh: Tensor, keys: Tensor
    ) -> Tensor:
        scale = self.attention.head_size**-0.5
        if keys.dim() == 1:
            return attention_by_length((query_BHSDh, key_BHTDh, value_BHTDh), keys, scale=scale)
        # The specification lets the mask broadcast over queries; ONNX Runtime 1.31 wants them all.
        (num_rows, num_keys), num_tokens = keys.shape, query_BHSDh.shape[2]
        mask_B1ST = keys[:, None, None, :].expand(num_rows, 1, num_tokens, num_keys)
        context_BHSDh: Tensor = torch.onnx.ops.attention(
            query_BHSDh, key_BHTDh, value_BHTDh, mask_B1ST, scale=scale
        )[0]
        return context_BHSDh
