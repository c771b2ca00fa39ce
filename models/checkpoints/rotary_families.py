"""Encoders whose positions are rotations: ModernBERT, Nomic and GTE, as their files name them.

Knows nothing about files. Their products of one input are stored side by side, and are split here;
a gated layer's two may come in either order. What config.json may lack has the default that the
family's class in transformers has.
"""

import re
from collections.abc import Mapping
from dataclasses import replace

import torch

from models.checkpoints.decoder_fields import check_fields
from models.checkpoints.family import (
    ANSWERER,
    TAGGER,
    Family,
    Tensors,
    Values,
    activation,
    bert_config,
)
from models.checkpoints.ropes import RopeRequest, rope_of
from models.errors import SettingError
from models.json_files import check_number, check_whole
from models.networks.encoder import EncoderConfig
from models.networks.ropes import Rope

FULL, SLIDING = "full_attention", "sliding_attention"
THETA = (1.0, 1e15)


def _rope(values: Values, parameters: Values, theta: float) -> Rope:
    """A rope of fields of config.json; raises `SettingError` for a kind that is not known."""
    given = {name: value for name, value in parameters.items() if value is not None}
    complete = {"rope_theta": check_number("rope_theta", theta, *THETA), **given}
    complete["rope_type"] = str(given.get("rope_type") or given.get("type") or "default")
    size = int(values["hidden_size"]) // int(values["num_attention_heads"])
    most = int(values["max_position_embeddings"])
    return rope_of(RopeRequest(complete, size, most, most))


def _split(tensors: Tensors, packed: Mapping[str, tuple[str, ...]]) -> Tensors:
    """Tensors with those that hold several products apart."""
    apart: Tensors = {}
    for name, tensor in tensors.items():
        module = next((each for each in packed if f".{each}." in name), None)
        if module is None or tensor.shape[0] % len(packed[module]):
            apart[name] = tensor
            continue
        names = [name.replace(module, part) for part in packed[module]]
        if tensors.keys() & set(names):  # the same twice: refused as unexpected
            apart[name] = tensor
            continue
        for part, each in zip(names, tensor.chunk(len(names)), strict=True):
            apart[part] = each.contiguous()
    return apart


def _with_zeros(tensors: Tensors, biases: str) -> Tensors:
    """Tensors with biases of zeros, where there are weights of that name without."""
    zeros = {
        f"{module}.bias": torch.zeros(tensor.shape[0])
        for name, tensor in tensors.items()
        for module in [name.removesuffix(".weight")]
        if re.search(biases, module) and f"{module}.bias" not in tensors
    }
    return {**tensors, **zeros}


def _modernbert_config(values: Values) -> EncoderConfig:
    check_fields(values)
    num_layers = int(values["num_hidden_layers"])
    kinds = values.get("layer_types")
    every = check_whole(
        "global_attn_every_n_layers", values["global_attn_every_n_layers"], 1, 2**20
    )
    if kinds is None:
        kinds = [SLIDING if index % every else FULL for index in range(num_layers)]
    for kind in kinds:
        if kind not in (FULL, SLIDING):
            raise SettingError("layer_types", kind, f"{FULL} or {SLIDING}")
    window = check_whole("local_attention", values["local_attention"], 2, 2**24) // 2
    stated = values.get("rope_parameters") or {}
    scaling = values.get("rope_scaling") or {}
    thetas = {FULL: values["global_rope_theta"], SLIDING: values["local_rope_theta"]}
    ropes = tuple(
        _rope(values, {**(stated.get(kind) or {}), **scaling}, theta)
        for kind, theta in thetas.items()
    )
    return EncoderConfig(
        vocab_size=int(values["vocab_size"]),
        hidden_size=int(values["hidden_size"]),
        num_layers=num_layers,
        num_heads=int(values["num_attention_heads"]),
        intermediate_size=int(values["intermediate_size"]),
        max_positions=int(values["max_position_embeddings"]),
        type_vocab_size=0,
        layer_norm_eps=check_number("norm_eps", values["norm_eps"], 0.0, 1.0),
        dropout=float(values["mlp_dropout"]),
        activation=activation(values["hidden_activation"], "hidden_activation"),
        pad_token_id=int(values.get("pad_token_id") or 0),
        norm_placement="pre",
        is_gated=True,
        attention_bias=bool(values["attention_bias"]),
        feed_forward_bias=bool(values["mlp_bias"]),
        norm_bias=bool(values["norm_bias"]),
        has_position_table=False,
        ropes=ropes,
        layer_ropes=tuple(int(kind == SLIDING) for kind in kinds),
        windows=tuple(window if kind == SLIDING else 0 for kind in kinds),
    )


MODERNBERT_PACKED = {
    "attn.Wqkv": ("attn.query", "attn.key", "attn.value"),
    "mlp.Wi": ("mlp.gate", "mlp.expand"),
}


def _modernbert_weights(tensors: Tensors, values: Values) -> Tensors:
    """The gated half of a feed-forward layer's first product goes through the activation."""
    apart = _split(tensors, MODERNBERT_PACKED)
    if not values["classifier_bias"]:
        apart = _with_zeros(apart, r"^head\.dense$")
    if not values["norm_bias"]:
        apart = _with_zeros(apart, r"^head\.norm$")
    fills_masks = "head.dense.weight" in apart and "classifier.weight" not in apart
    if fills_masks and not values["decoder_bias"]:
        apart["decoder.bias"] = torch.zeros(int(values["vocab_size"]))
    return apart


def _modernbert_heads(family: Family, values: Values) -> Family:
    name = activation(values["classifier_activation"], "classifier_activation")
    pooling = str(values["classifier_pooling"])
    return replace(family, head_activation=name, words_activation=name, head_pooling=pooling)


MODERNBERT_HEAD = {"dense": "head.dense", "norm": "head.norm", "output": "classifier"}
MODERNBERT = Family(
    prefix="model.",
    config=_modernbert_config,
    layers="layers",
    layer={
        "attention.query": "attn.query",
        "attention.key": "attn.key",
        "attention.value": "attn.value",
        "attention.output": "attn.Wo",
        "attention_norm": "attn_norm",
        "feed_forward.gate": "mlp.gate",
        "feed_forward.expand": "mlp.expand",
        "feed_forward.contract": "mlp.Wo",
        "output_norm": "mlp_norm",
    },
    parts={
        "embeddings.words": "embeddings.tok_embeddings",
        "embeddings.norm": "embeddings.norm",
        "norm": "final_norm",
    },
    head=MODERNBERT_HEAD,
    token_heads={TAGGER: MODERNBERT_HEAD, ANSWERER: MODERNBERT_HEAD},
    head_activation="gelu",
    head_dropout="classifier_dropout",
    has_head_norm=True,
    words={"dense": "head.dense", "norm": "head.norm", "": "decoder"},
    words_activation="gelu",
    mask="[MASK]",
    defaults={
        "vocab_size": 50_368,
        "hidden_size": 768,
        "intermediate_size": 1_152,
        "num_hidden_layers": 22,
        "num_attention_heads": 12,
        "hidden_activation": "gelu",
        "max_position_embeddings": 8_192,
        "norm_eps": 1e-5,
        "norm_bias": False,
        "pad_token_id": 50_283,
        "attention_bias": False,
        "global_attn_every_n_layers": 3,
        "local_attention": 128,
        "global_rope_theta": 160_000.0,
        "local_rope_theta": 10_000.0,
        "mlp_bias": False,
        "mlp_dropout": 0.0,
        "decoder_bias": True,
        "classifier_pooling": "cls",
        "classifier_dropout": 0.0,
        "classifier_bias": False,
        "classifier_activation": "gelu",
    },
    packed=MODERNBERT_PACKED,
    fold=_modernbert_weights,
    adapt=_modernbert_heads,
)


def _rotary_bert(values: Values, theta: float, **others: bool) -> EncoderConfig:
    """BERT with gated feed-forward layers and one rope in all layers, instead of a table."""
    check_fields(values)
    size = int(values["hidden_size"]) // int(values["num_attention_heads"])
    if values.get("head_dim") not in (None, size):
        limit = f"{size}, which is hidden_size over num_attention_heads"
        raise SettingError("head_dim", values["head_dim"], limit)
    parameters = {**(values.get("rope_parameters") or {}), **(values.get("rope_scaling") or {})}
    return bert_config(
        values,
        has_position_table=False,
        is_gated=True,
        ropes=(_gte_rope(values, parameters, theta),),
        layer_ropes=(0,) * int(values["num_hidden_layers"]),
        **others,
    )


def _gte_rope(values: Values, parameters: Values, theta: float) -> Rope:
    """A rope, also of the kind "ntk" of GTE's own code, which stretches all texts alike."""
    kind = parameters.get("rope_type") or parameters.get("type")
    if kind != "ntk":
        return _rope(values, parameters, theta)
    factor = check_number("rope_scaling.factor", parameters.get("factor"), 1.0, 1e6)
    rope = _rope(values, {}, theta * factor)
    shrunk = factor ** (1.0 / len(rope.inverse_frequencies))
    return Rope(tuple(each / shrunk for each in rope.inverse_frequencies))


# What the model's first files, made for code of its own, call what transformers calls otherwise.
NOMIC_NAMES = {
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_inner": "intermediate_size",
    "n_positions": "max_position_embeddings",
    "layer_norm_epsilon": "layer_norm_eps",
    "resid_pdrop": "hidden_dropout_prob",
    "rotary_emb_base": "rope_theta",
}
NOMIC_TRAINED_POSITIONS = 2_048  # beyond these its own code would turn by the length of the text


def _nomic_config(values: Values) -> EncoderConfig:
    for name in ("moe_every_n_layers", "num_shared_experts"):
        if values.get(name):
            limit = "absent: experts are not supported; embed with a Nomic of version 1 or 1.5"
            raise SettingError(name, values[name], limit)
    own = {ours: values[name] for name, ours in NOMIC_NAMES.items() if values.get(name) is not None}
    if values.get("activation_function") is not None:
        if values["activation_function"] != "swiglu":
            raise SettingError("activation_function", values["activation_function"], "swiglu")
        own["hidden_act"] = "silu"
    named = {**values, **own}
    check_fields(named)
    trained = int(named.get("max_trained_positions") or NOMIC_TRAINED_POSITIONS)
    most = int(named["max_position_embeddings"])
    if own:
        named["max_position_embeddings"] = min(most, trained)
    return _rotary_bert(
        named, float(named["rope_theta"]), attention_bias=False, feed_forward_bias=False
    )


NOMIC_PACKED = {"attn.Wqkv": ("attn.query", "attn.key", "attn.value")}


def _nomic_weights(tensors: Tensors, _: Values) -> Tensors:
    plain = {name.removeprefix("bert."): tensor for name, tensor in tensors.items()}
    if len(plain) < len(tensors):  # the same twice: refused as unexpected
        return tensors
    return _split(plain, NOMIC_PACKED)


NOMIC = Family(
    prefix="nomic_bert.",
    config=_nomic_config,
    layers="encoder.layers",
    layer={
        "attention.query": "attn.query",
        "attention.key": "attn.key",
        "attention.value": "attn.value",
        "attention.output": "attn.out_proj",
        "attention_norm": "norm1",
        "feed_forward.gate": "mlp.fc12",
        "feed_forward.expand": "mlp.fc11",
        "feed_forward.contract": "mlp.fc2",
        "output_norm": "norm2",
    },
    parts={
        "embeddings.words": "embeddings.word_embeddings",
        "embeddings.token_types": "embeddings.token_type_embeddings",
        "embeddings.norm": "emb_ln",
    },
    head={"dense": "pooler.dense", "output": "classifier"},
    head_activation="tanh",
    head_dropout="classifier_dropout",
    words={
        "dense": "cls.predictions.transform.dense",
        "norm": "cls.predictions.transform.layer_norm",
        "": "cls.predictions",
    },
    words_activation=None,
    mask="[MASK]",
    only={
        "prenorm": False,
        "causal": False,
        "parallel_block": False,
        "use_rms_norm": False,
        "qkv_proj_bias": False,
        "mlp_fc1_bias": False,
        "mlp_fc2_bias": False,
        "rotary_emb_fraction": 1.0,
        "rotary_emb_interleaved": False,
    },
    defaults={
        "vocab_size": 30_528,
        "hidden_size": 768,
        "intermediate_size": 3_072,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "hidden_act": "silu",
        "hidden_dropout_prob": 0.0,
        "max_position_embeddings": 2_048,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
        "rope_theta": 1_000.0,
    },
    packed=NOMIC_PACKED,
    fold=_nomic_weights,
)


def _gte_config(values: Values) -> EncoderConfig:
    return _rotary_bert(values, float(values["rope_theta"]))


GTE_PACKED = {
    "attention.qkv_proj": ("attention.query", "attention.key", "attention.value"),
    "mlp.up_gate_proj": ("mlp.expand", "mlp.gate"),
}


def _gte_weights(tensors: Tensors, _: Values) -> Tensors:
    """Its feed-forward layers have a bias in the last product only."""
    return _with_zeros(_split(tensors, GTE_PACKED), r"\.mlp\.(expand|gate)$")


GTE = Family(
    prefix="gte.",
    config=_gte_config,
    layers="encoder.layer",
    layer={
        "attention.query": "attention.query",
        "attention.key": "attention.key",
        "attention.value": "attention.value",
        "attention.output": "attention.o_proj",
        "attention_norm": "attn_ln",
        "feed_forward.gate": "mlp.gate",
        "feed_forward.expand": "mlp.expand",
        "feed_forward.contract": "mlp.down_proj",
        "output_norm": "mlp_ln",
    },
    head={"dense": "pooler.dense", "output": "classifier"},
    head_activation="tanh",
    head_dropout="classifier_dropout",
    words={"dense": "lm_head.dense", "norm": "lm_head.norm", "": "lm_head.decoder"},
    words_activation="gelu",
    mask="<mask>",
    only={
        "position_embedding_type": "rope",
        "layer_norm_type": "layer_norm",
        "pack_qkv": True,
        "logn_attention_scale": False,
    },
    defaults={
        "vocab_size": 250_048,
        "hidden_size": 768,
        "intermediate_size": 3_072,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "hidden_act": "gelu",
        "max_position_embeddings": 8_192,
        "type_vocab_size": 1,
        "layer_norm_eps": 1e-12,
        "pad_token_id": 1,
        "rope_theta": 160_000.0,
    },
    packed=GTE_PACKED,
    fold=_gte_weights,
)
# The same in files made for code of its own, with that code's defaults.
NEW = replace(
    GTE,
    prefix="new.",
    mask="[MASK]",
    defaults={
        **GTE.defaults,
        "vocab_size": 30_528,
        "max_position_embeddings": 2_048,
        "pad_token_id": 0,
        "rope_theta": 10_000.0,
    },
)
