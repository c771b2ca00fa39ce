"""The families of decoders: what config.json means where it is silent, and what is each one's own.

Knows nothing about files or weights. Silent fields have the defaults of the family's class in
transformers, which a test compares.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from models.checkpoints.ropes import Values
from models.networks.llama import NormPlacement, QueryKeyNorm

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
    """Meaning of one model_type."""

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
    can_look_ahead: bool = False  # where use_bidirectional_attention says so
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
        can_look_ahead=True,
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
