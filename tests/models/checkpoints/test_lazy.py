"""Weights that stay in their files give the numbers that weights in memory give."""

import hashlib
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from safetensors.torch import save as serialised
from torch import Tensor, nn
from torch.nn import functional as F

from models.checkpoints import lazy
from models.checkpoints.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from models.checkpoints.lazy import LazyTensor, realise, realised
from models.checkpoints.writing_weights import write_tensors
from tests.models.checkpoints.test_llama import CASES, Save, save

__all__ = ["save"]  # a fixture

NUM_ROWS, NUM_COLUMNS = 12, 8
BIN = "llama", ".bin"


def stored(dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.randn(NUM_ROWS, NUM_COLUMNS, generator=torch.Generator().manual_seed(0)).to(dtype)


OPERATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "transposed": lambda weight: weight.T,
    "contiguous": lambda weight: weight.T.contiguous(),
    "split": lambda weight: torch.split(weight, [4, 8])[1],
    "split by columns": lambda weight: weight.tensor_split(2, dim=1)[1],
    "plus one": lambda weight: weight + 1.0,
    "times": lambda weight: weight * 0.22,
    "divided": lambda weight: weight / 8.0,
    "of a row": lambda weight: weight[3],
    "reshaped": lambda weight: weight.reshape(3, 4, NUM_COLUMNS),
    "halved and transposed": lambda weight: (weight * 0.5)[2:9].T,
}
COMPUTED: dict[str, Callable[[Tensor], Tensor]] = {
    "product": lambda weight: F.linear(torch.ones(2, 3, NUM_COLUMNS), weight),
    "product with bias": lambda weight: F.linear(torch.ones(2, NUM_COLUMNS), weight, weight[:, 0]),
    "product of a row": lambda weight: F.linear(torch.ones(NUM_COLUMNS), weight),
    "embedding": lambda weight: F.embedding(torch.tensor([[1, 11, 1]]), weight),
    "embedding of scaled": lambda weight: F.embedding(torch.tensor([3]), weight * 2.0),
    "norm": lambda weight: F.rms_norm(torch.ones(2, NUM_COLUMNS), (NUM_COLUMNS,), weight[0]),
    "sum": lambda weight: weight.sum(),
    "cat": lambda weight: torch.cat((weight, weight)),
    "sum of two": lambda weight: weight + weight,
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_changed_lazy_tensor_is_lazy_and_has_the_same_numbers(name: str) -> None:
    weight, change = stored(), OPERATIONS[name]
    found, expected = change(LazyTensor.of_mapped(weight)), change(weight.float())
    assert isinstance(found, LazyTensor)
    assert found.shape == expected.shape
    assert torch.equal(realised(found), expected)
    if expected.ndim > 1:
        assert torch.equal(found.rows(slice(1, 3)), expected[1:3])


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_lazy_weight_is_changed_where_nothing_is_trained(name: str) -> None:
    """A weight from before is made a view of, and computed with, in inference mode."""
    weight, change = stored(), OPERATIONS[name]
    parameter = nn.Parameter(LazyTensor.of_mapped(weight), requires_grad=False)
    with torch.inference_mode():
        assert torch.equal(realised(change(parameter)), change(weight.float()))


@pytest.mark.parametrize("slice_numbers", [1, 2**24])
@pytest.mark.parametrize("name", COMPUTED)
def test_what_is_computed_with_a_lazy_tensor_has_the_same_numbers(
    name: str, slice_numbers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lazy, "SLICE_NUMBERS", slice_numbers)
    weight, compute = stored(), COMPUTED[name]
    found, expected = compute(LazyTensor.of_mapped(weight)), compute(weight.float())
    assert type(found) is Tensor
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


def test_only_the_rows_that_are_asked_for_are_read() -> None:
    read: list[int] = []

    def rows(index: lazy.Index | None) -> Tensor:
        given = stored(torch.float32) if index is None else stored(torch.float32)[index]
        read.append(len(given))
        return given

    weight = LazyTensor(torch.empty(NUM_ROWS, NUM_COLUMNS, device="meta"), rows)
    F.embedding(torch.tensor([1, 2]), weight * 2.0)
    assert read == [2]
    part = torch.split(weight, [4, 8])[1][:5]  # the rows from 4 to 9
    assert torch.equal(part.rows(slice(1, 3)), stored(torch.float32)[5:7])  # type: ignore[attr-defined]
    assert torch.equal(F.embedding(torch.tensor([4]), part), stored(torch.float32)[8:9])
    assert torch.equal(realised(part), stored(torch.float32)[4:9])
    assert read == [2, 2, 1, 5]


@pytest.mark.parametrize(("name", "form"), [*((name, ".safetensors") for name in CASES), BIN])
def test_a_decoder_with_lazy_weights_is_the_decoder(
    save: Save, name: str, form: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Every family, in bfloat16, with what its family folds into weights."""
    folder, own = save(CASES[name].network()), tmp_path_factory.mktemp("own")
    path = folder / "model.safetensors"
    tensors = {name: tensor.bfloat16() for name, tensor in load_file(path).items()}
    if form == ".bin":
        path.unlink()
        torch.save(tensors, folder / "pytorch_model.bin")
    else:
        save_file(tensors, path)
    whole, left = load_checkpoint(folder), load_checkpoint(folder, leaves_weights=True)
    assert all(isinstance(each, LazyTensor) for each in left.model.parameters())
    ids = torch.arange(1, 9)[None]
    with torch.inference_mode():
        assert torch.equal(left.model(ids), whole.model(ids))
    save_checkpoint(whole, own / "whole")
    save_checkpoint(left, own / "left")
    written = [
        load_checkpoint(own / which, leaves_weights=is_lazy).model.state_dict()
        for which, is_lazy in (("whole", False), ("left", False), ("left", True))
    ]
    for key, weight in written[0].items():
        assert all(torch.equal(weight, other[key]) for other in written[1:])
    sizes = [(own / which / "model.safetensors").stat().st_size for which in ("whole", "left")]
    assert sizes[1] < 0.75 * sizes[0] or name == "granite"  # whose maps are multiplied
    realise(left.model)
    assert not any(isinstance(each, LazyTensor) for each in left.model.parameters())


def test_a_network_of_another_kind_has_its_weights_in_memory(
    classifier_checkpoint: Checkpoint, tmp_path: Path
) -> None:
    save_checkpoint(classifier_checkpoint, tmp_path / "own")
    loaded = load_checkpoint(tmp_path / "own", leaves_weights=True)
    assert all(type(each) is nn.Parameter for each in loaded.model.parameters())


@pytest.mark.parametrize("slice_numbers", [1, 2**24])
def test_a_file_that_is_written_by_tensors_is_the_one_of_the_format(
    slice_numbers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lazy, "SLICE_NUMBERS", slice_numbers)
    tensors = {
        "b": stored(),
        "a": stored(torch.float32),
        "c": stored().T,
        "number": torch.tensor(math.pi),
        "ids": torch.arange(3),
        "none": torch.zeros(0, 4),
    }
    path = tmp_path / "model.safetensors"
    digest = write_tensors({**tensors, "b": LazyTensor.of_mapped(tensors["b"])}, path)
    content = path.read_bytes()
    assert digest == hashlib.sha256(content).hexdigest()
    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    assert content == serialised(contiguous)
