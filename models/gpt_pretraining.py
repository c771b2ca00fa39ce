"""How a GPT is trained from nothing: byte pairs, and a loss on every next token.

Knows nothing about the loop; it is the `gpt` of `models/pretrain_kinds.py`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from models.byte_pairs import end_of_text_id, token_stream, train_tokenizer
from models.corpus import Corpus
from models.generation import generate
from models.gpt import GPT, GPTConfig
from models.perplexity import HeldOut, mean_loss, next_token_loss
from models.pretrain import Pretraining, digest_of, with_sizes
from models.pretrain_settings import GPTSettings
from models.trainer import Judgement
from models.windows import TrainingWindows

PRESETS: dict[str, Callable[[], GPTConfig]] = {
    "tiny": GPTConfig.tiny,
    "small": GPTConfig.small,
    "medium": GPTConfig.medium,
    "large": GPTConfig.large,
    "xl": GPTConfig.xl,
}


@dataclass(frozen=True, slots=True)
class NextToken:
    """Say of every token which one follows it."""

    train: TrainingWindows
    held_out: HeldOut
    sample: Callable[[GPT], str]
    max_validation_windows: int

    @property
    def num_train_tokens(self) -> int:
        return len(self.train.stream)

    @property
    def num_validation_tokens(self) -> int:
        return len(self.held_out.stream)

    @property
    def tokens_per_window(self) -> float:
        return self.train.context

    def digest(self) -> str:
        return digest_of(self.train.stream, self.held_out.stream)

    def loss(self, model: nn.Module, first: int, count: int) -> Tensor:
        return next_token_loss(cast(GPT, model), self.train.batch(first, count))

    def judge(self, model: nn.Module) -> Judgement:
        gpt = cast(GPT, model)
        loss = mean_loss(gpt, self.held_out, self.max_validation_windows)
        figures = {
            "perplexity": math.exp(loss),
            "bits_per_byte": self.held_out.bits_per_byte(loss),  # comparable between tokenizers
        }
        return Judgement(figures, loss, self.sample(gpt))


def next_token(
    corpus: Corpus, tokenizer: Tokenizer, config: GPTConfig, settings: GPTSettings
) -> NextToken:
    train = token_stream(corpus.train, tokenizer)
    return NextToken(
        TrainingWindows(train, config.max_positions, settings.seed),
        HeldOut(
            token_stream(corpus.validation, tokenizer),
            sum(len(document.encode()) for document in corpus.validation),
        ),
        sampler(tokenizer, settings),
        settings.validation_windows,
    )


def config_of(settings: GPTSettings, tokenizer: Tokenizer) -> GPTConfig:
    preset = PRESETS[settings.size]()
    return with_sizes(preset, settings, tokenizer, eos_token_id=end_of_text_id(tokenizer))


def sampler(tokenizer: Tokenizer, settings: GPTSettings) -> Callable[[GPT], str]:
    """Continue the prompt, each time with the same random numbers: samples can be compared."""
    prompt = tokenizer.encode(settings.prompt, add_special_tokens=False).ids
    start = prompt or [end_of_text_id(tokenizer)]

    def sample(model: GPT) -> str:
        if not settings.sample_tokens:
            return ""
        generator = torch.Generator().manual_seed(settings.seed)
        ids = generate(
            model,
            start,
            settings.sample_tokens,
            temperature=settings.temperature,
            generator=generator,
        )
        text: str = tokenizer.decode([*prompt, *ids])
        return text

    return sample


PRETRAINING = Pretraining(
    train_tokenizer=lambda documents, settings: train_tokenizer(documents, settings.vocab_size),
    config_of=config_of,
    build=lambda config, _: GPT(config),
    objective=next_token,
    is_byte_level=True,
)
