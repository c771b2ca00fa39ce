"""Small networks of transformers with random weights, of any model_type; nothing is downloaded.

Sizes are set where a configuration has them under any of the names that configurations use; every
other field is the family's own default. Scores are as large as trained ones, and norms and biases
are moved off one and zero, as what is wrong there shows only then.
"""

from collections.abc import Callable
from typing import Any

import torch
import transformers

from models.checkpoints.traced_types import causal_classes
from models.networks.reader_makers import FACTORIES, reader_of
from models.networks.traced import TracedConfig, TracedDecoder, class_of
from models.networks.traced_readers import (
    TracedEmbedder,
    TracedMaskedWords,
    TracedReader,
)

VOCABULARY, CONTEXT, WINDOW, HIDDEN = 160, 160, 8, 64
PADDING, END, MASK = 3, 2, 5
SIZES: dict[str, Any] = {
    **dict.fromkeys(
        ("hidden_size", "n_embd", "d_model", "embed_dim", "word_embed_proj_dim"), HIDDEN
    ),
    **dict.fromkeys(("dim", "embedding_size"), HIDDEN),
    **dict.fromkeys(("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"), 96),
    **dict.fromkeys(("decoder_ffn_dim", "encoder_ffn_dim", "d_ff", "hidden_dim"), 96),
    **dict.fromkeys(("dense_intermediate_size", "intermediate_size_mlp"), 96),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 32),
    **dict.fromkeys(("shared_intermediate_size", "expert_ffn_hidden_size"), 32),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "decoder_layers"), 2),
    **dict.fromkeys(("num_layers", "encoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 4),
    **dict.fromkeys(("decoder_attention_heads", "encoder_attention_heads", "attention_heads"), 4),
    **dict.fromkeys(
        ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num"), 2
    ),
    **dict.fromkeys(("head_dim", "kv_channels", "d_kv", "global_head_dim"), 16),
    **dict.fromkeys(("qk_rope_head_dim",), 8),
    **dict.fromkeys(("qk_nope_head_dim", "v_head_dim", "qk_head_dim"), 16),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank"), 24),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len", "n_ctx"), CONTEXT),
    **dict.fromkeys(("max_sequence_length", "seq_length", "max_target_positions"), CONTEXT),
    **dict.fromkeys(("sliding_window", "window_size", "attention_window_size"), WINDOW),
    **dict.fromkeys(("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "moe_k", "num_experts_per_token", "moe_topk"), 2),
    **dict.fromkeys(("n_group", "topk_group", "num_expert_groups", "n_shared_experts"), 1),
    **dict.fromkeys(("first_k_dense_replace", "num_dense_layers", "moe_num_shared_experts"), 1),
    **dict.fromkeys(("vocab_size", "vocab_size_per_layer_input"), VOCABULARY),
    **dict.fromkeys(("hidden_size_per_layer_input",), 16),
    **dict.fromkeys(("mamba_d_head", "mamba_head_dim", "mamba_headdim"), 32),
    **dict.fromkeys(("mamba_d_state", "ssm_state_size", "state_size"), 12),
    **dict.fromkeys(("mamba_n_heads", "mamba_num_heads", "n_mamba_heads"), 4),
    **dict.fromkeys(("mamba_n_groups", "mamba_ngroups", "n_groups", "attn_layer_period"), 2),
    **dict.fromkeys(("mamba_d_ssm",), 128),
    **dict.fromkeys(("mamba_dt_rank", "time_step_rank", "attn_layer_offset"), 1),
    **dict.fromkeys(("linear_num_key_heads",), 2),
    **dict.fromkeys(("linear_num_value_heads", "linear_num_heads"), 4),
    **dict.fromkeys(("linear_key_head_dim", "linear_head_dim"), 16),
    **dict.fromkeys(("linear_value_head_dim",), 24),
    **dict.fromkeys(("rotary_dim", "qk_rope_dim"), 8),
    **dict.fromkeys(("query_pre_attn_scalar",), 24),
    **dict.fromkeys(("layer_norm_groups",), 4),
    **dict.fromkeys(("local_attention",), 2 * WINDOW),
    **dict.fromkeys(("depth", "vision_n_layers"), 1),
    "default_language": "en_XX",
    "bos_token_id": 1,
    "eos_token_id": END,
    "pad_token_id": PADDING,
}
# Of which each layer has one of its own: as many entries as layers.
BY_LAYER = (
    "layer_types",
    "mlp_layer_types",
    "layers_block_type",
    "no_rope_layers",
    "mlp_only_layers",
)

# Of families whose default has one kind of layers: a layer with states and one without, by a field.
HYBRIDS: dict[str, dict[str, Any]] = {
    "conv_L_cache": {"layer_types": ["conv", "full_attention"]},
    "attn_layer_indices": {"attn_layer_indices": [1]},
    "mamba_d_head": {"layer_types": ["linear_attention", "full_attention"]},
    "n_mamba_heads": {"layers_block_type": ["linear_attention", "hybrid"]},
    "mamba_head_dim": {"layers_block_type": ["linear_attention", "full_attention", "mlp"]},
}


def tiny_config(model_type: str, **changes: Any) -> Any:
    """A small configuration; layers are the family's first of each kind, at least two."""
    factory: Any = transformers.CONFIG_MAPPING[model_type]
    default = factory()
    stated = {**default.to_dict(), **dict.fromkeys(getattr(default, "attribute_map", {}))}
    values = {name: value for name, value in SIZES.items() if name in stated}
    if "qk_rope_head_dim" in stated:  # in which `head_dim` is that of the rotated part
        values["head_dim"] = values["qk_rope_head_dim"]
    if "expand" in stated and "num_heads" in stated:  # heads share what inner layers have
        values["head_dim"] = default.expand * HIDDEN // values["num_heads"]
    if "kv_lora_rank" in stated:  # from which each head has keys of its own
        values["num_key_value_heads"] = SIZES["num_attention_heads"]
    ropes = stated.get("rope_parameters")
    if isinstance(ropes, dict) and "_vl" in model_type:  # pairs of a head by time, row and column
        values["rope_parameters"] = {**ropes, "mrope_section": [2, 3, 3]}
    if "attention_types" in stated:
        values["attention_types"] = [[["global", "local"], 1]]
    layers = stated.get("layer_types")
    of_states = next((HYBRIDS[name] for name in HYBRIDS if name in stated), {})
    if "mamba_d_ssm" in stated:  # has both in each layer
        of_states = {}
    if of_states.keys() & stated.keys() and len(set(layers or ())) < 2:
        values |= of_states
    elif isinstance(layers, list) and len(set(layers)) > 1:
        kinds = list(dict.fromkeys(layers))
        values["layer_types"] = kinds if len(kinds) > 1 else kinds * 2
        values["num_hidden_layers"] = len(values["layer_types"])
    elif isinstance(layers, list):
        values["layer_types"] = layers[:1] * 2
    for part in getattr(default, "sub_configs", {}):
        of_part = getattr(default, part, None)
        if (
            of_part is not None and of_part.model_type
        ):  # of texts, or of other media, which are small then
            values[part] = tiny_config(of_part.model_type, **changes).to_dict()
    return factory(**{**values, **changes})


def tiny_network(config: Any, choose: Callable[[Any], Any], gain: float = 0.2) -> Any:
    """A network of random weights, norms and biases among them; padding's row is zeros."""
    torch.manual_seed(2)
    made = choose(config)._from_config(config, attn_implementation="eager", dtype=torch.float32)
    network = made.eval()
    network.requires_grad_(requires_grad=False)
    for parameter in network.parameters():
        noise = torch.randn_like(parameter) * gain
        parameter.copy_(parameter + noise if parameter.dim() == 1 else noise)
    network.get_input_embeddings().weight[PADDING] = 0  # as PyTorch keeps the row of padding
    return network


def class_in(factory: str) -> Callable[[Any], Any]:
    """The class of a configuration by a factory of transformers."""
    return lambda config: getattr(transformers, factory)._model_mapping[type(config)]


def tiny_reader(
    model_type: str, kind: type[TracedReader] = TracedEmbedder, gain: float = 0.2, **changes: Any
) -> TracedReader:
    """A network that reads texts, as an import has it."""
    options = {"mask_token_id": MASK} if kind is TracedMaskedWords else {}
    choose = class_in(FACTORIES[kind])
    network = tiny_network(tiny_config(model_type, **changes), choose, gain)
    return reader_of(network, kind, **options)


def tiny_decoder(model_type: str, *, gain: float = 0.2, **changes: Any) -> TracedDecoder:
    """A network as an import has it."""
    config = tiny_config(model_type, **changes)
    text = config.get_text_config()
    if text is not config:  # as a folder with other media states it
        config.architectures = [causal_classes()[model_type][-1]]
    network = tiny_network(config, class_of, gain)
    sizes = TracedConfig(
        {**config.to_dict(), "pad_token_id": PADDING},
        text.vocab_size,
        text.num_hidden_layers,
        text.hidden_size,
        changes.get("max_positions", CONTEXT),
        (END,),
    )
    return TracedDecoder(network, sizes)
