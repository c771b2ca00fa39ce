"""GPT-2 folders: parity with transformers on random weights, and what is refused by name."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

from models.checkpoints.checkpoint import CheckpointError, load_checkpoint
from models.data.tokenizer import byte_level
from models.networks.gpt import GPT, generate

SIZES: dict[str, Any] = {
    "vocab_size": 40,
    "n_embd": 24,
    "n_layer": 3,
    "n_head": 4,
    "n_positions": 32,
    "initializer_range": 0.3,  # large, so that a wrong wire shows
    "bos_token_id": 3,
    "eos_token_id": 3,
}
Save = Callable[..., Path]


def network(**changes: object) -> transformers.GPT2LMHeadModel:
    """Random in every tensor: biases and norms too."""
    torch.manual_seed(4)
    config = transformers.GPT2Config(**{**SIZES, **changes})
    model: transformers.GPT2LMHeadModel = transformers.GPT2LMHeadModel(config)
    model.train(False)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


@pytest.fixture
def save(tmp_path: Path, tokenizer: Tokenizer) -> Save:
    """Write a transformers model with a tokenizer; keywords replace fields of config.json."""

    def write(model: transformers.PreTrainedModel, **changes: object) -> Path:
        model.save_pretrained(tmp_path)
        tokenizer.save(str(tmp_path / "tokenizer.json"))
        path = tmp_path / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
        return tmp_path

    return write


def load_gpt(folder: Path) -> GPT:
    model = load_checkpoint(folder).model
    assert isinstance(model, GPT)
    return model


def edit_weights(folder: Path, edit: Callable[[dict[str, Any]], dict[str, Any]]) -> Path:
    path = folder / "model.safetensors"
    save_file(edit(load_file(path)), path)
    return folder


@pytest.mark.parametrize("activation", ["gelu_new", "gelu", "relu"])
@pytest.mark.parametrize("n_inner", [None, 40])
def test_logits_equal_those_of_transformers(
    save: Save, activation: str, n_inner: int | None
) -> None:
    reference = network(activation_function=activation, n_inner=n_inner, layer_norm_epsilon=1e-3)
    ours = load_gpt(save(reference))
    input_ids = torch.randint(0, 40, (3, 32))
    with torch.inference_mode():
        difference = ours(input_ids) - reference(input_ids).logits
    assert difference.abs().max() < 1e-4
    assert not ours.training
    assert ours.config.intermediate_size == (96 if n_inner is None else 40)


def test_twenty_greedy_tokens_equal_those_of_transformers(save: Save) -> None:
    reference: Any = network()
    folder = save(reference)
    prompt = [5, 6, 7, 8]
    theirs = reference.generate(
        torch.tensor([prompt]), do_sample=False, max_new_tokens=20, eos_token_id=None
    )
    assert generate(load_gpt(folder), prompt, 20, ignore_eos=True) == theirs[0, 4:].tolist()


def test_the_checkpoint_generates_text_with_all_its_positions(save: Save) -> None:
    checkpoint = load_checkpoint(save(network()))
    assert (checkpoint.task, checkpoint.labels) == ("text-generation", ())
    assert checkpoint.max_tokens == 32
    (save(network()) / "tokenizer_config.json").write_text('{"model_max_length": 20}')
    assert load_checkpoint(save(network())).max_tokens == 20


def test_other_spellings_of_the_same_weights_load_alike(save: Save) -> None:
    """Names without a prefix, the causal mask of old versions, and a tied output layer."""
    folder = save(network())
    expected = load_gpt(folder).state_dict()

    def respell(tensors: dict[str, Any]) -> dict[str, Any]:
        short = {name.removeprefix("transformer."): t for name, t in tensors.items()}
        short["h.0.attn.bias"] = torch.ones(1, 1, 32, 32, dtype=torch.bool)
        short["h.0.attn.masked_bias"] = torch.tensor(-1e4)
        short["lm_head.weight"] = short["wte.weight"].clone()
        return short

    found = load_gpt(edit_weights(folder, respell)).state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_a_bare_network_loads_with_its_word_vectors_as_output(save: Save) -> None:
    reference = network()
    ours = load_gpt(save(reference.transformer))
    input_ids = torch.randint(0, 40, (1, 9))
    with torch.inference_mode():
        difference = ours(input_ids) - reference(input_ids).logits
    assert difference.abs().max() < 1e-4


def test_an_output_layer_of_its_own_is_refused(save: Save) -> None:
    folder = save(network(tie_word_embeddings=False))
    with pytest.raises(CheckpointError, match=r"lm_head\.weight differs from wte\.weight"):
        load_checkpoint(folder)
    edit_weights(
        folder,
        lambda tensors: {
            **tensors,
            "lm_head.weight": tensors.pop("transformer.wte.weight").clone(),
            "transformer.wte.weight": tensors["lm_head.weight"],
        },
    )
    with pytest.raises(CheckpointError, match=r"lm_head\.weight differs"):
        load_checkpoint(folder)


def test_an_untied_output_layer_with_equal_weights_loads(save: Save) -> None:
    def tie(tensors: dict[str, Any]) -> dict[str, Any]:
        return {**tensors, "lm_head.weight": tensors["transformer.wte.weight"].clone()}

    folder = save(network(tie_word_embeddings=False))
    load_gpt(edit_weights(folder, tie))

    edit_weights(folder, lambda t: {k: v for k, v in t.items() if k != "lm_head.weight"})
    with pytest.raises(CheckpointError, match=r"1 missing: lm_head\.weight, as it is not tied"):
        load_checkpoint(folder)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("scale_attn_weights", False, "scale_attn_weights is False, but only True"),
        ("scale_attn_by_inverse_layer_idx", True, "layer_idx is True, but only False"),
        ("add_cross_attention", True, "add_cross_attention is True, but only False"),
        ("architectures", ["GPT2DoubleHeadsModel"], "which is not known for the model_type 'gpt2'"),
        ("activation_function", "mish", "activation_function is 'mish', but must be one of gelu"),
        ("eos_token_id", None, "eos_token_id is None, but must be one token id"),
        ("eos_token_id", 40, "eos_token_id is 40, but must be from 0 to 39"),
        ("n_head", 5, "num_heads is 5, but must be a divisor of hidden_size 24"),
        ("n_embd", "wide", "field of the wrong type"),
    ],
)
def test_what_would_be_computed_differently_is_refused_by_name(
    save: Save, field: str, value: object, message: str
) -> None:
    folder = save(network(), **{field: value})
    with pytest.raises(CheckpointError, match=r"config\.json") as caught:
        load_checkpoint(folder)
    assert message in str(caught.value)


def test_what_changes_rounding_only_is_taken(save: Save) -> None:
    load_gpt(save(network(), reorder_and_upcast_attn=True, n_ctx=32))


def test_missing_unexpected_and_misshapen_weights_are_named_as_in_the_file(save: Save) -> None:
    def rename(tensors: dict[str, Any]) -> dict[str, Any]:
        return {name.replace("1.attn.c_attn.bias", "9.rotary"): t for name, t in tensors.items()}

    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(edit_weights(save(network()), rename))
    assert "3 missing: h.1.attn.c_attn.bias (key), h.1.attn.c_attn.bias (q" in str(caught.value)
    assert "1 unexpected: h.9.rotary" in str(caught.value)
    with pytest.raises(CheckpointError, match=r"h\.0\.mlp\.c_fc\.weight has shape \[96, 24\]"):
        load_checkpoint(save(network(), n_inner=48))


@pytest.fixture
def old_tokenizer(tmp_path: Path) -> Tokenizer:
    """Vocabulary and merges as two files, and nothing that says how they are used."""
    tokenizer = byte_level(BPE())
    trainer = BpeTrainer(
        vocab_size=300,
        initial_alphabet=tokenizer.pre_tokenizer.alphabet(),
        special_tokens=["<|endoftext|>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(["the cat sat on the mat, the cat sat"], trainer)
    tokenizer.model.save(str(tmp_path))
    return tokenizer


def test_a_folder_with_vocab_json_and_merges_txt_tokenizes_as_transformers_does(
    old_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    reference = network(vocab_size=300)
    reference.save_pretrained(tmp_path)
    theirs = transformers.GPT2Tokenizer(str(tmp_path / "vocab.json"), str(tmp_path / "merges.txt"))
    found = load_checkpoint(tmp_path).tokenizer
    for text in ("the cat sat", " on  the\nmat \u00e9 \U0001f642", "cat<|endoftext|>the"):
        assert found.encode(text).ids == theirs(text)["input_ids"]
        assert found.decode(found.encode(text).ids, skip_special_tokens=False) == text


def test_a_decoder_without_any_tokenizer_file_says_what_was_expected(tmp_path: Path) -> None:
    network().save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match=r"tokenizer\.json is missing"):
        load_checkpoint(tmp_path)
    (tmp_path / "vocab.json").write_text("{}")
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b\n")
    with pytest.raises(CheckpointError, match=r"vocab\.json and .* do not fit together"):
        load_checkpoint(tmp_path)
