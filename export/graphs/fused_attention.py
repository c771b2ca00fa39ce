"""Attention as one node of the exported graph, and padding nowhere but there.

Pattern fusion after the fact finds nothing on today's graphs, so the node is emitted:
before tracing, every `MultiHeadAttention` is replaced by a module that shares its
projections and calls the ONNX operator on [B, S, D] tensors, which the operator splits
into heads itself. How many nodes there must be is then known, and is checked.

Two operators compute the same thing. ONNX's own `Attention` measured faster on the CPU than
`com.microsoft.MultiHeadAttention`: docs/decisions/0028-norms-are-not-fused.md. How padding is told
decides which kernel CUDA takes, docs/decisions/0032-graphs-for-cuda.md: flash attention takes no
mask, but `Attention` of opset 24 may be given the number of each row's keys instead. docs/cuda.md
says what was verified on CUDA.

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

from export.settings import Operator
from models.networks.attention import MultiHeadAttention
from models.networks.encoder import Encoder
from models.networks.gpt import GPT, DecoderLayer
from models.networks.heads import SequenceClassifier, TextEmbedder


def fuse_attention(
    model: nn.Module, operator: Operator, layout: "Callable[[Tensor], Packing] | None" = None
) -> int:
    """Replace every `MultiHeadAttention` of `model` in place, and what is around them.

    `layout` is made of the attention mask, by default `Packing`. Returns how many attentions there
    were.
    """
    layout = layout or Packing
    count = 0
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, MultiHeadAttention):
                setattr(parent, name, FusedAttention(child, operator))
                count += 1
            elif isinstance(child, Encoder):
                setattr(parent, name, _PackedEncoder(child, _reads_first_tokens(model), layout))
            elif isinstance(child, GPT):
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
        self.layers = encoder.layers
        self.is_first_token_read = is_first_token_read

    def forward(
        self,
        input_ids_BS: Tensor,
        attention_mask_BS: Tensor,
        token_type_ids_BS: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        packing = self.layout(attention_mask_BS)
        states = [packing.pack(self.embeddings(input_ids_BS, token_type_ids_BS))]
        for layer in self.layers[: -1 if self.is_first_token_read else None]:
            states.append(layer(states[-1], packing))
        padded = [packing.unpack(state_1ND) for state_1ND in states]
        if self.is_first_token_read:
            first = OneToken(packing, states[-1], place=0)
            padded.append(packing.rows_apart(self.layers[-1](first.hidden_1BD, first)))
        return tuple(padded)


class _PackedDecoder(nn.Module):
    """A decoder of which only each row's last token is read, over tokens in a layout."""

    def __init__(self, gpt: GPT, layout: "Callable[[Tensor], Packing]") -> None:
        super().__init__()
        self.layout = layout
        self.words, self.positions = gpt.words, gpt.positions
        self.layers, self.norm = gpt.layers, gpt.norm

    def last_states(self, input_ids_BS: Tensor, attention_mask_BS: Tensor) -> Tensor:
        """[B, D], as `GPT.last_states`."""
        packing = self.layout(attention_mask_BS)
        hidden_BSD = self.words(input_ids_BS) + self.positions(input_ids_BS.shape[1])
        hidden_1ND = packing.pack(hidden_BSD)
        for layer in self.layers[:-1]:
            hidden_1ND = layer(hidden_1ND, packing)
        layer = self.layers[-1]
        assert isinstance(layer, DecoderLayer)
        last = OneToken(packing, hidden_1ND, place=-1, keys_1ND=layer.attention_norm(hidden_1ND))
        normed_1BD: Tensor = self.norm(layer(last.hidden_1BD, last))
        return packing.rows_apart(normed_1BD).squeeze(1)


class Packing:
    """The places of a right-padded batch's tokens, packed and padded.

    `keys` is what attention is told of padding: bool [B, S], true for tokens, or `by_length` the
    number of tokens of each row, int64 [B]. Relative positions are scores to add, [B, H, S, S].
    """

    def __init__(self, attention_mask_BS: Tensor, *, by_length: bool = False) -> None:
        is_token_BS = attention_mask_BS != 0
        self.keys = attention_mask_BS.sum(dim=1) if by_length else is_token_BS
        is_token = is_token_BS.flatten()
        self.position_N = is_token.nonzero().squeeze(1)  # of each token in the padded batch
        # Padding takes the token before it, whose values are at hand and finite.
        packed = is_token.to(torch.int64).cumsum(0) - 1
        # Not `clamp`, which becomes a Clip without a maximum: OpenVINO makes that 0 for int64.
        self.token_BS = torch.maximum(packed, torch.tensor(0)).view_as(attention_mask_BS)

    def pack(self, padded_BSD: Tensor, /) -> Tensor:
        """[1, N, D]."""
        return F.embedding(self.position_N, padded_BSD.flatten(0, 1)).unsqueeze(0)

    def unpack(self, packed_1ND: Tensor, /) -> Tensor:
        """[B, S, D]."""
        return F.embedding(self.token_BS, packed_1ND.squeeze(0))

    def keys_from(self, hidden_1ND: Tensor) -> Tensor:
        """Every token asks every other of its row, or those before it."""
        return hidden_1ND

    def mask(self, is_causal: bool) -> Tensor | None:
        """`keys`; padding comes after all tokens that attend backwards."""
        return None if is_causal else self.keys

    unpack_queries = unpack

    def one_each(self, hidden_1ND: Tensor, /, place: int) -> Tensor:
        """[1, B, D], the first or last token of each row."""
        read_B = self.token_BS[:, place]  # padding, at the end, has the row's last token
        return F.embedding(read_B, hidden_1ND.squeeze(0)).unsqueeze(0)

    def rows_apart(self, hidden_1BD: Tensor, /) -> Tensor:
        """[B, 1, D]; not by a Transpose, on which ONNX Runtime 1.31 crashes in float16."""
        return hidden_1BD.squeeze(0).unsqueeze(1)

    def rows_together(self, hidden_B1D: Tensor, /) -> Tensor:
        """[1, B, D]."""
        return hidden_B1D.squeeze(1).unsqueeze(0)


class Padded(Packing):
    """A batch that stays as it is: [B, S, D] wherever `Packing` has [1, N, D]."""

    def __init__(self, attention_mask_BS: Tensor, *, by_length: bool = False) -> None:
        self.lengths_B = attention_mask_BS.sum(dim=1)
        self.keys = self.lengths_B if by_length else attention_mask_BS != 0

    def pack(self, padded_BSD: Tensor, /) -> Tensor:
        """[B, S, D]."""
        return padded_BSD

    unpack = unpack_queries = rows_apart = rows_together = pack

    def one_each(self, hidden_BSD: Tensor, /, place: int) -> Tensor:
        """[B, 1, D], the first or last token of each row."""
        if place == 0:
            return hidden_BSD[:, :1]
        num_rows, num_tokens, _ = hidden_BSD.shape
        ends_B = torch.arange(num_rows) * num_tokens + self.lengths_B
        # An empty row reads its first place: index -1 would be the row before.
        read_B = torch.maximum(ends_B - 1, torch.arange(num_rows) * num_tokens)
        return F.embedding(read_B, hidden_BSD.flatten(0, 1)).unsqueeze(1)


class OneToken:
    """The first or last token of each row, which asks all of them: a packing of one a row.

    `keys_1ND` is what keys and values are made of, where that is not `hidden_1ND` itself.
    """

    def __init__(
        self, packing: Packing, hidden_1ND: Tensor, place: int, keys_1ND: Tensor | None = None
    ) -> None:
        self.packing = packing
        self.keys_1ND = hidden_1ND if keys_1ND is None else keys_1ND
        self.hidden_1BD = packing.one_each(hidden_1ND, place)

    def keys_from(self, _: Tensor) -> Tensor:
        """[1, N, D]."""
        return self.keys_1ND

    def mask(self, _: bool) -> Tensor:
        """The last token looks back at all of its row."""
        return self.packing.keys

    def unpack(self, packed_1ND: Tensor, /) -> Tensor:
        """[B, S, D]."""
        return self.packing.unpack(packed_1ND)

    def unpack_queries(self, query_1BD: Tensor) -> Tensor:
        """[B, 1, D]."""
        return self.packing.rows_apart(query_1BD)

    def pack(self, context_B1D: Tensor) -> Tensor:
        """[1, B, D]."""
        return self.packing.rows_together(context_B1D)


class FusedAttention(nn.Module):
    """Self-attention over packed tokens, as one ONNX operator."""

    def __init__(self, attention: MultiHeadAttention, operator: Operator) -> None:
        super().__init__()
        self.query, self.key, self.value = attention.query, attention.key, attention.value
        self.output = attention.output
        self.num_heads = attention.num_heads
        self.scale = attention.head_size**-0.5
        self.emit = self._onnx_attention if operator == "Attention" else self._microsoft_attention

    def forward(
        self, hidden_1ND: Tensor, packing: Packing | OneToken, is_causal: bool = False
    ) -> Tensor:
        query = packing.unpack_queries(self.query(hidden_1ND))
        source_1ND = packing.keys_from(hidden_1ND)
        key, value = (packing.unpack(project(source_1ND)) for project in (self.key, self.value))
        context_BSD = self.emit(query, key, value, packing.mask(is_causal))
        output_1ND: Tensor = self.output(packing.pack(context_BSD))
        return output_1ND

    def _onnx_attention(
        self, query: Tensor, key: Tensor, value: Tensor, mask_BS: Tensor | None
    ) -> Tensor:
        """https://onnx.ai/onnx/operators/onnx__Attention.html; causal without a mask.

        The specification lets the mask broadcast over queries; ONNX Runtime 1.31 wants them all.
        """
        if mask_BS is not None and mask_BS.dim() == 1:
            return attention_by_length(
                (query, key, value), mask_BS, scale=self.scale, num_heads=self.num_heads
            )
        mask_B1SS = mask_BS  # scores to add are there for all queries
        if mask_BS is not None and mask_BS.dim() == 2:
            num_rows, num_tokens = mask_BS.shape
            mask_B1SS = mask_BS[:, None, None, :].expand(num_rows, 1, query.shape[1], num_tokens)
        return torch.onnx.ops.attention(
            query,
            key,
            value,
            mask_B1SS,
            q_num_heads=self.num_heads,
            kv_num_heads=self.num_heads,
            scale=self.scale,
            is_causal=mask_BS is None,
        )[0]

    def _microsoft_attention(
        self, query: Tensor, key: Tensor, value: Tensor, mask_BS: Tensor | None
    ) -> Tensor:
        """Contrib operator: inputs query, key, value, no bias, int32 key padding mask."""
        mask = None if mask_BS is None else mask_BS.to(torch.int32)
        options = {"num_heads": self.num_heads, "scale": self.scale}
        if mask is None:
            options["unidirectional"] = 1
        return torch.onnx.ops.symbolic(
            "com.microsoft::MultiHeadAttention",
            [query, key, value, None, mask],
            options,
            dtype=query.dtype,
            shape=query.shape,
        )


def attention_by_length(
    inputs: tuple[Tensor, Tensor, Tensor], lengths_B: Tensor, *, scale: float, num_heads: int = 0
) -> Tensor:
    """ONNX's Attention, version 24, of query, key and value, over the first keys of each row.

    They are [B, S, D] with `num_heads`, or [B, H, S, Dh] without.
    """
    heads = {"q_num_heads": num_heads, "kv_num_heads": num_heads} if num_heads else {}
    return torch.onnx.ops.symbolic(
        "::Attention",
        [*inputs, None, None, None, lengths_B],
        {"scale": scale, **heads},
        dtype=inputs[0].dtype,
        shape=inputs[0].shape,
    )
