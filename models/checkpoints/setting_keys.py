"""Every key of the files of texts of a folder, and what an import makes of it.

The one table: a key is honoured, refused by name or harmless. What is in no table is named in a
warning, as `transformers` and sentence-transformers pass it over. docs/reference/checkpoints.md
shows the table, and a test compares the two. Reads no files.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from models.errors import CheckpointError, shown
from models.remarks import remark

Verdict = Literal["honoured", "refused", "harmless"]
TOKENIZER_CONFIG = "tokenizer_config.json"
TOKENS_MAP, ADDED = "special_tokens_map.json", "added_tokens.json"
MODULES, USE = "modules.json", "config_sentence_transformers.json"
TEXT_SETTINGS = tuple(
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)  # in the order in which sentence-transformers looks for them
ANY_TOKEN = "*_token"  # noqa: S105 - a pattern of keys


@dataclass(frozen=True, slots=True)
class Key:
    """Treatment of a key at import."""

    verdict: Verdict
    why: str
    allowed: tuple[Any, ...] = ()  # values that a refused key may have


def _honoured(why: str, *names: str) -> dict[str, Key]:
    return dict.fromkeys(names, Key("honoured", why))


def _harmless(why: str, *names: str) -> dict[str, Key]:
    return dict.fromkeys(names, Key("harmless", why))


def _refused(why: str, allowed: tuple[Any, ...], *names: str) -> dict[str, Key]:
    return dict.fromkeys(names, Key("refused", why, allowed))


_NOT_READ = "transformers 5 does not read it"
_PLACES = "where files were once"
_ROLES = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)
_TEXT = {
    "text": {"method": "forward", "method_output_name": "last_hidden_state"}
}  # what sentence-transformers writes of an encoder of texts
_MASKED = {"text": {"method": "forward", "method_output_name": "logits"}}
_LOADING = (
    *("trust_remote_code", "torch_dtype", "dtype", "attn_implementation", "add_pooling_layer"),
    *("unpad_inputs", "use_memory_efficient_attention", "device_map", "low_cpu_mem_usage"),
    *("token", "cache_dir", "revision", "local_files_only", "subfolder", "use_fast"),
)  # how a network is loaded and computed, not what it computes
KEYS: Mapping[str, Mapping[str, Key]] = {
    TOKENIZER_CONFIG: {
        **_honoured(
            "the class whose rules make the tokenizer; a class without rules here is refused",
            "tokenizer_class",
        ),
        **_honoured("of classes after BERT, ALBERT and DeBERTa", "do_lower_case"),
        **_honoured("of classes after BERT", "strip_accents", "tokenize_chinese_chars"),
        **_honoured("of ALBERT's class", "keep_accents"),
        **_honoured("of DeBERTa's class", "split_by_punct", "unk_id"),
        **_honoured("the space before a text, of classes that have one", "add_prefix_space"),
        **_honoured("of RoBERTa's class: the places of tokens", "trim_offsets"),
        **_honoured("of Llama's class: which parts of a text get a space before", "legacy"),
        **_honoured("the tokens that were added, and their flags", "added_tokens_decoder"),
        **_honoured(
            "special tokens of no role",
            *("extra_special_tokens", "additional_special_tokens", "model_specific_special_tokens"),
        ),
        **_honoured("special tokens by role", *_ROLES, ANY_TOKEN),
        **_honoured("the longest text; see the limits below", "model_max_length", "max_len"),
        **_honoured("the side on which long texts are cut", "truncation_side"),
        **_honoured(
            "without token_type_ids, both parts of a pair have type 0", "model_input_names"
        ),
        **_honoured(
            "of folders without tokenizer.json, whose template decides otherwise; decoders that "
            "read texts end them by add_eos_token",
            *("add_bos_token", "add_eos_token"),
        ),
        **_honoured("templates of chats", "chat_template"),
        **_honoured("of T5's class: tokens for gaps, at most 100", "extra_ids"),
        **_honoured("one vocabulary for source and output alone is supported", "separate_vocabs"),
        **_honoured("code of the folder's own is not run: the class must have rules", "auto_map"),
        **_refused(
            "special tokens that a text spells are tokens", (False,), "split_special_tokens"
        ),
        **_refused("arguments without names", ([], None), "init_inputs"),
        **_refused("a file by version", (["tokenizer.json"], [], None), "fast_tokenizer_files"),
        **_harmless(
            "a row's mask says where its texts are, whichever side is padded", "padding_side"
        ),
        **_harmless(
            "of padding and cutting, which a request and its batch decide about",
            *("max_length", "stride", "truncation", "truncation_strategy", "padding"),
            *("padding_strategy", "pad_to_multiple_of", "pad_token_type_id"),
            "pad_to_max_length",
        ),
        **_harmless(
            "of texts made of tokens, which are as the tokens spell them",
            *("clean_up_tokenization_spaces", "errors", "spaces_between_special_tokens"),
            "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output",
        ),
        **_harmless(
            _NOT_READ,
            *("do_basic_tokenize", "never_split", "sp_model_kwargs", "remove_space", "from_slow"),
            *(
                "use_fast",
                "use_default_system_prompt",
                "vocab_size",
                "vocab_type",
                "wordpieces_prefix",
            ),
            *("clean_text", "add_dummy_prefix_space", "tokenizer_type", "max_model_input_sizes"),
            *("sep_token_id", "bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id"),
            *("cls_token_id", "mask_token_id", "verbose", "response_schema", "response_template"),
            *("chat_control_tokens", "processor_class", "return_token_type_ids", "extra_tokens"),
        ),
        **_harmless(
            _PLACES,
            *("name_or_path", "special_tokens_map_file", "tokenizer_file", "vocab_file"),
            *("merges_file", "added_tokens_file", "is_local", "local_files_only", "backend"),
            *("files_loaded", "device_map", "_commit_hash", "model_name", "trust_remote_code"),
            *("token", "cache_dir", "revision", "subfolder"),
        ),
        **_harmless(
            "of translators: tokenizer.json or a text's own token says the language",
            *(
                "src_lang",
                "tgt_lang",
                "source_lang",
                "target_lang",
                "language_codes",
                "target_vocab_file",
            ),
        ),
    },
    TOKENS_MAP: {
        **_honoured(
            "special tokens, where tokenizer_config.json has no added_tokens_decoder",
            *_ROLES,
            ANY_TOKEN,
        ),
        **_honoured(
            "special tokens of no role, likewise",
            *("extra_special_tokens", "additional_special_tokens"),
        ),
    },
    ADDED: {
        **_honoured(
            "every key is a token, where tokenizer_config.json has no added_tokens_decoder", "*"
        ),
    },
    TEXT_SETTINGS[0]: {
        **_honoured("the longest text, whatever tokenizer_config.json says", "max_seq_length"),
        **_honoured("texts are lower-cased first", "do_lower_case"),
        **_honoured(
            "keys of tokenizer_config.json that are replaced",
            *("processor_kwargs", "tokenizer_args"),
        ),
        **_honoured(
            "of keys that change only how a network is loaded; others are refused",
            *("model_args", "model_kwargs", "config_args", "config_kwargs"),
        ),
        **_refused(
            "no network that writes texts is an embedder here",
            ("feature-extraction", "sequence-classification", "fill-mask", None),
            "transformer_task",
        ),
        **_refused(
            "texts are not written as messages of a chat", (_TEXT, _MASKED, None), "modality_config"
        ),
        **_refused(
            "vectors of a network's own", ("token_embeddings", "scores", None), "module_output_name"
        ),
        **_refused(
            "of networks with a vector per token",
            (None,),
            *("query_length", "document_length", "query_expansion"),
        ),
        **_refused("settings of calls", ({}, None), "processing_kwargs"),
        **_refused("a tokenizer elsewhere", (None,), "tokenizer_name_or_path"),
        **_harmless("how rows are computed together", "unpad_inputs"),
    },
    USE: {
        **_honoured("put in front of texts", *("prompts", "default_prompt_name")),
        **_honoured("how vectors are compared", "similarity_fn_name"),
        **_honoured("what the folder is", "model_type"),
        **_honoured("of cross-encoders: what makes scores", "activation_fn"),
        **_refused("vectors are cut by a request, or --dimensions", (None,), "truncate_dim"),
        **_refused(
            "of networks with a vector per token",
            (None,),
            *("query_prefix", "document_prefix", "query_length", "document_length"),
            *("attend_to_expansion_tokens", "skiplist_words", "do_query_expansion"),
        ),
        **_harmless("versions of libraries", "__version__"),
    },
    MODULES: {
        **_honoured("the steps in their order", *("type", "path")),
        **_harmless(
            "numbers and names of steps, and arguments of calls", *("idx", "name", "kwargs")
        ),
    },
}


def check_keys(path: Path, values: Mapping[str, Any]) -> None:
    """Raise `CheckpointError` for a key that is refused; remark on those of no table."""
    name = TEXT_SETTINGS[0] if path.name in TEXT_SETTINGS else path.name
    table = KEYS[name]
    unknown = []
    for field, value in values.items():
        key = table.get(field)
        if key is None:
            if not (ANY_TOKEN in table and field.endswith("_token")):
                unknown.append(field)
        elif key.verdict == "refused" and value not in key.allowed:
            most = " or ".join(map(repr, key.allowed))
            why = f" ({key.why})" if key.why else ""
            raise CheckpointError(
                f"{path}: {field} is {shown(value)}, but only {most} is supported{why}; take it "
                "out of the file to import the folder without it"
            )
    if unknown:
        remark(
            f"{path}: {', '.join(map(shown, unknown[:5]))} is passed over, as no setting of texts "
            "by that name is known"
        )


def check_loading(path: Path, field: str, values: Mapping[str, Any]) -> None:
    """Raise `CheckpointError` for arguments that change what a network computes."""
    unknown = [name for name, value in values.items() if name not in _LOADING and value is not None]
    if unknown:
        raise CheckpointError(
            f"{path}: {field} has {shown(unknown[0])}, which may change what the network computes: "
            "write it into config.json, which is read, and take it out of this file"
        )


def table_of_keys() -> str:
    """The table of docs/reference/checkpoints.md: rows of file, keys, verdict and reason."""
    lines = ["| file | key | what an import makes of it |", "|---|---|---|"]
    for file, keys in KEYS.items():
        shown_as = "`sentence_*_config.json`" if file == TEXT_SETTINGS[0] else f"`{file}`"
        rows: list[tuple[Key, list[str]]] = []
        for name, key in keys.items():
            row = next((names for known, names in rows if known == key), None)
            if row is None:
                rows.append((key, [name]))
            else:
                row.append(name)
        for key, names in rows:
            spelled = ", ".join(f"`{name}`" for name in names)
            if key.verdict == "refused":
                most = " or ".join(f"`{value!r}`" for value in key.allowed)
                what = f"refused unless {most}" + (f": {key.why}" if key.why else "")
            else:
                what = f"{key.verdict}: {key.why}"
            lines.append(f"| {shown_as} | {spelled} | {what} |")
    return "\n".join(lines) + "\n"
