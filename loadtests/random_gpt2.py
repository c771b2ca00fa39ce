"""A GPT-2 of 124 million random weights, as a Hugging Face folder: what others can load too.

    python -m loadtests.random_gpt2 build/random-gpt2

Weights of layers are four times larger than fresh ones, so that greedy text varies instead of
repeating one token, and a comparison of outputs can fail. The tokenizer knows bytes only:
benchmarks pass token ids.
"""

from pathlib import Path
from typing import Annotated

import torch
import typer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel

SPREAD = 4.0


def main(folder: Annotated[Path, typer.Argument(help="Where to write it.")]) -> None:
    """Write config.json, model.safetensors and the tokenizer's files."""
    torch.manual_seed(1)
    model = GPT2LMHeadModel(GPT2Config(bos_token_id=50_256, eos_token_id=50_256))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2 and "wte" not in name and "wpe" not in name:
                parameter.mul_(SPREAD)
    model.save_pretrained(folder)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))


if __name__ == "__main__":
    typer.run(main)
