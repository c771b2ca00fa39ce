"""How Hugging Face names what `models/networks/encoder.py` calls by one name.

Knows nothing about files. BERT, RoBERTa (and XLM-R) and DistilBERT are one network: a family is the
names that its checkpoints use for settings and weights. MiniLM-type encoders are BERT in another
size.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from models.errors import check_choice
from models.networks.encoder import EncoderConfig

ACTIVATION_NAMES = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
EMBEDDINGS = {
    "words": "word_embeddings",
    "positions.table": "position_embeddings",
    "token_types": "token_type_embeddings",
    "norm": "LayerNorm",
}
BERT_LAYER = {
    "attention.query": "attention.self.query",
    "attention.key": "attention.self.key",
    "attention.value": "attention.self.value",
    "attention.output": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "feed_forward.expand": "intermediate.dense",
    "feed_forward.contract": "output.dense",
    "output_norm": "output.LayerNorm",
}
DISTILBERT_LAYER = {
    "attention.query": "attention.q_lin",
    "attention.key": "attention.k_lin",
    "attention.value": "attention.v_lin",
    "attention.output": "attention.out_lin",
    "attention_norm": "sa_layer_norm",
    "feed_forward.expand": "ffn.lin1",
    "feed_forward.contract": "ffn.lin2",
    "output_norm": "output_layer_norm",
}

NEXT_SENTENCE = {"dense": "pooler.dense", "output": "cls.seq_relationship"}  # in BERT only


def bert_config(values: Mapping[str, Any]) -> EncoderConfig:
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
    )


def roberta_config(values: Mapping[str, Any]) -> EncoderConfig:
    """BERT, but real tokens count from pad_token_id + 1; the rows before that are unused."""
    pad_token_id = int(values.get("pad_token_id", 1))
    offset = pad_token_id + 1
    config = bert_config({**values, "pad_token_id": pad_token_id})
    return replace(config, max_positions=config.max_positions - offset, position_offset=offset)


def distilbert_config(values: Mapping[str, Any]) -> EncoderConfig:
    """BERT under other names, without token types."""
    renamed = {
        "hidden_size": values["dim"],
        "num_hidden_layers": values["n_layers"],
        "num_attention_heads": values["n_heads"],
        "intermediate_size": values["hidden_dim"],
        "hidden_act": values.get("activation", "gelu"),
        "hidden_dropout_prob": values.get("dropout", 0.1),
        "type_vocab_size": 0,
    }
    return bert_config({**values, **renamed})


def activation(name: str, field: str = "hidden_act") -> str:
    check_choice(field, name, ACTIVATION_NAMES)
    return ACTIVATION_NAMES[name]


@dataclass(frozen=True, slots=True)
class Family:
    """One kind of checkpoint: the names of its weights, and its classification head."""

    prefix: str  # before the encoder's names in checkpoints that have a head
    config: Callable[[Mapping[str, Any]], EncoderConfig]
    layers: str
    layer: Mapping[str, str]
    head: Mapping[str, str]
    head_activation: str
    head_dropout: str  # the field of config.json
    words: Mapping[str, str]  # the head that fills masks; "" is the module of its bias
    words_activation: str | None  # None: the encoder's
    mask: str  # how its tokenizers spell what stands where a word is to be filled in

    def name_in_file(self, name: str) -> str:
        """Translate our `name` of a weight into the file's, without `prefix`."""
        module, _, kind = name.rpartition(".")
        part, _, rest = module.removeprefix("encoder.").partition(".")
        if part == "head":
            return f"{self.head[rest]}.{kind}"
        if part == "output":
            return f"{self.head[part]}.{kind}"
        if part == "next_sentence":
            return f"{NEXT_SENTENCE[rest]}.{kind}"
        if part == "embeddings":
            return f"embeddings.{EMBEDDINGS[rest]}.{kind}"
        index, _, rest = rest.partition(".")
        return f"{self.layers}.{index}.{self.layer[rest]}.{kind}"

    def with_words_head(self) -> "Family":
        """The same, whose head is that of checkpoints that predict masked words."""
        return replace(self, head=self.words)

    def is_of_encoder(self, name: str) -> bool:
        return name.startswith(("embeddings.", f"{self.layers}."))


BERT = Family(
    prefix="bert.",
    config=bert_config,
    layers="encoder.layer",
    layer=BERT_LAYER,
    head={"dense": "pooler.dense", "output": "classifier"},
    head_activation="tanh",
    head_dropout="classifier_dropout",
    words={
        "dense": "cls.predictions.transform.dense",
        "norm": "cls.predictions.transform.LayerNorm",
        "": "cls.predictions",
    },
    words_activation=None,
    mask="[MASK]",
)
ROBERTA = replace(
    BERT,
    prefix="roberta.",
    config=roberta_config,
    head={"dense": "classifier.dense", "output": "classifier.out_proj"},
    words={"dense": "lm_head.dense", "norm": "lm_head.layer_norm", "": "lm_head"},
    words_activation="gelu",
    mask="<mask>",
)
DISTILBERT = Family(
    prefix="distilbert.",
    config=distilbert_config,
    layers="transformer.layer",
    layer=DISTILBERT_LAYER,
    head={"dense": "pre_classifier", "output": "classifier"},
    head_activation="relu",
    head_dropout="seq_classif_dropout",
    words={"dense": "vocab_transform", "norm": "vocab_layer_norm", "": "vocab_projector"},
    words_activation=None,
    mask="[MASK]",
)
FAMILIES = {"bert": BERT, "roberta": ROBERTA, "xlm-roberta": ROBERTA, "distilbert": DISTILBERT}
