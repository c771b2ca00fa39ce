"""How Hugging Face's decoders say what `models/networks/llama.py` calls by one name.

Knows nothing about folders; a path is only for messages. `models/checkpoints/decoder_families.py`
has what tells the families apart. Whatever can be folded into weights is: Gemma's norms store
weight - 1, Phi-3 stores products side by side, Granite multiplies what joins the residual stream
and divides logits.
"""

import math
import re
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from models.checkpoints.decoder_families import FAMILIES, WITH_TEXT_CONFIG, DecoderFamily
from models.checkpoints.decoder_fields import check_fields
from models.checkpoints.family import ACTIVATION_NAMES, activation
from models.checkpoints.left_out import FREQUENCIES, IMAGES, is_same, renamed, without
from models.checkpoints.ropes import RopeRequest, Values, rope_of
from models.checkpoints.ways_out import ELSEWHERE
from models.errors import CheckpointError, SettingError
from models.networks.llama import GATES, LlamaConfig, NormPlacement
from models.networks.ropes import NO_ROPE, Rope

OUTPUT, WORDS = "lm_head.weight", "model.embed_tokens.weight"
FULL, SLIDING = "full_attention", "sliding_attention"
NORMS = re.compile(r"norm\.weight$")
OUTSIDE_LAYERS = {"words": "model.embed_tokens", "norm": "model.norm", "output": "lm_head"}
LAYER = {
    "attention_norm": "input_layernorm",
    "attention.query": "self_attn.q_proj",
    "attention.key": "self_attn.k_proj",
    "attention.value": "self_attn.v_proj",
    "attention.output": "self_attn.o_proj",
    "attention.query_norm": "self_attn.q_norm",
    "attention.key_norm": "self_attn.k_norm",
    "attention_output_norm": "post_attention_layernorm",
    "feed_forward.gate": "mlp.gate_proj",
    "feed_forward.expand": "mlp.up_proj",
    "feed_forward.contract": "mlp.down_proj",
    "feed_forward_output_norm": "post_feedforward_layernorm",
}
# The norm before the feed-forward layer; where attention has one behind it, that has this name.
FEED_FORWARD_NORM = {"pre": "post_attention_layernorm", "both": "pre_feedforward_layernorm"}
# Products that Phi-3 stores side by side, in the order of their rows.
PACKED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
LOOKS_AHEAD = "use_bidirectional_attention"
IS_CAUSAL = "is_causal"  # of transformers 5, for every family


def is_decoder(values: Values) -> bool:
    """Whether config.json is of one of the families."""
    return values.get("model_type") in (*FAMILIES, *WITH_TEXT_CONFIG)


def text_values(values: Values) -> Values:
    """The fields of the part that writes texts, with the model_type that says what they mean."""
    model_type = values["model_type"]
    if model_type not in WITH_TEXT_CONFIG:
        return values
    return {**values["text_config"], "model_type": WITH_TEXT_CONFIG[model_type]}


def decoder_config(
    given: Values, eos_token_ids: tuple[int, ...], context: int | None, path: Path
) -> LlamaConfig:
    """The sizes, for texts of at most `context` tokens; None: as many as it was trained for.

    Raises `CheckpointError`, or what `fields_of` turns into one.
    """
    family = FAMILIES[given["model_type"]]
    values: Values = {**family.defaults, **given}
    check_fields(values)
    if values.get(LOOKS_AHEAD):
        values = _both_ways(family, values, path)
    num_layers, num_heads = int(values["num_hidden_layers"]), int(values["num_attention_heads"])
    hidden_size, max_positions = int(values["hidden_size"]), _max_positions(values, context)
    num_kv_heads = int(values["num_key_value_heads"] or num_heads)
    if num_heads % num_kv_heads:
        limit = f"a divisor of num_attention_heads, {num_heads}"
        raise SettingError("num_key_value_heads", num_kv_heads, limit)
    head_size = int(values.get("head_dim") or hidden_size // num_heads)
    windows = tuple(_window(family, values, layer) for layer in range(num_layers))
    if values.get(IS_CAUSAL) is False:  # transformers then looks a window far, both ways
        windows = tuple(window + 1 if window else 0 for window in windows)
    ropes, layer_ropes = _ropes(family, given, values, head_size, windows, max_positions)
    has_attention_bias = bool(values["attention_bias"])
    return LlamaConfig(
        vocab_size=int(values["vocab_size"]),
        hidden_size=hidden_size,
        intermediate_size=int(values["intermediate_size"]),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_size=head_size,
        max_positions=max_positions,
        eos_token_ids=eos_token_ids,
        norm_eps=float(values["rms_norm_eps"]),
        norm_placement=family.norm_placement,
        query_key_norm=family.query_key_norm,
        query_key_value_bias=family.has_query_key_value_bias or has_attention_bias,
        output_bias=has_attention_bias and not family.has_query_key_value_bias,
        feed_forward_bias=bool(values["mlp_bias"]),
        attention_scale=family.scale(values),
        attention_softcap=float(values.get("attn_logit_softcapping") or 0.0),
        final_softcap=float(values.get("final_logit_softcapping") or 0.0),
        windows=windows,
        ropes=ropes,
        layer_ropes=layer_ropes,
        activation=_activation(family, values),
        embedding_scale=_embedding_scale(family, values),
        is_tied=bool(values["tie_word_embeddings"]),
        is_causal=not what_looks_ahead(values),
    )


def what_looks_ahead(values: Values) -> str:
    """The field that says that tokens see what follows them, with its value; or nothing."""
    if values.get(LOOKS_AHEAD):
        return f"{LOOKS_AHEAD} true"
    return f"{IS_CAUSAL} false" if values.get(IS_CAUSAL) is False else ""


def _both_ways(family: DecoderFamily, values: Values, path: Path) -> Values:
    """Fields of an encoder made of a decoder: a window is divided into before and behind."""
    if not family.can_look_ahead:
        raise CheckpointError(
            f"{path}: use_bidirectional_attention is not supported for this model_type: {ELSEWHERE}"
        )
    return {**values, "sliding_window": int(values["sliding_window"]) // 2 + 1}


def _max_positions(values: Values, context: int | None) -> int:
    """LongRoPE's context is that of pretraining unless a longer one is asked for."""
    stated = int(values["max_position_embeddings"])
    if context is not None:
        if not 1 <= context <= stated:
            raise SettingError("context", context, f"from 1 to {stated}, max_position_embeddings")
        return context
    scaling = values.get("rope_parameters") or values.get("rope_scaling") or {}
    original = values.get("original_max_position_embeddings") or scaling.get(
        "original_max_position_embeddings"
    )
    return min(stated, int(original)) if "short_factor" in scaling and original else stated


def _window(family: DecoderFamily, values: Values, layer: int) -> int:
    kinds = values.get("layer_types") if family.has_layer_types else None
    if kinds is None:
        return family.window(values, layer)
    if kinds[layer] not in (FULL, SLIDING):
        raise SettingError("layer_types", kinds[layer], f"{FULL} or {SLIDING}: {ELSEWHERE}")
    is_off = values.get("use_sliding_window") is False
    return 0 if kinds[layer] == FULL or is_off else int(values["sliding_window"] or 0)


def _activation(family: DecoderFamily, values: Values) -> str:
    """Gemma's first files say gelu and mean its approximation."""
    name = str(values.get(family.activation) or family.defaults[family.activation])
    if family.adds_one and name == "gelu":
        return "gelu_tanh"
    ours = activation(name, family.activation)
    if ours not in GATES:
        known = (each for each, meant in ACTIVATION_NAMES.items() if meant in GATES)
        raise SettingError(family.activation, name, f"one of {', '.join(known)}")
    return ours


def _embedding_scale(family: DecoderFamily, values: Values) -> float:
    if family.scales_words:
        return math.sqrt(values["hidden_size"])
    return float(values.get("embedding_multiplier", 1.0))


def _ropes(
    family: DecoderFamily,
    declared: Values,
    values: Values,
    head_size: int,
    windows: tuple[int, ...],
    context: int,
) -> tuple[tuple[Rope, ...], tuple[int, ...]]:
    """The ropes, and which one each layer has."""

    def rope(parameters: Values, theta: float) -> Rope:
        share = parameters.get("partial_rotary_factor", values.get("partial_rotary_factor", 1.0))
        stated = int(values["max_position_embeddings"])
        original = values.get("original_max_position_embeddings")
        extra = {"original_max_position_embeddings": original} if original else {}
        given = {name: value for name, value in parameters.items() if value is not None}
        complete = {"rope_theta": theta, **given, **extra}
        kind = str(complete.get("rope_type") or complete.get("type") or "default")
        complete["rope_type"] = family.rope_names.get(kind, kind)
        size = int(head_size * float(share or 1.0))
        return rope_of(RopeRequest(complete, size, stated, context))

    stated: Values = declared.get("rope_parameters") or {}
    is_nested = FULL in stated or SLIDING in stated
    stretched: Values = declared.get("rope_scaling") or ({} if is_nested else stated)
    if is_nested:
        stretched = {**(stated.get(FULL) or {}), **(declared.get("rope_scaling") or {})}
    ropes = [rope(stretched, float(values["rope_theta"]))]
    if family.has_own_ropes:
        theta = float(values[family.local_theta or "rope_theta"])
        ropes.append(rope((stated.get(SLIDING) or {}) if is_nested else {}, theta))
    indices = (
        (1 if family.has_own_ropes and window else 0) if family.rotates(values, layer) else NO_ROPE
        for layer, window in enumerate(windows)
    )
    return tuple(ropes), tuple(indices)


def decoder_weights(
    tensors: Mapping[str, Tensor], values: Values, config: LlamaConfig, path: Path
) -> dict[str, Tensor]:
    """The tensors of a file in our layout, under transformers' names, with all folded in."""
    family = FAMILIES[values["model_type"]]
    found: dict[str, Tensor] = {}
    plain = without(renamed(tensors, plain_name, path), (FREQUENCIES, IMAGES), path)
    for name, tensor in plain.items():
        found |= _unpacked(name, tensor, config, plain)
    if config.is_tied and OUTPUT in found:
        found = _tied(found)
    if family.adds_one:
        found = {name: _plus_one(name, tensor) for name, tensor in found.items()}
    if values["model_type"] == "granite":
        found = {name: _multiplied(name, tensor, values) for name, tensor in found.items()}
    return found


def _tied(found: dict[str, Tensor]) -> dict[str, Tensor]:
    """One table for words and output; two that differ stay two, as transformers leaves them."""
    words = found.setdefault(WORDS, found[OUTPUT])
    if is_same(words, found[OUTPUT]):
        del found[OUTPUT]
    return found


def plain_name(name: str) -> str:
    """Without what models of images and texts put before it, and with the prefix of all others."""
    name = name.removeprefix("model.language_model.").removeprefix("language_model.")
    others = ("lm_head.", "score.", "vision_tower.", "multi_modal_projector.")
    is_whole = name.startswith(("model.", *others))
    return name if is_whole else f"model.{name}"


def _unpacked(
    name: str, tensor: Tensor, config: LlamaConfig, others: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Products that Phi-3 stores side by side; others as they are."""
    query, key = config.num_heads * config.head_size, config.num_kv_heads * config.head_size
    half = config.intermediate_size
    for (packed, parts), sizes in zip(
        PACKED.items(), ((query, key, key), (half, half)), strict=True
    ):
        names = [name.replace(packed, part) for part in parts]
        is_packed = f".{packed}." in name and tensor.shape[:1] == (sum(sizes),)
        if is_packed and not others.keys() & set(names):
            split = torch.split(tensor, list(sizes))
            return {part: each.contiguous() for part, each in zip(names, split, strict=True)}
    return {name: tensor}


def _plus_one(name: str, tensor: Tensor) -> Tensor:
    return tensor + 1.0 if NORMS.search(name) else tensor


def factor_of(name: str, values: Values) -> float:
    """The factor that a product's weight is folded with."""
    is_granite = values.get("model_type") == "granite"
    joins = is_granite and (".o_proj." in name or ".down_proj." in name)
    return float(values.get("residual_multiplier", 1.0)) if joins else 1.0


def _multiplied(name: str, tensor: Tensor, values: Values) -> Tensor:
    if name == "model.norm.weight":
        return tensor / float(values.get("logits_scaling", 1.0))
    factor = factor_of(name, values)
    return tensor if factor == 1.0 else tensor * factor


def name_in_llama(name: str, placement: NormPlacement) -> str:
    """Translate our `name` of a weight into the file's."""
    module, _, kind = name.rpartition(".")
    if module in OUTSIDE_LAYERS:
        return f"{OUTSIDE_LAYERS[module]}.{kind}"
    _, index, rest = module.split(".", maxsplit=2)
    stored = FEED_FORWARD_NORM[placement] if rest == "feed_forward_norm" else LAYER[rest]
    return f"model.layers.{index}.{stored}.{kind}"
