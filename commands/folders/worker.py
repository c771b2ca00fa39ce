"""A process of its own that imports and exports a folder, so that the server imports no PyTorch.

It reads a job as a line of JSON, and writes lines of JSON: steps, remarks, and at last the facts of
what was made, or an error. It ends when its standard input is closed, as where the server was
killed.
"""

import json
import os
import sys
import threading
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from commands.remarks import showing_remarks
from export.errors import ExportError
from models.errors import ModelError

# Functions that make a model of a folder, by the form of its plan. Each takes the job, the
# repository to write `model` into, and what to call with each step; it returns facts.
MAKERS: Mapping[str, str] = {
    "attendant": "commands.folders.checkpoint_maker:make",
    "sentence-transformers": "commands.folders.checkpoint_maker:make",
    "transformers": "commands.folders.checkpoint_maker:make",
    "traced": "commands.folders.checkpoint_maker:make",
    "gguf": "commands.folders.checkpoint_maker:make",
    "onnx": "commands.folders.onnx_maker:make",
    "adapter": "commands.folders.adapter_maker:make",
}
Say = Callable[..., None]


def main() -> None:
    job = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_the_server, daemon=True).start()
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print is no line of ours

    def say(**line: object) -> None:
        lines.write(json.dumps(line) + "\n")
        lines.flush()

    try:
        with showing_remarks(lambda remark: say(remark=remark)):
            say(facts=_make(job, say))
    except (ExportError, ModelError, OSError, UnicodeDecodeError) as error:
        say(error=str(error))
    except ImportError as error:
        say(error=f"the first start of a folder needs {error.name}: {job['install']}")
    os._exit(0)  # torch's threads are not waited for


def _make(job: dict[str, Any], say: Say) -> dict[str, Any]:
    module, _, name = MAKERS[job["form"]].partition(":")
    make = getattr(import_module(module), name)
    facts: dict[str, Any] = make(job, Path(job["target"]), lambda step: say(step=step))
    return facts


def _end_with_the_server() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main()
