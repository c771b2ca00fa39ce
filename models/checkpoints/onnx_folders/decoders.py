"""The files beside a decoder's graph: tokenizer, template, sampling, stops, lengths and names.

Two kinds: what transformers writes, config.json and generation_config.json, and the one file of
onnxruntime-genai, which has all of it. Reads nothing of the graph. Imports no PyTorch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from models.checkpoints.chat_templates import end_of_turn, read_chat
from models.checkpoints.file_names import CONFIG_FILE
from models.checkpoints.foreign_tokenizer import load_foreign_tokenizer
from models.checkpoints.sampling_defaults import read_sampling, sampling_in
from models.checkpoints.settings_files import longest_text
from models.checkpoints.stops import stop_tokens
from models.errors import CheckpointError, SettingError
from models.json_files import check_whole, fields_of, read_object
from models.remarks import remark

GENAI_CONFIG = "genai_config.json"
# Keys of the longest text, by families.
LENGTHS = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length")
WINDOWS = ("sliding_window", "window_size")
DEFAULT_TOKENS = 2048  # of a folder that states no length
MOST_TOKENS = 10**6  # above it, tokenizer_config.json means that there is no limit
MOST = 2**31 - 1


@dataclass(frozen=True, slots=True)
class DecoderFolder:
    """All that the files beside a decoder's graph say of it."""

    tokenizer: Tokenizer
    max_tokens: int
    eos_token_ids: tuple[int, ...]
    pad_token_id: int = 0
    chat: Mapping[str, Any] = field(default_factory=dict)
    sampling: Mapping[str, float] = field(default_factory=dict)
    head_size: int = 0  # 0 where no file states it, as the graph does
    vocab_size: int = 0  # the same
    window: int = 0  # tokens that a layer looks back; 0 for all
    names: Mapping[str, str] = field(default_factory=dict)  # of the graph's tensors, by purpose


def read_decoder_folder(folder: Path, context: int | None = None) -> DecoderFolder:
    """The files of a folder, for texts of at most `context` tokens.

    Raises `CheckpointError`, and `SettingError` for a context above what the files state.
    """
    path = folder / GENAI_CONFIG
    is_genai = path.is_file()
    if not is_genai:
        path = folder / CONFIG_FILE
    with fields_of(path, read_object(path, optional=not is_genai)) as whole:
        values = dict(whole["model"] if is_genai else {**whole, **(whole.get("text_config") or {})})
        decoder = values.get("decoder", {})
        inner = {**decoder.get("inputs", {}), **decoder.get("outputs", {})}
        if not all(isinstance(name, str) for name in inner.values()):
            raise CheckpointError(f"{path}: inputs and outputs are {inner}, but must be texts")
        lengths = ("context_length",) if is_genai else LENGTHS
        stated = next((name for name in lengths if values.get(name)), None)
        positions = check_whole(stated, values[stated], 2, MOST) if stated else 0
        windows = [values[name] for name in WINDOWS if isinstance(values.get(name), int)]
        sizes = {
            "head_size": decoder.get("head_size") or 0,
            "vocab_size": values.get("vocab_size") or 0,
            "pad_token_id": values.get("pad_token_id") or 0,
            "window": min(windows, default=0),
        }
        for name, value in sizes.items():
            check_whole(name, value, 0, MOST)
        stops = stop_tokens(folder, values)
    sampling = sampling_in(path, whole["search"]) if "search" in whole else read_sampling(folder)
    tokenizer, chat = load_foreign_tokenizer(folder), read_chat(folder)
    spelled = end_of_turn(chat)
    of_turn = tokenizer.token_to_id(spelled) if spelled is not None else None
    ends = (*stops, *(() if of_turn is None else (of_turn,)))
    return DecoderFolder(
        tokenizer,
        _max_tokens(folder, positions, context),
        tuple(dict.fromkeys(ends)),
        chat=chat,
        sampling=sampling,
        names=inner,
        **sizes,
    )


def _max_tokens(folder: Path, positions: int, context: int | None) -> int:
    """The longest text that the files state, or a shorter one that is asked for."""
    of_texts = longest_text(folder) or 0
    stated = positions or (of_texts if of_texts <= MOST_TOKENS else 0)
    if context is None and not stated:
        remark(
            f"{folder} states no longest text: prompt and output together have at most "
            f"{DEFAULT_TOKENS} tokens; --context sets another length"
        )
    if context is not None and stated and context > stated:
        raise SettingError("context", context, f"at most {stated}, which the folder states")
    return context or stated or DEFAULT_TOKENS
