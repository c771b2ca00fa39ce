"""From texts and settings to a checkpoint of word vectors.

Knows nothing about files or terminals.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from models.checkpoint import Checkpoint
from models.weights import build_on_meta
from models.words.evaluation import WordEvaluation, evaluate
from models.words.neighbours import WordSpace
from models.words.network import WordVectors, WordVectorsConfig
from models.words.settings import WordSettings
from models.words.skip_gram import SkipGramTrainer, WordStream
from models.words.vocabulary import train_word_tokenizer, words_of


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
    on_start: Callable[[int], None] = lambda _: None,
    on_batch: Callable[[float, int], None] = lambda *_: None,
) -> TrainedWords:
    """Learn a vector for each frequent word; no window reaches from one text into the next.

    `on_start` hears how many words there are to go through, `on_batch` each batch's loss and words.
    """
    tokenizer = train_word_tokenizer(texts, settings.min_count, settings.max_words)
    stream = WordStream.read(texts, tokenizer)
    trainer = SkipGramTrainer(stream, settings)
    on_start(trainer.num_words)
    losses = trainer.run(on_batch)
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
