"""A decoder whose attention reads and extends a cache, as one ONNX graph.

The operator is com.microsoft.GroupQueryAttention: `past` and `present` may be one buffer
`[B, Hkv, T, Dh]` with room for T tokens, of which each row uses as many as `seqlens_k` says. It
needs no mask, and no positions: they are added before it, or it rotates queries and keys by the
places that follow from `seqlens_k` (`position_ids` is then read by nothing). The graph serves
prompts and single tokens alike: only S differs. Query, key and value are one product: where weights
are quantised, their input is rounded once.

    input_ids [B, S], position_ids [B, S]    int64, right-padded
    seqlens_k [B]                            int32: tokens in the cache after this run, minus one
    total_sequence_length                    int32: the most tokens of a row after this run
    logit_positions [N]                      int64: tokens whose logits are wanted, b * S + s
    past_key_values.{i}.key and .value       [B, Hkv, T, Dh]
    logits [N, V]                            float32
    present.{i}.key and .value               [B, Hkv, T, Dh]

https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
docs/how-to/cuda.md says what was verified on CUDA.
"""
# ruff: noqa: N803, N806 - suffixes are array layouts, see above; D hidden size

import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, TypeAlias

import onnx
import torch
from torch import Tensor, nn

from export.errors import ExportError
from export.graphs.gated_layers import PackedFeedForward, RopeTables, grouped_options, joined
from export.graphs.graph import DTYPES, check_fused, clean, export_program
from models.networks.attention import MultiHeadAttention
from models.networks.gpt import GPT, DecoderLayer
from models.networks.layers import GatedFeedForward
from models.networks.llama import (
    GroupedAttention,
    GroupedAttentionCore,
    HeadNorm,
    Llama,
    LlamaLayer,
)
from models.networks.traced import TracedDecoder
from service.contract.manifest import Precision
from service.generation.decoders.decoder import INPUTS as INPUTS_BUT_POSITIONS
from service.generation.decoders.decoder import POSITIONS
from service.generation.decoders.shape import cache_names

OPERATOR = "GroupQueryAttention"
FIRST_LENGTH, NORMS_AT = 5, 14  # places among the operator's inputs
EPSILON = "qk_norm_epsilon"
ROTATED_MULTIPLE = 16  # the operator rotates heads whose size is a multiple of this
DecoderNetwork: TypeAlias = GPT | Llama
AnyDecoder: TypeAlias = DecoderNetwork | TracedDecoder  # the last has a graph of its own code
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


def trace_decoder(
    network: DecoderNetwork, *, precision: Precision = "fp32", has_norms_inside: bool = False
) -> onnx.ModelProto:
    """The graph of a decoder, or `ExportError` unless each layer's attention became one node.

    `precision` is of weights and caches: the CPU takes fp32 and fp16, CUDA fp16 and bf16. With
    `has_norms_inside`, the operator normalises each head of queries and keys itself, which it does
    on CUDA only.
    """
    check_sizes(network)
    dtype = DTYPES.get(precision, torch.float32)
    attention = NormingAttention if has_norms_inside else CachedAttention
    decoder = CachedDecoder(copy.deepcopy(network).eval(), attention).to(dtype)
    config = network.config
    pasts, presents = zip(*cache_names(config.num_layers), strict=True)
    size = (NUM_ROWS, config.num_kv_heads, NUM_CACHED, config.head_size)
    step, cached = StepExample.made(), torch.export.Dim("cache")
    tensors = (*step.tensors, *(torch.zeros(size, dtype=dtype) for _ in pasts))
    (of_ids, of_positions, *of_others), of_cache = step.shapes, {0: step.rows, 2: cached}
    shapes = of_ids, of_positions, (*of_others, *[of_cache] * len(pasts))
    inputs, outputs = (*INPUTS, *pasts), ("logits", *presents)
    model = clean(export_program(decoder, tensors, inputs, shapes), inputs, outputs)
    check_fused(model, OPERATOR, config.num_layers)
    return model


def check_sizes(network: DecoderNetwork) -> None:
    """Raise `ExportError` for heads that the operator cannot rotate."""
    config = network.config
    if isinstance(network, Llama) and config.head_size % ROTATED_MULTIPLE:
        raise ExportError(
            f"head_size is {config.head_size}, but rotated heads must be multiples of "
            f"{ROTATED_MULTIPLE}: that is what ONNX Runtime's {OPERATOR} takes"
        )


class CachedDecoder(nn.Module):
    """The network's own weights and layers, but for attention, which is given a cache."""

    def __init__(self, network: DecoderNetwork, attention: "type[CachedAttention]") -> None:
        super().__init__()
        self.network = network
        self.num_lengths = attention.num_lengths
        tables = RopeTables(network.config.max_positions)
        self.attentions = nn.ModuleList()
        for layer in network.layers:
            assert isinstance(layer, DecoderLayer | LlamaLayer)
            self.attentions.append(attention(layer.attention, tables))
            if isinstance(layer.feed_forward, GatedFeedForward):
                layer.feed_forward = PackedFeedForward(layer.feed_forward)  # type: ignore[assignment]

    def forward(
        self, input_ids_BS: Tensor, position_ids_BS: Tensor, *others: Tensor
    ) -> tuple[Tensor, ...]:
        """`others` are the operator's lengths, the positions of logits, and the caches."""
        lengths, (logit_positions_N, *pasts) = (
            others[: self.num_lengths],
            others[self.num_lengths :],
        )
        network = self.network
        hidden_BSD = network.embedded(input_ids_BS, position_ids_BS)
        presents: list[Tensor] = []
        for index, (layer, attention) in enumerate(
            zip(network.layers, self.attentions, strict=True)
        ):
            assert isinstance(layer, DecoderLayer | LlamaLayer)
            assert isinstance(attention, CachedAttention)
            past = pasts[2 * index], pasts[2 * index + 1]
            hidden_BSD = layer.around(
                partial(attention.extending, past, lengths, presents), hidden_BSD
            )
        wanted_ND = hidden_BSD.flatten(0, -2).index_select(0, logit_positions_N)
        return network.logits(network.norm(wanted_ND)).float(), *presents


class CachedAttention(nn.Module):
    """An attention's own weights, query, key and value as one, around the operator."""

    operator = OPERATOR
    num_lengths = 2  # inputs of the operator behind the caches

    def __init__(
        self, attention: MultiHeadAttention | GroupedAttention, tables: RopeTables | None = None
    ) -> None:
        super().__init__()
        parts = attention.query, attention.key, attention.value
        self.sizes = [part.out_features for part in parts]
        self.query_key_value = joined(parts)
        self.output = attention.output
        head_size = attention.head_size
        self.options: dict[str, Any] = {
            "num_heads": self.sizes[0] // head_size,
            "kv_num_heads": self.sizes[1] // head_size,
            "scale": head_size**-0.5,
        }
        self.tables, self.norms = nn.ParameterList(), nn.ModuleList()
        if isinstance(attention, GroupedAttention):
            assert isinstance(attention.core, GroupedAttentionCore)
            assert tables is not None
            self.options |= grouped_options(attention.core)
            self.tables = tables.of(attention.core.rope)
            norms = attention.query_norm, attention.key_norm
            self.norms.extend(norm for norm in norms if norm is not None)
        self.inside = self._taken_inside(head_size)

    def _taken_inside(self, _: int) -> nn.ParameterList:
        """Weights of the norms that the operator computes; none of it on the CPU."""
        return nn.ParameterList()

    def forward(
        self, hidden_BSD: Tensor, past: tuple[Tensor, Tensor], lengths: tuple[Tensor | None, ...]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The output [B, S, D], and the cache with these tokens in it."""
        packed = self.query_key_value(hidden_BSD)
        query, key, value = self._normed(packed)
        context_BSD, present_key, present_value = torch.onnx.ops.symbolic_multi_out(
            f"com.microsoft::{self.operator}",
            [query, key, value, *past, *self.placed(lengths)],
            self.options,
            dtypes=[packed.dtype, past[0].dtype, past[1].dtype],
            shapes=[(*hidden_BSD.shape[:-1], self.sizes[0]), past[0].shape, past[1].shape],
        )
        output_BSD: Tensor = self.output(context_BSD)
        return output_BSD, present_key, present_value

    def extending(
        self,
        past: tuple[Tensor, Tensor],
        lengths: tuple[Tensor | None, ...],
        presents: list[Tensor],
        hidden_BSD: Tensor,
    ) -> Tensor:
        """The output [B, S, D]; the cache with these tokens in it goes to the end of `presents`."""
        output_BSD, *present = self.forward(hidden_BSD, past, lengths)
        presents += present
        return output_BSD

    def _normed(self, packed: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """The operator's first inputs: all as one where nothing is normalised in between."""
        if not self.norms:
            return packed, None, None
        query, key, value = torch.split(packed, self.sizes, dim=-1)
        of_queries, of_keys = self.norms
        return of_queries(query), of_keys(key), value

    def placed(self, lengths: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
        """The operator's inputs behind the caches."""
        return (*lengths, *self.tables)


class NormingAttention(CachedAttention):
    """Cached attention whose operator normalises each head before it rotates: on CUDA."""

    def _taken_inside(self, head_size: int) -> nn.ParameterList:
        norms = [norm for norm in self.norms if isinstance(norm, HeadNorm)]
        if not norms or any(norm.size != head_size for norm in norms):
            return super()._taken_inside(head_size)  # of all heads at once: nodes of their own
        self.norms = nn.ModuleList()
        self.options[EPSILON] = norms[0].eps
        return nn.ParameterList(norm.weight for norm in norms)

    def placed(self, lengths: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
        placed = super().placed(lengths)
        if not self.inside:
            return placed
        return (*placed, *[None] * (NORMS_AT - FIRST_LENGTH - len(placed)), *self.inside)
