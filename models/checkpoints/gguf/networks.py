"""Networks of GGUF files as transformers' folders have them: fields of config.json and weights.

`ARCHITECTURES` has a row for each `general.architecture`. Names of keys and tensors, and what
llama.cpp's converters do to weights, are those of its gguf-py 0.19 and convert_hf_to_gguf.py.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.checkpoints.gguf.files import GgufFile
from models.errors import CheckpointError, shown

Array = NDArray[np.float32]
LAYERS = "model.layers."
OUTSIDE = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
IN_LAYERS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
NORMS_AROUND = {  # of networks with norms before and after each part, and after alone
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
# Tensors that repeat, or stand for, fields of config.json.
ROPE_FREQS, LONG, SHORT = (
    "rope_freqs.weight",
    "rope_factors_long.weight",
    "rope_factors_short.weight",
)
NEEDED = {
    "context_length": "max_position_embeddings",
    "block_count": "num_hidden_layers",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
}
OPTIONAL = {
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "rope.freq_base": "rope_theta",
}
LLAMA3_FREQS = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}


@dataclass(frozen=True, slots=True)
class Architecture:
    """A `general.architecture` as transformers has it, and the changes of its weights."""

    model_type: str
    class_name: str
    is_permuted: bool = False  # rows of queries and keys are in the order of rotated pairs
    adds_one: bool = False  # to the weights of norms
    names: Mapping[str, str] = field(default_factory=dict)
    own: Mapping[str, str] = field(default_factory=dict)  # further keys, by their fields
    fixed: Mapping[str, Any] = field(default_factory=dict)  # fields that no key has


_CAPS = {
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
}
_WINDOW = {"attention.sliding_window": "sliding_window"}
ARCHITECTURES: Mapping[str, Architecture] = {
    "llama": Architecture("llama", "LlamaForCausalLM", is_permuted=True),
    "qwen2": Architecture("qwen2", "Qwen2ForCausalLM"),
    "qwen3": Architecture("qwen3", "Qwen3ForCausalLM"),
    "gemma": Architecture("gemma", "GemmaForCausalLM", adds_one=True),
    "gemma2": Architecture(
        "gemma2", "Gemma2ForCausalLM", adds_one=True, names=NORMS_AROUND, own={**_CAPS, **_WINDOW}
    ),
    "gemma3": Architecture(
        "gemma3_text",
        "Gemma3ForCausalLM",
        adds_one=True,
        names=NORMS_AROUND,
        own={"final_logit_softcapping": "final_logit_softcapping", **_WINDOW},
        fixed={"rope_local_base_freq": 10_000.0, "sliding_window_pattern": 6},
    ),
    "phi3": Architecture(
        "phi3", "Phi3ForCausalLM", names={"ffn_up": "mlp.gate_up_proj"}, own=_WINDOW
    ),
    "smollm3": Architecture("smollm3", "SmolLM3ForCausalLM", is_permuted=True),
    "olmo2": Architecture("olmo2", "Olmo2ForCausalLM", names=NORMS_AROUND),
    "granite": Architecture(
        "granite",
        "GraniteForCausalLM",
        is_permuted=True,
        own={
            "embedding_scale": "embedding_multiplier",
            "residual_scale": "residual_multiplier",
            "attention.scale": "attention_multiplier",
            "logit_scale": "logits_scaling",
        },
    ),
}


def architecture_of(file: GgufFile) -> Architecture:
    """Raises CheckpointError for a file of another architecture, which it names."""
    name = file.keys.get("general.architecture")
    if name not in ARCHITECTURES:
        raise CheckpointError(
            f"{file.path}: general.architecture is {shown(name)}, expected one of "
            f"{', '.join(ARCHITECTURES)}; import the folder of transformers that it was made of"
        )
    return ARCHITECTURES[str(name)]


def config_of(file: GgufFile) -> dict[str, Any]:
    """The fields of config.json. Raises CheckpointError for a key that is missing."""
    architecture, prefix = architecture_of(file), file.keys["general.architecture"]
    stated = {key.removeprefix(f"{prefix}."): value for key, value in file.keys.items()}
    missing = [f"{prefix}.{key}" for key in NEEDED if key not in stated]
    if missing or "token_embd.weight" not in file.shapes:
        raise CheckpointError(
            f"{file.path}: {(*missing, 'token_embd.weight')[0]} is missing: copy the file again"
        )
    names = {**NEEDED, **OPTIONAL, **architecture.own}
    config: dict[str, Any] = {
        field: _number(stated[key], key, file) for key, field in names.items() if key in stated
    }
    config |= {
        "model_type": architecture.model_type,
        "architectures": [architecture.class_name],
        "vocab_size": file.shapes["token_embd.weight"][0],
        "tie_word_embeddings": "output.weight" not in file.shapes,
        **architecture.fixed,
    }
    config |= _heads(config, stated, file, architecture)
    scaling = _rope_scaling(config, stated, file)
    if scaling:
        config["rope_scaling"] = scaling
    for name in ("bos", "eos", "padding"):
        token = file.keys.get(f"tokenizer.ggml.{name}_token_id")
        if token is not None:
            config[f"{name.replace('padding', 'pad')}_token_id"] = token
    return config


def _number(value: Any, key: str, file: GgufFile) -> float:  # noqa: ANN401 - of a file
    if isinstance(value, list) and value and len(set(value)) == 1:
        value = value[0]  # for each layer the same
    if not isinstance(value, int | float):
        raise CheckpointError(
            f"{file.path}: {key} is {shown(value)}, expected one number for all layers"
        )
    return value


def _heads(
    config: Mapping[str, Any], stated: Mapping[str, Any], file: GgufFile, found: Architecture
) -> dict[str, Any]:
    """Fields that are computed from sizes, and those that a tensor tells by being there."""
    size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    fields: dict[str, Any] = {"head_dim": size}
    rotated = stated.get("rope.dimension_count", size)
    if rotated != size:
        fields["partial_rotary_factor"] = rotated / size
    if found.model_type in ("gemma2", "gemma3_text"):
        # The two largest scale by the width; all others by a head.
        largest = {"gemma2": 46, "gemma3_text": 62}[found.model_type]
        is_largest = config["num_hidden_layers"] == largest
        width = config["hidden_size"] // config["num_attention_heads"]
        fields["query_pre_attn_scalar"] = width if is_largest else size
    if found.model_type in ("llama", "granite", "smollm3"):
        fields["attention_bias"] = "blk.0.attn_q.bias" in file.shapes
        if found.model_type != "smollm3":
            fields["mlp_bias"] = "blk.0.ffn_up.bias" in file.shapes
    return fields


def _rope_scaling(
    config: Mapping[str, Any], stated: Mapping[str, Any], file: GgufFile
) -> dict[str, Any]:
    original = stated.get("rope.scaling.original_context_length")
    if LONG in file.shapes:
        return {
            "rope_type": "longrope",
            "long_factor": file.read(LONG).tolist(),
            "short_factor": file.read(SHORT).tolist(),
            "original_max_position_embeddings": original or config["max_position_embeddings"],
        }
    if ROPE_FREQS in file.shapes:
        return _llama3_scaling(file.read(ROPE_FREQS), config, file)
    kind, factor = stated.get("rope.scaling.type"), stated.get("rope.scaling.factor")
    if kind in (None, "none") or factor is None:
        return {}
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor}
    if kind == "yarn" and original:
        return {
            "rope_type": "yarn",
            "factor": factor,
            "original_max_position_embeddings": original,
        }
    raise CheckpointError(f"{file.path}: rope.scaling.type is {shown(kind)}, which is not known")


def _llama3_scaling(factors: Array, config: Mapping[str, Any], file: GgufFile) -> dict[str, Any]:
    """Llama 3's scaling, which gave these factors of frequencies.

    The file has the factors alone. Those of the published models come of one form with few values;
    a file with others is refused.
    """
    size, theta = config["head_dim"], config.get("rope_theta", 10_000.0)
    frequencies = theta ** -(np.arange(0, size, 2) / size)
    largest = float(factors.max())
    for original in (8192, *(1 << power for power in range(4, 18))):
        scaling = {
            "rope_type": "llama3",
            "factor": largest,
            "original_max_position_embeddings": original,
            **LLAMA3_FREQS,
        }
        if np.allclose(_factors(frequencies, largest, original), factors, rtol=1e-4):
            return scaling
    raise CheckpointError(
        f"{file.path}: {ROPE_FREQS} has factors that are not those of Llama 3's scaling"
    )


def _factors(frequencies: NDArray[np.float64], factor: float, original: int) -> NDArray[np.float64]:
    low, high = LLAMA3_FREQS["low_freq_factor"], LLAMA3_FREQS["high_freq_factor"]
    lengths = 2 * math.pi / frequencies
    smooth = (original / lengths - low) / (high - low)
    between = 1 / ((1 - smooth) / factor + smooth)
    return np.where(
        lengths < original / high, 1, np.where(lengths > original / low, factor, between)
    )


def names_of(file: GgufFile) -> dict[str, str]:
    """Names of tensors in transformers' folders by those in the file.

    Raises CheckpointError for a tensor that no row of the architecture names.
    """
    own = {**IN_LAYERS, **architecture_of(file).names}
    names, unknown = {}, []
    for name in file.shapes:
        if name in (ROPE_FREQS, LONG, SHORT):
            continue  # in config.json
        layer, _, rest = name.removeprefix("blk.").partition(".")
        part, _, end = rest.rpartition(".")
        if name in OUTSIDE:
            names[name] = OUTSIDE[name]
        elif name.startswith("blk.") and layer.isdigit() and part in own:
            names[name] = f"{LAYERS}{layer}.{own[part]}.{end}"
        else:
            unknown.append(name)
    if unknown:
        raise CheckpointError(
            f"{file.path} has {unknown[0]} and {len(unknown) - 1} more tensors that a "
            f"{file.keys['general.architecture']} is not known to have"
        )
    return names


def weight_of(file: GgufFile, stored: str) -> Array:
    """The weight of this name in the file, as transformers' network has it."""
    weight, order = file.read(stored), rows_in_halves(file, stored)
    if order is not None:
        weight = weight[order]
    if architecture_of(file).adds_one and stored.endswith("norm.weight"):
        weight = weight - 1
    return weight


def rows_in_halves(file: GgufFile, stored: str) -> NDArray[np.int64] | None:
    """The order of rows with the first numbers of all pairs of a head in front.

    So transformers rotates queries and keys. None for weights whose rows stay as they are.
    """
    fields = {".attn_q.": "num_attention_heads", ".attn_k.": "num_key_value_heads"}
    field = next((fields[part] for part in fields if part in stored), None)
    if field is None or not architecture_of(file).is_permuted:
        return None
    config = config_of(file)
    heads = int(config.get(field, config["num_attention_heads"]))
    places = np.arange(file.shapes[stored][0]).reshape(heads, -1, 2)
    return np.swapaxes(places, 1, 2).ravel()
