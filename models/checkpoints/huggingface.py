"""Build our modules from a folder of Hugging Face's.

Knows nothing about downloads. What the folder is for decides the module: GPT-2 becomes a GPT, Llama
and its relatives a Llama, Marian, BART and T5 a Transformer, ViT a VisionTransformer, a
`...ForSequenceClassification` a SequenceClassifier or a PairScorer and one that was made to fill
masks, and whose tokenizer has one, a MaskedLanguageModel; `...ForTokenClassification` and
`...ForQuestionAnswering` become networks of tokens. Everything else gives up its encoder, pooled as
a sentence-transformers folder says, or by mean where nothing says so.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from models.checkpoints.architectures import check_architecture
from models.checkpoints.beside import check_beside
from models.checkpoints.config_keys import check_keys
from models.checkpoints.decoder_families import FAMILIES as DECODERS
from models.checkpoints.decoder_families import WITH_TEXT_CONFIG
from models.checkpoints.decoder_readers import is_reader, load_reader
from models.checkpoints.encoders import num_outputs, read_encoder
from models.checkpoints.families import FAMILIES
from models.checkpoints.foreign_tokenizer import load_foreign_tokenizer
from models.checkpoints.gpt2 import GPT2, check_gpt2, gpt2_config, gpt2_weights, name_in_gpt2
from models.checkpoints.image_processors import read_preparation
from models.checkpoints.llama import (
    OUTPUT,
    decoder_config,
    decoder_weights,
    is_decoder,
    name_in_llama,
    text_values,
    what_looks_ahead,
)
from models.checkpoints.retrieval import term_embedder, three_way_embedder
from models.checkpoints.sampling_defaults import GENERATION_CONFIG
from models.checkpoints.score_heads import names_of
from models.checkpoints.sentence_transformers import MODULES_FILE, EmbedderFolder
from models.checkpoints.seq2seq import SEQ2SEQ, is_seq2seq, seq2seq_family, with_output_of
from models.checkpoints.settings_files import longest_text
from models.checkpoints.stops import stop_tokens
from models.checkpoints.traced import load_traced
from models.checkpoints.traced_readers import load_traced_reader
from models.checkpoints.traced_types import CAUSAL, factory_of, is_traced
from models.checkpoints.vector_maps import with_maps
from models.checkpoints.vit import OUTSIDE_LAYERS as VIT_HEAD
from models.checkpoints.vit import (
    check_vit,
    is_image_classifier,
    name_in_vit,
    vit_config,
    vit_weights,
)
from models.checkpoints.weights import (
    WEIGHTS_FILE,
    assign_weights,
    build_on_meta,
    read_weights,
)
from models.data.marian_tokenizer import SOURCE_FILE, load_source_tokenizer
from models.data.tokenizer import TOKENIZER_FILE
from models.errors import CheckpointError, SettingError
from models.json_files import fields_of, read_object
from models.networks.decoder_readers import DecoderReader
from models.networks.gpt import GPT
from models.networks.heads import (
    EncoderNetwork,
)
from models.networks.llama import Llama
from models.networks.traced import TracedDecoder
from models.networks.traced_readers import TracedReader
from models.networks.transformer import Transformer
from models.networks.vit import VisionTransformer

CONFIG_FILE = "config.json"


@dataclass(frozen=True, slots=True)
class PretrainedModel:
    """The contents of a folder without its tokenizer; only a classifier has `labels`."""

    model: (
        EncoderNetwork
        | DecoderReader
        | GPT
        | Llama
        | TracedDecoder
        | TracedReader
        | Transformer
        | VisionTransformer
    )
    labels: tuple[str, ...]
    max_tokens: int
    folder: Path  # of the weights, and so of the tokenizer
    tokenizer: Tokenizer | None = None  # where it is not made as those of all others


def load_pretrained(
    folder: Path, context: int | None = None, task: str | None = None, network: str = "auto"
) -> PretrainedModel:
    """Load the model in a `transformers` or sentence-transformers folder.

    `task` decides what one output scores where a head has it: texts or pairs; `network` whose
    network it becomes, as `is_traced` says. Raises
    `CheckpointError`, and `SettingError` for a context that only Llama's kind may have, or a task
    that a head is not for.
    """
    use = EmbedderFolder.read(folder)
    for each in {folder, use.encoder}:
        check_beside(each)
    values = read_object(use.encoder / CONFIG_FILE)
    if is_traced(values.get("model_type"), network):
        if factory_of(values, is_embedder=use.is_declared) != CAUSAL:
            read = load_traced_reader(use, context, task)
            model = _with_further_heads(read.model, use)
            return PretrainedModel(model, read.labels, read.max_tokens, use.encoder, read.tokenizer)
        traced = load_traced(use.encoder, context)
        return PretrainedModel(traced.model, (), traced.max_tokens, use.encoder)
    check_keys(values, use.encoder / CONFIG_FILE)
    has_decoder = is_decoder(values)
    if has_decoder or values.get("model_type") == GPT2:
        check_architecture(
            values, use.encoder / CONFIG_FILE, is_decoder=True, is_declared=use.is_declared
        )
    if (has_decoder or values.get("model_type") == GPT2) and is_reader(values, use):
        if not has_decoder:
            _check_absent(context)
        reader = load_decoder_reader(use, context, task)
        return replace(reader, model=_with_further_heads(reader.model, use))
    if has_decoder:
        return load_llama(use.encoder, context)
    if is_seq2seq(values):
        return load_seq2seq(use.encoder, context)
    _check_absent(context)
    if is_image_classifier(values):
        return load_vit(use.encoder)
    if values.get("model_type") == GPT2:
        return load_gpt2(use.encoder)
    pretrained = load_encoder(use, task)
    return replace(pretrained, model=_with_further_heads(pretrained.model, use))


def _with_further_heads(model: Any, use: EmbedderFolder) -> Any:  # noqa: ANN401 - a network of texts
    """The network with what its folder has beside encoder or decoder."""
    if use.maps:
        return with_maps(model, use.maps, use.encoder / MODULES_FILE)
    if use.terms is not None:
        return term_embedder(model, use.terms, use.encoder / CONFIG_FILE)
    if use.three_ways is not None:
        return three_way_embedder(model, use.three_ways, use.encoder)
    return model


def _check_absent(context: int | None) -> None:
    """Raise `SettingError` for a context, which this checkpoint may not have."""
    if context is not None:
        known = ", ".join((*DECODERS, *WITH_TEXT_CONFIG, *SEQ2SEQ))
        raise SettingError("context", context, f"left out: it is for decoders, one of {known}")


def load_decoder_reader(
    use: EmbedderFolder, context: int | None, task: str | None
) -> PretrainedModel:
    """A decoder that reads texts of at most `context` tokens; `task` is that of `score_head`."""
    reader = load_reader(use, context, task)
    most = max_tokens_of(use.encoder, reader.model.config.max_positions)
    return PretrainedModel(reader.model, reader.labels, most, use.encoder, reader.tokenizer)


def load_llama(folder: Path, context: int | None = None) -> PretrainedModel:
    """A decoder of Llama's kind, for texts of at most `context` tokens."""
    path = folder / CONFIG_FILE
    with fields_of(path, read_object(path)) as whole:
        values = text_values(whole)
        config = decoder_config(values, stop_tokens(folder, whole), context, path)
    if not config.is_causal:
        raise CheckpointError(
            f"{path}: {what_looks_ahead(values)} is for networks that read texts, and no "
            "modules.json of sentence-transformers says how their vectors are pooled"
        )
    weights_path = folder / WEIGHTS_FILE
    tensors = decoder_weights(read_weights(folder), values, config, weights_path)
    if not config.is_tied and OUTPUT not in tensors:
        raise CheckpointError(
            f"{weights_path}: {OUTPUT} is missing, and tie_word_embeddings in {path.name} is "
            "false: transformers would put random numbers there. If the network was trained with "
            f"one table for both, set tie_word_embeddings to true in {path}"
        )
    config = replace(config, is_tied=config.is_tied and OUTPUT not in tensors)
    model = build_on_meta(lambda: Llama(config))
    assign_weights(
        model, tensors, weights_path, lambda name: name_in_llama(name, config.norm_placement)
    )
    return PretrainedModel(model, (), max_tokens_of(folder, config.max_positions), folder)


def load_seq2seq(folder: Path, context: int | None) -> PretrainedModel:
    """An encoder-decoder, for sources and for outputs of at most `context` tokens each."""
    path, weights_path = folder / CONFIG_FILE, folder / WEIGHTS_FILE
    generation = read_object(folder / GENERATION_CONFIG, optional=True)
    stated = {name: value for name, value in generation.items() if value is not None}
    with fields_of(path, {**read_object(path), **stated}) as values:
        family = seq2seq_family(values, path)
        config = family.config(values, context)
    tensors = family.weights(read_weights(folder), values, config, weights_path)
    config = with_output_of(config, tensors)
    model = build_on_meta(lambda: Transformer(config))
    assign_weights(model, tensors, weights_path, lambda name: family.name_in_file(name, config))
    has_own = (folder / SOURCE_FILE).is_file() or (folder / TOKENIZER_FILE).is_file()
    tokenizer = load_source_tokenizer(folder) if has_own else load_foreign_tokenizer(folder)
    return PretrainedModel(
        model, (), max_tokens_of(folder, config.max_positions), folder, tokenizer
    )


def load_gpt2(folder: Path) -> PretrainedModel:
    path, weights_path = folder / CONFIG_FILE, folder / WEIGHTS_FILE
    with fields_of(path, read_object(path)) as values:
        check_gpt2(values, path)
        config = gpt2_config(values)
    tensors = gpt2_weights(read_weights(folder), values, weights_path)
    model = build_on_meta(lambda: GPT(config))
    assign_weights(model, tensors, weights_path, name_in_gpt2)
    return PretrainedModel(model, (), max_tokens_of(folder, config.max_positions), folder)


def load_vit(folder: Path) -> PretrainedModel:
    """A classifier of images, and how they are prepared."""
    path, weights_path = folder / CONFIG_FILE, folder / WEIGHTS_FILE
    with fields_of(path, read_object(path)) as values:
        check_vit(values, path)
        preparation = read_preparation(folder, int(values.get("num_channels", 3)))
        config = vit_config(values, preparation)
    tensors = vit_weights(read_weights(folder), values, config, weights_path)
    family = replace(FAMILIES["bert"], head=VIT_HEAD)
    labels = names_of(values, num_outputs(tensors, family, path), path, least=2)
    model = build_on_meta(lambda: VisionTransformer(config, len(labels)))
    assign_weights(model, tensors, weights_path, name_in_vit)
    return PretrainedModel(model, labels, config.max_positions, folder)


def load_encoder(use: EmbedderFolder, task: str | None = None) -> PretrainedModel:
    """An encoder with the head that its folder declares; `task` is that of `score_head`."""
    read = read_encoder(use, task)
    max_tokens = max_tokens_of(use.encoder, read.max_positions)
    return PretrainedModel(read.model, read.labels, max_tokens, use.encoder)


def max_tokens_of(folder: Path, max_positions: int) -> int:
    """Longest text by the files of texts, at most the positions that the network has."""
    return min(max_positions, longest_text(folder) or max_positions)
