"""Tiny folders with random weights in every form, each with the network that it stands for."""

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.checkpoints.forms.packing import WAYS
from tests.checkpoints.recorded_tokenizers import FOLDERS, Folder
from tests.checkpoints.spellings import save_tokenizer, tokenizer
from tests.commands.folders.test_onnx_decoders import write_folder
from tests.export.adopted.test_decoders import FORMS as DECODERS
from tests.fakes.onnx_folders import CLASSES, onnx_folder
from tests.models.checkpoints.gguf.writing import write_gguf

NUM_ROWS = 600  # of tables of words
_SIZES: dict[str, Any] = {
    "vocab_size": NUM_ROWS,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
}
_DECODER = {**_SIZES, "num_key_value_heads": 2, "tie_word_embeddings": False}
SIZES: dict[str, dict[str, Any]] = {
    "bert": {**_SIZES, "num_labels": 3},
    "gpt2": {
        "vocab_size": NUM_ROWS,
        "n_embd": 64,
        "n_layer": 2,
        "n_head": 4,
        "n_positions": 512,
        "bos_token_id": 0,
        "eos_token_id": 0,
    },
    "t5": {"vocab_size": NUM_ROWS, "d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 2},
    "mistral": {**_DECODER, "sliding_window": None},
}
TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
HEADS = {
    "bert": "AutoModelForSequenceClassification",
    "t5": "AutoModelForSeq2SeqLM",
}
WORDS = {"bert": "bert"}  # spellings of tokenizers; those of decoders are GPT-2's


@dataclass(frozen=True, slots=True)
class Made:
    """A folder, and the network of transformers whose outputs an import of it must have."""

    folder: Path
    network: Any

    @property
    def weights(self) -> Path:
        return self.folder / "model.safetensors"

    def changed(self, **values: Any) -> None:
        """Change fields of config.json; None takes one out."""
        path = self.folder / "config.json"
        config = {**json.loads(path.read_text()), **values}
        kept = {name: value for name, value in config.items() if value is not None}
        path.write_text(json.dumps(kept))


Make = Callable[[Made], Made | None]


def base(kind: str, folder: Path, **changes: Any) -> Made:
    """A folder as transformers writes it."""
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    torch.manual_seed(5)
    config = transformers.AutoConfig.for_model(kind, **{**SIZES.get(kind, _DECODER), **changes})
    if kind == "t5":
        config.decoder_start_token_id = 0
    network = getattr(transformers, HEADS.get(kind, "AutoModelForCausalLM")).from_config(config)
    for parameter in network.eval().parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    network.save_pretrained(folder)
    save_tokenizer(WORDS.get(kind, "gpt2"), folder)
    return Made(folder, network)


def of_dtype(dtype: torch.dtype) -> Make:
    """Weights stored in a type, as it rounds them."""

    def make(made: Made) -> None:
        tensors = {name: each.to(dtype) for name, each in load_file(made.weights).items()}
        save_file(tensors, made.weights, {"format": "pt"})
        stand_for(made.network, tensors)

    return make


def stand_for(network: Any, tensors: Mapping[str, Tensor]) -> None:
    network.load_state_dict({name: each.float() for name, each in tensors.items()}, strict=False)


def pickled(made: Made) -> None:
    torch.save(load_file(made.weights), made.folder / "pytorch_model.bin")
    made.weights.unlink()


def in_parts(ending: str, variant: str = "") -> Make:
    """Two files, and the list of them."""

    def make(made: Made) -> None:
        tensors = load_file(made.weights)
        made.weights.unlink()
        stem = ("model" if ending == "safetensors" else "pytorch_model") + variant
        names: dict[str, str] = {}
        for part in (1, 2):
            file = f"{stem}-{part:05}-of-00002.{ending}"
            inside = {name: tensors[name] for name in sorted(tensors)[part - 1 :: 2]}
            names |= dict.fromkeys(inside, file)
            if ending == "safetensors":
                save_file(inside, made.folder / file, {"format": "pt"})
            else:
                torch.save(inside, made.folder / file)
        index = f"{stem.removesuffix(variant)}.{ending}.index{variant}.json"
        (made.folder / index).write_text(json.dumps({"metadata": {}, "weight_map": names}))

    return make


def variant(made: Made) -> None:
    of_dtype(torch.float16)(made)
    made.weights.rename(made.folder / "model.fp16.safetensors")


def rounded(way: str) -> Make:
    """The matrices of layers as a program stores them."""

    def make(made: Made) -> None:
        store, settings = WAYS[way]
        field = "quantization" if way == "mlx" else "quantization_config"
        made.changed(**{field: settings})
        if store is None:
            return
        tensors = load_file(made.weights)
        values: dict[str, Tensor] = {}
        for name in [name for name in tensors if "layers." in name or "layer." in name]:
            if tensors[name].ndim == 2:
                stored, values[name] = store(tensors.pop(name))
                module = name.removesuffix(".weight")
                tensors |= {f"{module}.{end}": each.contiguous() for end, each in stored.items()}
        save_file(tensors, made.weights, {"format": "pt"})
        stand_for(made.network, values)

    return make


def of_files(*names: str) -> Make:
    """A folder whose weights are of another program, which is told by the names of its files."""

    def make(made: Made) -> None:
        made.weights.unlink()
        for name in names:
            (made.folder / name).write_bytes(b"")

    return make


def without(*names: str) -> Make:
    def make(made: Made) -> None:
        for name in names:
            (made.folder / name).unlink(missing_ok=True)

    return make


def old_names(made: Made) -> None:
    """The names of the norms of TensorFlow's first checkpoints."""
    renamed = {
        name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): tensor
        for name, tensor in load_file(made.weights).items()
    }
    save_file(renamed, made.weights, {"format": "pt"})


def with_words(made: Made) -> None:
    vocabulary = tokenizer("bert").get_vocab()
    words = sorted(vocabulary, key=vocabulary.__getitem__)
    (made.folder / "vocab.txt").write_text("\n".join(words))
    without(*TOKENIZERS)(made)


def with_merges(made: Made) -> None:
    model = json.loads((made.folder / "tokenizer.json").read_text())["model"]
    (made.folder / "vocab.json").write_text(json.dumps(model["vocab"]))
    lines = [each if isinstance(each, str) else " ".join(each) for each in model["merges"]]
    (made.folder / "merges.txt").write_text("\n".join(["#version: 0.2", *lines]))
    without(*TOKENIZERS)(made)


def with_tokenizer(saved: Folder) -> Make:
    """The tokenizer's own file in place of tokenizer.json."""

    def make(made: Made) -> None:
        without(*TOKENIZERS)(made)
        config = (made.folder / "config.json").read_text()
        saved.write(made.folder)
        (made.folder / "config.json").write_text(config)

    return make


def graphs_of(task: str) -> Make:
    """A folder of onnx-community, whose weights are in a graph alone."""

    def make(made: Made) -> Made:
        shutil.rmtree(made.folder)
        return Made(made.folder, onnx_folder(made.folder, task))

    return make


def gguf(made: Made) -> None:
    for path in made.folder.iterdir():
        path.unlink()
    tokens = [f"<{number}>" for number in range(NUM_ROWS)]
    tokens[:3] = ["t", "u", "tu"]
    further = {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": [1] * NUM_ROWS}
    write_gguf(made.network, made.folder / "tiny.gguf", "F32", further)


def tied_differently(made: Made) -> None:
    made.changed(tie_word_embeddings=True)


def tied_and_stored(made: Made) -> None:
    tensors = load_file(made.weights)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    save_file(tensors, made.weights, {"format": "pt"})
    made.changed(tie_word_embeddings=True)
    stand_for(made.network, tensors)


def untied_without(made: Made) -> None:
    tensors = load_file(made.weights)
    del tensors["lm_head.weight"]
    save_file(tensors, made.weights, {"format": "pt"})


def consolidated(made: Made) -> None:
    """Mistral's own names, queries and keys in the order of rotated pairs."""
    tensors = load_file(made.weights)
    config = made.network.config
    renamed: dict[str, Tensor] = {}
    names = {f"self_attn.{part}_proj": f"attention.w{part}" for part in "qkvo"} | {
        "mlp.gate_proj": "feed_forward.w1",
        "mlp.down_proj": "feed_forward.w2",
        "mlp.up_proj": "feed_forward.w3",
        "input_layernorm": "attention_norm",
        "post_attention_layernorm": "ffn_norm",
        "model.embed_tokens": "tok_embeddings",
        "model.norm": "norm",
        "lm_head": "output",
        "model.layers": "layers",
    }
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for name, tensor in tensors.items():
        number = next((number for part, number in heads.items() if part in name), 0)
        if number:
            halves = tensor.reshape(number, 2, tensor.shape[0] // number // 2, -1)
            tensor = halves.transpose(1, 2).reshape(tensor.shape)
        for theirs, ours in names.items():
            name = name.replace(theirs, ours)
        renamed[name] = tensor.contiguous()
    for path in made.folder.iterdir():
        path.unlink()
    save_file(renamed, made.folder / "consolidated.safetensors")
    params = {
        "dim": 64,
        "n_layers": 2,
        "head_dim": 16,
        "hidden_dim": 128,
        "n_heads": 4,
        "n_kv_heads": 2,
        "norm_eps": config.rms_norm_eps,
        "vocab_size": config.vocab_size,
        "rope_theta": config.rope_parameters["rope_theta"],
    }
    (made.folder / "params.json").write_text(json.dumps(params))
    shutil.copy(
        FOLDERS["mistral, numbered"].write(made.folder / "x") / "tokenizer.model.v3", made.folder
    )
    shutil.rmtree(made.folder / "x")


def decoder_graph(name: str) -> Make:
    """A decoder's graph as one of the exporters leaves it, compared with itself as it was."""

    def make(made: Made) -> None:
        shutil.rmtree(made.folder)
        write_folder(name, made.folder)

    return make


def lora(made: Made) -> None:
    """An adapter that names its base, which is elsewhere."""
    for path in made.folder.iterdir():
        path.unlink()
    config = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": 2, "lora_alpha": 2}
    stated = {**config, "target_modules": ["q_proj"], "base_model_name_or_path": "tiny/base"}
    (made.folder / "adapter_config.json").write_text(json.dumps(stated))
    part = "base_model.model.model.layers.0.self_attn.q_proj"
    tensors = {
        f"{part}.lora_A.weight": torch.ones(2, 64),
        f"{part}.lora_B.weight": torch.ones(64, 2),
    }
    save_file(tensors, made.folder / "adapter_model.safetensors")


def old_config(made: Made) -> None:
    """As transformers 4 wrote it."""
    theta = made.network.config.rope_parameters["rope_theta"]
    made.changed(rope_parameters=None, rope_theta=theta, torch_dtype="float32", dtype=None)


def as_it_is(_: Made) -> None:
    return None


FORMS: dict[str, tuple[str, dict[str, Any], Make]] = {
    "bert-bf16": ("bert", {}, of_dtype(torch.bfloat16)),
    "bert-bin-shards": ("bert", {}, in_parts("bin")),
    "bert-bin": ("bert", {}, pickled),
    "bert-fp8-noconfig": ("bert", {}, of_dtype(torch.float8_e4m3fn)),
    "bert-fp8": ("bert", {}, rounded("fp8")),
    "bert-no-tokenizer": (
        "bert",
        {},
        without(*TOKENIZERS),
    ),
    "bert-old-names": ("bert", {}, old_names),
    "bert-onnx-community": ("bert", {}, graphs_of("text-classification")),
    "bert-openvino": ("bert", {}, of_files("openvino_model.xml", "openvino_model.bin")),
    "bert-padded": ("bert", {"vocab_size": NUM_ROWS + 24}, as_it_is),
    "bert-shards": ("bert", {}, in_parts("safetensors")),
    "bert-tf": ("bert", {}, of_files("tf_model.h5")),
    "bert-vocab-txt": ("bert", {}, with_words),
    "gpt2-merges": ("gpt2", {}, with_merges),
    **{f"llama-{way}": ("llama", {}, rounded(way)) for way in WAYS},
    "llama-bf16": ("llama", {}, of_dtype(torch.bfloat16)),
    "llama-bin-shards": ("llama", {}, in_parts("bin")),
    "llama-bin": ("llama", {}, pickled),
    "llama-fp8-noconfig": ("llama", {}, of_dtype(torch.float8_e4m3fn)),
    "llama-genai": ("llama", {}, decoder_graph("llama_genai")),
    "llama-gguf": ("llama", {}, gguf),
    "llama-lora": ("llama", {}, lora),
    "llama-no-tokenizer": (
        "llama",
        {},
        without(*TOKENIZERS),
    ),
    "llama-openvino": ("llama", {}, of_files("openvino_model.xml", "openvino_model.bin")),
    "llama-padded": ("llama", {"vocab_size": NUM_ROWS + 24}, as_it_is),
    "llama-shards": ("llama", {}, in_parts("safetensors")),
    "llama-spm": ("llama", {"vocab_size": 700}, with_tokenizer(FOLDERS["llama"])),
    "llama-tf": ("llama", {}, of_files("tf_model.h5")),
    "llama-flax": ("llama", {}, of_files("flax_model.msgpack")),
    "llama-rust": ("llama", {}, of_files("rust_model.ot")),
    "llama-tied-other": ("llama", {}, tied_differently),
    "llama-tied-stored": ("llama", {}, tied_and_stored),
    "llama-untied-config": ("llama", {}, untied_without),
    "llama-variant": ("llama", {}, variant),
    "llama-variant-shards": ("llama", {}, in_parts("safetensors", ".fp16")),
    "mistral-consolidated": ("mistral", {"vocab_size": 700}, consolidated),
    "mistral-tekken": ("mistral", {"vocab_size": 450}, with_tokenizer(FOLDERS["tekken"])),
    "qwen2-old-config": ("qwen2", {}, old_config),
    **{f"onnx-{task}": ("bert", {}, graphs_of(task)) for task in CLASSES},
    **{f"onnx-{name}": ("llama", {}, decoder_graph(name)) for name in DECODERS},
    "t5-spm": ("t5", {}, with_tokenizer(FOLDERS["t5"])),
}
