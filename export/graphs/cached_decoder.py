"""A decoder whose attention reads and extends a cache, as one ONNX graph.

The operator is com.microsoft.GroupQueryAttention: `past` and `present` may be one buffer
`[B, Hkv, T, Dh]` with room for T tokens, of which each row uses as many as `seqlens_k` says. It
needs no mask, and no positions where they are added before it. The graph serves prompts and single
tokens alike: only S differs. Query, key and value are one product: where weights are quantised,
their input is rounded once.

    input_ids [B, S], position_ids [B, S]    int64, right-padded
    seqlens_k [B]                            int32: tokens in the cache after this run, minus one
    total_sequence_length                    int32: the most tokens of a row after this run
    logit_positions [N]                      int64: tokens whose logits are wanted, b * S + s
    past_key_values.{i}.key and .value       [B, Hkv, T, Dh]
    logits [N, V]                            float32
    present.{i}.key and .value               [B, Hkv, T, Dh]

https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
docs/cuda.md says what was verified on CUDA.
"""
# ruff: noqa: N803, N806 - suffixes are array layouts, see above; D hidden size

import copy
from dataclasses import dataclass
from typing import Any, Self

import onnx
import torch
from torch import Tensor, nn

from export.graphs.graph import DTYPES, check_fused, clean, export_program
from models.networks.attention import MultiHeadAttention
from models.networks.gpt import GPT, DecoderLayer
from service.contract.manifest import Precision
from service.generation.decoder import INPUTS as INPUTS_BUT_POSITIONS
from service.generation.decoder import POSITIONS, cache_names

OPERATOR = "GroupQueryAttention"
INPUTS = (*INPUTS_BUT_POSITIONS, POSITIONS)
NUM_ROWS, NUM_CACHED = 2, 16  # of the example that is traced: no two sizes are equal


@dataclass(frozen=True, slots=True)
class StepExample:
    """A step for the tracer: tensors by `INPUTS`, and the dimensions of each that vary."""

    tensors: tuple[Tensor, ...]
    shapes: tuple[dict[int, Any], ...]
    rows: Any

    @classmethod
    def made(cls) -> Self:
        num_tokens = 8
        rows, tokens, positions = map(torch.export.Dim, ("batch", "sequence", "positions"))
        tensors = (
            torch.ones(NUM_ROWS, num_tokens, dtype=torch.int64),
            torch.arange(num_tokens).repeat(NUM_ROWS, 1),
            torch.full((NUM_ROWS,), num_tokens - 1, dtype=torch.int32),
            torch.tensor(num_tokens, dtype=torch.int32),
            torch.arange(NUM_ROWS + 1),
        )
        per_token = {0: rows, 1: tokens}
        return cls(tensors, (per_token, per_token, {0: rows}, {}, {0: positions}), rows)


def trace_decoder(network: GPT, *, precision: Precision = "fp32") -> onnx.ModelProto:
    """The graph of a decoder, or `ExportError` unless each layer's attention became one node.

    `precision` is of weights and caches: the CPU takes fp32 and fp16, CUDA fp16 and bf16.
    """
    dtype = DTYPES.get(precision, torch.float32)
    decoder = CachedDecoder(copy.deepcopy(network).eval(), CachedAttention).to(dtype)
    config = network.config
    pasts, presents = zip(*cache_names(config.num_layers), strict=True)
    size = (NUM_ROWS, config.num_heads, NUM_CACHED, config.head_size)
    step, cached = StepExample.made(), torch.export.Dim("cache")
    tensors = (*step.tensors, *(torch.zeros(size, dtype=dtype) for _ in pasts))
    (of_ids, of_positions, *of_others), of_cache = step.shapes, {0: step.rows, 2: cached}
    shapes = of_ids, of_positions, (*of_others, *[of_cache] * len(pasts))
    inputs, outputs = (*INPUTS, *pasts), ("logits", *presents)
    model = clean(export_program(decoder, tensors, inputs, shapes), inputs, outputs)
    check_fused(model, OPERATOR, config.num_layers)
    return model


class CachedDecoder(nn.Module):
    """The network's own weights and layers, but for attention, which is given a cache."""

    def __init__(self, network: GPT, attention: "type[CachedAttention]") -> None:
        super().__init__()
        self.network = network
        self.num_lengths = attention.num_lengths
        self.attentions = nn.ModuleList()
        for layer in network.layers:
            assert isinstance(layer, DecoderLayer)
            self.attentions.append(attention(layer.attention))

    def forward(
        self, input_ids_BS: Tensor, position_ids_BS: Tensor, *others: Tensor
    ) -> tuple[Tensor, ...]:
        """`others` are the operator's lengths, the positions of logits, and the caches."""
        lengths, (logit_positions_N, *pasts) = (
            others[: self.num_lengths],
            others[self.num_lengths :],
        )
        network = self.network
        hidden_BSD = network.words(input_ids_BS) + network.positions.table(position_ids_BS)
        presents: list[Tensor] = []
        for index, (layer, attention) in enumerate(
            zip(network.layers, self.attentions, strict=True)
        ):
            assert isinstance(layer, DecoderLayer)
            attended_BSD, *present = attention(
                layer.attention_norm(hidden_BSD), (pasts[2 * index], pasts[2 * index + 1]), lengths
            )
            hidden_BSD = hidden_BSD + attended_BSD
            hidden_BSD = hidden_BSD + layer.feed_forward(layer.feed_forward_norm(hidden_BSD))
            presents += present
        wanted_ND = hidden_BSD.flatten(0, -2).index_select(0, logit_positions_N)
        return network.logits(network.norm(wanted_ND)).float(), *presents


class CachedAttention(nn.Module):
    """An attention's own weights, query, key and value as one, around the operator."""

    operator = OPERATOR
    num_lengths = 2  # inputs of the operator behind the caches

    def __init__(self, attention: MultiHeadAttention) -> None:
        super().__init__()
        parts = (attention.query, attention.key, attention.value)
        hidden_size = attention.output.out_features
        self.query_key_value = nn.Linear(hidden_size, len(parts) * hidden_size, device="meta")
        self.query_key_value.weight = nn.Parameter(torch.cat([part.weight for part in parts]))
        self.query_key_value.bias = nn.Parameter(torch.cat([part.bias for part in parts]))
        self.output = attention.output
        self.num_heads = attention.num_heads
        self.scale = attention.head_size**-0.5

    def forward(
        self, hidden_BSD: Tensor, past: tuple[Tensor, Tensor], lengths: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The output [B, S, D], and the cache with these tokens in it."""
        packed = self.query_key_value(hidden_BSD)
        context_BSD, key, value = torch.onnx.ops.symbolic_multi_out(
            f"com.microsoft::{self.operator}",
            [packed, None, None, *past, *self.placed(lengths)],
            {"num_heads": self.num_heads, "kv_num_heads": self.num_heads, "scale": self.scale},
            dtypes=[packed.dtype, past[0].dtype, past[1].dtype],
            shapes=[hidden_BSD.shape, past[0].shape, past[1].shape],
        )
        return self.output(context_BSD), key, value

    def placed(self, lengths: tuple[Tensor, ...]) -> tuple[Tensor | None, ...]:
        """The operator's inputs behind the caches."""
        return lengths
