"""A decoder in GGUF gives the logits of the network that it was written from."""

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from models.checkpoints.checkpoint import load_checkpoint
from models.checkpoints.plan import recognise
from models.checkpoints.weights import headers_alone
from models.errors import CheckpointError
from tests.checkpoints.fields import network
from tests.models.checkpoints.gguf.writing import write_gguf

FAMILIES = (
    *("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi3", "smollm3"),
    *("olmo2", "granite"),
)
# Values that published networks have, as a file has no key for the field.
STATED_NOWHERE: dict[str, dict[str, Any]] = {
    "mistral": {"sliding_window": None},
    "gemma2": {"query_pre_attn_scalar": 8},
    "gemma3_text": {"query_pre_attn_scalar": 8, "num_hidden_layers": 7},
}
IDS = torch.tensor(
    [[5, 9, 2, 30, 17, 8, 8, 21, 33, 4, 12, 39], [7, 1, 6, 2, 3, 4, 5, 1, 0, 9, 8, 8]]
)


def of(kind: str, **fields: Any) -> Any:
    return network(kind, transformers.AutoModelForCausalLM, **fields).eval()


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        found = model(IDS)
    return found if isinstance(found, torch.Tensor) else getattr(found, "logits", found[0])


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_file_gives_the_logits_of_its_network(kind: str, tmp_path: Path) -> None:
    model = of(kind, **STATED_NOWHERE.get(kind, {}))
    write_gguf(model, tmp_path / "tiny.gguf")
    checkpoint = load_checkpoint(tmp_path)
    torch.testing.assert_close(logits(checkpoint.model), logits(model), rtol=1e-5, atol=1e-5)
    assert checkpoint.task == "text-generation"
    assert checkpoint.tokenizer.encode("tu", add_special_tokens=False).ids == [2]


@pytest.mark.parametrize("blocks", ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"])
def test_blocks_are_the_numbers_that_they_stand_for(blocks: str, tmp_path: Path) -> None:
    model = of("llama", intermediate_size=64)
    stored = write_gguf(model, tmp_path / "tiny.gguf", blocks)
    model.load_state_dict(
        {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in stored.items()},
        strict=False,
    )
    found = load_checkpoint(tmp_path / "tiny.gguf")
    torch.testing.assert_close(logits(found.model), logits(model), rtol=1e-5, atol=1e-5)


def test_a_plan_reads_the_headers_alone(tmp_path: Path) -> None:
    write_gguf(of("qwen3", intermediate_size=64), tmp_path / "tiny.gguf", "Q8_0")
    plan = recognise(tmp_path)
    assert (plan.form, plan.model_type, plan.task) == ("gguf", "qwen3", "text-generation")
    assert plan.stored_as.keys() == {"F32", "Q8_0"}
    assert recognise(tmp_path / "tiny.gguf").name == "tiny"
    with headers_alone():
        model = load_checkpoint(tmp_path).model
    assert all(weight.is_meta for weight in model.parameters())


def test_the_scaling_of_llama_3_is_found_by_its_factors(tmp_path: Path) -> None:
    scaling = {
        "rope_type": "llama3",
        "rope_theta": 500.0,
        "factor": 8.0,
        "original_max_position_embeddings": 32,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
    }
    model = of("llama", rope_parameters=scaling)
    plain = 500.0 ** -(np.arange(0, 8, 2) / 8)
    factors = plain / model.model.rotary_emb.inv_freq.numpy()
    write_gguf(
        model,
        tmp_path / "tiny.gguf",
        tensors={"rope_freqs.weight": factors.astype(np.float32)},
    )
    found = load_checkpoint(tmp_path).model
    torch.testing.assert_close(logits(found), logits(model), rtol=1e-5, atol=1e-5)


def test_other_files_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    model = of("llama")
    write_gguf(model, path, tensors={"blk.0.ffn_gate_inp.weight": np.ones((4, 32), np.float32)})
    with pytest.raises(CheckpointError, match=r"blk\.0\.ffn_gate_inp\.weight"):
        load_checkpoint(path)
    path.write_bytes(b"GGUF" + bytes(20))
    with pytest.raises(CheckpointError, match="is not a readable file of GGUF"):
        load_checkpoint(path)
    write_gguf(model, path, further={"tokenizer.ggml.pre": "unheard-of"})
    with pytest.raises(CheckpointError, match=r"tokenizer\.ggml\.pre is 'unheard-of'"):
        load_checkpoint(path)
    (tmp_path / "other.gguf").write_bytes(path.read_bytes())
    with pytest.raises(CheckpointError, match=r"2 models of GGUF \(other\.gguf, tiny\.gguf\)"):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize("part", range(24))
def test_a_damaged_file_is_refused_or_read_and_never_another_error(
    part: int, tmp_path: Path
) -> None:
    path = tmp_path / "tiny.gguf"
    write_gguf(of("llama"), path)
    contents = bytearray(path.read_bytes())
    generator = np.random.default_rng(part)
    if part % 3 == 0:
        contents = contents[: int(generator.integers(len(contents)))]
    else:
        for place in generator.integers(0, min(len(contents), 3000), 1 + part % 5):
            contents[place] = int(generator.integers(256))
    path.write_bytes(bytes(contents))
    try:
        load_checkpoint(path)
    except CheckpointError as error:
        assert "tiny" in str(error) or "gguf" in str(error)  # noqa: PT017 - either is right


def stated(keys: bytes = b"", num_keys: int = 0, num_tensors: int = 0) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, num_tensors, num_keys) + keys


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        (b"", "it is empty"),
        (b"GGML" + bytes(40), "it does not begin with GGUF"),
        (b"GGUF" + struct.pack("<IQQ", 9, 0, 0), "its version is 9, expected 2 or 3"),
        (stated(num_keys=2**60), "it ends within its header"),
        (stated(num_tensors=2**60), "it ends within its header"),
        # A key "k" with an array of 2^60 numbers, and with one of as many texts.
        (stated(struct.pack("<Q1sIIQ", 1, b"k", 9, 4, 2**60), 1), "it ends within its header"),
        (stated(struct.pack("<Q1sIIQ", 1, b"k", 9, 8, 2**60), 1), "it ends within its header"),
        (stated(struct.pack("<Q1sI", 1, b"k", 77), 1), "a value is of kind 77"),
        (stated(struct.pack("<Q1sII", 1, b"t", 9, 0), num_tensors=1), "t has 9 axes"),
    ],
)
def test_a_header_that_states_more_than_there_is_ends_at_once(
    contents: bytes, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(contents)
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(path)
    assert message in recognise(path).refusal
