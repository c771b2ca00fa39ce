"""Adapters in PEFT's format: what they add to a base by the formula, and what is refused.

The oracle is transformers' network with s B A added to its own weights, imported as any other.
PEFT's `merge_and_unload` gives the same numbers for every row of the table of checkpoints.
"""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers.pytorch_utils import Conv1D

from commands.folders.importing import as_embedder
from models.checkpoints.adapters import fitted, merged
from models.checkpoints.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from models.checkpoints.peft import ADAPTER_CONFIG, ADAPTER_WEIGHTS, LABELS_FILE, read_peft
from models.errors import CheckpointError
from models.recipes.import_settings import ImportSettings
from tests.checkpoints.rows import LAST, ROWS, Row

RANK, ALPHA = 3, 5
CONFIG: dict[str, Any] = {
    "peft_type": "LORA",
    "r": RANK,
    "lora_alpha": ALPHA,
    "target_modules": ["query", "value"],
    "bias": "none",
    "base_model_name_or_path": "../../etc/passwd",
    "fan_in_fan_out": False,
    "init_lora_weights": True,
    "modules_to_save": None,
    "use_dora": False,
    "rank_pattern": {},
    "alpha_pattern": {},
    "peft_version": "0.21.2",
    "task_type": None,
}
GRANITE = {"residual_multiplier": 0.3, "head_dim": 16, "num_key_value_heads": 2}
ADAPTED = (
    next(row for row in ROWS if (row.kind, row.head) == ("bert", "classes")),
    next(row for row in ROWS if (row.kind, row.head) == ("modernbert", "embedding")),
    next(row for row in ROWS if (row.kind, row.head) == ("deberta-v2", "classes")),
    next(row for row in ROWS if (row.kind, row.head) == ("gpt2", "classes")),
    next(row for row in ROWS if (row.kind, row.head) == ("gemma", "classes")),
    Row("phi3", "Phi-3", "classes", "gpt2", changes={"num_key_value_heads": 2}),
    Row("granite", "Granite", "embedding", "ending", "last token", GRANITE, LAST),
    next(row for row in ROWS if (row.kind, row.head) == ("qwen3", "embedding")),
    next(row for row in ROWS if (row.kind, row.head) == ("t5", "texts")),
)


def linear_maps(network: torch.nn.Module) -> dict[str, Any]:
    """The modules that PEFT adapts where all of them are asked for: all but the output layer."""
    output = getattr(network, "get_output_embeddings", lambda: None)()
    return {
        name: module
        for name, module in network.named_modules()
        if isinstance(module, torch.nn.Linear | Conv1D) and module is not output
    }


def write_adapter(folder: Path, tensors: dict[str, torch.Tensor], **changes: Any) -> Path:
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / ADAPTER_WEIGHTS)
    (folder / ADAPTER_CONFIG).write_text(json.dumps({**CONFIG, **changes}))
    return folder


def factors_of(maps: dict[str, Any], rank: int = RANK) -> dict[str, torch.Tensor]:
    """Random factors of these maps under PEFT's names."""
    generator = torch.Generator().manual_seed(7)
    tensors = {}
    for name, module in maps.items():
        weight = module.weight.T if isinstance(module, Conv1D) else module.weight
        for side, shape in (("A", (rank, weight.shape[1])), ("B", (weight.shape[0], rank))):
            values = 0.2 * torch.randn(shape, generator=generator)
            tensors[f"base_model.model.{name}.lora_{side}.weight"] = values
    return tensors


def add(
    maps: dict[str, Any],
    tensors: dict[str, torch.Tensor],
    scale: float | Callable[[str], float],
) -> None:
    """W + s B A, in place."""
    for name, module in maps.items():
        a, b = (tensors[f"base_model.model.{name}.lora_{side}.weight"] for side in "AB")
        added = (scale(name) if callable(scale) else scale) * b @ a
        module.weight.data += added.T if isinstance(module, Conv1D) else added


@pytest.mark.parametrize("row", ADAPTED, ids=lambda row: str(row.name))
def test_a_merged_adapter_is_the_base_with_scaled_products_added(row: Row, tmp_path: Path) -> None:
    network = row.write(tmp_path / "base")
    maps = linear_maps(network)
    tensors = factors_of(maps)
    adapter = write_adapter(tmp_path / "adapter", tensors, target_modules="all-linear")
    found = merged(read_peft(adapter), load_checkpoint(tmp_path / "base"))
    shutil.copytree(tmp_path / "base", tmp_path / "added")
    add(maps, tensors, ALPHA / RANK)
    network.save_pretrained(tmp_path / "added")
    expected = load_checkpoint(tmp_path / "added").model.state_dict()
    for name, weight in found.model.state_dict().items():
        torch.testing.assert_close(weight, expected[name], atol=1e-6, rtol=1e-5, msg=name)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    ADAPTED[0].write(folder)
    return folder


@pytest.fixture(scope="module")
def loaded(base: Path) -> Checkpoint:
    return load_checkpoint(base)


@pytest.fixture(scope="module")
def maps() -> dict[str, Any]:
    """The maps of query and value in two of three layers."""
    every = linear_maps(ADAPTED[0].network())
    return {n: m for n, m in every.items() if n.endswith(("query", "value")) and ".2." not in n}


LAYERS = {"layers_to_transform": [0, 1]}


@pytest.mark.parametrize(
    ("changes", "scale"),
    [
        ({}, ALPHA / RANK),
        ({"use_rslora": True}, ALPHA / math.sqrt(RANK)),
        ({"alpha_pattern": {"query": 9, "0.attention.self.query": 4}}, {"query": 3.0}),
        ({"alpha_pattern": {r"layer.\d+.attention.self.value$": 6}}, {"value": 2.0}),
        ({"r": 1, "rank_pattern": {"query": RANK, "value": RANK}}, ALPHA / RANK),
        ({"target_modules": ".*", "fan_in_fan_out": True, "layers_to_transform": None}, 5 / 3),
        ({"layers_to_transform": None, "exclude_modules": r".*\.2\..*"}, ALPHA / RANK),
    ],
    ids=str,
)
def test_the_scale_is_what_the_configuration_says(
    changes: dict[str, Any],
    scale: Any,
    loaded: Checkpoint,
    maps: dict[str, Any],
    tmp_path: Path,
) -> None:
    tensors = factors_of(maps)
    adapter = read_peft(write_adapter(tmp_path, tensors, **{**LAYERS, **changes}))
    found = fitted(adapter, loaded)
    assert len(found) == len(maps)
    for name, each in found.items():
        stored = name.replace("encoder.layers.", "bert.encoder.layer.")
        stored = stored.replace("attention.", "attention.self.")
        a, b = (tensors[f"base_model.model.{stored}.lora_{side}.weight"].numpy() for side in "AB")
        last = name.rpartition(".")[2]
        expected = scale.get(last, ALPHA / RANK) if isinstance(scale, dict) else scale
        assert (each.a == a).all()
        assert abs(each.b - expected * b).max() < 1e-6


def test_a_base_that_was_imported_keeps_its_family(tmp_path: Path) -> None:
    """A granite's factor and packed products are known to its checkpoint in our format too."""
    row = ADAPTED[6]
    network = row.write(tmp_path / "base")
    tensors = factors_of(linear_maps(network))
    adapter = read_peft(write_adapter(tmp_path / "a", tensors, target_modules="all-linear"))
    folder = load_checkpoint(tmp_path / "base")
    save_checkpoint(folder, tmp_path / "own")
    own = merged(adapter, load_checkpoint(tmp_path / "own"))
    for name, weight in merged(adapter, folder).model.state_dict().items():
        assert torch.equal(weight, own.model.state_dict()[name]), name


def test_a_base_stays_as_it_was(loaded: Checkpoint, maps: dict[str, Any], tmp_path: Path) -> None:
    before = {name: weight.clone() for name, weight in loaded.model.state_dict().items()}
    adapter = read_peft(write_adapter(tmp_path, factors_of(maps), **LAYERS))
    assert merged(adapter, loaded).origin.endswith(f", with the adapter {tmp_path.name}")
    assert all(torch.equal(weight, loaded.model.state_dict()[n]) for n, weight in before.items())


FIRST = "base_model.model.bert.encoder.layer.0.attention.self.query.lora_A.weight"
REFUSED_FIELDS = {
    "use_dora": (True, "use_dora is True, but must be false: merge the adapter with PEFT's"),
    "bias": ("all", "bias is 'all', but must be none: merge the adapter"),
    "peft_type": ("IA3", "peft_type is 'IA3', but must be LORA"),
    "trainable_token_indices": ([1], "trainable_token_indices is [1], but must be absent or"),
    "target_parameters": (["x"], "target_parameters is ['x'], but must be absent or false"),
    "layer_replication": ([[0, 1]], "layer_replication is [[0, 1]], but must be absent"),
    "alora_invocation_tokens": ([1], "alora_invocation_tokens is [1], but must be absent"),
    "lora_bias": (True, "lora_bias is True, but must be absent or false"),
    "a_field_of_next_year": (1, "a_field_of_next_year is 1, but must be absent or false"),
    "init_lora_weights": ("pissa", "init_lora_weights is 'pissa', but must be true, false"),
    "r": (0, "r is 0, but must be a whole number from 1 to 4096"),
    "lora_alpha": ("5", "lora_alpha is '5', but must be a number from"),
    "rank_pattern": ({"query": 2}, "gives it the rank 2"),
    "alpha_pattern": ({"(a+)+": 2}, "alpha_pattern is '(a+)+', but must be names of modules"),
    "target_modules": (["query"], "target_modules does not have 'encoder.layer.0.attention"),
    "layers_to_transform": ([0], "layers_to_transform does not have 'encoder.layer.1."),
    "modules_to_save": ("classifier", "modules_to_save is 'classifier', but must be a list"),
}


@pytest.mark.parametrize("name", REFUSED_FIELDS)
def test_a_field_that_would_compute_something_else_is_refused(
    name: str, loaded: Checkpoint, maps: dict[str, Any], tmp_path: Path
) -> None:
    value, message = REFUSED_FIELDS[name]
    write_adapter(tmp_path, factors_of(maps), **{**LAYERS, name: value})
    with pytest.raises(CheckpointError) as refusal:
        fitted(read_peft(tmp_path), loaded)
    assert message in str(refusal.value)


HEAD = {
    f"base_model.model.classifier.{kind}": torch.full(shape, 0.5)
    for kind, shape in (("weight", (3, 64)), ("bias", (3,)))
}
SAVED = {**LAYERS, "modules_to_save": ["classifier", "score"]}


@pytest.mark.parametrize("labels", [(), ("no", "yes", "maybe")])
def test_a_classifiers_output_is_the_adapters(
    labels: tuple[str, ...], loaded: Checkpoint, maps: dict[str, Any], tmp_path: Path
) -> None:
    """PEFT saves the last map whole; the pooler stays the base's, and labels may be named."""
    write_adapter(tmp_path, {**factors_of(maps), **HEAD}, **SAVED)
    if labels:
        (tmp_path / LABELS_FILE).write_text(json.dumps(labels))
    with pytest.raises(CheckpointError, match="has whole weights too"):
        fitted(read_peft(tmp_path), loaded)
    found = merged(read_peft(tmp_path), loaded)
    before, after = loaded.model.state_dict(), found.model.state_dict()
    assert torch.equal(after["head.output.weight"], torch.full((3, 64), 0.5))
    assert torch.equal(after["head.output.bias"], torch.full((3,), 0.5))
    assert torch.equal(after["head.dense.weight"], before["head.dense.weight"])
    assert found.labels == (labels or loaded.labels)


def test_a_head_that_the_base_cannot_have_is_refused(
    loaded: Checkpoint, maps: dict[str, Any], tmp_path: Path
) -> None:
    small = {name: tensor[:2] for name, tensor in HEAD.items()}
    write_adapter(tmp_path, {**factors_of(maps), **small}, **SAVED)
    with pytest.raises(CheckpointError, match="give a base with the adapter's number of labels"):
        merged(read_peft(tmp_path), loaded)
    embedder = as_embedder(loaded, ImportSettings())
    with pytest.raises(CheckpointError, match=r"put its labels into labels\.json beside it"):
        merged(read_peft(tmp_path), embedder)
    (tmp_path / LABELS_FILE).write_text('["a", "b"]')
    with pytest.raises(CheckpointError, match=r"weights 2 missing: pooler\.dense\.bias, pooler"):
        merged(read_peft(tmp_path), embedder)
    words = {"base_model.model.bert.embeddings.word_embeddings.weight": torch.ones(600, 64)}
    changes = {**SAVED, "modules_to_save": ["word_embeddings"]}
    (tmp_path / LABELS_FILE).unlink()
    write_adapter(tmp_path, {**factors_of(maps), **words}, **changes)
    with pytest.raises(CheckpointError, match="that are of no head of the base"):
        merged(read_peft(tmp_path), loaded)


def _with(name: str, tensor: torch.Tensor) -> Callable[[dict[str, torch.Tensor]], None]:
    return lambda tensors: tensors.update({name: tensor})


WORDS = "base_model.model.bert.embeddings.word_embeddings"
REFUSED_WEIGHTS: dict[str, tuple[Callable[[dict[str, torch.Tensor]], Any], str]] = {
    "NaN": (lambda tensors: tensors[FIRST].fill_(float("nan")), "that are not finite"),
    "infinite": (lambda tensors: tensors[FIRST].fill_(float("inf")), "that are not finite"),
    "too large": (lambda tensors: [t.fill_(1e30) for t in tensors.values()], "not finite once"),
    "another rank": (_with(FIRST, torch.ones(2, 64)), "gives it the rank 3"),
    "one dimension": (_with(FIRST, torch.ones(3)), "has lora_A [3] and lora_B"),
    "of a larger base": (
        _with(FIRST, torch.ones(3, 65)),
        "but the base's map has 64 inputs and 64 outputs: give the adapter its own base",
    ),
    "whole numbers": (
        _with(FIRST, torch.ones(3, 64, dtype=torch.int64)),
        "must have floating point numbers",
    ),
    "half": (lambda tensors: tensors.pop(FIRST), "lora_A.weight'"),
    "none": (lambda tensors: tensors.clear(), "it has no lora_A and lora_B"),
    "of word vectors": (
        _with(f"{WORDS}.lora_embedding_A", torch.ones(3, 9)),
        "is of word vectors, but only linear maps may be adapted",
    ),
    "of DoRA": (
        _with(FIRST.replace("lora_A.weight", "lora_magnitude_vector"), torch.ones(3)),
        "is of DoRA, but only LoRA is supported",
    ),
    "a stranger": (
        _with("base_model.model.extra.weight", torch.ones(3)),
        "is neither a factor of LoRA (lora_A, lora_B) nor of modules_to_save",
    ),
    "without the prefix": (_with("../x.lora_A.weight", torch.ones(3)), "must begin with base_mod"),
    "of a path": (
        lambda tensors: tensors.update(
            {f"base_model.model.../../x.lora_{side}.weight": torch.ones(3, 3) for side in "AB"}
        ),
        "adapts 1 modules that",
    ),
}


@pytest.mark.parametrize("case", REFUSED_WEIGHTS)
def test_weights_that_do_not_fit_are_refused(
    case: str, loaded: Checkpoint, maps: dict[str, Any], tmp_path: Path
) -> None:
    change, message = REFUSED_WEIGHTS[case]
    tensors = factors_of(maps)
    change(tensors)
    write_adapter(tmp_path, tensors, target_modules=".*")
    with pytest.raises(CheckpointError) as refusal:
        merged(read_peft(tmp_path), loaded)
    assert message in str(refusal.value)


def test_a_listed_module_without_weights_is_refused(
    loaded: Checkpoint, maps: dict[str, Any], tmp_path: Path
) -> None:
    """The maps are of two layers, and the configuration says nothing of layers."""
    write_adapter(tmp_path, factors_of(maps))
    with pytest.raises(CheckpointError, match=r"weights 2 missing: encoder\.layer\.2\."):
        fitted(read_peft(tmp_path), loaded)


def test_pickles_are_not_read(maps: dict[str, Any], tmp_path: Path) -> None:
    write_adapter(tmp_path, factors_of(maps))
    tensors = load_file(tmp_path / ADAPTER_WEIGHTS)
    (tmp_path / ADAPTER_WEIGHTS).unlink()
    torch.save(tensors, tmp_path / "adapter_model.bin")
    torch.save(tensors, tmp_path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="an adapter in pickles is not read"):
        read_peft(tmp_path)


def test_a_folder_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="there is no folder"):
        read_peft(tmp_path / "none")
    with pytest.raises(CheckpointError, match=r"adapter_config\.json is missing"):
        read_peft(tmp_path)
