"""Layouts of the tokens of a batch while a graph computes: packed, padded, or one of each row.

Between attentions the real tokens of all rows lie one after the other, [1, N, D]; attention alone
sees rows of one length, [B, S, D]. `Padded` leaves the batch as it is, and `OneToken` has a packing
and the one token of each row that a last layer computes. What attention is told of padding,
windows and distances is here too, as it depends on where tokens are.
"""

# ruff: noqa: N803, N806 - suffixes are array layouts: B rows, S tokens, D hidden size, N real tokens

from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F

from models.networks.attention import causal_mask, window_mask


class Packing:
    """The places of a right-padded batch's tokens, packed and padded.

    `keys` is what attention is told of padding: bool [B, S], true for tokens, or `by_length` the
    number of tokens of each row, int64 [B], or scores to add, [B, H, S, S]. `bias_1HSS` is added to
    all scores, where there is one; `distances` are rows of a table, whose products are.
    """

    def __init__(self, attention_mask_BS: Tensor, *, by_length: bool = False) -> None:
        self.is_token_BS = attention_mask_BS != 0
        self.bias_1HSS: Tensor | None = None
        self.distances: Tensor | None = None
        self.keys = attention_mask_BS.sum(dim=1) if by_length else self.is_token_BS
        is_token = self.is_token_BS.flatten()
        self._scores: dict[int, Tensor] = {}  # by window
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

    def scores(self, window: int) -> Tensor | None:
        """Scores beyond what `keys` says: [B, 1 or H, S, S], or None where it says all.

        Bool is which keys a query sees, float what is added. Padding sees itself, so that what
        nothing reads is a number.
        """
        if not window and self.bias_1HSS is None:
            return None
        if window not in self._scores:
            visible_B1SS = self.is_token_BS[:, None, None, :]
            if window:
                num_tokens = self.is_token_BS.shape[1]
                near_SS = window_mask(num_tokens, window)
                visible_B1SS = visible_B1SS & near_SS | window_mask(num_tokens, 0)
            bias = self.bias_1HSS
            self._scores[window] = visible_B1SS if bias is None else _masked(bias, visible_B1SS)
        return self._scores[window]

    def masked(self, scores_BHSS: Tensor) -> Tensor:
        """Scores of one layer alone, of which padding gets none."""
        return _masked(scores_BHSS, self.is_token_BS[:, None, None, :])

    def seen(self, window: int, is_causal: bool) -> Tensor | None:
        """The keys that a decoder's queries see; `window` as in `LlamaConfig`.

        Bool [S, S] or [B, 1, S, S], the number of each row's keys, or None for all that came
        before. Padding sees itself, so that what nothing reads is a number.
        """
        num_tokens = self.is_token_BS.shape[1]
        if is_causal:
            return window_mask(num_tokens, window - 1) & causal_mask(num_tokens) if window else None
        if not window and self.keys.dim() == 1:
            return self.keys
        visible_B1SS = self.is_token_BS[:, None, None, :].expand(-1, 1, num_tokens, -1)
        if not window:
            return visible_B1SS
        return visible_B1SS & window_mask(num_tokens, window - 1) | window_mask(num_tokens, 0)

    @cached_property
    def token_places(self) -> Tensor:
        """[1, N] of each token in its row."""
        place_BS = torch.arange(self.is_token_BS.shape[1]).expand_as(self.is_token_BS)
        return place_BS.flatten().index_select(0, self.position_N).unsqueeze(0)

    def places(self, _: Tensor) -> Tensor:
        """Places of queries, which are all tokens."""
        return self.token_places

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


def _masked(scores: Tensor, is_visible: Tensor) -> Tensor:
    return scores.masked_fill(~is_visible, torch.finfo(scores.dtype).min)


class Padded(Packing):
    """A batch that stays as it is: [B, S, D] wherever `Packing` has [1, N, D]."""

    def __init__(self, attention_mask_BS: Tensor, *, by_length: bool = False) -> None:
        self.lengths_B = attention_mask_BS.sum(dim=1)
        self.is_token_BS = attention_mask_BS != 0
        self.bias_1HSS: Tensor | None = None
        self.distances: Tensor | None = None
        self.keys = self.lengths_B if by_length else self.is_token_BS
        self._scores: dict[int, Tensor] = {}

    def pack(self, padded_BSD: Tensor, /) -> Tensor:
        """[B, S, D]."""
        return padded_BSD

    unpack = unpack_queries = rows_apart = rows_together = pack

    @cached_property
    def token_places(self) -> Tensor:
        """[B, S] of each token in its row."""
        return torch.arange(self.is_token_BS.shape[1]).expand_as(self.is_token_BS)

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
        self.packing, self.place = packing, place
        self.keys_1ND = hidden_1ND if keys_1ND is None else keys_1ND
        self.hidden_1BD = packing.one_each(hidden_1ND, place)

    def keys_from(self, _: Tensor) -> Tensor:
        """[1, N, D]."""
        return self.keys_1ND

    def mask(self, _: bool) -> Tensor:
        """The last token looks back at all of its row."""
        return self.packing.keys

    def scores(self, window: int) -> Tensor | None:
        """[B, 1 or H, 1, S] of the first token."""
        of_all = self.packing.scores(window)
        assert of_all is None or self.place == 0, "decoders have their own graph"
        return None if of_all is None else of_all[:, :, :1]

    @property
    def distances(self) -> Tensor | None:
        """Distances of all tokens."""
        return self.packing.distances

    def masked(self, scores_BH1S: Tensor) -> Tensor:
        """Scores of the first token in one layer."""
        return self.packing.masked(scores_BH1S)

    def seen(self, window: int, is_causal: bool) -> Tensor:
        """Bool [B, 1, 1, S] of the last token, which looks back, or the number of its keys."""
        assert is_causal, "a last token that is read alone looks back"
        assert self.place == -1, "an encoder's first token has `scores`"
        keys = self.packing.keys
        if not window and keys.dim() == 1:
            return keys
        is_token_BS = self.packing.is_token_BS
        if window:
            place_S = torch.arange(is_token_BS.shape[1])
            first_B1 = is_token_BS.sum(dim=1, keepdim=True) - window
            is_token_BS = is_token_BS & (place_S >= first_B1)
        return is_token_BS[:, None, None, :]

    def places(self, query_1BD: Tensor) -> Tensor:
        """[1, B], all first or each row's last."""
        if self.place == 0:
            return torch.zeros_like(query_1BD[..., 0], dtype=torch.int64)
        places_1N1 = self.packing.token_places.unsqueeze(-1)
        return self.packing.one_each(places_1N1, self.place).squeeze(-1)

    @property
    def token_places(self) -> Tensor:
        """[1, N]."""
        return self.packing.token_places

    def unpack(self, packed_1ND: Tensor, /) -> Tensor:
        """[B, S, D]."""
        return self.packing.unpack(packed_1ND)

    def rows_apart(self, query_1BD: Tensor) -> Tensor:
        """[B, 1, D]."""
        return self.packing.rows_apart(query_1BD)

    def rows_together(self, context_B1D: Tensor) -> Tensor:
        """[1, B, D]."""
        return self.packing.rows_together(context_B1D)

    unpack_queries, pack = rows_apart, rows_together
