"""How Hugging Face names what `models/networks/encoder.py` calls by one name.

Knows nothing about files. BERT, RoBERTa (and XLM-R, CamemBERT) and DistilBERT are one network: a
family is the names that its checkpoints use for settings and weights. MiniLM-type encoders are BERT
in another size. ELECTRA and ALBERT have word vectors of another size than the layers, ALBERT layers
that are used several times, and MPNet relative positions.
"""

from dataclasses import replace

from models.checkpoints.deberta import DEBERTA
from models.checkpoints.family import BERT_WORDS, PARTS, Family, Values, bert_config
from models.checkpoints.rotary_families import GTE, MODERNBERT, NEW, NOMIC
from models.errors import SettingError
from models.json_files import check_whole
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
ALBERT_LAYER = {
    name: f"albert_layers.0.{stored}"
    for name, stored in {
        "attention.query": "attention.query",
        "attention.key": "attention.key",
        "attention.value": "attention.value",
        "attention.output": "attention.dense",
        "attention_norm": "attention.LayerNorm",
        "feed_forward.expand": "ffn",
        "feed_forward.contract": "ffn_output",
        "output_norm": "full_layer_layer_norm",
    }.items()
}
MPNET_LAYER = {
    **BERT_LAYER,
    "attention.query": "attention.attn.q",
    "attention.key": "attention.attn.k",
    "attention.value": "attention.attn.v",
    "attention.output": "attention.attn.o",
    "attention_norm": "attention.LayerNorm",
}
MPNET_BUCKETS = 32
MPNET_OFFSET = 2  # its code counts positions from the row behind that of `<pad>`, which is 1


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


def electra_config(values: Values) -> EncoderConfig:
    """BERT whose word vectors may be smaller than the layers."""
    size = check_whole("embedding_size", values["embedding_size"], 1, 2**17)
    is_mapped = size != int(values["hidden_size"])
    return bert_config(values, embedding_size=size if is_mapped else None)


def albert_config(values: Values) -> EncoderConfig:
    """ALBERT: word vectors always mapped, with layers in groups of the same weights.

    The module of a group is used several times, so that its weights are there once, in a checkpoint
    and in an exported graph of floats. In int8 each use has weights of its own, scaled by what it
    meets.
    """
    num_layers = check_whole("num_hidden_layers", values["num_hidden_layers"], 1, 2**16)
    num_groups = check_whole("num_hidden_groups", values["num_hidden_groups"], 1, num_layers)
    if num_layers % num_groups:
        limit = f"a divisor of num_hidden_layers {num_layers}"
        raise SettingError("num_hidden_groups", num_groups, limit)
    size = check_whole("embedding_size", values["embedding_size"], 1, 2**17)
    return bert_config(values, embedding_size=size, num_distinct_layers=num_groups)


def mpnet_config(values: Values) -> EncoderConfig:
    """RoBERTa without token types, with a bias for distances that all layers share."""
    # Its code computes with 32, whatever the field says, which decides the rows of the table.
    buckets = check_whole(
        "relative_attention_num_buckets",
        values["relative_attention_num_buckets"],
        MPNET_BUCKETS,
        MPNET_BUCKETS,
    )
    config = bert_config({**values, "type_vocab_size": 0}, relative_buckets=buckets)
    return replace(
        config,
        max_positions=config.max_positions - MPNET_OFFSET,
        position_offset=MPNET_OFFSET,
    )


BERT = Family(
    prefix="bert.",
    config=bert_config,
    layers="encoder.layer",
    layer=BERT_LAYER,
    head={"dense": "pooler.dense", "output": "classifier"},
    head_activation="tanh",
    head_dropout="classifier_dropout",
    words=BERT_WORDS,
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
ELECTRA = replace(
    BERT,
    prefix="electra.",
    config=electra_config,
    parts={**PARTS, "embeddings.projection": "embeddings_project"},
    head={"dense": "classifier.dense", "output": "classifier.out_proj"},
    head_activation="gelu",
    words={
        "dense": "generator_predictions.dense",
        "norm": "generator_predictions.LayerNorm",
        "": "generator_lm_head",
    },
    words_activation="gelu",
    fills_masks=("ForMaskedLM",),  # the discriminator, "ForPreTraining", has no such head
    defaults={
        "vocab_size": 30_522,
        "embedding_size": 128,
        "hidden_size": 256,
        "num_hidden_layers": 12,
        "num_attention_heads": 4,
        "intermediate_size": 1_024,
        "max_position_embeddings": 512,
    },
)
ALBERT = replace(
    BERT,
    prefix="albert.",
    config=albert_config,
    parts={**PARTS, "embeddings.projection": "encoder.embedding_hidden_mapping_in"},
    layers="encoder.albert_layer_groups",
    layer=ALBERT_LAYER,
    head={"dense": "pooler", "output": "classifier"},
    head_dropout="classifier_dropout_prob",
    words={"dense": "predictions.dense", "norm": "predictions.LayerNorm", "": "predictions"},
    only={**BERT.only, "inner_group_num": 1},
    defaults={
        "vocab_size": 30_000,
        "embedding_size": 128,
        "hidden_size": 4_096,
        "num_hidden_layers": 12,
        "num_hidden_groups": 1,
        "num_attention_heads": 64,
        "intermediate_size": 16_384,
        "hidden_act": "gelu_new",
        "hidden_dropout_prob": 0.0,
        "classifier_dropout_prob": 0.1,
        "max_position_embeddings": 512,
    },
)
MPNET = replace(
    ROBERTA,
    prefix="mpnet.",
    config=mpnet_config,
    layer=MPNET_LAYER,
    parts={**PARTS, "relative.buckets": "encoder.relative_attention_bias"},
    defaults={
        "vocab_size": 30_527,
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3_072,
        "max_position_embeddings": 512,
        "relative_attention_num_buckets": 32,
        "pad_token_id": 1,
    },
)
FAMILIES = {
    "bert": BERT,
    "roberta": ROBERTA,
    "xlm-roberta": ROBERTA,
    "camembert": ROBERTA,
    "distilbert": DISTILBERT,
    "electra": ELECTRA,
    "albert": ALBERT,
    "mpnet": MPNET,
    "deberta-v2": DEBERTA,
    "modernbert": MODERNBERT,
    "nomic_bert": NOMIC,
    "gte": GTE,
    "new": NEW,
}
