"""Train a language model from nothing: from a corpus and settings to a checkpoint.

Knows nothing about terminals, signals or report files: a listener hears what happens and
`should_stop` is asked after every step. The loop itself is in `models/language_trainer.py`.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor

from models.byte_pairs import end_of_text_id, token_stream
from models.checkpoint import Checkpoint
from models.corpus import Corpus
from models.generation import generate
from models.gpt import GPT, GPTConfig
from models.language_trainer import LanguageTrainer, PretrainListener, SilentPretrainListener
from models.perplexity import HeldOut
from models.pretrain_settings import PretrainSettings
from models.training_state import PretrainProgress, RunIdentity
from models.windows import TrainingWindows

PRESETS: dict[str, Callable[[], GPTConfig]] = {
    "tiny": GPTConfig.tiny,
    "small": GPTConfig.small,
    "medium": GPTConfig.medium,
    "large": GPTConfig.large,
    "xl": GPTConfig.xl,
}


@dataclass(frozen=True, slots=True)
class Pretrained:
    """The best weights' model, and how the run went."""

    checkpoint: Checkpoint
    progress: PretrainProgress
    num_train_tokens: int  # of the corpus, not of all epochs
    num_validation_tokens: int
    bfloat16: bool


def pretrain(
    corpus: Corpus,
    tokenizer: Tokenizer,
    settings: PretrainSettings,
    *,
    state_file: Path | None = None,
    resume: bool = True,
    listener: PretrainListener | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Pretrained:
    """Train a fresh GPT; the global random state stays as it was.

    With a `state_file` the run can be stopped and continued: raises TrainingInterruptedError after
    saving once `should_stop` says so, and CheckpointError if the file belongs to another run.
    """
    config = config_of(settings, tokenizer)
    train = token_stream(corpus.train, tokenizer)
    held_out = HeldOut(
        token_stream(corpus.validation, tokenizer),
        sum(len(document.encode()) for document in corpus.validation),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        trainer = LanguageTrainer(
            model=(model := GPT(config)),
            train=TrainingWindows(train, config.max_positions, settings.seed),
            held_out=held_out,
            settings=settings,
            identity=RunIdentity(
                settings.to_dict(), "fresh weights", digest_of(tokenizer, train, held_out.stream)
            ),
            listener=listener or SilentPretrainListener(),
            sample=sampler(tokenizer, settings),
        )
        if state_file is not None and resume and state_file.exists():
            trainer.restore(state_file)
        trainer.run(state_file, should_stop)
    best = trainer.progress.best
    assert best is not None, "the last step is measured"
    checkpoint = Checkpoint(
        model=model,
        task="text-generation",
        labels=(),
        tokenizer=tokenizer,
        max_tokens=config.max_positions,
        origin=f"trained on {', '.join(file.name for file in corpus.files)}",
        metrics={
            "validation_perplexity": best.perplexity,
            "validation_bits_per_byte": best.bits_per_byte,
        },
    )
    sizes = len(train), len(held_out.stream)
    return Pretrained(checkpoint, trainer.progress, *sizes, trainer.bfloat16)


def config_of(settings: PretrainSettings, tokenizer: Tokenizer) -> GPTConfig:
    """The size's configuration, with what the settings give in its place."""
    preset = PRESETS[settings.size]()
    hidden_size = settings.hidden_size or preset.hidden_size
    return replace(
        preset,
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=hidden_size,
        num_layers=settings.num_layers or preset.num_layers,
        num_heads=settings.num_heads or preset.num_heads,
        intermediate_size=4 * hidden_size,
        max_positions=settings.context or preset.max_positions,
        dropout=settings.dropout,
        eos_token_id=end_of_text_id(tokenizer),
    )


def sampler(tokenizer: Tokenizer, settings: PretrainSettings) -> Callable[[GPT], str]:
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


def digest_of(tokenizer: Tokenizer, *streams: Tensor) -> str:
    digest = hashlib.sha256(tokenizer.to_str().encode())
    for stream in streams:
        digest.update(stream.numpy().tobytes())
        digest.update(b"\x00")
    return digest.hexdigest()
