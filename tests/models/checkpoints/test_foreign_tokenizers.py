"""The tokenizers of folders, with the ids, types, places and cuts that transformers gives.

The settings are generated: each class with every source of added tokens and random choices of all
settings that change ids. One text in 200 that is read otherwise fails.
"""

import json
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tokenizers import Tokenizer

from models.checkpoints.checkpoint import load_checkpoint
from models.checkpoints.foreign_tokenizer import load_foreign_tokenizer
from models.checkpoints.tokenizer_classes import (
    AS_IT_IS,
    BY_MODEL_TYPE,
    CLASSES,
    IN_PYTHON,
    TYPES,
    WITHOUT_RULES,
)
from models.data.tokenizer import cutting_copy
from models.errors import CheckpointError
from tests.checkpoints.spellings import SPELLINGS
from tests.fakes.foreign_texts import ADDED, texts, vocabulary

KINDS = {
    "bert": "BertTokenizer",
    "distilbert": "DistilBertTokenizer",
    "mpnet": "MPNetTokenizer",
    "roberta": "RobertaTokenizer",
    "xlm-roberta": "XLMRobertaTokenizer",
    "camembert": "CamembertTokenizer",
    "albert": "AlbertTokenizer",
    "deberta-v2": "DebertaV2Tokenizer",
    "gpt2": "GPT2Tokenizer",
    "qwen2": "Qwen2Tokenizer",
    "llama": "LlamaTokenizer",
    "gemma": "GemmaTokenizer",
    "t5": "T5Tokenizer",
    "modernbert": "PreTrainedTokenizerFast",
}
FLAGS: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys(
        (
            *("do_lower_case", "tokenize_chinese_chars", "add_prefix_space", "keep_accents"),
            *("split_by_punct", "legacy", "trim_offsets", "add_bos_token", "add_eos_token"),
        ),
        (None, True, False),
    ),
    "strip_accents": (None, None, True, False),
    "truncation_side": (None, "left", "right"),
    "padding_side": (None, "left"),
    "model_input_names": (
        None,
        ["input_ids", "attention_mask"],
        ["input_ids", "token_type_ids", "attention_mask"],
    ),
    "clean_up_tokenization_spaces": (None, True),
    "model_max_length": (None, 24, 10**30),
}
MASK = {"__type": "AddedToken", "content": "[MASK]", "lstrip": True, "normalized": False}
SOURCES = ("none", "decoder", "further", "older", "map", "by role")
MAX_TOKENS = 12
AUTO: Any = transformers.AutoTokenizer  # its methods have no types


def write(
    folder: Path, kind: str, settings: Mapping[str, Any] | None, files: Mapping[str, Any]
) -> Path:
    """A folder of a kind with settings, None for no file of settings, and further files."""
    folder.mkdir(parents=True)
    vocabulary(kind).save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({"model_type": kind}))
    if settings is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    for name, values in files.items():
        (folder / name).write_text(json.dumps(values))
    return folder


def added_by(source: str, first: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings and files by which a source adds tokens, from an id on."""
    opening, closing, word, accented, pair = ADDED
    numbered = {token: first + place for place, token in enumerate(ADDED)}
    flags = {word: {"single_word": True}, accented: {"normalized": True}, pair: {"rstrip": True}}
    if source == "decoder":
        listed = {
            str(number): {
                "content": token,
                "special": token in (opening, closing),
                **flags.get(token, {}),
            }
            for token, number in numbered.items()
        }
        return {"added_tokens_decoder": listed}, {"added_tokens.json": {"unread": 9}}
    if source == "further":
        return {"extra_special_tokens": [opening, closing]}, {}
    if source == "older":
        return {"additional_special_tokens": [opening, word]}, {"added_tokens.json": numbered}
    if source == "map":
        stated = {"additional_special_tokens": [opening, closing]}
        return {}, {"special_tokens_map.json": stated, "added_tokens.json": numbered}
    if source == "by role":
        return {"pair_token": pair, "mask_token": MASK}, {}
    return {}, {}


def cases(kind: str) -> Iterator[tuple[str, dict[str, Any] | None, dict[str, Any]]]:
    """Settings and files of a kind: none at all, and each source with random choices."""
    yield "nothing", None, {}
    first = max(vocabulary(kind).get_vocab().values()) + 1
    chosen = random.Random(kind)  # noqa: S311 - a test repeats
    roles = dict(SPELLINGS[kind].roles) if kind in SPELLINGS else {}
    for number, source in enumerate(SOURCES):
        has_roles = bool(number % 2)
        settings, files = added_by(source, first)
        flags = {name: chosen.choice(values) for name, values in FLAGS.items()}
        stated = {name: value for name, value in flags.items() if value is not None}
        named = {"tokenizer_class": KINDS[kind]} if has_roles else {}
        case = {**named, **(roles if has_roles else {}), **stated, **settings}
        yield f"{source} {case}", case, files


@pytest.mark.parametrize("kind", KINDS)
def test_ids_types_places_and_cuts_are_those_of_transformers(kind: str, tmp_path: Path) -> None:
    for number, (what, settings, files) in enumerate(cases(kind)):
        folder = write(tmp_path / str(number), kind, settings, files)
        ours = load_foreign_tokenizer(folder)
        theirs = AUTO.from_pretrained(folder, local_files_only=True)
        compare(ours, theirs, f"{kind}: {what}")


def compare(ours: Tokenizer, theirs: Any, what: str) -> None:
    """Fail with the first text, or pair, that two tokenizers read otherwise."""
    cutting = cutting_copy(ours, MAX_TOKENS)
    half = len(texts()) // 2
    pairs = list(zip(texts()[half:], texts()[:0:-1], strict=False))
    for given in (list(texts()[:half]), pairs):
        read = theirs(given, return_offsets_mapping=True)
        cut = theirs(given, truncation=True, max_length=MAX_TOKENS)["input_ids"]
        found, cut_by_ours = ours.encode_batch(given), cutting.encode_batch(given)
        for number, one in enumerate(found):
            where = f"{what}: {given[number]!r}: {one.tokens}"
            assert read["input_ids"][number] == one.ids, where
            types = read["token_type_ids"][number] if TYPES in read else [0] * len(one.ids)
            assert types == one.type_ids, f"{where}: types {one.type_ids}"
            assert read["offset_mapping"][number] == one.offsets, f"{where}: {one.offsets}"
            assert cut[number] == cut_by_ours[number].ids, f"{where} is cut otherwise"


@pytest.mark.parametrize("kind", ["bert", "distilbert", "mpnet", "roberta", "gpt2", "qwen2"])
@pytest.mark.parametrize("adds_ends", [False, True])
def test_a_vocabulary_alone_is_read_as_by_its_class(
    kind: str, adds_ends: bool, tmp_path: Path
) -> None:
    """Before tokenizer.json, folders had vocab.txt, or vocab.json and merges.txt."""
    settings = {"add_bos_token": adds_ends, "add_eos_token": adds_ends, "bos_token": "<s>"}
    folder = write(tmp_path / kind, kind, settings, {"added_tokens.json": {"[E1]": 700}})
    (folder / "tokenizer.json").unlink()
    model = vocabulary(kind).model
    if kind in ("bert", "distilbert", "mpnet"):
        words = sorted(vocabulary(kind).get_vocab().items(), key=lambda item: item[1])
        (folder / "vocab.txt").write_text("".join(f"{word}\n" for word, _ in words))
    else:
        model.save(str(folder))
    theirs = AUTO.from_pretrained(folder, local_files_only=True)
    compare(load_foreign_tokenizer(folder), theirs, f"{kind}, {settings}")


def test_markers_of_entities_in_a_file_of_their_own_are_one_token_each(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", "bert", {"do_lower_case": True}, {})
    (folder / "tokenizer.json").unlink()
    words = sorted(vocabulary("bert").get_vocab().items(), key=lambda item: item[1])
    (folder / "vocab.txt").write_text("\n".join(word for word, _ in words))
    (folder / "added_tokens.json").write_text(
        json.dumps({"[E1]": len(words), "[/E1]": len(words) + 1})
    )
    found = load_foreign_tokenizer(folder).encode("[E1] Free [/E1]")
    assert found.ids[1] == len(words)
    assert found.ids[-2] == len(words) + 1


def test_the_classes_of_networks_are_those_of_transformers() -> None:
    """A class that is new there, or that changed its name, is found here first."""
    auto = transformers.models.auto.tokenization_auto
    theirs = {each for each in auto.TOKENIZER_MAPPING_NAMES.values() if each}
    known = {*CLASSES, *AS_IT_IS, *WITHOUT_RULES, *IN_PYTHON, "MistralCommonBackend"}
    assert {each.removesuffix("Fast") for each in theirs} - known == set()
    for model_type, name in BY_MODEL_TYPE.items():
        registered = auto.TOKENIZER_MAPPING_NAMES[model_type]
        expected = "TokenizersBackend" if registered == "MistralCommonBackend" else registered
        assert name == expected, model_type


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tokenizer_class": "BertJapaneseTokenizer"}, "which cuts texts by code in Python"),
        ({"tokenizer_class": "HerbertTokenizerFast"}, "whose rules are not known here: write its"),
        (
            {"tokenizer_class": "OwnTokenizer", "auto_map": {"AutoTokenizer": ["own.Own", None]}},
            r"which is code of the folder's own \(auto_map\) and is not run",
        ),
        ({"split_special_tokens": True}, "split_special_tokens is True, but only False"),
        ({"truncation_side": "middle"}, "but must be left or right"),
        ({"do_lower_case": "yes"}, "do_lower_case is 'yes', but must be true or false"),
        ({"added_tokens_decoder": {"9": {"content": 9}}}, "must be an added token"),
        ({"added_tokens_decoder": {"a": {"content": "a"}}}, "field of the wrong type"),
        ({"cls_token": None}, "cls_token is null, but its tokenizer puts it around texts"),
        ({"extra_special_tokens": "one"}, "extra_special_tokens is 'one', but must be a list"),
        ({"mask_token": 3}, "must be an added token"),
        ({"init_inputs": ["a"]}, r"init_inputs is \['a'\], but only"),
    ],
)
def test_what_is_not_read_is_refused_by_name(
    settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    folder = write(tmp_path / "a", "bert", settings, {})
    with pytest.raises(CheckpointError, match=message):
        load_foreign_tokenizer(folder)


def test_a_class_without_rules_is_read_once_its_tokenizer_is_written_as_it_is(
    tmp_path: Path,
) -> None:
    """The way out that the refusal names."""
    folder = write(tmp_path / "a", "roberta", {"tokenizer_class": "HerbertTokenizer"}, {})
    theirs = AUTO.from_pretrained(folder, local_files_only=True)
    again: Any = transformers.PreTrainedTokenizerFast
    again(tokenizer_object=theirs.backend_tokenizer, **theirs.special_tokens_map).save_pretrained(
        folder
    )
    compare(load_foreign_tokenizer(folder), theirs, "written once more")


def test_a_vocabulary_of_another_kind_than_its_class_is_taken_as_it_is(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", "roberta", {"tokenizer_class": "BertTokenizer"}, {})
    with pytest.warns(UserWarning, match="of BPE, and BertTokenizer is one of WordPiece"):
        found = load_foreign_tokenizer(folder)
    assert found.encode("free prize").ids == vocabulary("roberta").encode("free prize").ids


def test_a_key_that_is_not_known_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", "bert", {"do_upper_case": True}, {})
    with pytest.warns(UserWarning, match="'do_upper_case' is passed over, as no setting of texts"):
        load_foreign_tokenizer(folder)


@pytest.fixture
def encoder(tmp_path: Path) -> Any:
    """BERT with a row for each token of its vocabulary and no more, in a folder."""
    torch.manual_seed(3)
    sizes: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.BertConfig(
        **sizes, vocab_size=600, intermediate_size=16, max_position_embeddings=64,
        initializer_range=0.5,
    )  # fmt: skip
    model: Any = transformers.BertModel(config)
    model.eval()
    write(tmp_path / "bert", "bert", {}, {})
    model.save_pretrained(tmp_path / "bert")
    return model


def test_outputs_are_those_of_transformers(encoder: Any, tmp_path: Path) -> None:
    """Of texts and of pairs, whose types follow model_input_names."""
    folder = tmp_path / "bert"
    for settings in (
        {"do_lower_case": False},
        {"strip_accents": False, "model_input_names": ["input_ids", "attention_mask"]},
        {"tokenize_chinese_chars": False, "truncation_side": "left"},
    ):
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
        checkpoint = load_checkpoint(folder)
        cutting = cutting_copy(checkpoint.tokenizer, checkpoint.max_tokens)
        theirs = AUTO.from_pretrained(folder, local_files_only=True)
        for text in texts()[1::7]:
            for given in ((text,), (text, "Caf\u00e9 PRIZE")):
                read = theirs(*given, truncation=True, max_length=64, return_tensors="pt")
                found = cutting.encode(*given)
                inputs = [torch.tensor([each]) for each in (found.ids, found.type_ids)]
                with torch.inference_mode():
                    expected = encoder(**read).last_hidden_state
                    outputs = checkpoint.encoder_model.encoder(
                        inputs[0], torch.ones_like(inputs[0]), inputs[1]
                    )
                torch.testing.assert_close(outputs[-1], expected, rtol=0, atol=1e-5)


def test_a_tokenizer_with_a_token_more_than_the_network_is_read(
    encoder: Any, tmp_path: Path
) -> None:
    """The token has no row; that a text with it is refused is the server's."""
    folder = tmp_path / "bert"
    assert encoder.config.vocab_size == 600
    (folder / "tokenizer_config.json").write_text('{"extra_special_tokens": ["[E1]"]}')
    checkpoint = load_checkpoint(folder)
    assert checkpoint.tokenizer.token_to_id("[E1]") == 600
    assert checkpoint.num_rows_if_fewer == 600
    (folder / "tokenizer_config.json").write_text('{"cls_token": "[E1]"}')
    with pytest.raises(CheckpointError, match="token that is put around texts is 600, but must be"):
        load_checkpoint(folder)
    (folder / "tokenizer_config.json").write_text("{}")
    assert load_checkpoint(folder).num_rows_if_fewer == 0
