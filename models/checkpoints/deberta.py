"""DeBERTa of versions 2 and 3, as its files name it.

Knows nothing about files. Scores of three kinds are summed and divided by the root of three times a
head's size; the root of three is folded into the map of queries, which distances go through too.
"""

import math
from dataclasses import replace

from models.checkpoints.family import (
    BERT_WORDS,
    PARTS,
    Family,
    Tensors,
    Values,
    activation,
    bert_config,
)
from models.checkpoints.ways_out import ELSEWHERE
from models.errors import SettingError
from models.json_files import check_whole
from models.networks.disentangled import Distances
from models.networks.encoder import EncoderConfig

WAY_OUT = ELSEWHERE
NUM_TERMS = 3  # of a score: tokens with tokens, with distances as keys, and as queries
BOTH = {"c2p", "p2c"}
NORM = "layer_norm"
WORDS = {
    "dense": "lm_predictions.lm_head.dense",
    "norm": "lm_predictions.lm_head.LayerNorm",
    "": "lm_predictions.lm_head",
}


def _config(values: Values) -> EncoderConfig:
    if int(values["conv_kernel_size"] or 0) > 0:
        limit = f"absent or 0: the convolution of the largest ones is not supported; {WAY_OUT}"
        raise SettingError("conv_kernel_size", values["conv_kernel_size"], limit)
    for name in ("relative_attention", "share_att_key"):
        if not values[name]:
            raise SettingError(name, values[name], f"true, as in the published ones; {WAY_OUT}")
    terms = values["pos_att_type"] or ()
    if {*(terms.split("|") if isinstance(terms, str) else terms)} != BOTH:
        raise SettingError("pos_att_type", terms, f"c2p and p2c; {WAY_OUT}")
    for name in ("embedding_size", "attention_head_size", "pooler_hidden_size"):
        head_size = int(values["hidden_size"]) // int(values["num_attention_heads"])
        expected = head_size if name == "attention_head_size" else values["hidden_size"]
        if values.get(name) not in (None, expected):
            raise SettingError(name, values[name], f"{expected}; {WAY_OUT}")
    return bert_config(
        values,
        has_position_table=bool(values["position_biased_input"]),
        distances=_distances(values),
    )


def _distances(values: Values) -> Distances:
    """Without a number of buckets each distance is one."""
    positions = check_whole("max_position_embeddings", values["max_position_embeddings"], 1, 2**24)
    stated = check_whole("max_relative_positions", values["max_relative_positions"], -1, 2**24)
    buckets = check_whole("position_buckets", values["position_buckets"], -1, 2**16)
    furthest = stated if stated > 0 else positions
    return Distances(
        num_buckets=buckets if buckets > 0 else furthest,
        max_distance=furthest,
        is_logarithmic=buckets > 0,
        is_normed=NORM in str(values["norm_rel_ebd"] or "").split("|"),
    )


def _weights(tensors: Tensors, _: Values) -> Tensors:
    return {
        name: tensor / math.sqrt(NUM_TERMS) if ".query_proj." in name else tensor
        for name, tensor in tensors.items()
    }


def _heads(family: Family, values: Values) -> Family:
    """The head that fills masks has other names where `legacy` is false, as published files do."""
    name = activation(values["pooler_hidden_act"], "pooler_hidden_act")
    words = family.words if values["legacy"] else WORDS
    return replace(family, head_activation=name, words=words)


DEBERTA = Family(
    prefix="deberta.",
    config=_config,
    layers="encoder.layer",
    layer={
        "attention.query": "attention.self.query_proj",
        "attention.key": "attention.self.key_proj",
        "attention.value": "attention.self.value_proj",
        "attention.output": "attention.output.dense",
        "attention_norm": "attention.output.LayerNorm",
        "feed_forward.expand": "intermediate.dense",
        "feed_forward.contract": "output.dense",
        "output_norm": "output.LayerNorm",
    },
    parts={
        **PARTS,
        "relative.table": "encoder.rel_embeddings",
        "relative.norm": "encoder.LayerNorm",
    },
    head={"dense": "pooler.dense", "output": "classifier"},
    head_activation="gelu",
    head_dropout="cls_dropout",
    words=BERT_WORDS,
    words_activation=None,
    mask="[MASK]",
    defaults={
        "vocab_size": 128_100,
        "hidden_size": 1_536,
        "num_hidden_layers": 24,
        "num_attention_heads": 24,
        "intermediate_size": 6_144,
        "max_position_embeddings": 512,
        "type_vocab_size": 0,
        "layer_norm_eps": 1e-7,
        "relative_attention": False,
        "share_att_key": False,
        "max_relative_positions": -1,
        "position_buckets": -1,
        "norm_rel_ebd": "none",
        "pos_att_type": None,
        "position_biased_input": True,
        "pooler_hidden_act": "gelu",
        "conv_kernel_size": 0,
        "legacy": True,
    },
    fold=_weights,
    adapt=_heads,
)
