"""The ways out of folders that an import refuses, each of which was tried.

Knows nothing about folders.
"""

AS_TENSORS = (
    "it cannot be imported as a task; a graph alone, put into the model repository as "
    "NAME/1/model.onnx, is served with tensors in and out"
)
MADE_OF = (
    "it cannot be imported or served here; import the folder of transformers (config.json and "
    "model.safetensors) that it was made of"
)
ELSEWHERE = (
    "it cannot be imported; a graph of it in ONNX, from another tool, is served with tensors in "
    "and out where it is put into the model repository as NAME/1/model.onnx"
)
NOT_ROUNDED = (
    "import the folder that it was rounded from, and round that by attendant export --precision "
    "int8 or int4-weights"
)
