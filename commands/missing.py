"""The end of a program that lacks an optional library: a sentence that says what to install.

For packages that are run as `python -m PACKAGE.MODULE` and import what they show at their
beginning. Knows nothing about them, and imports the standard library alone: the workers of a
comparison run in environments of other programs, which have no `rich`.
"""

import os
import sys
from types import TracebackType

OURS = ("service", "models", "export", "commands", "demos", "loadtests", "attendant", "tests")
LOADTEST = ("onnx", "matplotlib")
TRAIN = ("torch", "gguf", "huggingface_hub", "onnxscript", "safetensors", "sklearn")
EXTRAS = {
    **dict.fromkeys(LOADTEST, "cpu,loadtest"),
    **dict.fromkeys(TRAIN, "cpu,loadtest,train"),
    "onnxruntime": "cpu",
    "llguidance": "grammar",
    "opentelemetry": "telemetry",
    "pyarrow": "bulk",
    "ray": "ray",
    "PIL": "vision",
}
OTHERS = "cpu,loadtest,train,dev"  # has all libraries of the repository's own programs


def end_with_a_sentence_where_a_library_is_missing(package: str) -> None:
    """Make a missing library the end of the program that is being started, without a traceback.

    Called while the package is imported; changes nothing unless that is by `python -m`.
    """
    if sys.argv[:1] != ["-m"]:  # what it is until the module is found
        return
    usual = sys.excepthook
    os.environ.setdefault("TYPER_STANDARD_TRACEBACK", "1")  # else typer has a hook of its own

    def end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        name = (
            (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
        )
        if not name or name in OURS:
            usual(kind, error, trace)
            return
        program = f"python -m {getattr(sys.modules['__main__'].__spec__, 'name', package)}"
        program = program.removesuffix(".__main__")
        extras = EXTRAS.get(name, OTHERS)
        line = f"{program} needs {name}: pip install 'attendant[{extras}]'"
        sys.stderr.write(f"attendant: error: {line}\n")

    sys.excepthook = end
