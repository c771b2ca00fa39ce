"""A recurrent encoder-decoder, with and without attention.

Sutskever et al. 2014: one LSTM reads the source, another writes the target from where the first
ended; all that the source says must fit into that one state. Bahdanau et al. 2015 and Luong et al.
2015: each step of the decoder also asks every state of the encoder. There are two forms of that,
and either works with any score:

    luong     the decoder's new state asks, and the context is mixed into its output
    bahdanau  the state before asks, and the context is given to the cell beside the last token; the
              encoder reads from both ends, and the decoder starts from what it ended with at the
              first token (appendix A.2; its maxout is a layer of tanh here)

Rows are padded on the right. Knows nothing about tokenizers, tasks or files.
"""
# ruff: noqa: N803, N806 - suffixes are array layouts: B rows, S source tokens, T target tokens,
# D hidden size, V vocabulary

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from models.errors import SettingError, check_choice, check_range
from models.networks.layers import Config

State = tuple[Tensor, Tensor]  # hidden and cell, each [1, B, D]; [2, B, D / 2] of both directions


class DotScore(nn.Module):
    """`h_t . h_s`, Luong et al. 2015: no weights, the states themselves must become alike."""

    def forward(self, query_BTD: Tensor, key_BSD: Tensor) -> Tensor:
        """[B, T, S]."""
        return query_BTD @ key_BSD.transpose(1, 2)


class MultiplicativeScore(nn.Module):
    """`h_t^T W_a h_s`, which Luong et al. 2015 call general."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.key = nn.Linear(hidden_size, hidden_size, bias=False)  # W_a

    def forward(self, query_BTD: Tensor, key_BSD: Tensor) -> Tensor:
        """[B, T, S]."""
        scores_BTS: Tensor = query_BTD @ self.key(key_BSD).transpose(1, 2)
        return scores_BTS


class AdditiveScore(nn.Module):
    """`v_a^T tanh(W_a [h_t; h_s])`, Bahdanau et al. 2015; W_a is kept as its two halves."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.query = nn.Linear(hidden_size, hidden_size, bias=False)
        self.key = nn.Linear(hidden_size, hidden_size, bias=False)
        self.value = nn.Linear(hidden_size, 1, bias=False)  # v_a

    def forward(self, query_BTD: Tensor, key_BSD: Tensor) -> Tensor:
        """[B, T, S]."""
        sums_BTSD = self.query(query_BTD)[:, :, None] + self.key(key_BSD)[:, None]
        scores_BTS: Tensor = self.value(torch.tanh(sums_BTSD)).squeeze(-1)
        return scores_BTS


SCORES: dict[str, Callable[[int], nn.Module]] = {
    "dot": lambda _: DotScore(),
    "multiplicative": MultiplicativeScore,
    "additive": AdditiveScore,
}
ATTENTIONS = ("none", *SCORES)
FORMS = ("luong", "bahdanau")


@dataclass(frozen=True, slots=True)
class RecurrentConfig(Config):
    """Sizes, and which tokens mean what."""

    section: ClassVar = "recurrent"
    unnamed: ClassVar = {"form": "luong"}

    vocab_size: int
    hidden_size: int = 64  # of embeddings too
    attention: str = "dot"
    max_positions: int = 64  # longest source, and longest target with its end
    pad_token_id: int = 0
    start_token_id: int = 1
    end_token_id: int = 2
    form: str = "luong"  # of attention

    def __post_init__(self) -> None:
        for name in ("vocab_size", "hidden_size", "max_positions"):
            check_range(name, getattr(self, name), 1, 1_000_000)
        for name in ("pad_token_id", "start_token_id", "end_token_id"):
            check_range(name, getattr(self, name), 0, self.vocab_size - 1)
        check_choice("attention", self.attention, ATTENTIONS)
        check_choice("form", self.form, FORMS)
        if self.form == "bahdanau" and self.attention == "none":
            raise SettingError("form", self.form, "luong where attention is none")
        if self.form == "bahdanau" and self.hidden_size % 2:
            raise SettingError("hidden_size", self.hidden_size, "even: half of it reads each way")

    @property
    def num_layers(self) -> int:
        """The number of layers of the encoder, and as many of the decoder."""
        return 1


class Recurrence(nn.Module):
    """One LSTM layer over right-padded rows; its last state is that of each row's last token.

    Where it reads both ways, half of the units read from a row's own end, last its first token.
    """

    def __init__(
        self, input_size: int, hidden_size: int, *, is_bidirectional: bool = False
    ) -> None:
        super().__init__()
        self.lstm = nn.LSTM(
            input_size,
            hidden_size // 2 if is_bidirectional else hidden_size,
            batch_first=True,
            bidirectional=is_bidirectional,
        )

    def forward(
        self, inputs_BSD: Tensor, lengths_B: Tensor | None = None, state: State | None = None
    ) -> tuple[Tensor, State]:
        """Hidden states [B, S, D], zero after a row's end, and the last state."""
        if lengths_B is None or bool((lengths_B == inputs_BSD.shape[1]).all()):
            hidden_BSD, last = self.lstm(inputs_BSD, state)
            return hidden_BSD, last
        packed = pack_padded_sequence(inputs_BSD, lengths_B, batch_first=True, enforce_sorted=False)
        hidden, last = self.lstm(packed, state)
        padded = pad_packed_sequence(hidden, batch_first=True, total_length=inputs_BSD.shape[1])
        return padded[0], last


class Decoded(NamedTuple):
    """A decoder's output for some target tokens."""

    logits: Tensor  # [B, T, V]
    weights: Tensor | None  # [B, T, S] of attention, each row sums to 1; None without attention
    state: State


class RecurrentSeq2Seq(nn.Module):
    """Encoder, decoder and what lies between them."""

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        self.config = config
        size = config.hidden_size
        is_bahdanau = config.form == "bahdanau"
        self.source_embedding = nn.Embedding(config.vocab_size, size)
        self.target_embedding = nn.Embedding(config.vocab_size, size)
        self.encoder = Recurrence(size, size, is_bidirectional=is_bahdanau)
        self.decoder = Recurrence(2 * size if is_bahdanau else size, size)
        self.score: nn.Module | None = None
        if config.attention != "none":
            self.score = SCORES[config.attention](size)
            # W_c of Luong et al. 2015; or of Bahdanau et al. 2015 what makes the output of the
            # state, the context and the token before.
            self.mix = nn.Linear(3 * size if is_bahdanau else 2 * size, size)
        if is_bahdanau:
            self.start = nn.Linear(size // 2, 2 * size)  # W_s
        self.output = nn.Linear(size, config.vocab_size)

    def forward(self, source_BS: Tensor, mask_BS: Tensor, target_BT: Tensor) -> Tensor:
        """Logits [B, T, V] of what follows each token of a target that begins with the start."""
        memory_BSD, state = self.encode(source_BS, mask_BS)
        return self.decode(target_BT, memory_BSD, mask_BS, state).logits

    def encode(self, source_BS: Tensor, mask_BS: Tensor) -> tuple[Tensor, State]:
        """Every state of the encoder [B, S, D], and what the decoder starts from."""
        memory_BSD, state = self.encoder(self.source_embedding(source_BS), mask_BS.sum(dim=1))
        if self.config.form == "luong":
            return memory_BSD, state
        hidden_1BD, cell_1BD = torch.tanh(self.start(state[0][1:])).chunk(2, dim=-1)
        return memory_BSD, (hidden_1BD, cell_1BD)

    def decode(
        self, target_BT: Tensor, memory_BSD: Tensor, mask_BS: Tensor, state: State
    ) -> Decoded:
        """Continue from `state` with these target tokens."""
        before_BTD = self.target_embedding(target_BT)
        if self.config.form == "bahdanau":
            return self._decode_by_step(before_BTD, memory_BSD, mask_BS, state)
        hidden_BTD, state = self.decoder(before_BTD, None, state)
        if self.score is None:
            return Decoded(self.output(hidden_BTD), None, state)
        context_BTD, weights_BTS = self._attend(hidden_BTD, memory_BSD, mask_BS)
        mixed_BTD = torch.tanh(self.mix(torch.cat((context_BTD, hidden_BTD), dim=-1)))
        return Decoded(self.output(mixed_BTD), weights_BTS, state)

    def _decode_by_step(
        self, before_BTD: Tensor, memory_BSD: Tensor, mask_BS: Tensor, state: State
    ) -> Decoded:
        """Bahdanau's form: what a step reads follows from the state before it."""
        outputs, weights = [], []
        for step in range(before_BTD.shape[1]):
            token_B1D = before_BTD[:, step : step + 1]
            asking_B1D = state[0].transpose(0, 1)
            context_B1D, weights_B1S = self._attend(asking_B1D, memory_BSD, mask_BS)
            hidden_B1D, state = self.decoder(torch.cat((token_B1D, context_B1D), -1), None, state)
            outputs.append(torch.cat((hidden_B1D, context_B1D, token_B1D), dim=-1))
            weights.append(weights_B1S)
        mixed_BTD = torch.tanh(self.mix(torch.cat(outputs, dim=1)))
        return Decoded(self.output(mixed_BTD), torch.cat(weights, dim=1), state)

    def _attend(
        self, asking_BTD: Tensor, memory_BSD: Tensor, mask_BS: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The contexts of the query states [B, T, D], and their weights [B, T, S]."""
        assert self.score is not None, "a network without attention never asks"
        scores_BTS = self.score(asking_BTD, memory_BSD)
        # The least number, not minus infinity: a row of nothing but padding stays finite.
        least = torch.finfo(scores_BTS.dtype).min
        weights_BTS = scores_BTS.masked_fill(mask_BS[:, None] == 0, least).softmax(dim=-1)
        return weights_BTS @ memory_BSD, weights_BTS

    def greedy(
        self, source_BS: Tensor, mask_BS: Tensor, num_steps: int
    ) -> tuple[Tensor, Tensor | None]:
        """The likeliest token at each of `num_steps` steps [B, T], and where it looked [B, T, S].

        After its end token a row has padding, and looks nowhere.
        """
        memory_BSD, state = self.encode(source_BS, mask_BS)
        token_B1 = torch.full_like(source_BS[:, :1], self.config.start_token_id)
        is_open_B1 = torch.ones_like(token_B1)
        tokens, weights = [], []
        for _ in range(num_steps):
            logits_B1V, weights_B1S, state = self.decode(token_B1, memory_BSD, mask_BS, state)
            token_B1 = torch.where(
                is_open_B1 != 0, logits_B1V.argmax(dim=-1), self.config.pad_token_id
            )
            tokens.append(token_B1)
            if weights_B1S is not None:
                weights.append(weights_B1S * is_open_B1[:, :, None])
            is_open_B1 = is_open_B1 * (token_B1 != self.config.end_token_id)
        return torch.cat(tokens, dim=1), torch.cat(weights, dim=1) if weights else None
