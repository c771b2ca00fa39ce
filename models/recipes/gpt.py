"""Training a GPT from nothing: byte pairs, and a loss on every next token.

Knows nothing about the loop; it is the `gpt` of `models/recipes/kinds.py`.

How well a language model predicts a held-out stream of tokens.

Knows nothing about files or training. Always in float32, because that is how the model will be
judged in the precision of its reader, not of its training.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, cast

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F

from models.data.byte_pairs import end_of_text_id, token_stream, train_tokenizer
from models.data.corpus import Corpus
from models.data.tokenizer import END_OF_TEXT
from models.data.windows import TrainingWindows, validation_windows
from models.networks.gpt import GPT, GPTConfig, generate
from models.networks.llama import Llama, LlamaConfig
from models.recipes.pretrain import Pretraining, digest_of, with_sizes
from models.training.evaluation import evaluating
from models.training.pretrain_settings import DecoderSettings, GPTSettings
from models.training.trainer import Judgement

Decoder: TypeAlias = GPT | Llama


@dataclass(frozen=True, slots=True)
class HeldOut:
    """A stream of tokens to measure on, and how many bytes of text it stands for."""

    stream: Tensor  # [T]
    num_bytes: int

    def bits_per_byte(self, loss: float) -> float:
        """Bits per byte from nats per token, with the stream's mean number of bytes per token."""
        return loss / math.log(2.0) * len(self.stream) / self.num_bytes


def mean_loss(model: Decoder, held_out: HeldOut, max_windows: int) -> float:
    """Mean cross entropy of a token in nats."""
    total, count = 0.0, 0
    with evaluating(model):
        context = model.config.max_positions
        for window in validation_windows(held_out.stream, context, max_windows):
            loss = next_token_loss(model, window)
            total += loss.item() * (window.shape[1] - 1)
            count += window.shape[1] - 1
    return total / count


def next_token_loss(model: Decoder, windows: Tensor) -> Tensor:
    """Mean cross entropy over windows [B, S + 1], in which every token but the first is a target.

    The logits may be bfloat16; their softmax is float32.
    """
    logits = model(windows[:, :-1])
    return F.cross_entropy(logits.float().flatten(0, 1), windows[:, 1:].flatten())


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
    sample: Callable[[Decoder], str]
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
        return next_token_loss(cast(Decoder, model), self.train.batch(first, count))

    def judge(self, model: nn.Module) -> Judgement:
        decoder = cast(Decoder, model)
        loss = mean_loss(decoder, self.held_out, self.max_validation_windows)
        figures = {
            "perplexity": math.exp(loss),
            "bits_per_byte": self.held_out.bits_per_byte(loss),  # comparable between tokenizers
        }
        return Judgement(figures, loss, self.sample(decoder))


def next_token(
    corpus: Corpus, tokenizer: Tokenizer, config: GPTConfig | LlamaConfig, settings: DecoderSettings
) -> NextToken:
    end = end_of(config, tokenizer)
    train = token_stream(corpus.train, tokenizer, end)
    return NextToken(
        TrainingWindows(train, config.max_positions, settings.seed),
        HeldOut(
            token_stream(corpus.validation, tokenizer, end),
            sum(len(document.encode()) for document in corpus.validation),
        ),
        sampler(tokenizer, settings, end),
        settings.validation_windows,
    )


def config_of(settings: GPTSettings, tokenizer: Tokenizer) -> GPTConfig:
    preset = PRESETS[settings.size]()
    return with_sizes(preset, settings, tokenizer, eos_token_id=end_of_text_id(tokenizer))


def end_of(config: GPTConfig | LlamaConfig, tokenizer: Tokenizer) -> int:
    """The token that parts documents: the tokenizer's own, else what an imported model stops at.

    Raises CheckpointError where there is none.
    """
    stops = config.eos_token_ids if isinstance(config, LlamaConfig) else (config.eos_token_id,)
    if tokenizer.token_to_id(END_OF_TEXT) is None and stops:
        return stops[0]
    return end_of_text_id(tokenizer)


def sampler(
    tokenizer: Tokenizer, settings: DecoderSettings, end: int | None = None
) -> Callable[[Decoder], str]:
    """Continue the prompt, each time with the same random numbers: samples can be compared."""
    prompt = tokenizer.encode(settings.prompt, add_special_tokens=False).ids
    start = prompt or [end_of_text_id(tokenizer) if end is None else end]

    def sample(model: Decoder) -> str:
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
