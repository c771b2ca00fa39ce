"""Makes Transformers from settings and trains them as published: sections 5.3 and 5.4.

Adam's betas and epsilon and the label smoothing are the paper's. So is the course of the learning
rate; its height and the length of its warm-up are settings, which are the paper's for its own size
(`models/recipes/seq2seq_systems.py`).
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from tokenizers import Tokenizer

from models.data.pair_tokenizer import END_ID, PAD_ID, START_ID, train_pair_tokenizer
from models.data.pairs import Pair
from models.networks.transformer import Transformer, TransformerConfig
from models.recipes.seq2seq import Training
from models.recipes.seq2seq_settings import Seq2SeqSettings

SIZES = {"small": TransformerConfig.small, "published": TransformerConfig.published}
LABEL_SMOOTHING = 0.1
BETAS = (0.9, 0.98)
EPSILON = 1e-9


def build(settings: Seq2SeqSettings, tokenizer: Tokenizer, max_positions: int) -> Transformer:
    """The size's configuration, with what the settings give in its place."""
    preset = SIZES[settings.size]()
    hidden_size = settings.hidden_size or preset.hidden_size
    config = replace(
        preset,
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=hidden_size,
        num_layers=settings.num_layers or preset.num_layers,
        num_heads=settings.num_heads or preset.num_heads,
        intermediate_size=hidden_size * preset.intermediate_size // preset.hidden_size,
        max_positions=max(preset.max_positions, max_positions),
        dropout=preset.dropout if settings.dropout is None else settings.dropout,
        pad_token_id=PAD_ID,
        start_token_id=START_ID,
        end_token_id=END_ID,
    )
    return Transformer(config)


def tokenizer_of(pairs: Sequence[Pair], settings: Seq2SeqSettings) -> Tokenizer:
    texts = [text for pair in pairs for text in pair]
    return train_pair_tokenizer(texts, SIZES[settings.size]().vocab_size)


def rate_at(step: int, total_steps: int, settings: Seq2SeqSettings) -> float:
    """Rise linearly over the warm-up, then fall as one over the root of the steps done.

    The paper's rate is `D^-0.5 * min(n^-0.5, n * w^-1.5)` at step n of w for the warm-up: it is
    highest at n = w, `D^-0.5 * w^-0.5`, in place of which stands the setting.
    """
    share = max(1, math.ceil(settings.warmup_fraction * total_steps))
    warmup_steps = share if settings.warmup_steps is None else settings.warmup_steps
    number = step + 1
    return settings.learning_rate * min(number / warmup_steps, math.sqrt(warmup_steps / number))


TRAINING = Training(
    tokenizer_of,
    build,
    rate_at=rate_at,
    betas=BETAS,
    epsilon=EPSILON,
    label_smoothing=LABEL_SMOOTHING,
)
