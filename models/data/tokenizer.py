"""Read the tokenizer of a checkpoint, with padding and truncation switched off.

Knows nothing about models. Batching decides about padding, and the reader of a text decides whether
it may be cut, so a tokenizer that does either by itself would hide both. The side of a cut is the
tokenizer's: a file says "left" by a limit that no text reaches.
"""

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.processors import ByteLevel as ByteLevelOffsets
from tokenizers.processors import Sequence

from models.errors import CheckpointError, reason

TOKENIZER_FILE = "tokenizer.json"
MAX_TOKENIZER_BYTES = 2**28  # that of 262,144 tokens has 33 MB
END_OF_TEXT = "<|endoftext|>"
LEFT = "left"
UNLIMITED_TOKENS = 2**31 - 1


def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a checkpoint of our own."""
    return read_tokenizer(folder / TOKENIZER_FILE)


def read_tokenizer(path: Path, *, keeps_limits: bool = False) -> Tokenizer:
    """The tokenizer of a file. Raises `CheckpointError`.

    Without limits it neither pads nor cuts; the side that it cuts on is kept all the same.
    """
    if not path.is_file():
        raise CheckpointError(
            f"{path} is missing: expected the file that a fast tokenizer of `transformers` writes "
            "with save_pretrained"
        )
    size = path.stat().st_size
    if size > MAX_TOKENIZER_BYTES:
        raise CheckpointError(
            f"{path} has {size} bytes, but must have at most {MAX_TOKENIZER_BYTES}"
        )
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except (KeyboardInterrupt, SystemExit):
        raise
    except (
        BaseException
    ) as error:  # the library raises nothing narrower; its panics are no Exception
        raise CheckpointError(
            f"{path} is not in the format of `tokenizers`: {reason(error)}"
        ) from error
    return tokenizer if keeps_limits else without_limits(tokenizer)


def num_ids(tokenizer: Tokenizer) -> int:
    """One more than the largest token id, which is the number of tokens if none is left out."""
    return 1 + max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)


def without_limits(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer, which neither pads nor cuts; it keeps the side that it would cut on."""
    side = side_of_cuts(tokenizer)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return cutting_left(tokenizer) if side == LEFT else tokenizer


def side_of_cuts(tokenizer: Tokenizer) -> str:
    """The side of a text on which a tokenizer cuts: "right" where nothing says so."""
    return str((tokenizer.truncation or {}).get("direction", "right"))


def cutting_left(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer, whose file says that texts are cut at their beginning; it cuts none itself."""
    tokenizer.enable_truncation(UNLIMITED_TOKENS, direction=LEFT)
    return tokenizer


def cutting_copy(tokenizer: Tokenizer, max_tokens: int) -> Tokenizer:
    """Return a copy that cuts texts to `max_tokens`, special tokens kept and counted."""
    copy = Tokenizer.from_str(tokenizer.to_str())
    copy.enable_truncation(max_tokens, direction=side_of_cuts(tokenizer))
    return copy


def without_types(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer, which gives both parts of a pair type 0.

    Its vocabulary is not written out: an id of 2^32 in a foreign file would take all memory then.
    """
    if not any(tokenizer.encode("a", "a").type_ids):
        return tokenizer
    step = tokenizer.post_processor
    fields = _without_types(None if step is None else json.loads(step.__getstate__()))
    changed = Sequence([])
    changed.__setstate__(json.dumps(fields).encode())
    tokenizer.post_processor = changed
    return tokenizer


def _without_types(step: Any) -> Any:  # noqa: ANN401 - a step of the library's, as JSON
    """A step that puts tokens around texts, with type 0 for all of them."""
    plain = {"type": "TemplateProcessing", "special_tokens": {}}
    if step is None or step["type"] == "ByteLevel":
        texts = {"single": _template("A"), "pair": _template("A", "B")}
        own = [] if step is None else [step]
        return {"type": "Sequence", "processors": [*own, {**plain, **texts}]}
    if step["type"] == "Sequence":
        *before, last = step["processors"]
        return {**step, "processors": [*before, _without_types(last)]}
    if step["type"] == "BertProcessing":
        (cls, cls_id), (sep, sep_id) = step["cls"], step["sep"]
        special = {
            token: {"id": token, "ids": [token_id], "tokens": [token]}
            for token, token_id in ((cls, cls_id), (sep, sep_id))
        }
        return {
            **plain,
            "single": _template(cls, "A", sep),
            "pair": _template(cls, "A", sep, "B", sep),
            "special_tokens": special,
        }
    if step["type"] == "TemplateProcessing":
        return {
            **step,
            **{
                name: [
                    {kind: {**part, "type_id": 0}}
                    for each in step[name]
                    for kind, part in each.items()
                ]
                for name in ("single", "pair")
            },
        }
    return step


def _template(*parts: str) -> list[dict[str, Any]]:
    """A template of texts, A and B, and of tokens."""
    return [
        {"Sequence" if part in ("A", "B") else "SpecialToken": {"id": part, "type_id": 0}}
        for part in parts
    ]


def byte_level(model: BPE, *, add_prefix_space: bool = False) -> Tokenizer:
    """Byte pairs over bytes, as in GPT-2: every text comes back from its tokens as it was."""
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=add_prefix_space)
    tokenizer.post_processor = ByteLevelOffsets(trim_offsets=False)
    tokenizer.decoder = ByteLevelDecoder()
    return tokenizer
