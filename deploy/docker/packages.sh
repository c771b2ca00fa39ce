#!/bin/bash
# packages.sh PYTHON REQUIREMENTS: install packages beside PYTHON, without what the server never
# imports, and compile the rest. Sizes are those of the versions in constraints.txt.
set -euo pipefail
python=$1 requirements=$2

pip --python "$python" install --no-compile -c constraints.txt -r "$requirements"
# Of what tokenizers asks for, the downloader of models, and what it asks for in turn (25 MB); of
# what tritonclient asks for, what its HTTP client needs.
pip --python "$python" uninstall --yes huggingface_hub hf-xet \
    anyio click filelock fsspec h11 httpcore2 httpx2 idna pyyaml tqdm truststore urllib3

cd "$("$python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')"
find . -type d -name tests -prune -exec rm -r '{}' + # 8 MB
find . -type f '(' -name '*.pyi' -o -name '*.pxd' -o -name '*.h' -o -name '*.a' ')' -delete # 3 MB
rm -rf numpy/f2py numpy/distutils # only for compiling: 3 MB
# 4 MB that only making models needs, and the library for programs in C (29 MB).
rm -rf onnxruntime/backend onnxruntime/datasets onnxruntime/quantization onnxruntime/tools onnxruntime/transformers \
    onnxruntime/capi/libonnxruntime.so.*
# Of the CUDA image (docs/how-to/cuda.md): TensorRT's provider, without TensorRT; headers; second builds of NVRTC, which no library of these
# opens (114 MB); cuBLAS in place of a BLAS for the CPU.
rm -rf onnxruntime/capi/libonnxruntime_providers_tensorrt.so nvidia/*/include \
    nvidia/*/lib/libnvrtc*.alt.so.* nvidia/*/lib/libnvblas.so.*
# Images are PNG or JPEG, and text is not drawn: 9 MB of decoders that the server never uses.
rm -rf PIL/_avif.* PIL/_webp.* PIL/_imagingft.* pillow.libs/libavif-* pillow.libs/libwebp* \
    pillow.libs/libfreetype-* pillow.libs/libharfbuzz-*
strip --strip-unneeded ml_dtypes/*.so rapidjson.*.so tokenizers/*.so # debugging symbols: 33 MB

"$python" -m compileall -q . # the root is read-only where they run
