"""Fixtures of the models' tests and of the exports', which commands read and write."""

from tests.export.conftest import checkpoint_folder, decoder_folder, exported
from tests.models.conftest import (
    as_tsv,
    base,
    classifier_checkpoint,
    config,
    embedder_checkpoint,
    gpt_checkpoint,
    gpt_config,
    messages,
    run,
    splits,
    tokenizer,
)

__all__ = [
    "as_tsv",
    "base",
    "checkpoint_folder",
    "classifier_checkpoint",
    "config",
    "decoder_folder",
    "embedder_checkpoint",
    "exported",
    "gpt_checkpoint",
    "gpt_config",
    "messages",
    "run",
    "splits",
    "tokenizer",
]
