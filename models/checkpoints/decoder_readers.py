"""Build networks that read texts of folders that hold a decoder: embedders, classifiers, scorers.

The decoder is read as one that writes texts, by `models/checkpoints/llama.py` and `gpt2.py`. What
is beside it is `score`, the linear map of a `...ForSequenceClassification`; the output layer is
left out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing
from torch import Tensor

from models.checkpoints.architectures import CLASSIFIER, architecture_of
from models.checkpoints.foreign_tokenizer import load_foreign_tokenizer
from models.checkpoints.gpt2 import GPT2, check_gpt2, gpt2_config, gpt2_weights, name_in_gpt2
from models.checkpoints.left_out import OUTPUT_LAYER, SCORES, without
from models.checkpoints.llama import (
    decoder_config,
    decoder_weights,
    name_in_llama,
    text_values,
)
from models.checkpoints.score_heads import PAIRS, score_head
from models.checkpoints.sentence_transformers import EmbedderFolder
from models.checkpoints.stops import stop_tokens
from models.checkpoints.weights import WEIGHTS_FILE, assign_weights, build_on_meta, read_weights
from models.errors import CheckpointError
from models.json_files import fields_of, read_object
from models.networks.decoder_readers import (
    Decoder,
    DecoderClassifier,
    DecoderEmbedder,
    DecoderPairScorer,
    DecoderReader,
)
from models.networks.gpt import GPT, GPTConfig
from models.networks.llama import Llama, LlamaConfig

SCORE = "score.weight"
PROBE = "a"  # any text, to see what the tokenizer puts around it


@dataclass(frozen=True, slots=True)
class ReadingDecoder:
    """A network of a folder, its labels, and the tokenizer that ends texts as it expects."""

    model: DecoderReader
    labels: tuple[str, ...]
    tokenizer: Tokenizer


@dataclass(frozen=True, slots=True)
class _Body:
    """A decoder without its output layer, by the names of its files."""

    config: GPTConfig | LlamaConfig
    tensors: dict[str, Tensor]

    def build(self) -> Decoder:
        return GPT(self.config) if isinstance(self.config, GPTConfig) else Llama(self.config)

    def name_in_file(self, name: str) -> str:
        """Translate the `name` of a weight of a `DecoderReader` into the file's."""
        part, _, rest = name.partition(".")
        if part != "decoder":
            return SCORE
        if isinstance(self.config, GPTConfig):
            return name_in_gpt2(rest)
        return name_in_llama(rest, self.config.norm_placement)


def is_reader(values: Mapping[str, Any], use: EmbedderFolder) -> bool:
    """Whether a folder's decoder reads texts: it is an embedder, or has a head."""
    return use.is_declared or architecture_of(values).endswith(CLASSIFIER)


def load_reader(use: EmbedderFolder, context: int | None, task: str | None) -> ReadingDecoder:
    """The network of a folder for texts of at most `context` tokens.

    `task` decides what one output scores: texts or pairs. Raises `CheckpointError`, or
    `SettingError` for a context or a task.
    """
    folder, weights_path = use.encoder, use.encoder / WEIGHTS_FILE
    path = folder / "config.json"
    values = read_object(path)
    body = _body(values, context, folder)
    tokenizer = ending_as_declared(load_foreign_tokenizer(folder), folder)
    labels: tuple[str, ...] = ()
    if use.is_declared:
        body = replace(body, tensors=without(body.tensors, [SCORES], weights_path))
        model: DecoderReader = build_on_meta(
            lambda: DecoderEmbedder(body.build(), use.pooling, use.normalize)
        )
    else:
        if SCORE not in body.tensors:
            raise CheckpointError(f"{path} declares a classifier, but the weights lack {SCORE}")
        num_outputs = int(body.tensors[SCORE].shape[0])
        scores = score_head(values, num_outputs, folder, task)
        ignored = text_values(values).get("pad_token_id")
        if scores.task == PAIRS:
            model = build_on_meta(
                lambda: DecoderPairScorer(body.build(), ignored, scores.score_function)
            )
        else:
            labels = scores.labels
            model = build_on_meta(
                lambda: DecoderClassifier(body.build(), num_outputs, ignored, scores.score_function)
            )
    assign_weights(model, body.tensors, weights_path, body.name_in_file)
    return ReadingDecoder(model, labels, tokenizer)


def _body(whole: Mapping[str, Any], context: int | None, folder: Path) -> _Body:
    path, weights_path = folder / "config.json", folder / WEIGHTS_FILE
    if whole.get("model_type") == GPT2:
        with fields_of(path, whole) as values:
            check_gpt2(values, path)
            gpt = gpt2_config(values)
        tied = {**values, "tie_word_embeddings": True}
        written = without(read_weights(folder), [OUTPUT_LAYER], weights_path)
        return _Body(gpt, gpt2_weights(written, tied, weights_path))
    with fields_of(path, whole):
        # Its logits, which some divide by a number, are not computed.
        values = {**text_values(whole), "logits_scaling": 1.0}
        config = decoder_config(values, stop_tokens(folder, whole), context, path)
    config = replace(config, is_tied=True)  # so that there is no output layer
    read = without(read_weights(folder), [OUTPUT_LAYER], weights_path)
    return _Body(config, decoder_weights(read, values, config, weights_path))


def ending_as_declared(tokenizer: Tokenizer, folder: Path) -> Tokenizer:
    """The tokenizer, which ends texts where `add_eos_token` of its configuration is true.

    tokenizer.json does so by itself as a rule. Where it does not, the ends are put there as
    transformers does: behind a text, and behind each of a pair.
    """
    settings = read_object(folder / "tokenizer_config.json", optional=True)
    stated = settings.get("eos_token")
    eos_token = stated.get("content") if isinstance(stated, dict) else stated
    eos_id = None if eos_token is None else tokenizer.token_to_id(str(eos_token))
    if settings.get("add_eos_token") is not True or eos_id is None:
        return tokenizer
    encoding = tokenizer.encode(PROBE)
    if encoding.ids[-1] == eos_id:
        return tokenizer
    special = {str(eos_token): eos_id}
    before = ""
    if encoding.special_tokens_mask[0]:
        before = encoding.tokens[0]
        special[before] = encoding.ids[0]
    first, second = (
        " ".join(f"{each}:{part}" for each in (before, f"${name}", eos_token) if each)
        for part, name in enumerate("AB")
    )
    tokenizer.post_processor = TemplateProcessing(
        single=first, pair=f"{first} {second}", special_tokens=list(special.items())
    )
    return tokenizer
