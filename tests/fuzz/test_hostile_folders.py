"""A folder of a checkpoint is imported, or refused in one sentence that names the file.

Nothing that a file states is allocated or counted before it is checked, and no text of a file
comes whole into a message.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save

from models.checkpoints.checkpoint import load_checkpoint, save_checkpoint
from models.checkpoints.decoder_families import FAMILIES
from models.checkpoints.decoder_fields import (
    BY_LAYER,
    NUMBERS,
    ROPE_NUMBERS,
    SIZES,
    WHOLE,
)
from models.checkpoints.families import BERT
from models.checkpoints.family import bert_config
from models.checkpoints.score_heads import OLD_ACTIVATION, OWN_CONFIG
from models.errors import CheckpointError, ModelError, SettingError
from models.networks.encoder import Encoder
from models.networks.heads import ClassificationHead, PairScorer
from tests.fakes.hostile_folder import (
    LONG,
    TOKENIZER,
    changed,
    config,
    hostile,
    safetensors_file,
    tensors,
    write_folder,
)
from tests.models.tiny import word_tokenizer

MAX_MESSAGE = 2_000  # characters, the path of the folder included
ROPES = st.dictionaries(
    st.sampled_from(
        [*ROPE_NUMBERS, "rope_type", "type", "short_factor", "long_factor", "truncate"]
    ),
    hostile
    | st.sampled_from(
        ["default", "linear", "dynamic", "llama3", "yarn", "longrope", [1.0] * 8, 2.0]
    ),
    max_size=5,
)
OTHERS = (
    *("model_type", "hidden_act", "hidden_activation", "eos_token_id", "text_config"),
    *("tie_word_embeddings", "use_sliding_window", "quantization_config", "architectures"),
)
FIELDS = st.dictionaries(
    st.sampled_from([*SIZES, *WHOLE, *NUMBERS, *BY_LAYER, *OTHERS]),
    hostile,
    max_size=3,
)
bounded = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def outcome(folder: Path, output: Path | None = None) -> str:
    """Empty if the folder was imported, else the sentence that refuses it."""
    try:
        checkpoint = load_checkpoint(folder)
        if output is not None:
            save_checkpoint(checkpoint, output)
    except ModelError as error:
        refusal = error
    else:
        return ""
    message = str(refusal)
    assert not isinstance(refusal, SettingError), "it would be taken for a wrong flag"
    assert str(folder) in message
    assert len(message) < MAX_MESSAGE
    message.encode()
    return message


def test_the_folder_that_is_changed_can_be_imported(tmp_path: Path) -> None:
    assert outcome(write_folder(tmp_path / "hub"), tmp_path / "ours") == ""


@bounded
@given(kind=st.sampled_from(list(FAMILIES)), fields=FIELDS, ropes=ROPES, name=st.booleans())
def test_any_configuration(
    tmp_path: Path, kind: str, fields: dict[str, Any], ropes: dict[str, Any], name: bool
) -> None:
    stretched = {"rope_parameters" if name else "rope_scaling": ropes} if ropes else {}
    outcome(write_folder(tmp_path / "hub", kind, **stretched, **fields))


@pytest.fixture(scope="module")
def scorer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cross-encoder that can be imported."""
    folder = tmp_path_factory.mktemp("scorer")
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    document = {
        "model_type": "bert",
        "vocab_size": 16,
        "intermediate_size": 8,
        **sizes,
        "max_position_embeddings": 12,
        "architectures": ["BertForSequenceClassification"],
        "id2label": {"0": "LABEL_0"},
    }
    config = bert_config(document)
    network = PairScorer(Encoder(config), ClassificationHead(8, 1))
    weights = {BERT.name_in_file(name): each for name, each in network.state_dict().items()}
    (folder / "config.json").write_text(json.dumps(document))
    (folder / "model.safetensors").write_bytes(save(weights))
    word_tokenizer().save(str(folder / "tokenizer.json"))
    assert outcome(folder) == ""
    return folder


SCORE_VALUES = hostile | st.sampled_from(
    [
        *("regression", "multi_label_classification", ["regression"], {"0": "a"}, {"0": None}),
        *({"activation_fn": "torch.nn.Identity"}, {"activation_fn": LONG}, {"activation_fn": {}}),
        *("torch.nn.modules.activation.Sigmoid", "torch.nn.modules.activation.ReLU", "torch.nn."),
        *("CrossEncoder", "os.system.Sigmoid"),
    ]
)


@bounded
@given(
    fields=st.dictionaries(
        st.sampled_from(["problem_type", "id2label", "sentence_transformers", OLD_ACTIVATION]),
        SCORE_VALUES,
    ),
    own=st.none() | st.dictionaries(st.sampled_from(["model_type", "activation_fn"]), SCORE_VALUES),
)
def test_any_head_of_one_output(scorer: Path, fields: dict[str, Any], own: Any) -> None:
    before = (scorer / "config.json").read_text()
    (scorer / "config.json").write_text(json.dumps(json.loads(before) | fields))
    if own is not None:
        (scorer / OWN_CONFIG).write_text(json.dumps(own))
    try:
        outcome(scorer)
    finally:
        (scorer / "config.json").write_text(before)
        (scorer / OWN_CONFIG).unlink(missing_ok=True)


@bounded
@given(data=st.data())
def test_any_file_beside_it(tmp_path: Path, data: st.DataObject) -> None:
    folder = write_folder(tmp_path / "hub")
    chat = {"chat_template": [{"name": "default", "template": "a"}], "eos_token": {"content": "b"}}
    sampling = {"temperature": 0.5, "top_k": 3, "eos_token_id": [2], "do_sample": True}
    for name, document in (
        ("tokenizer_config.json", {**chat, "model_max_length": 9, "bos_token": "<s>"}),
        ("generation_config.json", sampling),
        ("special_tokens_map.json", {"eos_token": "</s>"}),
    ):
        (folder / name).write_text(json.dumps(data.draw(changed(document))))
    outcome(folder, tmp_path / "ours")


@bounded
@given(document=changed(json.loads(TOKENIZER)))
def test_any_tokenizer(tmp_path: Path, document: Any) -> None:
    folder = write_folder(tmp_path / "hub")
    (folder / "tokenizer.json").write_text(json.dumps(document))
    outcome(folder)


@bounded
@given(data=st.data())
def test_any_header_of_weights(tmp_path: Path, data: st.DataObject) -> None:
    folder = write_folder(tmp_path / "hub")
    numbers = save(tensors())
    size = int.from_bytes(numbers[:8], "little")
    header = json.loads(numbers[8 : 8 + size])
    content = safetensors_file(
        data.draw(changed(header)),
        numbers[8 + size :],
        data.draw(st.sampled_from([None, None, None, 0, 5, 2**40, 2**63])),
    )
    (folder / "model.safetensors").write_bytes(content)
    outcome(folder)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"\x00" * 100,
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"model_type": ' + b"9" * 10_000 + b"}",
        b"[1]",
        b'{"model_type": "llama"',
    ],
    ids=range(8),
)
@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "generation_config.json"])
def test_a_file_that_is_no_object_is_refused(tmp_path: Path, name: str, content: bytes) -> None:
    folder = write_folder(tmp_path / "hub")
    (folder / name).write_bytes(content)
    assert name in outcome(folder)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000, but must be a whole"),
        ({"hidden_size": 2**40}, "hidden_size is 1099511627776, .* from 1 to 131072"),
        ({"vocab_size": -1}, "vocab_size is -1, but must be a whole number from 1"),
        ({"num_attention_heads": "8"}, "num_attention_heads is '8', but must be a whole number"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0"),
        ({"max_position_embeddings": 1e308}, "max_position_embeddings is 1e.308"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps is nan, but must be a number from 0 to 1"),
        ({"rope_theta": 1e308}, "rope_theta is 1e.308, but must be a number from 1 to 1e.15"),
        ({"rope_theta": LONG}, r"rope_theta is 'x{99}\.\.\., but must be a number"),
        ({"partial_rotary_factor": -3}, "partial_rotary_factor is -3"),
        ({"model_type": "qwen3", "layer_types": []}, "layer_types is .., .* a list of 2"),
        ({"model_type": "gemma3_text", "sliding_window_pattern": 0}, "sliding_window_pattern is 0"),
        (
            {"rope_scaling": {"rope_type": "longrope", "short_factor": [None] * 8}},
            r"rope_parameters.short_factor\[0\] is None",
        ),
        (
            {"rope_scaling": {"rope_type": "yarn", "factor": 2, "rope_theta": 1}},
            "rope_parameters is .*yarn.* numbers that give frequencies",
        ),
    ],
)
def test_a_value_out_of_bounds_is_named_with_its_bounds(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(CheckpointError, match=f"config.json: {words}"):
        load_checkpoint(write_folder(tmp_path / "hub", **changes))


@pytest.mark.parametrize(
    "part",
    [
        *("../model.safetensors", "/etc/passwd", "a/b.safetensors", "..", "", ".", "\x00"),
        *("\ud800", "x" * 5_000, LONG, 7, None, ["a"], "config.json", "model-1.safetensors"),
    ],
    ids=range(15),
)
def test_an_index_leads_nowhere_else(tmp_path: Path, part: Any) -> None:
    (tmp_path / "model.safetensors").write_bytes(save(tensors()))
    folder = write_folder(tmp_path / "hub")
    (folder / "model.safetensors").unlink()
    index = {"weight_map": dict.fromkeys(tensors(), part)}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert outcome(folder)


def test_weights_that_are_no_file_are_missing(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "hub")
    path = folder / "model.safetensors"
    path.unlink()
    path.symlink_to("/dev/zero")
    assert "is missing" in outcome(folder)
    path.unlink()
    os.mkfifo(path)
    assert "is missing" in outcome(folder)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64, torch.uint8])
def test_weights_of_whole_numbers_are_refused_by_name(tmp_path: Path, dtype: torch.dtype) -> None:
    folder = write_folder(tmp_path / "hub")
    others = tensors() | {"model.norm.weight": torch.ones(32).to(dtype)}
    (folder / "model.safetensors").write_bytes(save(others))
    assert "model.norm.weight has numbers of type" in outcome(folder)


def test_an_id_beyond_the_vocabulary_is_refused(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "hub")
    document = json.loads(TOKENIZER)
    document["model"]["vocab"]["▁zz"] = 2**32 - 2
    (folder / "tokenizer.json").write_text(json.dumps(document))
    limit = f"at most the model's vocab_size, {config()['vocab_size']}"
    assert f"vocabulary size is 4294967295, but must be {limit}" in outcome(folder)
