"""Folders of tiny encoder-decoders as `transformers` writes them, with random weights."""

from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import Unigram
from tokenizers.processors import TemplateProcessing

VOCAB_SIZE = 60
BART: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 40,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": None,
}
T5: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "d_model": 32,
    "d_kv": 16,  # 3 heads of 16 are not 32 values
    "d_ff": 48,
    "num_layers": 2,
    "num_heads": 3,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 20,
    "pad_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}
MARIAN = {**BART, "scale_embedding": True, "activation_function": "swish"}
MARIAN |= {"decoder_start_token_id": 1}
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "marian": ("marian", MARIAN),
    "bart": ("bart", BART),
    "bart with one layer that writes": ("bart", {**BART, "decoder_layers": 1}),
    "mbart": ("mbart", {**BART, "scale_embedding": True, "activation_function": "relu"}),
    "m2m_100": ("m2m_100", {**BART, "scale_embedding": True, "activation_function": "relu"}),
    "t5": ("t5", T5),
    "t5 v1.1": (
        "t5",
        {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    ),
    "mt5 with three layers that write": ("mt5", {**T5, "num_decoder_layers": 3}),
}


def network_of(family: str, **changes: Any) -> Any:
    """Random in every tensor: biases, norms and what is added to logits too."""
    torch.manual_seed(4)
    kind, sizes = FAMILIES[family]
    config = transformers.AutoConfig.for_model(kind, **{**sizes, **changes})
    config._attn_implementation = "eager"
    model = transformers.AutoModelForSeq2SeqLM.from_config(config)  # type: ignore[no-untyped-call]
    model.train(False)
    std = 0.2 if "t5" in kind else 0.3  # T5 does not divide scores
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_fixed = kind == "marian" and "embed_positions" in name
            if not is_fixed:
                is_norm = parameter.dim() == 1 and name.endswith("weight")
                parameter.normal_(std=std).add_(1.0 if is_norm else 0.0)
        if kind == "marian":
            model.final_logits_bias.normal_(std=0.3)
    return model


def tokenizer_of(end: str = "</s>") -> Tokenizer:
    """Pieces of letters, as SentencePiece has them; a source ends with `end`."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    pieces = ["<s>", "<pad>", end, "<unk>", "\u2581", *letters, *(f"\u2581{c}" for c in letters)]
    tokenizer = Tokenizer(Unigram([(piece, -1.0) for piece in pieces], unk_id=3))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(["<s>", "<pad>", end, "<unk>"])
    tokenizer.post_processor = TemplateProcessing(single=f"$A {end}", special_tokens=[(end, 2)])
    return tokenizer


def write_folder(family: str, folder: Path, **changes: Any) -> Any:
    """The network that the folder holds."""
    model = network_of(family, **changes)
    model.save_pretrained(folder)
    tokenizer_of().save(str(folder / "tokenizer.json"))
    return model
