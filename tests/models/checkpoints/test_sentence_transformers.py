"""What a sentence-transformers folder declares; that it embeds so is in test_huggingface."""

import json
from pathlib import Path

import pytest

from models.checkpoints.sentence_transformers import EmbedderFolder
from models.checkpoints.settings_files import longest_text
from models.errors import CheckpointError


def declare(folder: Path, steps: list[str], pooling: dict[str, object]) -> None:
    """Write modules.json and the configuration of the pooling, beside no weights at all."""
    places = {"Transformer": "", "Pooling": "1_Pooling"}
    modules = [
        {"type": f"sentence_transformers.b.{step}", "path": places.get(step, f"2_{step}")}
        for step in steps
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))


def test_a_folder_without_modules_is_a_plain_encoder_to_be_pooled_by_mean(tmp_path: Path) -> None:
    assert EmbedderFolder.read(tmp_path) == EmbedderFolder(tmp_path, "mean", normalize=False)
    assert not EmbedderFolder.read(tmp_path).is_declared


def test_the_encoder_may_be_in_a_folder_of_its_own(tmp_path: Path) -> None:
    modules = [
        {"type": "sentence_transformers.models.Transformer", "path": "0_Transformer"},
        {"type": "sentence_transformers.models.Pooling", "path": "1_P"},
    ]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    (tmp_path / "1_P").mkdir()
    (tmp_path / "1_P" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    use = EmbedderFolder.read(tmp_path)
    assert use == EmbedderFolder(tmp_path / "0_Transformer", "cls", is_declared=True)


@pytest.mark.parametrize(
    "pooling",
    [
        {"pooling_mode": "cls"},
        {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False},
    ],
)
def test_both_ways_to_name_a_pooling_are_read(tmp_path: Path, pooling: dict[str, object]) -> None:
    declare(tmp_path, ["Transformer", "Pooling", "Normalize"], pooling)
    use = EmbedderFolder.read(tmp_path)
    assert (use.pooling, use.normalize) == ("cls", True)


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        ({"pooling_mode_max_tokens": True}, "max"),
        ({"pooling_mode": "weightedmean"}, "weightedmean"),
        ({"pooling_mode": ["lasttoken", "cls"]}, "last+cls"),
        (
            # Of older folders in one order, whatever theirs is.
            {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True},
            "cls+mean",
        ),
    ],
)
def test_several_poolings_are_read_in_the_order_of_their_vectors(
    tmp_path: Path, pooling: dict[str, object], expected: str
) -> None:
    declare(tmp_path, ["Transformer", "Pooling"], pooling)
    assert EmbedderFolder.read(tmp_path).pooling == expected


@pytest.mark.parametrize(
    ("pooling", "message"),
    [
        ({"pooling_mode_median": True}, "asks for 'pooling_mode_median', but must be of cls, max"),
        ({"pooling_mode": ["mean", "median"]}, "asks for 'median', but .*: it cannot be imported"),
        ({}, "asks for no pooling"),
    ],
)
def test_another_pooling_is_refused_by_name(
    tmp_path: Path, pooling: dict[str, object], message: str
) -> None:
    declare(tmp_path, ["Transformer", "Pooling"], pooling)
    with pytest.raises(CheckpointError, match=message):
        EmbedderFolder.read(tmp_path)


def test_maps_stand_between_pooling_and_normalising(tmp_path: Path) -> None:
    steps = ["Transformer", "Pooling", "Dense", "Dropout", "Normalize"]
    declare(tmp_path, steps, {"pooling_mode": "mean"})
    use = EmbedderFolder.read(tmp_path)
    assert use.normalize
    assert use.maps == (("Dense", tmp_path / "2_Dense"), ("Dropout", tmp_path / "2_Dropout"))


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (["Transformer", "Pooling", "WordWeights"], "lists Transformer, Pooling, WordWeights, but"),
        (
            ["Transformer", "Pooling", "Normalize", "Dense"],
            "and last optionally Normalize are supp",
        ),
        (["Transformer", "Dense"], "but only Transformer, Pooling, then any of Dense, LayerNorm"),
        (
            ["Router", "Normalize"],
            "Router is several networks, of which a text's task chooses: it",
        ),
        (["StaticEmbedding"], "StaticEmbedding is a table of vectors without attention: it can"),
        ([], "lists nothing, but only Transformer"),
    ],
)
def test_a_step_that_an_embedder_cannot_do_is_refused_by_name(
    tmp_path: Path, steps: list[str], message: str
) -> None:
    declare(tmp_path, steps, {"pooling_mode": "mean"})
    with pytest.raises(CheckpointError, match=message):
        EmbedderFolder.read(tmp_path)


def test_a_normalize_of_tokens_is_refused_by_name(tmp_path: Path) -> None:
    declare(tmp_path, ["Transformer", "Pooling", "Normalize"], {"pooling_mode": "mean"})
    (tmp_path / "2_Normalize").mkdir()
    path = tmp_path / "2_Normalize" / "config.json"
    path.write_text('{"module_input_name": "token_embeddings"}')
    with pytest.raises(CheckpointError, match="module_input_name is 'token_embeddings', but only"):
        EmbedderFolder.read(tmp_path)


def test_the_longest_sequence_is_read_where_it_is_declared(tmp_path: Path) -> None:
    declare(tmp_path, ["Transformer", "Pooling"], {"pooling_mode": "mean"})
    assert longest_text(tmp_path) is None
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": 256}')
    assert longest_text(tmp_path) == 256
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": "long"}')
    with pytest.raises(
        CheckpointError, match=r"bert_config\.json: max_seq_length is 'long', but must be"
    ):
        longest_text(tmp_path)
    (tmp_path / "sentence_bert_config.json").write_text('{"max_seq_length": -5}')
    with pytest.raises(CheckpointError, match="max_seq_length is -5, but must be a whole number"):
        longest_text(tmp_path)
