"""A hostile adapter is merged to finite weights, or refused in one sentence that names its file."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save

from models.checkpoints.adapters import merged
from models.checkpoints.checkpoint import Checkpoint, load_checkpoint
from models.checkpoints.peft import ADAPTER_CONFIG, ADAPTER_WEIGHTS, LABELS_FILE, read_peft
from models.errors import CheckpointError
from tests.fakes.hostile_folder import changed, hostile, safetensors_file, write_folder

MAX_MESSAGE = 2_500  # characters, the paths included
CONFIG: dict[str, Any] = {
    "peft_type": "LORA",
    "r": 2,
    "lora_alpha": 4,
    "target_modules": ["q_proj"],
    "rank_pattern": {"v_proj": 2},
    "alpha_pattern": {"v_proj": 2},
    "layers_to_transform": [0, 1],
    "modules_to_save": ["score"],
}
NAME = "base_model.model.model.layers.{}.self_attn.q_proj.lora_{}.weight"
TENSORS = {
    NAME.format(i, side): torch.ones(*shape)
    for i in range(2)
    for side, shape in (("A", (2, 32)), ("B", (32, 2)))
}
WEIGHTS = save(TENSORS)
HEADER_BYTES = int.from_bytes(WEIGHTS[:8], "little")
HEADER: dict[str, Any] = json.loads(WEIGHTS[8 : 8 + HEADER_BYTES])
bounded = settings(
    max_examples=80,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return load_checkpoint(write_folder(tmp_path_factory.mktemp("base")))


def check(base: Checkpoint, folder: Path, config: object, weights: bytes) -> None:
    (folder / ADAPTER_CONFIG).write_text(json.dumps(config))
    (folder / ADAPTER_WEIGHTS).write_bytes(weights)
    refusal = ""
    try:
        model = merged(read_peft(folder), base).model
        assert all(bool(weight.isfinite().all()) for weight in model.state_dict().values())
    except CheckpointError as error:
        refusal = str(error)
    assert str(folder) in (refusal or str(folder))
    assert len(refusal) < MAX_MESSAGE


@given(config=st.one_of(changed(CONFIG), st.dictionaries(st.sampled_from([*CONFIG]), hostile)))
@bounded
def test_any_configuration(base: Checkpoint, tmp_path: Path, config: Any) -> None:
    whole = {**CONFIG, **config} if isinstance(config, dict) else config
    check(base, tmp_path, whole, WEIGHTS)


@given(header=changed(HEADER))
@bounded
def test_any_header(base: Checkpoint, tmp_path: Path, header: Any) -> None:
    weights = safetensors_file(header, WEIGHTS[8 + HEADER_BYTES :])
    check(base, tmp_path, CONFIG, weights)


@given(place=st.integers(0, len(WEIGHTS) - 1), byte=st.integers(0, 255))
@bounded
def test_any_byte(base: Checkpoint, tmp_path: Path, place: int, byte: int) -> None:
    check(base, tmp_path, CONFIG, WEIGHTS[:place] + bytes([byte]) + WEIGHTS[place + 1 :])


@given(labels=hostile)
@bounded
def test_any_labels(base: Checkpoint, tmp_path: Path, labels: Any) -> None:
    """A head of two outputs is among the weights."""
    (tmp_path / LABELS_FILE).write_text(json.dumps(labels))
    tensors = {**TENSORS, "base_model.model.score.weight": torch.ones(2, 32)}
    check(base, tmp_path, CONFIG, save(tensors))
