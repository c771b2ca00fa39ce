"""A kind of encoder's checkpoint: the names of its settings and weights, and its heads.

Knows nothing about files. `models/checkpoints/families.py` has one for each `model_type`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from models.errors import check_choice
from models.networks.encoder import EncoderConfig

Values = Mapping[str, Any]
Tensors = dict[str, Tensor]

ACTIVATION_NAMES = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
PARTS = {
    "embeddings.words": "embeddings.word_embeddings",
    "embeddings.positions.table": "embeddings.position_embeddings",
    "embeddings.token_types": "embeddings.token_type_embeddings",
    "embeddings.norm": "embeddings.LayerNorm",
}
BERT_WORDS = {
    "dense": "cls.predictions.transform.dense",
    "norm": "cls.predictions.transform.LayerNorm",
    "": "cls.predictions",
}
FILLS_MASKS = ("ForMaskedLM", "ForPreTraining")
TAGGER, ANSWERER = "ForTokenClassification", "ForQuestionAnswering"
NEXT_SENTENCE = {"dense": "pooler.dense", "output": "cls.seq_relationship"}  # in BERT only


def bert_config(values: Values, **others: Any) -> EncoderConfig:  # noqa: ANN401 - its fields
    """The sizes by BERT's names of them; `others` are fields that BERT has not."""
    return EncoderConfig(
        vocab_size=int(values["vocab_size"]),
        hidden_size=int(values["hidden_size"]),
        num_layers=int(values["num_hidden_layers"]),
        num_heads=int(values["num_attention_heads"]),
        intermediate_size=int(values["intermediate_size"]),
        max_positions=int(values["max_position_embeddings"]),
        type_vocab_size=int(values.get("type_vocab_size", 2)),
        layer_norm_eps=float(values.get("layer_norm_eps", 1e-12)),
        dropout=float(values.get("hidden_dropout_prob", 0.1)),
        activation=activation(values.get("hidden_act", "gelu")),
        pad_token_id=int(values.get("pad_token_id") or 0),
        **others,
    )


def activation(name: str, field: str = "hidden_act") -> str:
    check_choice(field, name, ACTIVATION_NAMES)
    return ACTIVATION_NAMES[name]


def as_it_is(tensors: Tensors, _: Values) -> Tensors:
    return tensors


@dataclass(frozen=True, slots=True)
class Family:
    """One kind of checkpoint: the names of its weights, and its heads."""

    prefix: str  # before the encoder's names in checkpoints that have a head
    config: Callable[[Values], EncoderConfig]
    layers: str
    layer: Mapping[str, str]
    head: Mapping[str, str]
    head_activation: str
    head_dropout: str  # the field of config.json
    words: Mapping[str, str]  # the head that fills masks; "" is the module of its bias
    words_activation: str | None  # None: the encoder's
    mask: str  # how its tokenizers spell what stands where a word is to be filled in
    fills_masks: tuple[str, ...] = FILLS_MASKS  # architectures that have that head
    parts: Mapping[str, str] = field(default_factory=lambda: PARTS)  # beside the layers
    defaults: Values = field(default_factory=dict)  # of fields that config.json may lack
    # Weights as `layer` and the others name them: fused ones split, absent biases zero.
    fold: Callable[[Tensors, Values], Tensors] = as_it_is
    # Products that files store side by side, and the names of the parts in the order of their rows.
    packed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # Heads of single tokens, by the architecture; with a "dense" they have `head_activation` too.
    token_heads: Mapping[str, Mapping[str, str]] = field(
        default_factory=lambda: {
            TAGGER: {"output": "classifier"},
            ANSWERER: {"output": "qa_outputs"},
        }
    )
    head_pooling: str = "cls"
    has_head_norm: bool = False
    only: Values = field(  # the one supported value of fields that would change what is computed
        default_factory=lambda: {"position_embedding_type": "absolute", "is_decoder": False}
    )
    # The family with what config.json says of its heads.
    adapt: Callable[["Family", Values], "Family"] = lambda family, _: family

    def name_in_file(self, name: str) -> str:
        """Translate our `name` of a weight into the file's, without `prefix`."""
        module, _, kind = name.rpartition(".")
        module = module.removeprefix("encoder.")
        part, _, rest = module.partition(".")
        if part == "head":
            return f"{self.head[rest]}.{kind}"
        if part == "output":
            return f"{self.head[part]}.{kind}"
        if part == "next_sentence":
            return f"{NEXT_SENTENCE[rest]}.{kind}"
        if part != "layers":
            return f"{self.parts[module]}.{kind}"
        index, _, rest = rest.partition(".")
        return f"{self.layers}.{index}.{self.layer[rest]}.{kind}"

    def with_words_head(self) -> "Family":
        """The family with the head of checkpoints that predict masked words."""
        return self.with_head(self.words)

    def with_head(self, head: Mapping[str, str]) -> "Family":
        """The family with another head."""
        return replace(self, head=head)
