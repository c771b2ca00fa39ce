"""Fields of config.json: each is read, harmless for a reason, or refused.

Fields that only some families have in transformers are refused in others' files, where transformers
passes over them and the network would be another. A field that no table has changes nothing that
transformers computes: it is named in a remark, or refused where the folder has code of its own,
which may read it. `models/checkpoints/decoder_fields.py` has the bounds of values.
"""

from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from models.checkpoints.architectures import OWN_CODE, has_own_code
from models.checkpoints.decoder_families import FAMILIES as DECODERS
from models.checkpoints.decoder_families import WITH_TEXT_CONFIG
from models.checkpoints.decoder_fields import BY_LAYER, NUMBERS, SIZES, WHOLE
from models.checkpoints.families import FAMILIES as ENCODERS
from models.checkpoints.gpt2 import GPT2
from models.checkpoints.rounded.declared import FIELDS as ROUNDED
from models.checkpoints.rounded.declared import rounding_of
from models.checkpoints.seq2seq import SEQ2SEQ
from models.checkpoints.vit import ARCHITECTURES as IMAGES
from models.checkpoints.ways_out import ELSEWHERE
from models.errors import CheckpointError, shown
from models.remarks import remark

Names = tuple[str, ...]
CODE_IS_NOT_RUN = "the folder's own code is never run, and may read it"
HEADS: Names = (
    *("architectures", "model_type", "id2label", "label2id", "num_labels", "problem_type"),
    *("sentence_transformers", "sbert_ce_default_activation_function", "matryoshka_dimensions"),
    *("tie_word_embeddings", "pad_token_id", "eos_token_id", "vocab_size"),
)
ROPES: Names = (
    *("rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor"),
    *("rope_local_base_freq", "original_max_position_embeddings"),
)
READ: Mapping[str, Names] = {
    "encoder": (
        *SIZES,
        *("type_vocab_size", "layer_norm_eps", "hidden_act", "hidden_dropout_prob"),
        *("classifier_dropout", "position_embedding_type", "is_decoder", "is_causal", "head_dim"),
        *("dim", "n_layers", "n_heads", "hidden_dim", "activation", "dropout"),  # DistilBERT
        "seq_classif_dropout",
        *("embedding_size", "num_hidden_groups", "inner_group_num", "classifier_dropout_prob"),
        "relative_attention_num_buckets",
        *("relative_attention", "max_relative_positions", "position_buckets", "norm_rel_ebd"),
        *("share_att_key", "pos_att_type", "position_biased_input", "pooler_hidden_act"),
        *("pooler_hidden_size", "attention_head_size", "conv_kernel_size", "legacy", "cls_dropout"),
        *("hidden_activation", "norm_eps", "norm_bias", "attention_bias", "mlp_bias"),
        *("mlp_dropout", "local_attention", "global_attn_every_n_layers", "global_rope_theta"),
        *("local_rope_theta", "layer_types", "decoder_bias", "classifier_bias"),
        *("classifier_pooling", "classifier_activation"),
        *("n_embd", "n_layer", "n_head", "n_inner", "n_positions", "layer_norm_epsilon"),  # Nomic
        *("resid_pdrop", "rotary_emb_base", "activation_function", "max_trained_positions"),
        *("prenorm", "causal", "parallel_block", "use_rms_norm", "qkv_proj_bias", "mlp_fc1_bias"),
        *("mlp_fc2_bias", "rotary_emb_fraction", "rotary_emb_interleaved", "moe_every_n_layers"),
        *("num_shared_experts", "layer_norm_type", "pack_qkv", "logn_attention_scale"),
        *ROPES,
    ),
    "decoder": (
        *(*SIZES, *WHOLE, *NUMBERS, *BY_LAYER, *ROPES),
        *("hidden_act", "hidden_activation", "attention_bias", "mlp_bias", "use_sliding_window"),
        *("is_causal", "use_bidirectional_attention", "text_config"),
    ),
    GPT2: (
        *("n_embd", "n_layer", "n_head", "n_inner", "n_positions", "layer_norm_epsilon"),
        *("activation_function", "resid_pdrop", "scale_attn_weights"),
        *("scale_attn_by_inverse_layer_idx", "is_causal", "add_cross_attention"),
    ),
    "encoder-decoder": (
        *("d_model", "encoder_layers", "decoder_layers", "encoder_attention_heads"),
        *("decoder_attention_heads", "encoder_ffn_dim", "decoder_ffn_dim", "dropout"),
        *("max_position_embeddings", "activation_function", "scale_embedding"),
        *("normalize_embedding", "normalize_before", "add_final_layer_norm"),
        *("static_position_embeddings", "share_encoder_decoder_embeddings"),
        *("num_layers", "num_decoder_layers", "num_heads", "d_kv", "d_ff", "n_positions"),
        *("layer_norm_epsilon", "dropout_rate", "feed_forward_proj", "scale_decoder_outputs"),
        *("relative_attention_num_buckets", "relative_attention_max_distance"),
        *("decoder_start_token_id", "forced_bos_token_id", "bad_words_ids", "num_hidden_layers"),
        *("is_causal", "hidden_size", "num_attention_heads"),
    ),
    "image": (
        *("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
        *("image_size", "patch_size", "num_channels", "qkv_bias", "layer_norm_eps", "hidden_act"),
        "hidden_dropout_prob",
    ),
}
HARMLESS: Mapping[str, Names] = {
    "decides only how weights are trained or initialised": (
        *("initializer_range", "initializer_factor", "initializer_cutoff_factor", "init_std"),
        *("attention_dropout", "attention_probs_dropout_prob", "attn_pdrop", "embd_pdrop"),
        *("resid_pdrop", "hidden_dropout_prob", "embedding_dropout", "pooler_dropout", "dropout"),
        *("qa_dropout", "seq_classif_dropout", "activation_dropout", "encoder_layerdrop"),
        *("decoder_layerdrop", "classif_dropout", "classifier_dropout", "cls_dropout"),
        *("gradient_checkpointing", "sparse_prediction", "sparse_pred_ignore_index", "layerdrop"),
        *("sinusoidal_pos_embds", "use_xentropy", "deterministic_flash_attn", "init_method"),
    ),
    "tells where the files come from, or how they are stored": (
        *("_name_or_path", "transformers_version", "torch_dtype", "dtype", "finetuning_task"),
        *("unsloth_version", "unsloth_fixed", "model_name", "license", "language", "_commit_hash"),
        *("pad_vocab_size_multiple", "vocab_size_or_config_json_file", "tokenizer_class"),
        *("model_max_length", "export_model_type", "name_or_path", "name", "auto_map"),
        *("add_bias_logits", "transformers.js_config", "processor_class"),
    ),
    "decides how, and not what, is computed or returned": (
        *("use_cache", "output_attentions", "output_hidden_states", "output_past", "return_dict"),
        *("torchscript", "use_bfloat16", "pretraining_tp", "chunk_size_feed_forward"),
        *("_attn_implementation", "attn_implementation", "_attn_implementation_autoset"),
        *("reference_compile", "repad_logits_with_grad", "unpad_inputs", "use_flash_attn"),
        *("use_memory_efficient_attention", "fused_bias_fc", "fused_dropout_add_ln", "fused_mlp"),
        *("reorder_and_upcast_attn", "return_dict_in_generate", "cache_implementation"),
        *("is_encoder_decoder", "use_return_dict", "dense_seq_output", "low_cpu_mem_usage"),
    ),
    "is of a head that is not read": (
        *("summary_activation", "summary_first_dropout", "summary_last_dropout"),
        *("summary_proj_to_labels", "summary_type", "summary_use_proj", "pooler_act"),
        *("pooler_output_size", "encoder_stride", "pooler_fc_size", "pooler_num_attention_heads"),
        *("pooler_num_fc_layers", "pooler_size_per_head", "pooler_type", "directionality"),
        *(
            "generator_size",
            "conv_act",
            "classifier_hidden_size",
            "net_structure_type",
            "num_memory_blocks",
        ),
        *("down_scale_factor", "gap_size", "vision_config", "image_token_index", "boi_token_index"),
        *("eoi_token_index", "mm_tokens_per_image", "image_token_id", "boi_token_id"),
        *("eoi_token_id",),
    ),
    "repeats what the tokenizer or another field says": (
        *("bos_token_id", "cls_token_id", "sep_token_id", "mask_token_id", "unk_token_id"),
        *("n_ctx", "model_max_length", "num_hidden_layers", "decoder_vocab_size", "head_dim"),
        *("tokenizer_class", "max_sequence_length", "max_seq_length", "classifier_proj_size"),
        *("is_decoder", "prefix", "parallel_block_tied_norm", "scale_attn_weights"),
        *("logn_attention_clip1", "max_trained_positions", "rotary_scaling_factor"),
        *("dense_act_fn", "is_gated_act"),
        *("sliding_window_pattern", "_sliding_window_pattern", "no_rope_layer_interval"),
    ),
    "is a default of what generates, which generation_config.json and requests state": (
        *("do_sample", "temperature", "top_k", "top_p", "typical_p", "max_length", "min_length"),
        *("num_beams", "num_beam_groups", "diversity_penalty", "length_penalty"),
        *("early_stopping", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size"),
        *("num_return_sequences", "repetition_penalty", "bad_words_ids", "output_scores"),
        *("forced_bos_token_id", "forced_eos_token_id", "remove_invalid_values"),
        *("exponential_decay_length_penalty", "suppress_tokens", "begin_suppress_tokens"),
        *("decoder_start_token_id", "task_specific_params", "max_new_tokens", "save_step"),
        *("force_bos_token_to_be_generated", "extra_pos_embeddings", "classif_dropout"),
    ),
}
# The value that a field must have, if any, whatever the family; None stands for nothing at all.
NOTHING: tuple[object, ...] = (None, False, 0, "", [], {})
ONLY: Mapping[str, Mapping[str, tuple[object, ...]]] = {
    "encoder": {
        "is_causal": (None, False),
        "add_cross_attention": NOTHING,
        "rotary_emb_scale_base": NOTHING,
    },
    "decoder": {"add_cross_attention": NOTHING, "bidirectional": NOTHING, "use_mrope": NOTHING},
    GPT2: {"use_bidirectional_attention": NOTHING, "bidirectional": NOTHING},
    "encoder-decoder": {"is_causal": (None, True), "is_decoder": (None, False)},
    "image": {},
}
FOR_ALL: Mapping[str, tuple[object, ...]] = {
    **dict.fromkeys(("num_local_experts", "num_experts", "n_routed_experts"), (None, 0)),
    **dict.fromkeys(("pruned_heads", "moe_num_experts"), NOTHING),
}
_NO_NUMBER: tuple[object, ...] = (None, 0, 0.0)
_ONE: tuple[object, ...] = (None, 1, 1.0)
_FALSE: tuple[object, ...] = (None, False)
# Of decoders: values that change nothing, and the families that have the field in transformers.
OWN_FIELDS: Mapping[str, tuple[tuple[object, ...], Names]] = {
    **dict.fromkeys(
        (
            *("embedding_multiplier", "logits_scaling", "residual_multiplier"),
            "attention_multiplier",
        ),
        (_ONE, ("granite",)),
    ),
    "attn_logit_softcapping": (_NO_NUMBER, ("gemma2",)),
    "final_logit_softcapping": (_NO_NUMBER, ("gemma2", "gemma3_text")),
    "partial_rotary_factor": (_ONE, ("phi3",)),
    "mlp_bias": (_FALSE, ("llama", "smollm3", "granite")),
    "attention_bias": (
        _FALSE,
        (
            *("llama", "qwen3", "gemma", "gemma2", "gemma3_text", "smollm3", "olmo2", "olmo3"),
            "granite",
        ),
    ),
}


def check_keys(values: Mapping[str, Any], path: Path) -> None:
    """Raise `CheckpointError` for a field whose meaning would be lost; remark on unknown ones."""
    kind = _kind(values)
    if kind is None:
        return  # refused by what reads its model_type
    rounding_of(values, path)
    own_text = values.get("text_config") if values.get("model_type") in WITH_TEXT_CONFIG else None
    for fields in (values, *([own_text] if isinstance(own_text, dict) else [])):
        for name, allowed in {**FOR_ALL, **ONLY[kind]}.items():
            _check(fields, name, allowed, path)
        if kind == "decoder":
            _check_own_fields(fields, values["model_type"], path)
        _check_unknown(fields, kind, path, has_code=has_own_code(values))
    if has_own_code(values):
        remark(
            f"{path}: {OWN_CODE} names code of the folder's own, which is never run: the network "
            f"is that of transformers for the model_type {shown(values['model_type'])}"
        )


def _kind(values: Mapping[str, Any]) -> str | None:
    model_type = values.get("model_type")
    tables: dict[str, Any] = {
        "encoder": ENCODERS,
        "decoder": (*DECODERS, *WITH_TEXT_CONFIG),
        GPT2: (GPT2,),
        "encoder-decoder": SEQ2SEQ,
        "image": IMAGES,
    }
    return next((kind for kind, types in tables.items() if model_type in tuple(types)), None)


def _check(values: Mapping[str, Any], name: str, allowed: tuple[object, ...], path: Path) -> None:
    value = values.get(name)
    if value in allowed:
        return
    if allowed is NOTHING:
        raise CheckpointError(
            f"{path}: {name} is not supported, and is {shown(value)}: {ELSEWHERE}"
        )
    raise CheckpointError(
        f"{path}: {name} is {shown(value)}, but only {allowed[1]!r} is supported: {ELSEWHERE}"
    )


def _check_own_fields(values: Mapping[str, Any], stated: str, path: Path) -> None:
    model_type = WITH_TEXT_CONFIG.get(stated, stated)
    for name, (neutral, families) in OWN_FIELDS.items():
        if model_type not in families and values.get(name) not in neutral:
            raise CheckpointError(
                f"{path}: {name} is {shown(values[name])}, which networks of the model_type "
                f"{shown(model_type)} do not have (only {', '.join(families)}): remove the field "
                "where it means nothing, as transformers passes over it"
            )
    family, kinds = DECODERS[model_type], values.get("layer_types")
    if kinds is None or family.has_layer_types or set(map(str, kinds)) <= {"full_attention"}:
        return
    raise CheckpointError(
        f"{path}: layer_types is {shown(kinds)}, which networks of the model_type "
        f"{shown(model_type)} do not have"
    )


def _check_unknown(values: Mapping[str, Any], kind: str, path: Path, *, has_code: bool) -> None:
    known = {*HEADS, *ROUNDED, *READ[kind], *chain(*HARMLESS.values()), *FOR_ALL, *ONLY[kind]}
    unknown = sorted(
        name for name, value in values.items() if name not in known and value not in NOTHING[:3]
    )
    if unknown and has_code:
        raise CheckpointError(
            f"{path}: {shown(unknown[0])} is {shown(values[unknown[0]])}, which is not known: "
            f"{CODE_IS_NOT_RUN}: {ELSEWHERE}"
        )
    if unknown:
        names = ", ".join(shown(name) for name in unknown[:20])
        rest = f" and {len(unknown) - 20} more" if len(unknown) > 20 else ""
        remark(f"{path}: not read, as transformers knows no such field: {names}{rest}")
