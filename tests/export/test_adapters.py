"""An adapter of PEFT's, from its folder to the tokens that a server generates with it."""

import asyncio
import json
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from export.adapters import import_adapter
from export.errors import ExportError
from export.exporter import export_any
from export.settings import AdapterSettings, ExportSettings
from models.checkpoints.adapters import merged
from models.checkpoints.checkpoint import load_checkpoint, save_checkpoint
from models.checkpoints.peft import read_peft
from models.errors import CheckpointError
from service.calls.sampling import Sampling
from service.contract.adapter import ADAPTER_FILENAME, from_bytes
from service.observe.observers import Observers
from service.repository.loading import Openers
from service.repository.repository import ModelRepository
from service.serving.generative_model import GenerativeModel
from service.serving.model import Caller
from service.settings import Settings
from tests.fakes.generation import read, within_patience
from tests.fakes.scalers import Listener
from tests.fakes.tiny_gpt import torch_logits
from tests.fakes.tiny_llama import tiny_llama, tiny_llama_generator

RANK, NUM_TOKENS = 2, 8
PROMPT = "once upon"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`base` is a checkpoint, `lora` an adapter of it, `models/tiny` its export."""
    folder = tmp_path_factory.mktemp("adapters")
    network = tiny_llama(num_layers=1, hidden_size=256, intermediate_size=512)
    checkpoint = tiny_llama_generator(network)
    save_checkpoint(checkpoint, folder / "base")
    settings = ExportSettings(
        name="tiny", repository=folder / "models", precision="fp32", lora_rank=RANK
    )
    export_any(checkpoint, settings)
    write_peft(folder / "lora", num_in=256)
    return folder


def write_peft(folder: Path, num_in: int) -> None:
    generator = torch.Generator().manual_seed(0)
    tensors = {
        f"base_model.model.model.layers.0.self_attn.{part}.lora_{side}.weight": 0.3
        * torch.randn(shape, generator=generator)
        for part, num_out in (("q_proj", 256), ("v_proj", 128))
        for side, shape in (("A", (RANK, num_in)), ("B", (num_out, RANK)))
    }
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    fields = {"peft_type": "LORA", "r": RANK, "lora_alpha": 6, "bias": "none"}
    targets = {"target_modules": ["q_proj", "v_proj"]}
    (folder / "adapter_config.json").write_text(json.dumps(fields | targets))


def settings_of(folder: Path, **changes: object) -> AdapterSettings:
    values: dict[str, object] = {
        "name": "polite",
        "base": "tiny",
        "checkpoint": str(folder / "base"),
        "repository": folder / "models",
    }
    return AdapterSettings(**values | changes)  # type: ignore[arg-type]


async def said(models: ModelRepository, name: str) -> list[int]:
    model = models.find(name)
    assert isinstance(model, GenerativeModel)
    params = Sampling(temperature=0.0, max_tokens=NUM_TOKENS, ignore_eos=True)
    async with model.generate(PROMPT, params, Caller(time.monotonic())) as generation:
        (answer,) = await within_patience(read(generation))
    return answer.token_ids


async def test_a_served_adapter_generates_what_merged_weights_do(folder: Path) -> None:
    """Over the exported graphs, the base and the adapter at once."""
    version, adapter = import_adapter(folder / "lora", settings_of(folder))
    assert (version.name, adapter.rank, adapter.base) == ("1", RANK, "tiny")
    base = load_checkpoint(folder / "base")
    networks = base.model, merged(read_peft(folder / "lora"), base).model
    models = ModelRepository(
        Settings(model_repository=folder / "models", kv_cache_bytes=2**22), Observers(), Openers()
    )
    try:
        await models.load_all(Listener())
        assert models.failures == {}
        answers = await asyncio.gather(said(models, "tiny"), said(models, "polite"))
    finally:
        await asyncio.to_thread(models.close, 10)
    assert answers[0] != answers[1]
    prompt = base.tokenizer.encode(PROMPT).ids
    for network, token_ids in zip(networks, answers, strict=True):
        for place, token_id in enumerate(token_ids):
            logits = torch_logits(network, [*prompt, *token_ids[:place]])  # type: ignore[arg-type]
            assert token_id == logits[-1].argmax()


def test_the_graphs_have_their_weights_once(folder: Path) -> None:
    exported = folder / "models/tiny/1"
    sizes = {path.name: path.stat().st_size for path in exported.iterdir()}
    num_weights = sum(each.numel() for each in load_checkpoint(folder / "base").model.parameters())
    assert sizes["model.onnx.weights"] + sizes["model.onnx.tables"] < 5 * num_weights
    assert sizes["model.onnx"] + sizes["model.adapters.onnx"] < num_weights


def test_what_is_written_is_the_adapter_with_its_scale(folder: Path) -> None:
    """By PEFT's formula: 6 / 2 of the product, and a further import is a further version."""
    version, _ = import_adapter(folder / "lora", settings_of(folder, name="other"))
    written = from_bytes((version / ADAPTER_FILENAME).read_bytes())
    base = load_checkpoint(folder / "base").model
    added = merged(read_peft(folder / "lora"), load_checkpoint(folder / "base")).model
    for module, factors in written.factors.items():
        before, after = (each.get_submodule(module).weight for each in (base, added))
        assert isinstance(before, torch.Tensor)
        assert isinstance(after, torch.Tensor)
        difference = (after - before).detach().numpy()
        assert np.abs((factors.a @ factors.b).T - difference).max() < 1e-5
    again, _ = import_adapter(folder / "lora", settings_of(folder, name="other"))
    assert (version.name, again.name) == ("1", "2")


def test_an_import_that_is_refused_writes_nothing(folder: Path, tmp_path: Path) -> None:
    write_peft(tmp_path / "wide", num_in=128)
    refused: list[tuple[Path, dict[str, object], type[Exception], str]] = [
        (folder / "lora", {"base": "huge"}, ExportError, "base is 'huge', and .* has no such"),
        (folder / "lora", {"base": "../tiny"}, ExportError, "expected a folder name"),
        (folder / "lora", {"name": ".."}, ExportError, "expected a folder name"),
        (folder / "lora", {"name": "tiny"}, ExportError, "'tiny' exists and is no adapter"),
        (tmp_path / "wide", {"name": "wide"}, CheckpointError, "give the adapter its own base"),
        (tmp_path / "nix", {"name": "nix"}, CheckpointError, "there is no folder"),
    ]
    before = sorted((folder / "models").rglob("*"))
    for source, changes, error, message in refused:
        with pytest.raises(error, match=message):
            import_adapter(source, settings_of(folder, **changes))
    assert sorted((folder / "models").rglob("*")) == before
