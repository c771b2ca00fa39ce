"""How Hugging Face names what `models/networks/encoder.py` calls by one name.

Knows nothing about files. BERT, RoBERTa (and XLM-R, CamemBERT) and DistilBERT are one network: a
family is the names that its checkpoints use for settings and weights. MiniLM-type encoders are BERT
in another size.
"""

from dataclasses import replace

from models.checkpoints.family import Family, Values, bert_config
from models.checkpoints.rotary_families import GTE, MODERNBERT, NEW, NOMIC
from models.networks.encoder import EncoderConfig

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


def roberta_config(values: Values) -> EncoderConfig:
    """BERT, but real tokens count from pad_token_id + 1; the rows before that are unused."""
    pad_token_id = int(values.get("pad_token_id", 1))
    offset = pad_token_id + 1
    config = bert_config({**values, "pad_token_id": pad_token_id})
    return replace(config, max_positions=config.max_positions - offset, position_offset=offset)


def distilbert_config(values: Values) -> EncoderConfig:
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
FAMILIES = {
    "bert": BERT,
    "roberta": ROBERTA,
    "xlm-roberta": ROBERTA,
    "camembert": ROBERTA,
    "distilbert": DISTILBERT,
    "modernbert": MODERNBERT,
    "nomic_bert": NOMIC,
    "gte": GTE,
    "new": NEW,
}
