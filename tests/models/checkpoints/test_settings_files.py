"""The settings of texts of sentence-transformers folders; what 6.2 made of them is written down."""

import json
from pathlib import Path
from typing import Any

import pytest

from models.checkpoints.embedder_use import check_no_prompt
from models.checkpoints.foreign_tokenizer import load_foreign_tokenizer
from models.checkpoints.huggingface import max_tokens_of
from models.checkpoints.sentence_transformers import EmbedderFolder
from models.checkpoints.setting_keys import KEYS, TEXT_SETTINGS, table_of_keys
from models.checkpoints.settings_files import SettingsOfTexts
from models.checkpoints.tokenizer_settings import TokenizerSettings
from models.errors import CheckpointError
from tests.fakes.foreign_texts import vocabulary

BERT, ROBERTA, DISTILBERT, CAMEMBERT = TEXT_SETTINGS[:4]
POSITIONS = 64
TRANSFORMER = "sentence_transformers.models.Transformer"
CASED, OWN = {"do_lower_case": False}, {"max_seq_length": 16, "do_lower_case": True}
LIMITED = {"model_max_length": 32}


def write(folder: Path, files: dict[str, Any], settings: dict[str, Any], listed: bool) -> Path:
    """A folder of BERT's with settings of texts, listed in modules.json or not."""
    vocabulary("bert").save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text('{"model_type": "bert"}')
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    for name, values in files.items():
        (folder / name).write_text(json.dumps(values))
    if listed:
        (folder / "modules.json").write_text(json.dumps([{"type": TRANSFORMER, "path": ""}]))
    return folder


@pytest.mark.parametrize(
    ("files", "settings", "is_listed", "most", "is_lowered"),
    [
        *(({name: OWN}, {**CASED, **LIMITED}, True, 16, True) for name in TEXT_SETTINGS),
        ({BERT: {"max_seq_length": 16}, ROBERTA: OWN}, CASED, True, 16, False),
        ({BERT: {}, CAMEMBERT: {**OWN, "max_seq_length": 8}}, CASED, True, 8, True),
        ({BERT: OWN}, {**CASED, **LIMITED}, False, 32, False),
        ({BERT: {"max_seq_length": 48}}, LIMITED, True, 48, True),
        ({BERT: CASED}, LIMITED, True, 32, True),
        ({BERT: {"max_seq_length": None, **CASED}}, LIMITED, True, 32, True),
        ({}, {}, True, POSITIONS, True),
        ({}, {"model_max_length": 10**30}, True, POSITIONS, True),
        (
            {BERT: {"max_seq_length": 16, "tokenizer_args": {"model_max_length": 24}}},
            LIMITED,
            True,
            24,
            True,
        ),
        (
            {BERT: {"processor_kwargs": {"model_max_length": 24, "do_lower_case": False}}},
            LIMITED,
            True,
            24,
            False,
        ),
        ({}, {"max_len": 20}, True, 20, True),
    ],
)
def test_limit_and_case_are_those_of_sentence_transformers(
    files: dict[str, Any],
    settings: dict[str, Any],
    is_listed: bool,
    most: int,
    is_lowered: bool,
    tmp_path: Path,
) -> None:
    folder = write(tmp_path, files, settings, is_listed)
    assert max_tokens_of(folder, POSITIONS) == most
    tokenizer = load_foreign_tokenizer(folder)
    is_equal = tokenizer.encode("free PRIZE").ids == tokenizer.encode("free prize").ids
    assert is_equal == is_lowered


def test_a_file_that_no_modules_list_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path, {BERT: OWN}, {}, listed=False)
    with pytest.warns(UserWarning, match=r"bert_config\.json is passed over, as no modules\.json"):
        assert SettingsOfTexts.read(folder) == SettingsOfTexts()


def test_the_settings_of_an_encoder_in_a_folder_of_its_own_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "0_Transformer"
    folder.mkdir()
    write(folder, {ROBERTA: OWN}, {}, listed=False)
    modules = [{"type": TRANSFORMER, "path": "0_Transformer"}]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    assert SettingsOfTexts.read(folder) == SettingsOfTexts(16, is_lowered=True)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"query_length": 32}, "query_length is 32, but only None is supported"),
        ({"processing_kwargs": {"text": {"max_length": 8}}}, "processing_kwargs is"),
        ({"modality_config": {"message": {"method": "forward"}}}, "modality_config is"),
        ({"transformer_task": "text-generation"}, "transformer_task is 'text-generation'"),
        ({"config_args": {"is_causal": False}}, "config_args has 'is_causal', which may change"),
        ({"do_lower_case": "yes"}, "do_lower_case is 'yes', but must be true or false"),
        ({"tokenizer_name_or_path": "other"}, "tokenizer_name_or_path is 'other'"),
    ],
)
def test_settings_that_are_not_read_are_refused_by_name(
    values: dict[str, Any], message: str, tmp_path: Path
) -> None:
    folder = write(tmp_path, {BERT: values}, {}, listed=True)
    with pytest.raises(CheckpointError, match=message):
        load_foreign_tokenizer(folder)


def test_a_prompt_of_what_is_no_embedder_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "config_sentence_transformers.json"
    prompts = {"query": "find: ", "none": ""}
    for name, is_refused in ((None, False), ("none", False), ("query", True)):
        path.write_text(json.dumps({"prompts": prompts, "default_prompt_name": name}))
        if is_refused:
            with pytest.raises(CheckpointError, match="default_prompt_name is 'query', but only"):
                check_no_prompt(tmp_path)
        else:
            check_no_prompt(tmp_path)


def test_two_modules_of_one_name_are_refused(tmp_path: Path) -> None:
    """There the later step takes the place of the earlier."""
    steps = [{"name": "0", "path": "", "type": TRANSFORMER} for _ in range(2)]
    (tmp_path / "modules.json").write_text(json.dumps(steps))
    with pytest.raises(CheckpointError, match="name is '0', but must be another for each module"):
        EmbedderFolder.read(tmp_path)


def test_every_refused_key_is_refused_and_its_allowed_values_are_not(tmp_path: Path) -> None:
    """Of the files of a tokenizer and of texts, each key of the table by itself."""
    for number, (file, read) in enumerate(
        [("tokenizer_config.json", True), (TEXT_SETTINGS[0], False)]
    ):
        refused = {name: key for name, key in KEYS[file].items() if key.verdict == "refused"}
        assert refused
        for place, (name, key) in enumerate(refused.items()):
            folder = tmp_path / f"{number}-{place}"
            folder.mkdir()
            for value in (*key.allowed, "something else"):
                files = {} if read else {file: {name: value}}
                write(folder, files, {name: value} if read else {}, listed=True)
                if value == "something else":
                    with pytest.raises(CheckpointError, match=name):
                        load_foreign_tokenizer(folder)
                else:
                    assert TokenizerSettings.read(folder, SettingsOfTexts.read(folder).of_tokenizer)


def test_the_documents_table_is_that_of_the_code() -> None:
    page = Path(__file__).parents[3] / "docs/reference/checkpoints.md"
    assert table_of_keys() in page.read_text(encoding="utf-8")
