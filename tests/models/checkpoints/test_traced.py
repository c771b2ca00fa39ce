"""Folders whose network is transformers' own: what is taken, and what is refused by name."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from export.checks.traced_decoding import check_traced
from export.graphs.tensors import key_of
from export.graphs.traced.decoder import trace_traced
from models.checkpoints.adapters import merged
from models.checkpoints.checkpoint import load_checkpoint, save_checkpoint
from models.checkpoints.known import known_types
from models.checkpoints.lazy import LazyTensor
from models.checkpoints.peft import read_peft
from models.checkpoints.plan import recognise
from models.checkpoints.traced_types import causal_classes, is_traced
from models.errors import CheckpointError, SettingError
from models.networks.llama import Llama
from models.networks.traced import TracedDecoder
from tests.decoders.rows import Row, tokenizer
from tests.traced.networks import tiny_decoder

WEIGHTS = "model.safetensors"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a family that Attendant has no network for."""
    made = tmp_path_factory.mktemp("glm4")
    words = tokenizer()
    decoder = tiny_decoder("glm4", vocab_size=words.get_vocab_size())
    decoder.network.save_pretrained(made)
    words.save(str(made / "tokenizer.json"))
    return made


def changed(folder: Path, target: Path, change: Callable[[Path], None]) -> Path:
    target.mkdir()
    for path in folder.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    change(target)
    return target


def with_field(name: str, value: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        values = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(values | {name: value}))

    return change


def without_weight(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    del tensors["model.norm.weight"]
    save_file(tensors, folder / WEIGHTS, {"format": "pt"})


def with_weight(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS) | {"model.extra.weight": torch.ones(3)}
    save_file(tensors, folder / WEIGHTS, {"format": "pt"})


def pickled(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / "pytorch_model.bin")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_field("auto_map", {"AutoModelForCausalLM": "code.Own"}), "auto_map names code"),
        (with_field("quantization_config", {"quant_method": "gptq"}), "in a form of GPTQ"),
        (with_field("architectures", ["Glm4Model"]), "Glm4ForCausalLM"),
        (pickled, "is not a file of weights alone"),
        (without_weight, "the files have not: model.norm.weight"),
        (with_weight, "the network has not: model.extra.weight"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_what_would_be_lost_or_run_is_refused_by_name(
    folder: Path, tmp_path: Path, change: Callable[[Path], None], message: str
) -> None:
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(changed(folder, tmp_path / "changed", change))


def test_weights_stay_in_their_files_until_a_graph_reads_them(folder: Path) -> None:
    """Every weight, and in the graph every matrix; norms and biases are in memory meanwhile."""
    checkpoint = load_checkpoint(folder, leaves_weights=True)
    assert isinstance(checkpoint.model, TracedDecoder)
    assert all(isinstance(each, LazyTensor) for each in checkpoint.model.parameters())
    graph = trace_traced(checkpoint.model)
    matrices = [each for each in graph.graph.initializer if len(each.dims) > 1]
    assert matrices
    assert all(key_of(each) for each in matrices)
    check_traced(checkpoint.model, graph)


def test_of_a_pickle_the_tensors_are_read_and_nothing_else(folder: Path, tmp_path: Path) -> None:
    def pickle(folder: Path) -> None:
        torch.save(load_file(folder / WEIGHTS), folder / "pytorch_model.bin")
        (folder / WEIGHTS).unlink()

    network, again = (
        load_checkpoint(each).model for each in (folder, changed(folder, tmp_path / "bin", pickle))
    )
    ids = torch.arange(20)[None]
    with torch.inference_mode():
        assert torch.equal(network(ids), again(ids))


def test_a_traced_network_is_the_same_after_it_was_saved(folder: Path, tmp_path: Path) -> None:
    checkpoint = load_checkpoint(folder)
    assert isinstance(checkpoint.model, TracedDecoder)
    save_checkpoint(checkpoint, tmp_path / "saved")
    again = load_checkpoint(tmp_path / "saved")
    ids = torch.arange(20)[None]
    with torch.inference_mode():
        assert torch.equal(checkpoint.model(ids), again.model(ids))
    assert (again.config.eos_token_ids, again.max_tokens) == ((2,), 160)


def test_tied_weights_are_saved_once_and_tied_again(tmp_path: Path) -> None:
    words = tokenizer()
    decoder = tiny_decoder("starcoder2", vocab_size=words.get_vocab_size())
    decoder.network.save_pretrained(tmp_path / "hub")
    words.save(str(tmp_path / "hub/tokenizer.json"))
    save_checkpoint(load_checkpoint(tmp_path / "hub"), tmp_path / "saved")
    network = load_checkpoint(tmp_path / "saved").model.network
    assert network.lm_head.weight is network.model.embed_tokens.weight  # type: ignore[union-attr]


def test_auto_takes_ours_where_there_is_one_and_the_setting_says_otherwise(tmp_path: Path) -> None:
    assert is_traced("glm4")
    assert not is_traced("glm4", "own")
    assert not is_traced("llama")
    assert is_traced("llama", "transformers")
    with pytest.raises(SettingError, match="no network of texts for vit"):
        is_traced("vit", "transformers")
    words = tokenizer()
    decoder = tiny_decoder("llama", vocab_size=words.get_vocab_size())
    decoder.network.save_pretrained(tmp_path)
    words.save(str(tmp_path / "tokenizer.json"))
    assert isinstance(load_checkpoint(tmp_path).model, Llama)
    assert isinstance(load_checkpoint(tmp_path, network="transformers").model, TracedDecoder)


def test_a_plan_says_that_the_network_is_traced(folder: Path) -> None:
    plan = recognise(folder)
    assert (plan.form, plan.refusal) == ("traced", "")
    assert "transformers" in plan.needs


def test_the_table_of_transformers_is_read_of_its_source() -> None:
    """The importer names no family: the library's own table has them."""
    classes = causal_classes()
    assert classes["glm4"] == ("Glm4ForCausalLM",)
    assert classes["qwen3_vl"] == ("Qwen3VLForConditionalGeneration",)
    assert len([name for name in classes if name not in known_types()]) > 100


def test_of_a_network_of_several_media_the_part_for_texts_is_taken(tmp_path: Path) -> None:
    """What reads images is left out, and the class that the folder states is the one that is read.

    Qwen3-VL's texts have the same logits without it.
    """
    words = tokenizer()
    sizes = {"depth": 1, "hidden_size": 32, "num_heads": 2, "out_hidden_size": 64}
    row = Row("qwen3_vl", "", "", {"text_config": {"head_dim": 16}, "vision_config": sizes})
    whole = row.network(words.get_vocab_size())
    whole.save_pretrained(tmp_path)
    words.save(str(tmp_path / "tokenizer.json"))
    checkpoint = load_checkpoint(tmp_path)
    assert not [name for name in checkpoint.model.state_dict() if "visual" in name]
    ids = torch.arange(20)[None]
    with torch.inference_mode():
        assert torch.equal(checkpoint.model(ids), whole(ids).logits)
    save_checkpoint(checkpoint, tmp_path / "saved")
    with torch.inference_mode():
        assert torch.equal(load_checkpoint(tmp_path / "saved").model(ids), whole(ids).logits)


def test_an_adapter_of_a_traced_family_has_its_own_names(folder: Path, tmp_path: Path) -> None:
    checkpoint = load_checkpoint(folder)
    name = "model.layers.0.mlp.gate_up_proj"
    product = checkpoint.model.get_submodule(f"network.{name}")
    assert isinstance(product, torch.nn.Linear)
    a, b = torch.ones(2, product.in_features), torch.ones(product.out_features, 2)
    settings = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["gate_up_proj"]}
    (tmp_path / "adapter_config.json").write_text(json.dumps(settings | {"layers_to_transform": 0}))
    factors = {"lora_A.weight": a, "lora_B.weight": b}
    tensors = {f"base_model.model.{name}.{side}": each for side, each in factors.items()}
    save_file(tensors, tmp_path / "adapter_model.safetensors")
    weight = merged(read_peft(tmp_path), checkpoint).model.get_parameter(f"network.{name}.weight")
    assert torch.allclose(weight, product.weight + 2 * b @ a, atol=1e-6)
