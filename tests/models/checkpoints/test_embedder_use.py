"""What an embedder's folder declares beside its network, up to the manifest of its export."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from commands.folders.importing import imported
from export.exporter import export_any
from export.settings import ExportSettings
from models.checkpoints.checkpoint import load_checkpoint, save_checkpoint
from models.checkpoints.embedder_use import EmbedderUse
from models.checkpoints.sentence_transformers import read_pooling
from models.checkpoints.settings_files import SettingsOfTexts, lowered
from models.errors import CheckpointError, SettingError
from models.recipes.import_settings import ImportSettings
from tests.checkpoints.rows import ROWS

PROMPTS = {"document": "passage: ", "query": "query: "}
DECLARED = {
    "prompts": PROMPTS,
    "default_prompt_name": "document",
    "similarity_fn_name": "dot",
    "model_type": "SentenceTransformer",
}


def declare(folder: Path, **values: Any) -> None:
    (folder / "config_sentence_transformers.json").write_text(json.dumps(values))


def test_a_folder_without_the_file_declares_nothing(tmp_path: Path) -> None:
    assert EmbedderUse.read(tmp_path) == EmbedderUse()


def test_prompts_widths_and_the_measure_are_read(tmp_path: Path) -> None:
    declare(tmp_path, **DECLARED)
    (tmp_path / "config.json").write_text('{"matryoshka_dimensions": [64, 32, 16]}')
    use = EmbedderUse.read(tmp_path)
    assert use == EmbedderUse(PROMPTS, "document", (64, 32, 16), "dot")
    assert use.within(64).dimensions == (32, 16)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"default_prompt_name": "query"}, "default_prompt_name is 'query', but prompts has none"),
        ({"similarity_fn_name": "near"}, "similarity_fn_name is 'near', but must be one of cosine"),
        ({"prompts": {"query": 3}}, "the prompt 'query' is no text"),
        ({"prompts": {"query": "a" * 4_097}}, "'query' has 4097 characters, but at most 4096"),
        ({"prompts": ["query"]}, r"prompts is \['query'\], but must be an object"),
        ({"default_prompt_name": ["query"]}, "default_prompt_name is .* but prompts has none"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(
    tmp_path: Path, values: dict[str, Any], message: str
) -> None:
    declare(tmp_path, **values)
    with pytest.raises(CheckpointError, match=message):
        EmbedderUse.read(tmp_path)


def test_widths_that_are_no_list_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"matryoshka_dimensions": "64"}')
    with pytest.raises(CheckpointError, match="matryoshka_dimensions is '64', but must be a list"):
        EmbedderUse.read(tmp_path)


def test_a_pooling_that_leaves_the_prompt_out_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"pooling_mode_mean_tokens": true, "include_prompt": false}')
    with pytest.raises(CheckpointError, match="include_prompt is False, but a pooling that leaves"):
        read_pooling(path)


@pytest.mark.parametrize(("is_lowered", "ids"), [(True, [1]), (False, [0])])
def test_the_case_is_lowered_where_the_folder_says_so(
    tmp_path: Path, is_lowered: bool, ids: list[int]
) -> None:
    (tmp_path / "modules.json").write_text('[{"type": "Transformer", "path": ""}]')
    (tmp_path / "sentence_bert_config.json").write_text(json.dumps({"do_lower_case": is_lowered}))
    words = WordLevel({"?": 0, "cat": 1}, unk_token="?")  # noqa: S106 - a token of text
    tokenizer = Tokenizer(words)
    tokenizer.pre_tokenizer = Whitespace()
    assert lowered(tokenizer, SettingsOfTexts.read(tmp_path)).encode("Cat").ids == ids


@pytest.mark.parametrize("text", ["", "0", "32,65", "wide", "32,"])
def test_widths_of_a_flag_are_whole_numbers_up_to_the_networks(tmp_path: Path, text: str) -> None:
    ROWS[0].write(tmp_path)
    with pytest.raises(SettingError, match="whole numbers from 1 to 64 with commas"):
        imported(load_checkpoint(tmp_path), "here", ImportSettings(dimensions=text))


def test_an_export_has_what_the_folder_declared_and_the_ranges_of_each_width(
    tmp_path: Path,
) -> None:
    """The checkpoint between keeps it; vectors have length 1, so that no value is above 1."""
    hub, own = tmp_path / "hub", tmp_path / "own"
    ROWS[0].write(hub)
    declare(hub, **DECLARED)
    checkpoint = imported(load_checkpoint(hub), "here", ImportSettings(dimensions="64,16,32"))
    save_checkpoint(checkpoint, own)
    settings = ExportSettings("mini", tmp_path / "repository", "fp32")
    use = export_any(load_checkpoint(own), settings).manifest.embedder
    assert use is not None
    assert (use.prompts, use.default_prompt, use.similarity) == (PROMPTS, "document", "dot")
    assert (use.dimensions, use.is_normalized) == ((32, 16), True)
    for width in (64, 32, 16):
        ranges = use.range_of(width)
        assert ranges is not None
        least, greatest = ranges
        assert (least < greatest).all()
        assert np.abs(ranges).max() <= 1.0
    assert list(use.ranges) == ["64", "32", "16"]
