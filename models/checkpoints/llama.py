"""How Hugging Face's decoders say what `models/networks/llama.py` calls by one name.

Knows nothing about folders; a path is only for messages. Each family is an entry of `FAMILIES`:
what config.json means where it is silent (the defaults of its class in transformers), and what is
its own. Whatever can be folded into weights is: Gemma's norms store weight - 1, Phi-3 stores
products side by side, Granite multiplies what joins the residual stream and divides logits.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from models.checkpoints.families import activation
from models.checkpoints.ropes import RopeRequest, Values, rope_of
from models.errors import CheckpointError, SettingError
from models.networks.llama import NO_ROPE, LlamaConfig, NormPlacement, QueryKeyNorm, Rope

OUTPUT, WORDS = "lm_head.weight", "model.embed_tokens.weight"
FULL, SLIDING = "full_attention", "sliding_attention"
NEVER_NEEDED = re.compile(r"rotary_emb\.inv_freq$|^(vision_tower|multi_modal_projector)\.")
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
ELSEWHERE = (
    "export it to ONNX with another tool, for example optimum, and put the graph into the model "
    "repository"
)
# Fields that change what is computed in a way that this network has not.
REFUSED = ("quantization_config", "num_local_experts", "num_experts", "use_bidirectional_attention")
LLAMA_DEFAULTS: Values = {
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": None,
    "head_dim": None,
    "vocab_size": 32000,
    "max_position_embeddings": 2048,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "rope_theta": 10_000.0,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
}
GEMMA_DEFAULTS: Values = {
    **LLAMA_DEFAULTS,
    "hidden_act": "gelu_pytorch_tanh",
    "head_dim": 256,
    "vocab_size": 256_000,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
    "sliding_window": 4096,
    "query_pre_attn_scalar": 256,
}
GEMMA2_SIZES: Values = {
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
}
QWEN_DEFAULTS: Values = {
    **LLAMA_DEFAULTS,
    "intermediate_size": 22016,
    "num_key_value_heads": 32,
    "vocab_size": 151_936,
    "max_position_embeddings": 32768,
    "use_sliding_window": False,
    "sliding_window": 4096,
    "max_window_layers": 28,
}
OLMO_DEFAULTS: Values = {**LLAMA_DEFAULTS, "vocab_size": 50304, "rms_norm_eps": 1e-5}
GRANITE_MULTIPLIERS = (
    "embedding_multiplier",
    "logits_scaling",
    "residual_multiplier",
    "attention_multiplier",
)


def _no_window(_: Values, __: int) -> int:
    return 0


def _always(values: Values, _: int) -> int:
    return int(values["sliding_window"] or 0)


def _qwen_window(values: Values, layer: int) -> int:
    is_on = values["use_sliding_window"] and layer >= int(values["max_window_layers"])
    return int(values["sliding_window"] or 0) if is_on else 0


def _but_every(interval: Callable[[Values], int]) -> Callable[[Values, int], int]:
    """Windows in all layers but each whose number, from 1, is a multiple of the interval."""
    return lambda values, layer: _always(values, 0) if (layer + 1) % interval(values) else 0


def _smollm_window(values: Values, layer: int) -> int:
    is_on = values["use_sliding_window"] and not _smollm_rotates(values, layer)
    return int(values["sliding_window"] or 0) if is_on else 0


def _smollm_rotates(values: Values, layer: int) -> bool:
    listed = values.get("no_rope_layers")
    if listed is not None:
        return bool(listed[layer])
    return (layer + 1) % int(values["no_rope_layer_interval"]) != 0


@dataclass(frozen=True, slots=True)
class DecoderFamily:
    """What one model_type means."""

    defaults: Values = field(default_factory=lambda: LLAMA_DEFAULTS)
    norm_placement: NormPlacement = "pre"
    query_key_norm: QueryKeyNorm = "none"
    has_query_key_value_bias: bool = False  # without a field that says so
    window: Callable[[Values, int], int] = _no_window  # of a layer that `layer_types` does not name
    has_layer_types: bool = False
    rotates: Callable[[Values, int], bool] = lambda _, __: True
    local_theta: str | None = (
        None  # field of the base of layers with windows, which are not stretched
    )
    has_own_ropes: bool = False  # layers with windows have a rope of their own
    activation: str = "hidden_act"  # the field's name
    scales_words: bool = False  # by sqrt(D)
    adds_one: bool = False  # to the weights of norms
    scale: Callable[[Values], float | None] = lambda _: None  # of scores
    rope_names: Mapping[str, str] = field(default_factory=dict)  # kinds that files misname


FAMILIES: Mapping[str, DecoderFamily] = {
    "llama": DecoderFamily(),
    "mistral": DecoderFamily(
        {
            **LLAMA_DEFAULTS,
            "intermediate_size": 14336,
            "num_key_value_heads": 8,
            "max_position_embeddings": 4096 * 32,
            "sliding_window": 4096,
        },
        window=_always,
    ),
    "qwen2": DecoderFamily(
        QWEN_DEFAULTS, has_query_key_value_bias=True, window=_qwen_window, has_layer_types=True
    ),
    "qwen3": DecoderFamily(
        {**QWEN_DEFAULTS, "head_dim": 128},
        query_key_norm="head",
        window=_qwen_window,
        has_layer_types=True,
    ),
    "gemma": DecoderFamily(
        {
            **GEMMA_DEFAULTS,
            "hidden_size": 3072,
            "intermediate_size": 24576,
            "num_hidden_layers": 28,
            "num_attention_heads": 16,
            "num_key_value_heads": 16,
        },
        scales_words=True,
        adds_one=True,
    ),
    "gemma2": DecoderFamily(
        {
            **GEMMA_DEFAULTS,
            **GEMMA2_SIZES,
            "hidden_activation": "gelu_pytorch_tanh",
            "attn_logit_softcapping": 50.0,
            "final_logit_softcapping": 30.0,
        },
        norm_placement="both",
        window=_but_every(lambda _: 2),
        has_layer_types=True,
        activation="hidden_activation",
        scales_words=True,
        adds_one=True,
        scale=lambda values: float(values["query_pre_attn_scalar"]) ** -0.5,
    ),
    "gemma3_text": DecoderFamily(
        {
            **GEMMA_DEFAULTS,
            **GEMMA2_SIZES,
            "hidden_activation": "gelu_pytorch_tanh",
            "vocab_size": 262_208,
            "max_position_embeddings": 131_072,
            "rope_theta": 1_000_000.0,
            "rope_local_base_freq": 10_000.0,
            "sliding_window_pattern": 6,
        },
        norm_placement="both",
        query_key_norm="head",
        window=_but_every(lambda values: int(values["sliding_window_pattern"])),
        has_layer_types=True,
        local_theta="rope_local_base_freq",
        has_own_ropes=True,
        activation="hidden_activation",
        scales_words=True,
        adds_one=True,
        scale=lambda values: float(values["query_pre_attn_scalar"]) ** -0.5,
    ),
    "phi3": DecoderFamily(
        {
            **LLAMA_DEFAULTS,
            "hidden_size": 3072,
            "intermediate_size": 8192,
            "vocab_size": 32064,
            "max_position_embeddings": 4096,
            "original_max_position_embeddings": 4096,
            "rms_norm_eps": 1e-5,
            "sliding_window": None,
        },
        window=_always,
        rope_names={"yarn": "longrope", "su": "longrope"},
    ),
    "smollm3": DecoderFamily(
        {
            **LLAMA_DEFAULTS,
            "hidden_size": 2048,
            "num_hidden_layers": 36,
            "num_attention_heads": 16,
            "num_key_value_heads": 4,
            "vocab_size": 128_256,
            "max_position_embeddings": 32768,
            "rope_theta": 2_000_000.0,
            "tie_word_embeddings": True,
            "use_sliding_window": False,
            "sliding_window": None,
            "no_rope_layer_interval": 4,
        },
        window=_smollm_window,
        has_layer_types=True,
        rotates=_smollm_rotates,
    ),
    "olmo2": DecoderFamily(OLMO_DEFAULTS, norm_placement="post", query_key_norm="all"),
    "olmo3": DecoderFamily(
        {**OLMO_DEFAULTS, "rope_theta": 500_000.0, "sliding_window": 4096},
        norm_placement="post",
        query_key_norm="all",
        window=_but_every(lambda _: 4),
        has_layer_types=True,
        local_theta="rope_theta",
        has_own_ropes=True,
    ),
    "granite": DecoderFamily(
        {**LLAMA_DEFAULTS, **dict.fromkeys(GRANITE_MULTIPLIERS, 1.0)},
        scale=lambda values: float(values["attention_multiplier"]),
    ),
}
# A model of images and texts, of which the part that writes texts is taken.
WITH_TEXT_CONFIG = {"gemma3": "gemma3_text"}


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
    for name in REFUSED:
        if given.get(name):
            raise CheckpointError(f"{path}: {name} is not supported: {ELSEWHERE}")
    values = {**family.defaults, **given}
    num_layers, num_heads = int(values["num_hidden_layers"]), int(values["num_attention_heads"])
    hidden_size, max_positions = int(values["hidden_size"]), _max_positions(values, context)
    head_size = int(values.get("head_dim") or hidden_size // num_heads)
    windows = tuple(_window(family, values, layer) for layer in range(num_layers))
    ropes, layer_ropes = _ropes(family, given, values, head_size, windows, max_positions)
    has_attention_bias = bool(values["attention_bias"])
    return LlamaConfig(
        vocab_size=int(values["vocab_size"]),
        hidden_size=hidden_size,
        intermediate_size=int(values["intermediate_size"]),
        num_layers=num_layers,
        num_heads=num_heads,
        num_kv_heads=int(values["num_key_value_heads"] or num_heads),
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
    )


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
    return activation(name, family.activation)


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
    for stored, tensor in tensors.items():
        name = _plain_name(stored)
        if not NEVER_NEEDED.search(name):
            found |= _unpacked(name, tensor, config)
    output = found.get(OUTPUT)
    if config.is_tied and output is not None:
        if WORDS in found and not torch.equal(output, found[WORDS]):
            raise CheckpointError(
                f"{path}: {OUTPUT} differs from {WORDS}, but tie_word_embeddings says that they "
                "are one"
            )
        del found[OUTPUT]
    if family.adds_one:
        found = {name: _plus_one(name, tensor) for name, tensor in found.items()}
    if values["model_type"] == "granite":
        found = {name: _multiplied(name, tensor, values) for name, tensor in found.items()}
    return found


def _plain_name(name: str) -> str:
    """Without what models of images and texts put before it, and with the prefix of all others."""
    name = name.removeprefix("model.language_model.").removeprefix("language_model.")
    is_whole = name.startswith(("model.", "lm_head.", "vision_tower.", "multi_modal_projector."))
    return name if is_whole else f"model.{name}"


def _unpacked(name: str, tensor: Tensor, config: LlamaConfig) -> dict[str, Tensor]:
    """Products that Phi-3 stores side by side; others as they are."""
    query, key = config.num_heads * config.head_size, config.num_kv_heads * config.head_size
    half = config.intermediate_size
    for packed, parts, sizes in (
        ("qkv_proj", ("q_proj", "k_proj", "v_proj"), (query, key, key)),
        ("gate_up_proj", ("gate_proj", "up_proj"), (half, half)),
    ):
        if f".{packed}." in name and tensor.shape[0] == sum(sizes):
            split = torch.split(tensor, list(sizes))
            return {
                name.replace(packed, part): each.contiguous()
                for part, each in zip(parts, split, strict=True)
            }
    return {name: tensor}


def _plus_one(name: str, tensor: Tensor) -> Tensor:
    return tensor + 1.0 if NORMS.search(name) else tensor


def _multiplied(name: str, tensor: Tensor, values: Values) -> Tensor:
    if ".o_proj." in name or ".down_proj." in name:
        return tensor * float(values.get("residual_multiplier", 1.0))
    if name == "model.norm.weight":
        return tensor / float(values.get("logits_scaling", 1.0))
    return tensor


def name_in_llama(name: str, placement: NormPlacement) -> str:
    """Translate our `name` of a weight into the file's."""
    module, _, kind = name.rpartition(".")
    if module in OUTSIDE_LAYERS:
        return f"{OUTSIDE_LAYERS[module]}.{kind}"
    _, index, rest = module.split(".", maxsplit=2)
    stored = FEED_FORWARD_NORM[placement] if rest == "feed_forward_norm" else LAYER[rest]
    return f"model.layers.{index}.{stored}.{kind}"
