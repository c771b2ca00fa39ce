"""How Hugging Face's encoder-decoders say what `models/networks/transformer.py` calls by one name.

Knows nothing about folders; a path is only for messages. What can be folded into weights is: T5
does not divide scores by the root of a head's size, and divides the input of a tied output layer by
that of the hidden size; the tables of positions of Marian and M2M100 are computed, and those of
BART begin with two rows that nothing reads.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from models.checkpoints.decoder_fields import MAX_LAYERS, MAX_POSITIONS
from models.checkpoints.family import activation
from models.checkpoints.left_out import Rule, is_same, renamed, without
from models.checkpoints.ways_out import ELSEWHERE
from models.errors import CheckpointError, SettingError, shown
from models.json_files import check_only, check_whole
from models.networks.layers import sinusoidal_table
from models.networks.transformer import TransformerConfig

Values = Mapping[str, Any]
Tensors = dict[str, Tensor]

WORDS, OUTPUT, OUTPUT_BIAS = "shared.weight", "lm_head.weight", "final_logits_bias"
# Where a file may hold the word vectors: of tied tables it has one, by any of their names.
WORDS_ELSEWHERE = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
POSITIONS = ("encoder.embed_positions.weight", "decoder.embed_positions.weight")
UNUSED_ROWS = 2  # at the beginning of BART's tables of positions
MARIAN, MBART, M2M100 = "marian", "mbart", "m2m_100"
COMPUTED_POSITIONS = (MARIAN, M2M100)
PRE_NORM = (MBART, M2M100)
T5_POSITIONS = 512  # trained lengths, which the files of T5 v1.1 do not state
COMPUTED = Rule.of(
    r"^(encoder|decoder)\.embed_positions\.weights?$",
    "positions, which are computed again as what reads these files does",
)
UNREAD_BIAS = Rule.of(
    r"\.EncDecAttention\.relative_attention_bias\.weight$",
    "distances to the source, which the first files of T5 have and nothing reads",
)

BOUNDS: Mapping[str, tuple[int, int]] = {  # of fields, as those of decoders have
    "vocab_size": (1, 2**24),
    "d_model": (1, 2**17),
    **dict.fromkeys(("encoder_layers", "decoder_layers", "num_layers"), (1, MAX_LAYERS)),
    "num_decoder_layers": (1, MAX_LAYERS),
    **dict.fromkeys(("encoder_attention_heads", "num_heads", "d_kv"), (1, 4_096)),
    **dict.fromkeys(("encoder_ffn_dim", "d_ff"), (1, 2**20)),
    **dict.fromkeys(("max_position_embeddings", "n_positions"), (1, MAX_POSITIONS)),
    "relative_attention_num_buckets": (4, 2**16),
    "relative_attention_max_distance": (4, 2**20),
}
BART_NAMES = {
    "words": "shared",
    "output": "lm_head",
    "positions.table": "encoder.embed_positions",
    "target_positions.table": "decoder.embed_positions",
    "words_norm": "encoder.layernorm_embedding",
    "target_words_norm": "decoder.layernorm_embedding",
    "encoder_norm": "encoder.layer_norm",
    "decoder_norm": "decoder.layer_norm",
}
BART_LAYER = {
    "attention": "self_attn",
    "attention_norm": "self_attn_layer_norm",
    "cross_attention": "encoder_attn",
    "cross_attention_norm": "encoder_attn_layer_norm",
    "feed_forward.expand": "fc1",
    "feed_forward.contract": "fc2",
    "output_norm": "final_layer_norm",
}
BART_PROJECTION = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}
T5_NAMES = {
    "words": "shared",
    "output": "lm_head",
    "positions.buckets": "encoder.block.0.layer.0.SelfAttention.relative_attention_bias",
    "target_positions.buckets": "decoder.block.0.layer.0.SelfAttention.relative_attention_bias",
    "encoder_norm": "encoder.final_layer_norm",
    "decoder_norm": "decoder.final_layer_norm",
}


@dataclass(frozen=True, slots=True)
class Seq2SeqFamily:
    """One kind of checkpoint: its architecture, sizes, names and what is folded into weights."""

    architecture: str
    config: Callable[[Values, int | None], TransformerConfig]
    weights: Callable[[Tensors, Values, TransformerConfig, Path], Tensors]
    name_in_file: Callable[[str, TransformerConfig], str]


def is_seq2seq(values: Values) -> bool:
    """Whether config.json is of one of the families."""
    return values.get("model_type") in SEQ2SEQ


def seq2seq_family(values: Values, path: Path) -> Seq2SeqFamily:
    """Raises `CheckpointError` for another head than the one that writes texts."""
    family = SEQ2SEQ[values["model_type"]]
    for name in values.get("architectures") or ():
        if name != family.architecture:
            raise CheckpointError(
                f"{path}: architectures has {shown(name)}, but must be {family.architecture}: "
                f"{ELSEWHERE}"
            )
    _check_fields(values, path)
    return family


def bart_config(values: Values, context: int | None) -> TransformerConfig:
    """The sizes of Marian, BART, mBART or M2M100 (and NLLB)."""
    for one, other in (
        ("encoder_attention_heads", "decoder_attention_heads"),
        ("encoder_ffn_dim", "decoder_ffn_dim"),
    ):
        if values[one] != values[other]:
            raise SettingError(other, values[other], f"{values[one]}, which {one} is: {ELSEWHERE}")
    model_type = values["model_type"]
    is_m2m100 = model_type == M2M100  # whose fields have defaults of their own
    stated = int(values["max_position_embeddings"])
    if context is not None and not 1 <= context <= stated:
        raise SettingError("context", context, f"from 1 to {stated}, max_position_embeddings")
    return TransformerConfig(
        vocab_size=int(values["vocab_size"]),
        hidden_size=int(values["d_model"]),
        num_layers=int(values["encoder_layers"]),
        num_decoder_layers=int(values["decoder_layers"]),
        num_heads=int(values["encoder_attention_heads"]),
        intermediate_size=int(values["encoder_ffn_dim"]),
        max_positions=context or stated,
        dropout=float(values.get("dropout", 0.1)),
        activation=activation(
            values.get("activation_function", "relu" if is_m2m100 else "gelu"),
            "activation_function",
        ),
        positions="learned",
        scales_words=bool(values.get("scale_embedding", is_m2m100)),
        norm_placement="pre" if model_type in PRE_NORM else "post",
        has_embedding_norms=model_type not in COMPUTED_POSITIONS,
        **_special_tokens(values),
    )


def t5_config(values: Values, context: int | None) -> TransformerConfig:
    """The sizes of T5, T5 v1.1, FLAN-T5 or mT5; any context will do, as positions are relative."""
    gate, _, kind = str(values.get("feed_forward_proj", _t5_default(values))).rpartition("-")
    if gate not in ("", "gated"):
        raise SettingError("feed_forward_proj", f"{gate}-{kind}", f"gated or not: {ELSEWHERE}")
    is_gated = gate == "gated"
    name = "gelu_new" if is_gated and kind == "gelu" else kind
    return TransformerConfig(
        vocab_size=int(values["vocab_size"]),
        hidden_size=int(values["d_model"]),
        num_layers=int(values["num_layers"]),
        num_decoder_layers=int(values.get("num_decoder_layers") or 0),
        num_heads=int(values["num_heads"]),
        size_per_head=int(values["d_kv"]),
        intermediate_size=int(values["d_ff"]),
        max_positions=_relative_context(values, context),
        layer_norm_eps=float(values.get("layer_norm_epsilon", 1e-6)),
        dropout=float(values.get("dropout_rate", 0.1)),
        activation=activation(name, "feed_forward_proj"),
        norm="rms",
        norm_placement="pre",
        positions="relative",
        num_buckets=int(values.get("relative_attention_num_buckets", 32)),
        max_distance=int(values.get("relative_attention_max_distance", 128)),
        scales_words=False,
        has_biases=False,
        is_gated=is_gated,
        **_special_tokens(values),
    )


def _relative_context(values: Values, context: int | None) -> int:
    if context is None:
        return int(values.get("n_positions") or T5_POSITIONS)
    return check_whole("context", context, 1, MAX_POSITIONS)


def _t5_default(values: Values) -> str:
    return "gated-gelu" if values["model_type"] == "mt5" else "relu"


def _special_tokens(values: Values) -> dict[str, Any]:
    """The tokens that begin and end an output, and those that it never has.

    A `forced_eos_token_id` is left out: an output that reaches its limit says so.
    """
    end = values["eos_token_id"]
    first = values.get("forced_bos_token_id")
    start = values.get("decoder_start_token_id")
    pad = values["pad_token_id"]
    banned = values.get("bad_words_ids") or ()
    if isinstance(end, list):
        if len(end) != 1:
            raise SettingError("eos_token_id", end, "one token id")
        (end,) = end
    if any(len(ids) != 1 for ids in banned):
        raise SettingError("bad_words_ids", banned, f"words of one token each: {ELSEWHERE}")
    return {
        "pad_token_id": int(pad),
        "end_token_id": int(end),
        "start_token_id": int(pad if start is None else start),
        "first_token_ids": () if first is None else (int(first),),
        "banned_token_ids": tuple(int(token_id) for (token_id,) in banned),
    }


def bart_weights(
    tensors: Tensors, values: Values, config: TransformerConfig, path: Path
) -> Tensors:
    """The tensors of a file in our layout, by the names of `name_in_bart`."""
    model_type = values["model_type"]
    found = renamed(tensors, lambda name: name.removeprefix("model."), path)
    if model_type == M2M100:
        found = without(found, [COMPUTED], path)
    for name in POSITIONS:
        if model_type == M2M100:
            found[name] = _m2m100_positions(config)
        elif model_type == MARIAN and name not in found:
            found[name] = _sines_then_cosines(config.max_positions, config.hidden_size)
        elif name in found:
            first = 0 if model_type == MARIAN else UNUSED_ROWS
            rows = slice(first, first + config.max_positions)
            found[name] = found[name][rows].contiguous()
    bias = found.pop(OUTPUT_BIAS, None)
    if bias is not None and bias.any():
        found[OUTPUT_BIAS] = bias.flatten()
    found[WORDS] = _one_table(found, (WORDS, *WORDS_ELSEWHERE, OUTPUT), path)
    return found


def _sines_then_cosines(num_positions: int, hidden_size: int) -> Tensor:
    """The paper's table in another order, as Marian has it."""
    interleaved = sinusoidal_table(num_positions, hidden_size)
    return torch.cat([interleaved[:, 0::2], interleaved[:, 1::2]], dim=1)


def _m2m100_positions(config: TransformerConfig) -> Tensor:
    """Sines, then cosines, from the row behind that of padding on; in float32, as trained with."""
    half = config.hidden_size // 2
    steps = torch.arange(half).float() * -(math.log(10_000) / (half - 1))
    first = config.pad_token_id + 1
    places = torch.arange(first, first + config.max_positions).float()
    angles = places[:, None] * torch.exp(steps)
    return torch.cat([angles.sin(), angles.cos()], dim=1)


def t5_weights(tensors: Tensors, values: Values, config: TransformerConfig, path: Path) -> Tensors:
    """Weights of a T5, by the names of `name_in_t5`."""
    found = without(tensors, [UNREAD_BIAS], path)
    output = found.pop(OUTPUT, None)
    found[WORDS] = _one_table({**found}, (WORDS, *WORDS_ELSEWHERE), path, output)
    for name in WORDS_ELSEWHERE:
        found.pop(name, None)
    if output is not None and not is_same(output, found[WORDS]):
        found[OUTPUT] = output
    for name, tensor in found.items():
        if name.endswith("Attention.q.weight"):
            found[name] = tensor * math.sqrt(config.head_size)
    # Files of mT5 say that nothing is tied, or are written by versions that say otherwise.
    is_scaled = values["model_type"] == "t5" and values.get("tie_word_embeddings") is not False
    norm = "decoder.final_layer_norm.weight"
    if values.get("scale_decoder_outputs", is_scaled) and norm in found:
        found[norm] = found[norm] / math.sqrt(config.hidden_size)
    return found


def _one_table(
    found: Tensors, names: Iterable[str], path: Path, otherwise: Tensor | None = None
) -> Tensor:
    """Take the tied table out under all its names; raises `CheckpointError` for different ones."""
    tables = {name: table for name in names if (table := found.pop(name, None)) is not None}
    if not tables:
        if otherwise is not None:
            return otherwise
        raise CheckpointError(f"{path}: weights 1 missing: {WORDS}")
    first, *others = tables
    for name in others:
        if not is_same(tables[name], tables[first]):
            raise CheckpointError(
                f"{path}: {name} differs from {first}, but only one table of word vectors for "
                f"source, target and output is supported: {ELSEWHERE}"
            )
    return tables[first]


def with_output_of(config: TransformerConfig, tensors: Tensors) -> TransformerConfig:
    """Configuration by the weights: whether the output layer has a table and a bias of its own."""
    return replace(config, is_tied=OUTPUT not in tensors, has_output_bias=OUTPUT_BIAS in tensors)


def name_in_bart(name: str, _config: TransformerConfig) -> str:
    """Translate our `name` of a weight into the file's, without its prefix."""
    if name == "output_bias":
        return OUTPUT_BIAS
    module, _, kind = name.rpartition(".")
    if module in BART_NAMES:
        return f"{BART_NAMES[module]}.{kind}"
    half, index, rest = module.split(".", maxsplit=2)
    part, _, projection = rest.partition(".")
    if projection in BART_PROJECTION and part != "feed_forward":
        stored = f"{BART_LAYER[part]}.{BART_PROJECTION[projection]}"
    else:
        stored = BART_LAYER[rest]
    return f"{half}.layers.{index}.{stored}.{kind}"


def name_in_t5(name: str, config: TransformerConfig) -> str:
    """Name of our weight in a T5's file."""
    module, _, kind = name.rpartition(".")
    if module in T5_NAMES:
        return f"{T5_NAMES[module]}.{kind}"
    half, index, rest = module.split(".", maxsplit=2)
    part, _, projection = rest.partition(".")
    last = 2 if half == "decoder" else 1  # the feed-forward part's place
    gate = {"gate": "wi_0", "expand": "wi_1" if config.is_gated else "wi", "contract": "wo"}
    stored = {
        "attention": f"0.SelfAttention.{projection[:1]}",
        "attention_norm": "0.layer_norm",
        "cross_attention": f"1.EncDecAttention.{projection[:1]}",
        "cross_attention_norm": "1.layer_norm",
        "feed_forward": f"{last}.DenseReluDense.{gate.get(projection, '')}",
        "output_norm": f"{last}.layer_norm",
    }[part]
    return f"{half}.block.{index}.layer.{stored}.{kind}"


def _check_fields(values: Values, path: Path) -> None:
    """Refuse by name what we would compute differently."""
    model_type = values["model_type"]
    only: dict[str, object] = {"share_encoder_decoder_embeddings": True}
    if model_type in ("bart", MBART):
        is_pre_norm = model_type == MBART
        only = {
            "normalize_embedding": True,
            "normalize_before": is_pre_norm,
            "add_final_layer_norm": is_pre_norm,
            "static_position_embeddings": False,
        }
    check_only(values, only, path)
    for name, bounds in BOUNDS.items():
        if values.get(name) is not None:
            check_whole(name, values[name], *bounds)


def _family(architecture: str) -> Seq2SeqFamily:
    return Seq2SeqFamily(architecture, bart_config, bart_weights, name_in_bart)


SEQ2SEQ: dict[str, Seq2SeqFamily] = {
    MARIAN: _family("MarianMTModel"),
    "bart": _family("BartForConditionalGeneration"),
    MBART: _family("MBartForConditionalGeneration"),
    M2M100: _family("M2M100ForConditionalGeneration"),
    "t5": Seq2SeqFamily("T5ForConditionalGeneration", t5_config, t5_weights, name_in_t5),
    "mt5": Seq2SeqFamily("MT5ForConditionalGeneration", t5_config, t5_weights, name_in_t5),
}
