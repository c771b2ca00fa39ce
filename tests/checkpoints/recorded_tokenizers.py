"""Folders without tokenizer.json, and the tokens that the libraries of such files give.

    python -m tests.checkpoints.recorded_tokenizers       train the files and record the tokens

That needs sentencepiece, tiktoken, mistral-common and transformers in an environment of their own:
the messages of sentencepiece 0.2.3 are of protobuf 7, which tritonclient refuses. A test compares
with what was recorded. Classes that transformers has rules for are recorded with it; a folder that
it takes by the file alone is recorded with the file's own library, as transformers 5.23 leaves out
the space that a model of SentencePiece puts before a text.
"""

import base64
import io
import json
import shutil
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from export.certificates.probes import COMPARED, PAIRS, PROBES, SENTENCES
from models.data.byte_ranks import BY_THREE_DIGITS

SAVED = Path(__file__).parents[1] / "saved/tokenizers"
RECORDED = SAVED / "recorded.json"
# Changes of a normalization, as `from TAB to` in numbers of characters.
CHANGES = (
    "A0\t20\n3000\t20\n9\t20\nA\t20\nD\t20\nFF21\t41\nFB01\t66 69\n65 301\tE9\nBD\t31 2044 32\n"
)
PATTERN = (
    r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"  # tekken
)


def special_by_id(*tokens: str, first: int = 0, **flags: bool) -> dict[str, Any]:
    """An added_tokens_decoder."""
    default = dict.fromkeys(("lstrip", "rstrip", "single_word", "normalized"), False)
    return {
        str(index): {**default, "special": True, **flags, "content": token}
        for index, token in enumerate(tokens, first)
    }


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of a file that is saved, and settings beside it."""

    saved: str  # file in SAVED
    file: str  # its name in the folder
    model_type: str
    settings: dict[str, Any] | None = None  # of tokenizer_config.json
    begin: tuple[int, ...] | None = None  # before the tokens of the file's own library
    config: dict[str, Any] = field(default_factory=dict)

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(SAVED / self.saved, folder / self.file)
        config = {"model_type": self.model_type, **self.config}
        (folder / "config.json").write_text(json.dumps(config))
        if self.settings is not None:
            (folder / "tokenizer_config.json").write_text(json.dumps(self.settings))
        return folder


LLAMA: dict[str, Any] = {
    "tokenizer_class": "LlamaTokenizer",
    "add_bos_token": True,
    "add_eos_token": False,
    "bos_token": "<s>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
}
OF_LLAMA = special_by_id("<unk>", "<s>", "</s>")
ENDS = special_by_id("<|endoftext|>", "<|end|>", first=700, rstrip=True)
TURNS = ["<start_of_turn>", "<end_of_turn>"]
T5: dict[str, Any] = {"tokenizer_class": "T5Tokenizer", "eos_token": "</s>", "pad_token": "<pad>"}
FOLDERS: dict[str, Folder] = {
    "llama": Folder(
        *("llama.model", "tokenizer.model", "llama"),
        {**LLAMA, "legacy": False, "added_tokens_decoder": OF_LLAMA},
    ),
    "llama, legacy": Folder("llama.model", "tokenizer.model", "llama", {**LLAMA, "legacy": True}),
    "llama, without settings": Folder("llama.model", "tokenizer.model", "llama", None, (1,)),
    "mistral": Folder(
        *("llama.model", "tokenizer.model", "mistral"),
        {**LLAMA, "legacy": False, "added_tokens_decoder": OF_LLAMA},
        (1,),
    ),
    "mistral, numbered": Folder("llama.model", "tokenizer.model.v3", "mistral", None, (1,)),
    "phi3": Folder(
        *("llama.model", "tokenizer.model", "phi3"),
        {**LLAMA, "add_bos_token": False, "added_tokens_decoder": {**OF_LLAMA, **ENDS}},
        (),
    ),
    "gemma": Folder(
        *("gemma.model", "tokenizer.model", "gemma2"),
        {
            "tokenizer_class": "GemmaTokenizer",
            "add_bos_token": True,
            "added_tokens_decoder": special_by_id(
                "<pad>", "<eos>", "<bos>", "<unk>", "<mask>", *TURNS
            ),
            "additional_special_tokens": TURNS,
        },
    ),
    "t5": Folder("t5.model", "spiece.model", "t5", {**T5, "extra_ids": 100}),
    "t5, without settings": Folder("t5.model", "spiece.model", "t5"),
    "mt5": Folder("t5.model", "spiece.model", "mt5", {**T5, "extra_ids": 0}),
    "xlm-roberta": Folder(
        *("xlm-roberta.model", "sentencepiece.bpe.model", "xlm-roberta"),
        {"tokenizer_class": "XLMRobertaTokenizer"},
    ),
    "camembert": Folder("xlm-roberta.model", "sentencepiece.bpe.model", "camembert"),
    "albert": Folder("albert.model", "spiece.model", "albert", {"do_lower_case": True}),
    "albert, cased": Folder(
        *("albert.model", "spiece.model", "albert"), {"do_lower_case": False, "keep_accents": True}
    ),
    "deberta-v2": Folder(
        "deberta.model", "spm.model", "deberta-v2", {"do_lower_case": False, "vocab_type": "spm"}
    ),
    "unigram by bytes": Folder("bytes.model", "tokenizer.model", "mistral", None, (1,)),
    "tekken": Folder("tekken.json", "tekken.json", "mistral", None, (1,)),
    "tiktoken, llama": Folder(
        *("ranks.tiktoken", "tokenizer.model", "llama"),
        {
            "bos_token": "<|begin_of_text|>",
            "add_bos_token": True,
            "added_tokens_decoder": special_by_id(
                "<|begin_of_text|>", "<|end_of_text|>", first=500
            ),
        },
        (500,),
    ),
}


def folders_here(names: Iterable[str], root: Path) -> dict[str, Path]:
    """The folders of these names, written below a folder."""
    return {name: FOLDERS[name].write(root / name.replace(", ", "-")) for name in names}


def checksum(ids: Sequence[int]) -> str:
    """A short number that says which text of the 200 has other tokens."""
    return f"{zlib.crc32(','.join(map(str, ids)).encode()):08x}"


def train() -> None:
    """Write the files of SAVED."""
    import sentencepiece

    SAVED.mkdir(exist_ok=True)
    changes = SAVED / "changes.tsv"
    changes.write_text(CHANGES)
    begun = {"unk_id": 0, "bos_id": 1, "eos_id": 2, "pad_id": -1}
    pairs = {
        "model_type": "bpe",
        "byte_fallback": True,
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
        "split_digits": True,
        "vocab_size": 700,
    }
    ours = {"model_type": "unigram", "normalization_rule_tsv": str(changes), "vocab_size": 500}
    trained: dict[str, dict[str, Any]] = {
        "llama": {**pairs, **begun},
        "gemma": {
            **pairs,
            "pad_id": 0,
            "eos_id": 1,
            "bos_id": 2,
            "unk_id": 3,
            "eos_piece": "<eos>",
            "bos_piece": "<bos>",
            "add_dummy_prefix": False,
            "user_defined_symbols": ["<mask>", *TURNS, "\n", "\n\n", "\t", "\u2581\u2581"],
        },
        "t5": {**ours, "pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1},
        "xlm-roberta": {**ours, **begun},
        "albert": {
            **ours,
            "pad_id": 0,
            "unk_id": 1,
            "bos_id": -1,
            "eos_id": -1,
            "control_symbols": ["[CLS]", "[SEP]"],
            "user_defined_symbols": ["[MASK]"],
        },
        "deberta": {
            **ours,
            "pad_id": 0,
            "bos_id": 1,
            "eos_id": 2,
            "unk_id": 3,
            "pad_piece": "[PAD]",
            "bos_piece": "[CLS]",
            "eos_piece": "[SEP]",
            "unk_piece": "[UNK]",
        },
        "bytes": {**ours, **begun, "byte_fallback": True, "vocab_size": 700},
    }
    # Without rows of one letter, whose cuts are equally likely, so that rounding would decide.
    texts = [each for each in (*SENTENCES, *COMPARED) if "bbb" not in each] * 8
    for name, options in trained.items():
        written = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts),
            model_writer=written,
            num_threads=1,
            hard_vocab_limit=False,
            minloglevel=2,
            **options,
        )
        (SAVED / f"{name}.model").write_bytes(written.getvalue())
    changes.unlink()
    _write_ranks(texts)


def _write_ranks(texts: list[str]) -> None:
    """500 ranks of bytes as a file of tiktoken, and with special tokens as tekken.json."""
    from tiktoken._educational import bpe_train

    ranks = bpe_train("\n".join(texts), 500, PATTERN)
    encoded = {base64.b64encode(token).decode(): rank for token, rank in ranks.items()}
    lines = [f"{token} {rank}\n" for token, rank in encoded.items()]
    (SAVED / "ranks.tiktoken").write_text("".join(lines))
    vocabulary = [
        {"rank": rank, "token_bytes": token, "token_str": None} for token, rank in encoded.items()
    ]
    config = {
        "pattern": PATTERN,
        "num_vocab_tokens": 500,
        "default_vocab_size": 450,  # so that ranks are left out
        "default_num_special_tokens": 30,
        "version": "v3",
    }
    (SAVED / "tekken.json").write_text(json.dumps({"config": config, "vocab": vocabulary}))


def record(folder: Path) -> None:
    """Write RECORDED with what the libraries give."""
    recorded: dict[str, Any] = {}
    for name, path in folders_here(FOLDERS, folder).items():
        encode = _reference(FOLDERS[name], path)
        recorded[name] = {
            "texts": [checksum(encode(text)) for text in PROBES],
            "first": list(encode(PROBES[0])),
        }
        if FOLDERS[name].begin is None:
            recorded[name]["pairs"] = [checksum(encode(*pair)) for pair in PAIRS]
    RECORDED.write_text(json.dumps(recorded, indent=1) + "\n")


def _reference(made: Folder, path: Path) -> Callable[..., Sequence[int]]:
    """What encodes texts: transformers, or the library of the file where `begin` is given."""
    file, begin = str(path / made.file), made.begin
    if begin is None:
        from transformers import AutoTokenizer

        theirs = AutoTokenizer.from_pretrained(path)
        return lambda *texts: theirs(*texts)["input_ids"]
    if made.saved.endswith(".model"):
        from sentencepiece import SentencePieceProcessor

        cut = SentencePieceProcessor(model_file=file)
        return lambda text: [*begin, *cut.encode(text)]
    if made.saved == "tekken.json":
        from mistral_common.tokens.tokenizers.tekken import Tekkenizer

        tekken = Tekkenizer.from_file(file)
        return lambda text: tekken.encode(text, bos=True, eos=False)
    from tiktoken import Encoding
    from tiktoken.load import load_tiktoken_bpe

    encoding = Encoding(
        "ranks",
        pat_str=BY_THREE_DIGITS,
        mergeable_ranks=load_tiktoken_bpe(file),
        special_tokens={},
    )
    return lambda text: [*begin, *encoding.encode(text, disallowed_special=())]


if __name__ == "__main__":
    from tempfile import TemporaryDirectory

    train()
    with TemporaryDirectory() as scratch:
        record(Path(scratch))
