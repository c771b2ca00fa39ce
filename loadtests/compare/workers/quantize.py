"""ONNX Runtime's dynamic int8 of an exported folder, with its defaults: what one call gives.

python -m loadtests.compare.workers.quantize FOLDER OUTPUT_FOLDER
"""

import shutil
import sys
from pathlib import Path

from onnxruntime.quantization import QuantType, quantize_dynamic


def main(source: Path, output: Path) -> None:
    shutil.copytree(source, output, ignore=shutil.ignore_patterns("*.onnx*"))
    quantize_dynamic(source / "model.onnx", output / "model.onnx", weight_type=QuantType.QInt8)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
