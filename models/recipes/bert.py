"""Training a BERT from nothing: word pieces, masked words and next sentences.

Knows nothing about the loop; it is the `bert` of `models/recipes/kinds.py`.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import cast

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F

from models.data.corpus import Corpus
from models.data.masking import UNCHOSEN, Batch, MaskedPairs
from models.data.sentence_pairs import Pairs, Sentences
from models.data.word_pieces import SpecialTokens, train_word_pieces
from models.errors import SettingError
from models.networks.encoder import Encoder, EncoderConfig
from models.networks.masked import MaskedLanguageModel, NextSentenceHead
from models.recipes.bert_settings import DEFAULT_CONTEXT, MODERNBERT, BertSettings
from models.recipes.modernbert import in_modern_form, sized
from models.recipes.pretrain import Pretraining, digest_of, with_sizes
from models.training.trainer import Judgement

NUM_SPECIAL = 3  # of a pair: the first token and two separators
SAMPLE_TOKENS = 64  # of the text that each measurement shows
HEAD_SIZE = 64  # of all published sizes


def small_bert(num_layers: int, hidden_size: int, max_positions: int = 512) -> EncoderConfig:
    """The smaller sizes of Turc et al. 2019."""
    return EncoderConfig(
        hidden_size=hidden_size,
        num_layers=num_layers,
        num_heads=hidden_size // HEAD_SIZE,
        intermediate_size=4 * hidden_size,
        max_positions=max_positions,
    )


PRESETS: dict[str, Callable[[], EncoderConfig]] = {
    "tiny": lambda: small_bert(2, 128, max_positions=64),
    "mini": lambda: small_bert(4, 256),
    "small": lambda: small_bert(4, 512),
    "medium": lambda: small_bert(8, 512),
    "base": EncoderConfig.base,
    "large": EncoderConfig.large,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """A model's output for B pairs with M chosen tokens; scores are float32."""

    scores: Tensor  # [M, V]
    targets: Tensor  # [M]
    relation_scores: Tensor  # [B, 2]
    relations: Tensor  # [B]

    @property
    def loss(self) -> Tensor:
        """The sum of the losses of words and of relations, as for BERT."""
        words = F.cross_entropy(self.scores, self.targets)
        return words + F.cross_entropy(self.relation_scores, self.relations)


def outcome_of(model: MaskedLanguageModel, batch: Batch) -> Outcome:
    """Scores are computed of the chosen tokens only: no other is in the loss."""
    assert model.next_sentence is not None, "a fresh model has one"
    hidden = model.encoder(batch.input_ids, batch.attention_mask, batch.token_type_ids)[-1]
    is_chosen = batch.targets != UNCHOSEN
    return Outcome(
        model.scores(hidden[is_chosen]).float(),
        batch.targets[is_chosen],
        model.next_sentence(hidden).float(),
        batch.relations,
    )


@dataclass(frozen=True, slots=True)
class MaskedLanguage:
    """Say what the chosen words were, and whether the second text follows the first."""

    train: MaskedPairs
    held_out: MaskedPairs
    num_held_out: int  # pairs
    batch_size: int
    tokenizer: Tokenizer

    @property
    def num_train_tokens(self) -> int:
        return len(self.train.pairs.sentences.tokens)

    @property
    def num_validation_tokens(self) -> int:
        return len(self.held_out.pairs.sentences.tokens)

    @property
    def tokens_per_window(self) -> float:
        return self.train.pairs.max_tokens + NUM_SPECIAL

    def digest(self) -> str:
        parts = (self.train.pairs.sentences, self.held_out.pairs.sentences)
        arrays = (array for part in parts for array in (part.tokens, part.starts, part.documents))
        return digest_of(*map(torch.from_numpy, arrays))

    def loss(self, model: nn.Module, first: int, count: int) -> Tensor:
        return outcome_of(cast(MaskedLanguageModel, model), self.train.batch(first, count)).loss

    def judge(self, model: nn.Module) -> Judgement:
        """Losses are means over words and over pairs, so they do not depend on the batches.

        The scores of all words at once would take gigabytes at the size base.
        """
        bert = cast(MaskedLanguageModel, model)
        words, relations = [], []
        targets = Counter[int]()
        for batch in self._held_out_batches():
            outcome = outcome_of(bert, batch)
            words.append(_judged(outcome.scores, outcome.targets))
            relations.append(_judged(outcome.relation_scores, outcome.relations))
            targets.update(outcome.targets.tolist())
        (word_loss, word_accuracy), (relation_loss, relation_accuracy) = (
            torch.cat(parts, dim=1).mean(dim=1).tolist() for parts in (words, relations)
        )
        figures = {
            "masked_perplexity": math.exp(word_loss),
            "masked_accuracy": word_accuracy,
            # What chance reaches.
            "commonest_word_accuracy": targets.most_common(1)[0][1] / targets.total(),
            "next_sentence_accuracy": relation_accuracy,
        }
        return Judgement(figures, word_loss + relation_loss, self._sample(bert))

    def _held_out_batches(self) -> Iterator[Batch]:
        for first in range(0, self.num_held_out, self.batch_size):
            yield self.held_out.batch(first, min(self.batch_size, self.num_held_out - first))

    def _sample(self, model: MaskedLanguageModel) -> str:
        """The beginning of a held-out pair; in brackets what the model says, and what was right."""
        batch = self.held_out.batch(0, 1)
        (input_ids,), (targets,) = batch.input_ids.tolist(), batch.targets.tolist()
        guesses = iter(outcome_of(model, batch).scores.argmax(dim=1).tolist())
        shown = []
        for seen, target in zip(input_ids, targets, strict=True):
            token = self._spelling(seen)
            if target != UNCHOSEN:
                said, right = self._spelling(next(guesses)), self._spelling(target)
                token = f"[{right}]" if said == right else f"[{said}, not {right}]"
            shown.append(token)
        return " ".join(shown[:SAMPLE_TOKENS]).replace(" ##", "")

    def _spelling(self, token_id: int) -> str:
        return self.tokenizer.id_to_token(token_id) or ""


def _judged(scores: Tensor, targets: Tensor) -> Tensor:
    """[2, N]: the cross entropy of each, and 1 where the highest score is right."""
    losses = F.cross_entropy(scores, targets, reduction="none")
    return torch.stack([losses, (scores.argmax(dim=1) == targets).float()])


def masked_language(
    corpus: Corpus, tokenizer: Tokenizer, config: EncoderConfig, settings: BertSettings
) -> MaskedLanguage:
    special = SpecialTokens.of(tokenizer)
    context = settings.context or min(config.max_positions, DEFAULT_CONTEXT)
    if context > config.max_positions:
        limit = f"at most what the checkpoint reads, {config.max_positions}"
        raise SettingError("context", context, limit)
    max_tokens = context - NUM_SPECIAL

    def masked_pairs(documents: tuple[str, ...], seed: str) -> MaskedPairs:
        pairs = Pairs(Sentences.of(documents, tokenizer), max_tokens, seed)
        return MaskedPairs(pairs, special, config.vocab_size, settings.masked_fraction)

    held_out = masked_pairs(corpus.validation, "what is held out")
    num_windows = len(held_out.pairs.sentences.tokens) // max_tokens
    return MaskedLanguage(
        train=masked_pairs(corpus.train, str(settings.seed)),
        held_out=held_out,
        num_held_out=max(1, min(settings.validation_windows, num_windows)),
        batch_size=settings.batch_size,
        tokenizer=tokenizer,
    )


def with_relation(model: nn.Module) -> nn.Module:
    """Gives a model that was trained without next sentences a fresh head for them."""
    bert = cast(MaskedLanguageModel, model)
    if bert.next_sentence is None:
        bert.next_sentence = NextSentenceHead(bert.config.hidden_size)
    return bert


def config_of(settings: BertSettings, tokenizer: Tokenizer) -> EncoderConfig:
    preset, pad = PRESETS[settings.size](), SpecialTokens.of(tokenizer).pad
    if settings.form != MODERNBERT:
        return with_sizes(preset, settings, tokenizer, pad_token_id=pad)
    preset = sized(preset, settings.size)
    return in_modern_form(with_sizes(preset, settings, tokenizer, pad_token_id=pad))


PRETRAINING = Pretraining(
    train_tokenizer=lambda documents, settings: train_word_pieces(
        documents, settings.vocab_size, lowercase=settings.lowercase
    ),
    config_of=config_of,
    build=lambda config, tokenizer: MaskedLanguageModel(
        Encoder(config), SpecialTokens.of(tokenizer).mask
    ),
    objective=masked_language,
    completed=with_relation,
)
