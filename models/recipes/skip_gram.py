"""Skip-gram with negative sampling (Mikolov et al. 2013, sections 2.2 and 2.3).

Knows nothing about tokenizers, files or terminals.

The one idea: a word's vector is to tell its neighbours from noise. For a word c with a neighbour o
and k noise words n the loss is `-log s(u_o v_c) - sum log s(-u_n v_c)`, s being the sigmoid; v are
the vectors that are kept, u those of words as neighbours.

From texts and settings to a checkpoint of word vectors.

Knows nothing about files or terminals.
"""

# ruff: noqa: N803, N806 - suffixes are array layouts: T words of text, P pairs, K noise, V, D

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F

from models.checkpoints.checkpoint import Checkpoint
from models.checkpoints.weights import build_on_meta
from models.data.vocabulary import SPECIAL, UNKNOWN, id_of, train_word_tokenizer, words_of
from models.networks.word_vectors import WordVectors, WordVectorsConfig
from models.recipes.neighbours import WordEvaluation, WordSpace, evaluate
from models.recipes.word_settings import WordSettings
from models.training.trainer import Listener

CHUNK_WORDS = 200_000  # whose pairs are in memory at once
MIN_RATE = 1e-5  # of the last step: SparseAdam takes no zero


@dataclass(frozen=True, slots=True)
class WordStream:
    """All known words of some texts, one after the other."""

    ids: Tensor  # [T]
    text_numbers: Tensor  # [T], of the text that each word is of
    counts: Tensor  # [V]: how often each word occurs; 0 for special tokens

    @classmethod
    def read(cls, texts: Sequence[str], tokenizer: Tokenizer) -> Self:
        """Unknown words are left out before any window is laid, as word2vec does."""
        encodings = tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        rows = [torch.tensor(encoding.ids, dtype=torch.int64) for encoding in encodings]
        ids_T = torch.cat([torch.empty(0, dtype=torch.int64), *rows])
        text_T = torch.repeat_interleave(torch.tensor([len(row) for row in rows]))
        is_known = ids_T != id_of(tokenizer, UNKNOWN)
        ids_T, text_T = ids_T[is_known], text_T[is_known]
        return cls(ids_T, text_T, torch.bincount(ids_T, minlength=tokenizer.get_vocab_size()))


def keep_probabilities(counts_V: Tensor, subsample: float) -> Tensor:
    """[V]: how likely an occurrence stays, `sqrt(subsample / frequency)` where that is below 1."""
    frequency_V = counts_V / counts_V.sum()
    return (subsample / frequency_V).sqrt().clamp(max=1.0)


def noise_weights(counts_V: Tensor, power: float) -> Tensor:
    """[V], of sum 1: frequencies to a power; what never occurs is never drawn."""
    weights_V = counts_V.double().pow(power) * (counts_V > 0)
    return weights_V / weights_V.sum()


def skip_gram_pairs(
    ids_T: Tensor, text_T: Tensor, window: int, generator: torch.Generator
) -> Tensor:
    """[P, 2]: each word with every neighbour of its own text that its random window reaches."""
    reach_T = torch.randint(1, window + 1, ids_T.shape, generator=generator)
    pairs = [torch.empty(0, 2, dtype=torch.int64)]
    for distance in range(1, window + 1):
        is_one_text = text_T[:-distance] == text_T[distance:]
        left_right = torch.stack([ids_T[:-distance], ids_T[distance:]], dim=1)
        pairs.append(left_right[is_one_text & (reach_T[:-distance] >= distance)])
        pairs.append(left_right.flip(1)[is_one_text & (reach_T[distance:] >= distance)])
    return torch.cat(pairs)


class SkipGram(nn.Module):
    """Two vectors per word: `words`, which are kept, and `neighbours`."""

    def __init__(self, vocab_size: int, vector_size: int) -> None:
        super().__init__()
        self.words = nn.Embedding(vocab_size, vector_size, sparse=True)
        self.neighbours = nn.Embedding(vocab_size, vector_size, sparse=True)
        nn.init.uniform_(self.words.weight, -0.5 / vector_size, 0.5 / vector_size)
        nn.init.zeros_(self.neighbours.weight)
        with torch.no_grad():
            self.words.weight[: len(SPECIAL)] = 0.0

    def forward(self, pairs_P2: Tensor, noise_PK: Tensor) -> Tensor:
        """Mean loss of the pairs."""
        word_PD1 = self.words(pairs_P2[:, 0]).unsqueeze(2)
        others_PN = torch.cat([pairs_P2[:, 1:], noise_PK], dim=1)
        scores_PN = torch.bmm(self.neighbours(others_PN), word_PD1).squeeze(2)
        sign_N = torch.full((others_PN.shape[1],), -1.0)
        sign_N[0] = 1.0  # the neighbour; all others are noise
        return -F.logsigmoid(scores_PN * sign_N).sum(dim=1).mean()


class SkipGramTrainer:
    """Trains vectors on a stream of words.

    What is random follows from the settings' seed alone; the global random state stays as it was.
    """

    def __init__(self, stream: WordStream, settings: WordSettings) -> None:
        self._stream = stream
        self._settings = settings
        self._generator = torch.Generator().manual_seed(settings.seed)
        self._keep_V = keep_probabilities(stream.counts, settings.subsample)
        self._noise_V = noise_weights(stream.counts, settings.noise_power)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(settings.seed)
            self.model = SkipGram(len(stream.counts), settings.vector_size)
        self._optimizer = torch.optim.SparseAdam(
            list(self.model.parameters()), lr=settings.learning_rate
        )

    @property
    def num_words(self) -> int:
        """The number of words of all epochs, including those that subsampling leaves out."""
        return len(self._stream.ids) * self._settings.epochs

    def run(self, listener: Listener) -> list[float]:
        """The mean loss of a pair in each epoch, trained to the end."""
        listener.started(self.num_words, 0)
        means, num_done = [], 0
        for _ in range(self._settings.epochs):
            total, count = 0.0, 0
            for pairs_P2, num_words in self._batches():
                loss = self._step(pairs_P2, num_done / self.num_words)
                total, count = total + loss * len(pairs_P2), count + len(pairs_P2)
                num_done += num_words
                listener.stepped(loss, num_words)
            means.append(total / max(1, count))
        return means

    def _batches(self) -> Iterator[tuple[Tensor, int]]:
        """Pairs [P, 2] of one epoch in random order, and how many words' share they are."""
        for part_T in torch.split(torch.arange(len(self._stream.ids)), CHUNK_WORDS):
            pairs_P2 = self._pairs(slice(int(part_T[0]), int(part_T[-1]) + 1))
            if not len(pairs_P2):  # a few last words may have no neighbours left
                continue
            batches = torch.split(pairs_P2, self._settings.batch_size)
            shares = torch.tensor_split(part_T, len(batches))
            yield from zip(batches, map(len, shares), strict=True)

    def _pairs(self, part: slice) -> Tensor:
        """[P, 2], shuffled; another sample of words and windows each time."""
        ids_T, text_T = self._stream.ids[part], self._stream.text_numbers[part]
        is_kept = torch.rand(len(ids_T), generator=self._generator) < self._keep_V[ids_T]
        pairs_P2 = skip_gram_pairs(
            ids_T[is_kept], text_T[is_kept], self._settings.window, self._generator
        )
        return pairs_P2[torch.randperm(len(pairs_P2), generator=self._generator)]

    def _step(self, pairs_P2: Tensor, share_done: float) -> float:
        """Learn from a batch and return its loss."""
        noise_PK = self.noise(len(pairs_P2))
        for group in self._optimizer.param_groups:
            group["lr"] = self._settings.learning_rate * (1.0 - share_done) + MIN_RATE
        self._optimizer.zero_grad()
        loss: Tensor = self.model(pairs_P2, noise_PK)
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()  # type: ignore[no-untyped-call]
        return loss.item()

    def noise(self, num_pairs: int) -> Tensor:
        """[num_pairs, negatives] words drawn by their weights."""
        count = num_pairs * self._settings.negatives
        drawn = torch.multinomial(self._noise_V, count, replacement=True, generator=self._generator)
        return drawn.view(num_pairs, -1)


@dataclass(frozen=True, slots=True)
class TrainedWords:
    """Vectors, and how their training went."""

    checkpoint: Checkpoint
    evaluation: WordEvaluation
    epoch_losses: tuple[float, ...]  # the mean of a pair
    num_words: int  # of the texts, those that are too rare left out


def train_words(
    texts: Sequence[str],
    settings: WordSettings,
    origin: str,
    listener: Listener | None = None,
) -> TrainedWords:
    """Learn a vector for each frequent word; no window reaches from one text into the next.

    The listener's steps are words.
    """
    tokenizer = train_word_tokenizer(texts, settings.min_count, settings.max_words)
    stream = WordStream.read(texts, tokenizer)
    trainer = SkipGramTrainer(stream, settings)
    losses = trainer.run(listener or Listener())
    config = WordVectorsConfig(tokenizer.get_vocab_size(), settings.vector_size)
    model = build_on_meta(lambda: WordVectors(config))
    model.load_state_dict(trainer.model.words.state_dict(prefix="words."), assign=True)
    evaluation = evaluate(WordSpace(words_of(tokenizer), model.words.weight))
    checkpoint = Checkpoint(
        model=model.eval(),
        task="embedding",
        labels=(),
        tokenizer=tokenizer,
        max_tokens=model.config.max_positions,
        origin=origin,
        metrics=evaluation.to_dict(),
    )
    return TrainedWords(checkpoint, evaluation, tuple(losses), len(stream.ids))


def space_of(checkpoint: Checkpoint) -> WordSpace:
    """Words and vectors of a checkpoint that holds word vectors."""
    assert isinstance(checkpoint.model, WordVectors)
    return WordSpace(words_of(checkpoint.tokenizer), checkpoint.model.words.weight)
