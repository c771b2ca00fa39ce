"""Every tensor of a folder goes into the network, or a line names it, or the folder is refused."""

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

from models.checkpoints.checkpoint import load_checkpoint
from models.checkpoints.left_out import NUMBER
from models.errors import CheckpointError, ModelError
from models.remarks import DataWarning
from tests.checkpoints.fields import DECODERS, ENCODERS, network
from tests.models.tiny import word_tokenizer

BODY: Any = transformers.AutoModel
CLASSES: Any = transformers.AutoModelForSequenceClassification
TOKENS: Any = transformers.AutoModelForTokenClassification
MASKS: Any = transformers.AutoModelForMaskedLM
WRITES: Any = transformers.AutoModelForCausalLM
CASES = [
    *((kind, head) for kind in ENCODERS for head in (BODY, CLASSES, TOKENS, MASKS)),
    *((kind, WRITES) for kind in DECODERS),
    *((kind, CLASSES) for kind in DECODERS if kind != "granite"),  # has no such class
]
NAMES = [f"{kind} {head.__name__.removeprefix('AutoModel')}" for kind, head in CASES]
# What a custom head, a wrapper or an adapter adds, which no network here has.
EXTRA = (
    *("linear.weight", "crf.transitions", "classifier.extra.weight", "cls.extra.weight"),
    *("pooler.extra.weight", "head.weight", "score.0.weight", "lm_head.extra.weight"),
    *("encoder.layer.0.adapter.down.weight", "model.layers.0.mlp.extra.weight", "extra"),
)


@pytest.fixture(scope="module", autouse=True)
def _no_bars() -> None:
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]


def write(folder: Path, kind: str, head: Any) -> Path:
    """A folder whose tokenizer has a mask where the head fills masks."""
    network(kind, head).save_pretrained(folder)
    tokenizer = word_tokenizer()
    if head is MASKS:
        tokenizer.add_special_tokens(["[MASK]", "<mask>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def outcome(folder: Path) -> tuple[dict[str, Tensor] | None, str]:
    """The weights of the imported network, or None; and what was said."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DataWarning)
        try:
            state = load_checkpoint(folder).model.state_dict()
        except ModelError as error:
            return None, str(error)
    return state, "\n".join(str(each.message) for each in caught)


def is_named(name: str, said: str) -> bool:
    """Whether a message has the name, in full or without what stands before the body's names."""
    parts = name.split(".")
    return any(
        (short := ".".join(parts[start:])) in said or NUMBER.sub("*", short) in said
        for start in range(min(2, len(parts)))
    )


def first_layer(tensors: dict[str, Tensor]) -> Iterator[str]:
    """Names of one layer's tensors, and of those outside of layers: the other layers are alike."""
    for name in tensors:
        numbers = NUMBER.findall(name)
        if not numbers or set(numbers) == {"0"}:
            yield name


@pytest.mark.parametrize(("kind", "head"), CASES, ids=NAMES)
def test_each_tensor_is_used_or_named(kind: str, head: Any, tmp_path: Path) -> None:
    """A tensor of not-a-numbers is refused where it is used; where it is not, a line names it."""
    path = write(tmp_path, kind, head) / "model.safetensors"
    tensors = load_file(path)
    whole, said = outcome(tmp_path)
    assert whole is not None, said
    unused = []
    for name in list(first_layer(tensors))[:: 2 if head in (TOKENS, MASKS) else 1]:
        save_file({**tensors, name: torch.full_like(tensors[name], float("nan"))}, path)
        state, said = outcome(tmp_path)
        if state is not None and not is_named(name, said):
            unused.append(name)
    assert unused == []


@pytest.mark.parametrize(("kind", "head"), CASES, ids=NAMES)
def test_each_added_tensor_is_refused_or_named(kind: str, head: Any, tmp_path: Path) -> None:
    path = write(tmp_path, kind, head) / "model.safetensors"
    tensors = load_file(path)
    for name in EXTRA:
        save_file({**tensors, name: torch.ones(3, 3)}, path)
        state, said = outcome(tmp_path)
        assert is_named(name, said), name
        assert state is None, f"{name} is of nothing that is known"


@pytest.mark.parametrize("kind", ["bert", "roberta", "modernbert", "llama", "gpt2", "phi3"])
def test_two_names_of_one_weight_are_refused(kind: str, tmp_path: Path) -> None:
    head = WRITES if kind in DECODERS else BODY
    path = write(tmp_path, kind, head) / "model.safetensors"
    tensors = load_file(path)
    prefixes = {"gpt2": "transformer.", "llama": "model.", "phi3": "model.", "modernbert": "model."}
    prefix = prefixes.get(kind, f"{kind}.")
    name = next(name for name in tensors if name.endswith(".weight") and "lm_head" not in name)
    twin = name.removeprefix(prefix) if name.startswith(prefix) else f"{prefix}{name}"
    save_file({**tensors, twin: tensors[name] + 1}, path)
    state, said = outcome(tmp_path)
    assert state is None
    assert "are two names of one weight" in said


@pytest.mark.parametrize(
    "architecture",
    [
        *("HF_ColBERT", "BertForMultipleChoice", "BertForNextSentencePrediction", "BertCrf"),
        *("JinaBertForMaskedLM", "MyBertForSequenceClassification", "BertLMHeadModel"),
    ],
)
def test_a_class_that_is_not_known_is_refused_by_name(architecture: str, tmp_path: Path) -> None:
    folder = write(tmp_path, "bert", BODY)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "architectures": [architecture]}))
    with pytest.raises(CheckpointError, match=f"architectures has '{architecture}', which is not"):
        load_checkpoint(folder)


@pytest.mark.parametrize("architecture", ["LlamaForTokenClassification", "LlamaForRewardModel"])
def test_a_class_of_decoders_that_is_not_known_is_refused_by_name(
    architecture: str, tmp_path: Path
) -> None:
    folder = write(tmp_path, "llama", WRITES)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "architectures": [architecture]}))
    with pytest.raises(CheckpointError, match=f"architectures has '{architecture}', which is not"):
        load_checkpoint(folder)


def test_the_projection_of_colbert_is_not_replaced_by_a_pooling(tmp_path: Path) -> None:
    """Its class left out of config.json, the weight that is of no network is refused."""
    path = write(tmp_path, "bert", BODY) / "model.safetensors"
    config = json.loads((tmp_path / "config.json").read_text())
    del config["architectures"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    tensors = {f"bert.{name}": each for name, each in load_file(path).items()}
    save_file({**tensors, "linear.weight": torch.ones(8, 24)}, path)
    with pytest.raises(CheckpointError, match=r"1 unexpected: linear\.weight"):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize("name", ["model_head.pkl", "model_head.safetensors", "config_setfit.json"])
def test_a_folder_of_setfit_says_what_its_classifier_is_in(name: str, tmp_path: Path) -> None:
    folder = write(tmp_path, "bert", BODY)
    (folder / name).write_bytes(b"{}")
    with pytest.raises(CheckpointError, match=rf"is SetFit's: {name} belong"):
        load_checkpoint(folder)


@pytest.mark.parametrize("name", ["dense.bin", "linear.pt", "head.pkl", "weights.npz"])
def test_other_files_of_weights_are_refused_by_name(name: str, tmp_path: Path) -> None:
    folder = write(tmp_path, "bert", BODY)
    (folder / name).write_bytes(b"")
    with pytest.raises(CheckpointError, match=f"has {name}, which may be part of the model"):
        load_checkpoint(folder)


@pytest.mark.parametrize(
    "name",
    [
        *("pytorch_model.bin", "tf_model.h5", "flax_model.msgpack", "model.fp16.safetensors"),
        *("training_args.bin", "optimizer.pt", "rng_state_0.pth", "consolidated.00.pth"),
        *("openvino_model.bin", "rust_model.ot"),
    ],
)
def test_other_forms_of_the_weights_and_states_of_training_are_passed_over(
    name: str, tmp_path: Path
) -> None:
    folder = write(tmp_path, "bert", BODY)
    (folder / name).write_bytes(b"")
    assert load_checkpoint(folder).task == "embedding"


@pytest.mark.parametrize("kind", ["bert", "roberta", "distilbert", "modernbert"])
def test_an_output_layer_of_its_own_is_refused_where_masks_are_filled(
    kind: str, tmp_path: Path
) -> None:
    outputs = {
        "bert": "cls.predictions.decoder.weight",
        "roberta": "lm_head.decoder.weight",
        "distilbert": "vocab_projector.weight",
        "modernbert": "decoder.weight",
    }
    path = write(tmp_path, kind, MASKS) / "model.safetensors"
    words = torch.ones(40, 24)
    save_file({**load_file(path), outputs[kind]: words}, path)
    with pytest.raises(CheckpointError, match=rf"{outputs[kind]} differs from .*embeddings"):
        load_checkpoint(tmp_path)
