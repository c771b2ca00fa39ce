"""Build our modules from a folder of Hugging Face's.

Knows nothing about downloads. What the folder is for decides the module: GPT-2 becomes a GPT, Llama
and its relatives a Llama, Marian, BART and T5 a Transformer, ViT a VisionTransformer, a
`...ForSequenceClassification` a SequenceClassifier or a PairScorer and one that was made to fill
masks, and whose tokenizer has one, a MaskedLanguageModel; `...ForTokenClassification` and
`...ForQuestionAnswering` become networks of tokens. Everything else gives up its encoder, pooled as
a sentence-transformers folder says, or by mean where nothing says so.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from torch import Tensor

from models.checkpoints.decoder_families import FAMILIES as DECODERS
from models.checkpoints.decoder_families import WITH_TEXT_CONFIG
from models.checkpoints.decoder_readers import is_reader, load_reader
from models.checkpoints.families import FAMILIES
from models.checkpoints.family import ANSWERER, NEXT_SENTENCE, TAGGER, Family
from models.checkpoints.foreign_tokenizer import load_foreign_tokenizer
from models.checkpoints.gpt2 import GPT2, check_gpt2, gpt2_config, gpt2_weights, name_in_gpt2
from models.checkpoints.image_processors import read_preparation
from models.checkpoints.known import known_types
from models.checkpoints.llama import (
    ELSEWHERE,
    decoder_config,
    decoder_weights,
    is_decoder,
    name_in_llama,
    text_values,
)
from models.checkpoints.retrieval import term_embedder, three_way_embedder
from models.checkpoints.sampling_defaults import GENERATION_CONFIG
from models.checkpoints.score_heads import PAIRS, TEXTS, ScoreHead, names_of, score_head
from models.checkpoints.sentence_transformers import MODULES_FILE, EmbedderFolder
from models.checkpoints.seq2seq import SEQ2SEQ, is_seq2seq, seq2seq_family, with_output_of
from models.checkpoints.settings_files import longest_text
from models.checkpoints.stops import stop_tokens
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
    read_tensors,
    read_weights,
)
from models.data.marian_tokenizer import load_source_tokenizer
from models.errors import CheckpointError, SettingError, shown
from models.json_files import check_only, fields_of, read_object
from models.networks.decoder_readers import DecoderReader
from models.networks.encoder import Encoder
from models.networks.gpt import GPT
from models.networks.heads import (
    ClassificationHead,
    EncoderNetwork,
    PairScorer,
    SequenceClassifier,
    TextEmbedder,
)
from models.networks.llama import Llama
from models.networks.masked import MaskedLanguageModel
from models.networks.readers import QuestionAnswerer, TokenClassifier
from models.networks.transformer import Transformer
from models.networks.vit import VisionTransformer

CONFIG_FILE = "config.json"
CLASSIFIER = "ForSequenceClassification"
TOKEN_USES = (TAGGER, ANSWERER)
# Stored by some versions and needed by none: index buffers, and poolers that nothing reads.
NEVER_NEEDED = re.compile(r"(^|\.)(position_ids|token_type_ids)$|^pooler\.")


@dataclass(frozen=True, slots=True)
class PretrainedModel:
    """The contents of a folder without its tokenizer; only a classifier has `labels`."""

    model: EncoderNetwork | DecoderReader | GPT | Llama | Transformer | VisionTransformer
    labels: tuple[str, ...]
    max_tokens: int
    folder: Path  # of the weights, and so of the tokenizer
    tokenizer: Tokenizer | None = None  # where it is not made as those of all others


def load_pretrained(
    folder: Path, context: int | None = None, task: str | None = None
) -> PretrainedModel:
    """Load the model in a `transformers` or sentence-transformers folder.

    `task` decides what one output scores where a head has it: texts or pairs. Raises
    `CheckpointError`, and `SettingError` for a context that only Llama's kind may have, or a task
    that a head is not for.
    """
    use = EmbedderFolder.read(folder)
    values = read_object(use.encoder / CONFIG_FILE)
    has_decoder = is_decoder(values)
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
            f"{path}: use_bidirectional_attention is for embedders, and no modules.json of "
            f"sentence-transformers says how it pools: {ELSEWHERE}"
        )
    weights_path = folder / WEIGHTS_FILE
    tensors = decoder_weights(read_weights(folder), values, config, weights_path)
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
    tokenizer = load_source_tokenizer(folder)
    return PretrainedModel(
        model, (), max_tokens_of(folder, config.max_positions), folder, tokenizer
    )


def load_gpt2(folder: Path) -> PretrainedModel:
    path, weights_path = folder / CONFIG_FILE, folder / WEIGHTS_FILE
    with fields_of(path, read_object(path)) as values:
        check_gpt2(values, path)
        config = gpt2_config(values)
    tensors = gpt2_weights(read_tensors(weights_path), values, weights_path)
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
    tensors = vit_weights(read_tensors(weights_path), values, config)
    family = replace(FAMILIES["bert"], head=VIT_HEAD)
    labels = names_of(values, num_outputs(tensors, family, path), path, least=2)
    model = build_on_meta(lambda: VisionTransformer(config, len(labels)))
    assign_weights(model, tensors, weights_path, name_in_vit)
    return PretrainedModel(model, labels, config.max_positions, folder)


def load_encoder(use: EmbedderFolder, task: str | None = None) -> PretrainedModel:
    """An encoder with the head that its folder declares; `task` is that of `score_head`."""
    path = use.encoder / CONFIG_FILE
    with fields_of(path, read_object(path)) as given:
        family = family_of(given, path)
        values = {**family.defaults, **given}
        config, family = family.config(values), family.adapt(family, values)
        stated = values.get(family.head_dropout)
        head_dropout = config.dropout if stated is None else float(stated)
    weights_path = use.encoder / WEIGHTS_FILE
    with fields_of(path, values):
        tensors = family.fold(short_names(read_tensors(weights_path), family), values)
    is_classifier = not use.is_declared and has_classifier(values, tensors, family)
    token_use = None if use.is_declared else token_use_of(values)
    if token_use is not None:
        family = replace(family, head=family.token_heads[token_use])
    labels: tuple[str, ...] = ()
    scores = ScoreHead()
    if is_classifier:
        scores = score_head(values, num_outputs(tensors, family, path), use.encoder, task)
        labels = scores.labels if scores.task == TEXTS else ()
    elif token_use == TAGGER:
        labels = names_of(values, num_outputs(tensors, family, path), path, least=2)
    mask_token_id = None if use.is_declared else mask_of(values, family, use.encoder)
    if mask_token_id is not None:
        check_only(values, {"tie_word_embeddings": True}, path)
        family = family.with_words_head()

    def build() -> EncoderNetwork:
        encoder = Encoder(config)
        of_head = family.head_activation if "dense" in family.head else None
        if token_use == TAGGER:
            return TokenClassifier(encoder, len(labels), head_dropout, of_head)
        if token_use == ANSWERER:
            return QuestionAnswerer(encoder, head_dropout, of_head)
        if mask_token_id is not None:
            activation = family.words_activation or config.activation
            has_relation = all(f"{name}.weight" in tensors for name in NEXT_SENTENCE.values())
            return MaskedLanguageModel(
                encoder, mask_token_id, activation, next_sentence=has_relation
            )
        if not is_classifier:
            return TextEmbedder(encoder, use.pooling, "last", use.normalize)
        head = ClassificationHead(
            config.hidden_size,
            len(scores.labels),
            family.head_activation,
            head_dropout,
            family.head_pooling,
            config.layer_norm_eps if family.has_head_norm else None,
            scores.score_function,
        )
        return (PairScorer if scores.task == PAIRS else SequenceClassifier)(encoder, head)

    model = build_on_meta(build)
    wanted = {family.name_in_file(name) for name in model.state_dict()}
    kept = {
        name: tensor
        for name, tensor in tensors.items()
        if name in wanted or not is_ignorable(name, family, is_classifier=is_classifier)
    }
    assign_weights(model, kept, weights_path, family.name_in_file)
    max_tokens = max_tokens_of(use.encoder, config.max_positions)
    return PretrainedModel(model, labels, max_tokens, use.encoder)


def family_of(values: Mapping[str, Any], path: Path) -> Family:
    """Find the naming to use; refuse by name what we would compute differently."""
    model_type = values["model_type"]
    if model_type not in FAMILIES:
        known = ", ".join(known_types())
        raise CheckpointError(
            f"{path}: model_type is {shown(model_type)}, but must be one of {known}; {ELSEWHERE}"
        )
    family = FAMILIES[model_type]
    check_only(values, family.only, path)
    if values.get("quantization_config"):
        raise CheckpointError(f"{path}: quantization_config is not supported: {ELSEWHERE}")
    return family


def short_names(tensors: Mapping[str, Tensor], family: Family) -> dict[str, Tensor]:
    """Return the tensors under today's names, without the family's prefix.

    Checkpoints of 2018 call a norm's weight and bias gamma and beta.
    """
    renamed = {}
    for name, tensor in tensors.items():
        short = re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name))
        renamed[short.removeprefix(family.prefix)] = tensor
    return renamed


def has_classifier(
    values: Mapping[str, Any], tensors: Mapping[str, Tensor], family: Family
) -> bool:
    """Whether the declared architecture is a classifier; without one, whether the weights are."""
    architectures = values.get("architectures")
    if architectures:
        return str(architectures[0]).endswith(CLASSIFIER)
    return all(f"{name}.weight" in tensors for name in family.head.values())


def token_use_of(values: Mapping[str, Any]) -> str | None:
    """The declared architecture's use of every token, if any."""
    architecture = str((values.get("architectures") or [""])[0])
    return next((use for use in TOKEN_USES if architecture.endswith(use)), None)


def mask_of(values: Mapping[str, Any], family: Family, folder: Path) -> int | None:
    """The mask's id where the declared architecture fills masks; without a mask it cannot."""
    architecture = str((values.get("architectures") or [""])[0])
    if not architecture.endswith(family.fills_masks):
        return None
    found: int | None = load_foreign_tokenizer(folder).token_to_id(family.mask)
    return found


def is_ignorable(name: str, family: Family, *, is_classifier: bool) -> bool:
    """Whether a weight may be dropped: a buffer, or another task's head on an encoder we take."""
    return bool(NEVER_NEEDED.search(name)) or not (is_classifier or family.is_of_encoder(name))


def num_outputs(tensors: Mapping[str, Tensor], family: Family, path: Path) -> int:
    """The logits of a declared head."""
    output = f"{family.head['output']}.weight"
    if output not in tensors:
        raise CheckpointError(f"{path} declares a classifier, but the weights lack {output}")
    return int(tensors[output].shape[0])


def max_tokens_of(folder: Path, max_positions: int) -> int:
    """What the files of texts allow, and at most the positions that the network has."""
    return min(max_positions, longest_text(folder) or max_positions)
