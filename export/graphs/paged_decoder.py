"""A decoder whose cache is in blocks, as one ONNX graph.

The operator is com.microsoft.PagedAttention, for CUDA only. A run takes any tokens of any sequences
without padding: the new tokens of all rows lie one after the other, and each row says how many
tokens the cache holds of it, and in which blocks. The blocks are updated in place.

    input_ids [N], position_ids [N]          int64: the tokens of all rows
    cumulative_sequence_length [B + 1]       int32: where each row begins among them, and N
    past_seqlens [B]                         int32: tokens of each row in the cache before this run
    block_table [B, M]                       int32: blocks of each row; -1 behind them
    attention_metadata [3]                   int32, on the host: at most as many new tokens of a row
                                             and tokens with the past, and at least as many
    logit_positions [W]                      int64: tokens whose logits are wanted
    past_key_values.{i}.key and .value       [blocks, block size, Hkv, Dh]
    logits [W, V]                            float32
    present.{i}.key and .value               [blocks, block size, Hkv, Dh]

The graph is traced, and its logits are compared with PyTorch's through the operator in NumPy.
Unverified on CUDA: docs/how-to/cuda.md.

https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

import onnx
import torch
from torch import Tensor

from export.graphs.cached_decoder import (
    CachedDecoder,
    DecoderNetwork,
    NormingAttention,
    check_sizes,
)
from export.graphs.graph import DTYPES, OPSET, check_fused, clean
from export.graphs.weightless import Weights, export_weightless, skeleton
from service.contract.manifest import Precision
from service.generation.decoders.shape import cache_names

OPERATOR = "PagedAttention"
INPUTS = (
    "input_ids",
    "position_ids",
    "cumulative_sequence_length",
    "past_seqlens",
    "block_table",
    "attention_metadata",
    "logit_positions",
)
# Inputs of the operator between those that it is given: slots and sinks, scales of the caches.
SLOTS_AND_SINKS = SCALES = 2


class PagedAttention(NormingAttention):
    """An attention's own weights around the operator over blocks."""

    operator = OPERATOR
    num_lengths = 4

    def placed(self, lengths: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
        *others, bounds = lengths
        tables, norms = (list(pair) or [None, None] for pair in (self.tables, self.inside))
        left_out = [None] * SLOTS_AND_SINKS, [None] * SCALES
        return (*others, *tables, *left_out[0], *norms, *left_out[1], bounds)


def trace_paged_decoder(network: DecoderNetwork, *, precision: Precision) -> onnx.ModelProto:
    """The graph of a decoder, or `ExportError` unless each layer's attention became one node.

    `precision` is of weights and caches: CUDA takes fp16 and bf16.
    """
    check_sizes(network)
    dtype = DTYPES.get(precision, torch.float32)
    decoder, weights = CachedDecoder(skeleton(network), PagedAttention), Weights.of(network, dtype)
    config = network.config
    pasts, presents = zip(*cache_names(config.num_layers), strict=True)
    num_rows, num_tokens, num_row_blocks, num_blocks, block_size = 3, 8, 5, 7, 4
    size = (num_blocks, block_size, config.num_kv_heads, config.head_size)
    example = (
        torch.ones(num_tokens, dtype=torch.int64),
        torch.arange(num_tokens),
        torch.tensor([0, 4, 6, num_tokens], dtype=torch.int32),
        torch.zeros(num_rows, dtype=torch.int32),
        torch.zeros(num_rows, num_row_blocks, dtype=torch.int32),
        torch.zeros(3, dtype=torch.int32),
        torch.arange(2),
        *(torch.zeros(size, dtype=dtype) for _ in pasts),
    )
    names = ("tokens", "rows", "row_blocks", "wanted", "blocks", "block_size")
    tokens, rows, row_blocks, wanted, blocks, tokens_of_block = map(torch.export.Dim, names)
    shapes = (
        {0: tokens},
        {0: tokens},
        (
            {0: rows + 1},
            {0: rows},
            {0: rows, 1: row_blocks},
            {},
            {0: wanted},
            *[{0: blocks, 1: tokens_of_block}] * len(pasts),
        ),
    )
    inputs, outputs = (*INPUTS, *pasts), ("logits", *presents)
    traced = export_weightless(decoder, example, inputs, shapes, OPSET, weights)
    model = clean(traced, inputs, outputs)
    check_fused(model, OPERATOR, config.num_layers)
    return model
