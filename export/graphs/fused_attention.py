"""Attention as one node of the exported graph, and padding nowhere but there.

Pattern fusion after the fact finds nothing on today's graphs, so the node is emitted:
before tracing, every `MultiHeadAttention` is replaced by a module that shares its
projections and calls the ONNX operator on [B, S, D] tensors, which the operator splits
into heads itself. How many nodes there must be is then known, and is checked.

Two operators compute the same thing. ONNX's own `Attention` measured faster on the CPU than
`com.microsoft.MultiHeadAttention`: docs/explanation/decisions/0028-norms-are-not-fused.md. How
padding is told decides which kernel CUDA takes, docs/explanation/decisions/0032-graphs-for-cuda.md:
flash attention takes no mask, but `Attention` of opset 24 may be given the number of each row's
keys instead. docs/how-to/cuda.md says what was verified on CUDA.

Attention alone wants rows of one length. All else that a layer does, it does to each token by
itself, so between attentions the real tokens of all rows lie one after the other, [1, N, D], and
nothing is computed for padding: decision 0018. And where a head reads one token of a row, an
encoder's first or a decoder's last, the last layer computes keys and values of all tokens, and
everything else of those that are read.

A GPU may compute padding faster than it moves tokens: `Padded` leaves the batch as it is, and the
server measures which of the two is faster.
"""

# ruff: noqa: N803, N806 - suffixes are array layouts: B rows, S tokens, D hidden size, N real tokens

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from export.graphs.attention_nodes import attention_by_length, rotated_where_packed
from export.graphs.gated_layers import PackedFeedForward, RopeTables
from export.graphs.grouped_attention import FusedGroupedAttention
from export.graphs.packing import OneToken, Packing
from export.settings import Operator
from models.networks.attention import MultiHeadAttention
from models.networks.disentangled import (
    DisentangledAttention,
    DistanceVectors,
    first_scores_of_distances,
    scores_of_distances,
)
from models.networks.encoder import Encoder, in_order, relative_of
from models.networks.gpt import GPT, DecoderLayer
from models.networks.heads import SequenceClassifier, TextEmbedder
from models.networks.layers import GatedFeedForward, last_of
from models.networks.llama import GroupedAttention, Llama, LlamaLayer


def fuse_attention(
    model: nn.Module, operator: Operator, layout: "Callable[[Tensor], Packing] | None" = None
) -> int:
    """Replace every `MultiHeadAttention` of `model` in place, and what is around them.

    `layout` is made of the attention mask, by default `Packing`. Returns how many attentions there
    were.
    """
    layout = layout or Packing
    count = 0
    tables, relative = RopeTables(0), None
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, DisentangledAttention):
                assert isinstance(relative, DistanceVectors), "the encoder has them"
                setattr(parent, name, FusedDisentangledAttention(child, operator, relative))
                count += 1
            elif isinstance(child, MultiHeadAttention):
                setattr(parent, name, FusedAttention(child, operator, tables))
                count += 1
            elif isinstance(child, GatedFeedForward):
                setattr(parent, name, PackedFeedForward(child))
            elif isinstance(child, Encoder):
                tables, relative = RopeTables(child.config.max_positions), child.relative
                count += child.config.num_layers - child.config.num_distinct  # used repeatedly
                setattr(parent, name, _PackedEncoder(child, _reads_first_tokens(model), layout))
            elif isinstance(child, GroupedAttention):
                setattr(parent, name, FusedGroupedAttention(child, operator, tables))
                count += 1
            elif isinstance(child, GPT | Llama):
                tables = RopeTables(child.config.max_positions)
                setattr(parent, name, _PackedDecoder(child, layout))
    return count


def _reads_first_tokens(model: nn.Module) -> bool:
    """Whether the head reads only the first token of the last layer."""
    if isinstance(model, SequenceClassifier):
        return model.head.pooling == "cls"
    return isinstance(model, TextEmbedder) and (model.pooling, model.layers) == ("cls", "last")


class _PackedEncoder(nn.Module):
    """An encoder whose attention is fused, over tokens in a layout: same inputs, same outputs.

    But for the last layer's output [B, 1, D] where only its first tokens are read.
    """

    def __init__(
        self,
        encoder: Encoder,
        is_first_token_read: bool,
        layout: "Callable[[Tensor], Packing]",
    ) -> None:
        super().__init__()
        self.layout = layout
        self.config, self.embeddings = encoder.config, encoder.embeddings
        self.layers, self.relative, self.norm = encoder.layers, encoder.relative, encoder.norm
        self.is_first_token_read = is_first_token_read

    def forward(
        self,
        input_ids_BS: Tensor,
        attention_mask_BS: Tensor,
        token_type_ids_BS: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        packing = self.layout(attention_mask_BS)
        if isinstance(self.relative, DistanceVectors):
            packing.distances = self.relative.rows(input_ids_BS.shape[1])
        else:
            packing.bias_1HSS = relative_of(self.relative, input_ids_BS)
        layers = in_order(self.layers, self.config)
        states = [packing.pack(self.embeddings(input_ids_BS, token_type_ids_BS))]
        for layer in layers[: -1 if self.is_first_token_read else None]:
            states.append(layer(states[-1], packing))
        if not self.is_first_token_read:
            states[-1] = self._normed(states[-1])
            return tuple(packing.unpack(state_1ND) for state_1ND in states)
        padded = [packing.unpack(state_1ND) for state_1ND in states]
        last = layers[-1]
        keys_1ND = last.attention_input(states[-1])
        first = OneToken(packing, states[-1], place=0, keys_1ND=keys_1ND)
        last_1BD = self._normed(last(first.hidden_1BD, first))
        return (*padded, packing.rows_apart(last_1BD))

    def _normed(self, last_1ND: Tensor) -> Tensor:
        return last_1ND if self.norm is None else self.norm(last_1ND)


class _PackedDecoder(nn.Module):
    """A decoder whose attention is fused, over tokens in a layout: same inputs, same outputs."""

    def __init__(self, decoder: GPT | Llama, layout: "Callable[[Tensor], Packing]") -> None:
        super().__init__()
        self.layout, self.embedded = layout, decoder.embedded
        self.is_causal = getattr(decoder.config, "is_causal", True)
        self.words, self.layers, self.norm = decoder.words, decoder.layers, decoder.norm
        self.positions = decoder.positions if isinstance(decoder, GPT) else None

    def _packed(self, input_ids_BS: Tensor, attention_mask_BS: Tensor) -> tuple[Packing, Tensor]:
        """The layout, and what the first layer takes [1, N, D]."""
        packing = self.layout(attention_mask_BS)
        hidden_1ND = packing.pack(self.embedded(input_ids_BS))
        # For tracing only: the graph takes one token too. A norm asks whether there are any.
        torch._check(hidden_1ND.shape[1] > 1)  # type: ignore[no-untyped-call]  # noqa: SLF001 - documented
        return packing, hidden_1ND

    def hidden_states(self, input_ids_BS: Tensor, attention_mask_BS: Tensor) -> Tensor:
        """[B, S, D], as the decoder's own."""
        packing, hidden_1ND = self._packed(input_ids_BS, attention_mask_BS)
        for layer in self.layers:
            hidden_1ND = layer(hidden_1ND, packing)
        return packing.unpack(self.norm(hidden_1ND))

    def last_states(self, input_ids_BS: Tensor, attention_mask_BS: Tensor) -> Tensor:
        """[B, D], as the decoder's own: the last layer computes each row's last token only."""
        if not self.is_causal:
            return last_of(self.hidden_states(input_ids_BS, attention_mask_BS), attention_mask_BS)
        packing, hidden_1ND = self._packed(input_ids_BS, attention_mask_BS)
        for layer in self.layers[:-1]:
            hidden_1ND = layer(hidden_1ND, packing)
        layer = self.layers[-1]
        assert isinstance(layer, DecoderLayer | LlamaLayer)
        last = OneToken(packing, hidden_1ND, place=-1, keys_1ND=layer.attention_input(hidden_1ND))
        normed_1BD: Tensor = self.norm(layer(last.hidden_1BD, last))
        return packing.rows_apart(normed_1BD).squeeze(1)


class FusedAttention(nn.Module):
    """Self-attention over packed tokens, as one ONNX operator; rotated where they are packed."""

    def __init__(
        self, attention: MultiHeadAttention, operator: Operator, tables: RopeTables
    ) -> None:
        super().__init__()
        self.window = attention.window
        self.tables = tables.of(attention.rope)
        self.query, self.key, self.value = attention.query, attention.key, attention.value
        self.output = attention.output
        self.num_heads = attention.num_heads
        self.head_size, self.scale = attention.head_size, attention.head_size**-0.5
        self.emit = self._onnx_attention if operator == "Attention" else self._microsoft_attention

    def forward(
        self,
        hidden_1ND: Tensor,
        packing: Packing | OneToken,
        is_causal: bool = False,
    ) -> Tensor:
        source_1ND = packing.keys_from(hidden_1ND)
        query_1ND, key_1ND = self.query(hidden_1ND), self.key(source_1ND)
        if len(self.tables):
            tables, num_heads, places_1N = self.tables, self.num_heads, packing.places(query_1ND)
            query_1ND = rotated_where_packed(query_1ND, places_1N, packing, tables, num_heads)
            key_1ND = rotated_where_packed(
                key_1ND, packing.token_places, packing, tables, num_heads
            )
        query, key = packing.unpack_queries(query_1ND), packing.unpack(key_1ND)
        value = packing.unpack(self.value(source_1ND))
        scores = self.added_scores(query, key, packing)
        mask = packing.mask(is_causal) if scores is None else None
        context_BSD = self.emit((query, key, value), mask, scores, is_causal)
        output_1ND: Tensor = self.output(packing.pack(context_BSD))
        return output_1ND

    def added_scores(
        self, _query: Tensor, _key: Tensor, packing: Packing | OneToken
    ) -> Tensor | None:
        """Terms added to the scores, or which keys are seen; None where padding is all."""
        return packing.scores(self.window)

    def _onnx_attention(
        self,
        inputs: tuple[Tensor, Tensor, Tensor],
        mask_BS: Tensor | None,
        scores: Tensor | None,
        is_causal: bool,
    ) -> Tensor:
        """https://onnx.ai/onnx/operators/onnx__Attention.html; causal without a mask.

        The specification lets the mask broadcast over queries; ONNX Runtime 1.31 wants them all.
        """
        heads = (self.num_heads, self.num_heads)
        if mask_BS is not None and mask_BS.dim() == 1:
            return attention_by_length(inputs, mask_BS, scale=self.scale, heads=heads)
        mask_B1SS = mask_BS if scores is None else scores
        if mask_BS is not None and mask_BS.dim() == 2:
            num_rows, num_tokens = mask_BS.shape
            num_queries = inputs[0].shape[1]
            mask_B1SS = mask_BS[:, None, None, :].expand(num_rows, 1, num_queries, num_tokens)
        return torch.onnx.ops.attention(
            *inputs,
            mask_B1SS,
            q_num_heads=self.num_heads,
            kv_num_heads=self.num_heads,
            scale=self.scale,
            is_causal=is_causal and mask_B1SS is None,
        )[0]

    def _microsoft_attention(
        self,
        inputs: tuple[Tensor, Tensor, Tensor],
        mask_BS: Tensor | None,
        scores: Tensor | None,
        is_causal: bool,
    ) -> Tensor:
        """Contrib operator: query, key, value, no bias, int32 key padding mask, added to scores."""
        query = inputs[0]
        mask = None if mask_BS is None else mask_BS.to(torch.int32)
        if scores is not None and scores.dtype == torch.bool:
            lowest = torch.finfo(query.dtype).min
            scores = torch.zeros_like(scores, dtype=query.dtype).masked_fill(~scores, lowest)
        options = {"num_heads": self.num_heads, "scale": self.scale}
        if is_causal and mask is None:
            options["unidirectional"] = 1
        return torch.onnx.ops.symbolic(
            "com.microsoft::MultiHeadAttention",
            [*inputs, None, mask, *([] if scores is None else [scores])],
            options,
            dtype=query.dtype,
            shape=query.shape,
        )


class FusedDisentangledAttention(FusedAttention):
    """Fused attention with products of distances, whose vectors are projected before the export."""

    def __init__(
        self, attention: DisentangledAttention, operator: Operator, relative: DistanceVectors
    ) -> None:
        super().__init__(attention, operator, RopeTables(0))
        with torch.no_grad():
            vectors_RD = relative.vectors()
            keys, queries = (
                nn.Parameter(part(vectors_RD) * self.scale, requires_grad=False)
                for part in (attention.key, attention.query)
            )
        self.distance_keys, self.distance_queries = keys, queries

    def added_scores(self, query: Tensor, key: Tensor, packing: Packing | OneToken) -> Tensor:
        rows = packing.distances
        assert rows is not None, "the encoder has set them"
        of = first_scores_of_distances if isinstance(packing, OneToken) else scores_of_distances
        return packing.masked(
            of(
                self._heads(query),
                self._heads(key),
                self._heads(F.embedding(rows[0], self.distance_keys)),
                self._heads(F.embedding(rows[1], self.distance_queries)),
            )
        )

    def _heads(self, projected: Tensor) -> Tensor:
        """[..., H, S, Dh] of [..., S, D]."""
        heads = torch.unflatten(projected, -1, (self.num_heads, self.head_size))
        return heads.transpose(-2, -3)
