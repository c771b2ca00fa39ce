"""The families and the forms of their positions that are compared with transformers.

Each row is a small network with random weights, made by transformers; nothing is downloaded. Heads
are as large as the graph's attention wants them, and windows shorter than the texts.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer

from models.networks.traced import class_of
from tests.fakes.sentencepiece import sentencepiece_tokenizer

ORIGINAL = 32  # tokens of a text before positions were stretched; the texts of tests are longer
MAX_POSITIONS = 160
SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": MAX_POSITIONS,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
STRETCH = {"rope_theta": 500.0, "factor": MAX_POSITIONS / ORIGINAL}
LLAMA3 = {
    "rope_type": "llama3",
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": ORIGINAL,
    **STRETCH,
}
YARN = {"rope_type": "yarn", "original_max_position_embeddings": ORIGINAL, **STRETCH}
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 100.0,
    "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.7, 2.0],
    "long_factor": [1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0],
}
PLAIN = {"rope_type": "default", "rope_theta": 50.0}
LOCAL = [[["global", "local"], 1]]  # of GPT-Neo
ALTERNATING = ["sliding_attention", "full_attention"]


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table: a model_type, and what is special in this network of it."""

    kind: str
    checkpoints: str
    form: str
    changes: dict[str, Any] = field(default_factory=dict)
    context: int | None = None  # that it is imported for

    @property
    def name(self) -> str:
        """The name of the served model."""
        words = "".join(each if each.isalnum() else " " for each in f"{self.kind} {self.form}")
        return "-".join(words.split())

    def network(self, vocab_size: int) -> Any:
        """The network of transformers, random in every tensor: biases and norms too."""
        torch.manual_seed(2)
        values = {**SIZES, "vocab_size": vocab_size, **self.changes}
        if "text_config" in values:  # beside what reads images
            values["text_config"] = {**SIZES, "vocab_size": vocab_size, **values["text_config"]}
        config = transformers.AutoConfig.for_model(self.kind, **values)
        config._attn_implementation = "eager"
        network = class_of(config)._from_config(config)
        network.train(False)
        for parameter in network.parameters():
            torch.nn.init.normal_(parameter, std=0.2)
        return network


ROWS = (
    Row("llama", "Llama 2, TinyLlama", "plain, untied"),
    Row(
        "llama",
        "SmolLM2",
        "tied, biases, a head size of its own",
        {"tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True, "head_dim": 32},
    ),
    Row(
        "llama",
        "Llama 2, stretched",
        "linear positions",
        {"rope_parameters": {"rope_type": "linear", **STRETCH}},
    ),
    Row("llama", "Llama 3.1 to 3.3", "positions as Llama 3.1", {"rope_parameters": LLAMA3}),
    Row("mistral", "Mistral 7B v0.3, Nemo", "no window", {"sliding_window": None, "head_dim": 32}),
    Row("mistral", "Mistral 7B v0.1", "windows", {"sliding_window": 12}),
    Row("qwen2", "Qwen 2 and 2.5", "tied", {"tie_word_embeddings": True}),
    Row(
        "qwen2",
        "Qwen 2.5, stretched",
        "YaRN, windows",
        {
            "rope_parameters": YARN,
            "use_sliding_window": True,
            "sliding_window": 12,
            "max_window_layers": 1,
        },
    ),
    Row("qwen3", "Qwen 3", "norms of heads, tied", {"head_dim": 32, "tie_word_embeddings": True}),
    Row("gemma", "Gemma 1", "one head of keys", {"head_dim": 32, "num_key_value_heads": 1}),
    Row(
        "gemma2",
        "Gemma 2",
        "windows, softcaps",
        {"head_dim": 16, "sliding_window": 12, "query_pre_attn_scalar": 24},
    ),
    Row(
        "gemma3_text",
        "Gemma 3",
        "windows, two kinds of positions, linear",
        {
            "head_dim": 32,
            "sliding_window": 12,
            "query_pre_attn_scalar": 24,
            "layer_types": ALTERNATING,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", **STRETCH},
                "sliding_attention": PLAIN,
            },
        },
    ),
    Row("phi3", "Phi-3-mini-4k", "windows", {"sliding_window": 12}),
    Row(
        "phi3",
        "Phi-3.5-mini, within 4,096 tokens",
        "LongRoPE, short",
        {"rope_parameters": LONGROPE, "original_max_position_embeddings": MAX_POSITIONS},
    ),
    Row(
        "phi3",
        "Phi-4-mini, with a longer `--context`",
        "LongRoPE, long, part of a head",
        {
            "hidden_size": 128,
            "rope_parameters": {**LONGROPE, "partial_rotary_factor": 0.5},
            "original_max_position_embeddings": ORIGINAL,
        },
        MAX_POSITIONS,
    ),
    Row("smollm3", "SmolLM3", "a layer without positions", {"no_rope_layers": [1, 0]}),
    Row("olmo2", "OLMo 2", "norms behind each part"),
    Row(
        "olmo3",
        "OLMo 3",
        "windows, YaRN in full layers",
        {
            "sliding_window": 12,
            "layer_types": ALTERNATING,
            "rope_parameters": {"full_attention": YARN, "sliding_attention": PLAIN},
        },
    ),
    Row(
        "granite",
        "Granite 3, dense",
        "four multipliers",
        {
            "embedding_multiplier": 3.0,
            "logits_scaling": 4.0,
            "residual_multiplier": 0.4,
            "attention_multiplier": 0.2,
            "tie_word_embeddings": True,
        },
    ),
)

THIRDS = {"rope_type": "default", "rope_theta": 50.0, "mrope_section": [2, 3, 3]}
SMALL_VISION = {
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "head_dim": 16,
}
EXPERTS: dict[str, Any] = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
SHARED = {**EXPERTS, "shared_expert_intermediate_size": 32}
LINEAR: dict[str, Any] = {
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 24,
}
MAMBA = {"mamba_n_heads": 4, "mamba_d_head": 32, "mamba_d_state": 12, "mamba_n_groups": 2}
GRANITE: dict[str, Any] = {
    "layer_types": LINEAR["layer_types"],
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "shared_intermediate_size": 32,
}
GRANITE_FEED = {"shared_intermediate_size": 96, "num_experts_per_tok": 0}
# Of families that are traced from transformers' own code.
TRACED = (
    Row("glm4", "GLM-4-9B", "part of a head, in pairs", {"head_dim": 16}),
    Row("gpt_neox", "Pythia, GPT-NeoX", "parallel layers, part of a head"),
    Row("cohere2", "Command R7B", "windows", {"sliding_window": 12, "layer_types": ALTERNATING}),
    Row("qwen3_moe", "Qwen3-30B-A3B", "experts", {"head_dim": 16, **EXPERTS}),
    Row(
        "gpt_oss",
        "gpt-oss-20b",
        "experts, sinks, windows, YaRN",
        {"head_dim": 16, "sliding_window": 12, "num_local_experts": 4, "num_experts_per_tok": 2},
    ),
    Row("mixtral", "Mixtral 8x7B", "experts", {"num_local_experts": 4}),
    Row("starcoder2", "StarCoder2", "windows", {"sliding_window": 12}),
    Row("ernie4_5", "ERNIE-4.5-0.3B", "in pairs", {"head_dim": 16}),
    Row("hunyuan_v1_dense", "Hunyuan-1.8B", "norms of heads", {"head_dim": 16}),
    Row("gptj", "GPT-J 6B", "part of a head, in pairs", {"rotary_dim": 8}),
    Row("falcon", "Falcon 7B", "one head of keys"),
    Row("gpt_neo", "GPT-Neo 1.3B", "windows", {"window_size": 12, "attention_types": LOCAL}),
    Row("opt", "OPT-1.3B", "learned positions", {"ffn_dim": 96, "word_embed_proj_dim": 64}),
    Row("lfm2", "LFM2-350M", "short convolutions", {"layer_types": ["conv", "full_attention"]}),
    Row("qwen3_5_text", "Qwen3.5, its text", "the gated delta rule", {"head_dim": 16, **LINEAR}),
    Row("qwen3_next", "Qwen3-Next", "the same, experts", {"head_dim": 16, **LINEAR, **SHARED}),
    Row("granitemoehybrid", "Granite 4.0 H", "Mamba-2, experts", {**MAMBA, **GRANITE}),
    Row(
        "granitemoehybrid",
        "Granite 4.0 micro, dense",
        "attention in all layers",
        {**MAMBA, "layer_types": ["full_attention"] * 2, "num_local_experts": 0, **GRANITE_FEED},
    ),
    Row("mamba2", "Mamba-2", "no attention", {"num_heads": 4, "head_dim": 32, "n_groups": 2}),
    Row(
        "qwen3_vl",
        "Qwen3-VL-2B, texts alone",
        "beside images",
        {
            "text_config": {"head_dim": 16, "rope_parameters": THIRDS},
            "vision_config": {"depth": 1, "hidden_size": 32, "num_heads": 2, "out_hidden_size": 64},
        },
    ),
    Row(
        "qwen2_5_vl",
        "Qwen2.5-VL-3B, texts alone",
        "beside images",
        {
            "text_config": {"rope_parameters": THIRDS},
            "vision_config": {"depth": 1, "hidden_size": 32, "num_heads": 2, "out_hidden_size": 64},
        },
    ),
    Row(
        "mistral3",
        "Mistral Small 3.2, texts alone",
        "beside images",
        {
            "text_config": {"model_type": "mistral", "head_dim": 16},
            "vision_config": {"model_type": "pixtral", **SMALL_VISION},
        },
    ),
    Row(
        "gemma4",
        "Gemma 4 E2B, texts alone",
        "beside images and sounds, windows, values for each layer",
        {
            "text_config": {
                "head_dim": 16,
                "global_head_dim": 32,
                "sliding_window": 12,
                "layer_types": ALTERNATING,
                "hidden_size_per_layer_input": 16,
                "num_kv_shared_layers": 0,
            },
            "vision_config": SMALL_VISION,
            "audio_config": None,
        },
    ),
)

RICHEST = {row.kind: row for row in ROWS}  # of each model_type the last, which has most of its own


def tokenizer() -> Tokenizer:
    return sentencepiece_tokenizer("<|im_start|>", "<|im_end|>")


def write_folders(rows: Iterable[Row], folder: Path) -> dict[str, Any]:
    """Folders as the hub has them, by the rows' names; the networks that are in them."""
    library, networks = tokenizer(), {}
    for row in rows:
        networks[row.name] = row.network(library.get_vocab_size())
        networks[row.name].save_pretrained(folder / row.name)
        networks[row.name].name_or_path = str(folder / row.name)
        library.save(str(folder / row.name / "tokenizer.json"))
        if row in TRACED:  # whose classes of tokenizers would read this one as another
            settings = {"tokenizer_class": "PreTrainedTokenizerFast"}
            (folder / row.name / "tokenizer_config.json").write_text(json.dumps(settings))
    return networks
