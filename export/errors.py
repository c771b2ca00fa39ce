"""Why an export was refused."""

import re

MAX_REASON = 400  # characters
# What ONNX Runtime says before its reason: its own name, numbers, the path, and places in its code.
BEFORE_REASON = re.compile(
    r"^.*\[ONNXRuntimeError\] : \d+ : \w+ : |Load model from .*? failed: ?|"
    r"(/onnxruntime_src\S*/)?\w+\.cc:\d+ (onnxruntime::.*?&\) )?"
)


class ExportError(Exception):
    """An export that wrote nothing: the message says what is wrong."""


def reason_of_runtime(error: Exception) -> str:
    """The reason in an error of ONNX Runtime, in one line."""
    text = BEFORE_REASON.sub("", " ".join(str(error).split()))
    return text if len(text) <= MAX_REASON else f"{text[:MAX_REASON]}..."
