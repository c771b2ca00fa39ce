"""The networks that a checkpoint may hold: what each is for, and how it is built again.

One entry per network, in `KINDS`; its name stands in config.json. Older checkpoints name a task
only, and hold the first network of that task.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from torch import nn

from models.errors import SettingError, check_choice
from models.networks.decoder_readers import (
    Decoder,
    DecoderClassifier,
    DecoderEmbedder,
    DecoderPairScorer,
)
from models.networks.elmo import Elmo, ElmoConfig, ElmoEmbedder
from models.networks.elmo_tasks import ElmoClassifier, ElmoTokenClassifier
from models.networks.encoder import Encoder, EncoderConfig
from models.networks.features import TokenFeatures
from models.networks.gpt import GPT, GPTConfig
from models.networks.gpt_classifier import GPTClassifier
from models.networks.heads import ClassificationHead, PairScorer, SequenceClassifier, TextEmbedder
from models.networks.layers import Config
from models.networks.llama import Llama, LlamaConfig
from models.networks.masked import MaskedLanguageModel
from models.networks.readers import QuestionAnswerer, TokenClassifier, TokenNetwork
from models.networks.recurrent import RecurrentConfig, RecurrentSeq2Seq
from models.networks.retrieval import TermEmbedder, ThreeWayEmbedder
from models.networks.traced import TracedConfig, TracedDecoder
from models.networks.traced_readers import (
    TracedAnswerer,
    TracedClassifier,
    TracedEmbedder,
    TracedMaskedWords,
    TracedPairScorer,
    TracedReader,
    TracedReaderConfig,
    TracedTokenClassifier,
    TracedYesNoScorer,
)
from models.networks.transformer import Transformer, TransformerConfig
from models.networks.vector_maps import VectorMaps
from models.networks.vit import VisionTransformer, ViTConfig
from models.networks.word_vectors import WordVectors, WordVectorsConfig

Task = Literal[
    "text-classification",
    "embedding",
    "text-generation",
    "fill-mask",
    "token-classification",
    "question-answering",
    "pair-scoring",
    "features",
    "image-classification",
    "sequence-to-sequence",
]
Values = Mapping[str, Any]


def sizes_of(model: Any) -> dict[str, Any]:  # noqa: ANN401 - each network has its own
    """The sizes of a network, under the name of their section."""
    return {model.config.section: model.config.to_dict()}


@dataclass(frozen=True, slots=True)
class Kind:
    """One network: `build` makes it from config.json and its number of labels.

    `sections` are what config.json says of a model, beside what it says of every checkpoint.
    """

    name: str
    task: Task
    network: type[nn.Module]
    build: Callable[[Values, int], nn.Module]
    sections: Callable[[Any], dict[str, Any]] = sizes_of
    has_labels: bool = False
    has_tokenizer: bool = True


def _sized(
    network: Callable[[Any], nn.Module], config: type[Config]
) -> Callable[[Values, int], nn.Module]:
    """Builder of a network that needs its sizes only."""
    return lambda values, _: network(config.from_dict(values[config.section]))


def _encoder(values: Values) -> Encoder:
    return Encoder(EncoderConfig.from_dict(values["encoder"]))


def _on_encoder(network: Callable[..., nn.Module]) -> Callable[[Values, int], nn.Module]:
    """Builder of an encoder with a head that config.json describes."""
    return lambda values, _: network(_encoder(values), **values["head"])


def _embedder_head(values: Values) -> dict[str, Any]:
    """The arguments of an embedder beside its body; older checkpoints have no maps."""
    head = values["head"]
    return {**head, "maps": VectorMaps.from_list(head.get("maps", ()))}


def _maps_section(maps: VectorMaps) -> dict[str, Any]:
    return {"maps": maps.to_list()} if len(maps) else {}


def _classifier_parts(values: Values, num_labels: int) -> tuple[Encoder, ClassificationHead]:
    encoder = _encoder(values)
    return encoder, ClassificationHead(encoder.config.hidden_size, num_labels, **values["head"])


def _classifier_sections(model: SequenceClassifier) -> dict[str, Any]:
    head = model.head
    use = {
        "activation": head.activation,
        "dropout": head.dropout.p,
        "pooling": head.pooling,
        "norm_eps": None if head.norm is None else head.norm.eps,
        "score_function": head.score_function,
    }
    return {**sizes_of(model), "head": use}


def _embedder_sections(model: TextEmbedder) -> dict[str, Any]:
    use = {"pooling": model.pooling, "layers": model.layers, "normalize": model.normalize}
    return {**sizes_of(model), "head": {**use, **_maps_section(model.maps)}}


def _three_way_sections(model: ThreeWayEmbedder) -> dict[str, Any]:
    use = {
        "pooling": model.pooling,
        "normalize": model.normalize,
        "token_vector_size": model.token_vectors.out_features,
        "unweighted_token_ids": list(model.unweighted_token_ids),
    }
    return {**sizes_of(model), "head": use}


def _term_sections(model: TermEmbedder) -> dict[str, Any]:
    use = {"activation": model.head.activation, "pooling": model.pooling, "weights": model.weights}
    return {**sizes_of(model), "head": use}


def _masked_words_sections(model: MaskedLanguageModel) -> dict[str, Any]:
    head = {
        "mask_token_id": model.mask_token_id,
        "activation": model.head.activation,
        "next_sentence": model.next_sentence is not None,
    }
    return {**sizes_of(model), "head": head}


def _gpt(values: Values) -> GPT:
    return GPT(GPTConfig.from_dict(values["decoder"]))


def _decoder(values: Values) -> Decoder:
    """A GPT, or a Llama, whose section says how many heads of keys it has."""
    is_llama = "num_kv_heads" in values["decoder"]
    return Llama(LlamaConfig.from_dict(values["decoder"])) if is_llama else _gpt(values)


def _decoder_classifier_sections(model: DecoderClassifier) -> dict[str, Any]:
    use = {"ignored_token_id": model.ignored_token_id, "score_function": model.score_function}
    return {**sizes_of(model), "head": use}


def _decoder_scorer_sections(model: DecoderPairScorer) -> dict[str, Any]:
    sections = _decoder_classifier_sections(model)
    return {**sections, "head": {**sections["head"], "pair_template": model.pair_template}}


def _decoder_embedder_sections(model: DecoderEmbedder | TracedEmbedder) -> dict[str, Any]:
    use = {"pooling": model.pooling, "normalize": model.normalize}
    return {**sizes_of(model), "head": {**use, **_maps_section(model.maps)}}


def _traced(network: type[TracedReader]) -> Callable[[Values, int], nn.Module]:
    """Builder of a network of transformers that reads texts."""

    def build(values: Values, _: int) -> nn.Module:
        head = _embedder_head(values) if network is TracedEmbedder else values.get("head", {})
        return network.of(TracedReaderConfig.from_dict(values["traced"]), **head)

    return build


def _traced_classifier_sections(model: TracedClassifier) -> dict[str, Any]:
    return {**sizes_of(model), "head": {"score_function": model.score_function}}


def _traced_scorer_sections(model: TracedYesNoScorer) -> dict[str, Any]:
    use = {"score_function": model.score_function, "pair_template": model.pair_template}
    return {**sizes_of(model), "head": use}


def _traced_words_sections(model: TracedMaskedWords) -> dict[str, Any]:
    return {**sizes_of(model), "head": {"mask_token_id": model.mask_token_id}}


def _elmo(values: Values) -> Elmo:
    return Elmo(ElmoConfig.from_dict(values["elmo"]))


def _token_sections(model: TokenNetwork) -> dict[str, Any]:
    activation = None if model.head is None else model.head.activation
    return {**sizes_of(model), "head": {"dropout": model.dropout.p, "activation": activation}}


KINDS = (
    Kind(
        "encoder-classifier",
        "text-classification",
        SequenceClassifier,
        lambda values, num_labels: SequenceClassifier(*_classifier_parts(values, num_labels)),
        _classifier_sections,
        has_labels=True,
    ),
    Kind(
        "gpt-classifier",
        "text-classification",
        GPTClassifier,
        lambda values, num_labels: GPTClassifier(_gpt(values), num_labels),
        has_labels=True,
    ),
    Kind(
        "decoder-classifier",
        "text-classification",
        DecoderClassifier,
        lambda values, num_labels: DecoderClassifier(
            _decoder(values), num_labels, **values["head"]
        ),
        _decoder_classifier_sections,
        has_labels=True,
    ),
    Kind(
        "encoder-pair-scorer",
        "pair-scoring",
        PairScorer,
        lambda values, _: PairScorer(*_classifier_parts(values, 1)),
        _classifier_sections,
    ),
    Kind(
        "decoder-pair-scorer",
        "pair-scoring",
        DecoderPairScorer,
        lambda values, _: DecoderPairScorer(_decoder(values), **values["head"]),
        _decoder_scorer_sections,
    ),
    Kind(
        "encoder-embedder",
        "embedding",
        TextEmbedder,
        lambda values, _: TextEmbedder(_encoder(values), **_embedder_head(values)),
        _embedder_sections,
    ),
    Kind(
        "decoder-embedder",
        "embedding",
        DecoderEmbedder,
        lambda values, _: DecoderEmbedder(_decoder(values), **_embedder_head(values)),
        _decoder_embedder_sections,
    ),
    Kind(
        "encoder-three-way-embedder",
        "embedding",
        ThreeWayEmbedder,
        _on_encoder(ThreeWayEmbedder),
        _three_way_sections,
    ),
    Kind(
        "encoder-term-embedder",
        "embedding",
        TermEmbedder,
        _on_encoder(TermEmbedder),
        _term_sections,
    ),
    Kind(
        "encoder-masked-words",
        "fill-mask",
        MaskedLanguageModel,
        _on_encoder(MaskedLanguageModel),
        _masked_words_sections,
    ),
    Kind(
        "encoder-token-classifier",
        "token-classification",
        TokenClassifier,
        lambda values, num_labels: TokenClassifier(_encoder(values), num_labels, **values["head"]),
        _token_sections,
        has_labels=True,
    ),
    Kind(
        "encoder-answerer",
        "question-answering",
        QuestionAnswerer,
        _on_encoder(QuestionAnswerer),
        _token_sections,
    ),
    Kind("gpt", "text-generation", GPT, _sized(GPT, GPTConfig)),
    Kind("llama", "text-generation", Llama, _sized(Llama, LlamaConfig)),
    Kind(
        "traced-decoder", "text-generation", TracedDecoder, _sized(TracedDecoder.of, TracedConfig)
    ),
    Kind(
        "traced-classifier",
        "text-classification",
        TracedClassifier,
        _traced(TracedClassifier),
        _traced_classifier_sections,
        has_labels=True,
    ),
    Kind(
        "traced-pair-scorer",
        "pair-scoring",
        TracedPairScorer,
        _traced(TracedPairScorer),
        _traced_classifier_sections,
    ),
    Kind(
        "traced-yes-no-scorer",
        "pair-scoring",
        TracedYesNoScorer,
        _traced(TracedYesNoScorer),
        _traced_scorer_sections,
    ),
    Kind(
        "traced-embedder",
        "embedding",
        TracedEmbedder,
        _traced(TracedEmbedder),
        _decoder_embedder_sections,
    ),
    Kind(
        "traced-masked-words",
        "fill-mask",
        TracedMaskedWords,
        _traced(TracedMaskedWords),
        _traced_words_sections,
    ),
    Kind(
        "traced-token-classifier",
        "token-classification",
        TracedTokenClassifier,
        _traced(TracedTokenClassifier),
        has_labels=True,
    ),
    Kind(
        "traced-answerer",
        "question-answering",
        TracedAnswerer,
        _traced(TracedAnswerer),
    ),
    Kind("transformer", "text-generation", Transformer, _sized(Transformer, TransformerConfig)),
    Kind(
        "recurrent",
        "sequence-to-sequence",
        RecurrentSeq2Seq,
        _sized(RecurrentSeq2Seq, RecurrentConfig),
    ),
    Kind("word-vectors", "embedding", WordVectors, _sized(WordVectors, WordVectorsConfig)),
    Kind(
        "encoder-features",
        "features",
        TokenFeatures,
        lambda values, _: TokenFeatures(_encoder(values)),
    ),
    Kind("elmo", "features", Elmo, _sized(Elmo, ElmoConfig)),
    Kind(
        "elmo-embedder",
        "embedding",
        ElmoEmbedder,
        lambda values, _: ElmoEmbedder(_elmo(values)),
    ),
    Kind(
        "elmo-classifier",
        "text-classification",
        ElmoClassifier,
        lambda values, num_labels: ElmoClassifier(_elmo(values), num_labels),
        has_labels=True,
    ),
    Kind(
        "elmo-token-classifier",
        "token-classification",
        ElmoTokenClassifier,
        lambda values, num_labels: ElmoTokenClassifier(_elmo(values), num_labels),
        has_labels=True,
    ),
    Kind(
        "vision-transformer",
        "image-classification",
        VisionTransformer,
        lambda values, num_labels: VisionTransformer(
            ViTConfig.from_dict(values["vision"]), num_labels
        ),
        has_labels=True,
        has_tokenizer=False,
    ),
)


def kind_of(model: nn.Module) -> Kind:
    """The kind of a model, by its class."""
    return next(kind for kind in KINDS if type(model) is kind.network)


def kind_named(values: Values) -> Kind:
    """The kind that a config.json names; raises `SettingError` for one that is not known."""
    task = values["task"]
    check_choice("task", task, get_args(Task))
    kinds = {kind.name: kind for kind in KINDS if kind.task == task}
    name = values.get("network", next(iter(kinds)))
    if name not in kinds:
        raise SettingError("network", name, f"one of {', '.join(kinds)} for the task {task!r}")
    return kinds[name]
