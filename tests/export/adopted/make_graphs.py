"""Make the tiny graphs in `graphs/`, by the programs that people export decoders with.

    python make_graphs.py optimum   optimum-onnx 0.1.0, transformers 4.57: gptj, gemma
    python make_graphs.py merged    optimum 1.13, transformers 4.33, torch 2.1: gpt2_merged
    python make_graphs.py genai     onnxruntime-genai 0.18, transformers 5: llama_genai

Each needs an environment of its own; none of them is a dependency of the project. Weights are
random, and large enough that a wrong position or mask changes the tokens.
"""

import importlib
import lzma
import subprocess
import sys
import tempfile
from pathlib import Path

import onnx
import torch

GRAPHS = Path(__file__).parent / "graphs"
SIZE, LAYERS, HEADS, WORDS, POSITIONS = 32, 2, 2, 272, 128
GPT = {
    "vocab_size": WORDS,
    "n_embd": SIZE,
    "n_layer": LAYERS,
    "n_head": HEADS,
    "n_positions": POSITIONS,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
GATED = {
    "vocab_size": WORDS,
    "hidden_size": SIZE,
    "intermediate_size": SIZE,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": 1,
    "head_dim": SIZE // HEADS,
    "max_position_embeddings": POSITIONS,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": 0,
}
NETWORKS = {
    "gptj": ("GPTJForCausalLM", "GPTJConfig", {**GPT, "rotary_dim": 8}),
    "gemma": ("GemmaForCausalLM", "GemmaConfig", GATED),
    "gpt2_merged": ("GPT2LMHeadModel", "GPT2Config", GPT),
    "llama_genai": ("LlamaForCausalLM", "LlamaConfig", GATED),
}


def save_network(name: str, folder: Path) -> None:
    transformers = importlib.import_module("transformers")
    network, config, values = NETWORKS[name]
    torch.manual_seed(0)
    made = getattr(transformers, network)(getattr(transformers, config)(**values)).eval()
    with torch.no_grad():
        for weight in made.parameters():
            if weight.dim() > 1:
                weight.normal_(0, 0.4).mul_(16).round_().div_(16)  # packs well
    made.save_pretrained(folder)


def export(name: str, source: Path, target: Path) -> Path:
    if name == "llama_genai":
        from tokenizers import Tokenizer
        from tokenizers.models import WordLevel

        words = {f"w{index}": index for index in range(WORDS)}
        Tokenizer(WordLevel(words, "w0")).save(str(source / "tokenizer.json"))
        builder = (sys.executable, "-m", "onnxruntime_genai.models.builder")
        flags = ("-i", source, "-o", target, "-p", "fp32", "-e", "cpu", "-c", target / "cache")
        subprocess.run([*builder, *map(str, flags)], check=True)  # noqa: S603 - our own files
        return target / "model.onnx"
    main_export = importlib.import_module("optimum.exporters.onnx").main_export
    main_export(str(source), str(target), task="text-generation-with-past", do_validation=False)
    merged = target / "decoder_model_merged.onnx"
    return merged if merged.is_file() else target / "model.onnx"


def main(names: tuple[str, ...]) -> None:
    GRAPHS.mkdir(exist_ok=True)
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            source, target = Path(folder) / "source", Path(folder) / "target"
            save_network(name, source)
            model = onnx.load(export(name, source, target))
            packed = lzma.compress(model.SerializeToString())
            (GRAPHS / f"{name}.onnx.xz").write_bytes(packed)


if __name__ == "__main__":
    main(
        {"optimum": ("gptj", "gemma"), "merged": ("gpt2_merged",), "genai": ("llama_genai",)}[
            sys.argv[1]
        ]
    )
