"""A GGUF file as a folder of transformers: small files, and the file for its weights."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from models.checkpoints.foreign import is_of_gguf, names_in
from models.checkpoints.gguf.files import SUFFIX, GgufFile, gguf_in
from models.checkpoints.gguf.networks import architecture_of, config_of
from models.checkpoints.gguf.tokenizers import tokenizer_of
from models.data.sentence_piece import CONTROL

_OPEN: dict[Path, GgufFile] = {}  # of folders that stand for a file, while they are entered
END_OF_TURN = ("<|eot_id|>", "<|im_end|>", "<end_of_turn>", "<|end|>", "<|end_of_text|>")


def gguf_at(source: Path) -> Path | None:
    """The GGUF file that a path names, or that its folder has; None where there is another form.

    Raises CheckpointError for a folder with several models of GGUF.
    """
    if source.is_file() and source.suffix == SUFFIX:
        return source
    if source.is_dir() and is_of_gguf(names_in(source)):
        return gguf_in(source)
    return None


@contextmanager
def unpacked_gguf(path: Path) -> Iterator[Path]:
    """A folder that stands for the file while it is entered.

    It has config.json, tokenizer.json, tokenizer_config.json and generation_config.json; the
    weights stay in the file. Raises CheckpointError for a file that cannot be read.
    """
    file = GgufFile(path.absolute())
    architecture_of(file)
    contents = {
        "config.json": config_of(file),
        "tokenizer_config.json": _tokenizer_config(file),
        "generation_config.json": {"eos_token_id": _ends(file)},
    }
    with TemporaryDirectory(prefix="attendant-gguf-") as name:
        folder = Path(name)
        for each, values in contents.items():
            (folder / each).write_text(json.dumps(values), encoding="utf-8")
        tokenizer_of(file).save(str(folder / "tokenizer.json"))
        _OPEN[folder] = file
        try:
            yield folder
        finally:
            del _OPEN[folder]


def file_behind(folder: Path) -> GgufFile | None:
    """The file that an entered folder stands for; None for any other folder."""
    return _OPEN.get(folder)


def _tokenizer_config(file: GgufFile) -> dict[str, Any]:
    tokens = file.keys.get("tokenizer.ggml.tokens", [])
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}  # as it is written
    for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        token = file.keys.get(f"tokenizer.ggml.{key}_token_id")
        if token is not None and 0 <= token < len(tokens):
            config[f"{name}_token"] = tokens[token]
    template = file.keys.get("tokenizer.chat_template")
    return {**config, **({"chat_template": template} if template else {})}


def _ends(file: GgufFile) -> list[int]:
    """Tokens that end a text: the file's own, and those that end a turn by their spelling."""
    keys = ("eos_token_id", "eot_token_id", "eom_token_id")
    stated = [file.keys.get(f"tokenizer.ggml.{key}") for key in keys]
    types = file.keys.get("tokenizer.ggml.token_type", [])
    tokens = file.keys.get("tokenizer.ggml.tokens", [])
    spelled = [
        index
        for index, (token, kind) in enumerate(zip(tokens, types, strict=False))
        if kind == CONTROL and token in END_OF_TURN
    ]
    return sorted({int(token) for token in (*stated, *spelled) if token is not None})
