"""A Hugging Face GPT-2 as a GGUF file of some quantisation, by llama.cpp's own converter.

python -m loadtests.compare.workers.gguf LLAMA_CPP_SOURCE FOLDER OUTPUT.gguf f32|bf16|q8_0|q4_0

The converter knows tokenizers by a hash, and ours is not one of them: its hash is added as that of
a tokenizer which splits text as GPT-2's does.
"""

import importlib
import subprocess
import sys
from pathlib import Path

CONVERTED = ("f32", "bf16", "q8_0")  # kinds that the converter writes by itself


def main(source: Path, folder: Path, output: Path, kind: str) -> None:
    sys.path[:0] = [str(source), str(source / "gguf-py")]
    base = importlib.import_module("conversion.base")
    for known in vars(base).values():
        if isinstance(known, type) and hasattr(known, "get_vocab_base_pre"):
            known.get_vocab_base_pre = lambda self, tokenizer: "gpt-2"  # noqa: ARG005
    converter = importlib.import_module("convert_hf_to_gguf")
    written = output if kind in CONVERTED else output.with_name("float32.gguf")
    written_kind = kind if kind in CONVERTED else "f32"
    sys.argv = ["", str(folder), "--outfile", str(written), "--outtype", written_kind]
    converter.main()
    if written != output:
        quantize = Path(sys.executable).parents[1] / "build" / "bin" / "llama-quantize"
        subprocess.run([quantize, written, output, kind], check=True)  # noqa: S603
        written.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4])
