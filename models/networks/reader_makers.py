"""Readers made of networks of transformers: what a body takes and gives is found by trial.

Knows no family. A network that reads a text in two parts, an encoder's and a decoder's, is refused:
its body's states are those of the second.
"""

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from models.choices import ScoreFunction
from models.errors import CheckpointError
from models.networks.traced import TracedDecoder, context_of
from models.networks.traced_readers import (
    COUNTED,
    PLACES,
    UNKNOWN,
    TracedAnswerer,
    TracedClassifier,
    TracedEmbedder,
    TracedMaskedWords,
    TracedPairScorer,
    TracedReader,
    TracedReaderConfig,
    TracedTokenClassifier,
    TracedYesNoScorer,
    without_pooler,
)

NUM_TRIED = 9  # tokens of a trial


@torch.inference_mode()
def numbering_of(network: Any, vocab_size: int, padding: int | None) -> str:  # noqa: ANN401
    """How the body numbers tokens, by trial: with padding tokens among them, and without."""
    body = network.base_model
    if "position_ids" not in inspect.signature(body.forward).parameters:
        return UNKNOWN
    ids = torch.arange(NUM_TRIED)[None] % vocab_size
    if padding is not None:
        ids[0, 4] = padding
    own = body(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
    is_counted = (ids != (-1 if padding is None else padding)).to(torch.int64)
    tried = {PLACES: torch.arange(NUM_TRIED)[None]}
    if padding is not None:
        tried[COUNTED] = is_counted.cumsum(dim=1) * is_counted + padding
    for name, positions in tried.items():
        made = body(input_ids=ids, attention_mask=torch.ones_like(ids), position_ids=positions)
        if torch.allclose(made.last_hidden_state, own, rtol=1e-6, atol=1e-6):
            return name
    return UNKNOWN


FACTORIES: dict[type[TracedReader], str] = {  # of transformers
    TracedClassifier: "AutoModelForSequenceClassification",
    TracedPairScorer: "AutoModelForSequenceClassification",
    TracedTokenClassifier: "AutoModelForTokenClassification",
    TracedAnswerer: "AutoModelForQuestionAnswering",
    TracedMaskedWords: "AutoModelForMaskedLM",
    TracedEmbedder: "AutoModel",
    TracedYesNoScorer: "AutoModel",
}


def reader_of(
    network: Any,  # noqa: ANN401
    kind: type[TracedReader],
    context: int | None = None,
    longest: int | None = None,
    **options: Any,  # noqa: ANN401
) -> TracedReader:
    """A network of transformers as one that reads texts of at most `context` tokens.

    `longest` is the length by the files of a tokenizer, where the network's own states none. Raises
    `CheckpointError` and `SettingError`.
    """
    if FACTORIES[kind] == "AutoModel":
        network = without_pooler(network)
    network, values = network.eval(), network.config
    if getattr(values, "is_encoder_decoder", False):
        raise CheckpointError(
            f"{type(network).__name__} reads a text twice, in an encoder and a decoder, and is "
            "taken where it writes texts alone"
        )
    text = values.get_text_config()
    padding = getattr(text, "pad_token_id", None)
    numbering = numbering_of(network, text.vocab_size, padding)
    most = context_of(text, context, longest)
    # Rows of a table up to that of padding are no places of tokens.
    if numbering == COUNTED and context is None:
        most -= (padding or 0) + 1
    config = TracedReaderConfig(
        values.to_dict(),
        FACTORIES[kind],
        text.vocab_size,
        text.num_hidden_layers,
        text.hidden_size,
        most,
        padding or 0,
        numbering,
        text.num_hidden_layers if has_interface(network) else 0,
        type_vocab_size_of(network),
    )
    return kind(network, config, **options)


def embedder_of(model: TracedDecoder | TracedReader) -> TracedEmbedder:
    """The body of a network as an embedder: of one that writes texts by the last token."""
    is_decoder = isinstance(model, TracedDecoder)
    body: Any = model.network.base_model
    pooling, context = ("last" if is_decoder else "mean"), model.config.max_positions
    embedder = reader_of(body, TracedEmbedder, context, pooling=pooling)
    assert isinstance(embedder, TracedEmbedder), "it is of that kind"
    return embedder


@torch.inference_mode()
def is_linear(decoder: TracedDecoder) -> bool:
    """Whether logits are the output layer's, without a cap or a factor behind it: by trial."""
    ids = torch.arange(NUM_TRIED)[None] % decoder.config.vocab_size
    hidden = decoder.network.base_model(input_ids=ids, use_cache=False).last_hidden_state
    of_layer = hidden @ decoder.network.get_output_embeddings().weight.T
    return torch.allclose(of_layer[..., : decoder.config.vocab_size], decoder(ids), 1e-4, 1e-4)


def yes_no_scorer_of(
    decoder: TracedDecoder, row: Tensor, score_function: ScoreFunction
) -> TracedYesNoScorer:
    """The body of a decoder, with one row in place of its output layer."""
    body, context = decoder.network.base_model, decoder.config.max_positions
    scorer = reader_of(body, TracedYesNoScorer, context, score_function=score_function)
    assert isinstance(scorer, TracedYesNoScorer), "it is of that kind"
    scorer.output.weight = nn.Parameter(row[None].clone(), requires_grad=False)
    return scorer


def has_interface(network: Any) -> bool:  # noqa: ANN401
    """Whether the body asks transformers' interface for attention, by its own word."""
    return bool(network.base_model._supports_attention_backend)  # noqa: SLF001 - no public one


def type_vocab_size_of(network: Any) -> int:  # noqa: ANN401
    """The types of tokens that the body reads, by its table; 0 where it takes none."""
    takes_types = "token_type_ids" in inspect.signature(network.base_model.forward).parameters
    return int(getattr(network.config, "type_vocab_size", 0) or 0) if takes_types else 0
